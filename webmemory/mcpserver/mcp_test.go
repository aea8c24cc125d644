package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
)

// eras are the protocol's versions that clients speak: the last with an initialize handshake,
// the oldest one that clients still have, and the one without.
var eras = []string{"2025-03-26", "2025-11-25", "2026-07-28"}

// startMCP starts a replica with POST /mcp. end closes the MCP server.
func startMCP(w *webmemorytest.World) (url string, end func()) {
	w.T.Helper()
	var tools atomic.Pointer[mcpserver.Handler]
	url = w.StartReplica(func(c *webmemory.Config) {
		c.MCP = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { tools.Load().ServeHTTP(rw, r) })
	})
	memory, err := webapi.New(url)
	require.NoError(w.T, err)
	tools.Store(mcpserver.Config{Memory: memory, Version: "1", Log: zerolog.Nop()}.HTTP())
	w.T.Cleanup(tools.Load().Close)
	w.T.Cleanup(memory.Close)
	return url, tools.Load().Close
}

// mcpWorld is newWorld with a process that has POST /mcp.
func mcpWorld(t *testing.T, a webmemorytest.Agent) *webmemorytest.World {
	w := webmemorytest.NewWorld(t, a)
	w.URL, _ = startMCP(w)
	return w
}

// mcpClient is a session of the SDK's client that speaks a version of the protocol; told gets the
// notifications of progress.
func mcpClient(t *testing.T, url, version string, told func(*mcp.ProgressNotificationParams)) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if told != nil {
				told(r.Params)
			}
		},
	})
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", MaxRetries: -1},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Equal(t, version, s.InitializeResult().ProtocolVersion)
	return s
}

// called is what a call of a tool gave.
type called struct {
	text    string
	problem api.Problem // of an error
	data    map[string]any
}

// callTool calls a tool; any goroutine may.
func callTool(s *mcp.ClientSession, name string, arguments map[string]any, meta mcp.Meta) (called, error) {
	result, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: arguments, Meta: meta})
	if err != nil {
		return called{}, err
	}
	out := called{text: result.Content[0].(*mcp.TextContent).Text}
	if result.IsError {
		raw, err := json.Marshal(result.Meta[mcpserver.MetaError])
		return out, errors.Join(err, json.Unmarshal(raw, &out.problem))
	}
	raw, err := json.Marshal(result.StructuredContent)
	return out, errors.Join(err, json.Unmarshal(raw, &out.data))
}

func ask(chat, message string) map[string]any {
	return map[string]any{"chat": chat, "message": message}
}

// A client of either era lists the tools, asks, is told of the run's progress, and searches what
// was said, also through another process.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	w := mcpWorld(t, webmemorytest.Answers("hello"))
	other, _ := startMCP(w)
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			var mu sync.Mutex
			var told []string
			s := mcpClient(t, w.URL, era, func(p *mcp.ProgressNotificationParams) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprint(p.Progress, " ", p.Meta[mcpserver.MetaEvent], " ", p.Message))
			})
			list, err := s.ListTools(t.Context(), nil)
			require.NoError(t, err)
			names := []string{}
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				require.NotNil(t, tool.OutputSchema)
			}
			require.ElementsMatch(t, []string{"ask", "recall", "search_documents"}, names)

			got, err := callTool(s, "ask", ask("a-"+era, "the word is heron"), mcp.Meta{"progressToken": "p"})
			require.NoError(t, err)
			require.Equal(t, "hello", got.text)
			require.Equal(t, "hello", got.data["content"])
			require.Equal(t, "completed", got.data["outcome"])
			require.Equal(t, []string{"user: the word is heron", "assistant: hello"}, w.History("chat_history:a-"+era))
			webmemorytest.Eventually(t, "all of the progress is told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(told) == 3
			})
			require.Equal(t, []string{
				"1 subagent_delegation analytic is asked: task: the word is heron",
				"2 subagent_completion analytic is done (completed)", "3 assistant_delta hello",
			}, told)

			there := mcpClient(t, other, era, nil)
			got, err = callTool(there, "recall", map[string]any{"chat": "a-" + era, "query": "heron"}, nil)
			require.NoError(t, err)
			require.Contains(t, got.text, "user: the word is heron")
			require.NotEmpty(t, got.data["hits"])
			require.Contains(t, got.text, " UTC, user")
			got, err = callTool(there, "recall", map[string]any{"chat": "a-" + era, "query": "What did I say today?",
				"time_zone": "Asia/Tokyo"}, nil)
			require.NoError(t, err)
			require.Contains(t, got.text, " JST, user: the word is heron")
			got, err = callTool(there, "ask", map[string]any{"chat": "a-" + era, "message": "again", "agent": "analytic"}, nil)
			require.NoError(t, err)
			require.Equal(t, "hello", got.text)
		})
	}
}

