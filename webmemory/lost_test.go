package webmemory_test

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
	"mneme/memory"
	"mneme/webmemory"
)

// Redis loses everything in the middle of a run: its client sees an unbroken stream,
// another process shows the whole run, and both histories are whole, also what was
// said before.
func TestFlushedInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	for name, after := range map[string]int{"in a delegation": 4, "before its end": scriptEvents - 1} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := newScript()
			w := newWorld(t, s.agent, lease)
			second := w.process(lease)
			s.let(memory.MustChat("1"), scriptEvents)
			require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"before"}).status)
			s.let(memory.MustChat("1"), after)
			tr := w.open("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
			run := tr.resp.Header.Get("Mneme-Run-Id")
			var seen []string
			take := func(n int) {
				for range n {
					_, data, ok := tr.next()
					require.True(t, ok)
					seen = append(seen, tr.id+" "+string(data))
				}
			}
			take(after)
			events := "/v1/chats/1/runs/" + run + "/events"
			var mirrored *transcript
			w.on(second, func() { mirrored = w.open("GET", events, nil) })
			for range after {
				mirrored.next()
			}
			require.NoError(t, w.look.FlushAll(ctx).Err())
			store := w.store()
			eventually(t, "the run is noted again", func() bool {
				logged, err := store.Runs.Events(ctx, memory.MustChat("1"), run, 0, scriptEvents)
				return err == nil && len(logged) == after && w.look.HExists(ctx, "{chat_history:1}:meta", "open").Val()
			})
			s.let(memory.MustChat("1"), scriptEvents-after)
			take(scriptEvents - after)
			_, _, more := tr.next()
			require.False(t, more)
			require.Equal(t, seen[after:], mirrored.frames(), "who read it elsewhere goes on")
			w.on(second, func() {
				require.Equal(t, seen, w.open("GET", events, nil).frames())
				again := w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
				require.Equal(t, 200, again.status, string(again.body))
				require.Equal(t, run, again.header.Get("Mneme-Run-Id"))
			})
			chat, analytic := whole("before")
			moreChat, moreAnalytic := whole("hi")
			require.Equal(t, append(chat, moreChat...), w.stored("chat_history:1"))
			require.Equal(t, append(analytic, moreAnalytic...), w.stored("subagent:analytic:1"))
			eventually(t, "the run is over", func() bool {
				return errors.Is(w.look.ZScore(ctx, "turns:open", "1").Err(), redis.Nil)
			})
		})
	}
}

// The same while the run says its last events before the loss is noticed.
func TestFlushedJustBeforeTheEnd(t *testing.T) {
	ctx := context.Background()
	s := newScript()
	w := newWorld(t, s.agent) // whose lease is not renewed for seconds
	second := w.process()
	s.let(memory.MustChat("1"), 4)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
	run := tr.resp.Header.Get("Mneme-Run-Id")
	tr.until("subagent_tool")
	require.NoError(t, w.look.FlushAll(ctx).Err())
	s.let(memory.MustChat("1"), scriptEvents)
	require.Equal(t, []string{"subagent_tool_result", "subagent_completion", "assistant_delta", "assistant",
		"run_finished"}, tr.roles())
	w.on(second, func() {
		eventually(t, "its record is there", func() bool {
			return w.look.HExists(ctx, "run:1:"+run, "result").Val()
		})
		require.Len(t, w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).roles(), scriptEvents)
		again := w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
		require.Equal(t, 200, again.status, string(again.body))
	})
	chat, analytic := whole("hi")
	require.Equal(t, chat, w.stored("chat_history:1"))
	require.Equal(t, analytic, w.stored("subagent:analytic:1"))
}

// Redis loses everything, and another process takes the chat's turn before the owner
// does: the owner's client is told, and its run is not paid for any longer.
func TestFlushedAndTakenByAnother(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	s := newScript()
	w := newWorld(t, s.agent)
	second := w.process()
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	run := tr.resp.Header.Get("Mneme-Run-Id")
	tr.until("subagent_delegation")
	require.NoError(t, w.look.FlushAll(ctx).Err())
	w.on(second, func() {
		other := w.open("POST", "/v1/chats/1/messages", message{"again"})
		role, data, _ := tr.next()
		require.Equal(t, "error", role)
		require.Contains(t, string(data), "turn_moved")
		eventually(t, "the run is stopped", func() bool {
			resp, err := http.Get(w.api.URL + "/v1/runs/" + run + "/events")
			require.NoError(t, err)
			defer resp.Body.Close()
			lines := (&transcript{t: t, resp: resp, events: eventsOf(resp)}).frames()
			return len(lines) > 0 && strings.Contains(lines[len(lines)-1], `"stopped"`)
		})
		s.let(memory.MustChat("1"), 2*scriptEvents)
		other.until("run_finished")
	})
}

