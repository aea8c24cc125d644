package webmemory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/fair"
	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/memory/telemetry"
)

// Config says how the service behaves. Zero values mean the defaults.
type Config struct {
	Agents                []memory.Agent // the configured subagents
	ContextWindow         int            // messages of a chat shown to the master; 10
	SubagentContextWindow int            // messages of a subagent's history shown to it; 50
	MaxHistory            int            // messages kept per history; 0 keeps all
	// bytes of a history above which no exchange begins; memory.MaxHistory less a message
	FullAt      int
	SessionLogs string         // folder of the session logs; "" writes none
	Erasures    *erasures.File // what was erased from this disk; nil is a list in memory
	Cuts        *erasures.File // histories that were deleted or rewritten by hand; nil is a list in memory
	Ends        string         // folder for the events of runs that ended lately; "" keeps none
	QueueLimit  int            // posts that wait for one chat; 16
	QueueWait   time.Duration  // for the chat's turn; 30 s
	MaxChats    int            // chats with work in hand at one time; 10,000
	Lease       time.Duration  // of a chat's turn, renewed three times in it; 15 s
	RunTimeout  time.Duration  // after which a run is given up; 10 min and a little
	// RecallVectors is how many of a history's newest messages are placed by the apiserver's
	// embedding model, once the history is searched; 0 searches by words alone
	RecallVectors int
	RecallBytes   int64         // of memory for indexes of what was said, those used least lately leave first; 256 MiB
	KeepRuns      time.Duration // how long a finished run is held in memory; 15 min
	KeepBytes     int           // of memory for finished runs, those that ended first leave first; 64 MiB
	ResumeWait    time.Duration // for events that a client has seen in another process; 10 s
	Patience      time.Duration // with an apiserver that cannot be reached, before its run is closed; 15 s
	// GrantWait is for how long after Redis lost data no call of a tool is granted, and no run that waits goes on, while
	// a process cannot be asked that is not known to be dead; a minute.
	GrantWait time.Duration
	Heartbeat time.Duration // comment on a quiet stream; 15 s
	Advertise string        // base URL under which other processes reach this one; "": they do not
	Webhook   Webhook       // is told what runs wait for
	SelfURL   string        // base URL under which the apiserver reaches this one; "": agents do not search
	MCP       http.Handler  // of POST /mcp; nil for none
	OpenAI    http.Handler  // of POST /v1/chat/completions and its kin; nil for none
	Gate      *access.Gate  // lets requests in; nil asks nobody
	// DialTLS connects to other webmemories by https; nil: as to any server. See http.Transport.DialTLSContext.
	DialTLS func(ctx context.Context, network, addr string) (net.Conn, error)
	Keys    *access.Store // those that /v1/keys is about; nil where nobody is asked for one
	Usage   *tally.Book   // what GET /v1/usage reads; nil: it is refused
	Audit   *audit.Log    // of who did what can hurt others; nil keeps none
	// EraseLimits removes what a tenant has spent of its budgets; nil where there are none.
	EraseLimits func(context.Context, memory.Tenant) error

	Limiter *limit.Limiter // of runs at once; nil lets all in

	Telemetry *telemetry.Service // what the service counts in; nil for one of its own
}

