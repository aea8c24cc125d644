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
func figures(content string) (list []figure) {
	for _, n := range number.Find(content) {
		prefix := content[max(n.Start-near, 0):n.Start]
		suffix := content[n.End:min(n.End+near, len(content))]
		if joined(prefix) || joinedBehind(suffix) || n.Vague || strings.Contains(n.Text, "/") {
			continue
		}
		f := figure{word: n.Words}
		f.numbered, f.money = unitBefore(prefix)
		suffix = strings.TrimPrefix(suffix, " ")
		sign, _ := utf8.DecodeRuneInString(strings.TrimLeft(suffix, " ."))
		word := suffix[:len(suffix)-len(strings.TrimLeftFunc(suffix, unicode.IsLetter))]
		f.money = f.money || unicode.Is(unicode.Sc, sign) || word != "" && currency.MatchString(word)
		f.cents = word != "" && cent.MatchString(word)
		f.hundred = f.money || len(n.Text) > 3 && strings.LastIndexAny(n.Text, ".,") == len(n.Text)-3
		if n.Decimals == nil {
			if m := halved.FindStringSubmatch(n.Text); m != nil {
				n.Decimals = []number.Decimal{number.New(false, m[1], "", 0)}
			}
		}
		for _, f.value = range n.Decimals {
			list = append(list, f)
		}
	}
	return list
}

// alone matches a text that has one number, and at most one word after it.
var singleNumber = regexp.MustCompile(`^[-−–+ ]*\d[^\pL]*\pL*$`)

// sole returns the figure of a text that is a number of JSON, or that has nothing else.
func sole(content string, isNumber bool) (value figure, ok bool) {
	if isNumber {
		value.value, ok = number.Parse(content)
		return value, ok
	}
	list := figures(content)
	if len(list) == 0 || !singleNumber.MatchString(content) || len(number.Find(content)) > 1 {
		return value, false
	}
	return list[len(list)-1], true
}

// unitBefore reports whether the last word or sign before a number makes it the number of a thing or an amount of money.
func unitBefore(prefix string) (numbered, money bool) {
	prefix = strings.TrimRightFunc(prefix, unicode.IsSpace)
	if last, _ := utf8.DecodeLastRuneInString(prefix); !unicode.IsLetter(last) && last != '.' {
		return last == '#' || last == '№', unicode.Is(unicode.Sc, last)
	}
	word := strings.TrimRight(prefix, ".")
	word = word[len(strings.TrimRightFunc(word, unicode.IsLetter)):]
	return ordinal.MatchString(word), len(word) == 3 && isCode(word) && strings.HasSuffix(prefix, word)
}

// joined reports whether the text before a number makes it part of a code, an address or a date.
func joined(prefix string) bool {
	last, size := utf8.DecodeLastRuneInString(prefix)
	previous, _ := utf8.DecodeLastRuneInString(prefix[:len(prefix)-size])
	return unicode.IsLetter(last) || last == '+' || last == '/' || last == ':' && unicode.IsDigit(previous) ||
		strings.ContainsRune("-_.@", last) && (unicode.IsLetter(previous) || unicode.IsDigit(previous))
}

func joinedBehind(suffix string) bool {
	next, size := utf8.DecodeRuneInString(suffix)
	second, _ := utf8.DecodeRuneInString(suffix[size:])
	return strings.ContainsRune("@_/:", next) || next == '-' && (unicode.IsLetter(second) || unicode.IsDigit(second))
}

// amounts returns the possible values of the numbers of a foreign text, without their signs. A date or a code means its
// digits and each of its parts.
func amounts(content string) (list []number.Decimal) {
	for _, n := range number.Find(content) {
		if n.Words {
			continue
		}
		for _, d := range n.Decimals {
			list = append(list, d.Abs())
		}
		if n.Decimals == nil {
			n.Parts = append(runs.FindAllString(n.Text, -1), digits(n.Text))
		}
		for _, part := range n.Parts {
			list = append(list, number.New(false, part, "", 0))
		}
	}
	return list
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
	for i, factor := range []float64{1.0 / 2, 1.0 / 3, 1.0 / 4, 2} {
		if m != nil && m[i+1] != "" {
			return factor
		}
	}
	return 0
}

// shared returns the amount whose part or multiple is value. A ratio of 0 changes nothing.
func shared(ratio float64, value figure) figure {
	if ratio > 0 {
		amount, _ := strconv.ParseFloat(value.value.String(), 64) // a Decimal has no other form
		value.value = number.FromFloat(math.Round(amount/ratio*100) / 100)
	}
	return value
}

func digits(n string) string { return strings.Join(runs.FindAllString(n, -1), "") }
