package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/responsestest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// python is a client as OpenAI's and Anthropic's for Python are, by the requests in testdata/python.
type python struct {
	t        *testing.T
	requests map[string]string
	base     string // base_url
	retrying func() // what happens between an answer and the next attempt
}

// pythonAnswer is what the last attempt got, after the refusals of those before.
type pythonAnswer struct {
	status  int
	header  http.Header
	body    string
	refused []pythonAnswer
}

func newPython(t *testing.T, file, base string) *python {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "python", file))
	require.NoError(t, err)
	p := &python{t: t, base: base, requests: map[string]string{}}
	for _, one := range strings.Split(string(raw), "\n=== ")[1:] {
		name, request, _ := strings.Cut(one, "\n")
		p.requests[name] = request
	}
	return p
}

// send makes a request, and at most two more where the SDKs' _should_retry says so.
func (p *python) send(name string) (got pythonAnswer) {
	p.t.Helper()
	require.Contains(p.t, p.requests, name)
	for retries := 0; ; retries++ {
		head, body, _ := strings.Cut(p.requests[name], "\n\n")
		lines := textproto.NewReader(bufio.NewReader(strings.NewReader(head + "\n\n")))
		first, err := lines.ReadLine()
		require.NoError(p.t, err)
		header, err := lines.ReadMIMEHeader()
		require.NoError(p.t, err)
		method, path, _ := strings.Cut(first, " ")
		r, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(strings.TrimSpace(body)))
		require.NoError(p.t, err)
		r.Header = http.Header(header)
		for _, of := range []string{"Authorization", "X-Api-Key"} {
			if value := r.Header.Get(of); value != "" {
				r.Header.Set(of, strings.Replace(value, "{{key}}", "python-key", 1))
			}
		}
		r.Header.Set("x-stainless-retry-count", strconv.Itoa(retries))
		resp, err := http.DefaultClient.Do(r)
		require.NoError(p.t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(p.t, err)
		require.NoError(p.t, resp.Body.Close())
		require.Empty(p.t, resp.Header.Get("Content-Encoding"))
		refused := got.refused
		if retries > 0 {
			refused = append(refused, pythonAnswer{status: got.status, header: got.header, body: got.body})
		}
		got = pythonAnswer{resp.StatusCode, resp.Header, string(raw), refused}
		if retries == 2 || !got.again() {
			return got
		}
		if p.retrying != nil {
			p.retrying()
		}
	}
}

// again is _should_retry of _base_client.py.
func (a pythonAnswer) again() bool {
	switch a.header.Get("x-should-retry") {
	case "true":
		return true
	case "false":
		return false
	}
	return a.status == 408 || a.status == 409 || a.status == 429 || a.status >= 500
}

// has requires members of JSON, each as its path and its type: those that pydantic's classes have without a default.
func has(t *testing.T, raw string, members ...string) {
	t.Helper()
	require.True(t, gjson.Valid(raw), raw)
	for _, member := range members {
		path, kinds, _ := strings.Cut(member, " ")
		got := gjson.Get(raw, path)
		kind := map[gjson.Type]string{gjson.Null: "null", gjson.String: "str", gjson.Number: "number", gjson.True: "bool",
			gjson.False: "bool", gjson.JSON: "object"}[got.Type]
		if got.IsArray() {
			kind = "list"
		}
		if !got.Exists() {
			kind = "absent"
		}
		require.Contains(t, strings.Split(kinds, "|"), kind, "%s of %s", path, raw)
	}
}

// frames are the events of a stream as SSEDecoder reads them: the name, and the data.
func frames(t *testing.T, stream string) (all [][2]string) {
	t.Helper()
	require.True(t, strings.HasSuffix(stream, "\n\n"), "the last event is not ended: %q", stream)
	for _, frame := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		var event [2]string
		for _, line := range strings.Split(frame, "\n") {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				event[0] = value
			case "data":
				event[1] += value
			}
		}
		if event != [2]string{} { // a frame of comments alone is none
			all = append(all, event)
		}
	}
	return all
}

// chatCompletion checks what types/chat/chat_completion.py and chat_completion_message.py require.
func chatCompletion(t *testing.T, got pythonAnswer) string {
	t.Helper()
	require.Equal(t, 200, got.status, got.body)
	has(t, got.body, "id str", "created number", "model str", "choices list", "choices.0.index number",
		"choices.0.message object",
		"choices.0.message.content str|null", "usage.prompt_tokens number", "usage.completion_tokens number",
		"usage.total_tokens number")
	require.Equal(t, "chat.completion", gjson.Get(got.body, "object").Str)
	require.Equal(t, "stop", gjson.Get(got.body, "choices.0.finish_reason").Str)
	require.Equal(t, "assistant", gjson.Get(got.body, "choices.0.message.role").Str)
	return gjson.Get(got.body, "choices.0.message.content").Str
}

