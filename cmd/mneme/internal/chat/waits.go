package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory/event"
)

// waiting is a run that waits for a person.
type waiting struct {
	run   string
	seq   int64 // number of the event that says so; 0 if it is not known
	waits []event.Wait
}

// errUnanswered: a talk without a person at the keyboard cannot answer.
var errUnanswered = errors.New("the run waits for an answer: `mneme chat` in a terminal asks for it, and a new message " +
	"counts as a no")

// answer asks for what a run waits for, has it go on, and so on until it ends. A person may leave it
// waiting.
func (t *talk) answer(ctx context.Context, w *waiting) error {
	for w != nil {
		if !t.Interactive {
			return errUnanswered
		}
		answers, err := t.askAll(ctx, w.waits)
		if errors.Is(err, term.ErrInterrupt) {
			t.view.note("(it goes on waiting; /answer asks again, and a new message counts as a no)")
			return nil
		}
		if err != nil {
			return err
		}
		following, leave := context.WithCancel(ctx)
		err = t.watchOne(following, t.client.Resume(following, t.Chat, w.run, w.seq, answers...))
		leave()
		if err != nil {
			return err
		}
		w = t.view.waiting
	}
	return nil
}

// askAll asks for all that a run waits for.
func (t *talk) askAll(ctx context.Context, waits []event.Wait) (answers []event.WaitAnswer, err error) {
	for _, w := range waits {
		a := event.WaitAnswer{ID: w.ID, Decision: event.Approve}
		switch w.Kind {
		case event.Approval:
			err = t.askApproval(ctx, w, &a)
		case event.Question:
			a.Result, err = t.askQuestion(ctx, w)
		default:
			a.Result, err = t.askResult(ctx, w)
		}
		if err != nil {
			return nil, err
		}
		if w.Kind != event.Approval && a.Result == nil {
			a.Decision = event.Deny
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// askLine reads a line in answer to a question.
func (t *talk) askLine(ctx context.Context, question string) (string, error) {
	text, err := t.read(ctx, question)
	return strings.TrimSpace(text), err
}

// askApproval asks whether a tool may be called, and with which arguments.
func (t *talk) askApproval(ctx context.Context, w event.Wait, a *event.WaitAnswer) error {
	t.view.note(describe(w))
	for {
		said, err := t.askLine(ctx, "Allow it? [y]es, [n]o, [e]dit the arguments: ")
		if err != nil {
			return err
		}
		switch strings.ToLower(said) {
		case "y", "yes":
			return nil
		case "n", "no":
			a.Decision = event.Deny
			return nil
		case "e", "edit":
			if a.Arguments, err = t.askArguments(ctx); err != nil {
				return err
			}
			if a.Arguments != nil {
				a.Decision = event.Edit
				return nil
			}
		}
	}
}

// askArguments reads an object; none for an empty line.
func (t *talk) askArguments(ctx context.Context) (json.RawMessage, error) {
	for {
		said, err := t.askLine(ctx, "The arguments, as a JSON object: ")
		var members map[string]json.RawMessage
		switch {
		case err != nil || said == "":
			return nil, err
		case json.Unmarshal([]byte(said), &members) == nil && members != nil:
			return json.RawMessage(said), nil
		}
		t.view.problem("that is no JSON object, such as {\"amount\": 5}")
	}
}

// form is what is read of the JSON schema of a question's answer.
type form struct {
	Properties map[string]struct {
		Type        string `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		Enum        []any  `json:"enum"`
	} `json:"properties"`
	Required []string `json:"required"`
}

// askQuestion asks what a tool asks, a line for each property of the answer; none is a no.
func (t *talk) askQuestion(ctx context.Context, w event.Wait) (json.RawMessage, error) {
	t.view.note(describe(w))
	var asked form
	_ = json.Unmarshal(w.Schema, &asked) // without properties the answer is one line
	if len(asked.Properties) == 0 {
		return t.askResult(ctx, w)
	}
	out := map[string]json.RawMessage{}
	for _, name := range names(w.Schema, asked) {
		p := asked.Properties[name]
		hint := p.Type
		if len(p.Enum) > 0 {
			hint = strings.Trim(fmt.Sprint(p.Enum), "[]")
		}
		if p.Description != "" {
			t.view.note(term.OneLine(p.Description, maxLineShown))
		}
		for {
			said, err := t.askLine(ctx, fmt.Sprintf("%s (%s): ", term.OneLine(name, 64), term.OneLine(hint, 200)))
			if err != nil {
				return nil, err
			}
			if said == "" && slices.Contains(asked.Required, name) {
				t.view.note("(an empty answer is a no)")
				return nil, nil
			}
			if said == "" {
				break
			}
			if out[name] = value(p.Type, said); out[name] != nil {
				break
			}
			t.view.problem(fmt.Sprintf("%q is no %s", said, p.Type))
			delete(out, name)
		}
	}
	return json.Marshal(out)
}

// names are the properties of a form in the order in which its schema has them.
func names(schema json.RawMessage, asked form) (all []string) {
	var members struct{ Properties json.RawMessage }
	_ = json.Unmarshal(schema, &members) // it was read before
	d := json.NewDecoder(bytes.NewReader(members.Properties))
	_, _ = d.Token()
	for d.More() {
		name, err := d.Token()
		var skipped json.RawMessage
		if err != nil || d.Decode(&skipped) != nil {
			break
		}
		if text, ok := name.(string); ok {
			if _, known := asked.Properties[text]; known && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// value is a line as a value of a type of JSON schema; nil for one that is none.
func value(kind, said string) json.RawMessage {
	raw := json.RawMessage(said)
	if kind == "string" || kind == "" {
		raw, _ = json.Marshal(said) // a string encodes
		return raw
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	switch v := v.(type) {
	case bool:
		if kind != "boolean" {
			return nil
		}
	case float64:
		if kind != "number" && (kind != "integer" || v != float64(int64(v))) {
			return nil
		}
	default:
		if kind == "boolean" || kind == "number" || kind == "integer" {
			return nil
		}
	}
	return raw
}

// askResult reads a value, as JSON or as text; none is a no.
func (t *talk) askResult(ctx context.Context, w event.Wait) (json.RawMessage, error) {
	if w.Kind != event.Question {
		t.view.note(describe(w))
	}
	said, err := t.askLine(ctx, "The answer (empty: no): ")
	if err != nil || said == "" {
		return nil, err
	}
	if json.Valid([]byte(said)) {
		return json.RawMessage(said), nil
	}
	return value("string", said), nil
}

// describe says what is waited for, in a line.
func describe(w event.Wait) string {
	who := "master"
	if w.Subagent != "" {
		who = term.OneLine(string(w.Subagent), 64)
	}
	line := fmt.Sprintf("%s · %s %s", who, term.OneLine(w.Tool, 64), term.OneLine(string(w.Arguments), maxRecallShown))
	if w.Reason != "" {
		line += " · " + term.OneLine(w.Reason, maxRecallShown)
	}
	return "⏸ " + line
}
