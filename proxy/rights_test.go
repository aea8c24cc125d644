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
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/proxy"
)

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
