package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy"
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
		_ = json.NewEncoder(w).Encode(proxy.BackendState{Active: a.active, Backends: backends, Routes: []string{"main"},
			Choices: map[string][]string{"main": {"kimi:KEY_A", "glm"}},
			Learned: map[string][]string{"glm": {"{member: top_k}"}}})
	})
	mux.HandleFunc("PUT /admin/backend", func(w http.ResponseWriter, r *http.Request) {
		var asked proxy.BackendState
		_ = json.NewDecoder(r.Body).Decode(&asked)
		if asked.Active == "glm" && a.active == "stuck" {
			refuse(w, 503, "the switch could not be stored: Redis does not answer")
			return
		}
		a.active = asked.Active
		_ = json.NewEncoder(w).Encode(proxy.BackendState{Active: a.active, Backends: backends, Routes: []string{"main"},
			Choices: map[string][]string{"main": {"kimi:KEY_A", "glm"}},
			Learned: map[string][]string{"glm": {"{member: top_k}"}}})
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func TestProxyUse(t *testing.T) {
	a := newAdmin(t)
	at := "--url=" + a.URL
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
	for _, command := range [][]string{{"use"}, {"use", "glm"}} {
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
			require.Equal(t, result{code, "", want}, proxyLine(t, append(slices.Clone(command), "--url="+at)...))
		}
	}
}
