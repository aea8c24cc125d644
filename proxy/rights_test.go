package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/accesstest"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/proxy"
)

func TestEachRouteOfTheGatewayNeedsItsScope(t *testing.T) {
	t.Parallel()
	s, err := proxy.New(proxy.Config{
		Active: "offline", Backends: map[string]proxy.BackendConfig{"offline": {Kind: proxy.KindOffline}},
		Gate: accesstest.Gate(t),
	}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	needs := accesstest.Walk(t, s.Handler(), "HEAD /", "GET /health", "GET /healthz", "GET /readyz", "GET /metrics")
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

// A client that still waits when its key is revoked is told so, in its dialect, and the vendor is left.
func TestAnOpenCallEndsWithItsKey(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	called, left := make(chan struct{}), make(chan struct{})
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(called)
		<-r.Context().Done()
		close(left)
	}))
	t.Cleanup(vendor.Close)
	store := access.NewStore(redistest.Start(t).Client())
	text, key, err := store.Create(t.Context(), access.Key{Name: "k", Scopes: []access.Scope{access.Models}})
	require.NoError(t, err)
	keys := access.NewAuthenticator(nil, store, zerolog.Nop())
	t.Cleanup(func() { require.NoError(t, keys.Close()) })
	s, err := proxy.New(proxy.Config{
		Active: "slow", Backends: map[string]proxy.BackendConfig{"slow": {Kind: proxy.KindAnthropic, BaseURL: vendor.URL}},
		Gate: &access.Gate{Keys: keys},
	}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	gateway := httptest.NewServer(s.Handler())
	t.Cleanup(gateway.Close)
	go func() {
		<-called
		_, err := store.Revoke(context.WithoutCancel(t.Context()), key.ID)
		assert.NoError(t, err)
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, gateway.URL+"/v1/messages",
		strings.NewReader(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`))
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", text)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode, string(body))
	require.JSONEq(t, `{"type":"error","error":{"type":"authentication_error",`+
		`"message":"This key was revoked; ask for another one."}}`, string(body))
	<-left
}
