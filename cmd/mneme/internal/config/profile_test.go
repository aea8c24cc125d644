package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfile(t *testing.T) {
	const file = `proxy: {backends: {kimi: {kind: anthropic, base_url: "https://example.com", vendor: kimi, profile: %s}}}`
	of := func(profile string) string { return strings.Replace(file, "%s", profile, 1) }
	c, err := load(t, of(`{cache_markers: 2, tool_ids: {max: 12}, reasoning: {signed: true}}`))
	require.NoError(t, err)
	p := c.Proxy.Backends["kimi"].Profile
	require.Equal(t, 2, *p.CacheMarkers)
	require.Equal(t, 12, p.ToolIDs.Max)
	require.True(t, *p.Replay.Signed)

	for profile, why := range map[string]string{
		`{cache_marker: 2}`:   "unknown key",
		`{cache_markers: -2}`: "must not be negative",
		`{sampling: often}`:   "free, fixed, thinking",
		`often`:               "a block of keys is needed",
	} {
		_, err := load(t, of(profile))
		require.ErrorContains(t, err, why, profile)
	}
	_,
		err = load(t,
		"proxy:\n  backends:\n    k:\n      kind: openai\n      base_url: http://x/v1\n      profile:\n        "+
			"cache_marker: 2\n")
	require.ErrorContains(t, err, "mneme.yaml:7: proxy.backends.k.profile.cache_marker: unknown key")
	_, err = load(t, "", "MNEME_PROXY_BACKENDS={k: {kind: offline, profile: {cache_marker: 3}}}")
	require.ErrorContains(t, err, "MNEME_PROXY_BACKENDS: proxy.backends.k.profile.cache_marker: unknown key")
}