func (c Config) withDefaults() Config {
	c.ContextWindow = cmp.Or(c.ContextWindow, 10)
	c.SubagentContextWindow = cmp.Or(c.SubagentContextWindow, 50)
	c.FullAt = cmp.Or(c.FullAt, memory.MaxHistory-memory.MaxMessage)
	c.QueueLimit = cmp.Or(c.QueueLimit, 16)
	c.QueueWait = cmp.Or(c.QueueWait, 30*time.Second)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.MaxChats = cmp.Or(c.MaxChats, 10_000)
	c.RunTimeout = cmp.Or(c.RunTimeout, 11*time.Minute)
	c.KeepRuns = cmp.Or(c.KeepRuns, 15*time.Minute)
	c.KeepBytes = cmp.Or(c.KeepBytes, 64<<20)
	c.ResumeWait = cmp.Or(c.ResumeWait, 10*time.Second)
	c.Patience = cmp.Or(c.Patience, 15*time.Second)
	c.GrantWait = cmp.Or(c.GrantWait, time.Minute)
	if c.Erasures == nil {
		c.Erasures, _ = erasures.Open("") // without a file nothing can fail
	}
	if c.Cuts == nil {
		c.Cuts, _ = erasures.Open("")
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	return c
}

// Server is the service. Make it with New, serve its Handler, end it with Drain
// and Close.
type Server struct {
	cfg           Config
	store         *redisstore.Store
	cache         *cache.Cache
	spool         *spool.Spool
	runs          *api.Client
	between       *http.Client // to other processes of this kind
	webhook       *http.Client
	log           zerolog.Logger
	queue         *queue
	searches      *fair.Places // and imports, which cost as much
	keeper        *keeper
	sessions      *sessionLogs
	ends          *ends
	follower      follower
	seen          *telemetry.Service
	metrics       *metrics
	health        health
	losses        losses
	conversations conversations
	indexes       indexes
	placing       placing
	neighbours    neighbours
	handler       http.Handler

	life    context.Context // of runs and of the janitor
	end     context.CancelCauseFunc
	workers sync.WaitGroup // one per run, and the janitor and the health check

	mu       sync.Mutex
	live     map[string]*run // guarded by mu: running and lately finished, by run id
	finished finished        // guarded by mu: those of live that are over
	oneShots map[string]*run // guarded by mu: running ones, which are not in live: nothing is kept of them
	draining bool            // guarded by mu
}

// errShutdown ends runs that did not finish in time when the service stops.
var errShutdown = errors.New("the service is shutting down")

// searchesAtOnce is how many requests search or fill a chat's memory at one time, each of which keeps a processor busy;
// searchPatience is how long one waits for its turn.
var searchesAtOnce = max(2, runtime.GOMAXPROCS(0))

const searchPatience = 30 * time.Second

// New is a service over a store, its cache and the spool beside it, asking the
// apiserver behind runs.
func New(cfg Config, store *redisstore.Store, copies *cache.Cache, appends *spool.Spool, runs *api.Client,
	log zerolog.Logger) *Server {
	cfg = cfg.withDefaults()
	store.RunLife, store.ResumeLife = cfg.RunTimeout, cfg.KeepRuns
	s := &Server{
		cfg: cfg, store: store, cache: copies, spool: appends, runs: runs, log: log,
		queue:         &queue{chats: cfg.MaxChats, limit: cfg.QueueLimit, lines: map[memory.Chat]*line{}},
		searches:      fair.New(searchesAtOnce, searchPatience),
		ends:          &ends{dir: cfg.Ends, log: log},
		follower:      follower{file: cfg.Erasures, applied: map[string]int64{}},
		live:          map[string]*run{},
		oneShots:      map[string]*run{},
		conversations: conversations{of: map[memory.Chat]map[string]int64{}},
		losses:        losses{used: map[memory.Chat]string{}, wake: make(chan struct{}, 1)},
	}
	s.ends.takenBack = s.rewoundSince
	for _, h := range s.ends.heads() {
		if h.Conversation != "" {
			s.conversations.note(h.Chat.Chat, h.Conversation, h.Turn)
		}
	}
	store.OnCut = s.noteCut
	if s.seen = cfg.Telemetry; s.seen == nil {
		s.seen = telemetry.Open("", log)
	}
	s.between, s.webhook = newOthersClient(s.seen, cfg.Gate, cfg.DialTLS), newWebhookClient()
	s.sessions = &sessionLogs{dir: cfg.SessionLogs, log: s.seen.Often}
	s.metrics = newMetrics(s)
	s.life, s.end = context.WithCancelCause(context.Background())
	s.keeper = newKeeper(store, cfg.Lease, s.later)
	s.handler = s.routes()
	s.workers.Go(s.janitor)
	s.workers.Go(s.watchStore)
	s.workers.Go(s.writeBack)
	s.workers.Go(s.lookAfter)
	s.workers.Go(s.announce)
	s.workers.Go(s.listAll)
	s.losses.wakeUp() // to what Redis lost while no process was there
	return s
}

// Handler serves the public routes.
func (s *Server) Handler() http.Handler { return s.handler }

// janitor forgets finished runs.
func (s *Server) janitor() {
	tick := time.NewTicker(max(s.cfg.KeepRuns/10, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
			s.ends.sweep()
			s.expire()
		}
	}
}

// Drain refuses new messages and waits for the running ones until ctx ends; then
// it leaves them as they are, for another process to finish.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	running := make([]*run, 0, len(s.live))
	for _, r := range s.live {
		running = append(running, r)
	}
	running = slices.AppendSeq(running, maps.Values(s.oneShots))
	s.mu.Unlock()
	for _, r := range running {
		select {
		case <-r.done:
		case <-ctx.Done():
			s.end(errShutdown)
			<-r.done
		}
	}
}

// Close ends what still runs and waits for it.
func (s *Server) Close() {
	s.end(errShutdown)
	s.workers.Wait()
	s.keeper.close() // after all who hold a lease
	s.between.CloseIdleConnections()
	s.webhook.CloseIdleConnections()
}
