package webmemory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/webmemory"
)

// agent is an apiserver.Agent made of a function that gets a door for its events.
type agent func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload))

func (a agent) Run(ctx context.Context, r master.Request, publish func(event.Event) error) {
	var mu sync.Mutex
	var seq int64
	emit := func(h event.Head, p event.Payload) {
		seq++
		h.RunID, h.Seq, h.TS = r.RunID, seq, event.Seconds(time.Now())
		_ = publish(event.New(h, p))
	}
	a(ctx, r, func(h event.Head, p event.Payload) {
		mu.Lock()
		defer mu.Unlock()
		emit(h, p)
		if _, first := p.(*event.RunStarted); first && r.MemoryReset {
			emit(event.Head{}, &event.MemoryReset{})
		}
	})
}

// answers is a run that answers at once with text and remembers one delegation.
func answers(text string) agent {
	return func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		of := event.Head{Subagent: "analytic", CallID: "c"}
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
			Metadata: r.Metadata})
		emit(of, &event.Delegation{Task: "task: " + r.Message, Calls: event.Serial})
		emit(of, &event.Completion{Response: "done", Status: event.Completed})
		emit(event.Head{}, &event.AssistantDelta{Text: text})
		emit(event.Head{}, &event.Assistant{Content: text})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// waits is a run that says one thing and goes on until it is stopped or released.
func waits(release <-chan struct{}) agent {
	return func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		of := event.Head{Subagent: "analytic", CallID: "c"}
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(of, &event.Delegation{Task: "task", Calls: event.Serial})
		outcome := event.Completed
		select {
		case <-release:
		case <-ctx.Done():
			outcome = event.Stopped
		}
		emit(of, &event.Completion{Response: "done", Status: outcome})
		emit(event.Head{}, &event.Assistant{Content: "answer to " + r.Message, Partial: outcome == event.Stopped})
		emit(event.Head{}, &event.RunFinished{Outcome: outcome})
	}
}

// world is webmemory over a real redis-server and a real apiserver with a
// scripted agent.
type world struct {
	gateway gateway
	t       *testing.T
	redis   *redistest.Server
	look    *redis.Client
	api     *httptest.Server
	runs    *apiserver.Server
	// apiHandler is what answers at api's address.
	apiHandler atomic.Pointer[http.Handler]
	url        string
	logs       string

	sentinel     *redistest.Sentinel // in the place of redis, if it is there
	spools       string
	spoolOptions spool.Options
	hook         redis.Hook // of the client of a process begun from here on; nil for none
	copies       int        // on replicas that there have to be of what a process begun from here on keeps
	shards       int        // of lists, of the processes that start next

	shutdown map[string]func()               // ends the process at a URL as SIGTERM does
	guard    func(http.Handler) http.Handler // what stands before a process's handler; nil for nothing
}

func listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

func newWorld(t *testing.T, a agent, change ...func(*webmemory.Config)) *world {
	t.Helper()
	return newWorldOver(t, a, nil, change...)
}

// newWorldOver is newWorld over a redis-server with arguments.
func newWorldOver(t *testing.T, a agent, redisArgs []string, change ...func(*webmemory.Config)) *world {
	t.Helper()
	w := &world{t: t, redis: redistest.Start(t, redisArgs...)}
	w.look = w.redis.Client()
	w.begin(a)
	w.url = w.process(change...)
	return w
}

// newSentinelWorld is newWorld over a Redis that fails over; it starts no process.
func newSentinelWorld(t *testing.T, a agent) *world {
	t.Helper()
	testtier.Slow(t)
	w := &world{t: t, sentinel: redistest.StartSentinel(t)}
	w.look = w.sentinel.Client()
	w.begin(a)
	return w
}

// begin starts what is not a webmemory.
func (w *world) begin(a agent) {
	t := w.t
	w.shutdown, w.logs, w.spools = map[string]func(){}, t.TempDir(), t.TempDir()
	infos := []api.SubagentInfo{{Name: "analytic"}, {Name: "knowledge"}}
	w.runs = apiserver.New(apiserver.Config{StopGrace: 10 * time.Second, EraseConversation: w.gateway.erase}, a,
		func() []api.SubagentInfo { return infos }, logger())
	w.putApiserver(w.runs.Handler())
	w.api = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*w.apiHandler.Load()).ServeHTTP(rw, r)
	}))
	t.Cleanup(func() { _ = w.runs.Close(); w.api.CloseClientConnections(); w.api.Close() })
}

// connect is a client as a webmemory has it.
func (w *world) connect() redis.UniversalClient {
	s := w.settings()
	return s.connect()
}

// settings are those of one more webmemory.
func (w *world) settings() childSettings {
	s := childSettings{Apiserver: w.api.URL, Spool: w.spools}
	if w.sentinel != nil {
		s.Sentinels = w.sentinel.Addrs()
	} else {
		s.Redis = w.redis.Addr
	}
	return s
}

// gateway is where conversations with models are erased.
type gateway struct {
	mu     sync.Mutex
	away   bool     // guarded by mu
	erased []string // guarded by mu
}

func (g *gateway) erase(_ context.Context, id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		return errors.New("away")
	}
	g.erased = append(g.erased, id)
	return nil
}

func (g *gateway) set(away bool) (erased []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = away
	return g.erased
}

func init() { redis.SetLogger(quiet{}) }

// quiet drops what go-redis says of connections that a test broke.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func logger() zerolog.Logger { return zerolog.New(os.Stderr).Level(zerolog.ErrorLevel) }

