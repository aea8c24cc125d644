package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// scripted is a model that gives its answers in turn and keeps what it was asked.
type scripted struct {
	answers []answer
	asked   []loop.Request
}

type answer struct {
	text  string
	calls []memory.ToolCall
	err   error
}

func (m *scripted) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	n := len(m.asked)
	m.asked = append(m.asked, r)
	return func(yield func(loop.Delta, error) bool) {
		if n >= len(m.answers) {
			yield(loop.Delta{}, errors.New("the script has no more answers"))
			return
		}
		a := m.answers[n]
		for word := range strings.SplitAfterSeq(a.text, " ") {
			if !yield(loop.Delta{Text: word}, nil) {
				return
			}
		}
		if len(a.calls) > 0 && !yield(loop.Delta{Calls: a.calls}, nil) {
			return
		}
		if a.err != nil {
			yield(loop.Delta{}, a.err)
			return
		}
		yield(loop.Delta{Usage: event.Usage{InputTokens: 10, OutputTokens: 1}}, nil)
	}
}

func call(id, tool, args string) memory.ToolCall {
	return memory.ToolCall{ID: id, Type: "function", Function: memory.FunctionCall{Name: tool, Arguments: args}}
}

// tool is a loop.Tool made of a function.
type tool struct {
	name     string
	parallel bool
	run      func(ctx context.Context, args string) (string, error)
}

func (t tool) Spec() loop.Spec {
	return loop.Spec{Name: t.name, Description: t.name, Parameters: json.RawMessage(`{"type":"object"}`),
		Parallel: t.parallel}
}

func (t tool) Call(ctx context.Context, c memory.ToolCall) (string, error) {
	return t.run(ctx, c.Function.Arguments)
}

func echo(name string) tool {
	return tool{name: name, run: func(_ context.Context, args string) (string, error) { return name + args, nil }}
}

// heard is what an observer was told.
type heard struct {
	text    strings.Builder
	lines   []string
	started atomic.Int64
	refuse  error // of Result
}

func (h *heard) Text(s string) error { h.text.WriteString(s); return nil }

func (h *heard) Calls(content string, calls []memory.ToolCall) error {
	h.lines = append(h.lines, fmt.Sprintf("calls %d %s", len(calls), content))
	return nil
}

func (h *heard) Start(memory.ToolCall) error { h.started.Add(1); return nil }

func (h *heard) Result(c memory.ToolCall, content string, _ memory.Origin, failed bool) error {
	h.lines = append(h.lines, fmt.Sprintf("%s=%s failed=%v", c.ID, content, failed))
	return h.refuse
}

var question = []memory.Message{{Role: memory.RoleUser, Content: "?"}}

// guard ends a test that hangs.
func guard(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestRunsUntilNoToolIsAskedFor(t *testing.T) {
	m := &scripted{answers: []answer{
		{text: "Looking. ", calls: []memory.ToolCall{call("1", "a", `{"q":1}`), call("2", "b", `{}`)}},
		{text: "The answer."},
	}}
	h := &heard{}
	r, err := loop.Loop{Model: m, System: "s", Tools: []loop.Tool{echo("a"), echo("b")}, MaxSteps: 5,
		Conversation: "c"}.Run(guard(t), question, h)
	require.NoError(t, err)
	require.Equal(t, loop.Result{Text: "The answer.", Usage: event.Usage{InputTokens: 20, OutputTokens: 2}}, r)
	require.Equal(t, []string{"calls 2 Looking. ", `1=a{"q":1} failed=false`, "2=b{} failed=false"}, h.lines)
	require.Equal(t, "Looking. The answer.", h.text.String())
	require.Equal(t, "c", m.asked[1].Conversation)
	require.Equal(t, []memory.Message{
		question[0],
		{Role: memory.RoleAssistant, Content: "Looking. ", ToolCalls: []memory.ToolCall{
			call("1", "a", `{"q":1}`), call("2", "b", `{}`),
		}},
		{Role: memory.RoleTool, ToolCallID: "1", Name: "a", Content: `a{"q":1}`},
		{Role: memory.RoleTool, ToolCallID: "2", Name: "b", Content: "b{}"},
	}, m.asked[1].Messages)
	require.Len(t, question, 1, "the caller's messages stay as they were")
}

func TestDifferentToolsRunInParallel(t *testing.T) {
	ctx := guard(t)
	left, right := make(chan string), make(chan string)
	meet := func(give, take chan string, what string) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) {
			select { // each needs the other to be running
			case give <- what:
				return <-take, nil
			case got := <-take:
				give <- what
				return got, nil
			case <-ctx.Done():
				return "", errors.New("the other one never came")
			}
		}
	}
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "a", ""), call("2", "b", "")}}, {text: "done"}}}
	h := &heard{}
	tools := []loop.Tool{tool{name: "a", run: meet(left, right, "from a")},
		tool{name: "b", run: meet(right, left, "from b")}}
	_, err := loop.Loop{Model: m, Tools: tools, MaxSteps: 2}.Run(ctx, question, h)
	require.NoError(t, err)
	require.Equal(t, []string{"calls 2 ", "1=from b failed=false", "2=from a failed=false"}, h.lines)
}

