package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// asks is a tool that asks a person, several times over, before it answers. Its arguments say how
// often, and what becomes of it: "2 ok", "0 fail".
type asks struct {
	name     string
	parallel bool
}

func (t asks) Spec() loop.Spec {
	return loop.Spec{Name: t.name, Parameters: json.RawMessage(`{"type":"object"}`), Parallel: t.parallel}
}

func (t asks) Call(_ context.Context, c memory.ToolCall) (string, error) { return t.ask(c, 0) }

func (t asks) Resume(
	_ context.Context, c memory.ToolCall, state json.RawMessage, answers loop.Answers,
) (string, error) {
	var asked int
	if err := json.Unmarshal(state, &asked); err != nil {
		return "", err
	}
	if answers[fmt.Sprintf("%s/%d", c.ID, asked)].Decision != event.Approve {
		return "", errors.New("the answer is missing")
	}
	return t.ask(c, asked)
}

func (t asks) ask(c memory.ToolCall, asked int) (string, error) {
	var often int
	var what string
	if _, err := fmt.Sscan(c.Function.Arguments, &often, &what); err != nil {
		return "", err
	}
	if asked < often {
		state, err := json.Marshal(asked + 1)
		if err != nil {
			return "", err
		}
		return "", &loop.Suspended{Pending: []event.Wait{{ID: fmt.Sprintf("%s/%d", c.ID, asked+1), Kind: event.Approval}},
			State: state}
	}
	if what == "fail" {
		return "", fmt.Errorf("%s failed <&>", c.ID)
	}
	return c.ID + " is done", nil
}

// atOnce answers without asking a person.
type atOnce struct{ asks }

func (t atOnce) Call(_ context.Context, c memory.ToolCall) (string, error) {
	_, what, _ := strings.Cut(c.Function.Arguments, " ")
	c.Function.Arguments = "0 " + what
	return t.ask(c, 0)
}

// told is what an observer heard, by call.
type told struct {
	mu      sync.Mutex
	started []string
	said    []string
	results []string
}

func (h *told) Text(s string) error { h.said = append(h.said, s); return nil }

func (h *told) Calls(content string, calls []memory.ToolCall) error {
	h.said = append(h.said, fmt.Sprintf("calls %d %s", len(calls), content))
	return nil
}

func (h *told) Start(c memory.ToolCall) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = append(h.started, c.ID)
	return nil
}

func (h *told) Result(c memory.ToolCall, content string, _ memory.Origin, failed bool) error {
	h.results = append(h.results, fmt.Sprintf("%s=%s %v", c.ID, content, failed))
	return nil
}

// toTheEnd runs a loop, and resumes it as often as it waits: what it gave, and what the waits
// were, round by round.
func toTheEnd(t require.TestingT, ctx context.Context, l loop.Loop, o loop.Observer) (loop.Result, [][]event.Wait) {
	var rounds [][]event.Wait
	r, err := l.Run(ctx, question, o)
	for {
		var waits *loop.Suspended
		if !errors.As(err, &waits) {
			require.NoError(t, err)
			return r, rounds
		}
		rounds = append(rounds, waits.Pending)
		answers := loop.Answers{"of nobody": {ID: "of nobody"}}
		for _, w := range waits.Pending {
			answers[w.ID] = event.WaitAnswer{ID: w.ID, Decision: event.Approve}
		}
		again := l
		again.System, again.Recalled = "another prompt", "something else" // of a configuration that has changed
		r, err = again.Resume(ctx, json.RawMessage(string(waits.State)), answers, o)
	}
}

// However often calls make it wait, a loop asks its model the same as one with tools that
// answer at once, and its observer is told the same, each thing once.
func TestALoopThatWaitsIsTheSameLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"serial", "other", "parallel", "unknown"}
		steps := rapid.IntRange(1, 4).Draw(t, "steps")
		var answers []answer
		for i := range steps {
			a := answer{text: rapid.StringN(0, 9, -1).Draw(t, "text")}
			for j := range rapid.IntRange(1, 5).Draw(t, "calls") {
				arguments := fmt.Sprintf("%d %s", rapid.IntRange(0, 2).Draw(t, "waits"),
					rapid.SampledFrom([]string{"ok", "fail"}).Draw(t, "outcome"))
				a.calls = append(a.calls, call(fmt.Sprintf("c%d.%d", i, j), rapid.SampledFrom(names).Draw(t, "tool"), arguments))
			}
			answers = append(answers, a)
		}
		if rapid.Bool().Draw(t, "ends with an answer") {
			answers = append(answers, answer{text: "done"})
		}
		l := loop.Loop{System: "s", Recalled: "r", MaxSteps: len(answers), Conversation: "c"}
		waiting, plain := &scripted{answers: answers}, &scripted{answers: answers}
		for _, name := range names[:3] {
			l.Tools = append(l.Tools, asks{name, name == "parallel"})
		}
		l.Model = waiting
		var heard, expected told
		result, _ := toTheEnd(t, context.Background(), l, &heard)

		for i, tool := range l.Tools {
			l.Tools[i] = atOnce{tool.(asks)}
		}
		l.Model = plain
		wanted, _ := toTheEnd(t, context.Background(), l, &expected)
		require.Equal(t, wanted, result)
		require.Len(t, waiting.asked, len(plain.asked))
		for i, r := range plain.asked {
			require.Equal(t, r.Messages, waiting.asked[i].Messages)
			require.Equal(t, []string{r.System, r.Recalled}, []string{waiting.asked[i].System, waiting.asked[i].Recalled})
		}
		require.Equal(t, expected.said, heard.said)
		require.ElementsMatch(t, expected.started, heard.started, "a call begins once")
		require.ElementsMatch(t, expected.results, heard.results)
	})
}

