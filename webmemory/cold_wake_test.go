package webmemory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/webmemory"
)

// score is that of a hit, which falls with its age.
var score = regexp.MustCompile(`"score":[0-9.e-]+,`)

func TestASleepingChatComesBackByteForByte(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), shortened)
	w.rich("A1")
	before := w.bytesOf("A1")
	require.Contains(t, before, "{chat_history:A1}:archive")
	require.Contains(t, before, "{subagent:analytic:A1}:meta")
	require.Contains(t, before, "{chat_history:A1}:notes")
	paths := []string{"/v1/chats/A1", "/v1/chats/A1/history?limit=100", "/v1/chats/A1/notes",
		"/v1/chats/A1/subagents/analytic/history", "/v1/chats/A1/export", "/v1/chats/A1/recall?query=question"}
	said := map[string]string{}
	for _, path := range paths {
		got := w.do("GET", path, nil)
		require.Equal(t, 200, got.status, path)
		said[path] = score.ReplaceAllString(string(got.body), "")
	}
	for _, path := range paths {
		w.restful("A1")
		w.asleep("A1")
		require.Equal(t, redis.Nil, w.look.Get(ctx, "chat_history:A1").Err(), "redis-cli shows none while it sleeps")
		list := w.do("GET", "/v1/chats?order=used", nil)
		require.Contains(t, string(list.body), `"asleep":true`)
		require.Contains(t, string(list.body), `"title":"A title"`)
		require.Contains(t, string(list.body), `"metadata":{"k":"v"}`)
		require.Empty(t, w.keysOf("A1"), "a list wakes no chat")

		got := w.do("GET", path, nil)
		require.Equal(t, 200, got.status, path+string(got.body))
		require.Equal(t, said[path], score.ReplaceAllString(string(got.body), ""))
		require.Equal(t, before, w.bytesOf("A1"))
		require.Equal(t, redis.Nil, w.look.ZScore(ctx, "mneme:cold", "A1").Err())
		require.NotContains(t, string(w.do("GET", "/v1/chats?order=used", nil).body), `"asleep"`)
	}
	w.restful("A1")
	w.asleep("A1")
	got := w.do("POST", "/v1/chats/A1/messages", message{"one more"})
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, w.stored("chat_history:A1"), "user: one more")
	require.Equal(t, before["{chat_history:A1}:notes"], w.bytesOf("A1")["{chat_history:A1}:notes"])
	require.Greater(t, len(w.bytesOf("A1")["{chat_history:A1}:archive"].(map[string]string)), 2)
}

// What another program writes under a sleeping chat's name stays, and is adopted as in a chat that is awake.
func TestAForeignWriteToASleepingChatIsAdopted(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), shortened)
	w.rich("1")
	notes := w.bytesOf("1")["{chat_history:1}:notes"]
	w.restful("1")
	w.asleep("1")
	require.NoError(t, w.look.Set(ctx, "chat_history:1", `[{"role":"user","content":"by hand"}]`, 0).Err())
	got := w.do("POST", "/v1/chats/1/messages", message{"next"})
	require.Equal(t, 200, got.status, string(got.body))
	require.Equal(t, []string{"user: by hand", "user: next", "assistant: hello"}, w.stored("chat_history:1"))
	require.Equal(t, notes, w.bytesOf("1")["{chat_history:1}:notes"])
	require.NotEmpty(t, w.stored("subagent:analytic:1"))
}

// So is one to a chat of which a killed sweeper has left nothing but the place in the list.
func TestAForeignWriteToAChatThatFallsAsleepStays(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	w.rich("1")
	w.restful("1")
	w.asleep("1")
	by := `[{"role":"user","content":"by hand"}]`
	require.NoError(t, w.look.Set(ctx, "chat_history:1", by, 0).Err())
	require.NoError(t, w.look.ZAdd(ctx, "mneme:chats", redis.Z{Score: 1, Member: "1"}).Err())
	eventually(t, "it is awake", func() bool {
		return errors.Is(w.look.ZScore(ctx, "mneme:cold", "1").Err(), redis.Nil)
	})
	require.Equal(t, by, w.look.Get(ctx, "chat_history:1").Val())
	require.NotEmpty(t, w.stored("subagent:analytic:1"))
}

// An object that is damaged is told by its name, changes nothing, and can be erased.
func TestADamagedObjectIsTold(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	name := cold.Name(cold.Chats, memory.MustChat("1"))
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	w.restful("1")
	w.asleep("1")
	whole, err := s.Store.Get(ctx, name)
	require.NoError(t, err)
	for _, data := range [][]byte{whole[:len(whole)/2], nil} {
		if data == nil {
			require.NoError(t, s.Store.Delete(ctx, name))
		} else {
			require.NoError(t, s.Store.Put(ctx, name, data))
		}
		got := w.do("GET", "/v1/chats/1/history", nil)
		require.Equal(t, 500, got.status, string(got.body))
		require.Contains(t, got.problem(t).Message, name)
		require.NoError(t, w.look.ZScore(ctx, "mneme:cold", "1").Err())
		require.Equal(t, redis.Nil, w.look.Get(ctx, "chat_history:1").Err())
	}
	require.NoError(t, s.Store.Put(ctx, name, whole))
	require.Equal(t, 200, w.do("GET", "/v1/chats/1/history", nil).status)
	w.restful("1")
	w.asleep("1")
	require.NoError(t, s.Store.Put(ctx, name, []byte("x")))
	got := w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Empty(t, s.names(t, cold.Chats))
	require.Equal(t, redis.Nil, w.look.ZScore(ctx, "mneme:cold", "1").Err())
}

