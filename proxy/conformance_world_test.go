package proxy_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/access"
	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/redisstore"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// The conformance suite plays whole dialogues of simulated clients with strict fake vendors through the gateway.
//
// conformance_transcripts_test.go   the rows' type and the driver that plays them
// conformance_turns_test.go         what a row can do: clients speak, vendors answer, backends switch
// conformance_<subject>_test.go     the rows of a subject, and the tests that no row can express
// conformance_world_test.go         vendors, gateways and the final check, see world.conforms
// conformance_client_test.go        clients of the three dialects
// conformance_damage_test.go        what clients do to a history
// testdata/transcripts              the wire of the rows that are golden

// backendCase is a vendor and its configuration in the gateway.
type backendCase struct {
	name   string
	model  string // that clients ask for
	vendor upstreamtest.Config
	config proxy.BackendConfig // without its BaseURL
	after  func(*http.Request) // if not nil, runs after an answer's last byte and before its end
}

// with returns b with another name and other rules of its vendor.
func (b backendCase) with(name string, change func(*upstreamtest.Config)) backendCase {
	b.name = name
	change(&b.vendor)
	return b
}

func (b backendCase) named(name string) backendCase   { b.name = name; return b }
func (b backendCase) asking(model string) backendCase { b.model = model; return b }

func (b backendCase) told(change func(*proxy.BackendConfig)) backendCase {
	change(&b.config)
	return b
}

func (b backendCase) remembering(requests int) backendCase {
	return b.with(b.name, func(c *upstreamtest.Config) { c.Remember = requests })
}

// budgeted sets the thinking budget for clients that cannot send one.
func budgeted(c *proxy.BackendConfig) { c.Thinking.BudgetTokens = 8000 }

func asBedrock(c *proxy.BackendConfig) { c.Vendor = "bedrock" }
func asGeneric(c *proxy.BackendConfig) { c.Vendor = "generic" }

func messagesVendor(name, model string, vendor upstreamtest.Vendor) backendCase {
	return backendCase{name: name, model: model, vendor: upstreamtest.Config{Vendor: vendor},
		config: proxy.BackendConfig{Kind: proxy.KindAnthropic, Vendor: name}}
}

func chatVendor(name, vendor string, rules upstreamtest.ChatRules) backendCase {
	return backendCase{name: name, vendor: upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: rules},
		config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: vendor}}
}

func (b backendCase) overChat() backendCase {
	b.name += "-chat"
	b.config.Kind = proxy.KindOpenAI
	return b
}

var (
	claude = backendCase{name: "claude", model: "claude-opus-4-8", config: proxy.BackendConfig{
		Kind: proxy.KindAnthropic,
	}}
	// prefixChecking binds thinking to all content before it.
	prefixChecking = claude.with("bound", func(c *upstreamtest.Config) {
		c.Thinking.PrefixCheck = true
	}).asking("claude-opus-5-5")
	kimi         = messagesVendor("kimi", "kimi-k2-thinking", upstreamtest.Kimi)
	kimiChat     = kimi.overChat()
	deepSeek     = messagesVendor("deepseek", "deepseek-reasoner", upstreamtest.DeepSeek)
	deepSeekChat = deepSeek.overChat()
	glm          = messagesVendor("glm", "glm-4.7", upstreamtest.GLM)
	openAI       = chatVendor("openai", "openai", upstreamtest.ChatRules{}).asking("gpt-5")
	// genericChat takes no lists of content parts.
	genericChat = chatVendor("generic-chat", "", upstreamtest.ChatRules{TextOnly: true}).asking("m")
	gpt         = backendCase{name: "gpt", model: "gpt-5.1", vendor: upstreamtest.Config{Vendor: upstreamtest.OpenAI},
		config: proxy.BackendConfig{Kind: proxy.KindResponses, Vendor: "openai"}}
	google = backendCase{name: "google", model: "gemini-3.8-flash",
		vendor: upstreamtest.Config{Vendor: upstreamtest.Google},
		config: proxy.BackendConfig{Kind: proxy.KindInteractions, Vendor: "gemini"}}

	// manual is a Claude model with a thinking budget.
	manual = claude.asking("claude-sonnet-4-5")
	// thinkers are the kinds of backends that verify thinking.
	thinkers = []backendCase{claude.named("adaptive"), manual.named("manual"), prefixChecking}
)

// tester is a *testing.T or a *rapid.T.
type tester interface {
	rapid.TB
	Cleanup(f func())
	Context() context.Context
}

// world holds vendors, the gateways before them, and a record of their traffic.
type world struct {
	tester
	vendors map[string]*upstreamtest.Server
	config  proxy.Config
	log     logLines
	http    *http.Client
	checked bool

	wire *wireLog // nil for none

	caller func(*http.Request) access.Principal // nil for none

	mu      sync.Mutex // guards refused
	refused []string   // errors about thinking that clients saw
}

// raced reports whether the race detector is on. It makes everything ten times slower.
var raced bool

// selects reports whether to try the ith case. With the race detector every third case is tried.
func selects(i int) bool { return !raced || i%3 == 2 }

