package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
)

// calling is a run that waits for a yes to its call of a tool, makes the call if it is granted, and answers.
type calling struct {
	mu    sync.Mutex
	calls map[string]int // guarded by mu: by chat
	said  []string       // guarded by mu: what claims were answered
	hold  chan struct{}  // what is called returns once this is closed; nil at once
}

func (c *calling) run(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
	if r.Resume == nil {
		webmemorytest.SuspendOn(webmemorytest.OneApproval)(ctx, r, emit)
		return
	}
	emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
	emit(webmemorytest.Analytic, &event.ToolProgress{Tool: "refund", Status: "running"})
	after := int64(len(r.Resume.Events)) + 2
	got, err := r.Memory.Claim(ctx, memory.ClaimRequest{Subagent: "analytic", Tool: "crm/refund",
		Arguments: json.RawMessage(`{}`), N: 1, Seq: after})
	said := got.State
	if err != nil {
		said = err.Error()
	}
	c.mu.Lock()
	c.said = append(c.said, said)
	if got.State == memory.CallGranted {
		c.calls[r.ChatID.String()]++
	}
	hold := c.hold
	c.mu.Unlock()
	if got.State == memory.CallGranted {
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
				return
			}
		}
		_ = r.Memory.Settle(ctx, got.CallID, "refunded", false)
	}
	emit(webmemorytest.Analytic, &event.ToolResult{ToolCallID: "t-w1", Name: "refund", Content: said})
	emit(webmemorytest.Analytic, &event.Completion{Response: "done", Status: event.Completed})
	emit(event.Head{}, &event.Assistant{Content: "refunded"})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
}

func (c *calling) made(chat string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[chat]
}

func (c *calling) claims() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.said...)
}

// snapshotRedis returns a function that takes a snapshot of Redis and one that restarts Redis with it.
func snapshotRedis(w *webmemorytest.World) (remember, comeBack func()) {
	dump := filepath.Join(w.RedisServer.Dir, "dump.rdb")
	var before []byte
	return func() {
			w.T.Helper()
			require.NoError(w.T, w.Redis.Save(context.Background()).Err())
			var err error
			before, err = os.ReadFile(dump)
			require.NoError(w.T, err)
		}, func() {
			w.T.Helper()
			w.RedisServer.Kill()
			require.NoError(w.T, os.WriteFile(dump, before, 0o600))
			require.NoError(w.T, w.RedisServer.Run())
		}
}

// Redis comes back with the state in which a run waited, although its call was made since. Whichever process is asked
// next, by the same answer, by another one or by a new message, the call is not made again, and nothing tells that it
// was denied.
func TestACallIsNotMadeAgainByAnOlderRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		here  bool // the process that made the call is asked
		going bool // the call has not returned yet
		then  func(t *testing.T, w *webmemorytest.World, chat, run string)
	}{
		{"the same yes, here", true, false, sameYes},
		{"the same yes, elsewhere", false, false, sameYes},
		{"the same yes, here, while it is called", true, true, sameYes},
		{"the same yes, elsewhere, while it is called", false, true, sameYes},
		{"a no, elsewhere", false, false, func(t *testing.T, w *webmemorytest.World, chat, run string) {
			got := w.Resume(chat, run, webmemorytest.Decide(event.Deny, "w1"))
			require.Equal(t, 409, got.Status, string(got.Body))
			require.Equal(t, "answered", got.Problem(t).Code)
		}},
		{"a message, elsewhere", false, false, func(t *testing.T, w *webmemorytest.World, chat, _ string) {
			got := w.Post(chat, "plain")
			require.Equal(t, 200, got.Status, string(got.Body))
			require.Equal(t, []string{"user: refund me", "assistant: refunded", "user: plain", "assistant: plainly"},
				w.History("chat_history:"+chat))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t))
			other := w.StartReplica(webmemorytest.OwnDisk(t))
			does := &calling{calls: map[string]int{}}
			if c.going {
				does.hold = make(chan struct{})
			}
			w.ScriptApiserver(does.run)
			remember, comeBack := snapshotRedis(w)
			const chats = 4 // each is asked for at once, and some of them right after Redis is back
			runs := map[string]string{}
			for i := range chats {
				runs[fmt.Sprint("c", i)] = w.PostSuspended(fmt.Sprint("c", i))
			}
			remember()
			var going sync.WaitGroup
			for chat, run := range runs {
				going.Go(func() { w.Resume(chat, run, webmemorytest.Approve("w1")) })
			}
			if c.going {
				webmemorytest.Eventually(t, "all are called", func() bool { return len(does.claims()) == chats })
			} else {
				going.Wait()
			}
			comeBack()
			if !c.here {
				w.URL = other
			}
			var asking sync.WaitGroup
			for chat, run := range runs {
				asking.Go(func() { c.then(t, w, chat, run) })
			}
			if c.going {
				close(does.hold)
			}
			asking.Wait()
			going.Wait()
			for chat := range runs {
				require.Equal(t, 1, does.made(chat), "%s: %v", chat, does.claims())
			}
		})
	}
}

