package runs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
)

// A process dies in the middle of a run whose log in Redis is damaged, or has an entry of another program. The chat is
// usable again: the apiserver answers the run, or it ends as lost if the apiserver died too.
func TestADamagedLogEndsItsRun(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	add := func(id string, values ...any) func(*webmemorytest.World, string) {
		return func(w *webmemorytest.World, key string) {
			require.NoError(w.T, w.Redis.XAdd(w.T.Context(), &redis.XAddArgs{Stream: key, ID: id, Values: values}).Err())
		}
	}
	for name, damage := range map[string]func(w *webmemorytest.World, key string){
		"another program's entry": add("*", "field", "value"),
		"a damaged line":          add("5-0", "e", `{"role":"assistant","seq":5,`),
		"a foreign event":         add("5-0", "e", `{"role":"assistant","run_id":"other","seq":5,"content":"x"}`),
		"a line in the middle": func(w *webmemorytest.World, key string) {
			all := w.Redis.XRange(w.T.Context(), key, "-", "+").Val()
			require.NoError(w.T, w.Redis.Del(w.T.Context(), key).Err())
			for i, e := range all {
				line := e.Values["e"].(string)
				if i == len(all)/2 {
					line = strings.Replace(line, "{", "[", 1)
				}
				add(e.ID, "e", line)(w, key)
			}
		},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", the apiserver lost it ", lost), func(t *testing.T) {
				t.Parallel()
				s := &webmemorytest.Script{}
				w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
				survivor := w.URL
				url, process := w.StartChild(w.ChildConfig())
				s.Allow("1", 4)
				w.URL = url
				stream := w.PostStream("1", "hi", "Idempotency-Key", "k")
				for range 4 {
					_, _, ok := stream.Next()
					require.True(t, ok)
				}
				if lost {
					w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						if strings.HasPrefix(r.URL.Path, "/v1/runs/") {
							api.WriteProblem(rw, api.ErrUnknownRun)
							return
						}
						rw.WriteHeader(http.StatusNoContent)
					}))
					w.Apiserver.CloseClientConnections()
				}
				process.Kill()
				damage(w, "events:1:"+stream.RunID())
				w.URL = survivor
				s.Allow("1", 2*webmemorytest.ScriptEvents)
				webmemorytest.Eventually(t, "the run is over", func() bool {
					return errors.Is(w.Redis.ZScore(t.Context(), "turns:open", "1").Err(), redis.Nil)
				})
				history := w.History("chat_history:1")
				if lost {
					require.Equal(t, []string{"user: hi", "assistant: (no answer: run_lost)"}, history)
				} else {
					require.Equal(t, 200, w.Post("1", "next").Status)
					require.Len(t, w.History("chat_history:1"), 4)
				}
				require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
			})
		}
	}
}

// The deletion of a chat does not wait for a holder of its lease that does not stop, and does not bring its run to an end.
func TestADeletionBreaksALease(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	require.Equal(t, 200, w.Post("1", "hi").Status)
	store := redisstore.New(w.RedisServer.Client(), webmemorytest.Logger())
	chat, token := memory.MustChat("1"), "elsewhere.1"
	var turn redisstore.Turn
	webmemorytest.Eventually(t, "the lease is free", func() (ok bool) {
		var err error
		turn, err = store.Turns.Take(t.Context(), chat, token, "", 10*time.Minute)
		return err == nil
	})
	_, err := store.Turns.Open(t.Context(), chat, token, 10*time.Minute, redisstore.OpenRun{Run: "r", Turn: turn.Number})
	require.NoError(t, err)
	got := w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Empty(t, w.History("chat_history:1"))
	require.Zero(t, w.Metric("mneme_takeovers_total"))
	require.Equal(t, 200, w.Post("1", "again").Status)
	require.Equal(t, []string{"user: again", "assistant: hello"}, w.History("chat_history:1"))
}

// An apiserver that sends more than a log takes has its run ended once, and the chat is free.
func TestTooManyEventsEndTheirRun(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const maxEvents = 24_000 // of api.Limits
	w := webmemorytest.NewWorld(t, nil)
	var taken atomic.Int64
	w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var req api.RunRequest
		switch {
		case r.URL.Path == "/v1/runs":
			taken.Add(1)
			require.NoError(t, json.NewDecoder(r.Body).Decode(&req))
			rw.WriteHeader(http.StatusAccepted)
			events := "http://" + r.Host + "/v1/runs/" + req.RunID + "/events"
			_ = json.NewEncoder(rw).Encode(api.RunAccepted{RunID: req.RunID, Events: events})
		case r.Method == "GET":
			out := sse.NewWriter(rw, time.Minute)
			run := strings.Split(r.URL.Path, "/")[3]
			for seq := int64(1); seq <= maxEvents+1; seq++ {
				var p event.Payload = &event.AssistantDelta{Text: strings.Repeat("x", api.MaxEvent/maxEvents)}
				if seq == 1 {
					p = &event.RunStarted{ChatID: memory.MustChat("1"), Message: "hi"}
				}
				_ = out.Event(seq, "", event.New(event.Head{RunID: run, Seq: seq, TS: 1}, p).Line())
			}
			_ = out.Flush()
			<-r.Context().Done()
		default:
			rw.WriteHeader(http.StatusNoContent)
		}
	}))
	got := w.Post("1", "hi")
	require.Equal(t, event.RunLost, got.Problem(t).Code, string(got.Body))
	history := w.History("chat_history:1")
	require.Len(t, history, 2)
	require.Less(t, len(history[1]), api.MaxEvent, "what was shown is stored as far as an event can hold it")
	webmemorytest.Eventually(t, "the run is over", func() bool {
		return errors.Is(w.Redis.ZScore(t.Context(), "turns:open", "1").Err(), redis.Nil)
	})
	require.Equal(t, 1.0, w.Metric(`mneme_faults_total{fault="damaged_run"}`))
	require.Equal(t, int64(1), taken.Load())
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
}
