package turns_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/webmemory"
)

// readFrames reads a stream to its end and returns each event's id and data.
func readFrames(tr *webmemorytest.Stream) (all []string) {
	for {
		_, data, ok := tr.Next()
		if !ok {
			return all
		}
		all = append(all, tr.LastID+" "+string(data))
	}
}

// requireCompleted requires that the process at url shows a scripted run as its client saw it.
func requireCompleted(w *webmemorytest.World, url, chat, key, run string, seen []string) {
	w.T.Helper()
	w.Target(url, func() {
		require.Equal(w.T, seen, readFrames(w.Stream("GET", "/v1/chats/"+chat+"/runs/"+run+"/events", nil)),
			"no event's id has two contents")
		again := w.Post(chat, "hi", "Idempotency-Key", key)
		require.Equal(w.T, 200, again.Status, string(again.Body))
		require.Contains(w.T, string(again.Body), "answer to hi")
		require.Equal(w.T, run, again.RunID())
	})
	wantChat, wantAnalytic := webmemorytest.ScriptHistories("hi")
	require.Equal(w.T, wantChat, w.History("chat_history:"+chat))
	require.Equal(w.T, wantAnalytic, w.History("subagent:analytic:"+chat))
}

// loseTheEnd runs a message on a process, lets a failover forget all behind its
// second event, and gives the run with all that its client saw.
func loseTheEnd(w *webmemorytest.World, s *webmemorytest.Script, url, chat, key string, meanwhile func()) (run string,
	seen []string) {
	w.T.Helper()
	s.Allow(chat, 2)
	var tr *webmemorytest.Stream
	w.Target(url, func() {
		tr = w.PostStream(chat, "hi", "Idempotency-Key", key)
	})
	for range 2 {
		_, data, _ := tr.Next()
		seen = append(seen, tr.LastID+" "+string(data))
	}
	w.Sentinel.CutReplica()
	s.Allow(chat, webmemorytest.ScriptEvents)
	seen = append(seen, readFrames(tr)...)
	require.Len(w.T, seen, webmemorytest.ScriptEvents)
	require.Contains(w.T, seen[webmemorytest.ScriptEvents-1], `"completed"`)
	ctx := context.Background()
	webmemorytest.Eventually(w.T, "the run is over", func() bool {
		return errors.Is(w.Redis.ZScore(ctx, "turns:open", chat).Err(), redis.Nil)
	})
	meanwhile()
	w.Sentinel.Failover()
	webmemorytest.Eventually(w.T, "Redis is back", func() bool { return w.Redis.Ping(ctx).Err() == nil })
	return tr.RunID(), seen
}

// A failover forgets the end of a run that its client saw completed. A process that finds
// the run open asks the process that had it, and all of it is as it was.
func TestACompletedRunSurvivesAFailover(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewSentinelWorld(t, s.Play)
	first := w.StartReplica(webmemorytest.OwnDisk(t),
		func(c *webmemory.Config) { c.Lease = time.Hour }) // looks after nothing
	second := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	var lostRun string
	var lostSeen []string
	run, seen := loseTheEnd(w, s, first, "1", "k", func() {
		s.Allow("2", webmemorytest.ScriptEvents) // a run of which nothing will be left
		w.Target(first, func() {
			tr := w.PostStream("2", "hi", "Idempotency-Key", "k")
			lostRun, lostSeen = tr.RunID(), readFrames(tr)
		})
		require.Len(t, lostSeen, webmemorytest.ScriptEvents)
	})
	ctx := context.Background()
	webmemorytest.Eventually(t, "the other run is told again", func() bool {
		return w.Redis.HExists(ctx, "run:2:"+lostRun, "result").Val()
	})
	requireCompleted(w, second, "2", "k", lostRun, lostSeen)
	requireCompleted(w, first, "2", "k", lostRun, lostSeen)
	require.NoError(t, w.Redis.Del(ctx, "{chat_history:1}:turn").Err()) // as if it had run out
	require.NoError(t, w.Redis.ZAdd(ctx, "turns:open", redis.Z{Score: 1, Member: "1"}).Err())
	webmemorytest.Eventually(t, "the run is over again", func() bool {
		return errors.Is(w.Redis.ZScore(ctx, "turns:open", "1").Err(), redis.Nil)
	})
	requireCompleted(w, second, "1", "k", run, seen)
	requireCompleted(w, first, "1", "k", run, seen)
	var retold float64
	for _, url := range []string{first, second} { // the first looks for its own runs too, and may be faster
		w.Target(url, func() { retold += w.Metric("mneme_retold_runs_total") })
	}
	require.Equal(t, 2.0, retold)
}

