package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"mneme/apiserver/api"
)

// envRoot begins the name of every variable that sets a key.
const envRoot = "MNEME_"

// key is one value of the configuration.
type key struct {
	path string // "webmemory.listen"; * stands for a name the user gives
	kind reflect.Type
}

// env is the variable that sets the key: MNEME_ and the path in upper case, dots
// and dashes as underscores.
func (k key) env() string { return envName(k.path) }

func envName(path string) string {
	return envRoot + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// keys lists every value below a struct type, in order of declaration.
func keys(t reflect.Type, prefix string) []key {
	var all []key
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		path := prefix + name
		switch {
		case f.Type.Kind() == reflect.Struct:
			all = append(all, keys(f.Type, path+".")...)
		case hasElements(f.Type) && f.Type.Elem().Kind() == reflect.Struct:
			all = append(all, keys(f.Type.Elem(), path+".*.")...)
		default:
			all = append(all, key{path, f.Type})
		}
	}
	return all
}

func hasElements(t reflect.Type) bool { return t.Kind() == reflect.Map || t.Kind() == reflect.Slice }

func allKeys() []key { return keys(reflect.TypeFor[Config](), "") }

// wants says in words what a value of the type looks like.
func wants(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s, 10m or 24h is needed"
	case t.Kind() == reflect.Bool, t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Bool:
		return "true or false is needed"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return "a whole number is needed"
	case t.Kind() == reflect.Float64, t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Float64:
		return "a number is needed"
	case t.Kind() == reflect.Slice:
		return "a list is needed"
	case t.Kind() == reflect.Map:
		return "pairs of name and value are needed"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Pointer:
		return "a block of keys is needed"
	}
	return "text is needed"
}

// Known says whether the configuration has a key of this path; * stands for a name in
// it, as in agents.subagents.*.model.
func Known(path string) bool {
	return slices.ContainsFunc(allKeys(), func(k key) bool { return k.path == path })
}

// didYouMean is the end of a sentence about an unknown name.
func didYouMean(name string, candidates []string) string {
	if best := api.Nearest(name, candidates); best != "" {
		return "did you mean " + best + "?"
	}
	return "docs/configuration.md lists what there is"
}
