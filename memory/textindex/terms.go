package textindex

import (
	"hash/maphash"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"github.com/kljensen/snowball/russian"
	"golang.org/x/text/unicode/norm"

	"mneme/memory/number"
)

// maxStemmed is the longest word, in bytes, that is stemmed; longer ones are
// identifiers or noise and stand for themselves.
const maxStemmed = 80

// Terms returns the terms of a text in its order, without stopwords and without other spellings. Terms are in lower case
// and composed (NFC), with ё as е:
//   - English and Russian words are stems;
//   - words of other alphabets stay as they are. Their fragments follow, which stand for a stem: each four letters that
//     follow each other, without their marks. In a text that is not English, words of plain Latin letters have them, too;
//   - text without spaces, and Korean, whose particles stand at its words, becomes pairs of characters (see units).
//
// An index and its questions also have other spellings of the words: accented words without accents, joined codes and
// numbers, parts of names such as getUserName, and fragments of Russian words and of words in an unknown language.
func Terms(text string) []string {
	var a analyzer
	return a.list(text)
}

// maxKnown bounds the words that an analyzer remembers, in bytes with what each
// costs besides its letters.
const (
	maxKnown = 16 << 20
	perKnown = 64
	perRoom  = 16 // of the room for a word of a text
)

// analyzer finds terms. It numbers the terms that it found and remembers the words
// it found them for: texts repeat their words, and stemming costs more than
// everything else.
type analyzer struct {
	words   map[uint64]int32   // by words' hashes: the numbers of their terms, or stopword
	parts   map[uint64][]int32 // by words' hashes: the numbers of their fragments
	numbers map[string]int32   // of the terms
	terms   []string           // by number
	size    int                // of what is remembered, as maxKnown has it
	places  []int32            // by number; all 0, for the builder of a segment
	room    []string           // for the words of a text
	judged  language           // of the last text
}

// wordSeed makes words' hashes, which stand for the words where those would cost a look
// into memory each: of the 200,000 that are remembered at most, two have one in common in
// one of a billion processes, and an attacker cannot choose them.
var wordSeed = maphash.MakeSeed()

// stopword is the number of what is no term.
const stopword = -1

// forget makes room when there is little left. The numbers from before are void.
func (a *analyzer) forget() {
	if a.size+perRoom*cap(a.room) > maxKnown {
		*a = analyzer{}
	}
}

// number is that of a word's term, which is remembered by the word's hash, or stopword.
func (a *analyzer) number(word string) int32 {
	hash := maphash.String(wordSeed, word)
	n, ok := a.words[hash]
	if ok {
		return n
	}
	if a.words == nil {
		a.words = map[uint64]int32{}
	}
	n = stopword
	if term := stem(strings.Clone(word)); term != "" { // what is remembered must not keep the text alive
		n = a.numberOf(term)
	}
	a.words[hash] = n
	a.size += len(word) + perKnown
	return n
}

// numberOf is that of a term.
func (a *analyzer) numberOf(term string) int32 {
	n, ok := a.numbers[term]
	if ok {
		return n
	}
	if a.numbers == nil {
		a.numbers = map[string]int32{}
	}
	n = int32(len(a.terms))
	a.numbers[term] = n
	a.terms = append(a.terms, term)
	a.places = append(a.places, 0)
	return n
}

// termNumber is the number of a term that was found before, elsewhere.
func (a *analyzer) termNumber(term string) int32 {
	if n, ok := a.numbers[term]; ok {
		return n
	}
	a.size += len(term) + perKnown
	return a.numberOf(strings.Clone(term)) // what is remembered must not keep an answer alive
}

// fragments are the numbers of those of a word.
func (a *analyzer) fragments(word string) []int32 {
	hash := maphash.String(wordSeed, word)
	list, ok := a.parts[hash]
	if ok {
		return list
	}
	if a.parts == nil {
		a.parts = map[uint64][]int32{}
	}
	for _, f := range fragments(word) {
		list = append(list, a.numberOf(f))
		a.size += perKnown
	}
	a.parts[hash] = list
	a.size += perKnown
	return list
}

// in yields the numbers of a text's terms, each with the word that it stands for: those of its words in their order, then
// those of other spellings. A text that does not show its language has the language otherwise.
func (a *analyzer) in(text string, otherwise language) iter.Seq2[int32, word] {
	return func(yield func(number int32, w word) bool) {
		list := a.room[:0]
		var others []string
		for w := range words(text) {
			if w.other {
				others = append(others, w.text)
			} else {
				list = units(list, w.text)
			}
		}
		a.room = list
		defer clear(list) // it must not keep the text alive
		if a.judged = languageOf(list); a.judged == anyLanguage {
			a.judged = otherwise
		}
		for _, w := range list {
			n := a.number(w)
			if n == stopword || a.judged == isForeign && foreignWords[w] {
				continue
			}
			if !yield(n, word{text: w}) {
				return
			}
			others = append(others, unaccented(w)...)
			if !fragmented(w, a.judged) {
				continue
			}
			other := a.judged == anyLanguage || allRunes(w, cyrillic) // which has stems
			for _, f := range a.fragments(w) {
				if !yield(f, word{w, other}) {
					return
				}
			}
		}
		for _, w := range others {
			if n := a.number(w); n != stopword && !yield(n, word{w, true}) {
				return
			}
		}
	}
}

