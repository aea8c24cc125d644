package config

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// apiPaths are where a vendor's APIs begin below its host, by kind; the first path is
// the usual one. A kind that is not listed is one that the vendor does not have.
type apiPaths map[string][]string

// vendorAPIs are the vendors of which we know them. Of any other host only the host
// itself can say whether a base_url is right, see package models.
var vendorAPIs = map[string]apiPaths{
	"api.openai.com":                    {KindOpenAI: {"/v1"}, KindResponses: {"/v1"}},
	"api.anthropic.com":                 {KindAnthropic: {""}, KindOpenAI: {"/v1"}},
	"generativelanguage.googleapis.com": {KindOpenAI: {"/v1beta/openai", "/v1/openai"}},
	"openrouter.ai":                     {KindOpenAI: {"/api/v1"}, KindAnthropic: {"/api"}, KindResponses: {"/api/v1"}},
	"api.deepseek.com": {
		KindOpenAI: {"", "/v1", "/beta"}, KindAnthropic: {"/anthropic"}, KindResponses: {"", "/v1"},
	},
	"api.moonshot.ai": {KindOpenAI: {"/v1"}, KindAnthropic: {"/anthropic"}},
	"api.moonshot.cn": {KindOpenAI: {"/v1"}, KindAnthropic: {"/anthropic"}},
	"api.z.ai": {KindOpenAI: {"/api/paas/v4", "/api/coding/paas/v4"}, KindAnthropic: {
		"/api/anthropic",
	}},
	"open.bigmodel.cn": {KindOpenAI: {"/api/paas/v4", "/api/coding/paas/v4"}, KindAnthropic: {
		"/api/anthropic",
	}},
	"api.minimax.io":   {KindOpenAI: {"/v1"}, KindAnthropic: {"/anthropic"}},
	"api.minimaxi.com": {KindOpenAI: {"/v1"}, KindAnthropic: {"/anthropic"}},
	"api.mistral.ai":   {KindOpenAI: {"/v1"}},
	"api.groq.com":     {KindOpenAI: {"/openai/v1"}, KindResponses: {"/openai/v1"}},
	"api.x.ai":         {KindOpenAI: {"/v1"}, KindAnthropic: {""}, KindResponses: {"/v1"}},
}

// endpoints are the ends of addresses that people copy from a vendor's examples.
var endpoints = []string{"/chat/completions", "/completions", "/messages", "/responses", "/embeddings", "/models"}

// validateBaseURL refuses what cannot be the address of an API of this kind.
func (b Backend) validateBaseURL(key string) error {
	u, err := url.Parse(b.BaseURL)
	if err != nil || u.Host == "" && secretLike(b.BaseURL) {
		return bad(key, "an http:// or https:// URL is needed")
	}
	if err := baseURL(key, b.BaseURL); err != nil {
		return err
	}
	path := strings.TrimRight(u.Path, "/")
	for _, end := range endpoints {
		if base, ok := strings.CutSuffix(path, end); ok {
			if b.Kind == KindAnthropic {
				base = strings.TrimSuffix(base, "/v1")
			}
			return bad(key, "that is the address of one endpoint; write %s", u.Scheme+"://"+u.Host+base)
		}
	}
	if b.Kind == KindAnthropic && strings.HasSuffix(path, "/v1") {
		return bad(key, "for kind anthropic it goes without the /v1 at its end")
	}
	known, ok := vendorAPIs[strings.ToLower(u.Hostname())]
	if !ok || slices.Contains(known[b.Kind], path) {
		return nil
	}
	if len(known[b.Kind]) == 0 {
		return bad(key, "%s has no API of kind %s; set kind to %s", u.Hostname(), b.Kind, KindOpenAI)
	}
	right := known[b.Kind][0]
	for kind, paths := range known {
		otherKind := kind != b.Kind && slices.Contains(paths, path)
		if otherKind || path == "" || strings.HasPrefix(right, path+"/") {
			return bad(key, "the API of kind %s of this vendor is at %s; write that", b.Kind, u.Scheme+"://"+u.Host+right)
		}
	}
	return nil // a path that is newer than this table
}

// validateOffline refuses what an offline backend would pass over in silence.
func (b Backend) validateOffline(key string) error {
	const none = "an offline backend has none: %s; remove it, or change kind"
	return cmp.Or(
		when(b.BaseURL != "", key+".base_url", none, "it is inside this process"),
		when(b.Vendor != "", key+".vendor", none, "it keeps no vendor's rules"),
		when(len(b.ModelMap) > 0, key+".model_map", none, "it has one model, whatever it is called"),
		when(b.Thinking != Thinking{}, key+".thinking", none, "its model does not think"),
	)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// keyPrefix begins keys of vendors that could be names of variables.
var keyPrefix = regexp.MustCompile(`^(sk|pk|rk|gsk|hf|r8|xai|glpat|ghp|gho|github_pat)[-_]|^AIza`)

// variable checks the name of a variable that holds a secret. People paste the secret
// itself instead, so the value is not repeated unless it surely is a name.
func variable(key, name string, set bool) error {
	return when(name != "" && !set && (!variableName.MatchString(name) || secretLike(name)), key,
		"this looks like a secret itself, or is no variable's name; put the secret into an environment variable and "+
			"write its name here, such as OPENAI_API_KEY")
}

// secretLike says whether a text has the form of a key.
func secretLike(text string) bool {
	digits := 0
	for _, r := range text {
		if r >= '0' && r <= '9' {
			digits++
		}
	}
	return keyPrefix.MatchString(text) ||
		len(text) >= 20 && digits >= 3 && text != strings.ToUpper(text) ||
		len(text) >= 16 && digits >= 3 && !strings.Contains(text, "_")
}

// ModelsOf are the models that the agents will ask of a backend, by our names for them.
func (c Config) ModelsOf(backend string) (names []string) {
	add := func(agent, model string) {
		at := c.Proxy.TeammateBackend
		if other, ok := c.Proxy.Teammates[agent]; ok {
			at = other
		}
		if c.Proxy.leadsTo(at, backend) && !slices.Contains(names, model) {
			names = append(names, model)
		}
	}
	if c.Proxy.leadsTo(c.Proxy.Active, backend) {
		names = append(names, c.Agents.Master.Model)
	}
	for _, s := range c.Agents.Subagents {
		add(s.Name, s.Model)
	}
	for _, m := range c.Panel.Members {
		add(m.Name, m.Model)
	}
	if m := c.Panel.Moderator; m.Name != "" {
		add(m.Name, m.Model)
	}
	if m := c.Retrieval.Embeddings.Model; m != "" && c.Proxy.EmbeddingsBackend == backend && !slices.Contains(names, m) {
		names = append(names, m)
	}
	return names
}

// BackendError is a sentence about a setting of a backend, with its place; an empty key
// is the backend as a whole.
func (c Config) BackendError(backend, key, problem string) error {
	path := join("proxy.backends", backend)
	if key != "" {
		path += "." + key
	}
	return c.origin.locate(&Error{Key: path, Problem: problem})
}
