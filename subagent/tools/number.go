package tools

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// The spellings of a number. A decimal comma and grouping commas look alike; the
// rule is that "1,250" groups (one to three digits, not a leading zero, then
// groups of exactly three) and every other single comma is a decimal comma:
// "2,5", "1234,500" and "0,125". Groups may also be set apart by one space, of
// any width, in "1 250" and "1 250,50".
var (
	plain        = regexp.MustCompile(`^(\d+\.?\d*|\.\d+)$`)
	grouped      = regexp.MustCompile(`^[1-9]\d{0,2}(,\d{3})+(\.\d+)?$`)
	decimalComma = regexp.MustCompile(`^\d+,\d+$`)
	spaced       = regexp.MustCompile(`^[1-9]\d{0,2}( \d{3})+([.,]\d+)?$`)
)

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

func isSpace(r rune) bool {
	return r == ' ' || r == '\u00a0' || r == '\u2009' || r == '\u202f'
}

// number reads a literal and its power of ten, as in 1.5e-3.
func (p *parser) number() value {
	start := p.pos
	text := p.literal()
	switch {
	case plain.MatchString(text):
	case grouped.MatchString(text):
		text = strings.ReplaceAll(text, ",", "")
	case decimalComma.MatchString(text):
		text = strings.Replace(text, ",", ".", 1)
	case spaced.MatchString(text):
		text = strings.Replace(strings.ReplaceAll(text, " ", ""), ",", ".", 1)
	default:
		p.fail(start, "%q is not a number: write it like 1250.5", text)
	}
	exponent := p.powerOfTen()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		p.fail(start, "%q is not a number", text)
	}
	if exponent == 0 {
		return value{Rat: r}
	}
	scale := p.raise(start, value{Rat: big.NewRat(10, 1)}, value{Rat: big.NewRat(exponent, 1)})
	return p.bounded(start, value{Rat: r.Mul(r, scale.Rat)})
}

// literal takes the digits at the position with the points, commas and spaces
// among them, each space as ' '. A comma or a space counts only between digits,
// a space only before a group of three.
func (p *parser) literal() string {
	var b strings.Builder
	for ; p.pos < len(p.source); p.pos++ {
		r := p.source[p.pos]
		switch {
		case isDigit(r) || r == '.':
			b.WriteRune(r)
		case r == ',' && !p.commas && p.digitsFrom(p.pos+1) > 0:
			b.WriteRune(r)
		case isSpace(r) && p.digitsFrom(p.pos+1) == 3:
			b.WriteByte(' ')
		default:
			return b.String()
		}
	}
	return b.String()
}

// powerOfTen reads e or E with an integer, 0 if there is none.
func (p *parser) powerOfTen() int64 {
	if p.pos == len(p.source) || p.source[p.pos] != 'e' && p.source[p.pos] != 'E' {
		return 0
	}
	start := p.pos
	p.pos++
	sign := ""
	if p.pos < len(p.source) && (p.source[p.pos] == '-' || p.source[p.pos] == '+') {
		sign = string(p.source[p.pos])
		p.pos++
	}
	n := p.digitsFrom(p.pos)
	if n == 0 {
		p.fail(start, "digits are missing after %q", p.source[start])
	}
	exponent, err := strconv.ParseInt(sign+string(p.source[p.pos:p.pos+n]), 10, 64)
	if err != nil || exponent > maxExponent || exponent < -maxExponent {
		p.fail(start, "the power of ten is above the limit of %d", maxExponent)
	}
	p.pos += n
	return exponent
}

// digitsFrom counts the digits in a row from i on.
func (p *parser) digitsFrom(i int) int {
	n := 0
	for i+n < len(p.source) && isDigit(p.source[i+n]) {
		n++
	}
	return n
}

// semicolons says whether a ; separates the arguments of the call with a first argument
// that begins at the position.
func (p *parser) semicolons() bool {
	depth := 0
	for _, r := range p.source[p.pos:] {
		switch {
		case r == '(':
			depth++
		case r == ')':
			if depth--; depth < 0 {
				return false
			}
		case r == ';' && depth == 0:
			return true
		}
	}
	return false
}

// refuseAmbiguous fails a call like sum(1,250, 3), in which one comma seems to group
// digits and another to separate: either reading could be a wrong result that
// looks right. max(100,200) and max(100, 200) are clear.
func (p *parser) refuseAmbiguous() {
	depth, grouping, separating := 0, -1, false
	for i, r := range p.source[p.pos:] {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			pos := p.pos + i
			if isDigit(p.source[pos-1]) && p.digitsFrom(pos+1) == 3 {
				grouping = pos
			} else {
				separating = true
			}
		}
		if depth < 0 {
			break
		}
	}
	if grouping >= 0 && separating {
		p.fail(grouping,
			"this comma may group digits or separate arguments: write numbers without grouping, or separate the arguments "+
				"with ;")
	}
}
