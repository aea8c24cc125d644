package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"mneme/internal/redistest"
	"mneme/proxy"
	"mneme/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.IgnoreIdle()) }

// script is a vendor that answers every request with the same.
type script struct {
	server *httptest.Server
	answer http.HandlerFunc

	mu          sync.Mutex // guards got
	got         []received
	stuck, left chan struct{} // receive when stuckAfter is stuck, and when its client left
}

type received struct {
	url    string
	header http.Header
	body   string
}

func vendor(t *testing.T, answer http.HandlerFunc) *script {
	t.Helper()
	v := &script{answer: answer, stuck: make(chan struct{}, 8), left: make(chan struct{}, 8)}
	v.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		v.mu.Lock()
		v.got = append(v.got, received{r.URL.String(), r.Header.Clone(), string(body)})
		v.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		v.answer(w, r)
	}))
	t.Cleanup(v.server.Close)
	return v
}

// last is the newest request that the vendor got.
func (v *script) last(t *testing.T) received {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	require.NotEmpty(t, v.got, "nothing reached the vendor")
	return v.got[len(v.got)-1]
}

// count is how many requests the vendor got.
func (v *script) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.got)
}

// says answers with a body of a kind; the stream's events go out one by one.
func says(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Request-Id", "vendor-1")
		w.Header().Set("Set-Cookie", "a=b")
		for event := range strings.SplitAfterSeq(body, "\n\n") {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// byStream answers a request as it was asked: with JSON or with a stream.
func byStream(body, stream string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("X-Test"), "stream") {
			says("text/event-stream", stream)(w, r)
			return
		}
		says("application/json", body)(w, r)
	}
}

const (
	messagesBody = `{"id":"msg_1","type":"message","role":"assistant","model":"real-1","content":[{"type":"text","text":"Hello"},` +
		`{"type":"tool_use","id":"toolu_01A09q90qw90lq91","name":"f","input":{"a":1.0}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":5},"odd":1e2}`
	messagesStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"real-1","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}

event: ping
data: {"type": "ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data:{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_01A09q90qw90lq91","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1.0}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

`
	chatBody = `{"id":"c1","object":"chat.completion","created":1,"model":"real-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello",` +
		`"tool_calls":[{"id":"toolu_01A09q90qw90lq91","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8},"odd":1e2}`
	chatStream = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"real-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"real-1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"real-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"toolu_01A09q90qw90lq91","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},"finish_reason":null}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"real-1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"real-1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}

data: [DONE]

`
	ask = `{"model":"real-1","max_tokens":9,"messages":[{"role":"user","content":"hi"}]`
)

// gateway serves a configuration in which limits and Active have defaults.
func gateway(t *testing.T, c proxy.Config) (url string, server *proxy.Server) {
	t.Helper()
	if c.Active == "" {
		c.Active = "v"
	}
	c.Limits.Upstream.Backoff = time.Nanosecond
	server, err := proxy.New(c, zerolog.Nop())
	require.NoError(t, err)
	front := httptest.NewServer(server.Handler())
	t.Cleanup(func() { front.Close(); server.Close(); http.DefaultClient.CloseIdleConnections() })
	return front.URL, server
}

// to is a configuration with one backend, "v".
func to(v *script, kind string) proxy.Config {
	return proxy.Config{
		Backends: map[string]proxy.BackendConfig{"v": {Kind: kind, BaseURL: v.server.URL, APIKey: "own-key"}},
	}
}

type answered struct {
	status int
	header http.Header
	body   string
}

func call(t *testing.T, method, url, body string, header ...string) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(resp.Header.Get("X-AG-Request-Id"), "req_"), "every answer has an id")
	return answered{resp.StatusCode, resp.Header, string(got)}
}

func post(t *testing.T, url, body string, header ...string) answered {
	t.Helper()
	return call(t, http.MethodPost, url, body, header...)
}

// Every endpoint and every kind of backend, with a stream and without: what the
// client gets says the same.
func TestEndpointsAndBackends(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
		answer, path := byStream(messagesBody, messagesStream), "/v1/messages"
		if kind == proxy.KindOpenAI {
			answer, path = byStream(chatBody, chatStream), "/chat/completions"
		}
		for _, endpoint := range []string{"/v1/messages", "/v1/chat/completions", "/teammate/v1/messages",
			"/teammate/analytic/v1/chat/completions"} {
			for _, stream := range []bool{false, true} {
				name := kind + endpoint
				if stream {
					name += " stream"
				}
				t.Run(name, func(t *testing.T) {
					v := vendor(t, func(w http.ResponseWriter, r *http.Request) {
						if stream {
							r.Header.Set("X-Test", "stream")
						}
						answer(w, r)
					})
					url, _ := gateway(t, to(v, kind))
					body := ask + `,"tools":[],"stream_options":{"include_usage":true}}`
					if strings.HasSuffix(endpoint, "messages") {
						body = ask + `}`
					}
					if stream {
						body = body[:len(body)-1] + `,"stream":true}`
					}
					got := post(t, url+endpoint, body)
					require.Equal(t, 200, got.status, got.body)
					require.Equal(t, path, v.last(t).url)
					require.Equal(t, "vendor-1", got.header.Get("Request-Id"))
					require.Empty(t, got.header.Get("Set-Cookie"))
					kindOf := "application/json"
					if stream {
						kindOf = "text/event-stream"
					}
					require.Equal(t, kindOf, got.header.Get("Content-Type"))
					check := checkChat
					if strings.HasSuffix(endpoint, "messages") {
						check = checkMessages
					}
					check(t, got.body, stream)
				})
			}
		}
	}
}

// checkChat wants text, call, reason and usage of the scripted answer.
func checkChat(t *testing.T, body string, stream bool) {
	t.Helper()
	if stream {
		require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"))
		require.Contains(t, body, `"content":"Hel"`)
		require.Contains(t, body, `"content":"lo"`)
		require.Contains(t, body, `"finish_reason":"tool_calls"`)
	} else {
		require.Contains(t, body, `"content":"Hello"`)
		require.Contains(t, body, `"finish_reason":"tool_calls"`)
	}
	require.Contains(t, body, `{\"a\":1.0}`)
	require.Contains(t, body, `"prompt_tokens":3,"completion_tokens":5,"total_tokens":8`)
}