// A call is refused as the same request over HTTP, with the code and the sentence.
func TestMCPRefuses(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := mcpWorld(t, webmemorytest.Answers("hello"))
	for _, era := range eras {
		s := mcpClient(t, w.URL, era, nil)
		for _, c := range []struct {
			tool      string
			arguments map[string]any
			meta      mcp.Meta
			code      string
			says      string
		}{
			{"ask", ask("c", " "), nil, "bad_request", "message is missing or empty."},
			{"ask", ask("no chat", "hi"), nil, "bad_request", "A chat id is"},
			{"ask", ask("..", "hi"), nil, "", "hello"},
			{"ask", map[string]any{"chat": "c", "message": "hi", "agent": "nobody"}, nil, "unknown_agent", "there are: master"},
			{"ask", ask("c", strings.Repeat("x", 1<<20+1)), nil, "too_large", "A message may have 1048576 bytes"},
			{"ask", ask("c", "hi"), mcp.Meta{mcpserver.MetaKey: 1}, "bad_request", "printable ASCII"},
			{"ask", ask("c", "hi"), mcp.Meta{mcpserver.MetaKey: "a\nb"}, "bad_request", "printable ASCII"},
			{"recall", map[string]any{"chat": "c", "query": "x", "time_zone": "Local"}, nil, "bad_request", "Europe/Berlin"},
			{"recall", map[string]any{"chat": "c", "query": ""}, nil, "bad_request", "query is missing"},
			{"recall", map[string]any{"chat": "c", "query": "x", "subagent": "../x"}, nil, "bad_request", "name"},
			{"recall", map[string]any{"chat": "nobody-was-here", "query": "x"}, nil, "", "Nothing was found."},
			{"search_documents", map[string]any{"collection": "docs", "query": "x"}, nil, "documents_off", "keeps no documents"},
		} {
			got, err := callTool(s, c.tool, c.arguments, c.meta)
			require.NoError(t, err)
			assert.Equal(t, c.code, got.problem.Code, "%s %v", c.tool, c.arguments["chat"])
			assert.Contains(t, got.text, c.says)
			if c.code != "" {
				assert.Contains(t, got.text, "("+c.code+")")
			}
		}
		for arguments, says := range map[string]string{
			`{}`: `A chat id is 1 to 128 characters`, `{"chat":"c"}`: "message is missing", `{"chat":null}`: "A chat id is",
			`{"chat":1,"message":"hi"}`:                 "chat must be a string, not a number",
			`{"chat":"c","message":"hi","mesage":"x"}`:  `has no member "mesage"; the nearest one is message.`,
			`{"chat":"c","message":"hi","message":"x"}`: `has the member "message" twice`, `[1]`: "must be a JSON object",
		} {
			result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: json.RawMessage(arguments)})
			require.NoError(t, err)
			require.True(t, result.IsError)
			assert.Contains(t, result.Content[0].(*mcp.TextContent).Text, says, arguments)
		}
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "approve"})
		require.ErrorContains(t, err, `unknown tool "approve"`)
	}
}

