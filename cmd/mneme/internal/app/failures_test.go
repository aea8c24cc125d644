package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// failing is a stack with keys over a vendor that fails as it is told.
type failing struct {
	*up
	t     *testing.T
	admin string
	fault atomic.Pointer[upstreamtest.Fault]
	chats atomic.Int64
}

func newFailing(t *testing.T) *failing {
	f := &failing{t: t}
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Fault: func(*upstreamtest.Request) *upstreamtest.Fault { return f.fault.Load() }})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	redisServer := redistest.Start(t)
	f.up = start(t, "MNEME_AUTH_MODE=keys", "MNEME_INTERNAL_SECRET="+strings.Repeat("secret-", 8),
		"MNEME_REDIS_URL="+redisServer.URL(), "MNEME_DATA_DIR="+t.TempDir(), "MNEME_BUDGETS_ANSWER_TOKENS=100",
		"MNEME_LIMITS_TENANTS={full: {budget: 30000tokens/day}}", "MNEME_LIMITS_USERS_BUDGET=30000tokens/day",
		"MNEME_PROXY_ACTIVE=v", "MNEME_PROXY_TEAMMATE_BACKEND=v", backend("v", "openai", server.URL+"/v1"))
	client := redis.NewClient(&redis.Options{Addr: redisServer.Addr})
	t.Cleanup(func() { _ = client.Close() })
	var err error
	f.admin, _, err = access.NewStore(client).Create(t.Context(),
		access.Key{Name: "admin", Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)
	return f
}

// key makes one with limits.
func (f *failing) key(tenant, rate, budget string) string {
	f.t.Helper()
	status, body := ask(f.t, "POST", f.url("/v1/keys"), f.admin, fmt.Sprintf(
		`{"name":"k","tenant":%q,"scopes":["chat","memory:read"],"rate":%q,"budget":%q}`, tenant, rate, budget))
	require.Equal(f.t, http.StatusCreated, status, body)
	return gjson.Get(body, "key").Str
}

// spend has a key make calls until one is refused. They are the smallest that there are: no other call fits then.
func (f *failing) spend(key, user string) {
	f.t.Helper()
	for range 100 {
		if status, _ := ask(f.t, "POST", f.url("/v1/oneshot"), key, `{"message":"x","user":"`+user+`"}`); status != 200 {
			return
		}
	}
	require.Fail(f.t, "the budget is never spent")
}

// told is how a failure is told.
type failureTold struct {
	status      int
	header      http.Header
	code, words string
	after       int // seconds
}

// surfaces are the ways to a failure.
var surfaces = map[string]func(f *failing, key, user string) failureTold{
	"native": func(f *failing, key, user string) failureTold {
		return f.post(key, "/v1/chats/"+f.chat()+"/messages", `{"message":"hi","user":%q}`, user)
	},
	"native stream": func(f *failing, key, user string) failureTold {
		return f.post(key, "/v1/chats/"+f.chat()+"/messages", `{"message":"hi","user":%q,"stream":true}`, user)
	},
	"one-shot": func(f *failing, key, user string) failureTold {
		return f.post(key, "/v1/oneshot", `{"message":"hi","user":%q}`, user)
	},
	"openai": func(f *failing, key, user string) failureTold {
		return f.post(key, "/c/"+f.chat()+"/v1/chat/completions",
			`{"model":"mneme","user":%q,"messages":[{"role":"user","content":"hi"}]}`, user)
	},
	"openai stream": func(f *failing, key, user string) failureTold {
		return f.post(key, "/c/"+f.chat()+"/v1/chat/completions",
			`{"model":"mneme","user":%q,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, user)
	},
	"mcp": func(f *failing, key, _ string) failureTold {
		return f.post(key, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask",`+
			`"arguments":{"chat":%q,"message":"hi"}}}`, f.chat())
	},
}

func (f *failing) chat() string { return fmt.Sprint("c", f.chats.Add(1)) }

