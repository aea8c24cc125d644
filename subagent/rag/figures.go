package rag

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// figures are the numbers and dates of texts, in a form in which different spellings are equal.
type figures map[string]bool // numbers without leading zeros, "month 5" and "stated 14"

var (
	// numeral is a number: with its thousands apart, or with points and commas.
	numeral = regexp.MustCompile(`\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)*`)
	// numericDate is a date of numbers or a time; its parts count by themselves.
	numericDate = regexp.MustCompile(
		`\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b|\b\d{1,2}:\d{2}(?::\d{2})?\b`,
	)
	// namedDate is a date with the name of a month, and a day or a year.
	namedDate = regexp.MustCompile(`(?i)\b\d{1,2}(?:st|nd|rd|th)?(?:\s+of)?\s+(` + monthWords + `)|(` + monthWords +
		`)\pL*\.?\s+\d{1,4}`)
	// enumerator is the number of an item of a list, which says nothing.
	enumerator = regexp.MustCompile(`(?m)^[ \t>*-]*\d{1,3}[.)][ \t]`)
	digits     = regexp.MustCompile(`\d+`)
)

const monthWords = `jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|январ|феврал|март|апрел|ма[йяе]|июн|июл|август|сентябр|октябр|ноябр|декабр`

// monthStarts begin the names of the months, in their order.
var monthStarts = [][2]string{{"jan", "янв"}, {"feb", "фев"}, {"mar", "мар"}, {"apr", "апр"}, {"may", "ма"},
	{"jun", "июн"}, {"jul", "июл"}, {"aug", "авг"}, {"sep", "сен"}, {"oct", "окт"}, {"nov", "ноя"}, {"dec", "дек"}}

// month is the figure of the month that a word begins to name.
func month(word string) string {
	word = strings.ToLower(word)
	return monthFigure(1 + slices.IndexFunc(monthStarts, func(starts [2]string) bool {
		return strings.HasPrefix(word, starts[0]) || strings.HasPrefix(word, starts[1])
	}))
}

func monthFigure(n int) string { return "month " + strconv.Itoa(n) }

// read adds the numbers and dates of a text.
func (f figures) read(text string) {
	text = norm.NFKC.String(text)
	for _, n := range numbers(text) {
		for _, v := range n.values() {
			f[v] = true
		}
	}
	for _, date := range numericDate.FindAllString(text, -1) {
		for i, part := range digits.FindAllString(date, -1) {
			f[trimZeros(part)] = true
			if n, _ := strconv.Atoi(part); n <= 12 && i < 2 && !strings.Contains(date, ":") {
				f[monthFigure(n)] = true
			}
		}
	}
	for _, m := range namedDate.FindAllStringSubmatch(text, -1) {
		f[month(m[1]+m[2])] = true
	}
}

// unverified are the numbers and dates of an answer that are not among the
// figures, as they are written.
func (f figures) unverified(text string) []string {
	text = norm.NFKC.String(enumerator.ReplaceAllString(markers.ReplaceAllStringFunc(text, func(m string) string {
		if year.MatchString(m) {
			return m
		}
		return ""
	}), " "))
	var missing []string
	text = numericDate.ReplaceAllStringFunc(text, func(date string) string {
		for _, part := range digits.FindAllString(date, -1) {
			if !f[trimZeros(part)] {
				missing = append(missing, date)
				break
			}
		}
		return " "
	})
	for _, m := range namedDate.FindAllStringSubmatch(text, -1) {
		if !f[month(m[1]+m[2])] {
			missing = append(missing, m[0])
		}
	}
	for _, n := range numbers(text) {
		if n.claims(text) && !slices.ContainsFunc(n.values(), func(v string) bool { return f[v] }) {
			missing = append(missing, text[n.start:n.end])
		}
	}
	return append(missing, f.deniedWrongly(text)...)
}

// values are what a numeral may stand for: 1,500 is 1500 in one country and 1.5 in
// another.
func values(numeral string) []string {
	plain := strings.NewReplacer(" ", "", "'", "", "’", "").Replace(numeral)
	separators := strings.Count(plain, ".") + strings.Count(plain, ",")
	if separators == 0 {
		list := []string{trimZeros(plain)}
		if parts := strings.Fields(numeral); len(parts) > 1 { // what looks like thousands may be numbers side by side
			for _, p := range parts {
				list = append(list, trimZeros(p))
			}
		}
		return list
	}
	var list []string
	last := strings.LastIndexAny(plain, ".,")
	whole := strings.NewReplacer(".", "", ",", "").Replace(plain[:last])
	fraction := plain[last+1:]
	if separators == 1 || plain[last] != plain[strings.IndexAny(plain, ".,")] {
		list = append(list, strings.TrimSuffix(trimZeros(whole)+"."+strings.TrimRight(fraction, "0"), "."))
	}
	if len(fraction) == 3 {
		list = append(list, trimZeros(whole+fraction))
	}
	return append(list, plain)
}

func trimZeros(digits string) string {
	if short := strings.TrimLeft(digits, "0"); short != "" {
		return short
	}
	return "0"
}
