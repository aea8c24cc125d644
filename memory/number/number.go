package number

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Number is a number, a date or a time in a text.
type Number struct {
	Start, End int // its place in the text, in bytes

	Values   []string  // what it may mean, in one form for all spellings
	Decimals []Decimal // what it may mean if it is neither a date nor a time
	Parts    []Decimal // figures that may stand side by side, as in a date or in "12 500"; all of them mean the same
	Related  []string  // what a text with the number says, too, such as the hour of a time
	Words    bool      // it has no figures
	Vague    bool      // it need not count anything: "one", "a hundred", "thousands"
	Guess    bool      // its word may be one of another language, such as the Spanish "dos"

	whole, part float64 // its thousands and more, and what is below them
	next        float64 // a word of less belongs to it; 0 before the first word
}

// token matches, in lower case, a date, a time with its half of the day, another time, a fraction, a number or a word. A number may have
// a power of ten, an exponent, or the mark of a note.
var token = regexp.MustCompile(`\b(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b` +
	`|\b(?P<hour>\d{1,2})(?:[:.h](?P<minute>\d{2}))? ?(?:(?P<morning>a(?:m|\. ?m)\b|утра|morgens)|` +
	`(?P<evening>p(?:m|\. ?m)\b|вечера|abends))` +
	`|\b(?P<hour24>\d{1,2})(?:[:h]| uhr )(?P<minute24>\d{2}(?::\d{2})?)\b` +
	`|(?:\b(?P<units>\d+)[ ^])?\b(?P<over>\d{1,3})(?P<bar>[⁄/])(?P<under>\d{1,3})\b` +
	`|(?:(?P<groups>\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?)(?:\b|(?P<letter>\pL))|(?P<figures>\d+(?:[.,]\d+)*))` +
	`(?: ?(?:[×x*·⋅]|\\times) ?10\^[({]?(?P<scale>[-+−–]?\d{1,9})|e(?P<scientific>[-+−]?\d{1,9})\b|` +
	`\^[({]?(?P<raised>[-+−–]?\d{1,9})| ?\[\d{1,3}\])?` +
	`|(?P<word>\pL[\pL\pM]*)`)

// groups are the numbers of the groups of token.
var groups = func() map[string]int {
	numbers := map[string]int{}
	for i, name := range token.SubexpNames() {
		numbers[name] = i
	}
	return numbers
}()

var (
	digits = regexp.MustCompile(`\d+`)
	dashes = strings.NewReplacer("−", "-", "–", "-")
	joins  = regexp.MustCompile(`^(?:[\s-]+|\s+(?:and|und)\s+)$`) // what is between the words of a number
)

// Find returns the numbers of a text that Fold returned, in their order.
func Find(text string) (list []Number) {
	text = lower(text)
	for _, at := range token.FindAllStringSubmatchIndex(text, -1) {
		group := func(name string) string {
			i := 2 * groups[name]
			return text[max(at[i], 0):max(at[i+1], 0)]
		}
		value, known := words[strings.ReplaceAll(group("word"), "ё", "е")]
		other, guess := guesses[group("word")]
		last := len(list) - 1
		switch {
		case guess:
			list = append(list, Number{Start: at[0], End: at[1], Words: true, Guess: true, part: other, next: 1})
		case known && last >= 0 && joins.MatchString(text[list[last].End:at[0]]) && list[last].add(value):
			list[last].End = at[1]
		case known && len(group("word")) > 1: // a k counts only after figures
			n := Number{Start: at[0], End: at[1], Words: true, next: math.Inf(1)}
			n.add(value)
			n.Vague = value == 1 || value == 100 || value >= 1000
			list = append(list, n)
		case group("word") == "" && !strings.HasSuffix(text[:at[0]], "^"): // else it is the mark of a note
			n := Number{Start: at[0], End: at[1]}
			n.End -= len(group("letter"))
			n.read(group)
			list = append(list, n)
		}
	}
	for i := range list {
		list[i].evaluate(text)
	}
	return list
}

// lower returns text in lower case if that moves no character.
func lower(text string) string {
	if low := strings.ToLower(text); len(low) == len(text) {
		return low
	}
	return text
}

// read takes the groups of a token that is not a word.
func (n *Number) read(group func(name string) string) {
	switch {
	case group("date") != "":
		for i, part := range n.row(group("date")) {
			if month, _ := strconv.Atoi(part); month <= 12 && i < 2 {
				n.Related = append(n.Related, monthValue(month))
			}
		}
	case group("hour") != "":
		n.time(group("hour"), group("minute"), group("morning"), group("evening"))
	case group("hour24") != "":
		n.time(group("hour24"), group("minute24"), "", "")
	case group("over") != "":
		n.fraction(group("units"), group("over"), group("under"))
		if group("bar") == "/" {
			n.row(group("units") + " " + group("over") + " " + group("under"))
		}
	default:
		written, power := group("groups")+group("figures"), group("scale")+group("scientific")
		if raised := group("raised"); written == "10" && raised != "" { // else it is the mark of a note
			written, power = "1", raised
		}
		n.amount(written, exponent(power))
	}
}

