package sanitize

import (
	"bytes"
	"slices"

	"mneme/proxy/wire"
)

// cacheMark ends a prefix that the vendor shall keep for some minutes.
var cacheMark = []byte(`{"type":"ephemeral"}`)

// markPrefixes marks what the next request begins with, too, for a vendor that caches nothing unasked: behind tools and
// system texts, and, of a request that is likely to go on, behind the newest message. A client of another dialect cannot
// set marks; one of this dialect decides by itself. What is beside the newest message of the user alone is gone with the
// next one, so the message before it is marked, too.
func markPrefixes(r *request) {
	if !r.p.MarksCache || !r.Translated || r.Count || bytes.Contains(r.Outline.Body, markerEnd) {
		return
	}
	for _, member := range []string{"system", "tools"} { // tools come first, so that a mark of the system's is of both
		if markMember(r, member) {
			break
		}
	}
	if !slices.ContainsFunc(r.messages, func(m *editedMessage) bool {
		return m.role == wire.RoleAssistant &&
			!m.removed
	}) && !r.tools() {
		return
	}
	newest := -1 // message in which the user says something
	for i, m := range r.messages {
		if m.role == wire.RoleUser && !m.removed && (!m.listed || slices.ContainsFunc(m.blocks, func(b *block) bool {
			return b.kind != wire.ToolResultBlock
		})) {
			newest = i
		}
	}
	last := len(r.messages) - 1
	if r.Ephemeral && newest > 0 {
		markMessage(r, newest-1)
	}
	if !r.Ephemeral || last > newest {
		markMessage(r, last)
	}
}

// markMember marks the last element of a list of the request; false if there is none.
func markMember(r *request, name string) bool {
	raw := r.root.get(name)
	if isText(raw) && !blank(raw) {
		r.set(KindMarkers, name, wire.MarkedText(textOf(raw), cacheMark))
		return true
	}
	items := elements(raw)
	if len(items) == 0 {
		return false
	}
	last := objectOf(items[len(items)-1].raw)
	if last.members == nil {
		return false
	}
	last.set(wire.CacheControl, cacheMark)
	items[len(items)-1].raw = last.raw()
	r.set(KindMarkers, name, array(raw, wire.Span{Start: 0, End: len(raw)}, len(items), items))
	return true
}

// markMessage marks the last block of a message that can be marked: thinking and empty texts cannot.
func markMessage(r *request, i int) {
	if i < 0 {
		return
	}
	m := r.messages[i]
	if m.removed {
		return
	}
	if !m.listed {
		if raw := m.get("content"); isText(raw) && !blank(raw) {
			m.set("content", wire.MarkedText(textOf(raw), cacheMark))
			r.note(KindMarkers, m, nil)
		}
		return
	}
	for _, b := range slices.Backward(m.blocks) {
		if b.thinks() || b.kind == wire.TextBlock && blank(b.get("text")) {
			continue
		}
		b.set(wire.CacheControl, cacheMark)
		r.note(KindMarkers, m, b)
		return
	}
}
