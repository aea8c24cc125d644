package loader

import (
	"bytes"
	"cmp"
	_ "embed"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// codePage is an encoding with one byte per character. Its score grows by rare, and by unusualPage if the text
// is in another language than the page was made for.
type codePage struct {
	*charmap.Charmap
	rare      float64
	languages string
}

const (
	westEuropean    = "de fr es pt it sv da nb fi is ca"
	eastEuropean    = "cs sk pl hu ro hr sl"
	balticLanguages = "lt lv et"
	cyrillicScript  = "ru uk be bg sr mk"
)

var codePages = []codePage{
	{charmap.Windows1252, 0, westEuropean + " et"},
	{charmap.Windows1250, 1, eastEuropean},
	{charmap.Windows1251, 1, cyrillicScript},
	{charmap.Windows1253, 1, "el"},
	{charmap.Windows1254, 1, "tr"},
	{charmap.Windows1255, 1, "he"},
	{charmap.Windows1256, 1, "ar"},
	{charmap.Windows1257, 1, balticLanguages},
	{charmap.KOI8U, 2, cyrillicScript},
	{charmap.ISO8859_2, 5, eastEuropean},
	{charmap.CodePage866, 6, cyrillicScript},
	{charmap.CodePage852, 8, eastEuropean},
	{charmap.CodePage850, 8, westEuropean},
	{charmap.CodePage437, 12, westEuropean},
	{charmap.Macintosh, 12, westEuropean},
	{charmap.MacintoshCyrillic, 12, cyrillicScript},
	{charmap.ISO8859_4, 12, balticLanguages},
	{charmap.ISO8859_5, 12, cyrillicScript},
	{charmap.ISO8859_6, 12, "ar"},
	{charmap.ISO8859_7, 12, "el"},
	{charmap.CodePage855, 12, cyrillicScript},
	{charmap.CodePage862, 12, "he"},
}

const (
	// guessWords is the number of distinct words that a guess looks at.
	guessWords = 400
	// firstWords of them exclude code pages that are far behind the best one.
	firstWords = 40
	farBehind  = 60.0
	// The costs of characters, in bits.
	unseenPair   = 12.0
	unseenLetter = 16.0
	mixedScripts = 10.0
	oddSymbol    = 18.0
	control      = 20.0
	usualSymbol  = 8.0
	guillemet    = 10.0
	caseBreak    = 6.0 // a capital after a small letter
	// otherLanguage is the cost of a word in another language than the rest.
	otherLanguage = 5.0
	unusualPage   = 7.0
	// A frequent word of a language lowers the cost of the language, up to mostKnown.
	knownWord = 3.0
	mostKnown = 15.0
	// mostBits per character is what a text in a known language has.
	mostBits = 9.3
	// margin is how many bits the best code page must be ahead of any other one with
	// another text.
	margin = 7.0
)

// letterPairs holds the letters outside ASCII of one language. The keys are pairs with the
// letter before and with the letter after, the values their information in bits.
type letterPairs struct {
	name           string
	previous, next map[[2]rune]float64
	letters        map[rune]bool
	words          []string // frequent words in ASCII
}

// Each line of letters.txt is a language: pairs that end in a letter outside ASCII, and pairs that start
// with one. The numbers are bits. An underscore is the edge of a word. Counted in the
// translations of free software.
//
//go:embed letters.txt
var letterTable string

// Each line of frequent.txt has the most frequent characters of a script.
//
//go:embed frequent.txt
var frequentTable string

var languages = sync.OnceValue(func() []letterPairs {
	var list []letterPairs
	for line := range strings.Lines(letterTable) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		l := letterPairs{fields[0], pairsOf(fields[1]), pairsOf(fields[2]), map[rune]bool{}, strings.Fields(fields[3])}
		for pair := range l.previous {
			l.letters[pair[1]] = true
		}
		list = append(list, l)
	}
	return list
})

func pairsOf(field string) map[[2]rune]float64 {
	table := map[[2]rune]float64{}
	for part := range strings.FieldsSeq(field) {
		bits, letters, _ := strings.Cut(part, ":")
		value, _ := strconv.ParseFloat(bits, 64)
		for pair := range slices.Chunk([]rune(letters), 2) {
			table[[2]rune(pair)] = value
		}
	}
	return table
}

