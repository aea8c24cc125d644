package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/fair"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	"mneme/proxy/copilot"
	"mneme/proxy/copilot/chat"
	"mneme/proxy/ledger"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// Kinds of backends.
const (
	KindAnthropic = "anthropic" // the messages dialect; base_url without /v1
	KindOpenAI    = "openai"    // chat completions; base_url with /v1
	KindResponses = "responses" // OpenAI's Responses; base_url with /v1
	// KindInteractions is Google's; base_url with /v1beta.
	KindInteractions = "interactions"

	KindOffline = "offline" // the extractive model inside this process
	KindCopilot = "copilot" // sessions of the GitHub Copilot CLI
)

// Config is the gateway's configuration. Its secrets are values already.
type Config struct {
	Active            string // the main pipeline's backend at the start
	TeammateBackend   string // of /teammate; empty: Active
	Teammates         map[string]string
	Backends          map[string]BackendConfig
	Routes            map[string]RouteConfig // Active, TeammateBackend and Teammates may name them, too
	EmbeddingsBackend string                 // empty: no embeddings
	Limits            Limits
	TurnsTTL          time.Duration // how long answered turns are kept after their last use; 24 h
	MaxTurns          int           // how many are kept of a conversation; 200
	TurnsWait         time.Duration // for Shared.Turns, at most, before a call and after it; 50 ms
	Stateless         bool          // conversations are not kept, only the turns in them
	Shared            Shared
	Prices            func() *price.Table // of models, by their vendors' names, at the moment; nil: none is known
	AnswerTokens      int64               // that bound an answer, where budgets hold and the request does not; 4096
	AllowUnpriced     bool                // models without a price cost nothing in a budget in USD; else they are refused
	Telemetry         *telemetry.Service  // what the gateway counts in; nil for one of its own

	// Transport reaches the backends of kind anthropic and openai; nil: each has a
	// pool of connections of its own.
	Transport http.RoundTripper
	// SelfURL is where a Copilot CLI reaches this gateway, with which it makes its
	// own model calls; needed for backends of kind copilot only.
	SelfURL string
	// Secrets are what else no answer may show, beside the backends' keys: anything
	// configured that is a credential.
	Secrets []string
	Gate    *access.Gate    // lets requests in; nil asks for no keys
	Traces  *tracing.Tracer // makes a span of each call of a model; nil makes none
	Memory  AgentMemory     // of agents that are not ours; without a URL none is kept
}

// Shared is what a gateway has in common with its replicas, and with itself after
// a restart. Without a part of it the gateway keeps to its own memory.
type Shared struct {
	Turns  ledger.Remote
	Active ActiveBackend
	Owners chat.Owners // of sessions of a Copilot CLI
	// Limiter admits the calls of keys, tenants and users that have limits, and counts what all calls took; without it no
	// call is limited, and they are counted for this process.
	Limiter *limit.Limiter
	// Audit keeps the callers that switched the backend.
	Audit *audit.Log
	Work  *fair.Places // places for reading and translating requests; nil: one per processor
}

// ActiveBackend names the main pipeline's backend.
type ActiveBackend interface {
	Name(ctx context.Context) string
	Use(ctx context.Context, name string) error
}

// BackendConfig describes one backend.
type BackendConfig struct {
	Kind     string
	Vendor   string // the vendor that sets its rules; empty: it is found out, see sanitize.VendorOf
	BaseURL  string
	Auth     upstream.Auth // empty: key if there is one, else none
	APIKey   string
	KeyName  string            // of the variable that holds APIKey, for the operator that must mend it; may be empty
	ModelMap map[string]string // see docs/gateway.md: an exact name, a family, "*"
	Models   []string          // that clients are shown; empty: the names in ModelMap, else what the vendor lists
	Thinking ThinkingConfig
	Profile  sanitize.Overrides // of the vendor's rules
	PassRun  bool               // it is told the ids of run and delegation: it is the operator's own server

	CLI             copilot.SupervisorConfig // of kind copilot; its token is APIKey
	ProviderBackend string                   // that answers the CLI's own model calls
}

// ThinkingConfig says how a backend of the messages dialect is asked to think.
type ThinkingConfig struct {
	// BudgetTokens is the most that a request may think where thinking has a budget;
	// a request that asks by an effort gets a share of it, see sanitize.BudgetOf. 0: no
	// bound, and chat clients' efforts are ignored where thinking has a budget.
	BudgetTokens int64
	// Unproven is what becomes of thinking in a request if it is unknown whether this
	// backend gave it; empty: thinking.Lazy.
	Unproven thinking.Unproven
}

