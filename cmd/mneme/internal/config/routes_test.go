package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const routedFile = `
proxy:
  backends:
    claude: {kind: anthropic, base_url: "https://api.anthropic.com", model_map: {"*": claude-opus-4-8}}
    gpt: {kind: openai, base_url: "https://api.openai.com/v1"}
    near: {kind: offline}
  routes:
    main: {use: [claude, gpt], keys: {claude: [KEY_A, KEY_B]}}
`

func TestRoutes(t *testing.T) {
	c, err := load(t, routedFile, "KEY_A=one", "KEY_B=hush-hush")
	require.NoError(t, err)
	require.Equal(t, "main", c.Proxy.Active, "a single route is active")
	require.Equal(t, "main", c.Proxy.TeammateBackend)
	require.Equal(t, []string{"claude", "gpt"}, c.Proxy.Routes["main"].Use)
	require.Equal(t, "hush-hush", c.Proxy.Routes["main"].Keys["claude"][1].Reveal())
	require.NoError(t, c.RequireKeys())
	require.Contains(t, c.ModelsOf("gpt"), "master")
	shown, err := c.YAML()
	require.NoError(t, err)
	require.NotContains(t, string(shown), "hush-hush")

	c, err = load(t, routedFile, "KEY_A=one", "MNEME_PROXY_ROUTES_MAIN_USE=gpt,claude",
		"MNEME_PROXY_ROUTES_MAIN_KEYS={claude: [KEY_A]}", "MNEME_PROXY_ACTIVE=gpt", "MNEME_PROXY_TEAMMATE_BACKEND=main")
	require.NoError(t, err)
	require.Equal(t, []string{"gpt", "claude"}, c.Proxy.Routes["main"].Use)
	require.Equal(t, RouteKeys{"claude": {{"KEY_A", "one"}}}, c.Proxy.Routes["main"].Keys)

	c, err = load(t, routedFile, "KEY_A=one")
	require.NoError(t, err)
	require.ErrorContains(t, c.RequireKeys(), "the environment variable KEY_B is not set")
}

func TestFaultsOfRoutes(t *testing.T) {
	for fault, said := range map[string]string{
		"MNEME_PROXY_ROUTES_MAIN_USE=claude,gemini":                             `there is no backend "gemini"`,
		"MNEME_PROXY_ROUTES_MAIN_USE=claude,claude":                             `backend "claude" is named twice`,
		"MNEME_PROXY_ROUTES_MAIN_USE=gpt":                                       `the route does not use backend "claude"`,
		"MNEME_PROXY_ROUTES_GPT_USE=claude":                                     `a backend has this name`,
		"MNEME_PROXY_ROUTES_MAIN_KEYS={near: [KEY_A]}":                          `the route does not use backend "near"`,
		"MNEME_PROXY_ROUTES_MAIN_KEYS={claude: []}":                             `name the variables that hold the keys`,
		"MNEME_PROXY_ROUTES_MAIN_KEYS=claude":                                   "{BACKEND: [VARIABLE, VARIABLE]} is needed",
		"MNEME_PROXY_ACTIVE=other":                                              `there is no backend "other"`,
		"MNEME_PROXY_ROUTES_MAIN_KEYS={claude: [sk-proj-0123456789abcdef0123]}": "this looks like a secret itself",
	} {
		environ := []string{"KEY_A=one", "KEY_B=two", fault}
		if !strings.HasPrefix(fault, "MNEME_PROXY_ACTIVE") {
			environ = append(environ, "MNEME_PROXY_ACTIVE=main")
		}
		_, err := load(t, routedFile, environ...)
		require.ErrorContains(t, err, said, fault)
		require.NotContains(t, err.Error(), "0123456789")
	}
}
