package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllowedHostsAndOriginsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"http: {allowed_origins: ['*']}": "mneme.yaml:1: http.allowed_origins[0]: * would " +
			"let any web page read and erase every chat; name each origin in full",
		"http: {allowed_origins: ['https://*.example.org']}": "name each origin in full",
		"http: {allowed_origins: ['null']}":                  "null is every page that has no origin",
		"http: {allowed_origins: ['https://a.example/chat']}": "an origin ends with its host or port; write " +
			"https://a.example",
		"http: {allowed_origins: ['https://a.example/']}": "write https://a.example",
		"http:\n  allowed_origins:\n    - https://a.example\n    - b:80": "mneme.yaml:4: http.allowed_origins[1]: an " +
			"origin is scheme://host[:port]",
		"http: {allowed_origins: ['localhost:3000']}":          "an origin is scheme://host[:port]",
		"http: {allowed_origins: ['file://']}":                 "an origin is scheme://host[:port]",
		"http: {allowed_origins: ['https://me:pw@a.example']}": "write https://a.example",
		"http: {allowed_origins: ['']}":                        "an origin is scheme://host[:port]",
		"http: {allowed_origins: https://a.example}":           "a list is needed",
		"http: {allowed_hosts: ['*']}": "mneme.yaml:1: http.allowed_hosts[0]: a host is " +
			"named in full, without *",
		"http: {allowed_hosts: ['*.example.org']}":    "a host is named in full, without *",
		"http: {allowed_hosts: ['a.example:8080']}":   "a name alone, without scheme, port and path",
		"http: {allowed_hosts: ['http://a.example']}": "a name alone, without scheme, port and path",
		"http: {allowed_hosts: ['a..example']}":       "is no host's name",
		"http: {allowed_hosts: ['bücher.example']}":   "xn--",
		"http: {allowed_hosts: ['']}":                 "is no host's name",
		"http: {allowed_host: ['a.example']}": "mneme.yaml:1: http.allowed_host: unknown key; " +
			"did you mean allowed_hosts?",
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := load(t, "", "MNEME_HTTP_ALLOWED_ORIGINS=[https://a.example, b]")
	require.ErrorContains(t, err,
		"MNEME_HTTP_ALLOWED_ORIGINS: http.allowed_origins[1]: an origin is scheme://host[:port]")
}

func TestAllowedHostsAndOrigins(t *testing.T) {
	c,
		err := load(t,
		"http:\n  allowed_hosts: [chat.example.org, Webmemory.prod.svc.cluster.local., a_b.c, 'fe80::1', '[::1]', "+
			"10.0.0.7]\n"+
			"  allowed_origins: ['https://chat.example.org', 'http://[::1]:3000', app://obsidian.md, "+
			"'chrome-extension://abcdef', 'HTTPS://A.example:443']\n")
	require.NoError(t, err)
	require.Len(t, c.HTTP.AllowedHosts, 6)
	require.Len(t, c.HTTP.AllowedOrigins, 5)
	c, err = load(t, "http: {allowed_origins: [https://a.example]}",
		"MNEME_HTTP_ALLOWED_ORIGINS=[https://b.example, http://localhost:5173]", "MNEME_HTTP_ALLOWED_HOSTS=[b.example]")
	require.NoError(t, err)
	require.Equal(t, []string{"b.example"}, c.HTTP.AllowedHosts)
	require.Equal(t, []string{"https://b.example", "http://localhost:5173"}, c.HTTP.AllowedOrigins)
}
