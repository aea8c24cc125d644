package models

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/cmd/mneme/internal/config"
)

// Vendor is a vendor for which users have a key in their environment.
type Vendor struct {
	Name      string // also of the backend
	Kind      string
	BaseURL   string
	KeyVar    string   // the variable that holds the key
	BaseVar   string   // the variable that names another address; empty for none
	Preferred []string // models, the first that the vendor lists is proposed
}

// vendors are in the order in which they are proposed.
var vendors = []Vendor{
	{
		Name: "openai", Kind: config.KindOpenAI, BaseURL: "https://api.openai.com/v1", KeyVar: "OPENAI_API_KEY",
		BaseVar:   "OPENAI_BASE_URL",
		Preferred: []string{"gpt-5.5", "gpt-5.4", "gpt-5.2", "gpt-5.1", "gpt-5", "gpt-4.1", "gpt-4o"},
	},
	{
		Name: "anthropic", Kind: config.KindAnthropic, BaseURL: "https://api.anthropic.com", KeyVar: "ANTHROPIC_API_KEY",
		BaseVar: "ANTHROPIC_BASE_URL",
		Preferred: []string{"claude-sonnet-5-5", "claude-sonnet-5", "claude-sonnet-4-6", "claude-sonnet-4-5",
			"claude-opus-4-8", "claude-haiku-4-5", "claude-sonnet-4"},
	},
	{
		Name: "gemini", Kind: config.KindOpenAI, BaseURL: "https://generativelanguage.googleapis.com/v1beta/openai",
		KeyVar:    "GEMINI_API_KEY",
		Preferred: []string{"gemini-pro-latest", "gemini-2.5-pro", "gemini-flash-latest", "gemini-2.5-flash"},
	},
	{
		Name: "openrouter", Kind: config.KindOpenAI, BaseURL: "https://openrouter.ai/api/v1", KeyVar: "OPENROUTER_API_KEY",
		Preferred: []string{"anthropic/claude-sonnet-5", "anthropic/claude-sonnet-4.6", "anthropic/claude-sonnet-4.5",
			"openai/gpt-5.5", "openai/gpt-5", "openrouter/auto"},
	},
	{
		Name: "deepseek", Kind: config.KindOpenAI, BaseURL: "https://api.deepseek.com/v1", KeyVar: "DEEPSEEK_API_KEY",
		Preferred: []string{"deepseek-v4-pro", "deepseek-v4", "deepseek-chat", "deepseek-v4-flash"},
	},
}

// Places are where models are looked for. The zero value is the real ones.
type Places struct {
	Vendors []Vendor // nil: those that we know
	Servers []Server // nil: Ollama and LM Studio at their usual ports
}

// withDefaults fills in the real places, and the address that OLLAMA_HOST names.
func (p Places) withDefaults(vars map[string]string) Places {
	if p.Vendors == nil {
		p.Vendors = vendors
	}
	if p.Servers == nil {
		p.Servers = []Server{
			{Name: "ollama", URL: ollamaURL(vars["OLLAMA_HOST"])},
			{Name: "lmstudio", URL: "http://127.0.0.1:1234"},
		}
	}
	return p
}

// ollamaURL reads OLLAMA_HOST as Ollama does: scheme, host and port may each be left
// out. The address of all interfaces is one to listen on, not one to ask.
func ollamaURL(host string) string {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" {
		if u, err = url.Parse("http://" + host); err != nil {
			u = &url.URL{}
		}
	}
	name, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(name); name == "" || ip != nil && ip.IsUnspecified() {
		name = "127.0.0.1"
	}
	if port == "" {
		port = "11434"
	}
	scheme := "http"
	if u.Scheme == "https" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(name, port)
}

// Candidate is a place that may have a model for us.
type Candidate struct {
	Backend string // the name of the backend that it would become
	Kind    string
	BaseURL string
	KeyVar  string // empty for a server without a key
	Source  string // what was found, for people: "OPENAI_API_KEY"

	key       string
	preferred []string
	server    *Server
}

// Local says whether it is a server without a key.
func (c Candidate) Local() bool { return c.server != nil }

