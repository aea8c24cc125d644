package config

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mneme/access"
	"mneme/cmd/mneme/internal/crossorigin"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/openaimodel"
	"mneme/subagent/panel"
	"mneme/subagent/rag"
	"mneme/subagent/recall"
)

// Validate says the first thing that is wrong with a complete configuration,
// naming its place if Load read it from one.
func (c Config) Validate() error { return c.validate(false) }

func (c Config) validate(gatewayAlone bool) error {
	err := cmp.Or(
		c.validateCommon(),
		c.HTTP.validate(),
		c.TLS.validate(),
		c.Auth.validate(),
		c.Redis.validate(),
		c.Webmemory.validate(),
		c.Apiserver.validate(),
		c.Proxy.validate(c.teammates(), gatewayAlone),
		c.Retrieval.validate(),
		c.Recall.validate(),
		c.Notes.validate(),
		c.Agents.validate(),
		c.Panel.validate(c.Agents.Subagents),
		c.validatePanelTime(),
		c.validateTools(),
		c.OpenAI.validate(),
		c.Limits.validate(),
		c.Budgets.validate(),
		c.Usage.validate(),
		c.validatePrices(),
		c.validateOrigins(),
	)
	if err == nil && c.Limits.BoundsMoney() {
		err = c.RequirePrices(gatewayAlone)
	}
	return c.origin.locate(err)
}

func (c Config) validateCommon() error {
	return cmp.Or(
		filled("data_dir", c.DataDir),
		positive("run_timeout", c.RunTimeout),
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "auto", "console", "json"),
	)
}

func (h HTTP) validate() error {
	return cmp.Or(
		positive("http.body_timeout", h.BodyTimeout),
		each("http.allowed_hosts", h.AllowedHosts, normal(crossorigin.Host)),
		each("http.allowed_origins", h.AllowedOrigins, normal(crossorigin.Origin)),
	)
}

func (a Auth) validate() error {
	return cmp.Or(
		oneOf("auth.mode", a.Mode, "", AuthKeys, AuthNone),
		when(a.KeysFile != "" && a.Mode != AuthKeys, "auth.keys_file",
			"nobody is asked for a key; set auth.mode: keys, or remove it"),
		when(a.InternalSecret != "" && len(a.InternalSecret) < access.LeastSecret, "auth.internal_secret_file",
			"%s holds fewer than %d characters; give it random ones, such as those of openssl rand -hex 32", SecretVar,
			access.LeastSecret),
	)
}

// RequireAuth refuses a service that others can reach and that does not authenticate callers.
// key is the setting of its address.
func (c Config) RequireAuth(key, listen string) error {
	if c.Auth.Mode != "" || onLoopback(listen) {
		return nil
	}
	return c.origin.locate(bad(key, "%s can be reached from other machines, and nobody would be asked who he is: set "+
		"auth.mode: keys (MNEME_AUTH_MODE=keys) and make keys with mneme keys create, or, if something in front keeps "+
		"strangers out, say so with auth.mode: none (MNEME_AUTH_MODE=none)", listen))
}

// onLoopback says whether an address is of this machine alone.
func onLoopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	if host == "" {
		return false // all addresses
	}
	a, err := net.ResolveIPAddr("ip", host)
	return err == nil && a.IP.IsLoopback()
}

// normal makes a check of a function that brings a value into its normal form.
func normal(form func(string) (string, error)) func(key, value string) error {
	return func(key, value string) error {
		_, err := form(value)
		return when(err != nil, key, "%v", err)
	}
}

// validateOrigins refuses a secret that stands in the file.
func (c Config) validateOrigins() error {
	u, err := url.Parse(c.Redis.URL)
	if err != nil {
		return nil // Redis.validate has refused it
	}
	_, inFile := u.User.Password()
	return when(inFile && c.origin.vars["redis.url"] == "", "redis.url",
		"a password does not belong in the file; name its variable in redis.password_env, or give the whole URL in "+
			"MNEME_REDIS_URL")
}

