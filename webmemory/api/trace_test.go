package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// steps are those of a trace, each as a line: from and to which second, what, by which agent, how it ended, what it
// says.
func steps(tr *webapi.Trace) (lines []string) {
	for _, s := range tr.Steps {
		lines = append(lines, strings.ReplaceAll(fmt.Sprintf("%g-%g %s %s/%s [%s] %s | %s", max(0, s.Started-1000),
			max(0, s.Finished-1000), s.Kind, s.Agent, s.CallID, s.Status, s.Title, s.Detail), "\n\n", " ¶ "))
	}
	return lines
}

// busy is a run in which everything happens: event n is told in second n.
func busy(t *testing.T) *told {
	docs, other := event.Head{Subagent: "docs", CallID: "c1"}, event.Head{Subagent: "analytic", CallID: "c2"}
	return started(t).
		add(event.Head{}, &event.MemoryReset{},
			&event.Recalled{Messages: []event.RecalledMessage{{ID: "a", TS: 1, Score: 2.25}}, Partial: true},
			&event.AssistantDelta{Text: "I ask."}).
		add(docs, &event.Delegation{Task: "price?\nof the ferry", Calls: event.Serial}).
		add(other, &event.Delegation{Task: "sum", Calls: event.Serial}, &event.Recalled{Failed: event.MemoryUnreachable}).
		add(docs, &event.SubagentDelta{Text: "I look."}, &event.AssistantWithTools{ToolCalls: []memory.ToolCall{
			called("t1", "search", `{"q":"ferry"}`), called("t2", "search", `{"q":"boat"}`)}},
			working("search", "running", `{"q":"ferry"}`), working("search", "done", ""),
			&event.ToolResult{ToolCallID: "t1", Name: "search", Content: "14 crowns"},
			working("search", "running", `{"q":"boat"}`)).
		add(other, &event.Error{Code: "model_failed", Message: "It failed."},
			&event.Completion{Response: "(no answer: model_failed)", Status: event.Failed, Failure: "model_failed"}).
		add(docs, working("search", "failed", "(error: no)"),
			&event.ToolResult{ToolCallID: "t2", Name: "search", Content: "(error: no)"},
			&event.Completion{Response: "14.", Status: event.Completed}).
		add(event.Head{}, (*event.MasterTool)(working("light", "running", `{"on":true}`)),
			&event.RunWaiting{Pending: []event.Wait{{ID: "w", Kind: event.Approval, Tool: "light", Reason: "It costs.",
				Arguments: json.RawMessage(`{"on":true}`)}}},
			&event.RunResumed{Answers: []event.WaitAnswer{{ID: "w", Decision: event.Deny, Reason: "too late"}}},
			(*event.MasterTool)(working("light", "failed", "denied")),
			&event.AssistantDelta{Text: "It is "}, &event.AssistantDelta{Text: "14."},
			&event.Assistant{Content: "It is 14."},
			&event.RunFinished{Outcome: event.Completed, Usage: event.Usage{InputTokens: 5}, Calls: []event.ModelCall{
				{Started: 1003, Seconds: 2, Model: "big", Usage: event.Usage{InputTokens: 5}},
				{Started: 1005, Seconds: 3, Model: "small", Subagent: "docs", CallID: "c1"},
				{Started: 1006, Seconds: 8, Model: "small", Subagent: "analytic", CallID: "c2", Error: "model_unavailable"},
				{Started: 1022.5, Seconds: 2, Model: "big"},
			}})
}

