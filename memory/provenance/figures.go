package provenance

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// figure is a number of a text that is not part of a date, a code or an address.
type figure struct {
	value    string // in the form of decimal
	negative bool
	money    bool // next to a currency
	hundred  bool // it has hundredths: two digits of a fraction, or a currency
	cents    bool // it counts hundredths of a currency
	numbered bool // it is the number of a thing, such as an order
	word     bool // it was written as a word
}

var (
	// numeric matches digits with the separators of amounts, dates and accounts, and a word that may multiply them.
	numeric = regexp.MustCompile(`\d+(?:[.,'’-]\d+|[\s\x{a0}\x{202f}]\d{3}\b)*(?:\s?\pL+)?`)
	// amount matches an amount: its whole part, its fraction and the word after it.
	amount    = regexp.MustCompile(`^(\d{1,3}(?:[\s.,'’\x{a0}\x{202f}]\d{3})+|\d+)(?:[.,](\d+))?(?:\s?(\pL+))?$`)
	isDecimal = regexp.MustCompile(`^\d+(?:\.\d+)?$`)
	currency  = regexp.MustCompile(`(?i)^(?:` + currencies + `)$`)
	// priced matches an amount of money in a text.
	priced  = regexp.MustCompile(`(?i)\p{Sc}\s?\d[\d.,]*|\d[\d.,]*\s?(?:\p{Sc}|(?:` + currencies + `)(?:[^\pL]|$))`)
	cent    = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:euro)?(?:cents?|ct|pence|pennies|kop\pL*|коп\pL*|цент\pL*|rappen|céntimos?|分|minor)(?:[^\pL]|$)`)
	money   = regexp.MustCompile(`[\p{Sc}]\s?$|(?:^|[^\pL])[A-Z]{3}\s?$`)
	ordinal = regexp.MustCompile(`(?i)(?:[#№]|(?:^|[^\pL])(?:no|nr|number|order|invoice|case|ticket|room|номер|заказ\pL*|сч[её]т\pL*|` +
		`rechnung|bestellung|auftrag|commande|pedido|factura)\.?)\s*$`)
	minus = regexp.MustCompile(`(?i)(?:^|[\s(\[:=])[-−–](?:\s?\p{Sc}\s?)?$|(?:^|[^\pL])(?:minus|минус|menos|moins|negative)\s+$`)
)

const currencies = `eur|euros?|usd|dollars?|gbp|pounds?|chf|franken|rub|rur|руб\pL*|р|евро|доллар\pL*|yen|yuan|jpy|cny|inr|` +
	`pln|sek|nok|dkk|czk|bucks|元|円|dólares|pesos?|reais`

// codes are the other names of currencies.
var codes = map[string]*regexp.Regexp{"EUR": regexp.MustCompile(`(?i)€|\beuros?\b|евро`), "GBP": regexp.MustCompile(`(?i)£|pound`),
	"USD": regexp.MustCompile(`(?i)\$|dollar|доллар`), "RUB": regexp.MustCompile(`(?i)₽|руб`),
	"JPY": regexp.MustCompile(`(?i)円|\byen`), "CNY": regexp.MustCompile(`(?i)元|yuan`)}

// multiples are words for powers of ten.
var multiples = map[string]int{"k": 3, "thousand": 3, "tausend": 3, "тыс": 3, "тысяч": 3, "тысячи": 3, "тысячу": 3,
	"mln": 6, "million": 6, "millions": 6, "millionen": 6, "млн": 6, "hundred": 2, "hundert": 2}

// numerals are words for numbers.
var numerals = func() map[string]int {
	all := map[string]int{}
	for i, words := range []string{"", "", "two zwei два две двух deux dos", "three drei три трёх trois tres",
		"four vier четыре четырёх четверых quatre cuatro", "five fünf пять пяти cinq cinco", "six sechs шесть seis",
		"seven sieben семь sept siete", "eight acht восемь huit ocho", "nine neun девять neuf nueve",
		"ten zehn десять dix diez", "eleven elf одиннадцать", "twelve zwölf двенадцать dozen dutzend дюжина",
		"thirteen", "fourteen", "fifteen fünfzehn пятнадцать", "sixteen", "seventeen", "eighteen", "nineteen"} {
		for word := range strings.FieldsSeq(words) {
			all[word] = i
		}
	}
	for i, words := range []string{"twenty zwanzig двадцать", "thirty dreißig тридцать", "forty vierzig сорок",
		"fifty fünfzig пятьдесят", "sixty шестьдесят", "seventy семьдесят", "eighty восемьдесят", "ninety девяносто"} {
		for word := range strings.FieldsSeq(words) {
			all[word] = 10 * (i + 2)
		}
	}
	return all
}()

