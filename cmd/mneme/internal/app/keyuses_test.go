package app_test

import (
	"fmt"
	"net/http"
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

// What a key has spent is in the list of keys and in the metrics, which have those keys alone that were used last.
func TestWhatKeysHaveSpent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	vendor := counting(t, func(string) {})
	u := start(t, "MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL="+server.URL(), "MNEME_DATA_DIR="+t.TempDir(),
		"MNEME_PROXY_ACTIVE=v", "MNEME_PROXY_TEAMMATE_BACKEND=v",
		backend("v", "openai", vendor.URL+"/v1", `model_map: {"*": gpt-4.1}`))
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	store := access.NewStore(client)
	limits, err := access.ParseLimits("2runs,600/h", "1000000tokens/day,20usd/total")
	require.NoError(t, err)
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	text, key, err := store.Create(t.Context(), access.Key{Name: "bot", Tenant: acme, Limits: limits,
		Scopes: []access.Scope{access.Chat}})
	require.NoError(t, err)
	for range 200 {
		_, _, err = store.Create(t.Context(), access.Key{Name: "bot", Limits: limits, Scopes: []access.Scope{access.Chat}})
		require.NoError(t, err)
	}
	admin, _, err := store.Create(t.Context(), access.Key{Name: "admin", Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)
	status, body := ask(t, "POST", u.url("/v1/chats/1/messages"), text, `{"message":"Count."}`)
	require.Equal(t, http.StatusOK, status, body)

	var uses gjson.Result
	require.Eventually(t, func() bool { // charges are written behind the call
		_, body = ask(t, "GET", u.url("/v1/keys"), admin, "")
		uses = gjson.Get(body, `keys.#(id=="`+key.ID+`").uses`)
		return uses.Get("0.spent").Int() >= 330 && uses.Get("#(held>0)#.held").String() == "[]"
	}, time.Minute, 50*time.Millisecond, body)
	calls := uses.Get("0.spent").Int() / 110
	require.Equal(t, `["1000000tokens/day","20usd/total","2runs","600/h"]`, uses.Get("#.limit").Raw)
	require.Equal(t, calls*(40*2+60/2+10*8), uses.Get("1.spent").Int(), "millionths of a USD")
	require.Equal(t, calls, uses.Get("3.spent").Int())
	require.True(t, uses.Get("0.resets").Exists())
	require.False(t, uses.Get("1.resets").Exists())
	require.False(t, gjson.Get(body, `keys.#(name=="admin").uses`).Exists())

	dollars := float64(uses.Get("1.spent").Int()) / 1e6
	require.Eventually(t, func() bool { // they are read anew every few seconds
		body = metrics(t, u.addrs.Webmemory)
		return strings.Contains(body, fmt.Sprintf(`mneme_key_limit_spent{key=%q,per="total",unit="usd"} %v`, key.ID, dollars))
	}, time.Minute, 100*time.Millisecond, body)
	for _, line := range []string{`_limit{key=%q,per="total",unit="usd"} 20`, `_limit_held{key=%q,per="",unit="runs"} 0`,
		`_limit{key=%q,per="h",unit="requests"} 600`, `_limit_resets_seconds{key=%q,per="day",unit="tokens"} `} {
		require.Contains(t, body, "\nmneme_key"+fmt.Sprintf(line, key.ID))
	}
	require.Equal(t, 200, strings.Count(body, `mneme_key_limit{`)/4)
	require.NotContains(t, body, `mneme_key_limit_resets_seconds{key="`+key.ID+`",per="total"`)
}
