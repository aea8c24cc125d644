package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAShortHistoryIsOneSetting(t *testing.T) {
	c, err := load(t, "webmemory: {max_history: 7}\n")
	require.NoError(t, err)
	require.Equal(t, 7, c.Webmemory.ContextWindow)
	require.Equal(t, 7, c.Webmemory.SubagentContextWindow)
	c, err = load(t, "webmemory: {max_history: 0, context_window: 500}\n")
	require.NoError(t, err, "all messages are kept")
	require.Equal(t, 500, c.Webmemory.ContextWindow)
	require.Equal(t, 50, c.Webmemory.SubagentContextWindow)
}

func TestTheMastersPrompt(t *testing.T) {
	for text, want := range map[string]string{
		"": masterSystem, "agents: {master: {system: You are Ada.}}\n": masterSystem + "\n\nYou are Ada.",
		"agents: {master: {system_replace: You are Ada.}}\n": "You are Ada.",
	} {
		c, err := load(t, text)
		require.NoError(t, err)
		require.Equal(t, want, c.Agents.Master.Prompt())
	}
}
