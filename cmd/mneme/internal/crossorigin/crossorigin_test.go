package crossorigin_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/crossorigin"
	"mneme/memory/telemetry"
)

// taken is what a guard takes beside what is safe.
type taken struct{ Hosts, Origins []string }

func guard(c taken, next http.HandlerFunc, log io.Writer) http.Handler {
	return crossorigin.New(c.Hosts, c.Origins, telemetry.Open("", zerolog.New(log)).Often).Protect(next,
		func(w http.ResponseWriter, _ *http.Request, no *api.Problem) {
			http.Error(w, no.Code+": "+no.Message, no.Status)
		})
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "inside") }

// send answers a request of a method, a path, a body and headers as "Name: value".
func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHosts(t *testing.T) {
	h := guard(taken{Hosts: []string{"Apiserver.Prod.svc", "chat.example.org"}}, ok,
		io.Discard)
	for _, host := range []string{
		"localhost", "localhost:8080", "LocalHost:8080", "localhost.", "web.localhost:80", "127.0.0.1", "127.0.0.1:8080",
		"10.1.2.3:8080",
		"[::1]", "[::1]:8080", "[2001:db8::7]:8080", "[fe80::1%25eth0]:8080", "webmemory", "webmemory:8080",
		"web-memory_1:8080",
		"apiserver.prod.svc:8081", "chat.example.org", "Chat.Example.ORG:443", "chat.example.org.:443", "",
	} {
		require.Equal(t, 200, send(h, "GET", "/v1/chats", "", "Host: "+host).Code, host)
	}
	for _, host := range []string{
		"evil.test", "evil.test:8080", "127.0.0.1.nip.io:8080", "localhost.evil.test", "evillocalhost.test", ".localhost",
		"evil@127.0.0.1", "notchat.example.org",
		"chat.example.org.evil.test", "sub.chat.example.org", "1.2.3", "webmemory.prod", "%6cocalhost", "a b", "локальный",
	} {
		w := send(h, "GET", "/v1/chats", "", "Host: "+host)
		require.Equal(t, 403, w.Code, host)
		require.Contains(t, w.Body.String(), "host_not_allowed", host)
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/health"} {
			require.Equal(t, 200, send(h, "GET", path, "", "Host: "+host).Code, "a probe comes by any name")
			require.Equal(t, 403, send(h, "POST", path, "", "Host: "+host).Code)
			require.Equal(t, 403, send(h, "GET", path+"/", "", "Host: "+host).Code)
			require.Equal(t, 403, send(h, "GET", path, "", "Host: "+host, "Origin: https://evil.test").Code)
		}
	}
	w := send(h, "GET", "/v1/chats", "", "Host: webmemory.prod.svc.cluster.local:8080")
	require.Contains(t, w.Body.String(), "add webmemory.prod.svc.cluster.local to http.allowed_hosts in mneme.yaml")
	require.NotContains(t, w.Body.String(), "chat.example.org")
}