func (r Redis) validate() error {
	u, err := url.Parse(r.URL)
	return cmp.Or(
		optional(address, "redis.embedded_listen", r.EmbeddedListen),
		notNegative("redis.wait_replicas", r.WaitReplicas),
		variable("redis.password_env", r.PasswordEnv, r.Password != ""),
		each("redis.addrs", r.Addrs, address),
		when(r.URL != "" && len(r.Addrs) > 0, "redis.addrs", "redis.url is set too; keep one of them"),
		when(r.MasterName != "" && len(r.Addrs) == 0, "redis.master_name",
			"Sentinel needs redis.addrs, the addresses of the sentinels"),
		when(r.WaitReplicas > 0 && r.Embedded(), "redis.wait_replicas",
			"the embedded store has no replicas; remove it, or set redis.url or redis.addrs"),
		when(r.PasswordEnv != "" && r.Embedded(), "redis.password_env",
			"the embedded store has no password; set redis.url or redis.addrs"),
		when(r.PasswordEnv != "" && r.Password == "", "redis.password_env",
			"the environment variable %s is not set; export the password in it", r.PasswordEnv),
		// The value is not repeated: it may hold a password.
		when(r.URL != "" && (err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) ||
			u.Host == "" && u.Scheme != "unix"), "redis.url",
			"redis://host:6379, rediss://host:6379 or unix:///path is needed; leave it empty for the embedded store"),
	)
}

func (w Webmemory) validate() error {
	return cmp.Or(
		optional(baseURL, "webmemory.advertise", w.Advertise),
		address("webmemory.listen", w.Listen),
		baseURL("webmemory.apiserver", w.Apiserver),
		notNegative("webmemory.max_history", w.MaxHistory),
		notNegative("webmemory.archive.max_messages", w.Archive.MaxMessages),
		when(w.Archive.MaxAge < 0, "webmemory.archive.max_age", "must be 0 or more, is %s", w.Archive.MaxAge),
		positive("webmemory.context_window", w.ContextWindow),
		positive("webmemory.subagent_context_window", w.SubagentContextWindow),
		w.fits("webmemory.context_window", w.ContextWindow),
		w.fits("webmemory.subagent_context_window", w.SubagentContextWindow),
		positive("webmemory.max_chats", w.MaxChats),
		positive("webmemory.cache_bytes", w.CacheBytes),
		positive("webmemory.finished_bytes", w.FinishedBytes),
		positive("webmemory.queue.limit", w.Queue.Limit),
		positive("webmemory.queue.wait", w.Queue.Wait),
	)
}

// fits refuses a window of messages that are not kept.
func (w Webmemory) fits(key string, window int) error {
	return when(w.MaxHistory != 0 && window > w.MaxHistory, key,
		"%d messages are more than webmemory.max_history keeps (%d); lower it, or raise max_history", window, w.MaxHistory)
}

func (a Apiserver) validate() error {
	return cmp.Or(
		address("apiserver.listen", a.Listen),
		baseURL("apiserver.proxy", a.Proxy),
		positive("apiserver.max_runs", a.MaxRuns),
		optional(baseURL, "apiserver.advertise", a.Advertise),
	)
}

// teammates are the names that have a route of their own at the gateway.
func (c Config) teammates() []string {
	var names []string
	for _, s := range c.Agents.Subagents {
		names = append(names, s.Name)
	}
	for _, m := range c.Panel.Members {
		names = append(names, m.Name)
	}
	if m := c.Panel.Moderator.Name; m != "" && !slices.Contains(names, m) {
		names = append(names, m)
	}
	return names
}

func (p Proxy) validate(teammates []string, alone bool) error {
	if err := cmp.Or(
		address("proxy.listen", p.Listen),
		positive("proxy.max_calls", p.MaxCalls),
		positive("proxy.state_machine.ttl", p.StateMachine.TTL),
		positive("proxy.state_machine.max_turns", p.StateMachine.MaxTurns),
		positive("proxy.state_machine.wait", p.StateMachine.Wait),
	); err != nil {
		return err
	}
	for name, b := range sorted(p.Backends) {
		if err := cmp.Or(b.validate(join("proxy.backends", name)), p.validateCopilot(name, b, teammates)); err != nil {
			return err
		}
	}
	if err := cmp.Or(
		optional(baseURL, "proxy.advertise", p.Advertise),
		when(p.Active == "", "proxy.active", "several backends are configured; name the one for the main pipeline: %s",
			p.names()),
	); err != nil {
		return err
	}
	for name, backend := range sorted(p.Teammates) {
		key := join("proxy.teammates", name)
		if err := cmp.Or(
			when(!alone && !slices.Contains(teammates, name), key, "there is no subagent %q; there are: %s", name,
				strings.Join(teammates, ", ")),
			agentName(key, "a subagent's name", name),
			p.leads(key, backend),
		); err != nil {
			return err
		}
	}
	for name, r := range sorted(p.Routes) {
		if err := p.validateRoute(name, r); err != nil {
			return err
		}
	}
	kind := p.Backends[p.EmbeddingsBackend].Kind
	return cmp.Or(
		optional(p.has, "proxy.embeddings_backend", p.EmbeddingsBackend),
		when(p.EmbeddingsBackend != "" && kind != KindOpenAI, "proxy.embeddings_backend",
			"backend %q is of kind %s; embeddings need one of kind %s", p.EmbeddingsBackend, kind, KindOpenAI),
		p.leads("proxy.active", p.Active),
		p.leads("proxy.teammate_backend", p.TeammateBackend),
	)
}

