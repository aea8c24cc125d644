package webmemory_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/webmemory"
)

// forTenants lets requests of services in for the tenant that they name, without the secret that a gate asks for.
func forTenants(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		of, err := memory.ParseTenant(r.Header.Get(api.TenantHeader))
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		h.ServeHTTP(rw, r.WithContext(access.With(r.Context(), access.Principal{Tenant: of, Scopes: access.Scopes})))
	})
}

// createKeys creates a key of the tenant acme and one of an operator.
func createKeys(w *webmemorytest.World) (store *access.Store, acme memory.Tenant, bot, operator string) {
	w.T.Helper()
	acme, err := memory.ParseTenant("acme")
	require.NoError(w.T, err)
	store = access.NewStore(w.Redis)
	bot, _, err = store.Create(context.Background(), access.Key{Name: "bot", Tenant: acme, Scopes: access.Scopes})
	require.NoError(w.T, err)
	operator, _, err = store.Create(context.Background(),
		access.Key{Name: "operator", Scopes: []access.Scope{access.Admin}})
	require.NoError(w.T, err)
	return store, acme, bot, operator
}

// requireKeys returns a setting of a replica that requires the keys of a store.
func requireKeys(w *webmemorytest.World, store *access.Store) func(*webmemory.Config) {
	return func(c *webmemory.Config) {
		keys := access.NewAuthenticator(nil, store, zerolog.Nop())
		w.T.Cleanup(func() { _ = keys.Close() })
		c.Gate, c.Keys = &access.Gate{Keys: keys, Secret: strings.Repeat("s", 32)}, store
		c.Usage, c.Audit = tally.New(w.Redis, time.Hour), audit.New(w.Redis)
	}
}

// A run of a tenant's goes on in one process while another one erases the tenant: it is stopped, and nothing that it,
// or a message behind it, writes comes back.
func TestARunElsewhereIsStoppedWhenItsTenantIsErased(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	w.SetApiserver(forTenants(w.Runs.Handler()))
	store, _, text, operator := createKeys(w)
	one, two := w.StartReplica(requireKeys(w, store)), w.StartReplica(requireKeys(w, store))
	with := func(base, key, method, path string, body any, header ...string) webmemorytest.Response {
		w.URL = base
		return w.Do(method, path, body, append(header, "Authorization", "Bearer "+key)...)
	}
	for _, chat := range []string{"1", "2"} {
		got := with(one, text, "POST", "/v1/chats/"+chat+"/messages", map[string]any{"message": "rosebud", "user": "ann"},
			"Prefer", "respond-async")
		require.Equal(t, 202, got.Status, "%s", got.Body)
	}
	var erased struct {
		Chats, Left int
		Done        bool
	}
	for !erased.Done {
		got := with(two, operator, "DELETE", "/v1/tenants/acme", nil)
		require.Equal(t, 200, got.Status, "%s", got.Body)
		require.NoError(t, json.Unmarshal(got.Body, &erased))
	}
	keys, err := w.Redis.Keys(context.Background(), "*acme*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.True(t, strings.HasSuffix(key, ":meta"), key)
		require.Positive(t, w.Redis.TTL(context.Background(), key).Val(), key)
	}
}
