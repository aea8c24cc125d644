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
	return Candidate{Backend: s.Name, Kind: config.KindOpenAI, BaseURL: s.URL + "/v1", Found: "a model server at " + s.URL,
		server: &s}
}

func (s Server) api() API { return API{Kind: config.KindOpenAI, BaseURL: s.URL + "/v1"} }

// there says whether a server answers. All three list their models for OpenAI's clients.
func (s Server) there(ctx context.Context) bool {
	_, err := s.api().list(ctx)
	return err == nil
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
	all, err := s.describe(ctx)
	if err != nil {
		return Choice{}, c.sentence(err)
	}
	is := func(id string) bool { return id == name || id == name+":latest" }
	choice := Choice{Candidate: c}
	var without []string
	for _, d := range all {
		if !d.tools {
			without = append(without, d.id)
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
	case slices.ContainsFunc(without, is):
		return choice, fmt.Errorf("the model server at %s does not report that %s can call tools, which mneme needs; "+
			"take another one, or write a backend of kind openai into mneme.yaml if you know better", s.URL, name)
	case len(all) == 0:
		return choice, fmt.Errorf("the model server at %s has no model yet; load one that can call tools", s.URL)
	case len(choice.Models) == 0:
		return choice, fmt.Errorf("the model server at %s reports for no model that it can call tools, which mneme needs "+
			"(it has: %s); load one that can, or write a backend of kind openai into mneme.yaml if you know better", s.URL,
			strings.Join(without[:min(5, len(without))], ", "))
	}
	return choice, nil
}

// describe asks in the ways of the three servers, each of which the others answer with
// 404, and last for a plain list, of which nothing more is known.
func (s Server) describe(ctx context.Context) ([]description, error) {
	var first error
	for _, way := range []func(context.Context) ([]description, error){s.ollama, s.lmStudio, s.llamaCPP} {
		all, err := way(ctx)
		if err == nil {
			return all, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
	ids, err := s.api().list(ctx)
	if err != nil {
		return nil, first
	}
	var all []description
	for _, id := range ids {
		all = append(all, description{id: id})
	}
	return all, nil
}

// ollama asks as Ollama's API wants it (docs.ollama.com/api).
func (s Server) ollama(ctx context.Context) ([]description, error) {
	var tags struct {
		Models *[]struct {
			Name string `json:"name"`
		} `json:"models"`
	}
	if err := ask(ctx, s.URL+"/api/tags", http.Header{}, nil, &tags); err != nil {
		return nil, err
	}
	if tags.Models == nil {
		return nil, errNoList
	}
	loaded := s.ollamaWindows(ctx)
	var all []description
	for _, m := range (*tags.Models)[:min(maxModels, len(*tags.Models))] {
		if !usable(m.Name) {
			continue
		}
		var show struct {
			Capabilities []string `json:"capabilities"`
			Parameters   string   `json:"parameters"`
		}
		if err := ask(ctx, s.URL+"/api/show", http.Header{}, map[string]string{"model": m.Name}, &show); err != nil {
			continue // removed in between, or broken
		}
		all = append(all, description{
			id: m.Name, tools: slices.Contains(show.Capabilities, "tools"),
			window: cmp.Or(loaded[m.Name], numCtx(show.Parameters)),
		})
	}
	return all, nil
}

// ollamaWindows are the windows of the models that are in memory. The context length
// in a model's description is what it was trained with, not what is served: a longer
// prompt is cut in silence.
func (s Server) ollamaWindows(ctx context.Context) map[string]int {
	var running struct {
		Models []struct {
			Name   string `json:"name"`
			Window int    `json:"context_length"`
		} `json:"models"`
	}
	windows := map[string]int{}
	if ask(ctx, s.URL+"/api/ps", http.Header{}, nil, &running) == nil { // older ones have none
		for _, m := range running.Models {
			windows[m.Name] = m.Window
		}
	}
	return windows
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
	var page struct {
		Data *[]struct {
			ID           string   `json:"id"`
			Type         string   `json:"type"`
			Capabilities []string `json:"capabilities"`
			Window       int      `json:"loaded_context_length"`
			State        string   `json:"state"`
		} `json:"data"`
	}
	if err := ask(ctx, s.URL+"/api/v0/models", http.Header{}, nil, &page); err != nil {
		return nil, err
	}
	if page.Data == nil {
		return nil, errNoList
	}
	var loaded, rest []description
	for _, m := range *page.Data {
		if !usable(m.ID) || m.Type == "embeddings" {
			continue
		}
		d := description{id: m.ID, tools: slices.Contains(m.Capabilities, "tool_use"), window: m.Window}
		if m.State == "loaded" {
			loaded = append(loaded, d)
		} else {
			rest = append(rest, d)
		}
	}
	return append(loaded, rest...), nil
}

// llamaCPP asks llama.cpp's server, which has one model; the model's template says
// whether it knows tools.
func (s Server) llamaCPP(ctx context.Context) ([]description, error) {
	var props struct {
		Settings *struct {
			Window int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Caps struct {
			Tools     *bool `json:"supports_tools"`
			ToolCalls *bool `json:"supports_tool_calls"`
		} `json:"chat_template_caps"`
		ToolTemplate string `json:"chat_template_tool_use"`
	}
	if err := ask(ctx, s.URL+"/props", http.Header{}, nil, &props); err != nil {
		return nil, err
	}
	if props.Settings == nil {
		return nil, errNoList
	}
	ids, err := s.api().list(ctx)
	if err != nil {
		return nil, err
	}
	yes := func(b *bool) bool { return b != nil && *b }
	no := func(b *bool) bool { return b != nil && !*b }
	tools := (yes(props.Caps.Tools) || yes(props.Caps.ToolCalls) || props.ToolTemplate != "") && !no(props.Caps.Tools) &&
		!no(props.Caps.ToolCalls)
	var all []description
	for _, id := range ids {
		all = append(all, description{id: id, tools: tools, window: props.Settings.Window})
	}
	return all, nil
}
