package sanitize

import (
	"slices"
	"strconv"
	"strings"

	"mneme/proxy/wire"
)

// whileThinking in Rule.Beside stands for what the model does, not for the member.
const whileThinking = "thinking"

// PlainSchemas are the Keys of the tools whose schemas go in the plain form; nil for none.
func PlainSchemas(rules []Rule) (keys []string) {
	for i := range rules {
		keys = append(keys, rules[i].Schemas...)
	}
	return keys
}

// leaveOut applies the rules that are about members.
func (r *request) leaveOut() {
	for i := range r.Rules {
		if f := &r.Rules[i]; f.Name != "" {
			r.leave(f)
		}
	}
}

// leave applies one of them.
func (r *request) leave(f *Rule) {
	outer, inner, nested := strings.Cut(f.Name, ".")
	value := r.root.get(outer)
	if nested {
		o := objectOf(value)
		value = o.get(inner)
	}
	switch {
	case f.Beside == whileThinking && r.off():
		return
	case f.Beside != "" && f.Beside != whileThinking && (!r.root.has(f.Beside) || f.Beside == "tools" && !r.tools()):
		return
	case f.Set != "":
		if string(value) != f.Set {
			r.set(KindRefused, f.Name, []byte(f.Set))
		}
		return
	case value == nil, f.Value != "" && string(value) != f.Value:
		return
	case f.Most > 0:
		most := strconv.AppendInt(nil, f.Most, 10)
		switch n, ok := integer(value); {
		case !ok || n <= f.Most:
		case nested:
			r.setIn(KindRefused, outer, inner, most)
		default:
			r.set(KindRefused, outer, most)
		}
		return
	case f.Name == FormatType:
		r.tellSchema()
	case nested:
		r.setIn(KindRefused, outer, inner, nil)
	default:
		r.set(KindRefused, f.Name, nil)
	}
	if f.Instead != "" && !r.root.has(f.Instead) {
		r.root.set(f.Instead, value)
	}
	if f.Name == "thinking" {
		r.unthinking = true
	}
}

// FormatType is the name of a Rule about a form of the answer that the vendor does not hold to by itself.
const FormatType = "response_format.type"

// tellSchema asks for any JSON object, and tells the model in words which one it should be.
func (r *request) tellSchema() {
	form := objectOf(r.root.get("response_format"))
	schema := objectOf(form.get("json_schema"))
	r.set(KindRefused, "response_format", []byte(`{"type":"json_object"}`))
	says := "Answer with one JSON object that matches this JSON Schema, and with nothing else:\n" +
		string(schema.get("schema"))
	r.messages, r.moved = slices.Insert(r.messages, 0, written(wire.RoleSystem, says)), true
}