// row adds the figures of a text as parts. It returns them.
func (n *Number) row(text string) []string {
	list := digits.FindAllString(text, -1)
	for _, part := range list {
		n.Parts = append(n.Parts, New(false, part, "", 0))
	}
	return list
}

// plain returns the value of digits.
func plain(digits string) string { return New(false, digits, "", 0).String() }

// exponent reads the digits of an exponent; it returns 0 for none.
func exponent(text string) int {
	power, _ := strconv.Atoi(dashes.Replace(text))
	return power
}

// time reads a time. Without a half of the day it may be on a clock of 24 hours or of 12.
func (n *Number) time(hour, minute, morning, evening string) {
	h, _ := strconv.Atoi(hour)
	for _, part := range append(digits.FindAllString(minute, -1), hour) {
		n.Related = append(n.Related, plain(part))
	}
	clock := func(h int) string { return strconv.Itoa(h) + ":" + cmp.Or(minute, "00") }
	afternoon := h%12 + 12
	switch {
	case h > 12:
		n.Values = []string{clock(h)}
	case morning != "":
		n.Values = []string{clock(h % 12)}
	case evening != "":
		n.Values, n.Related = []string{clock(afternoon), clock(h) + " pm"}, append(n.Related, plain(strconv.Itoa(afternoon)))
	default:
		n.Values = []string{clock(h), clock(h) + " pm"}
	}
}

// fraction reads a fraction, with the whole number before it.
func (n *Number) fraction(units, numerator, denominator string) {
	whole, _ := strconv.ParseFloat(units, 64) // 0 for none
	over, _ := strconv.ParseFloat(numerator, 64)
	if under, _ := strconv.ParseFloat(denominator, 64); under > 0 {
		n.Decimals, n.part = []Decimal{Of(whole + over/under)}, whole+over/under
	}
}

// amount reads figures and their separators: 1,500 is 1500 in one country and 1.5 in another.
func (n *Number) amount(text string, power int) {
	text = strings.NewReplacer("'", " ", "’", " ").Replace(text)
	closed := strings.ReplaceAll(text, " ", "")
	last := strings.LastIndexAny(closed, ".,")
	if last < 0 {
		if n.Decimals = []Decimal{New(false, closed, "", power)}; closed != text {
			n.row(text)
		}
		return
	}
	whole, fraction := strings.NewReplacer(".", "", ",", "").Replace(closed[:last]), closed[last+1:]
	same := strings.Count(closed, closed[last:last+1])
	if same == 1 {
		n.Decimals = append(n.Decimals, New(false, whole, fraction, power))
		if closed[last] == '.' && len(whole) < 3 && len(fraction) == 2 { // of a time
			n.Values = append(n.Values, strings.TrimPrefix(whole, "0")+":"+fraction)
		}
	}
	if len(fraction) == 3 && len(whole)+same+len(fraction) == len(closed) {
		n.Decimals = append(n.Decimals, New(false, whole, fraction, power+3))
	}
	switch {
	case n.Decimals != nil:
	case closed[last] == ',':
		n.row(closed)
	default:
		n.Values = append(n.Values, closed)
	}
}

// add takes in the word after a number if it belongs to it.
func (n *Number) add(value float64) bool {
	if n.next == 0 && len(n.Decimals) > 0 {
		n.part, _ = strconv.ParseFloat(n.Decimals[0].String(), 64)
	}
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
	for n.Vague, n.next = false, 1; math.Mod(value, n.next*10) == 0; n.next *= 10 {
	}
	return true
}

// evaluate adds the values of the figures and the words, with their sign.
func (n *Number) evaluate(text string) {
	written := len(n.Decimals)
	if n.next > 0 {
		n.Decimals = append(n.Decimals, Of(math.Round(1e6*(n.whole+n.part))/1e6))
	}
	negative, positive := n.signs(text)
	var signed []Decimal
	for i, d := range n.Decimals {
		for _, value := range []Decimal{d, d.Negate()} {
			if value.negative && !negative || !value.negative && !positive {
				continue
			}
			n.Values = append(n.Values, value.String())
			if n.next == 0 || i == written { // of "2 million" the 2 is not what it means
				signed = append(signed, value)
			}
		}
	}
	n.Decimals = signed
}