func checkMessages(t *testing.T, body string, stream bool) {
	t.Helper()
	if stream {
		require.True(t, strings.HasSuffix(body, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"))
		require.Contains(t, body, `"text":"Hel"`)
		require.Contains(t, body, `{\"a\":1.0}`)
	} else {
		require.True(t, json.Valid([]byte(body)))
		require.Contains(t, body, `"text":"Hello"`)
		require.Contains(t, body, `{"a":1.0}`)
	}
	require.Contains(t, body, `"stop_reason":"tool_use"`)
	require.Contains(t, body, `"output_tokens":5`)
}

func TestAToolRoundReachesAMessagesBackend(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	got := post(t, url+"/v1/chat/completions",
		`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},
		{"role":"assistant","tool_calls":[{"id":"toolu_01A09q90qw90lq91","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},
		{"role":"tool","tool_call_id":"toolu_01A09q90qw90lq91","content":"one"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`)
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t,
		`{"model":"m","max_tokens":8192,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},`+
			`{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01A09q90qw90lq91","name":"f","input":{"a":1.0}}]},`+
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01A09q90qw90lq91","content":[{"type":"text","text":"one"}]}]}],`+
			`"tools":[{"name":"f","input_schema":{"type":"object"}}]}`, v.last(t).body)
}

// stuckAfter sends the beginning of a stream, if there is one, and waits for the
// client to leave.
func stuckAfter(v **script, begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if begin != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, begin)
			_ = http.NewResponseController(w).Flush()
		}
		(*v).stuck <- struct{}{}
		<-r.Context().Done()
		(*v).left <- struct{}{}
	}
}

func firstEvents(stream string, n int) string {
	return strings.Join(strings.SplitAfter(stream, "\n\n")[:n], "")
}

func TestAClientThatLeavesEndsTheCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ endpoint, kind, begin string }{
		"passthrough": {"/v1/messages", proxy.KindAnthropic, firstEvents(messagesStream, 4)},
		"translated":  {"/v1/chat/completions", proxy.KindAnthropic, firstEvents(messagesStream, 4)},
		"the other":   {"/v1/messages", proxy.KindOpenAI, firstEvents(chatStream, 1)},
		"no answer":   {"/v1/messages", proxy.KindAnthropic, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var v *script
			v = vendor(t, stuckAfter(&v, c.begin))
			url, _ := gateway(t, to(v, c.kind))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+c.endpoint, strings.NewReader(ask+`,"stream":true}`))
			require.NoError(t, err)
			if c.begin == "" {
				go func() { <-v.stuck; cancel() }()
			}
			resp, err := http.DefaultClient.Do(r)
			if c.begin != "" {
				// What has been sent so far arrives although the stream goes on.
				require.NoError(t, err)
				_, err = io.ReadFull(resp.Body, make([]byte, 1))
				require.NoError(t, err)
				cancel()
				_ = resp.Body.Close()
			}
			<-v.left
		})
	}
}

// What was said waits neither for the rest of an event nor for one that says
// something to the client.
func TestWhatWasSaidIsShownAtOnce(t *testing.T) {
	t.Parallel()
	said := firstEvents(messagesStream, 4)
	ping := "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	for name, c := range map[string]struct{ endpoint, begin string }{
		"half an event, passthrough": {"/v1/messages", said + "event: content_block_delta\ndata: {\"ty"},
		"half an event, translated":  {"/v1/chat/completions", said + "event: content_block_delta\ndata: {\"ty"},
		"other line ends": {"/v1/messages", strings.ReplaceAll(said, "\n", "\r\n") +
			"event: content_block_delta\r\n"},
		"an event for us, translated": {
			"/v1/chat/completions", said + "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
		},
		"events and a half, translated":  {"/v1/chat/completions", said + ping + ping + "event: pi"},
		"events and a half, passthrough": {"/v1/messages", said + ping + ping + "event: pi"},
	} {
		t.Run(name, func(t *testing.T) {
			var v *script
			v = vendor(t, stuckAfter(&v, c.begin))
			url, _ := gateway(t, to(v, proxy.KindAnthropic))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // before a ping could push it out
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+c.endpoint, strings.NewReader(ask+`,"stream":true}`))
			require.NoError(t, err)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			shown := ""
			for piece := make([]byte, 1024); !strings.Contains(shown, `"Hel"`); {
				n, err := resp.Body.Read(piece)
				shown += string(piece[:n])
				require.NoError(t, err, shown)
			}
			cancel()
			_ = resp.Body.Close()
			<-v.left
		})
	}
}

func TestCutStreamsEndWithTheEndpointsErrorEvent(t *testing.T) {
	t.Parallel()
	cut := func(begin string, abort bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			says("text/event-stream", begin)(w, r)
			if abort {
				panic(http.ErrAbortHandler)
			}
		}
	}
	for name, c := range map[string]struct{ endpoint, kind, begin string }{
		"messages to messages": {"/v1/messages", proxy.KindAnthropic, firstEvents(messagesStream, 4)},
		"chat to messages":     {"/v1/chat/completions", proxy.KindAnthropic, firstEvents(messagesStream, 4)},
		"messages to chat":     {"/v1/messages", proxy.KindOpenAI, firstEvents(chatStream, 2)},
		"chat to chat":         {"/v1/chat/completions", proxy.KindOpenAI, firstEvents(chatStream, 2)},
		"half an event":        {"/v1/messages", proxy.KindAnthropic, firstEvents(messagesStream, 5) + "event: content_bl"},
		"half an event, chat": {"/v1/chat/completions", proxy.KindAnthropic, firstEvents(messagesStream, 5) +
			"data: {\"type\":"},
	} {
		for _, abort := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				v := vendor(t, cut(c.begin, abort))
				url, _ := gateway(t, to(v, c.kind))
				got := post(t, url+c.endpoint, ask+`,"stream":true}`)
				require.Equal(t, 200, got.status)
				require.Contains(t, got.body, "Hel")
				want := `event: error` + "\n" +
					`data: {"type":"error","error":{"type":"api_error","message":"the answer of backend \"v\" was cut off"}}` + "\n\n"
				if strings.HasSuffix(c.endpoint, "completions") {
					want = `data: {"error":{"type":"server_error","message":"the answer of backend \"v\" was cut ` +
						`off","code":"answer_cut"}}` + "\n\n"
				}
				require.True(t, strings.HasSuffix(got.body, "\n\n"+want), got.body)
			})
		}
	}
}

