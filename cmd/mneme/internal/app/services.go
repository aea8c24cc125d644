package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"mneme"
	"mneme/access"
	"mneme/access/audit"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/access/tally"
	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	"mneme/proxy"
	"mneme/proxy/copilot"
	proxystore "mneme/proxy/redisstore"
	"mneme/proxy/thinking"
	"mneme/proxy/upstream"
	"mneme/subagent/openaimodel"
	"mneme/subagent/rag"
	"mneme/webmemory"
	"mneme/webmemory/uistream"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// Up runs all three services in this process.
func Up(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, cfg, o, func(a *app) error { return a.startAll(cfg, o) })
}

func (a *app) startAll(cfg config.Config, o Options) error {
	a.together = true
	if cfg.Proxy.Memory.URL == "" {
		cfg.Proxy.Memory.URL = "http://" + selfHost
	}
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
	welcome(o.Out, cfg, a.addrs, a.fresh)
	return nil
}

// Webmemory runs the public service alone.
func Webmemory(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, cfg, o, func(a *app) error { return a.startWebmemory(cfg, o) })
}

// Apiserver runs the service of the agents alone.
func Apiserver(ctx context.Context, cfg config.Config, o Options) error {
	return run(ctx, cfg, o, func(a *app) error {
		_, err := a.startApiserver(cfg, o)
		return err
	})
}

// Proxy runs the gateway alone.
func Proxy(ctx context.Context, cfg config.Config, o Options) error {
	defer easeGC()()
	return run(ctx, cfg, o, func(a *app) error {
		_, err := a.startProxy(cfg, o)
		return err
	})
}

// gatewayGC is the value of GOGC for a gateway. With a full ledger the
// gateway holds some 60 MB, see proxy/DESIGN.md.
const gatewayGC = 90

// easeGC sets gatewayGC, unless the operator has set GOGC; restore takes it back.
func easeGC() (restore func()) {
	if _, set := os.LookupEnv("GOGC"); set {
		return func() {}
	}
	old := debug.SetGCPercent(gatewayGC)
	return func() { debug.SetGCPercent(old) }
}

// begin is what each service begins with: its logs and metrics, who may come in, and its port. keys says whether it
// looks up keys in the store.
func (a *app) begin(service string, cfg config.Config, o Options, addr string, keys bool) (
	svc *telemetry.Service, gate *access.Gate, l net.Listener, err error) {
	svc = telemetry.Open(mneme.Version(), o.Log.With().Str("service", service).Logger())
	svc.Requests = cfg.Log.Requests
	a.push("telemetry of "+service, svc.Close)
	if len(a.services) == 0 { // closed behind all services
		if a.traces, err = tracing.Open(mneme.Version(), cfg.Otel.Content, func(err error) {
			svc.Often.Warn().Err(err).Msg("traces could not be sent")
		}); err != nil {
			return nil, nil, nil, err
		}
		if a.traces != nil {
			a.push("traces", a.traces.Close)
		}
	}
	a.services[service] = svc
	svc.Gauge("mneme_config_reload_failed", "1 if the configuration was not taken over at the last SIGHUP, else 0.",
		func() float64 {
			if a.reloads.failed.Load() {
				return 1
			}
			return 0
		})
	if gate, err = a.gate(cfg, svc, keys); err == nil {
		l, err = a.listen(cfg, svc, addr, service+".listen")
	}
	return svc, gate, l, err
}

