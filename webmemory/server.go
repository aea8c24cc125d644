package webmemory

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
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
	"mneme/memory/tracing"
	"mneme/webmemory/problem"
)

// Config says how the service behaves. Zero values mean the defaults.
type Config struct {
	Agents                func() []memory.Agent // the configured subagents of the moment; nil: none
	ContextWindow         int                   // messages of a chat shown to the master; 10
	SubagentContextWindow int                   // messages of a subagent's history shown to it; 50
	MaxHistory            int                   // messages kept per history; 0 keeps all
	// bytes of a history above which no exchange begins; memory.MaxHistory less a message
	FullAt      int
	SessionLogs string         // folder of the session logs; "" writes none
	Erasures    *erasures.File // what was erased from this disk; nil is a list in memory
	Cuts        *erasures.File // histories that were deleted or rewritten by hand; nil is a list in memory
	EndStoreDir string         // folder for the events of runs that ended lately; "" keeps none
	QueueLimit  int            // posts that wait for one chat; 16
	QueueWait   time.Duration  // for the chat's turn; 30 s
	MaxChats    int            // chats with work in hand at one time; 10,000
	Lease       time.Duration  // of a chat's turn, renewed three times in it; 15 s
	RunTimeout  time.Duration  // after which a run is given up; 10 min and a little
	// RecallVectors is how many of a history's newest messages are placed by the apiserver's
	// embedding model, once the history is searched; 0 searches by words alone
	RecallVectors int
	// VectorWeight is the part of vectors in a search, against that of the words; 0 for recall's default.
	VectorWeight float64
	// RecallEverywhere is how many of a user's chats, those used last, are searched together; 0 for no such search.
	RecallEverywhere int
	RecallBytes      int64         // of memory for indexes of what was said, those used least lately leave first; 256 MiB
	KeepRuns         time.Duration // how long a finished run is held in memory; 15 min
	KeepBytes        int           // of memory for finished runs, those that ended first leave first; 64 MiB
	ResumeWait       time.Duration // for events that a client has seen in another process; 10 s
	Patience         time.Duration // with an apiserver that cannot be reached, before its run is closed; 15 s
	// GrantWait is for how long after Redis lost data no call of a tool is granted, and no run that waits goes on, while
	// a process cannot be asked that is not known to be dead; a minute.
	GrantWait time.Duration
	Heartbeat time.Duration // comment on a quiet stream; 15 s
	Advertise string        // base URL under which other processes reach this one; "": they do not
	Webhook   Webhook       // is told what runs wait for
	SelfURL   string        // base URL under which the apiserver reaches this one; "": agents do not search
	MCP       http.Handler  // of POST /mcp; nil for none
	OpenAI    http.Handler  // of POST /v1/chat/completions and its kin; nil for none
	UI        http.Handler  // of useChat of the AI SDK; nil for none
	Gate      *access.Gate  // lets requests in; nil asks nobody
	// DialTLS connects to other webmemories by https; nil: as to any server. See http.Transport.DialTLSContext.
	DialTLS func(ctx context.Context, network, addr string) (net.Conn, error)
	Keys    *access.Store // those that /v1/keys is about; nil where nobody is asked for one
	Usage   *tally.Book   // what GET /v1/usage reads; nil: it is refused
	Audit   *audit.Log    // of who did what can hurt others; nil keeps none
	// EraseLimits removes what a tenant has spent of its budgets; nil where there are none.
	EraseLimits func(context.Context, memory.Tenant) error

	Limiter *limit.Limiter // of runs at once; nil lets all in
	Work    *fair.Places   // of requests that read texts or change the memory; nil: one for each processor

	Cold Cold // where idle chats go

	Telemetry *telemetry.Service // what the service counts in; nil for one of its own
	Traces    *tracing.Tracer    // makes spans of runs and of what they do to the memory; nil makes none
}

