package offline

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"github.com/kljensen/snowball/russian"
)

// token is one word or number of a text, at its byte offsets.
type token struct {
	raw        string
	low        string // lower case, with ё as е and ’ as '
	start, end int
}

// tokenize finds the words of s. A hyphen, apostrophe, underscore or at sign inside a word belongs to it, and so
// does a point or comma inside a number or a dotted lower-case name such as example.com.
func tokenize(s string) []token {
	var toks []token
	start := -1
	for i, r := range s {
		if isWordRune(r) {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 && !joinsWord(s, i, r) {
			toks = append(toks, newToken(s, start, i))
			start = -1
		}
	}
	if start >= 0 {
		toks = append(toks, newToken(s, start, len(s)))
	}
	return toks
}

func newToken(s string, start, end int) token {
	raw := s[start:end]
	low := strings.TrimSuffix(fold(raw), "-ка") // the particle of «скажи-ка»
	return token{raw: raw, low: low, start: start, end: end}
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// joinsWord says whether the rune r at s[i], seen inside a word, continues it.
func joinsWord(s string, i int, r rune) bool {
	next, _ := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):])
	prev, _ := utf8.DecodeLastRuneInString(s[:i])
	if !isWordRune(next) || !isWordRune(prev) {
		return false
	}
	switch r {
	case '\'', '’', '-', '_', '@', '\u2011':
		return !(r == '-' && unicode.IsDigit(prev) && unicode.IsDigit(next))
	case '.':
		return unicode.IsDigit(prev) && unicode.IsDigit(next) || isLowLatin(prev) && isLowLatin(next)
	case ',':
		return unicode.IsDigit(prev) && unicode.IsDigit(next)
	}
	return false
}

func isLowLatin(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

func fold(s string) string {
	s = strings.ToLower(s)
	if strings.ContainsAny(s, "ё’ʼ\u2011") {
		return folder.Replace(s)
	}
	return s
}

var folder = strings.NewReplacer("ё", "е", "’", "'", "ʼ", "'", "\u2011", "-")

// stemOf reduces a folded word to its stem, by the language of its letters; an English possessive ending goes first.
func stemOf(low string) string {
	if isCyrillic(low) {
		return dropFleeting(rootOf(low))
	}
	return rootOf(low)
}

// rootOf is stemOf with fleeting vowels kept, for comparing spellings.
func rootOf(low string) string {
	if isCyrillic(low) {
		return russian.Stem(low, true)
	}
	low = strings.TrimSuffix(strings.TrimSuffix(low, "'s"), "'")
	if present, ok := pastOf[low]; ok {
		low = present
	}
	return english.Stem(low, true)
}

// dropFleeting gives the forms of a Russian noun with and without a fleeting vowel one stem: «кошек» that of «кошка»,
// «денег» that of «деньги», «сестёр» that of «сёстры». What goes is the letter before the last consonant, in every
// word alike, so that a vowel that stays in all forms does no harm.
func dropFleeting(stem string) string {
	r := []rune(stem)
	n := len(r)
	if n < 4 {
		return stem
	}
	switch last, before := r[n-1], r[n-2]; {
	case strings.ContainsRune("ое", before) && strings.ContainsRune("бвгклмнртц", last),
		strings.ContainsRune("ьй", before) && strings.ContainsRune("бгкм", last):
		return string(append(r[:n-2], last))
	}
	return stem
}

func isCyrillic(s string) bool {
	for _, r := range s {
		if unicode.Is(unicode.Cyrillic, r) {
			return true
		}
	}
	return false
}

// lang is the language of an answer.
type lang int

const (
	en lang = iota
	ru
)

// langOf tells the language of s by its words. Russian speech often carries Latin names, so half as many Russian
// words as Latin ones are enough; a Cyrillic word in capitals inside s may itself be a name and does not count.
func langOf(s string) lang {
	cyrillic, latin := 0, 0
	for i, t := range tokenize(s) {
		switch {
		case strings.IndexFunc(t.low, unicode.IsLetter) < 0:
		case !isCyrillic(t.low):
			latin++
		case i == 0 || !isCapitalized(t.raw):
			cyrillic++
		}
	}
	if cyrillic > 0 && 2*cyrillic >= latin {
		return ru
	}
	return en
}

// pick returns the text of the language.
func (l lang) pick(english, russian string) string {
	if l == ru {
		return russian
	}
	return english
}

// sentences cuts s at . ! ? … and line breaks, keeping the terminator with its sentence. Quoted text, abbreviations,
// initials, numbers and list markers do not end one. Pieces without a letter or digit are dropped.
func sentences(s string) []string {
	var out []string
	inQuote := quoted(s)
	start := 0
	cut := func(end int) {
		if piece := strings.TrimSpace(s[start:end]); strings.IndexFunc(piece, isWordRune) >= 0 && !isListMark(piece) {
			out = append(out, strings.TrimSpace(strings.TrimLeft(piece, "-*•–— ")))
		}
		start = end
	}
	for i, r := range s {
		if i < start || inQuote(i) {
			continue
		}
		switch {
		case r == '\n' || r == '\r':
			cut(i)
		case strings.ContainsRune(".!?…", r) && endsSentence(s, i):
			cut(terminatorEnd(s, i))
		case strings.ContainsRune("\"”»", r) && closesSentence(s, i, r):
			cut(i + utf8.RuneLen(r))
		}
	}
	cut(len(s))
	return out
}

func isListMark(s string) bool {
	mark := strings.TrimRight(s, ".)")
	return len(mark) > 0 && len(mark) <= 2 && mark != s && strings.Trim(mark, "0123456789") == ""
}

func terminatorEnd(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !strings.ContainsRune(".!?…)\"”»'’", r) {
			break
		}
		i += n
	}
	return i
}