// What is no request of the protocol is refused with a status and a sentence, and the next one is
// answered.
func TestMCPBadRequests(t *testing.T) {
	t.Parallel()
	w := mcpWorld(t, webmemorytest.Answers("hello"))
	const list, both = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "application/json, text/event-stream"
	modern := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}}}`
	for name, c := range map[string]struct {
		method, body, kind, accept string
		header                     []string
		status                     int
		says                       string
	}{
		"get":                 {method: "GET", status: 405, says: "/mcp does not take GET, only POST."},
		"delete":              {method: "DELETE", status: 405, says: "/mcp does not take DELETE, only POST."},
		"no body":             {status: 400, says: "POST requires a non-empty body"},
		"not JSON":            {body: "hello", status: 400, says: "malformed payload"},
		"half":                {body: list[:20], status: 400, says: "malformed payload"},
		"not JSON-RPC":        {body: `{"message":"hi"}`, status: 400, says: "malformed payload"},
		"batch":               {body: " [" + list + "]", status: 400, says: "A request is one message"},
		"huge":                {body: strings.Repeat("x", 2<<20+1), status: 413, says: "The body is larger than 2097152 bytes."},
		"nested":              {body: strings.Repeat(`{"a":`, 300_000), status: 400, says: "nested more than 256 deep"},
		"nested arguments":    {body: nested(300_000), status: 400, says: "nested more than 256 deep"},
		"content type":        {body: list, kind: "text/plain", status: 415, says: "Content-Type must be 'application/json'"},
		"accept":              {body: list, accept: "text/html", status: 400, says: "Accept must contain both"},
		"old unknown version": {body: list, header: []string{"Mcp-Protocol-Version", "2024-01-01"}, status: 400, says: "Unsupported"},
		"unknown method":      {body: `{"jsonrpc":"2.0","id":1,"method":"nothing"}`, status: 400, says: "nothing"},
		"a method of others":  {body: `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, status: 200, says: "-32601"},
		"a request":           {body: list, status: 200, says: "search_documents"},
		"modern without meta": {body: list, header: []string{"Mcp-Protocol-Version", "2026-07-28"}, status: 400, says: "_meta"},
		"modern": {body: modern, header: []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"},
			status: 200, says: "search_documents"},
		"modern, another header": {body: modern, header: []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"},
			status: 400, says: "-32020"},
		"modern, future version": {body: strings.ReplaceAll(modern, "2026-07-28", "2031-01-01"),
			header: []string{"Mcp-Protocol-Version", "2031-01-01", "Mcp-Method", "tools/list"}, status: 400, says: "-32022"},
		"a session that is not known": {body: list, header: []string{"Mcp-Session-Id", "x"}, status: 200, says: "search_documents"},
	} {
		method, kind, accept := c.method, c.kind, c.accept
		if method == "" {
			method = "POST"
		}
		if kind == "" {
			kind = "application/json"
		}
		if accept == "" {
			accept = both
		}
		got := w.Do(method, "/mcp", c.body, append([]string{"Content-Type", kind, "Accept", accept}, c.header...)...)
		assert.Equal(t, c.status, got.Status, "%s: %s", name, got.Body)
		assert.Contains(t, string(got.Body), c.says, name)
	}
}

// nested is a call with arrays in arrays as arguments.
func nested(depth int) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"chat":` +
		strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}}}`
}

