package config

import (
	"cmp"

	"mneme/subagent/recall"
)

// Recall is what agents are given of their chat beyond the messages that they are shown.
type Recall struct {
	Tool bool `yaml:"tool" default:"true"` // they can look up what was said
	// when a prompt gets what was said before: question, always or off
	Auto string `yaml:"auto" default:"question" check:"oneof=question always off"`
	// of that, and of one result of the tool; 0: 2000, or a twentieth of the model's context window if that is less
	BudgetTokens int `yaml:"budget_tokens" check:"omitempty,range=100..8000"`
	// newest messages of each history that are searched by vectors, too; 0 for none
	Vectors int `yaml:"vectors" check:"min=0"`
	// of a user's chats, those used last, that the tool may search together where the user was alone; 0 for its own only
	Everywhere int `yaml:"everywhere" check:"range=0..1000"`
}

// RecallOverride is what of Recall is otherwise for one agent.
type RecallOverride struct {
	Tool         *bool  `yaml:"tool,omitempty"`
	Auto         string `yaml:"auto,omitempty" check:"omitempty,oneof=question always off"`
	BudgetTokens int    `yaml:"budget_tokens,omitempty" check:"omitempty,range=100..8000"`
}

// RecallOf are the settings of one agent.
func (c Config) RecallOf(o RecallOverride) recall.Settings {
	s := recall.Settings{
		Tool: c.Recall.Tool, Auto: cmp.Or(o.Auto, c.Recall.Auto), Budget: cmp.Or(o.BudgetTokens, c.Recall.BudgetTokens),
		Everywhere: c.Recall.Everywhere > 0,
	}
	if o.Tool != nil {
		s.Tool = *o.Tool
	}
	return s
}
