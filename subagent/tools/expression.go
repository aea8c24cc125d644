package tools

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
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

// syntaxError is what the parser panics with: so no rule of the grammar has to hand an
// error on. evaluate, which begins the parsing, recovers it; nothing else is recovered.
type syntaxError struct{ error }

// evaluate calculates an expression.
func evaluate(expression string) (v value, err error) {
	if !utf8.ValidString(expression) {
		return value{}, errors.New("the expression is not UTF-8 text")
	}
	source := []rune(expression)
	if len(source) > maxExpression {
		return value{}, fmt.Errorf("the expression has %d characters, the limit is %d: calculate it in parts", len(source),
			maxExpression)
	}
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case syntaxError:
			err = failed.error
		default:
			panic(failed)
		}
	}()
	p := parser{source: source}
	v = p.sum()
	if r := p.peek(); r != 0 {
		p.unexpected(r)
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

// fail ends the parsing with an error at a position, which is counted from 1 there.
func (p *parser) fail(pos int, format string, args ...any) {
	panic(syntaxError{fmt.Errorf("%s, at character %d", fmt.Sprintf(format, args...), pos+1)})
}

func (p *parser) unexpected(r rune) {
	switch {
	case r == 0:
		panic(syntaxError{errors.New("the expression ends where a number or ( was expected")})
	case unicode.IsLetter(r) || isDigit(r) || r == '(':
		p.fail(p.pos, "an operator is missing before %q (%% means percent; a remainder is mod(a, b))", r)
	}
	p.fail(p.pos, "%q was not expected", p.source[p.pos])
}

func (p *parser) sum() value {
	result := p.product()
	for {
		op, pos := p.peek(), p.pos
		if op != '+' && op != '-' {
			return result
		}
		p.pos++
		right := p.product()
		if op == '-' {
			right = right.negative()
		}
		result = p.bounded(pos, result.plus(right))
	}
}

func (p *parser) product() value {
	result := p.signed()
	for {
		op, pos := p.peek(), p.pos
		if op != '*' && op != '/' {
			return result
		}
		p.pos++
		right := p.signed()
		if op == '/' {
			if right.Sign() == 0 {
				p.fail(pos, "division by zero")
			}
			right = right.inverse()
		}
		result = p.bounded(pos, result.times(right))
	}
}

// signed is where every recursion of the grammar passes: it counts the nesting.
func (p *parser) signed() value {
	if p.depth++; p.depth > maxNesting {
		panic(syntaxError{fmt.Errorf("the expression is nested more than %d deep", maxNesting)})
	}
	defer func() { p.depth-- }()
	switch p.peek() {
	case '-':
		p.pos++
		return p.signed().negative()
	case '+':
		p.pos++
		return p.signed()
	}
	return p.power()
}

func (p *parser) power() value {
	base := p.percent()
	r, pos := p.peek(), p.pos
	switch {
	case r == '^':
		p.pos++
	case r == '*' && pos+1 < len(p.source) && p.source[pos] == '*' && p.source[pos+1] == '*':
		p.pos += 2
	default:
		return base
	}
	return p.raise(pos, base, p.signed())
}

func (p *parser) percent() value {
	v := p.primary()
	for p.peek() == '%' {
		pos := p.pos
		p.pos++
		v = p.bounded(pos, v.times(value{Rat: big.NewRat(1, 100)}))
	}
	return v
}

func (p *parser) primary() value {
	r := p.peek()
	switch {
	case isDigit(r) || r == '.':
		return p.number()
	case r == '(':
		return p.parenthesis(false)[0]
	case unicode.IsLetter(r):
		return p.function()
	case r == ')' || r == 0:
		p.unexpected(r)
	}
	p.fail(p.pos, "%q was not expected", p.source[p.pos])
	return value{} // not reached
}

func (p *parser) function() value {
	start := p.pos
	for p.pos < len(p.source) && (unicode.IsLetter(p.source[p.pos]) || isDigit(p.source[p.pos])) {
		p.pos++
	}
	name := strings.ToLower(string(p.source[start:p.pos]))
	f, ok := functions[name]
	if !ok {
		p.fail(start, "there is no function %q, only %s", name, functionNames)
	}
	if p.peek() != '(' {
		p.fail(start, "%s needs its arguments in parentheses", name)
	}
	args := p.parenthesis(true)
	if len(args) < f.least || len(args) > f.most {
		p.fail(start, "%s takes %s, not %d", name, f.arity, len(args))
	}
	v, err := f.apply(args)
	if err != nil {
		p.fail(start, "%v", err)
	}
	return p.bounded(start, v)
}

// parenthesis reads "(" … ")", with several values inside if it is a call.
func (p *parser) parenthesis(call bool) (args []value) {
	outer, open := p.commas, p.pos
	p.pos++
	separator := ','
	if call && p.semicolons() {
		separator = ';'
	}
	p.commas = call && separator == ','
	defer func() { p.commas = outer }()
	if p.commas {
		p.refuseAmbiguous()
	}
	for {
		args = append(args, p.sum())
		r := p.peek()
		switch {
		case r == ')':
			p.pos++
			return args
		case call && r == separator:
			p.pos++
		case r == 0:
			p.fail(open, "the parenthesis is never closed")
		default:
			p.unexpected(r)
		}
	}
}

// raise is base to the power of exponent, refused before it grows too large.
func (p *parser) raise(pos int, base, exponent value) value {
	if !exponent.IsInt() || exponent.approx {
		p.fail(pos, "the exponent must be an integer (a square root is sqrt(x))")
	}
	if exponent.Num().CmpAbs(big.NewInt(maxExponent)) > 0 {
		p.fail(pos, "the exponent is above the limit of %d", maxExponent)
	}
	n := exponent.Num().Int64()
	if n < 0 {
		if base.Sign() == 0 {
			p.fail(pos, "division by zero: 0 to a negative power")
		}
		base, n = base.inverse(), -n
	}
	// A number of b bits has at least (b-1)·n bits afterwards.
	if largest := max(base.Num().BitLen(), base.Denom().BitLen()); int64(largest-1)*n > maxBits {
		p.tooLong(pos)
	}
	e := big.NewInt(n)
	num := new(big.Int).Exp(base.Num(), e, nil)
	denom := new(big.Int).Exp(base.Denom(), e, nil)
	return p.bounded(pos, value{new(big.Rat).SetFrac(num, denom), base.approx})
}

// maxBits is maxDigits in bits.
const maxBits = maxDigits * 33220 / 10000

func (p *parser) bounded(pos int, v value) value {
	if max(v.Num().BitLen(), v.Denom().BitLen()) > maxBits {
		p.tooLong(pos)
	}
	return v
}

func (p *parser) tooLong(pos int) { p.fail(pos, "the result has more than %d digits", maxDigits) }