func (a *app) startProxy(cfg config.Config, o Options) (string, error) {
	svc, gate, l, err := a.begin("proxy", cfg, o, cfg.Proxy.Listen, !cfg.Redis.Embedded())
	if err != nil {
		return "", err
	}
	shared, err := a.shared(cfg, svc)
	if err != nil {
		return "", err
	}
	p := proxy.Config{
		Active: cfg.Proxy.Active, TeammateBackend: cfg.Proxy.TeammateBackend, Teammates: cfg.Proxy.Teammates,
		EmbeddingsBackend: cfg.Proxy.EmbeddingsBackend, Backends: map[string]proxy.BackendConfig{},
		TurnsTTL: cfg.Proxy.StateMachine.TTL, MaxTurns: cfg.Proxy.StateMachine.MaxTurns,
		TurnsWait: cfg.Proxy.StateMachine.Wait,
		Stateless: !cfg.Proxy.StateMachine.Enabled, Shared: shared,
		SelfURL: cmp.Or(cfg.Proxy.Advertise, a.addrs.URL(l.Addr().String())), Traces: a.traces.Tracer("proxy"),
		Transport: o.Transport, Secrets: cfg.Secrets(), Telemetry: svc, Gate: gate,
		AnswerTokens: int64(cfg.Budgets.AnswerTokens), AllowUnpriced: cfg.Budgets.Unpriced == string(limit.Allow),
		Limits: proxy.Limits{Calls: cfg.Proxy.MaxCalls, Upstream: upstream.Limits{Stream: cfg.Proxy.StreamTimeout}},
		Memory: proxy.AgentMemory{URL: strings.TrimRight(cfg.Proxy.Memory.URL, "/"), Keys: cfg.Proxy.Memory.Keys,
			Wait: cfg.Proxy.Memory.Wait, Transport: asCaller(a, svc, "webmemory")},
	}
	var prices atomic.Pointer[price.Table]
	p.Prices = prices.Load
	if err := a.reloads.live(cfg, func(next config.Config) (func(), error) {
		table, err := price.New(next.OwnPrices())
		return func() { prices.Store(table) }, err
	}); err != nil {
		return "", err
	}
	for name, b := range cfg.Proxy.Backends {
		backend := backendConfig(b)
		if backend.CLI, err = copilotCLI(cfg, name, b); err != nil {
			return "", err
		}
		p.Backends[name] = backend
	}
	p.Routes = map[string]proxy.RouteConfig{}
	for name, r := range cfg.Proxy.Routes {
		route := proxy.RouteConfig{Use: r.Use, Keys: map[string][]proxy.Key{}}
		for backend, keys := range r.Keys {
			for _, key := range keys {
				route.Keys[backend] = append(route.Keys[backend], proxy.Key{Name: key.Name, Value: key.Reveal()})
			}
		}
		p.Routes[name] = route
	}
	if gate != nil {
		p.Secrets = append(p.Secrets, gate.Secret)
	}
	server, err := proxy.New(p, svc.Log)
	if err != nil {
		return "", err
	}
	a.push("gateway", server.Close)
	a.started = append(a.started, server.LogBackends)
	var shutdown func(context.Context) error
	h := a.guarded(cfg, server.Handler(), refuseCall, svc)
	shutdown = a.serve("proxy", svc, l, h, cfg.DrainTimeout, func(ctx context.Context) error {
		server.Drain()
		_ = shutdown(ctx) // answers of models have the time that runs have; what is left is closed behind this
		return nil
	})
	a.addrs.Proxy = l.Addr().String()
	return a.url(l), nil
}

// backendConfig converts b for the gateway, without the CLI of a copilot backend.
func backendConfig(b config.Backend) proxy.BackendConfig {
	out := proxy.BackendConfig{
		Kind: b.Kind, Vendor: b.Vendor, BaseURL: b.BaseURL, Auth: upstream.Auth(b.Auth), APIKey: b.APIKeyEnv.Reveal(),
		KeyName: b.APIKeyEnv.Name, ModelMap: b.ModelMap, Models: b.Models, ProviderBackend: b.ProviderBackend,
		PassRun: b.PassRun,
		Thinking: proxy.ThinkingConfig{BudgetTokens: int64(b.Thinking.BudgetTokens),
			Unproven: thinking.Unproven(b.Thinking.Unproven)},
	}
	if b.Profile != nil {
		out.Profile = b.Profile.Overrides
	}
	return out
}

