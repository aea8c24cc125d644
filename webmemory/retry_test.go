package webmemory_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
)

// flaky is an agent that fails the first runs of a chat, each with an error; it notes
// what every run was asked.
type flaky struct {
	mu     sync.Mutex
	errors map[memory.Chat][]event.Error
	asked  []master.Request
}

func (f *flaky) agent(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
	f.mu.Lock()
	f.asked = append(f.asked, r)
	var cause *event.Error
	if left := f.errors[r.Chat]; len(left) > 0 {
		cause, f.errors[r.Chat] = &left[0], left[1:]
	}
	f.mu.Unlock()
	emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
		RetryOf: r.RetryOf})
	if cause != nil {
		emit(event.Head{}, cause)
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
		return
	}
	emit(event.Head{}, &event.Assistant{Content: "answer to " + r.Message})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
}

func (f *flaky) last() master.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1]
}

func (f *flaky) runs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

var (
	passing = event.Error{Code: "model_failed", Message: "The model did not answer.", Retryable: true}
	lasting = event.Error{Code: "context_length_exceeded", Message: "The message is too long.", Retryable: false}
)

// sent is what a model would be sent of a request's chat.
func sent(r master.Request) []string {
	messages, _ := memory.Repair(r.Context)
	var out []string
	for _, m := range messages {
		out = append(out, m.Role+": "+m.Content)
	}
	return out
}

// One message that no model takes does not spoil those after it: its failure is
// appended, and neither is sent again.
func TestAFailureLeavesNoTrap(t *testing.T) {
	f := &flaky{errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {lasting}}}
	w := newWorld(t, f.agent)
	const path = "/v1/chats/1/messages"
	require.Equal(t, 502, w.do("POST", path, message{"a long paste"}).status)
	require.Equal(t, 200, w.do("POST", path, message{"one"}).status)
	require.Empty(t, sent(f.last()))
	require.Equal(t, 200, w.do("POST", path, message{"two"}).status)
	require.Equal(t, []string{"user: one", "assistant: answer to one"}, sent(f.last()))
	require.Equal(t, []string{
		"user: a long paste", "assistant: (no answer: context_length_exceeded)",
		"user: one", "assistant: answer to one", "user: two", "assistant: answer to two",
	}, w.stored("chat_history:1"), "what was said is kept")
	var page struct{ Messages []map[string]any }
	require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/1/history", nil).body, &page))
	require.Equal(t, "context_length_exceeded", page.Messages[1]["failure"])
	require.NotContains(t, page.Messages[0], "failure", "nothing that is stored changes")
}

// A failure that may pass is tried once more under the same key, in a run of its
// own that asks the question which the history ends with; every process finds it.
func TestARetryIsANewRun(t *testing.T) {
	t.Parallel()
	f := &flaky{
		errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {passing, passing}, memory.MustChat("between"): {passing},
			memory.MustChat("lasting"): {lasting}},
	}
	w := newWorld(t, f.agent)
	others := []string{w.process(), w.process(), w.process()}
	post := func(chat, text string) answer {
		return w.do("POST", "/v1/chats/"+chat+"/messages", message{text}, "Idempotency-Key", "k")
	}
	runOf := func(a answer) string { return a.header.Get("Mneme-Run-Id") }

	first := post("1", "hi")
	require.Equal(t, 502, first.status)
	require.True(t, first.problem(t).Retryable)
	second := post("1", "hi")
	require.Equal(t, 502, second.status, "it fails again")
	var third answer
	w.on(others[0], func() { third = post("1", "hi") })
	require.Equal(t, 200, third.status, string(third.body))
	require.Len(t, map[string]bool{runOf(first): true, runOf(second): true, runOf(third): true}, 3)
	require.Equal(t, runOf(second), f.last().RetryOf)
	want := []string{"user: hi", "assistant: (no answer: model_failed)", "assistant: answer to hi"}
	require.Equal(t, want, w.stored("chat_history:1"), "the question stands there once, and its failure")
	require.Equal(t, "3", w.look.HGet(context.Background(), "run:1:"+runOf(first), "newest").Val())
	for _, url := range append(others, w.url) {
		w.on(url, func() {
			again := post("1", "hi")
			require.Equal(t, 200, again.status)
			require.Equal(t, runOf(third), runOf(again), "a success is replayed")
			require.Equal(t, 422, post("1", "another").status)
		})
	}
	require.Equal(t, 3, f.runs())

	require.Equal(t, 502, post("between", "hi").status)
	require.Equal(t, 200, w.do("POST", "/v1/chats/between/messages", message{"more"}).status)
	require.Equal(t, 200, post("between", "hi").status)
	require.Empty(t, f.last().RetryOf, "the history goes on since: it is a message like any other")
	require.Equal(t, []string{
		"user: hi", "assistant: (no answer: model_failed)", "user: more", "assistant: answer to more", "user: hi",
		"assistant: answer to hi",
	}, w.stored("chat_history:between"))

	failed := post("lasting", "hi")
	require.Equal(t, 502, failed.status)
	again := post("lasting", "hi")
	require.Equal(t, 502, again.status)
	require.Equal(t, runOf(failed), runOf(again), "a failure that will not pass is replayed")
	require.Equal(t, failed.body, again.body)
}

