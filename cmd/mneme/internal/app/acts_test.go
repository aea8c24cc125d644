package app_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/proxy"
	"mneme/webmemory"
	"mneme/webmemory/openapi"
)

// act is something that a key may do, and all routes that do it. {} stands for a parameter, GW for the gateway, and MCP
// for a tool of POST /mcp. Routes under /teammate do what the routes without this prefix do.
type act struct {
	does   string
	scopes []access.Scope // each of them is enough; none: no key may
	model  bool           // it calls a model, which a budget bounds
	routes string         // separated by commas
}

var acts = []act{
	{"post a message", []access.Scope{access.Chat}, true, "POST /chat,POST /v1/chats/{}/messages,POST /v1/oneshot," +
		"POST /v1/chat/completions,POST /c/{}/v1/chat/completions,POST /v1/responses,POST /c/{}/v1/responses," +
		"POST /v1/chats/{}/ui,MCP ask"},
	{"give the result of a client's tool", []access.Scope{access.Chat}, true, "POST /v1/chats/{}/runs/{}/resume"},
	{"write to a conversation", []access.Scope{access.Chat}, false, "POST /v1/conversations," +
		"POST /v1/conversations/{}/items"},
	{"follow a run", []access.Scope{access.Chat}, false, "GET /v1/chats/{}/runs/{}/events," +
		"GET /v1/chats/{}/runs/{}/trace,POST /v1/chats/{}/runs/{}/stop,GET /v1/chats/{}/ui/{}/stream"},
	{"list agents", []access.Scope{access.Chat}, false, "GET /v1/models,GET /v1/models/{},GET /c/{}/v1/models," +
		"GET /c/{}/v1/models/{}"},
	{"list pending runs", []access.Scope{access.Approve}, false, "GET /v1/approvals"},
	{"read a memory", []access.Scope{access.MemoryRead}, false, "GET /v1/chats,GET /v1/chats/{},GET /v1/chats/{}/recall," +
		"GET /v1/chats/{}/export,GET /v1/chats/{}/messages/{}/influence,GET /v1/chats/{}/quarantine," +
		"GET /v1/chats/{}/set-aside,GET /v1/users/{},GET /v1/users/{}/recall,GET /v1/chats/{}/history," +
		"GET /v1/chats/{}/subagents/{}/history,GET /v1/chats/{}/notes,GET /v1/chats/{}/subagents/{}/notes," +
		"GET /v1/users/{}/notes,GET /v1/responses/{},GET /c/{}/v1/responses/{},GET /v1/conversations/{}," +
		"GET /v1/conversations/{}/items,MCP recall"},
	{"read the usage", []access.Scope{access.MemoryRead}, false, "GET /v1/usage"},
	{"write a memory", []access.Scope{access.MemoryWrite}, false, "PATCH /v1/chats/{},POST /v1/chats/{}/import," +
		"POST /v1/chats/{}/fork,POST /v1/chats/{}/rewind,POST /v1/chats/{}/set-aside/{}/restore," +
		"POST /v1/chats/{}/quarantine,DELETE /v1/chats/{}/quarantine,POST /v1/chats/{}/notes," +
		"POST /v1/chats/{}/subagents/{}/notes,POST /v1/users/{}/notes,PUT /v1/users/{},PATCH /v1/chats/{}/notes/{}," +
		"PATCH /v1/chats/{}/subagents/{}/notes/{},PATCH /v1/users/{}/notes/{}"},
	{"erase", []access.Scope{access.MemoryWrite}, false, "DELETE /v1/chats/{}/messages/{}," +
		"DELETE /v1/chats/{}/subagents/{}/messages/{},DELETE /v1/chats/{}/notes/{}," +
		"DELETE /v1/chats/{}/subagents/{}/notes/{},DELETE /v1/users/{}/notes/{},DELETE /v1/responses/{}," +
		"DELETE /c/{}/v1/responses/{},DELETE /v1/conversations/{}/items/{},DELETE /v1/conversations/{}," +
		"DELETE /v1/chats/{}/subagents/{}/history,DELETE /v1/chats/{}/history,DELETE /v1/chats/{},DELETE /v1/users/{}"},
	{"use documents", []access.Scope{access.Documents}, false, "GET /v1/collections,GET /v1/collections/{}," +
		"PUT /v1/collections/{},GET /v1/collections/{}/documents,POST /v1/collections/{}/documents," +
		"GET /v1/collections/{}/documents/{},PUT /v1/collections/{}/documents/{},POST /v1/collections/{}/search," +
		"GET /v1/chats/{}/documents,POST /v1/chats/{}/documents,GET /v1/chats/{}/documents/{}," +
		"PUT /v1/chats/{}/documents/{},DELETE /v1/chats/{}/documents/{},DELETE /v1/collections/{}/documents/{}," +
		"DELETE /v1/collections/{},MCP search_documents"},
	{"call a model", []access.Scope{access.Models}, true, "POST /v1/embeddings,POST /c/{}/v1/embeddings," +
		"GW POST /v1/messages,GW POST /v1/chat/completions,GW POST /v1/responses,GW POST /v1/embeddings"},
	{"use the gateway", []access.Scope{access.Models}, false, "GW POST /v1/messages/count_tokens,GW GET /v1/models," +
		"GW GET /v1/models/{},GW GET /v1/responses,GW GET /v1/responses/{},GW GET /v1/responses/{}/input_items," +
		"GW POST /v1/responses/compact,GW POST /v1/responses/input_tokens,GW POST /v1/responses/{}/cancel," +
		"GW POST /v1/conversations,GW PUT /v1/conversations/{}/keep,GW DELETE /v1/responses/{}," +
		"GW DELETE /v1/conversations/{}"},
	{"administer", []access.Scope{access.Admin}, false, "GET /v1/audit,GET /v1/keys,POST /v1/keys," +
		"POST /v1/keys/{}/rotate,DELETE /v1/keys/{},GET /v1/tenants,GET /v1/tenants/{}/export,DELETE /v1/tenants/{}," +
		"GW GET /admin/backend,GW PUT /admin/backend,GW GET /admin/usage"},
	{"read its own rights", access.Scopes, false, "GET /v1/keys/self"},
	{"ask as a service of ours", nil, false, "POST /internal/v1/runs/{}/recall,POST /internal/v1/runs/{}/notes," +
		"POST /internal/v1/runs/{}/forget,POST /internal/v1/runs/{}/calls,POST /internal/v1/runs/{}/calls/{}," +
		"GET /internal/v1/chats/{}/runs/{}," +
		"GET /internal/v1/chats/{}/calls/{},POST /internal/v1/erasures,POST /internal/v1/rewinds," +
		"POST /internal/v1/chats/{}/heard,POST /internal/v1/chats/{}/recalled,GW DELETE /v1/conversations"},
}

