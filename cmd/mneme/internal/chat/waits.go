package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

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

// askQuestion asks what a tool asks, a line for each property of the answer's JSON schema; none is a no.
func (t *talk) askQuestion(ctx context.Context, w event.Wait) (json.RawMessage, error) {
	t.view.note(describe(w))
	properties := gjson.GetBytes(w.Schema, "properties")
	if len(properties.Map()) == 0 { // then the answer is one line
		return t.askResult(ctx, w)
	}
	required := gjson.GetBytes(w.Schema, "required").Array()
	out, refused, err := map[string]json.RawMessage{}, false, error(nil)
	properties.ForEach(func(name, p gjson.Result) bool {
		if text := p.Get("description").Str; text != "" {
			t.view.note(term.OneLine(text, maxLineShown))
		}
		needed := slices.ContainsFunc(required, func(r gjson.Result) bool { return r.Str == name.Str })
		var v json.RawMessage
		if v, err = askProperty(ctx, t, name.Str, p); v != nil {
			out[name.Str] = v
		}
		refused = err == nil && v == nil && needed
		return err == nil && !refused
	})
	switch {
	case err != nil:
		return nil, err
	case refused:
		t.view.note("(an empty answer is a no)")
		return nil, nil
	}
	return json.Marshal(out)
}

// askProperty reads a property of an answer, of the type that its schema has; none for an empty line.
func askProperty(ctx context.Context, t *talk, name string, p gjson.Result) (json.RawMessage, error) {
	kind, hint := p.Get("type").Str, p.Get("type").Str
	if choices := p.Get("enum").Array(); len(choices) > 0 {
		hint = ""
		for _, c := range choices {
			hint += c.String() + " "
		}
	}
	for {
		said, err := t.askLine(ctx, fmt.Sprintf("%s (%s): ", term.OneLine(name, 64), term.OneLine(hint, 200)))
		if err != nil || said == "" {
			return nil, err
		}
		if v := value(kind, said); v != nil {
			return v, nil
		}
		t.view.problem(fmt.Sprintf("%q is no %s", said, kind))
	}
}

// value is a line as a value of a type of JSON schema; nil for one that is none.
func value(kind, said string) json.RawMessage {
	v, fits := gjson.Parse(said), false
	switch kind {
	case "", "string":
		raw, _ := json.Marshal(said) // a string encodes
		return raw
	case "boolean":
		fits = v.IsBool()
	case "number", "integer":
		fits = v.Type == gjson.Number && (kind == "number" || v.Num == math.Trunc(v.Num))
	default:
		fits = !v.IsBool() && v.Type != gjson.Number
	}
	if !fits || !json.Valid([]byte(said)) {
		return nil
	}
	return json.RawMessage(said)
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
	line := fmt.Sprintf("%s · %s %s", cmp.Or(term.OneLine(string(w.Subagent), 64), "master"),
		term.OneLine(w.Tool, 64), term.OneLine(string(w.Arguments), maxRecallShown))
	if w.Reason != "" {
		line += " · " + term.OneLine(w.Reason, maxRecallShown)
	}
	return "⏸ " + line
}
