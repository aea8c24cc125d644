package loader

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// The values of a PDF: nil, bool, float64, pdfString, pdfName, pdfRef, []any,
// pdfDict; and in content streams pdfOperator.
type (
	pdfString   string
	pdfName     string
	pdfRef      int // an object's number; generations are not told apart
	pdfDict     map[pdfName]any
	pdfOperator string
)

var (
	errPDFEnd    = errors.New("the data ends inside a value")
	errPDFSyntax = errors.New("a value is malformed")
	errPDFBudget = errors.New("there are too many values")
)

const (
	pdfDepth   = 100     // of arrays and dictionaries in each other
	pdfLongest = 1 << 20 // bytes of a string or name
)

// pdfParser reads values from bytes. It takes any bytes and never goes back, but
// for the two tokens that tell a number from a reference.
type pdfParser struct {
	data   []byte
	pos    int
	budget int  // values that may still be read
	refs   bool // "1 0 R" is a reference: not in content streams
}

func pdfSpace(c byte) bool {
	return c == 0 || c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == ' '
}

func pdfDelimiter(c byte) bool { return strings.IndexByte("()<>[]{}/%", c) >= 0 }

// skip goes to the next token.
func (p *pdfParser) skip() {
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case pdfSpace(c):
			p.pos++
		case c == '%':
			for p.pos < len(p.data) && p.data[p.pos] != '\n' && p.data[p.pos] != '\r' {
				p.pos++
			}
		default:
			return
		}
	}
}

// value reads the next value, or operator. Closing brackets are operators too.
func (p *pdfParser) value(depth int) (any, error) {
	if p.budget--; p.budget < 0 {
		return nil, errPDFBudget
	}
	if p.skip(); p.pos >= len(p.data) {
		return nil, errPDFEnd
	}
	if depth > pdfDepth {
		return nil, errPDFSyntax
	}
	rest := p.data[p.pos:]
	switch c := rest[0]; {
	case bytes.HasPrefix(rest, []byte("<<")):
		p.pos += 2
		return p.dict(depth)
	case bytes.HasPrefix(rest, []byte(">>")):
		p.pos += 2
		return pdfOperator(">>"), nil
	case c == '<':
		return p.hex()
	case c == '(':
		return p.literal()
	case c == '[':
		p.pos++
		return p.array(depth)
	case c == '/':
		p.pos++
		return p.name()
	case pdfDelimiter(c):
		p.pos++
		return pdfOperator(rest[:1]), nil
	}
	return p.word(), nil
}

func (p *pdfParser) array(depth int) (any, error) {
	list := []any{}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if op, ok := v.(pdfOperator); ok {
			if op == "]" {
				return list, nil
			}
			return nil, errPDFSyntax
		}
		list = append(list, v)
	}
}

func (p *pdfParser) dict(depth int) (any, error) {
	d := pdfDict{}
	for {
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := key.(pdfName)
		if !ok {
			if key == pdfOperator(">>") {
				return d, nil
			}
			return nil, errPDFSyntax
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if _, ok := v.(pdfOperator); ok {
			return nil, errPDFSyntax
		}
		d[name] = v
	}
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

func (p *pdfParser) hex() (any, error) {
	var out []byte
	half := -1
	for p.pos++; p.pos < len(p.data) && len(out) < pdfLongest; p.pos++ {
		c := p.data[p.pos]
		if c == '>' {
			if half >= 0 {
				out = append(out, byte(half<<4))
			}
			p.pos++
			return pdfString(out), nil
		}
		switch digit := unhex(c); {
		case digit < 0 && pdfSpace(c):
		case digit < 0:
			return nil, errPDFSyntax
		case half < 0:
			half = digit
		default:
			out = append(out, byte(half<<4|digit))
			half = -1
		}
	}
	return nil, errPDFEnd
}

// escapes are the letters behind a backslash that mean another character.
var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f'}

func (p *pdfParser) literal() (any, error) {
	var out []byte
	depth := 1
	for p.pos++; p.pos < len(p.data) && len(out) < pdfLongest; p.pos++ {
		c := p.data[p.pos]
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				p.pos++
				return pdfString(out), nil
			}
		case '\\':
			var ok bool
			if c, ok = p.escaped(); !ok {
				continue
			}
		}
		out = append(out, c)
	}
	return nil, errPDFEnd
}

// escaped is the character that a backslash at the position and what follows it
// mean; ok is false if it is none. The position is then at their last byte.
func (p *pdfParser) escaped() (c byte, ok bool) {
	rest := p.data[p.pos+1:]
	digits := 0
	for digits < 3 && digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '7' {
		c = c<<3 | (rest[digits] - '0')
		digits++
	}
	switch {
	case digits > 0:
		p.pos += digits
		return c, true
	case len(rest) == 0:
		return 0, false
	case bytes.HasPrefix(rest, []byte("\r\n")):
		p.pos += 2
		return 0, false
	}
	p.pos++
	if c, ok = escapes[rest[0]]; ok {
		return c, true
	}
	return rest[0], rest[0] != '\n' && rest[0] != '\r'
}

func (p *pdfParser) name() (any, error) {
	var out []byte
	for ; p.pos < len(p.data) && len(out) < pdfLongest; p.pos++ {
		c := p.data[p.pos]
		if pdfSpace(c) || pdfDelimiter(c) {
			break
		}
		if c == '#' && p.pos+2 < len(p.data) {
			if high, low := unhex(p.data[p.pos+1]), unhex(p.data[p.pos+2]); high >= 0 && low >= 0 {
				c = byte(high<<4 | low)
				p.pos += 2
			}
		}
		out = append(out, c)
	}
	return pdfName(out), nil
}

// raw reads the characters up to white space or a delimiter.
func (p *pdfParser) raw() string {
	start := p.pos
	for p.pos < len(p.data) && !pdfSpace(p.data[p.pos]) && !pdfDelimiter(p.data[p.pos]) && p.pos-start < pdfLongest {
		p.pos++
	}
	return string(p.data[start:p.pos])
}

// word reads a number, a reference, a keyword.
func (p *pdfParser) word() any {
	word := p.raw()
	switch word {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	}
	number, err := strconv.ParseFloat(word, 64)
	if err != nil || strings.Trim(word, "+-.0123456789") != "" {
		return pdfOperator(word)
	}
	if id := int(number); p.refs && float64(id) == number && id >= 0 {
		back := p.pos
		p.skip()
		if _, err := strconv.ParseUint(p.raw(), 10, 16); err == nil {
			if p.skip(); p.raw() == "R" {
				return pdfRef(id)
			}
		}
		p.pos = back
	}
	return number
}