func TestOrigins(t *testing.T) {
	h := guard(taken{Hosts: []string{"chat.example.org"}, Origins: []string{
		"https://app.example", "app://obsidian.md",
	}}, ok, io.Discard)
	for name, test := range map[string]struct {
		method  string
		headers []string
		status  int
	}{
		"no browser":    {"DELETE", nil, 200},
		"fetch of Node": {"POST", []string{"Sec-Fetch-Mode: cors"}, 200},
		"allowed":       {"GET", []string{"Origin: https://app.example"}, 200},
		"allowed app": {
			"DELETE", []string{"Origin: app://obsidian.md", "Sec-Fetch-Site: cross-site"}, 200,
		},
		"same origin": {
			"DELETE", []string{"Origin: http://127.0.0.1:8080", "Sec-Fetch-Site: same-origin"}, 200,
		},
		"same origin, old browser": {"POST", []string{"Origin: http://127.0.0.1:8080"}, 200},
		"same origin behind TLS": {
			"POST", []string{"Host: chat.example.org", "Origin: https://chat.example.org", "Sec-Fetch-Site: same-origin"}, 200,
		},
		"same name, other scheme": {
			"POST", []string{"Host: chat.example.org", "Origin: http://chat.example.org", "Sec-Fetch-Site: cross-site"}, 403,
		},
		"same origin by a name not known": {
			"GET", []string{"Host: evil.test", "Origin: http://evil.test", "Sec-Fetch-Site: same-origin"}, 403,
		},
		"foreign":     {"POST", []string{"Origin: https://evil.test"}, 403},
		"foreign GET": {"GET", []string{"Origin: https://evil.test"}, 403},
		"foreign preflight": {
			"OPTIONS", []string{"Origin: https://evil.test", "Access-Control-Request-Method: DELETE"}, 403,
		},
		"another port": {
			"GET", []string{"Origin: http://127.0.0.1:3000", "Sec-Fetch-Site: same-site"}, 403,
		},
		"another scheme of an allowed one": {"GET", []string{"Origin: http://app.example"}, 403},
		"another port of an allowed one":   {"GET", []string{"Origin: https://app.example:8443"}, 403},
		"below an allowed one":             {"GET", []string{"Origin: https://app.example.evil.test"}, 403},
		"null":                             {"POST", []string{"Origin: null"}, 403},
		"empty":                            {"POST", []string{"Origin: "}, 403},
		"two": {
			"POST", []string{"Origin: https://app.example", "Origin: https://evil.test"}, 403,
		},
		"an extension of our name": {"GET", []string{"Host: webmemory", "Origin: chrome-extension://webmemory"},
			403},
		"image": {
			"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}, 403,
		},
		"image of another port": {
			"GET", []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}, 403,
		},
		"frame": {
			"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403,
		},
		"link": {
			"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200,
		},
		"link that is no GET": {
			"DELETE", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 403,
		},
		"typed address": {
			"GET", []string{"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200,
		},
		"own page's script": {
			"GET", []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"}, 200,
		},
		"a value that no browser has today": {"GET", []string{"Sec-Fetch-Site: nearby"}, 403},
		"preflight of an allowed one elsewhere": {
			"OPTIONS", []string{"Host: evil.test", "Origin: https://app.example", "Access-Control-Request-Method: GET"}, 403,
		},
	} {
		w := send(h, test.method, "/v1/chats/1", "", test.headers...)
		require.Equal(t, test.status, w.Code, "%s: %s", name, w.Body)
		if !strings.Contains(strings.Join(test.headers, "\n"), "Origin: https://app.example") &&
			!strings.Contains(name, "allowed") {
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), name)
		}
	}
	told := send(h, "GET", "/", "", "Origin: http://[::1]:3000").Body.String()
	require.Contains(t, told, "add http://[::1]:3000 to http.allowed_origins in mneme.yaml")
	require.NotContains(t, told, "example")
	require.NotContains(t, told, "obsidian")
	for _, hopeless := range []string{"null", "file://", "https://*.evil.test", "https://EVIL.test", "x" +
		strings.Repeat("y", 10_000)} {
		body := send(h, "GET", "/", "", "Origin: "+hopeless).Body.String()
		require.Contains(t, body, "cannot be allowed")
		require.Less(t, len(body), 600)
	}
}