func (c Config) WithDefaults() Config {
	c.ContextWindow = cmp.Or(c.ContextWindow, 10)
	c.SubagentContextWindow = cmp.Or(c.SubagentContextWindow, 50)
	c.FullAt = cmp.Or(c.FullAt, memory.MaxHistory-memory.MaxMessage)
	c.Work = cmp.Or(c.Work, fair.ForProcessors())
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
	c.Cold.Settle = cmp.Or(c.Cold.Settle, time.Minute)
	if c.Erasures == nil {
		c.Erasures, _ = erasures.Open("") // without a file nothing can fail
	}
	if c.Cuts == nil {
		c.Cuts, _ = erasures.Open("")
	}
	if c.Agents == nil {
		c.Agents = func() []memory.Agent { return nil }
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	return c
}

// Server is the service. Make it with New, serve its Handler, end it with Drain and Close. What it does lies in rooms,
// each a type that holds the rooms which it calls; New puts them together, and routes has those that answer requests.
type Server struct {
	*Core
	registry *Registry
	peers    *Peers
	webhooks *Webhooks
	leaser   *Leaser
	handler  http.Handler

	end context.CancelCauseFunc // of life
}

// New is a service over a store, its cache and the spool beside it, asking an
// apiserver.
func New(cfg Config, store *redisstore.Store, copies *cache.Cache, appends *spool.Spool, apiserver *api.Client,
	log zerolog.Logger) *Server {
	cfg = cfg.WithDefaults()
	store.RunLife, store.ResumeLife = cfg.RunTimeout, cfg.KeepRuns
	c := &Core{
		Cfg: cfg, Store: store, Cache: copies, Spool: appends, Runs: apiserver, Log: log,
		Searches:      fair.ForProcessors(),
		Work:          cfg.Work,
		EndStore:      &EndStore{Dir: cfg.EndStoreDir, Log: log},
		Follower:      Follower{File: cfg.Erasures, Applied: map[string]int64{}},
		Conversations: Conversations{Turns: map[memory.Chat]map[string]int64{}},
	}
	c.EndStore.TakenBack = c.RewoundSince
	for _, h := range c.EndStore.Heads() {
		if h.Conversation != "" {
			c.Conversations.Note(h.Chat.Chat, h.Conversation, h.Turn)
		}
	}
	store.OnCut = func(key memory.Key, turn int64) {
		c.NoteCut(key, turn)
		if cfg.Cold.Store != nil {
			c.Workers.Go(func() { c.Tier.ForgetCut(key.Chat()) })
		}
	}
	if c.Telemetry = cfg.Telemetry; c.Telemetry == nil {
		c.Telemetry = telemetry.Open("", log)
	}
	c.Sessions = &SessionLogs{Dir: cfg.SessionLogs, Log: c.Telemetry.Often}
	s := &Server{Core: c}
	c.Life, s.end = context.WithCancelCause(context.Background())

	// From the bottom up: each room calls those above it here alone.
	watch := &StoreWatch{Core: c, Losses: Losses{Used: map[memory.Chat]string{}, Wake: make(chan struct{}, 1)}}
	c.Tier, store.LostData = &ColdTier{Core: c, Watch: watch}, watch.HasLoss
	if cfg.Cold.Store != nil {
		store.Forget = c.Tier.ForgetCopy
	}
	s.registry = &Registry{Core: c, Live: map[string]*Run{}, OneShots: map[string]*Run{}}
	s.peers = &Peers{Core: c, StoreWatch: watch, Between: NewOthersClient(c.Telemetry, cfg.Gate, cfg.DialTLS)}
	s.webhooks = &Webhooks{c, NewWebhookClient()}
	histories := &Histories{c, watch}
	searcher := &Searcher{Core: c, Histories: histories}
	redactor := &Redactor{c, histories}
	rewinder := &Rewinder{c, s.registry, s.peers, histories}
	tombstones := &Tombstones{c, s.registry, histories, searcher, redactor, rewinder}
	eraser := &Eraser{c, s.peers, redactor, rewinder, tombstones}
	toolCalls := &ToolCalls{c, s.peers, watch}
	counts := newStorage(c)
	runner := &Runner{c, s.registry, s.peers, watch, s.webhooks, toolCalls}
	restorer := &Restorer{c, s.registry, s.peers, watch, toolCalls, runner}
	s.leaser = &Leaser{c, s.registry, redactor, rewinder, tombstones, eraser, runner, restorer,
		&Queue{Chats: cfg.MaxChats, Limit: cfg.QueueLimit, Lines: map[memory.Chat]*Line{}},
		NewKeeper(store, cfg.Lease, c.RetryInBackground, counts.Note)}
	starter := &Starter{c, watch, histories, rewinder, eraser, runner, restorer, s.leaser}
	streams := &Streams{c, s.registry, watch}
	admission := &Admission{c, s.registry, streams, starter}
	portable := &Portable{c, histories, eraser, s.leaser}
	monitor := &monitor{c, s.registry, watch, tombstones}
	writes := &WriteBacker{c, s.registry, watch, tombstones, runner, restorer, s.leaser}
	lists, history := &ChatList{c}, &HistoryRoutes{c, histories}
	c.Metrics = NewMetrics(c, watch)
	Measure(c.Telemetry.Gauge, s.registry, s.leaser.Queue)
	erases := &EraseRoutes{c, eraser, tombstones, s.leaser}
	table := &routes{
		Core:          c,
		registry:      s.registry,
		rewinder:      rewinder,
		tombstones:    tombstones,
		toolCalls:     toolCalls,
		searcher:      searcher,
		streams:       streams,
		admission:     admission,
		resumer:       &Resumer{c, s.registry, watch, streams, runner, restorer, s.leaser},
		monitor:       monitor,
		eraseRoutes:   erases,
		redactRoutes:  &RedactRoutes{c, histories, eraser, s.leaser},
		rewindRoutes:  &RewindRoutes{c, histories, rewinder, s.leaser},
		portable:      portable,
		noteRoutes:    &NoteRoutes{c, histories, s.leaser},
		keyring:       &keyring{c},
		tenancy:       &Tenancy{c, portable, eraser, s.leaser},
		oneShotRunner: &OneShotRunner{c, s.registry, runner, s.leaser, admission},
		historyRoutes: history,
		traceRoutes:   &TraceRoutes{c, s.registry, history},
		chatList:      lists,
		auditor:       &auditor{c},
		heardRoutes:   &HeardRoutes{c, s.leaser, searcher},
	}
	s.handler = table.router()
	c.Workers.Go(s.janitor)
	c.Workers.Go(counts.Work)
	c.Workers.Go(monitor.watchStore)
	c.Workers.Go(monitor.watchCold)
	c.Workers.Go(writes.WriteBack)
	c.Workers.Go((&Takeover{c, runner, s.leaser}).LookAfter)
	c.Workers.Go(s.peers.Announce)
	c.Workers.Go(lists.ListAll)
	c.Workers.Go(erases.FinishErasures)
	return s
}

// Handler serves the public routes.
func (s *Server) Handler() http.Handler { return s.handler }

// janitor forgets finished runs, and has idle chats fall asleep.
func (s *Server) janitor() {
	tick := time.NewTicker(max(s.Cfg.KeepRuns/10, time.Second))
	defer tick.Stop()
	for {
		s.Workers.Go(s.Tier.Sweep) // which waits for the store
		select {
		case <-s.Life.Done():
			return
		case <-tick.C:
			s.EndStore.Sweep()
			s.registry.Expire()
		}
	}
}

// Drain refuses new messages and waits for the running ones until ctx ends; then
// it leaves them as they are, for another process to finish.
func (s *Server) Drain(ctx context.Context) {
	s.registry.Mu.Lock()
	s.registry.Draining = true
	running := make([]*Run, 0, len(s.registry.Live))
	for _, r := range s.registry.Live {
		running = append(running, r)
	}
	running = slices.AppendSeq(running, maps.Values(s.registry.OneShots))
	s.registry.Mu.Unlock()
	for _, r := range running {
		select {
		case <-r.Done:
		case <-ctx.Done():
			s.end(problem.ErrShutdown)
			<-r.Done
		}
	}
}

// Close ends what still runs and waits for it.
func (s *Server) Close() {
	s.end(problem.ErrShutdown)
	s.Workers.Wait()
	s.leaser.Keeper.Close() // after all workers, which may hold leases
	s.peers.Between.CloseIdleConnections()
	s.webhooks.Webhook.CloseIdleConnections()
}
