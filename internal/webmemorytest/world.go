// Package webmemorytest runs webmemory for tests: over a real redis-server, and with a real apiserver whose agent the
// test scripts. Tests reach webmemory over HTTP only.
//
// A World is the whole setup. Its replicas run in the test's process. A test that kills or pauses a webmemory starts it
// as a child process instead; the TestMain of such a package calls Main.
package webmemorytest

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/stack"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/cold"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// World is a redis-server, an apiserver with a scripted agent, and the webmemory replicas between them.
type World struct {
	T           *testing.T
	Redis       *redis.Client       // a client for the test
	RedisServer *redistest.Server   // nil in a Sentinel world
	Sentinel    *redistest.Sentinel // nil unless NewSentinelWorld made the world
	Runs        *apiserver.Server
	Apiserver   *httptest.Server // serves Runs, or the handler of SetApiserver
	Gateway     Gateway
	URL         string // of the webmemory that gets the requests
	SessionLogs string // folder
	Spools      string // folder

	// Replicas that start later use these.
	SpoolOptions spool.Options
	Hook         redis.Hook // of the Redis client; nil for none
	WaitReplicas int        // see redisstore.Store
	ListShards   int        // see redisstore.Store
	Middleware   func(http.Handler) http.Handler

	apiHandler atomic.Pointer[http.Handler]
	shutdown   map[string]func() // by URL
}

// NewWorld starts a World with one replica. It ends with the test.
func NewWorld(t *testing.T, a Agent, change ...func(*webmemory.Config)) *World {
	return newWorld(t, redistest.Start(t), a, change)
}

// NewDurableWorld is NewWorld over a redis-server that keeps its data when it is killed.
func NewDurableWorld(t *testing.T, a Agent, change ...func(*webmemory.Config)) *World {
	return newWorld(t, redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"), a, change)
}

func newWorld(t *testing.T, server *redistest.Server, a Agent, change []func(*webmemory.Config)) *World {
	w := &World{T: t, RedisServer: server, Redis: server.Client()}
	w.startApiserver(a)
	w.URL = w.StartReplica(change...)
	return w
}

// NewSentinelWorld is NewWorld over a Redis that fails over. It starts no replica.
func NewSentinelWorld(t *testing.T, a Agent) *World {
	testtier.Slow(t)
	sentinel := redistest.StartSentinel(t)
	w := &World{T: t, Sentinel: sentinel, Redis: sentinel.Client()}
	w.startApiserver(a)
	return w
}

func (w *World) startApiserver(a Agent) {
	w.shutdown, w.SessionLogs, w.Spools = map[string]func(){}, w.T.TempDir(), w.T.TempDir()
	w.Runs = apiserver.New(apiserver.Config{StopGrace: 10 * time.Second, EraseConversation: w.Gateway.Erase}, a,
		func() []api.SubagentInfo { return []api.SubagentInfo{{Name: "analytic"}, {Name: "knowledge"}} }, Logger())
	w.SetApiserver(w.Runs.Handler())
	w.Apiserver = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		(*w.apiHandler.Load()).ServeHTTP(rw, r)
	}))
	w.T.Cleanup(func() { _ = w.Runs.Close(); w.Apiserver.CloseClientConnections(); w.Apiserver.Close() })
}

// AgentNames returns the names of the subagents.
func AgentNames() []memory.Agent { return []memory.Agent{"analytic", "knowledge"} }

// Logger returns a logger that prints errors only.
func Logger() zerolog.Logger { return zerolog.New(os.Stderr).Level(zerolog.ErrorLevel) }

func init() { logging.Disable() } // go-redis reports the connections that tests break

