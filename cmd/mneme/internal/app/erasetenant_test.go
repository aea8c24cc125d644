package app_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/testtier"
	"mneme/memory"
)

// contents is what a key of Redis holds, as text.
func contents(t *testing.T, client *redis.Client, key string) string {
	t.Helper()
	ctx := t.Context()
	kind, err := client.Type(ctx, key).Result()
	require.NoError(t, err)
	var value any
	switch kind {
	case "string":
		value, err = client.Get(ctx, key).Result()
	case "hash":
		value, err = client.HGetAll(ctx, key).Result()
	case "zset":
		value, err = client.ZRangeWithScores(ctx, key, 0, -1).Result()
	case "set":
		value, err = client.SMembers(ctx, key).Result()
	case "stream":
		value, err = client.XRange(ctx, key, "-", "+").Result()
	}
	if errors.Is(err, redis.Nil) || kind == "none" { // it has just expired
		return ""
	}
	require.NoError(t, err, key)
	return fmt.Sprint(value)
}

// filled gives a tenant something of every kind. Its texts have the word.
func filled(t *testing.T, s *tenanted, of, word string) {
	t.Helper()
	say := func(chat, text, more string) string {
		return s.must(of, "POST", "/v1/chats/"+chat+"/messages", fmt.Sprintf(`{"message":%q%s}`, text, more)).body
	}
	say("c1", "My locker number is 4711-"+word+".", `,"user":"ann"`)
	say("c1", "My boat is called "+word+"-boat.", `,"agent_version":"analytic"`)
	say("c2", "What is my "+word+"?", `,"user":"bob"`)
	history := gjson.Get(s.must(of, "GET", "/v1/chats/c1/history", "").body, "messages")
	say("c1", "This is taken back: "+word+"-aside.", "")
	s.must(of, "POST", "/v1/chats/c1/rewind", fmt.Sprintf(`{"to":%q}`, history.Get("1.id").Str))
	s.must(of, "POST", "/v1/chats/c1/notes", `{"text":"note `+word+`"}`)
	s.must(of, "POST", "/v1/users/ann/notes", `{"text":"ann's `+word+`"}`)
	s.must(of, "POST", "/v1/users/carol/notes", `{"text":"carol's `+word+`, who posted nowhere"}`)
	s.must(of, "PUT", "/v1/users/dora", `{"time_zone":"Asia/Tokyo"}`)
	s.must(of, "PATCH", "/v1/chats/c2", `{"title":"Title `+word+`","metadata":{"of":"`+word+`"}}`)
	s.must(of, "PUT", "/v1/collections/papers", "")
	s.must(of, "PUT", "/v1/collections/papers/documents/ferry", "The ferry is "+word+".", "Content-Type", "text/markdown")
	s.must(of, "PUT", "/v1/chats/c1/documents/tram", "The tram is "+word+".", "Content-Type", "text/markdown")
	s.must(of, "PUT", "/v1/chats/only-papers/documents/bus", "The bus is "+word+".", "Content-Type", "text/markdown")
	light := `use light {\"x\":\"` + word + `\"}`
	tools := `,"tools":[{"name":"light","description":"Lights.","parameters":{"type":"object"}}]}`
	s.must(of, "POST", "/v1/chats/waits/messages", `{"message":"`+light+`"`+tools)
	s.must(of, "POST", "/v1/oneshot", `{"message":"`+light+`"`+tools)
	s.must(of, "POST", s.gateway("/v1/responses"), `{"model":"m","input":"`+word+`","store":true}`,
		"X-Ag-Conversation-Id", "talk-"+word[:1])
	s.must(of, "POST", s.gateway("/v1/chat/completions"), `{"model":"m","messages":[{"role":"user","content":"`+word+`"}]}`)
}

// sharedKeys are keys that hold what others have too, or that pass by themselves.
var sharedKeys = regexp.MustCompile(`^(mneme:(keys|key:|tenants|erasing|erasures|audit$|processes|epoch|limits|usage|stored)|` +
	`turns:open|proxy:(usage|turns:erased|turns:born)|documents:\{default)|:turn$`)

// standing is what Redis holds of the others.
func standing(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	out := map[string]string{}
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if !sharedKeys.MatchString(key) && !strings.Contains(key, "acme") {
			out[key] = contents(t, client, key)
		}
	}
	return out
}

