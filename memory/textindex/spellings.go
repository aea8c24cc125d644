package textindex

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// word is a word of a text, or another spelling of words of the text.
type word struct {
	text  string
	other bool
}

// speller yields the words of a text, and other spellings of those that stand together: "AB-12345-X" is ab12345x, too,
// "12 500" is 12500, "5 mm" is 5mm, and "getUserName" has three words.
type speller struct {
	text       string
	yield      func(word) bool
	start, end int    // of the open chain of words
	last       string // its last word
	words      int    // of the chain
	joined     bool   // the chain is one word in another spelling
}

// longestChain bounds a joined spelling, in bytes. An IBAN with its blanks has up to 42.
const longestChain = 48

// add takes the word at a place of the text. It returns false if the caller wants no more.
func (s *speller) add(start, end int) bool {
	raw := s.text[start:end]
	sign := byte(0)
	if s.words > 0 && start == s.end+1 {
		sign = s.text[s.end]
	}
	thousands := sign == '.' && len(raw) == 3 && isNumber(raw) && isNumber(s.last) // 1.050, or a decimal
	hyphen := sign == '-' || sign == '_' || thousands
	blank := (sign == ' ' || sign == '/') && isCode(s.last)
	amount := ""
	if blank && isUnit(raw) && isNumber(s.last) {
		amount = s.last + raw
	}
	if !hyphen && !(blank && isCode(raw)) {
		if !s.close() {
			return false
		}
		s.start = start
	}
	s.joined = s.joined || hyphen || strings.ContainsAny(raw, "0123456789")
	s.end, s.last, s.words = end, raw, s.words+1
	return s.yield(word{text: strings.ToLower(raw)}) && s.parts(raw) &&
		(amount == "" || s.yield(word{strings.ToLower(amount), true}))
}

// close ends the chain.
func (s *speller) close() bool {
	one := s.words > 1 && s.joined && s.end-s.start <= longestChain
	s.words, s.joined = 0, false
	if !one {
		return true
	}
	return s.yield(word{strings.ToLower(strings.Map(func(r rune) rune {
		if separates(r) {
			return -1
		}
		return r
	}, s.text[s.start:s.end])), true})
}

// isCode reports whether a word may be a part of a code or of a number in groups: digits, capitals with digits, or at
// most three capitals.
func isCode(word string) bool {
	letters := 0
	for i := range len(word) {
		switch c := word[i]; {
		case isUpper(c):
			letters++
		case c < '0' || c > '9':
			return false
		}
	}
	return letters < max(len(word), 4)
}

// isUnit reports whether a word may be the unit of the number before it.
func isUnit(word string) bool { return len(word) <= 3 && allRunes(word, unicode.IsLetter) }

func isNumber(word string) bool { return allRunes(word, unicode.IsNumber) }

// parts yields the words of a name such as "getUserName" or "HTTPServer", and the number and unit of "5mm".
func (s *speller) parts(name string) bool {
	unit := strings.TrimLeft(name, "0123456789")
	if unit != "" && len(unit) < len(name) && isUnit(unit) {
		return s.yield(word{name[:len(name)-len(unit)], true}) && s.yield(word{strings.ToLower(unit), true})
	}
	start := 0
	for i := 1; i < len(name); i++ {
		next := i+1 < len(name) && isLower(name[i+1])
		if isUpper(name[i]) && (isLower(name[i-1]) || isUpper(name[i-1]) && next) {
			if !s.yield(word{strings.ToLower(name[start:i]), true}) {
				return false
			}
			start = i
		}
	}
	return start == 0 || s.yield(word{strings.ToLower(name[start:]), true})
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }

// umlauts are letters that are typed as two where a keyboard has none of them.
var umlauts = strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue", "ø", "oe", "å", "aa")

// unaccented returns a word as it is typed without accents, in both ways: "muller" and "mueller" for "müller".
func unaccented(word string) (list []string) {
	if len(word) > maxStemmed || strings.IndexFunc(word, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return nil
	}
	for _, spelled := range []string{bare(word), bare(umlauts.Replace(word))} {
		if allRunes(spelled, latin) && (len(list) == 0 || list[0] != spelled) {
			list = append(list, spelled)
		}
	}
	return list
}

// bare returns a word without the marks of its letters.
func bare(word string) string {
	var b strings.Builder
	for _, r := range norm.NFD.String(word) {
		switch letters, ok := plainLetters[r]; {
		case ok:
			b.WriteString(letters)
		case !unicode.Is(unicode.M, r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
