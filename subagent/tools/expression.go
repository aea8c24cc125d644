package tools

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode"
)

// parser evaluates an expression while it reads it. The language:
//
//	sum     = product { ("+" | "-") product }
//	product = signed { ("*" | "/") signed }
//	signed  = ("-" | "+") signed | power
//	power   = percent [ "^" signed ]          so -2^2 is -4, 2^3^2 is 2^9
//	percent = primary { "%" }                 always a division by 100
//	primary = number | "(" sum ")" | name "(" sum { separator sum } ")"
//
// × and · stand for *, ÷ for /, − for -, and ** for ^. Numbers are read by
// literal; the separator of arguments is explained there.
type parser struct {
	source []rune
	pos    int
	depth  int
	// commas says, for the parenthesis that is being read, whether a comma
	// separates arguments; in that case it is no part of a number.
	commas bool
}

func (p *parser) parse() (value, error) {
	v, err := p.sum()
	if err != nil {
		return value{}, err
	}
	if r := p.peek(); r != 0 {
		return value{}, p.unexpected(r)
	}
	return v, nil
}

// peek skips white space and gives the next character, 0 at the end.
func (p *parser) peek() rune {
	for p.pos < len(p.source) && unicode.IsSpace(p.source[p.pos]) {
		p.pos++
	}
	if p.pos == len(p.source) {
		return 0
	}
	switch r := p.source[p.pos]; r {
	case '×', '·':
		return '*'
	case '÷':
		return '/'
	case '−', '–':
		return '-'
	case 0:
		return unicode.ReplacementChar // a NUL is not the end
	default:
		return r
	}
}

// failure is an error at a position, counted from 1.
func (p *parser) failure(pos int, format string, args ...any) error {
	return fmt.Errorf("%s, at character %d", fmt.Sprintf(format, args...), pos+1)
}

func (p *parser) unexpected(r rune) error {
	switch {
	case r == 0:
		return errors.New("the expression ends where a number or ( was expected")
	case unicode.IsLetter(r) || isDigit(r) || r == '(':
		return p.failure(p.pos, "an operator is missing before %q (%% means percent; a remainder is mod(a, b))", r)
	}
	return p.failure(p.pos, "%q was not expected", p.source[p.pos])
}

func (p *parser) sum() (value, error) {
	left, err := p.product()
	for err == nil {
		op, pos := p.peek(), p.pos
		if op != '+' && op != '-' {
			break
		}
		p.pos++
		var right value
		if right, err = p.product(); err != nil {
			break
		}
		if op == '-' {
			right = value{new(big.Rat).Neg(right.Rat), right.approx}
		}
		left, err = p.bounded(pos, add(left, right))
	}
	return left, err
}

func (p *parser) product() (value, error) {
	left, err := p.signed()
	for err == nil {
		op, pos := p.peek(), p.pos
		if op != '*' && op != '/' {
			break
		}
		p.pos++
		var right value
		if right, err = p.signed(); err != nil {
			break
		}
		if op == '/' {
			if right.Sign() == 0 {
				return value{}, p.failure(pos, "division by zero")
			}
			right = value{new(big.Rat).Inv(right.Rat), right.approx}
		}
		left, err = p.bounded(pos, value{new(big.Rat).Mul(left.Rat, right.Rat), left.approx || right.approx})
	}
	return left, err
}