// openRoutes need no key. POST /mcp is open to each key, and its tools do the acts.
var openRoutes = strings.Split("GET /,GET /ui/{},GET /openapi.json,GET /healthz,GET /readyz,GET /metrics,"+
	"GW HEAD /,GW GET /health,GW GET /healthz,GW GET /readyz,GW GET /metrics,POST /mcp", ",")

// mcpCall is the body of a call of a tool.
func mcpCall(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool,
		arguments)
}

// requests are for the routes that no operation is for, because two services that do them differ.
var requests = [][2]string{
	{"MCP ask", `{"chat":"{chat}","message":"Hi."}`}, {"MCP recall", `{"chat":"{chat}","query":"locker"}`},
	{"MCP search_documents", `{"collection":"docs","query":"ferry"}`},
	{"GET /v1/usage", ""}, {"GET /v1/audit", ""}, {"GET /v1/keys", ""}, {"GET /v1/keys/self", ""},
	{"POST /v1/keys", `{"name":"x","scopes":["chat"]}`}, {"POST /v1/keys/{keyid}/rotate", "{}"},
	{"DELETE /v1/keys/{keyid}", ""},
	{"GET /v1/tenants", ""}, {"GET /v1/tenants/{tenant}/export", ""}, {"DELETE /v1/tenants/none", ""},
	{"POST GW /v1/embeddings", `{"model":"m","input":"Hi {n}"}`}, {"GET GW /v1/models/m", ""},
	{"GET GW /v1/responses", ""},
	{"POST GW /v1/responses/compact", "{}"}, {"POST GW /v1/responses/input_tokens", "{}"},
	{"POST GW /v1/responses/{response}/cancel", ""}, {"POST GW /v1/conversations", "{}"},
	{"DELETE GW /v1/conversations", ""}, {"GET GW /admin/backend", ""}, {"PUT GW /admin/backend", `{"active":"offline"}`},
	{"GET GW /admin/usage", ""},
	{"POST /internal/v1/runs/{run}/recall", `{"query":"locker"}`}, {"POST /internal/v1/runs/{run}/notes", `{"text":"x"}`},
	{"POST /internal/v1/runs/{run}/forget", `{"text":"locker"}`},
	{"POST /internal/v1/runs/{run}/calls", "{}"}, {"POST /internal/v1/runs/{run}/calls/x", "{}"},
	{"GET /internal/v1/chats/{chat}/runs/{run}", ""}, {"GET /internal/v1/chats/{chat}/calls/{run}", ""},
	{"POST /internal/v1/erasures", `{"chat":"acme/{chat}"}`}, {"POST /internal/v1/rewinds", `{"chat":"acme/{chat}"}`},
	{"POST /internal/v1/chats/{chat}/heard", `{"session":"s","turn":"t","began":9999999999999,"said":"hi"}`},
	{"POST /internal/v1/chats/{chat}/recalled", `{"session":"s","query":"What is my locker?","budget":99}`},
}

