package chat_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/copilottest"
	"mneme/internal/redistest"
	"mneme/proxy"
	"mneme/proxy/copilot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.IgnoreIdle()) }

// Bounds for what the machine may take; nothing asserts a time.
const (
	waitLimit = time.Minute
	waitStep  = 5 * time.Millisecond
)

// gateway is a real one, over real HTTP, with a copilot backend.
type gateway struct {
	t    testing.TB
	url  string
	http *http.Client
	stop func()
}

// start runs a gateway before a CLI.
func start(t testing.TB, cli *copilottest.Server, change ...func(*proxy.Config)) *gateway {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	g := &gateway{t: t, url: "http://" + web.Listener.Addr().String(), http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}}
	config := proxy.Config{
		Active: "cli", TeammateBackend: "off", SelfURL: g.url,
		Backends: map[string]proxy.BackendConfig{
			"cli": {Kind: proxy.KindCopilot, ProviderBackend: "off", CLI: copilot.SupervisorConfig{Addr: cli.Addr()}},
			"off": {Kind: proxy.KindOffline},
		},
	}
	for _, f := range change {
		f(&config)
	}
	server, err := proxy.New(config, zerolog.Nop())
	require.NoError(t, err)
	web.Config.Handler = server.Handler()
	web.Start()
	g.stop = sync.OnceFunc(func() {
		g.http.CloseIdleConnections()
		web.Close()
		require.NoError(t, server.Close())
	})
	t.Cleanup(g.stop)
	return g
}

// fake is a CLI with a model that does as it is told:
//
//	CALL a b    calls tools, and says then what they gave
//	TAG x       says x many times
//	SLOW x      says a little, and then nothing until it is stopped
//	FAIL n      fails with that status; CUT n says a little before
//
// and repeats anything else.
func fake(t testing.TB) *copilottest.Server {
	s := copilottest.Start(t)
	s.Script(obey)
	return s
}

func obey(t *copilottest.Turn) {
	words := strings.Fields(t.Prompt)
	switch {
	case len(words) > 1 && words[0] == "CALL":
		var calls []copilottest.Call
		for _, name := range words[1:] {
			calls = append(calls, t.Use(name, fmt.Sprintf(`{"q":%q}`, name)))
		}
		id := t.NewID("message")
		t.Delta(id, "Let me ")
		t.Message(id, "Let me look.", calls...)
		results, ok := t.Run(calls...)
		if !ok {
			return
		}
		var gave []string
		for _, r := range results {
			gave = append(gave, r.Text+"/"+r.Type)
		}
		t.Say("They gave: ", strings.Join(gave, "; "))
	case len(words) > 1 && words[0] == "TAG":
		t.Say(strings.SplitAfter(tagged(words[1]), " ")...)
	case len(words) > 1 && words[0] == "SLOW":
		t.Delta(t.NewID("message"), "slowly "+words[1])
		<-t.Context().Done()
	case len(words) > 1 && (words[0] == "FAIL" || words[0] == "CUT"):
		status := 0
		_, _ = fmt.Sscan(words[1], &status)
		if words[0] == "CUT" {
			t.Delta(t.NewID("message"), "so far")
		}
		t.Fail("query", "this model is on holiday", status)
	default:
		copilottest.Echo(t)
	}
}

func tagged(tag string) string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "%s-%d ", tag, i)
	}
	return b.String()
}

// made is what a session was created with.
type made struct {
	ID       string `json:"sessionId"`
	Model    string
	System   struct{ Content string } `json:"systemMessage"`
	Tools    []struct{ Name string }
	Provider struct {
		Type, WireAPI, BaseURL, APIKey string
		Headers                        map[string]string
	}
}

// created are the sessions, oldest first.
func created(t testing.TB, s *copilottest.Server) []made {
	t.Helper()
	var out []made
	for _, m := range s.Calls("session.create") {
		var c made
		require.NoError(t, json.Unmarshal(m.Params, &c))
		out = append(out, c)
	}
	return out
}

// eventually waits for something that has no event of its own to wait for.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, waitLimit, waitStep, what)
}

// metric is a value of /metrics, by the beginning of its line.
func (g *gateway) metric(name string) string {
	g.t.Helper()
	resp, err := g.http.Get(g.url + "/metrics")
	require.NoError(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, "mneme_proxy_"+name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func (g *gateway) replayed() string { return g.metric(`copilot_replayed_total{backend="cli"} `) }

// behind has a vendor answer the CLI's own model calls.
func behind(vendor string) func(*proxy.Config) {
	return func(c *proxy.Config) {
		c.Backends["gpt"] = proxy.BackendConfig{Kind: proxy.KindOpenAI, BaseURL: vendor + "/v1"}
		cli := c.Backends["cli"]
		cli.ProviderBackend = "gpt"
		c.Backends["cli"] = cli
	}
}

// callModel makes the model call of a turn, as the CLI does, and gives the answer's status.
func callModel(t testing.TB, g *gateway, turn *copilottest.Turn, sessions []made) int {
	t.Helper()
	for _, s := range sessions {
		if s.ID != turn.Session {
			continue
		}
		r, err := http.NewRequest(http.MethodPost, s.Provider.BaseURL+"/chat/completions",
			strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`))
		if !assert.NoError(t, err) {
			return 0
		}
		r.Header.Set("Authorization", "Bearer "+s.Provider.APIKey)
		for name, value := range s.Provider.Headers {
			r.Header.Set(name, value)
		}
		resp, err := g.http.Do(r)
		if !assert.NoError(t, err) {
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	return 0
}

// ready is what /readyz says.
func (g *gateway) ready() string {
	g.t.Helper()
	resp, err := g.http.Get(g.url + "/readyz")
	require.NoError(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	var out struct{ Status string }
	require.NoError(g.t, json.NewDecoder(resp.Body).Decode(&out))
	return out.Status
}