// StartReplica starts another webmemory in this process and returns its URL.
func (w *World) StartReplica(change ...func(*webmemory.Config)) string {
	cfg := webmemory.Config{Agents: AgentNames, SessionLogs: w.SessionLogs}
	for _, c := range change {
		c(&cfg)
	}
	client, spools, front := w.Connect(), w.Spools, httptest.NewUnstartedServer(nil)
	if w.Hook != nil {
		client.AddHook(w.Hook)
	}
	if cfg.EndStoreDir != "" { // the replica has its own disk
		spools = filepath.Join(filepath.Dir(cfg.EndStoreDir), "spool")
	}
	store := redisstore.New(client, zerolog.Nop())
	store.WaitReplicas, store.ListShards = w.WaitReplicas, w.ListShards
	appends, err := spool.Open(spools, w.SpoolOptions, Logger())
	require.NoError(w.T, err)
	runs, err := api.NewClient(w.Apiserver.URL, nil)
	require.NoError(w.T, err)
	server := newServer(cfg, front.Listener, store, appends, runs)
	front.Config.Handler = server.Handler()
	if w.Middleware != nil {
		front.Config.Handler = w.Middleware(front.Config.Handler)
	}
	front.Start()
	w.shutdown[front.URL] = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		server.Drain(ctx)
		server.Close()
	}
	w.T.Cleanup(func() {
		w.Shutdown(front.URL)
		front.CloseClientConnections()
		front.Close()
		runs.Close()
		require.NoError(w.T, appends.Close())
		_ = client.Close()
	})
	if w.Hook == nil && w.Redis.Ping(context.Background()).Err() == nil {
		// The next replica must find this one in the list. In production a replica waits before it relies on the list.
		Eventually(w.T, "the replica is listed", func() bool {
			return w.Redis.HExists(context.Background(), string(memory.KindProcesses), appends.Name()).Val()
		})
	}
	return front.URL
}

// newServer returns a webmemory that other processes reach at l.
func newServer(cfg webmemory.Config, l net.Listener, store *redisstore.Store, appends *spool.Spool,
	runs *api.Client) *webmemory.Server {
	cfg.Advertise = "http://" + l.Addr().String()
	cfg.SelfURL = cfg.Advertise
	return webmemory.New(cfg, store, cache.New(store, 1<<20), appends, runs, zerolog.Nop())
}

// Shutdown ends the replica at a URL as SIGTERM would.
func (w *World) Shutdown(url string) { w.shutdown[url]() }

// Target calls f with w.URL set to url.
func (w *World) Target(url string, f func()) {
	previous := w.URL
	w.URL = url
	defer func() { w.URL = previous }()
	f()
}

// Connect returns a Redis client with the settings of a replica. The caller closes it.
func (w *World) Connect() redis.UniversalClient { return w.ChildConfig().connect() }

// SetApiserver makes h answer at the apiserver's address. It may be called while the apiserver serves.
func (w *World) SetApiserver(h http.Handler) { w.apiHandler.Store(&h) }

// LoseRuns replaces the apiserver with one that knows no runs, and cuts all streams.
func (w *World) LoseRuns() {
	w.SetApiserver(http.NotFoundHandler())
	w.Apiserver.CloseClientConnections()
}

// RecordRuns returns a channel with the bodies of the run requests that the apiserver gets from now on.
func (w *World) RecordRuns() <-chan []byte {
	bodies := make(chan []byte, 100)
	w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.URL.Path == "/v1/runs" {
			body, err := io.ReadAll(r.Body)
			assert.NoError(w.T, err)
			bodies <- body
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		w.Runs.Handler().ServeHTTP(rw, r)
	}))
	return bodies
}

// Gateway records which conversations the apiserver erases at the model gateway.
type Gateway struct {
	Down atomic.Bool // makes erasures fail

	mu     sync.Mutex
	erased []string // guarded by mu
}

// Erase records the erasure of a conversation.
func (g *Gateway) Erase(_ context.Context, id string) error {
	if g.Down.Load() {
		return errors.New("the gateway is down")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.erased = append(g.erased, id)
	return nil
}

// Erased returns the ids of the erased conversations.
func (g *Gateway) Erased() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.erased
}

// Eventually waits until ok returns true. Use it only if there is no event to wait for.
func Eventually(t *testing.T, what string, ok func() bool) {
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond, what)
}

// ShortLease is a lease that tests can wait for. A live holder must be able to renew it on a busy machine: it loses the
// turn after two thirds of the lease.
const ShortLease = 4 * time.Second

// ShortenLease sets the lease to ShortLease.
func ShortenLease(c *webmemory.Config) { c.Lease = ShortLease }

// OwnDisk gives a replica its own disk.
func OwnDisk(t *testing.T) func(*webmemory.Config) {
	dir := filepath.Join(t.TempDir(), "ends")
	return func(c *webmemory.Config) { c.EndStoreDir = dir }
}

// ChildConfig has the settings of a webmemory in a child process.
type ChildConfig struct {
	Redis                                  []string // addresses of redis-server or of sentinels
	Master, Apiserver, Spool, Ends, Listen string
	Data                                   string // folder for all files; replaces Spool and Ends
	Lease                                  time.Duration
	Cold                                   string // folder of the cold tier; empty for none
}

