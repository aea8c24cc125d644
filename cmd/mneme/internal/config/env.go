package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

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

// flagVars set flags of the command line, not keys.
var flagVars = []string{"MNEME_CONFIG", "MNEME_MODEL", "MNEME_URL"}

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
	for _, k := range allKeys() {
		if k.env() == name {
			c.origin.vars[k.path] = said
			return parseVar(c, envRoot, said, name, value)
		}
	}
	if rest, ok := strings.CutPrefix(name, backendVars); ok {
		return c.setBackendVar(said, rest, value)
	}
	if rest, ok := strings.CutPrefix(name, extractorVars); ok {
		return c.setExtractorVar(said, rest, value)
	}
	if rest, ok := strings.CutPrefix(name, subagentVars); ok {
		return c.setSubagentVar(said, rest, value)
	}
	if rest, ok := strings.CutPrefix(name, memberVars); ok {
		return c.setMemberVar(said, rest, value)
	}
	var known []string
	for _, k := range allKeys() {
		known = append(known, k.env())
	}
	return &Error{Where: said, Problem: "no key has this name; " + didYouMean(name, known)}
}

const (
	backendVars  = "MNEME_PROXY_BACKENDS_"
	subagentVars = "MNEME_AGENTS_SUBAGENTS_"
	memberVars   = "MNEME_PANEL_MEMBERS_"
)

// setBackendVar sets one field of a backend, which it adds if there is none of
// that name: "KIMI_BASE_URL".
func (c *Config) setBackendVar(said, rest, value string) error {
	id, field, ok := splitVar(rest, reflect.TypeFor[Backend]())
	if !ok {
		return &Error{Where: said, Problem: "no field of a backend has this name; " + fieldList(reflect.TypeFor[Backend]())}
	}
	name := strings.ToLower(id)
	for existing := range c.Proxy.Backends {
		if envName(existing) == envRoot+id {
			name = existing
		}
	}
	if c.Proxy.Backends == nil {
		c.Proxy.Backends = map[string]Backend{}
	}
	b := c.Proxy.Backends[name]
	if field == "profile" {
		b.Profile = nil // the variable replaces it; env would look for variables of its parts
	}
	err := parseVar(&b, backendVars+id+"_", said, backendVars+rest, value)
	c.Proxy.Backends[name] = b
	c.origin.vars[join("proxy.backends", name)+"."+field] = said
	return err
}

// setSubagentVar sets one field of a subagent that exists: "ANALYTIC_MODEL".
func (c *Config) setSubagentVar(said, rest, value string) error {
	id, field, ok := splitVar(rest, reflect.TypeFor[Subagent]())
	if !ok {
		return &Error{Where: said, Problem: "no field of a subagent has this name; " + fieldList(reflect.TypeFor[Subagent]())}
	}
	if c.Agents.Subagents == nil {
		c.Agents.Subagents = builtinSubagents()
	}
	for i := range c.Agents.Subagents {
		s := &c.Agents.Subagents[i]
		if envName(s.Name) == envRoot+id {
			c.origin.vars[fmt.Sprintf("agents.subagents[%d].%s", i, field)] = said
			return parseVar(s, subagentVars+id+"_", said, subagentVars+rest, value)
		}
	}
	return &Error{
		Where: said,
		Problem: fmt.Sprintf("there is no subagent %q; add it in the file, variables only change those that exist",
			strings.ToLower(id)),
	}
}

// setMemberVar sets one field of a member of the panel that exists: "CLAUDE_MODEL".
func (c *Config) setMemberVar(said, rest, value string) error {
	id, field, ok := splitVar(rest, reflect.TypeFor[Member]())
	if !ok {
		return &Error{Where: said, Problem: "no field of a member has this name; " + fieldList(reflect.TypeFor[Member]())}
	}
	for i := range c.Panel.Members {
		m := &c.Panel.Members[i]
		if envName(m.Name) == envRoot+id {
			c.origin.vars[fmt.Sprintf("panel.members[%d].%s", i, field)] = said
			return parseVar(m, memberVars+id+"_", said, memberVars+rest, value)
		}
	}
	return &Error{
		Where: said,
		Problem: fmt.Sprintf("the panel has no member %q; add it in the file, variables only change those that exist",
			strings.ToLower(id)),
	}
}

// splitVar separates the name that the user gave from the field's.
func splitVar(rest string, t reflect.Type) (id, field string, ok bool) {
	for _, k := range keys(t, "") {
		if id, ok := strings.CutSuffix(rest, "_"+strings.TrimPrefix(k.env(), envRoot)); ok && id != "" {
			return id, k.path, true
		}
	}
	return "", "", false
}

func fieldList(t reflect.Type) string {
	var fields []string
	for _, k := range keys(t, "") {
		fields = append(fields, strings.TrimPrefix(k.env(), envRoot))
	}
	return "it must end in one of " + strings.Join(fields, ", ")
}

func parseVar(into any, prefix, said, name, value string) error {
	err := env.ParseWithOptions(into, env.Options{Prefix: prefix, Environment: map[string]string{name: value}})
	var parse env.ParseError
	switch {
	case errors.As(err, &parse) && parse.Type.Kind() == reflect.Map:
		return &Error{Where: said, Problem: fmt.Sprintf("name=value,name=value is needed, not %q", value)}
	case errors.As(err, &parse):
		return &Error{Where: said, Problem: fmt.Sprintf("%s, not %q", wants(parse.Type), value)}
	case err != nil:
		return &Error{Where: said, Problem: err.Error()}
	}
	return nil
}
