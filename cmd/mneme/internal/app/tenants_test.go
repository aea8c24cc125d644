package app_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/webmemory/openapi"
)

// keyed is one request of a key's.
type keyed struct {
	method, url, key, body string
	header                 []string // name, value, …
}

// answered is what came back.
type answered struct {
	status int
	header http.Header
	body   string
}

// do sends a request.
func (c keyed) do(t *testing.T) answered {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(c.body))
	require.NoError(t, err)
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	for i := 0; i+1 < len(c.header); i += 2 {
		req.Header.Set(c.header[i], c.header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err, "%s %s", c.method, c.url)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err, "%s %s", c.method, c.url)
	return answered{resp.StatusCode, resp.Header, string(raw)}
}

// tenanted is a service with keys over a Redis, and the keys of some tenants that may do everything.
type tenanted struct {
	*up
	also   *up // another replica, nil for none
	turns  atomic.Int64
	client *redis.Client
	redis  string            // its URL
	keys   map[string]string // texts by the tenant
	ids    map[string]string // of the keys, by the tenant
}

func withTenants(t *testing.T, names ...string) *tenanted {
	t.Helper()
	return withTenantsAnd(t, nil, names...)
}

// withTenantsAnd is withTenants with settings.
func withTenantsAnd(t *testing.T, environ []string, names ...string) *tenanted {
	t.Helper()
	server := redistest.Start(t)
	s := &tenanted{keys: map[string]string{}, ids: map[string]string{}}
	s.redis = server.URL()
	s.up = s.replica(t, environ...)
	s.client = redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = s.client.Close() })
	for _, name := range names {
		of, err := memory.ParseTenant(name)
		require.NoError(t, err)
		scopes := access.Scopes
		if (of == memory.Tenant{}) { // its admin is the operator, and may more
			scopes = slices.DeleteFunc(slices.Clone(scopes), func(s access.Scope) bool { return s == access.Admin })
		}
		text, k, err := access.NewStore(s.client).Create(t.Context(), access.Key{Name: name, Tenant: of, Scopes: scopes})
		require.NoError(t, err)
		s.keys[name], s.ids[name] = text, k.ID
	}
	return s
}

const replicasSecret = "0123456789abcdef0123456789abcdef0123456789abcdef"

func (s *tenanted) replica(t *testing.T, environ ...string) *up {
	t.Helper()
	return start(t, append(environ, "MNEME_AUTH_MODE=keys", "MNEME_REDIS_URL="+s.redis, "MNEME_DATA_DIR="+t.TempDir(),
		"MNEME_RECALL_EVERYWHERE=100", "MNEME_INTERNAL_SECRET="+replicasSecret)...)
}

// join has another replica answer, in turns with the first.
func (s *tenanted) join() { s.also = s.replica(s.t) }

func (s *tenanted) answering() *up {
	if s.also != nil && s.turns.Add(1)%2 == 0 {
		return s.also
	}
	return s.up
}

func (s *tenanted) url(path string) string { return s.answering().url(path) }

func (s *tenanted) gateway(path string) string { return "http://" + s.answering().addrs.Proxy + path }

// must sends a request of a tenant's that succeeds.
func (s *tenanted) must(tenant, method, path, body string, header ...string) answered {
	s.t.Helper()
	url := s.url(path)
	if strings.HasPrefix(path, "http:") {
		url = path
	}
	got := keyed{method, url, s.keys[tenant], body, header}.do(s.t)
	require.Less(s.t, got.status, 300, "%s %s: %s", method, path, got.body)
	return got
}

// behind are keys of what is written behind a call, whenever that is.
var behind = regexp.MustCompile(`^(mneme:key|mneme:tenants$|mneme:limits|mneme:usage|mneme:audit|mneme:stored)|:turn$`)

// dump is what Redis holds beside what changes without a request, or is of the keys.
func dump(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	out := map[string]string{}
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if !behind.MatchString(key) && key != "mneme:processes" && key != "turns:open" && key != "mneme:erasures" &&
			key != "proxy:turns:erased" && key != "proxy:turns:born" && key != "mneme:chats" {
			out[key], err = client.Dump(t.Context(), key).Result()
			require.NoError(t, err)
		}
	}
	return out
}

