package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/cache"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/proxy"
	proxystore "mneme/proxy/redisstore"
	"mneme/proxy/thinking"
	"mneme/proxy/upstream"
	"mneme/subagent/openaimodel"
	"mneme/webmemory"
)

// Up runs all three services in this process.
func Up(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, o, func(a *app) error {
		a.together = true
		proxyURL, err := a.startProxy(cfg, o)
		if err != nil {
			return err
		}
		cfg.Apiserver.Proxy = proxyURL
		apiURL, err := a.startApiserver(cfg, o)
		if err != nil {
			return err
		}
		cfg.Webmemory.Apiserver = apiURL
		if err := a.startWebmemory(cfg, o); err != nil {
			return err
		}
		welcome(o.Out, cfg, a.addrs)
		return nil
	})
}

// Webmemory runs the public service alone.
func Webmemory(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, o, func(a *app) error { return a.startWebmemory(cfg, o) })
}

// Apiserver runs the service of the agents alone.
func Apiserver(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, o, func(a *app) error {
		_, err := a.startApiserver(cfg, o)
		return err
	})
}

// Proxy runs the gateway alone.
func Proxy(ctx context.Context, cfg config.Config, o Options) error {
	defer easeGC()()
	return run(ctx, o, func(a *app) error {
		_, err := a.startProxy(cfg, o)
		return err
	})
}

// gatewayGC is how much may be allocated, in percent of what is in use, before it
// is collected. A gateway holds little beside the ledger and lets each request's
// body go with the request, so that at Go's 100 it would collect all the time.
const gatewayGC = 200

// easeGC sets gatewayGC, unless the operator has set GOGC; restore takes it back.
func easeGC() (restore func()) {
	if _, set := os.LookupEnv("GOGC"); set {
		return func() {}
	}
	before := debug.SetGCPercent(gatewayGC)
	return func() { debug.SetGCPercent(before) }
}

func (a *app) startProxy(cfg config.Config, o Options) (string, error) {
	log := o.Log.With().Str("service", "proxy").Logger()
	l, err := a.listen(cfg.Proxy.Listen, "proxy.listen")
	if err != nil {
		return "", err
	}
	shared, err := a.shared(cfg, log)
	if err != nil {
		return "", err
	}
	p := proxy.Config{
		Active: cfg.Proxy.Active, TeammateBackend: cfg.Proxy.TeammateBackend, Teammates: cfg.Proxy.Teammates,
		EmbeddingsBackend: cfg.Proxy.EmbeddingsBackend, Backends: map[string]proxy.BackendConfig{},
		TurnsTTL: cfg.Proxy.StateMachine.TTL, MaxTurns: cfg.Proxy.StateMachine.MaxTurns,
		Stateless: !cfg.Proxy.StateMachine.Enabled, Shared: shared, SelfURL: cmp.Or(cfg.Proxy.Advertise, url(l)),
		Transport: o.Transport, Secrets: cfg.Secrets(),
	}
	for name, b := range cfg.Proxy.Backends {
		backend := proxy.BackendConfig{
			Kind: b.Kind, Vendor: b.Vendor, BaseURL: b.BaseURL, Auth: upstream.Auth(b.Auth), APIKey: b.APIKey.Reveal(), KeyName: b.APIKeyEnv, ModelMap: b.ModelMap,
			Thinking: proxy.ThinkingConfig{BudgetTokens: int64(b.Thinking.BudgetTokens), Unproven: thinking.Unproven(b.Thinking.Unproven)},
		}
		if b.Profile != nil {
			backend.Profile = b.Profile.Overrides
		}
		if backend.CLI, err = copilotCLI(cfg, name, b); err != nil {
			return "", err
		}
		p.Backends[name] = backend
	}
	server, err := proxy.New(p, log)
	if err != nil {
		return "", err
	}
	a.push("gateway", server.Close)
	a.serve("proxy", l, guarded(cfg, server.Handler(), refuseCall, log), func(context.Context) error { server.Drain(); return nil })
	a.addrs.Proxy = l.Addr().String()
	return url(l), nil
}

// shared is what the gateway keeps in Redis. Alone and without one it keeps to
// itself: an embedded store is another process's.
func (a *app) shared(cfg config.Config, log zerolog.Logger) (proxy.Shared, error) {
	if cfg.Redis.Embedded() && !a.together {
		return proxy.Shared{}, nil
	}
	client, err := a.openRedis(cfg, log)
	if err != nil {
		return proxy.Shared{}, err
	}
	known := func(name string) bool { _, ok := cfg.Proxy.Backends[name]; return ok }
	records := int64(0) // the store's default
	turns := proxystore.TurnLimits{TTL: cfg.Proxy.StateMachine.TTL, Entries: cfg.Proxy.StateMachine.MaxTurns * 5 / 4}
	if cfg.Redis.Embedded() {
		records, turns.Bytes = 10_000, 2<<20 // it holds them in this process's memory
	}
	return proxy.Shared{
		Turns:  proxystore.NewTurns(client, turns),
		Usage:  proxystore.NewUsage(client, records),
		Active: proxystore.NewActive(client, cfg.Proxy.Active, known, log),
		Owners: proxystore.NewOwners(client, cfg.Proxy.StateMachine.TTL+time.Hour),
	}, nil
}