// endsSentence says whether the terminator at s[i] ends its sentence.
func endsSentence(s string, i int) bool {
	end := terminatorEnd(s, i)
	next, _ := utf8.DecodeRuneInString(s[end:])
	if s[i] != '.' {
		return s[i] != '!' && s[i] != '?' || end == len(s) || !isLowLatin(next)
	}
	prevWord := lastWord(s[:i])
	if end < len(s) && !unicode.IsSpace(next) {
		prev, _ := utf8.DecodeLastRuneInString(s[:i])
		return unicode.IsUpper(next) && unicode.IsLower(prev) && !abbreviations[prevWord]
	}
	if end >= len(s) {
		return true
	}
	letters := utf8.RuneCountInString(prevWord)
	return !abbreviations[prevWord] && (letters != 1 || prevWord == "i" || prevWord == "я" || isDigits(prevWord))
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func lastWord(s string) string {
	i := strings.LastIndexFunc(s, func(r rune) bool { return !isWordRune(r) })
	if i >= 0 {
		_, n := utf8.DecodeRuneInString(s[i:])
		i += n
	} else {
		i = 0
	}
	return fold(s[i:])
}

// closesSentence says whether the closing quote r at s[i] follows a terminator and a new sentence follows it.
func closesSentence(s string, i int, r rune) bool {
	prev, _ := utf8.DecodeLastRuneInString(s[:i])
	rest := s[i+utf8.RuneLen(r):]
	after := strings.TrimLeft(rest, " ")
	next, _ := utf8.DecodeRuneInString(after)
	return strings.ContainsRune(".!?…", prev) && len(after) < len(rest) && unicode.IsUpper(next)
}

var quotePairs = map[rune]rune{'“': '”', '«': '»', '„': '“', '"': '"'}

// quoted returns a test of whether a byte offset lies inside a quotation. Quotes that do not pair up are ignored.
func quoted(s string) func(int) bool {
	var spans [][2]int
	var closer rune
	open := 0
	for i, r := range s {
		switch {
		case closer == 0:
			if c, ok := quotePairs[r]; ok {
				closer, open = c, i
			}
		case r == closer || closer == '“' && r == '”':
			spans = append(spans, [2]int{open, i})
			closer = 0
		}
	}
	return func(i int) bool {
		// The first quotation that does not end before i is the only one that can hold it.
		k, _ := slices.BinarySearchFunc(spans, i, func(span [2]int, at int) int { return cmp.Compare(span[1], at) })
		return k < len(spans) && spans[k][0] < i && i < spans[k][1]
	}
}

// unquote removes quotes that enclose all of s.
func unquote(s string) string {
	for _, p := range [][2]string{{"“", "”"}, {"«", "»"}, {"„", "“"}, {"„", "”"}, {"\"", "\""}, {"'", "'"}, {"‘", "’"}} {
		inner, ok := strings.CutPrefix(s, p[0])
		if !ok {
			continue
		}
		body := strings.TrimRight(inner, ".!,; ")
		if cut, ok := strings.CutSuffix(body, p[1]); ok && !strings.Contains(cut, p[1]) {
			return strings.TrimSpace(cut)
		}
	}
	return s
}

// trimPunct removes spaces and joining punctuation around a clause, but not what belongs to it: brackets, quotes,
// signs of numbers and terminators.
func trimPunct(s string) string {
	s = strings.TrimLeft(s, " \t,:;—–.!?…")
	if rest, ok := strings.CutPrefix(s, "- "); ok {
		s = rest
	}
	return strings.TrimRight(s, " \t,:;—–-")
}

// capitalize raises the first letter of s.
func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

// terminated gives s as a sentence that ends in mark, unless it already ends in a terminator; a wrong full stop
// is replaced by a question mark when mark is one.
func terminated(s, mark string) string {
	s = capitalize(strings.TrimSpace(s))
	if mark == "?" {
		s = strings.TrimRight(s, ".!… ")
	}
	last, _ := utf8.DecodeLastRuneInString(strings.TrimRight(s, "\"”»)"))
	if strings.ContainsRune(".!?…", last) {
		return s
	}
	return s + mark
}

func isCapitalized(raw string) bool {
	r, _ := utf8.DecodeRuneInString(raw)
	return unicode.IsUpper(r)
}

// isShouted says whether s has letters and none in lower case.
func isShouted(s string) bool {
	return strings.IndexFunc(s, unicode.IsLower) < 0 && strings.IndexFunc(s, unicode.IsUpper) >= 0
}
