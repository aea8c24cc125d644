package models_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/internal/upstreamtest"
)

// load reads a mneme.yaml in which URL stands for the vendor's address.
func load(t *testing.T, url, text string) config.Config {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(config.DefaultFile, []byte(strings.ReplaceAll(text, "URL", url)), 0o600))
	cfg, err := config.Load("", []string{"KEY=right", "BAD=wrong-hush"})
	require.NoError(t, err)
	return cfg
}

// what a Report comes to: its problem with its place, or its note.
func said(t *testing.T, cfg config.Config) string {
	t.Helper()
	reports := models.Check(t.Context(), cfg)
	require.Len(t, reports, 1)
	if err := reports[0].Err(cfg); err != nil {
		require.Empty(t, reports[0].Note)
		return err.Error()
	}
	return reports[0].Note
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	openai := func() http.Handler {
		return upstreamtest.New(upstreamtest.Config{
			Vendor: upstreamtest.Chat, APIKey: "right", Models: []string{"gpt-4.1", "gpt-4.1-mini", "gpt-4o-2024-08-06", "o3",
				"models/gemini-x"},
		})
	}
	below := func(path string, h http.Handler) http.Handler { // 404 at any other place
		mux := http.NewServeMux()
		mux.Handle(path+"/", h)
		return mux
	}
	status := func(code int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
	}
	const file = "proxy:\n  backends:\n    gpt:\n      kind: openai\n      base_url: URL/v1\n      api_key_env: KEY\n  " +
		"    model_map: {\"*\": gpt-4.1}\n"
	for name, c := range map[string]struct {
		vendor http.Handler
		text   string
		want   string // HOST stands for the vendor's host
	}{
		"all is well": {openai(), file, "ok: it lists 5 models, among them gpt-4.1"},
		"a dated version": {openai(), strings.Replace(file, "gpt-4.1", "gpt-4o", 1),
			"ok: it lists 5 models, among them gpt-4o"},
		"a name with a prefix": {openai(), strings.Replace(file, "gpt-4.1", "models/gemini-x", 1),
			"ok: it lists 5 models, among them models/gemini-x"},
		"the key is refused": {openai(), strings.Replace(file, "KEY", "BAD", 1),
			"mneme.yaml:6: proxy.backends.gpt.api_key_env: HOST refuses the key in BAD (401); put a valid one there"},
		"there is no key": {openai(), strings.Replace(file, "      api_key_env: KEY\n", "", 1),
			"mneme.yaml:3: proxy.backends.gpt.api_key_env: HOST wants a key; name the variable that holds it"},
		"a mistyped model": {openai(), strings.Replace(file, "gpt-4.1", "gpt-4.l", 1),
			`mneme.yaml:7: proxy.backends.gpt.model_map: HOST has no model "gpt-4.l"; the nearest of its names: gpt-4.1, ` +
				`gpt-4.1-mini, o3`},
		"no model_map": {openai(), strings.Split(file, "      model_map")[0],
			`mneme.yaml:3: proxy.backends.gpt.model_map: HOST has no model "master", which is a name of ours; write ` +
				`model_map: {"*": "gpt-4.1"}`},
		"a model_map with a hole": {openai(), strings.Replace(file, `"*"`, "master", 1),
			`mneme.yaml:7: proxy.backends.gpt.model_map: HOST has no model "analytic", which is a name of ours; write ` +
				`model_map: {"*": "gpt-4.1"}`},
		"base_url without /v1": {below("/v1", openai()), strings.Replace(file, "URL/v1", "URL", 1),
			"mneme.yaml:5: proxy.backends.gpt.base_url: the API begins one level deeper; write http://HOST/v1"},
		"base_url of a web page": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1") {
				openai().ServeHTTP(w, r)
				return
			}
			_, _ = io.WriteString(w, "<!doctype html><title>Models</title>")
		}), strings.Replace(file, "URL/v1", "URL", 1),
			"mneme.yaml:5: proxy.backends.gpt.base_url: the API begins one level deeper; write http://HOST/v1"},
		"base_url without /v1, where that is right": {openai(), strings.Replace(file, "URL/v1", "URL", 1),
			"ok: it lists 5 models, among them gpt-4.1"},
		"no list": {
			status(404, "{}"), file, "not checked: HOST lists no models, so neither key nor model names could be checked",
		},
		"an empty list": {status(200, `{"data":[]}`), file, "ok: it answers, and names no models to compare with"},
		"trouble at the vendor's": {
			status(503, "hush"), file,
			"mneme.yaml:3: proxy.backends.gpt: HOST cannot answer now (503); it is asked again when it is needed",
		},
		"a key that the vendor repeats": {status(401, `{"error":"wrong-hush is no key"}`),
			strings.Replace(file, "KEY", "BAD", 1),
			"mneme.yaml:6: proxy.backends.gpt.api_key_env: HOST refuses the key in BAD (401); put a valid one there"},
		"a key that Gemini refuses": {status(400,
			`[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`),
			strings.Replace(file, "KEY", "BAD", 1),
			"mneme.yaml:6: proxy.backends.gpt.api_key_env: HOST refuses the key in BAD (400); put a valid one there"},
		"a model that is known and not listed": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models/alias" {
				_, _ = io.WriteString(w, `{"id":"the-real-one"}`)
				return
			}
			openai().ServeHTTP(w, r)
		}), strings.Replace(file, "gpt-4.1", "alias", 1), "ok: it lists 5 models, among them alias"},
		"anthropic": {upstreamtest.New(upstreamtest.Config{APIKey: "right", Models: []string{"claude-sonnet-4-5-20250929"}}),
			"proxy: {backends: {c: {kind: anthropic, base_url: URL, api_key_env: KEY, model_map: {'*': claude-sonnet-4-5}}}}\n",
			"ok: it lists 1 models, among them claude-sonnet-4-5"},
		"anthropic without the key": {upstreamtest.New(upstreamtest.Config{APIKey: "right"}),
			"proxy: {backends: {c: {kind: anthropic, base_url: URL, api_key_env: BAD}}}\n",
			"mneme.yaml:1: proxy.backends.c.api_key_env: HOST refuses the key in BAD (401); put a valid one there"},
		"interactions": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("X-Goog-Api-Key") != "right":
				w.WriteHeader(http.StatusForbidden)
			case r.URL.Path == "/v1beta/models":
				_, _ = io.WriteString(w, `{"models":[{"name":"models/gemini-3.8-flash"}],"nextPageToken":"x"}`)
			case r.URL.Path == "/v1beta/models/gemini-3.1-pro":
				_, _ = io.WriteString(w, `{"name":"models/gemini-3.1-pro"}`)
			}
		}), "proxy: {backends: {g: {kind: interactions, base_url: URL/v1beta, api_key_env: KEY, " +
			"model_map: {'*': gemini-3.8-flash, master: gemini-3.1-pro}}}}\n", "ok: it lists 1 models, among them gemini-3.1-pro, gemini-3.8-flash"},
		"the callers' keys": {openai(), strings.Replace(file, "api_key_env: KEY", "auth: passthrough", 1),
			"not checked: it takes its callers' keys and has none of its own"},
		"offline": {openai(), "", "ok: the offline model, inside this process"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.vendor)
			t.Cleanup(s.Close)
			got := said(t, load(t, s.URL, c.text))
			require.Equal(t, strings.ReplaceAll(c.want, "HOST", strings.TrimPrefix(s.URL, "http://")), got)
			require.NotContains(t, got, "hush")
		})
	}
}

func TestCheckOfABackendThatIsAway(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	require.Equal(t, "mneme.yaml:1: proxy.backends.x.base_url: "+gone.URL+
		"/v1 cannot be reached (connection refused); start it, or correct the address",
		said(t, load(t, gone.URL, "proxy: {backends: {x: {kind: openai, base_url: 'URL/v1'}}}\n")))
}

// A key goes to the host that the configuration names, and to no other.
func TestKeysFollowNoRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked for %s", r.URL)
	}))
	t.Cleanup(other.Close)
	s := httptest.NewServer(http.RedirectHandler(other.URL+"/v1/models", http.StatusTemporaryRedirect))
	t.Cleanup(s.Close)
	got := said(t, load(t, s.URL, "proxy: {backends: {x: {kind: openai, base_url: 'URL/v1', api_key_env: KEY}}}\n"))
	require.Contains(t, got, "lists no models")
}
