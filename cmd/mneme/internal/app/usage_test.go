package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/internal/redistest"
	"mneme/memory"
)

// What a post took is counted for its key, tenant and chat, and another tenant sees none of it.
func TestUsageOfTwoTenants(t *testing.T) {
	server := redistest.Start(t)
	one := start(t, "MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL="+server.URL(), "MNEME_DATA_DIR="+t.TempDir(),
		"MNEME_INTERNAL_SECRET="+strings.Repeat("secret-", 8))
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	store := access.NewStore(client)
	key := func(tenant string, scopes ...access.Scope) (string, string) {
		of, err := memory.ParseTenant(tenant)
		require.NoError(t, err)
		text, k, err := store.Create(t.Context(), access.Key{Name: tenant, Tenant: of, Scopes: scopes})
		require.NoError(t, err)
		return text, k.ID
	}
	own, id := key("acme", access.Chat, access.MemoryRead)
	other, _ := key("other", access.Admin)
	admin, _ := key("default", access.Admin)
	status, body := ask(t, "POST", one.url("/v1/chats/12345/messages"), own, `{"message":"Hello."}`)
	require.Equal(t, http.StatusOK, status, body)

	require.Eventually(t, func() bool { // records are written behind the call
		_, body = ask(t, "GET", one.url("/v1/usage?chat=12345"), own, "")
		return strings.Contains(body, `"name":"12345"`)
	}, 20*time.Second, 100*time.Millisecond, body)
	_, body = ask(t, "GET", one.url("/v1/usage?by=key&since=1d"), own, "")
	require.Contains(t, body, `"name":"`+id+`"`)
	_, body = ask(t, "GET", one.url("/v1/usage?tenant=acme"), admin, "")
	require.Contains(t, body, `"name":"acme"`)
	for _, path := range []string{"/v1/usage", "/v1/usage?chat=12345", "/v1/usage?tenant=acme"} {
		status, body = ask(t, "GET", one.url(path), other, "")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"rows":[]}`, body, path)
	}
	status, _ = ask(t, "GET", one.url("/v1/usage?tenant=other"), own, "")
	require.Equal(t, http.StatusForbidden, status)
	status, body = ask(t, "GET", one.url("/v1/usage?by=colour"), own, "")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "by must be")
}
