package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/proxy"
	"mneme/proxy/upstream"
)

// limited is a gateway in front of vendors of both dialects; its every request comes from a key with limits.
type limited struct {
	*httptest.Server
	redis  redis.UniversalClient
	server *redistest.Server
	key    access.Principal
}

// vendors' answers: 10 tokens of input, of which 4 were cached, and 5 of output.
const (
	messagesAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],` +
		`"stop_reason":"end_turn","usage":{"input_tokens":6,"cache_read_input_tokens":4,"output_tokens":5}}`
	chatAnswer = `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":` +
		`{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,` +
		`"prompt_tokens_details":{"cached_tokens":4}}}`
	embeddingsAnswer = `{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[1]}],` +
		`"usage":{"prompt_tokens":15,"total_tokens":15}}`
)

func newLimited(t *testing.T, rate, budget string, messages, chat http.HandlerFunc, o limit.Options) *limited {
	l := limitedBy(t, o, func(c *proxy.Config) {
		c.Active, c.TeammateBackend, c.EmbeddingsBackend = "anthropic", "openai", "openai"
		c.Teammates = map[string]string{"responses": "responses"}
		c.Backends = map[string]proxy.BackendConfig{
			"anthropic": {Kind: proxy.KindAnthropic, BaseURL: vendor(t, messages).server.URL},
			"openai":    {Kind: proxy.KindOpenAI, BaseURL: vendor(t, chat).server.URL + "/v1"},
			"responses": {Kind: proxy.KindResponses, BaseURL: vendor(t, chat).server.URL + "/v1"},
		}
	})
	l.limits(t, "k1", budget)
	var err error
	l.key.Limits.Rate, err = access.ParseRates(rate)
	require.NoError(t, err)
	return l
}

// limitedBy is such a gateway with other backends.
func limitedBy(t *testing.T, o limit.Options, configure func(*proxy.Config)) *limited {
	l := &limited{server: redistest.Start(t)}
	l.redis = l.server.Client()
	limiter := limit.New(l.redis, o)
	prices, err := price.New(map[string]price.Price{"m": {Input: 1_000_000, Output: 2_000_000}})
	require.NoError(t, err)
	c := proxy.Config{Shared: proxy.Shared{Limiter: limiter}, Prices: func() *price.Table { return prices },
		AnswerTokens: 100}
	configure(&c)
	s, err := proxy.New(c, zerolog.Nop())
	require.NoError(t, err)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler().ServeHTTP(w, r.WithContext(access.With(r.Context(), l.key)))
	}))
	t.Cleanup(func() {
		l.Close()
		require.NoError(t, s.Close())
		require.NoError(t, limiter.Close())
	})
	return l
}

// limits has further requests come from another key, with a budget alone; without one it has no limits.
func (l *limited) limits(t *testing.T, key, budget string) {
	b, err := access.ParseBudgets(budget)
	require.NoError(t, err)
	l.key = access.Principal{Key: key, Limits: access.Limits{Budget: b}}
}

