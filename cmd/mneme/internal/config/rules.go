package config

import (
	"cmp"
	"maps"
	"math/bits"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"mneme/access"
	"mneme/master"
	"mneme/subagent/panel"
	"mneme/subagent/recall"
)

// checked is a block that has rules beside those in the tags of its settings: what they need of each other.
type checked interface {
	check(key string, c Config) error
}

// validate says the first thing that is wrong with a complete configuration,
// naming its place if Load read it from one.
func (c Config) validate() error {
	return c.origin.locate(c.each(func(s setting) error {
		if err := s.checkTag(); err != nil {
			return err
		}
		if block, ok := s.value.Interface().(checked); ok && s.value.Kind() == reflect.Struct {
			return block.check(s.path, c)
		}
		empty := s.value.Kind() == reflect.Pointer && s.value.IsNil() && strings.HasSuffix(s.path, "]")
		return when(empty, s.path, "is empty; a name is needed, or a block of keys")
	}))
}

func (c Config) check(string, Config) error {
	err := cmp.Or(
		// One slow member must not end a whole run.
		when(c.Panel.On() && c.Panel.Timeout >= c.RunTimeout, "panel.timeout",
			"%v is not less than run_timeout (%v), so one slow model would end the whole run; lower it, or raise run_timeout",
			c.Panel.Timeout, c.RunTimeout),
		c.checkTools(),
		c.checkCleartext(),
	)
	if err == nil && c.Limits.boundsMoney() {
		err = c.RequirePrices(c.origin.gatewayOnly)
	}
	return err
}

