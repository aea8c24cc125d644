package config

import (
	"slices"
	"time"

	"mneme/access/tally"
	"mneme/memory/event"
	"mneme/subagent/external"
	"mneme/subagent/openaimodel"
	"mneme/subagent/panel"
	"mneme/subagent/rag"
	"mneme/subagent/recall"
)

// Default is the configuration of `mneme up` with no file. Load completes what
// depends on other values: backends, models, the built-in subagents' texts.
func Default() Config {
	return Config{
		DataDir:     "./data",
		RunTimeout:  10 * time.Minute,
		SessionLogs: true,
		Log:         Log{Level: "info", Format: "auto"},
		HTTP:        HTTP{BodyTimeout: 30 * time.Second},
		Redis:       Redis{EmbeddedListen: "127.0.0.1:6380"},
		Webmemory: Webmemory{
			Listen:                "127.0.0.1:8080",
			Apiserver:             "http://127.0.0.1:8081",
			MaxHistory:            100,
			Archive:               Archive{Enabled: true},
			ContextWindow:         10,
			SubagentContextWindow: 50,
			MaxChats:              10_000,
			CacheBytes:            256 << 20,
			FinishedBytes:         64 << 20,
			Queue:                 Queue{Limit: 16, Wait: 30 * time.Second},
		},
		Apiserver: Apiserver{Listen: "127.0.0.1:8081", Proxy: "http://127.0.0.1:8082", MaxRuns: 256},
		Proxy: Proxy{
			Listen:       "127.0.0.1:8082",
			MaxCalls:     4096,
			StateMachine: StateMachine{Enabled: true, TTL: 24 * time.Hour, MaxTurns: 200, Wait: 50 * time.Millisecond},
		},
		Retrieval: Retrieval{
			Embeddings:   Embeddings{BatchSize: openaimodel.DefaultBatchSize},
			Fusion:       string(rag.WeightedSum),
			VectorWeight: rag.DefaultVectorWeight,
			Rerank:       Rerank{Top: rag.DefaultRerankTop, Timeout: rag.DefaultRerankTimeout},
		},
		Recall: Recall{Tool: true, Auto: recall.Question, BudgetTokens: 800},
		Notes:  Notes{BudgetTokens: 500, Tool: true},
		Agents: Agents{Master: Master{Model: "master", ReasoningEffort: openaimodel.EffortAuto, MaxSteps: 12}},
		Panel:  Panel{Limit: panel.DefaultLimit, Timeout: panel.DefaultTimeout},

		MaxTools: 40, Approvals: Approvals{Expiry: external.DefaultExpiry}, OpenAI: defaultOpenAI(),
		Budgets: defaultBudgets(), Usage: Usage{Keep: tally.Keep},
	}
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
			setDefault(&s.Description, b.Description)
			setDefault(&s.System, b.System)
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
		setDefault(&s.Model, s.Name)
		setDefault(&s.Calls, event.Serial)
		if s.MaxSteps == 0 {
			s.MaxSteps = defaultMaxSteps
		}
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
	for i := range p.Members {
		setDefault(&p.Members[i].Model, p.Members[i].Name)
	}
	if p.On() && p.Moderator.Name == "" && p.Moderator.Model == "" {
		p.Moderator = p.Members[0]
	}
	for _, m := range p.Members {
		if m.Name == p.Moderator.Name {
			setDefault(&p.Moderator.Model, m.Model)
		}
	}
}

// completeProxy picks the backends that need no choice.
func (c *Config) completeProxy() {
	p := &c.Proxy
	if len(p.Backends) == 0 {
		p.Backends = map[string]Backend{KindOffline: {Kind: KindOffline}}
	}
	if len(p.Backends) == 1 {
		for only := range p.Backends {
			setDefault(&p.Active, only)
		}
	}
	if len(p.Routes) == 1 {
		for only := range p.Routes {
			setDefault(&p.Active, only)
		}
	}
	setDefault(&p.TeammateBackend, p.Active)
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}
