package models

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/cmd/mneme/internal/config"
)

// defaultWindow is what a model server on this machine takes where it does not say, in
// tokens: Ollama's and LM Studio's own default.
const defaultWindow = 4096

// maxModels bounds how many models of a server are described one by one.
const maxModels = 50

// Server is a model server without a key: Ollama, LM Studio or llama.cpp. They differ in
// how they say which models can call tools and how long their windows are.
type Server struct {
	Name string // of the backend
	URL  string // its root, without /v1
}

// NewServer is the server at a URL that a user named, with or without /v1.
func NewServer(raw string) (Server, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return Server{}, fmt.Errorf("%q is no URL of a model server; give one such as http://127.0.0.1:9090/v1", raw)
	}
	root := u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return Server{Name: "local", URL: root}, nil
}

// Candidate is the server as a place to ask.
func (s Server) Candidate() Candidate {
	return Candidate{Backend: s.Name, Kind: config.KindOpenAI, BaseURL: s.URL + "/v1",
		Source: "a model server at " + s.URL, server: &s}
}

func (s Server) api() API { return API{Kind: config.KindOpenAI, BaseURL: s.URL + "/v1"} }

// ask asks the server's own API, which needs no key.
func (s Server) ask(ctx context.Context, path string, body any, member string) (gjson.Result, error) {
	return ask(ctx, s.URL+path, http.Header{}, body, member)
}

// description is a model of a server.
type description struct {
	id     string
	tools  bool
	window int // 0: it does not say
}

// choose picks a model that reports tools.
func (s Server) choose(ctx context.Context, c Candidate, name string) (Choice, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	descriptions, err := s.describe(ctx)
	if err != nil {
		return Choice{}, c.sentence(err)
	}
	is := func(id string) bool { return id == name || id == name+":latest" }
	choice := Choice{Candidate: c}
	var noTools []string
	for _, d := range descriptions {
		if !d.tools {
			noTools = append(noTools, d.id)
			continue
		}
		choice.Models = append(choice.Models, d.id)
		if choice.Model == "" && (name == "" || is(d.id)) {
			choice.Model, choice.Window = d.id, cmp.Or(max(0, d.window), defaultWindow)
		}
	}
	switch {
	case choice.Model != "":
		return choice, nil
	case slices.ContainsFunc(noTools, is):
		return choice, fmt.Errorf("the model server at %s does not report that %s can call tools, which mneme needs; "+
			"take another one, or write a backend of kind openai into mneme.yaml if you know better", s.URL, name)
	case len(descriptions) == 0:
		return choice, fmt.Errorf("the model server at %s has no model yet; load one that can call tools", s.URL)
	case len(choice.Models) == 0:
		return choice, fmt.Errorf("the model server at %s reports for no model that it can call tools, which mneme needs "+
			"(it has: %s); load one that can, or write a backend of kind openai into mneme.yaml if you know better", s.URL,
			strings.Join(noTools[:min(5, len(noTools))], ", "))
	}
	return choice, nil
}

// describe asks in the ways of the three servers, each of which the others answer with
// 404, and last for a plain list, of which nothing more is known.
func (s Server) describe(ctx context.Context) ([]description, error) {
	var first error
	for _, way := range []func(context.Context) ([]description, error){s.ollama, s.lmStudio, s.llamaCPP} {
		descriptions, err := way(ctx)
		if err == nil || ctx.Err() != nil {
			return descriptions, err
		}
		first = cmp.Or(first, err)
	}
	ids, err := s.api().list(ctx)
	if err != nil {
		return nil, first
	}
	var descriptions []description
	for _, id := range ids {
		descriptions = append(descriptions, description{id: id})
	}
	return descriptions, nil
}

// ollama asks as Ollama's API wants it (docs.ollama.com/api). The context length in a model's
// description is what it was trained with, not what is served, and a longer prompt is cut in
// silence: the window is that of a model in memory, or a parameter.
func (s Server) ollama(ctx context.Context) (descriptions []description, err error) {
	tags, err := s.ask(ctx, "/api/tags", nil, "models")
	if err != nil {
		return nil, err
	}
	running, _ := s.ask(ctx, "/api/ps", nil, "models") // older ones have none
	loaded := map[string]int{}
	for _, m := range running.Array() {
		loaded[m.Get("name").Str] = int(m.Get("context_length").Int())
	}
	for _, m := range tags.Array()[:min(maxModels, len(tags.Array()))] {
		name := m.Get("name").Str
		if !usable(name) {
			continue
		}
		show, err := s.ask(ctx, "/api/show", map[string]string{"model": name}, "@this")
		if err != nil {
			continue // removed in between, or broken
		}
		descriptions = append(descriptions, description{id: name, tools: show.Get(`capabilities.#(=="tools")`).Exists(),
			window: cmp.Or(loaded[name], numCtx(show.Get("parameters").Str))})
	}
	return descriptions, nil
}

// numCtx reads num_ctx of a model's parameters, which are lines of name and value.
func numCtx(parameters string) int {
	for line := range strings.Lines(parameters) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "num_ctx" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// lmStudio asks LM Studio's own API. A model that is not loaded yet will be loaded with
// the default window.
func (s Server) lmStudio(ctx context.Context) ([]description, error) {
	data, err := s.ask(ctx, "/api/v0/models", nil, "data")
	var loaded, rest []description
	for _, m := range data.Array() {
		d := description{id: m.Get("id").Str, tools: m.Get(`capabilities.#(=="tool_use")`).Exists(),
			window: int(m.Get("loaded_context_length").Int())}
		switch {
		case !usable(d.id) || m.Get("type").Str == "embeddings":
		case m.Get("state").Str == "loaded":
			loaded = append(loaded, d)
		default:
			rest = append(rest, d)
		}
	}
	return append(loaded, rest...), err
}

// llamaCPP asks llama.cpp's server, which has one model; the model's template says
// whether it knows tools.
func (s Server) llamaCPP(ctx context.Context) (descriptions []description, err error) {
	props, err := s.ask(ctx, "/props", nil, "@this")
	if err != nil {
		return nil, err
	}
	settings := props.Get("default_generation_settings")
	if !settings.IsObject() {
		return nil, errNoList
	}
	first, second := props.Get("chat_template_caps.supports_tools"), props.Get("chat_template_caps.supports_tool_calls")
	no := first.Type == gjson.False || second.Type == gjson.False
	tools := !no && (first.Bool() || second.Bool() || props.Get("chat_template_tool_use").Str != "")
	ids, err := s.api().list(ctx)
	for _, id := range ids {
		descriptions = append(descriptions, description{id: id, tools: tools, window: int(settings.Get("n_ctx").Int())})
	}
	return descriptions, err
}
