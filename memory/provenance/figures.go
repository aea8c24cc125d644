package provenance

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/number"
)

// figure is a number of a text that is not part of a date, a code or an address.
type figure struct {
	value    number.Decimal
	money    bool // next to a currency
	hundred  bool // it has hundredths: two digits of a fraction, or a currency
	cents    bool // it counts hundredths of a currency
	numbered bool // it is the number of a thing, such as an order
	word     bool // it was written as a word
}

var (
	// halved matches a time with its half of the day.
	halved   = regexp.MustCompile(`^(\d{1,2}) ?\pL`)
	currency = regexp.MustCompile(`(?i)^(?:` + currencies + `)$`)
	// priced matches an amount of money in a text.
	priced  = regexp.MustCompile(`(?i)\p{Sc}\s?\d[\d.,]*|\d[\d.,]*\s?(?:\p{Sc}|(?:` + currencies + `)(?:[^\pL]|$))`)
	cent    = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:euro)?(?:cents?|ct|pence|pennies|kop\pL*|коп\pL*|цент\pL*|rappen|céntimos?|分|minor)(?:[^\pL]|$)`)
	ordinal = regexp.MustCompile(`(?i)^(?:no|nr|number|order|invoice|case|ticket|room|номер|заказ\pL*|сч[её]т\pL*|` +
		`rechnung|bestellung|auftrag|commande|pedido|factura)$`)
)

const currencies = `eur|euros?|usd|dollars?|gbp|pounds?|chf|franken|rub|rur|руб\pL*|р|евро|доллар\pL*|yen|yuan|jpy|cny|inr|` +
	`pln|sek|nok|dkk|czk|bucks|元|円|dólares|pesos?|reais`

// codes are the other names of currencies.
var codes = map[string]*regexp.Regexp{"EUR": regexp.MustCompile(`(?i)€|\beuros?\b|евро`), "GBP": regexp.MustCompile(`(?i)£|pound`),
	"USD": regexp.MustCompile(`(?i)\$|dollar|доллар`), "RUB": regexp.MustCompile(`(?i)₽|руб`),
	"JPY": regexp.MustCompile(`(?i)円|\byen`), "CNY": regexp.MustCompile(`(?i)元|yuan`)}

// near is the number of bytes around a number that may name its unit.
const near = 40

// figures returns the figures of a visible text, in digits and in words.
func figures(content string) (all []figure) {
	for _, n := range number.Find(content) {
		before := content[max(n.Start-near, 0):n.Start]
		after := content[n.End:min(n.End+near, len(content))]
		if joined(before) || joinedBehind(after) || n.Vague || strings.Contains(n.Text, "/") {
			continue
		}
		f := figure{word: n.Words}
		f.numbered, f.money = unitBefore(before)
		after = strings.TrimPrefix(after, " ")
		sign, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, " ."))
		word := after[:len(after)-len(strings.TrimLeftFunc(after, unicode.IsLetter))]
		f.money = f.money || unicode.Is(unicode.Sc, sign) || word != "" && currency.MatchString(word)
		f.cents = word != "" && cent.MatchString(word)
		f.hundred = f.money || len(n.Text) > 3 && strings.LastIndexAny(n.Text, ".,") == len(n.Text)-3
		if n.Decimals == nil {
			if m := halved.FindStringSubmatch(n.Text); m != nil {
				n.Decimals = []number.Decimal{number.New(false, m[1], "", 0)}
			}
		}
		for _, f.value = range n.Decimals {
			all = append(all, f)
		}
	}
	return all
}

// alone matches a text that has one number, and at most one word after it.
var alone = regexp.MustCompile(`^[-−–+ ]*\d[^\pL]*\pL*$`)

// sole returns the figure of a text that is a number of JSON, or that has nothing else.
func sole(shown string, isNumber bool) (value figure, ok bool) {
	if isNumber {
		value.value, ok = number.Parse(shown)
		return value, ok
	}
	all := figures(shown)
	if len(all) == 0 || !alone.MatchString(shown) || len(number.Find(shown)) > 1 {
		return value, false
	}
	return all[len(all)-1], true
}

// unitBefore reports whether the last word or sign before a number makes it the number of a thing or an amount of money.
func unitBefore(before string) (numbered, money bool) {
	before = strings.TrimRightFunc(before, unicode.IsSpace)
	if last, _ := utf8.DecodeLastRuneInString(before); !unicode.IsLetter(last) && last != '.' {
		return last == '#' || last == '№', unicode.Is(unicode.Sc, last)
	}
	word := strings.TrimRight(before, ".")
	word = word[len(strings.TrimRightFunc(word, unicode.IsLetter)):]
	return ordinal.MatchString(word), len(word) == 3 && isCode(word) && strings.HasSuffix(before, word)
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

// amounts returns the possible values of the numbers of a foreign text, without their signs. A date or a code means its
// digits and each of its parts.
func amounts(content string) (all []number.Decimal) {
	for _, n := range number.Find(content) {
		if n.Words {
			continue
		}
		for _, d := range n.Decimals {
			all = append(all, d.Abs())
		}
		if n.Decimals == nil {
			n.Parts = append(runs.FindAllString(n.Text, -1), digits(n.Text))
		}
		for _, part := range n.Parts {
			all = append(all, number.New(false, part, "", 0))
		}
	}
	return all
}

var runs = regexp.MustCompile(`\d+`)

// sum reports whether a number is an amount of money.
func (f figure) sum() bool { return f.money || f.hundred || f.cents }

// supplies reports whether a figure of the user is the value of an argument. They may differ by a factor of 100 only
// between an amount of a currency, or with a fraction, and its cents.
func (f figure) supplies(value figure, a argument) bool {
	switch {
	case a.money && f.numbered:
		return false
	case f.value == value.value:
		return true
	case f.value.Shift(2) == value.value:
		return !f.cents && (a.cents && f.hundred || f.hundred && !f.money && !a.major)
	case f.value == value.value.Shift(2):
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
		whole, _ := strconv.ParseFloat(value.value.String(), 64) // a Decimal has no other form
		value.value = number.Of(math.Round(whole/ratio*100) / 100)
	}
	return value
}

func digits(n string) string { return strings.Join(runs.FindAllString(n, -1), "") }
