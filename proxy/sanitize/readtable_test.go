package sanitize

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The table is read as strictly as a configuration, and says what is wrong and where.
func TestTableIsReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"- source: default\n  vendor: [kimi]":                                   `unknown field "vendor"`,
		"- source: default\n  profile: {thinking: {mode: [on]}}":                `unknown field "mode"`,
		"- source: default\n  profile: {json_schema: 7}":                        "cannot unmarshal",
		"- source: default\n  models: [{name: a, pattern: '('}]":                "missing closing",
		"- source: default\n  models: [{generations: [opus]}]":                  `not "opus"`,
		"- source: default\n  models: [{generations: ['gpt -']}]":               `not "gpt -"`,
		"- source: default\n- profile: {json_schema: true}":                     "entry 2: it needs a source",
		"- source: default\n  vendors: [openia]":                                "entry 1: vendors must be one of anthropic,",
		"- source: default\n  profile: {sampling: hot}":                         "entry 1: sampling must be one of",
		"- source: default\n  models: [{names: [a], profile: {sampling: hot}}]": "entry 1: sampling must be one of",
		"- source: default\n  models: [{pattern: a}]":                           "row 1 of its models needs names, generations, or",
	} {
		_, err := readTable([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

// A model that a person adds to the file has what its row says, over what its vendor's entries say in their order.
func TestTableIsApplied(t *testing.T) {
	table, err := readTable([]byte(`
- {source: default, profile: {sampling: free, cache_markers: 4}}
- vendors: [kimi, glm]
  source: https://example.org/a
  profile: {sampling: fixed}
  models:
    - {names: [new-1, newest], profile: {cache_markers: 1}}
    - generations: [gpt 7-7.2, glm 9-, opus -3, mythos preview]
      source: https://example.org/b
      profile: {cache_markers: 2}
    - {name: others, pattern: "^new", profile: {cache_markers: 3}}
`))
	require.NoError(t, err)
	require.Empty(t, table["openai"].rows)
	require.Equal(t, SamplingFree, table["openai"].base.Sampling)
	of := table["glm"]
	require.Equal(t, SamplingFixed, of.base.Sampling)
	require.Equal(t, 4, of.base.CacheMarkers)
	require.Equal(t, "https://example.org/a", of.rows[0].Source)
	for model, want := range map[string]string{
		"x-newest-2": "new-1", "new-2": "others", "renew": "", "gpt-7.2": "gpt-7.2", "gpt-7.3": "", "glm-9": "glm-9",
		"glm-8.9": "", "claude-3-opus": "opus 3", "claude-opus-3-5": "", "claude-mythos-preview": "mythos preview",
		"claude-opus-preview": "",
	} {
		m, found := nameOf(model), ""
		for i := range of.rows {
			if name, ok := of.rows[i].fits(&m); ok {
				found = name
				break
			}
		}
		require.Equal(t, want, found, model)
	}
}
