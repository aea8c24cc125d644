package number

import (
	"regexp"
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

// grouped matches digits in groups.
var grouped = regexp.MustCompile(`\b\d{1,3}(?:[,']\d{3})+\b`)

// Ungroup returns text without the commas and apostrophes that group digits: "1,000,000" becomes "1000000".
func Ungroup(text string) string {
	for i := 1; i+1 < len(text); i++ {
		if (text[i] == ',' || text[i] == '\'') && text[i-1]-'0' < 10 && text[i+1]-'0' < 10 { // most texts have none
			return grouped.ReplaceAllStringFunc(text, strings.NewReplacer(",", "", "'", "").Replace)
		}
	}
	return text
}

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