// highWords returns the distinct words with bytes outside ASCII, each with the byte before and after it.
func highWords(data []byte) [][]byte {
	var words [][]byte
	unique := map[string]bool{}
	for i := 0; i < len(data) && len(words) < guessWords; i++ {
		start, high := i, false
		for ; i < len(data) && inWord(data[i]) && i < start+100; i++ {
			high = high || data[i] >= 0x80
		}
		if word := data[max(0, start-1):min(len(data), i+1)]; high && !unique[string(word)] {
			unique[string(word)] = true
			words = append(words, word)
		}
	}
	return words
}

func inWord(c byte) bool { return c >= 0x80 || c|0x20 >= 'a' && c|0x20 <= 'z' }

// knownIn returns how far the frequent words in a text lower the cost of each language.
func knownIn(data []byte) []float64 {
	inText := map[string]bool{}
	for word := range bytes.FieldsFuncSeq(bytes.ToLower(data[:min(len(data), sample)]), func(r rune) bool {
		return r < 0x80 && !inWord(byte(r))
	}) {
		inText[string(word)] = true
	}
	var bonus []float64
	for _, l := range languages() {
		sum := 0.0
		for _, word := range l.words {
			if inText[word] {
				sum += knownWord
			}
		}
		bonus = append(bonus, min(sum, mostKnown))
	}
	return bonus
}

// bits returns the information of a word's characters outside ASCII in a language.
func (l letterPairs) bits(word []rune) float64 {
	sum := 0.0
	for i, r := range word {
		if r < 0x80 {
			continue
		}
		previous, next := '_', '_'
		if i > 0 {
			previous = word[i-1]
		}
		if i+1 < len(word) {
			next = word[i+1]
		}
		if !unicode.IsLetter(r) {
			if previous > 0xa0 && !unicode.IsLetter(previous) && r > 0xa0 {
				sum += caseBreak
			}
			sum += symbolBits(r, previous, next)
			continue
		}
		if unicode.IsLower(previous) && unicode.IsUpper(r) || unicode.IsUpper(next) && unicode.IsLower(r) {
			sum += caseBreak
		}
		if unicode.IsDigit(previous) || unicode.IsDigit(next) {
			sum += caseBreak
		}
		if !unicode.Is(unicode.Latin, r) && (isLatin(previous) || isLatin(next)) {
			sum += mixedScripts
		}
		if !l.letters[folded(r)] {
			sum += unseenLetter
			continue
		}
		sum += (cost(l.previous, folded(previous), folded(r)) + cost(l.next, folded(r), folded(next))) / 2
	}
	return sum
}

func isLatin(r rune) bool { return r < 0x80 && inWord(byte(r)) }

func cost(table map[[2]rune]float64, a, b rune) float64 {
	if bits, ok := table[[2]rune{a, b}]; ok {
		return bits
	}
	return unseenPair
}

// folded returns the key of a character in the tables.
func folded(r rune) rune {
	if !unicode.IsLetter(r) && !unicode.Is(unicode.Mn, r) {
		return '_'
	}
	if low := unicode.ToLower(r); low >= 0x80 || r < 0x80 {
		return low
	}
	return r
}

func symbolBits(r, previous, next rune) float64 {
	follows, leads := unicode.IsLetter(previous), unicode.IsLetter(next)
	switch {
	case r < 0xa0 || r == unicode.ReplacementChar:
		return control
	case strings.ContainsRune("’–—·", r):
		return usualSymbol
	case follows && leads:
	case strings.ContainsRune("“\u00a0", r), !follows && strings.ContainsRune("„‘‚¡¿©°", r),
		!leads && strings.ContainsRune("”…™®²³", r),
		!follows && !leads && strings.ContainsRune("§£€±×•½", r):
		return usualSymbol
	case strings.ContainsRune("«»", r):
		return guillemet
	}
	return oddSymbol
}

// guess returns the text of bytes in an undeclared encoding. It refuses them if none is clearly the best.
func guess(data []byte) (string, error) {
	if e := multiByte(data); e != nil {
		return decodeWith(e, data)
	}
	words, bonuses := highWords(data), knownIn(data)
	pages := ranked(codePages, words[:min(len(words), firstWords)], bonuses, farBehind)
	pages = ranked(pages, words, bonuses, margin)
	high := 0
	for _, word := range words {
		for _, c := range word {
			if c >= 0x80 {
				high++
			}
		}
	}
	best := pages[0]
	if best.score(words, bonuses)-best.rare > mostBits*float64(high) {
		return "", refuse(Encoding, "the file is no text in a known encoding: "+encodingFix)
	}
	text, err := decodeWith(best, data)
	if err != nil {
		return "", err
	}
	for _, page := range pages[1:] {
		if other, err := decodeWith(page, data); err != nil || other != text {
			return "", refuse(Encoding, "the file's encoding is %s or %s: %s", best, page, encodingFix)
		}
	}
	return text, nil
}

