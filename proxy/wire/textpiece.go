package wire

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// What vendors write before and behind the index in such an event.
var (
	beforeIndex    = []byte(`{"type":"content_block_delta","index":`)
	beforeText     = []byte(`,"delta":{"type":"text_delta","text":"`)
	beforeThinking = []byte(`,"delta":{"type":"thinking_delta","thinking":"`)
	behindText     = []byte(`"}}`)
)

// piece reads the most frequent event, which adds text or thinking to a block, without parsing JSON. It is false for any
// other event, and for one that is invalid or encoded differently from what vendors do.
func (e *Event) piece() bool {
	rest, ok := bytes.CutPrefix(e.Data, beforeIndex)
	if !ok || len(rest) == 0 || rest[0] < '0' || rest[0] > '9' {
		return false
	}
	index, kind := int(rest[0]-'0'), TextDelta
	text, ok := bytes.CutPrefix(rest[1:], beforeText)
	if !ok {
		if text, ok = bytes.CutPrefix(rest[1:], beforeThinking); !ok {
			return false
		}
		kind = ThinkingDelta
	}
	if text, ok = bytes.CutSuffix(bytes.TrimRight(text, " "), behindText); !ok || !isQuoted(text) {
		return false
	}
	e.Type, e.Index, e.Delta = BlockDelta, index, Delta{Type: kind, Raw: text}
	return true
}

// isQuoted reports whether text could be between the quotes that Quote writes.
func isQuoted(text []byte) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < ' ', c == '"':
			return false
		case c == '\\':
			if i++; i == len(text) || strings.IndexByte(`"\bfnrt`, text[i]) < 0 {
				return false
			}
		}
	}
	return utf8.Valid(text)
}