// Two retries at the same time, at two processes, are one new run.
func TestTwoRetriesAreOneRun(t *testing.T) {
	t.Parallel()
	f := &flaky{errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {passing}}}
	began, release := make(chan struct{}, 10), make(chan struct{})
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		if r.RetryOf != "" {
			began <- struct{}{}
			<-release
		}
		f.agent(ctx, r, emit)
	})
	urls := []string{w.url, w.url, w.process(), w.process()}
	const path = "/v1/chats/1/messages"
	require.Equal(t, 502, w.do("POST", path, message{"hi"}, "Idempotency-Key", "k").status)
	answers := make([]answer, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		var req *http.Request
		w.on(url, func() { req = w.request("POST", path, message{"hi"}, "Idempotency-Key", "k") })
		all.Go(func() { answers[i] = w.send(req) })
	}
	<-began
	close(release)
	all.Wait()
	for _, a := range answers {
		require.Equal(t, 200, a.status, string(a.body))
		require.Equal(t, answers[0].header.Get("Mneme-Run-Id"), a.header.Get("Mneme-Run-Id"))
	}
	require.Equal(t, 2, f.runs())
	require.Equal(t, []string{"user: hi", "assistant: (no answer: model_failed)", "assistant: answer to hi"},
		w.stored("chat_history:1"))
}

// What a version before failures were stored left behind is tried once more too.
func TestARetryOfAnOldFailure(t *testing.T) {
	f := &flaky{errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {passing}}}
	w := newWorld(t, f.agent)
	const path = "/v1/chats/1/messages"
	first := w.do("POST", path, message{"hi"}, "Idempotency-Key", "k")
	require.Equal(t, 502, first.status)
	ctx := context.Background()
	require.NoError(t, w.look.Set(ctx, "chat_history:1", `[{"role":"user","content":"hi","timestamp":1}]`, 0).Err())
	w.on(w.process(), func() {
		again := w.do("POST", path, message{"hi"}, "Idempotency-Key", "k")
		require.Equal(t, 200, again.status, string(again.body))
	})
	require.NotEqual(t, first.header.Get("Mneme-Run-Id"), f.last().RunID)
	require.Equal(t, []string{"user: hi"}, sent(f.last()), "as every message without an answer")
	require.Equal(t, []string{"user: hi", "user: hi", "assistant: answer to hi"}, w.stored("chat_history:1"))
}

// A run that is lost after part of its answer was shown keeps that part.
func TestALostRunKeepsWhatWasShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{Subagent: "analytic", CallID: "c"}, &event.Delegation{Task: "t", Calls: event.Serial})
		emit(event.Head{Subagent: "analytic", CallID: "c"}, &event.Completion{
			Response: "x", Status: event.Completed, Usage: event.Usage{InputTokens: 7, OutputTokens: 3}})
		emit(event.Head{}, &event.AssistantDelta{Text: "half "})
		emit(event.Head{}, &event.AssistantDelta{Text: "an answer"})
		<-ctx.Done()
	})
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("assistant_delta")
	tr.until("assistant_delta")
	w.loseApiserver()
	require.JSONEq(t, `"run_lost"`, field(t, tr.until("assistant"), "failure"))
	require.JSONEq(t, `"run_lost"`, field(t, tr.until("error"), "code"))
	require.JSONEq(t, `{"input_tokens":7,"output_tokens":3}`, field(t, tr.until("run_finished"), "usage"))
	var page struct{ Messages []memory.Message }
	require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/1/history", nil).body, &page))
	require.Len(t, page.Messages, 2)
	require.Equal(t, "half an answer", page.Messages[1].Content)
	require.True(t, page.Messages[1].Partial)
	require.Empty(t, page.Messages[1].Failure, "models are sent it, as after a stop")
}