// A trace has all that happened, in the order of its beginnings, and calls of models before what came of them.
func TestTraceOfARun(t *testing.T) {
	tr := webapi.TraceRun(busy(t).events)
	require.Equal(t, []string{
		"1-1 message / [] hello | ",
		"2-2 error master/ [memory_reset] The memory lost data since the chat's run before. | ",
		"3-3 recalled master/ [partial] recalled 1 messages: a | a (2.25)",
		"3-5 model_call master/ [completed] big | ",
		"5-18 delegation docs/c1 [completed] price? | price?\nof the ferry ¶ 14.",
		"5-8 model_call docs/c1 [completed] small | ",
		"6-15 delegation analytic/c2 [failed] sum | (no answer: model_failed)",
		"6-14 model_call analytic/c2 [model_unavailable] small | " +
			event.FailureOf("model_unavailable").Message,
		"7-7 recalled analytic/c2 [memory_unreachable] the memory could not be searched (memory_unreachable) | ",
		"10-11 tool docs/c1 [done] search | {\"q\":\"ferry\"} ¶ 14 crowns",
		"13-16 tool docs/c1 [failed] search | {\"q\":\"boat\"} ¶ (error: no)",
		"14-14 error analytic/c2 [model_failed] It failed. | ",
		"19-22 tool master/ [failed] light | {\"on\":true} ¶ denied",
		"20-21 wait master/ [deny] light | It costs. ¶ {\"on\":true} ¶ too late",
		"22.5-24.5 model_call master/ [completed] big | ",
		"23-25 answer master/ [completed] It is 14. | ",
	}, steps(tr))
	require.Equal(t, []any{"RUN", event.Completed, 1001.0, 1026.0, event.Usage{InputTokens: 5}},
		[]any{tr.RunID, tr.Outcome, tr.Started, tr.Finished, tr.Usage})
	require.Equal(t, int64(5), tr.Steps[3].Call.Usage.InputTokens)
	require.Nil(t, webapi.TraceRun(nil))
}

// What asked stands before what was asked, also where all of it took place in one millisecond, and where a call's time
// is that of a clock that is behind.
func TestTraceIsInTheOrderOfCauses(t *testing.T) {
	docs, other := event.Head{Subagent: "docs", CallID: "c1"}, event.Head{Subagent: "docs", CallID: "c2"}
	ask := &event.AssistantWithTools{ToolCalls: []memory.ToolCall{called("t1", "search", `{}`)}}
	l := started(t).
		add(docs, &event.Delegation{Task: "one"}).
		add(other, &event.Delegation{Task: "two"}).
		add(docs, ask, working("search", "running", `{}`), working("search", "done", ""),
			&event.ToolResult{ToolCallID: "t1", Name: "search", Content: "x"},
			&event.Completion{Response: "1", Status: event.Completed}).
		add(other, &event.Completion{Response: "2", Status: event.Completed}).
		add(event.Head{}, (*event.MasterTool)(working("light", "running", `{}`)),
			(*event.MasterTool)(working("light", "done", "")), (*event.MasterTool)(working("door", "running", `{}`)),
			(*event.MasterTool)(working("door", "done", "")), &event.AssistantDelta{Text: "All."},
			&event.Assistant{Content: "All."})
	for name, times := range map[string]struct{ events, calls float64 }{
		"in one millisecond": {1001, 1001}, "events are later": {1001.001, 1001},
		"calls are behind": {1001, 1000}, "calls are ahead": {1001, 1002},
	} {
		t.Run(name, func(t *testing.T) {
			var events []event.Event
			for _, e := range l.events {
				e.TS = times.events
				events = append(events, event.New(e.Head, e.Payload))
			}
			end := &event.RunFinished{Outcome: event.Completed}
			for i, of := range []event.Head{{}, other, docs, docs, {}, {}, {}} {
				end.Calls = append(end.Calls, event.ModelCall{Started: times.calls, Subagent: of.Subagent, CallID: of.CallID,
					Model: fmt.Sprint(i)})
			}
			events = append(events, event.New(event.Head{RunID: events[0].RunID, Seq: int64(len(events)) + 1, TS: times.events},
				end))
			var order []string
			for _, s := range webapi.TraceRun(events).Steps {
				order = append(order, s.Title)
			}
			before := func(first, second string) {
				t.Helper()
				require.Less(t, slices.Index(order, first), slices.Index(order, second), "%s, %s: %v", first, second, order)
			}
			for _, pair := range [][2]string{{"hello", "0"}, {"0", "one"}, {"0", "two"}, {"two", "1"}, {"one", "2"},
				{"2", "search"}, {"search", "4"}, {"0", "light"}, {"light", "door"}, {"0", "door"}, {"6", "All."}} {
				before(pair[0], pair[1])
			}
			if name == "in one millisecond" {
				require.Equal(t, []string{"hello", "0", "one", "two", "1", "2", "search", "3", "4", "light", "5", "door", "6",
					"All."}, order)
			}
		})
	}
}

