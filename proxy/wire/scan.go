package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner is a strict JSON tokenizer. It accepts and refuses exactly what a jsontext.Decoder with
// the options of lenient does, which a fuzz test checks, but it does not decode characters: to find
// where values are, UTF-8 need not be decoded.
//
// Its only error is errSyntax; syntaxError then finds the description.
type scanner struct {
	body  []byte
	at    int // offset of the next byte
	depth int // number of open arrays and objects
}

// errSyntax is the scanner's error for anything that is not JSON.
var errSyntax = errors.New("no JSON")

// maxDepth bounds nested arrays and objects, at the same value as in jsontext.
const maxDepth = 10_000

// peek skips white space and returns the next byte without consuming it; 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.body) {
		switch c := s.body[s.at]; c {
		case ' ', '\n', '\r', '\t':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// enter consumes the opening bracket of an array or object.
func (s *scanner) enter() error {
	if s.depth == maxDepth {
		return errSyntax
	}
	s.at++
	s.depth++
	return nil
}

// next moves to the next element or member, or behind the closing bracket if there is none. first
// says that nothing of the array or object was read yet.
func (s *scanner) next(first bool, end byte) (more bool, err error) {
	c := s.peek()
	if c == end {
		s.at++
		s.depth--
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' {
		return false, errSyntax
	}
	s.at++
	return true, nil
}

// name reads the name of a member and the colon behind it.
func (s *scanner) name() (quoted Span, err error) {
	if s.peek() != '"' {
		return Span{}, errSyntax
	}
	start := s.at
	if err := s.text(); err != nil {
		return Span{}, err
	}
	quoted = Span{start, s.at}
	if s.peek() != ':' {
		return Span{}, errSyntax
	}
	s.at++
	return quoted, nil
}

// value reads a value of any kind and returns its span.
func (s *scanner) value() (at Span, err error) {
	c := s.peek()
	start := s.at
	switch {
	case c == '"':
		err = s.text()
	case c == '{', c == '[':
		err = s.nested(c + 2) // the closing bracket's code is 2 above the opening one's
	case c == 't':
		err = s.literal("true")
	case c == 'f':
		err = s.literal("false")
	case c == 'n':
		err = s.literal("null")
	default:
		err = s.number()
	}
	return Span{start, s.at}, err
}

// nested reads an array or an object up to its end.
func (s *scanner) nested(end byte) error {
	if err := s.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.next(first, end)
		if err != nil || !more {
			return err
		}
		if end == '}' {
			if _, err = s.name(); err != nil {
				return err
			}
		}
		if _, err = s.value(); err != nil {
			return err
		}
	}
}

func (s *scanner) literal(word string) error {
	if len(s.body)-s.at < len(word) || string(s.body[s.at:s.at+len(word)]) != word {
		return errSyntax
	}
	s.at += len(word)
	return nil
}

// number reads a number, the only kind of value left.
func (s *scanner) number() error {
	if s.is('-') {
		s.at++
	}
	if s.is('0') {
		s.at++
	} else if !s.digits() {
		return errSyntax
	}
	if s.is('.') {
		s.at++
		if !s.digits() {
			return errSyntax
		}
	}
	if s.is('e') || s.is('E') {
		s.at++
		if s.is('+') || s.is('-') {
			s.at++
		}
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

func (s *scanner) is(c byte) bool { return s.at < len(s.body) && s.body[s.at] == c }

// digits reads digits, and reports whether there were any.
func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.body) && s.body[s.at] >= '0' && s.body[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}

// text reads a string.
func (s *scanner) text() error {
	for s.at++; ; {
		s.at += plainLen(s.body[s.at:])
		switch {
		case s.at >= len(s.body):
			return errSyntax
		case s.body[s.at] == '"':
			s.at++
			return nil
		case s.body[s.at] != '\\':
			return errSyntax // a control character
		}
		if err := s.escape(); err != nil {
			return err
		}
	}
}

// escape reads an escape sequence. Half a surrogate pair is accepted.
func (s *scanner) escape() error {
	rest := s.body[s.at+1:]
	if len(rest) == 0 {
		return errSyntax
	}
	switch rest[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return nil
	case 'u':
		if len(rest) < 5 || !isHex(rest[1]) || !isHex(rest[2]) || !isHex(rest[3]) || !isHex(rest[4]) {
			return errSyntax
		}
		s.at += 6
		return nil
	}
	return errSyntax
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// plainLen is the number of bytes before the first quote, backslash or control character. It checks
// eight at a time, because most of a request is text.
func plainLen(b []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, backslash := x^'"'*ones, x^'\\'*ones
		// The high bit of each byte that is zero, or less than a space. A borrow can only set bits
		// above one that is rightly set, so the lowest set bit is always right.
		found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (x-' '*ones)&^x) & highs
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for ; n < len(b); n++ {
		if c := b[n]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return n
}

// syntaxError describes what is wrong with a body that the scanner refused, and where; nil if the
// first value in it is valid.
func syntaxError(body []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(body), lenient)
	if err := d.SkipValue(); err != nil {
		return badJSON(err)
	}
	return nil
}
