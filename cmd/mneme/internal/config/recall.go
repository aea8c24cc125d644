package config

import (
	"cmp"

	"mneme/subagent/recall"
)

// Recall is what agents are given of their chat beyond the messages that they are shown.
type Recall struct {
	Tool bool `yaml:"tool" env:"TOOL"` // they can look up what was said
	// when a prompt gets what was said before: question, always or off
	Auto         string `yaml:"auto" env:"AUTO"`
	BudgetTokens int    `yaml:"budget_tokens" env:"BUDGET_TOKENS"` // of that, and of one result of the tool
	// newest messages of each history that are searched by vectors, too; 0 for none
	Vectors int `yaml:"vectors" env:"VECTORS"`
}

// RecallOverride is what of Recall is otherwise for one agent.
type RecallOverride struct {
	Tool         *bool  `yaml:"tool,omitempty" env:"TOOL"`
	Auto         string `yaml:"auto,omitempty" env:"AUTO"`
	BudgetTokens int    `yaml:"budget_tokens,omitempty" env:"BUDGET_TOKENS"`
}

// RecallOf are the settings of one agent.
func (c Config) RecallOf(o RecallOverride) recall.Settings {
	s := recall.Settings{
		Tool: c.Recall.Tool, Auto: cmp.Or(o.Auto, c.Recall.Auto), Budget: cmp.Or(o.BudgetTokens, c.Recall.BudgetTokens),
	}
	if o.Tool != nil {
		s.Tool = *o.Tool
	}
	return s
}

// The least budget has room for a message, the largest is not crowded out by what is
// around it in the windows that models have.
const leastRecall, mostRecall = 100, 8000

func (r Recall) validate() error {
	return cmp.Or(
		oneOf("recall.auto", r.Auto, recall.Question, recall.Always, recall.Off),
		recallBudget("recall", r.BudgetTokens),
		notNegative("recall.vectors", r.Vectors),
	)
}

func (o RecallOverride) validate(key string) error {
	if err := oneOf(key+".auto", o.Auto, "", recall.Question, recall.Always, recall.Off); err != nil ||
		o.BudgetTokens == 0 {
		return err
	}
	return recallBudget(key, o.BudgetTokens)
}

func recallBudget(key string, tokens int) error {
	return when(tokens < leastRecall || tokens > mostRecall, key+".budget_tokens", "must be from %d to %d, is %d",
		leastRecall, mostRecall, tokens)
}
