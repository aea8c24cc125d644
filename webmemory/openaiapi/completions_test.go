package openaiapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
)

// openaiWorld is newWorld with a process that has it.
func openaiWorld(t *testing.T, a webmemorytest.Agent, change ...func(*openaiapi.Config)) *webmemorytest.World {
	w := webmemorytest.NewWorld(t, a)
	w.URL = w.StartOpenAI(change...)
	return w
}

// postCompletion posts a request for a chat completion. An empty chat is none.
func postCompletion(w *webmemorytest.World, chat, body string, header ...string) webmemorytest.Response {
	w.T.Helper()
	if chat != "" {
		header = append(header, "Mneme-Chat-Id", chat)
	}
	return w.Do("POST", "/v1/chat/completions", body, header...)
}

// transcriptOf is a request with messages of the user and the assistant in turns, the first one
// the user's.
func transcriptOf(texts ...string) string {
	var messages []map[string]string
	for i, text := range texts {
		messages = append(messages, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text})
	}
	raw, _ := json.Marshal(map[string]any{"model": "mneme", "messages": messages})
	return string(raw)
}

// openaiError returns the error of an OpenAI response.
func openaiError(t *testing.T, a webmemorytest.Response) openai.APIError {
	t.Helper()
	var body openai.ErrorResponse
	require.NoError(t, json.Unmarshal(a.Body, &body), string(a.Body))
	require.NotNil(t, body.Error, string(a.Body))
	return *body.Error
}

// ferry is a run with progress, text in two steps, citations and usage.
func ferry(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
	of := event.Head{Subagent: "knowledge", CallID: "c"}
	emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
	emit(event.Head{}, &event.AssistantDelta{Text: "I look it up."})
	emit(of, &event.Delegation{Task: "What does\na ferry cost?", Calls: event.Serial})
	emit(of, &event.ToolProgress{Tool: "documents", Status: "running", Detail: `{"query":"ferry"}`})
	emit(of, &event.ToolProgress{Tool: "documents", Status: "done"})
	emit(of, &event.SubagentDelta{Text: "14"})
	emit(of, &event.Completion{Response: "14 [1]", Status: event.Completed})
	emit(event.Head{}, &event.AssistantDelta{Text: "It <b>costs</b> "})
	emit(event.Head{}, &event.AssistantDelta{Text: "14 [1]."})
	emit(event.Head{}, &event.Assistant{Content: "It <b>costs</b> 14 [1].", Citations: []event.Citation{
		{N: 1, DocID: "ferry.md", Title: "Ferry", Source: "https://x.y/ferry", Quote: "14 crowns"}}})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed, Usage: event.Usage{InputTokens: 100, OutputTokens: 20,
		CachedTokens: 60, ReasoningTokens: 5}})
}

// plainly replaces what differs from run to run.
func plainly(raw []byte) string {
	text := regexp.MustCompile(`chatcmpl-[A-Z2-7]{26}`).ReplaceAllString(string(raw), "chatcmpl-RUN")
	return regexp.MustCompile(`"created":\d{10}`).ReplaceAllString(text, `"created":1`)
}

const ferryAnnotations = `[{"type":"url_citation","url_citation":{"start_index":%d,"end_index":%d,"title":"Ferry",` +
	`"url":"https://x.y/ferry"},"citation":{"n":1,"doc_id":"ferry.md","title":"Ferry","source":"https://x.y/ferry",` +
	`"quote":"14 crowns"}}]`

