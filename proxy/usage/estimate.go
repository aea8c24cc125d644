package usage

import (
	"bytes"

	"mneme/proxy/wire"
)

// imageTokens is what an image or a document counts for, whatever its size.
const imageTokens = 1500

// maxInline is how long, in bytes, a string under "data" may be and still be text.
const maxInline = 256

// EstimateInput is a rough count of what a model reads of a request in either
// dialect: four ASCII characters, or two others, of its strings make a token;
// images and documents count alike and signatures not at all.
func EstimateInput(request []byte) int64 {
	var t tally
	files := int64(0)
	for before := []byte(nil); ; {
		start := bytes.IndexByte(request, '"')
		if start < 0 {
			return t.tokens() + files*imageTokens
		}
		request = request[start+1:]
		var s tally
		n := s.literal(request)
		text := request[:n]
		switch {
		case string(before) == "signature":
		case string(before) == "data" && n > maxInline, bytes.HasPrefix(text, []byte("data:")):
			files++
		default:
			t.ascii += s.ascii
			t.other += s.other
		}
		before, request = text, request[min(n+1, len(request)):]
	}
}

// tally counts characters.
type tally struct{ ascii, other int64 }

func (t *tally) tokens() int64 { return (t.ascii+3)/4 + (t.other+1)/2 }

// literal counts the characters of a JSON string, given what follows its opening
// quote, and returns the length up to the closing one.
func (t *tally) literal(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i
		case c == '\\':
			if i++; i < len(b) && b[i] == 'u' {
				i += 4
				t.other++
			} else {
				t.ascii++
			}
		case c < 0x80:
			t.ascii++
		case c >= 0xC0: // the first byte of a character
			t.other++
		}
	}
	return len(b)
}

// spoken are the names under which answers have what a model says. As names with
// their quotes they cannot stand inside a JSON string.
var spoken = map[wire.Dialect][][]byte{
	wire.Messages: {[]byte(`"text":`), []byte(`"thinking":`), []byte(`"partial_json":`)},
	wire.Chat:     {[]byte(`"content":`), []byte(`"reasoning_content":`), []byte(`"reasoning":`), []byte(`"arguments":`)},
}

// answer counts what a model says in an event or in a whole answer of a dialect:
// what stands under its spoken names.
func (t *tally) answer(spoken [][]byte, data []byte) {
	for _, name := range spoken {
		for rest := data; ; {
			at := bytes.Index(rest, name)
			if at < 0 {
				break
			}
			rest = bytes.TrimLeft(rest[at+len(name):], " ")
			if len(rest) > 0 && rest[0] == '"' {
				rest = rest[1+t.literal(rest[1:]):]
			}
		}
	}
}
