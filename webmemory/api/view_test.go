package api_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// told is a run's log while a test writes it, by way of the wire.
type told struct {
	t      *testing.T
	events []event.Event
}

func (l *told) add(of event.Head, payloads ...event.Payload) *told {
	for _, p := range payloads {
		of.RunID, of.Seq = "RUN", int64(len(l.events)+1)
		of.TS = 1000 + float64(of.Seq)
		e := event.New(of, p)
		back, err := event.Decode(e.Line())
		require.NoError(l.t, err)
		l.events = append(l.events, back)
	}
	return l
}

func (l *told) line(text string) *told {
	e, err := event.Decode(fmt.Appendf(nil, text, len(l.events)+1))
	require.NoError(l.t, err)
	l.events = append(l.events, e)
	return l
}

func started(t *testing.T) *told { return startedFor(t, "") }

func startedFor(t *testing.T, failed string) *told {
	chat, err := memory.ParseChat("1")
	require.NoError(t, err)
	return (&told{t: t}).add(event.Head{}, &event.RunStarted{ChatID: chat, Message: "hello", RetryOf: failed})
}

func called(id, name, arguments string) memory.ToolCall {
	return memory.ToolCall{ID: id, Type: "function", Function: memory.FunctionCall{Name: name, Arguments: arguments}}
}

func working(name, status, detail string) *event.ToolProgress {
	return &event.ToolProgress{Tool: name, Status: status, Detail: detail}
}

func tool(id, name, arguments, result, status string) webapi.ToolView {
	v := webapi.ToolView{ID: id, Name: name, Result: result, Status: status}
	if arguments != "" {
		v.Arguments = json.RawMessage(arguments)
	}
	return v
}

// Everything that a run showed is in its view: what it recalled, its tools, each delegation with its own, the
// answers and where they come from.
func TestViewOfARun(t *testing.T) {
	docs := event.Head{Subagent: "docs", CallID: "c1"}
	answer := &event.Answer{Status: event.Answered, Answer: "14 [1]", Missing: []string{},
		Citations: []event.Citation{{N: 1, DocID: "ferry"}}}
	l := started(t).
		add(event.Head{}, &event.MemoryReset{},
			&event.Recalled{Messages: []event.RecalledMessage{{ID: "a", TS: 1, Score: 2}}},
			(*event.MasterTool)(working("clock", "running", `{"zone":"UTC"}`)), (*event.MasterTool)(working("clock", "done", ""))).
		add(docs, &event.Delegation{Task: "price?", Calls: event.Serial},
			&event.Recalled{Messages: []event.RecalledMessage{{ID: "b", TS: 3, Score: 4}}},
			&event.SubagentDelta{Text: "I look."},
			&event.AssistantWithTools{Content: "I look.", ToolCalls: []memory.ToolCall{called("t1", "search", `{"q":"ferry"}`)}},
			working("search", "running", `{"q":"ferry"}`), working("search", "running", "half"), working("search", "done", ""),
			&event.ToolResult{ToolCallID: "t1", Name: "search", Content: "14 crowns"},
			&event.SubagentDelta{Text: "14 "}, &event.SubagentDelta{Text: "[1]"})
	v := webapi.ViewRun(l.events)
	require.Equal(t, "14 [1]", v.Delegations[0].Content)
	require.Empty(t, v.Delegations[0].Status)
	require.Empty(t, v.Outcome)

	l.add(docs, &event.Completion{Response: "14 [1].", Status: event.Completed, Answer: answer}).
		add(event.Head{}, &event.AssistantDelta{Text: "It "}, &event.Assistant{Content: "It is 14 [1].",
			Citations: answer.Citations},
			&event.RunFinished{Outcome: event.Completed, Usage: event.Usage{InputTokens: 5, CachedTokens: 2}})
	require.Equal(t, &webapi.RunView{
		RunID: "RUN", Outcome: event.Completed, Started: 1001, Finished: 1000 + float64(len(l.events)),
		Usage: event.Usage{InputTokens: 5, CachedTokens: 2},
		Delegations: []webapi.DelegationView{{
			Subagent: "docs", CallID: "c1", Task: "price?", Content: "14 [1].", Status: event.Completed,
			Tools:    []webapi.ToolView{tool("t1", "search", `{"q":"ferry"}`, "14 crowns", "done")},
			Recalled: []event.RecalledMessage{{ID: "b", TS: 3, Score: 4}}, Answer: answer,
		}},
		Tools:     []webapi.ToolView{tool("", "clock", `{"zone":"UTC"}`, "", "done")},
		Recalled:  []event.RecalledMessage{{ID: "a", TS: 1, Score: 2}},
		Citations: answer.Citations,
	}, webapi.ViewRun(l.events))
	raw, err := json.Marshal(webapi.ViewRun(started(t).events))
	require.NoError(t, err)
	for _, list := range []string{"delegations", "tools", "recalled", "citations"} {
		require.Contains(t, string(raw), `"`+list+`":[]`)
	}
	require.Nil(t, webapi.ViewRun(nil))
}