// chatStream checks what _streaming.py and types/chat/chat_completion_chunk.py require, and gives the text.
func chatStream(t *testing.T, got pythonAnswer) (text string) {
	t.Helper()
	require.Equal(t, 200, got.status, got.body)
	all := frames(t, got.body)
	require.True(t, strings.HasPrefix(all[len(all)-1][1], "[DONE]"), got.body)
	finish, used := "", 0
	for _, e := range all[:len(all)-1] {
		has(t, e[1], "id str", "created number", "model str", "choices list", "error absent")
		require.Equal(t, "chat.completion.chunk", gjson.Get(e[1], "object").Str)
		for _, c := range gjson.Get(e[1], "choices").Array() {
			has(t, c.Raw, "index number", "delta object")
			text += c.Get("delta.content").Str
			finish += c.Get("finish_reason").Str
		}
		if gjson.Get(e[1], "usage").IsObject() {
			has(t, e[1], "usage.prompt_tokens number", "usage.completion_tokens number",
				"usage.total_tokens number")
			used++
		}
	}
	require.Equal(t, "stop", finish)
	require.Equal(t, 1, used)
	return text
}

// openaiError checks what _make_status_error reads: body["error"], with its message, type, code and param.
func openaiError(t *testing.T, got pythonAnswer) {
	t.Helper()
	has(t, got.body, "error.message str", "error.type str", "error.code str|null|absent", "error.param str|null|absent")
	retryAfter(t, got)
}

// anthropicError checks what _make_status_error and APIStatusError read.
func anthropicError(t *testing.T, got pythonAnswer) {
	t.Helper()
	has(t, got.body, "error.message str", "error.type str")
	require.Equal(t, "error", gjson.Get(got.body, "type").Str, got.body)
	require.NotEmpty(t, got.header.Get("request-id"))
	retryAfter(t, got)
}

// retryAfter is what _parse_retry_after_header takes for seconds.
func retryAfter(t *testing.T, got pythonAnswer) {
	t.Helper()
	if after := got.header.Get("Retry-After"); after != "" {
		_, err := strconv.ParseFloat(after, 64)
		require.NoError(t, err)
	}
}

// pythonWorld is mneme before a vendor that says what a ferry costs, while fault is not nil after it has failed so.
func pythonWorld(t *testing.T, kind string, cfg upstreamtest.Config) (*up, *atomic.Pointer[upstreamtest.Fault]) {
	t.Helper()
	fault := &atomic.Pointer[upstreamtest.Fault]{}
	cfg.Fault = func(*upstreamtest.Request) *upstreamtest.Fault { return fault.Load() }
	cfg.Answer = func(r *upstreamtest.Request) *upstreamtest.Answer {
		answer := upstreamtest.Reply(upstreamtest.Say("14 crowns."))
		if strings.Contains(string(r.Body), `"crowns"`) {
			answer = upstreamtest.Reply(upstreamtest.Say(`{"crowns":14}`))
		}
		return &answer
	}
	server := httptest.NewServer(upstreamtest.New(cfg))
	t.Cleanup(server.Close)
	base, model := server.URL, "claude-sonnet-4-5"
	if kind == "openai" {
		base, model = server.URL+"/v1", "generic-model"
	}
	return start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=v",
		backend("v", kind, base, `model_map: {"*": `+model+`}`)), fault
}

var pythonVendors = map[string]upstreamtest.Config{
	"anthropic": {Thinking: upstreamtest.ThinkingRules{Generation: upstreamtest.Manual}},
	"openai":    {Vendor: upstreamtest.Chat},
}

// The openai package for Python at a chat of webmemory: answers, a stream, a form, and retries that store nothing
// twice.
func TestOpenAIForPythonAtAChat(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	u, fault := pythonWorld(t, "openai", pythonVendors["openai"])
	at := func(chat string) *python { return newPython(t, "openai.http", u.url("/c/"+chat+"/v1")) }
	require.Equal(t, "14 crowns.", chatCompletion(t, at("whole").send("chat")))
	require.Equal(t, "14 crowns.", chatCompletion(t, at("raw").send("chat, raw response")))
	require.Equal(t, "14 crowns.", chatStream(t, at("stream").send("chat, stream")))
	require.JSONEq(t, `{"crowns":14}`, chatCompletion(t, at("form").send("chat, parse")))
	_, history := u.request(http.MethodGet, "/v1/chats/whole/history", "", "")
	require.Equal(t, "Сколько стоит паром?", gjson.Get(history, "messages.0.content").Str, history)
	for _, status := range []int{429, 500} {
		for _, name := range []string{"chat", "chat, stream"} {
			chat := fmt.Sprintf("%d-%d", status, len(name))
			p := at(chat)
			fault.Store(&upstreamtest.Fault{Status: status})
			p.retrying = func() { fault.Store(nil) }
			got := p.send(name)
			require.Len(t, got.refused, 1)
			require.Equal(t, map[int]int{429: 429, 500: 502}[status], got.refused[0].status)
			openaiError(t, got.refused[0])
			if name == "chat" {
				chatCompletion(t, got)
			} else {
				chatStream(t, got)
			}
			_, history := u.request(http.MethodGet, "/v1/chats/"+chat+"/history", "", "")
			require.EqualValues(t, 2, gjson.Get(history, "total").Int(), "the retry is the same message: %s", history)
		}
	}
}

