package rag

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// Kit is what a subagent reads documents with during one run: the search, what
// stands around its model so that it sees whole passages while histories keep only
// their ids and quotes, and the check of its answers before anybody sees them.
func (t *Session) Kit(log zerolog.Logger) subagent.Kit {
	d := &readerKit{session: t, log: log, asked: map[string]*Question{}, calls: map[string]*Question{},
		found: map[string]string{}, said: map[string]event.Answer{}}
	return subagent.Kit{
		Tools: []loop.Tool{readerTool{d}},
		Model: func(m loop.Model) loop.Model { return readerModel{d, m} },
		Answer: func(response string) (*event.Answer, []event.Citation) {
			a := d.concluded(response)
			return &a, a.Citations
		},
	}
}

// readerKit is the state of a subagent that reads documents during one run. It finds out which
// delegation a call belongs to. Safe for concurrent use.
type readerKit struct {
	session *Session
	log     zerolog.Logger

	mu    sync.Mutex
	asked map[string]*Question    // by the task of the delegation; guarded by mu
	calls map[string]*Question    // by the id of the tool call; guarded by mu
	found map[string]string       // what is remembered of a search → all that it found; guarded by mu
	said  map[string]event.Answer // by the text that was shown of it; guarded by mu
}

// readerModel is a subagent's model that sees whole passages and whose answers are checked.
type readerModel struct {
	*readerKit
	model loop.Model
}

// delegation is the task that a request belongs to, and where its own messages
// begin. Delegations of a run that are under way at the same time are told apart by
// their tasks; two with equal ones are one question.
func delegation(r loop.Request) (task string, start int) {
	for i, m := range slices.Backward(r.Messages) {
		if m.Role == memory.RoleUser {
			return m.Content, i + 1
		}
	}
	return "", 0
}

// Generate asks the model, and checks its answer.
func (d readerModel) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		q, messages := d.open(r)
		r.Messages = messages
		var text strings.Builder
		calls := false
		for delta, err := range q.Model(d.model).Generate(ctx, r) {
			if err != nil {
				yield(loop.Delta{}, err)
				return
			}
			text.WriteString(delta.Text)
			// An answer is held back until it is checked: an address that a document
			// smuggled into it must not be shown for a moment either.
			delta.Text = ""
			if len(delta.Calls) > 0 {
				calls = true
				d.note(delta.Calls, q)
			}
			if !yield(delta, nil) {
				return
			}
		}
		if text.Len() == 0 {
			return
		}
		answer := text.String()
		if calls {
			answer = d.session.clean(answer, others(r.Messages))
		} else {
			answer = d.say(answer, others(r.Messages))
		}
		if answer != "" {
			yield(loop.Delta{Text: answer}, nil)
		}
	}
}

// others are the results of the tools beside the search since the task.
func others(messages []memory.Message) (results []string) {
	_, start := delegation(loop.Request{Messages: messages})
	for _, m := range messages[start:] {
		if m.Role == memory.RoleTool && m.Name != searchToolName {
			results = append(results, m.Content)
		}
	}
	return results
}

// open finds the question that a request belongs to, and gives the messages with
// what was found in place of what is remembered of it.
func (d *readerKit) open(r loop.Request) (*Question, []memory.Message) {
	task, start := delegation(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.asked[task]
	if q == nil || start == len(r.Messages) { // a new one, be it with the words of one before
		q = d.session.Ask(r.Messages[:start])
		d.asked[task] = q
	}
	messages := slices.Clone(r.Messages)
	for i := start; i < len(messages); i++ {
		if whole, ok := d.found[messages[i].Content]; ok && messages[i].Role == memory.RoleTool {
			messages[i].Content = whole
		}
	}
	return q, messages
}

func (d *readerKit) note(calls []memory.ToolCall, q *Question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range calls {
		d.calls[c.ID] = q
	}
}

// say is the checked answer, with what a reader must know of it.
func (d *readerKit) say(response string, results []string) string {
	a, unsupported := d.session.Check(response, results...)
	d.log.Debug().Str("status", a.Status).Int("citations", len(a.Citations)).Int("flags", len(a.Flags)).
		Int("injection_signals", a.InjectionSignals).Msg("answered from documents")
	missing := "Not in the documents: "
	if russian(a.Answer) {
		missing = "В документах нет: "
	}
	text := a.Answer
	if len(a.Missing) > 0 {
		text += "\n\n" + missing + strings.Join(a.Missing, "; ") + "."
	}
	if a.Status != event.Underspecified {
		text += notes(a.Answer, unsupported)
	}
	d.session.evidence.keep(text, a.Flags)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said[text] = a
	return text
}

// concluded is the answer behind a text that was shown.
func (d *readerKit) concluded(text string) event.Answer {
	d.mu.Lock()
	a, known := d.said[text]
	d.mu.Unlock()
	if !known { // put together of several
		a, _ = d.session.Check(text)
	}
	return a
}

// readerTool is the search of a run's delegations.
type readerTool struct{ *readerKit }

// Spec presents the search.
func (readerTool) Spec() loop.Spec { return searchToolSpec }

// Call searches, and gives what a history may keep of it.
func (t readerTool) Call(ctx context.Context, call memory.ToolCall) (string, error) {
	t.mu.Lock()
	q := t.calls[call.ID]
	t.mu.Unlock()
	if q == nil {
		return "", errors.New("this call belongs to no question")
	}
	whole, err := q.Tools()[0].Call(ctx, call)
	if err != nil {
		return "", fmt.Errorf("searching the documents: %w", err)
	}
	short := q.Remember(call.Function.Name, whole)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.found[short] = whole
	return short, nil
}