// What two delegations to one subagent say at the same time stays apart, and so do two calls of one tool.
func TestViewOfWhatHappensAtOnce(t *testing.T) {
	one, two := event.Head{Subagent: "analytic", CallID: "c1"}, event.Head{Subagent: "analytic", CallID: "c2"}
	calls := &event.AssistantWithTools{ToolCalls: []memory.ToolCall{
		called("t1", "sum", `{"n":1}`), called("t2", "sum", `{"n":2}`), called("t3", "look", "no JSON")}}
	l := started(t).add(one, &event.Delegation{Task: "first", Calls: event.Isolated}).
		add(two, &event.Delegation{Task: "second", Calls: event.Isolated}).add(one, &event.SubagentDelta{Text: "1"}).
		add(two, &event.SubagentDelta{Text: "2"}).add(one, calls).
		add(one, working("sum", "running", `{"n":2}`), working("sum", "running", `{"n":1}`), working("look", "running", "no JSON"),
			working("sum", "failed", "(error: no)"), &event.ToolResult{ToolCallID: "t1", Name: "sum", Content: "(error: no)"},
			working("sum", "done", ""), &event.ToolResult{ToolCallID: "t2", Name: "sum", Content: "2"}).
		add(two, &event.Completion{Response: "two", Status: event.Completed}).
		add(one, &event.Completion{Response: "(no answer)", Status: event.Stopped}).
		// A model gives the id of a call once more.
		add(one, &event.Delegation{Task: "third", Calls: event.Isolated}, &event.SubagentDelta{Text: "3"})
	v := webapi.ViewRun(l.events)
	require.Len(t, v.Delegations, 3)
	require.Equal(t, []webapi.ToolView{
		tool("t1", "sum", `{"n":1}`, "(error: no)", "failed"), tool("t2", "sum", `{"n":2}`, "2", "done"),
		tool("t3", "look", `"no JSON"`, "", "failed"), // it ended with its delegation
	}, v.Delegations[0].Tools)
	require.Equal(t, "two", v.Delegations[1].Content)
	require.Equal(t, []string{"first", "second", "third"},
		[]string{v.Delegations[0].Task, v.Delegations[1].Task, v.Delegations[2].Task})
	require.Equal(t, "3", v.Delegations[2].Content)
	require.Empty(t, v.Delegations[2].Status)
}