// What is another's in each of these is not there for a tenant: the answer is that to the same request about ids that
// do not exist, and the other's data stays as it was, byte for byte.
func TestNobodyCrossesFromOneTenantToAnother(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := withTenants(t, "acme", "beta", "default")
	owned := map[string]string{} // what acme has, by the name in braces below
	s.must("acme", "POST", "/v1/chats/acme-chat/messages", `{"message":"My locker number is 4711-secret.","user":"ann"}`,
		"Idempotency-Key", "acme-idem")
	owned["run"] = s.must("acme", "POST", "/v1/chats/acme-chat/messages", `{"message":"What is my locker number?"}`,
		"Idempotency-Key", "acme-idem-2").header.Get("Mneme-Run-Id")
	s.must("acme", "POST", "/v1/chats/acme-chat/messages",
		`{"message":"My boat is called secret-boat.","agent_version":"analytic"}`)
	owned["note"] = gjson.Get(s.must("acme", "POST", "/v1/chats/acme-chat/notes", `{"text":"secret-note"}`).body, "id").Str
	s.must("acme", "POST", "/v1/chats/acme-chat/subagents/analytic/notes", `{"text":"secret-note of the subagent"}`)
	history := gjson.Get(s.must("acme", "GET", "/v1/chats/acme-chat/history", "").body, "messages")
	owned["message"] = history.Get("0.id").Str
	s.must("acme", "POST", "/v1/chats/acme-chat/messages", `{"message":"This is taken back: secret-aside."}`)
	s.must("acme", "POST", "/v1/chats/acme-chat/rewind", fmt.Sprintf(`{"to":%q}`, history.Get("1.id").Str))
	aside := s.must("acme", "GET", "/v1/chats/acme-chat/set-aside", "").body
	owned["aside"] = gjson.Get(aside, "set_aside.0.id").Str
	s.must("acme", "PUT", "/v1/collections/acme-docs", "")
	s.must("acme", "PUT", "/v1/collections/acme-docs/documents/acme-paper", "The ferry is secret-ferry.",
		"Content-Type", "text/markdown")
	s.must("acme", "PUT", "/v1/chats/acme-chat/documents/acme-paper", "The tram is secret-tram.",
		"Content-Type", "text/markdown")
	tool := `,"tools":[{"name":"light","description":"Lights.","parameters":{"type":"object"}}]}`
	light := `{"message":"use light {\"secret\":\"lamp\"}"` + tool
	waits := s.must("acme", "POST", "/v1/chats/acme-waits/messages", light).body
	owned["waiting"], owned["wait"] = gjson.Get(waits, "run_id").Str, gjson.Get(waits, "waits.0.id").Str
	stored := s.must("acme", "POST", s.gateway("/v1/responses"), `{"model":"m","input":"secret-input","store":true}`,
		"X-Ag-Conversation-Id", "acme-conversation").body
	owned["response"], owned["item"] = gjson.Get(stored, "id").Str, gjson.Get(stored, "output.0.id").Str
	owned["keyid"] = s.ids["acme"]
	list := gjson.Get(s.must("acme", "GET", "/v1/chats?order=used&limit=1", "").body, "next_cursor").Str
	for name, id := range owned {
		require.NotEmpty(t, id, name)
	}
	require.NotEmpty(t, list)
	owned["chat"], owned["waitschat"], owned["docs"], owned["paper"] = "acme-chat", "acme-waits", "acme-docs", "acme-paper"
	owned["conversation"], owned["idem"], owned["cursor"] = "acme-conversation", "acme-idem", list
	nobodys := map[string]string{"cursor": list}
	for name, id := range owned {
		if name != "cursor" && name != "wait" {
			nobodys[name] = id[:1] + strings.Map(func(r rune) rune { // of the same shape
				switch {
				case r >= 'a' && r <= 'y', r >= 'A' && r <= 'Y', r >= '2' && r <= '6':
					return r + 1
				}
				return r
			}, id[1:])
			require.NotEqual(t, id, nobodys[name])
		} else {
			nobodys[name] = id
		}
	}

	nobodys["cursor"] = strings.NewReplacer(owned["chat"], nobodys["chat"], owned["waitschat"], nobodys["waitschat"]).
		Replace(list)
	yes := `{"answers":[{"id":"{wait}","decision":"approve","result":{"x":1}}]}`
	attempts := []string{
		// What reads comes first.
		"GET /v1/chats/{chat}", "GET /v1/chats/acme%2F{chat}", "GET /v1/chats/acme/{chat}",
		"GET /v1/chats/..%2Facme%2F{chat}", "GET /v1/chats/acme%252F{chat}", "GET /v1/chats/acme%5C{chat}",
		"GET /v1/chats/x/../acme%2F{chat}", "GET /v1/chats/acme:{chat}", "GET /v1/chats/{chat}%00",
		"GET //v1/chats/{chat}", "GET /v1/chats/{chat}/", "GET /v1/chats/{chat}/history",
		"GET /v1/chats/acme%2F{chat}/history", "GET /v1/chats/{chat}/history?after={message}",
		"GET /v1/chats/{chat}/history?before={message}", "GET /v1/chats/{chat}/history?cursor={message}",
		"GET /v1/chats/{chat}/history?all=true", "GET /v1/chats/{chat}/subagents/analytic/history",
		"GET /v1/chats/acme%2F{chat}/subagents/analytic/history",
		"GET /v1/chats/x/subagents/analytic:acme%2F{chat}/history", "GET /v1/chats/{chat}/notes",
		"GET /v1/chats/{chat}/subagents/analytic/notes", "GET /v1/chats/{chat}/export",
		"GET /v1/chats/acme%2F{chat}/export", "GET /v1/chats/{chat}/recall?q=locker",
		"GET /v1/chats/{chat}/recall?query=locker", "GET /v1/users/ann/recall?query=locker",
		"GET /v1/users/acme%2Fann/recall?query=locker", "GET /v1/chats/{chat}/set-aside", "GET /v1/chats/x/set-aside",
		"GET /v1/chats/{chat}/runs/{run}/events", "GET /v1/chats/{chat}/runs/{run}/trace",
		"GET /v1/chats/x/runs/{run}/events", "GET /v1/chats/x/runs/{run}/trace",
		"GET /v1/chats/acme%2F{chat}/runs/{run}/events", "GET /v1/chats/acme/runs/{chat}:{run}/events",
		"GET /v1/chats/x/runs/..%2F{chat}:{run}/events", "GET /v1/chats/{chat}/runs/{run}/events?last_event_id=1",
		"GET /v1/chats/{waitschat}/runs/{waiting}/events", "GET /v1/chats", "GET /v1/chats?order=used",
		"GET /v1/chats?order=used&q={chat}", "GET /v1/chats?order=used&cursor={cursor}", "GET /v1/chats?cursor={cursor}",
		"GET /v1/approvals", "GET /v1/approvals?cursor={cursor}", "GET /v1/collections", "GET /v1/collections/{docs}",
		"GET /v1/collections/{docs}/documents", "GET /v1/collections/{docs}/documents/{paper}",
		"GET /v1/collections/acme%2F{docs}/documents/{paper}", "GET /v1/collections/acme:{docs}/documents",
		"GET /v1/collections/../runs/{run}/events", "GET /v1/collections/%2e%2e/runs/{run}/events",
		"GET /v1/collections/..%2Fruns%2F{run}%2Fevents", `POST /v1/collections/{docs}/search {"query":"ferry"}`,
		"GET /v1/collections/chat:{chat}/documents", "GET /v1/collections/chat:acme%2F{chat}/documents",
		"GET /v1/chats/{chat}/documents", "GET /v1/chats/{chat}/documents/{paper}",
		"GET /v1/chats/acme%2F{chat}/documents", "GET /v1/chats/x/documents/..%2F..%2F{chat}%2Fdocuments%2F{paper}",
		"GET /v1/chats/x/documents/../../{chat}/documents", "GET /v1/keys/{keyid}", "DELETE /v1/keys/{keyid}",
		"POST /v1/keys/{keyid}/rotate {}",
		"POST /v1/chats/{waitschat}/runs/{waiting}/resume " + yes, "POST /v1/chats/x/runs/{waiting}/resume " + yes,
		"POST /v1/chats/acme%2F{waitschat}/runs/{waiting}/resume " + yes,
		"GET /v1/chats/{waitschat}/ui/x/stream", "GET /v1/chats/acme%2F{waitschat}/ui/x/stream",
		`POST /v1/chats/{waitschat}/ui {"trigger":"submit-message","messages":[{"role":"assistant","parts":[` +
			`{"state":"output-available","toolCallId":"call_{waiting}_{wait}","output":{"x":1}}]}]}`,
		`POST /v1/chats/acme%2F{waitschat}/ui {"trigger":"submit-message","messages":[{"role":"assistant","parts":[` +
			`{"state":"output-available","toolCallId":"call_{waiting}_{wait}","output":{"x":1}}]}]}`,
		"POST /v1/chats/{waitschat}/runs/{waiting}/stop", "POST /v1/chats/x/runs/{waiting}/stop",
		"GET /internal/v1/chats/{chat}/runs/{run}", `POST /internal/v1/runs/{run}/recall {"query":"locker"}`,
		`POST /internal/v1/runs/{run}/notes {"text":"x"}`,
		`POST /internal/v1/chats/{chat}/recalled {"session":"s","query":"What is my locker?","budget":99}`,
		`POST /internal/v1/chats/acme%2F{chat}/recalled {"session":"s","query":"What is my locker?","budget":99}`,
		`POST /internal/v1/erasures {"chat":"acme/{chat}"}`,
		`MCP recall {"chat":"{chat}","query":"locker"}`, `MCP recall {"chat":"acme/{chat}","query":"locker"}`,
		`MCP search_documents {"collection":"{docs}","query":"ferry"}`, "GW GET /v1/responses/{response}",
		"GW GET /v1/responses/{response}/input_items", "GW POST /v1/responses/{response}/cancel",
		`GW POST /v1/responses {"model":"m","input":"hi","previous_response_id":"{response}"}`,
		`GW POST /v1/responses {"model":"m","input":[{"type":"item_reference","id":"{item}"},{"role":"user",` +
			`"content":"hi"}]}`,
		`GW POST /v1/responses {"model":"m","input":"hi","conversation":"{conversation}"}`,
		`GW POST /v1/messages {"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}],` +
			`"metadata":{"conversation_id":"{conversation}"}}`,
		"GW GET /teammate/analytic/v1/responses/{response}", "GET /v1/responses/resp_{run}.1_{chat}",
		"GET /c/{chat}/v1/responses/resp_{run}.1_{chat}", "GET /v1/responses/resp_{run}.1_acme%2F{chat}",
		"GET /v1/conversations/{chat}/items", "GET /v1/conversations/acme%2F{chat}/items", "GET /v1/conversations/{chat}",
		// What writes, which makes things of its own where it succeeds.
		`POST /v1/conversations/acme%2F{chat}/items {"items":[{"role":"user","content":"x"}]}`,
		"DELETE /v1/conversations/{chat}", "DELETE /v1/conversations/{chat}/items/msg_{message}_{chat}_0",
		`POST /internal/v1/chats/{chat}/heard {"session":"s","turn":"t","began":9999999999999,"said":"hi"}`,
		"DELETE /v1/chats/{chat}/messages/{message}", "DELETE /v1/chats/{chat}/subagents/analytic/messages/{message}",
		"DELETE /v1/chats/{chat}/notes/{note}", `PATCH /v1/chats/{chat}/notes/{note} {"text":"x"}`,
		"DELETE /v1/chats/acme%2F{chat}", "DELETE /v1/chats/{chat}", "DELETE /v1/chats/{chat}/history",
		"DELETE /v1/chats/{chat}/subagents/analytic/history", `PATCH /v1/chats/{chat} {"title":"x"}`,
		`POST /v1/chats/{chat}/rewind {"to":"{message}"}`, "POST /v1/chats/{chat}/set-aside/{aside}/restore",
		"POST /v1/chats/x/set-aside/{aside}/restore", `POST /v1/chats/{chat}/fork {"as":"mine"}`,
		`POST /v1/chats/{chat}/fork {"as":"acme/{chat}"}`, `POST /v1/chats/{chat}/fork {"as":"mine","at":"{message}"}`,
		"DELETE /v1/collections/{docs}/documents/{paper}", "DELETE /v1/collections/{docs}",
		"DELETE /v1/chats/{chat}/documents/{paper}", "GW DELETE /v1/responses/{response}",
		"GW DELETE /v1/conversations/{conversation}",
		`POST /chat {"message":"What is my locker number?","chat_id":"acme/{chat}"}`,
		`POST /v1/chats/{chat}/messages {"message":"hi","after":"{message}"}`,
		`POST /v1/chats/{chat}/messages {"message":"hi","if_last":"{message}"}`,
		`POST /v1/chats/{chat}/messages {"message":"What is my locker number?"}`,
		`POST /v1/chats/{chat}/ui {"trigger":"submit-message","messageId":"{message}","messages":[{"id":"{message}",` +
			`"role":"user","parts":[{"type":"text","text":"What is my locker number?"}]}]}`,
		`POST /v1/chat/completions {"model":"mneme","messages":[{"role":"user",` +
			`"content":"What is my locker number?"}],"metadata":{"chat_id":"{chat}"}}`,
		`POST /v1/chat/completions {"model":"mneme","messages":[{"role":"user","content":"x"}],` +
			`"metadata":{"chat_id":"acme/{chat}"}}`,
		`POST /c/{waitschat}/v1/chat/completions {"model":"mneme","messages":[{"role":"user",` +
			`"content":"What is my locker number?"}]}`,
		`POST /c/acme%2F{chat}/v1/chat/completions {"model":"mneme","messages":[{"role":"user","content":"x"}]}`,
		`POST /v1/responses {"model":"mneme","input":"What is my locker number?","previous_response_id":` +
			`"resp_{run}.1_{chat}"}`,
		`POST /v1/responses {"model":"mneme","input":"x","previous_response_id":"resp_{run}.1_acme/{chat}"}`,
		`POST /v1/responses {"model":"mneme","input":[{"type":"item_reference","id":"msg_{run}.1_{chat}_0"},` +
			`{"role":"user","content":"What is my locker number?"}]}`,
		`POST /v1/responses {"model":"mneme","input":[{"role":"user","content":"Hi."},{"role":"assistant",` +
			`"type":"message","id":"msg_{run}.1_{chat}_0","content":"Hi."},{"role":"user","content":"My locker number?"}]}`,
		`POST /v1/responses {"model":"mneme","input":[{"type":"function_call_output","output":"x",` +
			`"call_id":"call_{waiting}_{wait}_{waitschat}"}]}`,
		`POST /v1/responses {"model":"mneme","input":"What is my locker number?","conversation":"{chat}"}`,
		`POST /v1/responses {"model":"mneme","input":"x","conversation":"acme/{chat}"}`,
		"DELETE /v1/responses/resp_{run}.1_{chat}", "DELETE /c/{chat}/v1/responses/resp_{run}.1_{chat}",
		`MCP ask {"chat":"acme/{chat}","message":"What is my locker number?"}`,
	}
	s.join() // where nothing of acme is in memory yet
	before := dump(t, s.client)
	for _, thief := range []string{"beta", "default"} {
		for i, text := range attempts {
			send := func(ids map[string]string) answered {
				filled := text
				for name, id := range ids {
					filled = strings.ReplaceAll(filled, "{"+name+"}", id)
				}
				c := keyed{key: s.keys[thief], header: []string{
					// Said by a client, these count for nothing.
					"Mneme-Tenant", "acme", "Mneme-Scopes", "admin", "Mneme-Key", ids["keyid"], "Mneme-Chat-Id", "",
					"Mneme-Parent-Id", ids["message"], "Idempotency-Key", ids["idem"]}}
				rest, gw := strings.CutPrefix(filled, "GW ")
				if tool, mcp := strings.CutPrefix(filled, "MCP "); mcp {
					name, arguments, _ := strings.Cut(tool, " ")
					rest = fmt.Sprintf(`POST /mcp {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`,
						name, arguments)
					c.header = append(c.header, "Accept", "application/json, text/event-stream")
				}
				if gw {
					c.header = append(c.header, "X-Ag-Conversation-Id", map[bool]string{true: ids["conversation"]}[i%2 == 0])
				}
				var path string
				c.method, rest, _ = strings.Cut(rest, " ")
				path, c.body, _ = strings.Cut(rest, " ")
				if c.method == http.MethodGet {
					c.header = append(c.header, "Last-Event-ID", "1")
				}
				if c.url = s.url(path); gw {
					c.url = s.gateway(path)
				}
				return c.do(t)
			}
			s.turns.Store(int64(i)) // each replica is asked for half of what is acme's
			none, its := send(nobodys), send(owned)
			require.Equal(t, none.status, its.status, "%s: %s\n%s\nof nobody: %s", thief, text, its.body, none.body)
			require.Equal(t, plainly(none.body, nobodys), plainly(its.body, owned), "%s: %s", thief, text)
			for _, leak := range []string{"4711-secret", "secret-", "lamp"} {
				require.NotContains(t, its.body, leak, "%s: %s", thief, text)
			}
		}
		after := dump(t, s.client)
		for key, value := range before {
			require.Equal(t, value, after[key], "%s changed %s", thief, key)
		}
	}
	// What is all tenants' is the operator's.
	for _, c := range []keyed{{"GET", s.gateway("/admin/backend"), s.keys["beta"], "", nil},
		{"PUT", s.gateway("/admin/backend"), s.keys["beta"], `{"active":"offline"}`, nil}} {
		got := c.do(t)
		require.Equal(t, http.StatusForbidden, got.status, "%s %s: %s", c.method, c.url, got.body)
		require.Contains(t, got.body, "default tenant")
	}
	got := keyed{"GET", s.url("/v1/approvals?cursor=x"), s.keys["beta"], "", nil}.do(t)
	require.Equal(t, http.StatusBadRequest, got.status, got.body)
	t.Logf("%d attempts by each of two tenants", len(attempts))
	// And acme goes on where it was.
	says := s.must("acme", "POST", "/v1/chats/acme-chat/messages", `{"message":"What is my locker number?"}`)
	require.Contains(t, says.body, "4711-secret")
	require.Equal(t, http.StatusOK, keyed{method: "GET", url: s.gateway("/v1/responses/" + owned["response"]),
		key: s.keys["acme"]}.do(t).status)
}

