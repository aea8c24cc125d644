package external

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/envelope"
)

// Origin implements loop.Sourced.
func (t *tool) Origin(string) memory.Origin {
	if t.Trusted {
		return memory.Origin{From: memory.FromOwn, Source: t.ID()}
	}
	return memory.Origin{From: memory.FromOutside, Source: t.ID()}
}

// Origin implements loop.Sourced.
func (t *clientTool) Origin(result string) memory.Origin { return t.of.Origin(result) }

// Bounds of what a person is told of origins.
const (
	maxOrigins = 64  // values of one call
	maxValue   = 100 // bytes of one
	toldValues = 5   // in the sentence
)

// origins says where the values of a call's arguments are from, in the order of their names. The values behind the last
// that it has room for count as one.
func (t *tool) origins(arguments json.RawMessage) (all []event.ArgumentOrigin) {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var whole any
	if d.Decode(&whole) != nil {
		return nil // its schema was checked before
	}
	add := func(name, value string) {
		if len(all) == maxOrigins {
			name, value = "…", value+"\n"+all[maxOrigins-1].Value
			all = all[:maxOrigins-1]
		}
		all = append(all, event.ArgumentOrigin{Argument: name, Value: value, Origin: t.holder.Given.Value(value)})
	}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if name != "" || !declares(t.Parameters, key) {
					add(name, key) // what a model may name freely is a value, too
				}
				walk(strings.TrimPrefix(name+"."+key, "."), v[key])
			}
		case []any:
			for _, one := range v {
				walk(name, one)
			}
		case string:
			add(name, v)
		case json.Number:
			add(name, v.String())
		}
	}
	walk("", whole)
	if of := t.holder.Given.Foreign(); len(all) == 0 && of != (memory.Origin{}) {
		all = append(all, event.ArgumentOrigin{Origin: of}) // that it is called at all may be from there
	}
	for i := range all { // whoever wrote a document has named it
		all[i].Source, _ = envelope.Label(all[i].Source)
		all[i].Argument, _ = envelope.Label(all[i].Argument)
		all[i].Value, _ = envelope.Label(memory.Shorten(all[i].Value, maxValue))
	}
	return all
}

// declares says whether a schema names an argument.
func declares(parameters json.RawMessage, name string) bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal(parameters, &schema) == nil && schema.Properties[name] != nil
}

// tainted says whether a call may be what the author of a document, or of what a tool returned, wants: a value of its
// arguments is from there, and the user did not say it. A call without values is, if there is such an author.
func tainted(origins []event.ArgumentOrigin) bool {
	return slices.ContainsFunc(origins, func(o event.ArgumentOrigin) bool { return o.From.Foreign() })
}

// unsaid says whether the user has to have said a value, and did not.
func (t *tool) unsaid(o event.ArgumentOrigin) bool {
	name, _, _ := strings.Cut(o.Argument, ".")
	return slices.Contains(t.FromUser, name) && o.From != memory.FromUser
}

// notSaid is a sentence on the values that are not of the user or an agent, and on those that the user had to say and did
// not; empty for none.
func notSaid(t *tool, origins []event.ArgumentOrigin) string {
	var list []string
	for _, o := range origins {
		if (o.From.Foreign() || t.unsaid(o)) && len(list) < toldValues {
			list = append(list, strings.TrimLeft(fmt.Sprintf("%s %s: %s", o.Argument, o.Value, o.Shown()), ": "))
		}
	}
	if list == nil {
		return ""
	}
	return " Not from the user: " + strings.Join(list, "; ") + "."
}