// A call that is repeated with its key joins the run of the first one, through any process.
func TestMCPRetry(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := mcpWorld(t, webmemorytest.AnswersAfter(release))
	other, _ := startMCP(w)
	key := mcp.Meta{mcpserver.MetaKey: "k-1"}
	begun := make(chan struct{})
	var once sync.Once
	first := mcpClient(t, w.URL, "2026-07-28", func(*mcp.ProgressNotificationParams) { once.Do(func() { close(begun) }) })
	second := mcpClient(t, other, "2025-11-25", nil)
	var runs [2]any
	var wg sync.WaitGroup
	call := func(i int, s *mcp.ClientSession, meta mcp.Meta) {
		got, err := callTool(s, "ask", ask("c", "hi"), meta)
		assert.NoError(t, err)
		assert.Equal(t, "answer to hi", got.text)
		runs[i] = got.data["run_id"]
	}
	wg.Go(func() { call(0, first, mcp.Meta{mcpserver.MetaKey: "k-1", "progressToken": 7}) })
	<-begun
	wg.Go(func() { call(1, second, key) })
	close(release)
	wg.Wait()
	require.Equal(t, runs[0], runs[1])
	require.Equal(t, []string{"user: hi", "assistant: answer to hi"}, w.History("chat_history:c"))
	got, err := callTool(second, "ask", ask("c", "something else"), key)
	require.NoError(t, err)
	require.Equal(t, "idempotency_key_reused", got.problem.Code)
}

// A client that leaves, or that cancels its call, does not stop the run; what it waited for is in
// the memory, and nothing of the call is left.
func TestMCPClientLeaves(t *testing.T) {
	t.Parallel()
	for _, era := range eras[1:] {
		t.Run(era, func(t *testing.T) {
			release := make(chan struct{})
			w := mcpWorld(t, webmemorytest.AnswersAfter(release))
			begun := make(chan struct{}, 10)
			s := mcpClient(t, w.URL, era, func(*mcp.ProgressNotificationParams) { begun <- struct{}{} })
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				params := &mcp.CallToolParams{Name: "ask", Arguments: ask("c", "hi"), Meta: mcp.Meta{"progressToken": 1}}
				_, err := s.CallTool(ctx, params)
				left <- err
			}()
			<-begun
			leave()
			require.ErrorIs(t, <-left, context.Canceled)
			_ = s.Close()
			webmemorytest.Eventually(t, "the call's stream is over", func() bool {
				return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "\nmneme_event_streams 0\n")
			})
			close(release)
			webmemorytest.Eventually(t, "the run is over", func() bool { return len(w.History("chat_history:c")) == 2 })
			require.Equal(t, []string{"user: hi", "assistant: answer to hi"}, w.History("chat_history:c"))
		})
	}
}

// When the service ends, a call that goes on is told so, and its message is answered all the same.
func TestMCPShutdown(t *testing.T) {
	t.Parallel()
	for _, era := range eras[1:] {
		release := make(chan struct{})
		w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
		url, end := startMCP(w)
		begun := make(chan struct{}, 10)
		s := mcpClient(t, url, era, func(*mcp.ProgressNotificationParams) { begun <- struct{}{} })
		ended := make(chan called, 1)
		go func() {
			got, err := callTool(s, "ask", ask("c", "hi"), mcp.Meta{"progressToken": 1})
			assert.NoError(t, err)
			ended <- got
		}()
		<-begun
		end()
		got := <-ended
		require.Equal(t, "shutting_down", got.problem.Code, got.text)
		require.True(t, got.problem.Retryable)
		close(release)
		webmemorytest.Eventually(t, "the run is over", func() bool { return len(w.History("chat_history:c")) == 2 })
	}
}

// Many clients at once each get the answer of their own chat.
func TestMCPCrowd(t *testing.T) {
	t.Parallel()
	w := mcpWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{}, &event.Assistant{Content: r.Chat.String() + " says " + r.Message})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s := mcpClient(t, w.URL, eras[i%len(eras)], nil)
			chat := fmt.Sprint("crowd-", i)
			got, err := callTool(s, "ask", ask(chat, "hi"), nil)
			assert.NoError(t, err)
			assert.Equal(t, chat+" says hi", got.text)
		})
	}
	wg.Wait()
}

// A run that fails is an error with its code.
func TestMCPFailedRun(t *testing.T) {
	testtier.Slow(t)
	w := mcpWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{}, &event.Error{Code: "model_failed", Message: "The model gave no answer.", Retryable: true})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	})
	got, err := callTool(mcpClient(t, w.URL, "2026-07-28", nil), "ask", ask("c", "hi"), nil)
	require.NoError(t, err)
	require.Equal(t, "The model gave no answer. (model_failed)", got.text)
	require.Equal(t, "model_failed", got.problem.Code)
	require.NotEmpty(t, got.problem.RunID)
}

