package sanitize

import (
	"bytes"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// Texts for what would otherwise be empty.
const (
	noContent   = "(no content)"
	noOutput    = "(no output)"   // a tool result
	noResult    = "(no result)"   // the result of a call without one
	interrupted = "(interrupted)" // an answer that was never given
	goOn        = "Continue."     // the end of a history that a model cannot continue
)

// fillEmpty removes blank texts, and gives a text to messages and results that have nothing else.
func (r *request) fillEmpty() {
	if r.Dialect == wire.Messages {
		r.fillSystem()
	}
	for i, m := range r.messages {
		if m.members == nil {
			continue
		}
		if m.listed {
			r.fillResults(m)
			r.remove(KindEmpty, m, (*block).blank)
		}
		content := m.get("content")
		empty := content == nil || content[0] == 'n' || blank(content)
		if m.listed {
			empty = len(m.blocks) == 0
		}
		if empty && !m.removed {
			r.fill(m, i == len(r.messages)-1)
		}
	}
}

func (b *block) blank() bool { return b.kind == wire.TextBlock && blank(b.get("text")) }

// fill completes a message without content, or leaves it out.
func (r *request) fill(m *editedMessage, last bool) {
	content := string(m.get("content"))
	effort := m.role == wire.RoleSystem && m.has("output_config")
	if effort && r.Dialect == wire.Messages && r.p.Roles.SystemInside {
		return // it has an effort: https://platform.claude.com/docs/en/build-with-claude/effort-per-message
	}
	if m.role == wire.RoleAssistant {
		// An empty message to continue needs no placeholder for reasoning either.
		prefill := r.Dialect == wire.Messages && last && !r.p.Roles.NoPrefill && r.p.Replay.Reasoning != Always &&
			(content == `""` || content == "[]")
		silent := m.calling() && (content == "" || content == "null" || content == `""`)
		// Chat messages may have their content in another member.
		other := m.has("function_call") || m.has("refusal") || m.has("audio")
		if prefill || silent || other {
			return
		}
	}
	if r.emptied(m) {
		r.note(KindEmpty, m, nil)
		if effort {
			r.changed(KindEffort, "messages.output_config")
		}
	}
}

// calling reports whether a chat message calls tools.
func (m *editedMessage) calling() bool { return filled(m.get("tool_calls")) }

// filled reports whether a raw value is a non-empty array.
func filled(raw []byte) bool {
	return len(raw) > 2 && raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
}

// fillResults removes blank texts from inside results of tools.
func (r *request) fillResults(m *editedMessage) {
	for _, b := range m.blocks {
		if b.kind != wire.ToolResultBlock {
			continue
		}
		if content, removed := withoutBlankTexts(b.get("content")); removed {
			if content == nil {
				content = wire.Quote(noOutput)
			}
			b.set("content", content)
			r.note(KindEmpty, m, b)
		}
	}
}

// fillSystem removes blank texts from the system prompt.
func (r *request) fillSystem() {
	if content, removed := withoutBlankTexts(r.root.get("system")); removed {
		r.set(KindEmpty, "system", content)
	}
}

// withoutBlankTexts is removeElements for blank texts.
func withoutBlankTexts(raw []byte) (rest []byte, removed bool) {
	if len(raw) == 0 || raw[0] != '[' || !mayBeBlank().Match(raw) {
		return raw, false
	}
	return removeElements(raw, isBlankText)
}

// removeElements is an array without some of its elements, nil if nothing is left; some reports whether there were any.
func removeElements(raw []byte, unwanted func(raw []byte) bool) (rest []byte, removed bool) {
	items := elements(raw)
	n := len(items)
	items = slices.DeleteFunc(items, func(it item) bool { return unwanted(it.raw) })
	switch len(items) {
	case 0:
		return nil, n > 0
	case n:
		return raw, false
	}
	return array(raw, wire.Span{Start: 0, End: len(raw)}, n, items), true
}

// isBlankText reports whether a block is a blank text.
func isBlankText(raw []byte) bool {
	o := objectOf(raw)
	return o.text("type") == wire.TextBlock && blank(o.get("text"))
}

// elements are the elements of an array.
func elements(raw []byte) []item {
	o := wire.Outline{Body: raw}
	spans := o.Elements(wire.Span{Start: 0, End: len(raw)})
	items := make([]item, len(spans))
	for i, span := range spans {
		items[i] = item{i, span, raw[span.Start:span.End]}
	}
	return items
}

// joinTexts makes one text of the newest user message, if it begins with parts of this request alone
// and the vendor may take nothing else. Translation does the same with all other messages.
func (r *request) joinTexts() {
	if !r.Ephemeral || !r.p.TextOnly && (!r.Translated || r.Dialect == wire.Messages) {
		return
	}
	index, _ := r.Outline.NewestUser()
	i := slices.IndexFunc(r.messages, func(m *editedMessage) bool { return m.index == index })
	if i < 0 {
		return
	}
	m := r.messages[i]
	isOther := func(b *block) bool { return b.kind != wire.TextBlock || !bytes.HasPrefix(b.get("text"), []byte(`"`)) }
	if len(m.blocks) == 0 || slices.ContainsFunc(m.blocks, isOther) {
		return
	}
	if len(m.blocks) == 1 && r.Dialect == wire.Messages && m.blocks[0].has(wire.CacheControl) {
		return
	}
	texts := make([]string, len(m.blocks))
	var mark []byte
	for i, b := range m.blocks {
		texts[i] = b.text("text")
		if b.has(wire.CacheControl) {
			mark = b.get(wire.CacheControl)
		}
	}
	text := strings.Join(texts, "\n\n")
	content := wire.Quote(text)
	if mark != nil && r.Dialect == wire.Messages {
		content = wire.MarkedText(text, mark)
	}
	m.setContent(content)
	r.note(KindJoined, m, nil)
}
