package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// bank is a bank that somebody else runs: it pays and sends by POST, and tells facts by GET and by
// MCP. Safe for concurrent use.
type bank struct {
	*httptest.Server
	mcp   *httptest.Server
	mu    sync.Mutex
	facts map[string]string // what is told of a topic; guarded by mu
	done  []string          // path and body of each POST; guarded by mu
}

func newBank(t *testing.T) *bank {
	b := &bank{facts: map[string]string{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		topic := path.Base(r.URL.Path)
		if r.Method == http.MethodPost {
			b.mu.Lock()
			b.done = append(b.done, topic+" "+string(body))
			b.mu.Unlock()
		}
		fact := b.fact(topic)
		if strings.HasPrefix(fact, "refused: ") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = io.WriteString(w, fact)
	}))
	server := mcp.NewServer(&mcp.Implementation{Name: "crm", Version: "1"}, nil)
	tool := func(name string, hints *mcp.ToolAnnotations) {
		server.AddTool(&mcp.Tool{Name: name, Description: name, Annotations: hints,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"topic":{"type":"string"}}}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				topic := gjson.GetBytes(r.Params.Arguments, "topic").Str
				if name != "case" {
					b.mu.Lock()
					b.done = append(b.done, name+" "+string(r.Params.Arguments))
					b.mu.Unlock()
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: b.fact(topic)}}}, nil
			})
	}
	yes := true
	tool("case", &mcp.ToolAnnotations{ReadOnlyHint: true})
	tool("close", &mcp.ToolAnnotations{DestructiveHint: &yes})
	tool("assign", nil)
	b.mcp = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(b.Close)
	t.Cleanup(b.mcp.Close)
	return b
}

func (b *bank) fact(topic string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fact, ok := b.facts[topic]; ok {
		return fact
	}
	return `{"ok": true}`
}

func (b *bank) tells(topic, fact string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts[topic] = fact
}

// calls are the effects so far.
func (b *bank) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.done...)
}

// counter is a whole mneme over a Redis whose agents reach a bank and documents: the master and a subagent, clerk, look
// things up, refund and send; a subagent, reader, has the documents. Models say what was queued.
type counter struct {
	*up
	bank    *bank
	vendor  *upstreamtest.Server
	redis   *redistest.Server
	environ []string
}

// deskTools are those of the master and of clerk.
const deskTools = `
    - calculator
    - http: {name: look, description: Looks a topic up., url: "URL/look/{topic}", parameters: {type: object, properties: {topic: {type: string}}}}
    - http: {name: refund, description: Pays back., method: POST, url: "URL/refund", parameters: {type: object, properties: {order: {type: string}, cents: {type: integer}, euros: {type: number}, iban: {type: string}, to: {type: array, items: {type: object}}}}}
    - http: {name: send, description: Sends a message., method: POST, url: "URL/send", parameters: {type: object, properties: {to: {type: string}, text: {type: string}}}}
    - http: {name: reset, description: Begins anew., method: POST, url: "URL/reset"}`

func newCounter(t *testing.T, more string, environ ...string) *counter {
	t.Chdir(t.TempDir())
	d := &counter{bank: newBank(t), redis: redistest.Start(t)}
	done := upstreamtest.Reply(upstreamtest.Say("Done."))
	d.vendor = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer { return &done }})
	server := httptest.NewServer(d.vendor)
	t.Cleanup(func() {
		server.Close()
		require.Empty(t, d.vendor.Rejections())
	})
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(strings.NewReplacer("URL", d.bank.URL, "MCP", d.bank.mcp.URL).
		Replace(`
mcp: {crm: {url: "MCP"}}
agents:
  master:
    max_steps: 20
    tools:`+deskTools+`
    - {mcp: crm, approve: {assign: when_tainted}}
`+more+`
  subagents:
  - {name: reader, description: Reads documents., collections: [docs]}
  - name: clerk
    description: Does what is to be done.
    tools:`+deskTools+`
`)), 0o600))
	d.environ = append([]string{"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_REDIS_URL=" + d.redis.URL(),
		"MNEME_WEBMEMORY_CONTEXT_WINDOW=4", "MNEME_RECALL_AUTO=off", "MNEME_PROXY_ACTIVE=v",
		backend("v", "openai", server.URL+"/v1")}, environ...)
	d.up = start(t, d.environ...)
	d.ready()
	return d
}

