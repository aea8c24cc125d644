package app_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
)

// ask does one request with a key; its status and body.
func ask(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

// Two of everything over one Redis: a key that one makes opens both, what it lets in is answered by
// agents behind the internal secret, and a revocation reaches the other one.
func TestKeysOverTwoProcesses(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	environ := []string{"MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL=" + server.URL(),
		"MNEME_INTERNAL_SECRET=" + strings.Repeat("secret-", 8)}
	one := start(t, append(environ, "MNEME_DATA_DIR="+t.TempDir())...)
	two := start(t, append(environ, "MNEME_DATA_DIR="+t.TempDir())...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	store := access.NewStore(client)
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	admin, _, err := store.Create(t.Context(), access.Key{Name: "admin", Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)

	status, body := ask(t, "POST", one.url("/v1/keys"), admin, `{"name":"bot","tenant":"acme","scopes":["chat"]}`)
	require.Equal(t, http.StatusCreated, status, body)
	var made struct{ ID, Key string }
	require.NoError(t, json.Unmarshal([]byte(body), &made))

	for _, u := range []*up{one, two} {
		status, body = ask(t, "POST", u.url("/v1/chats/1/messages"), made.Key, `{"message":"What is 17 * 3?"}`)
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, "51")
		for _, c := range []struct {
			method, path, key string
			status            int
			says              string
		}{
			{"GET", "/v1/chats/1/history", made.Key, 403, "memory:read"},
			{"DELETE", "/v1/chats/1", made.Key, 403, "memory:write"},
			{"GET", "/v1/keys", made.Key, 403, "admin"},
			{"GET", "/v1/keys/self", made.Key, 200, `"tenant":"acme","scopes":["chat"]`},
			{"GET", "/v1/keys/self", "", 401, "mneme keys create"},
			{"GET", "/v1/chats", "", 401, "mneme keys create"},
			{"GET", "/v1/chats", made.Key + "x", 401, "not known"},
			{"GET", "/v1/models", "", 401, `"authentication_error"`},
			{"GET", "/nothing", "", 401, ""},
			{"GET", "/nothing", made.Key, 404, "unknown_route"},
			{"GET", "/healthz", "", 200, ""},
			{"GET", "/", "", 200, "<html"},
		} {
			status, body := ask(t, c.method, u.url(c.path), c.key, "")
			require.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, body)
			require.Contains(t, body, c.says)
		}
		status, body = ask(t, "POST", "http://"+u.addrs.Apiserver+"/v1/runs", admin, "{}")
		require.Equal(t, http.StatusForbidden, status, body)
		status, body = ask(t, "POST", "http://"+u.addrs.Proxy+"/v1/messages", made.Key, "{}")
		require.Equal(t, http.StatusForbidden, status, body)
		require.Contains(t, body, `"type":"error"`) // in its client's dialect
		// A tool of /mcp may do what its caller may.
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recall","arguments":{"chat":"1","query":"17"}}}`
		req, err := http.NewRequestWithContext(t.Context(), "POST", u.url("/mcp"), strings.NewReader(call))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("X-Api-Key", made.Key)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Contains(t, string(raw), "memory:read")
	}

	status, body = ask(t, "DELETE", one.url("/v1/keys/"+made.ID), admin, "")
	require.Equal(t, http.StatusOK, status, body)
	revoked := time.Now()
	require.Eventually(t, func() bool {
		status, _ := ask(t, "GET", two.url("/v1/models"), made.Key, "")
		return status == http.StatusUnauthorized
	}, access.Fresh+20*time.Second, 50*time.Millisecond)
	t.Logf("the revocation took %s", time.Since(revoked))

	// An admin of a tenant sees its own keys only, and makes none of others.
	local, _, err := store.Create(t.Context(),
		access.Key{Name: "local", Tenant: acme, Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)
	_, body = ask(t, "GET", one.url("/v1/keys"), local, "")
	require.NotContains(t, body, `"name":"admin"`)
	require.Contains(t, body, `"name":"bot"`)
	status, _ = ask(t, "POST", one.url("/v1/keys"), local, `{"name":"x","tenant":"default","scopes":["admin"]}`)
	require.Equal(t, http.StatusCreated, status) // the default is the caller's own tenant
	_, body = ask(t, "GET", one.url("/v1/keys"), local, "")
	require.NotContains(t, body, `"tenant":"default"`)

	for _, u := range []*up{one, two} {
		u.stop()
		for _, text := range []string{admin, made.Key, local, "secret-secret-"} {
			require.NotContains(t, u.log.String(), text)
		}
	}
}

func TestWhoCanBeReachedFromElsewhereAsksForKeysOrSaysNo(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"WEBMEMORY", "APISERVER", "PROXY"} {
		cfg, err := config.Load("", []string{"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0",
			"MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0",
			"MNEME_" + service + "_LISTEN=0.0.0.0:0"})
		require.NoError(t, err)
		err = app.Up(t.Context(), cfg, app.Options{Out: new(bytes.Buffer)})
		require.ErrorContains(t, err, "auth.mode: none (MNEME_AUTH_MODE=none)")
		require.ErrorContains(t, err, "MNEME_AUTH_MODE=keys")
	}
}

// After FLUSHALL no key that was created opens anything, which the services that had let it in tell; a key that is
// revoked, and one that goes with its tenant, are nothing to tell of.
func TestKeysThatRedisLostAreTold(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	u := start(t, "MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL="+server.URL(), "MNEME_DATA_DIR="+t.TempDir(),
		"MNEME_INTERNAL_SECRET="+strings.Repeat("secret-", 8))
	store := access.NewStore(server.Client())
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	key := func(of memory.Tenant, scopes ...access.Scope) (string, string) {
		text, k, err := store.Create(t.Context(), access.Key{Name: "k", Tenant: of, Scopes: scopes})
		require.NoError(t, err)
		return text, k.ID
	}
	admin, _ := key(memory.Tenant{}, access.Admin)
	bot, _ := key(memory.Tenant{}, access.Chat, access.Models)
	revoked, id := key(memory.Tenant{}, access.Chat)
	erased, _ := key(acme, access.Chat)
	opens := func(key string) int {
		status, body := ask(t, "GET", u.url("/v1/keys/self"), key, "")
		require.Contains(t, []int{200, 401}, status, body)
		return status
	}
	services := []string{u.url(""), "http://" + u.addrs.Proxy}
	// tell is what the services say of their readiness.
	tell := func(want string) {
		for _, service := range services {
			status, body := ask(t, "GET", service+"/readyz", "", "")
			require.Equal(t, http.StatusOK, status)
			require.JSONEq(t, want, body)
		}
	}
	for _, k := range []string{admin, bot, revoked, erased} {
		require.Equal(t, 200, opens(k))
	}
	_, err = store.Revoke(t.Context(), id)
	require.NoError(t, err)
	for done := false; !done; {
		status, body := ask(t, "DELETE", u.url("/v1/tenants/acme"), admin, "")
		require.Equal(t, http.StatusOK, status, body)
		done = gjson.Get(body, "done").Bool()
	}
	for _, k := range []string{revoked, erased} {
		require.Eventually(t, func() bool { return opens(k) == 401 }, time.Minute, 100*time.Millisecond)
	}
	tell(`{"status":"ready"}`)

	require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	for _, k := range []string{admin, bot} {
		require.Eventually(t, func() bool { return opens(k) == 401 }, time.Minute, 100*time.Millisecond)
	}
	tell(`{"status":"degraded","reasons":["Redis has lost API keys that were in use (2): create them anew with mneme ` +
		`keys create, or restore Redis from a backup."]}`)
	for _, service := range services {
		_, body := ask(t, "GET", service+"/metrics", "", "")
		require.Contains(t, body, "\nmneme_lost_keys_total 2\n")
	}
}

// The internal secret is for services of ours: another server that is asked does not get it, nor the caller's name.
func TestARerankerIsNotToldTheInternalSecret(t *testing.T) {
	t.Parallel()
	heads := make(chan http.Header, 8)
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heads <- r.Header.Clone()
		_, _ = io.WriteString(w, `{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":0}]}`)
	}))
	t.Cleanup(judge.Close)
	secret := strings.Repeat("secret-", 8)
	server := redistest.Start(t)
	u := start(t, "MNEME_AUTH_MODE=keys", "MNEME_INTERNAL_SECRET="+secret, "MNEME_REDIS_URL="+server.URL(),
		"MNEME_DATA_DIR="+t.TempDir(), "MNEME_RETRIEVAL_RERANK_URL="+judge.URL, "MNEME_RETRIEVAL_RERANK_TIMEOUT=1m")
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	key, _, err := access.NewStore(client).Create(t.Context(),
		access.Key{Name: "loader", Scopes: []access.Scope{access.Documents}})
	require.NoError(t, err)
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/v1/collections/docs", ""},
		{"PUT", "/v1/collections/docs/documents/1", `{"text":"The ferry costs 14 crowns."}`},
		{"PUT", "/v1/collections/docs/documents/2", `{"text":"The ferry costs more in July."}`},
		{"POST", "/v1/collections/docs/search", `{"query":"What does the ferry cost?"}`},
	} {
		status, body := ask(t, c.method, u.url(c.path), key, c.body)
		require.Less(t, status, 300, body)
	}
	require.NotEmpty(t, heads, "the search asked the reranker")
	for name, values := range <-heads {
		require.False(t, strings.HasPrefix(name, "Mneme-"), name)
		require.NotContains(t, strings.Join(values, " "), secret, name)
		require.NotContains(t, strings.Join(values, " "), access.Prefix, name)
	}
}

