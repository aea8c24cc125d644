package config

import (
	"encoding"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
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

// env is the variable that sets the key.
func (k key) env() string { return envRoot + envName(k.path) }

// envName is a path as variables have it: in upper case, dots and dashes as underscores.
func envName(path string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// members are the settings of a struct type by the names that a file has for them.
func members(t reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name != "" && name != "-" && !yield(name, f) {
				return
			}
		}
	}
}

// isBlock says whether a type has settings of its own, and is not a value that reads itself.
func isBlock(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func hasElements(t reflect.Type) bool { return t.Kind() == reflect.Map || t.Kind() == reflect.Slice }

// keys lists every value below a struct type, in order of declaration.
func keys(t reflect.Type, prefix string) []key {
	var all []key
	for name, f := range members(t) {
		switch path := prefix + name; {
		case isBlock(f.Type):
			all = append(all, keys(f.Type, path+".")...)
		case hasElements(f.Type) && isBlock(f.Type.Elem()):
			all = append(all, keys(f.Type.Elem(), path+".*.")...)
		default:
			all = append(all, key{path, f.Type})
		}
	}
	return all
}

func allKeys() []key { return keys(reflect.TypeFor[Config](), "") }

// Known says whether the configuration has a key of this path; * stands for a name in
// it, as in agents.subagents.*.model.
func Known(path string) bool {
	return slices.ContainsFunc(allKeys(), func(k key) bool { return k.path == path })
}

// steps are those of a path; a name with a dot in it is quoted.
var steps = regexp.MustCompile(`'[^']*'|\[\d+\]|[^.\[]+`)

// typeAt is the type of what stands at a path; nil where the configuration has no such place.
func typeAt(path string) reflect.Type {
	t := reflect.TypeFor[Config]()
next:
	for _, step := range steps.FindAllString(path, -1) {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if hasElements(t) {
			t = t.Elem()
			continue
		}
		if t.Kind() == reflect.Struct {
			for name, f := range members(t) {
				if name == step {
					t = f.Type
					continue next
				}
			}
		}
		return nil
	}
	return t
}

// walker visits every setting of a configuration with its path and with what its tags ask of it: what stands below
// first, in order of declaration, and of names. A visit may change the value where write is set.
type walker struct {
	visit func(path, check string, v reflect.Value) error
	write bool
}

// walk is for a value and what is below it; the part of check behind "dive" is for the elements of a list or a map.
func (w walker) walk(path, check string, v reflect.Value) (err error) {
	check, below, _ := strings.Cut(check, "dive,")
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			err = w.walk(path, "", v.Elem())
		}
	case reflect.Struct:
		for name, f := range members(v.Type()) {
			if err = w.walk(join(path, name), f.Tag.Get("check"), v.FieldByIndex(f.Index)); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err = w.walk(fmt.Sprintf("%s[%d]", path, i), below, v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, name := range names(v) {
			entry := reflect.New(v.Type().Elem()).Elem()
			entry.Set(v.MapIndex(reflect.ValueOf(name)))
			if err = w.walk(join(path, name), below, entry); err != nil {
				return err
			}
			if w.write {
				v.SetMapIndex(reflect.ValueOf(name), entry)
			}
		}
	}
	if err == nil {
		err = w.visit(path, check, v)
	}
	return err
}

// names are those in a map, in their order.
func names(m reflect.Value) (all []string) {
	for _, name := range m.MapKeys() {
		all = append(all, name.String())
	}
	slices.Sort(all)
	return all
}

// wants says in words what a value of the type looks like.
func wants(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s, 10m or 24h is needed"
	case t == reflect.TypeFor[RouteKeys]():
		return "{BACKEND: [VARIABLE, VARIABLE]} is needed"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false is needed"
	case reflect.Int, reflect.Int64:
		return "a whole number is needed"
	case reflect.Float64:
		return "a number is needed"
	case reflect.Slice:
		return "a list is needed"
	case reflect.Map:
		return "pairs of name and value are needed"
	case reflect.Struct:
		return "a block of keys is needed"
	}
	return "text is needed"
}

// didYouMean is the end of a sentence about an unknown name.
func didYouMean(name string, candidates []string) string {
	if best := api.Nearest(name, candidates); best != "" {
		return "did you mean " + best + "?"
	}
	return "docs/configuration.md lists what there is"
}

// join is the path of a name under a path, quoted as the YAML library does it.
func join(path, name string) string {
	if strings.ContainsAny(name, "$*.[]") {
		name = fmt.Sprintf("'%s'", name)
	}
	return strings.TrimPrefix(path+"."+name, ".")
}

// parent cuts the last step, ".name" or "[0]", off a path.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// sorted walks a map in the order of its keys, so that the first error is
// always the same one.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
