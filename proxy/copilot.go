package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"mneme/proxy/copilot"
	"mneme/proxy/copilot/chat"
	"mneme/proxy/offline"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// copilotTeammate is the route by which the model calls of a Copilot CLI come back
// to this gateway. Its backend is fixed and no copilot itself, so they cannot go
// round in circles.
const copilotTeammate = "copilot"

// CLIConfig says where a backend of kind copilot has its CLI: Addr or Command.
type CLIConfig struct {
	Addr string // host:port of a CLI that runs already; its connection token is APIKey
	// Command runs a CLI: the program and what stands before the arguments that
	// make it a server. It gets Env and the settings that point it at this gateway.
	Command []string
	Env     []string // NAME=value
	Dir     string   // that it runs in; empty: this process's
	// ProviderBackend answers the CLI's own model calls.
	ProviderBackend string
}

func (c CLIConfig) given() bool {
	return c.Addr != "" || len(c.Command) > 0 || c.ProviderBackend != ""
}

// cliFaults are sentences that begin with the key inside a backend of kind copilot.
func (b BackendConfig) cliFaults() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if b.BaseURL != "" {
		add("base_url must be left out for kind copilot: addr or command says where the CLI is, and its model calls go to " +
			"provider_backend")
	}
	switch {
	case b.CLI.Addr == "" && len(b.CLI.Command) == 0:
		add("addr is missing: give the host:port of a Copilot CLI that runs with --headless, or a command that runs one")
	case b.CLI.Addr != "" && len(b.CLI.Command) > 0:
		add("command is set beside addr: keep one of them")
	case b.CLI.Addr != "":
		if host, port, err := net.SplitHostPort(b.CLI.Addr); err != nil || host == "" || port == "" {
			add("addr must be host:port, such as 127.0.0.1:4321, not %q", b.CLI.Addr)
		}
	case b.CLI.Command[0] == "":
		add("command names no program")
	case b.APIKey != "":
		add("api_key_env must be left out beside command: a CLI that the gateway runs gets a token of its own")
	}
	if b.Auth != "" {
		add("auth must be left out for kind copilot: the token of api_key_env is presented if there is one")
	}
	if b.Vendor != "" {
		add("vendor must be left out for kind copilot: the rules are those of provider_backend")
	}
	return out
}

// copilots are the backends of kind copilot, by name.
func (c Config) copilots() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		if c.Backends[name].Kind == KindCopilot {
			names = append(names, name)
		}
	}
	return names
}

// providerBackend answers the model calls of all CLIs; empty without any.
func (c Config) providerBackend() string {
	for _, name := range c.copilots() {
		return c.Backends[name].CLI.ProviderBackend
	}
	return ""
}

// copilotFaults are those of the gateway as a whole.
func (c Config) copilotFaults() (faults []error) {
	names := c.copilots()
	if len(names) == 0 {
		return nil
	}
	if _, taken := c.Teammates[copilotTeammate]; taken {
		faults = append(faults,
			fmt.Errorf("proxy.teammates.%s: the name is taken by the model calls of the Copilot CLI (backend %q): choose "+
				"another one for the subagent", copilotTeammate, names[0]))
	}
	if u, err := url.Parse(c.SelfURL); err != nil || u.Host == "" {
		faults = append(faults,
			fmt.Errorf("proxy.advertise must be the URL under which the Copilot CLI reaches this gateway, not %q", c.SelfURL))
	}
	for _, name := range names {
		key, provider := "proxy.backends."+name+".provider_backend", c.Backends[name].CLI.ProviderBackend
		if err := c.named(key, provider); err != nil {
			faults = append(faults, err)
			continue
		}
		switch b := c.Backends[provider]; {
		case b.Kind == KindCopilot:
			faults = append(faults,
				fmt.Errorf("%s names %q, which is of kind copilot too: the CLI's model calls would go round in circles", key,
					provider))
		case b.Auth == upstream.AuthPassthrough:
			faults = append(faults,
				fmt.Errorf("%s names %q, whose auth is passthrough: the CLI has no caller's credential to pass on", key, provider))
		case provider != c.providerBackend():
			faults = append(faults,
				fmt.Errorf("%s names %q and that of %q names %q: all CLIs come back by one route, so it must be the same", key,
					provider, names[0], c.providerBackend()))
		}
	}
	return faults
}

