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
		asksFor(one)(ctx, r, emit)
		return
	}
	emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
	emit(of, &event.ToolProgress{Tool: "refund", Status: "running"})
	after := int64(len(r.Resume.Events)) + 2
	got, err := r.Memory.Claim(ctx, http.DefaultClient, api.ClaimRequest{Subagent: "analytic", Tool: "crm/refund",
		Arguments: json.RawMessage(`{}`), N: 1, After: after})
	said := got.State
	if err != nil {
		said = err.Error()
	}
	c.mu.Lock()
	c.said = append(c.said, said)
	if got.State == api.CallGranted {
		c.calls[r.ChatID.String()]++
	}
	hold := c.hold
	c.mu.Unlock()
	if got.State == api.CallGranted {
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
				return
			}
		}
		_ = r.Memory.Settle(ctx, http.DefaultClient, got.CallID, api.SettleRequest{Result: "refunded"})
	}
	emit(of, &event.ToolResult{ToolCallID: "t-w1", Name: "refund", Content: said})
	emit(of, &event.Completion{Response: "done", Status: event.Completed})
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

// forgets has Redis come back with what it has when remember is called.
func (w *world) forgets() (remember, comeBack func()) {
	dump := filepath.Join(w.redis.Dir, "dump.rdb")
	var before []byte
	return func() {
			w.t.Helper()
			require.NoError(w.t, w.look.Save(context.Background()).Err())
			var err error
			before, err = os.ReadFile(dump)
			require.NoError(w.t, err)
		}, func() {
			w.t.Helper()
			w.redis.Kill()
			require.NoError(w.t, os.WriteFile(dump, before, 0o600))
			require.NoError(w.t, w.redis.Run())
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
		then  func(t *testing.T, w *world, chat, run string)
	}{
		{"the same yes, here", true, false, sameYes},
		{"the same yes, elsewhere", false, false, sameYes},
		{"the same yes, here, while it is called", true, true, sameYes},
		{"the same yes, elsewhere, while it is called", false, true, sameYes},
		{"a no, elsewhere", false, false, func(t *testing.T, w *world, chat, run string) {
			got := w.resume(chat, run, decided(event.Deny, "w1"))
			require.Equal(t, 409, got.status, string(got.body))
			require.Equal(t, "answered", got.problem(t).Code)
		}},
		{"a message, elsewhere", false, false, func(t *testing.T, w *world, chat, _ string) {
			got := w.do("POST", "/v1/chats/"+chat+"/messages", message{"plain"})
			require.Equal(t, 200, got.status, string(got.body))
			require.Equal(t, []string{"user: refund me", "assistant: refunded", "user: plain", "assistant: plainly"},
				w.stored("chat_history:"+chat))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, apart(t))
			other := w.process(apart(t))
			does := &calling{calls: map[string]int{}}
			if c.going {
				does.hold = make(chan struct{})
			}
			w.suspends(does.run)
			remember, comeBack := w.forgets()
			const chats = 4 // each is asked for at once, and some of them right after Redis is back
			runs := map[string]string{}
			for i := range chats {
				runs[fmt.Sprint("c", i)] = w.wait(fmt.Sprint("c", i))
			}
			remember()
			var going sync.WaitGroup
			for chat, run := range runs {
				going.Go(func() { w.resume(chat, run, yes("w1")) })
			}
			if c.going {
				eventually(t, "all are called", func() bool { return len(does.claims()) == chats })
			} else {
				going.Wait()
			}
			comeBack()
			if !c.here {
				w.url = other
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

func sameYes(t *testing.T, w *world, chat, run string) {
	t.Helper()
	eventually(t, "the run's answer", func() bool {
		got := w.resume(chat, run, yes("w1"))
		if got.status != 503 { // Redis is not back, or a process that knows the chat could not be asked
			require.Equal(t, 200, got.status, string(got.body))
			require.Contains(t, string(got.body), "refunded")
		}
		return got.status == 200
	})
}

// All is gone from Redis while a call is made, and the agents die. The post that is repeated goes on in a further
// attempt, which does not make the call again.
func TestACallIsNotMadeAgainByAnEmptyRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, apart(t), lease, func(c *webmemory.Config) { c.Patience = 1 })
	other := w.process(apart(t), lease)
	does := &calling{calls: map[string]int{}, hold: make(chan struct{})}
	s := w.suspends(does.run)
	run := w.wait("1", "Idempotency-Key", "k")
	answered := make(chan struct{})
	go func() {
		w.resume("1", run, yes("w1"))
		close(answered)
	}()
	eventually(t, "it is called", func() bool { return does.made("1") == 1 })
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	s.forget()
	<-answered
	w.on(other, func() {
		var again answer
		eventually(t, "the further attempt waits", func() bool {
			again = w.do("POST", "/v1/chats/1/messages", message{"refund me"}, "Idempotency-Key", "k")
			return again.status == 202
		})
		next := again.header.Get("Mneme-Run-Id")
		require.NotEqual(t, run, next)
		w.atRest("1")
		got := w.resume("1", next, yes("w1"))
		require.Equal(t, 200, got.status, string(got.body))
	})
	require.Equal(t, 1, does.made("1"), does.claims())
	require.Equal(t, []string{api.CallGranted, api.CallUnknown}, does.claims())
}

// The process that made the call is killed, and its disk is left.
func TestACallIsNotMadeAgainByWhatADiskKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.start(settings)
	does := &calling{calls: map[string]int{}, hold: make(chan struct{})}
	w.suspends(does.run)
	remember, comeBack := w.forgets()
	var run string
	w.on(url, func() { run = w.wait("1") })
	remember()
	tr := w.requestOf(url, "1", run)
	eventually(t, "it is called", func() bool { return does.made("1") == 1 })
	process.Kill()
	<-tr
	comeBack()
	close(does.hold)
	again, _ := w.start(settings)
	w.on(again, func() {
		got := w.resume("1", run, yes("w1"))
		require.Contains(t, []int{200, 502}, got.status, string(got.body))
	})
	require.Equal(t, 1, does.made("1"), does.claims())
}

// A process that suspended a run is killed with what Redis had, and comes back at once: another one, which it does not
// know yet, made the call.
func TestACallIsNotMadeAgainByAProcessThatHasJustBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, apart(t))
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.start(settings)
	does := &calling{calls: map[string]int{}}
	w.suspends(does.run)
	var run string
	w.on(url, func() { run = w.wait("1") })
	require.Equal(t, 200, w.resume("1", run, yes("w1")).status)
	process.Kill()
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	again, _ := w.start(settings)
	w.on(again, func() { sameYes(t, w, "1", run) })
	require.Equal(t, 1, does.made("1"), does.claims())
}

