// Package panel has several models work on one question. A discussion: all members answer at the same time; each
// reviews the answers of the others, which it knows by letters only; a moderator makes one conclusion. An ensemble:
// all members write a plan for the same goal; each scores the plan of every other one; the plan with the highest
// average is chosen. A Panel is reached as two subagents (Subagents), so that its tasks and conclusions are
// remembered as any subagent's.
//
// It owns the places of its sessions and their goroutines, which end with the round. Every session is fresh: a member
// sees the panel's earlier conclusions in this chat and what its step needs. Nothing is ever made up for a member
// that fails: a vote that cannot be read is an abstention.
package panel

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// Names of the subagents that a panel is reached by.
const (
	DiscussName  memory.Agent = "discuss"
	EnsembleName memory.Agent = "ensemble"
)

// Bounds and defaults.
const (
	MinMembers     = 2
	MaxMembers     = 8
	MaxQuestion    = 32 << 10 // bytes
	DefaultLimit   = 8
	DefaultTimeout = 2 * time.Minute
)

// Member is a model with the name by which results and events speak of it.
type Member struct {
	Name  string
	Model loop.Model
}

// Config names the members of a panel.
type Config struct {
	Members   []Member // MinMembers to MaxMembers, each name once
	Moderator Member   // of discussions; may be one of Members
	// Limit is how many sessions run at once, over all tasks of the panel; 0 is
	// DefaultLimit.
	Limit int
	// Timeout is how long one session may take, a second try included; a member
	// that takes longer has failed. 0 is DefaultTimeout.
	Timeout time.Duration
}

// Panel is safe for concurrent use.
type Panel struct {
	members   []Member
	moderator Member
	timeout   time.Duration
	slots     chan struct{} // holds one for each session under way
}

// New checks c and makes a Panel; it calls no model.
func New(c Config) (*Panel, error) {
	if n := len(c.Members); n < MinMembers || n > MaxMembers {
		return nil, fmt.Errorf("a panel has %d to %d members, not %d", MinMembers, MaxMembers, n)
	}
	names := map[string]bool{}
	for _, m := range c.Members {
		if m.Name == "" || m.Model == nil {
			return nil, errors.New("a member of a panel needs a name and a model")
		}
		if names[m.Name] {
			return nil, fmt.Errorf("a panel has two members named %q; every name stands once", m.Name)
		}
		names[m.Name] = true
	}
	if c.Moderator.Name == "" || c.Moderator.Model == nil {
		return nil, errors.New("a panel's moderator needs a name and a model")
	}
	if c.Limit < 0 || c.Timeout < 0 {
		return nil, errors.New("a panel's limit and timeout must be more than 0")
	}
	c.Limit = cmp.Or(c.Limit, DefaultLimit)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	return &Panel{members: c.Members, moderator: c.Moderator, timeout: c.Timeout, slots: make(chan struct{}, c.Limit)}, nil
}

// Subagents are the two ways to ask the panel. Both are serial: a question may
// refer to the conclusions before it.
func (p *Panel) Subagents() []*subagent.Subagent {
	n := len(p.members)
	return []*subagent.Subagent{
		{
			Name: DiscussName, Calls: event.Serial, Work: p.discuss,
			Description: fmt.Sprintf("Has %d different models answer a question, review one another's answers and come to a "+
				"conclusion with key points, consensus and disagreements. It takes up to %d model calls and some minutes: use "+
				"it when the user asks for a discussion or for several opinions, or when a decision is weighty and arguable. "+
				"Put everything that the models must know into the task.", n, 2*n+1),
		},
		{
			Name: EnsembleName, Calls: event.Serial, Work: p.ensemble,
			Description: fmt.Sprintf("Has %d different models each write a plan for a goal and score one another's plans; "+
				"gives the plan with the best score, and all plans and votes. It takes %d model calls and some minutes: use it "+
				"when the user asks for an ensemble or for competing plans, or when much hangs on a plan. Put the goal and all "+
				"its constraints into the task.", n, n*n),
		},
	}
}
