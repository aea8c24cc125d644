package proxy

import (
	"context"
	"slices"

	"mneme/proxy/sanitize"
)

// toolSchema is what metrics call a refusal of a tool's schema.
const toolSchema = "tool_schema"

// plainSchemas is the cure for schemas of tools that the backend does not take: those that its error names
// are sent in the form that every vendor takes, or all of them, if it names none or if that was not enough.
func (a *attempt) plainSchemas() *cure {
	said := a.answer.schema
	var all, named, before []string
	for _, c := range a.cures {
		before = append(before, c.schemas...)
	}
	for i, t := range sanitize.Tools(a.outline, a.backend.dialect) {
		if t.Key == "" || slices.Contains(a.plain, t.Key) {
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
	c := &cure{kind: cureSchema, schemas: slices.Concat(before, all)}
	if len(named) > 0 && len(named) < len(all) && before == nil {
		c.partial, c.schemas = true, named
	}
	quoted := a.quote()
	c.log = func(ok bool) {
		a.log().Warn().Bool("ok", ok).Str("backend", a.backend.name).Str("model", a.model).Int("tools", len(c.schemas)).
			Str("error", quoted).
			Msg("[schema_retry] the backend refused the schema of a tool: it was sent again in a plainer form")
	}
	c.learn = func(context.Context) {
		a.backend.lessons.add(a.model, func(l *lesson) {
			again := func(key string) bool { return slices.Contains(c.schemas, key) }
			l.schemas = append(slices.DeleteFunc(slices.Clone(l.schemas), again), c.schemas...)
			l.schemas = l.schemas[max(0, len(l.schemas)-maxSchemas):]
		})
	}
	return c
}
