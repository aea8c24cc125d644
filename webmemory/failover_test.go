package webmemory_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/webmemory"
)

// apart gives a process a disk of its own.
func apart(t *testing.T) func(*webmemory.Config) {
	dir := filepath.Join(t.TempDir(), "ends")
	return func(c *webmemory.Config) { c.Ends = dir }
}

// frames reads all of a stream: each event's id and data.
func (tr *transcript) frames() (all []string) {
	for {
		_, data, ok := tr.next()
		if !ok {
			return all
		}
		all = append(all, tr.id+" "+string(data))
	}
}

// staysCompleted looks, through one process, at a scripted run of a chat that its
// client saw completed.
func (w *world) staysCompleted(url, chat, key, run string, seen []string) {
	w.t.Helper()
	w.on(url, func() {
		require.Equal(w.t, seen, w.open("GET", "/v1/chats/"+chat+"/runs/"+run+"/events", nil).frames(),
			"no event's id has two contents")
		again := w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi"}, "Idempotency-Key", key)
		require.Equal(w.t, 200, again.status, string(again.body))
		require.Contains(w.t, string(again.body), "answer to hi")
		require.Equal(w.t, run, again.header.Get("Mneme-Run-Id"))
	})
	wantChat, wantAnalytic := whole("hi")
	require.Equal(w.t, wantChat, w.stored("chat_history:"+chat))
	require.Equal(w.t, wantAnalytic, w.stored("subagent:analytic:"+chat))
}

// loseTheEnd runs a message on a process, lets a failover forget all behind its
// second event, and gives the run with all that its client saw.
func loseTheEnd(w *world, s *script, url, chat, key string, meanwhile func()) (run string, seen []string) {
	w.t.Helper()
	s.let(memory.MustChat(chat), 2)
	var tr *transcript
	w.on(url, func() {
		tr = w.open("POST", "/v1/chats/"+chat+"/messages", message{"hi"}, "Idempotency-Key", key)
	})
	for range 2 {
		_, data, _ := tr.next()
		seen = append(seen, tr.id+" "+string(data))
	}
	w.sentinel.CutReplica()
	s.let(memory.MustChat(chat), scriptEvents)
	seen = append(seen, tr.frames()...)
	require.Len(w.t, seen, scriptEvents)
	require.Contains(w.t, seen[scriptEvents-1], `"completed"`)
	ctx := context.Background()
	eventually(w.t, "the run is over", func() bool {
		return errors.Is(w.look.ZScore(ctx, "turns:open", chat).Err(), redis.Nil)
	})
	meanwhile()
	w.sentinel.Failover()
	eventually(w.t, "Redis is back", func() bool { return w.look.Ping(ctx).Err() == nil })
	return tr.resp.Header.Get("Mneme-Run-Id"), seen
}

// A failover forgets the end of a run that its client saw completed. A process that finds
// the run open asks the process that had it, and all of it is as it was.
func TestACompletedRunSurvivesAFailover(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newSentinelWorld(t, s.agent)
	first := w.process(apart(t), func(c *webmemory.Config) { c.Lease = time.Hour }) // looks after nothing
	second := w.process(apart(t), lease)
	var lostRun string
	var lostSeen []string
	run, seen := loseTheEnd(w, s, first, "1", "k", func() {
		s.let(memory.MustChat("2"), scriptEvents) // a run of which nothing will be left
		w.on(first, func() {
			tr := w.open("POST", "/v1/chats/2/messages", message{"hi"}, "Idempotency-Key", "k")
			lostRun, lostSeen = tr.resp.Header.Get("Mneme-Run-Id"), tr.frames()
		})
		require.Len(t, lostSeen, scriptEvents)
	})
	ctx := context.Background()
	eventually(t, "the other run is told again", func() bool {
		return w.look.HExists(ctx, "run:2:"+lostRun, "result").Val()
	})
	w.staysCompleted(second, "2", "k", lostRun, lostSeen)
	w.staysCompleted(first, "2", "k", lostRun, lostSeen)
	require.NoError(t, w.look.Del(ctx, "{chat_history:1}:turn").Err()) // as if it had run out
	require.NoError(t, w.look.ZAdd(ctx, "turns:open", redis.Z{Score: 1, Member: "1"}).Err())
	eventually(t, "the run is over again", func() bool {
		return errors.Is(w.look.ZScore(ctx, "turns:open", "1").Err(), redis.Nil)
	})
	w.staysCompleted(second, "1", "k", run, seen)
	w.staysCompleted(first, "1", "k", run, seen)
	var retold float64
	for _, url := range []string{first, second} { // the first looks for its own runs too, and may be faster
		w.on(url, func() { retold += w.metric("mneme_retold_runs_total") })
	}
	require.Equal(t, 2.0, retold)
}