var (
	parameter = regexp.MustCompile(`[:*]\w+|{\w+}`)
	forwarded = regexp.MustCompile(`/(documents|collections)(/\*|$)`)
	teammate  = regexp.MustCompile(`/teammate(/{})?/`)
)

// routesOf returns the routes of all services that a key can reach, in the form of acts. The routes of documents are
// the apiserver's, which TestOpenAPIRoutes compares with the OpenAPI document.
func routesOf(t *testing.T, mcpTools []string) (all []string) {
	t.Helper()
	add := func(service, route string) {
		if route = service + parameter.ReplaceAllString(route, "{}"); !slices.Contains(all, route) {
			all = append(all, route)
		}
	}
	type routed interface{ Routes() gin.RoutesInfo }
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("x"))
	w.Middleware = func(h http.Handler) http.Handler {
		for _, r := range h.(routed).Routes() {
			if !forwarded.MatchString(r.Path) {
				add("", r.Method+" "+r.Path)
			}
		}
		return h
	}
	none := http.NotFoundHandler()
	w.StartReplica(func(c *webmemory.Config) { c.MCP, c.OpenAI, c.UI = none, none, none })
	for path, methods := range gjson.GetBytes(openapi.Document(), "paths").Map() {
		for method := range methods.Map() {
			add("", strings.ToUpper(method)+" "+path)
		}
	}
	gateway, err := proxy.New(proxy.Config{Active: "offline",
		Backends: map[string]proxy.BackendConfig{"offline": {Kind: proxy.KindOffline}}}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = gateway.Close() })
	for _, r := range gateway.Handler().(routed).Routes() {
		add("GW ", r.Method+" "+r.Path)
	}
	for _, tool := range mcpTools {
		add("", "MCP "+tool)
	}
	slices.Sort(all)
	return all
}

func unprefixed(route string) string { return teammate.ReplaceAllString(route, "/") }

// pattern matches the requests of a route.
func pattern(route string) *regexp.Regexp {
	if rest, gateway := strings.CutPrefix(route, "GW "); gateway {
		route = strings.Replace(rest, " ", " GW ", 1)
	}
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(route), `\{\}`, `[^/?]+`) + `(\?.*)?$`)
}

// attempt is a request that does an act.
type attempt struct {
	act
	route, path, body string
}

