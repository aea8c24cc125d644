package turns_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/redisstore"
	"mneme/webmemory"
)

// Redis loses everything in the middle of a run: its client sees an unbroken stream,
// another process shows the whole run, and both histories are whole, also what was
// said before.
func TestFlushedInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	for name, after := range map[string]int{"in a delegation": 4, "before its end": webmemorytest.ScriptEvents - 1} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := &webmemorytest.Script{}
			w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
			second := w.StartReplica(webmemorytest.ShortenLease)
			s.Allow("1", webmemorytest.ScriptEvents)
			require.Equal(t, 200, w.Post("1", "before").Status)
			s.Allow("1", after)
			tr := w.PostStream("1", "hi", "Idempotency-Key", "k")
			run := tr.RunID()
			var seen []string
			take := func(n int) {
				for range n {
					_, data, ok := tr.Next()
					require.True(t, ok)
					seen = append(seen, tr.LastID+" "+string(data))
				}
			}
			take(after)
			events := "/v1/chats/1/runs/" + run + "/events"
			var mirrored *webmemorytest.Stream
			w.Target(second, func() { mirrored = w.Stream("GET", events, nil) })
			for range after {
				mirrored.Next()
			}
			require.NoError(t, w.Redis.FlushAll(ctx).Err())
			store := redisstore.New(w.RedisServer.Client(), webmemorytest.Logger())
			webmemorytest.Eventually(t, "the run is noted again", func() bool {
				logged, err := store.Runs.Events(ctx, memory.MustChat("1"), run, 0, webmemorytest.ScriptEvents)
				return err == nil && len(logged) == after && w.Redis.HExists(ctx, "{chat_history:1}:meta", "open").Val()
			})
			s.Allow("1", webmemorytest.ScriptEvents-after)
			take(webmemorytest.ScriptEvents - after)
			_, _, more := tr.Next()
			require.False(t, more)
			require.Equal(t, seen[after:], readFrames(mirrored), "who read it elsewhere goes on")
			w.Target(second, func() {
				require.Equal(t, seen, readFrames(w.Stream("GET", events, nil)))
				again := w.Post("1", "hi", "Idempotency-Key", "k")
				require.Equal(t, 200, again.Status, string(again.Body))
				require.Equal(t, run, again.RunID())
			})
			chat, analytic := webmemorytest.ScriptHistories("before")
			moreChat, moreAnalytic := webmemorytest.ScriptHistories("hi")
			require.Equal(t, append(chat, moreChat...), w.History("chat_history:1"))
			require.Equal(t, append(analytic, moreAnalytic...), w.History("subagent:analytic:1"))
			webmemorytest.Eventually(t, "the run is over", func() bool {
				return errors.Is(w.Redis.ZScore(ctx, "turns:open", "1").Err(), redis.Nil)
			})
		})
	}
}

// The same while the run says its last events before the loss is noticed.
func TestFlushedJustBeforeTheEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play) // whose lease is not renewed for seconds
	second := w.StartReplica()
	s.Allow("1", 4)
	tr := w.PostStream("1", "hi", "Idempotency-Key", "k")
	run := tr.RunID()
	tr.Until("subagent_tool")
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	s.Allow("1", webmemorytest.ScriptEvents)
	require.Equal(t, []string{"subagent_tool_result", "subagent_completion", "assistant_delta", "assistant",
		"run_finished"}, tr.Roles())
	w.Target(second, func() {
		webmemorytest.Eventually(t, "its record is there", func() bool {
			return w.Redis.HExists(ctx, "run:1:"+run, "result").Val()
		})
		require.Len(t, w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Roles(), webmemorytest.ScriptEvents)
		again := w.Post("1", "hi", "Idempotency-Key", "k")
		require.Equal(t, 200, again.Status, string(again.Body))
	})
	chat, analytic := webmemorytest.ScriptHistories("hi")
	require.Equal(t, chat, w.History("chat_history:1"))
	require.Equal(t, analytic, w.History("subagent:analytic:1"))
}

// Redis loses everything, and another process takes the chat's turn before the owner
// does: the owner's client is told, and its run is not paid for any longer.
func TestFlushedAndTakenByAnother(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica()
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi")
	run := tr.RunID()
	tr.Until("subagent_delegation")
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	w.Target(second, func() {
		other := w.PostStream("1", "again")
		role, data, _ := tr.Next()
		require.Equal(t, "error", role)
		require.Contains(t, string(data), "turn_moved")
		webmemorytest.Eventually(t, "the run is stopped", func() bool {
			resp, err := http.Get(w.Apiserver.URL + "/v1/runs/" + run + "/events")
			require.NoError(t, err)
			defer resp.Body.Close()
			lines := readFrames(webmemorytest.NewStream(t, resp))
			return len(lines) > 0 && strings.Contains(lines[len(lines)-1], `"stopped"`)
		})
		s.Allow("1", 2*webmemorytest.ScriptEvents)
		other.Until("run_finished")
	})
}