// newWorld starts the vendors. The first one is the active backend.
func newWorld(t tester, backends ...backendCase) *world {
	w := &world{
		tester: t, vendors: map[string]*upstreamtest.Server{}, http: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		},
		config: proxy.Config{Active: backends[0].name, Backends: map[string]proxy.BackendConfig{}},
	}
	w.config.Limits.Upstream.Backoff = time.Nanosecond
	for _, b := range backends {
		v := upstreamtest.New(b.vendor)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			v.ServeHTTP(w, r)
			if b.after != nil {
				b.after(r)
			}
		}))
		t.Cleanup(server.Close)
		w.vendors[b.name] = v
		b.config.BaseURL = server.URL + map[string]string{
			proxy.KindOpenAI: "/v1", proxy.KindResponses: "/v1", proxy.KindInteractions: "/v1beta",
		}[b.config.Kind]
		w.config.Backends[b.name] = b.config
	}
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		require.True(t, t.Failed() || w.checked, "the case must end with conforms")
	})
	return w
}

type front struct {
	world *world
	url   string
	stop  func()
}

func (w *world) gateway() *front {
	server, err := proxy.New(w.config, zerolog.New(&w.log))
	require.NoError(w, err)
	server.LogBackends()
	listener := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.caller != nil {
			r = r.WithContext(access.With(r.Context(), w.caller(r)))
		}
		server.Handler().ServeHTTP(rw, r)
	}))
	g := &front{world: w, url: listener.URL}
	g.stop = sync.OnceFunc(func() {
		w.http.CloseIdleConnections()
		listener.Close()
		require.NoError(w, server.Close())
	})
	w.Cleanup(g.stop)
	return g
}

func (g *front) call(ctx context.Context, method, path string, header http.Header, body []byte) answered {
	r, err := http.NewRequestWithContext(ctx, method, g.url+path, bytes.NewReader(body))
	require.NoError(g.world, err)
	maps.Copy(r.Header, header)
	return g.world.do(r)
}

func (g *front) use(backend string) {
	got := g.call(g.world.Context(), http.MethodPut, "/admin/backend", nil, []byte(`{"active":"`+backend+`"}`))
	require.Equal(g.world, 200, got.status, got.body)
}

// metrics returns the lines of /metrics that begin so and have counted something.
func (g *front) metrics(begin string) string {
	lines := ""
	for line := range strings.Lines(g.call(g.world.Context(), http.MethodGet, "/metrics", nil, nil).body) {
		if line, ours := strings.CutPrefix(line, "mneme_proxy_"); ours && strings.HasPrefix(line, begin) &&
			!strings.HasSuffix(line, " 0\n") {
			lines += line
		}
	}
	return lines
}

func (g *front) send(ctx context.Context, path string, header http.Header, body []byte) answered {
	got := g.call(ctx, http.MethodPost, path, header, body)
	if g.world.wire != nil {
		g.world.wire.call(path, header, body, got)
	}
	return got
}

// do sends a request and records errors about thinking.
func (w *world) do(r *http.Request) answered {
	resp, err := w.http.Do(r)
	require.NoError(w, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(w, err)
	got := answered{resp.StatusCode, resp.Header, string(body)}
	w.judge(got)
	return got
}

// judge records an error about thinking, which the gateway should have cured.
func (w *world) judge(got answered) {
	class := thinking.Classify(got.status, []byte(got.body))
	if got.header.Get("Content-Type") == "text/event-stream" {
		frame, _ := wire.NewFrameReader(strings.NewReader(got.body)).Next()
		if class = thinking.ClassOther; thinking.IsError(frame.Data) {
			class = thinking.Classify(http.StatusBadRequest, frame.Data)
		}
	}
	if class == thinking.ClassOther {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, got.body)
}

// forgive forgets the errors so far, which the case has checked.
func (w *world) forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = nil
}

// conforms is the final check of every case. Vendors refused at most so many requests, all of them for thinking. No
// client saw such an error, and no thinking of a latest turn was missing.
func (w *world) conforms(refusals int) {
	w.refusedAtMost(refusals)
	for _, v := range w.vendors {
		for _, r := range v.Requests() {
			require.Zero(w, r.Missing, "thinking did not come back: %s", r.Body)
		}
	}
}

// refusedAtMost is conforms without the check for lost thinking.
func (w *world) refusedAtMost(refusals int) {
	w.checked = true
	var seen []string
	for name, v := range w.vendors {
		for _, r := range v.Rejections() {
			require.True(w, r.Endpoint == upstreamtest.EndpointInteractions && r.Rejection == invalidArgument ||
				thinking.Classify(400, []byte(`{"message":`+string(wire.Quote(r.Rejection))+`}`)) != thinking.ClassOther,
				"refused for another cause: %s\n%s", r.Rejection, r.Body)
			seen = append(seen, name+": "+r.Rejection)
		}
	}
	require.LessOrEqual(w, len(seen), refusals, "refusals:\n%s", strings.Join(seen, "\n"))
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(w, w.refused, "clients saw errors about thinking")
	require.NotContains(w, w.log.String(), "a request panicked")
}

type logLines struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// count returns the number of lines that contain s.
func (l *logLines) count(s string) (n int) {
	for line := range strings.Lines(l.String()) {
		n += min(1, strings.Count(line, s))
	}
	return n
}

// shares has the gateways share one Redis. They wait for it without a practical limit, so that no request misses a turn
// on a busy machine.
func (w *world) shares(redis *redistest.Server) {
	w.config.Shared.Turns = redisstore.NewTurns(redis.Client(), redisstore.TurnLimits{})
	w.config.TurnsWait = time.Minute
}
