package config

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// apiPaths are where a vendor's APIs begin below its host, by kind; the first path is
// the usual one. A kind that is not listed is one that the vendor does not have.
type apiPaths map[string][]string

// vendorAPIs are the vendors of which we know them. Of any other host only the host
// itself can say whether a base_url is right, see package models.
var vendorAPIs = map[string]apiPaths{
	"api.openai.com":    {KindOpenAI: {"/v1"}, KindResponses: {"/v1"}},
	"api.anthropic.com": {KindAnthropic: {""}, KindOpenAI: {"/v1"}},
	"generativelanguage.googleapis.com": {KindOpenAI: {"/v1beta/openai", "/v1/openai"},
		KindInteractions: {"/v1beta", "/v1"}},
	"openrouter.ai": {KindOpenAI: {"/api/v1"}, KindAnthropic: {"/api"}, KindResponses: {"/api/v1"}},
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
var endpoints = []string{"/chat/completions", "/completions", "/messages", "/responses", "/interactions", "/embeddings", "/models"}

// checkBaseURL refuses what cannot be the address of an API of this kind.
func (b Backend) checkBaseURL(key string) error {
	// The query is sent with each call, as Azure's ?api-version=preview.
	base, query, _ := strings.Cut(b.BaseURL, "?")
	u, err := url.Parse(base)
	if problem := formed(key, base, baseURL); err != nil || problem != nil {
		return problem
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad(key, "its query cannot be read")
	}
	for name := range values {
		secret := slices.Contains([]string{"key", "token", "code", "sig"}, strings.ToLower(name))
		if secret || keyPrefix.MatchString(values.Get(name)) {
			return bad(key, "a key does not belong in the URL; name its variable in api_key_env")
		}
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
	apis, ok := vendorAPIs[strings.ToLower(u.Hostname())]
	if !ok || slices.Contains(apis[b.Kind], path) {
		return nil
	}
	if len(apis[b.Kind]) == 0 {
		return bad(key, "%s has no API of kind %s; set kind to %s", u.Hostname(), b.Kind, KindOpenAI)
	}
	right := apis[b.Kind][0]
	for kind, paths := range apis {
		otherKind := kind != b.Kind && slices.Contains(paths, path)
		if otherKind || path == "" || strings.HasPrefix(right, path+"/") {
			return bad(key, "the API of kind %s of this vendor is at %s; write that", b.Kind, u.Scheme+"://"+u.Host+right)
		}
	}
	return nil // a path that is newer than this table
}

// check refuses what a backend of its kind lacks, and what it would pass over in silence.
func (b Backend) check(key string, c Config) error {
	reject := func(isSet bool, name, why string, kinds ...string) error {
		return when(isSet && slices.Contains(kinds, b.Kind), key+"."+name,
			"a backend of kind %s has none: %s; remove it, or change kind", b.Kind, why)
	}
	const rules = "the rules are those of provider_backend"
	callers := []string{KindAnthropic, KindOpenAI, KindResponses, KindInteractions}
	others := append(callers, KindOffline)
	example := "https://api.anthropic.com"
	if b.Kind != KindAnthropic {
		example = "https://api.openai.com/v1"
	}
	if b.Kind == KindInteractions {
		example = "https://generativelanguage.googleapis.com/v1beta"
	}
	err := cmp.Or(
		reject(b.PassRun, "pass_run", "it calls nobody's server", KindOffline, KindCopilot),
		reject(b.BaseURL != "", "base_url", "it is inside this process", KindOffline),
		reject(b.BaseURL != "", "base_url", "addr or command says where the CLI is", KindCopilot),
		reject(b.Auth != "", "auth", "the token of api_key_env is presented if there is one", KindCopilot),
		reject(b.Vendor != "", "vendor", "it keeps no vendor's rules", KindOffline),
		reject(b.Vendor != "", "vendor", rules, KindCopilot),
		reject(b.Profile != nil, "profile", rules, KindCopilot),
		reject(len(b.ModelMap) > 0, "model_map", "it has one model, whatever it is called", KindOffline),
		reject(b.Thinking != Thinking{}, "thinking", "its model does not think", KindOffline),
		reject(b.Thinking != Thinking{}, "thinking",
			"what the model thinks does not come out of the CLI; set it for provider_backend", KindCopilot),
		reject(b.Thinking != Thinking{}, "thinking", "there the request's reasoning_effort decides", KindOpenAI),
		reject(b.Thinking.BudgetTokens != 0, "thinking.budget_tokens", "there the request's effort decides", KindResponses,
			KindInteractions),
		reject(b.Addr != "", "addr", "it is for a Copilot CLI", others...),
		reject(len(b.Command) > 0, "command", "it is for a Copilot CLI", others...),
		reject(b.ProviderBackend != "", "provider_backend", "it is for a Copilot CLI", others...),
		when(b.Auth == "key" && b.APIKeyEnv.Name == "", key+".api_key_env", "auth is key; name the variable that holds it"),
		when(b.BaseURL == "" && slices.Contains(callers, b.Kind), key+".base_url",
			"is missing; a backend of kind %s needs the address of its API, such as %s", b.Kind, example),
	)
	if err == nil && b.Profile != nil {
		err = b.Profile.Validate()
		err = when(err != nil, key+".profile", "%v", err)
	}
	switch {
	case err != nil || b.Kind == KindOffline:
		return err
	case b.Kind == KindCopilot:
		return b.checkCopilot(key, c)
	}
	return b.checkBaseURL(key + ".base_url")
}

// ModelsOf are the models that the agents will ask of a backend, by our names for them.
func (c Config) ModelsOf(backend string) (names []string) {
	add := func(agent, model string) {
		target := c.Proxy.TeammateBackend
		if other, ok := c.Proxy.Teammates[agent]; ok {
			target = other
		}
		if c.Proxy.leadsTo(target, backend) && !slices.Contains(names, model) {
			names = append(names, model)
		}
	}
	if c.Proxy.leadsTo(c.Proxy.Active, backend) {
		names = append(names, c.Agents.Master.Model)
	}
	for _, s := range c.Agents.Subagents {
		add(s.Name, s.Model)
	}
	for _, m := range c.panelists() {
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