// copilotCLI says where a backend has its CLI. One that the gateway runs gets a
// folder of its own, where it works and keeps what was said.
func copilotCLI(cfg config.Config, name string, b config.Backend) (copilot.SupervisorConfig, error) {
	c := copilot.SupervisorConfig{Addr: b.Addr}
	if len(b.Command) == 0 {
		return c, nil
	}
	program, err := exec.LookPath(b.Command[0])
	if err != nil {
		return c, fmt.Errorf("proxy.backends.%s.command: %w; install the Copilot CLI, or give its whole path", name, err)
	}
	run := &copilot.Command{Args: b.Command[1:], Env: slices.Clone(b.CommandEnv)}
	run.Dir = filepath.Join(cfg.DataDir, "copilot", name)
	if err := os.MkdirAll(run.Dir, 0o700); err != nil {
		return c, fmt.Errorf("proxy.backends.%s.command: no folder for it: %w; check data_dir", name, err)
	}
	// It runs in that folder, from which relative paths would lead elsewhere.
	if run.Dir, err = filepath.Abs(run.Dir); err != nil {
		return c, err
	}
	if run.Path, err = filepath.Abs(program); err != nil {
		return c, err
	}
	if !slices.ContainsFunc(run.Env, func(v string) bool { return strings.HasPrefix(v, "COPILOT_HOME=") }) {
		run.Env = append(run.Env, "COPILOT_HOME="+filepath.Join(run.Dir, "home"))
	}
	c.Command = run
	return c, nil
}

// shared is what the gateway keeps in Redis. Alone and without one it keeps to
// itself: an embedded store is another process's.
func (a *app) shared(cfg config.Config, svc *telemetry.Service) (proxy.Shared, error) {
	if cfg.Redis.Embedded() && !a.together {
		return proxy.Shared{}, a.reloads.live(cfg, func(next config.Config) (func(), error) {
			if next.Limits.Any() {
				return nil, errors.New("limits need a store that all gateways share: set redis.url, or remove limits")
			}
			return func() {}, nil
		})
	}
	client, err := a.openRedis(cfg, svc.Often)
	if err != nil {
		return proxy.Shared{}, err
	}
	exists := func(name string) bool { return cfg.Proxy.First(name) != "" }
	turns := proxystore.TurnLimits{TTL: cfg.Proxy.StateMachine.TTL, Entries: cfg.Proxy.StateMachine.MaxTurns * 5 / 4}
	if cfg.Redis.Embedded() {
		turns.Bytes = 2 << 20 // it holds them in this process's memory
	}
	limiter := a.limits(cfg, client, svc.Often)
	svc.Counter("mneme_proxy_charges_restored_total",
		"Calls that Redis had lost, and that were charged and counted again.", limiter.Restored.Load)
	return proxy.Shared{
		Limiter: limiter,
		Audit:   audit.New(client),
		Turns:   proxystore.NewTurns(client, turns),
		Active:  proxystore.NewActive(client, cfg.Proxy.Active, exists, svc.Often),
		Owners:  proxystore.NewOwners(client, cfg.Proxy.StateMachine.TTL+time.Hour),
	}, nil
}

// limits is what bounds calls and runs, for the services of one process one.
func (a *app) limits(cfg config.Config, client redis.UniversalClient, log zerolog.Logger) *limit.Limiter {
	if a.limiter == nil {
		a.limiter = limit.New(client, limit.Options{
			Lease:    cfg.Budgets.Lease,
			Unclosed: limit.Unclosed(cfg.Budgets.Unclosed), OutagePolicy: limit.OutagePolicy(cfg.Budgets.WhenAway),
			AwayCalls: int64(cfg.Budgets.AwayCalls), Keep: cfg.Usage.Keep, Log: log,
		})
		_ = a.reloads.live(cfg, func(next config.Config) (func(), error) {
			bounds := limit.Bounds{
				Tenants: next.Limits.ForTenants(), EachOther: next.Limits.ForEachOther(), Users: next.Limits.ForUsers(),
			}
			return func() { limit.Bind(a.limiter, bounds) }, nil
		})
		a.push("limits", a.limiter.Close) // after the services, which charge what they still answer
	}
	return a.limiter
}