var passing = regexp.MustCompile(`[A-Z2-7]{26}(\.\d+)?(\.fork-[0-9a-f]{16})*|(\.fork-[0-9a-f]{16})+|(resp|msg|rs|conv)_\w+` +
	`|chatcmpl-\w+|"transcript_from":"\w+(\.alone)?"|\bn[a-z2-7]{11}\b|toolu_\w+|"\d{13,}"|` +
	`"next_cursor":"[^"]*"|"(ts|timestamp|created|created_at|started|seconds|expires_at|last_used|used|completed_at|until|updated|bytes|ended|score)"` +
	`:[-\d.eE+]+|: retry.*|"\d{4}-\d\d-\d\dT[^"]*"|\d{4}-\d\d-\d\d \d\d:\d\d UTC`)

// plainly is a body without ids and times.
func plainly(body string, ids map[string]string) string {
	for name, id := range ids {
		if name != "cursor" && name != "wait" {
			body = strings.ReplaceAll(body, id, "{"+name+"}")
		}
	}
	body = strings.ReplaceAll(body, `,"state":"busy"`, "") // for a moment after an answer
	return passing.ReplaceAllString(body, "-")
}

// kinds are the ids that answers give, by the name that stands for them in requests.
var kinds = map[string]*regexp.Regexp{
	"message":  regexp.MustCompile(`"id":"([A-Z2-7]{26}\.\d+)"`),
	"run":      regexp.MustCompile(`"run_id":"([A-Z2-7]{26})"`),
	"wait":     regexp.MustCompile(`"waits":\[{"id":"([^"]+)"`),
	"note":     regexp.MustCompile(`"id":"(n[a-z2-7]{11})"`),
	"aside":    regexp.MustCompile(`"id":"(\d{13,})"`),
	"response": regexp.MustCompile(`"id":"(resp_\w+)"`),
	"answered": regexp.MustCompile(`"id":"(resp_\w+\.\d+_[^"]+)"`),
	"talk":     regexp.MustCompile(`"id":"(conv_[A-Z2-7]{26})"`),
	"part":     regexp.MustCompile(`"id":"(msg_items-\w+\.\d+_[^"]+)"`),
}

