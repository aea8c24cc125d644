package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/upstream"
)

func TestBadRequestsAreAnsweredInTheEndpointsDialect(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	c := to(v, proxy.KindAnthropic)
	c.Limits.MaxBody = 1000
	url, _ := gateway(t, c)
	big := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 2000) + `"}]}`
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		want               string
	}{
		"malformed, messages": {"POST", "/v1/messages", `{"model":`, nil, 400,
			`"type":"error","error":{"type":"invalid_request_error","message":"the body cannot be read: it is not valid JSON ` +
				`at byte`},
		"malformed, chat": {"POST", "/v1/chat/completions", `nonsense`, nil, 400,
			`{"error":{"type":"invalid_request_error","message":"the body cannot be read: it is not valid JSON`},
		"empty":    {"POST", "/v1/chat/completions", ``, nil, 400, `it is empty`},
		"no model": {"POST", "/v1/messages", `{"messages":[]}`, nil, 400, `\"model\" is missing`},
		"wrong type": {"POST", "/v1/chat/completions", `{"model":"m","messages":"x"}`, nil, 400,
			`/messages has the wrong type`},
		"refused parameter": {
			"POST", "/v1/chat/completions", `{"model":"m","n":2,"messages":[{"role":"user","content":"x"}]}`, nil, 400,
			`\"n\" cannot be served`,
		},
		"huge, messages": {"POST", "/v1/messages", big, nil, 413,
			`"type":"request_too_large","message":"the body is larger than 1000 bytes"`},
		"huge, chat": {"POST", "/teammate/v1/chat/completions", big, nil, 413, `"code":"request_too_large"`},
		"compressed by a new coding": {"POST", "/v1/messages", `{}`, []string{"Content-Encoding", "dcz"}, 415,
			`unknown content encoding \"dcz\": use gzip`},
		"damaged": {"POST", "/v1/messages", `{}`, []string{"Content-Encoding", "zstd"}, 400,
			`the body cannot be decoded as zstd`},
		"conversation id": {"POST", "/v1/messages", `{"model":"m"}`, []string{"X-AG-Conversation-Id", "a b"}, 400,
			`conversation's id must be`},
		"no embeddings": {"POST", "/v1/embeddings", `{"model":"e","input":"x"}`, nil, 501, `proxy.embeddings_backend`},
		"completions":   {"POST", "/v1/completions", `{}`, nil, 404, `/v1/chat/completions`},
		"unknown, messages": {"GET", "/v1/messages/batches", ``, nil, 404,
			`{"type":"error","error":{"type":"not_found_error"`},
		"unknown, by header": {"GET", "/v1/files", ``, []string{"anthropic-version", "2023-06-01"}, 404,
			`"type":"not_found_error"`},
		"base URL with /v1 too many": {"POST", "/v1/v1/messages", `{}`, nil, 404, `leave it out of its base URL`},
		"base URL with /v1 too many, teammate": {"POST", "/teammate/v1/v1/chat/completions", `{}`, nil, 404,
			`leave it out of its base URL`},
		"base URL without /v1": {"POST", "/chat/completions", `{}`, nil, 404, `end its base URL in /v1; POST /v1/messages`},
		"base URL without /v1, teammate": {"POST", "/teammate/a/messages", `{}`, []string{"anthropic-version", "2023-06-01"},
			404, `"type":"not_found_error","message":"/teammate/a/messages is not served: the client does not add /v1`},
		"trailing slash":     {"POST", "/v1/messages/", `{}`, nil, 404, `not served`},
		"wrong method":       {"GET", "/v1/messages", ``, nil, 405, `/v1/messages takes POST, not GET`},
		"wrong method, chat": {"DELETE", "/teammate/analytic/v1/chat/completions", ``, nil, 405, `takes POST, not DELETE`},
		"teammate's name":    {"POST", "/teammate/Bad.Name/v1/messages", `{}`, nil, 404, `no subagent's name`},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, c.method, url+c.path, c.body, c.header...)
			require.Equal(t, c.status, got.status, got.body)
			require.Contains(t, got.body, c.want)
			require.Equal(t, "application/json", got.header.Get("Content-Type"))
		})
	}
	require.Zero(t, v.count(), "none of these reaches a vendor")

	t.Run("huge, of unknown length", func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/messages", struct{ *strings.Reader }{
			strings.NewReader(big),
		})
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 413, resp.StatusCode)
	})
}