// The answer in one piece and as a stream, byte for byte.
func TestOpenAIBytes(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, ferry)
	got := postCompletion(w, "c", `{"model":"mneme","messages":[{"role":"user","content":"What does it cost?"}],"temperature":1,`+
		`"top_k":[1],"n":1,"reasoning_effort":"high"}`)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "application/json; charset=utf-8", got.Header.Get("Content-Type"))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
	require.Equal(t, "c", got.Header.Get("Mneme-Chat-Id"))
	require.Equal(t, gjson.GetBytes(got.Body, "id").Str, "chatcmpl-"+got.RunID())
	require.Equal(t, `{"id":"chatcmpl-RUN","object":"chat.completion","created":1,"model":"mneme","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":"It <b>costs</b> 14 [1].","refusal":null,`+
		`"reasoning_content":"knowledge is asked: What does a ferry cost?\nknowledge, documents: {\"query\":\"ferry\"}\n",`+
		`"annotations":`+fmt.Sprintf(ferryAnnotations, 19, 22)+`},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60},`+
		`"completion_tokens_details":{"reasoning_tokens":5}}}`+"\n", plainly(got.Body))

	chunk := func(delta, finish, more string) string {
		return `data: {"id":"chatcmpl-RUN","object":"chat.completion.chunk","created":1,"model":"mneme","choices":[` +
			`{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `}]` + more + "}\n\n"
	}
	chunks := func(more string) string {
		return chunk(`{"role":"assistant","content":""}`, "null", more) +
			chunk(`{"content":"I look it up."}`, "null", more) +
			chunk(`{"reasoning_content":"knowledge is asked: What does a ferry cost?\n"}`, "null", more) +
			chunk(`{"reasoning_content":"knowledge, documents: {\"query\":\"ferry\"}\n"}`, "null", more) +
			chunk(`{"content":"\n\nIt <b>costs</b> "}`, "null", more) +
			chunk(`{"content":"14 [1]."}`, "null", more) +
			chunk(`{"annotations":`+fmt.Sprintf(ferryAnnotations, 34, 37)+`}`, `"stop"`, more)
	}
	got = postCompletion(w, "c", `{"model":"mneme","stream":true,"messages":[{"role":"user","content":"What does it cost?"}]}`)
	require.Equal(t, "text/event-stream", got.Header.Get("Content-Type"))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
	require.NotEmpty(t, got.RunID())
	require.Equal(t, chunks("")+"data: [DONE]\n\n", plainly(got.Body))
	got = postCompletion(w, "c", `{"model":"mneme","stream":true,"stream_options":{"include_usage":true},"messages":`+
		`[{"role":"user","content":"What does it cost?"}]}`)
	require.Equal(t, chunks(`,"usage":null`)+`data: {"id":"chatcmpl-RUN","object":"chat.completion.chunk","created":1,`+
		`"model":"mneme","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,`+
		`"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":5}}}`+"\n\n"+
		"data: [DONE]\n\n", plainly(got.Body))

	w.URL = w.StartOpenAI(func(c *openaiapi.Config) { c.Progress = openaiapi.NoReasoning })
	require.NotContains(t, string(postCompletion(w, "c", transcriptOf("again")).Body), "reasoning_content")
}

func TestOpenAIModels(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, webmemorytest.Answers("hello"))
	model := func(id string) string { return `{"id":"` + id + `","object":"model","created":1,"owned_by":"mneme"}` }
	for _, base := range []string{"", "/c/7"} {
		got := w.Do("GET", base+"/v1/models", nil)
		require.Equal(t, `{"object":"list","data":[`+model("mneme")+","+model("mneme/analytic")+","+model("mneme/knowledge")+
			"]}\n", plainly(got.Body))
		for _, path := range []string{"mneme", "mneme/analytic", "mneme%2Fanalytic"} {
			got = w.Do("GET", base+"/v1/models/"+path, nil)
			require.Equal(t, model(strings.ReplaceAll(path, "%2F", "/"))+"\n", plainly(got.Body))
		}
		got = w.Do("GET", base+"/v1/models/gpt-9", nil)
		require.Equal(t, 404, got.Status)
		require.Equal(t, `{"error":{"message":"The model 'gpt-9' does not exist; GET /v1/models lists those that do.",`+
			`"type":"invalid_request_error","param":"model","code":"model_not_found"}}`+"\n", string(got.Body))
	}
	got := postCompletion(w, "7", strings.Replace(transcriptOf("hi"), `"mneme"`, `"mneme/analytic"`, 1))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "mneme/analytic", gjson.GetBytes(got.Body, "model").Str)
}

