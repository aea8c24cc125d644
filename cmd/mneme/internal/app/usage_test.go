package app_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
	t.Parallel()
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
	}, time.Minute, 100*time.Millisecond, body)
	_, body = ask(t, "GET", one.url("/v1/usage?by=key&since=1d"), own, "")
	require.Contains(t, body, `"name":"`+id+`"`)
	_, body = ask(t, "GET", one.url("/v1/usage?tenant=acme"), admin, "")
	require.Contains(t, body, `"name":"acme"`)
	for _, path := range []string{"/v1/usage", "/v1/usage?chat=12345"} {
		status, body = ask(t, "GET", one.url(path), other, "")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"rows":[]}`, body, path)
	}
	status, _ = ask(t, "GET", one.url("/v1/usage?tenant=acme"), other, "")
	require.Equal(t, http.StatusForbidden, status)
	status, _ = ask(t, "GET", one.url("/v1/usage?tenant=other"), own, "")
	require.Equal(t, http.StatusForbidden, status)
	status, body = ask(t, "GET", one.url("/v1/usage?by=colour"), own, "")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "by must be")
}

// counting is a vendor at which each call takes 100 tokens, of which it had cached 60, and gives 10. An agent that
// may give tasks to analytic does so, once. see is shown each request.
func counting(t *testing.T, see func(body string)) *httptest.Server {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		see(string(body))
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
	return vendor
}

// What a run says it cost, with its subagent's calls, is what the counters of its chat say, by the price of each model.
func TestWhatAChatCost(t *testing.T) {
	t.Parallel()
	vendor := counting(t, func(string) {})
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=v", "MNEME_PROXY_TEAMMATE_BACKEND=v",
		backend("v", "openai", vendor.URL+"/v1", `model_map: {"*": gpt-4.1}`))
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
	}, time.Minute, 50*time.Millisecond)
	status, body := ask(t, "DELETE", u.url("/v1/chats/12345"), "", "")
	require.Equal(t, http.StatusOK, status, body)
	_, rows := ask(t, "GET", u.url("/v1/usage?by=chat"), "", "")
	require.JSONEq(t, `{"rows":[]}`, rows, "the chat is erased")
	_, rows = ask(t, "GET", u.url("/v1/usage"), "", "")
	require.Equal(t, cost, gjson.Get(rows, "rows.0.cost_micro_usd").Int(), "the tenant's total stays")
}

// What a run took stays with its answer when its events are gone: any process tells it then, models are not told, and
// it goes where the answer goes.
func TestARecordOutlivesTheEventsOfItsRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	look := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = look.Close() })
	var asked atomic.Value
	vendor := counting(t, func(body string) { asked.Store(body) })
	environ := func() []string {
		return []string{"MNEME_REDIS_URL=" + server.URL(), "MNEME_DATA_DIR=" + t.TempDir(), "MNEME_PROXY_ACTIVE=v",
			"MNEME_PROXY_TEAMMATE_BACKEND=v", backend("v", "openai", vendor.URL+"/v1", `model_map: {"*": gpt-4.1}`)}
	}
	one := start(t, environ()...)
	say := func(text string) (run string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", one.url("/v1/chats/12345/messages"),
			strings.NewReader(`{"message":"`+text+`"}`))
		require.NoError(t, err)
		req.Header.Set("Accept", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
		return gjson.GetBytes(body, "run_id").String()
	}
	run := say("Count.")
	stored := gjson.Get(look.Get(t.Context(), "chat_history:12345").Val(), "#(role==\"assistant\").run").Raw
	const calls = 3
	cost := int64(calls * (40*2 + 60/2 + 10*8))
	require.JSONEq(t, fmt.Sprintf(`{"usage": {"input_tokens": %d, "output_tokens": %d, "cached_tokens": %d,
		"cost_micro_usd": %d}, "calls": %d, "model": "gpt-4.1", "backend": "v"}`, calls*100, calls*10, calls*60, cost, calls), stored)
	require.LessOrEqual(t, len(stored), 300)
	say("Again.")
	require.Contains(t, asked.Load(), "Done.")
	require.NotContains(t, asked.Load(), "cost_micro_usd")

	require.NoError(t, look.Del(t.Context(), "events:12345:"+run, "run:12345:"+run).Err())
	other := start(t, environ()...)
	for _, path := range []string{"/v1/chats/12345/runs/" + run + "/trace", "/v1/chats/12345/history?runs=true"} {
		status, body := ask(t, "GET", other.url(path), "", "")
		require.Equal(t, http.StatusOK, status, body)
		if strings.Contains(path, "runs=true") {
			body = gjson.Get(body, "runs."+run).Raw
			require.Equal(t, "count", gjson.Get(body, "delegations.0.task").String(), body)
		} else {
			require.Equal(t, `["message","delegation","answer"]`, gjson.Get(body, "steps.#.kind").Raw, body)
		}
		require.Equal(t, "completed", gjson.Get(body, "outcome").String(), body)
		require.Equal(t, cost, gjson.Get(body, "usage.cost_micro_usd").Int(), body)
		require.JSONEq(t, stored, gjson.Get(body, "record").Raw)
	}
	status, body := ask(t, "GET", other.url("/v1/chats/12345/runs/AAAAAAAAAAAAAAAAAAAAAAAAAA/trace"), "", "")
	require.Equal(t, http.StatusNotFound, status, body)

	_, exported := ask(t, "GET", other.url("/v1/chats/12345/export"), "", "")
	status, body = ask(t, "POST", other.url("/v1/chats/copy/import"), "", exported)
	require.Equal(t, http.StatusCreated, status, body)
	copied := look.Get(t.Context(), "chat_history:copy").Val()
	require.Equal(t, stored, gjson.Get(copied, "#(role==\"assistant\").run").Raw)
	id := gjson.Get(copied, "#(role==\"assistant\").id").String()
	status, body = ask(t, "DELETE", other.url("/v1/chats/copy/messages/"+id), "", "")
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, 1, strings.Count(look.Get(t.Context(), "chat_history:copy").Val(), `"run":`), "the second answer's")
}
