package config

import (
	"cmp"

	"mneme/subagent/note"
)

// Notes are what agents are shown of their chat's notes.
type Notes struct {
	BudgetTokens int  `yaml:"budget_tokens" env:"BUDGET_TOKENS"` // of the notes in a prompt
	Tool         bool `yaml:"tool" env:"TOOL"`                   // agents make notes of the user's own words
}

// NotesOverride is what of Notes is otherwise for one agent.
type NotesOverride struct {
	BudgetTokens int   `yaml:"budget_tokens,omitempty" env:"BUDGET_TOKENS"`
	Tool         *bool `yaml:"tool,omitempty" env:"TOOL"`
}

// NotesOf are the settings of one agent.
func (c Config) NotesOf(o NotesOverride) note.Settings {
	s := note.Settings{Budget: cmp.Or(o.BudgetTokens, c.Notes.BudgetTokens), Tool: c.Notes.Tool}
	if o.Tool != nil {
		s.Tool = *o.Tool
	}
	return s
}

// The least budget has room for what stands around notes and for one of them.
const leastNotes, mostNotes = 200, 8000

func (n Notes) validate() error { return notesBudget("notes", n.BudgetTokens) }

func (o NotesOverride) validate(key string) error {
	if o.BudgetTokens == 0 {
		return nil
	}
	return notesBudget(key, o.BudgetTokens)
}

func notesBudget(key string, tokens int) error {
	return when(tokens < leastNotes || tokens > mostNotes, key+".budget_tokens", "must be from %d to %d, is %d",
		leastNotes, mostNotes, tokens)
}
