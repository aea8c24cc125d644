package proxy

import (
	"slices"

	"mneme/proxy/sanitize"
)

// toolSchema is what metrics call a refusal of a tool's schema.
const toolSchema = "tool_schema"

// plainSchemas is the cure for schemas of tools that the backend does not take: those that its error names
// are sent in the form that every vendor takes, or all of them, if it names none or if that was not enough.
func (a *attempt) plainSchemas() *cure {
	said := a.answer.schema
	var all, named []string
	plain := sanitize.PlainSchemas(a.known.rules)
	again := slices.ContainsFunc(a.cures, func(c *cure) bool { return c.kind == cureSchema })
	for i, t := range sanitize.Tools(a.outline, a.backend.dialect) {
		if t.Key == "" || slices.Contains(plain, t.Key) {
			continue
		}
		all = append(all, t.Key)
		if slices.Contains(said.Names, t.Name) || slices.Contains(said.Indexes, i) {
			named = append(named, t.Key)
		}
	}
	if len(all) == 0 {
		return nil
	}
	partial := len(named) > 0 && len(named) < len(all) && !again
	if partial {
		all = named
	}
	c := a.newCure(cureSchema, toolSchema, sanitize.Rule{Model: a.model, Schemas: all})
	c.partial = partial
	return c
}