// Find gives the candidates, vendors first, and asks nothing of the vendors; of the
// servers it asks which are there. own are the addresses (host:port) on which this
// very process will listen: a variable may name them for other programs.
func Find(ctx context.Context, environ []string, places Places, own ...string) []Candidate {
	vars := config.Environ(environ)
	places = places.withDefaults(vars)
	var candidates []Candidate
	for _, v := range places.Vendors {
		key := strings.TrimSpace(vars[v.KeyVar])
		if key == "" {
			continue
		}
		base := v.BaseURL
		if other, ok := otherBase(vars[v.BaseVar], v.Kind, own); ok {
			base = other
		}
		candidates = append(candidates, Candidate{
			Backend: v.Name, Kind: v.Kind, BaseURL: base, KeyVar: v.KeyVar, Source: v.KeyVar, key: key, preferred: v.Preferred,
		})
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	reachable := make([]bool, len(places.Servers))
	var asking sync.WaitGroup
	for i, s := range places.Servers {
		if !same(hostOf(s.URL), own) {
			asking.Go(func() {
				_, err := s.api().list(ctx) // which all of them give, for OpenAI's clients
				reachable[i] = err == nil
			})
		}
	}
	asking.Wait()
	for i, s := range places.Servers {
		if reachable[i] {
			candidates = append(candidates, s.Candidate())
		}
	}
	return candidates
}

// Absent says why there is no candidate of this name; empty if there is one, or if no
// vendor and no server has the name.
func (p Places) Absent(environ []string, candidates []Candidate, name string) string {
	p = p.withDefaults(config.Environ(environ))
	for _, c := range candidates {
		if strings.EqualFold(c.Backend, name) {
			return ""
		}
	}
	for _, v := range p.Vendors {
		if strings.EqualFold(v.Name, name) {
			return "the environment variable " + v.KeyVar + " is not set; export the key in it"
		}
	}
	for _, s := range p.Servers {
		if strings.EqualFold(s.Name, name) {
			return "no model server answers at " + s.URL + "; start it"
		}
	}
	return ""
}

// probeTime bounds the search for servers on this machine.
const probeTime = time.Second

// otherBase is the address that a variable names in place of the vendor's own.
func otherBase(value, kind string, own []string) (string, bool) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(value), "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || same(u.Host, own) {
		return "", false
	}
	if kind == config.KindAnthropic {
		u.Path = strings.TrimSuffix(u.Path, "/v1")
	}
	return u.String(), true
}

// same says whether host:port is one of these addresses; all names of this machine's
// loopback interface are one.
func same(address string, own []string) bool {
	loopback := func(address string) string {
		host, port, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err == nil && (strings.EqualFold(host, "localhost") || ip != nil &&
			(ip.IsLoopback() || ip.IsUnspecified())) {
			return ":" + port
		}
		return address
	}
	return slices.ContainsFunc(own, func(o string) bool { return loopback(o) == loopback(address) })
}

// KeyVars are the variables in which a key is looked for.
func KeyVars() (names []string) {
	for _, v := range vendors {
		names = append(names, v.KeyVar)
	}
	return names
}

// Choice is a model that a candidate has.
type Choice struct {
	Candidate
	Model  string // empty: none of those that we would propose
	Window int    // of a server on this machine, in tokens; 0: the gateway knows
	Models []string
}

// Choose asks the candidate for its models and picks one: the named one, or, if name
// is empty, the first of the preferred ones. Its error is a sentence.
func (c Candidate) Choose(ctx context.Context, name string) (Choice, error) {
	if c.server != nil {
		return c.server.choose(ctx, c, name)
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	ids, err := API{c.Kind, c.BaseURL, c.key}.list(ctx)
	if err != nil {
		return Choice{}, c.sentence(err)
	}
	choice := Choice{Candidate: c, Models: ids}
	names := c.preferred
	if name != "" {
		names = []string{name}
	}
	for _, w := range names {
		if id, ok := listed(ids, w); ok {
			choice.Model = id
			break
		}
	}
	return choice, nil
}

// listTime bounds the wait for a vendor's list.
const listTime = 8 * time.Second
