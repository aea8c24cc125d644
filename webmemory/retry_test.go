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
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
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

// A keyed post whose first attempt had shown a part of its answer is tried again without another copy of the message.
func TestARetryAfterShownTextIsOnePost(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []master.Request
	w := webmemorytest.NewWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		mu.Lock()
		asked = append(asked, r)
		first := len(asked) == 1
		mu.Unlock()
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
			RetryOf: r.RetryOf})
		emit(event.Head{}, &event.AssistantDelta{Text: "Well"})
		if first {
			emit(event.Head{}, &event.Assistant{Content: "Well", Partial: true, Failure: passing.Code})
			emit(event.Head{}, &passing)
			emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
			return
		}
		emit(event.Head{}, &event.Assistant{Content: "Well done"})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	require.Equal(t, 502, w.Post("1", "hi", "Idempotency-Key", "k").Status)
	require.Equal(t, 200, w.Post("1", "hi", "Idempotency-Key", "k").Status)
	require.Equal(t, []string{"user: hi", "assistant: Well", "assistant: Well done"}, w.History("chat_history:1"))
	require.Equal(t, 200, w.Post("1", "next").Status)
	require.Equal(t, []string{"user: hi", "assistant: Well done"}, sent(asked[2]), "no model is shown both")
}

// One message that no model takes does not spoil those after it: its failure is
// appended, and neither is sent again.
func TestAFailureLeavesNoTrap(t *testing.T) {
	t.Parallel()
	f := &flaky{errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {lasting}}}
	w := webmemorytest.NewWorld(t, f.agent)
	const path = "/v1/chats/1/messages"
	require.Equal(t, 502, w.Do("POST", path, webmemorytest.Message("a long paste")).Status)
	require.Equal(t, 200, w.Do("POST", path, webmemorytest.Message("one")).Status)
	require.Empty(t, sent(f.last()))
	require.Equal(t, 200, w.Do("POST", path, webmemorytest.Message("two")).Status)
	require.Equal(t, []string{"user: one", "assistant: answer to one"}, sent(f.last()))
	require.Equal(t, []string{
		"user: a long paste", "assistant: (no answer: context_length_exceeded)",
		"user: one", "assistant: answer to one", "user: two", "assistant: answer to two",
	}, w.History("chat_history:1"), "what was said is kept")
	var page struct{ Messages []map[string]any }
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/1/history", nil).Body, &page))
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
	w := webmemorytest.NewWorld(t, f.agent)
	others := []string{w.StartReplica(), w.StartReplica(), w.StartReplica()}
	post := func(chat, text string) webmemorytest.Response {
		return w.Post(chat, text, "Idempotency-Key", "k")
	}
	runOf := func(a webmemorytest.Response) string { return a.RunID() }

	first := post("1", "hi")
	require.Equal(t, 502, first.Status)
	require.True(t, first.Problem(t).Retryable)
	second := post("1", "hi")
	require.Equal(t, 502, second.Status, "it fails again")
	var third webmemorytest.Response
	w.Target(others[0], func() { third = post("1", "hi") })
	require.Equal(t, 200, third.Status, string(third.Body))
	require.Len(t, map[string]bool{runOf(first): true, runOf(second): true, runOf(third): true}, 3)
	require.Equal(t, runOf(second), f.last().RetryOf)
	want := []string{"user: hi", "assistant: (no answer: model_failed)", "assistant: answer to hi"}
	require.Equal(t, want, w.History("chat_history:1"), "the question stands there once, and its failure")
	require.Equal(t, "3", w.Redis.HGet(context.Background(), "run:1:"+runOf(first), "newest").Val())
	for _, url := range append(others, w.URL) {
		w.Target(url, func() {
			again := post("1", "hi")
			require.Equal(t, 200, again.Status)
			require.Equal(t, runOf(third), runOf(again), "a success is replayed")
			require.Equal(t, 422, post("1", "another").Status)
		})
	}
	require.Equal(t, 3, f.runs())

	require.Equal(t, 502, post("between", "hi").Status)
	require.Equal(t, 200, w.Post("between", "more").Status)
	require.Equal(t, 200, post("between", "hi").Status)
	require.Empty(t, f.last().RetryOf, "the history goes on since: it is a message like any other")
	require.Equal(t, []string{
		"user: hi", "assistant: (no answer: model_failed)", "user: more", "assistant: answer to more", "user: hi",
		"assistant: answer to hi",
	}, w.History("chat_history:between"))

	failed := post("lasting", "hi")
	require.Equal(t, 502, failed.Status)
	again := post("lasting", "hi")
	require.Equal(t, 502, again.Status)
	require.Equal(t, runOf(failed), runOf(again), "a failure that will not pass is replayed")
	require.Equal(t, failed.Body, again.Body)
}