// cli is what a backend of kind copilot runs on.
type cli struct {
	supervisor *copilot.Supervisor
	model      *chat.Model
	tenant     string // of its own model calls
}

// open makes the backend of that name.
func (s *Server) open(name string, b BackendConfig) (*backend, error) {
	limits := s.config.Limits.Upstream
	switch b.Kind {
	case KindOffline:
		return b.open(name, limits, offline.New())
	case KindCopilot:
	default:
		return b.open(name, limits, s.config.Transport)
	}
	cli, err := s.openCLI(name, b.CLI, b.APIKey)
	if err != nil {
		return nil, err
	}
	// The CLI repeats its model calls itself, and so does the backend that it makes
	// them to.
	limits.Retries = -1
	out, err := b.open(name, limits, cli.model)
	if err != nil {
		return nil, errors.Join(err, cli.model.Close())
	}
	out.cli = cli
	out.close = func() {
		if err := cli.model.Close(); err != nil {
			s.log.Warn().Err(err).Str("backend", name).Msg("the connection to the Copilot CLI did not end cleanly")
		}
	}
	s.seen.MustRegister(newCLICollector(name, cli))
	return out, nil
}

// openCLI begins to connect to a CLI.
func (s *Server) openCLI(name string, c CLIConfig, token string) (*cli, error) {
	log := s.log.With().Str("backend", name).Logger()
	base := strings.TrimRight(s.config.SelfURL, "/") + "/teammate/" + copilotTeammate + "/v1"
	config := copilot.SupervisorConfig{
		Addr: c.Addr, Router: copilot.RouterConfig{Token: token, Log: s.seen.Often.With().Str("backend", name).Logger()},
	}
	if len(c.Command) > 0 {
		// Offline: nothing but the model calls that come back here leaves the CLI.
		env := append(slices.Clone(c.Env), "COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL="+base, "COPILOT_MODEL="+name)
		config.Command = &copilot.Command{Path: c.Command[0], Args: c.Command[1:], Env: env, Dir: c.Dir}
	}
	supervisor, err := copilot.Supervise(config)
	if err != nil {
		return nil, fmt.Errorf("proxy.backends.%s: %w", name, err)
	}
	// A key that nobody else has keeps the CLI's own calls a tenant of their own.
	key := rand.Text()
	inner := tenant(http.Header{"X-Api-Key": {key}})
	model := chat.New(supervisor, chat.Config{
		BaseURL: base, APIKey: key, Owners: s.config.Shared.Owners, TTL: s.config.TurnsTTL, Log: log,
		Forget: func(ctx context.Context, session string) error { return s.ledger.Forget(ctx, inner, session) },
	})
	return &cli{supervisor, model, inner}, nil
}

// overHeader says, if it is true, that nobody goes on from the answer.
const overHeader = "X-Ag-Conversation-Over"

// inConversation tells a backend that keeps sessions whose conversation a call is.
func (x *Exchange) inConversation(ctx context.Context) context.Context {
	if x.backend.cli == nil {
		return ctx
	}
	return chat.In(ctx, chat.Scope{Tenant: x.scope.Tenant, Route: x.scope.Route, Conversation: x.scope.Conversation},
		x.minted, x.in.header.Get(overHeader) == "true")
}

// tellCLI tells the session whose model call this is how that ended: the CLI itself
// passes on neither the vendor's words nor its Retry-After.
func (s *Server) tellCLI(_ context.Context, x *Exchange) error {
	if !x.backend.once {
		return nil
	}
	var refusal *chat.Refusal
	if a := x.answer; a.refused() {
		status := a.status
		if status < 400 {
			status = 0 // the error itself says which
		}
		refusal = &chat.Refusal{Failure: wire.ReadFailure(status, a.whole), RetryAfter: a.header.Get("Retry-After")}
	}
	for _, b := range s.backends {
		if b.cli != nil && b.cli.tenant == x.scope.Tenant {
			b.cli.model.Heard(x.scope.Conversation, refusal)
		}
	}
	return nil
}

// eraseSessions forgets the sessions of a conversation.
func (s *Server) eraseSessions(ctx context.Context, tenant, conversation string) error {
	var all error
	for _, b := range s.backends {
		if b.cli != nil {
			all = errors.Join(all, b.cli.model.Erase(ctx, tenant, conversation))
		}
	}
	return all
}