// Redis that lost everything is told by a list of the objects which chats sleep; until then each is found by its name.
func TestChatsSleepThroughTheLossOfRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	var said []string
	for i := range 5 {
		chat := fmt.Sprint("c", i)
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi " + chat}).status)
		said = append(said, string(w.do("GET", "/v1/chats/"+chat+"/history", nil).body))
		w.restful(chat)
		w.asleep(chat)
	}
	held := func(op, _ string) error {
		if op == "list" {
			return errAway
		}
		return nil
	}
	s.before.Store(&held)
	require.NoError(t, w.look.FlushAll(ctx).Err())
	require.Equal(t, said[0], string(w.do("GET", "/v1/chats/c0/history", nil).body), "found by its name")
	s.before.Store(nil)
	eventually(t, "the others are listed", func() bool { return w.look.ZCard(ctx, "mneme:cold").Val() == 5 })
	list := string(w.do("GET", "/v1/chats?order=used", nil).body)
	for i := range 5 {
		require.Equal(t, 1, strings.Count(list, fmt.Sprintf(`"c%d"`, i)), list)
		require.Equal(t, said[i], string(w.do("GET", fmt.Sprintf("/v1/chats/c%d/history", i), nil).body))
	}
	require.Equal(t, 404, w.do("GET", "/v1/chats/none/export", nil).status)
}

// Two processes that have the same chats fall asleep and wake them at once lose nothing.
func TestTwoProcessesWakeTheSameChats(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, 10*time.Millisecond), shortened)
	urls := []string{w.url, w.process(sleepy(s, 10*time.Millisecond), shortened)}
	const chats, rounds = 4, 12
	var asking sync.WaitGroup
	for i := range chats {
		for k, url := range urls {
			asking.Go(func() {
				for n := range rounds {
					body, _ := json.Marshal(message{fmt.Sprintf("m %d.%d", k, n)})
					req, _ := http.NewRequest("POST", fmt.Sprintf("%s/v1/chats/c%d/messages", url, i), bytes.NewReader(body))
					req.Header.Set("Content-Type", "application/json")
					if got := w.send(req); got.status != 200 {
						t.Errorf("%d %s", got.status, got.body)
					}
					time.Sleep(time.Duration(50+30*i+20*k) * time.Millisecond) // not to wait for something: it is the load
				}
			})
		}
	}
	asking.Wait()
	for _, url := range urls {
		w.shutdown[url]()
	}
	w.url = w.process(sleepy(s, wakeful), shortened)
	for i := range chats {
		got := w.do("GET", fmt.Sprintf("/v1/chats/c%d/export", i), nil)
		require.Equal(t, 200, got.status)
		for k := range urls {
			for n := range rounds {
				require.Equal(t, 1, strings.Count(string(got.body), fmt.Sprintf(`"m %d.%d"`, k, n)), "c%d: %d.%d", i, k, n)
			}
		}
	}
}

// What looks into several chats wakes those that sleep: a search in all of a user's, the user's erasure, and a fork.
func TestWhatReadsOtherChatsWakesThem(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), func(c *webmemory.Config) { c.RecallEverywhere = 10 })
	say := func(chat string) {
		got := w.do("POST", "/v1/chats/"+chat+"/messages", `{"message":"the parrot of `+chat+`","user":"ann"}`,
			"Content-Type", "application/json")
		require.Equal(t, 200, got.status, string(got.body))
	}
	for _, chat := range []string{"c1", "c2"} {
		say(chat)
	}
	sleep := func() {
		for _, chat := range []string{"c1", "c2"} {
			w.restful(chat)
			w.asleep(chat)
		}
	}
	sleep()
	got := w.do("GET", "/v1/users/ann/recall?query=parrot", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), `"chat":"c1"`)
	require.Contains(t, string(got.body), `"chat":"c2"`)
	sleep()
	got = w.do("POST", "/v1/chats/c1/fork", `{"as":"c2"}`, "Content-Type", "application/json")
	require.Equal(t, 409, got.status, "c2 only sleeps: %s", got.body)
	require.Equal(t, 200, w.do("PATCH", "/v1/chats/c2", `{"pinned":true}`, "Content-Type", "application/json").status)
	sleep()
	pinned := string(w.do("GET", "/v1/chats?order=pinned", nil).body)
	require.Contains(t, pinned, `"asleep":true`)
	require.Contains(t, pinned, `"the parrot of c2"`)
	got = w.do("DELETE", "/v1/users/ann?chats=true", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), `"c1"`)
	require.Contains(t, string(got.body), `"c2"`)
	require.Empty(t, s.names(t, cold.Chats))
	require.Zero(t, w.look.ZCount(ctx, "mneme:cold", "(0", "+inf").Val()-1, "all but that they are listed")
}
