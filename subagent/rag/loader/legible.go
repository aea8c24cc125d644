package loader

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/textindex"

	"golang.org/x/text/unicode/norm"
)

// A text is illegible if a person sees something else than its characters say: a PDF with
// glyphs that are numbered and not named, a file in another encoding than it was read in.
// Such a text is found by no question and answers none.
//
// That is measured without a dictionary, in any script: characters that mean
// nothing, letters that only a wrong encoding gives, and in Latin and Cyrillic
// script pairs of letters that no language has.
const (
	// mostBad is the share of characters without a meaning.
	mostBad = 0.25
	// mostAccented is the share of U+00C0–U+00FF in the letters: Icelandic has a
	// sixth, text in a wrong encoding nearly nothing else.
	mostAccented = 0.6
	// mostOdd is the share of odd pairs of letters. Over texts of 31 languages it is
	// at most 0.21, over pages of code and of macros 0.28, of abbreviations 0.4; with
	// letters exchanged for one another it is about 0.5. From someOdd on it is enough
	// if also mostBreaks of the pairs are a small letter before a capital one.
	mostOdd    = 0.45
	someOdd    = 0.25
	mostBreaks = 0.1
	// fewOdd is the share up to which letters form words for sure.
	fewOdd = 0.2
	// mostLetters is the share of a script in the letters from which on its pairs are
	// looked at: names and commands between other scripts prove nothing.
	mostLetters = 0.8
	// leastPairs is how many pairs are needed to say anything.
	leastPairs = 150
	// fewVisible characters say nothing.
	fewVisible = 20
	// leastKnown is the share of known words that proves a text legible.
	leastKnown = 0.03
)

// survey is what is counted in a text.
type survey struct {
	visible    int // characters that are no white space
	bad        int // of them, without a meaning
	private    int // of them, for private use
	letters    int
	accented   int // of them, U+00C0–U+00FF
	words      int
	recognized int // of them, in knownWords
	latin      pairs
	cyrillic   pairs
}

// pairs are two letters of a word, one behind the other.
type pairs struct {
	total, odd int
	breaks     int // of a small letter before a capital one
	letters    int // of the script, also those in no pair
}

func (s survey) garbled(p pairs) bool {
	total, odd := float64(p.total), float64(p.odd)
	return p.total >= leastPairs && float64(p.letters) >= mostLetters*float64(s.letters) &&
		(odd > mostOdd*total || odd > someOdd*total && float64(p.breaks) > mostBreaks*total)
}

// words says that the letters of a script form words.
func (p pairs) words() bool {
	return p.total >= leastPairs/3 && float64(p.odd) <= fewOdd*float64(p.total)
}

// legiblePage says whether the text of a page can be read. The characters of a page
// follow from the numbers of its glyphs; unmapped says that most of them have no
// known meaning.
func legiblePage(text string, unmapped bool) bool {
	s := surveyOf(text)
	if s.proven() {
		return true
	}
	return s.sane() && !s.garbled(s.latin) && (!unmapped || s.visible < fewVisible || s.latin.words() ||
		s.cyrillic.words())
}

// legible says whether any other text can be read. In it, Latin letters may stand
// in any order: keys, hashes, base64.
func legible(text string) bool {
	s := surveyOf(text)
	return s.proven() || s.sane()
}

// proven says that a text has words that are no accident.
func (s survey) proven() bool {
	return s.recognized >= 5 && float64(s.recognized) >= leastKnown*float64(s.words) && !s.meaningless()
}

// meaningless says that too many characters mean nothing. A score or a form has
// signs of its own between its words.
func (s survey) meaningless() bool {
	most := mostBad * float64(s.visible)
	return float64(s.bad) > most || float64(s.private) > most && s.private > s.letters
}

func (s survey) sane() bool {
	return s.visible < fewVisible || !s.meaningless() &&
		(s.letters < 2*fewVisible || float64(s.accented) <= mostAccented*float64(s.letters)) && !s.garbled(s.cyrillic)
}

func surveyOf(text string) survey {
	var s survey
	for word := range strings.FieldsSeq(text) {
		start := -1
		for i, r := range word {
			s.visible++
			letter := unicode.IsLetter(r) || r >= utf8.RuneSelf && unicode.Is(unicode.M, r)
			switch {
			case letter:
				s.letters++
				if r >= 0xc0 && r <= 0xff {
					s.accented++
				}
			case r > ' ' && r <= '~':
			case unicode.Is(unicode.Co, r):
				s.private++
			case r == unicode.ReplacementChar, !unicode.IsGraphic(r) && !unicode.In(r, unicode.Cf):
				s.bad++
			}
			if letter && start < 0 {
				start = i
			}
			if !letter && start >= 0 {
				s.word(word[start:i])
				start = -1
			}
		}
		if start >= 0 {
			s.word(word[start:])
		}
	}
	return s
}

