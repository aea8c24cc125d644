package rag

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// number is one that a text has: in figures, in words, or in both as "2.5 million".
type number struct {
	start, end  int
	figures     []string // the values of its figures
	whole, part float64  // its thousands and more, and what is below them
	next        float64  // a word of less belongs to it
	vague       bool     // one, "a hundred", "thousands"
}

// numberWords are the words of numbers in English, Russian and German. Zero is left out: it says "no" more often than
// it counts.
var numberWords = numbersByWord(`
1 one один одна одну одного одной ein eine 2 two два две двух двум двумя zwei 3 three три трех трем тремя drei 4
four четыре четырех четырем четырьмя vier 5 five пять пяти пятью fünf 6 six шесть шести шестью sechs 7 seven семь
семи sieben 8 eight восемь восьми acht 9 nine девять девяти девятью neun 10 ten десять десяти десятью zehn 11 eleven
одиннадцать одиннадцати 12 twelve двенадцать двенадцати zwölf 13 thirteen тринадцать тринадцати dreizehn 14 fourteen
четырнадцать четырнадцати vierzehn 15 fifteen пятнадцать пятнадцати fünfzehn 16 sixteen шестнадцать шестнадцати
sechzehn 17 seventeen семнадцать семнадцати siebzehn 18 eighteen восемнадцать восемнадцати achtzehn 19 nineteen
девятнадцать девятнадцати neunzehn 20 twenty двадцать двадцати zwanzig 30 thirty тридцать тридцати dreißig 40 forty
сорок сорока vierzig 50 fifty пятьдесят пятидесяти fünfzig 60 sixty шестьдесят шестидесяти sechzig 70 seventy
семьдесят семидесяти siebzig 80 eighty восемьдесят восьмидесяти achtzig 90 ninety девяносто neunzig 100 hundred сто
ста hundert 200 двести двухсот 300 триста трехсот 400 четыреста четырехсот 500 пятьсот пятисот 600 шестьсот шестисот
700 семьсот семисот 800 восемьсот восьмисот 900 девятьсот девятисот 1000 thousand тысяча тысячи тысяч тысячу тыс
tausend 1000000 million миллион миллиона миллионов млн millionen 1000000000 billion миллиард миллиарда миллиардов
млрд milliarden`)

func numbersByWord(table string) map[string]float64 {
	words, value := map[string]float64{}, 0.0
	for w := range strings.FieldsSeq(table) {
		if n, err := strconv.ParseFloat(w, 64); err == nil {
			value = n
			continue
		}
		words[w] = value
	}
	return words
}

var (
	numberToken = regexp.MustCompile(numeral.String() + `|\pL[\pL\pM]*`)
	inNumber    = regexp.MustCompile(`^(?:[\s-]+|\s+(?:and|und)\s+)$`)
)

// numbers are those of a text, which is normalised.
func numbers(text string) (list []number) {
	for _, at := range numberToken.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		value, known := numberWords[strings.ReplaceAll(strings.ToLower(word), "ё", "е")]
		last := len(list) - 1
		switch {
		case known && last >= 0 && inNumber.MatchString(text[list[last].end:at[0]]) && list[last].add(value):
			list[last].end = at[1]
		case known:
			n := number{start: at[0], end: at[1], next: math.Inf(1)}
			n.add(value)
			n.vague = value == 1 || value == 100 || value >= 1000
			list = append(list, n)
		case word[0] <= '9':
			n := number{start: at[0], end: at[1], figures: values(word)}
			n.part, _ = strconv.ParseFloat(n.figures[0], 64)
			list = append(list, n)
		}
	}
	return list
}

// add takes in the word behind a number if it belongs to it.
func (n *number) add(value float64) bool {
	switch {
	case value < n.next:
		n.part += value
	case value == 100 && n.part > 0 && n.part < 100:
		n.part *= value
	case value >= 1000 && n.part > 0 && n.part < value:
		n.whole, n.part = n.whole+n.part*value, 0
	default:
		return false
	}
	for n.vague, n.next = false, 1; math.Mod(value, n.next*10) == 0; n.next *= 10 {
	}
	return true
}

// values are those that it may have.
func (n number) values() []string {
	return append(n.figures, strconv.FormatFloat(math.Round(1e6*(n.whole+n.part))/1e6, 'f', -1, 64))
}

var (
	// Words that say that a number counts what was told of before; and, behind it, that it is part of another word or
	// counts what the list shows that follows.
	ofOthers = regexp.MustCompile(`(?i)(?:^|\PL)(?:the|these|those|all|both|any|other|first|last|next|эт[иа]х?|все[хм]?|` +
		`оба|обе|die|diese|alle|beiden?)\s+$`)
	notAlone = regexp.MustCompile(`^(?:-\pL| and a half|[^\n]*:[ \t*_]*(?:\n|$))`)

	denial = regexp.MustCompile(`(?i)(?:\bnot|n['’]t|\bnever|\b(?:is|are|was|were|has|have|had) no|(?:^|\PL)не|` +
		`\bnicht|\bkeine?n?)(?:\s+have)?[\s*_~]+$`)
	denies = regexp.MustCompile(`(?i)\b(?:no|not|cannot|never|none|without|nor|nicht|keine?n?)\b|n['’]t\b|` +
		`(?:^|\PL)(?:не|нет|ни|без)(?:\PL|$)`)
)

// maxBefore is how far before a number words say what it counts, in bytes.
const maxBefore = 24

// claims says whether a number of a text says anything that a passage must say, too.
func (n number) claims(text string) bool {
	before, behind := text[max(0, n.start-maxBefore):n.start], text[n.end:]
	return n.figures != nil || !n.vague && !ofOthers.MatchString(before) && !notAlone.MatchString(behind)
}

// readStated adds the numbers of the sentences of a passage that deny nothing.
func (f figures) readStated(text string) {
	for _, sentence := range sentenceRest.Split(norm.NFKC.String(text), -1) {
		if denies.MatchString(sentence) {
			continue
		}
		for _, n := range numbers(sentence) {
			for _, v := range n.values() {
				f["stated "+v] = true
			}
		}
	}
}

// deniedWrongly are the numbers that a text denies while a passage states them, where the sentence has no other: the
// denial of one may contrast with that.
func (f figures) deniedWrongly(text string) (list []string) {
	for _, sentence := range sentenceRest.Split(text, -1) {
		said := numbers(sentence)
		if len(said) != 1 || !slices.ContainsFunc(said[0].values(), func(v string) bool { return f["stated "+v] }) {
			continue
		}
		if at := denial.FindStringIndex(sentence[:said[0].start]); at != nil {
			list = append(list, strings.TrimSpace(sentence[at[0]:said[0].end]))
		}
	}
	return list
}
