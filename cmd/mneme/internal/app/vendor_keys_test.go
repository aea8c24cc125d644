package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/copilottest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// outside is everything that mneme calls, under one address: the first part of the path names the party that is
// asked. It keeps each request as it came.
type outside struct {
	*httptest.Server
	parts map[string]http.Handler

	mu   sync.Mutex
	came map[string][]sent // by the party that was asked; guarded by mu
}

// sent is a request as a server outside gets it.
type sent struct {
	method, url string
	header      http.Header
	body        string
}

func newOutside(t *testing.T, parts map[string]http.Handler) *outside {
	o := &outside{parts: parts, came: map[string][]sent{}}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	who, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	o.mu.Lock()
	o.came[who] = append(o.came[who], sent{r.Method, r.URL.String(), r.Header.Clone(), string(body)})
	o.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	http.StripPrefix("/"+who, o.parts[who]).ServeHTTP(w, r)
}

func (o *outside) requests(who string) []sent {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]sent{}, o.came[who]...)
}

// ordered is what a message of the user's tells a model to call.
var ordered = regexp.MustCompile(`(?s)call (\w+) (\{.*\})`)

// obedient is a model that calls what it is told to.
func obedient(r *upstreamtest.Request) *upstreamtest.Answer {
	a := upstreamtest.Reply(upstreamtest.Say("Done: " + strings.Join(r.Results, " ")))
	if order := ordered.FindStringSubmatch(r.User); order != nil && len(r.Results) == 0 {
		a = upstreamtest.Reply(upstreamtest.Use(order[1], order[2]))
	}
	return &a
}

const everythingOutside = `
auth: {mode: keys}
proxy:
  active: claude
  teammate_backend: gpt
  teammates: {resp: resp, pass: pass, passchat: passchat, passresp: passresp, cli: cli, opus: claude, kimi: gpt}
  embeddings_backend: gpt
  backends:
    claude: {kind: anthropic, base_url: URL/claude, api_key_env: THE_VENDORS, model_map: {"*": claude-opus-4-5}}
    gpt: {kind: openai, base_url: URL/gpt/v1, api_key_env: THE_VENDORS}
    resp: {kind: responses, base_url: URL/resp/v1, api_key_env: THE_VENDORS}
    pass: {kind: anthropic, base_url: URL/pass, auth: passthrough, model_map: {"*": claude-opus-4-5}}
    passchat: {kind: openai, base_url: URL/passchat/v1, auth: passthrough}
    passresp: {kind: responses, base_url: URL/passresp/v1, auth: passthrough}
    cli: {kind: copilot, addr: "CLI", provider_backend: gpt}
panel:
  members: [{name: opus}, {name: kimi}]
  moderator: {name: opus}
retrieval:
  embeddings: {model: embed}
  rerank: {url: URL/judge, timeout: 1m}
recall: {vectors: 100}
approvals: {webhook: {url: URL/hook, secret_env: HOOK_SECRET}}
mcp: {crm: {url: URL/crm}}
agents:
  master:
    tools:
    - {mcp: crm}
    - http: {name: ping, description: Says whether it is open., url: URL/shop/ping}
      pass: [chat, user]
    - http: {name: refund, description: Pays back., method: POST, url: URL/shop/refunds, parameters: {type: object}}
      approve: always
  subagents:
  - name: analytic
    tools:
    - http: {name: order, description: How far it is., url: "URL/shop/orders/{id}", parameters: {type: object, properties: {id: {type: string}}, required: [id]}}
  - {name: knowledge, tools: [documents], collections: [docs]}
  - {name: resp, description: A model.}
  - {name: pass, description: A model.}
  - {name: passchat, description: A model.}
  - {name: passresp, description: A model.}
  - {name: cli, description: A model.}
`

