package number

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Number is a number, a date or a time in a text.
type Number struct {
	Start, End int    // its place in the text, in bytes
	Text       string // as it is written
	Denial     string // the words that deny it if its sentence has no other number, with the number; only of Claims

	Values   []string  // what it may mean, in one form for all spellings
	Decimals []Decimal // what it may mean if it is neither a date nor a time
	Parts    []string  // figures that may stand side by side, as in a date or in "12 500"; all of them mean the same
	Related  []string  // what a text with the number says, too, such as the hour of a time
	Words    bool      // it has no figures
	Vague    bool      // it need not count anything: "one", "a hundred", "thousands"
	Guess    bool      // its word may be one of another language, such as the Spanish "dos"

	thousands, part float64 // its thousands and more, and what is below them
	next            float64 // a word of less belongs to it; 0 before the first word
	denied          bool    // its sentence denies something
}

// forms are the spellings of numbers with digits, in lower case, in the order in which they are tried.
var forms = []struct {
	pattern *regexp.Regexp
	next    string // what may be after the first digits and a space; empty for any. The others are no parts of words.
	read    func(n *Number, groups []string)
}{
	{regexp.MustCompile(`^(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b`), "-/.", (*Number).date},
	{regexp.MustCompile(`^(\d{1,2})(?:[:.h](\d{2}))? ?(?:(a(?:m|\. ?m)\b|утра|morgens)|(p(?:m|\. ?m)\b|вечера|abends))`),
		":.hapmву", (*Number).time},
	{regexp.MustCompile(`^(\d{1,2})(?:[:h]| uhr )(\d{2}(?::\d{2})?)\b()()`), ":hu", (*Number).time},
	{regexp.MustCompile(`^(?:(\d+)[ ^])?(\d{1,3})([⁄/])(\d{1,3})\b`), "^/⁄0123456789", (*Number).fraction},
	// A number may have a power of ten, an exponent, or the mark of a note.
	{regexp.MustCompile(`^(?:(\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?)(?:\b|(\pL))|(\d+(?:[.,]\d+)*))` +
		`(?: ?(?:[×x*·⋅]|\\times) ?10\^[({]?([-+−–]?\d{1,9})|e([-+−]?\d{1,9})\b|\^[({]?([-+−–]?\d{1,9})| ?\[\d{1,3}\])?`),
		"", (*Number).amount},
}

// maxForm bounds, in bytes, the text of a number.
const maxForm = 64

var (
	digits = regexp.MustCompile(`\d+`)
	dashes = strings.NewReplacer("−", "-", "–", "-")
	spaces = strings.NewReplacer(" ", "", "'", "", "’", "")
	points = strings.NewReplacer(".", "", ",", "")
	joins  = regexp.MustCompile(`^(?:[\s-]*|\s+(?:and|und)\s+)$`) // what is between the words of a number
)

// Find returns the numbers of a text that Fold returned, in their order.
func Find(text string) (list []Number) {
	low := lower(text)
	for i := 0; i < len(low); {
		r, size := utf8.DecodeRuneInString(low[i:])
		switch {
		case r >= '0' && r <= '9':
			n := Number{Start: i}
			n.figures(low)
			if i = n.End; !strings.HasSuffix(low[:n.Start], "^") { // else it is the mark of a note
				list = append(list, n)
			}
		case unicode.IsLetter(r):
			end := len(low) - len(strings.TrimLeftFunc(low[i:], isWord))
			list, i = addWord(list, low, i, end), end
		default:
			i += size
		}
	}
	for i := range list {
		list[i].evaluate(low)
		list[i].Text = text[list[i].Start:list[i].End]
	}
	return list
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) }

// lower returns text in lower case if that moves no character.
func lower(text string) string {
	if low := strings.ToLower(text); len(low) == len(text) {
		return low
	}
	return text
}

// figures reads the digits at the start of n.
func (n *Number) figures(text string) {
	window := text[n.Start:min(len(text), n.Start+maxForm)]
	prev, _ := utf8.DecodeLastRuneInString(text[:n.Start])
	inWord := prev == '_' || prev >= 'a' && prev <= 'z'
	next, _ := utf8.DecodeRuneInString(strings.TrimPrefix(strings.TrimLeft(window, "0123456789"), " "))
	for _, form := range forms {
		if form.next != "" && (inWord || !strings.ContainsRune(form.next, next)) {
			continue
		}
		if groups := form.pattern.FindStringSubmatch(window); groups != nil {
			n.End = n.Start + len(groups[0])
			form.read(n, groups)
			return
		}
	}
}

