package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
)

// withKeys is a service with keys over a Redis of its own.
func withKeys(t *testing.T, environ ...string) *tenanted {
	t.Helper()
	server := redistest.Start(t)
	s := &tenanted{keys: map[string]string{}, ids: map[string]string{}, client: server.Client()}
	s.up = start(t, append([]string{"MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL=" + server.URL(),
		"MNEME_DATA_DIR=" + t.TempDir()}, environ...)...)
	return s
}

// key makes a key of a tenant's.
func (s *tenanted) key(tenant string, scopes ...access.Scope) string {
	s.t.Helper()
	of, err := memory.ParseTenant(tenant)
	require.NoError(s.t, err)
	text, _, err := access.NewStore(s.client).Create(s.t.Context(), access.Key{Name: tenant, Tenant: of, Scopes: scopes})
	require.NoError(s.t, err)
	return text
}

// strict is a vendor that binds its thinking to everything before it, and the settings of a mneme that asks it.
func strict(t *testing.T) (*upstreamtest.Server, []string) {
	vendor := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	return vendor, []string{"MNEME_PROXY_ACTIVE=claude",
		backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`),
		"MNEME_AGENTS_MASTER_REASONING_EFFORT=medium"}
}

// queueTurn has the vendor think for each step of a turn in which the master asks analytic.
func queueTurn(vendor *upstreamtest.Server, n string) {
	think, say := upstreamtest.Think, upstreamtest.Say
	vendor.Queue(
		upstreamtest.Reply(think("master thinks before "+n), upstreamtest.Use("analytic", `{"task":"Count `+n+`"}`)),
		upstreamtest.Reply(think("analytic thinks of "+n), say("There are "+n+".")),
		upstreamtest.Reply(think("master thinks after "+n), say("So: "+n+".")),
	)
}

// A chat from before there were keys goes on with them, and without them again: what its agents have thought comes
// back to their model each time.
func TestTurningKeysOnLosesNoThinking(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	vendor, environ := strict(t)
	server := redistest.Start(t)
	environ = append(environ, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+server.URL())
	for i, mode := range []string{"none", "keys", "keys", "none"} {
		u := start(t, append(environ, "MNEME_AUTH_MODE="+mode)...)
		key := ""
		if mode == "keys" { // another one each time
			var err error
			key, _, err = access.NewStore(server.Client()).Create(t.Context(),
				access.Key{Name: "bot", Scopes: []access.Scope{access.Chat}})
			require.NoError(t, err)
		}
		n := fmt.Sprint("round ", i)
		queueTurn(vendor, n)
		status, body := ask(t, "POST", u.url("/v1/chats/7/messages"), key, `{"message":"How many? (`+n+`)"}`)
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, "So: "+n+".", gjson.Get(body, "content").Str)
		u.stop()
	}
	require.Empty(t, vendor.Rejections(), "no call was refused")
	seen := vendor.Requests()
	require.Len(t, seen, 12)
	for i, r := range seen {
		require.Zero(t, r.Missing)
		for before := range i / 3 {
			if i%3 == 1 {
				require.Contains(t, string(r.Body), fmt.Sprint("analytic thinks of round ", before), "call %d", i)
				continue
			}
			require.Contains(t, string(r.Body), fmt.Sprint("master thinks before round ", before), "call %d", i)
			require.Contains(t, string(r.Body), fmt.Sprint("master thinks after round ", before), "call %d", i)
		}
	}
}

// The gateway keeps conversations under the tenant's name: in the middle of a tool loop a key is rotated, and another
// key of the tenant's goes on, for clients that never show thinking; it comes back to its vendor each time. A client
// that says the same under the same name in another tenant gets none of it.
func TestThinkingIsTheTenantsWhicheverKeyAsks(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	vendor, environ := strict(t)
	s := withKeys(t, environ...)
	admin := s.key("default", access.Admin)
	got := keyed{"POST", s.url("/v1/keys"), admin, `{"name":"editor","tenant":"acme","scopes":["models"]}`, nil}.do(t)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	id, key := gjson.Get(got.body, "id").Str, gjson.Get(got.body, "key").Str
	think, use := upstreamtest.Think, upstreamtest.Use
	const tools = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`
	messages := `{"role":"user","content":"Look twice."}`
	call := func(key string) gjson.Result {
		t.Helper()
		a := keyed{"POST", s.gateway("/v1/chat/completions"), key,
			`{"model":"m","reasoning_effort":"medium",` + tools + `,"messages":[` + messages + `]}`,
			[]string{"X-AG-Conversation-Id", "talk"}}.do(t)
		require.Equal(t, http.StatusOK, a.status, a.body)
		return gjson.Get(a.body, "choices.0.message")
	}
	goOn := func(m gjson.Result) { // with what the model said, but for its thinking, and the tool's result
		id := m.Get("tool_calls.0.id").Str
		require.NotEmpty(t, id, m.Raw)
		messages += fmt.Sprintf(`,{"role":"assistant","content":null,"tool_calls":%s},`+
			`{"role":"tool","tool_call_id":%q,"content":"nothing"}`, m.Get("tool_calls").Raw, id)
	}
	vendor.Queue(upstreamtest.Reply(think("acme thinks first"), use("look", `{}`)))
	goOn(call(key))

	rotated := keyed{"POST", s.url("/v1/keys/" + id + "/rotate"), admin, `{}`, nil}.do(t)
	require.Equal(t, http.StatusOK, rotated.status, rotated.body)
	next := gjson.Get(rotated.body, "key").Str
	require.NotEqual(t, key, next)
	vendor.Queue(upstreamtest.Reply(think("acme thinks twice"), use("look", `{}`)))
	goOn(call(next))
	require.Contains(t, string(vendor.Last().Body), "acme thinks first", "of the key before the rotation")
	require.Zero(t, vendor.Last().Missing)

	other := s.key("acme", access.Models)
	call(other)
	for _, thought := range []string{"acme thinks first", "acme thinks twice"} {
		require.Contains(t, string(vendor.Last().Body), thought, "of another key of the tenant's")
	}
	require.Zero(t, vendor.Last().Missing)

	for _, stranger := range []string{"beta", "default"} {
		call(s.key(stranger, access.Models))
		require.NotContains(t, string(vendor.Last().Body), "acme thinks", stranger)
		require.NotContains(t, string(vendor.Last().Body), "signature", stranger)
	}
	require.Empty(t, vendor.Rejections())

	// Chats of one id, in which the same is said: each tenant's agents go on from their own thinking.
	for _, n := range []string{"one", "two"} {
		for _, tenant := range []string{"acme", "beta", "default"} {
			if s.keys[tenant] == "" {
				s.keys[tenant] = s.key(tenant, access.Chat)
			}
			queueTurn(vendor, n+" of "+tenant)
			said := s.must(tenant, "POST", "/v1/chats/7/messages", `{"message":"How many, `+n+`?"}`)
			require.Contains(t, said.body, "So: "+n+" of "+tenant)
			for _, other := range []string{"acme", "beta", "default"} {
				thought := "master thinks before one of " + other
				require.Equal(t, other == tenant, strings.Contains(string(vendor.Last().Body), thought), "%s: %s", tenant, thought)
			}
		}
	}
	require.Empty(t, vendor.Rejections())
}