// While a call waits, others end; those of its own tool behind it have not begun.
func TestACallThatWaitsHoldsUpItsLane(t *testing.T) {
	m := &scripted{answers: []answer{{text: "So: ", calls: []memory.ToolCall{
		call("1", "serial", "1 ok"), call("2", "serial", "0 ok"),
		call("3", "parallel", "1 ok"), call("4", "parallel", "0 ok"),
	}}, {text: "done"}}}
	h := &told{}
	l := loop.Loop{Model: m, Tools: []loop.Tool{asks{"serial", false}, asks{"parallel", true}}, MaxSteps: 2}
	_, err := l.Run(guard(t), question, h)
	var waits *loop.Suspended
	require.ErrorAs(t, err, &waits)
	require.Equal(t, []event.Wait{
		{ID: "1/1", Kind: event.Approval, ToolCallID: "1", Tool: "serial"},
		{ID: "3/1", Kind: event.Approval, ToolCallID: "3", Tool: "parallel"},
	}, waits.Pending)
	require.ElementsMatch(t, []string{"1", "3", "4"}, h.started)
	require.Equal(t, []string{"4=4 is done false"}, h.results)

	answers := loop.Answers{"1/1": {Decision: event.Approve}, "3/1": {Decision: event.Deny}}
	r, err := l.Resume(guard(t), waits.State, answers, h)
	require.NoError(t, err)
	require.Equal(t, "done", r.Text)
	require.ElementsMatch(t, []string{"1", "2", "3", "4"}, h.started)
	require.Equal(t, []string{"4=4 is done false", "1=1 is done false", "2=2 is done false",
		"3=(error: the answer is missing) true"}, h.results)
	require.Equal(t, []string{"1", "2", "3", "4"}, resultIDs(m.asked[1].Messages), "the model reads them in call order")
}

func resultIDs(messages []memory.Message) (ids []string) {
	for _, m := range messages {
		if m.Role == memory.RoleTool {
			ids = append(ids, m.ToolCallID)
		}
	}
	return ids
}

// A wait may be one of a loop inside of the call.
func TestWaitsThatSayWhatTheyAreAreKept(t *testing.T) {
	of := event.Wait{ID: "w", Kind: event.Question, Subagent: "a", CallID: "RUN-1", ToolCallID: "x", Tool: "inner",
		Arguments: json.RawMessage(`{"a":1}`)}
	bare := event.Wait{ID: "v", Kind: event.Approval}
	outer := tool{name: "outer", run: func(context.Context, string) (string, error) {
		return "", fmt.Errorf("inside: %w", &loop.Suspended{Pending: []event.Wait{of, bare}})
	}}
	_, err := loop.Loop{Model: &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "outer", `{"task":"t"}`)}}}},
		Tools: []loop.Tool{outer}, MaxSteps: 2}.Run(guard(t), question, &told{})
	var waits *loop.Suspended
	require.ErrorAs(t, err, &waits)
	require.Equal(t, []event.Wait{of, {ID: "v", Kind: event.Approval, ToolCallID: "1", Tool: "outer",
		Arguments: json.RawMessage(`{"task":"t"}`)}}, waits.Pending)
}

// What cannot wait is a result that the model reads, and the loop goes on.
func TestACallThatCannotWait(t *testing.T) {
	waits := func(w ...event.Wait) tool {
		return tool{name: "a", run: func(context.Context, string) (string, error) {
			return "", &loop.Suspended{Pending: w}
		}}
	}
	for name, c := range map[string]struct {
		tool    tool
		noWaits bool
		says    string
	}{
		"nobody could answer": {waits(event.Wait{ID: "w"}), true, "nobody keeps this run"},
		"for nothing":         {waits(), false, "the tool waits for nothing"},
		"and go on":           {waits(event.Wait{ID: "w"}), false, "this tool cannot go on with a call that waited"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "a", "{}")}}, {text: "done"}}}
			h := &told{}
			r, _ := toTheEnd(t, guard(t), loop.Loop{Model: m, Tools: []loop.Tool{c.tool}, MaxSteps: 2, NoWaits: c.noWaits}, h)
			require.Equal(t, "done", r.Text)
			require.Len(t, h.results, 1)
			require.Contains(t, h.results[0], c.says)
			require.True(t, strings.HasSuffix(h.results[0], " true"))
		})
	}
}

