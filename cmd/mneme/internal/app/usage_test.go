package app_test

import (
	"fmt"
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

// What a run says it cost, with its subagent's calls, is what the counters of its chat say, by the price of each model.
func TestWhatAChatCost(t *testing.T) {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		said := `{"content":"Done."}`
		if gjson.GetBytes(body, "tools.#(function.name==\"analytic\")").Exists() &&
			!gjson.GetBytes(body, `messages.#(role=="tool")`).Exists() {
			said = `{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"analytic",` +
				`"arguments":"{\"task\":\"count\"}"}}]}`
		}
		finish := "stop"
		if strings.Contains(said, "tool_calls") {
			finish = "tool_calls"
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n"+
			"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110,"+
			"\"prompt_tokens_details\":{\"cached_tokens\":60}}}\n\ndata: [DONE]\n\n", said, finish)
	}))
	t.Cleanup(vendor.Close)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=v", "MNEME_PROXY_TEAMMATE_BACKEND=v",
		"MNEME_PROXY_BACKENDS_V_KIND=openai", "MNEME_PROXY_BACKENDS_V_BASE_URL="+vendor.URL+"/v1",
		"MNEME_PROXY_BACKENDS_V_MODEL_MAP=*=gpt-4.1")
	req, err := http.NewRequestWithContext(t.Context(), "POST", u.url("/v1/chats/12345/messages"),
		strings.NewReader(`{"message":"Count."}`))
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	said := string(text)
	cost := gjson.Get(said, "usage.cost_micro_usd").Int()
	calls := gjson.Get(said, "usage.input_tokens").Int() / 100
	require.GreaterOrEqual(t, calls, int64(3), said)
	require.Equal(t, calls*(40*2+60/2+10*8), cost, said)
	require.Eventually(t, func() bool { // records are written behind the call
		_, rows := ask(t, "GET", u.url("/v1/usage?chat=12345"), "", "")
		return gjson.Get(rows, "rows.0.cost_micro_usd").Int() == cost && gjson.Get(rows, "rows.0.calls").Int() == calls
	}, 20*time.Second, 50*time.Millisecond)
	status, body := ask(t, "DELETE", u.url("/v1/chats/12345"), "", "")
	require.Equal(t, http.StatusOK, status, body)
	_, rows := ask(t, "GET", u.url("/v1/usage?by=chat"), "", "")
	require.JSONEq(t, `{"rows":[]}`, rows, "the chat is erased")
	_, rows = ask(t, "GET", u.url("/v1/usage"), "", "")
	require.Equal(t, cost, gjson.Get(rows, "rows.0.cost_micro_usd").Int(), "the tenant's total stays")
}