// near is the number of bytes around a number that may name its unit.
const near = 40

// figures returns the figures of a visible text, in digits and in words.
func figures(content string) (all []figure) {
	for _, at := range numeric.FindAllStringIndex(content, -1) {
		before, n := content[max(at[0]-near, 0):at[0]], content[at[0]:at[1]]
		after := content[at[1]:min(at[1]+near, len(content))]
		parts := amount.FindStringSubmatch(n)
		if parts == nil || joined(before) || joinedBehind(after) {
			continue
		}
		f := figure{}
		if unit := unitBefore(before); unit != "" {
			f.negative, f.numbered, f.money = minus.MatchString(unit), ordinal.MatchString(unit), money.MatchString(unit)
		}
		behind := strings.TrimLeft(after, " .\u00a0")
		sign, _ := utf8.DecodeRuneInString(behind)
		f.money = f.money || unicode.Is(unicode.Sc, sign)
		if parts[3] != "" {
			f.money = f.money || currency.MatchString(parts[3]) ||
				multiples[strings.ToLower(parts[3])] > 0 && currency.MatchString(firstWord(behind))
			f.cents = cent.MatchString(parts[3])
		}
		f.hundred = f.money || len(parts[2]) == 2
		for _, a := range meanings(parts) {
			f.value = a
			all = append(all, f)
		}
	}
	return append(all, inWords(content)...)
}

// unitBefore returns the end of the text before a number that minus, ordinal or money may match: the last word or sign,
// with the character before it. It is empty for most numbers, because the patterns are slow.
func unitBefore(before string) string {
	trimmed := strings.TrimRightFunc(before, unicode.IsSpace)
	last, size := utf8.DecodeLastRuneInString(trimmed)
	start := len(trimmed) - size
	switch {
	case unicode.IsLetter(last) || last == '.':
		start = strings.LastIndexFunc(strings.TrimRight(trimmed, "."), func(r rune) bool { return !unicode.IsLetter(r) })
	case unicode.Is(unicode.Sc, last):
		start -= 3 * utf8.UTFMax // a minus and a space may be before it
	case strings.ContainsRune("-−–", last):
		start -= utf8.UTFMax
	case last != '#' && last != '№':
		return ""
	}
	return before[max(start, 0):]
}

// joined reports whether the text before a number makes it part of a code, an address or a date.
func joined(before string) bool {
	last, size := utf8.DecodeLastRuneInString(before)
	previous, _ := utf8.DecodeLastRuneInString(before[:len(before)-size])
	return unicode.IsLetter(last) || last == '+' || last == '/' || last == ':' && unicode.IsDigit(previous) ||
		strings.ContainsRune("-_.@", last) && (unicode.IsLetter(previous) || unicode.IsDigit(previous))
}

func joinedBehind(behind string) bool {
	next, size := utf8.DecodeRuneInString(behind)
	after, _ := utf8.DecodeRuneInString(behind[size:])
	return strings.ContainsRune("@_/:", next) || next == '-' && (unicode.IsLetter(after) || unicode.IsDigit(after))
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return strings.TrimRight(word, ".,;:!?")
}

// inWords returns the numbers written as words, such as five thousand.
func inWords(content string) (all []figure) {
	value, known := 0, false
	words := strings.FieldsFunc(strings.ToLower(content), func(r rune) bool { return !unicode.IsLetter(r) })
	for _, word := range append(words, "") {
		n, ok := numerals[word]
		power := multiples[word]
		switch {
		case ok:
			value, known = value+n, true
		case known && power > 0:
			for range power {
				value = min(value*10, 1e12)
			}
		case known:
			pays := currency.MatchString(word)
			all = append(all, figure{value: decimal(strconv.Itoa(value), 0), money: pays, hundred: pays,
				cents: cent.MatchString(word), word: true})
			value, known = 0, false
		}
	}
	return all
}