// remains are the keys that name the tenant acme or hold its word, and what of them is not a tombstone: of a chat, of a
// conversation at the gateway, or in the list of erasures.
func remains(t *testing.T, client *redis.Client) (tombstones, others []string) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		text := contents(t, client, key)
		require.NotContains(t, key+text, "rosebud")
		if !strings.Contains(key+text, "acme") {
			continue
		}
		life, err := client.TTL(t.Context(), key).Result()
		require.NoError(t, err)
		fields, _ := client.HKeys(t.Context(), key).Result()
		switch {
		case key == "mneme:erasures", key == "proxy:turns:erased": // kept for 30 days, and for an hour
		case strings.HasPrefix(key, "mneme:usage:{acme}:seen:") && life > 0: // random ids of calls, for a day
			continue
		case key == "mneme:audit": // the caller that erased it
			continue
		case strings.HasSuffix(key, ":turn") && life > 0: // the lease of a process that was killed
			continue
		case strings.HasSuffix(key, ":meta") && life > 0:
			require.ElementsMatch(t, []string{"turn", "erased", "cut"}, fields, key)
		case strings.HasPrefix(key, "proxy:turns:{acme:") && life > 0:
			for _, f := range fields {
				require.True(t, f == "erased" || strings.HasPrefix(f, "route:"), "%s of %s", f, key)
			}
		default:
			others = append(others, key+" "+text)
			continue
		}
		tombstones = append(tombstones, key)
	}
	return tombstones, others
}

// admin makes a key with the scope admin.
func (s *tenanted) admin(of memory.Tenant) (text, id string) {
	s.t.Helper()
	text, k, err := access.NewStore(s.client).Create(s.t.Context(), access.Key{Name: "admin", Tenant: of,
		Scopes: []access.Scope{access.Admin}})
	require.NoError(s.t, err)
	return text, k.ID
}