// Redis comes back with an older state in the middle of a run, with the chat's lease
// but without the last events of the run's log: the log is whole in the end, whether
// the run goes on or was over by then.
func TestAnOlderLogGetsNoHole(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]int{"the run goes on": 0,
		"the run ends meanwhile": webmemorytest.ScriptEvents - 4} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := &webmemorytest.Script{}
			w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
			second := w.StartReplica(webmemorytest.ShortenLease)
			s.Allow("1", 2)
			tr := w.PostStream("1", "hi", "Idempotency-Key", "k")
			run := tr.RunID()
			var seen []string
			take := func(n int) {
				for range n {
					_, data, ok := tr.Next()
					require.True(t, ok)
					seen = append(seen, tr.LastID+" "+string(data))
				}
			}
			take(2)
			require.NoError(t, w.Redis.Save(ctx).Err())
			dump := filepath.Join(w.RedisServer.Dir, "dump.rdb")
			before, err := os.ReadFile(dump)
			require.NoError(t, err)
			s.Allow("1", 2)
			take(2)
			w.RedisServer.Kill()
			require.NoError(t, os.WriteFile(dump, before, 0o600))
			s.Allow("1", meanwhile)
			take(meanwhile)
			require.NoError(t, w.RedisServer.Run())
			s.Allow("1", webmemorytest.ScriptEvents-4-meanwhile)
			take(webmemorytest.ScriptEvents - 4 - meanwhile)
			webmemorytest.Eventually(t, "its record is there", func() bool {
				return w.Redis.HExists(ctx, "run:1:"+run, "result").Val()
			})
			w.Target(second, func() {
				require.Equal(t, seen, readFrames(w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil)))
			})
			chat, analytic := webmemorytest.ScriptHistories("hi")
			webmemorytest.Eventually(t, "what was lost of the histories is back", func() bool {
				return slices.Equal(chat, w.History("chat_history:1")) && slices.Equal(analytic, w.History("subagent:analytic:1"))
			})
		})
	}
}

// A reader of another process's run is told so if its log vanishes.
func TestAReaderWhoseLogVanishes(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica(webmemorytest.ShortenLease)
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	run := tr.RunID()
	w.Target(second, func() {
		read := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		read.Until("subagent_delegation")
		require.NoError(t, w.Redis.Del(ctx, "events:1:"+run).Err())
		role, data, _ := read.Next()
		require.Equal(t, "error", role)
		require.Contains(t, string(data), `"events_gone"`)
		require.Empty(t, read.LastID)
		_, _, more := read.Next()
		require.False(t, more)
	})
}

// A stream of a run that never ends has a last moment all the same.
func TestAStreamHasALastMoment(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica(webmemorytest.ShortenLease, func(c *webmemory.Config) { c.RunTimeout = time.Second })
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	w.Target(second, func() {
		read := w.Stream("GET", "/v1/chats/1/runs/"+tr.RunID()+"/events", nil)
		read.Until("subagent_delegation")
		role, data, _ := read.Next()
		require.Equal(t, "error", role)
		require.Contains(t, string(data), `"events_gone"`)
	})
}

// A process that was killed, and with it Redis, comes back on its disk: what it ended
// lately is there again, in its place, and a post that is repeated elsewhere is
// answered from it.
func TestEndedRunsComeBackFromTheDisk(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("done"), webmemorytest.ShortenLease)
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	first, process := w.StartChild(settings)
	runs := map[string]string{} // by key
	w.Target(first, func() {
		for _, key := range []string{"one", "two"} {
			got := w.Post("1", key, "Idempotency-Key", key)
			require.Equal(t, 200, got.Status, string(got.Body))
			runs[key] = got.RunID()
		}
		require.Equal(t, 200, w.Post("2", "secret", "Idempotency-Key", "k").Status)
	})
	process.Kill()
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	require.Equal(t, 200, w.Post("1", "three").Status)
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/2", nil).Status)
	w.StartChild(settings)
	for key, run := range runs {
		webmemorytest.Eventually(t, "its record is back", func() bool {
			return w.Redis.HExists(ctx, "run:1:"+run, "result").Val()
		})
		again := w.Post("1", key, "Idempotency-Key", key)
		require.Equal(t, 200, again.Status, string(again.Body))
		require.Equal(t, run, again.RunID())
		require.Len(t, w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Roles(), 6)
	}
	require.Equal(t, []string{
		"user: one", "assistant: done", "user: two", "assistant: done", "user: three", "assistant: done",
	}, w.History("chat_history:1"), "in the order in which it was said")
	require.Equal(t, []string{
		"user: task: one", "assistant: done", "user: task: two", "assistant: done", "user: task: three", "assistant: done",
	}, w.History("subagent:analytic:1"))
	require.Nil(t, w.History("chat_history:2"), "what was erased meanwhile stays away")
	require.Nil(t, w.History("subagent:analytic:2"))
}

// Redis loses everything after a run: a process that lives tells it again, so that no
// repeated post runs twice.
func TestEndedRunsComeBackFromMemory(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("done"))
	second := w.StartReplica()
	run := w.Post("1", "hi", "Idempotency-Key", "k").RunID()
	w.Target(second, func() {
		require.NoError(t, w.Redis.FlushAll(ctx).Err())
		webmemorytest.Eventually(t, "its record and its events are back", func() bool {
			record := w.Redis.HGetAll(ctx, "run:1:"+run).Val()
			return record["body"] != "" && record["result"] != "" && w.Redis.XLen(ctx, "events:1:"+run).Val() > 0
		})
		again := w.Post("1", "hi", "Idempotency-Key", "k")
		require.Equal(t, 200, again.Status, string(again.Body))
		require.Equal(t, run, again.RunID())
		require.Len(t, w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Roles(), 6)
	})
	require.Equal(t, []string{"user: hi", "assistant: done"}, w.History("chat_history:1"))
}