// list are the terms of a text in its order.
func (a *analyzer) list(text string) []string {
	var list []string
	for n, w := range a.in(text, isEnglish) {
		if !w.other {
			list = append(list, a.terms[n])
		}
	}
	return list
}

// Words are the words of a text, folded so that spellings of one are equal: stopwords too, in the forms that
// they have there, but not those of Thai.
func Words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for w := range words(text) {
			if !w.other && !yield(w.text) {
				return
			}
		}
	}
}

// words are the words of a text in its order, folded so that spellings of one are equal, and other spellings.
func words(text string) iter.Seq[word] {
	return func(yield func(word) bool) {
		s := speller{text: number.Ungroup(oneSpelling.Replace(number.Fold(text))), yield: yield}
		for start := 0; start < len(s.text); {
			begin := strings.IndexFunc(s.text[start:], inWord)
			if begin < 0 {
				break
			}
			start += begin
			end := strings.IndexFunc(s.text[start:], separates)
			if end < 0 {
				end = len(s.text) - start
			}
			token := s.text[start : start+end]
			raw := strings.Trim(token, "'")
			pos := start + strings.Index(token, raw)
			if start += end; raw != "" && !s.add(pos, pos+len(raw)) {
				return
			}
		}
		s.close()
	}
}

func inWord(r rune) bool { return !separates(r) }

// oneSpelling folds letters that are written in either of two ways, and takes out the stopwords of Thai, which are not
// told from its other words by spaces.
var oneSpelling = func() *strings.Replacer {
	pairs := []string{"ё", "е", "Ё", "Е", "’", "'"}
	for word := range strings.FieldsSeq(norm.NFKC.String(thaiQuestions)) {
		pairs = append(pairs, word, " ")
	}
	return strings.NewReplacer(pairs...)
}()

// separates says whether r is no part of a word. An apostrophe is one, for the
// sake of "don't".
func separates(r rune) bool {
	if r < utf8.RuneSelf { // most are, and need no tables
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '\'' || r >= 'A' && r <= 'Z')
	}
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
	case allRunes(word, latin):
		return english.Stem(word, true)
	case allRunes(word, cyrillic):
		return russian.Stem(word, true)
	}
	return word
}

func allRunes(word string, is func(rune) bool) bool {
	return strings.IndexFunc(word, func(r rune) bool { return !is(r) }) < 0
}

func latin(r rune) bool    { return r >= 'a' && r <= 'z' || r == '\'' }
func cyrillic(r rune) bool { return r >= 'а' && r <= 'я' }

// stopwords say nothing about what a text is about: they hold sentences and
// questions together. They are the usual ones of Snowball and question words in
// their forms. A contraction stands as a whole, since its stem would be no stopword.
var stopwords = WordSet(`
a about above after again against all am an and any are as at be because been before being below between both but by
can could did do does doing down during each few for from further had has have having he her here hers herself him
himself his how i if in into is it its itself just me more most my myself now of off on once only or other
our ours ourselves out over own same she should so some such than that the their theirs them themselves then there
these they this those through to too under until up us very was we were what when where which while who whom whose why
will with would you your yours yourself yourselves
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't he'd he'll he's how's i'd i'll i'm i've isn't
it'd it'll it's let's mustn't shan't she'd she'll she's shouldn't that's there's they'd they'll they're they've wasn't
we'd we'll we're we've weren't what's when's where's who's why's won't wouldn't you'd you'll you're you've

а без более больше будет будто бы был была были было быть в вам вас вдруг ведь во вот впрочем все всегда всего всех
всю вы где да даже для до другой его ее ей ему если еще ж же за зачем здесь и из или им иногда их к как какая
какие каким какими каких какого какое какой каком какому какую кем когда кого ком кому конечно которая которого
которое которой котором которому которую которые который которым которыми которых кто куда ли лучше между меня мне
много мной может можно мой моя мы на над надо наконец нам нас не него нее ней нет ни нибудь никогда ним них
ничего но ну о об он она они оно опять от откуда отчего перед по под после потом потому почему почти при про раз разве
с сам свою себе себя сейчас скольких сколько со совсем так такой там тебя тем теперь то тогда того тоже только том тот
тут ты у уж уже хорошо хоть чего чей чем чему через что чтоб чтобы чуть чье чьего чьей чьи чьих чья эта эти это этого
этой этом этот эту я`)

// WordSet is the set of the words of a text with blanks between them.
func WordSet(words string) map[string]bool { return SetOf(strings.Fields(words)) }

// SetOf is the set of some words.
func SetOf(words []string) map[string]bool {
	s := map[string]bool{}
	for _, w := range words {
		s[w] = true
	}
	return s
}