func (a *app) startApiserver(cfg config.Config, o Options) (string, error) {
	svc, gate, l, err := a.begin("apiserver", cfg, o, cfg.Apiserver.Listen, false)
	if err != nil {
		return "", err
	}
	gateway := a.ourClient(svc, "proxy")
	if err := cfg.RequireSecrets("mcp.", "retrieval."); err != nil {
		return "", err
	}
	library, err := a.library(cfg, gateway, svc)
	if err != nil {
		return "", err
	}
	box, err := a.tools(cfg, svc)
	if err != nil {
		return "", err
	}
	var now liveAgents
	if err := a.reloads.live(cfg, func(next config.Config) (func(), error) {
		if err := next.RequireSecrets("agents."); err != nil {
			return nil, err
		}
		next.Apiserver.Proxy = cfg.Apiserver.Proxy // that of this process, if it is in it
		agentSet, err := newAgents(next, gateway, library, box, svc.Log)
		return func() { now.Store(agentSet) }, err
	}); err != nil {
		return "", err
	}
	var embed func(ctx context.Context, texts []string) ([][]float32, error)
	if e := embedder(cfg, gateway); e != nil {
		embed = func(ctx context.Context, texts []string) ([][]float32, error) {
			return rag.EmbedApart(ctx, texts, e.Embed, func(string, error) {})
		}
	}
	server := apiserver.New(apiserver.Config{
		Embed: embed, Gate: gate, Traces: a.traces.Tracer("apiserver"),
		Advertise: cfg.Apiserver.Advertise, MaxRuns: cfg.Apiserver.MaxRuns, RunTimeout: cfg.RunTimeout, Documents: library,
		Telemetry: svc, Memory: a.ourClient(svc, "webmemory"), Tools: func() apiserver.Tools { return now.Load() },
		EraseConversation: func(ctx context.Context, id string) error {
			return openaimodel.EraseConversation(ctx, gateway, cfg.Apiserver.Proxy, id)
		},
		EraseTenant: func(ctx context.Context) (erased, remaining int, err error) {
			return openaimodel.EraseTenant(ctx, gateway, cfg.Apiserver.Proxy)
		},
		KeepConversation: func(ctx context.Context, id string, until time.Time) error {
			return openaimodel.KeepConversation(ctx, gateway, cfg.Apiserver.Proxy, id, until)
		},
	}, &now, func() []api.SubagentInfo { return now.Load().infos }, svc.Log)
	a.push("apiserver", server.Close)
	a.serve("apiserver", svc, l, a.guarded(cfg, server.Handler(), refuseRequest, svc), cfg.DrainTimeout, server.Drain)
	a.addrs.Apiserver = l.Addr().String()
	return a.url(l), nil
}

