package event_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
	"mneme/memory/event"
)

var chat = memory.MustChat("12345")

// stored is a Sink that keeps encoded histories, as webmemory does.
type stored map[memory.Key]*memory.History

func (s stored) Append(key memory.Key, _ int64, m memory.Message) error {
	if s[key] == nil {
		s[key] = memory.Empty(key)
	}
	s[key] = s[key].With(m.Encode())
	return nil
}

// copies decodes everything that is stored.
func (s stored) copies(t require.TestingT) event.Copies {
	c := event.Copies{}
	for key, h := range s {
		read, err := memory.ParseHistory(key, h.JSON())
		require.NoError(t, err)
		c[key], err = read.Messages(0)
		require.NoError(t, err)
	}
	return c
}

func fold(t require.TestingT, sink event.Sink, events []event.Event) {
	h := event.NewHistories(chat, sink)
	for _, e := range events {
		require.NoError(t, h.Apply(e))
	}
}

// run numbers events as a run does.
func run(events ...event.Event) []event.Event {
	for i := range events {
		events[i].RunID, events[i].Seq, events[i].TS = "r", int64(i+1), float64(i+1)
	}
	return events
}

func of(agent memory.Agent, call string, p event.Payload) event.Event {
	return event.Event{Head: event.Head{Subagent: agent, CallID: call}, Payload: p}
}

func main(p event.Payload) event.Event { return event.Event{Payload: p} }

// Origins of messages whose events name none, as those of an older version.
var (
	user  = memory.Origin{Authority: memory.FromUser}
	agent = memory.Origin{Authority: memory.FromAgent}
)

func TestFoldOfOneRun(t *testing.T) {
	call := memory.ToolCall{ID: "t1", Type: "function", Function: memory.FunctionCall{Name: "calculator", Arguments: "{}"}}
	own := memory.Origin{Authority: memory.FromOwn}
	invoice := memory.Origin{Authority: memory.FromDocument, Source: "invoice.pdf p. 3"}
	copies := event.Copies{}
	fold(t, copies, run(
		main(&event.RunStarted{ChatID: chat, Message: "ask"}),
		of("analytic", "c1", &event.Delegation{Task: "remember", Calls: event.Serial}),
		of("analytic", "c1", &event.SubagentDelta{Text: "no"}),
		of("panel", "c2", &event.Delegation{Task: "alone", Calls: event.Isolated}),
		of("analytic", "c1", &event.AssistantWithTools{Content: "hm", ToolCalls: []memory.ToolCall{call}}),
		of("panel", "c2", &event.AssistantWithTools{ToolCalls: []memory.ToolCall{call}}),
		of("analytic", "c1", &event.ToolProgress{Tool: "calculator", Status: "running"}),
		of("panel", "c2", &event.ToolResult{ToolCallID: "t1", Content: "x"}),
		of("analytic", "c1", &event.ToolResult{ToolCallID: "t1", Name: "calculator", Content: "12", Origin: own}),
		of("panel", "c2", &event.Completion{Response: "alone"}),
		of("analytic", "", &event.Error{Code: "x"}),
		of("analytic", "c1", &event.Completion{Response: "done", Status: event.Completed, Origin: invoice}),
		main(&event.AssistantDelta{Text: "an"}),
		main(&event.Assistant{Content: "answer", Partial: true, Origin: invoice}),
		main(&event.RunFinished{Outcome: event.Stopped}),
	))
	require.Equal(t, event.Copies{
		memory.ChatKey(chat): {
			{Role: "user", Content: "ask", Origin: user, Timestamp: 1, ID: "r.1"},
			{Role: "assistant", Content: "answer", Origin: invoice, Timestamp: 14, Partial: true, ID: "r.14"},
		},
		memory.SubagentKey("analytic", chat): {
			{Role: "user", Content: "remember", Origin: agent, Timestamp: 2, ID: "r.2"},
			{Role: "assistant", Content: "hm", Origin: agent, Timestamp: 5, ToolCalls: []memory.ToolCall{call}, ID: "r.5"},
			{Role: "tool", Content: "12", Origin: own, Timestamp: 9, ToolCallID: "t1", Name: "calculator", ID: "r.9"},
			{Role: "assistant", Content: "done", Origin: invoice, Timestamp: 12, ID: "r.12"},
		},
	}, copies)
}

