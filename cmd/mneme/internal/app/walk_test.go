package app_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/apiserver"
	"mneme/internal/webmemorytest"
	"mneme/memory/telemetry"
	"mneme/proxy"
	"mneme/webmemory"
)

// Credentials that gateOfTests accepts: the internal secret, and a key of the default tenant with all scopes.
const (
	testSecret   = "the internal secret of tests, long enough"
	testAdminKey = access.Prefix + "tests_of-a-length-that-keys-must-have-0123456789"
)

// gateOfTests returns a gate for walk.
func gateOfTests(t *testing.T) *access.Gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	entry := fmt.Sprintf("keys: [{id: tests, scopes: [admin], hash: %x}]", sha256.Sum256([]byte(testAdminKey)))
	require.NoError(t, os.WriteFile(path, []byte(entry), 0o600))
	file, err := access.OpenFile(path, zerolog.Nop())
	require.NoError(t, err)
	keys := access.NewAuthenticator(file, nil, zerolog.Nop())
	t.Cleanup(func() { _ = keys.Close() })
	return &access.Gate{Keys: keys, Secret: testSecret}
}

// walk asks every route of a service behind gateOfTests once without a credential and once for a caller
// without any right, so that no handler runs. Those in open answer; each other one must be in the
// service's table, by the scope that it asks for. It gives that scope by "METHOD /path", "" for a
// route that every key may use. No key opens a route of /internal, whatever its scopes.
func walk(t *testing.T, h http.Handler, open ...string) map[string]string {
	t.Helper()
	router, ok := h.(*telemetry.Edge)
	if !ok {
		t.Fatalf("%T lists no routes", h)
	}
	needs := map[string]string{}
	for _, route := range router.Routes() {
		name := route.Method + " " + route.Path
		public := false
		for _, o := range open {
			public = public || o == name
		}
		stranger := askRoute(h, route.Method, route.Path, nil)
		if public {
			assert.NotEqual(t, http.StatusUnauthorized, stranger.Code, name)
			continue
		}
		assert.Equal(t, http.StatusUnauthorized, stranger.Code, name)
		assert.Contains(t, stranger.Header().Get("WWW-Authenticate"), "Bearer", name)
		if strings.HasPrefix(route.Path, "/internal/") {
			keyed := askRoute(h, route.Method, route.Path, http.Header{"Authorization": {"Bearer " + testAdminKey}})
			assert.Equal(t, http.StatusForbidden, keyed.Code, "%s: a key opens it", name)
		}
		nobody := askRoute(h, route.Method, route.Path,
			http.Header{"Mneme-Internal-Secret": {testSecret}, "Mneme-Scopes": {"none"}})
		body := nobody.Body.String()
		assert.NotContains(t, body, "no scope in the service's table", "%s: who may come here? add it to the rights", name)
		if nobody.Code != http.StatusForbidden {
			needs[name] = ""
			continue
		}
		_, scope, _ := strings.Cut(nobody.Header().Get("WWW-Authenticate"), `scope="`)
		if needs[name] = strings.TrimSuffix(scope, `"`); scope == "" {
			needs[name] = string(access.Internal)
		}
	}
	return needs
}

func askRoute(h http.Handler, method, path string, header http.Header) *httptest.ResponseRecorder {
	path = strings.NewReplacer(":", "x", "*", "y").Replace(path)
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// With keys the apiserver answers our own services alone.
func TestOnlyOurServicesComeToTheApiserver(t *testing.T) {
	t.Parallel()
	s := apiserver.New(apiserver.Config{Gate: gateOfTests(t)}, nil, nil, zerolog.Nop())
	t.Cleanup(func() { _ = s.Close() })
	needs := walk(t, s.Handler(), "GET /healthz", "GET /readyz", "GET /metrics")
	require.NotEmpty(t, needs)
	for route, scope := range needs {
		require.Equal(t, string(access.Internal), scope, route)
	}
}

func TestEachRouteOfTheGatewayNeedsItsScope(t *testing.T) {
	t.Parallel()
	s, err := proxy.New(proxy.Config{
		Active: "offline", Backends: map[string]proxy.BackendConfig{"offline": {Kind: proxy.KindOffline}},
		Gate: gateOfTests(t),
	}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	needs := walk(t, s.Handler(), "HEAD /", "GET /health", "GET /healthz", "GET /readyz", "GET /metrics")
	require.NotEmpty(t, needs)
	for route, scope := range needs {
		_, path, _ := strings.Cut(route, " ")
		want := access.Models
		switch {
		case strings.HasPrefix(path, "/admin/"):
			want = access.Admin
		case route == "DELETE /v1/conversations": // all of a tenant's
			want = access.Internal
		}
		require.Equal(t, string(want), scope, route)
	}
}

// No route of webmemory runs its handler without a right. TestEachActNeedsItsScopeOnEachRoute tests the scopes.
func TestEachRouteOfWebmemoryNeedsItsScope(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("x"))
	var handler http.Handler
	w.Middleware = func(h http.Handler) http.Handler { handler = h; return h }
	none := http.NotFoundHandler()
	w.StartReplica(func(c *webmemory.Config) { c.Gate, c.MCP, c.OpenAI, c.UI = gateOfTests(t), none, none, none })
	needs := walk(t, handler, "GET /", "GET /ui/*file", "GET /openapi.json", "GET /healthz", "GET /readyz", "GET /metrics")
	require.NotEmpty(t, needs)
}