// A run that waits says for what, goes on, and is over; one that is denied has failed calls.
func TestViewOfARunThatWaits(t *testing.T) {
	of := event.Head{Subagent: "shop", CallID: "c1"}
	wait := event.Wait{ID: "w1", Kind: event.Approval, Subagent: "shop", CallID: "c1", ToolCallID: "t1", Tool: "pay",
		Arguments: json.RawMessage(`{"n":1}`), Reason: "pay?", ExpiresAt: 9}
	at := func() *told {
		return started(t).add(of, &event.Delegation{Task: "buy", Calls: event.Serial},
			&event.AssistantWithTools{ToolCalls: []memory.ToolCall{called("t1", "pay", `{"n":1}`), called("t2", "pay", `{"n":1}`)}},
			working("pay", "running", `{"n":1}`)).
			add(event.Head{}, (*event.MasterTool)(working("door", "running", `{}`)), &event.RunWaiting{Pending: []event.Wait{wait}})
	}
	v := webapi.ViewRun(at().events)
	require.Equal(t, webapi.OutcomeWaiting, v.Outcome)
	require.Equal(t, []event.Wait{wait}, v.Pending)
	require.Zero(t, v.Finished)
	require.Equal(t, "running", v.Delegations[0].Tools[0].Status)

	l := at().add(event.Head{}, &event.RunResumed{Answers: []event.WaitAnswer{{ID: "w1", Decision: event.Approve}}})
	require.Empty(t, webapi.ViewRun(l.events).Outcome)
	require.Empty(t, webapi.ViewRun(l.events).Pending)
	l.add(of, working("pay", "done", ""), &event.ToolResult{ToolCallID: "t1", Name: "pay", Content: "paid"},
		working("pay", "running", `{"n":1}`)).add(event.Head{}, &event.RunWaiting{Pending: []event.Wait{wait}})
	v = webapi.ViewRun(l.events)
	require.Equal(t, webapi.OutcomeWaiting, v.Outcome)
	require.Equal(t, []webapi.ToolView{tool("t1", "pay", `{"n":1}`, "paid", "done"), tool("t2", "pay", `{"n":1}`, "", "running")},
		v.Delegations[0].Tools)

	l.add(event.Head{}, &event.RunResumed{}, (*event.MasterTool)(working("door", "failed", "expired"))).
		add(of, &event.ToolResult{ToolCallID: "t2", Name: "pay", Content: "(denied: expired)"},
			&event.Completion{Response: "(denied: expired)", Status: event.Stopped}).
		add(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
	v = webapi.ViewRun(l.events)
	require.Equal(t, event.Stopped, v.Outcome)
	require.Empty(t, v.Pending)
	require.Equal(t, tool("t2", "pay", `{"n":1}`, "(denied: expired)", "failed"), v.Delegations[0].Tools[1])
	require.Equal(t, []webapi.ToolView{tool("", "door", `{}`, "expired", "failed")}, v.Tools)
}

// A failed run says why, the run that tries again says which one it is about, and what a newer version tells changes
// nothing.
func TestViewOfRunsThatFail(t *testing.T) {
	of := event.Head{Subagent: "docs", CallID: "c1"}
	l := started(t).add(of, &event.Delegation{Task: "x", Calls: event.Serial}, &event.Error{Code: "model_failed"},
		&event.Completion{Response: "(no answer: model_failed)", Status: event.Failed, Failure: "model_failed"})
	require.Nil(t, webapi.ViewRun(l.events).Error) // a delegation's, and the run goes on
	l.add(event.Head{}, (*event.MasterTool)(working("door", "running", `{}`)),
		&event.Assistant{Content: "half", Partial: true, Citations: []event.Citation{{N: 1}}, Failure: "gateway_unavailable"},
		&event.Error{Code: "gateway_unavailable", Message: "away", Retryable: true},
		&event.RunFinished{Outcome: event.Failed})
	before := webapi.ViewRun(l.events)
	require.Equal(t, event.Failed, before.Outcome)
	require.Equal(t, "gateway_unavailable", before.Error.Code)
	require.Equal(t, event.Failed, before.Delegations[0].Status)
	require.Len(t, before.Citations, 1)
	require.Equal(t, "failed", before.Tools[0].Status)

	again := startedFor(t, "FIRST").
		line(`{"role":"thought","run_id":"RUN","seq":%d,"ts":2,"text":"hm"}`).
		line(`{"role":"thought","run_id":"RUN","seq":%d,"ts":2,"subagent":"docs","call_id":"c9"}`)
	v := webapi.ViewRun(again.events)
	require.Equal(t, "FIRST", v.RetryOf)
	require.Empty(t, v.Delegations)

	// Closed from outside: a completion of which nothing else is known, steps that no message announced.
	lost := started(t).add(of, working("round 1", "running", ""), working("round 1", "done", ""),
		working("round 2", "failed", "why"),
		&event.ToolResult{ToolCallID: "t9", Name: "x", Content: "y"},
		&event.Completion{Response: "(no answer: run_lost)", Status: event.Failed, Failure: event.RunLost})
	require.Equal(t, []webapi.ToolView{tool("", "round 1", "", "", "done"), tool("", "round 2", "", "why", "failed"),
		tool("t9", "x", "", "y", "done")}, webapi.ViewRun(lost.events).Delegations[0].Tools)
}

// What the histories have of a run is its view when its events are gone.
func TestViewOfWhatIsRemembered(t *testing.T) {
	docs := event.Head{Subagent: "docs", CallID: "c1"}
	cites := []event.Citation{{N: 1, DocID: "ferry", Quote: "14 <crowns>"}}
	l := started(t).
		add(docs, &event.Delegation{Task: "price?", Calls: event.Serial}, &event.AssistantWithTools{
			Content: "I look.", ToolCalls: []memory.ToolCall{called("t1", "search", `{"q":"ferry"}`)}},
			working("search", "running", `{"q":"ferry"}`), working("search", "done", ""),
			&event.ToolResult{ToolCallID: "t1", Name: "search", Content: "14 crowns"},
			&event.Completion{Response: "14 [1].", Status: event.Completed}).
		add(event.Head{Subagent: "analytic", CallID: "c2"}, &event.Delegation{Task: "is that much?", Calls: event.Serial},
			event.Fail("max", "", 0),
			&event.Completion{Response: "(no answer: max)", Status: event.Failed, Failure: "max"}).
		add(docs, &event.Delegation{Task: "and back?", Calls: event.Serial},
			&event.Completion{Response: "the same", Status: event.Completed}).
		add(event.Head{}, &event.Assistant{Content: "It is 14 [1].", Citations: cites},
			&event.RunFinished{Outcome: event.Completed})
	copies := event.Copies{}
	fold := event.NewHistories(memory.MustChat("1"), copies)
	for _, e := range l.events {
		require.NoError(t, fold.Apply(e))
	}
	var messages []webapi.Remembered
	for key, history := range copies {
		for _, m := range history {
			raw, err := memory.Decode([]json.RawMessage{m.Encode()}) // as it is stored
			require.NoError(t, err)
			_, seq, _ := memory.SplitID(m.ID)
			messages = append(messages, webapi.Remembered{Seq: seq, Subagent: key.Agent(), Message: raw[0]})
		}
	}
	want := webapi.ViewRun(l.events)
	got := webapi.ViewRun(webapi.Retell("RUN", messages))
	for i := range want.Delegations {
		want.Delegations[i].CallID = ""
	}
	want.Finished = got.Finished // that of the answer
	require.Equal(t, want, got)
	require.Empty(t, webapi.Retell("RUN", nil))
}
