package thinking

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// perAnswer are the members of a chat answer that mean nothing in a request.
var perAnswer = []string{"role", "refusal", "annotations", "audio", "function_call"}

// restore replaces a message by its stored turn. The client's cache markers move to the matching
// blocks. ids are the tool ids for which the client's names are to stand.
func (h history) restore(e *wire.Edits, m *wire.MessageOutline, turn *ledger.Turn, ids []ledger.ToolID) {
	if h.dialect == wire.Messages {
		h.setContent(e, m, h.content(m, turn.Content, ids))
		return
	}
	stored, span := outlineValue(turn.Content)
	members := stored.Object(span)
	for _, f := range members {
		value := stored.Raw(f.Value)
		switch {
		case value.Kind() == 'n' || string(value) == "[]" || slices.Contains(perAnswer, f.Name):
			continue
		case f.Name == "content":
			value = h.content(m, value, nil)
		case f.Name == "tool_calls":
			value = withIDs(value, ids)
		}
		if current := m.Members.Get(f.Name); !bytes.Equal(h.Raw(current), value) {
			put(e, m.Span, current, f.Name, value)
		}
	}
	var surplus []string
	for _, name := range append([]string{extraContent}, reasoning...) {
		if members.Index(name) < 0 && (name != extraContent || h.signed(m.Members)) {
			surplus = append(surplus, name)
		}
	}
	e.RemoveMembers(m.Members, surplus...)
}

// content is a stored content with the client's names for tool ids, and with the cache markers that
// the client put on the message's blocks.
func (h history) content(m *wire.MessageOutline, stored jsontext.Value, ids []ledger.ToolID) jsontext.Value {
	o, span := outlineValue(stored)
	marks := h.marks(m)
	if stored.Kind() != '[' {
		if text, ok := o.Text(span); ok && len(marks) > 0 && marks[len(marks)-1] != nil {
			return wire.MarkedText(text, marks[len(marks)-1])
		}
		return stored
	}
	var e wire.Edits
	var visible []wire.Span
	ids = slices.Clone(ids)
	for _, s := range o.Elements(span) {
		block := o.Object(s)
		kind, _ := o.Text(block.Get("type"))
		if !wire.IsThinking(kind) {
			visible = append(visible, s)
		}
		if kind == wire.ToolUseBlock {
			ids = called(&e, o, block.Get("id"), ids)
		}
	}
	// Matched from the end, where the markers are, because a client may have left out empty texts.
	for i := range min(len(marks), len(visible)) {
		if mark := marks[len(marks)-1-i]; mark != nil {
			e.Mark(visible[len(visible)-1-i], mark)
		}
	}
	return e.Apply(stored)
}

// marks are the cache markers on the visible blocks of a message, nil for a block without one.
func (h history) marks(m *wire.MessageOutline) []jsontext.Value {
	return h.Marks(slices.DeleteFunc(slices.Clone(m.Blocks), func(b wire.BlockOutline) bool {
		return wire.IsThinking(b.Type)
	}))
}

// withIDs is stored tool calls with the client's names for their ids.
func withIDs(stored jsontext.Value, ids []ledger.ToolID) jsontext.Value {
	o, span := outlineValue(stored)
	var e wire.Edits
	ids = slices.Clone(ids)
	for _, s := range o.Elements(span) {
		ids = called(&e, o, o.Object(s).Get("id"), ids)
	}
	return e.Apply(stored)
}

// called replaces a stored tool use's id by the client's name for it, and returns the names that
// are left, since a vendor may give the same id twice in one answer.
func called(e *wire.Edits, o *wire.Outline, span wire.Span, ids []ledger.ToolID) []ledger.ToolID {
	vendor, _ := o.Text(span)
	i := slices.IndexFunc(ids, func(id ledger.ToolID) bool { return id.Vendor == vendor })
	if i < 0 || !span.Exists() {
		return ids
	}
	e.Replace(span, wire.Quote(ids[i].Client))
	return slices.Delete(ids, i, i+1)
}
