package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/subagent/recall"
)

func TestRecallOfEachAgent(t *testing.T) {
	c, err := load(t, `
recall: {auto: off, budget_tokens: 500}
agents:
  master: {recall: {auto: always}}
  subagents:
    - {name: analytic, recall: {tool: false, budget_tokens: 100}}
    - {name: knowledge, recall: {auto: question}}
`)
	require.NoError(t, err)
	require.Equal(t, recall.Settings{Tool: true, Auto: recall.Always, Budget: 500}, c.RecallOf(c.Agents.Master.Recall))
	require.Equal(t, recall.Settings{Auto: recall.Off, Budget: 100}, c.RecallOf(c.Agents.Subagents[0].Recall))
	require.Equal(t, recall.Settings{Tool: true, Auto: recall.Question, Budget: 500},
		c.RecallOf(c.Agents.Subagents[1].Recall))
	shown, err := c.YAML()
	require.NoError(t, err)
	again, err := load(t, string(shown))
	require.NoError(t, err, string(shown))
	require.Equal(t, c.RecallOf(c.Agents.Subagents[0].Recall), again.RecallOf(again.Agents.Subagents[0].Recall))
	require.Equal(t, c.Agents.Master, again.Agents.Master)
}

func TestWrongRecall(t *testing.T) {
	for text, want := range map[string]string{
		"recall: {auto: sometimes}\n":              `mneme.yaml:1: recall.auto: "sometimes" is none of: question, always, off`,
		"recall: {budget_tokens: 50}\n":            "mneme.yaml:1: recall.budget_tokens: must be from 100 to 8000, or 0 for the default, is 50",
		"recall: {tool: perhaps}\n":                `mneme.yaml:1: recall.tool: true or false is needed, not "perhaps"`,
		"agents: {master: {recall: {tool: x}}}\n":  `mneme.yaml:1: agents.master.recall.tool: true or false is needed, not "x"`,
		"agents: {master: {recall: {auto: on}}}\n": `mneme.yaml:1: agents.master.recall.auto: "on" is none of: question, always, off`,
		"agents:\n  subagents:\n    - {name: analytic, recall: {budget_tokens: 9000}}\n": "mneme.yaml:3: " +
			"agents.subagents[0].recall.budget_tokens: must be from 100 to 8000, or 0 for the default, is 9000",
		"agents:\n  subagents:\n    - {name: recall, description: d}\n": `mneme.yaml:3: agents.subagents[0].name: ` +
			`"recall" is a tool of all agents, by which they reach their memory; choose another`,
		"agents:\n  subagents:\n    - {name: remember, description: d}\n": `mneme.yaml:3: agents.subagents[0].name: ` +
			`"remember" is a tool of all agents, by which they reach their memory; choose another`,
	} {
		_, err := load(t, text)
		require.EqualError(t, err, want)
	}
}
