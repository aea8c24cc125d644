package config

import (
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

	c, err = load(t, routedFile, "KEY_A=one", "MNEME_PROXY_ROUTES={main: {use: [gpt, claude], keys: {claude: [KEY_A]}}}",
		"MNEME_PROXY_ACTIVE=gpt", "MNEME_PROXY_TEAMMATE_BACKEND=main")
	require.NoError(t, err)
	require.Equal(t, []string{"gpt", "claude"}, c.Proxy.Routes["main"].Use)
	require.Equal(t, map[string][]Variable{"claude": {{"KEY_A", "one"}}}, c.Proxy.Routes["main"].Keys)

	c, err = load(t, routedFile, "KEY_A=one")
	require.NoError(t, err)
	require.ErrorContains(t, c.RequireKeys(), "the environment variable KEY_B is not set")
}

func TestFaultsOfRoutes(t *testing.T) {
	for fault, said := range map[string]string{
		"{main: {use: [claude, gemini]}}":                          `main.use: there is no backend "gemini"`,
		"{main: {use: [claude, claude]}}":                          `main.use: backend "claude" is named twice`,
		"{main: {use: [gpt], keys: {claude: [KEY_A]}}}":            `the route does not use backend "claude"`,
		"{main: {use: [gpt]}, gpt: {use: [claude]}}":               `routes.gpt: a backend has this name`,
		"{main: {use: [claude], keys: {near: [KEY_A]}}}":           `the route does not use backend "near"`,
		"{main: {use: [claude], keys: {claude: []}}}":              `name the variables that hold the keys`,
		"{main: {use: [claude], keys: claude}}":                    "main.keys: a block of keys is needed here, not a single value",
		"{main: {use: [claude], keys: {claude: [sk-0123456789]}}}": "this looks like a secret itself",
		"{other: {use: [claude]}}":                                 `MNEME_PROXY_ACTIVE: there is no backend "main"`,
	} {
		_, err := load(t, routedFile, "KEY_A=one", "KEY_B=two", "MNEME_PROXY_ACTIVE=main", "MNEME_PROXY_ROUTES="+fault)
		require.ErrorContains(t, err, said, fault)
		require.NotContains(t, err.Error(), "0123456789")
	}
}
