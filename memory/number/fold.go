package number

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Fold returns text in compatibility form (NFKC), with the digits of all scripts as 0 to 9. A raised figure, a fraction
// or a figure in a circle does not join the number beside it: "500²" becomes "500^2", "3½" becomes "3^1⁄2", "¹500"
// becomes "1) 500".
func Fold(text string) string {
	if strings.IndexFunc(text, isSpecial) < 0 {
		return norm.NFKC.String(text)
	}
	var b strings.Builder
	last := ' '
	for _, r := range text {
		b.WriteString(joint(last, r))
		switch last = r; {
		case r == arabicPoint:
			r = '.'
		case r == arabicComma:
			r = ','
		case unicode.IsDigit(r):
			r = rune('0' + Digit(r))
		}
		b.WriteRune(r)
	}
	return norm.NFKC.String(b.String())
}

// Ungroup returns text without the commas and apostrophes that group digits: "1,000,000" becomes "1000000".
func Ungroup(text string) string {
	var b strings.Builder
	from, run := 0, 0 // run counts the digits before i
	for i := range len(text) {
		c := text[i]
		switch {
		case isDigit(c):
			run++
			continue
		case (c == ',' || c == '\'') && run > 0 && run <= group && isGroup(text[i+1:]):
			b.WriteString(text[from:i])
			from = i + 1
		}
		run = 0
	}
	if from == 0 {
		return text
	}
	return b.String() + text[from:]
}

// group is the number of digits in a group.
const group = 3

// isGroup reports whether text starts with a group of digits.
func isGroup(text string) bool {
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	return n == group
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// The signs of Arabic between the digits of a number.
const (
	arabicPoint = '٫'
	arabicComma = '٬'
)

// isSpecial reports whether Fold treats a character in another way than NFKC does.
func isSpecial(r rune) bool {
	if r < '²' || r > '¾' && r < '٠' { // no tables are needed for most alphabets
		return false
	}
	return unicode.IsNumber(r) || r == arabicPoint || r == arabicComma
}

// joint returns what keeps r apart from the character before it.
func joint(last, r rune) string {
	switch special := isRaised(last); {
	case special && unicode.IsDigit(r):
		return ") "
	case special || !isRaised(r) || last == '⁄' || unicode.In(last, unicode.Ps, unicode.Pi):
		return ""
	case !unicode.IsDigit(last) && !unicode.IsPunct(last) && !unicode.IsSymbol(last):
		return ""
	case r >= '₀' && r <= '₉':
		return "_"
	}
	return "^"
}

// isRaised reports whether r is a figure, or the sign of one, that is not written on the line as digits are.
func isRaised(r rune) bool { return unicode.Is(unicode.No, r) || r == '⁻' || r == '⁺' }

// Digit returns the value of a decimal digit of any script.
func Digit(r rune) byte {
	first := r // the digits of a script follow each other from a zero on
	for unicode.Is(unicode.Nd, first-1) {
		first--
	}
	return byte((r - first) % 10)
}
