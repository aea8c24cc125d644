// Package recall gives an agent what was said in its chat beyond the messages that it is shown: a block in its prompt
// when what it is asked needs it, and a tool with which it looks things up itself. The webmemory that holds the chat's
// memory searches, see Memory. It owns nothing beyond a run, never makes an answer wait longer than its bound, and
// never puts what it found into a history.
package recall

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/provenance"
	"mneme/memory/recall"
	"mneme/subagent/loop"
)

// Memory is that of one chat, as the agents of a run can search it.
type Memory interface {
	Recall(ctx context.Context, q Query) (Result, error)
}

type (
	// Query is an agent's search.
	Query = memory.RecallRequest
	// Result is the result of a search.
	Result = memory.Recalled
	// Hit is a message that was found.
	Hit = memory.RecallHit
)

// Settings are those of one agent. The zero value recalls nothing.
type Settings struct {
	Tool bool // it has the tool
	// Everywhere: the master's tool can search all chats in which the user was alone.
	Everywhere bool
	Auto       string // when its prompt gets a block: Question, Always or Off
	Budget     int    // tokens of a block, and of a result of the tool; 0 for as much as the Model's window allows
}

// Values of Settings.Auto.
const (
	Question = "question" // what it was given seems to need it
	Always   = "always"
	Off      = "off"
)

// searchTime is how long a search may take. The first search of a chat makes its index, and an answer that waits for it
// on a busy machine is better than one that knows nothing.
const searchTime = 15 * time.Second

// Asker is an agent in a run.
type Asker struct {
	Settings
	Memory Memory       // nil for none, and then nothing is recalled
	Model  loop.Model   // that reads it; one that is no loop.Windowed has a window of loop.DefaultTokens
	Agent  memory.Agent // empty for the master
	Emit   func(event.Payload) error
}

// Block is what stands in the agent's prompt of what was said before, for what it was
// given; empty for nothing. The error is Emit's.
func (a Asker) Block(ctx context.Context, task string) (string, error) {
	if a.Memory == nil || a.Auto != Always && (a.Auto != Question || !recall.MayNeed(task)) {
		return "", nil
	}
	budget, zone := budgetOf(ctx, a), memory.ZoneOf(ctx, time.UTC)
	searchCtx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	recalled, err := a.Memory.Recall(searchCtx, Query{
		Subagent: a.Agent, Query: task, Budget: budget - frameTokens - tokens(zone.String()), Overhead: leastHeading,
		Automatic: true, Needed: a.Auto == Question, TimeZone: zone.String(),
	})
	if ctx.Err() != nil { // the run is over
		return "", nil
	}
	text, selected := block(recalled.Hits, zone, budget)
	if recalled.Hits = selected; err == nil && len(selected) == 0 {
		return "", nil
	}
	tellSources(ctx, selected)
	return text, a.tell(ctx, recalled, err)
}

// tellSources tells the run whose words an agent was given.
func tellSources(ctx context.Context, hits []Hit) {
	for _, h := range hits {
		provenance.FromContext(ctx).Add(h.Origin, h.Text)
	}
}

// What an agent is given if its Settings name no Budget: this many tokens, and of its model's context window at most this
// part of one.
const (
	defaultBudget = 2_000
	windowParts   = 20
)

// budgetOf is that of a block or of a result, in tokens.
func budgetOf(ctx context.Context, a Asker) int {
	if a.Budget > 0 {
		return a.Budget
	}
	window := loop.DefaultTokens
	if m, ok := a.Model.(loop.Windowed); ok {
		window = cmp.Or(m.ContextTokens(ctx), window)
	}
	return max(min(defaultBudget, window/windowParts), 2*frameTokens)
}

// tell emits what a search gave.
func (a Asker) tell(ctx context.Context, recalled Result, err error) error {
	e := &event.Recalled{Messages: []event.RecalledMessage{}, Partial: recalled.Partial}
	for _, h := range recalled.Hits {
		e.Messages = append(e.Messages, event.RecalledMessage{ID: h.ID, TS: h.TS, Score: h.Score})
	}
	if err != nil {
		e.Failed = event.MemoryUnreachable
		zerolog.Ctx(ctx).Warn().Err(err).Str("subagent", string(a.Agent)).Msg("the chat's memory was not searched")
	}
	return a.Emit(e)
}

// block writes hits, and leaves out the worst until it has no more tokens than budget.
func block(hits []Hit, zone *time.Location, budget int) (text string, selected []Hit) {
	selected = slices.Clone(hits)
	for len(selected) > 0 {
		if text = write(blockIntro, zone, selected, true); tokens(text) <= budget {
			return text, selected
		}
		worst := 0
		for i, h := range selected {
			if h.Score <= selected[worst].Score {
				worst = i
			}
		}
		selected = slices.Delete(selected, worst, worst+1)
	}
	return "", nil
}