func (p Proxy) validateRoute(name string, r Route) error {
	key := join("proxy.routes", name)
	_, taken := p.Backends[name]
	if err := cmp.Or(
		when(taken, key, "a backend has this name; choose another one for the route"),
		when(len(r.Use) == 0, key+".use", "is missing; name the backends that answer, the first choice first, of: %s",
			p.names()),
	); err != nil {
		return err
	}
	for i, backend := range r.Use {
		twice := slices.Contains(r.Use[:i], backend)
		if err := cmp.Or(p.has(key+".use", backend),
			when(twice, key+".use", "backend %q is named twice; remove one", backend)); err != nil {
			return err
		}
	}
	for backend, keys := range sorted(r.Keys) {
		at := key + ".keys." + backend
		b := p.Backends[backend]
		if err := cmp.Or(
			when(!slices.Contains(r.Use, backend), at, "the route does not use backend %q; add it to use, or remove its keys",
				backend),
			when(b.Kind == KindCopilot || b.Kind == KindOffline || b.Auth != "" && b.Auth != "key", at,
				"backend %q takes no key of ours (its kind or its auth); remove its keys", backend),
			when(len(keys) == 0, at, "is empty; name the variables that hold the keys, or remove it"),
		); err != nil {
			return err
		}
		for _, name := range keys {
			if err := cmp.Or(when(name == "", at, "the name of a variable is empty; remove it"),
				variable(at, name, r.Values[name] != "")); err != nil {
				return err
			}
		}
	}
	return nil
}

// leads checks the name of a backend or a route.
func (p Proxy) leads(key, name string) error {
	if _, ok := p.Routes[name]; ok {
		return nil
	}
	return p.has(key, name)
}

// First is the backend that a name leads to, a route's first choice; empty if there is neither backend nor route.
func (p Proxy) First(name string) string {
	if _, ok := p.Backends[name]; ok {
		return name
	}
	for _, first := range p.Routes[name].Use {
		return first
	}
	return ""
}

// leadsTo says whether requests for a backend or a route may come to a backend.
func (p Proxy) leadsTo(name, backend string) bool {
	return name == backend || slices.Contains(p.Routes[name].Use, backend)
}

func (p Proxy) has(key, backend string) error {
	_, ok := p.Backends[backend]
	return when(!ok, key, "there is no backend %q; proxy.backends has: %s", backend, p.names())
}

func (p Proxy) names() string { return strings.Join(slices.Sorted(maps.Keys(p.Backends)), ", ") }

func (b Backend) validate(key string) error {
	err := cmp.Or(
		when(b.Kind == "", key+".kind", "is missing; it is %s, %s, %s, %s or %s", KindAnthropic, KindOpenAI,
			KindResponses, KindCopilot, KindOffline),
		oneOf(key+".kind", b.Kind, KindAnthropic, KindOpenAI, KindResponses, KindCopilot, KindOffline),
		variable(key+".api_key_env", b.APIKeyEnv, b.APIKey != ""),
	)
	if err != nil {
		return err
	}
	if b.PassRun && (b.Kind == KindCopilot || b.Kind == KindOffline) {
		return bad(key+".pass_run",
			"is for the kinds anthropic, openai and responses, which call somebody's server; remove it")
	}
	if b.Kind == KindCopilot {
		return b.validateCopilot(key)
	}
	const only = "is for kind %s only; remove it, or change kind"
	err = cmp.Or(
		when(b.Addr != "", key+".addr", only, KindCopilot),
		when(len(b.Command) > 0, key+".command", only, KindCopilot),
		when(b.ProviderBackend != "", key+".provider_backend", only, KindCopilot),
		when(slices.Contains(b.Models, ""), key+".models", "a model's name is empty; remove it"),
		oneOf(key+".auth", b.Auth, "", "key", "passthrough", "none"),
		when(b.Auth == "key" && b.APIKeyEnv == "", key+".api_key_env", "auth is key; name the variable that holds it"),
		notNegative(key+".thinking.budget_tokens", b.Thinking.BudgetTokens),
		oneOf(key+".thinking.unproven", b.Thinking.Unproven, "", "lazy", "text", "drop"),
	)
	if err != nil {
		return err
	}
	if b.Profile != nil {
		if err := b.Profile.Validate(); err != nil {
			return bad(key+".profile", "%v", err)
		}
	}
	if b.Kind == KindOffline {
		return b.validateOffline(key)
	}
	example := "https://api.anthropic.com"
	if b.Kind == KindOpenAI || b.Kind == KindResponses {
		example = "https://api.openai.com/v1"
	}
	return cmp.Or(
		when(b.Kind == KindResponses && b.Thinking.BudgetTokens != 0, key+".thinking.budget_tokens",
			"a backend of kind responses has no budget: there the request's effort decides; remove it"),
		when(b.Kind == KindOpenAI && b.Thinking != Thinking{}, key+".thinking",
			"a backend of kind openai has none: there the request's reasoning_effort decides; remove it"),
		when(b.BaseURL == "", key+".base_url", "is missing; a backend of kind %s needs the address of its API, such as %s",
			b.Kind, example),
		b.validateBaseURL(key+".base_url"),
	)
}

