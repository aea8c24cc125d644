package upstreamtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// lenient takes a name twice, as vendors do; broken Unicode they refuse.
var lenient = jsontext.AllowDuplicateNames(true)

// members is a JSON object with values that are still undecoded.
type members map[string]jsontext.Value

// has is false for a member that is null, too.
func (m members) has(name string) bool { return m[name] != nil && m[name].Kind() != 'n' }

// text is the member's value if it is a string.
func (m members) text(name string) (s string, ok bool) {
	if m[name].Kind() != '"' {
		return "", false
	}
	return s, json.Unmarshal(m[name], &s, lenient) == nil
}

// list is the member's value if it is an array of objects.
func (m members) list(name string) (objects []members, ok bool) {
	return objects, m[name].Kind() == '[' && json.Unmarshal(m[name], &objects, lenient) == nil
}

func (m members) object(name string) (object members, ok bool) {
	return object, m[name].Kind() == '{' && json.Unmarshal(m[name], &object, lenient) == nil
}

// unknown names the first member, in order, that is none of these.
func (m members) unknown(known ...string) string {
	var rest []string
	for name := range m {
		if !slices.Contains(known, name) {
			rest = append(rest, name)
		}
	}
	if len(rest) == 0 {
		return ""
	}
	return slices.Min(rest)
}

// read takes a body that is one JSON object and valid Unicode, escapes included.
func read(body []byte) (members, error) {
	var m members
	if err := json.Unmarshal(body, &m, lenient); err != nil {
		return nil, fmt.Errorf("the request body is not valid JSON: %w", err)
	}
	if m == nil {
		return nil, fmt.Errorf("the request body must be a JSON object")
	}
	return m, nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