func (a Auth) check(string, Config) error {
	return cmp.Or(
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

func (r Redis) check(_ string, c Config) error {
	u, err := url.Parse(r.URL)
	if err != nil {
		u = &url.URL{}
	}
	_, inFile := u.User.Password()
	return cmp.Or(
		when(r.URL != "" && len(r.Addrs) > 0, "redis.addrs", "redis.url is set too; keep one of them"),
		when(r.MasterName != "" && len(r.Addrs) == 0, "redis.master_name",
			"Sentinel needs redis.addrs, the addresses of the sentinels"),
		when(r.WaitReplicas > 0 && r.Embedded(), "redis.wait_replicas",
			"the embedded store has no replicas; remove it, or set redis.url or redis.addrs"),
		when(bits.OnesCount(uint(r.ListShards)) != 1, "redis.list_shards",
			"must be a power of two, such as 1024, so that a list that gets more shards keeps those that it has"),
		when(r.ListShards > 1 && r.Embedded(), "redis.list_shards",
			"the embedded store is no Cluster; remove it, or set redis.url or redis.addrs"),
		when(r.PasswordEnv.Name != "" && r.Embedded(), "redis.password_env",
			"the embedded store has no password; set redis.url or redis.addrs"),
		when(r.PasswordEnv.Name != "" && r.PasswordEnv.Value == "", "redis.password_env", "%s",
			unset("redis.password_env", r.PasswordEnv.Name)),
		when((r.TLS.Cert == "") != (r.TLS.Key == ""), "redis.tls", "a client certificate needs both redis.tls.cert and "+
			"redis.tls.key"),
		when(r.TLS != RedisTLS{} && u.Scheme != "rediss" && len(r.Addrs) == 0, "redis.tls",
			"TLS needs a redis.url that begins with rediss://, or redis.addrs"),
		// The value is not repeated: it may hold a password.
		when(r.URL != "" && (!slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) ||
			u.Host == "" && u.Scheme != "unix"), "redis.url",
			"redis://host:6379, rediss://host:6379 or unix:///path is needed; leave it empty for the embedded store"),
		when(inFile && c.origin.vars["redis.url"] == "", "redis.url",
			"a password does not belong in the file; name its variable in redis.password_env, or give the whole URL in "+
				"MNEME_REDIS_URL"),
	)
}

func (w Webmemory) check(string, Config) error {
	// A window of messages that are not kept.
	fits := func(key string, window int) error {
		return when(w.MaxHistory != 0 && window > w.MaxHistory, key,
			"%d messages are more than webmemory.max_history keeps (%d); lower it, or raise max_history", window, w.MaxHistory)
	}
	return cmp.Or(fits("webmemory.context_window", w.ContextWindow),
		fits("webmemory.subagent_context_window", w.SubagentContextWindow))
}

// teammates are the names that have a route of their own at the gateway.
func (c Config) teammates() []string {
	var names []string
	for _, s := range c.Agents.Subagents {
		names = append(names, s.Name)
	}
	for _, m := range c.panelists() {
		names = append(names, m.Name)
	}
	return names
}

// panelists are the members of the panel and its moderator, if that is none of them.
func (c Config) panelists() []Member {
	m := c.Panel.Moderator
	if m.Name == "" || slices.Contains(c.Panel.Members, m) {
		return c.Panel.Members
	}
	return append(slices.Clone(c.Panel.Members), m)
}

func (p Proxy) check(_ string, c Config) error {
	err := when(p.Active == "", "proxy.active", "several backends are configured; name the one for the main pipeline: %s",
		listed(p.Backends))
	teammates := c.teammates()
	for name, backend := range sorted(p.Teammates) {
		key := join("proxy.teammates", name)
		err = cmp.Or(err,
			when(!c.origin.gatewayOnly && !slices.Contains(teammates, name), key, "there is no subagent %q; there are: %s", name,
				strings.Join(teammates, ", ")),
			p.leads(key, backend),
		)
	}
	kind := p.Backends[p.EmbeddingsBackend].Kind
	return cmp.Or(err,
		when(p.EmbeddingsBackend != "" && kind == "", "proxy.embeddings_backend", noBackend, p.EmbeddingsBackend,
			listed(p.Backends)),
		when(p.EmbeddingsBackend != "" && kind != KindOpenAI, "proxy.embeddings_backend",
			"backend %q is of kind %s; embeddings need one of kind %s", p.EmbeddingsBackend, kind, KindOpenAI),
		p.leads("proxy.active", p.Active),
		p.leads("proxy.teammate_backend", p.TeammateBackend),
	)
}

func (r Route) check(key string, c Config) error {
	p := c.Proxy
	_, name, _ := strings.Cut(key, "proxy.routes.")
	_, exists := p.Backends[strings.Trim(name, "'")]
	err := cmp.Or(
		when(exists, key, "a backend has this name; choose another one for the route"),
		when(len(r.Use) == 0, key+".use", "is missing; name the backends that answer, the first choice first, of: %s",
			listed(p.Backends)),
	)
	for i, backend := range r.Use {
		err = cmp.Or(err, p.has(key+".use", backend),
			when(slices.Contains(r.Use[:i], backend), key+".use", "backend %q is named twice; remove one", backend))
	}
	for backend, keys := range sorted(r.Keys) {
		path := join(key+".keys", backend)
		b := p.Backends[backend]
		err = cmp.Or(err,
			when(!slices.Contains(r.Use, backend), path, "the route does not use backend %q; add it to use, or remove its keys",
				backend),
			when(b.Kind == KindCopilot || b.Kind == KindOffline || b.Auth != "" && b.Auth != "key", path,
				"backend %q takes no key of ours (its kind or its auth); remove its keys", backend),
			when(len(keys) == 0, path, "is empty; name the variables that hold the keys, or remove it"),
			when(slices.Contains(keys, Variable{}), path, "the name of a variable is empty; remove it"),
		)
	}
	return err
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

const noBackend = "there is no backend %q; proxy.backends has: %s"

func (p Proxy) has(key, backend string) error {
	_, ok := p.Backends[backend]
	return when(!ok, key, noBackend, backend, listed(p.Backends))
}

// listed are the names in a map, for a sentence.
func listed[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// className is what a class of Weaviate may be called.
var className = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

func (r Retrieval) check(string, Config) error {
	e := r.Embeddings
	return cmp.Or(
		when(strings.ContainsFunc(e.Model, unicode.IsSpace), "retrieval.embeddings.model",
			"a model's name without spaces is needed, not %q", e.Model),
		when(e.Model == "" && e.Dimensions != 0, "retrieval.embeddings.dimensions",
			"there is no model that they could be of; set retrieval.embeddings.model"),
		// As none or as all, a share would leave out one of the two rankings.
		when(!(r.VectorWeight > 0 && r.VectorWeight < 1), "retrieval.vector_weight", "must be more than 0 and less "+
			"than 1, is %v; to search by words alone leave retrieval.embeddings.model empty", r.VectorWeight),
		when(r.Rerank.URL == "" && r.Rerank.Model != "", "retrieval.rerank.model",
			"there is no endpoint that could have it; set retrieval.rerank.url"),
		when(len(r.Engine.URLs) > 0 && e.Model != "", "retrieval.engine.urls", "a search engine finds by words alone, and "+
			"retrieval.embeddings.model is set; remove one of them"),
		when(!className.MatchString(r.Engine.Class), "retrieval.engine.class",
			"a name of a capital letter and up to 63 letters and digits is needed, not %.80q", r.Engine.Class),
		when(r.Engine.Replicas > len(r.Engine.URLs) && len(r.Engine.URLs) > 0, "retrieval.engine.replicas",
			"%d are more than retrieval.engine.urls names nodes (%d)", r.Engine.Replicas, len(r.Engine.URLs)),
	)
}

func (m Master) check(key string, _ Config) error {
	return when(m.System != "" && m.SystemReplace != "", key+".system_replace",
		"agents.master.system is set too, which adds to the built-in prompt; keep one of them")
}

// memoryTools are names that no subagent may have, since the master has tools of these.
var memoryTools = []string{recall.ToolName, "remember"}

func (s Subagent) check(key string, c Config) error {
	ofPanel := c.Panel.On() && (s.Name == string(panel.DiscussName) || s.Name == string(panel.EnsembleName))
	return cmp.Or(
		when(s.Name == master.Version, key+".name", "%q is the master's own name; choose another", s.Name),
		when(slices.Contains(memoryTools, s.Name), key+".name",
			"%q is a tool of all agents, by which they reach their memory; choose another", s.Name),
		when(ofPanel, key+".name", "%q is the panel's; choose another name, or remove panel.members", s.Name),
		when(s.Description == "", key+".description", "is missing; it tells the master what to delegate to %s", s.Name),
		s.checkCollections(key),
	)
}

func (p Panel) check(string, Config) error {
	n := len(p.Members)
	if !p.On() {
		const sentence = "there is nothing to %s; list the models under panel.members"
		return cmp.Or(when(p.Commands, "panel.commands", sentence, "command"),
			when(p.Moderator != Member{}, "panel.moderator", sentence, "moderate"))
	}
	return cmp.Or(
		when(n < panel.MinMembers || n > panel.MaxMembers, "panel.members",
			"a panel has %d to %d members, not %d; three are usual", panel.MinMembers, panel.MaxMembers, n),
		when(p.Moderator.Model == "", "panel.moderator.model",
			"is missing; only the name of a member may stand alone, and %q is none", p.Moderator.Name),
	)
}

func (m Member) check(key string, c Config) error {
	isSubagent := slices.ContainsFunc(c.Agents.Subagents, func(s Subagent) bool { return s.Name == m.Name })
	return cmp.Or(
		when(c.Panel.On() && m.Name == "", key+".name", "%s", forms["member"]("")),
		when(c.Panel.On() && isSubagent, key+".name",
			"%q is a subagent, and they would share a place in proxy.teammates; choose another", m.Name),
	)
}

// when is a problem of a key, if it is one, else nil: so those of a block are listed in cmp.Or, which gives the first.
// All of them are evaluated.
func when(wrong bool, key, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return bad(key, format, args...)
}
