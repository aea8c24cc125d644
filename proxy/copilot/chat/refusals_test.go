package chat_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/copilot"
)

func TestFailures(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		cli := fake(t)
		g := start(t, cli)
		for prompt, want := range map[string]int{"FAIL 400": 400, "FAIL 429": 429, "FAIL 503": 503, "FAIL 0": 502} {
			c := g.client(w, "c"+prompt[5:])
			c.history = []said{{role: "user", text: prompt}}
			got := c.post(t.Context())
			require.Equal(t, want, got.status, got.body)
			require.Contains(t, got.body, "this model is on holiday")
			require.Equal(t, w.messages, strings.Contains(got.body, `"type":"error"`), got.body)
			c.history = nil
			require.Equal(t, "echo: hello", c.say("hello").text)
		}
		require.Len(t, cli.Calls("session.send"), 8, "nothing is repeated")
		c := g.client(w, "cut")
		c.history = []said{{role: "user", text: "CUT 500"}}
		got := c.post(t.Context())
		if w.stream {
			require.Equal(t, 200, got.status)
			require.Equal(t, "so far", got.text)
			require.True(t, got.cut)
			require.Contains(t, got.body, "this model is on holiday")
		} else {
			require.Equal(t, 500, got.status)
			require.Contains(t, got.body, "this model is on holiday")
		}
	})
}

func TestWhatTheCLICannotDo(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		cli := fake(t)
		c := start(t, cli).client(w, "c")
		for body, want := range map[string]string{
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`:                             "takes text only",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]}`:                "takes text only",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"I"}]}`:                                                          "must end with the user's",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}],"n":2}`:                                                                                       "n must be 1",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}],"response_format":{"type":"json_object"}}`:                                                    "response_format",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}],"tools":[{"type":"custom","custom":{"name":"x"}},{"type":"web_search_20250305","name":"w"}]}`: "tools[",
		} {
			isMessages := strings.Contains(body, `"source"`)
			isChat := strings.Contains(body, "image_url") || strings.Contains(body, `"n"`) ||
				strings.Contains(body, "response_format")
			if isMessages && !w.messages || isChat && w.messages {
				continue
			}
			path := "/v1/chat/completions"
			if w.messages {
				path = "/v1/messages"
			}
			resp, err := c.gateway.http.Post(c.gateway.url+path, "application/json", strings.NewReader(body))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 400, resp.StatusCode, "%s: %s", body, got)
			require.Contains(t, string(got), want)
		}
		require.Empty(t, created(t, cli))
		c.more = `"temperature":0.5,"top_p":0.9,`
		require.Equal(t, "echo: hello", c.say("hello").text, "what only tunes an answer is ignored")
	})
}

func TestCountingTokens(t *testing.T) {
	cli := fake(t)
	g := start(t, cli)
	resp, err := g.http.Post(g.url+"/v1/messages/count_tokens", "application/json",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "true", resp.Header.Get("X-AG-Estimated"))
	require.Empty(t, created(t, cli))
}

func TestNoCLI(t *testing.T) {
	cli := fake(t)
	cli.Token = "right"
	g := start(t, cli, func(c *proxy.Config) {
		b := c.Backends["cli"]
		b.APIKey = "wrong"
		c.Backends["cli"] = b
	})
	c := g.client(way{}, "c")
	c.history = []said{{role: "user", text: "hello"}}
	got := c.post(t.Context())
	require.Equal(t, 502, got.status)
	require.Contains(t, got.body, "refused the connection token")
}

func TestTheTokenIsPresented(t *testing.T) {
	cli := fake(t)
	cli.Token = "right"
	g := start(t, cli, func(c *proxy.Config) {
		b := c.Backends["cli"]
		b.APIKey = "right"
		c.Backends["cli"] = b
	})
	require.Equal(t, "echo: hello", g.client(way{}, "c").say("hello").text)
}

// The CLI's own calls come back by a route with a fixed backend.
func TestTheModelCallsOfTheCLI(t *testing.T) {
	cli := fake(t)
	g := start(t, cli)
	g.client(way{}, "c").say("hello")
	provider := created(t, cli)[0].Provider
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, provider.BaseURL+"/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"My name is Aliya"}]}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+provider.APIKey)
	for name, value := range provider.Headers {
		r.Header.Set(name, value)
	}
	resp, err := g.http.Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode, "%s", body)
	require.Equal(t, created(t, cli)[0].ID, resp.Header.Get("X-AG-Conversation-Id"))
	require.Len(t, created(t, cli), 1, "the offline model has answered")
}

