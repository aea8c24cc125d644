package proxy_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/access"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// The conformance suite: whole dialogues of simulated clients with strict fake
// vendors through the gateway. Each case is headed by the fault that it guards
// against, and ends with the same check, see world.conforms.
//
// conformance_world_test.go   vendors, gateways and the check
// conformance_client_test.go  clients of both dialects
// conformance_damage_test.go  what clients do to a history
// conformance_transcript_test.go  the main cases as transcripts, in testdata/transcripts
// conformance_*_test.go       the cases

// backendCase is a vendor and how the gateway is told of it.
type backendCase struct {
	name   string
	vendor upstreamtest.Config
	config proxy.BackendConfig // without its BaseURL
	after  func(*http.Request) // if not nil, called behind an answer's last byte, before its end
}

// with is b under another name, with other rules of its vendor.
func (b backendCase) with(name string, change func(*upstreamtest.Config)) backendCase {
	b.name = name
	change(&b.vendor)
	return b
}

// told is b with a change of how the gateway is told of it.
func (b backendCase) told(change func(*proxy.BackendConfig)) backendCase {
	change(&b.config)
	return b
}

var (
	claude = backendCase{name: "claude", vendor: upstreamtest.Config{}, config: proxy.BackendConfig{
		Kind: proxy.KindAnthropic,
	}}
	kimi = backendCase{name: "kimi", vendor: upstreamtest.Config{Vendor: upstreamtest.Kimi},
		config: proxy.BackendConfig{Kind: proxy.KindAnthropic, Vendor: "kimi"}}
	kimiChat = backendCase{name: "kimi-chat", vendor: upstreamtest.Config{Vendor: upstreamtest.Kimi},
		config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: "kimi"}}
	deepSeek = backendCase{name: "deepseek", vendor: upstreamtest.Config{Vendor: upstreamtest.DeepSeek},
		config: proxy.BackendConfig{Kind: proxy.KindAnthropic, Vendor: "deepseek"}}
	deepSeekChat = backendCase{name: "deepseek-chat", vendor: upstreamtest.Config{Vendor: upstreamtest.DeepSeek},
		config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: "deepseek"}}

	// prefixChecking binds thinking to everything that stands before it.
	prefixChecking = claude.with("bound", func(c *upstreamtest.Config) { c.Thinking.PrefixCheck = true })
)

// tester is a *testing.T or a *rapid.T.
type tester interface {
	rapid.TB
	Cleanup(f func())
	Context() context.Context
}

// world is vendors, gateways before them, and what went through.
type world struct {
	tester
	vendors map[string]*upstreamtest.Server
	config  proxy.Config
	log     logLines
	http    *http.Client
	turns   *patientTurns // what the gateways share; nil for nothing
	checked bool

	transcript *transcript // nil for none

	caller func(*http.Request) access.Principal // nil: none is known

	mu      sync.Mutex // guards refused
	refused []string   // what clients saw of errors about thinking
}

// part counts the cases of a test of which all are tried without the race detector, and with it a part.
type part int

// next says whether the next case is tried: with the race detector one of so many is.
func (p *part) next(of part) bool {
	*p++
	return !raced || *p%of == 0
}

// newWorld starts the vendors; the first is the active backend.
func newWorld(t tester, backends ...backendCase) *world {
	t.Helper()
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
		b.config.BaseURL = server.URL
		if b.config.Kind == proxy.KindOpenAI || b.config.Kind == proxy.KindResponses {
			b.config.BaseURL += "/v1"
		}
		if b.config.Kind == proxy.KindInteractions {
			b.config.BaseURL += "/v1beta"
		}
		w.config.Backends[b.name] = b.config
	}
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		require.True(t, t.Failed() || w.checked, "the case must end with conforms")
	})
	return w
}

// front is a running gateway.
type front struct {
	world *world
	url   string
	stop  func()
}

// gateway starts one more gateway.
func (w *world) gateway() *front {
	w.Helper()
	server, err := proxy.New(w.config, zerolog.New(&w.log))
	require.NoError(w, err)
	server.LogBackends()
	handler := server.Handler()
	if w.caller != nil {
		handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			server.Handler().ServeHTTP(rw, r.WithContext(access.With(r.Context(), w.caller(r))))
		})
	}
	listener := httptest.NewServer(handler)
	g := &front{world: w, url: listener.URL}
	g.stop = sync.OnceFunc(func() {
		w.http.CloseIdleConnections()
		listener.Close()
		require.NoError(w, server.Close())
	})
	w.Cleanup(g.stop)
	return g
}

// use switches the active backend.
func (g *front) use(backend string) {
	g.world.Helper()
	r, err := http.NewRequestWithContext(g.world.Context(), http.MethodPut, g.url+"/admin/backend",
		strings.NewReader(`{"active":"`+backend+`"}`))
	require.NoError(g.world, err)
	got := g.world.do(r)
	require.Equal(g.world, 200, got.status, got.body)
}

// metrics are the lines of /metrics that begin so, without values.
func (g *front) metrics(begin string) string {
	g.world.Helper()
	r, err := http.NewRequestWithContext(g.world.Context(), http.MethodGet, g.url+"/metrics", nil)
	require.NoError(g.world, err)
	var lines []string
	for line := range strings.Lines(g.world.do(r).body) {
		if strings.HasPrefix(line, "mneme_proxy_"+begin) {
			lines = append(lines, strings.TrimPrefix(line, "mneme_proxy_"))
		}
	}
	return strings.Join(lines, "")
}

// send posts a request of a client and keeps what it would complain of.
func (g *front) send(ctx context.Context, path string, header http.Header, body []byte) answered {
	g.world.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, bytes.NewReader(body))
	require.NoError(g.world, err)
	for name, values := range header {
		r.Header[name] = values
	}
	got := g.world.do(r)
	if g.world.transcript != nil {
		g.world.transcript.call(path, header, body, got)
	}
	return got
}

func (w *world) do(r *http.Request) answered {
	w.Helper()
	resp, err := w.http.Do(r)
	require.NoError(w, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(w, err)
	got := answered{resp.StatusCode, resp.Header, string(body)}
	w.judge(got)
	return got
}

// judge notes an answer that tells a client of thinking what the gateway should
// have seen to.
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

// forgive forgets what clients were told so far: the case has looked at it.
func (w *world) forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = nil
}

// total adds something up over all requests that the vendors saw.
func (w *world) total(f func(upstreamtest.Request) int) (n int) {
	for _, v := range w.vendors {
		for _, r := range v.Requests() {
			n += f(r)
		}
	}
	return n
}

// conforms is the end of every case. Vendors refused at most so many requests, of
// all the case's conversations: one proves what has to be left out, and no case should
// need another. All of them were refused for thinking alone, no client heard of it, and
// no thinking of a latest turn was missing.
func (w *world) conforms(refusals int) {
	w.Helper()
	w.refusedAtMost(refusals)
	lost := w.total(func(r upstreamtest.Request) int {
		if r.Lost > 0 {
			w.Logf("thinking did not come back: %s", r.Body)
		}
		return r.Lost
	})
	require.Zero(w, lost, "thinking that could have been kept")
}

// refusedAtMost is conforms for cases in which thinking of the latest turn cannot
// be kept.
func (w *world) refusedAtMost(refusals int) {
	w.Helper()
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
	require.Empty(w, w.refused, "clients heard of thinking")
	require.NotContains(w, w.log.String(), "a request panicked")
}

// logLines is a log that can be read while it is written.
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

// count is how many lines hold s.
func (l *logLines) count(s string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, s) {
			n++
		}
	}
	return n
}
