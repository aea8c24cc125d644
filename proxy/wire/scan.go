package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner reads a body with jsontext, as lenient allows, and returns the spans of its parts.
type scanner struct {
	body  []byte
	base  int // offset in body at which decoder starts
	input bytes.Buffer
	json  jsontext.Decoder
}

// reset starts at an offset of a body. The decoder reads the bytes of a Buffer in place.
func (s *scanner) reset(body []byte, base int) {
	s.body, s.base, s.input = body, base, *bytes.NewBuffer(body[base:])
	s.json.Reset(&s.input, lenient)
}

// offset returns the offset after the last token.
func (s *scanner) offset() int { return s.base + int(s.json.InputOffset()) }

// is reports whether the next value is of a kind. It consumes nothing.
func (s *scanner) is(kind jsontext.Kind) bool { return s.json.PeekKind() == kind }

// enter consumes the opening bracket of an array or object and returns its offset.
func (s *scanner) enter() (start int, err error) {
	_, err = s.json.ReadToken()
	return s.offset() - 1, err
}

// next reports whether the array or object has another element or member. If not, next consumes the closing bracket.
func (s *scanner) next(end jsontext.Kind) (hasMore bool, err error) {
	if !s.is(end) {
		return true, nil
	}
	_, err = s.json.ReadToken()
	return false, err
}

// value reads a value of any kind, or the name of a member, and returns its span.
func (s *scanner) value() (Span, error) {
	v, err := s.json.ReadValue()
	return Span{s.offset() - len(v), s.offset()}, err
}