func TestCallsOfOneToolRunInOrder(t *testing.T) {
	var running, order atomic.Int64
	one := tool{name: "a", run: func(context.Context, string) (string, error) {
		if running.Add(1) > 1 {
			return "", errors.New("two at once")
		}
		defer running.Add(-1)
		return fmt.Sprint(order.Add(1)), nil
	}}
	m := &scripted{
		answers: []answer{{calls: []memory.ToolCall{call("1", "a", ""), call("2", "a", ""), call("3", "a", "")}},
			{text: "done"}},
	}
	h := &heard{}
	_, err := loop.Loop{Model: m, Tools: []loop.Tool{one}, MaxSteps: 2}.Run(guard(t), question, h)
	require.NoError(t, err)
	require.Equal(t, []string{"calls 3 ", "1=1 failed=false", "2=2 failed=false", "3=3 failed=false"}, h.lines)
}

func TestFailuresOfToolsAreResults(t *testing.T) {
	bad := tool{name: "bad", run: func(context.Context, string) (string, error) { return "", errors.New("no such city") }}
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "bad", ""), call("2", "unknown", "")}},
		{text: "Sorry."}}}
	h := &heard{}
	r, err := loop.Loop{Model: m, Tools: []loop.Tool{bad}, MaxSteps: 2}.Run(guard(t), question, h)
	require.NoError(t, err)
	require.Equal(t, "Sorry.", r.Text)
	require.Equal(t, []string{"calls 2 ", "1=(error: no such city) failed=true",
		`2=(error: there is no tool "unknown") failed=true`}, h.lines)
}

func TestStepsAreBounded(t *testing.T) {
	again := answer{text: "More. ", calls: []memory.ToolCall{call("1", "a", "")}}
	m := &scripted{answers: []answer{again, again, again, again}}
	r, err := loop.Loop{Model: m, Tools: []loop.Tool{echo("a")}, MaxSteps: 3}.Run(guard(t), question, &heard{})
	require.NoError(t, err)
	require.True(t, r.Exhausted)
	require.Len(t, m.asked, 3)
	ids := map[string]bool{}
	for _, msg := range m.asked[2].Messages {
		for _, c := range msg.ToolCalls {
			require.False(t, ids[c.ID], "an id that the vendor used again was told apart")
			ids[c.ID] = true
		}
	}
	require.Len(t, ids, 2)
}

func TestModelFailures(t *testing.T) {
	broken := errors.New("connection reset")
	r, err := loop.Loop{Model: &scripted{answers: []answer{{text: "Half an ", err: broken}}}, MaxSteps: 1}.Run(guard(t),
		question, &heard{})
	require.ErrorIs(t, err, loop.ErrModel)
	require.ErrorIs(t, err, broken)
	require.Equal(t, "Half an ", r.Text)

	_, err = loop.Loop{Model: &scripted{answers: []answer{{}}}, MaxSteps: 1}.Run(guard(t), question, &heard{})
	require.ErrorIs(t, err, loop.ErrModel, "an empty answer is a failure")
}

func TestTheEndOfTheContextEndsTools(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(guard(t))
	var ended atomic.Bool
	slow := tool{name: "slow", run: func(ctx context.Context, _ string) (string, error) {
		cancel(stopped)
		<-ctx.Done()
		ended.Store(true)
		return "", ctx.Err()
	}}
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "slow", ""), call("2", "slow", "")}},
		{text: "never"}}}
	h := &heard{}
	_, err := loop.Loop{Model: m, Tools: []loop.Tool{slow}, MaxSteps: 2}.Run(ctx, question, h)
	require.ErrorIs(t, err, stopped)
	require.True(t, ended.Load(), "no tool outlives the loop")
	require.EqualValues(t, 1, h.started.Load(), "what had not begun does not begin")
	require.Len(t, m.asked, 1)
}

func TestAnObserverEndsTheLoop(t *testing.T) {
	full := errors.New("the log is full")
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "a", "")}}, {text: "never"}}}
	_, err := loop.Loop{Model: m, Tools: []loop.Tool{echo("a")}, MaxSteps: 2}.Run(guard(t), question, &heard{refuse: full})
	require.ErrorIs(t, err, full)
	require.Len(t, m.asked, 1)
}

func TestAPanicOfAToolIsTheCallers(t *testing.T) {
	bad := tool{name: "bad", run: func(context.Context, string) (string, error) { panic("oops") }}
	m := &scripted{answers: []answer{{calls: []memory.ToolCall{call("1", "bad", "")}}}}
	require.Panics(t, func() {
		_, _ = loop.Loop{Model: m, Tools: []loop.Tool{bad}, MaxSteps: 2}.Run(guard(t), question, &heard{})
	})
}

func TestLongResultsAreCutAtACharacter(t *testing.T) {
	long := strings.Repeat("ж", memory.MaxToolResult)
	cut := loop.Cut(long, 0)
	require.LessOrEqual(t, len(cut), memory.MaxToolResult)
	require.Contains(t, cut, "(cut:")
	require.True(t, strings.HasPrefix(long, strings.TrimRight(cut[:len(cut)-100], "\ufffd")))
	require.Equal(t, "short", loop.Cut("short", 0))
}
