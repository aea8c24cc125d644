package webmemory

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/memory/telemetry"
	"mneme/webmemory/chats"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// Settings of the service, see package node.
type (
	// Config configures the service.
	Config = node.Config
	// Cold configures the cold tier.
	Cold = node.Cold
	// Webhook configures the webhook for pending approvals.
	Webhook = node.Webhook
)

// Server is the service. Make it with New, serve its Handler, end it with Drain and Close. New connects the parts. The
// type routes holds those that handle requests.
type Server struct {
	core     *node.Core
	registry *runs.Registry
	peers    *node.Peers
	webhooks *runs.Webhooks
	leaser   *turns.Leaser
	handler  http.Handler

	end context.CancelCauseFunc // cancels core.Life
}

// New returns a running service that sends runs to apiserver.
func New(cfg Config, store *redisstore.Store, copies *cache.Cache, appends *spool.Spool, apiserver *api.Client,
	log zerolog.Logger) *Server {
	cfg = cfg.WithDefaults()
	store.RunLife, store.ResumeLife = cfg.RunTimeout, cfg.KeepRuns
	c := &node.Core{
		Cfg: cfg, Store: store, Cache: copies, Spool: appends, Runs: apiserver, Log: log,
		Searches:      fair.ForProcessors(),
		Work:          cfg.Work,
		EndStore:      &node.EndStore{Dir: cfg.EndStoreDir, Log: log},
		Follower:      node.Follower{File: cfg.Erasures, Applied: map[string]int64{}},
		Conversations: node.Conversations{Turns: map[memory.Chat]map[string]int64{}},
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
	c.Sessions = &node.SessionLogs{Dir: cfg.SessionLogs, Log: c.Telemetry.Often}
	s := &Server{core: c}
	c.Life, s.end = context.WithCancelCause(context.Background())

	// From the bottom up: each part calls only the parts above it.
	watch := &node.StoreWatch{Core: c, Losses: node.Losses{Used: map[memory.Chat]string{}, Wake: make(chan struct{}, 1)}}
	c.Tier, store.LostData = &node.ColdTier{Core: c, Watch: watch}, watch.HasLoss
	if cfg.Cold.Store != nil {
		store.Forget = c.Tier.ForgetCopy
	}
	s.registry = &runs.Registry{Core: c, Live: map[string]*runs.Run{}, OneShots: map[string]*runs.Run{}}
	s.peers = &node.Peers{Core: c, StoreWatch: watch, Between: node.NewOthersClient(c.Telemetry, cfg.Gate, cfg.DialTLS)}
	s.webhooks = &runs.Webhooks{Core: c, Webhook: runs.NewWebhookClient()}
	histories := &past.Histories{Core: c, StoreWatch: watch}
	searcher := &past.Searcher{Core: c, Histories: histories}
	redactor := &erase.Redactor{Core: c, Histories: histories}
	rewinder := &erase.Rewinder{Core: c, Registry: s.registry, Peers: s.peers, Histories: histories}
	tombstones := &erase.Tombstones{Core: c, Registry: s.registry, Histories: histories, Searcher: searcher,
		Redactor: redactor, Rewinder: rewinder}
	eraser := &erase.Eraser{Core: c, Peers: s.peers, Redactor: redactor, Rewinder: rewinder, Tombstones: tombstones}
	toolCalls := &runs.ToolCalls{Core: c, Peers: s.peers, StoreWatch: watch}
	counts := newStorage(c)
	runner := &runs.Runner{Core: c, Registry: s.registry, Peers: s.peers, StoreWatch: watch, Webhooks: s.webhooks,
		ToolCalls: toolCalls}
	restorer := &turns.Restorer{Core: c, Registry: s.registry, Peers: s.peers, StoreWatch: watch, ToolCalls: toolCalls,
		Runner: runner}
	s.leaser = &turns.Leaser{Core: c, Registry: s.registry, Redactor: redactor, Rewinder: rewinder,
		Tombstones: tombstones, Eraser: eraser, Runner: runner, Restorer: restorer,
		Queue:  &runs.Queue{Chats: cfg.MaxChats, Limit: cfg.QueueLimit, Lines: map[memory.Chat]*runs.Line{}},
		Keeper: runs.NewKeeper(store, cfg.Lease, c.RetryInBackground, counts.Note)}
	starter := &turns.Starter{Core: c, StoreWatch: watch, Histories: histories, Rewinder: rewinder, Eraser: eraser,
		Runner: runner, Restorer: restorer, Leaser: s.leaser}
	streams := &runs.Streams{Core: c, Registry: s.registry, StoreWatch: watch}
	admission := &turns.Admission{Core: c, Registry: s.registry, Streams: streams, Starter: starter}
	portable := &chats.Portable{Core: c, Histories: histories, Eraser: eraser, Leaser: s.leaser}
	monitor := &monitor{c, s.registry, watch, tombstones}
	writes := &turns.WriteBacker{Core: c, Registry: s.registry, StoreWatch: watch, Tombstones: tombstones, Runner: runner,
		Restorer: restorer, Leaser: s.leaser}
	lists, history := &chats.Lists{Core: c}, &past.HistoryRoutes{Core: c, Histories: histories}
	c.Metrics = node.NewMetrics(c, watch)
	runs.Measure(c.Telemetry.Gauge, s.registry, s.leaser.Queue)
	erases := &chats.EraseRoutes{Core: c, Eraser: eraser, Tombstones: tombstones, Leaser: s.leaser}
	table := &routes{
		Core:       c,
		registry:   s.registry,
		rewinder:   rewinder,
		tombstones: tombstones,
		toolCalls:  toolCalls,
		searcher:   searcher,
		streams:    streams,
		admission:  admission,
		resumer: &turns.Resumer{Core: c, Registry: s.registry, StoreWatch: watch, Streams: streams, Runner: runner,
			Restorer: restorer, Leaser: s.leaser},
		monitor:      monitor,
		eraseRoutes:  erases,
		redactRoutes: &chats.RedactRoutes{Core: c, Histories: histories, Eraser: eraser, Leaser: s.leaser},
		rewindRoutes: &chats.RewindRoutes{Core: c, Histories: histories, Rewinder: rewinder, Leaser: s.leaser},
		portable:     portable,
		noteRoutes:   &chats.NoteRoutes{Core: c, Histories: histories, Leaser: s.leaser},
		keyring:      &keyring{c},
		tenancy:      &chats.Tenancy{Core: c, Portable: portable, Eraser: eraser, Leaser: s.leaser},
		oneShotRunner: &turns.OneShotRunner{Core: c, Registry: s.registry, Runner: runner, Leaser: s.leaser,
			Admission: admission},
		historyRoutes: history,
		traceRoutes:   &runs.TraceRoutes{Core: c, Registry: s.registry, Histories: history},
		chatList:      lists,
		auditor:       &auditor{c},
		heardRoutes:   &turns.HeardRoutes{Core: c, Leaser: s.leaser, Searcher: searcher},
	}
	s.handler = table.router()
	c.Workers.Go(s.janitor)
	c.Workers.Go(counts.Work)
	c.Workers.Go(monitor.watchStore)
	c.Workers.Go(monitor.watchCold)
	c.Workers.Go(writes.WriteBack)
	c.Workers.Go((&turns.Takeover{Core: c, Runner: runner, Leaser: s.leaser}).LookAfter)
	c.Workers.Go(s.peers.Announce)
	c.Workers.Go(lists.ListAll)
	c.Workers.Go(erases.FinishErasures)
	return s
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler { return s.handler }

// janitor expires finished runs and moves idle chats to the cold tier.
func (s *Server) janitor() {
	tick := time.NewTicker(max(s.core.Cfg.KeepRuns/10, time.Second))
	defer tick.Stop()
	for {
		s.core.Workers.Go(s.core.Tier.Sweep) // Sweep waits for the store
		select {
		case <-s.core.Life.Done():
			return
		case <-tick.C:
			s.core.EndStore.Sweep()
			s.registry.Expire()
		}
	}
}

// Drain rejects new messages and waits for active runs until ctx ends. It leaves the rest for another process to
// finish.
func (s *Server) Drain(ctx context.Context) {
	s.registry.Mu.Lock()
	s.registry.Draining = true
	running := make([]*runs.Run, 0, len(s.registry.Live))
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

// Close ends the remaining runs and waits for all workers.
func (s *Server) Close() {
	s.end(problem.ErrShutdown)
	s.core.Workers.Wait()
	s.leaser.Keeper.Close() // after all workers, which may hold leases
	s.peers.Between.CloseIdleConnections()
	s.webhooks.Webhook.CloseIdleConnections()
}