// signed is where every recursion of the grammar passes: it counts the nesting.
func (p *parser) signed() (value, error) {
	if p.depth++; p.depth > maxNesting {
		return value{}, fmt.Errorf("the expression is nested more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	switch p.peek() {
	case '-':
		p.pos++
		v, err := p.signed()
		if err != nil {
			return value{}, err
		}
		return value{new(big.Rat).Neg(v.Rat), v.approx}, nil
	case '+':
		p.pos++
		return p.signed()
	}
	return p.power()
}

func (p *parser) power() (value, error) {
	base, err := p.percent()
	if err != nil {
		return value{}, err
	}
	r, pos := p.peek(), p.pos
	switch {
	case r == '^':
		p.pos++
	case r == '*' && pos+1 < len(p.source) && p.source[pos] == '*' && p.source[pos+1] == '*':
		p.pos += 2
	default:
		return base, nil
	}
	exponent, err := p.signed()
	if err != nil {
		return value{}, err
	}
	return p.raise(pos, base, exponent)
}

func (p *parser) percent() (value, error) {
	v, err := p.primary()
	for err == nil && p.peek() == '%' {
		pos := p.pos
		p.pos++
		v, err = p.bounded(pos, value{new(big.Rat).Mul(v.Rat, big.NewRat(1, 100)), v.approx})
	}
	return v, err
}

func (p *parser) primary() (value, error) {
	r := p.peek()
	switch {
	case isDigit(r) || r == '.':
		return p.number()
	case r == '(':
		args, err := p.parenthesis(false)
		if err != nil {
			return value{}, err
		}
		return args[0], nil
	case unicode.IsLetter(r):
		return p.function()
	case r == ')' || r == 0:
		return value{}, p.unexpected(r)
	}
	return value{}, p.failure(p.pos, "%q was not expected", p.source[p.pos])
}

func (p *parser) function() (value, error) {
	start := p.pos
	for p.pos < len(p.source) && (unicode.IsLetter(p.source[p.pos]) || isDigit(p.source[p.pos])) {
		p.pos++
	}
	name := strings.ToLower(string(p.source[start:p.pos]))
	f, known := functions[name]
	if !known {
		return value{}, p.failure(start, "there is no function %q, only %s", name, functionNames)
	}
	if p.peek() != '(' {
		return value{}, p.failure(start, "%s needs its arguments in parentheses", name)
	}
	args, err := p.parenthesis(true)
	if err != nil {
		return value{}, err
	}
	if len(args) < f.least || len(args) > f.most {
		return value{}, p.failure(start, "%s takes %s, not %d", name, f.takes, len(args))
	}
	v, err := f.apply(args)
	if err != nil {
		return value{}, p.failure(start, "%v", err)
	}
	return p.bounded(start, v)
}

// parenthesis reads "(" … ")", with several values inside if it is a call.
func (p *parser) parenthesis(call bool) ([]value, error) {
	outer, open := p.commas, p.pos
	p.pos++
	separator := ','
	if call && p.semicolons() {
		separator = ';'
	}
	p.commas = call && separator == ','
	defer func() { p.commas = outer }()
	if p.commas {
		if err := p.ambiguous(); err != nil {
			return nil, err
		}
	}
	var args []value
	for {
		v, err := p.sum()
		if err != nil {
			return nil, err
		}
		args = append(args, v)
		r := p.peek()
		switch {
		case r == ')':
			p.pos++
			return args, nil
		case call && r == separator:
			p.pos++
		case r == 0:
			return nil, p.failure(open, "the parenthesis is never closed")
		default:
			return nil, p.unexpected(r)
		}
	}
}

// raise is base to the power of exponent, refused before it grows too large.
func (p *parser) raise(pos int, base, exponent value) (value, error) {
	if !exponent.IsInt() || exponent.approx {
		return value{}, p.failure(pos, "the exponent must be an integer (a square root is sqrt(x))")
	}
	if exponent.Num().CmpAbs(big.NewInt(maxExponent)) > 0 {
		return value{}, p.failure(pos, "the exponent is above the limit of %d", maxExponent)
	}
	n := exponent.Num().Int64()
	if n < 0 {
		if base.Sign() == 0 {
			return value{}, p.failure(pos, "division by zero: 0 to a negative power")
		}
		base = value{new(big.Rat).Inv(base.Rat), base.approx}
		n = -n
	}
	// A number of b bits has at least (b-1)·n bits afterwards.
	if largest := max(base.Num().BitLen(), base.Denom().BitLen()); int64(largest-1)*n > maxBits {
		return value{}, p.tooLong(pos)
	}
	e := big.NewInt(n)
	num := new(big.Int).Exp(base.Num(), e, nil)
	denom := new(big.Int).Exp(base.Denom(), e, nil)
	return p.bounded(pos, value{new(big.Rat).SetFrac(num, denom), base.approx})
}

// maxBits is maxDigits in bits.
const maxBits = maxDigits * 33220 / 10000

func (p *parser) bounded(pos int, v value) (value, error) {
	if max(v.Num().BitLen(), v.Denom().BitLen()) > maxBits {
		return value{}, p.tooLong(pos)
	}
	return v, nil
}

func (p *parser) tooLong(pos int) error {
	return p.failure(pos, "the result has more than %d digits", maxDigits)
}
