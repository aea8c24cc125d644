package number

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Set holds the values of the numbers, dates and times of texts. It has true for those that a text states: its sentence
// denies nothing.
type Set map[string]bool

// months have the numbers of months by the beginnings of their names.
var months = valuesByWord(`1 jan январ 2 feb феврал 3 mar март 4 apr апрел 5 may май мая мае 6 jun июн 7 jul июл
8 aug август 9 sep сентябр 10 oct октябр 11 nov ноябр 12 dec декабр`)

var (
	// namedDate matches, in lower case, the name of a month with a day or a year.
	namedDate = func() *regexp.Regexp {
		names := strings.Join(slices.Sorted(maps.Keys(months)), "|")
		return regexp.MustCompile(`\b\d{1,2}(?:st|nd|rd|th)?(?:\s+of)?\s+(` + names + `)|(` + names + `)\pL*\.?\s+\d{1,4}`)
	}()
	// item matches the number of an item of a list.
	item = regexp.MustCompile(`(?m)^[ \t>*-]*\d{1,3}[.)][ \t]`)
	// referring and part match what is around a word that counts something mentioned before, that belongs to another
	// word, or that counts the list after it.
	referring = regexp.MustCompile(`(?i)(?:^|\PL)(?:the|these|those|all|both|any|other|first|last|next|эт[иа]х?|все[хм]?|` +
		`оба|обе|die|diese|alle|beiden?)\s+$`)
	part = regexp.MustCompile(`^(?:-\pL| and a half|[^\n]*:[ \t*_]*(?:\n|$))`)

	sentenceEnd = regexp.MustCompile(`[.!?…。]+["»”)]*(?:\s+|$)|\n+`)
	// denial matches words that deny the number after them.
	denial = regexp.MustCompile(`(?i)(?:\bnot|n['’]t|\bnever|\b(?:is|are|was|were|has|have|had) no|(?:^|\PL)не|` +
		`\bnicht|\bkeine?n?)(?:\s+have)?[\s*_~]+$`)
	denies = regexp.MustCompile(`(?i)\b(?:no|not|cannot|never|none|without|nor|nicht|keine?n?)\b|n['’]t\b|` +
		`(?:^|\PL)(?:не|нет|ни|без)(?:\PL|$)`)
)

func monthValue(month int) string { return "month " + strconv.Itoa(month) }

// Add adds the numbers of a text. It may state them, or only mention them.
func (s Set) Add(text string, states bool) {
	for _, n := range read(Fold(text)) {
		values := slices.Concat(n.Values, n.Related)
		for _, part := range n.Parts {
			values = append(values, plain(part))
		}
		for _, value := range values {
			s[value] = s[value] || states && !n.denied
		}
	}
}

// Has reports whether the texts have a number, in any form, and whether one of them states it.
func (s Set) Has(n Number) (present, stated bool) {
	has := func(value string) bool {
		states, ok := s[value]
		stated = stated || states
		return ok
	}
	for _, value := range n.Values {
		present = has(value) || present
	}
	allParts := n.Parts != nil
	for _, part := range n.Parts {
		allParts = has(plain(part)) && allParts
	}
	return present || allParts, stated
}

// Claims returns the numbers and months that a text states.
func Claims(text string) []Number {
	text = item.ReplaceAllString(Fold(text), " ")
	return slices.DeleteFunc(read(text), func(n Number) bool {
		return n.Words && (n.Vague || n.Guess || referring.MatchString(text[max(0, n.Start-near):n.Start]) ||
			part.MatchString(text[n.End:]))
	})
}

// wholeDate is namedDate with the rest of the month's name.
var wholeDate = regexp.MustCompile(`(?:` + namedDate.String() + `)\pL*`)

// inCode matches the beginning of a word that makes its figures parts of a name, such as "AB12".
var inCode = regexp.MustCompile(`\pL\d\S*$|\pL$`)

// Mask returns a text in lower case and single spaces, with a sign in the place of each figure and date.
func Mask(text string) string {
	text = wholeDate.ReplaceAllString(lower(Fold(text)), "#")
	for _, n := range slices.Backward(Find(text)) {
		if !n.Words && !inCode.MatchString(text[max(0, n.Start-maxForm):n.Start]) {
			text = text[:n.Start] + "#" + text[n.End:]
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// read returns the numbers of a text, and the months of its dates, with what their sentences say of them.
func read(text string) []Number {
	list, low := Find(text), lower(text)
	for _, loc := range namedDate.FindAllStringSubmatchIndex(low, -1) {
		name := low[max(loc[2], loc[4]):max(loc[3], loc[5])]
		list = append(list, Number{Start: loc[0], End: loc[1], Text: text[loc[0]:loc[1]],
			Values: []string{monthValue(int(months[name]))}})
	}
	slices.SortStableFunc(list, func(a, b Number) int { return cmp.Compare(a.Start, b.Start) })
	for start, rest := 0, list; len(rest) > 0; {
		end := len(text)
		if stop := sentenceEnd.FindStringIndex(text[start:]); stop != nil {
			end = start + stop[1]
		}
		count, denied := 0, rest[0].Start < end && denies.MatchString(text[start:end])
		for ; count < len(rest) && rest[count].Start < end; count++ {
			rest[count].denied = denied
		}
		if count == 1 {
			n := &rest[0]
			if loc := denial.FindStringIndex(text[start:n.Start]); loc != nil {
				n.Denial = strings.TrimSpace(text[start+loc[0] : n.End])
			}
		}
		start, rest = end, rest[count:]
	}
	return list
}