// The types that a form can send come from programs only.
func TestBodies(t *testing.T) {
	h := guard(taken{Origins: []string{"https://app.example"}}, ok, io.Discard)
	const page = "Origin: https://app.example"
	for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain;charset=UTF-8",
		"multipart/form-data; boundary=x", "", "bad;;type", "Text/Plain"} {
		require.Equal(t, 200, send(h, "POST", "/v1/chats/1/messages", "{}", "Content-Type: "+kind).Code, kind)
		w := send(h, "POST", "/v1/chats/1/messages", "{}", "Content-Type: "+kind, page)
		require.Equal(t, 415, w.Code, kind)
		require.Contains(t, w.Body.String(), "application/json")
		require.Equal(t, "https://app.example", w.Header().Get("Access-Control-Allow-Origin"), "the page can read why")
		require.Equal(t, 415, send(h, "POST", "/v1/chats/1/messages", "{}", "Content-Type: "+kind,
			"Origin: http://127.0.0.1:8080").Code)
		require.Equal(t, 200, send(h, "POST", "/v1/chats/1/runs/r/stop", "", "Content-Type: "+kind, page).Code,
			"without a body")
		require.Equal(t, 200, send(h, "PUT", "/v1/collections/c/documents/d.txt", "a text", "Content-Type: "+kind, page).Code,
			"a file, which no form can PUT")
	}
	for _, kind := range []string{"application/json", "application/json; charset=utf-8", "application/x-ndjson",
		"application/problem+json"} {
		require.Equal(t, 200, send(h, "POST", "/v1/chats/1/messages", "{}", "Content-Type: "+kind, page).Code, kind)
	}
}

func TestCORS(t *testing.T) {
	var inside *http.Request
	h := guard(taken{Origins: []string{"https://app.example"}},
		func(w http.ResponseWriter, r *http.Request) { inside = r }, io.Discard)
	w := send(h, "OPTIONS", "/v1/chats/1/messages", "", "Origin: https://app.example",
		"Access-Control-Request-Method: POST",
		"Access-Control-Request-Headers: authorization,content-type,idempotency-key")
	require.Equal(t, 204, w.Code)
	require.Nil(t, inside)
	require.Equal(t, http.Header{
		"Access-Control-Allow-Origin":   {"https://app.example"},
		"Access-Control-Allow-Methods":  {"GET, HEAD, POST, PUT, PATCH, DELETE"},
		"Access-Control-Allow-Headers":  {"authorization,content-type,idempotency-key"},
		"Access-Control-Expose-Headers": {"*"},
		"Access-Control-Max-Age":        {"600"},
		"Vary":                          {"Origin", "Access-Control-Request-Headers"},
	}, w.Header())

	// What decided here decides nowhere behind; the request that came is not changed.
	r := httptest.NewRequest("GET", "http://127.0.0.1/v1/chats", nil)
	r.Header = http.Header{"Origin": {"https://app.example"}, "Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"},
		"Accept": {"*/*"}}
	came := r.Header.Clone()
	h.ServeHTTP(w, r)
	require.Equal(t, http.Header{"Accept": {"*/*"}}, inside.Header)
	require.Equal(t, came, r.Header)
	require.Equal(t, []string{"Origin"}, send(h, "GET", "/", "").Header()["Vary"],
		"a cache must not give a page the answer to another")
}

func TestRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	h := guard(taken{}, ok, &log)
	for range 1000 {
		send(h, "POST", "/v1/chats/1/messages", "my secret", "Origin: https://evil.test\nlevel: fatal",
			"Sec-Fetch-Site: cross-site")
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.NotEmpty(t, lines)
	require.Less(t, len(lines), 100, "a page cannot fill the log")
	require.Contains(t, lines[0], `"code":"origin_not_allowed"`)
	require.Contains(t, lines[0], `"path":"/v1/chats/1/messages"`)
	require.NotContains(t, log.String(), "my secret")
}

// The guard is in the way of every call to a model: programs cost it nothing.
func TestProgramsAllocateNothing(t *testing.T) {
	h := guard(taken{Hosts: []string{"127.0.0.1"}}, func(http.ResponseWriter, *http.Request) {}, io.Discard)
	for _, host := range []string{"127.0.0.1:8080", "localhost:8080", "webmemory:8080", "[::1]:8080"} {
		r := httptest.NewRequest("POST", "http://"+host+"/v1/messages", nil)
		require.Zero(t, testing.AllocsPerRun(100, func() { h.ServeHTTP(nil, r) }), host)
	}
}
