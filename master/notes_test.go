package master_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
	"mneme/subagent/note"
)

// The notes of a chat stand behind the system prompts of its agents, each of which makes its
// own; an isolated subagent is shown its task alone, and without notes no request differs
// from one of an agent that has none.
func TestNotesOfARun(t *testing.T) {
	var mu sync.Mutex // the subagents answer side by side
	var asked []loop.Request
	seen := func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r)
		if len(asked) > 1 {
			return "done", nil, nil
		}
		return "", append(delegate("analytic", "a"), delegate("alone", "b")...), nil
	}
	settings := note.Settings{Budget: 500, Tool: true}
	ran := func(settings note.Settings, notes note.Notes) map[string]loop.Request {
		asked = nil
		analytic, alone := sub("analytic", model(seen)), sub("alone", model(seen))
		alone.Calls = event.Isolated
		analytic.System, alone.System, analytic.Notes, alone.Notes = "Analytic.", "Alone.", settings, settings
		a := agent(model(seen), analytic, alone)
		a.System, a.Notes, a.Now = "Master.", settings, func() time.Time { return time.Unix(7, 0) }
		r := ask("master")
		r.Notes = notes
		run(t, a, r)
		by := map[string]loop.Request{}
		for _, r := range asked {
			for _, name := range []string{"Master.", "Analytic.", "Alone."} {
				if len(r.System) >= len(name) && r.System[:len(name)] == name {
					by[name] = r
				}
			}
		}
		return by
	}
	tools := func(r loop.Request) (names []string) {
		for _, s := range r.Tools {
			names = append(names, s.Name)
		}
		return names
	}
	without := ran(note.Settings{}, note.Notes{})
	require.Len(t, without, 3)
	require.Equal(t, without, ran(settings, note.Notes{}), "nobody keeps notes, and there are none")

	own := memory.Note{ID: "n2", Text: "Count in euros.", State: memory.NoteActive}
	with := ran(settings, note.Notes{
		Chat:      []memory.Note{{ID: "n1", Text: "Answer in English.", State: memory.NoteActive, TS: 1e5}},
		Subagents: map[memory.Agent][]memory.Note{"analytic": {own}, "alone": {own}},
		Remember: func(context.Context, memory.RememberRequest) (memory.Note, error) {
			return memory.Note{}, nil
		},
		Forget: func(context.Context, memory.ForgetRequest) (memory.Forgotten, error) { return memory.Forgotten{}, nil },
	})
	require.Contains(t, with["Master."].System, "<notes>\nn1 1970-01-02 \"Answer in English.\"\n</notes>")
	require.Contains(t, with["Analytic."].System,
		"<notes>\nn1 1970-01-02 \"Answer in English.\"\nn2 1970-01-01 \"Count in euros.\"\n</notes>")
	require.Equal(t, "Alone.", with["Alone."].System)
	require.Equal(t, []string{"analytic", "alone", "remember", "forget"}, tools(with["Master."]))
	require.Equal(t, []string{"remember", "forget"}, tools(with["Analytic."]))
	require.Empty(t, tools(with["Alone."]))
}
