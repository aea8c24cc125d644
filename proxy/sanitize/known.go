package sanitize

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"mneme/proxy/wire"
)

// Rule is something that is known of what a backend takes: by the table, by the configuration, or since it refused a
// request. It is a part of a profile, or about one member of requests.
type Rule struct {
	// Source is a public address, "belief", "configuration", or what the refusal said.
	Source string `yaml:"source"`
	// Model is the vendor's name of the model that it holds for; empty for all of the backend's. The table's rules are
	// looked up by the model and have none.
	Model string `yaml:"model"`

	// Profile is applied over what is known without the rule.
	Profile Overrides `yaml:"profile"`
	// Schemas are the Keys of tools whose schemas go in the plain form.
	Schemas []string `yaml:"plain_schemas,flow"`

	// Name is a member of the request that is left out, or with a dot a member's member; empty for none.
	Name string `yaml:"member"`
	// Value is the one value, as JSON, that is left out; empty for any.
	Value string `yaml:"value"`
	// Beside is the member together with which it is left out; empty for any request.
	Beside string `yaml:"beside"`
	// Instead is the member that takes over its value; empty for none.
	Instead string `yaml:"instead"`
	// Set is the value, as JSON, that the member has instead, also where the request has none; empty for none.
	Set string `yaml:"set"`
	// Most: the member stays, and is at most this; 0 for any.
	Most int64 `yaml:"most"`
}

// String is the rule as YAML in one line.
func (f Rule) String() string {
	text, err := yaml.MarshalWithOptions(f, yaml.OmitZero(), yaml.Flow(true))
	if err != nil {
		panic(err) // it is a struct of plain values
	}
	return strings.TrimSpace(string(text))
}

// Same reports whether two rules say the same, whatever they are known from.
func (f Rule) Same(other Rule) bool {
	f.Source = other.Source
	return reflect.DeepEqual(f, other)
}

// whileThinking in Rule.Beside stands for what the model does, not for the member.
const whileThinking = "thinking"

// Learn returns p as rules have it.
func (p Profile) Learn(rules []Rule) Profile {
	for i := range rules {
		p = rules[i].Profile.Apply(p)
	}
	return p
}

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
