// Package accesstest walks the routes of a service and checks which callers may use them.
package accesstest

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
	"mneme/memory/telemetry"
)

// Credentials that Gate accepts: the internal secret, and a key of the default tenant with all scopes.
const (
	secret   = "the internal secret of tests, long enough"
	adminKey = access.Prefix + "tests_of-a-length-that-keys-must-have-0123456789"
)

// Gate is a gate for Walk.
func Gate(t *testing.T) *access.Gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	entry := fmt.Sprintf("keys: [{id: tests, scopes: [admin], hash: %x}]", sha256.Sum256([]byte(adminKey)))
	require.NoError(t, os.WriteFile(path, []byte(entry), 0o600))
	file, err := access.OpenFile(path, zerolog.Nop())
	require.NoError(t, err)
	keys := access.NewAuthenticator(file, nil, zerolog.Nop())
	t.Cleanup(func() { _ = keys.Close() })
	return &access.Gate{Keys: keys, Secret: secret}
}

// Walk asks every route of a service behind Gate once without a credential and once for a caller
// without any right, so that no handler runs. Those in open answer; each other one must be in the
// service's table, by the scope that it asks for. It gives that scope by "METHOD /path", "" for a
// route that every key may use. No key opens a route of /internal, whatever its scopes.
func Walk(t *testing.T, h http.Handler, open ...string) map[string]string {
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
		stranger := ask(h, route.Method, route.Path, nil)
		if public {
			assert.NotEqual(t, http.StatusUnauthorized, stranger.Code, name)
			continue
		}
		assert.Equal(t, http.StatusUnauthorized, stranger.Code, name)
		assert.Contains(t, stranger.Header().Get("WWW-Authenticate"), "Bearer", name)
		if strings.HasPrefix(route.Path, "/internal/") {
			keyed := ask(h, route.Method, route.Path, http.Header{"Authorization": {"Bearer " + adminKey}})
			assert.Equal(t, http.StatusForbidden, keyed.Code, "%s: a key opens it", name)
		}
		nobody := ask(h, route.Method, route.Path, http.Header{"Mneme-Internal-Secret": {secret}, "Mneme-Scopes": {"none"}})
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

func ask(h http.Handler, method, path string, header http.Header) *httptest.ResponseRecorder {
	path = strings.NewReplacer(":", "x", "*", "y").Replace(path)
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