func (l *limited) post(t *testing.T, path, body string) (*http.Response, string) {
	resp, err := http.Post(l.URL+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// books awaits what is spent when nothing is reserved any more.
func (l *limited) books(t *testing.T, tokens, micros int64) {
	t.Helper()
	want := map[string]string{"key:k1:tokens": fmt.Sprint(tokens), "key:k1:usd": fmt.Sprint(micros)}
	var got map[string]string
	require.Eventually(t, func() bool {
		var err error
		got, err = l.redis.HGetAll(t.Context(), limit.Prefix+"{default}:total").Result()
		require.NoError(t, err)
		for name, n := range want {
			if held := got[name+":held"]; got[name] != n && (n != "0" || got[name] != "") || held != "" && held != "0" {
				return false
			}
		}
		return true
	}, 30*time.Second, 2*time.Millisecond, "%v %v", want, &got)
	l.told(t, tokens, micros)
}

// told waits until the counters that GET /v1/usage reads have what the key spent.
func (l *limited) told(t *testing.T, tokens, micros int64) {
	t.Helper()
	var rows []tally.Row
	require.Eventually(t, func() bool {
		now, sum := time.Now(), tally.Counts{}
		page, err := tally.New(l.redis, 0).Read(t.Context(), tally.Query{Tenant: l.key.Tenant, Dimension: tally.ByKey,
			First: now.AddDate(0, 0, -1), Last: now})
		require.NoError(t, err)
		rows = page.Rows
		for _, row := range rows {
			sum.Add(row.Counts)
		}
		return sum.Input+sum.Output == tokens && sum.Micros == micros
	}, 30*time.Second, 20*time.Millisecond, "%d %d %v", tokens, micros, &rows)
}

func TestEveryWayIsCharged(t *testing.T) {
	t.Parallel()
	l := newLimited(t, "1000/m", "100000tokens/total,1usd/total", says("application/json", messagesAnswer),
		func(w http.ResponseWriter, r *http.Request) {
			body := chatAnswer
			if strings.HasSuffix(r.URL.Path, "/embeddings") {
				body = embeddingsAnswer
			}
			says("application/json", body)(w, r)
		}, limit.Options{})
	const messages = `{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`
	const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	calls := int64(0)
	for _, way := range []struct{ path, body string }{
		{"/v1/messages", messages}, {"/v1/chat/completions", chat}, {"/v1/responses", `{"model":"m","input":"hi"}`},
		{"/teammate/v1/messages", messages}, {"/teammate/panelist/v1/chat/completions", chat},
		{"/teammate/v1/responses", `{"model":"m","input":"hi"}`},
	} {
		resp, text := l.post(t, way.path, way.body)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", way.path, text)
		require.NotEmpty(t, resp.Header.Get("RateLimit-Remaining"))
		calls++
		l.books(t, 15*calls, 20*calls)
	}
	for _, free := range []struct{ path, body string }{{"/v1/messages/count_tokens", messages}, {"/v1/messages", "{"}} {
		_, _ = l.post(t, free.path, free.body)
		l.books(t, 15*calls, 20*calls)
	}
	resp, text := l.post(t, "/v1/embeddings", `{"model":"m","input":"hi"}`)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	l.books(t, 15*calls+15, 20*calls+15)
}

// The gateway sends the number of answers that it reserved tokens for. An answer without content is charged its prompt.
func TestWhatIsSentIsReserved(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", `{"id":"c","object":"chat.completion","model":"m","choices":[]}`))
	l := limitedBy(t, limit.Options{}, func(c *proxy.Config) {
		c.Active, c.TeammateBackend = "v", "v"
		c.Backends = map[string]proxy.BackendConfig{"v": {Kind: proxy.KindOpenAI, BaseURL: v.server.URL + "/v1"}}
	})
	l.limits(t, "k1", "1000tokens/total,1usd/total")
	ask := func(n string) int {
		resp, _ := l.post(t, "/v1/chat/completions", `{"model":"m","max_tokens":100,"n":`+n+
			`,"messages":[{"role":"user","content":"hi"}]}`)
		return resp.StatusCode
	}
	for _, n := range []string{`"5000"`, `[5000]`, `{"a":1}`, `true`, `1.5`, `0`, `-1`, `129`, `1e30`} {
		require.Equal(t, http.StatusBadRequest, ask(n), n)
	}
	require.Equal(t, http.StatusTooManyRequests, ask("11"))
	require.Zero(t, v.count())
	require.Equal(t, http.StatusOK, ask("1e0"))
	l.books(t, 12, 12)
}

func TestTheEndOfABudgetIsSaidInTheDialect(t *testing.T) {
	t.Parallel()
	l := newLimited(t, "", "120tokens/month", says("application/json", messagesAnswer),
		says("application/json", chatAnswer), limit.Options{})
	const body = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
	resp, text := l.post(t, "/v1/messages", body)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	require.Eventually(t, func() bool {
		resp, text = l.post(t, "/v1/messages", body)
		return strings.Contains(text, "15 tokens are spent")
	},
		30*time.Second, time.Millisecond)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "rate_limit_error", gjson.Get(text, "error.type").Str)
	for _, says := range []string{"key k1", "120tokens/month", "resets on"} {
		require.Contains(t, gjson.Get(text, "error.message").Str, says)
	}
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Equal(t, "120", resp.Header.Get("RateLimit-Limit"))
	require.Equal(t, "105", resp.Header.Get("RateLimit-Remaining"))
	require.Equal(t, "false", resp.Header.Get("X-Should-Retry"))
	require.Equal(t, "budget_exceeded", resp.Header.Get("X-Ag-Error"))

	resp, text = l.post(t, "/teammate/v1/chat/completions", body)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Equal(t, "budget_exceeded", gjson.Get(text, "error.code").Str)
	_, text = l.post(t, "/v1/messages", `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, "msg_1", gjson.Get(text, "id").Str, "what fits passes: %s", text)
}

func TestARateIsSaid(t *testing.T) {
	t.Parallel()
	l := newLimited(t, "1/h", "", says("application/json", messagesAnswer), nil, limit.Options{})
	const body = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
	resp, _ := l.post(t, "/v1/messages", body)
	require.Equal(t, "0", resp.Header.Get("RateLimit-Remaining"))
	resp, text := l.post(t, "/v1/messages", body)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Contains(t, text, "1/h")
	require.Equal(t, "3600", resp.Header.Get("Retry-After"))
	require.Equal(t, "rate_limit_exceeded", resp.Header.Get("X-Ag-Error"))
}

func TestACallThatFailsCostsWhatWasCounted(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	begun, stuck, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	failures := 0
	answers := map[string]http.HandlerFunc{
		"fails": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
		"breaks": says("text/event-stream", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":"+
			"\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}}\n\n"+
			"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"+
			"{\"type\":\"text\",\"text\":\"\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\","+
			"\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n"),
		"again": func(w http.ResponseWriter, r *http.Request) {
			if failures++; failures < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			says("application/json", messagesAnswer)(w, r)
		},
		"begins": func(w http.ResponseWriter, r *http.Request) {
			says("text/event-stream", "event: ping\ndata: {\"type\":\"ping\"}\n\n")(w, r)
			close(begun)
			<-r.Context().Done()
			left <- struct{}{}
		},
		"stuck": func(w http.ResponseWriter, r *http.Request) {
			close(stuck)
			<-r.Context().Done()
			left <- struct{}{}
		},
	}
	var kind string
	l := newLimited(t, "", "100000tokens/total,1usd/total", func(w http.ResponseWriter, r *http.Request) {
		answers[kind](w, r)
	}, nil, limit.Options{})
	ask := func(ctx context.Context, how string) {
		kind = how
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+"/v1/messages",
			strings.NewReader(`{"model":"m","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	ask(t.Context(), "fails")
	l.books(t, 0, 0)
	ask(t.Context(), "breaks")
	l.books(t, 9, 11)
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-stuck; leave() }()
	ask(ctx, "stuck")
	<-left
	l.books(t, 9+13, 11+13) // the vendor has read the request: thirteen tokens, as estimated
	ctx, leave = context.WithCancel(t.Context())
	go func() { <-begun; leave() }()
	ask(ctx, "begins")
	<-left
	l.books(t, 9+26, 11+26)
	ask(t.Context(), "again")
	require.Equal(t, 3, failures)
	l.books(t, 9+26+15, 11+26+20)
}

func TestWithoutTheStoreLimitedCallsAreRefused(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, away := range []limit.OutagePolicy{limit.Refuse, limit.Allow} {
		l := newLimited(t, "", "100000tokens/total,1usd/total", says("application/json", messagesAnswer), nil,
			limit.Options{OutagePolicy: away, AwayCalls: 2, Patience: 100 * time.Millisecond})
		const body = `{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`
		l.server.Signal(syscall.SIGSTOP) // what it gets now it does when it goes on
		passed := int64(0)
		for range 4 {
			resp, text := l.post(t, "/v1/messages", body)
			if resp.StatusCode == http.StatusOK {
				passed++
				continue
			}
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Contains(t, text, "try again")
		}
		require.Equal(t, map[limit.OutagePolicy]int64{limit.Refuse: 0, limit.Allow: 2}[away], passed)
		l.server.Signal(syscall.SIGCONT)
		l.books(t, 15*passed, 20*passed)
	}
}

// A body that costs more to decode than a request may is refused in the dialect of its client, and no vendor is asked.
func TestBodiesAreBoundedBeforeTheyAreDecoded(t *testing.T) {
	t.Parallel()
	none := func(http.ResponseWriter, *http.Request) { t.Error("a vendor is asked") }
	l := newLimited(t, "", "", none, none, limit.Options{})
	many := `{"model":"m","messages":[],"input":[1` + strings.Repeat(",1", 600_000) + `]}`
	deep := `{"model":"m","tools":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`
	for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions", "/v1/responses",
		"/v1/embeddings"} {
		resp, text := l.post(t, path, many)
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, path)
		require.Contains(t, gjson.Get(text, "error.message").Str, "more than 500000 members and elements", path)
		resp, text = l.post(t, path, deep)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, path)
		require.Contains(t, gjson.Get(text, "error.message").Str, "nested more than 256 deep", path)
	}
}

