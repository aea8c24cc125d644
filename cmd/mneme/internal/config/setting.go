package config

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"mneme/apiserver/api"
)

// envRoot begins the name of every variable that sets a key.
const envRoot = "MNEME_"

// key is one value of the configuration.
type key struct {
	path string // "webmemory.listen"; * stands for a name the user gives
	kind reflect.Type
	tag  reflect.StructTag
}

// variable returns the path and the variable of the key, or of the list or map that holds it.
func (k key) variable() (path, name string) {
	path, _, _ = strings.Cut(k.path, ".*")
	return path, envRoot + envName(path)
}

// envName returns a path as variables have it: in upper case, with underscores for dots.
func envName(path string) string { return strings.ToUpper(strings.ReplaceAll(path, ".", "_")) }

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
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.NodeUnmarshaler]())
}

func hasElements(t reflect.Type) bool { return t.Kind() == reflect.Map || t.Kind() == reflect.Slice }

// keys lists every value below a struct type, in order of declaration.
func keys(t reflect.Type, prefix string) []key {
	var list []key
	for name, f := range members(t) {
		switch path := prefix + name; {
		case isBlock(f.Type):
			list = append(list, keys(f.Type, path+".")...)
		case hasElements(f.Type) && isBlock(f.Type.Elem()):
			list = append(list, keys(f.Type.Elem(), path+".*.")...)
		default:
			list = append(list, key{path, f.Type, f.Tag})
		}
	}
	return list
}

func allKeys() []key { return keys(reflect.TypeFor[Config](), "") }

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

// setting is a value of a configuration.
type setting struct {
	path  string            // "webmemory.listen", "proxy.backends.kimi.kind", "agents.subagents[0].name"
	tag   reflect.StructTag // of the setting itself
	check string            // what its tag asks of it, or that of the list or the map in which it is
	value reflect.Value
}

// walker visits every setting of a configuration, what stands below one before itself, in order of declaration and of
// names. A visit may change the value where write is set.
type walker struct {
	visit func(setting) error
	write bool
}

func (w walker) walk(s setting) (err error) {
	var elemCheck string // of the tag is for the elements of a list or a map
	s.check, elemCheck, _ = strings.Cut(s.check, "dive,")
	switch v := s.value; v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			err = w.walk(setting{path: s.path, value: v.Elem()})
		}
	case reflect.Struct:
		for name, f := range members(v.Type()) {
			in := setting{path: join(s.path, name), tag: f.Tag, check: f.Tag.Get("check"), value: v.FieldByIndex(f.Index)}
			if err = w.walk(in); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err = w.walk(setting{path: fmt.Sprintf("%s[%d]", s.path, i), check: elemCheck, value: v.Index(i)}); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, name := range names(v) {
			entry := reflect.New(v.Type().Elem()).Elem()
			entry.Set(v.MapIndex(reflect.ValueOf(name)))
			if err = w.walk(setting{path: join(s.path, name), check: elemCheck, value: entry}); err != nil {
				return err
			}
			if w.write {
				v.SetMapIndex(reflect.ValueOf(name), entry)
			}
		}
	}
	if err == nil {
		err = w.visit(s)
	}
	return err
}

// each visits the settings of c; visits that change them are those of change.
func (c Config) each(visit func(setting) error) error {
	return walker{visit: visit}.walk(setting{value: reflect.ValueOf(c)})
}

func (c *Config) change(visit func(setting) error) error {
	return walker{visit: visit, write: true}.walk(setting{value: reflect.ValueOf(c).Elem()})
}

// names are those in a map, in their order.
func names(m reflect.Value) (out []string) {
	for _, name := range m.MapKeys() {
		out = append(out, name.String())
	}
	slices.Sort(out)
	return out
}

// wants says in words what a value of the type looks like.
func wants(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
		return "a duration such as 90s, 10m or 24h is needed"
	}
	return cmp.Or(map[reflect.Kind]string{
		reflect.Bool: "true or false",
		reflect.Int:  "a whole number", reflect.Int64: "a whole number", reflect.Float64: "a number",
		reflect.Slice: "a list", reflect.Map: "a block of names and values", reflect.Struct: "a block of keys",
	}[t.Kind()], "text") + " is needed"
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