// Whatever is wrong is said in OpenAI's shape, with our codes, and leaves nothing behind.
func TestOpenAIRefuses(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, webmemorytest.Answers("hello"))
	with := func(more string) string {
		return `{"model":"mneme","messages":[{"role":"user","content":"hi"}],` + more + `}`
	}
	messages := func(list string) string { return `{"model":"mneme","messages":[` + list + `]}` }
	for name, c := range map[string]struct {
		body              string
		header            []string
		status            int
		code, param, says string
	}{
		"no JSON":       {body: `{`, status: 400, code: "bad_request", says: "not valid JSON"},
		"no model":      {body: `{"messages":[]}`, status: 400, code: "bad_request", param: "model", says: "/v1/models"},
		"another model": {body: `{"model":"gpt-9","messages":[]}`, status: 404, code: "model_not_found", param: "model"},
		"an agent there is not": {body: `{"model":"mneme/nobody","messages":[]}`, status: 404, code: "model_not_found",
			param: "model", says: "mneme/nobody"},
		"no messages":       {body: messages(``), status: 400, code: "bad_request", param: "messages"},
		"orders alone":      {body: messages(`{"role":"system","content":"x"}`), status: 400, param: "messages", says: "last"},
		"two answers":       {body: with(`"n":2`), status: 400, param: "n", says: "n must be 1"},
		"an unknown role":   {body: messages(`{"role":"function","content":"x"}`), status: 400, param: "messages[0].role"},
		"an empty message":  {body: messages(`{"role":"user","content":" "}`), status: 400, code: "bad_request", says: "empty"},
		"the answer's part": {body: transcriptOf("a", "b"), status: 400, param: "messages", says: "one of the user"},
		"a sound": {body: messages(`{"role":"user","content":[{"type":"text","text":"What is it?"},` +
			`{"type":"input_audio","input_audio":{"data":"AA"}}]}`), status: 400, code: "part_not_supported",
			param: "messages", says: "The model mneme takes text, images and files, and no part of the type \"input_audio\""},
		"a chat that is none": {body: with(`"user":"u"`), header: []string{"X-Conversation-Id", "no chat"}, status: 400,
			says: "X-Conversation-Id names no chat"},
		"a chat that is none, in metadata": {body: with(`"metadata":{"chat_id":"a b"}`), status: 400, says: "metadata.chat_id"},
		"metadata that is no object":       {body: with(`"metadata":[1]`), status: 400, param: "metadata"},
		"an odd kind of tool": {body: with(`"tools":[{"type":"web_search"}],"metadata":{"chat_id":7}`), status: 400,
			param: "tools[0].type", says: "web_search"},
		"a tool without a name": {body: with(`"tools":[{"type":"function","function":{"name":""}}],"metadata":{"chat_id":7}`),
			status: 400, code: "bad_request", says: "name"},
		"two keys": {body: with(`"metadata":{"chat_id":7}`), header: []string{"Idempotency-Key", "\u00e9"}, status: 400,
			says: "Idempotency-Key"},
		"too long": {body: messages(`{"role":"user","content":"` + strings.Repeat("x", 1<<20+1) + `"}`),
			header: []string{"Mneme-Chat-Id", "7"}, status: 413, code: "too_large"},
	} {
		if !strings.Contains(c.body, "chat_id") && len(c.header) == 0 {
			c.header = []string{"Mneme-Chat-Id", "7"}
		}
		got := postCompletion(w, "", c.body, c.header...)
		require.Equal(t, c.status, got.Status, "%s: %s", name, got.Body)
		told := openaiError(t, got)
		require.Equal(t, "invalid_request_error", told.Type, name)
		if c.code != "" {
			require.Equal(t, c.code, told.Code, name)
		}
		if c.param != "" {
			require.NotNil(t, told.Param, name)
			require.Equal(t, c.param, *told.Param, name)
		}
		require.Contains(t, told.Message, c.says, name)
		require.Equal(t, "false", got.Header.Get("X-Should-Retry"), name)
	}
	require.Empty(t, w.Redis.Keys(context.Background(), "*7*").Val())
}

// The path, the configured headers in their order, or metadata name the chat.
func TestOpenAIWhichChat(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, webmemorytest.Answers("hello"))
	said := 0
	for _, c := range []struct {
		path, metadata string
		header         []string
		chat           string
	}{
		{header: []string{"Mneme-Chat-Id", "a1"}, chat: "a1"},
		{header: []string{"X-OpenWebUI-Chat-Id", "a2", "X-Session-Id", "a3"}, chat: "a2"},
		{header: []string{"X-OpenWebUI-Chat-Id", "{{CHAT_ID}}", "X-Session-Id", "a3"}, chat: "a3"},
		{metadata: `{"chat_id":"a4","topic":"herons","n":1}`, chat: "a4"},
		{metadata: `{"chat_id":42}`, chat: "42"},
		{metadata: `{"chat_id":"a4"}`, header: []string{"X-Chat-Id", "a5"}, chat: "a5"},
		{path: "/c/a6", header: []string{"Mneme-Chat-Id", "a1"}, chat: "a6"},
		{path: "/c/a%2B7", chat: "a+7"},
	} {
		said++
		body := fmt.Sprintf(`{"model":"mneme","messages":[{"role":"user","content":"word %d"}]`, said)
		if c.metadata != "" {
			body += `,"metadata":` + c.metadata
		}
		got := w.Do("POST", c.path+"/v1/chat/completions", body+"}", c.header...)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, c.chat, got.Header.Get("Mneme-Chat-Id"))
		require.Contains(t, w.History("chat_history:"+c.chat), fmt.Sprint("user: word ", said))
	}
}