func TestACompleteStreamIsCompleteHoweverTheConnectionEnds(t *testing.T) {
	t.Parallel()
	v := vendor(t, func(w http.ResponseWriter, r *http.Request) {
		says("text/event-stream", messagesStream)(w, r)
		panic(http.ErrAbortHandler)
	})
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	require.Equal(t, messagesStream, post(t, url+"/v1/messages", ask+`,"stream":true}`).body)
	require.True(t, strings.HasSuffix(post(t, url+"/v1/chat/completions", ask+`,"stream":true}`).body, "data: [DONE]\n\n"))
}

func TestErrorEventsOfTheVendor(t *testing.T) {
	t.Parallel()
	overloaded := "event: error\ndata: " +
		"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	v := vendor(t, says("text/event-stream", firstEvents(messagesStream, 4)+overloaded))
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	require.True(t, strings.HasSuffix(post(t, url+"/v1/messages", ask+`,"stream":true}`).body, overloaded),
		"passed as it is")
	got := post(t, url+"/v1/chat/completions", ask+`,"stream":true}`)
	require.Equal(t, 200, got.status)
	require.True(t,
		strings.HasSuffix(got.body, `data: {"error":{"type":"server_error","message":"Overloaded","code":"overloaded"}}`+
			"\n\n"), got.body)

	first := vendor(t, says("text/event-stream", overloaded))
	url, _ = gateway(t, to(first, proxy.KindAnthropic))
	got = post(t, url+"/v1/chat/completions", ask+`,"stream":true}`)
	require.Equal(t, 529, got.status, "an error before anything else can still be a status")
	require.JSONEq(t, `{"error":{"type":"server_error","message":"Overloaded","code":"overloaded"}}`, got.body)
}

// An error that comes before the answer begins is one of the status that it names, though the
// stream began with 200: the call is made again, and in the end the client gets a status.
func TestAnErrorBeforeTheAnswerIsItsStatus(t *testing.T) {
	t.Parallel()
	const (
		overloaded  = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
		serverError = `{"error":{"message":"The server had an error","type":"server_error","code":null}}`
		busy        = `{"error":{"code":503,"message":"The model is busy","status":"UNAVAILABLE"}}`
		badKey      = `{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}`
		role        = `data: {"id":"c1","model":"real-1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` +
			"\n\n"
		filtered = `data: {"id":"","model":"","choices":[],"prompt_filter_results":[]}` + "\n\n"
		comment  = ": PROCESSING\n\n"
	)
	for name, c := range map[string]struct {
		kind, before, event string
		status, calls       int
	}{
		"messages, first":        {proxy.KindAnthropic, "", overloaded, 529, 3},
		"messages, after a ping": {proxy.KindAnthropic, firstEvents(messagesStream, 2), overloaded, 529, 3},
		"chat, first":            {proxy.KindOpenAI, "", serverError, 500, 3},
		"chat, after the role":   {proxy.KindOpenAI, comment + filtered + role, busy, 503, 3},
		"chat, a refusal":        {proxy.KindOpenAI, role, badKey, 401, 1},
	} {
		for _, endpoint := range []string{"/v1/messages", "/v1/chat/completions"} {
			for _, stream := range []string{"true", "false"} {
				t.Run(name+endpoint+", stream="+stream, func(t *testing.T) {
					whole, failing := messagesStream, "event: error\ndata: "+c.event+"\n\n"
					if c.kind == proxy.KindOpenAI {
						whole, failing = chatStream, "data: "+c.event+"\n\n"
					}
					v := vendor(t, says("text/event-stream", c.before+failing))
					url, _ := gateway(t, to(v, c.kind))
					got := post(t, url+endpoint, ask+`,"stream":`+stream+`}`)
					require.Equal(t, c.status, got.status, got.body)
					require.Equal(t, "application/json", got.header.Get("Content-Type"))
					require.Equal(t, gjson.Get(c.event, "error.message").Str, gjson.Get(got.body, "error.message").Str)
					require.Equal(t, c.calls, v.count())

					v.answer = func(w http.ResponseWriter, r *http.Request) {
						if v.count() == c.calls+1 {
							says("text/event-stream", c.before+failing)(w, r)
							return
						}
						says("text/event-stream", whole)(w, r)
					}
					if c.status < 500 {
						return
					}
					got = post(t, url+endpoint, ask+`,"stream":`+stream+`}`)
					require.Equal(t, 200, got.status, got.body)
					require.Equal(t, c.calls+2, v.count())
					require.NotContains(t, got.body, "error")
				})
			}
		}
	}
}

