package webmemory_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/spool"
)

func TestMain(m *testing.M) { webmemorytest.Main(m) }

// One process is killed while chats stand at every boundary between two events;
// another one brings every run to its end, also of chats that no client writes to again.
func TestAKilledProcessIsReplacedAtEveryEvent(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	other, process := w.StartChild(w.ChildConfig())
	streams := map[int]*webmemorytest.Stream{}
	for n := range webmemorytest.ScriptEvents {
		chat := fmt.Sprintf("at%d", n)
		s.Allow(chat, max(n, 1))
		w.Target(other, func() {
			tr := w.PostStream(chat, "hi", "Idempotency-Key", "k")
			for range n {
				_, _, ok := tr.Next()
				require.True(t, ok)
			}
			streams[n] = tr
		})
	}
	process.Kill()
	chatWant, analyticWant := webmemorytest.ScriptHistories("hi")
	for n, tr := range streams {
		chat := fmt.Sprintf("at%d", n)
		s.Allow(chat, webmemorytest.ScriptEvents-max(n, 1))
		// The client comes back to the process that is left and gets exactly what it misses.
		again := w.Stream("GET", "/v1/chats/"+chat+"/runs/"+tr.RunID()+"/events", nil, "Last-Event-ID",
			cmp.Or(tr.LastID, "0"))
		require.Len(t, again.Roles(), webmemorytest.ScriptEvents-n, "after %d events", n)
		webmemorytest.Eventually(t, "the run is over", func() bool {
			return errors.Is(w.Redis.ZScore(context.Background(), "turns:open", chat).Err(), redis.Nil)
		})
		require.Equal(t, chatWant, w.History("chat_history:"+chat))
		require.Equal(t, analyticWant, w.History("subagent:analytic:"+chat))
		// A repeated post finds its run, in a process that never had it.
		repeated := w.Post(chat, "hi", "Idempotency-Key", "k")
		require.Equal(t, 200, repeated.Status, string(repeated.Body))
		require.Contains(t, string(repeated.Body), "answer to hi")
		require.Equal(t, chatWant, w.History("chat_history:"+chat))
	}
	require.Contains(t, string(w.Do("GET", "/metrics", nil).Body),
		fmt.Sprintf("mneme_takeovers_total %d", webmemorytest.ScriptEvents))
}

// A process dies with a message in its spool that Redis has taken after all. The one that takes over a run of the chat
// meets it while a subagent of that run has an open task: the task is not the late message's, and is not closed for it.
func TestAMessageThatComesLateClosesNoTaskOfAnotherRun(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	chat, key := memory.MustChat("1"), memory.SubagentKey("analytic", memory.MustChat("1"))
	urls, data, processes := startChildren(w, 2)
	w.Shutdown(w.URL) // so that no other takes over
	s.Allow(chat.ID(), webmemorytest.ScriptEvents)
	var open *webmemorytest.Stream
	w.Target(urls[0], func() {
		require.Equal(t, 200, w.Post("1", "first").Status)
		s.Allow(chat.ID(), 2)
		open = w.PostStream("1", "second")
		open.Until("subagent_delegation")
	})
	webmemorytest.Eventually(t, "the task is stored", func() bool { return len(w.History(key.String())) == 5 })
	processes[1].Kill()
	left, err := spool.Open(filepath.Join(data[1], "spool"), spool.Options{}, webmemorytest.Logger())
	require.NoError(t, err)
	var raw []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(w.Redis.Get(t.Context(), key.String()).Val()), &raw))
	run, seq, _ := memory.SplitID(memory.IDs(raw)[3])
	require.NoError(t, left.Add(spool.Entry{Queue: spool.History(key), Bytes: raw[3],
		Mark: memory.Mark{Run: run, Seq: seq, Turn: time.Now().UnixMilli() - 1}}))
	require.NoError(t, left.Close())
	processes[0].Kill()
	url, _ := w.StartChild(processes[1].settings)
	s.Allow(chat.ID(), webmemorytest.ScriptEvents)
	w.Target(url, func() {
		again := w.Stream("GET", "/v1/chats/1/runs/"+open.RunID()+"/events", nil)
		again.Until("run_finished")
	})
	_, first := webmemorytest.ScriptHistories("first")
	_, second := webmemorytest.ScriptHistories("second")
	whole := append(first, second...)
	webmemorytest.Eventually(t, "the history is whole", func() bool {
		return slices.Equal(whole, w.History(key.String()))
	})
}

