package sanitize

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// Carry makes a request of the messages dialect fit for translation into another dialect: content that p does not take
// becomes text, and a client's own line leaves the system prompt.
func Carry(o *wire.Outline, p Profile) Output {
	r := read(Input{Outline: o, Dialect: wire.Messages, Profile: p})
	r.replaceContent()
	r.dropClientHeader()
	r.out.Body = r.raw()
	return r.out
}

// replaceContent replaces content that the vendor does not take by a text.
func (r *request) replaceContent() {
	if !r.p.NoImages && len(r.p.NoContent) == 0 && r.p.Carried == nil {
		return
	}
	for _, m := range r.messages {
		replaced := false
		for i, b := range m.blocks {
			if b.kind == wire.ToolResultBlock {
				r.replaceInResult(m, b)
				continue
			}
			quoted := r.standIn(b)
			if quoted == nil {
				continue
			}
			r.note(KindContent, m, b)
			text := textBlock(quoted)
			if mark := b.get(wire.CacheControl); mark != nil && r.Dialect == wire.Messages {
				text.set(wire.CacheControl, mark)
			}
			m.blocks[i], m.moved, replaced = text, true, true
		}
		if replaced && r.Dialect == wire.Chat {
			m.joinParts()
		}
	}
}

// replaceInResult replaces content in a result. The result stays where it is.
func (r *request) replaceInResult(m *editedMessage, b *block) {
	raw := b.get("content")
	if len(raw) == 0 || raw[0] != '[' || onlyTexts(raw) {
		return
	}
	var edits wire.Edits
	replaced := false
	for _, it := range elements(raw) {
		inner := &block{object: objectOf(it.raw)}
		inner.kind = inner.text("type")
		if quoted := r.standIn(inner); quoted != nil {
			replaced = true
			edits.Replace(it.span, textBlock(quoted).raw())
		}
	}
	if replaced {
		b.set("content", edits.Apply(raw))
		r.note(KindContent, m, b)
	}
}

// onlyTexts reports whether all elements of an array are texts, which most results are.
func onlyTexts(raw []byte) bool {
	only := true
	gjson.ParseBytes(raw).ForEach(func(_, b gjson.Result) bool {
		only = b.Get("type").Str == wire.TextBlock
		return only
	})
	return only
}

// standIn returns the text, as JSON, that replaces a block that the vendor does not take, or nil for other blocks.
func (r *request) standIn(b *block) []byte {
	var v gjson.Result
	switch b.kind {
	case wire.TextBlock:
		if r.p.Carried == nil || !wire.IsSealed(b.get("text")) {
			return nil
		}
		item, _ := wire.Unseal(b.text("text"))
		if v = gjson.ParseBytes(item); !slices.Contains(r.p.NoContent, v.Get("type").Str) {
			return nil
		}
	case "", wire.ToolUseBlock, wire.ToolResultBlock, wire.ThinkingBlock, wire.RedactedBlock:
		return nil
	default:
		v = gjson.ParseBytes(b.raw())
		if r.p.Accepts(wire.ContentKind(v)) {
			return nil
		}
	}
	return wire.Quote(wire.StandIn(v))
}

// joinParts makes one text of a chat message that has nothing but texts, since many vendors take nothing else from a
// user or a tool.
func (m *editedMessage) joinParts() {
	var texts []string
	for _, b := range m.blocks {
		if b.kind != wire.TextBlock {
			return
		}
		texts = append(texts, b.text("text"))
	}
	m.setContent(wire.Quote(strings.Join(texts, "\n")))
}

// clientHeader begins the line that Claude Code puts in front of its system prompt. It differs from request to request
// and so breaks every other vendor's cache of prompts (https://github.com/anthropics/claude-code/issues/68900).
const clientHeader = "x-anthropic-billing-header:"

// dropClientHeader removes a client's own line from the system prompt.
func (r *request) dropClientHeader() {
	raw := r.root.get("system")
	if r.p.ClientHeaders || !bytes.Contains(raw[:min(len(raw), len(clientHeader)+64)], []byte(clientHeader)) {
		return
	}
	switch raw[0] {
	case '"':
		if text, ok := withoutHeader(textOf(raw)); ok {
			r.set(KindClient, "system", wire.Quote(text))
		}
	case '[':
		items := elements(raw)
		n := len(items)
		if n == 0 {
			return
		}
		first := objectOf(items[0].raw)
		text, ok := withoutHeader(first.text("text"))
		switch {
		case !ok:
			return
		case text == "" && n == 1:
			r.set(KindClient, "system", nil)
			return
		case text == "":
			items = items[1:]
		default:
			first.set("text", wire.Quote(text))
			items[0].raw = first.raw()
		}
		r.set(KindClient, "system", array(raw, wire.Span{Start: 0, End: len(raw)}, n, items))
	}
}

// withoutHeader is a text without a client's own first line; ok is false for a text without one.
func withoutHeader(text string) (rest string, ok bool) {
	if !strings.HasPrefix(text, clientHeader) {
		return text, false
	}
	_, rest, _ = strings.Cut(text, "\n")
	return strings.TrimLeft(rest, "\n"), true
}