// ChildConfig returns the settings of a child that shares w's spool folder.
func (w *World) ChildConfig() ChildConfig {
	c := ChildConfig{Apiserver: w.Apiserver.URL, Spool: w.Spools, Lease: ShortLease}
	if w.Sentinel != nil {
		c.Redis, c.Master = w.Sentinel.Addrs(), redistest.MasterName
	} else {
		c.Redis = []string{w.RedisServer.Addr}
	}
	return c
}

// connect returns a client that gives up soon.
func (c ChildConfig) connect() redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: c.Redis, MasterName: c.Master,
		ContextTimeoutEnabled: true, MaxRetries: 1, DialTimeout: time.Second, DialerRetries: 1})
}

// childVariable holds the ChildConfig of a child process, as JSON.
const childVariable = "MNEME_TEST_CHILD"

// callsMain reports whether the test binary can be a child process.
var callsMain bool

// Main runs the tests, or a webmemory if the process is a child of StartChild. It does not return.
func Main(m *testing.M) {
	callsMain = true
	if settings := os.Getenv(childVariable); settings != "" {
		runChild([]byte(settings))
	}
	os.Exit(m.Run())
}

// runChild serves until the process is killed.
func runChild(settings []byte) {
	var c ChildConfig
	panicOnError(json.Unmarshal(settings, &c))
	cfg := webmemory.Config{Agents: AgentNames, Lease: c.Lease, EndStoreDir: c.Ends}
	if c.Cold != "" {
		cfg.Cold = webmemory.Cold{Store: cold.Folder(c.Cold), IdleTime: 10 * time.Millisecond, Settle: time.Millisecond}
		cfg.KeepRuns, cfg.MaxHistory = 10*time.Second, 4 // sweeps once a second
	}
	if c.Data != "" {
		file, err := erasures.Open(filepath.Join(c.Data, "erasures.ndjson"))
		panicOnError(err)
		cfg.Erasures, cfg.SessionLogs = file, filepath.Join(c.Data, "logs")
		cfg.EndStoreDir, c.Spool = filepath.Join(c.Data, "ends"), filepath.Join(c.Data, "spool")
	}
	appends, err := spool.Open(c.Spool, spool.Options{}, zerolog.Nop())
	panicOnError(err)
	runs, err := api.NewClient(c.Apiserver, nil)
	panicOnError(err)
	l, err := net.Listen("tcp", c.Listen)
	panicOnError(err)
	store := redisstore.New(c.connect(), zerolog.Nop())
	panicOnError(http.Serve(l, newServer(cfg, l, store, appends, runs).Handler()))
}

func panicOnError(err error) {
	if err != nil {
		panic(err)
	}
}

// StartChild starts a webmemory as a child process.
func (w *World) StartChild(c ChildConfig) (url string, process *stack.Process) {
	if testing.Short() {
		w.T.Skip("runs webmemory as a child process")
	}
	require.True(w.T, callsMain, "TestMain must call webmemorytest.Main")
	c.Listen = freeport.Addr(w.T)
	settings, err := json.Marshal(c)
	require.NoError(w.T, err)
	p := &stack.Process{Name: "webmemory", Args: []string{os.Args[0]}, Log: "/dev/stderr",
		Env: []string{childVariable + "=" + string(settings)}, Ready: func() error {
			conn, err := net.Dial("tcp", c.Listen)
			if err != nil {
				return err
			}
			return conn.Close()
		}}
	w.T.Cleanup(func() { p.Kill() })
	require.NoError(w.T, p.Start())
	require.NoError(w.T, p.Await(time.Minute))
	return "http://" + c.Listen, p
}

// Message returns the body of a post.
func Message(text string) webapi.MessageRequest { return webapi.MessageRequest{Message: text} }