// A process that was stopped past its lease and goes on must not write into any
// history of the chat, also not into one that the new turn has not touched.
func TestAPausedProcessWritesNothing(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	other, process := w.StartChild(w.ChildConfig())
	s.Allow("1", 1)
	var paused *webmemorytest.Stream
	w.Target(other, func() {
		paused = w.PostStream("1", "hi")
		paused.Until("run_started")
	})
	process.Pause()
	s.Allow("1", webmemorytest.ScriptEvents-1)
	webmemorytest.Eventually(t, "the run is finished by the other process", func() bool {
		return len(w.History("chat_history:1")) == 2
	})
	s.Allow("1", webmemorytest.ScriptEvents)
	require.Equal(t, 200, w.Post("1", "again").Status)
	chat, analytic := w.History("chat_history:1"), w.History("subagent:analytic:1")
	process.Signal(syscall.SIGCONT)
	last := ""
	for role, _, ok := paused.Next(); ok; role, _, ok = paused.Next() {
		last = role
		require.NotEqual(t, "run_finished", role)
	}
	require.Equal(t, "error", last, "the client is told to look elsewhere")
	require.Empty(t, paused.LastID, "by a frame that is no event of the run")
	require.Equal(t, chat, w.History("chat_history:1"))
	require.Equal(t, analytic, w.History("subagent:analytic:1"))
	wantChat, wantAnalytic := webmemorytest.ScriptHistories("hi")
	moreChat, moreAnalytic := webmemorytest.ScriptHistories("again")
	require.Equal(t, append(wantChat, moreChat...), chat)
	require.Equal(t, append(wantAnalytic, moreAnalytic...), analytic)
}

// Erasure while a paused process has a run: nothing of it comes back.
func TestErasureBeatsAPausedProcess(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	other, process := w.StartChild(w.ChildConfig())
	s.Allow("1", 2)
	var paused *webmemorytest.Stream
	w.Target(other, func() {
		paused = w.PostStream("1", "secret")
		paused.Until("subagent_delegation")
	})
	process.Pause()
	got := w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	process.Signal(syscall.SIGCONT)
	s.Allow("1", webmemorytest.ScriptEvents)
	paused.Roles()
	require.Nil(t, w.History("chat_history:1"))
	require.Nil(t, w.History("subagent:analytic:1"))
	for _, key := range w.Redis.Keys(context.Background(), "*").Val() {
		require.NotContains(t, w.Redis.Dump(context.Background(), key).Val(), "secret", key)
	}
}

// Both the apiserver and the holder die: the run is closed with what was stored and
// shown.
func TestBothDie(t *testing.T) {
	t.Parallel()
	task := []string{"user: task of hi", "assistant: ", "tool: 42"}
	for name, test := range map[string]struct {
		events         int
		closed         []string
		chat, analytic []string
	}{
		"inside a delegation": {5, []string{"subagent_completion", "error", "run_finished"}, []string{
			"user: hi", webmemorytest.LostAnswer,
		}, append(task, webmemorytest.LostAnswer)},
		"while the answer is shown": {7, []string{"assistant", "error", "run_finished"}, []string{
			"user: hi", "assistant: 42",
		}, append(task, "assistant: it is 42")},
		"before it is said that the run is over": {
			8, []string{"run_finished"}, []string{"user: hi", "assistant: answer to hi"}, append(task, "assistant: it is 42"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &webmemorytest.Script{}
			w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
			other, process := w.StartChild(w.ChildConfig())
			s.Allow("1", test.events)
			var run string
			w.Target(other, func() {
				tr := w.PostStream("1", "hi")
				for range test.events {
					_, _, ok := tr.Next()
					require.True(t, ok)
				}
				run = tr.RunID()
			})
			ctx := context.Background()
			open := w.Redis.HGet(ctx, "{chat_history:1}:meta", "open").Val()
			require.NotEmpty(t, open)
			w.LoseRuns()
			process.Kill()
			tr := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", fmt.Sprint(test.events))
			require.Equal(t, test.closed, tr.Roles())
			look := func() {
				require.Equal(t, test.analytic, w.History("subagent:analytic:1"))
				require.Equal(t, test.chat, w.History("chat_history:1"))
			}
			look()

			// As if the process that closed the run had died before it could note that.
			over := func() bool { return errors.Is(w.Redis.ZScore(ctx, "turns:open", "1").Err(), redis.Nil) }
			webmemorytest.Eventually(t, "the run is over", over)
			require.NoError(t, w.Redis.HSet(ctx, "{chat_history:1}:meta", "open", open).Err())
			require.NoError(t, w.Redis.ZAdd(ctx, "turns:open", redis.Z{Score: 1, Member: "1"}).Err())
			webmemorytest.Eventually(t, "the run is over again", over)
			look()
		})
	}
}