// Limits bound requests. A zero value means its default.
type Limits struct {
	MaxBody  int64           // bytes of a request; 32 MiB
	Calls    int             // of models, at once; 4,096
	Client   time.Duration   // for a client to take one piece of an answer; 1 min
	Return   time.Duration   // without a failure of a backend, before conversations return to it; 1 min
	Upstream upstream.Limits // of calls to backends
}

func (l Limits) withDefaults() Limits {
	l.MaxBody = cmp.Or(l.MaxBody, 32<<20)
	l.Calls = cmp.Or(l.Calls, 4096)
	l.Client = cmp.Or(l.Client, time.Minute)
	l.Return = cmp.Or(l.Return, time.Minute)
	return l
}

var teammateName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// validate gives every fault of the configuration, each a sentence that names
// the key.
func (c Config) validate() error {
	faults := []error{c.checkName("proxy.active", c.Active), c.checkName("proxy.teammate_backend", c.teammateBackend())}
	for _, name := range slices.Sorted(maps.Keys(c.Teammates)) {
		if !teammateName.MatchString(name) {
			faults = append(faults, fmt.Errorf("proxy.teammates: %q is no subagent's name (1 to 64 characters of a-z 0-9 _ -)",
				name))
		}
		faults = append(faults, c.checkName("proxy.teammates."+name, c.Teammates[name]))
	}
	faults = append(faults, c.routeFaults()...)
	faults = append(faults, c.copilotFaults()...)
	if c.EmbeddingsBackend != "" {
		var err error
		if _, ok := c.Backends[c.EmbeddingsBackend]; !ok {
			err = c.checkName("proxy.embeddings_backend", c.EmbeddingsBackend)
		}
		if err == nil && c.Backends[c.EmbeddingsBackend].Kind != KindOpenAI {
			err = fmt.Errorf("proxy.embeddings_backend names %q, which is not of kind openai: only those have /v1/embeddings",
				c.EmbeddingsBackend)
		}
		faults = append(faults, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		for _, fault := range c.Backends[name].faults() {
			faults = append(faults, fmt.Errorf("proxy.backends.%s.%s", name, fault))
		}
	}
	return errors.Join(faults...)
}

func (c Config) teammateBackend() string { return cmp.Or(c.TeammateBackend, c.Active) }

// checkName finds fault with a name that is neither a backend's nor a route's.
func (c Config) checkName(key, backend string) error {
	if _, ok := c.Backends[backend]; ok {
		return nil
	}
	if _, ok := c.Routes[backend]; ok {
		return nil
	}
	if backend == "" {
		return fmt.Errorf("%s is empty: name one of proxy.backends (%s)", key, c.backendNames())
	}
	return fmt.Errorf("%s names %q, which is not in proxy.backends (%s)", key, backend, c.backendNames())
}

func (c Config) backendNames() string {
	if len(c.Backends) == 0 {
		return "there are none"
	}
	return strings.Join(slices.Sorted(maps.Keys(c.Backends)), ", ")
}

// faults are sentences that begin with the key inside the backend.
func (b BackendConfig) faults() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if b.Kind != KindCopilot && (b.CLI.Addr != "" || b.CLI.Command != nil || b.ProviderBackend != "") {
		add("addr, command and provider_backend are for kind copilot only")
	}
	if b.PassRun && !b.remote() {
		add("pass_run is for the kinds anthropic, openai, responses and interactions only")
	}
	switch b.Kind {
	case KindCopilot:
		out = append(out, b.cliFaults()...)
	case KindOffline:
		if b.BaseURL != "" {
			add("base_url must be left out: an offline backend is inside this process")
		}
	case KindAnthropic, KindOpenAI, KindResponses, KindInteractions:
		switch {
		case b.BaseURL == "":
			add("base_url is missing")
		case b.Kind == KindAnthropic && strings.HasSuffix(strings.TrimRight(b.BaseURL, "/"), "/v1"):
			add("base_url must not end in /v1 for kind anthropic, the gateway adds it")
		}
	default:
		add("kind must be anthropic, openai, responses, interactions, copilot or offline, not %q", b.Kind)
	}
	switch b.Auth {
	case "", upstream.AuthPassthrough, upstream.AuthNone:
	case upstream.AuthKey:
		if b.APIKey == "" {
			add("auth is key, but there is none: set api_key_env to the name of a variable that holds it")
		}
	default:
		add("auth must be key, passthrough or none, not %q", b.Auth)
	}
	if b.Vendor != "" && !slices.Contains(sanitize.Vendors(), b.Vendor) {
		add("vendor %q is not known: use one of %s, or leave it out", b.Vendor, strings.Join(sanitize.Vendors(), " "))
	}
	switch b.Thinking.Unproven {
	case "", thinking.Lazy, thinking.Text, thinking.Drop:
	default:
		add("thinking.unproven must be lazy, text or drop, not %q", b.Thinking.Unproven)
	}
	if err := b.Profile.Validate(); err != nil {
		add("profile.%v", err)
	}
	if n := b.Thinking.BudgetTokens; n != 0 && n < 1024 {
		add("thinking.budget_tokens must be at least 1024, or 0 for none, not %d", n)
	}
	if slices.Contains(b.Models, "") {
		add("models has an empty name")
	}
	for name, model := range b.ModelMap {
		if name == "" || model == "" {
			add("model_map has an empty name (%q: %q)", name, model)
		}
	}
	return out
}

