package master_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
	"mneme/subagent/recall"
)

// shelf is a memory in which every agent was told the same, and the agents that asked it.
type shelf struct {
	mu    sync.Mutex
	asked []string
}

func (s *shelf) Recall(_ context.Context, q recall.Query) (recall.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "by tool"
	if q.Automatic {
		kind = "for a prompt"
	}
	s.asked = append(s.asked, strings.TrimSpace(string(q.Subagent)+" "+kind))
	return recall.Result{Hits: []recall.Hit{{ID: "old.1", TS: 1, Role: "user", Text: "The code is 4455.", Score: 1}}}, nil
}

// Each agent is given its own for what it was asked: the master for the message, a subagent
// for its task. One that is isolated, or does no model's work, is given nothing, and no tool.
func TestEachAgentRecallsForWhatItWasAsked(t *testing.T) {
	shown := map[string]string{} // by agent, what was recalled
	agentOf := func(name string, answer model) model {
		return func(ctx context.Context, r loop.Request) (string, []memory.ToolCall, error) {
			shown[name] = r.Recalled
			for _, tool := range r.Tools {
				if tool.Name == recall.ToolName {
					shown[name] += " with the tool"
				}
			}
			return answer(ctx, r)
		}
	}
	settings := recall.Settings{Tool: true, Auto: recall.Question, Budget: 200}
	asked, told, alone := sub("asked", agentOf("asked", recalls)), sub("told", agentOf("told", recalls)),
		sub("alone", agentOf("alone", recalls))
	alone.Calls = event.Isolated
	other := sub("other", nil)
	other.Work = func(context.Context, subagent.Task, func(event.Payload) error) (loop.Result, error) {
		return loop.Result{Text: "worked"}, nil
	}
	for _, s := range []*subagent.Subagent{asked, told, alone, other} {
		s.Recall = settings
	}
	a := agent(agentOf("master", func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		calls := results(r)
		next := []string{"asked", "told", "alone", "other"}
		if len(calls) == len(next) {
			return "done", nil, nil
		}
		task := "What is the code?"
		if next[len(calls)] == "told" {
			task = "I like tea."
		}
		return "", delegate(next[len(calls)], task), nil
	}), asked, told, alone, other)
	a.MaxSteps, a.Recall = 9, settings
	r, m := ask("master"), &shelf{}
	r.Message, r.Memory = "What is the code?", m
	l := run(t, a, r)
	require.Equal(t, "done", last[*event.Assistant](l).Content)
	require.Equal(t, []string{"for a prompt", "asked for a prompt"}, m.asked)
	for _, name := range []string{"master", "asked"} {
		require.Contains(t, shown[name], "user: The code is 4455.\n</recalled")
		require.Contains(t, shown[name], " with the tool")
	}
	require.Equal(t, " with the tool", shown["told"])
	require.Empty(t, shown["alone"])

	r.Memory = nil
	run(t, a, r)
	require.Empty(t, shown["master"]+shown["asked"]+shown["told"], "no memory, no tool")
}

// The tool of the master is no subagent: its calls make no delegation. What a subagent looks
// up it reads whole, and its history keeps which messages it was.
func TestWhatIsLookedUp(t *testing.T) {
	var read []string
	lookUp := func(ctx context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		got := results(r)
		if len(got) == 0 {
			return "", []memory.ToolCall{{ID: "1", Type: "function", Function: memory.FunctionCall{
				Name: recall.ToolName, Arguments: `{"query":"code"}`,
			}}}, nil
		}
		read = append(read, got[0])
		return "found", nil, nil
	}
	settings := recall.Settings{Tool: true, Auto: recall.Off, Budget: 200}
	s, m := sub("analytic", model(lookUp)), &shelf{}
	s.Recall = settings
	for _, version := range []string{"master", "analytic"} {
		a := agent(model(lookUp), s)
		a.Recall = settings
		r := ask(version)
		r.Memory = m
		l := run(t, a, r)
		require.Contains(t, read[len(read)-1], "The code is 4455.")
		require.Equal(t, []event.RecalledMessage{{ID: "old.1", TS: 1, Score: 1}}, last[*event.Recalled](l).Messages)
		for _, e := range l.events {
			require.NotContains(t, string(e.Line()), "4455", "events name messages, and have none of their words")
		}
		if version == master.Version {
			require.Equal(t, []string{"run_started", "recalled", "assistant", "run_finished"}, l.roles())
			continue
		}
		require.Contains(t, last[*event.ToolResult](l).Content, "old.1")
		require.Equal(t, []string{
			"run_started", "subagent_delegation analytic", "subagent_assistant_with_tools analytic", "recalled analytic",
			"subagent_tool_result analytic", "subagent_completion analytic", "assistant", "run_finished",
		}, l.roles())
	}
	require.Equal(t, []string{"by tool", "analytic by tool"}, m.asked)
}
