package main

import (
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
)

// config show --profiles says which rules hold for a backend's models and where each value is from, in the words of a
// backend's profile.
func TestProfilesAreShown(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(`
proxy:
  active: claude
  backends:
    claude:
      kind: anthropic
      base_url: "https://api.anthropic.com"
      model_map: {haiku: claude-haiku-4-5, "*": claude-opus-4-8}
      profile: {cache_markers: 2, json_schema: false, thinking: {default: "off"}}
    kimi: {kind: openai, base_url: "https://api.moonshot.ai/v1"}
    r: {kind: responses, base_url: "https://api.openai.com/v1", model_map: {a: gpt-5.5}}
    mixed: {kind: openai, base_url: "http://127.0.0.1:9/v1", model_map: {a: glm-5, b: "mine:8b"}}
agents: {master: {model: claude-new}}
`), 0o600))
	r := mneme(t, "", "config", "show", "--profiles")
	require.Zero(t, r.code, r.stderr)
	const model = "# rules of anthropic, by the host api.anthropic.com; row of the table: opus 4.8\n"
	for _, want := range []string{
		`  "claude-opus-4-8": ` + model,
		"      modes: [adaptive, disabled] # https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting\n",
		`      default: "off" # configuration` + "\n", "    cache_markers: 2 # configuration\n",
		"    marks_cache: true # belief\n",
		`  "*": # rules of kimi, by the host api.moonshot.ai; row of the table: none` + "\n",
		"      need: required # https://github.com/earendil-works/pi/issues/4178 ",
		"      signed: true # by the kind responses\n",
		`  "glm-5": # rules of glm, by the name of the model; row of the table: glm-5` + "\n",
		`  "mine:8b": # rules of generic, by the kind openai, since neither the host nor the names of its models tell; row `,
	} {
		require.Contains(t, r.stdout, want)
	}

	var read map[string]map[string]sanitize.Overrides
	require.NoError(t, yaml.UnmarshalWithOptions([]byte(r.stdout), &read, yaml.Strict()), r.stdout)
	require.Len(t, read["claude"], 2, "the agents' model is one of those of the model_map there")
	want := sanitize.For("anthropic", "claude-haiku-4-5")
	want.Vendor, want.Model, want.CacheMarkers, want.Schemas = "", "", 2, false
	require.Equal(t, want, read["claude"]["claude-haiku-4-5"].Apply(sanitize.Profile{}))
	require.NotContains(t, strings.Split(r.stdout, `"kimi":`)[0], "json_schema")
}
