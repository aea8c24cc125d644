package master_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/external"
	"mneme/subagent/loop"
)

// tool is a loop.Tool made of a function.
type tool struct {
	name string
	run  func(ctx context.Context, c memory.ToolCall) (string, error)
}

func (t tool) Spec() loop.Spec {
	return loop.Spec{Name: t.name, Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (t tool) Call(ctx context.Context, c memory.ToolCall) (string, error) { return t.run(ctx, c) }

// callTool is a call of a tool, its id the name of the tool with a number.
func callTool(name string, n int, arguments string) memory.ToolCall {
	return memory.ToolCall{ID: fmt.Sprintf("%s-%d", name, n), Type: "function",
		Function: memory.FunctionCall{Name: name, Arguments: arguments}}
}

// Tools outside are made once per run, for the master and for each subagent, and are told of the
// run: the caller, what was approved, the number of the last event, and how often a call like
// theirs was begun.
func TestToolsOutsideAreMadeForARun(t *testing.T) {
	var made []external.Run
	toolOf := func(agent memory.Agent) func(external.Run) []loop.Tool {
		return func(r external.Run) []loop.Tool {
			made = append(made, r)
			return []loop.Tool{tool{"look", func(ctx context.Context, c memory.ToolCall) (string, error) {
				if err := loop.Progress(ctx, "half way"); err != nil {
					return "", err
				}
				return fmt.Sprintf("%s %d told %d", agent, r.Count(agent, "x/look", json.RawMessage(c.Function.Arguments)),
					r.LastEvent()), nil
			}}}
		}
	}
	calls := model(func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		if got := results(r); len(got) > 0 {
			return strings.Join(got, ", "), nil, nil
		}
		return "", []memory.ToolCall{callTool("look", 1, `{"a":1,"b":2}`), callTool("look", 2, `{"b":2, "a":1}`),
			callTool("look", 3, `{"a":2}`)}, nil
	})
	s := sub("analytic", calls)
	s.External = toolOf("analytic")
	a := agent(model(func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		if got := results(r); len(got) > 0 {
			return strings.Join(got, " | "), nil, nil
		}
		return "", append(delegate("analytic", "x"), callTool("look", 1, `{"a":1}`)), nil
	}), s)
	a.External = toolOf("")
	req := ask(master.Version)
	req.User, req.Approved = "ann", []string{"x/look"}
	l := run(t, a, req)
	require.Len(t, made, 2)
	require.Equal(t, "ann", made[0].User)
	require.Equal(t, "RUN", made[0].ID)
	require.True(t, made[1].Approved("x/look"))
	require.False(t, made[1].Approved("x/other"))
	answer := last[*event.Assistant](l).Content
	for _, part := range []string{"analytic 1 told", "analytic 2 told", ", analytic 1 told", " |  1 told"} {
		require.Contains(t, answer, part)
	}
	var own []string
	for _, e := range l.events {
		if p, ok := e.Payload.(*event.MasterTool); ok {
			require.Empty(t, e.Subagent)
			own = append(own, p.Tool+" "+p.Status+" "+p.Detail)
		}
	}
	require.Equal(t, []string{`look running {"a":1}`, "look running half way", "look done "}, own,
		"the master's own tools are told, subagents tell themselves")
	require.NotContains(t, l.roles(), "tool")
}
