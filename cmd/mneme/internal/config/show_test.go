package config

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// What config show prints is the configuration: it loads again as it was, with or
// without the variables, and holds no secret.
func TestShownConfigurationsLoadAgain(t *testing.T) {
	const file = `
redis: {username: u}
proxy:
  active: gpt-4.1
  backends:
    gpt-4.1: {kind: openai, base_url: "http://x/v1", api_key_env: SOME_KEY, model_map: {"*": gpt-4.1}, profile: {cache_markers: 2, thinking: {modes: []}}}
    b:
      kind: anthropic
      base_url: http://x
      thinking: {budget_tokens: 2000}
agents:
  master: {system: "say: #1\n  or\nnot"}
  subagents:
    - {name: analytic, tools: [], collections: []}
    - {name: poet, description: "x: #y", system: "a\nb"}
panel: {members: [{name: p0}, {name: p2}]}
`
	environ := []string{"MNEME_REDIS_URL=redis://:hush1@h:1", "SOME_KEY=hush2", "MNEME_WEBMEMORY_MAX_HISTORY=7",
		`MNEME_PANEL_MEMBERS=[{name: p1}, {name: p2, model: big}]`}
	first, err := load(t, file, environ...)
	require.NoError(t, err)
	shown, err := first.YAML()
	require.NoError(t, err)
	require.NotContains(t, string(shown), "hush")
	require.Contains(t, string(shown), "max_history: 7 # MNEME_WEBMEMORY_MAX_HISTORY\n")
	require.Contains(t, string(shown), "active: gpt-4.1 # mneme.yaml:4\n")
	require.Contains(t, string(shown), "model: big # MNEME_PANEL_MEMBERS\n")
	require.NotContains(t, string(shown), "p0")
	require.Contains(t, string(shown), "context_window: 7\n", "a default says no place")

	for _, again := range [][]string{environ, {"SOME_KEY=hush2"}} {
		second, err := load(t, string(shown), again...)
		require.NoError(t, err, string(shown))
		text, err := second.YAML()
		require.NoError(t, err)
		require.Equal(t, withoutComments(string(shown)), withoutComments(string(text)))
		require.Equal(t, first.Proxy.Backends["gpt-4.1"].Profile, second.Proxy.Backends["gpt-4.1"].Profile)
		require.Equal(t, first.Agents.Master, second.Agents.Master)
	}
}

var comment = regexp.MustCompile(`(?m) # (mneme\.yaml:\d+|MNEME_\w+)$`)

func withoutComments(s string) string { return comment.ReplaceAllString(s, "") }

// The values in a variable's YAML have the variable beside them, and no lines of the file that they replace.
func TestShownListsOfVariables(t *testing.T) {
	c, err := load(t, collectionsFile+"proxy:\n  backends: {a: {kind: offline}, b: {kind: offline}}\n  active: a\n"+
		"  teammates: {knowledge: a}\n  routes: {main: {use: [a, b]}}\n",
		"MNEME_AGENTS_SUBAGENTS=[{name: knowledge, collections: [wiki]}]", "MNEME_PROXY_ROUTES={main: {use: [b]}}",
		"MNEME_PROXY_TEAMMATES={knowledge: b}")
	require.NoError(t, err)
	shown, err := c.YAML()
	require.NoError(t, err)
	require.Contains(t, string(shown), "    - wiki\n")
	require.Contains(t, string(shown), "    knowledge: b # MNEME_PROXY_TEAMMATES\n")
	require.Contains(t, string(shown), "      - b # MNEME_PROXY_ROUTES\n")
	require.NotContains(t, string(shown), "use: # mneme.yaml")
}