func (r Retrieval) validate() error {
	e := r.Embeddings
	return cmp.Or(
		when(strings.ContainsFunc(e.Model, unicode.IsSpace), "retrieval.embeddings.model",
			"a model's name without spaces is needed, not %q", e.Model),
		when(e.Model == "" && e.Dimensions != 0, "retrieval.embeddings.dimensions",
			"there is no model that they could be of; set retrieval.embeddings.model"),
		notNegative("retrieval.embeddings.dimensions", e.Dimensions),
		positive("retrieval.embeddings.batch_size", e.BatchSize),
		oneOf("retrieval.fusion", r.Fusion, string(rag.WeightedSum), string(rag.ReciprocalRanks)),
		// As none or as all, a share would leave out one of the two rankings.
		when(!(r.VectorWeight > 0 && r.VectorWeight < 1), "retrieval.vector_weight", "must be more than 0 and less "+
			"than 1, is %v; to search by words alone leave retrieval.embeddings.model empty", r.VectorWeight),
		r.Rerank.validate(),
		r.validateExtractors(),
	)
}

func (a Agents) validate() error {
	if err := cmp.Or(
		filled("agents.master.model", a.Master.Model),
		effort("agents.master.reasoning_effort", a.Master.ReasoningEffort),
		positive("agents.master.max_steps", a.Master.MaxSteps),
		contextTokens("agents.master.context_tokens", a.Master.ContextTokens),
		a.Master.Recall.validate("agents.master.recall"),
		a.Master.Notes.validate("agents.master.notes"),
		when(a.Master.System != "" && a.Master.SystemReplace != "", "agents.master.system_replace",
			"agents.master.system is set too, which adds to the built-in prompt; keep one of them"),
	); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, s := range a.Subagents {
		key := fmt.Sprintf("agents.subagents[%d]", i)
		if err := cmp.Or(
			when(seen[s.Name], key+".name", "there is a subagent %q already; every name stands once", s.Name),
			s.validate(key),
		); err != nil {
			return err
		}
		seen[s.Name] = true
	}
	return nil
}

func (s Subagent) validate(key string) error {
	return cmp.Or(
		agentName(key+".name", "a subagent's name", s.Name),
		when(s.Name == master.Version, key+".name", "%q is the master's own name; choose another", s.Name),
		when(slices.Contains(memoryTools, s.Name), key+".name",
			"%q is a tool of all agents, by which they reach their memory; choose another", s.Name),
		when(s.Description == "", key+".description", "is missing; it tells the master what to delegate to %s", s.Name),
		s.validateCollections(key),
		oneOf(key+".calls", s.Calls, event.Serial, event.Isolated),
		positive(key+".max_steps", s.MaxSteps),
		effort(key+".reasoning_effort", s.ReasoningEffort),
		temperature(key+".temperature", s.Temperature),
		notNegative(key+".max_tokens", s.MaxTokens),
		contextTokens(key+".context_tokens", s.ContextTokens),
		s.Recall.validate(key+".recall"),
		s.Notes.validate(key+".notes"),
	)
}

// memoryTools are names that no subagent may have, since the master has tools of these.
var memoryTools = []string{recall.ToolName, "remember"}

// agentName checks the name of what has a route of its own at the gateway.
func agentName(key, what, name string) error {
	_, err := memory.ParseAgent(name)
	return cmp.Or(
		when(name == "", key, "is missing; it is 1 to 64 characters of a-z 0-9 _ -"),
		when(err != nil, key, "%s is 1 to 64 characters of a-z 0-9 _ -, not %q", what, name),
	)
}

func effort(key, value string) error {
	return oneOf(key, value, "", openaimodel.EffortAuto, openaimodel.EffortNone, "minimal", "low", "medium", "high",
		"xhigh", "max")
}