// A run that waits for a person is no error: the result says what it waits for and where a person
// answers it, which no tool does. The same call gives the answer then, and another message closes
// the wait.
func TestMCPRunThatWaits(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w, _, _ := webmemorytest.NewSuspendedWorld(t)
	w.URL, _ = startMCP(w)
	for _, era := range eras {
		s := mcpClient(t, w.URL, era, nil)
		key := mcp.Meta{mcpserver.MetaKey: "k-" + era}
		chat := "waits-" + era
		got, err := callTool(s, "ask", ask(chat, "refund me"), key)
		require.NoError(t, err)
		require.Contains(t, got.text, "\n- w1 (approval refund, until ")
		require.Equal(t, "waiting", got.data["outcome"])
		require.Equal(t, got.text, got.data["note"])
		wait := got.data["waits"].([]any)[0].(map[string]any)
		require.Equal(t, "w1", wait["id"])
		require.Equal(t, map[string]any{"amount": 5.0}, wait["arguments"])
		w.AwaitSuspension(chat)
		again, err := callTool(s, "ask", ask(chat, "refund me"), key)
		require.NoError(t, err)
		require.Equal(t, got, again, "it still waits")
		require.Equal(t, 200, w.Do("POST", got.data["resume_path"].(string), webmemorytest.Approve("w1")).Status)
		again, err = callTool(s, "ask", ask(chat, "refund me"), key)
		require.NoError(t, err)
		require.Equal(t, "decided: approve", again.text)
		require.Equal(t, got.data["run_id"], again.data["run_id"])

		_, err = callTool(s, "ask", ask("closed-"+era, "refund me"), nil)
		require.NoError(t, err)
		got, err = callTool(s, "ask", ask("closed-"+era, "plain words"), nil)
		require.NoError(t, err)
		require.Equal(t, "plainly", got.text)
	}
}

// A client that listens for changes of the list of tools, of which there are none, is let go when
// the service ends.
func TestMCPListener(t *testing.T) {
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	url, end := startMCP(w)
	w.URL = url
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen",`+
		`"params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}}}`,
		"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Method", "subscriptions/listen",
		"Mcp-Protocol-Version", "2026-07-28"))
	require.NoError(t, err)
	defer resp.Body.Close()
	frame, err := sse.NewReader(resp.Body, api.MaxEvent, 0, nil).Next()
	require.NoError(t, err)
	require.Contains(t, string(frame.Data), "notifications/subscriptions/acknowledged")
	end()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
}

// A message is withdrawn if its client leaves while it waits for its chat's turn, as over HTTP.
func TestMCPClientLeavesTheQueue(t *testing.T) {
	t.Parallel()
	for _, era := range eras[1:] {
		release := make(chan struct{})
		w := mcpWorld(t, webmemorytest.AnswersAfter(release))
		begun := make(chan struct{}, 10)
		s := mcpClient(t, w.URL, era, func(*mcp.ProgressNotificationParams) { begun <- struct{}{} })
		first := make(chan error, 1)
		go func() {
			_, err := callTool(s, "ask", ask("c", "first"), mcp.Meta{"progressToken": 1})
			first <- err
		}()
		<-begun
		waiting := func(n int) func() bool {
			return func() bool {
				return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), fmt.Sprint("\nmneme_waiting_messages ", n, "\n"))
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "ask", Arguments: ask("c", "second")})
			left <- err
		}()
		webmemorytest.Eventually(t, "the second message waits", waiting(1))
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		webmemorytest.Eventually(t, "it is withdrawn", waiting(0))
		close(release)
		require.NoError(t, <-first)
		require.Equal(t, []string{"user: first", "assistant: answer to first"}, w.History("chat_history:c"))
	}
}