// Redis comes back with an older state in the middle of a run, with the chat's lease
// but without the last events of the run's log: the log is whole in the end, whether
// the run goes on or was over by then.
func TestAnOlderLogGetsNoHole(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]int{"the run goes on": 0, "the run ends meanwhile": scriptEvents - 4} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := newScript()
			w := newWorld(t, s.agent, lease)
			second := w.process(lease)
			s.let(memory.MustChat("1"), 2)
			tr := w.open("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
			run := tr.resp.Header.Get("Mneme-Run-Id")
			var seen []string
			take := func(n int) {
				for range n {
					_, data, ok := tr.next()
					require.True(t, ok)
					seen = append(seen, tr.id+" "+string(data))
				}
			}
			take(2)
			require.NoError(t, w.look.Save(ctx).Err())
			dump := filepath.Join(w.redis.Dir, "dump.rdb")
			before, err := os.ReadFile(dump)
			require.NoError(t, err)
			s.let(memory.MustChat("1"), 2)
			take(2)
			w.redis.Kill()
			require.NoError(t, os.WriteFile(dump, before, 0o600))
			s.let(memory.MustChat("1"), meanwhile)
			take(meanwhile)
			require.NoError(t, w.redis.Run())
			s.let(memory.MustChat("1"), scriptEvents-4-meanwhile)
			take(scriptEvents - 4 - meanwhile)
			eventually(t, "its record is there", func() bool { return w.look.HExists(ctx, "run:1:"+run, "result").Val() })
			w.on(second, func() {
				require.Equal(t, seen, w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).frames())
			})
			chat, analytic := whole("hi")
			eventually(t, "what was lost of the histories is back", func() bool {
				return slices.Equal(chat, w.stored("chat_history:1")) && slices.Equal(analytic, w.stored("subagent:analytic:1"))
			})
		})
	}
}

// A reader of another process's run is told so if its log vanishes.
func TestAReaderWhoseLogVanishes(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	s := newScript()
	w := newWorld(t, s.agent)
	second := w.process(lease)
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("subagent_delegation")
	run := tr.resp.Header.Get("Mneme-Run-Id")
	w.on(second, func() {
		read := w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		read.until("subagent_delegation")
		require.NoError(t, w.look.Del(ctx, "events:1:"+run).Err())
		role, data, _ := read.next()
		require.Equal(t, "error", role)
		require.Contains(t, string(data), `"events_gone"`)
		require.Empty(t, read.id)
		_, _, more := read.next()
		require.False(t, more)
	})
}

// A stream of a run that never ends has a last moment all the same.
func TestAStreamHasALastMoment(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent)
	second := w.process(lease, func(c *webmemory.Config) { c.RunTimeout = time.Second })
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("subagent_delegation")
	w.on(second, func() {
		read := w.open("GET", "/v1/chats/1/runs/"+tr.resp.Header.Get("Mneme-Run-Id")+"/events", nil)
		read.until("subagent_delegation")
		role, data, _ := read.next()
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
	w := newWorld(t, answers("done"), lease)
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	first, process := w.start(settings)
	runs := map[string]string{} // by key
	w.on(first, func() {
		for _, key := range []string{"one", "two"} {
			got := w.do("POST", "/v1/chats/1/messages", message{key}, "Idempotency-Key", key)
			require.Equal(t, 200, got.status, string(got.body))
			runs[key] = got.header.Get("Mneme-Run-Id")
		}
		require.Equal(t, 200, w.do("POST", "/v1/chats/2/messages", message{"secret"}, "Idempotency-Key", "k").status)
	})
	process.Kill()
	require.NoError(t, w.look.FlushAll(ctx).Err())
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"three"}).status)
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/2", nil).status)
	w.start(settings)
	for key, run := range runs {
		eventually(t, "its record is back", func() bool { return w.look.HExists(ctx, "run:1:"+run, "result").Val() })
		again := w.do("POST", "/v1/chats/1/messages", message{key}, "Idempotency-Key", key)
		require.Equal(t, 200, again.status, string(again.body))
		require.Equal(t, run, again.header.Get("Mneme-Run-Id"))
		require.Len(t, w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).roles(), 6)
	}
	require.Equal(t, []string{
		"user: one", "assistant: done", "user: two", "assistant: done", "user: three", "assistant: done",
	}, w.stored("chat_history:1"), "in the order in which it was said")
	require.Equal(t, []string{
		"user: task: one", "assistant: done", "user: task: two", "assistant: done", "user: task: three", "assistant: done",
	}, w.stored("subagent:analytic:1"))
	require.Nil(t, w.stored("chat_history:2"), "what was erased meanwhile stays away")
	require.Nil(t, w.stored("subagent:analytic:2"))
}

// Redis loses everything after a run: a process that lives tells it again, so that no
// repeated post runs twice.
func TestEndedRunsComeBackFromMemory(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	ctx := context.Background()
	w := newWorld(t, answers("done"))
	second := w.process()
	run := w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k").header.Get("Mneme-Run-Id")
	w.on(second, func() {
		require.NoError(t, w.look.FlushAll(ctx).Err())
		eventually(t, "its record and its events are back", func() bool {
			record := w.look.HGetAll(ctx, "run:1:"+run).Val()
			return record["body"] != "" && record["result"] != "" && w.look.XLen(ctx, "events:1:"+run).Val() > 0
		})
		again := w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
		require.Equal(t, 200, again.status, string(again.body))
		require.Equal(t, run, again.header.Get("Mneme-Run-Id"))
		require.Len(t, w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).roles(), 6)
	})
	require.Equal(t, []string{"user: hi", "assistant: done"}, w.stored("chat_history:1"))
}
