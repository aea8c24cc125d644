package thinking

import (
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// tell turns a message's thinking into visible text, in the tags by which the
// ledger knows such text again. Thinking without text goes.
func (h history) tell(e *wire.Edits, m *wire.MessageOutline) {
	if text := h.reasoningText(m); text != "" {
		h.dropFields(e, m)
		h.prefix(e, m, tagged(text))
		return
	}
	h.rewrite(e, m, func(b wire.BlockOutline) []byte {
		if text, ok := h.Text(b.Members.Get("thinking")); ok && !blank(text) {
			return textBlock(tagged(text))
		}
		return nil
	})
}

// reasoningText is what the reasoning fields of a chat message say; "" if it lies
// in its content.
func (h history) reasoningText(m *wire.MessageOutline) string {
	if h.dialect != wire.Chat || slices.ContainsFunc(m.Blocks, func(b wire.BlockOutline) bool { return wire.IsThinking(b.Type) }) {
		return ""
	}
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text, ok := h.Text(m.Members.Get(name)); ok && !blank(text) {
			return text
		}
	}
	return ""
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func tagged(text string) string { return "<think>\n" + text + "\n</think>" }

// prefix puts a text before the content of a chat message.
func (h history) prefix(e *wire.Edits, m *wire.MessageOutline, text string) {
	if len(m.Blocks) > 0 {
		at := m.Blocks[0].Start
		e.Replace(wire.Span{Start: at, End: at}, slices.Concat(textBlock(text), []byte(",")))
		return
	}
	if said, _ := h.Text(m.Content); said != "" {
		text += "\n\n" + said
	}
	h.setContent(e, m, wire.Quote(text))
}
