package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

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

// cliFaults are sentences that begin with the key inside a backend of kind copilot.
func (b BackendConfig) cliFaults() []string {
	out := b.CLI.Faults()
	if b.BaseURL != "" {
		out = append(out, "base_url must be left out for kind copilot: addr or command says where the CLI is, and its model "+
			"calls go to provider_backend")
	}
	if b.CLI.Addr == "" && b.CLI.Command != nil && b.APIKey != "" {
		out = append(out,
			"api_key_env must be left out beside command: a CLI that the gateway runs gets a token of its own")
	}
	if b.Auth != "" {
		out = append(out,
			"auth must be left out for kind copilot: the token of api_key_env is presented if there is one")
	}
	if b.Vendor != "" {
		out = append(out, "vendor must be left out for kind copilot: the rules are those of provider_backend")
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
		return c.Backends[name].ProviderBackend
	}
	return ""
}

// copilotFaults are those of the gateway as a whole.
func (c Config) copilotFaults() (faults []error) {
	names := c.copilots()
	if len(names) == 0 {
		return nil
	}
	if _, ok := c.Teammates[copilotTeammate]; ok {
		faults = append(faults,
			fmt.Errorf("proxy.teammates.%s: the name is taken by the model calls of the Copilot CLI (backend %q): choose "+
				"another one for the subagent", copilotTeammate, names[0]))
	}
	if u, err := url.Parse(c.SelfURL); err != nil || u.Host == "" {
		faults = append(faults,
			fmt.Errorf("proxy.advertise must be the URL under which the Copilot CLI reaches this gateway, not %q", c.SelfURL))
	}
	for _, name := range names {
		key, provider := "proxy.backends."+name+".provider_backend", c.Backends[name].ProviderBackend
		if err := c.checkName(key, provider); err != nil {
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
	s.telemetry.MustRegister(chat.NewCollector(name, cli.model, cli.supervisor))
	return out, nil
}

// openCLI begins to connect to a CLI.
func (s *Server) openCLI(name string, config copilot.SupervisorConfig, token string) (*cli, error) {
	log := s.log.With().Str("backend", name).Logger()
	base := strings.TrimRight(s.config.SelfURL, "/") + "/teammate/" + copilotTeammate + "/v1"
	config.Router.Token, config.Router.Log = token, s.telemetry.Often.With().Str("backend", name).Logger()
	if config.Command != nil {
		command := *config.Command
		// Offline: nothing but the model calls that come back here leaves the CLI.
		command.Env = append(slices.Clone(command.Env), "COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL="+base,
			"COPILOT_MODEL="+name)
		config.Command = &command
	}
	supervisor, err := copilot.Supervise(config)
	if err != nil {
		return nil, fmt.Errorf("proxy.backends.%s: %w", name, err)
	}
	// A key of its own keeps the CLI's own calls a tenant of their own.
	key := rand.Text()
	inner := tenant(http.Header{"X-Api-Key": {key}})
	model := chat.New(supervisor, chat.Config{
		BaseURL: base, APIKey: key, Owners: s.config.Shared.Owners, TTL: s.config.TurnsTTL, Log: log,
		Forget: func(ctx context.Context, session string) error { return s.ledger.Forget(ctx, inner, session) },
	})
	return &cli{supervisor, model, inner}, nil
}

// overHeader says, if it is true, that no request goes on from the answer.
const overHeader = "X-Ag-Conversation-Over"

// inConversation tells a backend that keeps sessions which conversation a call belongs to.
func (x scopedRequest) inConversation(ctx context.Context) context.Context {
	if x.backend.cli == nil {
		return ctx
	}
	return chat.In(ctx, chat.Scope{Tenant: x.scope.Tenant, Route: x.scope.Route, Conversation: x.scope.Conversation},
		x.minted, x.in.header.Get(overHeader) == "true")
}

// tellCLI tells the session that made this model call how it ended: the CLI itself passes
// on neither the vendor's words nor its Retry-After.
func (s *Server) tellCLI(x *attempt) {
	if !x.backend.noRetry {
		return
	}
	var refusal *chat.Refusal
	if a := x.answer; a.refused() {
		refusal = &chat.Refusal{
			Failure: wire.ReadFailure(a.errorStatus(), a.content), RetryAfter: a.header.Get("Retry-After"),
		}
	}
	for _, b := range s.backends {
		if b.cli != nil && b.cli.tenant == x.scope.Tenant {
			b.cli.model.RecordRefusal(x.scope.Conversation, refusal)
		}
	}
}

// eraseSessions forgets the sessions of a conversation.
func (s *Server) eraseSessions(ctx context.Context, tenant, conversation string) error {
	var err error
	for _, b := range s.backends {
		if b.cli != nil {
			err = errors.Join(err, b.cli.model.Erase(ctx, tenant, conversation))
		}
	}
	return err
}

var _ http.RoundTripper = (*chat.Model)(nil)