// A run that failed before any answer leaves its failure behind the question; one
// that tries once more adds its answer there, and neither the question nor another
// failure: tries over hours do not push out what was said before.
func TestFoldOfAFailureAndItsRetry(t *testing.T) {
	copies := event.Copies{}
	fold(t, copies, run(
		main(&event.RunStarted{ChatID: chat, Message: "ask"}),
		of("analytic", "c1", &event.Delegation{Task: "t"}),
		of("analytic", "c1", &event.Error{Code: "model_failed"}),
		of("analytic", "c1", &event.Completion{Response: "(no answer: model_failed)", Status: event.Failed,
			Failure: "model_failed"}),
		main(&event.Error{Code: "run_timeout"}),
		main(&event.RunFinished{Outcome: event.Failed}),
	))
	fold(t, copies, run(
		main(&event.RunStarted{ChatID: chat, Message: "ask", RetryOf: "r"}),
		main(&event.Error{Code: "model_failed"}),
		main(&event.RunFinished{Outcome: event.Failed}),
	))
	fold(t, copies, run(
		main(&event.RunStarted{ChatID: chat, Message: "ask", RetryOf: "r"}),
		main(&event.Assistant{Content: "half an ans", Partial: true, Failure: "model_failed"}),
		main(&event.Error{Code: "model_failed"}),
		main(&event.RunFinished{Outcome: event.Failed}),
	))
	require.Equal(t, event.Copies{
		memory.ChatKey(chat): {
			{Role: "user", Content: "ask", Origin: user, Timestamp: 1, ID: "r.1"},
			{Role: "assistant", Content: "(no answer: run_timeout)", Origin: agent, Timestamp: 5, Failure: "run_timeout",
				ID: "r.5"},
			{Role: "assistant", Content: "half an ans", Origin: agent, Timestamp: 2, Partial: true, Failure: "model_failed", ID: "r.2"},
		},
		memory.SubagentKey("analytic", chat): {
			{Role: "user", Content: "t", Origin: agent, Timestamp: 2, ID: "r.2"},
			{Role: "assistant", Content: "(no answer: model_failed)", Origin: agent, Timestamp: 4, Failure: "model_failed",
				ID: "r.4"},
		},
	}, copies)
}

// anyRun is a run of any events in any order: delegations that overlap, lack
// their beginning or their end, are isolated or not, and events of newer versions.
var anyRun = rapid.Custom(func(t *rapid.T) []event.Event {
	unknown, err := event.Decode([]byte(`{"role":"later","run_id":"r","seq":1}`))
	require.NoError(t, err)
	var events []event.Event
	for range rapid.IntRange(0, 25).Draw(t, "events") {
		p := payloads(t)
		if rapid.IntRange(0, 9).Draw(t, "newer") == 0 {
			p = unknown.Payload
		}
		e := main(p)
		if rapid.IntRange(0, 9).Draw(t, "of a subagent") > 1 {
			e = of(agents.Draw(t, "subagent"), rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(t, "call"), p)
		}
		events = append(events, e)
	}
	return run(events...)
})

// The two ends of a run hold the same histories: the one folds the events it
// made, the other those that came over the wire, into stored bytes; and however
// often a run is folded from the same start, the result is the same.
func TestBothEndsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		earlier, events := anyRun.Draw(t, "earlier run"), anyRun.Draw(t, "run")
		near, again, far := event.Copies{}, event.Copies{}, stored{}
		for _, sink := range []event.Sink{near, again, far} {
			fold(t, sink, earlier)
		}
		fold(t, near, events)
		fold(t, again, events)
		var received []event.Event
		for _, e := range events {
			if _, ok := e.Payload.(*event.Unknown); ok {
				continue // carries the head it came with
			}
			back, err := event.Decode(e.Line())
			require.NoError(t, err)
			received = append(received, back)
		}
		fold(t, far, received)
		require.Equal(t, near, again)
		require.Equal(t, near, far.copies(t))
	})
}

