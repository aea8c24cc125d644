package webmemory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/openapi"
	"mneme/webmemory/uistream"
)

// described is the document at /openapi.json, as a check of real answers.
type described struct {
	t     *testing.T
	paths map[string]map[string]describedOperation
	defs  map[string]any // the schemas, taking no member that they do not name

	mu    sync.Mutex
	seen  map[string][]int                // guarded by mu: statuses of the answers that came, by method and path
	ready map[string]*jsonschema.Resolved // guarded by mu: schemas that were used, by their JSON
}

type describedOperation struct {
	Responses map[string]struct {
		Content map[string]struct {
			Schema any
			Item   any `json:"x-item-schema"`
		}
		Codes []string `json:"x-codes"`
	}
}

func newDescribed(t *testing.T) *described {
	d := &described{t: t, seen: map[string][]int{}, ready: map[string]*jsonschema.Resolved{}}
	raw := bytes.ReplaceAll(openapi.Document(), []byte("#/components/schemas/"), []byte("#/$defs/"))
	var document struct {
		Paths      map[string]map[string]describedOperation
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, json.Unmarshal(raw, &document))
	d.paths, d.defs = document.Paths, document.Components.Schemas
	for name := range d.defs {
		d.close(name)
	}
	return d
}

// close has a schema refuse members that it does not name.
func (d *described) close(name string) {
	schema := d.defs[name].(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	parts, _ := schema["allOf"].([]any)
	for _, part := range parts { // of an event: its head and its payload
		of := d.defs[strings.TrimPrefix(part.(map[string]any)["$ref"].(string), "#/$defs/")].(map[string]any)
		inner, _ := of["properties"].(map[string]any)
		for member, p := range inner {
			properties[member] = p
		}
		required, _ := of["required"].([]any)
		schema["required"] = append(schema["required"].([]any), required...)
	}
	delete(schema, "allOf")
	if properties != nil {
		schema["additionalProperties"] = false
	}
}

// schema is one of the document's, ready to validate.
func (d *described) schema(of any) *jsonschema.Resolved {
	raw, err := json.Marshal(map[string]any{"$defs": d.defs, "allOf": []any{of}})
	require.NoError(d.t, err)
	if d.ready[string(raw)] == nil {
		var s *jsonschema.Schema
		require.NoError(d.t, json.Unmarshal(raw, &s))
		d.ready[string(raw)], err = s.Resolve(nil)
		require.NoError(d.t, err)
	}
	return d.ready[string(raw)]
}

// route finds the operation of a request, that with the most literal path.
func (d *described) route(r *http.Request) (name string, found describedOperation) {
	literal := -1
	for path, operations := range d.paths {
		pattern := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`)
		if strings.HasSuffix(path, "/documents/{id}") || strings.HasSuffix(path, "/v1/models/{model}") {
			pattern = strings.TrimSuffix(pattern, `[^/]+`) + `.+`
		}
		o, ok := operations[strings.ToLower(r.Method)]
		n := len(path) - 10*strings.Count(path, "{")
		if ok && n > literal && regexp.MustCompile("^"+pattern+"$").MatchString(r.URL.EscapedPath()) {
			name, found, literal = r.Method+" "+path, o, n
		}
	}
	return name, found
}

// watch has every answer of a handler compared with the document.
func (d *described) watch(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, o := d.route(r)
		kept := &keptAnswer{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(kept, r)
		if strings.HasPrefix(r.URL.Path, "/internal/") {
			return
		}
		if assert.NotEmpty(d.t, name, "%s %s is not described", r.Method, r.URL.Path) {
			d.check(name, o, kept)
		}
	})
}

func (d *described) check(name string, o describedOperation, got *keptAnswer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[name] = append(d.seen[name], got.status)
	said, ok := o.Responses[strconv.Itoa(got.status)]
	if !ok {
		said = o.Responses["default"]
	}
	kind, _, _ := mime.ParseMediaType(got.Header().Get("Content-Type"))
	content, ok := said.Content[kind]
	if len(said.Content) == 0 {
		assert.Empty(d.t, got.body.String(), name)
		return
	}
	if !assert.True(d.t, ok, "%s answers %d with %q, which is not described", name, got.status, kind) {
		return
	}
	switch kind {
	case "text/event-stream": // the last event of a completion is no JSON
		got.body = *bytes.NewBuffer(bytes.Replace(got.body.Bytes(), []byte("data: [DONE]\n\n"), nil, 1))
		if content.Item == nil {
			return
		}
		schema, events := d.schema(content.Item), sse.NewReader(&got.body, api.MaxEvent, 0, nil)
		for e, err := events.Next(); err == nil; e, err = events.Next() {
			d.valid(name, schema, e.Data)
		}
	case "application/x-ndjson":
		schema := d.schema(content.Item)
		for line := range bytes.Lines(got.body.Bytes()) {
			d.valid(name, schema, line)
		}
	case "application/json":
		d.valid(name, d.schema(content.Schema), got.body.Bytes())
	}
	if said.Codes != nil && kind == "text/plain" {
		assert.Contains(d.t, said.Codes, got.Header().Get(uistream.CodeHeader), "%s answers %d", name, got.status)
	} else if said.Codes != nil {
		var refusal struct{ Error struct{ Code string } }
		assert.NoError(d.t, json.Unmarshal(got.body.Bytes(), &refusal))
		assert.Contains(d.t, said.Codes, refusal.Error.Code, "%s answers %d", name, got.status)
	}
}

func (d *described) valid(name string, schema *jsonschema.Resolved, raw []byte) {
	var v any
	if assert.NoError(d.t, json.Unmarshal(raw, &v), name) {
		assert.NoError(d.t, schema.Validate(v), "%s: %s", name, raw)
	}
}

// keptAnswer passes an answer on and keeps it.
type keptAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k *keptAnswer) Flush() { _ = http.NewResponseController(k.ResponseWriter).Flush() }

func (k *keptAnswer) WriteHeader(status int) {
	k.status = status
	k.ResponseWriter.WriteHeader(status)
}

func (k *keptAnswer) Write(b []byte) (int, error) {
	k.body.Write(b)
	return k.ResponseWriter.Write(b)
}

// talkative is a run with every kind of event that is not about waiting. A message "fail" fails, "wait" waits to be
// stopped.
func talkative(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
	emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
		Subagents: []memory.Agent{"analytic"}})
	if r.Message == "fail" {
		emit(event.Head{}, &event.Error{Code: "model_failed", Message: "The model gave no answer.", Retryable: true})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
		return
	}
	cites := []event.Citation{{N: 1, PassageID: "a.md#0", DocID: "a.md", Title: "A", Source: "a.md", Section: "A > B",
		Page: 2, Quote: "x", Start: 1, End: 2}}
	said := &event.Answer{Status: event.Partial, Answer: "x [1]", Citations: cites, Missing: []string{"y"},
		Flags: []event.Flag{{Kind: "unverified", Text: "3"}}, InjectionSignals: 1}
	usage := event.Usage{InputTokens: 3, OutputTokens: 2, Estimated: true, CachedTokens: 1, ReasoningTokens: 1,
		CostMicroUSD: new(int64)}
	of := event.Head{Subagent: "analytic", CallID: "c"}
	emit(event.Head{}, &event.Recalled{Messages: []event.RecalledMessage{{ID: "r.1", TS: 1, Score: 2}}, Partial: true})
	emit(of, &event.Delegation{Task: "task", Calls: event.Serial})
	emit(of, &event.SubagentDelta{Text: "x"})
	emit(of, &event.ToolProgress{Tool: "add", Status: "running", Detail: "1"})
	emit(of, &event.AssistantWithTools{ToolCalls: []memory.ToolCall{{ID: "t", Type: "function",
		Function: memory.FunctionCall{Name: "add", Arguments: "{}"}}}})
	emit(of, &event.ToolResult{ToolCallID: "t", Name: "add", Content: "2"})
	emit(of, &event.Completion{Response: "x [1]", Status: event.Completed, Citations: cites, Answer: said, Usage: usage})
	emit(event.Head{}, &event.MasterTool{Tool: "recall", Status: "done"})
	emit(event.Head{}, &event.AssistantDelta{Text: "x"})
	outcome := event.Completed
	if r.Message == "wait" {
		<-ctx.Done()
		outcome = event.Stopped
	}
	emit(event.Head{}, &event.Assistant{Content: "x [1] of the lighthouse", Citations: cites, Flags: said.Flags,
		Partial: outcome == event.Stopped})
	emit(event.Head{}, &event.RunFinished{Outcome: outcome, Usage: usage, Calls: []event.ModelCall{{Subagent: "analytic",
		CallID: "c", Started: 1, Seconds: 2, Model: "m", Backend: "b", Attempts: 2, Mended: []string{"thinking_restored"},
		Usage: usage, Error: "model_failed"}}})
}

// startFull starts a replica with all routes.
func startFull(w *webmemorytest.World, more ...func(*webmemory.Config)) (url string) {
	w.T.Helper()
	var tools atomic.Pointer[mcpserver.Handler]
	var completions atomic.Pointer[openaiapi.Handler]
	var ui atomic.Value
	url = w.StartReplica(func(c *webmemory.Config) {
		everywhere(c)
		for _, change := range more {
			change(c)
		}
		c.MCP = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { tools.Load().ServeHTTP(rw, r) })
		c.OpenAI = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { completions.Load().ServeHTTP(rw, r) })
		c.UI = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { ui.Load().(http.Handler).ServeHTTP(rw, r) })
	})
	memory, err := webapi.New(url)
	require.NoError(w.T, err)
	tools.Store(mcpserver.Config{Memory: memory, Version: "1", Log: zerolog.Nop()}.HTTP())
	gateway := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "away") {
			panic(http.ErrAbortHandler)
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"object":"list","path":"`+r.URL.Path+`"}`)
	}))
	w.T.Cleanup(gateway.Close)
	completions.Store(openaiapi.New(openaiapi.Config{Memory: memory, Agents: webmemorytest.AgentNames, Log: zerolog.Nop(),
		Settings: openaiapi.Defaults(), Gateway: gateway.URL}))
	ui.Store(uistream.New(completions.Load()))
	w.T.Cleanup(tools.Load().Close)
	w.T.Cleanup(memory.Close)
	return url
}

