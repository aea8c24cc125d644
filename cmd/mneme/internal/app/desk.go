package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/subagent/loop"
	"mneme/subagent/rag"
)

// desk is where one subagent reads documents during one run. It is the
// subagent's model: it finds out which delegation a call belongs to, lets the
// model see whole passages while histories keep only their ids and quotes, and
// checks what the model answers before anybody sees it. Safe for concurrent use.
type desk struct {
	turn  *rag.Turn
	model loop.Model
	log   zerolog.Logger

	mu    sync.Mutex
	asked map[string]*rag.Question // by delegation, see delegation; guarded by mu
	calls map[string]*rag.Question // by the id of the tool call; guarded by mu
	found map[string]string        // what is remembered of a search → all that it found; guarded by mu
}

func newDesk(turn *rag.Turn, model loop.Model, log zerolog.Logger) *desk {
	return &desk{
		turn: turn, model: model, log: log,
		asked: map[string]*rag.Question{}, calls: map[string]*rag.Question{}, found: map[string]string{},
	}
}

// delegation tells the delegations of a run apart that are under way at the same
// time: isolated ones have a conversation each, and two with equal tasks are one
// question. start is where its own messages begin, behind the task.
func delegation(r loop.Request) (key string, start int) {
	for i, m := range slices.Backward(r.Messages) {
		if m.Role == memory.RoleUser {
			return r.Conversation + "\x00" + m.Content, i + 1
		}
	}
	return r.Conversation, 0
}

// Generate asks the model, and checks its answer.
func (d *desk) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
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
		if !calls {
			answer = d.say(answer)
		}
		yield(loop.Delta{Text: answer}, nil)
	}
}

// open finds the question that a request belongs to, and gives the messages with
// what was found in place of what is remembered of it.
func (d *desk) open(r loop.Request) (*rag.Question, []memory.Message) {
	key, start := delegation(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.asked[key]
	if q == nil || start == len(r.Messages) { // a new one, be it with the words of one before
		q = d.turn.Ask(r.Messages[:start])
		d.asked[key] = q
	}
	messages := slices.Clone(r.Messages)
	for i := start; i < len(messages); i++ {
		if whole, ok := d.found[messages[i].Content]; ok && messages[i].Role == memory.RoleTool {
			messages[i].Content = whole
		}
	}
	return q, messages
}

func (d *desk) note(calls []memory.ToolCall, q *rag.Question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range calls {
		d.calls[c.ID] = q
	}
}

// say is the checked answer, with what a reader must know of it.
func (d *desk) say(response string) string {
	a := d.turn.Check(response)
	d.log.Debug().Str("status", string(a.Status)).Int("citations", len(a.Citations)).Int("flags", len(a.Flags)).
		Int("injection_signals", a.InjectionSignals).Msg("answered from documents")
	missing, unverified := "Not in the documents: ", "Not in the cited passages, please check: "
	if strings.ContainsFunc(a.Answer, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) }) {
		missing, unverified = "В документах нет: ", "Нет в указанных фрагментах, проверьте: "
	}
	text := a.Answer
	if len(a.Missing) > 0 {
		text += "\n\n" + missing + strings.Join(a.Missing, "; ") + "."
	}
	var figures []string
	for _, f := range a.Flags {
		if f.Kind == rag.Unverified {
			figures = append(figures, f.Text)
		}
	}
	if len(a.Citations) > 0 && len(figures) > 0 {
		text += "\n\n" + unverified + strings.Join(figures, ", ") + "."
	}
	return text
}

// tool is the search of this run's delegations.
func (d *desk) tool() loop.Tool {
	return deskTool{d, d.turn.Ask(nil).Tools()[0].Spec()}
}

type deskTool struct {
	desk *desk
	spec loop.Spec
}

// searchParameters want the query, as small models do not call a tool that needs nothing.
const searchParameters = `{"type":"object","properties":{"query":{"type":"string","description":"What to look for: a question, or the important words, in the language of the documents."}},"required":["query"],"additionalProperties":false}`

// Spec presents the search.
func (t deskTool) Spec() loop.Spec {
	t.spec.Parameters = json.RawMessage(searchParameters)
	return t.spec
}

// noDocuments stands for the search where there is nothing to search, so that a
// model says that and does not answer from nothing.
type noDocuments struct{}

// Spec presents the search that there would be.
func (noDocuments) Spec() loop.Spec {
	return loop.Spec{
		Name: "search_documents", Description: "Searches the documents for passages that answer a question.",
		Parameters: json.RawMessage(searchParameters), Parallel: true,
	}
}

// Call says that there are none.
func (noDocuments) Call(context.Context, memory.ToolCall) (string, error) {
	return "", errors.New("there are no documents: this apiserver has no redis.url")
}

// Call searches, and gives what a history may keep of it.
func (t deskTool) Call(ctx context.Context, call memory.ToolCall) (string, error) {
	d := t.desk
	d.mu.Lock()
	q := d.calls[call.ID]
	d.mu.Unlock()
	if q == nil {
		return "", errors.New("this call belongs to no question")
	}
	whole, err := q.Tools()[0].Call(ctx, call)
	if err != nil {
		return "", fmt.Errorf("searching the documents: %w", err)
	}
	short := q.Remember(call.Function.Name, whole)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found[short] = whole
	return short, nil
}