// two is a gateway with the backends a and b, each its own vendor.
func two(t *testing.T, change func(*proxy.Config)) (url string, server *proxy.Server, a, b *script) {
	a, b = vendor(t, says("application/json", messagesBody)), vendor(t, says("application/json", chatBody))
	c := proxy.Config{Active: "a", Backends: map[string]proxy.BackendConfig{
		"a": {Kind: proxy.KindAnthropic, BaseURL: a.server.URL, ModelMap: map[string]string{
			"zeta": "z", "alpha": "y", "*": "w",
		}},
		"b": {Kind: proxy.KindOpenAI, BaseURL: b.server.URL},
	}}
	change(&c)
	url, server = gateway(t, c)
	return url, server, a, b
}

func TestTeammatesHaveBackendsOfTheirOwn(t *testing.T) {
	t.Parallel()
	url, _, a, b := two(t, func(c *proxy.Config) {
		c.TeammateBackend = "b"
		c.Teammates = map[string]string{"analytic": "a"}
	})
	for _, c := range []struct {
		path       string
		atA, other int
	}{{"", 1, 0}, {"/teammate", 1, 1}, {"/teammate/analytic", 2, 1}, {"/teammate/knowledge", 2, 2}} {
		require.Equal(t, 200, post(t, url+c.path+"/v1/chat/completions", ask+`}`).status)
		require.Equal(t, c.atA, a.count(), c.path)
		require.Equal(t, c.other, b.count(), c.path)
	}
}

func TestTheActiveBackendCanBeSwitched(t *testing.T) {
	t.Parallel()
	url, _, a, b := two(t, func(*proxy.Config) {})
	require.JSONEq(t, `{"active":"a","backends":["a","b"]}`, call(t, "GET", url+"/admin/backend", "").body)
	got := call(t, "PUT", url+"/admin/backend", `{"active":"b"}`)
	require.Equal(t, 200, got.status)
	require.JSONEq(t, `{"active":"b","backends":["a","b"]}`, got.body)
	post(t, url+"/v1/messages", ask+`}`)
	require.Equal(t, 1, b.count())
	post(t, url+"/teammate/v1/messages", ask+`}`)
	require.Equal(t, 1, a.count(), "a teammate's backend is fixed")

	got = call(t, "PUT", url+"/admin/backend", `{"active":"c"}`)
	require.Equal(t, 400, got.status)
	require.Contains(t, got.body, `there is no backend \"c\" (a, b)`)
	for _, wrong := range []string{
		`b`, `{"Active":"a"}`, `{"active":"a","active":"b"}`, "{\"active\":\"a\",\"x\":\"\xff\"}",
	} {
		require.Equal(t, 400, call(t, "PUT", url+"/admin/backend", wrong).status, wrong)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"} {
		got := post(t, url+path, strings.Replace(ask, "hi", "\xff", 1)+`}`)
		require.Equal(t, 400, got.status, path)
	}
	require.Equal(t, 405, call(t, "POST", url+"/admin/backend", `{}`).status)
}

func TestModelsAreOurAliases(t *testing.T) {
	t.Parallel()
	url, _, _, _ := two(t, func(c *proxy.Config) { c.TeammateBackend = "b" })
	require.JSONEq(t,
		`{"object":"list","data":[{"id":"alpha","object":"model","created":0,"owned_by":"mneme"},{"id":"zeta","object":"model","created":0,"owned_by":"mneme"}]}`,
		call(t, "GET", url+"/v1/models", "").body)
	require.JSONEq(t, `{"object":"list","data":[]}`, call(t, "GET", url+"/teammate/v1/models", "").body)
	require.JSONEq(t, `{"data":[{"type":"model","id":"alpha","display_name":"alpha","created_at":"1970-01-01T00:00:00Z"},
		{"type":"model","id":"zeta","display_name":"zeta","created_at":"1970-01-01T00:00:00Z"}],"has_more":false,"first_id":"alpha","last_id":"zeta"}`,
		call(t, "GET", url+"/v1/models", "", "anthropic-version", "2023-06-01").body)
}