// A run that the apiserver accepted and lost before it said anything keeps what the
// user said, with the failure behind it.
func TestARunLostBeforeItsFirstEventKeepsTheQuestion(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		if r.Message == "lost" && r.RetryOf == "" {
			asked <- struct{}{}
			<-ctx.Done()
			return
		}
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
			RetryOf: r.RetryOf})
		emit(event.Head{}, &event.Assistant{Content: "answer"})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"before"}).status)
	tr := w.open("POST", "/v1/chats/1/messages", message{"lost"}, "Idempotency-Key", "k")
	<-asked
	w.loseApiserver()
	require.JSONEq(t, `"lost"`, field(t, tr.until("run_started"), "message"))
	require.JSONEq(t, `"run_lost"`, field(t, tr.until("error"), "code"))
	require.JSONEq(t, `"failed"`, field(t, tr.until("run_finished"), "outcome"))
	want := []string{"user: before", "assistant: answer", "user: lost", lost}
	require.Equal(t, want, w.stored("chat_history:1"))
	w.putApiserver(w.runs.Handler())
	eventually(t, "a repeated post is answered", func() bool {
		return w.do("POST", "/v1/chats/1/messages", message{"lost"}, "Idempotency-Key", "k").status == 200
	})
	require.Equal(t, append(want, "assistant: answer"), w.stored("chat_history:1"))
}

// While Redis is away for longer than the lease, the apiserver loses a run. It has run, and another process may close
// it, so a post that waits for it is not told that there is no such thing.
func TestAPostWhoseRunIsLostWhileRedisIsAway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	s.let(memory.MustChat("1"), 2)
	answered := make(chan answer, 1)
	go func() { answered <- w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k") }()
	eventually(t, "the run has begun", func() bool { return len(w.stored("subagent:analytic:1")) == 1 })
	w.redis.Kill()
	time.Sleep(2 * shortLease)
	w.loseApiserver()
	got := <-answered
	require.Equal(t, http.StatusBadGateway, got.status, string(got.body))
	require.Equal(t, "outcome_unknown", got.problem(t).Code)
	require.NoError(t, w.redis.Run())
}

// A request of a run carries histories as lists, also empty ones.
func TestEmptyHistoriesTravelAsLists(t *testing.T) {
	w := newWorld(t, answers("hi"))
	bodies := w.recordRuns()
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	var body struct {
		Context          json.RawMessage            `json:"context"`
		SubagentContexts map[string]json.RawMessage `json:"subagent_contexts"`
	}
	require.NoError(t, json.Unmarshal(<-bodies, &body))
	require.JSONEq(t, `[]`, string(body.Context))
	require.JSONEq(t, `[]`, string(body.SubagentContexts["analytic"]))
}

// What no sensible client sends as a key is refused before anything runs.
func TestKeysThatAreNone(t *testing.T) {
	w := newWorld(t, answers("hi"))
	for name, keys := range map[string][]string{
		"too long":      {strings.Repeat("k", 256)},
		"not printable": {"a\tb"},
		"not ASCII":     {"ключ"},
		"two":           {"a", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			req := w.request("POST", "/v1/chats/1/messages", message{"hi"})
			req.Header["Idempotency-Key"] = keys
			got := w.send(req)
			require.Equal(t, http.StatusBadRequest, got.status, string(got.body))
			require.Contains(t, got.problem(t).Message, "Idempotency-Key")
		})
	}
	require.Nil(t, w.stored("chat_history:1"))
	longest := strings.Repeat("k ~", 85)
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", longest).status)
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", longest).status)
	require.Len(t, w.stored("chat_history:1"), 2)
}