// requestOf answers a run's wait through a process that is about to die; the channel is closed then.
func (w *world) requestOf(url, chat, run string) <-chan struct{} {
	gone := make(chan struct{})
	req, err := http.NewRequest("POST", url+"/v1/chats/"+chat+"/runs/"+run+"/resume",
		strings.NewReader(`{"answers":[{"id":"w1","decision":"approve"}]}`))
	require.NoError(w.t, err)
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
	w := newWorld(t, nil, apart(t))
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.start(settings)
	does := &calling{calls: map[string]int{}}
	w.suspends(does.run)
	remember, comeBack := w.forgets()
	run := w.wait("1")
	eventually(t, "the processes know each other", func() bool {
		return w.look.HLen(context.Background(), "mneme:processes").Val() == 2
	})
	remember()
	w.on(url, func() { require.Equal(t, 200, w.resume("1", run, yes("w1")).status) })
	process.Signal(syscall.SIGSTOP)
	comeBack()
	got := w.resume("1", run, yes("w1"))
	require.Equal(t, 503, got.status, string(got.body))
	require.True(t, got.problem(t).Retryable)
	process.Signal(syscall.SIGCONT)
	sameYes(t, w, "1", run)
	require.Equal(t, 1, does.made("1"))
}

// It is not waited for without end; that a call may have been made twice then is told.
func TestAGrantPastAProcessThatCannotBeAskedIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, apart(t), func(c *webmemory.Config) { c.GrantWait = time.Millisecond })
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	_, process := w.start(settings)
	does := &calling{calls: map[string]int{}}
	w.suspends(does.run)
	remember, comeBack := w.forgets()
	run := w.wait("1")
	eventually(t, "the processes know each other", func() bool {
		return w.look.HLen(context.Background(), "mneme:processes").Val() == 2
	})
	remember()
	process.Signal(syscall.SIGSTOP)
	comeBack()
	sameYes(t, w, "1", run)
	require.Equal(t, 1, does.made("1"))
	require.Positive(t, w.metric(`mneme_faults_total{fault="unsure_grant"}`))
}