// attempts returns the requests for each act on each route, acts that erase last. It fails for a route without an act
// or without a request.
func attempts(t *testing.T, mcpTools []string) (all []attempt) {
	t.Helper()
	routes, claimed := routesOf(t, mcpTools), 0
	for _, a := range acts {
		for listed := range strings.SplitSeq(a.routes, ",") {
			require.True(t, slices.Contains(routes, listed), "There is no route %s: remove it from acts.", listed)
			for _, route := range routes {
				if unprefixed(route) != listed {
					continue
				}
				under := strings.TrimSuffix(strings.ReplaceAll(teammate.FindString(route), "{}", "analytic"), "/")
				claimed++
				is, tried := pattern(listed), false
				for _, o := range slices.Concat(operations, requests) {
					// Stored responses belong to one of the gateway's prefixes.
					if is.MatchString(o[0]) && (under == "" || !strings.Contains(o[1], "{response}")) {
						tried = true
						all = append(all, attempt{a, route, strings.Replace(o[0], " /", " "+under+"/", 1), o[1]})
					}
				}
				require.True(t, tried, "No request tries %s: add one to operations or to requests.", route)
			}
		}
	}
	for _, route := range routes {
		require.True(t, slices.Contains(openRoutes, route) || slices.ContainsFunc(acts, func(a act) bool {
			return slices.Contains(strings.Split(a.routes, ","), unprefixed(route))
		}), "No act claims %s: add it to the act that it does, or add an act with the scopes that it needs.", route)
	}
	require.Greater(t, claimed, 100)
	slices.SortStableFunc(all, func(a, b attempt) int {
		return strings.Count(a.path, "DELETE ") - strings.Count(b.path, "DELETE ")
	})
	return all
}

// actor does acts at a service with the keys of a tenant.
type actor struct {
	*visitor
	n    string // for {n}
	chat string // for {chat}
	of   string // for {tenant}
	full string // a key with all scopes but those of admins of all tenants
}

var mcpHeaders = []string{"Accept", "application/json, text/event-stream"}

// do sends the request of an act with a key.
func (a *actor) do(key string, of attempt) answered {
	a.t.Helper()
	method, path, _ := strings.Cut(of.path, " ")
	body := of.body
	if method == "MCP" {
		method, path, body = "POST", "/mcp", mcpCall(path, body)
	}
	number := a.n
	if strings.Contains(path, "/fork") {
		number = "9"
	}
	fill := func(text, n string) string {
		return strings.NewReplacer("{chat}", a.chat, "{doc}", "1", "{n}", n, "{conversation}", "conversation-"+a.chat,
			"{keyid}", a.ids["keyid"][0], "{tenant}", a.of).Replace(text)
	}
	header := append([]string{"X-Ag-Conversation-Id", "conversation-" + a.chat, "Mneme-Tenant", "acme", "Mneme-Scopes",
		"admin"}, mcpHeaders...)
	switch {
	case strings.Contains(path, "/documents"):
		header = append(header, "Content-Type", "text/markdown")
	case strings.HasSuffix(path, "/import"):
		header = append(header, "Content-Type", "application/x-ndjson")
	}
	was := a.keys[a.tenant]
	a.keys[a.tenant] = key
	defer func() { a.keys[a.tenant] = was }()
	return a.send(rand.New(rand.NewPCG(1, 1)), method, fill(path, "3"), fill(body, number), header...)
}

// refused reports whether an answer says that the key lacks a scope.
func (g answered) refused() bool {
	return g.status == http.StatusForbidden || strings.Contains(g.body, "it needs the scope") ||
		strings.Contains(g.body, "Only mneme's own services")
}

// withActor returns an actor of acme and all attempts. The actor made something of each kind, and a run of its waits.
func withActor(t *testing.T, environ ...string) (a *actor, all []attempt) {
	s := withTenantsAnd(t, environ, "acme", "beta", "gamma")
	a = &actor{visitor: &visitor{tenanted: s, tenant: "acme", ids: map[string][]string{}}, n: "48151623", chat: "1",
		of: "acme", full: s.keys["acme"]}
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	_, spare, err := access.NewStore(s.client).Create(t.Context(), access.Key{Name: "spare", Tenant: acme,
		Scopes: []access.Scope{access.Chat}})
	require.NoError(t, err)
	a.ids["keyid"] = []string{spare.ID}
	listed := s.must("acme", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, mcpHeaders...).body
	var tools []string
	for _, name := range gjson.Get(listed[strings.Index(listed, "{"):], "result.tools.#.name").Array() {
		tools = append(tools, name.Str)
	}
	require.NotEmpty(t, tools)
	all = attempts(t, tools)
	for _, of := range all {
		quiet := of.scopes == nil || slices.Contains(of.scopes, access.Admin) || strings.Contains(of.path, "DELETE ") ||
			of.route == "POST /v1/oneshot"
		if !quiet {
			a.do(a.full, of)
		}
	}
	a.suspend()
	return a, all
}