// Every route is described, and nothing else is.
func TestOpenAPIRoutes(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	var there []string
	braces := func(r gin.RouteInfo) string {
		return r.Method + " " + regexp.MustCompile(`[:*]([a-z]+)`).ReplaceAllString(r.Path, `{$1}`)
	}
	forwarded := regexp.MustCompile(`/(documents|collections)(/\*|$)`)
	w.Middleware = func(h http.Handler) http.Handler {
		for _, r := range h.(interface{ Routes() gin.RoutesInfo }).Routes() {
			page := r.Path == "/" || strings.HasPrefix(r.Path, "/ui/")
			if !page && !strings.HasPrefix(r.Path, "/internal/") && !forwarded.MatchString(r.Path) {
				there = append(there, braces(r))
			}
		}
		return h
	}
	startFull(w)
	for _, r := range w.Runs.Handler().(interface{ Routes() gin.RoutesInfo }).Routes() {
		if strings.Contains(r.Path, "/documents") || strings.HasPrefix(r.Path, "/v1/collections") {
			there = append(there, braces(r))
		}
	}
	var said []string
	for path, operations := range d.paths {
		for method := range operations {
			said = append(said, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(there)
	slices.Sort(said)
	require.Equal(t, there, said)
}

// What every route answers, and what it refuses with, is as it is described.
func TestOpenAPIAnswers(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	d := newDescribed(t)
	w := webmemorytest.NewWorld(t, talkative)
	w.Middleware = d.watch
	library := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{Log: zerolog.Nop()})
	runs := apiserver.New(apiserver.Config{Documents: library}, webmemorytest.Agent(talkative), nil,
		webmemorytest.Logger())
	t.Cleanup(func() { _ = runs.Close() })
	w.SetApiserver(runs.Handler())
	w.URL = startFull(w)
	const posts, stream = "/v1/chats/1/messages", "text/event-stream"
	does := func(status int, method, path string, body any, header ...string) webmemorytest.Response {
		t.Helper()
		got := w.Do(method, path, body, header...)
		require.Equal(t, status, got.Status, "%s %s: %s", method, path, got.Body)
		return got
	}
	does(200, "POST", posts, webmemorytest.Message("The lighthouse keeper is Ann."))
	run := does(200, "POST", posts, webmemorytest.Message("Hi."), "Accept", stream).RunID()
	does(200, "GET", "/v1/chats/1/runs/"+run+"/events", nil)
	does(200, "GET", "/v1/chats/1/messages/"+run+".1/influence", nil)
	does(200, "POST", "/v1/chats/1/quarantine", webapi.Quarantine{Entries: []string{"r.1"}})
	does(200, "GET", "/v1/chats/1/quarantine", nil)
	does(200, "DELETE", "/v1/chats/1/quarantine?entry=r.1", nil)
	does(404, "GET", "/v1/chats/none/messages/r.1/influence", nil)
	does(404, "POST", "/v1/chats/none/quarantine", webapi.Quarantine{Entries: []string{"r.1"}})
	does(204, "GET", "/v1/chats/1/runs/"+run+"/events?last_event_id=12", nil)
	does(404, "GET", "/v1/chats/1/runs/none/events", nil)
	does(200, "GET", "/v1/chats/1/runs/"+run+"/trace", nil)
	does(404, "GET", "/v1/chats/1/runs/none/trace", nil)
	does(200, "POST", "/v1/chats/1/runs/"+run+"/stop", nil)
	does(200, "POST", "/chat", `{"message":"Hi.","chat_id":"1"}`)
	does(400, "POST", "/chat", webmemorytest.Message("Hi."))
	does(502, "POST", posts, webmemorytest.Message("fail"))
	does(400, "POST", posts, `{"message":"Hi.","agent_version":"nobody"}`)
	does(200, "POST", posts, webmemorytest.Message("keyed"), "Idempotency-Key", "k")
	does(422, "POST", posts, webmemorytest.Message("otherwise"), "Idempotency-Key", "k")
	var started struct{ Events string }
	require.NoError(t, json.Unmarshal(does(202, "POST", posts, webmemorytest.Message("wait"), "Prefer",
		"respond-async").Body, &started))
	does(409, "POST", posts, `{"message":"Hi.","on_busy":"reject"}`)
	does(202, "POST", strings.TrimSuffix(started.Events, "/events")+"/stop", nil)
	does(200, "GET", started.Events, nil)
	does(200, "GET", "/v1/chats/1/recall?query=lighthouse", nil)
	does(200, "GET", "/v1/chats/1/subagents/analytic/history", nil)
	does(200, "GET", "/v1/chats/1/history?archive=true&runs=true", nil)
	first := storedIDs(w, "chat_history:1")[0]
	exported := string(does(200, "GET", "/v1/chats/1/export", nil).Body)
	does(404, "GET", "/v1/chats/none/export", nil)
	does(201, "POST", "/v1/chats/2/import", exported)
	does(409, "POST", "/v1/chats/2/import", exported)
	does(201, "POST", "/v1/chats/1/fork", `{"as":3}`)
	does(409, "POST", "/v1/chats/1/fork", `{"as":3}`)
	aside := strings.Trim(gjson.GetBytes(does(200, "POST", "/v1/chats/3/rewind", map[string]string{"to": first}).Body, "id").Raw, `"`)
	does(404, "POST", "/v1/chats/3/rewind", `{"to":"none"}`)
	does(200, "GET", "/v1/chats/3/set-aside", nil)
	does(200, "POST", "/v1/chats/3/set-aside/"+aside+"/restore", nil)
	does(404, "POST", "/v1/chats/3/set-aside/none/restore", nil)
	for _, of := range []string{"/v1/chats/1", "/v1/chats/1/subagents/analytic"} {
		note := strings.Trim(gjson.GetBytes(does(201, "POST", of+"/notes", `{"text":"Likes trains."}`).Body, "id").Raw, `"`)
		does(404, "POST", of+"/notes", `{"text":"x","replaces":"none"}`)
		does(200, "PATCH", of+"/notes/"+note, `{"text":"Likes ships."}`)
		does(404, "PATCH", of+"/notes/none", `{"text":"x"}`)
		does(200, "GET", of+"/notes", nil)
		does(204, "DELETE", of+"/notes/"+note, nil)
		does(404, "DELETE", of+"/notes/none", nil)
	}
	does(200, "GET", "/v1/chats/1", nil)
	does(200, "PATCH", "/v1/chats/1", `{"title":"Lighthouses","metadata":{"of":"Ann"}}`)
	does(404, "PATCH", "/v1/chats/none", `{"title":"x"}`)
	does(200, "GET", "/v1/chats", nil)
	does(200, "GET", "/v1/chats?order=used", nil)
	does(400, "GET", "/v1/chats?limit=0", nil)
	does(200, "PATCH", "/v1/chats/1", `{"title":"Lighthouses","metadata":{"of":"Ann"}}`)
	does(404, "PATCH", "/v1/chats/none", `{"title":"x"}`)
	does(200, "GET", "/v1/chats?order=used&q=lighthouse", nil)
	does(200, "GET", "/v1/chats?order=pinned", nil)
	does(200, "DELETE", "/v1/chats/1/messages/"+first+"?dry_run=true", nil)
	does(404, "DELETE", "/v1/chats/1/messages/none", nil)
	analytic := storedIDs(w, "subagent:analytic:1")
	does(200, "DELETE", "/v1/chats/1/subagents/analytic/messages/"+analytic[0]+"?dry_run=true", nil)
	does(404, "DELETE", "/v1/chats/1/subagents/analytic/messages/none", nil)
	does(200, "DELETE", "/v1/chats/1/subagents/analytic/history", nil)
	does(200, "DELETE", "/v1/chats/1/history", nil)

	does(201, "PUT", "/v1/collections/c", nil)
	does(200, "PUT", "/v1/collections/c", nil)
	does(400, "PUT", "/v1/collections/C", nil)
	does(200, "GET", "/v1/collections", nil)
	does(200, "GET", "/v1/collections/c", nil)
	does(404, "GET", "/v1/collections/none", nil)
	for _, at := range []string{"/v1/collections/c/documents", "/v1/chats/1/documents"} {
		const jsonType, ferry = "application/json", `{"title":"Ferry","text":"# Ferry\nA ticket costs 14 crowns.","metadata":{"lang":"en"}}`
		does(201, "PUT", at+"/a/ferry.md", ferry, "Content-Type", jsonType)
		does(200, "PUT", at+"/a/ferry.md", ferry, "Content-Type", jsonType)
		does(201, "PUT", at+"/b.txt?title=T&metadata.lang=en", "The lighthouse.", "Content-Type", "text/plain")
		does(422, "PUT", at+"/c.txt", "", "Content-Type", "text/plain")
		does(200, "POST", at, `{"id":"l","text":"y"}`+"\n")
		does(207, "POST", at, "nothing\n"+`{"id":"l","text":"z"}`+"\n")
		does(207, "POST", at+"?stream=true", `{"id":"l","text":"z"}`+"\n")
		does(200, "GET", at, nil)
		does(400, "GET", at+"?limit=0", nil)
		does(200, "GET", at+"/a/ferry.md", nil)
		does(404, "GET", at+"/none", nil)
		does(204, "DELETE", at+"/a/ferry.md", nil)
		does(404, "DELETE", at+"/none", nil)
	}
	does(200, "POST", "/v1/collections/c/search", `{"query":"lighthouse","where":{"lang":"en"}}`)
	does(404, "POST", "/v1/collections/none/documents", "{}")
	does(404, "POST", "/v1/collections/none/search", `{"query":"lighthouse"}`)
	does(204, "DELETE", "/v1/collections/c", nil)
	does(404, "DELETE", "/v1/collections/c", nil)
	does(200, "DELETE", "/v1/chats/1", nil)

	does(200, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask",`+
		`"arguments":{"chat":"4","message":"hi"}}}`, "Content-Type", "application/json", "Accept", "application/json, "+stream)
	for _, path := range []string{"/openapi.json", "/healthz", "/readyz", "/metrics"} {
		does(200, "GET", path, nil)
	}

	const completes = `{"model":"mneme","stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi."}]`
	for _, base := range []string{"", "/c/6"} {
		does(200, "POST", base+"/v1/chat/completions", completes+`}`)
		does(200, "POST", base+"/v1/chat/completions", completes+`,"stream":true}`)
		does(404, "POST", base+"/v1/chat/completions", `{"model":"gpt","messages":[{"role":"user","content":"Hi."}]}`)
		response := gjson.GetBytes(does(200, "POST", base+"/v1/responses", `{"model":"mneme","input":"Hi."}`).Body, "id").Str
		does(200, "POST", base+"/v1/responses", `{"model":"mneme","stream":true,"input":[{"role":"user","content":"Hi."}],`+
			`"previous_response_id":"`+response+`"}`)
		does(400, "POST", base+"/v1/responses", `{"model":"mneme","input":"Hi.","previous_response_id":"resp_x"}`)
		does(404, "POST", base+"/v1/responses", `{"model":"gpt","input":"Hi."}`)
		does(200, "GET", base+"/v1/responses/"+response, nil)
		does(200, "DELETE", base+"/v1/responses/"+response, nil)
		does(404, "GET", base+"/v1/responses/resp_x", nil)
		does(404, "DELETE", base+"/v1/responses/resp_x", nil)
		does(400, "POST", base+"/v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":[`+
			`{"type":"file","file":{"file_id":"file-1"}}]}]}`)
		require.Contains(t, string(does(200, "POST", base+"/v1/embeddings", `{"input":"x"}`).Body), `"/v1/embeddings"`)
		does(503, "POST", base+"/v1/embeddings", `{"input":"away"}`)
		does(200, "GET", base+"/v1/models", nil)
		does(200, "GET", base+"/v1/models/mneme/analytic", nil)
		does(404, "GET", base+"/v1/models/gpt", nil)
	}
	talk := gjson.GetBytes(does(200, "POST", "/v1/conversations", `{"items":[{"role":"user","content":"Hi."}]}`).Body, "id").Str
	does(200, "GET", "/v1/conversations/"+talk, nil)
	does(200, "POST", "/v1/conversations/"+talk+"/items", `{"items":[{"role":"assistant","content":"Ho."}]}`)
	part := gjson.GetBytes(does(200, "GET", "/v1/conversations/"+talk+"/items", nil).Body, "data.0.id").Str
	does(200, "DELETE", "/v1/conversations/"+talk+"/items/"+part, nil)
	does(200, "DELETE", "/v1/conversations/"+talk, nil)
	does(400, "POST", "/v1/conversations", `{"items":[{"type":"computer_call"}]}`)
	does(400, "POST", "/v1/conversations/"+talk+"/items", `{"items":1}`)
	does(400, "GET", "/v1/conversations/"+talk+"/items?limit=0", nil)
	does(404, "DELETE", "/v1/conversations/"+talk+"/items/x", nil)
	for _, method := range []string{"GET", "DELETE"} {
		does(404, method, "/v1/conversations/a%20b", nil)
	}
	does(200, "POST", "/v1/chats/6/ui", `{"id":"page","trigger":"submit-message","messages":[`+
		`{"id":"u","role":"user","parts":[{"type":"text","text":"Hi."}]}]}`)
	does(400, "POST", "/v1/chats/6/ui", "{}")
	does(404, "POST", "/v1/chats/6/ui", `{"id":"page","trigger":"submit-message","messages":[{"id":"a",`+
		`"role":"assistant","parts":[{"type":"dynamic-tool","state":"output-available","output":1,`+
		`"toolCallId":"call_`+strings.Repeat("A", 26)+`_w"}]}]}`)
	does(204, "GET", "/v1/chats/6/ui/page/stream", nil)
	does(400, "GET", "/v1/chats/a%20b/ui/page/stream", nil)
	var note memory.Note
	at := "/v1/users/ann/notes"
	require.NoError(t, json.Unmarshal(does(201, "POST", at, `{"text":"x"}`).Body, &note))
	does(400, "POST", at, `{}`)
	does(200, "GET", at, nil)
	does(400, "GET", "/v1/users/a%20b/notes", nil)
	does(200, "PATCH", at+"/"+note.ID, `{"state":"active"}`)
	does(404, "PATCH", at+"/none", `{"state":"active"}`)
	does(204, "DELETE", at+"/"+note.ID, nil)
	does(404, "DELETE", at+"/none", nil)
	does(200, "PUT", "/v1/users/ann", `{"time_zone":"Asia/Tokyo"}`)
	does(400, "PUT", "/v1/users/ann", `{"time_zone":"Tokyo"}`)
	does(200, "GET", "/v1/users/ann", nil)
	does(400, "GET", "/v1/users/a%20b", nil)
	does(200, "DELETE", "/v1/users/ann?chats=true", nil)
	does(400, "DELETE", "/v1/users/ann?chats=x", nil)
	does(400, "GET", "/v1/users/ann/recall?query=", nil)
	does(200, "GET", "/v1/users/ann/recall?query=lighthouse", nil)

	does(200, "POST", "/v1/oneshot", webmemorytest.Message("Hi."))
	does(400, "POST", "/v1/oneshot", `{}`)

	does(409, "GET", "/v1/keys", nil)
	does(200, "GET", "/v1/keys/self", nil)
	does(409, "GET", "/v1/usage", nil)
	does(409, "GET", "/v1/audit", nil)
	without := w.URL
	w.URL = w.StartReplica(func(c *webmemory.Config) {
		c.Keys, c.Usage = access.NewStore(w.Redis), tally.New(w.Redis, time.Hour)
		c.Audit = audit.New(w.Redis)
	})
	does(200, "GET", "/v1/usage?by=chat&since=7d", nil)
	does(400, "GET", "/v1/usage?by=colour", nil)
	does(200, "GET", "/v1/audit?limit=1", nil)
	does(400, "GET", "/v1/audit?cursor=x", nil)
	does(400, "POST", "/v1/keys", `{"name":"bot","scopes":["chat"],"rate":"often"}`)
	var made struct{ ID string }
	keyed := does(201, "POST", "/v1/keys", `{"name":"bot","scopes":["chat"],"rate":"60/m","budget":"20usd/month"}`)
	require.NoError(t, json.Unmarshal(keyed.Body, &made))
	does(200, "GET", "/v1/keys", nil)
	does(200, "POST", "/v1/keys/"+made.ID+"/rotate", `{"overlap":60}`)
	does(404, "POST", "/v1/keys/none/rotate", `{}`)
	does(200, "DELETE", "/v1/keys/"+made.ID, nil)
	does(404, "DELETE", "/v1/keys/none", nil)
	does(200, "GET", "/v1/tenants", nil)
	does(200, "GET", "/v1/tenants/default/export", nil)
	does(404, "GET", "/v1/tenants/acme/export", nil)
	does(409, "DELETE", "/v1/tenants/default", nil)
	does(400, "DELETE", "/v1/tenants/A", nil)
	w.SetApiserver(forTenants(runs.Handler()))
	does(200, "DELETE", "/v1/tenants/acme", nil)
	w.SetApiserver(runs.Handler())
	keys := access.NewAuthenticator(nil, access.NewStore(w.Redis), zerolog.Nop())
	t.Cleanup(func() { _ = keys.Close() })
	w.URL = w.StartReplica(func(c *webmemory.Config) { c.Gate = &access.Gate{Keys: keys} })
	does(401, "GET", "/v1/keys/self", nil)
	w.URL = without
	does(409, "GET", "/v1/tenants", nil)

	waiting, _, _ := webmemorytest.NewSuspendedWorld(t)
	waiting.Middleware = d.watch
	waiting.URL = waiting.StartReplica()
	asked := waiting.PostSuspended("5")
	require.Equal(t, 200, waiting.Do("GET", "/v1/chats/5/runs/"+asked+"/events", nil).Status)
	require.Equal(t, 200, waiting.Do("GET", "/v1/chats/5/runs/"+asked+"/trace", nil).Status)
	require.Equal(t, 200, waiting.Do("GET", "/v1/approvals", nil).Status)
	require.Equal(t, 400, waiting.Do("GET", "/v1/approvals?kind=x", nil).Status)
	require.Equal(t, 200, waiting.Do("GET", "/v1/chats/5", nil).Status)
	require.Equal(t, 409, waiting.Do("POST", "/v1/chats/5/messages", `{"message":"Hi.","on_busy":"reject"}`).Status)
	require.Equal(t, 404, waiting.Resume("5", asked, webmemorytest.Approve("none")).Status)
	require.Equal(t, 200, waiting.Resume("5", asked, webmemorytest.Approve("w1"), "Accept", stream).Status)
	require.Equal(t, 409, waiting.Resume("5", asked, webmemorytest.Decide(event.Deny, "w1")).Status)

	waiting.ScriptApiserver(webmemorytest.SuspendOn(light))
	shot := `{"message":"light","tools":[{"name":"light","description":"x","parameters":{"type":"object"}}]}`
	require.Equal(t, 202, waiting.Do("POST", "/v1/oneshot", shot).Status)

	for path, operations := range d.paths {
		for method := range operations {
			name := strings.ToUpper(method) + " " + path
			models := strings.HasPrefix(path, "/c/{chat}/v1/models") // the same whichever chat it is
			if strings.Contains(path, "{chat}") && !models {         // each refuses a chat with a bad id
				bad := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(strings.Replace(path, "{chat}", "a%20b", 1), "x")
				does(400, strings.ToUpper(method), bad, `{"message":"x","text":"x","to":null,"as":"y","answers":[{"id":"w","decision":"deny"}]}`)
			}
			succeeded := slices.ContainsFunc(d.seen[name], func(status int) bool { return status/100 == 2 })
			refused := slices.ContainsFunc(d.seen[name], func(status int) bool { return status/100 > 2 })
			assert.True(t, succeeded, "%s was not seen to answer", name)
			never := strings.Count(path, "/") == 1 || path == "/v1/collections" || strings.HasSuffix(path, "/v1/models")
			assert.True(t, refused || never, "%s was not seen to refuse", name)
		}
	}
}

// The document is served as it is.
func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	openapi.Serve(rec, httptest.NewRequest("GET", "/openapi.json", nil))
	require.Equal(t, "application/json; charset=utf-8", rec.Header().Get("Content-Type"))
	require.Equal(t, openapi.Document(), rec.Body.Bytes())
}