// With redis.wait_replicas a call is granted, and an answer taken, once a replica has it.
func TestACallIsGrantedOnceAReplicaHasIt(t *testing.T) {
	t.Parallel()
	w := newSentinelWorld(t, nil)
	w.copies = 1
	w.url = w.process(apart(t))
	w.copies = 0
	second := w.process(apart(t))
	does := &calling{calls: map[string]int{}}
	w.suspends(does.run)
	run, later := w.wait("1"), w.wait("2")
	require.Equal(t, 200, w.resume("1", run, yes("w1")).status)
	w.sentinel.CutReplica()
	got := w.resume("2", later, yes("w1"))
	require.Equal(t, 503, got.status, string(got.body))
	w.sentinel.Failover()
	eventually(t, "Redis is back", func() bool { return w.look.Ping(context.Background()).Err() == nil })
	w.on(second, func() { sameYes(t, w, "1", run) })
	require.Equal(t, 1, does.made("1"))
	require.Zero(t, does.made("2"))
}

// Nothing is left of a run that waited but its messages, which another process has in its cache: the next message finds
// it closed, and so does a repetition of its own.
func TestARunOfWhichOnlyItsMessagesAreLeftIsClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, nil, apart(t), func(c *webmemory.Config) { c.GrantWait = time.Millisecond })
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	url, process := w.start(settings)
	w.suspends(asksFor(one))
	w.on(url, func() {
		w.wait("1")
		w.wait("2", "Idempotency-Key", "k")
	})
	for _, chat := range []string{"1", "2"} { // it has copies then
		require.Len(t, w.shows(w.url, chat), 1)
		require.Equal(t, 200, w.do("GET", "/v1/chats/"+chat+"/subagents/analytic/history", nil).status)
	}
	process.Kill()
	require.NoError(t, w.look.FlushAll(ctx).Err())
	eventually(t, "the messages are back", func() bool {
		return w.look.Exists(ctx, "subagent:analytic:1", "subagent:analytic:2", "chat_history:1", "chat_history:2").Val() == 4
	})
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"plain"}).status)
	require.Equal(t, []string{"user: refund me", "assistant: (no answer: run_lost)", "user: plain", "assistant: plainly"},
		w.stored("chat_history:1"))
	require.Equal(t, []string{"user: task", "assistant: ", "assistant: (no answer: run_lost)"},
		w.stored("subagent:analytic:1"))
	next := w.wait("2", "Idempotency-Key", "k")
	require.Equal(t, 200, w.resume("2", next, yes("w1")).status)
	require.Equal(t, []string{"user: refund me", "assistant: (no answer: run_lost)", "assistant: decided: approve"},
		w.stored("chat_history:2"), "the question is there once")
	require.Equal(t, 4.0, w.metric(`mneme_faults_total{fault="lost_run"}`))
}
