package wire

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// TextPiece is an event that adds text or thinking to a block.
type TextPiece struct {
	Index    int // of the block
	Thinking bool
	// Text is the raw content of the JSON string, in the event's memory. Quote would encode it in
	// the same way.
	Text []byte
}

// What vendors write before and behind the index in such an event.
var (
	beforeIndex    = []byte(`{"type":"content_block_delta","index":`)
	beforeText     = []byte(`,"delta":{"type":"text_delta","text":"`)
	beforeThinking = []byte(`,"delta":{"type":"thinking_delta","thinking":"`)
	behindText     = []byte(`"}}`)
)

// ReadTextPiece parses the most frequent event of the messages dialect without allocating. ok is
// false for any other event, and for one that is invalid or encoded differently from what vendors
// do: it has to be parsed as JSON.
func ReadTextPiece(data []byte) (d TextPiece, ok bool) {
	rest, ok := bytes.CutPrefix(data, beforeIndex)
	if !ok || len(rest) == 0 || rest[0] < '0' || rest[0] > '9' {
		return d, false
	}
	d.Index = int(rest[0] - '0')
	if d.Text, ok = bytes.CutPrefix(rest[1:], beforeText); !ok {
		d.Thinking = true
		if d.Text, ok = bytes.CutPrefix(rest[1:], beforeThinking); !ok {
			return d, false
		}
	}
	if d.Text, ok = bytes.CutSuffix(bytes.TrimRight(d.Text, " "), behindText); !ok {
		return d, false
	}
	return d, isQuoted(d.Text)
}

// isQuoted reports whether text could be between the quotes that Quote writes.
func isQuoted(text []byte) bool {
	for rest := text; ; rest = rest[2:] {
		rest = rest[plainLen(rest):]
		if len(rest) == 0 {
			return utf8.Valid(text)
		}
		if len(rest) == 1 || rest[0] != '\\' || strings.IndexByte(`"\bfnrt`, rest[1]) < 0 {
			return false
		}
	}
}