// The same with a process that is killed before the failover and comes back on its
// disk: the process that first finds the run waits for it, or is it.
func TestACompletedRunSurvivesAFailoverAndAKill(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newSentinelWorld(t, s.agent)
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	first, process := w.start(settings)
	second := w.process(apart(t), lease)
	run, seen := loseTheEnd(w, s, first, "1", "k", func() {
		process.Kill()
	})
	ctx := context.Background()
	eventually(t, "the dead process's run is found", func() bool {
		token := w.look.Get(ctx, "{chat_history:1}:turn").Val()
		var id string
		for at := range w.look.HGetAll(ctx, "mneme:processes").Val() {
			if len(token) > len(at) && token[:len(at)] == at {
				id = at
			}
		}
		return id != ""
	})
	again, _ := w.start(settings)
	eventually(t, "the run is over again", func() bool {
		return errors.Is(w.look.ZScore(ctx, "turns:open", "1").Err(), redis.Nil)
	})
	w.staysCompleted(second, "1", "k", run, seen)
	w.staysCompleted(again, "1", "k", run, seen)
	folder, err := os.Stat(settings.Ends)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())
	kept, err := os.Stat(filepath.Join(settings.Ends, "c-1", run))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), kept.Mode().Perm())
}

// A post is repeated on another process right after Redis lost everything, before any
// process told it again what ran: it is answered by the run that there was.
func TestAPostRepeatedRightAfterALoss(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent)
	listed := func(n int64) {
		eventually(t, "the processes know each other", func() bool {
			return w.look.HLen(context.Background(), "mneme:processes").Val() == n
		})
	}
	listed(1)
	first := w.process(apart(t), lease)
	listed(2)
	second := w.process(apart(t), lease)
	listed(3)
	post := func(url, chat string) (tr *transcript) {
		w.on(url, func() {
			tr = w.open("POST", "/v1/chats/"+chat+"/messages", message{"hi"}, "Idempotency-Key", "k")
		})
		return tr
	}
	s.let(memory.MustChat("1"), scriptEvents)
	over := post(first, "1")
	run, seen := over.resp.Header.Get("Mneme-Run-Id"), over.frames()
	require.Len(t, seen, scriptEvents)
	s.let(memory.MustChat("2"), 2)
	going := post(first, "2")
	var begun []string
	for range 2 {
		_, data, _ := going.next()
		begun = append(begun, going.id+" "+string(data))
	}
	require.NoError(t, w.look.FlushAll(context.Background()).Err())

	again := post(second, "1")
	require.Equal(t, run, again.resp.Header.Get("Mneme-Run-Id"))
	require.Equal(t, seen, again.frames())
	w.staysCompleted(second, "1", "k", run, seen)
	w.staysCompleted(first, "1", "k", run, seen)

	joined := post(second, "2")
	require.Equal(t, going.resp.Header.Get("Mneme-Run-Id"), joined.resp.Header.Get("Mneme-Run-Id"))
	s.let(memory.MustChat("2"), scriptEvents)
	all := joined.frames()
	require.Len(t, all, scriptEvents)
	require.Equal(t, begun, all[:2], "no event's id has two contents")
	require.Contains(t, all[scriptEvents-1], `"completed"`)
	w.on(second, func() {
		other := w.do("POST", "/v1/chats/1/messages", message{"another"}, "Idempotency-Key", "k")
		require.Equal(t, 422, other.status, string(other.body))
	})
}