// NewRequest returns a request to w.URL. A string body is sent as it is, any other as JSON. header has names and values.
func (w *World) NewRequest(method, path string, body any, header ...string) *http.Request {
	text, ok := body.(string)
	if !ok && body != nil {
		raw, err := json.Marshal(body)
		require.NoError(w.T, err)
		text = string(raw)
	}
	req, err := http.NewRequest(method, w.URL+path, strings.NewReader(text))
	require.NoError(w.T, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// Do sends a request made by NewRequest.
func (w *World) Do(method, path string, body any, header ...string) Response {
	return w.Send(w.NewRequest(method, path, body, header...))
}

// Post posts a message to a chat and waits for the answer.
func (w *World) Post(chat, text string, header ...string) Response {
	return w.Do("POST", "/v1/chats/"+chat+"/messages", Message(text), header...)
}

// Resume sends answers to a suspended run.
func (w *World) Resume(chat, run string, body any, header ...string) Response {
	return w.Do("POST", "/v1/chats/"+chat+"/runs/"+run+"/resume", body, header...)
}

// Send sends a request. Any goroutine may call it. After two minutes without the whole response, the test fails.
func (w *World) Send(req *http.Request) Response {
	client := http.Client{Timeout: 2 * time.Minute}
	resp, err := client.Do(req)
	if !assert.NoError(w.T, err) {
		return Response{}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	assert.NoError(w.T, err)
	return Response{resp.StatusCode, resp.Header, raw}
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// RunID returns the id of the response's run.
func (r Response) RunID() string { return r.Header.Get(webapi.RunID) }

// Text returns the status and the body.
func (r Response) Text() (status int, body string) { return r.Status, string(r.Body) }

// Problem returns the error in the body.
func (r Response) Problem(t *testing.T) api.Problem {
	var body struct{ Error *api.Problem }
	require.NoError(t, json.Unmarshal(r.Body, &body), string(r.Body))
	require.NotNil(t, body.Error, string(r.Body))
	return *body.Error
}

// Stream reads an event stream.
type Stream struct {
	Response *http.Response
	LastID   string // id of the last event; empty if it had none

	t      *testing.T
	events *sse.Reader
}

// NewStream returns a reader of the event stream in resp.
func NewStream(t *testing.T, resp *http.Response) *Stream {
	return &Stream{Response: resp, t: t, events: sse.NewReader(resp.Body, api.MaxEvent, 0, nil)}
}

// Stream sends a request and returns the event stream of its response, whose status must be 200.
func (w *World) Stream(method, path string, body any, header ...string) *Stream {
	req := w.NewRequest(method, path, body, append(header, "Accept", "text/event-stream")...)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		refusal, _ := io.ReadAll(resp.Body)
		require.Equal(w.T, http.StatusOK, resp.StatusCode, string(refusal))
	}
	return NewStream(w.T, resp)
}

// PostStream posts a message to a chat and returns the stream of the run's events.
func (w *World) PostStream(chat, text string, header ...string) *Stream {
	return w.Stream("POST", "/v1/chats/"+chat+"/messages", Message(text), header...)
}

// RunID returns the id of the stream's run.
func (s *Stream) RunID() string { return s.Response.Header.Get(webapi.RunID) }

// Next reads one event. It reports whether there was one before the end of the stream.
func (s *Stream) Next() (role string, data []byte, ok bool) {
	e, err := s.events.Next()
	if err != nil {
		return "", nil, false
	}
	s.LastID = string(e.ID)
	return string(e.Name), bytes.Clone(e.Data), true
}

// Until reads up to the next event with a role and returns its data.
func (s *Stream) Until(role string) []byte {
	for {
		name, data, ok := s.Next()
		require.True(s.t, ok, "the stream ended before %s", role)
		if name == role {
			return data
		}
	}
}

// Roles reads to the end and returns the roles of the events.
func (s *Stream) Roles() (roles []string) {
	for role, _, ok := s.Next(); ok; role, _, ok = s.Next() {
		roles = append(roles, role)
	}
	return roles
}

// History returns the messages of a history in Redis, each as "role: content". A missing history is nil.
func (w *World) History(key string) (messages []string) {
	raw, err := w.Redis.Get(context.Background(), key).Result()
	if !errors.Is(err, redis.Nil) {
		require.NoError(w.T, err)
	}
	var stored []memory.Message
	if err == nil {
		require.NoError(w.T, json.Unmarshal([]byte(raw), &stored), raw)
	}
	for _, m := range stored {
		messages = append(messages, m.Role+": "+m.Content)
	}
	return messages
}

// Keys returns the keys in Redis with one of the prefixes, sorted.
func (w *World) Keys(prefixes ...string) []string {
	keys, err := w.Redis.Keys(context.Background(), "*").Result()
	require.NoError(w.T, err)
	slices.Sort(keys)
	return slices.DeleteFunc(keys, func(key string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	})
}

// Metric returns the value of a metric without labels.
func (w *World) Metric(name string) float64 {
	_, rest, _ := strings.Cut(string(w.Do("GET", "/metrics", nil).Body), "\n"+name+" ")
	text, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(text, 64)
	require.NoError(w.T, err, name)
	return value
}