// Mneme calls models, tools, rerankers, webhooks and the Copilot CLI in every way, with mneme's key wherever a client
// can put it: none of them gets a key, the internal secret, or what mneme's services tell each other.
func TestNobodyOutsideIsToldAKey(t *testing.T) {
	testtier.Slow(t)
	const vendors, callers = "sk-of-the-operator-4711", "sk-of-the-caller-4711"
	const secret = "internal-internal-internal-secret-4711"
	vendor := func(kind upstreamtest.Vendor, key string) http.Handler {
		return upstreamtest.New(upstreamtest.Config{Vendor: kind, APIKey: key, Answer: obedient})
	}
	crm := mcp.NewServer(&mcp.Implementation{Name: "crm", Version: "1"}, nil)
	crm.AddTool(&mcp.Tool{Name: "find", Description: "Finds.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil
		})
	says := func(body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	o := newOutside(t, map[string]http.Handler{
		"claude": vendor(upstreamtest.Anthropic, vendors), "gpt": vendor(upstreamtest.Chat, vendors),
		"resp": vendor(upstreamtest.OpenAI, vendors), "pass": vendor(upstreamtest.Anthropic, callers),
		"passchat": vendor(upstreamtest.Chat, callers), "passresp": vendor(upstreamtest.OpenAI, callers),
		"crm": mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return crm },
			&mcp.StreamableHTTPOptions{Stateless: true}),
		"shop": says("open"), "hook": says(""),
		"judge": says(`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":0}]}`),
	})
	cli := copilottest.Start(t)
	// It asks its model as the real one does: at the gateway, with the session's key.
	cli.Script(func(turn *copilottest.Turn) {
		made := cli.Calls("session.create")
		session := gjson.ParseBytes(made[len(made)-1].Params)
		base, key := session.Get("provider.baseUrl").Str, session.Get("provider.apiKey").Str
		req, err := http.NewRequestWithContext(turn.Context(), "POST", base+"/chat/completions",
			strings.NewReader(`{"model":"cli","messages":[{"role":"user","content":"hello"}]}`))
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", "application/json")
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				defer resp.Body.Close()
				turn.Say("its model answered ", resp.Status)
				return
			}
		}
		turn.Say(err.Error())
	})
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(strings.NewReplacer("URL", o.URL, "CLI", cli.Addr()).
		Replace(everythingOutside)), 0o600))
	s := withKeys(t, "THE_VENDORS="+vendors, "HOOK_SECRET=a-secret-of-the-webhook", "MNEME_INTERNAL_SECRET="+secret)
	for _, tenant := range []string{"default", "acme"} {
		s.keys[tenant] = s.key(tenant, access.Scopes...)
	}

	// Clients of the gateway. Each has the key where the gateway looks for it, and in other places as well.
	endpoints := []struct{ method, path, body string }{
		{"POST", "/v1/messages", `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/v1/messages", `{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		{"POST", "/v1/responses", `{"model":"m","input":"hi"}`},
		{"POST", "/v1/responses", `{"model":"m","stream":true,"input":"hi"}`},
		{"POST", "/v1/embeddings", `{"model":"m","input":"hi"}`},
		{"GET", "/v1/models", ""},
	}
	asked := 0
	for under, backend := range map[string]string{"": "claude", "/teammate": "gpt", "/teammate/resp": "resp",
		"/teammate/pass": "pass", "/teammate/passchat": "passchat", "/teammate/passresp": "passresp", "/teammate/cli": ""} {
		for tenant, key := range s.keys {
			passes := strings.HasPrefix(backend, "pass")
			for i, header := range []http.Header{
				{"Authorization": {"Bearer " + key}}, {"X-Api-Key": {key}},
				{"Authorization": {"Bearer " + key}, "X-Api-Key": {callers}},
				{"Authorization": {"Bearer " + callers}, "X-Api-Key": {key}},
				{"Authorization": {"Bearer " + key}, "X-Api-Key": {key}, "Api-Key": {key}, "X-Goog-Api-Key": {"Bearer " + key},
					"X-Custom": {"token=" + key + ";"}, "Cookie": {"key=" + key}, "Proxy-Authorization": {"Bearer " + key}},
			} {
				vendorKnown := !passes || header.Get("X-Api-Key") == callers || header.Get("Authorization") == "Bearer "+callers
				for _, e := range endpoints {
					h := header.Clone()
					for name, value := range map[string]string{"Content-Type": "application/json", "Mneme-Tenant": "beta",
						"Mneme-Key": "forged", "Mneme-Scopes": "admin", "Mneme-User": "ann", "Mneme-Chat-Id": "7",
						"X-AG-Chat-Id": "7", "X-AG-Run-Id": "run1", "Mneme-Run-Id": "run1"} {
						h.Set(name, value)
					}
					if i%2 == 0 && e.path == "/v1/models" {
						h.Set("Anthropic-Version", "2023-06-01")
					}
					req, err := http.NewRequestWithContext(t.Context(), e.method, s.gateway(under+e.path)+"?beta=true&key="+key,
						strings.NewReader(e.body))
					require.NoError(t, err)
					req.Header = h
					resp, err := http.DefaultClient.Do(req)
					require.NoError(t, err)
					raw, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					about := fmt.Sprintf("%s %s%s of %s, way %d: %s", e.method, under, e.path, tenant, i, raw)
					counted := strings.HasSuffix(e.path, "count_tokens") && backend != "pass" // by the gateway itself
					if e.path == "/v1/embeddings" || e.path == "/v1/models" || counted || vendorKnown {
						require.Equal(t, http.StatusOK, resp.StatusCode, about)
					} else {
						require.Equal(t, http.StatusUnauthorized, resp.StatusCode, about)
					}
					require.NotContains(t, string(raw), key)
					if under == "/teammate/cli" && e.path == "/v1/chat/completions" && !strings.Contains(e.body, "stream") {
						require.Contains(t, string(raw), "its model answered 200 OK", about)
					}
					asked++
				}
			}
		}
	}

	// What chats lead to: the master, its subagents, the panel, tools of all kinds, documents, recall, approvals.
	for _, tenant := range []string{"default", "acme"} {
		must := func(method, path, body string, header ...string) answered {
			return s.must(tenant, method, path, body, header...)
		}
		require.Eventually(t, func() bool { // the server of tools is reached in the background
			return strings.Contains(must("POST", "/v1/chats/1/messages", `{"message":"call find {}"}`).body, "found")
		}, time.Minute, 10*time.Millisecond)
		must("PUT", "/v1/collections/docs", "")
		for i, text := range []string{"The ferry costs 14 crowns.", "The ferry costs more in July."} {
			must("PUT", fmt.Sprint("/v1/collections/docs/documents/", i), fmt.Sprintf(`{"text":%q}`, text))
		}
		must("POST", "/v1/collections/docs/search", `{"query":"What does the ferry cost?"}`)
		for _, message := range []string{
			`call analytic {"task":"call order {\"id\":\"A 1\"}"}`, `call ping {}`,
			`call knowledge {"task":"call search_documents {\"query\":\"ferry\"}"}`, "/discuss REST or gRPC?",
		} {
			body, err := json.Marshal(map[string]any{"message": message, "user": "ann"})
			require.NoError(t, err)
			must("POST", "/v1/chats/1/messages", string(body))
		}
		must("GET", "/v1/chats/1/recall?query=order", "")
		must("POST", "/v1/oneshot", `{"message":"call ping {}","user":"ann"}`)
		must("POST", "/v1/chats/2/messages", `{"message":"call refund {}"}`)
		must("POST", "/v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":"hi"}]}`)
		must("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":`+
			`{"chat":"3","message":"call ping {}"}}}`, "Accept", "application/json, text/event-stream")
		must("DELETE", "/v1/chats/1", "")
	}
	require.Eventually(t, func() bool { return len(o.requests("hook")) == 2 }, time.Minute, 10*time.Millisecond)

	whose := map[string]string{} // of the runs that wait, by chat
	for _, r := range o.requests("hook") {
		told := gjson.Parse(r.body)
		whose[told.Get("tenant").Str] = told.Get("chat_id").Str
	}
	require.Equal(t, map[string]string{"": "2", "acme": "2"}, whose, "a webhook is told whose chat it is")

	passed := map[string]bool{}
	for _, r := range o.requests("shop") {
		passed[r.header.Get("Mneme-Chat-Id")+" "+r.header.Get("Mneme-User")] = true
	}
	for _, whose := range []string{"1 ann", "acme%2F1 acme%2Fann", " ann", " acme%2Fann"} {
		require.Contains(t, passed, whose, "a tool is told whose chat and user it is")
	}

	// Names of headers that the tools and webhooks of the operator's own get.
	told := regexp.MustCompile(`^Mneme-(Run-Id|Call-Id|Chat-Id|User|Timestamp|Signature)$`)
	for who := range o.parts {
		came := o.requests(who)
		require.NotEmpty(t, came, "%s was asked", who)
		for _, r := range came {
			about := fmt.Sprintf("%s: %s %s", who, r.method, r.url)
			all := r.url + r.body
			for name, values := range r.header {
				if strings.HasPrefix(name, "Mneme-") {
					require.Contains(t, []string{"shop", "hook"}, who, "%s: %s", about, name)
					require.Regexp(t, told, name, about)
				}
				require.NotContains(t, name, "X-Ag-", about)
				all += strings.Join(values, " ")
			}
			require.NotContains(t, all, secret, about)
			require.NotContains(t, all, access.Prefix, about)
			for _, key := range s.keys {
				require.NotContains(t, all, key[len(key)-43:], about)
			}
			if !strings.HasPrefix(who, "pass") {
				require.NotContains(t, all, callers, about)
			}
		}
	}
	for _, method := range []string{"connect", "session.create", "session.send"} {
		require.NotEmpty(t, cli.Calls(method))
		for _, m := range cli.Calls(method) {
			require.NotContains(t, string(m.Params), access.Prefix, method)
			require.NotContains(t, string(m.Params), secret, method)
		}
	}
	t.Logf("%d calls of the gateway", asked)
}