// ready waits for what the bank has by MCP.
func (d *counter) ready() {
	require.Eventually(d.t, func() bool {
		resp, err := http.Get("http://" + d.addrs.Apiserver + "/v1/tools")
		require.NoError(d.t, err)
		defer resp.Body.Close()
		list, err := io.ReadAll(resp.Body)
		require.NoError(d.t, err)
		return gjson.GetBytes(list, `tools.#(kind=="mcp")`).Exists()
	}, time.Minute, 10*time.Millisecond)
}

// restart ends all services and starts others over the same Redis.
func (d *counter) restart() {
	t := d.t
	d.stop()
	d.up = start(t, d.environ...)
	d.ready()
}

// document loads one into a chat.
func (d *counter) document(chat, id, text string) {
	d.t.Helper()
	kind := "text/markdown"
	if strings.HasSuffix(id, ".pdf") {
		kind = "application/pdf"
	}
	status, body := d.request("PUT", "/v1/chats/"+chat+"/documents/"+id, kind, text)
	require.Equal(d.t, http.StatusCreated, status, body)
}

// post says something to an agent, "" for the master, and gives what came of it.
func (d *counter) post(chat, agent, message string) (int, gjson.Result) {
	d.t.Helper()
	post := map[string]any{"message": message}
	if agent != "" {
		post["agent_version"] = agent
	}
	body, err := json.Marshal(post)
	require.NoError(d.t, err)
	status, answer := d.request(http.MethodPost, "/v1/chats/"+chat+"/messages", "application/json", string(body))
	return status, gjson.Parse(answer)
}

// resume answers what a run waits for.
func (d *counter) resume(chat string, waiting gjson.Result, answer string) (int, gjson.Result) {
	d.t.Helper()
	status, body := d.request(http.MethodPost, "/v1/chats/"+chat+"/runs/"+waiting.Get("run_id").Str+"/resume",
		"application/json", fmt.Sprintf(`{"answers":[{"id":%q,%s}]}`, waiting.Get("waits.0.id").Str, answer))
	return status, gjson.Parse(body)
}

// plays queues what models do, one after the other, whichever agent they are.
func (d *counter) plays(moves ...upstreamtest.Answer) { d.vendor.Queue(moves...) }

// uses is a call of a tool.
func uses(tool, arguments string) upstreamtest.Answer {
	return upstreamtest.Reply(upstreamtest.Use(tool, arguments))
}

func usesWith(tool string, pairs ...string) upstreamtest.Answer {
	arguments := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		arguments[pairs[i]] = pairs[i+1]
	}
	raw, _ := json.Marshal(arguments) // texts marshal
	return uses(tool, string(raw))
}

func says(text string) upstreamtest.Answer          { return upstreamtest.Reply(upstreamtest.Say(text)) }
func asks(agent, task string) upstreamtest.Answer   { return usesWith(agent, "task", task) }
func searches(query string) upstreamtest.Answer     { return usesWith("search_documents", "query", query) }
func looks(topic string) upstreamtest.Answer        { return usesWith("look", "topic", topic) }
func sends(to, text string) upstreamtest.Answer     { return usesWith("send", "to", to, "text", text) }
func refunds(arguments string) upstreamtest.Answer  { return uses("refund", arguments) }
func recallsWords(query string) upstreamtest.Answer { return usesWith("recall", "query", query) }

// reads is what models do where the reader is asked, searches, and answers.
func reads(query, answer string) []upstreamtest.Answer {
	return []upstreamtest.Answer{asks("reader", "What is there of "+query+"?"), searches(query), says(answer)}
}
