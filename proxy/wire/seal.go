package wire

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// sealed begins what holds the bytes of items in a request or an answer of the messages dialect: the signature of a
// thinking block, or a text in place of an item that only its vendor understands. No client gets to see it.
const sealed = "rsp1_"

// Seal makes the bytes of an item such a signature or text.
func Seal(v []byte) string {
	size := len(sealed) + base64.RawStdEncoding.EncodedLen(len(v))
	return string(base64.RawStdEncoding.AppendEncode(append(make([]byte, 0, size), sealed...), v))
}

// Unseal is the JSON that s holds; ok is false for a text or a signature of another kind.
func Unseal(s string) (v jsontext.Value, ok bool) {
	coded, ok := strings.CutPrefix(s, sealed)
	if !ok {
		return nil, false
	}
	v, err := base64.RawStdEncoding.DecodeString(coded)
	return v, err == nil && gjson.ValidBytes(v)
}

// IsSealed reports whether Seal made a raw JSON string.
func IsSealed(raw []byte) bool { return bytes.HasPrefix(raw, []byte(`"`+sealed)) }

// EncryptedContent returns the encrypted content of the item in a raw JSON string that Seal made; nil for none.
func EncryptedContent(raw []byte) []byte {
	if !IsSealed(raw) {
		return nil
	}
	coded := raw[len(`"`+sealed) : len(raw)-1]
	item := make([]byte, base64.RawStdEncoding.DecodedLen(len(coded)))
	n, err := base64.RawStdEncoding.Decode(item, coded)
	content := gjson.GetBytes(item[:n], "encrypted_content").Str
	if err != nil || content == "" {
		return nil
	}
	return []byte(content)
}

// Unsealed takes what only the gateway reads out of an answer that was translated with its items kept, for its client: signatures
// that seal items, and blocks that have nothing else. The zero value is ready for use.
type Unsealed struct {
	pending []Event // the beginning of a thinking block that has shown nothing yet
	dropped int     // blocks that were left out
}

// Event appends to dst what the client gets of an event.
func (u *Unsealed) Event(dst []Event, e Event) []Event {
	e.Shift(-u.dropped)
	switch e.Type {
	case BlockStart:
		if e.Block.Type == ThinkingBlock {
			u.pending = append(u.pending[:0], e)
			return dst
		}
	case BlockDelta:
		if e.Delta.Type == SignatureDelta && bytes.HasPrefix(e.Delta.Inner(), []byte(sealed)) {
			return dst
		}
	case BlockStop:
		if len(u.pending) > 0 {
			u.pending = u.pending[:0]
			u.dropped++
			return dst
		}
	}
	dst = append(dst, u.pending...)
	u.pending = u.pending[:0]
	return append(dst, e)
}