// word counts a run of letters.
func (s *survey) word(word string) {
	s.words++
	if knownWords[strings.ToLower(word)] {
		s.recognized++
	}
	previous := rune(0)
	for _, r := range norm.NFD.String(word) {
		if r < utf8.RuneSelf {
			s.latin.count(latinPairs, previous, r)
		} else if unicode.Is(unicode.Mn, r) {
			continue
		} else {
			s.cyrillic.count(cyrillicPairs, previous, r)
		}
		previous = r
	}
}

func (p *pairs) count(usual map[rune]string, a, b rune) {
	low := unicode.ToLower(b)
	if _, ok := usual[low]; !ok {
		return
	}
	p.letters++
	followers, ok := usual[unicode.ToLower(a)]
	if !ok {
		return
	}
	p.total++
	if !strings.ContainsRune(followers, low) {
		p.odd++
	}
	if unicode.IsLower(a) && unicode.IsUpper(b) {
		p.breaks++
	}
}

// knownWords are among the most frequent words of languages in Latin and Cyrillic
// script.
var knownWords = textindex.WordSet(`
		the and for with that this from are not you les des une est pour dans que der die und den das mit nicht
		los las por con una para del che per non della het een van niet och att det som til med się jest nie
		para não com uma este sau din для что это как или при его від або так`)

// Which letters follow which: those pairs that are at least 0.04 % of all pairs on
// average over the languages. Counted in translations of free software: 31 languages
// in Latin script without their accents, from Basque to Vietnamese, and Belarusian,
// Bulgarian, Macedonian, Russian, Serbian and Ukrainian.
var latinPairs = map[rune]string{
	'a': "abcdfghijklmnoprstuvwyz", 'b': "aeiloruy", 'c': "acehiklorstu", 'd': "aeilnorsuz",
	'e': "abcdefghijklmnoprstuvxz", 'f': "aefiortu",
	'g': "aeghilnorstu", 'h': "aeiortu", 'i': "abcdefghijklmnoprstuvxz", 'j': "aeiou", 'k': "aehiklorstuy",
	'l': "adegijklnostuy", 'm': "abehimopsu",
	'n': "acdefghijknostuvy", 'o': "abcdefgijklmnoprstuvwz", 'p': "acehiloprstu", 'q': "u", 'r': "abcdegiklmnorstuvyz",
	's': "acehiklmnopstuyz",
	't': "aehiklnorstuvyz", 'u': "abcdegijklmnoprstuz", 'v': "aeinory", 'w': "aeio", 'x': "eit", 'y': "aemopst",
	'z': "aeinouy",
}

var cyrillicPairs = map[rune]string{
	'а': "бвгдежзйклмнпрстхцчшяєўјњ", 'б': "аеилоруыі", 'в': "адеиклнорсуъыяі", 'г': "аеилнору", 'д': "авдежзиклнорсуъі",
	'е': "абвгджзийклмнопрстцчшњ",
	'ж': "адеину", 'з': "абвдеилмнопуі", 'и': "бвгдезийклмнопрстфхцчшяј", 'й': "лнст", 'к': "авеилнорстуці",
	'л': "аеикноуьюяі", 'м': "абвеинопуыяі",
	'н': "агдеикностуыьяі", 'о': "бвгдежзийклмнпрстцчшўј", 'п': "аеиклоруці", 'р': "авгдежикмностухшыэяі",
	'с': "авеиклноптуцъьяі",
	'т': "авеикнорсуыьэі", 'у': "абвгдежзклмнпрстчюј", 'ф': "аиоі", 'х': "аоі", 'ц': "аеицыьі", 'ч': "аеикнуыэ",
	'ш': "аеикнт", 'щ': "ео", 'ъ': "рт",
	'ы': "вейклмнртхя", 'ь': "зкнс", 'э': "лнт", 'ю': "ч", 'я': "вдкмнт", 'є': "", 'і': "вдйклмнрстця", 'ў': "н", 'ђ': "",
	'ј': "аеу", 'љ': "",
	'њ': "ае", 'ћ': "", 'џ': "", 'ґ': "",
}