func temperature(key string, value *float64) error {
	if value == nil || *value >= 0 && *value <= 2 {
		return nil
	}
	return bad(key, "must be from 0 to 2, is %v", *value)
}

// leastContext is the smallest context window in which an agent can work, in tokens.
const leastContext = 1024

func contextTokens(key string, n int) error {
	return when(n != 0 && n < leastContext, key,
		"must be at least %d, or 0 for what the gateway tells of the model, not %d", leastContext, n)
}

func (p Panel) validate(subagents []Subagent) error {
	err := cmp.Or(
		positive("panel.limit", p.Limit),
		positive("panel.timeout", p.Timeout),
		when(!p.On() && p.Commands, "panel.commands", "there is nothing to command; list the models under panel.members"),
		when(!p.On() && p.Moderator != Member{}, "panel.moderator",
			"there is nothing to moderate; list the models under panel.members"),
	)
	if err != nil || !p.On() {
		return err
	}
	for i, s := range subagents {
		if s.Name == string(panel.DiscussName) || s.Name == string(panel.EnsembleName) {
			return bad(fmt.Sprintf("agents.subagents[%d].name", i),
				"%q is the panel's; choose another name, or remove panel.members", s.Name)
		}
	}
	seen := map[string]bool{}
	for i, m := range p.Members {
		key := fmt.Sprintf("panel.members[%d]", i)
		if err := cmp.Or(
			m.validate(key, subagents),
			when(seen[m.Name], key+".name",
				"the panel has a member %q already; every name stands once, two may have the same model", m.Name),
		); err != nil {
			return err
		}
		seen[m.Name] = true
	}
	n := len(p.Members)
	return cmp.Or(
		when(n < panel.MinMembers || n > panel.MaxMembers, "panel.members",
			"a panel has %d to %d members, not %d; three are usual", panel.MinMembers, panel.MaxMembers, n),
		when(p.Moderator.Model == "", "panel.moderator.model",
			"is missing; only the name of a member may stand alone, and %q is none", p.Moderator.Name),
		p.Moderator.validate("panel.moderator", subagents),
	)
}

// validatePanelTime keeps one slow member from ending a whole run.
func (c Config) validatePanelTime() error {
	return when(c.Panel.On() && c.Panel.Timeout >= c.RunTimeout, "panel.timeout",
		"%v is not less than run_timeout (%v), so one slow model would end the whole run; lower it, or raise run_timeout",
		c.Panel.Timeout, c.RunTimeout)
}

func (m Member) validate(key string, subagents []Subagent) error {
	return cmp.Or(
		agentName(key+".name", "a member's name", m.Name),
		when(slices.ContainsFunc(subagents, func(s Subagent) bool { return s.Name == m.Name }), key+".name",
			"%q is a subagent, and they would share a place in proxy.teammates; choose another", m.Name),
	)
}

// What follows checks one value. A check that finds nothing gives nil, so that those of
// a block are listed in cmp.Or, which gives the first problem. All of them are evaluated.

// when is a problem of a key, if it is one.
func when(wrong bool, key, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return bad(key, format, args...)
}

// optional checks a value that may be left out.
func optional(check func(key, value string) error, key, value string) error {
	if value == "" {
		return nil
	}
	return check(key, value)
}

// each checks the values of a list.
func each(key string, values []string, check func(key, value string) error) error {
	for i, value := range values {
		if err := check(fmt.Sprintf("%s[%d]", key, i), value); err != nil {
			return err
		}
	}
	return nil
}

func address(key, value string) error {
	_, port, err := net.SplitHostPort(value)
	_, notANumber := strconv.ParseUint(port, 10, 16)
	return when(err != nil || notANumber != nil, key, "host:port is needed, such as 127.0.0.1:8080, not %q", value)
}

func baseURL(key, value string) error {
	u, err := url.Parse(value)
	return cmp.Or(
		when(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "", key,
			"an http:// or https:// URL is needed, not %q", value),
		when(err == nil && (u.RawQuery != "" || u.Fragment != "" || u.User != nil), key,
			"the URL may hold a host and a path only"),
	)
}

func oneOf(key, value string, options ...string) error {
	named := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "" })
	return when(!slices.Contains(options, value), key, "%q is none of: %s", value, strings.Join(named, ", "))
}

func filled(key, value string) error {
	return when(value == "", key, "may not be empty; remove the key for its default")
}

func positive[N int | int64 | time.Duration](key string, value N) error {
	return when(value <= 0, key, "must be more than 0, is %v", value)
}

func notNegative(key string, value int) error {
	return when(value < 0, key, "must be 0 or more, is %d", value)
}

// sorted walks a map in the order of its keys, so that the first error is
// always the same one.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