// One tenant's calls leave a place to another's, and its failures are no reason to hold back another's.
func TestTenantsAtOneGateway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	release := make(chan struct{})
	var asked sync.WaitGroup
	v := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "wait"):
			asked.Done()
			<-release
		case strings.Contains(string(body), "fail"):
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		says("application/json", messagesAnswer)(w, r)
	}))
	t.Cleanup(v.Close)
	c := to(&script{server: v}, proxy.KindAnthropic)
	c.Active, c.Limits = "v", proxy.Limits{Calls: 2, Upstream: upstream.Limits{Backoff: time.Nanosecond}}
	s, err := proxy.New(c, zerolog.Nop())
	require.NoError(t, err)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of, _ := memory.ParseTenant(r.Header.Get("Test-Tenant"))
		s.Handler().ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Principal{Tenant: of, Scopes: access.Scopes})))
	}))
	t.Cleanup(func() { front.Close(); _ = s.Close(); http.DefaultClient.CloseIdleConnections() })
	say := func(tenant, word string) int {
		return call(t, "POST", front.URL+"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"`+
			word+`"}]}`, "Test-Tenant", tenant).status
	}
	for range 20 {
		require.Contains(t, []int{500, 503}, say("a", "fail"))
	}
	require.Equal(t, 503, say("a", "hi"), "the backend is left alone")
	require.Equal(t, 200, say("b", "hi"), "by a alone")

	asked.Add(1)
	var waits sync.WaitGroup
	waits.Go(func() { say("c", "wait") })
	asked.Wait()
	require.Equal(t, http.StatusTooManyRequests, say("c", "hi"), "the other place is kept for others")
	require.Equal(t, 200, say("b", "hi"))
	close(release)
	waits.Wait()
	require.Equal(t, 200, say("c", "hi"))
}

// A call that goes on to another backend is charged once, by what that one took and costs.
func TestARouteIsChargedOnce(t *testing.T) {
	t.Parallel()
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	l := limitedBy(t, limit.Options{}, func(c *proxy.Config) {
		c.Active, c.Routes = "main", map[string]proxy.RouteConfig{"main": {Use: []string{"anthropic", "openai"}}}
		c.Backends = map[string]proxy.BackendConfig{
			"anthropic": {Kind: proxy.KindAnthropic, BaseURL: vendor(t, fails).server.URL},
			"openai":    {Kind: proxy.KindOpenAI, BaseURL: vendor(t, says("application/json", chatAnswer)).server.URL + "/v1"},
		}
		c.Limits.Upstream.Backoff = time.Nanosecond
	})
	l.limits(t, "k1", "100000tokens/total,1usd/total")
	for n := range int64(5) {
		resp, body := l.post(t, "/v1/messages", `{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Equal(t, "openai", resp.Header.Get("X-AG-Backend"))
		l.books(t, 15*(n+1), 20*(n+1))
	}
}