func (a *app) startApiserver(cfg config.Config, o Options) (string, error) {
	log := o.Log.With().Str("service", "apiserver").Logger()
	l, err := a.listen(cfg.Apiserver.Listen, "apiserver.listen")
	if err != nil {
		return "", err
	}
	library, err := a.library(cfg, log)
	if err != nil {
		return "", err
	}
	agent, infos, err := a.newAgents(cfg, library, log)
	if err != nil {
		return "", err
	}
	server := apiserver.New(apiserver.Config{
		Advertise: cfg.Apiserver.Advertise, MaxRuns: cfg.Apiserver.MaxRuns, RunTimeout: cfg.RunTimeout, Documents: library,
		EraseConversation: func(ctx context.Context, id string) error {
			return openaimodel.EraseConversation(ctx, nil, cfg.Apiserver.Proxy, id)
		},
	}, agent, infos, log)
	a.push("apiserver", server.Close)
	a.serve("apiserver", l, guarded(cfg, server.Handler(), refuseRequest, log), server.Drain)
	a.addrs.Apiserver = l.Addr().String()
	return url(l), nil
}

func (a *app) startWebmemory(cfg config.Config, o Options) error {
	log := o.Log.With().Str("service", "webmemory").Logger()
	l, err := a.listen(cfg.Webmemory.Listen, "webmemory.listen")
	if err != nil {
		return err
	}
	client, err := a.openRedis(cfg, log)
	if err != nil {
		return err
	}
	runs, err := api.NewClient(cfg.Webmemory.Apiserver, nil)
	if err != nil {
		return fmt.Errorf("webmemory.apiserver: %w", err)
	}
	a.push("apiserver client", func() error { runs.Close(); return nil })
	w := webmemory.Config{
		ContextWindow: cfg.Webmemory.ContextWindow, SubagentContextWindow: cfg.Webmemory.SubagentContextWindow,
		MaxHistory: cfg.Webmemory.MaxHistory, MaxChats: cfg.Webmemory.MaxChats, RunTimeout: cfg.RunTimeout + time.Minute,
		KeepBytes:  int(cfg.Webmemory.FinishedBytes),
		QueueLimit: cfg.Webmemory.Queue.Limit, QueueWait: cfg.Webmemory.Queue.Wait,
		Agents: cfg.AgentNames(),
	}
	if cfg.SessionLogs {
		w.SessionLogs = filepath.Join(cfg.DataDir, "logs", "memory_sessions")
	}
	if !cfg.Redis.Embedded() { // a store that nobody else can use
		w.Advertise = cmp.Or(cfg.Webmemory.Advertise, advertised(l, cfg.Redis))
		w.Ends = filepath.Join(cfg.DataDir, "ends")
		adviseReplicas(cfg.Redis, log)
	}
	if w.Erasures, err = erasures.Open(filepath.Join(cfg.DataDir, "erasures.ndjson")); err != nil {
		return fmt.Errorf("reading what was erased: %w; check data_dir", err)
	}
	if w.Cuts, err = erasures.Open(filepath.Join(cfg.DataDir, "cuts.ndjson")); err != nil {
		return fmt.Errorf("reading what was erased: %w; check data_dir", err)
	}
	store := redisstore.New(client, log)
	store.WaitReplicas = cfg.Redis.WaitReplicas
	if cfg.Redis.Embedded() {
		store.Exclusive, store.Compact = true, a.embedded.Compact
		if err := store.ReleaseAll(a.ctx); err != nil {
			log.Warn().Err(err).Msg("chats in which a process before this one was at work wait until its lease runs out")
		}
	}
	appends, err := spool.Open(filepath.Join(cfg.DataDir, "spool"), spool.Options{}, log)
	if err != nil {
		return fmt.Errorf("%w; check data_dir", err)
	}
	a.push("spool", appends.Close)
	server := webmemory.New(w, store, cache.New(store, int(cfg.Webmemory.CacheBytes)), appends, runs, log)
	a.push("webmemory", func() error { server.Close(); return nil })
	a.serve("webmemory", l, guarded(cfg, server.Handler(), refuseRequest, log), func(ctx context.Context) error { server.Drain(ctx); return nil })
	a.addrs.Webmemory = l.Addr().String()
	return nil
}
