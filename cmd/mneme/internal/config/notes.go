package config

import (
	"cmp"

	"mneme/subagent/note"
)

// Notes are what agents are shown of their chat's notes.
type Notes struct {
	// The least budget has room for what stands around notes and for one of them.
	BudgetTokens int `yaml:"budget_tokens" default:"500" check:"range=200..8000"` // of the notes in a prompt
	// agents make notes of the user's own words
	Tool bool `yaml:"tool" default:"true"`
}

// NotesOverride is what of Notes is otherwise for one agent.
type NotesOverride struct {
	BudgetTokens int   `yaml:"budget_tokens,omitempty" check:"omitempty,range=200..8000"`
	Tool         *bool `yaml:"tool,omitempty"`
}

// NotesOf are the settings of one agent.
func (c Config) NotesOf(o NotesOverride) note.Settings {
	s := note.Settings{Budget: cmp.Or(o.BudgetTokens, c.Notes.BudgetTokens), Tool: c.Notes.Tool}
	if o.Tool != nil {
		s.Tool = *o.Tool
	}
	return s
}
