package thinking

import (
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// tell turns a message's thinking into visible text, inside the tags by which the ledger recognises
// such text. Thinking without text is removed.
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

// reasoningText is the text of a chat message's reasoning members; "" if its thinking is in its
// content.
func (h history) reasoningText(m *wire.MessageOutline) string {
	if h.dialect != wire.Chat || slices.ContainsFunc(m.Blocks, func(b wire.BlockOutline) bool {
		return wire.IsThinking(b.Type)
	}) {
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

// tagged puts reasoning into the tags that mark it inside of visible text.
func tagged(text string) string { return "<think>\n" + text + "\n</think>" }

// prefix puts a text before the content of a chat message.
func (h history) prefix(e *wire.Edits, m *wire.MessageOutline, text string) {
	if len(m.Blocks) > 0 {
		start := m.Blocks[0].Start
		e.Replace(wire.Span{Start: start, End: start}, slices.Concat(textBlock(text), []byte(",")))
		return
	}
	if content, _ := h.Text(m.Content); content != "" {
		text += "\n\n" + content
	}
	h.setContent(e, m, wire.Quote(text))
}
