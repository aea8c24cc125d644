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

	"mneme/cmd/mneme/internal/crossorigin"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/openaimodel"
	"mneme/subagent/panel"
	"mneme/subagent/rag"
)

// Validate says the first thing that is wrong with a complete configuration,
// naming its place if Load read it from one.
func (c Config) Validate() error {
	return c.origin.locate(cmp.Or(
		c.validateCommon(),
		c.HTTP.validate(),
		c.Redis.validate(),
		c.Webmemory.validate(),
		c.Apiserver.validate(),
		c.Proxy.validate(c.teammates()),
		c.Retrieval.validate(),
		c.Agents.validate(),
		c.Panel.validate(c.Agents.Subagents),
		c.validatePanelTime(),
		c.validateOrigins(),
	))
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
	if err := positive("http.body_timeout", h.BodyTimeout); err != nil {
		return err
	}
	for _, list := range []struct {
		key   string
		names []string
		check func(string) (string, error)
	}{{"http.allowed_hosts", h.AllowedHosts, crossorigin.Host},
		{"http.allowed_origins", h.AllowedOrigins, crossorigin.Origin}} {
		for i, name := range list.names {
			if _, err := list.check(name); err != nil {
				return bad(fmt.Sprintf("%s[%d]", list.key, i), "%v", err)
			}
		}
	}
	return nil
}

// validateOrigins refuses a secret that stands in the file.
func (c Config) validateOrigins() error {
	u, err := url.Parse(c.Redis.URL)
	if err != nil || c.origin.vars["redis.url"] != "" {
		return nil
	}
	if _, ok := u.User.Password(); ok {
		return bad("redis.url",
			"a password does not belong in the file; name its variable in redis.password_env, or give the whole URL in "+
				"MNEME_REDIS_URL")
	}
	return nil
}

func (r Redis) validate() error {
	if r.EmbeddedListen != "" {
		if err := address("redis.embedded_listen", r.EmbeddedListen); err != nil {
			return err
		}
	}
	if err := notNegative("redis.wait_replicas", r.WaitReplicas); err != nil {
		return err
	}
	if err := variable("redis.password_env", r.PasswordEnv, r.Password != ""); err != nil {
		return err
	}
	for i, node := range r.Addrs {
		if err := address(fmt.Sprintf("redis.addrs[%d]", i), node); err != nil {
			return err
		}
	}
	switch {
	case r.URL != "" && len(r.Addrs) > 0:
		return bad("redis.addrs", "redis.url is set too; keep one of them")
	case r.MasterName != "" && len(r.Addrs) == 0:
		return bad("redis.master_name", "Sentinel needs redis.addrs, the addresses of the sentinels")
	case r.WaitReplicas > 0 && r.Embedded():
		return bad("redis.wait_replicas", "the embedded store has no replicas; remove it, or set redis.url or redis.addrs")
	case r.PasswordEnv != "" && r.Embedded():
		return bad("redis.password_env", "the embedded store has no password; set redis.url or redis.addrs")
	case r.PasswordEnv != "" && r.Password == "":
		return bad("redis.password_env", "the environment variable %s is not set; export the password in it", r.PasswordEnv)
	case r.URL == "":
		return nil
	}
	u, err := url.Parse(r.URL)
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Host == "" &&
		u.Scheme != "unix" {
		// The value is not repeated: it may hold a password.
		return bad("redis.url",
			"redis://host:6379, rediss://host:6379 or unix:///path is needed; leave it empty for the embedded store")
	}
	return nil
}

