package textindex

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/russian"
)

// The scripts in which words are not told by spaces: those in which a character is about a syllable, and those in which
// it is about a letter, of which it takes more to say something. Korean is among the former for what it writes to the
// ends of words.
var (
	syllables = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul}
	letters   = []*unicode.RangeTable{unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}
	unspaced  = slices.Concat(syllables, letters)
)

const (
	firstUnspaced = '\u0e00' // the first character of these scripts, in Thai
	prolonged     = 'ー'      // the sign of a long vowel, which Unicode counts to no script
)

func isUnspaced(r rune) bool {
	return r >= firstUnspaced && (unicode.In(r, unspaced...) || r == prolonged)
}

// units appends what of a word is compared as a word: the word itself, or its parts at an apostrophe, or of a run
// without spaces each two characters that follow each other, with their marks; in scripts of letters each three, too,
// and in Chinese each character (Lucene's CJKBigramFilter with outputUnigrams). A word may be as long as a text.
func units(list []string, word string) []string {
	for word != "" {
		part := word
		if i := strings.IndexByte(word, '\''); i >= 0 && !contractions[word[i+1:]] {
			part = word[:i]
		}
		word = strings.TrimLeft(word[len(part):], "'")
		for part != "" {
			run := strings.IndexFunc(part, isUnspaced)
			if run < 0 {
				run = len(part)
			}
			if run > 0 {
				list = append(list, part[:run])
			}
			list, part = characters(list, part[run:])
		}
	}
	return list
}

// characters appends those that stand for the words of a run at the front of a text, and gives what is behind it.
func characters(list []string, text string) (out []string, rest string) {
	var starts []int
	end := len(text)
	for i, r := range text {
		if unicode.Is(unicode.M, r) && i > 0 {
			continue // a mark of the character before
		}
		if !isUnspaced(r) {
			end = i
			break
		}
		starts = append(starts, i)
	}
	starts = append(starts, end)
	for i, start := range starts[:len(starts)-1] {
		r, _ := utf8.DecodeRuneInString(text[start:])
		least, most := 2, 2
		switch {
		case unicode.Is(unicode.Han, r) || len(starts) == 2:
			least = 1
		case unicode.In(r, letters...):
			most = 3
		}
		for n := least; n <= most && i+n < len(starts); n++ {
			list = append(list, text[start:starts[i+n]])
		}
	}
	return list, text[end:]
}

// contractions are what stands behind an apostrophe within an English word; any other separates, as in "l'eau" and
// "Ankara'da".
var contractions = WordSet("s t d m ll re ve")

// language is the language of a text, as far as its words show it.
type language uint8

const (
	anyLanguage language = iota // of a few words, none of which holds sentences together
	isEnglish
	isForeign
)

// languageTerms are in each passage of a language. No word has them.
var languageTerms = map[language]string{isEnglish: "_en", isForeign: "_xx"}

// fewForeign is how many passages in English there are for one in another language at least, where a question of a few
// words is in English.
const fewForeign = 10

// language returns the language for a question whose words do not show one.
func (s *Snapshot) language() language {
	english, others := 0, 0 // passages, including removed ones
	for _, p := range s.parts {
		english += p.find(languageTerms[isEnglish]).count()
		others += p.find(languageTerms[isForeign]).count()
	}
	if s.stats == nil && english > fewForeign*others {
		return isEnglish
	}
	return anyLanguage // or candidates of an engine, which do not show the language of the collection
}

// languageOf returns English for a text with more English stopwords than function words of other languages.
func languageOf(list []string) language {
	others, stops := 0, 0
	for _, word := range list {
		r, _ := utf8.DecodeRuneInString(word)
		switch isLatin := allRunes(word, latin); {
		case foreignWords[word] || !isLatin && unicode.Is(unicode.Latin, r) && !strings.ContainsFunc(word, unicode.IsNumber):
			others++
		case stopwords[word]:
			stops++
		}
	}
	switch {
	case stops > others:
		return isEnglish
	case others > 0:
		return isForeign
	}
	return anyLanguage
}

