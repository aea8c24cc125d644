package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/access/tally"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// proxyLine runs a command line of the commands below mneme proxy. Of an error it gives
// the sentence.
func proxyLine(t *testing.T, args ...string) result {
	t.Helper()
	r := mneme(t, "", append([]string{"proxy"}, args...)...)
	r.stderr = strings.TrimSuffix(strings.TrimPrefix(r.stderr, "mneme: "), "\n")
	return r
}

// admin is a gateway's admin group over two backends.
type admin struct {
	*httptest.Server
	active string
	report usage.Report
	query  string
}

func newAdmin(t *testing.T) *admin {
	a := &admin{active: "kimi"}
	backends := []string{"glm", "kimi"}
	refuse := func(w http.ResponseWriter, status int, message string) {
		w.WriteHeader(status)
		_, _ = w.Write(wire.Failure{Status: status, Message: message}.Body(wire.Chat))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/backend", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(backendState{Active: a.active, Backends: backends, Routes: []string{"main"},
			Choices: map[string][]string{"main": {"kimi:KEY_A", "glm"}},
			Learned: map[string][]string{"glm": {"{member: top_k}"}}})
	})
	mux.HandleFunc("PUT /admin/backend", func(w http.ResponseWriter, r *http.Request) {
		var asked backendState
		_ = json.NewDecoder(r.Body).Decode(&asked)
		if asked.Active == "glm" && a.active == "stuck" {
			refuse(w, 503, "the switch could not be stored: Redis does not answer")
			return
		}
		a.active = asked.Active
		_ = json.NewEncoder(w).Encode(backendState{Active: a.active, Backends: backends, Routes: []string{"main"},
			Choices: map[string][]string{"main": {"kimi:KEY_A", "glm"}},
			Learned: map[string][]string{"glm": {"{member: top_k}"}}})
	})
	mux.HandleFunc("GET /admin/usage", func(w http.ResponseWriter, r *http.Request) {
		a.query = r.URL.RawQuery
		_ = json.NewEncoder(w).Encode(a.report)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func TestProxyUse(t *testing.T) {
	a := newAdmin(t)
	at := "--proxy=" + a.URL
	require.Equal(t, result{0, "  glm\n    learned: {member: top_k}\n* kimi\n  main (kimi:KEY_A, glm)\n", ""},
		proxyLine(t, "use", at))
	require.Equal(t, result{0, "kimi → glm\n", ""}, proxyLine(t, "use", "glm", at+"/"))
	require.Equal(t, "glm", a.active)
	require.Equal(t, result{0, "glm stays active\n", ""}, proxyLine(t, "use", "glm", at))
	require.Equal(t, result{1, "", `the gateway has no backend "gpt"; it has glm, kimi, main`}, proxyLine(t, "use", "gpt", at))
	require.Equal(t, "glm", a.active)
	a.active = "stuck"
	require.Equal(t, result{1, "", a.URL + " refuses (503): the switch could not be stored: Redis does not answer"},
		proxyLine(t, "use", "glm", at))
}

func TestProxyUsage(t *testing.T) {
	a := newAdmin(t)
	at := "--proxy=" + a.URL
	total := usage.Row{Calls: 1234, OK: 1200, Estimated: 3, Tokens: usage.Tokens{
		Input: 1002003, CacheRead: 77, CacheCreation: 8, Output: 50000, Reasoning: 400,
	}}
	a.report = usage.Report{
		Since: time.Unix(1.5e9, 0), Oldest: time.Unix(1e9, 0), By: tally.ByBackend, Total: total,
		Rows: []usage.Row{
			{Name: "kimi", Calls: 1230, OK: 1198, Estimated: 3, Tokens: usage.Tokens{
				Input: 1002000, CacheRead: 77, CacheCreation: 8, Output: 49990, Reasoning: 400,
			}},
			{Name: "ж\x1b[2J", Calls: 3, OK: 1, Tokens: usage.Tokens{Input: 2, Output: 9}},
			{Calls: 1, OK: 1, Tokens: usage.Tokens{Input: 1, Output: 1}},
		},
	}
	require.Equal(t, result{0, `
BACKEND  CALLS    OK    INPUT  CACHED  WRITTEN  OUTPUT  REASONING  ESTIMATED
kimi      1230  1198  1002000      77        8   49990        400          3
ж[2J         3     1        2       0        0       9          0          0
(none)       1     1        1       0        0       1          0          0
TOTAL     1234  1200  1002003      77        8   50000        400          3
(since 2017-07-14 02:40:00 UTC)
`[1:], ""}, proxyLine(t, "usage", at))
	require.Equal(t, "by=backend&since=24h", a.query)

	asJSON := proxyLine(t, "usage", at, "--json")
	require.Zero(t, asJSON.code, asJSON.stderr)
	var got usage.Report
	require.NoError(t, json.Unmarshal([]byte(asJSON.stdout), &got))
	require.Equal(t, a.report.Rows, got.Rows)
	require.Contains(t, asJSON.stdout, `"cache_read": 77`)
}

func TestProxyUsageSaysWhatIsMissing(t *testing.T) {
	t.Setenv("TZ", "UTC")
	a := newAdmin(t)
	at := "--proxy=" + a.URL
	a.report = usage.Report{By: tally.ByChat, Since: time.Unix(1e9, 0), Oldest: time.Unix(1.5e9, 0), LeftOut: 2,
		Dropped: 7, Process: true, Rows: []usage.Row{}}
	header := "CHAT   CALLS  OK  INPUT  CACHED  WRITTEN  OUTPUT  REASONING  ESTIMATED\nTOTAL      0   0      0       0 " +
		"       0       0          0          0\n"
	notes := "(2 more lines are in the total only)\n(the gateway has no Redis: these are this one process's calls)\n" +
		"(since 2017-07-14 02:40:00 UTC)\n(7 calls are missing: the gateway could not count them in Redis)\n"
	require.Equal(t, result{0, header + notes, ""}, proxyLine(t, "usage", "--by=chat", at, "--since=7d"))
	require.Equal(t, "by=chat&since=7d", a.query)
}

func TestProxyCommandsRefuseInOneSentence(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>"))
	}))
	defer other.Close()
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		_, _ = w.Write([]byte(`{"error":{"message":"no such\u001b[2J door"}}`))
	}))
	defer old.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, command := range [][]string{{"use"}, {"use", "glm"}, {"usage"}} {
		for at, want := range map[string]string{
			"nope": `"nope" is no URL of the gateway; give one such as http://127.0.0.1:8082`,
			other.URL: other.URL +
				" did not answer as the gateway does; is --url right? (invalid character '<' looking for beginning of value)",
			old.URL:  old.URL + " refuses (404): no such[2J door",
			gone.URL: "nothing listens on " + gone.URL + ": start `mneme up` or `mneme proxy`",
		} {
			code := 1
			if at == "nope" {
				code, want = 2, want+"; see mneme --help"
			}
			require.Equal(t, result{code, "", want}, proxyLine(t, append(slices.Clone(command), "--proxy="+at)...))
		}
	}
	a := newAdmin(t)
	require.Equal(t,
		result{2, "", `--since is a time ago such as 90m, 24h or 7d, or a time such as 2026-01-31T00:00:00Z, ` +
			`not "soon"; see mneme --help`},
		proxyLine(t, "usage", "--since=soon", "--proxy="+a.URL))
	require.Equal(t, result{1, "", "the answer is no report of usage; is --url right?"},
		proxyLine(t, "usage", "--by=chat", "--proxy="+a.URL))
	require.Contains(t, proxyLine(t, "usage", "--by=tenant", "--proxy="+a.URL).stderr,
		`--by must be one of "backend","model","chat"`)
}