// meanings returns the possible values of an amount. One dot or comma may separate thousands or a fraction.
func meanings(parts []string) []string {
	power := multiples[strings.ToLower(parts[3])]
	all := []string{decimal(digits(parts[1])+"."+parts[2], power)}
	if whole, fraction, ok := strings.Cut(strings.ReplaceAll(parts[1], ",", "."), "."); ok &&
		isDecimal.MatchString(whole+"."+fraction) {
		all = append(all, decimal(whole+"."+fraction, power))
	}
	return all
}

// amounts returns the possible values of a number in a foreign text, in the form of decimal. A date or a code means its
// digits and each of its parts.
func amounts(n string) (all []string) {
	parts := amount.FindStringSubmatch(n)
	if parts == nil || strings.ContainsFunc(parts[1], unicode.IsSpace) {
		for _, part := range strings.FieldsFunc(n, func(r rune) bool { return r < '0' || r > '9' }) {
			all = append(all, decimal(part, 0))
		}
	}
	if parts == nil {
		return append(all, decimal(digits(n), 0))
	}
	return append(all, meanings(parts)...)
}

// decimal returns a number times a power of ten as its digits without zeros at either end and an exponent: "25e-1" for
// 2.50.
func decimal(n string, power int) string {
	whole, fraction, _ := strings.Cut(n, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(all, "0")
	if short == "" {
		return "0e0"
	}
	return fmt.Sprintf("%se%d", short, power-len(fraction)+len(all)-len(short))
}

// times returns a decimal times a power of ten.
func times(value string, power int) string {
	n, e, _ := strings.Cut(value, "e")
	of, _ := strconv.Atoi(e)
	return fmt.Sprintf("%se%d", n, of+power)
}

// numeral reads a JSON number.
func numeral(n string) figure {
	n = strings.ToLower(n)
	rest, negative := strings.CutPrefix(n, "-")
	mantissa, power, _ := strings.Cut(rest, "e")
	e, _ := strconv.Atoi(strings.TrimPrefix(power, "+"))
	return figure{value: decimal(mantissa, e), negative: negative}
}

// sum reports whether a number is an amount of money.
func (f figure) sum() bool { return f.money || f.hundred || f.cents }

// supplies reports whether a figure of the user is the value of an argument. They may differ by a factor of 100 only
// between an amount of a currency, or with a fraction, and its cents.
func (f figure) supplies(value figure, a argument) bool {
	switch {
	case f.negative != value.negative, a.money && f.numbered:
		return false
	case f.value == value.value:
		return true
	case times(f.value, 2) == value.value:
		return !f.cents && (a.cents && f.hundred || f.hundred && !f.money && !a.major)
	case f.value == times(value.value, 2):
		return f.cents && !a.cents
	}
	return false
}

// ratios are words for parts and multiples of a sum.
var ratios = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:(half|halb\pL*|hälfte|половин\pL*|moitié|mitad)|(thirds?|drittel|треть)|` +
	`(quarters?|viertel|четверть)|(double|twice|doppelt\pL*|вдвое|doble))(?:[^\pL]|$)`)

// ratio returns the part or multiple of a sum that a text asks for, such as 0.5 for half. It returns 0 for none.
func ratio(content string) float64 {
	m := ratios.FindStringSubmatch(content)
	for i, by := range []float64{1.0 / 2, 1.0 / 3, 1.0 / 4, 2} {
		if m != nil && m[i+1] != "" {
			return by
		}
	}
	return 0
}

// shared returns the amount whose part or multiple is value. A ratio of 0 changes nothing.
func shared(ratio float64, value figure) figure {
	if ratio > 0 {
		whole, _ := strconv.ParseFloat(value.value, 64) // decimal makes no other text
		value.value = decimal(strconv.FormatFloat(math.Round(whole/ratio*100)/100, 'f', -1, 64), 0)
	}
	return value
}

func digits(n string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, n)
}