// elsewhere are words that hold together sentences of German, French, Spanish, Italian, Portuguese, Dutch, Swedish,
// Romanian, Polish and Turkish, without those that English has, too. They say nothing in a text of these languages.
var foreignWords = WordSet(`
der das und ist nicht ein eine einen einem einer eines wie wer wo wann warum welche welcher welches ich du er sie es wir
ihr mir mich dir dich uns ihm ihn mein meine meinen meinem meiner dein deine deinen sein seine unser unsere auf aus bei mit
nach von zu zum zur im vom für über oder aber auch nur noch schon sehr wenn dass weil habe haben hatte bist sind wird
werden wurde kann kannst muss soll den dem
le la les un une du et est pas je tu il elle nous vous ils cet cette ces qui que quoi où quand pourquoi combien quel quelle
quels quelles mon ma ses notre votre leur dans sur avec sans aux avons avez ont été être avoir suis êtes
qu el los las una unos unas qué quién quien cómo cuándo donde dónde cuál cuánto cuántos cuántas por para con del en está
están soy estoy tengo tiene mi mis sus su yo te se muy más pero también ya
gli uno di della dei delle dal dalla nel nella sono ho hai abbiamo che chi cosa dove quando perché quale quali quanto
quanti mio mia miei mie tuo tua suo sua non si lui lei noi voi anche più molto
um uma da dos das em na nas quem qual onde eu você ele ela nós meu minha seu não estou tenho foi mais muito já
het een van dat niet ik je jij hij zij wij mijn jouw zijn haar ons op aan voor naar bij uit om wat waar wanneer waarom hoe
heb hebt heeft moet zal maar ook nog
och att som det jag cu pe este ce nie jest na czy bir ve bu ne hangi`)

// fragmented says whether a word is compared by its fragments, too.
func fragmented(word string, lang language) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return !(len(word) > maxStemmed || lang == isEnglish && allRunes(word, latin) || isUnspaced(r) ||
		strings.ContainsFunc(word, unicode.IsNumber))
}

// fragmentLength is how many letters a fragment has. Measured on questions in Turkish, Arabic and French, four are
// better than three, five, and two lengths; and better than the first letters alone.
const fragmentLength = 4

// fragments are the letters of a word that follow each other, without their marks and without an Arabic article. The ends
// of the word count as letters. Of a Russian word it is the stem, without an end. Words of one or two letters have none.
func fragments(word string) (list []string) {
	letters := []rune(string(wordEnd) + bare(noun(word)) + string(wordEnd))
	if allRunes(word, cyrillic) { // whose endings are known
		letters = []rune(string(wordEnd) + russian.Stem(word, true))
	}
	for i := 0; i+fragmentLength <= len(letters) && len(letters) > fragmentLength; i++ {
		list = append(list, string(wordEnd)+string(letters[i:i+fragmentLength]))
	}
	return list
}

// wordEnd stands for the ends of a word, and in front of every fragment; no word has it.
const wordEnd = '_'

// thaiQuestions are the question words of Thai.
const thaiQuestions = `อะไร ใคร ที่ไหน ไหน เมื่อไร เมื่อใด เมื่อไหร่ อย่างไร ยังไง กี่ เท่าไร เท่าไหร่ เท่าใด
ทำไม ใด บ้าง หรือไม่`

// plainLetters are those of letters that decompose into none.
var plainLetters = map[rune]string{'ı': "i", 'ß': "ss", 'ø': "o", 'đ': "d", 'ł': "l", 'æ': "ae", 'œ': "oe", 'ς': "σ"}

// noun is an Arabic word without the article and the particles before it.
func noun(word string) string {
	for _, article := range []string{"ال", "وال", "بال", "كال", "فال", "لل"} {
		if rest, ok := strings.CutPrefix(word, article); ok && utf8.RuneCountInString(rest) > 2 {
			return rest
		}
	}
	return word
}