// Two retries at the same time, at two processes, are one new run.
func TestTwoRetriesAreOneRun(t *testing.T) {
	t.Parallel()
	f := &flaky{errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {passing}}}
	began, release := make(chan struct{}, 10), make(chan struct{})
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		if r.RetryOf != "" {
			began <- struct{}{}
			<-release
		}
		f.agent(ctx, r, emit)
	})
	urls := []string{w.URL, w.URL, w.StartReplica(), w.StartReplica()}
	const path = "/v1/chats/1/messages"
	require.Equal(t, 502, w.Do("POST", path, webmemorytest.Message("hi"), "Idempotency-Key", "k").Status)
	answers := make([]webmemorytest.Response, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		var req *http.Request
		w.Target(url, func() { req = w.NewRequest("POST", path, webmemorytest.Message("hi"), "Idempotency-Key", "k") })
		all.Go(func() { answers[i] = w.Send(req) })
	}
	<-began
	close(release)
	all.Wait()
	for _, a := range answers {
		require.Equal(t, 200, a.Status, string(a.Body))
		require.Equal(t, answers[0].RunID(), a.RunID())
	}
	require.Equal(t, 2, f.runs())
	require.Equal(t, []string{"user: hi", "assistant: (no answer: model_failed)", "assistant: answer to hi"},
		w.History("chat_history:1"))
}

// What a version before failures were stored left behind is tried once more too.
func TestARetryOfAnOldFailure(t *testing.T) {
	t.Parallel()
	f := &flaky{errors: map[memory.Chat][]event.Error{memory.MustChat("1"): {passing}}}
	w := webmemorytest.NewWorld(t, f.agent)
	const path = "/v1/chats/1/messages"
	first := w.Do("POST", path, webmemorytest.Message("hi"), "Idempotency-Key", "k")
	require.Equal(t, 502, first.Status)
	ctx := context.Background()
	require.NoError(t, w.Redis.Set(ctx, "chat_history:1", `[{"role":"user","content":"hi","timestamp":1}]`, 0).Err())
	w.Target(w.StartReplica(), func() {
		again := w.Do("POST", path, webmemorytest.Message("hi"), "Idempotency-Key", "k")
		require.Equal(t, 200, again.Status, string(again.Body))
	})
	require.NotEqual(t, first.RunID(), f.last().RunID)
	require.Equal(t, []string{"user: hi"}, sent(f.last()), "as every message without an answer")
	require.Equal(t, []string{"user: hi", "user: hi", "assistant: answer to hi"}, w.History("chat_history:1"))
}

