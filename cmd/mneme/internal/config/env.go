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
	for _, k := range allKeys() {
		if k.env() == name {
			c.origin.vars[k.path] = said
			return parseVar(c, envRoot, said, name, value)
		}
	}
	for _, n := range []named{
		c.backendVars(),
		entriesOf("MNEME_PROXY_ROUTES_", "a route", "proxy.routes", &c.Proxy.Routes),
		c.extractorVars(),
		entriesOf("MNEME_MCP_", "an MCP server", "mcp", &c.MCP),
		c.subagentVars(),
		c.memberVars(),
		entriesOf("MNEME_LIMITS_TENANTS_", "a tenant's limits", "limits.tenants", &c.Limits.Tenants),
		c.priceVars(),
	} {
		if rest, ok := strings.CutPrefix(name, n.prefix); ok {
			return c.setNamedVar(n, said, rest, value)
		}
	}
	var known []string
	for _, k := range allKeys() {
		known = append(known, k.env())
	}
	return &Error{Where: said, Problem: "no key has this name; " + didYouMean(name, known)}
}

// named is a block of the configuration with named entries, and the names stand in the
// middle of their variables: MNEME_PROXY_BACKENDS_KIMI_BASE_URL.
type named struct {
	prefix string       // of the variables
	what   string       // an entry is, for sentences
	fields reflect.Type // of an entry
	// find gives the entry of a name, as it stands in variables: its path, a copy or itself
	// to be set by a field, and what stores it afterwards. It gives no entry where a variable
	// cannot add one; missing says so.
	find    func(id, field string) (path string, entry any, store func())
	missing string
}

// setNamedVar sets one field of an entry: "KIMI_BASE_URL".
func (c *Config) setNamedVar(n named, said, rest, value string) error {
	id, field, ok := splitVar(rest, n.fields)
	if !ok {
		return &Error{Where: said, Problem: fmt.Sprintf("no field of %s has this name; %s", n.what, fieldList(n.fields))}
	}
	path, entry, store := n.find(id, field)
	if entry == nil {
		return &Error{Where: said, Problem: fmt.Sprintf(n.missing, strings.ToLower(id)) +
			"; add it in the file, variables only change those that exist"}
	}
	c.origin.vars[path+"."+field] = said
	err := parseVar(entry, n.prefix+id+"_", said, n.prefix+rest, value)
	store()
	return err
}

// entriesOf are the variables of the entries of a map, by their names.
func entriesOf[V any](prefix, what, path string, entries *map[string]V) named {
	return named{
		prefix: prefix, what: what, fields: reflect.TypeFor[V](),
		find: func(id, _ string) (string, any, func()) {
			name := strings.ToLower(id)
			for existing := range *entries {
				if envName(existing) == envRoot+id {
					name = existing
				}
			}
			entry := (*entries)[name]
			return join(path, name), &entry, func() { put(entries, name, entry) }
		},
	}
}

func (c *Config) backendVars() named {
	n := entriesOf("MNEME_PROXY_BACKENDS_", "a backend", "proxy.backends", &c.Proxy.Backends)
	find := n.find
	n.find = func(id, field string) (string, any, func()) {
		path, entry, store := find(id, field)
		if field == "profile" {
			entry.(*Backend).Profile = nil // the variable replaces it; env would look for variables of its parts
		}
		return path, entry, store
	}
	return n
}

func (c *Config) extractorVars() named {
	return named{
		prefix: "MNEME_RETRIEVAL_EXTRACTORS_", what: "an extractor", fields: reflect.TypeFor[Extractor](),
		find: func(id, _ string) (string, any, func()) {
			extension := "." + strings.ToLower(id)
			e := c.Retrieval.Extractors[extension]
			return extractorKey(extension), &e, func() { put(&c.Retrieval.Extractors, extension, e) }
		},
	}
}

func put[V any](m *map[string]V, name string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[name] = value
}

func (c *Config) subagentVars() named {
	return named{
		prefix: "MNEME_AGENTS_SUBAGENTS_", what: "a subagent", fields: reflect.TypeFor[Subagent](),
		missing: "there is no subagent %q",
		find: func(id, _ string) (string, any, func()) {
			if c.Agents.Subagents == nil {
				c.Agents.Subagents = builtinSubagents()
			}
			return entryOf("agents.subagents", c.Agents.Subagents, func(s Subagent) string { return s.Name }, id)
		},
	}
}

func (c *Config) memberVars() named {
	return named{
		prefix: "MNEME_PANEL_MEMBERS_", what: "a member", fields: reflect.TypeFor[Member](),
		missing: "the panel has no member %q",
		find: func(id, _ string) (string, any, func()) {
			return entryOf("panel.members", c.Panel.Members, func(m Member) string { return m.Name }, id)
		},
	}
}

// entryOf finds the entry of a list that variables call id.
func entryOf[T any](path string, list []T, name func(T) string, id string) (string, any, func()) {
	for i := range list {
		if envName(name(list[i])) == envRoot+id {
			return fmt.Sprintf("%s[%d]", path, i), &list[i], func() {}
		}
	}
	return "", nil, nil
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
	case errors.As(err, &parse) && parse.Type == reflect.TypeFor[RouteKeys]():
		return &Error{Where: said, Problem: fmt.Sprintf("{BACKEND: [VARIABLE, VARIABLE]} is needed, not %q", value)}
	case errors.As(err, &parse) && parse.Type.Kind() == reflect.Map:
		return &Error{Where: said, Problem: fmt.Sprintf("name=value,name=value is needed, not %q", value)}
	case errors.As(err, &parse):
		return &Error{Where: said, Problem: fmt.Sprintf("%s, not %q", wants(parse.Type), value)}
	case err != nil:
		return &Error{Where: said, Problem: err.Error()}
	}
	return nil
}