// ranked returns the pages with a score of at most lead behind the best one, the best first.
func ranked(pages []codePage, words [][]byte, bonuses []float64, lead float64) []codePage {
	scores := map[codePage]float64{}
	for _, page := range pages {
		scores[page] = page.score(words, bonuses)
	}
	byScore := func(a, b codePage) int { return cmp.Compare(scores[a], scores[b]) }
	pages = slices.SortedStableFunc(slices.Values(pages), byScore)
	first := scores[pages[0]]
	return slices.DeleteFunc(pages, func(p codePage) bool { return scores[p]-first > lead })
}

const encodingFix = "save it as UTF-8 or name its encoding with ?charset= (mneme ingest --charset)"

func (p codePage) score(words [][]byte, bonuses []float64) float64 {
	langs := languages()
	costs := make([][]float64, len(words))
	decoded := make([]rune, 0, 102)
	for i, word := range words {
		decoded = decoded[:0]
		for _, c := range word {
			decoded = append(decoded, p.DecodeByte(c))
		}
		costs[i] = make([]float64, len(langs))
		for j, l := range langs {
			costs[i][j] = l.bits(decoded)
		}
	}
	best := math.Inf(1)
	for j := range langs {
		sum := -bonuses[j]
		for i := range words {
			sum += min(costs[i][j], slices.Min(costs[i])+otherLanguage)
		}
		if !strings.Contains(p.languages, langs[j].name) {
			sum += unusualPage
		}
		best = min(best, sum)
	}
	return best + p.rare
}

// wide are the encodings with more than one byte for a character, each with its frequent characters.
var wide = sync.OnceValue(func() []wideEncoding {
	lines := strings.Split(frequentTable, "\n")
	set := func(i int) map[rune]bool {
		chars := map[rune]bool{}
		for _, r := range strings.Fields(lines[i])[1] {
			chars[r] = true
		}
		return chars
	}
	return []wideEncoding{
		{simplifiedchinese.GB18030, set(0), false}, {traditionalchinese.Big5, set(1), false}, {korean.EUCKR, set(3), false},
		{japanese.ShiftJIS, set(2), true}, {japanese.EUCJP, set(2), true},
	}
})

type wideEncoding struct {
	encoding.Encoding
	frequent map[rune]bool
	kana     bool
}

const (
	leastWide = 4
	// leastFrequent is the share of frequent characters in a text.
	leastFrequent = 0.45
	// frequentLead is how far the share must be ahead of any other encoding's.
	frequentLead = 0.2
)

// multiByte returns the encoding of East Asian text, nil if none is clear.
func multiByte(data []byte) encoding.Encoding {
	var best encoding.Encoding
	first, second := 0.0, 0.0
	for _, e := range wide() {
		share := e.share(data, e.Encoding)
		if share > first {
			best, first, second = e.Encoding, share, first
		} else {
			second = max(second, share)
		}
	}
	if first >= leastFrequent && first-second >= frequentLead {
		return best
	}
	return nil
}

func (e wideEncoding) share(data []byte, as encoding.Encoding) float64 {
	if len(data) > sample { // not in the middle of a character
		data = data[:bytes.LastIndexByte(data[:sample], '\n')+1]
	}
	text, err := as.NewDecoder().Bytes(data)
	if err != nil {
		return 0
	}
	total, frequent := 0, 0
	for _, r := range string(text) {
		switch {
		case r < 0x80, r >= 0x3000 && r < 0x3040, r >= 0xff00 && r < 0xff60:
			continue
		case r == unicode.ReplacementChar || r >= 0xe000 && r < 0xf900:
			return 0
		case e.frequent[r], e.kana && r >= 0x3040 && r < 0x3100:
			frequent++
		}
		total++
	}
	if total < leastWide {
		return 0
	}
	return float64(frequent) / float64(total)
}