// suspended is a loop that waits for one call, with what it goes on from.
func suspended(t *testing.T, m *scripted, more ...loop.Tool) (loop.Loop, *loop.Suspended) {
	t.Helper()
	first := answer{text: "Let me ask. ", calls: []memory.ToolCall{call("1", "serial", "1 ok")}}
	m.answers = slices.Insert(m.answers, 0, first)
	l := loop.Loop{Model: m, Tools: append(more, asks{name: "serial"}), MaxSteps: 3}
	r, err := l.Run(guard(t), question, &told{})
	var waits *loop.Suspended
	require.ErrorAs(t, err, &waits)
	require.Equal(t, event.Usage{InputTokens: 10, OutputTokens: 1}, r.Usage)
	return l, waits
}

var yes = loop.Answers{"1/1": {ID: "1/1", Decision: event.Approve}}

func TestWhatALoopUsedIsCountedOverItsWaits(t *testing.T) {
	l, waits := suspended(t, &scripted{answers: []answer{{text: "done"}}})
	r, err := l.Resume(guard(t), waits.State, yes, &told{})
	require.NoError(t, err)
	require.Equal(t, loop.Result{Text: "done", Usage: event.Usage{InputTokens: 20, OutputTokens: 2}}, r)
}

func TestALoopThatIsResumedInItsLastStepIsExhausted(t *testing.T) {
	l, waits := suspended(t, &scripted{})
	l.MaxSteps = 1
	r, err := l.Resume(guard(t), waits.State, yes, &told{})
	require.NoError(t, err)
	used := event.Usage{InputTokens: 10, OutputTokens: 1}
	require.Equal(t, loop.Result{Text: "Let me ask. ", Usage: used, Exhausted: true}, r)
}

func TestTheEndOfTheContextEndsALoopThatIsResumed(t *testing.T) {
	l, waits := suspended(t, &scripted{})
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(guard(t))
	cancel(stopped)
	r, err := l.Resume(ctx, waits.State, yes, &told{})
	require.ErrorIs(t, err, stopped)
	require.Equal(t, event.Usage{InputTokens: 10, OutputTokens: 1}, r.Usage, "what it used until then")
}

// A stop that comes while one call waits and another still works ends the loop: it does not wait.
func TestALoopThatIsStoppedDoesNotWait(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(guard(t))
	slow := tool{name: "slow", run: func(ctx context.Context, _ string) (string, error) {
		cancel(stopped)
		<-ctx.Done()
		return "", ctx.Err()
	}}
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "serial", "1 ok"), call("2", "slow", "{}")}}}}
	_, err := loop.Loop{Model: m, Tools: []loop.Tool{slow, asks{name: "serial"}}, MaxSteps: 2}.Run(ctx, question, &told{})
	require.ErrorIs(t, err, stopped)
}

func TestAPanicOfAToolThatIsResumedIsTheCallers(t *testing.T) {
	l, waits := suspended(t, &scripted{})
	l.Tools = []loop.Tool{panics{asks{name: "serial"}}}
	require.Panics(t, func() { _, _ = l.Resume(guard(t), waits.State, yes, &told{}) })
}

type panics struct{ asks }

func (panics) Resume(context.Context, memory.ToolCall, json.RawMessage, loop.Answers) (string, error) {
	panic("oops")
}

// A tool that is configured no longer is a result that the model reads.
func TestAToolThatIsGoneWhenItsAnswerComes(t *testing.T) {
	l, waits := suspended(t, &scripted{answers: []answer{{text: "done"}}})
	l.Tools = nil
	h := &told{}
	r, err := l.Resume(guard(t), waits.State, yes, h)
	require.NoError(t, err)
	require.Equal(t, "done", r.Text)
	require.Equal(t, []string{`1=(error: there is no tool "serial") true`}, h.results)
}

func TestAStateThatIsNoneIsAnError(t *testing.T) {
	l, waits := suspended(t, &scripted{})
	for _, state := range []string{"", "null", "{}", "[]", `{"messages":3}`,
		strings.Replace(string(waits.State), `"calls":[`, `"calls":[{},`, 1)} {
		_, err := l.Resume(guard(t), json.RawMessage(state), yes, &told{})
		require.ErrorContains(t, err, "the state of a loop that waited")
	}
}

// What a call says while it works reaches the observer, a hundred times at most.
func TestProgressOfACallIsBounded(t *testing.T) {
	chatty := tool{name: "a", run: func(ctx context.Context, _ string) (string, error) {
		for range 1000 {
			if err := loop.Progress(ctx, strings.Repeat("ж", 1000)); err != nil {
				return "", err
			}
		}
		return "ok", nil
	}}
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "a", "{}")}}, {text: "done"}}}
	h := &progressing{}
	_, err := loop.Loop{Model: m, Tools: []loop.Tool{chatty}, MaxSteps: 2}.Run(guard(t), question, h)
	require.NoError(t, err)
	require.Len(t, h.said, 100)
	require.Equal(t, strings.Repeat("ж", 512)+"…", h.said[0])
}

type progressing struct {
	told
	said []string
}

func (p *progressing) Progress(_ memory.ToolCall, text string) error {
	p.said = append(p.said, text)
	return nil
}