// A run can be looked at after each of its events: what was begun stays in its place, and what goes on has no end.
func TestTraceOfARunThatGoesOn(t *testing.T) {
	all := busy(t).events
	var before *webapi.Trace
	for n := 1; n < len(all); n++ {
		tr := webapi.TraceRun(all[:n])
		require.NotNil(t, tr.Steps)
		require.Zero(t, tr.Finished)
		require.True(t, slices.IsSortedFunc(tr.Steps, func(a, b webapi.TraceStep) int {
			return int(a.Started - b.Started)
		}))
		for _, s := range tr.Steps {
			require.NotEqual(t, webapi.StepModelCall, s.Kind)
			require.NotEmpty(t, s.Title)
			require.LessOrEqual(t, s.Finished, all[n-1].TS)
		}
		if before != nil {
			require.GreaterOrEqual(t, len(tr.Steps), len(before.Steps))
		}
		before = tr
	}
	waiting := webapi.TraceRun(all[:20])
	require.Equal(t, webapi.OutcomeWaiting, waiting.Outcome)
	require.Equal(t, "20-0 wait master/ [waiting] light | It costs. ¶ {\"on\":true}", steps(waiting)[len(waiting.Steps)-1])
	require.Contains(t, steps(webapi.TraceRun(all[:10])), "5-0 delegation docs/c1 [] price? | price?\nof the ferry")
	require.Contains(t, steps(webapi.TraceRun(all[:10])), "10-0 tool docs/c1 [running] search | {\"q\":\"ferry\"}")
}

// A run that is stopped has its part of an answer, and a wait that ended with its run says so.
func TestTraceOfARunThatEnds(t *testing.T) {
	w := &event.RunWaiting{Pending: []event.Wait{{
		ID: "w", Kind: event.Question, Reason: "Which?", Subagent: "docs", CallID: "c1",
	}}}
	for name, c := range map[string]struct {
		events []event.Payload
		want   []string
	}{
		"stopped": {[]event.Payload{&event.AssistantDelta{Text: "It"}, &event.Assistant{Content: "It", Partial: true},
			&event.RunFinished{Outcome: event.Stopped}}, []string{"2-3 answer master/ [stopped] It | "}},
		"failed": {[]event.Payload{&event.AssistantDelta{Text: "It"},
			&event.Assistant{Content: "It", Partial: true, Failure: "answer_cut"},
			&event.Error{Code: "answer_cut", Message: "Cut."},
			&event.RunFinished{Outcome: event.Failed}},
			[]string{"2-3 answer master/ [answer_cut] It | ", "4-4 error master/ [answer_cut] Cut. | "}},
		"while it waits": {[]event.Payload{w, &event.RunFinished{Outcome: event.Stopped}},
			[]string{"2-3 wait docs/c1 [unanswered] question | Which?"}},
		"newer events": {[]event.Payload{&event.Unknown{Name: "later"}, &event.RunFinished{Outcome: event.Completed}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tr := webapi.TraceRun(started(t).add(event.Head{}, c.events...).events)
			require.Equal(t, append([]string{"1-1 message / [] hello | "}, c.want...), steps(tr))
		})
	}
	said := started(t).add(event.Head{}, &event.Assistant{Content: strings.Repeat("ё", 500)})
	long := webapi.TraceRun(said.events).Steps[1]
	require.Equal(t, strings.Repeat("ё", 159)+"…", long.Title)
	require.Equal(t, strings.Repeat("ё", 500), long.Detail)
}