// Where no name is an alias, pickers show what the vendor has, which is asked once, or what is configured.
func TestModelsOfABackendWithoutAliases(t *testing.T) {
	t.Parallel()
	every := map[string]string{"*": "real-1"}
	for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
		for _, auth := range []upstream.Auth{upstream.AuthKey, upstream.AuthPassthrough} {
			vendorKind := upstreamtest.Anthropic
			if kind == proxy.KindOpenAI {
				vendorKind = upstreamtest.Chat
			}
			v := upstreamtest.New(upstreamtest.Config{Vendor: vendorKind, APIKey: "right", Models: []string{"real-1", "real-2"}})
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				v.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			b := proxy.BackendConfig{Kind: kind, BaseURL: server.URL, Auth: auth, ModelMap: every}
			if auth == upstream.AuthKey {
				b.APIKey = "right"
			}
			if kind == proxy.KindOpenAI {
				b.BaseURL += "/v1"
			}
			url, _ := gateway(t, proxy.Config{Backends: map[string]proxy.BackendConfig{"v": b}})
			for range 2 {
				got := call(t, "GET", url+"/v1/models", "", "authorization", "Bearer right")
				require.Equal(t, 200, got.status)
				require.Contains(t, got.body, `"data":[{"id":"real-1",`, "%s %s", kind, auth)
				require.Contains(t, got.body, `{"id":"real-2",`)
				got = call(t, "GET", url+"/teammate/v1/models", "", "anthropic-version", "2023-06-01", "x-api-key", "right")
				require.Contains(t, got.body, `"first_id":"real-1","last_id":"real-2"`)
			}
			require.EqualValues(t, 1, asked.Load(), "the list is kept")
			require.Equal(t, 200, call(t, "GET", url+"/v1/models/real-2", "").status)
			require.Equal(t, 200, call(t, "GET", url+"/v1/models/anything", "").status)
			want := `"data":[{"id":"real-1",`
			got := call(t, "GET", url+"/v1/models", "", "authorization", "Bearer wrong").body
			require.Contains(t, got, want, "what every name leads to")
			require.Equal(t, auth == upstream.AuthKey, strings.Contains(got, "real-2"), "a list is its caller's: %s", got)
		}
	}
	url, _, a, _ := two(t, func(c *proxy.Config) {
		b := c.Backends["a"]
		b.Models = []string{"opus", "haiku"}
		c.Backends["a"] = b
	})
	require.Contains(t, call(t, "GET", url+"/v1/models", "", "anthropic-version", "2023-06-01").body,
		`"first_id":"opus","last_id":"haiku"`)
	require.Zero(t, a.count())

	google := vendor(t, says("application/json",
		`{"models":[{"name":"models/gemini-3.8-flash","version":"3"}],"nextPageToken":"x"}`))
	url, _ = gateway(t, to(google, proxy.KindInteractions))
	got := call(t, "GET", url+"/v1/models", "").body
	require.Equal(t, "gemini-3.8-flash", gjson.Get(got, "data.0.id").Str, got)
}

func TestEmbeddingsGoToTheirBackendFromEveryEndpoint(t *testing.T) {
	t.Parallel()
	url, _, _, b := two(t, func(c *proxy.Config) { c.EmbeddingsBackend = "b" })
	b.answer = says("application/json", `{"data":[{"embedding":[0.10]}],"model":"e"}`)
	for _, prefix := range []string{"", "/teammate", "/teammate/knowledge"} {
		got := post(t, url+prefix+"/v1/embeddings", `{"input":["x"], "model":"e","dimensions":8.0}`)
		require.Equal(t, `{"data":[{"embedding":[0.10]}],"model":"e"}`, got.body)
		require.Equal(t, "/embeddings", b.last(t).url)
		require.Equal(t, `{"input":["x"], "model":"e","dimensions":8.0}`, b.last(t).body)
	}
}

func TestCountingTokens(t *testing.T) {
	t.Parallel()
	url, _, a, b := two(t, func(c *proxy.Config) { c.TeammateBackend = "b" })
	a.answer = says("application/json", `{"input_tokens": 12}`)
	got := post(t, url+"/v1/messages/count_tokens", `{"model":"m","messages":[]}`)
	require.Equal(t, `{"input_tokens": 12}`, got.body)
	require.Equal(t, "/v1/messages/count_tokens", a.last(t).url)
	require.Empty(t, got.header.Get("X-AG-Estimated"))

	got = post(t, url+"/teammate/v1/messages/count_tokens",
		`{"model":"m","system":"12345678","messages":[{"role":"user","content":[{"type":"text","text":"приветик"},
		{"type":"image","source":{"type":"base64","data":"`+strings.Repeat("A", 9000)+`"}}]}]}`)
	require.Equal(t, 200, got.status)
	require.JSONEq(t, `{"input_tokens":1625}`, got.body)
	require.Equal(t, "true", got.header.Get("X-AG-Estimated"))
	require.Zero(t, b.count())
}

