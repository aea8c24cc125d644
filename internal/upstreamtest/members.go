package upstreamtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// lenient accepts duplicate names, as vendors do. Vendors refuse broken Unicode.
var lenient = jsontext.AllowDuplicateNames(true)

// members is a JSON object with undecoded values.
type members map[string]jsontext.Value

// has reports whether a member exists and is not null.
func (m members) has(name string) bool { return m[name] != nil && m[name].Kind() != 'n' }

// text returns the member if it is a string.
func (m members) text(name string) (s string, ok bool) {
	v := m[name]
	if v.Kind() != '"' {
		return "", false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), true // the whole body is valid JSON
	}
	return s, json.Unmarshal(v, &s, lenient) == nil
}

// str returns the member if it is a string, else "".
func (m members) str(name string) string {
	s, _ := m.text(name)
	return s
}

// is reports whether the member is this string.
func (m members) is(name, value string) bool {
	v := m[name]
	if v.Kind() != '"' {
		return false
	}
	return string(v[1:len(v)-1]) == value || bytes.IndexByte(v, '\\') >= 0 && m.str(name) == value
}

// kind returns the member "type".
func (m members) kind() string { return m.str("type") }

// in returns a member that is an object, else nil.
func (m members) in(name string) members {
	object, _ := m.object(name)
	return object
}

// list returns the member if it is an array of objects.
func (m members) list(name string) (objects []members, ok bool) {
	return objects, m[name].Kind() == '[' && json.Unmarshal(m[name], &objects, lenient) == nil
}

func (m members) object(name string) (object members, ok bool) {
	return object, m[name].Kind() == '{' && json.Unmarshal(m[name], &object, lenient) == nil
}

// unknown returns the first member, in order, that is not in known.
func (m members) unknown(allowed ...string) string {
	return m.first(func(name string) bool { return !slices.Contains(allowed, name) })
}

// first returns the first name, in order, for which such holds, or "".
func (m members) first(match func(name string) bool) string {
	first, ok := "", false
	for name := range m {
		if match(name) && (!ok || name < first) {
			first, ok = name, true
		}
	}
	return first
}

// read decodes a body, which must be one JSON object in valid Unicode.
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