// visitor is a tenant at a service, and what it was told there: the newest ids of each kind, and the last export.
type visitor struct {
	*tenanted
	tenant string
	ids    map[string][]string
	export string
}

// send sends a request, in which the ids that {message}, {run} and others stand for are those that r picks.
func (p *visitor) send(r *rand.Rand, method, path, body string, header ...string) answered {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		id := "none"
		if known := p.ids[name]; len(known) > 0 {
			id = known[r.IntN(len(known))]
		}
		path, body = strings.ReplaceAll(path, "{"+name+"}", id), strings.ReplaceAll(body, "{"+name+"}", id)
	}
	url := p.url(path)
	if rest, gateway := strings.CutPrefix(path, "GW "); gateway {
		url = p.gateway(rest)
	}
	got := keyed{method, url, p.keys[p.tenant], strings.ReplaceAll(body, "{export}", p.export), header}.do(p.t)
	for name, pattern := range kinds {
		if method != http.MethodPost && name != "message" {
			continue // lists may be in the order of ids, which are random
		}
		for _, id := range pattern.FindAllStringSubmatch(got.body, -1) {
			if known := p.ids[name]; !slices.Contains(known, id[1]) {
				p.ids[name] = append(known[max(len(known)-9, 0):], id[1])
			}
		}
	}
	if strings.HasSuffix(path, "/export") && got.status == http.StatusOK {
		p.export = got.body
	}
	return got
}

