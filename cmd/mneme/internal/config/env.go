package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/subagent/openaimodel"
)

// aliases are the gateway's own names for three keys. TTL_SECONDS has no unit.
var aliases = map[string]string{
	"GATEWAY_STATE_MACHINE_ENABLED": "MNEME_PROXY_STATE_MACHINE_ENABLED",
	ttlSeconds:                      "MNEME_PROXY_STATE_MACHINE_TTL",
	"STATE_MACHINE_MAX_TURNS":       "MNEME_PROXY_STATE_MACHINE_MAX_TURNS",
}

const ttlSeconds = "STATE_MACHINE_TTL_SECONDS"

// notSeconds is the error about a value that is not the number that the name announces.
func notSeconds(value string) error {
	example := "86400"
	if d, err := time.ParseDuration(value); err == nil && d >= time.Second {
		example = fmt.Sprintf("%d for %s", int64(d.Seconds()), value)
	}
	return &Error{
		Where: ttlSeconds,
		Problem: fmt.Sprintf("a whole number of seconds is needed, such as %s, not %q; %s takes a duration with a unit",
			example, value, aliases[ttlSeconds]),
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
	for said, name := range sorted(aliases) {
		value := environ[said]
		if value == "" || environ[name] != "" {
			continue
		}
		if said == ttlSeconds {
			if _, err := strconv.ParseInt(value, 10, 32); err != nil {
				return notSeconds(value)
			}
			value += "s"
		}
		if err := c.setVar(said, name, value); err != nil {
			return err
		}
	}
	for name, value := range sorted(environ) {
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
//
// The name of an entry stands in the middle: MNEME_PROXY_BACKENDS_KIMI_KIND. A map gets an entry that it does not have,
// with what its tag "prefix" says before the name. A list has only the entries of the file, as has a map with the tag
// "fixed", since a variable does not tell the letters of its names.
func (c *Config) setVar(said, name, value string) error {
	found := false
	if err := c.change(func(s setting) error {
		if s.env != name || isBlock(s.value.Type()) {
			return nil
		}
		found, c.origin.vars[s.path] = true, said
		if needed := setText(s.value, value); needed != "" {
			return &Error{Where: said, Problem: fmt.Sprintf("%s, not %q", needed, value)}
		}
		return nil
	}); found || err != nil {
		return err
	}
	var known, ends []string
	at := ""
	for _, k := range allKeys() {
		known = append(known, k.env())
		begin, end, _ := strings.Cut(k.env(), "*_")
		rest, ok := strings.CutPrefix(name, begin)
		if !ok || end == "" {
			continue
		}
		at, _, _ = strings.Cut(k.path, ".*")
		ends = append(ends, end)
		if id := strings.TrimSuffix(rest, "_"+end); id != rest && id != "" {
			if c.addEntry(at, strings.ToLower(id)) {
				return c.setVar(said, name, value)
			}
			return &Error{Where: said, Problem: fmt.Sprintf("%s has no %q; add it in the file, variables only change those "+
				"that exist", at, strings.ToLower(id))}
		}
	}
	if at != "" {
		return &Error{Where: said, Problem: fmt.Sprintf("no key of %s.NAME has this name; it must end in one of %s", at,
			strings.Join(ends, ", "))}
	}
	return &Error{Where: said, Problem: "no key has this name; " + didYouMean(name, known)}
}

// addEntry adds an empty entry to a map that may have more.
func (c *Config) addEntry(path, name string) (added bool) {
	_ = c.change(func(s setting) error {
		if s.path != path || s.value.Kind() != reflect.Map || s.check == "fixed" {
			return nil
		}
		if s.value.IsNil() {
			s.value.Set(reflect.MakeMap(s.value.Type()))
		}
		prefix, _, _ := strings.Cut(s.check, ",")
		if prefix, ok := strings.CutPrefix(prefix, "prefix="); ok {
			name = prefix + name
		}
		s.value.SetMapIndex(reflect.ValueOf(name), reflect.Zero(s.value.Type().Elem()))
		added = true
		return nil
	})
	return added
}

// setText gives a value what a variable has for it, or says what is needed there.
func setText(v reflect.Value, text string) (needed string) {
	var err error
	own, readsItself := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch kind := v.Kind(); {
	case readsItself:
		err = own.UnmarshalText([]byte(text))
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setText(v.Elem(), text)
	case kind == reflect.Slice:
		parts := strings.Split(text, ",")
		v.Set(reflect.MakeSlice(v.Type(), len(parts), len(parts)))
		for i, part := range parts {
			if needed = setText(v.Index(i), part); needed != "" {
				return needed
			}
		}
	case kind == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for pair := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(pair, "=")
			entry := reflect.New(v.Type().Elem()).Elem()
			if !ok || setText(entry, value) != "" {
				return "name=value,name=value is needed"
			}
			v.SetMapIndex(reflect.ValueOf(name), entry)
		}
	case kind == reflect.String:
		v.SetString(text)
	case kind == reflect.Bool:
		err = parse(v, text, strconv.ParseBool)
	case kind == reflect.Float64:
		err = parse(v, text, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	case v.Type() == reflect.TypeFor[time.Duration]():
		err = parse(v, text, time.ParseDuration)
	default:
		err = parse(v, text, strconv.Atoi)
	}
	if err != nil {
		return wants(v.Type())
	}
	return ""
}

func parse[T any](v reflect.Value, text string, read func(text string) (T, error)) error {
	value, err := read(text)
	v.Set(reflect.ValueOf(value).Convert(v.Type()))
	return err
}