func TestErrorsOfTheVendor(t *testing.T) {
	t.Parallel()
	body := `{"type":"error", "error":{"type":"invalid_request_error","message":"messages: too odd"},"request_id":"r"}`
	v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(422)
		_, _ = io.WriteString(w, body)
	})
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	got := post(t, url+"/v1/messages", ask+`}`)
	require.Equal(t, 422, got.status)
	require.Equal(t, body, got.body)
	require.Equal(t, "application/json; charset=utf-8", got.header.Get("Content-Type"))
	got = post(t, url+"/v1/chat/completions", ask+`}`)
	require.Equal(t, 422, got.status)
	require.JSONEq(t, `{"error":{"type":"invalid_request_error","message":"messages: too odd","code":"unprocessable"}}`,
		got.body)
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	wait := "0"
	v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", wait)
		w.Header().Set("Anthropic-Ratelimit-Requests-Remaining", "0")
		w.WriteHeader(429)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`)
	})
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	got := post(t, url+"/v1/chat/completions", ask+`}`)
	require.Equal(t, 429, got.status)
	require.Equal(t, 3, v.count(), "two retries")
	wait = "86400"
	got = post(t, url+"/v1/chat/completions", ask+`}`)
	require.Equal(t, 4, v.count(), "a long wait is the client's")
	require.Equal(t, "86400", got.header.Get("Retry-After"))
	require.Equal(t, "0", got.header.Get("Anthropic-Ratelimit-Requests-Remaining"))
	require.Contains(t, got.body, "slow down")
}

func TestBackendsThatFail(t *testing.T) {
	t.Parallel()
	gone := vendor(t, nil)
	c := to(gone, proxy.KindOpenAI)
	gone.server.Close()
	url, _ := gateway(t, c)
	got := post(t, url+"/v1/chat/completions", ask+`}`)
	require.Equal(t, 502, got.status)
	require.JSONEq(t,
		`{"error":{"type":"server_error","message":"backend \"v\" cannot be reached","code":"backend_unreachable"}}`,
		got.body)

	var v *script
	v = vendor(t, stuckAfter(&v, ": hello\n\n"))
	c = to(v, proxy.KindAnthropic)
	c.Limits.Upstream = upstream.Limits{Idle: time.Millisecond, Total: time.Minute}
	url, _ = gateway(t, c)
	got = post(t, url+"/v1/chat/completions", ask+`,"stream":true}`)
	require.Equal(t, 504, got.status)
	require.JSONEq(t, `{"error":{"type":"server_error","message":"backend \"v\" took too long","code":"backend_timeout"}}`,
		got.body)

	html := vendor(t, says("text/html", "<html>"))
	url, _ = gateway(t, to(html, proxy.KindAnthropic))
	got = post(t, url+"/v1/chat/completions", ask+`}`)
	require.Equal(t, 502, got.status)
	require.Contains(t, got.body, "cannot be understood")

	moved := vendor(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	url, _ = gateway(t, to(moved, proxy.KindAnthropic))
	got = post(t, url+"/v1/messages", ask+`}`)
	require.Equal(t, 502, got.status)
	require.Contains(t, got.body, "base_url")
}
