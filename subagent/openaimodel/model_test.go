package openaimodel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway serves h and makes a model that calls it.
func gateway(t *testing.T, c openaimodel.Config, h http.HandlerFunc) *openaimodel.Model {
	t.Helper()
	server := httptest.NewServer(h)
	c.HTTP = server.Client()
	c.BaseURL = server.URL + "/teammate/analytic"
	if c.Model == "" {
		c.Model = "analytic"
	}
	t.Cleanup(func() { c.HTTP.CloseIdleConnections(); server.Close() })
	return openaimodel.New(c)
}

// streams answers with chunks, each the inside of a choice's delta, and then
// with the raw lines.
func streams(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range lines {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		}
	}
}

func delta(inner string) string { return `{"choices":[{"index":0,"delta":{` + inner + `}}]}` }
func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const (
	usageChunk = `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":5,"total_tokens":16}}`
	done       = `[DONE]`
)

var hello = loop.Request{Messages: []memory.Message{{Role: "user", Content: "hi"}}}

// collect runs one call.
func collect(ctx context.Context, m *openaimodel.Model, r loop.Request) (deltas []loop.Delta, err error) {
	for d, e := range m.Generate(ctx, r) {
		if e != nil {
			err = e
			continue
		}
		deltas = append(deltas, d)
	}
	return deltas, err
}

func TestTheRequest(t *testing.T) {
	var got *http.Request
	var body string
	m := gateway(t, openaimodel.Config{ReasoningEffort: "medium", MaxTokens: 100},
		func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got, body = r, string(b)
			streams(delta(`"content":"x"`), finish("stop"), done)(w, r)
		})
	_, err := collect(t.Context(), m, loop.Request{
		System: "be brief", Conversation: "conv-1.analytic", Final: true,
		Messages: []memory.Message{
			{Role: "user", Content: "hi", Timestamp: 5, Partial: true, ID: "R.1"},
			{Role: "assistant", ToolCalls: []memory.ToolCall{
				{ID: "c1", Type: "function", Function: memory.FunctionCall{Name: "f"}},
			}},
			{Role: "tool", ToolCallID: "c1", Name: "f", Content: ""},
			{Role: "assistant", Content: ""},
		},
		Tools: []loop.Spec{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object","z":1}`)},
			{Name: "g"}},
	})
	require.NoError(t, err)
	require.Equal(t, "/teammate/analytic/v1/chat/completions", got.URL.Path)
	require.Equal(t, "conv-1.analytic", got.Header.Get("X-AG-Conversation-Id"))
	require.Equal(t, "true", got.Header.Get("X-AG-Conversation-Over"))
	require.Empty(t, got.Header.Get("Authorization"))
	require.JSONEq(t,
		`{"model":"analytic","stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"medium","max_completion_tokens":100,
		"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"},
			{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"(empty)"},{"role":"assistant","content":"(empty)"}],
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","z":1}}},
			{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}]}`, body)
}

func TestTheRequestNamesRunAndDelegation(t *testing.T) {
	var got http.Header
	m := gateway(t, openaimodel.Config{}, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		streams(delta(`"content":"x"`), finish("stop"), done)(w, r)
	})
	ctx := telemetry.Trail{Run: "R", Chat: "7"}.In(t.Context())
	_, err := collect(ctx, m, hello)
	require.NoError(t, err)
	require.Equal(t, []string{"R", "R"}, []string{got.Get("X-AG-Run-Id"), got.Get("Mneme-Run-Id")})
	require.Empty(t, got.Get("Mneme-Call-Id"))
	_, err = collect(telemetry.Delegated(ctx, "R-1"), m, hello)
	require.NoError(t, err)
	require.Equal(t, []string{"R", "R-1"}, []string{got.Get("Mneme-Run-Id"), got.Get("Mneme-Call-Id")})
}