// suspend starts a run that waits for the result of a client's tool.
func (a *actor) suspend() {
	a.t.Helper()
	a.ids["wait"], a.ids["run"] = nil, nil
	a.do(a.full, attempt{path: "POST /v1/chats/{chat}/messages", body: `{"message":"use light {\"n\":{n}}","tools":[{` +
		`"name":"light","description":"Lights.","parameters":{"type":"object"}}]}`})
	require.Len(a.t, a.ids["wait"], 1)
	require.Eventually(a.t, func() bool { // the list of pending runs is written after the answer
		_, got := ask(a.t, "GET", a.url("/v1/approvals?limit=1000"), a.full, "")
		return strings.Contains(got, a.ids["wait"][0])
	}, time.Minute, time.Millisecond)
}

// allowed sends the request of an act that the key may do. If it answers a wait, the wait is pending.
func (a *actor) allowed(key string, of attempt) answered {
	a.t.Helper()
	if strings.Contains(of.body, "{wait}") {
		a.suspend()
	}
	return a.do(key, of)
}

// A key with one scope does exactly the acts of this scope, over each route that does them.
func TestEachActNeedsItsScopeOnEachRoute(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	a, all := withActor(t)
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	keys := map[access.Scope]string{}
	for _, scope := range access.Scopes {
		text, _, err := access.NewStore(a.client).Create(t.Context(), access.Key{Name: "k", Tenant: acme,
			Scopes: []access.Scope{scope}})
		require.NoError(t, err)
		keys[scope] = text
	}
	may := func(of attempt, scope access.Scope) bool {
		return slices.Contains(of.scopes, scope) || scope == access.Admin && of.scopes != nil
	}
	before := dump(t, a.client)
	for _, of := range all {
		for scope, key := range keys {
			if !may(of, scope) {
				got := a.do(key, of)
				assert.True(t, got.refused(), "%s with %s: %s answers %d %s", of.does, scope, of.path, got.status, got.body)
			}
		}
	}
	after := dump(t, a.client)
	for key := range after {
		if before[key] == "" {
			before[key] = "nothing"
		}
	}
	for key, was := range before {
		assert.Equal(t, was, after[key], "a refused request changed %s", key)
	}
	for _, of := range all {
		for _, scope := range of.scopes {
			key := keys[scope]
			for part, more := range besides {
				if strings.Contains(of.body, part) {
					key = a.tenanted.key("acme", scope, more)
				}
			}
			// An admin of one tenant may not do what concerns all tenants.
			if got := a.allowed(key, of); !strings.Contains(got.body, "about all tenants") {
				assert.False(t, got.status == http.StatusUnauthorized || got.refused(), "%s with %s: %s answers %d %s", of.does,
					scope, of.path, got.status, got.body)
				assert.NotContains(t, got.body, "unknown_route", of.path)
			}
		}
	}
}

// besides are the parts of a body that take another scope beside the act's.
var besides = map[string]access.Scope{`"after":`: access.MemoryWrite, `"filename":`: access.Documents}

// unlike returns an id of the same form with another last character.
func unlike(id string) string {
	last := id[len(id)-1:]
	for _, others := range []string{"23", "AB", "ab"} {
		if last[0]|0x1f == others[0]|0x1f {
			return id[:len(id)-1] + strings.Replace(others, last, "", 1)[:1]
		}
	}
	return id + "a"
}