func TestATenantIsExportedAndErased(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := withTenants(t, "acme", "beta", "default")
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	beta, err := memory.ParseTenant("beta")
	require.NoError(t, err)
	operator, operatorID := s.admin(memory.Tenant{})
	own, _ := s.admin(acme)
	neighbour, _ := s.admin(beta)
	filled(t, s, "acme", "rosebud")
	filled(t, s, "beta", "tulip")
	filled(t, s, "default", "daisy")
	s.must("acme", "DELETE", "/v1/chats/c1/messages/"+
		gjson.Get(s.must("acme", "GET", "/v1/chats/c1/history", "").body, "messages.0.id").Str, "") // an entry of the audit

	for _, c := range []struct {
		method, path, key string
		status            int
		says              string
	}{
		{"GET", "/v1/tenants", s.keys["acme"] + "x", 401, ""},
		{"DELETE", "/v1/tenants/default", operator, 409, "default_tenant"},
		{"DELETE", "/v1/tenants/A_B", operator, 400, "bad_request"},
		{"GET", "/v1/tenants/nobody/export", operator, 404, "unknown_tenant"},
		{"GET", "/v1/tenants/acme/export", neighbour, 404, "unknown_tenant"},
		{"GET", "/v1/tenants/default/export", neighbour, 404, "unknown_tenant"},
		{"DELETE", "/v1/tenants/acme", neighbour, 404, "unknown_tenant"},
		{"DELETE", "/v1/tenants/acme", s.keys["default"], 403, "admin"},
	} {
		status, body := ask(t, c.method, s.url(c.path), c.key, "")
		require.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, body)
		require.Contains(t, body, c.says)
	}
	status, body := ask(t, "GET", s.url("/v1/tenants"), operator, "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `["acme","beta","default"]`, gjson.Get(body, "tenants.#.tenant").Raw)
	require.Equal(t, `[3,3,3]`, gjson.Get(body, "tenants.#.chats").Raw, body)
	require.Equal(t, `[2,2,2]`, gjson.Get(body, "tenants.#.keys").Raw, body)
	_, body = ask(t, "GET", s.url("/v1/tenants"), own, "")
	require.Equal(t, `["acme"]`, gjson.Get(body, "tenants.#.tenant").Raw)

	status, export := ask(t, "GET", s.url("/v1/tenants/acme/export"), own, "")
	require.Equal(t, http.StatusOK, status, export)
	kinds, chat := map[string]int64{}, ""
	var last gjson.Result
	for line := range strings.Lines(export) {
		last = gjson.Parse(line)
		kinds[last.Get("kind").Str]++
		require.False(t, last.Get("key.hash").Exists())
		if last.Get("kind").Str == "chat_line" && last.Get("chat").Str == "c1" {
			chat += last.Get("line").Raw + "\n"
		}
	}
	require.NotContains(t, export, "tulip")
	require.NotContains(t, export, "daisy")
	require.Equal(t, "end", last.Get("kind").Str)
	delete(kinds, "end")
	for kind, n := range kinds {
		require.Equal(t, n, last.Get("lines."+kind).Int(), kind)
	}
	require.Equal(t, int64(3), kinds["chat"], export)
	require.Equal(t, int64(3), kinds["document"])
	require.Equal(t, int64(2), kinds["user_note"])
	require.Equal(t, int64(1), kinds["user"])
	require.Contains(t, export, `{"kind":"user","user":"dora","time_zone":"Asia/Tokyo"}`)
	require.Positive(t, kinds["audit"])
	require.Positive(t, kinds["key"])
	for _, text := range []string{"carol's rosebud", "ann's rosebud", "note rosebud", "The ferry is rosebud", "The tram is",
		"The bus is", "Title rosebud"} {
		require.Contains(t, export, text)
	}
	_, alone := ask(t, "GET", s.url("/v1/chats/c1/export"), own, "")
	require.Equal(t, alone, chat, "what is exported of a chat is what its own export gives")

	before := standing(t, s.client)
	done := gjson.Result{}
	for range 20 {
		status, body = ask(t, "DELETE", s.url("/v1/tenants/acme"), own, "")
		require.Equal(t, http.StatusOK, status, body)
		if done = gjson.Parse(body); done.Get("done").Bool() {
			break
		}
	}
	require.True(t, done.Get("done").Bool(), body)
	after := standing(t, s.client)
	for key, was := range before {
		require.Equal(t, was, after[key], key)
	}
	tombstones, others := remains(t, s.client)
	require.Empty(t, others)
	t.Log(tombstones)
	status, _ = ask(t, "GET", s.url("/v1/chats"), own, "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = ask(t, "GET", s.url("/v1/chats"), s.keys["acme"], "")
	require.Equal(t, http.StatusUnauthorized, status)
	_, body = ask(t, "GET", s.url("/v1/tenants"), operator, "")
	require.Equal(t, `["beta","default"]`, gjson.Get(body, "tenants.#.tenant").Raw)
	_, body = ask(t, "GET", s.url("/v1/audit?limit=1000"), operator, "")
	require.Contains(t, body, `"action":"tenant.erase.begin","target":"tenants/acme"`)
	require.Contains(t, body, `"action":"tenant.erase","target":"tenants/acme"`)
	require.NotEqual(t, "", operatorID)
	status, body = ask(t, "DELETE", s.url("/v1/tenants/acme"), operator, "")
	require.Equal(t, http.StatusOK, status, "it may be asked for again: %s", body)
	require.True(t, gjson.Get(body, "done").Bool())
}

// A process that erases a tenant is killed again and again, at any moment of it. The next process that is asked then
// goes on, and in the end nothing is left, here or through a replica that had the tenant's chats in memory, and all
// else is as it was.
func TestATenantsErasureOutlivesKills(t *testing.T) {
	t.Parallel()
	s := withTenants(t, "acme", "beta", "default")
	operator, _ := s.admin(memory.Tenant{})
	filled(t, s, "acme", "rosebud")
	filled(t, s, "beta", "tulip")
	for i := range 20 {
		s.must("acme", "POST", fmt.Sprintf("/v1/chats/more-%d/messages", i), `{"message":"My tent is called rosebud."}`)
	}
	before := standing(t, s.client)
	killed := newStack(t, "MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL="+s.redis, "MNEME_INTERNAL_SECRET="+replicasSecret)
	erase := func() (int, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+killed.web+"/v1/tenants/acme", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+operator)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw), err
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	begun := 0
	for range 5 {
		killed.start("up")
		answered := make(chan bool, 1)
		go func() {
			_, body, err := erase()
			answered <- err == nil && gjson.Get(body, "done").Bool()
		}()
		select {
		case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
		case <-answered:
		}
		killed.kill("up")
		if s.client.ZScore(t.Context(), "mneme:erasing", "acme").Err() == nil {
			begun++
		}
	}
	require.Positive(t, begun, "no kill came into the erasure")
	killed.start("up")
	for done := false; !done; {
		status, body, err := erase()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, body)
		done = gjson.Get(body, "done").Bool()
	}
	after := standing(t, s.client)
	for key, was := range before {
		require.Equal(t, was, after[key], key)
	}
	_, others := remains(t, s.client)
	require.Empty(t, others)
	status, body := ask(t, "GET", s.url("/v1/tenants"), operator, "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `["beta","default"]`, gjson.Get(body, "tenants.#.tenant").Raw)
}