// A client that sends all that it holds, or the newest part of it, with answers as they are,
// shortened or left out, goes on with the chat: every message is stored once.
func TestOpenAIGoesOn(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{}, &event.Assistant{Content: "re " + r.Message})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	var want []string
	for _, c := range []struct{ said, body string }{
		{"one", transcriptOf("one")},
		{"two", transcriptOf("one", "re one", "two")},
		{"three", transcriptOf(" one\n", "<think>x</think>re o…", "two", "", "three")},
		{"four", transcriptOf("three", "re three", "four")},
		{"four", transcriptOf("three", "re three", "four", "re four", "four")},
		{"five", `{"model":"mneme","messages":[{"role":"system","content":"x"},{"role":"user","content":"four"},` +
			`{"role":"user","content":[{"type":"text","text":"four"}]},{"role":"user","content":[{"type":"text","text":"five"}]}]}`},
	} {
		got := postCompletion(w, "c", c.body)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
		want = append(want, "user: "+c.said, "assistant: re "+c.said)
		require.Equal(t, want, w.History("chat_history:c"))
	}
}

// A repeated request with its key joins the run of the first one.
func TestOpenAIIdempotency(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, webmemorytest.Answers("hello"))
	first := postCompletion(w, "c", transcriptOf("hi"), "Idempotency-Key", "k")
	again := postCompletion(w, "c", transcriptOf("hi"), "Idempotency-Key", "k")
	require.Equal(t, string(first.Body), string(again.Body))
	require.Len(t, w.History("chat_history:c"), 2)
	require.Equal(t, "idempotency_key_reused", openaiError(t, postCompletion(w, "c", transcriptOf("ho"),
		"Idempotency-Key", "k")).Code)
	first = postCompletion(w, "c", transcriptOf("hi", "hello", "ho"), "Idempotency-Key", "k2")
	again = postCompletion(w, "c", transcriptOf("hi", "hello", "ho"), "Idempotency-Key", "k2")
	require.Equal(t, string(first.Body), string(again.Body), "its answer is not asked for once more")
	require.Len(t, w.History("chat_history:c"), 4)
}

// openaiClient returns go-openai's client for a chat.
func openaiClient(w *webmemorytest.World, chat string) *openai.Client {
	cfg := openai.DefaultConfig("no-key")
	cfg.BaseURL = w.URL + "/c/" + chat + "/v1"
	return openai.NewClientWithConfig(cfg)
}

func saying(text string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: "mneme",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: text}}}
}

// A run that fails is an error, before a stream and inside of one.
func TestOpenAIFailedRun(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{}, &event.AssistantDelta{Text: "Well"})
		emit(event.Head{}, &event.Assistant{Content: "Well", Partial: true, Failure: "model_failed"})
		emit(event.Head{}, &event.Error{Code: "model_failed", Message: "The model did not answer.", Retryable: true})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	})
	got := postCompletion(w, "c", transcriptOf("hi"))
	require.Equal(t, 502, got.Status)
	require.Equal(t, "server_error", openaiError(t, got).Type)
	require.Equal(t, "2", got.Header.Get("Retry-After"))
	_, err := openaiClient(w, "c").CreateChatCompletion(t.Context(), saying("hi"))
	var told *openai.APIError
	require.ErrorAs(t, err, &told)
	require.Equal(t, "model_failed", told.Code)
	stream, err := openaiClient(w, "c").CreateChatCompletionStream(t.Context(), saying("hi"))
	require.NoError(t, err)
	defer stream.Close()
	var text string
	for err == nil {
		var chunk openai.ChatCompletionStreamResponse
		if chunk, err = stream.Recv(); err == nil {
			text += chunk.Choices[0].Delta.Content
		}
	}
	require.Equal(t, "Well", text)
	require.ErrorAs(t, err, &told)
	require.Equal(t, "model_failed", told.Code)
	require.Equal(t, "The model did not answer.", told.Message)
}