func (w Webmemory) validate() error {
	if w.Advertise != "" {
		if err := baseURL("webmemory.advertise", w.Advertise); err != nil {
			return err
		}
	}
	return cmp.Or(
		address("webmemory.listen", w.Listen),
		baseURL("webmemory.apiserver", w.Apiserver),
		notNegative("webmemory.max_history", w.MaxHistory),
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
	if w.MaxHistory == 0 || window <= w.MaxHistory {
		return nil
	}
	return bad(key, "%d messages are more than webmemory.max_history keeps (%d); lower it, or raise max_history", window,
		w.MaxHistory)
}

func (a Apiserver) validate() error {
	err := cmp.Or(
		address("apiserver.listen", a.Listen),
		baseURL("apiserver.proxy", a.Proxy),
		positive("apiserver.max_runs", a.MaxRuns),
	)
	if err != nil {
		return err
	}
	if a.Advertise != "" {
		return baseURL("apiserver.advertise", a.Advertise)
	}
	return nil
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

func (p Proxy) validate(teammates []string) error {
	if err := cmp.Or(
		address("proxy.listen", p.Listen),
		positive("proxy.state_machine.ttl", p.StateMachine.TTL),
		positive("proxy.state_machine.max_turns", p.StateMachine.MaxTurns),
		positive("proxy.state_machine.wait", p.StateMachine.Wait),
	); err != nil {
		return err
	}
	for name, b := range sorted(p.Backends) {
		if err := b.validate(join("proxy.backends", name)); err != nil {
			return err
		}
		if b.Kind == KindCopilot {
			if err := p.validateCopilot(name, b, teammates); err != nil {
				return err
			}
		}
	}
	if p.Advertise != "" {
		if err := baseURL("proxy.advertise", p.Advertise); err != nil {
			return err
		}
	}
	if p.Active == "" {
		return bad("proxy.active", "several backends are configured; name the one for the main pipeline: %s", p.names())
	}
	for name, backend := range sorted(p.Teammates) {
		key := join("proxy.teammates", name)
		if !slices.Contains(teammates, name) {
			return bad(key, "there is no subagent %q; there are: %s", name, strings.Join(teammates, ", "))
		}
		if err := p.has(key, backend); err != nil {
			return err
		}
	}
	if p.EmbeddingsBackend != "" {
		if err := p.has("proxy.embeddings_backend", p.EmbeddingsBackend); err != nil {
			return err
		}
		if kind := p.Backends[p.EmbeddingsBackend].Kind; kind != KindOpenAI {
			return bad("proxy.embeddings_backend", "backend %q is of kind %s; embeddings need one of kind %s",
				p.EmbeddingsBackend, kind, KindOpenAI)
		}
	}
	return cmp.Or(p.has("proxy.active", p.Active), p.has("proxy.teammate_backend", p.TeammateBackend))
}

func (p Proxy) has(key, backend string) error {
	if _, ok := p.Backends[backend]; ok {
		return nil
	}
	return bad(key, "there is no backend %q; proxy.backends has: %s", backend, p.names())
}

func (p Proxy) names() string { return strings.Join(slices.Sorted(maps.Keys(p.Backends)), ", ") }

func (b Backend) validate(key string) error {
	if b.Kind == "" {
		return bad(key+".kind", "is missing; it is %s, %s, %s or %s", KindAnthropic, KindOpenAI, KindCopilot, KindOffline)
	}
	if err := oneOf(key+".kind", b.Kind, KindAnthropic, KindOpenAI, KindCopilot, KindOffline); err != nil {
		return err
	}
	if err := variable(key+".api_key_env", b.APIKeyEnv, b.APIKey != ""); err != nil {
		return err
	}
	if b.Kind == KindCopilot {
		return b.validateCopilot(key)
	}
	for _, only := range []struct {
		name string
		set  bool
	}{{"addr", b.Addr != ""}, {"command", len(b.Command) > 0}, {"provider_backend", b.ProviderBackend != ""}} {
		if only.set {
			return bad(key+"."+only.name, "is for kind %s only; remove it, or change kind", KindCopilot)
		}
	}
	if b.Auth != "" {
		if err := oneOf(key+".auth", b.Auth, "key", "passthrough", "none"); err != nil {
			return err
		}
	}
	if b.Auth == "key" && b.APIKeyEnv == "" {
		return bad(key+".api_key_env", "auth is key; name the variable that holds it")
	}
	if err := notNegative(key+".thinking.budget_tokens", b.Thinking.BudgetTokens); err != nil {
		return err
	}
	if err := oneOf(key+".thinking.unproven", b.Thinking.Unproven, "", "lazy", "text", "drop"); err != nil {
		return err
	}
	if b.Profile != nil {
		if err := b.Profile.Validate(); err != nil {
			return bad(key+".profile", "%v", err)
		}
	}
	switch {
	case b.Kind == KindOffline:
		return b.validateOffline(key)
	case b.Kind == KindOpenAI && b.Thinking != Thinking{}:
		return bad(key+".thinking",
			"a backend of kind openai has none: there the request's reasoning_effort decides; remove it")
	case b.BaseURL == "":
		return bad(key+".base_url", "is missing; a backend of kind %s needs the address of its API, such as %s", b.Kind,
			example(b.Kind))
	}
	return b.validateBaseURL(key + ".base_url")
}

func (r Retrieval) validate() error {
	e := r.Embeddings
	switch {
	case strings.ContainsFunc(e.Model, unicode.IsSpace):
		return bad("retrieval.embeddings.model", "a model's name without spaces is needed, not %q", e.Model)
	case e.Model == "" && e.Dimensions != 0:
		return bad("retrieval.embeddings.dimensions",
			"there is no model that they could be of; set retrieval.embeddings.model")
	}
	return cmp.Or(
		notNegative("retrieval.embeddings.dimensions", e.Dimensions),
		positive("retrieval.embeddings.batch_size", e.BatchSize),
		oneOf("retrieval.fusion", r.Fusion, string(rag.WeightedSum), string(rag.ReciprocalRanks)),
		share("retrieval.vector_weight", r.VectorWeight),
		r.Rerank.validate(),
		r.validateExtractors(),
	)
}

// share refuses what would leave out one of two rankings.
func share(key string, value float64) error {
	if value > 0 && value < 1 {
		return nil
	}
	return bad(key,
		"must be more than 0 and less than 1, is %v; to search by words alone leave retrieval.embeddings.model empty", value)
}

func example(kind string) string {
	if kind == KindOpenAI {
		return "https://api.openai.com/v1"
	}
	return "https://api.anthropic.com"
}

func (a Agents) validate() error {
	if err := cmp.Or(
		filled("agents.master.model", a.Master.Model),
		effort("agents.master.reasoning_effort", a.Master.ReasoningEffort),
		positive("agents.master.max_steps", a.Master.MaxSteps),
		contextTokens("agents.master.context_tokens", a.Master.ContextTokens),
	); err != nil {
		return err
	}
	if a.Master.System != "" && a.Master.SystemReplace != "" {
		return bad("agents.master.system_replace",
			"agents.master.system is set too, which adds to the built-in prompt; keep one of them")
	}
	seen := map[string]bool{}
	for i, s := range a.Subagents {
		key := fmt.Sprintf("agents.subagents[%d]", i)
		if seen[s.Name] {
			return bad(key+".name", "there is a subagent %q already; every name stands once", s.Name)
		}
		seen[s.Name] = true
		if err := s.validate(key); err != nil {
			return err
		}
	}
	return nil
}

func (s Subagent) validate(key string) error {
	if s.Name == "" {
		return bad(key+".name", "is missing; it is 1 to 64 characters of a-z 0-9 _ -")
	}
	if _, err := memory.ParseAgent(s.Name); err != nil {
		return bad(key+".name", "a subagent's name is 1 to 64 characters of a-z 0-9 _ -, not %q", s.Name)
	}
	if s.Name == master.Version {
		return bad(key+".name", "%q is the master's own name; choose another", master.Version)
	}
	if s.Description == "" {
		return bad(key+".description", "is missing; it tells the master what to delegate to %s", s.Name)
	}
	for i, tool := range s.Tools {
		if err := oneOf(fmt.Sprintf("%s.tools[%d]", key, i), tool, ToolCalculator, ToolDate, ToolDocuments); err != nil {
			return err
		}
		if slices.Contains(s.Tools[:i], tool) {
			return bad(fmt.Sprintf("%s.tools[%d]", key, i), "%q is listed twice; keep one", tool)
		}
	}
	return cmp.Or(
		s.validateCollections(key),
		oneOf(key+".calls", s.Calls, event.Serial, event.Isolated),
		positive(key+".max_steps", s.MaxSteps),
		effort(key+".reasoning_effort", s.ReasoningEffort),
		temperature(key+".temperature", s.Temperature),
		notNegative(key+".max_tokens", s.MaxTokens),
		contextTokens(key+".context_tokens", s.ContextTokens),
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
	if n == 0 || n >= leastContext {
		return nil
	}
	return bad(key, "must be at least %d, or 0 for what the gateway tells of the model, not %d", leastContext, n)
}

func (p Panel) validate(subagents []Subagent) error {
	if err := cmp.Or(positive("panel.limit", p.Limit), positive("panel.timeout", p.Timeout)); err != nil {
		return err
	}
	if !p.On() {
		if p.Commands {
			return bad("panel.commands", "there is nothing to command; list the models under panel.members")
		}
		if p.Moderator != (Member{}) {
			return bad("panel.moderator", "there is nothing to moderate; list the models under panel.members")
		}
		return nil
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
		if err := m.validate(key, subagents); err != nil {
			return err
		}
		if seen[m.Name] {
			return bad(key+".name", "the panel has a member %q already; every name stands once, two may have the same model",
				m.Name)
		}
		seen[m.Name] = true
	}
	if n := len(p.Members); n < panel.MinMembers || n > panel.MaxMembers {
		return bad("panel.members", "a panel has %d to %d members, not %d; three are usual", panel.MinMembers,
			panel.MaxMembers, n)
	}
	if p.Moderator.Model == "" {
		return bad("panel.moderator.model", "is missing; only the name of a member may stand alone, and %q is none",
			p.Moderator.Name)
	}
	return p.Moderator.validate("panel.moderator", subagents)
}

// validatePanelTime keeps one slow member from ending a whole run.
func (c Config) validatePanelTime() error {
	if c.Panel.On() && c.Panel.Timeout >= c.RunTimeout {
		return bad("panel.timeout",
			"%v is not less than run_timeout (%v), so one slow model would end the whole run; lower it, or raise run_timeout",
			c.Panel.Timeout, c.RunTimeout)
	}
	return nil
}

func (m Member) validate(key string, subagents []Subagent) error {
	if m.Name == "" {
		return bad(key+".name", "is missing; it is 1 to 64 characters of a-z 0-9 _ -")
	}
	if _, err := memory.ParseAgent(m.Name); err != nil {
		return bad(key+".name", "a member's name is 1 to 64 characters of a-z 0-9 _ -, not %q", m.Name)
	}
	if slices.ContainsFunc(subagents, func(s Subagent) bool { return s.Name == m.Name }) {
		return bad(key+".name", "%q is a subagent, and they would share a place in proxy.teammates; choose another", m.Name)
	}
	return nil
}

func address(key, value string) error {
	_, port, err := net.SplitHostPort(value)
	if n, numErr := strconv.Atoi(port); err != nil || numErr != nil || n < 0 || n > 65535 {
		return bad(key, "host:port is needed, such as 127.0.0.1:8080, not %q", value)
	}
	return nil
}

func baseURL(key, value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return bad(key, "an http:// or https:// URL is needed, not %q", value)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return bad(key, "the URL may hold a host and a path only")
	}
	return nil
}

func oneOf(key, value string, options ...string) error {
	if slices.Contains(options, value) {
		return nil
	}
	var named []string
	for _, o := range options {
		if o != "" {
			named = append(named, o)
		}
	}
	return bad(key, "%q is none of: %s", value, strings.Join(named, ", "))
}

func filled(key, value string) error {
	if value == "" {
		return bad(key, "may not be empty; remove the key for its default")
	}
	return nil
}

func positive[N int | int64 | time.Duration](key string, value N) error {
	if value > 0 {
		return nil
	}
	return bad(key, "must be more than 0, is %v", value)
}

func notNegative(key string, value int) error {
	if value >= 0 {
		return nil
	}
	return bad(key, "must be 0 or more, is %d", value)
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
