package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/subagent/openaimodel"
)

// aliases are the gateway's own names for three keys. TTL_SECONDS has no unit.
var aliases = map[string]alias{
	"GATEWAY_STATE_MACHINE_ENABLED": {"MNEME_PROXY_STATE_MACHINE_ENABLED", ""},
	"STATE_MACHINE_TTL_SECONDS":     {"MNEME_PROXY_STATE_MACHINE_TTL", "s"},
	"STATE_MACHINE_MAX_TURNS":       {"MNEME_PROXY_STATE_MACHINE_MAX_TURNS", ""},
}

// alias is what another name stands for: the variable, and the unit of a number.
type alias struct{ name, unit string }

// wholeSeconds refuses a value that is not the number that the name announces.
func wholeSeconds(said, value string, a alias) error {
	if _, err := strconv.ParseInt(value, 10, 32); err == nil {
		return nil
	}
	example := "86400"
	if d, err := time.ParseDuration(value); err == nil && d >= time.Second {
		example = fmt.Sprintf("%d for %s", int64(d.Seconds()), value)
	}
	return &Error{
		Where: said,
		Problem: fmt.Sprintf("a whole number of seconds is needed, such as %s, not %q; %s takes a duration with a unit",
			example, value, a.name),
	}
}

// flagVars set flags of the command line, or hold a secret; no key has these names.
var flagVars = []string{"MNEME_CONFIG", "MNEME_MODEL", "MNEME_URL", "MNEME_KEY", SecretVar}

// serviceLink matches the variables that Kubernetes makes for every Service,
// here those for Services named mneme-….
var serviceLink = regexp.MustCompile(
	`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)$`,
)

// effortVars ends the names of the variables of which an empty one says that nothing
// is to be sent.
const effortVars = "_REASONING_EFFORT"

// readEnviron lays the environment over c. Other empty variables count as not set.
// Variables are taken one at a time, so that an error is surely about that one.
func (c *Config) readEnviron(environ map[string]string) error {
	names := slices.Sorted(maps.Keys(environ))
	for _, said := range names {
		if a, ok := aliases[said]; ok && environ[said] != "" && environ[a.name] == "" {
			if a.unit != "" {
				if err := wholeSeconds(said, environ[said], a); err != nil {
					return err
				}
			}
			if err := c.setVar(said, a.name, environ[said]+a.unit); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		value := environ[name]
		if value == "" && strings.HasSuffix(name, effortVars) {
			value = openaimodel.EffortNone
		}
		if !strings.HasPrefix(name, envRoot) || value == "" || slices.Contains(flagVars, name) || isServiceLink(name, value) {
			continue
		}
		if err := c.setVar(name, name, value); err != nil {
			return err
		}
	}
	return nil
}

func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && (strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value, "udp://"))
}

// setVar sets the key that the variable name stands for; said is what the user
// calls the variable.
func (c *Config) setVar(said, name, value string) error {
	found, err := c.set("", strings.TrimPrefix(name, envRoot), reflect.ValueOf(c).Elem(), said, value)
	if found || err != nil {
		return err
	}
	var known []string
	for _, k := range allKeys() {
		known = append(known, k.env())
	}
	return &Error{Where: said, Problem: "no key has this name; " + didYouMean(name, known)}
}

