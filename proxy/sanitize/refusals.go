package sanitize

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"mneme/proxy/wire"
)

// Refusal is a parameter that a backend has refused for a model.
type Refusal struct {
	Name string // a member of the request, or with a dot a member's member
	// Value is the refused value as JSON; nil for any value.
	Value []byte
	// Beside is the member together with which it was refused; empty for any request.
	Beside string
	// Instead is the member that takes over its value; empty for none.
	Instead string
	// Off: the member must be "none", and must be added if it is missing.
	Off bool
	// Most is the largest value that is accepted; 0 for any.
	Most int64
	// Thinking is how the model is asked to think, by its refusal. Nothing is left out then.
	Thinking *ThinkingOverrides
}

// whileThinking in Refusal.Beside stands for what the model does, not for the member.
const whileThinking = "thinking"

// Learn returns p as refusals have it.
func (p Profile) Learn(refusals []Refusal) Profile {
	for _, f := range refusals {
		if f.Thinking != nil {
			p = Overrides{Thinking: *f.Thinking}.Apply(p)
		}
	}
	return p
}

// leaveOut applies the refusals that are known of the backend.
func (r *request) leaveOut() {
	for i := range r.Refusals {
		r.refuse(&r.Refusals[i])
	}
}

// refuse applies one refusal.
func (r *request) refuse(f *Refusal) {
	outer, inner, nested := strings.Cut(f.Name, ".")
	value := r.root.get(outer)
	if nested {
		o := objectOf(value)
		value = o.get(inner)
	}
	switch {
	case f.Thinking != nil, f.Beside == whileThinking && r.off():
		return
	case f.Beside != "" && f.Beside != whileThinking && (!r.root.has(f.Beside) || f.Beside == "tools" && !r.tools()):
		return
	case f.Off:
		if none := wire.Quote(noEffort); !bytes.Equal(value, none) {
			r.set(RuleRefused, f.Name, none)
		}
		return
	case value == nil, f.Value != nil && !bytes.Equal(value, f.Value):
		return
	case f.Most > 0:
		if n, ok := integer(value); ok && n > f.Most && nested {
			r.setIn(RuleRefused, outer, inner, strconv.AppendInt(nil, f.Most, 10))
		}
		return
	case f.Name == FormatType:
		r.tellSchema()
	case nested:
		r.setIn(RuleRefused, outer, inner, nil)
	default:
		r.set(RuleRefused, f.Name, nil)
	}
	if f.Instead != "" && !r.root.has(f.Instead) {
		r.root.set(f.Instead, value)
	}
	if f.Name == "thinking" {
		r.unthinking = true
	}
}

// FormatType is the name of a Refusal of a form of the answer that the vendor does not hold to by itself.
const FormatType = "response_format.type"

// tellSchema asks for any JSON object, and tells the model in words which one it should be.
func (r *request) tellSchema() {
	form := objectOf(r.root.get("response_format"))
	schema := objectOf(form.get("json_schema"))
	r.set(RuleRefused, "response_format", []byte(`{"type":"json_object"}`))
	says := "Answer with one JSON object that matches this JSON Schema, and with nothing else:\n" +
		string(schema.get("schema"))
	r.messages, r.moved = slices.Insert(r.messages, 0, written(wire.RoleSystem, says)), true
}