func sameYes(t *testing.T, w *webmemorytest.World, chat, run string) {
	t.Helper()
	webmemorytest.Eventually(t, "the run's answer", func() bool {
		got := w.Resume(chat, run, webmemorytest.Approve("w1"))
		if got.Status != 503 { // Redis is not back, or a process that knows the chat could not be asked
			require.Equal(t, 200, got.Status, string(got.Body))
			require.Contains(t, string(got.Body), "refunded")
		}
		return got.Status == 200
	})
}

// All is gone from Redis while a call is made, and the agents die. The post that is repeated goes on in a further
// attempt, which does not make the call again.
func TestACallIsNotMadeAgainByAnEmptyRedis(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t), webmemorytest.ShortenLease,
		func(c *webmemory.Config) { c.Patience = 1 })
	other := w.StartReplica(webmemorytest.OwnDisk(t), webmemorytest.ShortenLease)
	does := &calling{calls: map[string]int{}, hold: make(chan struct{})}
	s := w.ScriptApiserver(does.run)
	run := w.PostSuspended("1", "Idempotency-Key", "k")
	answered := make(chan struct{})
	go func() {
		w.Resume("1", run, webmemorytest.Approve("w1"))
		close(answered)
	}()
	webmemorytest.Eventually(t, "it is called", func() bool { return does.made("1") == 1 })
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	s.LoseRuns()
	<-answered
	w.Target(other, func() {
		var again webmemorytest.Response
		webmemorytest.Eventually(t, "the further attempt waits", func() bool {
			again = w.Post("1", "refund me", "Idempotency-Key", "k")
			return again.Status == 202
		})
		next := again.RunID()
		require.NotEqual(t, run, next)
		w.AwaitSuspension("1")
		got := w.Resume("1", next, webmemorytest.Approve("w1"))
		require.Equal(t, 200, got.Status, string(got.Body))
	})
	require.Equal(t, 1, does.made("1"), does.claims())
	require.Equal(t, []string{memory.CallGranted, memory.CallUnknown}, does.claims())
}

// The process that made the call is killed, and its disk is left.
func TestACallIsNotMadeAgainByWhatADiskKnows(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.StartChild(settings)
	does := &calling{calls: map[string]int{}, hold: make(chan struct{})}
	w.ScriptApiserver(does.run)
	remember, comeBack := snapshotRedis(w)
	var run string
	w.Target(url, func() { run = w.PostSuspended("1") })
	remember()
	tr := approveInBackground(w, url, "1", run)
	webmemorytest.Eventually(t, "it is called", func() bool { return does.made("1") == 1 })
	process.Kill()
	<-tr
	comeBack()
	close(does.hold)
	again, _ := w.StartChild(settings)
	w.Target(again, func() {
		got := w.Resume("1", run, webmemorytest.Approve("w1"))
		require.Contains(t, []int{200, 502}, got.Status, string(got.Body))
	})
	require.Equal(t, 1, does.made("1"), does.claims())
}

// A process that suspended a run is killed with what Redis had, and comes back at once: another one, which it does not
// know yet, made the call.
func TestACallIsNotMadeAgainByAProcessThatHasJustBegun(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t))
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.StartChild(settings)
	does := &calling{calls: map[string]int{}}
	w.ScriptApiserver(does.run)
	var run string
	w.Target(url, func() { run = w.PostSuspended("1") })
	require.Equal(t, 200, w.Resume("1", run, webmemorytest.Approve("w1")).Status)
	process.Kill()
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	again, _ := w.StartChild(settings)
	w.Target(again, func() { sameYes(t, w, "1", run) })
	require.Equal(t, 1, does.made("1"), does.claims())
}

// approveInBackground approves a run's wait through a process that is about to die. The channel is closed at the end of the
// request.
func approveInBackground(w *webmemorytest.World, url, chat, run string) <-chan struct{} {
	gone := make(chan struct{})
	req, err := http.NewRequest("POST", url+"/v1/chats/"+chat+"/runs/"+run+"/resume",
		strings.NewReader(`{"answers":[{"id":"w1","decision":"approve"}]}`))
	require.NoError(w.T, err)
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	return gone
}

