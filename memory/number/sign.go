package number

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// near is the number of bytes around a number that may tell its sign.
const near = 32

var (
	// minus matches a sign before a number. A dash between numbers or words is none.
	minus = regexp.MustCompile(`(?:^|[^\pL\pN.,)\]%/°\p{Pd}−]|[\p{Han}\p{Hiragana}\p{Katakana}])[-−–](?:\p{Sc} ?)?$|` +
		`(?:^|[^\pN\s]\s+|[^\pL\pN\s])(?:minus|negative|минус|menos|moins)\s+\p{Sc}?$`)
	// bullet matches a dash that may begin an item of a list instead.
	bullet = regexp.MustCompile(`(?:^|\n)[ \t]*[-–]$`)
	// loss and less match words before and after a number that say the same as a sign: a loss of 5 is -5.
	loss = regexp.MustCompile(`(?:^|\PL)(?:fell|fall|drop(?:ped)?|declined?|decreased?|down|loss|lost|deficit|reduced|` +
		`reduction|cut|снизил\pL*|упал\pL*|сократил\pL*|убыт\pL*|паден\pL*|снижен\pL*|дефицит\pL*|verlust)` +
		`(?:\s+(?:of|by|about|around|nearly|almost|на|в|um|von))*\s+\p{Sc}?$`)
	less = regexp.MustCompile(`^\s?(?:%|°\s?\pL?|\pL+)?\s(?:lower|less|fewer|below|down|drop|decline|decrease|loss|ниже|` +
		`меньше|weniger|niedriger|unter|gesunken)(?:\PL|$)`)
)

// signs reports which signs a number of a text in lower case may have.
func (n *Number) signs(text string) (negative, positive bool) {
	before, after := text[max(0, n.Start-near):n.Start], text[n.End:min(len(text), n.End+near)]
	last, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(before, isBlank))
	worded := unicode.IsLetter(last)
	negative = (worded || strings.ContainsRune("-−–", last)) && minus.MatchString(before)
	either := negative && bullet.MatchString(before) || worded && loss.MatchString(before) ||
		strings.ContainsFunc(after, unicode.IsLetter) && less.MatchString(after)
	return negative || either, !negative || either
}

// isBlank reports whether r is white space or a currency, which may be between a sign and its number.
func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Sc, r) }