// A key of another tenant gets for each id what it gets for an unknown id, and changes nothing of the tenant.
func TestNoRouteReachesAnotherTenant(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	a, all := withActor(t)
	before := dump(t, a.client)
	thief, stranger := *a, *a // the stranger has the same names as the tenant, and unknown ids
	thief.n, stranger.n, stranger.of = "27182818", "27182818", "nobody"
	unknown := map[string][]string{}
	for kind, ids := range a.ids {
		for _, id := range ids {
			unknown[kind] = append(unknown[kind], unlike(id))
		}
	}
	admins := map[string]string{}
	for _, name := range []string{"beta", "gamma"} {
		of, err := memory.ParseTenant(name)
		require.NoError(t, err)
		admins[name], _ = a.admin(of)
	}
	send := func(from *actor, tenant string, ids map[string][]string, of attempt) answered {
		from.visitor = &visitor{tenanted: a.tenanted, tenant: tenant, ids: maps.Clone(ids)}
		if slices.Contains(of.scopes, access.Admin) {
			return from.do(admins[tenant], of)
		}
		return from.do(a.keys[tenant], of)
	}
	for _, of := range all {
		none, its := send(&stranger, "gamma", unknown, of), send(&thief, "beta", a.ids, of)
		assert.Equal(t, none.status, its.status, "%s: %s\nwith an unknown id: %s", of.path, its.body, none.body)
		assert.NotContains(t, its.body, a.n, of.path)
	}
	after := dump(t, a.client)
	for key, was := range before {
		if strings.Contains(key, "acme") {
			assert.Equal(t, was, after[key], "a request of another tenant changed %s", key)
		}
	}
	for path, methods := range gjson.GetBytes(openapi.Document(), "paths").Map() {
		for method, operation := range methods.Map() {
			if operation.Get(`parameters.#(name=="tenant").in`).Str == "query" {
				for _, other := range []string{"acme", "default", "nobody"} {
					status, got := ask(t, strings.ToUpper(method), a.url(path+"?tenant="+other), admins["beta"], "")
					assert.Equal(t, http.StatusForbidden, status, "%s?tenant=%s: %s", path, other, got)
				}
			}
		}
	}
}

