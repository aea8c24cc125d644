package number

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Set holds the numbers, dates and times of texts.
type Set map[string]bool

const months = `jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|январ|феврал|март|апрел|ма[йяе]|июн|июл|август|сентябр|` +
	`октябр|ноябр|декабр`

var (
	// namedDate matches, in lower case, the name of a month with a day or a year.
	namedDate = regexp.MustCompile(`\b\d{1,2}(?:st|nd|rd|th)?(?:\s+of)?\s+(` + months + `)|(` + months +
		`)\pL*\.?\s+\d{1,4}`)
	// item matches the number of an item of a list.
	item = regexp.MustCompile(`(?m)^[ \t>*-]*\d{1,3}[.)][ \t]`)
	// referring and part match what is around a word that counts something mentioned before, that belongs to another
	// word, or that counts the list after it.
	referring = regexp.MustCompile(`(?i)(?:^|\PL)(?:the|these|those|all|both|any|other|first|last|next|эт[иа]х?|все[хм]?|` +
		`оба|обе|die|diese|alle|beiden?)\s+$`)
	part = regexp.MustCompile(`^(?:-\pL| and a half|[^\n]*:[ \t*_]*(?:\n|$))`)
)

// monthStarts begin the names of the months, in their order.
var monthStarts = [][2]string{{"jan", "янв"}, {"feb", "фев"}, {"mar", "мар"}, {"apr", "апр"}, {"may", "ма"},
	{"jun", "июн"}, {"jul", "июл"}, {"aug", "авг"}, {"sep", "сен"}, {"oct", "окт"}, {"nov", "ноя"}, {"dec", "дек"}}

// monthOf returns the value of the month that a word names.
func monthOf(word string) string {
	return monthValue(1 + slices.IndexFunc(monthStarts, func(starts [2]string) bool {
		return strings.HasPrefix(word, starts[0]) || strings.HasPrefix(word, starts[1])
	}))
}

func monthValue(month int) string { return "month " + strconv.Itoa(month) }

// Add adds the numbers of a text.
func (s Set) Add(text string) {
	text = Fold(text)
	for _, n := range Find(text) {
		for _, v := range slices.Concat(n.Values, n.Related) {
			s[v] = true
		}
		for _, p := range n.Parts {
			s[p.String()] = true
		}
	}
	for _, m := range namedDate.FindAllStringSubmatch(lower(text), -1) {
		s[monthOf(m[1]+m[2])] = true
	}
}

// Has reports whether the texts have a number, in any form.
func (s Set) Has(n Number) bool {
	return slices.ContainsFunc(n.Values, func(value string) bool { return s[value] }) ||
		n.Parts != nil && !slices.ContainsFunc(n.Parts, func(part Decimal) bool { return !s[part.String()] })
}

// Missing returns the numbers that a text states and the set does not have, as Fold writes them.
func (s Set) Missing(text string) (list []string) {
	text = item.ReplaceAllString(Fold(text), " ")
	for _, n := range Find(text) {
		if n.states(text) && !s.Has(n) {
			list = append(list, text[n.Start:n.End])
		}
	}
	low := lower(text)
	for _, at := range namedDate.FindAllStringIndex(low, -1) {
		if m := namedDate.FindStringSubmatch(low[at[0]:at[1]]); !s[monthOf(m[1]+m[2])] {
			list = append(list, text[at[0]:at[1]])
		}
	}
	return list
}

// states reports whether a number says something of its own.
func (n Number) states(text string) bool {
	return !n.Words || !n.Vague && !n.Guess && !referring.MatchString(text[max(0, n.Start-near):n.Start]) &&
		!part.MatchString(text[n.End:])
}