// addWord adds the word at a place of a text if it is a number or a part of the last number.
func addWord(list []Number, text string, start, end int) []Number {
	value, last := words[strings.ReplaceAll(text[start:end], "ё", "е")], len(list)-1
	switch {
	case value == 0:
	case value < 0:
		return append(list, Number{Start: start, End: end, Words: true, Guess: true, part: -value, next: 1})
	case last >= 0 && joins.MatchString(text[list[last].End:start]) && list[last].add(value):
		list[last].End = end
	case end-start > 1: // a k counts only after figures
		n := Number{Start: start, End: end, Words: true, next: math.Inf(1)}
		n.add(value)
		n.Vague = value == 1 || value == 100 || value >= 1000
		return append(list, n)
	}
	return list
}

// date reads a date.
func (n *Number) date(groups []string) {
	n.Parts = digits.FindAllString(groups[0], -1)
	for i, part := range n.Parts {
		if month, _ := strconv.Atoi(part); month <= 12 && i < 2 {
			n.Related = append(n.Related, monthValue(month))
		}
	}
}

// plain returns the value of digits.
func plain(digits string) string { return New(false, digits, "", 0).String() }

// time reads a time: its hour, its minute and the word for its half of the day. Without that it may be on a clock of 24
// hours or of 12.
func (n *Number) time(groups []string) {
	hour, minute := groups[1], groups[2]
	h, _ := strconv.Atoi(hour)
	for _, part := range append(digits.FindAllString(minute, -1), hour) {
		n.Related = append(n.Related, plain(part))
	}
	clock := func(h int) string { return strconv.Itoa(h) + ":" + cmp.Or(minute, "00") }
	afternoon := h%12 + 12
	switch {
	case h > 12:
		n.Values = []string{clock(h)}
	case groups[3] != "":
		n.Values = []string{clock(h % 12)}
	case groups[4] != "":
		n.Values, n.Related = []string{clock(afternoon), clock(h) + " pm"}, append(n.Related, plain(strconv.Itoa(afternoon)))
	default:
		n.Values = []string{clock(h), clock(h) + " pm"}
	}
}

// fraction reads a fraction, with the whole number before it.
func (n *Number) fraction(groups []string) {
	integer, _ := strconv.ParseFloat(groups[1], 64) // 0 for none
	numerator, _ := strconv.ParseFloat(groups[2], 64)
	if denominator, _ := strconv.ParseFloat(groups[4], 64); denominator > 0 {
		n.Decimals, n.part = []Decimal{FromFloat(integer + numerator/denominator)}, integer+numerator/denominator
	}
	if groups[3] == "/" {
		n.Parts = digits.FindAllString(groups[0], -1)
	}
}

// amount reads figures and their separators: 1,500 is 1500 in one country and 1.5 in another.
func (n *Number) amount(groups []string) {
	n.End -= len(groups[2])
	text, exponent := groups[1]+groups[3], groups[4]+groups[5]
	if text == "10" && groups[6] != "" { // else it is the mark of a note
		text, exponent = "1", groups[6]
	}
	power, _ := strconv.Atoi(dashes.Replace(exponent)) // 0 for none
	closed := spaces.Replace(text)
	last := strings.LastIndexAny(closed, ".,")
	if last < 0 {
		if n.Decimals = []Decimal{New(false, closed, "", power)}; closed != text {
			n.Parts = digits.FindAllString(text, -1)
		}
		return
	}
	integer, fraction := points.Replace(closed[:last]), closed[last+1:]
	same := strings.Count(closed, closed[last:last+1])
	if same == 1 {
		n.Decimals = append(n.Decimals, New(false, integer, fraction, power))
		if closed[last] == '.' && len(integer) < 3 && len(fraction) == 2 { // of a time
			n.Values = append(n.Values, strings.TrimPrefix(integer, "0")+":"+fraction)
		}
	}
	if len(fraction) == 3 && len(integer)+same+len(fraction) == len(closed) {
		n.Decimals = append(n.Decimals, New(false, integer, fraction, power+3))
	}
	switch {
	case n.Decimals != nil:
	case closed[last] == ',':
		n.Parts = digits.FindAllString(closed, -1)
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
		n.thousands, n.part = n.thousands+n.part*value, 0
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
		n.Decimals = append(n.Decimals, FromFloat(math.Round(1e6*(n.thousands+n.part))/1e6))
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
