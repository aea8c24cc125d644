package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// DecodeKnown is DecodeBody for what people write: a member of the body that the
// struct behind v does not have is a 400 that names the nearest one, so that a
// mistyped option is not silently none.
func DecodeKnown(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	raw, err := decodeBody(w, r, limit, math.MaxInt, v)
	if err != nil {
		return err
	}
	return onlyKnown(raw, v)
}

// UnmarshalKnown is DecodeKnown for an object that is no body by itself.
func UnmarshalKnown(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return explain(err)
	}
	if err := checkUnique(raw, math.MaxInt); err != nil {
		return err
	}
	return onlyKnown(raw, v)
}

// onlyKnown refuses the members of a valid object that the struct behind v does not have.
func onlyKnown(raw []byte, v any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return explain(err)
	}
	known := memberNames(reflect.TypeOf(v).Elem())
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			continue
		}
		hint := "there are " + strings.Join(known, ", ")
		if best := Nearest(name, known); best != "" {
			hint = "the nearest one is " + best
		}
		return badRequest(fmt.Sprintf("The body has no member %.80q; %s.", name, hint))
	}
	return nil
}

// memberNames are the names of a struct's members in JSON.
func memberNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) { // those of embedded structs, too
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// Nearest picks the candidate that a mistyped name was most likely meant to be;
// empty when none is close.
func Nearest(name string, candidates []string) string {
	best, least := "", max(2, len(name)/4)+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Closest gives up to n candidates, those that are most like name first.
func Closest(name string, candidates []string, n int) []string {
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	return sorted[:min(n, len(sorted))]
}

// distance counts the single-byte edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