// The head of a stream waits until there is something to show, so that a failure before that is a status that clients
// try again after; but it does not wait for ever.
func TestOpenAIHeadWaits(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	fails := func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		if r.AgentVersion != webapi.Master {
			emit(event.Head{Subagent: "analytic", CallID: "c"}, &event.Delegation{Task: r.Message, Calls: event.Serial})
		}
		if r.Message == "wait" {
			<-release
		}
		emit(event.Head{}, &event.Error{Code: "budget_exceeded", Message: "The budget is spent.", Retryable: true,
			RetryAfter: 7200})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	}
	w := openaiWorld(t, fails, func(o *openaiapi.Config) { o.Heartbeat, o.Hold = time.Millisecond, time.Hour })
	for _, model := range []string{"mneme", "mneme/analytic"} {
		got := postCompletion(w, "c", `{"model":"`+model+`","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		require.Equal(t, 429, got.Status, string(got.Body))
		require.Equal(t, "rate_limit_error", openaiError(t, got).Type)
		require.Equal(t, []string{"7200", "false", "application/json; charset=utf-8", "chat"}, []string{
			got.Header.Get("Retry-After"), got.Header.Get("X-Should-Retry"), got.Header.Get("Content-Type"),
			got.Header.Get("Mneme-Memory")})
	}
	w.URL = w.StartOpenAI(func(o *openaiapi.Config) { o.Heartbeat, o.Hold = time.Hour, time.Millisecond })
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/c/d/v1/chat/completions",
		`{"model":"mneme","stream":true,"messages":[{"role":"user","content":"wait"}]}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	close(release)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Regexp(t, `^: ping\n\ndata: {"error":{"message":"The budget is spent\.".*"code":"budget_exceeded".*\n\n$`,
		string(rest))
}

// A client that hangs up stops the run, or leaves it alone.
func TestOpenAIClientLeaves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ setting, want string }{
		{openaiapi.Stop, "assistant: answer to hi"}, {openaiapi.Continue, "assistant: answer to hi"},
	} {
		t.Run(c.setting, func(t *testing.T) {
			release := make(chan struct{})
			w := openaiWorld(t, webmemorytest.AnswersAfter(release), func(o *openaiapi.Config) { o.OnDisconnect = c.setting })
			ctx, leave := context.WithCancel(t.Context())
			request := saying("hi")
			request.Stream = true
			stream, err := openaiClient(w, "c").CreateChatCompletionStream(ctx, request)
			require.NoError(t, err)
			_, err = stream.Recv()
			require.NoError(t, err)
			leave()
			_ = stream.Close()
			if c.setting == openaiapi.Continue {
				webmemorytest.Eventually(t, "the stream is over", func() bool {
					return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "\nmneme_event_streams 0\n")
				})
				require.Len(t, w.History("chat_history:c"), 1)
				close(release)
			}
			webmemorytest.Eventually(t, "the run is over", func() bool { return len(w.History("chat_history:c")) == 2 })
			var page webapi.HistoryPage
			require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/c/history", nil).Body, &page))
			require.Equal(t, c.setting == openaiapi.Stop, gjson.GetBytes(page.Messages[1], "partial").Bool())
		})
	}
}

