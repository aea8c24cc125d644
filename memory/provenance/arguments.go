package provenance

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"mneme/memory"
	"mneme/memory/envelope"
	"mneme/memory/event"
)

// Bounds of what a person is told of origins.
const (
	maxOrigins = 64  // values of one call that are told one by one
	maxValue   = 100 // bytes of one
)

// Arguments says where the values of a call's arguments are from, in the order of their names. Names that the call's
// schema, parameters, does not declare are values, too. A call without values has the first foreign origin that there
// is, since that it is made at all may be from there, and so have the values behind the last one that there is room for.
func (l *Ledger) Arguments(parameters, arguments json.RawMessage) (all []event.ArgumentOrigin) {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var whole any
	if d.Decode(&whole) != nil {
		return nil // its schema was checked before
	}
	add := func(name, value string) {
		switch {
		case len(all) < maxOrigins:
			all = append(all, event.ArgumentOrigin{Argument: name, Value: value, Origin: l.Value(value)})
		case len(all) == maxOrigins:
			all = append(all, event.ArgumentOrigin{Argument: "…", Origin: l.foreign()})
		}
	}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if name != "" || !declares(parameters, key) {
					add(name, key)
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
	if of := l.foreign(); len(all) == 0 && of != (memory.Origin{}) {
		all = append(all, event.ArgumentOrigin{Origin: of})
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