// operations are what the property below draws from, by the route of webmemory or of the gateway (GW). {chat}, {doc},
// {n} and {conversation} are one of three; a route that is there twice comes twice as often.
var operations = [][2]string{
	{"POST /v1/chats/{chat}/messages", `{"message":"My locker number is {n}.","user":"ann"}`},
	{"POST /v1/chats/{chat}/messages", `{"message":"What is my locker number?","user":"bob"}`},
	{"POST /v1/chats/{chat}/messages", `{"message":"My boat is called Ida.","agent_version":"analytic"}`},
	{"POST /v1/chats/{chat}/messages", `{"message":"What does the ferry cost?"}`},
	{"POST /v1/chats/{chat}/messages", `{"message":"My boat is called Mo.","after":"{message}"}`},
	{"POST /v1/chats/{chat}/messages", `{"message":"use light {\"n\":{n}}","tools":[{"name":"light",` +
		`"description":"Lights.","parameters":{"type":"object"}}]}`},
	{"POST /v1/chats/{chat}/messages", `{"message":"use light {\"n\":{n}}","tools":[{"name":"light",` +
		`"description":"Lights.","parameters":{"type":"object"}}]}`},
	{"POST /chat", `{"message":"My tent is {n} years old.","chat_id":"{chat}"}`},
	{"POST /v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":"What is my locker number?"}],` +
		`"metadata":{"chat_id":"{chat}"}}`},
	{"POST /c/{chat}/v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":"My dog is Rex."}]}`},
	{"POST /v1/responses", `{"model":"mneme","input":"My tram is line {n}."}`},
	{"POST /c/{chat}/v1/responses", `{"model":"mneme","input":"What is my locker number?"}`},
	{"POST /v1/responses", `{"model":"mneme","input":"My dog is Bo.","previous_response_id":"{answered}"}`},
	{"POST /v1/responses", `{"model":"mneme","input":"use light {\"n\":{n}}","previous_response_id":"{answered}",` +
		`"tools":[{"type":"function","name":"light","description":"Lights.","parameters":{"type":"object"}}]}`},
	{"POST /v1/conversations", `{"items":[{"role":"user","content":"My kite is {n}."}]}`},
	{"POST /v1/conversations/{talk}/items", `{"items":[{"role":"user","content":"And {n}."}]}`},
	{"POST /v1/conversations/{chat}/items", `{"items":[{"role":"user","content":"And {n}."}]}`},
	{"GET /v1/conversations/{talk}", ""}, {"GET /v1/conversations/{talk}/items?order=asc", ""},
	{"GET /v1/conversations/{chat}/items", ""}, {"DELETE /v1/conversations/{talk}/items/{part}", ""},
	{"DELETE /v1/conversations/{talk}", ""},
	{"GET /v1/responses/{answered}", ""}, {"GET /c/{chat}/v1/responses/{answered}", ""},
	{"DELETE /v1/responses/{answered}", ""}, {"DELETE /c/{chat}/v1/responses/{answered}", ""},
	{"POST /v1/chats/{chat}/ui", `{"trigger":"submit-message","messages":[{"id":"u{n}","role":"user",` +
		`"parts":[{"type":"text","text":"My bike is {n} years old."}]}]}`},
	{"POST /v1/chats/{chat}/ui", `{"trigger":"regenerate-message","messages":[{"id":"u{n}","role":"user",` +
		`"parts":[{"type":"text","text":"My bike is {n} years old."}]}]}`},
	{"POST /v1/chats/{chat}/ui", `{"trigger":"submit-message","messages":[{"id":"{run}","role":"assistant",` +
		`"parts":[{"type":"dynamic-tool","state":"output-available","toolCallId":"call_{run}_{wait}","output":{n}}]}]}`},
	{"GET /v1/chats/{chat}/ui/{n}/stream", ""},
	{"POST /c/{chat}/v1/chat/completions", withFile("What does the ferry cost?", "ferry.txt", "The ferry costs 4711 crowns.")},
	{"POST /v1/embeddings", `{"model":"m","input":"Hi {n}"}`}, {"POST /c/{chat}/v1/embeddings", `{"model":"m","input":"Hi"}`},
	{"GET /c/{chat}/v1/models", ""}, {"GET /c/{chat}/v1/models/mneme", ""}, {"GET /v1/models", ""},
	{"GET /v1/models/mneme", ""},
	{"POST /v1/oneshot", `{"message":"use light {\"n\":{n}}","tools":[{"name":"light","description":"Lights.",` +
		`"parameters":{"type":"object"}}]}`},
	{"POST /v1/chats/{chat}/runs/{run}/resume", `{"answers":[{"id":"{wait}","decision":"approve","result":{n}}]}`},
	{"POST /v1/chats/{chat}/runs/{run}/stop", ""},
	{"GET /v1/chats/{chat}/runs/{run}/events", ""}, {"GET /v1/chats/{chat}/runs/{run}/trace", ""},
	{"GET /v1/chats", ""}, {"GET /v1/chats?order=used&limit={n}", ""}, {"GET /v1/chats?order=used&q=locker", ""},
	{"GET /v1/approvals", ""},
	{"GET /v1/chats/{chat}", ""}, {"PATCH /v1/chats/{chat}", `{"title":"{n}"}`}, {"DELETE /v1/chats/{chat}", ""},
	{"GET /v1/chats/{chat}/history", ""}, {"GET /v1/chats/{chat}/history?runs=true&limit={n}", ""},
	{"DELETE /v1/chats/{chat}/history", ""}, {"DELETE /v1/chats/{chat}/messages/{message}", ""},
	{"GET /v1/chats/{chat}/subagents/analytic/history", ""}, {"DELETE /v1/chats/{chat}/subagents/analytic/history", ""},
	{"DELETE /v1/chats/{chat}/subagents/analytic/messages/{message}", ""},
	{"GET /v1/chats/{chat}/export", ""}, {"GET /v1/chats/{chat}/export", ""},
	{"POST /v1/chats/{chat}/import", "{export}"}, {"POST /v1/chats/{chat}/fork", `{"as":"{n}"}`},
	{"POST /v1/chats/{chat}/rewind", `{"to":null}`}, {"POST /v1/chats/{chat}/rewind", `{"to":"{message}"}`},
	{"GET /v1/chats/{chat}/set-aside", ""}, {"POST /v1/chats/{chat}/set-aside/{aside}/restore", ""},
	{"GET /v1/chats/{chat}/recall?query=locker", ""},
	{"GET /v1/chats/{chat}/messages/{message}/influence", ""}, {"GET /v1/chats/{chat}/quarantine", ""},
	{"POST /v1/chats/{chat}/quarantine", `{"entries":["{message}","docs"]}`},
	{"DELETE /v1/chats/{chat}/quarantine?entry={message}", ""},
	{"GET /v1/chats/{chat}/notes", ""}, {"POST /v1/chats/{chat}/notes", `{"text":"Likes tea {n}."}`},
	{"PATCH /v1/chats/{chat}/notes/{note}", `{"text":"Likes milk."}`}, {"DELETE /v1/chats/{chat}/notes/{note}", ""},
	{"GET /v1/chats/{chat}/subagents/analytic/notes", ""},
	{"POST /v1/chats/{chat}/subagents/analytic/notes", `{"text":"Counts in {n}."}`},
	{"PATCH /v1/chats/{chat}/subagents/analytic/notes/{note}", `{"text":"Counts."}`},
	{"DELETE /v1/chats/{chat}/subagents/analytic/notes/{note}", ""},
	{"GET /v1/users/ann/notes", ""}, {"POST /v1/users/ann/notes", `{"text":"Lives in {n}."}`},
	{"PATCH /v1/users/ann/notes/{note}", `{"text":"Lives."}`}, {"DELETE /v1/users/ann/notes/{note}", ""},
	{"GET /v1/users/ann", ""}, {"PUT /v1/users/ann", `{"time_zone":"Asia/Tokyo"}`},
	{"GET /v1/users/ann/recall?query=locker", ""}, {"DELETE /v1/users/ann?chats=true", ""},
	{"GET /v1/collections", ""}, {"PUT /v1/collections/docs", ""}, {"GET /v1/collections/docs", ""},
	{"DELETE /v1/collections/docs", ""}, {"GET /v1/collections/docs/documents", ""},
	{"PUT /v1/collections/docs/documents/{doc}", "The ferry costs {n} crowns."},
	{"PUT /v1/collections/docs/documents/{doc}", "The tram costs {n} crowns."},
	{"POST /v1/collections/docs/documents", "The bus costs {n} crowns."},
	{"GET /v1/collections/docs/documents/{doc}", ""}, {"DELETE /v1/collections/docs/documents/{doc}", ""},
	{"POST /v1/collections/docs/search", `{"query":"What does the ferry cost?"}`},
	{"GET /v1/chats/{chat}/documents", ""}, {"POST /v1/chats/{chat}/documents", "The train costs {n} crowns."},
	{"PUT /v1/chats/{chat}/documents/{doc}", "The ferry costs {n} crowns and is blue."},
	{"GET /v1/chats/{chat}/documents/{doc}", ""}, {"DELETE /v1/chats/{chat}/documents/{doc}", ""},
	{"POST /mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recall","arguments":` +
		`{"chat":"{chat}","query":"locker"}}}`},
	{"POST GW /v1/messages", `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"Hi {n}"}]}`},
	{"POST GW /v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"Hi {n}"}]}`},
	{"POST GW /v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hi {n}"}]}`},
	{"POST GW /v1/responses", `{"model":"m","input":"Hi {n}","store":true}`},
	{"POST GW /v1/responses", `{"model":"m","input":"And?","previous_response_id":"{response}"}`},
	{"GET GW /v1/responses/{response}", ""}, {"GET GW /v1/responses/{response}/input_items", ""},
	{"DELETE GW /v1/responses/{response}", ""}, {"PUT GW /v1/conversations/{conversation}/keep", ""},
	{"DELETE GW /v1/conversations/{conversation}", ""}, {"GET GW /v1/models", ""},
}

// untried are the routes of webmemory that are no operation: those without a caller, those of keys and whole tenants,
// and what is written behind calls.
var untried = []string{"GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /v1/keys",
	"GET /v1/keys/self", "POST /v1/keys", "DELETE /v1/keys/{}", "POST /v1/keys/{}/rotate", "GET /v1/tenants",
	"GET /v1/tenants/{}/export", "DELETE /v1/tenants/{}", "GET /v1/usage", "GET /v1/audit"}

var braces = regexp.MustCompile(`{\w+}`)

// Two tenants say and change what they like over all routes and two replicas, under the same names, keys of posts and
// users, in turns: each gets what it gets where it is alone.
func TestWhatATenantSeesDoesNotDependOnAnother(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for path, methods := range gjson.GetBytes(openapi.Document(), "paths").Map() {
		for method := range methods.Map() {
			route := strings.ToUpper(method) + " " + braces.ReplaceAllString(path, "{}")
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(route), `\{\}`, `[^/]+`) + `(\?.*)?$`)
			require.True(t, slices.Contains(untried, route) ||
				slices.ContainsFunc(operations, func(o [2]string) bool { return pattern.MatchString(o[0]) }), "nothing tries %s",
				route)
		}
	}
	const steps = 150
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	together := withTenants(t, "acme", "beta")
	together.join()
	type side struct {
		random          *rand.Rand
		shared, private *visitor
	}
	var sides []side
	for i, name := range []string{"acme", "beta"} {
		sides = append(sides, side{rand.New(rand.NewPCG(seed, uint64(i))),
			&visitor{tenanted: together, tenant: name, ids: map[string][]string{}},
			&visitor{tenanted: withTenants(t, name), tenant: name, ids: map[string][]string{}}})
	}
	reached := map[int]int{}
	for step := range steps {
		for _, of := range sides {
			r := of.random
			operation := operations[r.IntN(len(operations))]
			method, path, _ := strings.Cut(operation[0], " ")
			filled := func(text string) string {
				for _, part := range []string{"{chat}", "{doc}", "{n}", "{conversation}"} {
					text = strings.ReplaceAll(text, part, fmt.Sprint(1+r.IntN(3)))
				}
				return text
			}
			body, picks := "", [2]uint64{r.Uint64(), r.Uint64()}
			path, body = filled(path), filled(operation[1])
			// The posts of all have the same few keys.
			header := []string{"Idempotency-Key", fmt.Sprint("key-", step%40), "X-Ag-Conversation-Id",
				fmt.Sprint("conversation-", 1+r.IntN(3)), "Accept", "application/json, text/event-stream"}
			if strings.Contains(path, "/documents") {
				header = append(header, "Content-Type", "text/markdown")
			}
			if strings.HasSuffix(path, "/import") {
				header = append(header, "Content-Type", "application/x-ndjson")
			}
			send := func(at *visitor) answered {
				return at.send(rand.New(rand.NewPCG(picks[0], picks[1])), method, path, body, header...)
			}
			own, shared := send(of.private), send(of.shared)
			reached[own.status/100]++
			what := fmt.Sprintf("step %d of %s: %s %s %s", step, of.shared.tenant, method, path, body)
			require.Equal(t, own.status, shared.status, "%s: %s\nalone: %s", what, shared.body, own.body)
			require.Equal(t, plainly(own.body, nil), plainly(shared.body, nil), what)
		}
	}
	t.Logf("answers by their hundreds: %v", reached)
	require.Greater(t, reached[2], steps/2)
}

// A chat that was erased through another replica begins anew, also by a post with a key that was used in it.
func TestAPostComesAgainOnceItsChatWasErasedThroughAnotherReplica(t *testing.T) {
	t.Parallel()
	s := withTenants(t, "acme")
	other := s.replica(t)
	post := func() answered {
		return s.must("acme", "POST", "/v1/chats/c/messages", `{"message":"My locker number is 12."}`, "Idempotency-Key", "k")
	}
	first := post()
	require.Equal(t, 200, keyed{"DELETE", other.url("/v1/chats/c"), s.keys["acme"], "", nil}.do(t).status)
	require.Equal(t, first.body, post().body)
	history := s.must("acme", "GET", "/v1/chats/c/history", "").body
	require.Equal(t, int64(2), gjson.Get(history, "total").Int(), history)
}
