package rag

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"mneme/memory/number"
	"mneme/memory/textindex"
)

// Where says which documents a search may find, by their metadata: every key must be
// there with a value that meets all its conditions. Empty, it lets all pass.
type Where map[string]Condition

// Condition is what a value of the metadata must be; all that is set must hold. Eq and
// In compare texts. Gte and Lte, "at least" and "at most", compare decimal numbers if
// both sides are some, and texts byte by byte otherwise, by which ISO dates are ordered.
type Condition struct {
	Eq  *string  `json:"eq,omitempty" yaml:"eq,omitempty"`
	In  []string `json:"in,omitempty" yaml:"in,omitempty"`
	Gte *string  `json:"gte,omitempty" yaml:"gte,omitempty"`
	Lte *string  `json:"lte,omitempty" yaml:"lte,omitempty"`
}

// Limits of a filter.
const (
	MaxWhereKeys   = 16
	maxWhereValues = 100     // of one "in"
	MaxWhereText   = 1 << 10 // bytes of a key or a value
)

// WhereError says what is wrong with a filter. It wraps ErrBadQuery.
type WhereError struct {
	Path     []string // the key, and the operator if it is about one
	Sentence string
}

func (e *WhereError) Error() string {
	return "the filter " + strings.Join(append([]string{"where"}, e.Path...), ".") + " " + e.Sentence
}

// Unwrap makes it a fault of the query.
func (e *WhereError) Unwrap() error { return ErrBadQuery }

// ParseWhere reads a filter from JSON: {"lang": "en", "date": {"gte": "2024-01-01"},
// "kind": {"in": ["faq", "howto"]}}. Numbers and booleans stand for their text, as they
// do in metadata. null is no filter. raw is valid JSON. Errors are *WhereError.
func ParseWhere(raw []byte) (Where, error) {
	filter := gjson.ParseBytes(raw)
	keys := filter.Map()
	wrong := func(format string, args ...any) error { return &WhereError{nil, fmt.Sprintf(format, args...)} }
	switch {
	case filter.Type == gjson.Null:
		return nil, nil
	case !filter.IsObject():
		return nil, wrong(`must be an object of metadata keys, such as {"lang": "en"}, not %s`, kindOf(filter))
	case len(keys) == 0:
		return nil, wrong("is empty: leave it out to search all documents")
	case len(keys) > MaxWhereKeys:
		return nil, wrong("has %d keys, the limit is %d", len(keys), MaxWhereKeys)
	}
	w := Where{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if key == "" || len(key) > MaxWhereText {
			return nil, wrong("has a key of %d bytes: a key has 1 to %d", len(key), MaxWhereText)
		}
		var err error
		if w[key], err = parseCondition(key, keys[key]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func parseCondition(key string, value gjson.Result) (c Condition, err error) {
	if !value.IsObject() {
		c.Eq, err = scalar(value, key)
		return c, err
	}
	operators := value.Map()
	if len(operators) == 0 {
		return c, &WhereError{[]string{key}, "is empty: set one of eq, in, gte and lte"}
	}
	texts := map[string]**string{"eq": &c.Eq, "gte": &c.Gte, "lte": &c.Lte}
	for _, operator := range slices.Sorted(maps.Keys(operators)) {
		if target, ok := texts[operator]; ok {
			*target, err = scalar(operators[operator], key, operator)
		} else if operator == "in" {
			c.In, err = scalars(operators[operator], key, operator)
		} else {
			err = &WhereError{[]string{key, operator}, "has no such operator: there are eq, in, gte and lte"}
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// scalar is the text of a JSON string, number or boolean.
func scalar(v gjson.Result, path ...string) (*string, error) {
	text := v.Raw
	switch v.Type {
	case gjson.String:
		text = v.Str
	case gjson.JSON, gjson.Null:
		return nil, &WhereError{path, "must be a string, a number, true or false, not " + kindOf(v)}
	}
	if len(text) > MaxWhereText {
		return nil, &WhereError{path, fmt.Sprintf("has a value of %d bytes, the limit is %d", len(text), MaxWhereText)}
	}
	return &text, nil
}

func scalars(v gjson.Result, path ...string) ([]string, error) {
	if !v.IsArray() {
		return nil, &WhereError{path, "must be a list of values, not " + kindOf(v)}
	}
	list := v.Array()
	if n := len(list); n == 0 || n > maxWhereValues {
		return nil, &WhereError{path, fmt.Sprintf("has %d values: a list has 1 to %d", n, maxWhereValues)}
	}
	texts := make([]string, len(list))
	for i, one := range list {
		text, err := scalar(one, path...)
		if err != nil {
			return nil, err
		}
		texts[i] = *text
	}
	return texts, nil
}

// kindOf names the kind of a JSON value.
func kindOf(v gjson.Result) string {
	switch {
	case v.IsObject():
		return "an object"
	case v.IsArray():
		return "an array"
	}
	return map[gjson.Type]string{gjson.Null: "null", gjson.String: "a string", gjson.Number: "a number",
		gjson.True: "a boolean", gjson.False: "a boolean"}[v.Type]
}

// match reports whether metadata meets the filter.
func (w Where) match(metadata map[string]string) bool {
	for key, c := range w {
		value, ok := metadata[key]
		if !ok || c.Eq != nil && *c.Eq != value || c.In != nil && !slices.Contains(c.In, value) ||
			c.Gte != nil && compare(value, *c.Gte) < 0 || c.Lte != nil && compare(value, *c.Lte) > 0 {
			return false
		}
	}
	return true
}

// compare orders two values: as numbers if both are decimal, else byte by byte.
func compare(value, bound string) int {
	a, first := number.Parse(value)
	b, second := number.Parse(bound)
	if first && second {
		return a.Compare(b)
	}
	return strings.Compare(value, bound)
}

// maxFilters bounds the filters of a collection that are kept with what they found out. They are those of the
// configuration and those that callers repeat.
const maxFilters = 32

// filters are the filters of a collection.
type filters struct {
	mu    sync.Mutex
	byKey map[string]*textindex.Filter // guarded by mu
}

// lookup returns the filter with a key. It calls make if there is none.
func (f *filters) lookup(key string, create func() *textindex.Filter) *textindex.Filter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.byKey) >= maxFilters || f.byKey == nil {
		f.byKey = map[string]*textindex.Filter{}
	}
	if f.byKey[key] == nil {
		f.byKey[key] = create()
	}
	return f.byKey[key]
}

// filter gives the filter of the index that lets pass what meets w; nil for all.
func (k *localCopy) filter(w Where) *textindex.Filter {
	if len(w) == 0 {
		return nil
	}
	key, _ := json.Marshal(w) // texts have an encoding
	return k.filters.lookup(string(key), func() *textindex.Filter {
		return textindex.NewFilter(func(name string) bool {
			h := k.get(name)
			// One that was replaced since the snapshot passes: if it is hit, the search
			// begins again on the newer index, where it is no longer.
			return h == nil || w.match(h.Metadata)
		})
	})
}