func TestNewNamesEveryFaultOfACopilotBackend(t *testing.T) {
	backend := func(provider string, c copilot.SupervisorConfig) proxy.BackendConfig {
		return proxy.BackendConfig{Kind: proxy.KindCopilot, CLI: c, ProviderBackend: provider}
	}
	addr := copilot.SupervisorConfig{Addr: "127.0.0.1:1"}
	_, err := proxy.New(proxy.Config{
		Active: "a", Teammates: map[string]string{"copilot": "off"},
		Backends: map[string]proxy.BackendConfig{
			"a": backend("off", addr),
			"b": backend("a", copilot.SupervisorConfig{Addr: "nowhere"}),
			"c": backend("", copilot.SupervisorConfig{}),
			"d": backend("gone", copilot.SupervisorConfig{Addr: "127.0.0.1:1", Command: &copilot.Command{Path: "x"}}),
			"e": {Kind: proxy.KindCopilot, BaseURL: "http://x", Auth: "none", Vendor: "kimi", APIKey: "k",
				CLI: copilot.SupervisorConfig{Command: &copilot.Command{Path: "x"}}, ProviderBackend: "pass"},
			"f":    backend("open", copilot.SupervisorConfig{Command: &copilot.Command{}}),
			"off":  {Kind: proxy.KindOffline, CLI: addr},
			"open": {Kind: proxy.KindOpenAI, BaseURL: "https://x/v1"},
			"pass": {Kind: proxy.KindOpenAI, BaseURL: "https://x/v1", Auth: "passthrough"},
		},
	}, zerolog.Nop())
	for _, want := range []string{
		`proxy.teammates.copilot: the name is taken`,
		`proxy.advertise must be the URL under which the Copilot CLI reaches this gateway`,
		`proxy.backends.b.addr must be host:port`,
		`proxy.backends.b.provider_backend names "a", which is of kind copilot too`,
		`proxy.backends.c.addr is missing`,
		`proxy.backends.c.provider_backend is empty`,
		`proxy.backends.d.command is set beside addr`,
		`proxy.backends.d.provider_backend names "gone"`,
		`proxy.backends.e.base_url must be left out`,
		`proxy.backends.e.auth must be left out`,
		`proxy.backends.e.vendor must be left out`,
		`proxy.backends.e.api_key_env must be left out beside command`,
		`proxy.backends.e.provider_backend names "pass", whose auth is passthrough`,
		`proxy.backends.f.command names no program`,
		`proxy.backends.f.provider_backend names "open" and that of "a" names "off"`,
		`proxy.backends.off.addr, command and provider_backend are for kind copilot only`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// A vendor that limits the rate of the CLI's own model calls is asked once for each of them, since
// the CLI repeats them; the client gets the vendor's words and its Retry-After, not the CLI's advice.
func TestTheVendorBehindTheCLIRefuses(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		model := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat})
		vendor := httptest.NewServer(model)
		t.Cleanup(vendor.Close)
		cli := fake(t)
		g := start(t, cli, behind(vendor.URL))
		cli.Script(func(turn *copilottest.Turn) {
			status := callModel(t, g, turn, created(t, cli))
			if status == http.StatusOK {
				turn.Say("done")
				return
			}
			turn.Fail("query", "Request failed. Check that COPILOT_PROVIDER_API_KEY is set.", status)
		})
		model.Fail(upstreamtest.Fault{Status: 429, Header: http.Header{"Retry-After": {"1"}},
			Body: `{"error":{"message":"Slow down, please.","type":"rate_limit_error","code":"rate_limit_exceeded"}}`})
		c := g.client(w, "c")
		c.history = []said{{role: "user", text: "hello"}}
		got := c.post(t.Context())
		require.Equal(t, 429, got.status, got.body)
		require.Contains(t, got.body, "Slow down, please.")
		require.NotContains(t, got.body, "COPILOT_")
		require.Equal(t, "1", got.header.Get("Retry-After"))
		require.Equal(t, 1, model.Count(), "the gateway leaves repeating to the CLI")
		require.Equal(t, "done", c.ask().text, "the next request is not answered by the refusal of the one before")
	})
}

// What the CLI says by itself comes without variables that only the gateway sets.
func TestTheCLIsAdviceAboutItsVariables(t *testing.T) {
	cli := fake(t)
	cli.Script(func(turn *copilottest.Turn) {
		status, text, _ := strings.Cut(turn.Prompt, " ")
		n, err := strconv.Atoi(status)
		assert.NoError(t, err)
		turn.Fail("query", text, n)
	})
	g := start(t, cli)
	for prompt, want := range map[string]string{
		"401 Check COPILOT_PROVIDER_API_KEY.":                  "refused its key",
		"429 Check COPILOT_PROVIDER_BASE_URL.":                 "limiting its callers' rate",
		"503 Set COPILOT_MODEL.":                               "the model call of the Copilot CLI failed",
		"503 It is down. Check COPILOT_PROVIDER_X. Try again.": "It is down. Try again.",
	} {
		c := g.client(way{}, "c"+prompt[:3])
		c.history = []said{{role: "user", text: prompt}}
		got := c.post(t.Context())
		require.Contains(t, got.body, want)
		require.NotContains(t, got.body, "COPILOT_")
	}
}

// A CLI that answers nothing is not ready, and is not waited for by every request.
func TestACLIThatHangs(t *testing.T) {
	testtier.Slow(t)
	cli := fake(t)
	for _, method := range []string{"session.create", "ping"} {
		cli.Handle(method, func(*copilottest.Conn, copilottest.Message) {})
	}
	g := start(t, cli)
	first, second := g.client(way{}, "a"), g.client(way{}, "b")
	first.history, second.history = []said{{role: "user", text: "hello"}}, []said{{role: "user", text: "hello"}}
	answered := make(chan answered)
	go func() { answered <- first.post(t.Context()) }()
	eventually(t, func() bool { return g.ready() == "degraded" }, "the call is missed")
	for _, got := range []answeredBy{{"at once", second.post(t.Context())}, {"after its time", <-answered}} {
		require.Equal(t, 503, got.status, "%s: %s", got.when, got.body)
		require.Equal(t, "10", got.header.Get("Retry-After"), got.when)
	}
	for _, method := range []string{"session.create", "ping"} {
		cli.Handle(method, cli.Default)
	}
	cli.Conns()[0].Notify("session.lifecycle", struct{}{})
	eventually(t, func() bool { return g.ready() == "ready" }, "a sign of life")
	require.Equal(t, "echo: hello", second.ask().text)
}

type answeredBy struct {
	when string
	answered
}
