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
	refusal := a.answer.schema
	var keys, refusedKeys []string
	plain := sanitize.PlainSchemas(a.modelInfo.rules)
	tried := slices.ContainsFunc(a.cures, func(c *cure) bool { return c.kind == cureSchema })
	for i, t := range sanitize.Tools(a.outline, a.backend.dialect) {
		if t.Key == "" || slices.Contains(plain, t.Key) {
			continue
		}
		keys = append(keys, t.Key)
		if slices.Contains(refusal.Names, t.Name) || slices.Contains(refusal.Indexes, i) {
			refusedKeys = append(refusedKeys, t.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	partial := len(refusedKeys) > 0 && len(refusedKeys) < len(keys) && !tried
	if partial {
		keys = refusedKeys
	}
	c := a.newCure(cureSchema, toolSchema, sanitize.Rule{Model: a.model, Schemas: keys})
	c.partial = partial
	return c
}
