package master_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// Instructions stand behind the prompt of the agent that answers the user, and of no other.
func TestInstructionsAreForWhoAnswers(t *testing.T) {
	var mu sync.Mutex
	var prompts []string
	seen := func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		mu.Lock()
		defer mu.Unlock()
		prompts = append(prompts, r.System)
		if r.System == "Master.\n\nAnswer in rhymes." && results(r) == nil {
			return "", append(delegate("analytic", "a"), delegate("alone", "b")...), nil
		}
		return "done", nil, nil
	}
	for _, c := range []struct {
		version, message string
		want             []string
	}{
		{"master", "question", []string{"Master.\n\nAnswer in rhymes.", "Analytic.", "Alone.",
			"Master.\n\nAnswer in rhymes."}},
		{"analytic", "question", []string{"Analytic.\n\nAnswer in rhymes."}},
		{"alone", "question", []string{"Alone.\n\nAnswer in rhymes."}},
		{"master", "/analytic question", []string{"Analytic.\n\nAnswer in rhymes."}},
	} {
		prompts = nil
		analytic, alone := sub("analytic", model(seen)), sub("alone", model(seen))
		analytic.System, alone.System, alone.Calls = "Analytic.", "Alone.", event.Isolated
		a := agent(model(seen), analytic, alone)
		a.System, a.Commands = "Master.", []memory.Agent{"analytic"}
		r := ask(c.version)
		r.Message, r.Instructions, r.Metadata = c.message, "Answer in rhymes.", map[string]string{"from": "web"}
		l := run(t, a, r)
		require.ElementsMatch(t, c.want, prompts)
		require.Equal(t, r.Metadata, l.events[0].Payload.(*event.RunStarted).Metadata)
		for _, e := range l.events {
			require.NotContains(t, string(e.Line()), "rhymes", "it is told to nobody else")
		}
	}
}

// A bare run is the master's model alone.
func TestABareRun(t *testing.T) {
	var asked []loop.Request
	m := model(func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		asked = append(asked, r)
		return "done", nil, nil
	})
	a := agent(m, sub("analytic", m))
	a.System, a.Commands = "Master.", []memory.Agent{"analytic"}
	r := ask("master")
	r.Message, r.Bare, r.Context = "/analytic question", true, []memory.Message{{Role: memory.RoleUser, Content: "before"},
		{Role: memory.RoleAssistant, Content: "ok"}}
	l := run(t, a, r)
	require.Equal(t, []string{"run_started", "assistant", "run_finished"}, l.roles())
	require.Len(t, asked, 1)
	require.Empty(t, asked[0].System)
	require.Empty(t, asked[0].Tools)
	require.Len(t, asked[0].Messages, 3)
	require.Equal(t, r.Message, asked[0].Messages[2].Content)
	r.Instructions = "Write a title."
	run(t, a, r)
	require.Equal(t, "Write a title.", asked[1].System)
}