// A stream in which nothing happens has comments.
func TestOpenAIHeartbeat(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := openaiWorld(t, webmemorytest.AnswersAfter(release), func(o *openaiapi.Config) { o.Heartbeat = time.Millisecond })
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/c/c/v1/chat/completions",
		`{"model":"mneme","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	var text strings.Builder
	for piece := make([]byte, 1000); !strings.Contains(text.String(), "\n\n: ping\n\n: ping\n\n"); {
		n, err := resp.Body.Read(piece)
		require.NoError(t, err)
		text.Write(piece[:n])
	}
	close(release)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
}

// When its process ends, a stream says so at once, and its message is answered all the same.
func TestOpenAIShutdown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := openaiWorld(t, webmemorytest.AnswersAfter(release))
	request := saying("hi")
	stream, err := openaiClient(w, "c").CreateChatCompletionStream(t.Context(), request)
	require.NoError(t, err)
	for range 2 { // the role, and that analytic is asked
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	w.Shutdown(w.URL)
	_, err = stream.Recv()
	var told *openai.APIError
	require.ErrorAs(t, err, &told)
	require.Equal(t, "shutting_down", told.Code)
	require.NotEmpty(t, w.StartReplica())
	close(release)
	webmemorytest.Eventually(t, "the run is over", func() bool { return len(w.History("chat_history:c")) == 2 })
}

// A transcript that holds what is still being answered waits for its turn, and goes on behind it.
func TestOpenAIThroughTheQueue(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := openaiWorld(t, webmemorytest.AnswersAfter(release))
	first := make(chan webmemorytest.Response, 1)
	req := w.NewRequest("POST", "/c/c/v1/chat/completions", transcriptOf("first"))
	go func() { first <- w.Send(req) }()
	webmemorytest.Eventually(t, "the first one runs", func() bool { return len(w.History("chat_history:c")) == 1 })
	// It holds the transcript as it will be, and waits for its turn.
	second := make(chan webmemorytest.Response, 1)
	again := w.NewRequest("POST", "/c/c/v1/chat/completions", transcriptOf("first", "answer to first", "second"))
	go func() { second <- w.Send(again) }()
	webmemorytest.Eventually(t, "the second one waits", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "\nmneme_waiting_messages 1\n")
	})
	close(release)
	require.Equal(t, 200, (<-first).Status)
	require.Equal(t, 200, (<-second).Status)
	require.Equal(t, []string{"user: first", "assistant: answer to first", "user: second", "assistant: answer to second"},
		w.History("chat_history:c"))
}

// clientCalls is a run of the master's that calls both of its client's tools, and then says what
// they returned.
func clientCalls(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
	if r.Resume == nil {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message})
		if len(r.Tools) == 0 {
			emit(event.Head{}, &event.Assistant{Content: "plainly " + r.Message})
			emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
			return
		}
		emit(event.Head{}, &event.AssistantDelta{Text: "I try."})
		var waits []event.Wait
		for i, tool := range r.Tools {
			kind := event.ClientResult
			if tool.Name == "refund" {
				kind = event.Approval
			}
			waits = append(waits, event.Wait{ID: fmt.Sprint("W", i), Kind: kind, ToolCallID: fmt.Sprint("t", i), Tool: tool.Name,
				Arguments: json.RawMessage(`{"n":1}`), Reason: "The client is to run it.",
				ExpiresAt: event.Seconds(time.Now().Add(time.Hour))})
		}
		emit(event.Head{}, &event.RunWaiting{Pending: waits, State: json.RawMessage(`{"step":1}`),
			Usage: event.Usage{InputTokens: 5, OutputTokens: 2}})
		return
	}
	last, _ := event.Decode(r.Resume.Events[len(r.Resume.Events)-1])
	emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers, Usage: last.Payload.(*event.RunWaiting).Usage})
	var said []string
	for _, a := range r.Resume.Answers {
		said = append(said, a.Decision+" "+string(a.Result))
	}
	emit(event.Head{}, &event.AssistantDelta{Text: strings.Join(said, ", ")})
	emit(event.Head{}, &event.Assistant{Content: strings.Join(said, ", ")})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed, Usage: event.Usage{InputTokens: 12, OutputTokens: 3}})
}

func withTools(text string, names ...string) openai.ChatCompletionRequest {
	r := saying(text)
	for _, name := range names {
		r.Tools = append(r.Tools, openai.Tool{Type: openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: name}})
	}
	return r
}

// returning is a request that goes on with the results of an answer's calls.
func returning(r openai.ChatCompletionRequest, m openai.ChatCompletionMessage, results ...string) (
	again openai.ChatCompletionRequest) {
	r.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)], m)
	for i, result := range results {
		r.Messages = append(r.Messages, openai.ChatCompletionMessage{Role: "tool", ToolCallID: m.ToolCalls[i].ID,
			Content: result})
	}
	return r
}

// The client's own tools: the answer ends with calls, and goes on with all of their results.
func TestOpenAIClientTools(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(clientCalls)
	client := openaiClient(w, "c")
	request := withTools("turn it on", "light", "radio")
	got, err := client.CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, openai.FinishReasonToolCalls, got.Choices[0].FinishReason)
	said := got.Choices[0].Message
	require.Equal(t, "I try.", said.Content)
	require.Equal(t, []int{5, 2, 7}, []int{got.Usage.PromptTokens, got.Usage.CompletionTokens, got.Usage.TotalTokens})
	require.Len(t, said.ToolCalls, 2)
	require.Equal(t, openai.FunctionCall{Name: "light", Arguments: `{"n":1}`}, said.ToolCalls[0].Function)

	var refused *openai.APIError
	_, err = client.CreateChatCompletion(t.Context(), returning(request, said, "it shines"))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 400, refused.HTTPStatusCode, refused.Message)
	require.Contains(t, refused.Message, "there is none for "+said.ToolCalls[1].ID)

	whole := returning(request, said, "it shines", `{"on":true}`)
	done, err := client.CreateChatCompletion(t.Context(), whole)
	require.NoError(t, err)
	require.Equal(t, `approve "it shines", approve "{\"on\":true}"`, done.Choices[0].Message.Content)
	require.Equal(t, openai.FinishReasonStop, done.Choices[0].FinishReason)
	require.Equal(t, []int{7, 1, 8}, []int{done.Usage.PromptTokens, done.Usage.CompletionTokens, done.Usage.TotalTokens})
	require.NotEqual(t, got.ID, done.ID, "two messages of one id are one for clients that merge them")
	again, err := client.CreateChatCompletion(t.Context(), whole)
	require.NoError(t, err, "the same results again join the run")
	require.Equal(t, done.Choices[0].Message.Content, again.Choices[0].Message.Content)
	require.Equal(t, done.ID, again.ID)
	require.Equal(t, done.Usage, again.Usage)
	require.Len(t, w.History("chat_history:c"), 2)

	t.Run("streamed", func(t *testing.T) {
		request := withTools("turn it on", "light")
		stream, err := openaiClient(w, "s").CreateChatCompletionStream(t.Context(), request)
		require.NoError(t, err)
		said := openai.ChatCompletionMessage{Role: "assistant"}
		var finish openai.FinishReason
		for {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			said.Content += chunk.Choices[0].Delta.Content
			for _, call := range chunk.Choices[0].Delta.ToolCalls {
				require.Equal(t, 0, *call.Index)
				said.ToolCalls = append(said.ToolCalls, call)
			}
			finish = chunk.Choices[0].FinishReason
		}
		require.Equal(t, openai.FinishReasonToolCalls, finish)
		require.Equal(t, "I try.", said.Content)
		stream, err = openaiClient(w, "s").CreateChatCompletionStream(t.Context(), returning(request, said, "done"))
		require.NoError(t, err)
		text := ""
		for {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			text += chunk.Choices[0].Delta.Content
		}
		require.Equal(t, `approve "done"`, text)
	})

	t.Run("a client that never comes back", func(t *testing.T) {
		request := withTools("turn it on", "light")
		got, err := openaiClient(w, "gone").CreateChatCompletion(t.Context(), request)
		require.NoError(t, err)
		said := got.Choices[0].Message
		_, err = openaiClient(w, "gone").CreateChatCompletion(t.Context(), saying("never mind"))
		require.NoError(t, err)
		_, err = openaiClient(w, "gone").CreateChatCompletion(t.Context(), returning(request, said, "late"))
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "not_waiting", refused.Code)
		require.Contains(t, refused.Message, "does not wait any more")
		require.Contains(t, w.History("chat_history:gone"), "assistant: plainly never mind")
	})

	t.Run("a person is waited for", func(t *testing.T) {
		got, err := openaiClient(w, "p").CreateChatCompletion(t.Context(), withTools("pay", "light", "refund"))
		require.NoError(t, err)
		require.Equal(t, openai.FinishReasonStop, got.Choices[0].FinishReason)
		require.Empty(t, got.Choices[0].Message.ToolCalls)
		require.Contains(t, got.Choices[0].Message.Content, "a person is waited for.\n- refund: ")
		require.Contains(t, got.Choices[0].Message.Content, "/v1/chats/p/runs/")
	})

	t.Run("tool_choice", func(t *testing.T) {
		s := w.ScriptApiserver(clientCalls)
		request := withTools("hi", "light")
		request.ToolChoice = "none"
		got, err := openaiClient(w, "n").CreateChatCompletion(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, "plainly hi", got.Choices[0].Message.Content)
		request.ToolChoice = openai.ToolChoice{Type: "function", Function: openai.ToolFunction{Name: "light"}}
		_, err = openaiClient(w, "n").CreateChatCompletion(t.Context(), request)
		require.NoError(t, err)
		requests := s.Requests()
		require.Equal(t, "light", requests[len(requests)-1].Tools[0].Name)
	})
}