// open makes the backend that b describes. Transport is nil for backends that are
// reached over the network.
func (b BackendConfig) open(name string, limits upstream.Limits, transport http.RoundTripper) (*backend, error) {
	c := upstream.Config{BaseURL: b.BaseURL, Auth: b.Auth, Key: b.APIKey, Limits: limits, Transport: transport}
	if c.Auth == "" {
		c.Auth = upstream.AuthNone
		if b.APIKey != "" {
			c.Auth = upstream.AuthKey
		}
	}
	out := &backend{
		name: name, config: b, dialect: wire.Messages, models: newModelMap(b.ModelMap),
		knowledge: new(knowledge), windows: b.newWindows(), lists: new(vendorLists),
		uncounted: new(atomic.Bool),
		local:     price.Local(b.BaseURL), resting: new(atomic.Int64), ill: new(atomic.Int64),
	}
	out.vendor, out.why, out.guessed = b.vendor()
	switch b.Kind {
	case KindOffline:
		c.BaseURL = "http://offline"
	case KindCopilot:
		c.BaseURL, c.Auth = "http://copilot", upstream.AuthNone // the key is the connection's
		out.dialect = wire.Chat
	case KindOpenAI:
		out.dialect = wire.Chat
	}
	out.speaks = cmp.Or(spokenBy[b.Kind], out.dialect)
	c.Judge = ofRequest
	c.Early = func(data []byte) (int, bool) { return early(out.speaks, data) }
	client, err := upstream.New(c)
	if err != nil {
		return nil, fmt.Errorf("proxy.backends.%s.%w", name, err)
	}
	out.Backend, out.close, out.circuitOpen = client, client.Close, client.Open
	if b.remote() {
		out.lists.get = client.Get
	}
	return out, nil
}

// remote reports whether the backend is a vendor's server.
func (b BackendConfig) remote() bool {
	return b.Kind == KindAnthropic || b.Kind == KindOpenAI || spokenBy[b.Kind] != ""
}

// spokenBy are the dialects that are spoken with the backends of a kind and held as messages.
var spokenBy = map[string]wire.Dialect{KindResponses: wire.Responses, KindInteractions: wire.Interactions}

// vendor is the vendor that sets a backend's rules, and why that is thought. Guessed:
// only its kind says it, so that a model's name says more.
func (b BackendConfig) vendor() (vendor, why string, guessed bool) {
	switch {
	case b.Kind == KindCopilot:
		return KindCopilot, "by its kind", false
	case b.Vendor != "":
		return b.Vendor, "by the configuration", false
	case b.Kind == KindOffline:
		return "generic", "by its kind", false
	}
	vendorName, why := sanitize.VendorOf(b.BaseURL, slices.Sorted(maps.Values(b.ModelMap)))
	if vendorName != "" {
		if vendor := inDialect(b.Kind, vendorName); vendor != "" {
			return vendor, why, false
		}
	}
	return inDialect(b.Kind, ""), fmt.Sprintf("by the kind %s, since %s", b.Kind, why), true
}

// inDialect is the vendor with the rules that hold at a backend of a kind: platforms
// serve Claude in the messages dialect by Anthropic's rules, and other models as chat
// completions. Without a vendor it is the kind's own; it is empty where the vendor does
// not speak the kind's dialect.
func inDialect(kind, vendor string) string {
	messages := kind == KindAnthropic
	switch vendor {
	case "":
		if messages {
			return "anthropic"
		}
		return "generic"
	case "anthropic", "bedrock":
		if !messages {
			return "generic"
		}
	case "azure", "gemini":
		if messages {
			return "anthropic"
		}
	case "openai", "groq", "cerebras", "mistral", "xai":
		if messages {
			return ""
		}
	}
	return vendor
}