// set gives the setting of a block that is called rest in variables a value.
func (c *Config) set(path, rest string, block reflect.Value, said, value string) (found bool, err error) {
	for name, f := range members(block.Type()) {
		at, v := join(path, name), block.FieldByIndex(f.Index)
		below, inside := strings.CutPrefix(rest, envName(name)+"_")
		switch {
		case inside && isBlock(f.Type):
			found, err = c.set(at, below, v, said, value)
		case inside && hasElements(f.Type) && isBlock(f.Type.Elem()):
			found, err = true, c.setEntry(at, below, f.Tag, v, said, value)
		case rest == envName(name) && !isBlock(f.Type):
			c.origin.vars[at] = said
			found = true
			if problem := setText(v, value); problem != "" {
				err = &Error{Where: said, Problem: fmt.Sprintf("%s, not %q", problem, value)}
			}
		}
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// setEntry sets a setting of an entry, whose name stands in the middle of the variable's: MNEME_PROXY_BACKENDS_KIMI_KIND.
// A list has only the entries of the file, as has a map with the tag "fixed", of whose names a variable does not tell
// the letters. Other maps get what they do not have. The tag "prefix" begins the names of a map.
func (c *Config) setEntry(path, rest string, tag reflect.StructTag, entries reflect.Value, said, value string) error {
	var id string
	var ends []string
	for _, k := range keys(entries.Type().Elem(), "") {
		ends = append(ends, envName(k.path))
		if before, ok := strings.CutSuffix(rest, "_"+envName(k.path)); ok && id == "" {
			id, rest = before, envName(k.path)
		}
	}
	if id == "" {
		return &Error{Where: said, Problem: fmt.Sprintf("no key of %s.NAME has this name; it must end in one of %s", path,
			strings.Join(ends, ", "))}
	}
	entry, isMap := reflect.New(entries.Type().Elem()).Elem(), entries.Kind() == reflect.Map
	at, name := "", ""
	if isMap {
		called := envName(tag.Get("prefix")) + id
		for _, existing := range names(entries) {
			if envName(existing) == called {
				name = existing
				entry.Set(entries.MapIndex(reflect.ValueOf(name)))
			}
		}
		if name == "" && tag.Get("entries") != "fixed" {
			name = tag.Get("prefix") + strings.ToLower(id)
		}
		at = join(path, name)
	}
	for i := 0; !isMap && i < entries.Len(); i++ {
		if name = entries.Index(i).FieldByName("Name").String(); envName(name) == id {
			at, entry = fmt.Sprintf("%s[%d]", path, i), entries.Index(i)
			break
		}
		name = ""
	}
	if name == "" {
		return &Error{Where: said, Problem: fmt.Sprintf("%s has no %q; add it in the file, variables only change those "+
			"that exist", path, strings.ToLower(id))}
	}
	_, err := c.set(at, rest, entry, said, value)
	if isMap {
		if entries.IsNil() {
			entries.Set(reflect.MakeMap(entries.Type()))
		}
		entries.SetMapIndex(reflect.ValueOf(name), entry)
	}
	return err
}

// setText gives a value what a variable has for it, or says what is needed there.
func setText(v reflect.Value, text string) (needed string) {
	var err error
	needed = wants(v.Type())
	if own, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err = own.UnmarshalText([]byte(text))
	} else if v.Type() == reflect.TypeFor[time.Duration]() {
		var d time.Duration
		d, err = time.ParseDuration(text)
		v.SetInt(int64(d))
	} else {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			return setText(v.Elem(), text)
		case reflect.Slice:
			parts := strings.Split(text, ",")
			v.Set(reflect.MakeSlice(v.Type(), len(parts), len(parts)))
			for i, part := range parts {
				if problem := setText(v.Index(i), part); problem != "" {
					return problem
				}
			}
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
			for pair := range strings.SplitSeq(text, ",") {
				name, value, ok := strings.Cut(pair, "=")
				entry := reflect.New(v.Type().Elem()).Elem()
				if !ok || setText(entry, value) != "" {
					return "name=value,name=value is needed"
				}
				v.SetMapIndex(reflect.ValueOf(name), entry)
			}
		case reflect.String:
			v.SetString(text)
		case reflect.Bool:
			var is bool
			is, err = strconv.ParseBool(text)
			v.SetBool(is)
		case reflect.Float64:
			var n float64
			n, err = strconv.ParseFloat(text, 64)
			v.SetFloat(n)
		default:
			var n int64
			n, err = strconv.ParseInt(text, 10, 64)
			v.SetInt(n)
		}
	}
	if err != nil {
		return needed
	}
	return ""
}