// The same with a process that is killed before the failover and comes back on its
// disk: the process that first finds the run waits for it, or is it.
func TestACompletedRunSurvivesAFailoverAndAKill(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewSentinelWorld(t, s.Play)
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	first, process := w.StartChild(settings)
	second := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	run, seen := loseTheEnd(w, s, first, "1", "k", func() {
		process.Kill()
	})
	ctx := context.Background()
	webmemorytest.Eventually(t, "the dead process's run is found", func() bool {
		token := w.Redis.Get(ctx, "{chat_history:1}:turn").Val()
		var id string
		for at := range w.Redis.HGetAll(ctx, "mneme:processes").Val() {
			if len(token) > len(at) && token[:len(at)] == at {
				id = at
			}
		}
		return id != ""
	})
	again, _ := w.StartChild(settings)
	webmemorytest.Eventually(t, "the run is over again", func() bool {
		return errors.Is(w.Redis.ZScore(ctx, "turns:open", "1").Err(), redis.Nil)
	})
	requireCompleted(w, second, "1", "k", run, seen)
	requireCompleted(w, again, "1", "k", run, seen)
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
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	listed := func(n int64) {
		webmemorytest.Eventually(t, "the processes know each other", func() bool {
			return w.Redis.HLen(context.Background(), "mneme:processes").Val() == n
		})
	}
	listed(1)
	first := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	listed(2)
	second := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	listed(3)
	post := func(url, chat string) (tr *webmemorytest.Stream) {
		w.Target(url, func() {
			tr = w.PostStream(chat, "hi", "Idempotency-Key", "k")
		})
		return tr
	}
	s.Allow("1", webmemorytest.ScriptEvents)
	over := post(first, "1")
	run, seen := over.RunID(), readFrames(over)
	require.Len(t, seen, webmemorytest.ScriptEvents)
	s.Allow("2", 2)
	going := post(first, "2")
	var begun []string
	for range 2 {
		_, data, _ := going.Next()
		begun = append(begun, going.LastID+" "+string(data))
	}
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())

	again := post(second, "1")
	require.Equal(t, run, again.RunID())
	require.Equal(t, seen, readFrames(again))
	requireCompleted(w, second, "1", "k", run, seen)
	requireCompleted(w, first, "1", "k", run, seen)

	joined := post(second, "2")
	require.Equal(t, going.RunID(), joined.RunID())
	s.Allow("2", webmemorytest.ScriptEvents)
	all := readFrames(joined)
	require.Len(t, all, webmemorytest.ScriptEvents)
	require.Equal(t, begun, all[:2], "no event's id has two contents")
	require.Contains(t, all[webmemorytest.ScriptEvents-1], `"completed"`)
	w.Target(second, func() {
		other := w.Post("1", "another", "Idempotency-Key", "k")
		require.Equal(t, 422, other.Status, string(other.Body))
	})
}

// Redis loses all data during a run, and another process takes the chat's turn before it asks for the run. The run is not
// stopped in between, so a repeated post receives all of it.
func TestARunIsNotStoppedBeforeItsNewHolderAskedForIt(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	first := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	second := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	s.Allow("1", 2)
	post := func(url string) (tr *webmemorytest.Stream) {
		w.Target(url, func() { tr = w.PostStream("1", "hi", "Idempotency-Key", "k") })
		return tr
	}
	going := post(first)
	for range 2 {
		going.Next()
	}
	ctx := context.Background()
	_, err := w.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		p.Set(ctx, "{chat_history:1}:turn", "another-process", 0)
		return nil
	})
	require.NoError(t, err)
	w.Target(first, func() {
		webmemorytest.Eventually(t, "the first process gave the run up", func() bool {
			return w.Metric(`mneme_runs_total{outcome="left"}`) == 1
		})
	})
	webmemorytest.Eventually(t, "the processes know each other", func() bool {
		return w.Redis.HLen(ctx, "mneme:processes").Val() == 3
	})
	require.NoError(t, w.Redis.Del(ctx, "{chat_history:1}:turn").Err())

	joined := post(second)
	require.Equal(t, going.RunID(), joined.RunID())
	s.Allow("1", webmemorytest.ScriptEvents)
	all := readFrames(joined)
	require.Len(t, all, webmemorytest.ScriptEvents)
	require.Contains(t, all[webmemorytest.ScriptEvents-1], `"completed"`)
}

// Redis comes back with a chat's turn but without its run, which another process brings back a moment later. A post that
// was repeated in between joins the run. It does not wait for its turn until it times out.
func TestARepeatedPostJoinsARunThatComesBack(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	s.Allow("1", 2)
	going := w.PostStream("1", "hi", "Idempotency-Key", "k")
	for range 2 {
		going.Next()
	}
	ctx := context.Background()
	lost := map[string]string{}
	for _, key := range w.Redis.Keys(ctx, "*"+going.RunID()+"*").Val() {
		lost[key] = w.Redis.Dump(ctx, key).Val()
	}
	require.NotEmpty(t, lost)
	require.NoError(t, w.Redis.Del(ctx, slices.Collect(maps.Keys(lost))...).Err())
	time.AfterFunc(300*time.Millisecond, func() { // by then the repeated post waits for the turn
		for key, value := range lost {
			w.Redis.RestoreReplace(ctx, key, 0, value)
		}
	})
	var again *webmemorytest.Stream
	w.Target(second, func() { again = w.PostStream("1", "hi", "Idempotency-Key", "k") })
	require.Equal(t, going.RunID(), again.RunID())
	s.Allow("1", webmemorytest.ScriptEvents)
	require.Len(t, readFrames(again), webmemorytest.ScriptEvents)
}

// Redis loses a run between its last event and its answer, so that it has the answer alone. A post that is repeated on
// another process receives all events, which the first process brings back.
func TestARunWithAnAnswerAloneIsBroughtBack(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	s.Allow("1", webmemorytest.ScriptEvents)
	over := w.PostStream("1", "hi", "Idempotency-Key", "k")
	seen := readFrames(over)
	requireCompleted(w, w.URL, "1", "k", over.RunID(), seen)
	ctx := context.Background()
	answer := map[string]string{}
	webmemorytest.Eventually(t, "the answer is stored", func() bool {
		for _, key := range w.Redis.Keys(ctx, "*"+over.RunID()+"*").Val() {
			if result := w.Redis.HGet(ctx, key, "result").Val(); result != "" {
				answer[key] = result
			}
		}
		return len(answer) == 1
	})
	_, err := w.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for key, result := range answer {
			p.HSet(ctx, key, "result", result)
		}
		return nil
	})
	require.NoError(t, err)
	w.Target(second, func() {
		require.Equal(t, seen, readFrames(w.PostStream("1", "hi", "Idempotency-Key", "k")))
	})
}