var _ http.RoundTripper = (*chat.Model)(nil)

// cliCollector shows what a CLI's connection and sessions count.
type cliCollector struct {
	cli  *cli
	rows []cliRow
}

type cliRow struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(chat.Stats, copilot.Stats) float64
}

func newCLICollector(backend string, c *cli) cliCollector {
	out := cliCollector{cli: c}
	add := func(kind prometheus.ValueType, name, help string, labels prometheus.Labels,
		value func(chat.Stats, copilot.Stats) float64) {
		all := prometheus.Labels{"backend": backend}
		maps.Copy(all, labels)
		out.rows = append(out.rows, cliRow{prometheus.NewDesc("mneme_proxy_copilot_"+name, help, nil, all), kind, value})
	}
	const now, since = prometheus.GaugeValue, prometheus.CounterValue
	for state, value := range map[string]func(chat.Stats) int{
		"busy": func(s chat.Stats) int { return s.Busy }, "idle": func(s chat.Stats) int { return s.Idle },
		"parked": func(s chat.Stats) int { return s.Parked }, "dormant": func(s chat.Stats) int { return s.Dormant },
	} {
		add(now, "sessions", "Sessions of the Copilot CLI that conversations have, by what they do.", prometheus.Labels{
			"state": state,
		},
			func(s chat.Stats, _ copilot.Stats) float64 { return float64(value(s)) })
	}
	add(since, "replayed_total", "Requests whose earlier turns were told to a fresh session.", nil,
		func(s chat.Stats, _ copilot.Stats) float64 { return float64(s.Replayed) })
	add(now, "pending_calls", "Calls to the CLI that wait for their answer.", nil,
		func(_ chat.Stats, s copilot.Stats) float64 { return float64(s.RPC.Pending) })
	add(now, "queue_depth_max", "Most events that ever waited for one session.", nil,
		func(_ chat.Stats, s copilot.Stats) float64 { return float64(s.QueueDepth) })
	for what, value := range map[string]func(copilot.Stats) uint64{
		"coalesced": func(s copilot.Stats) uint64 { return s.Coalesced }, "filtered": func(s copilot.Stats) uint64 {
			return s.Filtered
		},
		"malformed": func(s copilot.Stats) uint64 { return s.Malformed }, "orphan": func(s copilot.Stats) uint64 {
			return s.Orphans
		},
	} {
		add(since, "events_total", "Events of the CLI that were not handed on as they came, by why.", prometheus.Labels{
			"what": what,
		},
			func(_ chat.Stats, s copilot.Stats) float64 { return float64(value(s)) })
	}
	for name, row := range map[string]struct {
		help  string
		value func(copilot.Stats) uint64
	}{
		"denied_tools_total": {"Uses of tools that were refused.", func(s copilot.Stats) uint64 { return s.Denied }},
		"slow_sessions_total": {"Sessions given up since their events were not read.", func(s copilot.Stats) uint64 {
			return s.Slow
		}},
		"redials_total": {"Connections to the CLI after the first.", func(s copilot.Stats) uint64 { return s.Redials }},
		"late_answers_total": {"Answers of the CLI that came when nobody waited any more.", func(s copilot.Stats) uint64 {
			return s.RPC.Late
		}},
		"frames_in_total":  {"Messages from the CLI.", func(s copilot.Stats) uint64 { return s.RPC.FramesIn }},
		"frames_out_total": {"Messages to the CLI.", func(s copilot.Stats) uint64 { return s.RPC.FramesOut }},
	} {
		add(since, name, row.help, nil, func(_ chat.Stats, s copilot.Stats) float64 { return float64(row.value(s)) })
	}
	return out
}

// Describe implements [prometheus.Collector].
func (c cliCollector) Describe(to chan<- *prometheus.Desc) {
	for _, row := range c.rows {
		to <- row.desc
	}
}

// Collect implements [prometheus.Collector].
func (c cliCollector) Collect(to chan<- prometheus.Metric) {
	model, connection := c.cli.model.Stats(), c.cli.supervisor.Stats()
	for _, row := range c.rows {
		to <- prometheus.MustNewConstMetric(row.desc, row.kind, row.value(model, connection))
	}
}
