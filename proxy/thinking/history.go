package thinking

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// reasoning are the members of a chat message that hold thinking. Gemini's thought signatures are
// in extra_content besides.
var reasoning = []string{"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"}

const (
	extraContent = "extra_content"
	signatureKey = "signature"
)

// bypasses are the strings that Gemini accepts in place of a signature.
var bypasses = []string{BypassSignature, "context_engineering_is_the_way_to_go"}

// noText is the text of an assistant message that would be empty without its thinking: roles have
// to alternate, and the results of its tool calls need the message.
const noText = "(no text)"

var noTextBlock = textBlock(noText)

func textBlock(text string) []byte {
	return slices.Concat([]byte(`{"type":"text","text":`), wire.Quote(text), []byte("}"))
}

// history reads the messages of a request in either dialect.
type history struct {
	*wire.Outline
	dialect wire.Dialect
}

// outlineValue is an outline for a JSON value alone, and the span of that value.
func outlineValue(v jsontext.Value) (*wire.Outline, wire.Span) {
	return &wire.Outline{Body: v}, wire.Span{End: len(v)}
}

// null is true for a value without content: missing, null, a placeholder, "" or [].
func (h history) null(s wire.Span) bool {
	switch h.Raw(s).Kind() {
	case '"':
		text := h.Raw(s)[1 : s.End-s.Start-1]
		return len(text) == 0 || string(text) == wire.LostThinking
	case '[':
		return len(h.Elements(s)) == 0
	case 'n', jsontext.KindInvalid:
		return true
	}
	return false
}

// thinks reports whether a message carries thinking of any kind.
func (h history) thinks(m *wire.MessageOutline) bool {
	if slices.ContainsFunc(m.Blocks, func(b wire.BlockOutline) bool { return wire.IsThinking(b.Type) }) {
		return true
	}
	return h.dialect == wire.Chat && (h.hasFields(m) || h.signed(m.Members) || slices.ContainsFunc(h.calls(m), h.signed))
}

// hasFields reports whether a chat message has a member for reasoning.
func (h history) hasFields(m *wire.MessageOutline) bool {
	return slices.ContainsFunc(m.Members, func(f wire.Member) bool { return slices.Contains(reasoning, f.Name) })
}

// calls are the tool calls of a chat message.
func (h history) calls(m *wire.MessageOutline) []wire.Object {
	var calls []wire.Object
	for _, s := range h.Elements(m.Members.Get("tool_calls")) {
		calls = append(calls, h.Object(s))
	}
	return calls
}

// thoughtSignature is the span of a Gemini thought signature inside extra_content.
func (h history) thoughtSignature(members wire.Object) wire.Span {
	return h.Object(h.Object(members.Get(extraContent)).Get("google")).Get("thought_signature")
}

func (h history) signed(members wire.Object) bool { return h.thoughtSignature(members).Exists() }

// keys are the ledger's keys of a message's thinking, without placeholders.
func (h history) keys(m *wire.MessageOutline) []string {
	var keys []string
	add := func(s wire.Span) {
		if key := ledger.BlockKey(h.Raw(s)); key != "" {
			keys = append(keys, key)
		}
	}
	for _, b := range m.Blocks {
		if wire.IsThinking(b.Type) && !h.hollow(b.Members, "thinking", signatureKey, "data") {
			add(b.Span)
		}
	}
	if h.dialect == wire.Chat && len(keys) == 0 && (!h.hollow(m.Members, reasoning...) || h.reallySigned(m)) {
		add(m.Span)
	}
	return keys
}

// hollow is true if none of the named members has content.
func (h history) hollow(o wire.Object, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !h.null(o.Get(name)) })
}

// reallySigned reports whether a chat message has a thought signature of Gemini's that is not a
// bypass.
func (h history) reallySigned(m *wire.MessageOutline) bool {
	return slices.ContainsFunc(append(h.calls(m), m.Members), func(o wire.Object) bool {
		text, ok := h.Text(h.thoughtSignature(o))
		return ok && !slices.Contains(bypasses, text)
	})
}

// count is the number of thinking blocks in a message; the reasoning members of a chat message
// count as one.
func (h history) count(m *wire.MessageOutline) int {
	n := 0
	for _, b := range m.Blocks {
		if wire.IsThinking(b.Type) {
			n++
		}
	}
	if n == 0 && h.thinks(m) {
		n = 1
	}
	return n
}

// loop is the index of the first message of the current tool loop, which begins behind the last
// user message that has no tool results.
func (h history) loop() int {
	for i := len(h.Messages) - 1; i >= 0; i-- {
		if m := &h.Messages[i]; m.Role == wire.RoleUser && len(h.ResultIDs(h.dialect, m)) == 0 {
			return i + 1
		}
	}
	return 0
}

// Loop is the index of the first message of the current tool loop.
func Loop(o *wire.Outline, d wire.Dialect) int { return history{o, d}.loop() }

// lastThinking is the ledger's key of the last thinking in a request that a vendor produced; empty
// if there is none. Placeholders do not count.
func lastThinking(o *wire.Outline, d wire.Dialect) string {
	h := history{o, d}
	for i := len(o.Messages) - 1; i >= 0; i-- {
		m := &o.Messages[i]
		if m.Role != wire.RoleAssistant {
			continue
		}
		if keys := h.keys(m); len(keys) > 0 {
			return keys[len(keys)-1]
		}
	}
	return ""
}