// While Redis is away a run goes on; what it acknowledged is in Redis afterwards,
// in its order.
func TestRedisAwayDuringARun(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	for name, away := range map[string]time.Duration{"for a moment": 0,
		"for longer than the lease": webmemorytest.ShortLease * 3 / 2} {
		t.Run(name, func(t *testing.T) {
			s := &webmemorytest.Script{}
			w := webmemorytest.NewDurableWorld(t, s.Play, webmemorytest.ShortenLease)
			s.Allow("1", 2)
			tr := w.PostStream("1", "hi")
			tr.Until("subagent_delegation")
			w.RedisServer.Kill()
			s.Allow("1", 4)
			tr.Until("subagent_completion")
			refused := w.Post("2", "hi")
			require.Equal(t, 503, refused.Status)
			stale := w.Do("GET", "/v1/chats/1/history", nil)
			require.Equal(t, 200, stale.Status)
			require.Contains(t, string(stale.Body), `"stale":true`)
			<-time.After(away)
			require.NoError(t, w.RedisServer.Run())
			s.Allow("1", webmemorytest.ScriptEvents)
			require.Equal(t, []string{"assistant_delta", "assistant", "run_finished"}, tr.Roles())
			chat, analytic := webmemorytest.ScriptHistories("hi")
			webmemorytest.Eventually(t, "everything is in Redis", func() bool {
				return len(w.History("chat_history:1")) == len(chat) && len(w.History("subagent:analytic:1")) == len(analytic)
			})
			require.Equal(t, chat, w.History("chat_history:1"))
			require.Equal(t, analytic, w.History("subagent:analytic:1"))
			webmemorytest.Eventually(t, "the next message is taken", func() bool {
				s.Allow("1", webmemorytest.ScriptEvents)
				return w.Post("1", "again").Status == 200
			})
		})
	}
}

// deadSpool leaves a chat with acknowledged events that lie in Redis up to the
// delegation, and from there to the completion in the spool of a process that was killed;
// own says whether that is on a disk of its own. Redis is back, the apiserver knows
// nothing any more.
func deadSpool(t *testing.T, own bool) (w *webmemorytest.World, spools, run string) {
	s := &webmemorytest.Script{}
	w = webmemorytest.NewDurableWorld(t, s.Play, webmemorytest.ShortenLease)
	if spools = w.Spools; own {
		spools = t.TempDir()
	}
	settings := w.ChildConfig()
	settings.Spool = spools
	other, process := w.StartChild(settings)
	s.Allow("1", 2)
	w.Target(other, func() {
		tr := w.PostStream("1", "secret")
		run = tr.RunID()
		tr.Until("subagent_delegation")
		w.RedisServer.Kill()
		s.Allow("1", 4)
		tr.Until("subagent_completion")
	})
	process.Kill()
	w.LoseRuns()
	require.NoError(t, w.RedisServer.Run())
	return w, spools, run
}

// A run with events that were shown while Redis was away is closed behind them, by the
// process that finds the dead one's spool: no event's id means two things.
func TestARunIsClosedBehindWhatWasShown(t *testing.T) {
	t.Parallel()
	w, _, run := deadSpool(t, false)
	events := "/v1/chats/1/runs/" + run + "/events"
	require.Equal(t, []string{"error", "run_finished"}, w.Stream("GET", events, nil, "Last-Event-ID", "6").Roles())
	all := w.Stream("GET", events, nil).Roles()
	require.Equal(t, []string{
		"run_started", "subagent_delegation", "subagent_assistant_with_tools", "subagent_tool", "subagent_tool_result",
		"subagent_completion", "error", "run_finished",
	}, all)
	chat, analytic := webmemorytest.ScriptHistories("secret")
	require.Equal(t, []string{chat[0], webmemorytest.LostAnswer}, w.History("chat_history:1"))
	require.Equal(t, analytic, w.History("subagent:analytic:1"))
	require.Contains(t, string(w.Do("GET", "/metrics", nil).Body), "mneme_spool_bytes 0")
}