// process is one more webmemory over the same Redis and apiserver.
func (w *world) process(change ...func(*webmemory.Config)) string {
	w.t.Helper()
	cfg := webmemory.Config{Agents: agentNames, SessionLogs: w.logs}
	for _, c := range change {
		c(&cfg)
	}
	runs, err := api.NewClient(w.api.URL, nil)
	require.NoError(w.t, err)
	client := w.connect()
	if w.hook != nil {
		client.AddHook(w.hook)
	}
	store := redisstore.New(client, zerolog.Nop())
	store.WaitReplicas, store.ListShards = w.copies, w.shards
	spools := w.spools
	if cfg.Ends != "" { // a disk of its own
		spools = filepath.Join(filepath.Dir(cfg.Ends), "spool")
	}
	appends, err := spool.Open(spools, w.spoolOptions, logger())
	require.NoError(w.t, err)
	door := httptest.NewUnstartedServer(nil)
	cfg.Advertise = "http://" + door.Listener.Addr().String()
	cfg.SelfURL = cfg.Advertise
	server := webmemory.New(cfg, store, cache.New(store, 1<<20), appends, runs, zerolog.Nop())
	door.Config.Handler = server.Handler()
	if w.guard != nil {
		door.Config.Handler = w.guard(door.Config.Handler)
	}
	door.Start()
	w.shutdown[door.URL] = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		server.Drain(ctx)
		server.Close()
	}
	w.t.Cleanup(func() {
		w.shutdown[door.URL]()
		door.CloseClientConnections()
		door.Close()
		runs.Close()
		require.NoError(w.t, appends.Close())
		_ = client.Close()
	})
	if w.hook == nil && w.look.Ping(context.Background()).Err() == nil {
		// The next process lists this one. In production a process waits for a beat before it relies on the list.
		eventually(w.t, "the process is announced", func() bool {
			return w.look.HExists(context.Background(), string(memory.KindProcesses), appends.Name()).Val()
		})
	}
	return door.URL
}

// loseApiserver puts one that knows nothing in the apiserver's place.
func (w *world) loseApiserver() {
	w.putApiserver(http.NotFoundHandler())
	w.api.CloseClientConnections()
}

// putApiserver puts another handler behind the apiserver's address, also while it serves.
func (w *world) putApiserver(h http.Handler) { w.apiHandler.Store(&h) }

// recordRuns gives the bodies of the runs that the apiserver is asked for from now on.
func (w *world) recordRuns() <-chan []byte {
	bodies := make(chan []byte, 100)
	w.putApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.URL.Path == "/v1/runs" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				w.t.Error(err)
			}
			bodies <- body
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		w.runs.Handler().ServeHTTP(rw, r)
	}))
	return bodies
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the answer's error.
func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	var body struct{ Error *api.Problem }
	require.NoError(t, json.Unmarshal(a.body, &body), string(a.body))
	require.NotNil(t, body.Error, string(a.body))
	return *body.Error
}

func (w *world) request(method, path string, body any, header ...string) *http.Request {
	w.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		require.NoError(w.t, err)
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, w.url+path, reader)
	require.NoError(w.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (w *world) do(method, path string, body any, header ...string) answer {
	w.t.Helper()
	return w.send(w.request(method, path, body, header...))
}

// send is do for a request that is made already; any goroutine may call it.
func (w *world) send(req *http.Request) answer {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return answer{resp.StatusCode, resp.Header, raw}
}

type message struct {
	Message string `json:"message"`
}

// transcript is an event stream while it is read.
type transcript struct {
	t      *testing.T
	resp   *http.Response
	events *sse.Reader
	id     string // of the last event; empty if it has none
}

// open sends a request and reads its answer as an event stream.
func (w *world) open(method, path string, body any, header ...string) *transcript {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(w.request(method, path, body, append(header, "Accept", "text/event-stream")...))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		refusal, _ := io.ReadAll(resp.Body)
		require.Equal(w.t, http.StatusOK, resp.StatusCode, string(refusal))
	}
	return &transcript{t: w.t, resp: resp, events: eventsOf(resp)}
}

func eventsOf(resp *http.Response) *sse.Reader {
	return sse.NewReader(resp.Body, api.MaxEvent, 0, nil)
}

// next reads one event.
func (tr *transcript) next() (role string, data []byte, ok bool) {
	e, err := tr.events.Next()
	if err != nil {
		return "", nil, false
	}
	tr.id = string(e.ID)
	return string(e.Name), bytes.Clone(e.Data), true
}

// until reads up to an event of this role.
func (tr *transcript) until(role string) []byte {
	tr.t.Helper()
	for {
		found, data, ok := tr.next()
		require.True(tr.t, ok, "the stream ended before %s", role)
		if found == role {
			return data
		}
	}
}

// roles reads to the end.
func (tr *transcript) roles() []string {
	var out []string
	for {
		role, _, ok := tr.next()
		if !ok {
			return out
		}
		out = append(out, role)
	}
}

// allowKeys has Redis refuse to all clients every key that matches none of the patterns.
func (w *world) allowKeys(patterns ...string) {
	w.t.Helper()
	args := []any{"ACL", "SETUSER", "default", "resetkeys"}
	for _, p := range patterns {
		args = append(args, "~"+p)
	}
	require.NoError(w.t, w.look.Do(context.Background(), args...).Err())
}

// stored are the contents of a history in Redis, with their roles.
func (w *world) stored(key string) []string {
	w.t.Helper()
	raw, err := w.look.Get(context.Background(), key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	require.NoError(w.t, err)
	var messages []memory.Message
	require.NoError(w.t, json.Unmarshal(raw, &messages), string(raw))
	var out []string
	for _, m := range messages {
		out = append(out, m.Role+": "+m.Content)
	}
	return out
}

// eventually waits for what has no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond, what)
}