func (a *app) startWebmemory(cfg config.Config, o Options) error {
	svc, gate, l, err := a.begin("webmemory", cfg, o, cfg.Webmemory.Listen, true)
	if err != nil {
		return err
	}
	client, err := a.openRedis(cfg, svc.Often)
	if err != nil {
		return err
	}
	runs, err := api.NewClient(cfg.Webmemory.Apiserver, a.ourClient(svc, "apiserver"))
	if err != nil {
		return fmt.Errorf("webmemory.apiserver: %w", err)
	}
	var names atomic.Pointer[[]memory.Agent]
	_ = a.reloads.live(cfg, func(next config.Config) (func(), error) {
		agentNames := next.AgentNames()
		return func() { names.Store(&agentNames) }, nil
	})
	agents := func() []memory.Agent { return *names.Load() }
	w := webmemory.Config{
		ContextWindow: cfg.Webmemory.ContextWindow, SubagentContextWindow: cfg.Webmemory.SubagentContextWindow,
		MaxHistory: cfg.Webmemory.MaxHistory, MaxChats: cfg.Webmemory.MaxChats, RunTimeout: cfg.RunTimeout + time.Minute,
		KeepBytes:  int(cfg.Webmemory.FinishedBytes),
		QueueLimit: cfg.Webmemory.Queue.Limit, QueueWait: cfg.Webmemory.Queue.Wait,
		Agents: agents, Telemetry: svc, Traces: a.traces.Tracer("webmemory"), RecallVectors: cfg.Recall.Vectors,
		RecallEverywhere: cfg.Recall.Everywhere,
		VectorWeight:     cfg.Retrieval.VectorWeight,
		Gate:             gate, Keys: a.keys, Usage: tally.New(client, cfg.Usage.Keep), Audit: audit.New(client),
		DialTLS:     a.dialTLS(),
		Limiter:     a.limits(cfg, client, svc.Often),
		EraseLimits: func(ctx context.Context, tenant memory.Tenant) error { return limit.Erase(ctx, client, tenant) },
	}
	svc.MustRegister(&keyUses{keys: a.keys, limiter: w.Limiter})
	if err := cfg.RequireSecrets("approvals.webhook."); err != nil {
		return err
	}
	w.Webhook = webmemory.Webhook{URL: cfg.Approvals.Webhook.URL, Secret: cfg.Approvals.Webhook.SecretEnv.Reveal()}
	if cfg.SessionLogs {
		w.SessionLogs = filepath.Join(cfg.DataDir, "logs", "memory_sessions")
	}
	w.SelfURL = strings.TrimRight(cmp.Or(cfg.Webmemory.Advertise, a.url(l)), "/")
	if !cfg.Redis.Embedded() { // no other process can use an embedded store
		w.Advertise = cmp.Or(cfg.Webmemory.Advertise, a.advertised(l, cfg.Redis))
		w.SelfURL = strings.TrimRight(w.Advertise, "/")
		w.EndStoreDir = filepath.Join(cfg.DataDir, "ends")
		adviseReplicas(cfg.Redis, svc.Log)
	}
	if w.Erasures, err = erasures.Open(filepath.Join(cfg.DataDir, "erasures.ndjson")); err != nil {
		return fmt.Errorf("reading what was erased: %w; check data_dir", err)
	}
	if w.Cuts, err = erasures.Open(filepath.Join(cfg.DataDir, "cuts.ndjson")); err != nil {
		return fmt.Errorf("reading what was changed by hand: %w; check data_dir", err)
	}
	store := a.store(client, svc.Log)
	store.WaitReplicas, store.ListShards, store.LossLog = cfg.Redis.WaitReplicas, cfg.Redis.ListShards, svc.Often
	if gate != nil {
		store.Secret = gate.Secret
	}
	retention := cfg.Webmemory.Archive
	store.Archive = redisstore.Archive{Off: !retention.Enabled, MaxMessages: retention.MaxMessages,
		MaxAge: retention.MaxAge}
	if cfg.Redis.Embedded() {
		store.Compact = a.embedded.Compact
		if err := store.Turns.ReleaseAll(a.ctx); err != nil {
			svc.Log.Warn().Err(err).Msg("chats in which a process before this one was at work wait until its lease runs out")
		}
	}
	appends, err := spool.Open(filepath.Join(cfg.DataDir, "spool"), spool.Options{}, svc.Often)
	if err != nil {
		return fmt.Errorf("%w; check data_dir", err)
	}
	a.push("spool", appends.Close)
	own, err := newSelfClient(svc, gate)
	if err != nil {
		return err
	}
	tools := a.mcpServer(own.Client, svc)
	w.MCP = tools
	closeCompletions := func() {}
	if cfg.OpenAI.Enabled {
		c := completions(cfg, agents, own.Client, asCaller(a, svc, "proxy"), svc)
		w.OpenAI, w.UI, closeCompletions = c, uistream.New(c), c.Close
	}
	if w.Cold, err = a.openCold(cfg, store, svc.Log); err != nil {
		return err
	}
	server := webmemory.New(w, store, cache.New(store, int(cfg.Webmemory.CacheBytes)), appends, runs, svc.Log)
	a.push("webmemory", func() error { server.Close(); return nil })
	own.serve(server.Handler())
	if a.together { // for the gateway, which has begun before it
		stop := a.hosts.Serve(selfHost, server.Handler())
		a.push("webmemory for the gateway", func() error { return stop(context.Background()) })
	}
	h := a.guarded(cfg, server.Handler(), refuseRequest, svc)
	a.serve("webmemory", svc, l, h, cfg.DrainTimeout, func(ctx context.Context) error {
		server.Drain(ctx)
		tools.Close()
		closeCompletions()
		return nil
	})
	a.addrs.Webmemory = l.Addr().String()
	return nil
}
