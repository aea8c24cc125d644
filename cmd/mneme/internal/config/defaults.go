package config

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml"

	"mneme/memory/event"
	"mneme/webmemory/openaiapi"
)

// Default is the configuration of `mneme up` with no file. Load completes what
// depends on other values: backends, models, the built-in subagents' texts.
func Default() Config {
	var c Config
	_ = c.change(func(s setting) error {
		text := s.tag.Get("default")
		switch {
		case text == "":
			return nil
		case s.value.Kind() == reflect.String:
			s.value.SetString(text)
			return nil
		}
		return yaml.Unmarshal([]byte(text), s.value.Addr().Interface())
	})
	c.OpenAI = openaiapi.Defaults()
	return c
}

// DefaultCollection is what the built-in subagent knowledge answers from.
const DefaultCollection = "docs"

// defaultMaxSteps is a subagent's max_steps where none is given.
const defaultMaxSteps = 8

func builtinSubagents() []Subagent {
	return []Subagent{
		{
			Name: "analytic", Description: analyticDescription, System: analyticSystem,
			Tools: builtins(ToolCalculator, ToolDate),
		},
		{
			Name: "knowledge", Description: knowledgeDescription, System: knowledgeSystem,
			Tools: builtins(ToolDocuments), Collections: []*Collection{{Name: DefaultCollection}},
		},
	}
}

// completeSubagents gives an entry the defaults that hang on its name.
func (c *Config) completeSubagents() {
	builtin := builtinSubagents()
	for i := range c.Agents.Subagents {
		s := &c.Agents.Subagents[i]
		for _, b := range builtin {
			if s.Name != b.Name {
				continue
			}
			s.Description, s.System = cmp.Or(s.Description, b.Description), cmp.Or(s.System, b.System)
			if s.Tools == nil {
				s.Tools = b.Tools
			}
			if s.Collections == nil {
				s.Collections = b.Collections
			}
		}
		if len(s.Collections) > 0 && !Has(s.Tools, ToolDocuments) {
			s.Tools = append(slices.Clone(s.Tools), builtins(ToolDocuments)...)
		}
		s.Model, s.Calls = cmp.Or(s.Model, s.Name), cmp.Or(s.Calls, event.Serial)
		s.MaxSteps = cmp.Or(s.MaxSteps, defaultMaxSteps)
	}
}

// completeWindows keeps default windows within what is kept, so that a short history
// is one setting and not three.
func (c *Config) completeWindows() {
	w := &c.Webmemory
	for key, window := range map[string]*int{
		"webmemory.context_window": &w.ContextWindow, "webmemory.subagent_context_window": &w.SubagentContextWindow,
	} {
		if !c.origin.has(key) && w.MaxHistory > 0 {
			*window = min(*window, w.MaxHistory)
		}
	}
}

// completePanel gives members the model of their name, and makes the first one
// the moderator if none is named.
func (c *Config) completePanel() {
	p := &c.Panel
	if p.On() && p.Moderator == (Member{}) {
		p.Moderator.Name = p.Members[0].Name
	}
	for i := range p.Members {
		m := &p.Members[i]
		m.Model = cmp.Or(m.Model, m.Name)
		if m.Name == p.Moderator.Name {
			p.Moderator.Model = cmp.Or(p.Moderator.Model, m.Model)
		}
	}
}

// completeProxy picks the backends that need no choice.
func (c *Config) completeProxy() {
	p := &c.Proxy
	if len(p.Backends) == 0 {
		p.Backends = map[string]Backend{KindOffline: {Kind: KindOffline}}
	}
	p.Active = cmp.Or(p.Active, only(p.Backends), only(p.Routes))
	p.TeammateBackend = cmp.Or(p.TeammateBackend, p.Active)
}

// only is the name of the one entry of a map; empty if there are others.
func only[V any](m map[string]V) (name string) {
	for name = range m {
		if len(m) > 1 {
			return ""
		}
	}
	return name
}