// The caller that erased, redacted, changed keys or read as an admin is found later, by ids alone.
func TestWhoDidWhatIsKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	u := start(t, "MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL="+server.URL(), "MNEME_DATA_DIR="+t.TempDir(),
		"MNEME_INTERNAL_SECRET="+strings.Repeat("secret-", 8))
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	key := func(scopes ...access.Scope) (string, string) {
		text, k, err := access.NewStore(client).Create(t.Context(), access.Key{Name: "k", Tenant: acme, Scopes: scopes})
		require.NoError(t, err)
		return text, k.ID
	}
	bot, botID := key(access.Chat, access.MemoryRead, access.MemoryWrite, access.Documents)
	admin, adminID := key(access.Admin)
	does := func(as, method, path, body string, want int) string {
		status, got := ask(t, method, u.url(path), as, body)
		require.Equal(t, want, status, "%s %s: %s", method, path, got)
		return got
	}
	for _, chat := range []string{"1", "2"} {
		does(bot, "POST", "/v1/chats/"+chat+"/messages", `{"message":"My locker code is plumtree."}`, 200)
	}
	does(bot, "GET", "/v1/chats/1/history", "", 200)
	does(bot, "DELETE", "/v1/chats/1/messages/none", "", 404)
	does(bot, "DELETE", "/v1/chats/1", "", 200)
	for _, nothing := range []string{"/v1/chats/1", "/v1/chats/1?scan=true", "/v1/chats/never", "/v1/chats/never/history",
		"/v1/chats/2/subagents/knowledge/history", "/v1/users/nobody"} {
		does(bot, "DELETE", nothing, "", 200)
	}
	first := gjson.Get(does(bot, "GET", "/v1/chats/2/history", "", 200), "messages.0.id").Str
	does(bot, "DELETE", "/v1/chats/2/messages/"+first+"?dry_run=true", "", 200)
	does(bot, "PUT", "/v1/chats/3/documents/a.txt", `{"text":"The vault is open."}`, 201)
	does(bot, "DELETE", "/v1/chats/3", "", 200)
	does(bot, "POST", "/v1/chats/5/messages", `{"message":"hi"}`, 200)
	does(bot, "POST", "/v1/chats/5/rewind", `{"to":null}`, 200)
	does(bot, "DELETE", "/v1/chats/5/history", "", 200)
	does(admin, "GET", "/v1/chats/2/history", "", 200)
	var made struct{ ID string }
	got := does(admin, "POST", "/v1/keys", `{"name":"x","scopes":["chat"]}`, 201)
	require.NoError(t, json.Unmarshal([]byte(got), &made))
	does(admin, "POST", "/v1/keys/"+made.ID+"/rotate", `{}`, 200)
	does(admin, "DELETE", "/v1/keys/"+made.ID, "", 200)

	kept := does(admin, "GET", "/v1/audit", "", 200)
	var page struct {
		Entries []struct{ Key, Action, Target string }
	}
	require.NoError(t, json.Unmarshal([]byte(kept), &page))
	require.Equal(t, []struct{ Key, Action, Target string }{
		{botID, "chat.erase", "chats/1"}, {botID, "chat.erase", "chats/3"},
		{botID, "chat.rewind", "chats/5/rewind"}, {botID, "history.erase", "chats/5/history"},
		{adminID, "memory.read", "chats/2/history"},
		{adminID, "key.create", "keys/" + made.ID}, {adminID, "key.rotate", "keys/" + made.ID + "/rotate"},
		{adminID, "key.revoke", "keys/" + made.ID},
	}, page.Entries)
	require.NotContains(t, kept, "plumtree") // a number may be part of a timestamp
	does(bot, "GET", "/v1/audit", "", 403)
	does(admin, "GET", "/v1/audit?tenant=other", "", 403)
}
