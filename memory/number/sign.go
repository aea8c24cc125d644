package number

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// near is the number of bytes around a number in which its sign is looked for.
const near = 32

var (
	// loss matches the word before a number that is a sign, or means the same: a loss of 5 is -5. connectives may follow.
	loss = regexp.MustCompile(`^(?:(minus|negative|минус|menos|moins)|fell|fall|drop(?:ped)?|declined?|decreased?|down|loss|` +
		`lost|deficit|reduced|reduction|cut|снизил\pL*|упал\pL*|сократил\pL*|убыт\pL*|паден\pL*|снижен\pL*|дефицит\pL*|verlust)$`)
	connectives = []string{"of", "by", "about", "around", "nearly", "almost", "на", "в", "um", "von"}
	// less matches words after a number that say the same as a sign.
	less = regexp.MustCompile(`^\s?(?:%|°\s?\pL?|\pL+)?\s(?:lower|less|fewer|below|down|drop|decline|decrease|loss|ниже|` +
		`меньше|weniger|niedriger|unter|gesunken)(?:\PL|$)`)
)

// signs reports which signs a number of a text in lower case may have.
func (n *Number) signs(text string) (negative, positive bool) {
	prefix, suffix := text[max(0, n.Start-near):n.Start], text[n.End:min(len(text), n.End+near)]
	either := strings.ContainsFunc(suffix, unicode.IsLetter) && less.MatchString(suffix)
	head := strings.TrimRightFunc(prefix, isBlank)
	last, size := utf8.DecodeLastRuneInString(head)
	switch blank := prefix[len(head):]; {
	case blank != "" && unicode.IsLetter(last):
		word, rest := lastWord(head)
		for slices.Contains(connectives, word) {
			word, rest = lastWord(strings.TrimRightFunc(rest, unicode.IsSpace))
		}
		if m := loss.FindStringSubmatch(word); m != nil {
			previous, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(rest, unicode.IsSpace))
			negative = m[1] != "" && !unicode.IsNumber(previous)
			either = either || m[1] == ""
		}
	case strings.ContainsRune("-−–", last) && !strings.HasPrefix(blank, " "):
		head = head[:len(head)-size]
		previous, _ := utf8.DecodeLastRuneInString(head)
		negative = !isJoint(previous)
		line := strings.TrimRight(head, " \t")
		item := blank == "" && last != '−' && (line == "" || strings.HasSuffix(line, "\n")) // of a list
		either = either || negative && item
	}
	return negative || either, !negative || either
}

// lastWord returns the word at the end of a text, and the text before it.
func lastWord(text string) (word, rest string) {
	rest = strings.TrimRightFunc(text, unicode.IsLetter)
	return text[len(rest):], rest
}

// isBlank reports whether r is white space or a currency, which may be between a sign and its number.
func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Sc, r) }

// isJoint reports whether a dash after r joins words or numbers.
func isJoint(r rune) bool {
	unspaced := unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
	return unicode.In(r, unicode.L, unicode.N, unicode.Pd) && !unspaced || strings.ContainsRune(".,)]%/°−", r)
}
