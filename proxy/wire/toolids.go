package wire

import "slices"

// CallIDs are the spans of the ids of a message's tool calls, in their order.
func (o *Outline) CallIDs(d Dialect, m *MessageOutline) []Span {
	var ids []Span
	if d == Chat {
		for _, call := range o.Elements(m.Members.Get("tool_calls")) {
			ids = append(ids, o.Object(call).Get("id"))
		}
	}
	for _, b := range m.Blocks {
		if d != Chat && b.Type == ToolUseBlock {
			ids = append(ids, b.Members.Get("id"))
		}
	}
	return slices.DeleteFunc(ids, func(s Span) bool { return !s.Exists() })
}

// ResultIDs are the spans of the ids of the tool calls that a message answers, in their order.
func (o *Outline) ResultIDs(d Dialect, m *MessageOutline) []Span {
	if d == Chat {
		if m.Role != RoleTool {
			return nil
		}
		return []Span{m.Members.Get("tool_call_id")}
	}
	var ids []Span
	for _, b := range m.Blocks {
		if b.Type == ToolResultBlock {
			ids = append(ids, b.Members.Get("tool_use_id"))
		}
	}
	return ids
}

// Rename replaces the ids at some places of o by their names in names. Ids without a name stay.
func (e *Edits) Rename(o *Outline, spans []Span, names map[string]string) {
	if len(names) == 0 {
		return
	}
	for _, s := range spans {
		if id, ok := o.Text(s); ok && names[id] != "" {
			e.Replace(s, Quote(names[id]))
		}
	}
}