// The same while the process that has shown the events lives, with its spool.
func TestARunIsClosedBehindWhatALivingProcessHasShown(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewDurableWorld(t, s.Play, webmemorytest.ShortenLease)
	other, process := w.StartChild(w.ChildConfig())
	s.Allow("1", 2)
	var run string
	w.Target(other, func() {
		tr := w.PostStream("1", "secret")
		run = tr.RunID()
		tr.Until("subagent_delegation")
		w.RedisServer.Kill()
		s.Allow("1", 4)
		tr.Until("subagent_completion")
	})
	process.Pause()
	w.LoseRuns()
	require.NoError(t, w.RedisServer.Run())
	events := "/v1/chats/1/runs/" + run + "/events"
	require.Equal(t, []string{"error", "run_finished"}, w.Stream("GET", events, nil, "Last-Event-ID", "6").Roles())
	process.Signal(syscall.SIGCONT)
	chat, analytic := webmemorytest.ScriptHistories("secret")
	w.Target(other, func() {
		webmemorytest.Eventually(t, "its spool is drained", func() bool {
			return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "mneme_spool_bytes 0")
		})
	})
	require.Equal(t, []string{chat[0], webmemorytest.LostAnswer}, w.History("chat_history:1"))
	require.Equal(t, analytic, w.History("subagent:analytic:1"))
}

// A process that was paused past its lease, and finds Redis away when it goes on, cannot
// know that no process has replaced it: it shows nothing more.
func TestAPausedProcessShowsNothingWithoutRedis(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	other, process := w.StartChild(w.ChildConfig())
	s.Allow("1", 1)
	var paused *webmemorytest.Stream
	w.Target(other, func() {
		paused = w.PostStream("1", "hi")
		paused.Until("run_started")
	})
	process.Pause()
	s.Allow("1", 3)
	webmemorytest.Eventually(t, "another process has the run", func() bool {
		return len(w.History("subagent:analytic:1")) == 2
	})
	w.RedisServer.Kill()
	process.Signal(syscall.SIGCONT)
	require.Equal(t, []string{"error"}, paused.Roles())
	require.Empty(t, paused.LastID, "a frame that is no event of the run")
}

// What a killed process left in a spool that no other process can read is in Redis once a
// process starts there, behind what was written since, in one block.
func TestTheSpoolOfADeadProcess(t *testing.T) {
	t.Parallel()
	w, spools, run := deadSpool(t, true)
	require.Contains(t, w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Roles(), "run_finished",
		"the run is closed")
	settings := w.ChildConfig()
	settings.Spool = spools
	w.StartChild(settings)
	_, analytic := webmemorytest.ScriptHistories("secret")
	want := append([]string{analytic[0], webmemorytest.LostAnswer}, analytic[1:]...)
	webmemorytest.Eventually(t, "what was acknowledged is there", func() bool {
		return len(w.History("subagent:analytic:1")) == len(want)
	})
	require.Equal(t, want, w.History("subagent:analytic:1"))
}

// What was erased does not come back from an old spool.
func TestErasureBeatsAnOldSpool(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w, spools, run := deadSpool(t, true)
	w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Roles()
	w.SetApiserver(w.Runs.Handler())
	got := w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	settings := w.ChildConfig()
	settings.Spool = spools
	late, _ := w.StartChild(settings)
	w.Target(late, func() {
		webmemorytest.Eventually(t, "the spool is drained", func() bool {
			return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "mneme_spool_bytes 0")
		})
	})
	require.Nil(t, w.History("subagent:analytic:1"))
	require.Nil(t, w.History("chat_history:1"))
	for _, key := range w.Redis.Keys(context.Background(), "*").Val() {
		require.NotContains(t, w.Redis.Dump(context.Background(), key).Val(), "secret", key)
	}
}

// Neither Redis nor the spool takes an event: it is not shown, and the run ends.
func TestNothingIsShownThatIsNotStored(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	w.SpoolOptions.MaxBytes = 1
	w.URL = w.StartReplica(webmemorytest.ShortenLease)
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	w.RedisServer.Kill()
	s.Allow("1", 1)
	role, data, _ := tr.Next()
	require.Equal(t, "error", role)
	require.Empty(t, tr.LastID, "an error that is no event of the run")
	require.Equal(t, `"memory_unavailable"`, gjson.GetBytes(data, "code").Raw)
	_, _, more := tr.Next()
	require.False(t, more)
}