// The openai package for Python at the gateway, over vendors of both dialects.
func TestOpenAIForPythonAtTheGateway(t *testing.T) {
	t.Parallel()
	for kind, cfg := range pythonVendors {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u, fault := pythonWorld(t, kind, cfg)
			p := newPython(t, "openai.http", "http://"+u.addrs.Proxy+"/v1")
			require.Equal(t, "14 crowns.", chatCompletion(t, p.send("chat")))
			require.Equal(t, "14 crowns.", chatCompletion(t, p.send("chat, raw response")))
			require.Equal(t, "14 crowns.", chatStream(t, p.send("chat, stream")))
			require.JSONEq(t, `{"crowns":14}`, chatCompletion(t, p.send("chat, parse")))

			got := p.send("responses")
			require.Equal(t, 200, got.status, got.body)
			has(t, got.body, "id str", "created_at number", "model str", "output list", "parallel_tool_calls bool",
				"tool_choice str|object", "tools list", "output.#(type==message).content.0.annotations list",
				"output.#(type==message).id str", "output.#(type==message).status str")
			require.Equal(t, "response", gjson.Get(got.body, "object").Str)
			require.Equal(t, "14 crowns.", gjson.Get(got.body, "output.#(type==message).content.0.text").Str)

			got = p.send("responses, stream")
			require.Equal(t, 200, got.status, got.body)
			responsestest.Assemble(t, got.body)
			for _, e := range frames(t, got.body) {
				if !strings.HasPrefix(e[1], "[DONE]") {
					has(t, e[1], "type str", "sequence_number number", "error absent")
				}
			}

			for _, name := range []string{"chat", "chat, stream", "responses", "responses, stream"} {
				fault.Store(&upstreamtest.Fault{Status: 429, Header: http.Header{"Retry-After": {"0"}}})
				p.retrying = func() { fault.Store(nil) }
				got := p.send(name)
				require.Equal(t, 200, got.status, got.body)
				require.Len(t, got.refused, 1)
				require.Equal(t, 429, got.refused[0].status)
				openaiError(t, got.refused[0])
			}
		})
	}
}

// The anthropic package for Python at the gateway, over vendors of both dialects.
func TestAnthropicForPythonAtTheGateway(t *testing.T) {
	t.Parallel()
	for kind, cfg := range pythonVendors {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u, fault := pythonWorld(t, kind, cfg)
			p := newPython(t, "anthropic.http", "http://"+u.addrs.Proxy)
			for _, name := range []string{"messages", "messages, beta"} {
				got := p.send(name)
				require.Equal(t, 200, got.status, got.body)
				has(t, got.body, "id str", "content list", "model str", "usage.input_tokens number", "usage.output_tokens number",
					"stop_reason str", "stop_sequence null")
				require.Equal(t, "message", gjson.Get(got.body, "type").Str)
				require.Equal(t, "assistant", gjson.Get(got.body, "role").Str)
				require.Equal(t, "14 crowns.", gjson.Get(got.body, "content.#(type==text).text").Str)
				require.NotEmpty(t, got.header.Get("request-id"))
			}

			got := p.send("messages, stream")
			require.Equal(t, 200, got.status, got.body)
			text, last := "", ""
			for i, e := range frames(t, got.body) {
				require.Equal(t, i == 0, e[0] == "message_start", got.body)
				has(t, e[1], "type str")
				require.Equal(t, e[0], gjson.Get(e[1], "type").Str)
				required, known := map[string][]string{
					"message_start": {"message.id str", "message.content list", "message.usage.input_tokens number",
						"message.usage.output_tokens number"},
					"content_block_start": {"index number", "content_block.type str"},
					"content_block_delta": {"index number", "delta.type str"},
					"content_block_stop":  {"index number"},
					"message_delta":       {"delta.stop_reason str", "usage.output_tokens number"},
					"message_stop":        nil, "ping": nil,
				}[e[0]]
				require.True(t, known, e[0])
				has(t, e[1], required...)
				text += gjson.Get(e[1], "delta.text").Str
				last = e[0]
			}
			require.Equal(t, "14 crowns.", text)
			require.Equal(t, "message_stop", last)

			got = p.send("count_tokens")
			require.Equal(t, 200, got.status, got.body)
			has(t, got.body, "input_tokens number")

			for _, name := range []string{"messages", "messages, stream", "messages, beta"} {
				for _, status := range []int{429, 529} {
					fault.Store(&upstreamtest.Fault{Status: status})
					p.retrying = func() { fault.Store(nil) }
					got := p.send(name)
					require.Equal(t, 200, got.status, got.body)
					require.Len(t, got.refused, 1)
					require.True(t, slices.Contains([]int{status, 503}, got.refused[0].status), got.refused)
					anthropicError(t, got.refused[0])
				}
			}
		})
	}
}
