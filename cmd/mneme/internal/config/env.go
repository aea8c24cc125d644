package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

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
	return &Error{
		Where: ttlSeconds,
		Problem: fmt.Sprintf("a whole number of seconds is needed, such as 86400, not %q; %s takes a duration with a unit",
			value, aliases[ttlSeconds]),
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
	for alias, name := range sorted(aliases) {
		value := environ[alias]
		if value == "" || environ[name] != "" {
			continue
		}
		if alias == ttlSeconds {
			if _, err := strconv.ParseInt(value, 10, 32); err != nil {
				return notSeconds(value)
			}
			value += "s"
		}
		if err := c.setVar(alias, name, value); err != nil {
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

// setVar sets the key that the variable name stands for. Errors call the variable alias, as the user does.
func (c *Config) setVar(alias, name, text string) error {
	var candidates []string
	for _, k := range allKeys() {
		path, variable := k.variable()
		if variable == name {
			return c.set(alias, path, text)
		}
		candidates = append(candidates, variable)
	}
	if err := removedVariable(name); err != nil {
		return err
	}
	return &Error{Where: alias, Problem: "no key has this name; " + didYouMean(name, candidates)}
}

// set gives a key the value of a variable. A text key takes the value as it is. Other values are YAML, which replaces
// a list or a map as a whole.
func (c *Config) set(variable, path, text string) error {
	return c.change(func(s setting) error {
		if s.path != path {
			return nil
		}
		c.origin.replace(path, variable)
		if name, ok := s.value.Addr().Interface().(*Variable); ok {
			*name = Variable{Name: text}
			return nil
		}
		if s.value.Kind() == reflect.String {
			s.value.SetString(text)
			return nil
		}
		if b, err := strconv.ParseBool(text); err == nil && s.value.Kind() == reflect.Bool {
			text = strconv.FormatBool(b) // 1 and 0 are booleans in variables only
		}
		if s.value.CanInt() && s.value.Type() != reflect.TypeFor[time.Duration]() { // YAML truncates 1.9 and reads 010 as 8
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return &Error{Where: variable, Problem: fmt.Sprintf("%s, not %q", wants(s.value.Type()), text)}
			}
			s.value.SetInt(n)
			return nil
		}
		src := source{variable, path}
		body, err := src.parse([]byte(text))
		if err != nil {
			return err
		}
		if problem := misfit(s.value.Type(), body, text); problem != "" {
			return &Error{Where: variable, Problem: problem}
		}
		s.value.SetZero()
		return c.decode(src, body, s.value.Addr().Interface())
	})
}

// misfit describes the wrong kind of a variable's YAML. Lists and maps of 0.2 were texts with commas.
func misfit(t reflect.Type, body ast.Node, text string) string {
	_, list := body.(*ast.SequenceNode)
	_, block := body.(ast.MapNode)
	switch {
	case t.Kind() == reflect.Slice && !list, t.Kind() == reflect.Map && !block:
		return wants(t) + ", such as " + example(t)
	case body == nil || body.Type() == ast.NullType:
		return fmt.Sprintf("%s, not %q", wants(t), text)
	}
	return ""
}

// example returns sample YAML for a type.
func example(t reflect.Type) string {
	switch {
	case isBlock(t):
		return "{key: value}"
	case t.Kind() == reflect.Slice:
		return "[" + example(t.Elem()) + ", …]"
	case t.Kind() == reflect.Map:
		return "{name: " + example(t.Elem()) + "}"
	}
	return "value"
}

// removedVariable refuses a variable of 0.2 that sets a member of a list or a map. It returns nil for other names.
func removedVariable(name string) error {
	for _, k := range allKeys() {
		list, variable := k.variable()
		if strings.Contains(k.path, ".*.") && strings.HasPrefix(name, variable+"_") {
			return &Error{Where: name, Problem: fmt.Sprintf("variables for members of %s were removed in 0.3; write %[1]s into "+
				"mneme.yaml, or set %s to one YAML value such as %s", list, variable, example(typeAt(list)))}
		}
	}
	return nil
}