func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	url, server, a, _ := two(t, func(*proxy.Config) {})
	require.Equal(t, 200, call(t, "HEAD", url+"/", "").status)
	for _, path := range []string{"/health", "/healthz", "/readyz"} {
		require.Equal(t, 200, call(t, "GET", url+path, "").status, path)
	}
	post(t, url+"/v1/messages", ask+`}`)
	post(t, url+"/teammate/x/v1/chat/completions", `{`)
	a.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }
	post(t, url+"/v1/messages", ask+`}`)
	text := call(t, "GET", url+"/metrics", "").body
	for _, series := range []string{`requests_total{outcome="notknown",pipeline="teammate"} 0`,
		`branches_total{pipeline="main"} 0`, `messages_rebuilt_total{pipeline="teammate"} 0`,
		`messages_given_up_total{pipeline="main"} 0`} {
		require.Contains(t, text, "mneme_proxy_conversation_"+series, "a counter exists before its first event")
	}
	for _, want := range []string{
		`mneme_proxy_requests_total{backend="a",door="messages",outcome="ok",pipeline="main"} 1`,
		`mneme_proxy_requests_total{backend="a",door="messages",outcome="refused",pipeline="main"} 1`,
		`mneme_proxy_requests_total{backend="",door="chat",outcome="refused",pipeline="teammate"} 1`,
		`mneme_proxy_upstream_responses_total{backend="a",status="200"} 1`,
		`mneme_proxy_upstream_responses_total{backend="a",status="400"} 1`,
		`mneme_proxy_request_duration_seconds_count{door="messages",pipeline="main"} 2`,
	} {
		require.Contains(t, text, want)
	}
	server.Close()
	got := call(t, "GET", url+"/readyz", "")
	require.Equal(t, 503, got.status)
	require.JSONEq(t, `{"status":"draining","reasons":["The gateway is stopping."]}`, got.body)
}

func TestTheOfflineBackendAnswersBothEndpoints(t *testing.T) {
	t.Parallel()
	url, _ := gateway(t, proxy.Config{Backends: map[string]proxy.BackendConfig{"v": {Kind: proxy.KindOffline}}})
	for _, stream := range []string{"", `,"stream":true`} {
		got := post(t, url+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"My name is Aliya."}]`+
			stream+`}`)
		require.Equal(t, 200, got.status, got.body)
		require.Contains(t, got.body, `"finish_reason":"stop"`)
		got = post(t, url+"/v1/messages",
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"My name is Aliya."}]`+stream+`}`)
		require.Equal(t, 200, got.status, got.body)
		require.Contains(t, got.body, `"stop_reason":"end_turn"`)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := proxy.New(proxy.Config{
		Active: "nobody", TeammateBackend: "", EmbeddingsBackend: "a",
		Teammates: map[string]string{"Bad": "a", "knowledge": "gone"},
		Backends: map[string]proxy.BackendConfig{
			"a": {Kind: proxy.KindAnthropic},
			"b": {Kind: "copilott", Auth: "maybe"},
			"c": {Kind: proxy.KindAnthropic, BaseURL: "https://x/v1/", Vendor: "acme"},
			"d": {Kind: proxy.KindOpenAI, BaseURL: "https://x/v1", Auth: "key", ModelMap: map[string]string{"a": ""}},
			"e": {Kind: proxy.KindOffline, BaseURL: "http://x", Thinking: proxy.ThinkingConfig{BudgetTokens: 5}},
		},
	}, zerolog.Nop())
	for _, want := range []string{
		`proxy.active names "nobody", which is not in proxy.backends (a, b, c, d, e)`,
		`proxy.teammates: "Bad" is no subagent's name`,
		`proxy.teammates.knowledge names "gone"`,
		`proxy.embeddings_backend names "a", which is not of kind openai`,
		`proxy.backends.a.base_url is missing`,
		`proxy.backends.b.kind must be anthropic, openai, responses, interactions, copilot or offline, not "copilott"`,
		`proxy.backends.b.auth must be key, passthrough or none`,
		`proxy.backends.c.base_url must not end in /v1`,
		`proxy.backends.c.vendor "acme" is not known`,
		`proxy.backends.d.auth is key, but there is none: set api_key_env`,
		`proxy.backends.d.model_map has an empty name`,
		`proxy.backends.e.base_url must be left out`,
		`proxy.backends.e.thinking.budget_tokens must be at least 1024`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = proxy.New(proxy.Config{}, zerolog.Nop())
	require.ErrorContains(t, err, "proxy.active is empty: name one of proxy.backends (there are none)")
	_,
		err = proxy.New(proxy.Config{Active: "a", Backends: map[string]proxy.BackendConfig{
		"a": {Kind: proxy.KindOpenAI, BaseURL: "nohost"},
	}}, zerolog.Nop())
	require.ErrorContains(t, err, "proxy.backends.a.base_url must be an http:// or https:// URL")
}