// Every history holds what its events say, in their order and with their time;
// isolated calls leave nothing.
func TestFoldKeepsTheOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := anyRun.Draw(t, "run")
		copies := event.Copies{}
		fold(t, copies, events)

		want := map[memory.Key][]string{}
		isolated := map[string]bool{}
		answered := false
		for _, e := range events {
			key, text := memory.SubagentKey(e.Subagent, chat), ""
			call := string(e.Subagent) + "/" + e.CallID
			switch p := e.Payload.(type) {
			case *event.RunStarted:
				if answered = p.RetryOf != ""; answered {
					continue
				}
				key, text = memory.ChatKey(chat), "user "+p.Message
			case *event.Assistant:
				answered = true
				key, text = memory.ChatKey(chat), "assistant "+p.Content
			case *event.Error:
				if answered || e.Subagent != "" {
					continue
				}
				answered = true
				key, text = memory.ChatKey(chat), "assistant (no answer: "+cmp.Or(p.Code, "run_failed")+")"
			case *event.RunFinished:
				if answered || p.Outcome != event.Stopped {
					continue
				}
				answered = true
				key, text = memory.ChatKey(chat), "assistant (no answer: stopped)"
			case *event.Delegation:
				isolated[call] = isolated[call] || p.Calls == event.Isolated
				text = "user " + p.Task
			case *event.AssistantWithTools:
				text = "assistant " + p.Content
			case *event.ToolResult:
				text = "tool " + p.Content
			case *event.Completion:
				text = "assistant " + p.Response
			default:
				continue
			}
			if ownEvent := slices.Contains([]string{"run_started", "assistant", "error", "run_finished"}, e.Role()); ownEvent ||
				e.Subagent != "" && !isolated[call] {
				want[key] = append(want[key], fmt.Sprint(e.TS, " ", text))
			}
		}
		got := map[memory.Key][]string{}
		for key, messages := range copies {
			for _, m := range messages {
				got[key] = append(got[key], fmt.Sprint(m.Timestamp, " ", m.Role, " ", m.Content))
			}
		}
		require.Equal(t, want, got)
	})
}

// failing is a Sink that refuses everything.
type failing struct{ err error }

func (f failing) Append(memory.Key, int64, memory.Message) error { return f.err }

func TestFoldTellsWhatCouldNotBeKept(t *testing.T) {
	h := event.NewHistories(chat, failing{memory.ErrUnavailable})
	require.NoError(t, h.Apply(main(&event.AssistantDelta{Text: "nothing to keep"})))
	events := run(main(&event.RunFinished{}), of("analytic", "c", &event.Delegation{Task: "t"}))
	err := h.Apply(events[1])
	require.True(t, errors.Is(err, memory.ErrUnavailable))
	require.EqualError(t, err, "subagent_delegation (event 2) into subagent:analytic:12345: "+
		memory.ErrUnavailable.Error())
}

// numbered remembers the sequence numbers that a sink is handed.
type numbered []int64

func (n *numbered) Append(_ memory.Key, seq int64, _ memory.Message) error {
	*n = append(*n, seq)
	return nil
}

func TestFoldHandsOnSequenceNumbers(t *testing.T) {
	var seen numbered
	fold(t, &seen, run(
		main(&event.RunStarted{}), main(&event.AssistantDelta{}), of("analytic", "c", &event.Delegation{}),
		main(&event.Assistant{}),
	))
	require.Equal(t, numbered{1, 3, 4}, seen)
}

// A chat's own events reach only its own history, whatever subagent they name.
func TestRunEventsBelongToTheChat(t *testing.T) {
	copies := event.Copies{}
	fold(t, copies, run(of("analytic", "c", &event.RunStarted{Message: "a"}),
		of("analytic", "c", &event.Assistant{Content: "b"}), main(&event.Completion{Response: "of nobody"})))
	require.Equal(t, []memory.Key{memory.ChatKey(chat)}, slices.Collect(maps.Keys(copies)))
	b, err := json.Marshal(copies[memory.ChatKey(chat)])
	require.NoError(t, err)
	require.JSONEq(t,
		`[{"role":"user","content":"a","from":"user","timestamp":1,"id":"r.1"},
		{"role":"assistant","content":"b","from":"agent","timestamp":2,"id":"r.2"}]`, string(b))
}

// What closes a lost run has ids of its own: the run's late entries may still come,
// under the numbers that the closing has.
func TestWhatClosesALostRunHasIDsOfItsOwn(t *testing.T) {
	copies := event.Copies{}
	fold(t, copies, run(
		main(&event.RunStarted{ChatID: chat, Message: "ask"}),
		of("analytic", "c1", &event.Delegation{Task: "t"}),
		of("analytic", "c1", &event.Completion{Response: "(no answer: run_lost)", Status: event.Failed,
			Failure: event.RunLost}),
		main(&event.Error{Code: event.RunLost}),
		main(&event.RunFinished{Outcome: event.Failed}),
	))
	ids := func(key memory.Key) (out []string) {
		for _, m := range copies[key] {
			out = append(out, m.ID)
		}
		return out
	}
	require.Equal(t, []string{"r.1", "r-end.4"}, ids(memory.ChatKey(chat)))
	require.Equal(t, []string{"r.2", "r-end.3"}, ids(memory.SubagentKey("analytic", chat)))
}