func (f *failing) post(key, path, body string, args ...any) (out failureTold) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), "POST", f.url(path),
		strings.NewReader(fmt.Sprintf(body, args...)))
	require.NoError(f.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	if path == "/mcp" {
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(f.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	out = failureTold{status: resp.StatusCode, header: resp.Header}
	out.after, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	switch {
	case path == "/mcp":
		for line := range strings.SplitSeq(string(raw), "\n") {
			raw = []byte(strings.TrimPrefix(line, "data: "))
			if meta := gjson.GetBytes(raw, "result._meta"); meta.Exists() {
				said := meta.Get("mneme/error")
				out.code, out.words = said.Get("code").Str, gjson.GetBytes(raw, "result.content.0.text").Str
				out.after = int(meta.Get("mneme/retry-after").Int())
			}
		}
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		failure := failureOf(f.t, transcript(f.t, string(raw)))
		out.code, out.words, out.after = failure.Code, failure.Message, int(failure.RetryAfter)
	default:
		said := gjson.GetBytes(raw, "error")
		out.code, out.words = said.Get("code").Str, said.Get("message").Str
	}
	return out
}

// Each way to a failure tells the same of it: the status that clients know what to do about, the party at fault, or
// the one with the limit, and when trying again helps.
func TestEverySurfaceTellsWhoseFaultItIs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	f := newFailing(t)
	free := f.key("default", "", "")
	const day, vendors = 24 * 3600, "vendor"
	for _, c := range []struct {
		name        string
		key, user   string
		spent       bool
		fault       *upstreamtest.Fault
		status      int
		code        string
		says        []string
		least, most int // of Retry-After
	}{
		{name: "a key's budget", key: f.key("default", "", "30000tokens/day"), spent: true, status: 429,
			code: "budget_exceeded", says: []string{"budget of the key", "30000tokens/day", "tokens are spent", "it resets on"},
			least: 1, most: day},
		{name: "a tenant's budget", key: f.key("full", "", ""), spent: true, status: 429, code: "budget_exceeded",
			says: []string{"budget of the tenant full", "30000tokens/day", "tokens are spent"}, least: 1, most: day},
		{name: "a user's budget", key: free, user: "ann", spent: true, status: 429, code: "budget_exceeded",
			says: []string{"budget of the user ann", "30000tokens/day", "tokens are spent"}, least: 1, most: day},
		{name: "a key's rate", key: f.key("default", "1/h", ""), spent: true, status: 429, code: "rate_limit_exceeded",
			says: []string{"rate of the key", "1/h", "try again in"}, least: 3000, most: 3600},
		{name: "more than a budget ever has", key: f.key("default", "", "10tokens/day"), status: 429, code: "budget_exceeded",
			says: []string{"more than the whole budget"}},
		{name: "the vendor's rate, which says when", key: free, fault: new(upstreamtest.RateLimited(30)), status: 429,
			code: "rate_limited", says: []string{vendors, "in 30 s"}, least: 29, most: 30},
		{name: "the vendor's rate, which does not say", key: free, fault: new(upstreamtest.RateLimited(-1)), status: 429,
			code: "rate_limited", says: []string{vendors, "a little later"}, most: 2},
		{name: "the vendor's long rate", key: free, fault: new(upstreamtest.RateLimited(3600)), status: 429,
			code: "rate_limited", says: []string{vendors, "in 3600 s"}, least: 3590, most: 3600},
		{name: "the vendor's quota", key: free, fault: new(upstreamtest.Canned(429, `{"error":{"message":"You exceeded your `+
			`current quota","type":"insufficient_quota","code":"insufficient_quota"}}`)), status: 502, code: "quota_exhausted",
			says: []string{"account at the model's vendor"}},
		{name: "the vendor's overload", key: free, fault: new(upstreamtest.Overloaded()), status: 502,
			code: "model_unavailable", says: []string{vendors, "failed"}, most: 60},
		{name: "the vendor's failure", key: free, fault: new(upstreamtest.Canned(500, "oops")), status: 502,
			code: "model_unavailable", says: []string{vendors, "failed"}, most: 60},
	} {
		f.fault.Store(nil)
		if c.spent {
			f.spend(c.key, c.user)
		}
		f.fault.Store(c.fault)
		for surface, ask := range surfaces {
			if c.user != "" && surface == "mcp" {
				continue // its calls are of no user
			}
			t.Run(c.name+", "+surface, func(t *testing.T) {
				got := ask(f, c.key, c.user)
				status := c.status
				if surface == "native stream" || surface == "mcp" {
					status = 200
				}
				require.Equal(t, []any{status, c.code}, []any{got.status, got.code}, "%+v", got)
				for _, says := range c.says {
					require.Contains(t, strings.ToLower(got.words), says)
				}
				if c.says[0] != vendors && status == 429 {
					require.NotContains(t, got.words, vendors)
				}
				require.GreaterOrEqual(t, got.after, c.least, "%+v", got)
				require.LessOrEqual(t, got.after, c.most, "%+v", got)
				if status != 200 && (c.least > 60 || c.most == 0 && strings.HasPrefix(surface, "openai")) {
					require.Equal(t, "false", got.header.Get("X-Should-Retry"))
				} else if c.most <= 60 {
					require.Empty(t, got.header.Get("X-Should-Retry"))
				}
			})
		}
	}
}

// As many runs at once as a key may have are refused at the door, on every surface.
func TestEverySurfaceTellsOfRunsAtOnce(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	f := newFailing(t)
	key, release := f.key("default", "1runs", ""), make(chan struct{})
	holding := upstreamtest.Canned(500, "")
	asked := make(chan struct{}, 10)
	holding.Pause = func(ctx context.Context, n int) {
		asked <- struct{}{}
		upstreamtest.Until(release)(ctx, n)
	}
	f.fault.Store(&holding)
	status, body := 0, ""
	first := make(chan struct{})
	go func() {
		defer close(first)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", f.url("/v1/chats/first/messages"),
			strings.NewReader(`{"message":"hi"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			raw, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			status, body = resp.StatusCode, string(raw)
		}
	}()
	<-asked
	for surface, ask := range surfaces {
		t.Run(surface, func(t *testing.T) {
			got := ask(f, key, "")
			want := 429
			if surface == "mcp" {
				want = 200
			}
			require.Equal(t, []any{want, "rate_limit_exceeded"}, []any{got.status, got.code}, "%+v", got)
			require.Contains(t, got.words, "as many runs at once as it may (1)")
			require.InDelta(t, 1.5, got.after, 0.5)
		})
	}
	close(release)
	<-first
	require.Equal(t, 502, status, body)
}

// A client that tries a streamed question again after a 429 is answered, and its chat goes on.
func TestAStreamThatIsRefusedIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFailing(t)
	key := f.key("default", "", "")
	f.fault.Store(new(upstreamtest.RateLimited(30)))
	const body = `{"model":"mneme","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	status, said := ask(t, "POST", f.url("/c/again/v1/chat/completions"), key, body)
	require.Equal(t, 429, status, said)
	f.fault.Store(nil)
	status, said = ask(t, "POST", f.url("/c/again/v1/chat/completions"), key, body)
	require.Equal(t, 200, status, said)
	require.Contains(t, said, "data: [DONE]")
	_, history := ask(t, "GET", f.url("/v1/chats/again/history"), key, "")
	require.EqualValues(t, 2, gjson.Get(history, "total").Int(), "it is stored once: %s", history)
	require.Equal(t, "You said: hi", gjson.Get(history, "messages.1.content").Str, history)
}
