package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/subagent/note"
)

func TestNotesOfEachAgent(t *testing.T) {
	c, err := load(t, `
notes: {budget_tokens: 600}
agents:
  master: {notes: {tool: false}}
  subagents:
    - {name: analytic, notes: {budget_tokens: 300}}
    - {name: knowledge, notes: {tool: false}}
`)
	require.NoError(t, err)
	require.Equal(t, note.Settings{Budget: 600}, c.NotesOf(c.Agents.Master.Notes))
	require.Equal(t, note.Settings{Budget: 300, Tool: true}, c.NotesOf(c.Agents.Subagents[0].Notes))
	require.Equal(t, note.Settings{Budget: 600}, c.NotesOf(c.Agents.Subagents[1].Notes))
	shown, err := c.YAML()
	require.NoError(t, err)
	again, err := load(t, string(shown))
	require.NoError(t, err, string(shown))
	require.Equal(t, c.Agents.Master, again.Agents.Master)
	for text, want := range map[string]string{
		"notes: {budget_tokens: 50}\n":             "mneme.yaml:1: notes.budget_tokens: must be from 200 to 8000, is 50",
		"notes: {tool: perhaps}\n":                 `mneme.yaml:1: notes.tool: true or false is needed, not "perhaps"`,
		"agents: {master: {notes: {tool: x}}}\n":   `mneme.yaml:1: agents.master.notes.tool: true or false is needed, not "x"`,
		"agents: {master: {notes: {budget: 1}}}\n": `mneme.yaml:1: agents.master.notes.budget: unknown key; did you mean budget_tokens?`,
	} {
		_, err := load(t, text)
		require.EqualError(t, err, want)
	}
}
