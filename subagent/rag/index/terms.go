package index

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
	"github.com/kljensen/snowball/russian"
	"golang.org/x/text/unicode/norm"
)

// maxStemmed is the longest word, in bytes, that is stemmed; longer ones are
// identifiers or noise and stand for themselves.
const maxStemmed = 80

// Terms are the words of a text as they are compared: lower case, composed, ё as
// е, without stopwords, reduced to their English or Russian stem by their script.
func Terms(text string) []string { return terms(text, map[string]string{}) }

// terms is Terms with the stems found so far, by word: texts repeat their words,
// and a stem costs more than everything else.
func terms(text string, stems map[string]string) []string {
	text = oneSpelling.Replace(strings.ToLower(norm.NFKC.String(text)))
	var list []string
	for word := range strings.FieldsFuncSeq(text, separates) {
		word = strings.Trim(word, "'")
		term, known := stems[word]
		if !known {
			term = strings.Clone(stem(word)) // an index must not keep the text alive
			stems[word] = term
		}
		if term != "" {
			list = append(list, term)
		}
	}
	return list
}

// oneSpelling folds letters that are written in either of two ways.
var oneSpelling = strings.NewReplacer("ё", "е", "’", "'")

// separates says whether r is no part of a word. An apostrophe is one, for the
// sake of "don't".
func separates(r rune) bool {
	return !unicode.In(r, unicode.L, unicode.N, unicode.M) && r != '\''
}

// stem is a word's term, empty for a stopword.
func stem(word string) string {
	if stopwords[word] {
		return ""
	}
	switch {
	case len(word) > maxStemmed:
		return word
	case all(word, latin):
		return english.Stem(word, true)
	case all(word, cyrillic):
		return russian.Stem(word, true)
	}
	return word
}

func all(word string, is func(rune) bool) bool {
	return strings.IndexFunc(word, func(r rune) bool { return !is(r) }) < 0
}

func latin(r rune) bool    { return r >= 'a' && r <= 'z' || r == '\'' }
func cyrillic(r rune) bool { return r >= 'а' && r <= 'я' }

// stopwords say nothing about what a text is about: they hold sentences and
// questions together.
var stopwords = set(`
a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its
me my no not of on or our she should so than that the their them then there these they this those to us was we were
what when where which who whom whose why will with would you your don't doesn't isn't it's what's i'm
а без бы был была были было быть в вам вас во вот все вы где да для до его ее если есть еще же за и из или им их к
как какая какие какой какое когда которая которое которые который кто куда ли меня мне мной мы на над нам нас не него
нее нет ни них но о об он она они оно от по под почему при про с сколько со так там то тоже только ты у уже чего чей
чем что чтобы эта эти это этот я`)

func set(words string) map[string]bool {
	s := map[string]bool{}
	for _, w := range strings.Fields(words) {
		s[w] = true
	}
	return s
}