// A vendor that counts only when it is asked is asked, and the extra chunk goes only to clients that asked.
func TestStreamsAreCountedWhetherTheClientAsksOrNot(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat}))
	t.Cleanup(server.Close)
	l := limitedBy(t, limit.Options{}, func(c *proxy.Config) {
		c.Active = "v"
		c.Backends = map[string]proxy.BackendConfig{"v": {Kind: proxy.KindOpenAI, BaseURL: server.URL + "/v1"}}
	})
	asks := map[string]bool{
		``: false, `,"stream_options":null`: false, `,"stream_options":{"include_usage":false}`: false,
		`,"stream_options":{"include_obfuscation":false}`: false, `,"stream_options":{"include_usage":true}`: true,
	}
	for more, shown := range asks {
		got := post(t, l.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]`+
			more+`}`)
		require.Equal(t, 200, got.status, got.body)
		require.True(t, strings.HasSuffix(got.body, "data: [DONE]\n\n"), got.body)
		require.Contains(t, got.body, `"finish_reason":"stop"`)
		require.Equal(t, shown, strings.Contains(got.body, `"choices":[]`), "%s: %s", more, got.body)
		require.Equal(t, shown, strings.Contains(got.body, `"prompt_tokens"`), "%s: %s", more, got.body)
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		page, err := tally.New(l.redis, 0).Read(context.Background(), tally.Query{Dimension: tally.ByBackend, Name: "v",
			First: time.Now().AddDate(0, 0, -1), Last: time.Now()})
		require.NoError(t, err)
		calls, estimated := int64(0), int64(0)
		for _, row := range page.Rows {
			calls, estimated = calls+row.Calls, estimated+row.Estimated
		}
		require.Equal(t, [2]int64{5, 0}, [2]int64{calls, estimated})
	}, time.Minute, 20*time.Millisecond)
}

// A vendor that refuses to be asked is asked once.
func TestAVendorThatRefusesStreamOptions(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	v := vendor(t, nil)
	v.answer = func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(v.last(t).body, "stream_options") {
			asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"Unknown parameter: 'stream_options'.",`+
				`"type":"invalid_request_error","param":"stream_options","code":"unknown_parameter"}}`)
			return
		}
		says("text/event-stream", chatStream)(w, r)
	}
	url, _ := gateway(t, to(v, proxy.KindOpenAI))
	for range 2 {
		require.Equal(t, 200, post(t, url+"/v1/chat/completions", ask+`,"stream":true}`).status)
	}
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, ask+`,"stream":true}`, v.last(t).body)
}

// A picker shows something in front of the offline model, too.
func TestTheOfflineModelHasAName(t *testing.T) {
	t.Parallel()
	server, err := proxy.New(proxy.Config{Active: "o", Backends: map[string]proxy.BackendConfig{
		"o": {Kind: proxy.KindOffline},
	}}, zerolog.Nop())
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	require.Contains(t, w.Body.String(), `"data":[{"id":"offline",`)
}

func TestRemovedRoutesNameTheirReplacement(t *testing.T) {
	t.Parallel()
	url, _ := gateway(t, proxy.Config{Backends: map[string]proxy.BackendConfig{
		"v": {Kind: proxy.KindOpenAI, BaseURL: "http://127.0.0.1:1/v1"},
	}})
	got := call(t, "GET", url+"/admin/usage?by=backend", "")
	require.Equal(t, http.StatusGone, got.status)
	require.Contains(t, got.body, "use GET /v1/usage of webmemory or mneme usage")
}
