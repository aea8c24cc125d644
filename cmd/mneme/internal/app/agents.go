package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/config"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent"
	"mneme/subagent/external"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
	"mneme/subagent/panel"
	"mneme/subagent/rag"
	"mneme/subagent/tools"
)

// agents are the master and its subagents. What a run may search depends on its
// chat, so the subagents that read documents are made anew for each run.
type agents struct {
	master  master.Agent
	readers map[memory.Agent]rag.SessionOptions // what those with config.ToolDocuments may search
	library *rag.Library                        // nil for no documents
	infos   []api.SubagentInfo
	*toolbox
	log zerolog.Logger
}

// liveAgents are those of the moment. A run keeps those with which it began.
type liveAgents struct{ atomic.Pointer[agents] }

// Run implements apiserver.Agent.
func (l *liveAgents) Run(ctx context.Context, r master.Request, publish func(event.Event) error) {
	l.Load().Run(ctx, r, publish)
}

// newAgents makes the agents. All their model calls go to the proxy: the master's by its
// main routes, a subagent's by /teammate/<name>.
func newAgents(
	cfg config.Config, gateway *http.Client, library *rag.Library, template toolbox, log zerolog.Logger,
) (*agents, error) {
	box, err := template.filled(cfg)
	if err != nil {
		return nil, err
	}
	model := func(path string, c openaimodel.Config, tokens int) loop.Model {
		c.BaseURL, c.HTTP = cfg.Apiserver.Proxy+path, gateway
		return &loop.Window{Tokens: tokens, Model: openaimodel.New(c), MaxAnswer: cfg.Agents.MaxAnswer}
	}
	m := cfg.Agents.Master
	agentSet := &agents{
		master: master.Agent{
			Model:  model("", openaimodel.Config{Model: m.Model, ReasoningEffort: m.ReasoningEffort}, m.ContextTokens),
			System: m.Prompt(), MaxSteps: m.MaxSteps, Now: time.Now, Log: log,
			Recall: cfg.RecallOf(m.Recall),
			Notes:  cfg.NotesOf(m.Notes),
			Expiry: cfg.Approvals.Expiry,
		},
		readers: map[memory.Agent]rag.SessionOptions{}, library: library, toolbox: box, log: log,
	}
	for _, s := range cfg.Agents.Subagents {
		name, system := memory.Agent(s.Name), s.System
		if config.Has(s.Tools, config.ToolDocuments) {
			agentSet.readers[name] = scope(s)
			system += "\n\n" + rag.SystemRule
		}
		agentSet.master.Subagents = append(agentSet.master.Subagents, &subagent.Subagent{
			Name: name, Description: s.Description, System: system,
			Model: model("/teammate/"+s.Name, openaimodel.Config{
				Model: s.Model, ReasoningEffort: s.ReasoningEffort, Temperature: s.Temperature, MaxTokens: s.MaxTokens,
			}, s.ContextTokens),
			MaxSteps: s.MaxSteps, Calls: s.Calls, Kit: kit(s.Tools), Recall: cfg.RecallOf(s.Recall),
			Notes:    cfg.NotesOf(s.Notes),
			External: box.give(name, s.Tools, memoryTools(cfg.RecallOf(s.Recall), cfg.NotesOf(s.Notes))...),
		})
	}
	if cfg.Panel.On() {
		p, err := newPanel(cfg.Panel, func(m config.Member) loop.Model {
			return model("/teammate/"+m.Name, openaimodel.Config{Model: m.Model}, 0)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range p.Subagents() {
			agentSet.master.Subagents = append(agentSet.master.Subagents, s)
			agentSet.master.Panel = append(agentSet.master.Panel, s.Name)
			if cfg.Panel.Commands {
				agentSet.master.Commands = append(agentSet.master.Commands, s.Name)
			}
		}
	}
	inside := memoryTools(agentSet.master.Recall, agentSet.master.Notes)
	for _, s := range agentSet.master.Subagents {
		inside = append(inside, string(s.Name))
	}
	agentSet.master.External = mastersTools(m.Tools, box.give("", m.Tools, inside...))
	for _, s := range agentSet.master.Subagents {
		agentSet.infos = append(agentSet.infos, api.SubagentInfo{Name: s.Name, Description: s.Description, Calls: s.Calls,
			Collections: agentSet.readers[s.Name].Collections})
	}
	return agentSet, nil
}

// scope is what a subagent may search in every run.
func scope(s config.Subagent) rag.SessionOptions {
	o := rag.SessionOptions{Collections: s.CollectionNames(),
		Where: map[string]rag.Where{}}
	for _, c := range s.Collections {
		o.Where[c.Name] = c.Where
	}
	return o
}

// newPanel makes the models that discuss and plan together.
func newPanel(p config.Panel, model func(config.Member) loop.Model) (*panel.Panel, error) {
	c := panel.Config{
		Moderator: panel.Member{Name: p.Moderator.Name, Model: model(p.Moderator)}, Limit: p.Limit, Timeout: p.Timeout,
	}
	for _, m := range p.Members {
		c.Members = append(c.Members, panel.Member{Name: m.Name, Model: model(m)})
	}
	built, err := panel.New(c)
	if err != nil {
		return nil, fmt.Errorf("panel: %w", err)
	}
	return built, nil
}

// mastersTools makes what the master has beside its subagents.
func mastersTools(entries []*config.ToolEntry, outside func(external.Run) []loop.Tool) func(external.Run) []loop.Tool {
	if len(entries) == 0 {
		return nil
	}
	builtIn := kit(entries)
	return func(r external.Run) []loop.Tool {
		tools := builtIn().Tools
		if outside != nil {
			tools = append(tools, outside(r)...)
		}
		return tools
	}
}

// kit makes the tools that need no documents.
func kit(entries []*config.ToolEntry) func() subagent.Kit {
	return func() subagent.Kit {
		var k subagent.Kit
		for _, t := range entries {
			switch t.Name {
			case config.ToolCalculator:
				k.Tools = append(k.Tools, tools.Calculator())
			case config.ToolDate:
				k.Tools = append(k.Tools, tools.Date(time.Now))
			}
		}
		return k
	}
}

// Run runs the master with subagents that search what the run's chat may. Whichever agent
// writes what the user sees, it is checked against the same evidence.
func (a *agents) Run(ctx context.Context, r master.Request, publish func(event.Event) error) {
	a.forRun(ctx, &r).Run(ctx, r, publish)
}

// forRun is the master of one run. It is not inlined, so that the frame of Run, which waits for
// as long as the answer takes, is small.
//
//go:noinline
func (a *agents) forRun(ctx context.Context, r *master.Request) *master.Agent {
	m := a.master
	if r.Bare {
		return &m
	}
	m.Subagents = slices.Clone(m.Subagents)
	evidence := &rag.Evidence{}
	evidence.AddMessages(r.Message, r.Context)
	for _, n := range r.Notes.List() {
		evidence.AddMessages(n.Text, nil)
	}
	for i, s := range m.Subagents {
		if o, reads := a.readers[s.Name]; reads {
			o.Chat, o.Evidence = r.Chat, evidence
			m.Subagents[i] = a.reader(s, o, telemetry.FromContext(ctx).Logger(a.log))
		} else {
			m.Subagents[i] = checked(s, evidence)
		}
	}
	m.Model = evidence.Model(m.Model, true, func(tool string) bool {
		_, reads := a.readers[memory.Agent(tool)]
		return reads
	})
	m.Cite, m.Save, m.Restore = evidence.Cite, evidence.Save, evidence.Restore
	return &m
}

// checked is a subagent without documents; its texts are checked as all are: what it is
// told may come from documents.
func checked(s *subagent.Subagent, evidence *rag.Evidence) *subagent.Subagent {
	c := *s
	if s.Work != nil {
		c.Work = evidence.Work(s.Work, panel.Counted)
	}
	c.Kit = func() subagent.Kit {
		var k subagent.Kit
		if s.Kit != nil {
			k = s.Kit()
		}
		k.Model = func(m loop.Model) loop.Model {
			return evidence.Model(m, false, func(string) bool { return false })
		}
		k.Answer = func(response string) (*event.Answer, []event.Citation) {
			citations, _ := evidence.Cite(response)
			return nil, citations
		}
		return k
	}
	return &c
}

// reader is a subagent that can search, beside what it can do anyway.
func (a *agents) reader(s *subagent.Subagent, o rag.SessionOptions, log zerolog.Logger) *subagent.Subagent {
	turn, err := a.library.NewSession(o)
	if err != nil { // of a name, all of which were checked before
		log.Error().Err(err).Str("subagent", string(s.Name)).Msg("this subagent cannot search")
		return s
	}
	documents := turn.Kit(log.With().Str("subagent", string(s.Name)).Logger())
	reader := *s
	reader.Kit = func() subagent.Kit {
		k := documents
		k.Tools = append(s.Kit().Tools, documents.Tools...)
		return k
	}
	return &reader
}