// A run that is lost after part of its answer was shown keeps that part.
func TestALostRunKeepsWhatWasShown(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{Subagent: "analytic", CallID: "c"}, &event.Delegation{Task: "t", Calls: event.Serial})
		emit(event.Head{Subagent: "analytic", CallID: "c"}, &event.Completion{
			Response: "x", Status: event.Completed, Usage: event.Usage{InputTokens: 7, OutputTokens: 3}})
		emit(event.Head{}, &event.AssistantDelta{Text: "half "})
		emit(event.Head{}, &event.AssistantDelta{Text: "an answer"})
		<-ctx.Done()
	})
	tr := w.PostStream("1", "hi")
	tr.Until("assistant_delta")
	tr.Until("assistant_delta")
	w.LoseRuns()
	require.JSONEq(t, `"run_lost"`, gjson.GetBytes(tr.Until("assistant"), "failure").Raw)
	require.JSONEq(t, `"run_lost"`, gjson.GetBytes(tr.Until("error"), "code").Raw)
	require.JSONEq(t, `{"input_tokens":7,"output_tokens":3}`, gjson.GetBytes(tr.Until("run_finished"), "usage").Raw)
	var page struct{ Messages []memory.Message }
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/1/history", nil).Body, &page))
	require.Len(t, page.Messages, 2)
	require.Equal(t, "half an answer", page.Messages[1].Content)
	require.True(t, page.Messages[1].Partial)
	require.Equal(t, event.RunLost, page.Messages[1].Failure)
	sent, _ := memory.Repair(page.Messages)
	require.Len(t, sent, 2, "models are sent it, as after a stop")
}

// A run that the apiserver accepted and lost before it said anything keeps what the
// user said, with the failure behind it.
func TestARunLostBeforeItsFirstEventKeepsTheQuestion(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
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
	require.Equal(t, 200, w.Post("1", "before").Status)
	tr := w.PostStream("1", "lost", "Idempotency-Key", "k")
	<-asked
	w.LoseRuns()
	require.JSONEq(t, `"lost"`, gjson.GetBytes(tr.Until("run_started"), "message").Raw)
	require.JSONEq(t, `"run_lost"`, gjson.GetBytes(tr.Until("error"), "code").Raw)
	require.JSONEq(t, `"failed"`, gjson.GetBytes(tr.Until("run_finished"), "outcome").Raw)
	want := []string{"user: before", "assistant: answer", "user: lost", webmemorytest.LostAnswer}
	require.Equal(t, want, w.History("chat_history:1"))
	w.SetApiserver(w.Runs.Handler())
	webmemorytest.Eventually(t, "a repeated post is answered", func() bool {
		return w.Post("1", "lost", "Idempotency-Key", "k").Status == 200
	})
	require.Equal(t, append(want, "assistant: answer"), w.History("chat_history:1"))
}

// While Redis is away for longer than the lease, the apiserver loses a run. It has run, and another process may close
// it, so a post that waits for it is not told that there is no such thing.
func TestAPostWhoseRunIsLostWhileRedisIsAway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
	s.Allow("1", 2)
	answered := make(chan webmemorytest.Response, 1)
	go func() { answered <- w.Post("1", "hi", "Idempotency-Key", "k") }()
	webmemorytest.Eventually(t, "the run has begun", func() bool { return len(w.History("subagent:analytic:1")) == 1 })
	w.RedisServer.Kill()
	time.Sleep(2 * webmemorytest.ShortLease)
	w.LoseRuns()
	got := <-answered
	require.Equal(t, http.StatusBadGateway, got.Status, string(got.Body))
	require.Equal(t, "outcome_unknown", got.Problem(t).Code)
	require.NoError(t, w.RedisServer.Run())
}

// A request of a run carries histories as lists, also empty ones.
func TestEmptyHistoriesTravelAsLists(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	bodies := w.RecordRuns()
	require.Equal(t, 200, w.Post("1", "hi").Status)
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
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	for name, keys := range map[string][]string{
		"too long":      {strings.Repeat("k", 256)},
		"not printable": {"a\tb"},
		"not ASCII":     {"ключ"},
		"two":           {"a", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			req := w.NewRequest("POST", "/v1/chats/1/messages", webmemorytest.Message("hi"))
			req.Header["Idempotency-Key"] = keys
			got := w.Send(req)
			require.Equal(t, http.StatusBadRequest, got.Status, string(got.Body))
			require.Contains(t, got.Problem(t).Message, "Idempotency-Key")
		})
	}
	require.Nil(t, w.History("chat_history:1"))
	longest := strings.Repeat("k ~", 85)
	require.Equal(t, 200, w.Post("1", "hi", "Idempotency-Key", longest).Status)
	require.Equal(t, 200, w.Post("1", "hi", "Idempotency-Key", longest).Status)
	require.Len(t, w.History("chat_history:1"), 2)
}