func TestAnswers(t *testing.T) {
	call := func(id, name, arguments string) memory.ToolCall {
		return memory.ToolCall{ID: id, Type: "function", Function: memory.FunctionCall{Name: name, Arguments: arguments}}
	}
	usage := loop.Delta{Usage: event.Usage{InputTokens: 11, OutputTokens: 5}}
	for name, c := range map[string]struct {
		lines []string
		want  []loop.Delta
	}{
		"text as it comes, then the usage": {
			[]string{delta(`"role":"assistant","content":""`), delta(`"reasoning_content":"hm"`), delta(`"content":"He"`),
				delta(`"content":"y"`), finish("stop"), usageChunk, done},
			[]loop.Delta{{Text: "He"}, {Text: "y"}, usage},
		},
		"calls once and complete, by index": {
			[]string{
				delta(`"content":"ok"`),
				delta(`"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]`),
				delta(`"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}]`),
				delta(`"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]`), finish("tool_calls"), usageChunk, done,
			},
			[]loop.Delta{{Text: "ok"}, {Calls: []memory.ToolCall{call("a", "f", `{"x":1}`), call("b", "g", "{}")}}, usage},
		},
		"a vendor that gives every call the index 0": {
			[]string{
				delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`),
				delta(`"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]`), finish("stop"), usageChunk,
			},
			[]loop.Delta{{Calls: []memory.ToolCall{call("a", "f", "{}"), call("b", "g", "{}")}}, usage},
		},
		"no [DONE], but a reason": {[]string{delta(`"content":"x"`), finish("length")}, []loop.Delta{{Text: "x"}, {Finish: "length"}, {}}},
		"a filter": {[]string{delta(`"content":"x"`), finish("content_filter")},
			[]loop.Delta{{Text: "x"}, {Finish: "content_filter"}, {}}},
		"comments in between": {[]string{delta(`"content":"x"`) + "\n\n: ping\n\n: ping", finish("stop"), done},
			[]loop.Delta{{Text: "x"}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect(t.Context(), gateway(t, openaimodel.Config{}, streams(c.lines...)), hello)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestCallsWithoutIDsGetSome(t *testing.T) {
	got, err := collect(t.Context(), gateway(t, openaimodel.Config{}, streams(
		delta(`"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"name":"g"}}]`),
		finish("tool_calls"))), hello)
	require.NoError(t, err)
	require.Len(t, got[0].Calls, 2)
	require.Regexp(t, `^call_[A-Z0-9]{24}$`, got[0].Calls[0].ID)
	require.NotEqual(t, got[0].Calls[0].ID, got[0].Calls[1].ID)
}

func TestFailures(t *testing.T) {
	status := func(code int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		code    string
		status  int
		message string
		again   bool
	}{
		"rate limited": {
			status(429, `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}`,
				"Retry-After", "7"), event.VendorRate, 429, "try again in 7 s", true,
		},
		"backend away": {status(502, `{"error":{"message":"backend \"v\" cannot be reached","type":"server_error"}}`),
			event.Unavailable, 502, "vendor cannot be reached or failed", true},
		"refused": {status(400, `{"error":{"message":"n must be 1","type":"invalid_request_error"}}`),
			event.Rejected, 400, "refused the request as wrong", false},
		"no key": {status(401, `{"error":{"message":"bad key","type":"invalid_request_error"}}`),
			event.KeyRefused, 401, "refused the key (check api_key_env", false},
		"no JSON": {status(503, `<html>`), event.Unavailable, 503, "vendor cannot be reached or failed",
			true},
		"cut": {streams(delta(`"content":"x"`)), event.AnswerCut, 0,
			"the model's answer was cut off before its end", true},
		"cut, with done": {streams(delta(`"content":"x"`), done), event.AnswerCut, 0, "cut off", true},
		"error in a stream": {
			streams(delta(`"content":"x"`),
				`{"error":{"type":"server_error","message":"the answer of backend \"v\" was cut off","code":"answer_cut"}}`),
			event.AnswerCut, 0, "was cut off before its end", true,
		},
		"limit in a stream": {streams(`{"error":{"type":"rate_limit_error","message":"slow","code":"rate_limit_exceeded"}}`),
			event.VendorRate, 0, "no more requests for the moment", true},
		"garbage":  {streams(`{"choices":[`), event.Unavailable, 0, "cannot be understood", true},
		"filtered": {streams(finish("content_filter")), event.Refused, 0, "refused to answer", false},
		"limit inside calls": {
			streams(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}]`), finish("length")),
			event.AnswerCut, 0, "limit of tokens", true,
		},
		"limit before the text": {streams(delta(`"reasoning_content":"hm"`), finish("length")), event.AnswerCut, 0,
			"limit of tokens", true},
		"a failure's own name": {streams(delta(`"content":"x"`), finish("network_error")), event.AnswerCut, 0,
			`the reason "network_error"`, true},
		"connection breaks": {func(w http.ResponseWriter, r *http.Request) {
			streams(delta(`"content":"x"`))(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, event.AnswerCut, 0, "the connection to the gateway broke", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := collect(t.Context(), gateway(t, openaimodel.Config{}, c.answer), hello)
			var e *openaimodel.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.status, e.Status)
			require.Contains(t, e.Error(), c.message)
			require.Equal(t, c.again, e.Retryable())
			if name == "rate limited" {
				require.Equal(t, 7*time.Second, e.RetryAfter)
			}
		})
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := collect(t.Context(), openaimodel.New(openaimodel.Config{BaseURL: server.URL, Model: "m"}), hello)
	var e *openaimodel.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, event.Unavailable, e.Code)
	require.Equal(t, "the gateway cannot be reached", e.Error())
}

// endless streams text until its client leaves.
func endless(begun, left chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		streams(delta(`"content":"x"`))(w, r)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
		close(left)
	}
}

// A call that fails after it said what it used has used it.
func TestAFailedCallSaysWhatItUsed(t *testing.T) {
	vendor := httptest.NewServer(streams(finish("content_filter"), usageChunk, done))
	defer vendor.Close()
	var used event.Usage
	var last error
	for d, err := range openaimodel.New(openaimodel.Config{BaseURL: vendor.URL}).Generate(t.Context(), loop.Request{}) {
		used.InputTokens += d.Usage.InputTokens
		used.OutputTokens += d.Usage.OutputTokens
		last = err
	}
	require.Error(t, last)
	require.Equal(t, event.Usage{InputTokens: 11, OutputTokens: 5}, used)
}

func TestTheEndOfTheContextEndsTheCall(t *testing.T) {
	begun, left := make(chan struct{}, 1), make(chan struct{})
	m := gateway(t, openaimodel.Config{}, endless(begun, left))
	stopped := errors.New("the user pressed stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(stopped) }()
	_, err := collect(ctx, m, hello)
	require.Equal(t, stopped, err)
	<-left
}

func TestAReaderThatStopsEndsTheCall(t *testing.T) {
	begun, left := make(chan struct{}, 1), make(chan struct{})
	m := gateway(t, openaimodel.Config{}, endless(begun, left))
	for d, err := range m.Generate(t.Context(), hello) {
		require.NoError(t, err)
		require.Equal(t, "x", d.Text)
		break
	}
	<-left
}

func TestALongAnswerComesPieceByPiece(t *testing.T) {
	next := make(chan struct{})
	m := gateway(t, openaimodel.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", delta(fmt.Sprintf(`"content":"%d"`, i)))
			_ = http.NewResponseController(w).Flush()
			<-next // the piece was seen before the rest exists
		}
		streams(finish("stop"), done)(w, r)
	})
	var text strings.Builder
	for d, err := range m.Generate(t.Context(), hello) {
		require.NoError(t, err)
		text.WriteString(d.Text)
		if d.Text != "" {
			next <- struct{}{}
		}
	}
	require.Equal(t, "012", text.String())
}

// What is configured of effort, temperature and length, as it leaves.
func TestTuning(t *testing.T) {
	zero, warm := 0.0, 0.5
	for name, c := range map[string]struct {
		config       openaimodel.Config
		body, header string
	}{
		"auto leaves the effort to the gateway": {openaimodel.Config{ReasoningEffort: "auto"}, ``, "auto"},
		"none sends nothing":                    {openaimodel.Config{ReasoningEffort: "none"}, ``, ""},
		"nothing sends nothing":                 {openaimodel.Config{}, ``, ""},
		"a level is asked for": {openaimodel.Config{ReasoningEffort: "xhigh"}, `,"reasoning_effort":"xhigh"`,
			""},
		"temperature and length": {openaimodel.Config{Temperature: &warm, MaxTokens: 7},
			`,"temperature":0.5,"max_completion_tokens":7`, ""},
		"no temperature at all": {openaimodel.Config{Temperature: &zero}, `,"temperature":1e-45`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var header, body string
			m := gateway(t, c.config, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				header, body = r.Header.Get("X-AG-Effort"), string(b)
				streams(delta(`"content":"x"`), finish("stop"), done)(w, r)
			})
			_, err := collect(t.Context(), m, hello)
			require.NoError(t, err)
			require.Equal(t, c.header, header)
			require.JSONEq(t,
				`{"model":"analytic","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]`+c.body+`}`, body)
		})
	}
}

// What is recalled for a request is the first part of the newest message of the user, also
// when tools have answered since, and is named as being of this request alone.
func TestWhatIsRecalledIsAPartOfItsOwn(t *testing.T) {
	var header []string
	var body string
	m := gateway(t, openaimodel.Config{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		header, body = r.Header.Values("X-AG-Ephemeral-Parts"), string(b)
		streams(delta(`"content":"ok"`), finish("stop"), done)(w, r)
	})
	ask := memory.Message{Role: memory.RoleUser, Content: "What is my name?"}
	round := []memory.Message{
		{Role: memory.RoleUser, Content: "Hello"}, {Role: memory.RoleAssistant, Content: "Hi"}, ask,
		{Role: memory.RoleAssistant, ToolCalls: []memory.ToolCall{
			{ID: "1", Type: "function", Function: memory.FunctionCall{Name: "date", Arguments: "{}"}},
		}},
		{Role: memory.RoleTool, ToolCallID: "1", Content: "today"},
	}
	const parts = `{"role":"user","content":[{"type":"text","text":"(recalled)"},{"type":"text","text":"What is my name?"}]}`
	for _, messages := range [][]memory.Message{{ask}, round} {
		_, err := collect(t.Context(), m, loop.Request{Messages: messages, Recalled: "(recalled)"})
		require.NoError(t, err)
		require.Equal(t, []string{"1"}, header)
		require.Contains(t, body, parts)
		require.Equal(t, 1, strings.Count(body, "(recalled)"))
	}
	for _, r := range []loop.Request{{Messages: round}, {Messages: round[1:2], Recalled: "(recalled)"}} {
		_, err := collect(t.Context(), m, r)
		require.NoError(t, err)
		require.Empty(t, header)
		require.NotContains(t, body, "(recalled)")
	}
}