// A key whose budget is used up is refused wherever a model is called, and only there.
func TestABudgetBoundsEachActThatCallsAModel(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"index":0,"embedding":[1]}],"usage":{"prompt_tokens":1}}`)
	}))
	t.Cleanup(vendor.Close)
	a, all := withActor(t, "MNEME_PROXY_ACTIVE=offline",
		"MNEME_PROXY_BACKENDS={offline: {kind: offline}, vectors: {kind: openai, base_url: "+vendor.URL+"}}",
		"MNEME_PROXY_EMBEDDINGS_BACKEND=vectors")
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	limits, err := access.ParseLimits("", "1tokens/total")
	require.NoError(t, err)
	poor, _, err := access.NewStore(a.client).Create(t.Context(), access.Key{Name: "poor", Tenant: acme,
		Scopes: access.Scopes, Limits: limits})
	require.NoError(t, err)
	for _, of := range all {
		if of.scopes == nil || slices.Contains(of.scopes, access.Admin) && !slices.Contains(of.scopes, access.Chat) {
			continue
		}
		got := a.allowed(poor, of)
		if of.model {
			assert.Contains(t, got.body, "has no room for this call", "%s: %s answers %d", of.does, of.path, got.status)
		} else {
			assert.NotEqual(t, http.StatusTooManyRequests, got.status, "%s: %s answers %s", of.does, of.path, got.body)
		}
	}
}

// wordless are the routes that read, and whose answers have no word of a chat.
var wordless = strings.Split("GET /v1/models,GET /v1/models/{},GET /c/{}/v1/models,GET /c/{}/v1/models/{},"+
	"GET /v1/chats/{}/set-aside,GET /v1/chats/{}/messages/{}/influence,GET /v1/chats/{}/quarantine,"+
	"GET /v1/chats/{}/documents,GET /v1/users/{},"+
	"GET /v1/conversations/{},GET /v1/usage,GET /v1/collections,GET /v1/collections/{},GET /v1/collections/{}/documents,"+
	"GET /v1/audit,GET /v1/keys,GET /v1/keys/self,GET /v1/tenants,GW GET /v1/models,GW GET /v1/models/{},"+
	"GW GET /v1/responses,GW GET /v1/responses/{},GW GET /admin/backend,GW GET /admin/usage", ",")

// After a tenant erased its chats, users and collections, no route that reads shows a word of them.
func TestNoRouteShowsWhatWasErased(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	a, all := withActor(t)
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	admin, _ := a.admin(acme)
	word := strings.NewReplacer("query=locker", "query="+a.n, "q=locker", "q="+a.n, `"locker"`, `"`+a.n+`"`,
		`"ferry"`, `"`+a.n+`"`)
	a.ids["answered"] = nil
	for _, post := range [][2]string{
		{"/v1/chats/{chat}/rewind", `{"to":"{message}"}`},
		{"/v1/chats/{chat}/messages", `{"message":"My boat is called {n}.","agent_version":"analytic"}`},
		{"/v1/chats/ann/messages", `{"message":"My locker number is {n}.","user":"ann"}`},
		{"/v1/users/ann/notes", `{"text":"Lives in {n}."}`},
		{"/c/{chat}/v1/responses", `{"model":"mneme","input":"My locker number is {n}."}`},
	} {
		a.do(a.full, attempt{path: "POST " + post[0], body: post[1]})
	}
	a.suspend()
	var reading []string
	reads := func() (shown map[string]string) {
		shown, reading = map[string]string{}, nil
		for _, of := range all {
			listens := strings.HasPrefix(of.path, "GET ") || strings.HasSuffix(of.route, "/search") ||
				of.route == "MCP recall" || of.route == "MCP search_documents"
			if !listens || of.scopes == nil {
				continue
			}
			reading = append(reading, of.route)
			key := a.full
			if slices.Contains(of.scopes, access.Admin) {
				key = admin
			}
			of.path, of.body = word.Replace(of.path), word.Replace(of.body)
			if got := a.do(key, of); strings.Contains(got.body, a.n) {
				shown[of.route] = got.body
			}
		}
		return shown
	}
	before := reads()
	for _, route := range reading {
		assert.True(t, before[route] != "" || strings.Contains(route, "/teammate/") || slices.Contains(wordless, route),
			"%s does not show the word: change its request so that it does, or add the route to wordless.", route)
	}
	for _, chat := range gjson.Get(a.must("acme", "GET", "/v1/chats?limit=1000", "").body, "chats.#.chat_id").Array() {
		a.must("acme", "DELETE", "/v1/chats/"+chat.Str, "")
	}
	a.must("acme", "DELETE", "/v1/users/ann?chats=true", "")
	a.must("acme", "DELETE", "/v1/collections/docs", "")
	a.must("acme", "DELETE", a.gateway("/v1/conversations/conversation-1"), "")
	for route, body := range reads() {
		assert.Fail(t, "an erased word is shown", "%s: %s", route, body[:min(len(body), 600)])
	}
}

// storing are the routes that may add to a full tenant: they answer a pending run or change a note.
var storing = strings.Split("POST /v1/chats/{}/runs/{}/resume,PATCH /v1/chats/{}/notes/{},"+
	"PATCH /v1/chats/{}/subagents/{}/notes/{},PATCH /v1/users/{}/notes/{}", ",")

// No route adds to what a tenant stores that has reached its limit.
func TestNoRouteStoresMoreThanTheLimit(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	a, all := withActor(t, "MNEME_LIMITS_TENANTS={acme: {stored: 300KB}}")
	line := `{"message":{"role":"user","content":"` + strings.Repeat("ab ", 30_000) + `"}}` + "\n"
	a.must("acme", "POST", "/v1/chats/filler/import", strings.Repeat(line, 3))
	a.must("acme", "POST", "/v1/chats/filler2/messages", `{"message":"`+strings.Repeat("ab ", 30_000)+`"}`)
	count := func() int64 {
		n, _ := a.client.HGet(t.Context(), "mneme:stored:acme", "*").Int64()
		return n
	}
	require.Eventually(t, func() bool { return count() > 300_000 }, time.Minute, 10*time.Millisecond)
	size := func() (bytes int) { // of the histories, their archives, notes and documents
		keys, err := a.client.Keys(t.Context(), "*acme*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			parsed, ours := memory.ParseRedisKey(key)
			stored := []memory.Kind{memory.KindHistory, memory.KindArchive, memory.KindNotes, memory.KindUserNotes}
			if ours && slices.Contains(stored, parsed.Kind) || strings.HasPrefix(key, "documents:{acme") {
				bytes += len(contents(t, a.client, key))
			}
		}
		return bytes
	}
	was := 0
	require.Eventually(t, func() bool { // the runs of withActor have ended
		before := was
		was = size()
		return was == before
	}, time.Minute, time.Second)
	for _, of := range all {
		if of.scopes == nil || strings.Contains(of.path, "DELETE ") || strings.Contains(of.path, "/rewind") {
			continue
		}
		before := size()
		got := a.do(a.full, of)
		if !slices.Contains(storing, unprefixed(of.route)) {
			assert.LessOrEqual(t, size(), before, "%s: %s answers %d %s", of.does, of.path, got.status, got.body)
		}
	}
}