// A process that is asked to end leaves its runs to others.
func TestShutdownLeavesRuns(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	first := w.URL
	second := w.StartReplica(webmemorytest.ShortenLease)
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	w.Shutdown(first)
	role, data, _ := tr.Next()
	require.Equal(t, "error", role)
	require.Contains(t, string(data), "shutting_down")
	s.Allow("1", webmemorytest.ScriptEvents)
	w.Target(second, func() {
		again := w.Stream("GET", "/v1/chats/1/runs/"+tr.RunID()+"/events", nil, "Last-Event-ID", "2")
		require.Len(t, again.Roles(), webmemorytest.ScriptEvents-2)
	})
	chat, analytic := webmemorytest.ScriptHistories("hi")
	// The second process may have read the events from the run's log, which is stored before the histories.
	webmemorytest.Eventually(t, "the histories are stored", func() bool {
		return slices.Equal(chat, w.History("chat_history:1")) && slices.Equal(analytic, w.History("subagent:analytic:1"))
	})
}

// An address that a stranger wrote into Redis is not followed: a server that gets a request of a service gets the
// services' secret.
func TestAForeignAddressOfARunIsNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(foreign.Close)
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	second := w.StartReplica()
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	run := tr.RunID()
	meta := memory.RedisKey{Kind: memory.KindMeta, Key: memory.ChatKey(memory.MustChat("1"))}.String()
	note, err := w.Redis.HGet(t.Context(), meta, "open").Bytes()
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(note, &members))
	members["events"] = foreign.URL + "/v1/runs/" + run + "/events"
	note, err = json.Marshal(members)
	require.NoError(t, err)
	require.NoError(t, w.Redis.HSet(t.Context(), meta, "open", note).Err())
	w.Target(second, func() {
		require.Equal(t, 202, w.Do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).Status)
	})
	require.Zero(t, asked.Load())
	require.JSONEq(t, `"stopped"`, gjson.GetBytes(tr.Until("run_finished"), "outcome").Raw)
}

// A run is read, joined and stopped through any process.
func TestARunOfAnotherProcess(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica()
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi", "Idempotency-Key", "k")
	tr.Until("subagent_delegation")
	run := tr.RunID()
	w.Target(second, func() {
		live := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		live.Until("subagent_delegation")
		joined := w.PostStream("1", "hi", "Idempotency-Key", "k")
		joined.Until("subagent_delegation")
		require.Equal(t, 422, w.Post("1", "else", "Idempotency-Key", "k").Status)
		require.Equal(t, 202, w.Do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).Status)
		require.Equal(t, []string{"run_finished"}, live.Roles())
		require.Equal(t, []string{"run_finished"}, joined.Roles())
		webmemorytest.Eventually(t, "over", func() bool {
			return w.Do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).Status == 200
		})
		require.Equal(t, 204, w.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", "3").Status)
	})
}

// What was erased through one process is shown by no other.
func TestErasureIsEverywhere(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("secret answer"))
	second := w.StartReplica()
	first := w.Post("1", "secret", "Idempotency-Key", "k")
	run := first.RunID()
	read := func() (all string) {
		for _, path := range []string{"/v1/chats/1", "/v1/chats/1/history", "/v1/chats/1/subagents/analytic/history",
			"/v1/chats/1/runs/" + run + "/events", "/v1/chats"} {
			all += string(w.Do("GET", path, nil).Body)
		}
		return all
	}
	require.Contains(t, read(), "secret")
	w.Target(second, func() {
		require.Contains(t, read(), "secret")
		got := w.Do("DELETE", "/v1/chats/1", nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.NotContains(t, read(), "secret")
	})
	require.NotContains(t, read(), "secret")
	again := w.Post("1", "hi", "Idempotency-Key", "k")
	require.Equal(t, 200, again.Status, string(again.Body))
	require.Equal(t, []string{"user: hi", "assistant: secret answer"}, w.History("chat_history:1"),
		"the key is free again")
}

// Redis loses everything between two turns of one process: the next run says so.
func TestResetIsTold(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	require.Equal(t, 200, w.Post("1", "one").Status)
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	webmemorytest.Eventually(t, "the loss is noticed", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "mneme_redis_resets_total 1")
	})
	roles := w.PostStream("1", "two").Roles()
	require.Equal(t, []string{"run_started", "memory_reset"}, roles[:2])
	require.Len(t, w.History("chat_history:1"), 4, "what was cached is back")
}