// A process that knows of calls cannot be asked right after a loss: nothing is granted until it answers.
func TestNothingIsGrantedPastAProcessThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t))
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.StartChild(settings)
	does := &calling{calls: map[string]int{}}
	w.ScriptApiserver(does.run)
	remember, comeBack := snapshotRedis(w)
	run := w.PostSuspended("1")
	webmemorytest.Eventually(t, "the processes know each other", func() bool {
		return w.Redis.HLen(context.Background(), "mneme:processes").Val() == 2
	})
	remember()
	w.Target(url, func() { require.Equal(t, 200, w.Resume("1", run, webmemorytest.Approve("w1")).Status) })
	process.Pause()
	comeBack()
	got := w.Resume("1", run, webmemorytest.Approve("w1"))
	require.Equal(t, 503, got.Status, string(got.Body))
	require.True(t, got.Problem(t).Retryable)
	process.Signal(syscall.SIGCONT)
	sameYes(t, w, "1", run)
	require.Equal(t, 1, does.made("1"))
}

// It is not waited for without end; that a call may have been made twice then is told.
func TestAGrantPastAProcessThatCannotBeAskedIsTold(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t),
		func(c *webmemory.Config) { c.GrantWait = time.Millisecond })
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	_, process := w.StartChild(settings)
	does := &calling{calls: map[string]int{}}
	w.ScriptApiserver(does.run)
	remember, comeBack := snapshotRedis(w)
	run := w.PostSuspended("1")
	webmemorytest.Eventually(t, "the processes know each other", func() bool {
		return w.Redis.HLen(context.Background(), "mneme:processes").Val() == 2
	})
	remember()
	process.Pause()
	comeBack()
	sameYes(t, w, "1", run)
	require.Equal(t, 1, does.made("1"))
	require.Positive(t, w.Metric(`mneme_faults_total{fault="unsure_grant"}`))
}

// With redis.wait_replicas a call is granted, and an answer taken, once a replica has it.
func TestACallIsGrantedOnceAReplicaHasIt(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewSentinelWorld(t, nil)
	w.WaitReplicas = 1
	w.URL = w.StartReplica(webmemorytest.OwnDisk(t))
	w.WaitReplicas = 0
	second := w.StartReplica(webmemorytest.OwnDisk(t))
	does := &calling{calls: map[string]int{}}
	w.ScriptApiserver(does.run)
	run, later := w.PostSuspended("1"), w.PostSuspended("2")
	require.Equal(t, 200, w.Resume("1", run, webmemorytest.Approve("w1")).Status)
	w.Sentinel.CutReplica()
	got := w.Resume("2", later, webmemorytest.Approve("w1"))
	require.Equal(t, 503, got.Status, string(got.Body))
	w.Sentinel.Failover()
	webmemorytest.Eventually(t, "Redis is back", func() bool { return w.Redis.Ping(context.Background()).Err() == nil })
	w.Target(second, func() { sameYes(t, w, "1", run) })
	require.Equal(t, 1, does.made("1"))
	require.Zero(t, does.made("2"))
}

// Nothing is left of a run that waited but its messages, which another process has in its cache: the next message finds
// it closed, and so does a repetition of its own.
func TestARunOfWhichOnlyItsMessagesAreLeftIsClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t),
		func(c *webmemory.Config) { c.GrantWait = time.Millisecond })
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.StartChild(settings)
	w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
	w.Target(url, func() {
		w.PostSuspended("1")
		w.PostSuspended("2", "Idempotency-Key", "k")
	})
	for _, chat := range []string{"1", "2"} { // it has copies then
		require.Len(t, shownTexts(w, w.URL, chat), 1)
		require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat+"/subagents/analytic/history", nil).Status)
	}
	process.Kill()
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	webmemorytest.Eventually(t, "the messages are back", func() bool {
		return w.Redis.Exists(ctx, "subagent:analytic:1", "subagent:analytic:2", "chat_history:1",
			"chat_history:2").Val() == 4
	})
	require.Equal(t, 200, w.Post("1", "plain").Status)
	require.Equal(t, []string{"user: refund me", "assistant: (no answer: run_lost)", "user: plain", "assistant: plainly"},
		w.History("chat_history:1"))
	require.Equal(t, []string{"user: task", "assistant: ", "assistant: (no answer: run_lost)"},
		w.History("subagent:analytic:1"))
	next := w.PostSuspended("2", "Idempotency-Key", "k")
	require.Equal(t, 200, w.Resume("2", next, webmemorytest.Approve("w1")).Status)
	require.Equal(t, []string{"user: refund me", "assistant: (no answer: run_lost)", "assistant: decided: approve"},
		w.History("chat_history:2"), "the question is there once")
	require.Equal(t, 4.0, w.Metric(`mneme_faults_total{fault="lost_run"}`))
}
