package recall

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// span is a time that a question speaks of: from its beginning up to its end. One that comes again, each year or each
// week, is the latest, and those before it are meant less.
type span struct {
	from, to time.Time
	again    int // days after which it comes again, about; 0 for never
}

const (
	weekly = 7
	yearly = 365
)

// during is a span of one time alone.
func during(from, to time.Time) span { return span{from: from, to: to} }

func (s span) has(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// earlier is the span in the year of a time, if that is a year before its own.
func (s span) earlier(t time.Time) span {
	years := min(t.In(s.from.Location()).Year()-s.from.Year(), 0)
	if s.again != yearly {
		years = 0
	}
	return span{s.from.AddDate(years, 0, 0), s.to.AddDate(years, 0, 0), s.again}
}

// before is the span, or of one that comes again the latest that begins before a time.
func (s span) before(t time.Time) span {
	for s.again > 0 && !s.from.Before(t) && !t.IsZero() {
		if s.again == weekly {
			s.from, s.to = s.from.AddDate(0, 0, -weekly), s.to.AddDate(0, 0, -weekly)
		} else {
			s.from, s.to = s.from.AddDate(-1, 0, 0), s.to.AddDate(-1, 0, 0)
		}
	}
	return s
}

// within is the part of a span that lies in another one; false for none.
func (s span) within(other span) (span, bool) {
	s = s.before(other.to)
	if s.from.Before(other.from) {
		s.from = other.from
	}
	if s.to.After(other.to) {
		s.to = other.to
	}
	s.again = min(s.again, other.again)
	return s, s.from.Before(s.to)
}

// timeWords are the kinds of the words that times are told in, English and Russian, each with its number. A form that ends
// with an asterisk stands for those that are up to four letters longer. Kinds in lower case are other words, too, and
// count beside a number, or behind a word that a time follows.
var timeWords = vocabularyOf(`M1: january январ* янв; m1: jan; M2: february феврал* фев; m2: feb; m3: march mar; M3: март марта марту
мартом марте; M4: april апрел* апр; m4: apr; m5: may; M5: май мая мае маю маем; M6: june июн*; m6: jun; M7: july июл*; m7: jul;
M8: august август* авг; m8: aug; M9: september сентябр* сен сент; m9: sep sept; M10: october октябр* окт; m10: oct;
M11: november ноябр* ноя; m11: nov; M12: december декабр* дек; m12: dec; D0: sunday воскресен*; D1: monday понедельник*;
D2: tuesday вторник*; D3: wednesday среду; D4: thursday четверг*; D5: friday пятниц*; D6: saturday суббот*;
Ud: day days день дня дней дни; Uw: week weeks недел*; Um: month months месяц*; Uy: year years год году года годы лет;
s3: spring; S3: весной весну весна; s6: summer; S6: летом лето; s9: autumn fall; S9: осенью осень; s12: winter; S12: зимой зиму зима;
E: weekend выходные; B1: last previous past прошл* прошедш* предыдущ*; B0: this current этой эту этом этот этим этого;
L: последн*; A: ago назад тому; R0: today tonight сегодня; R-1: yesterday вчера; R-2: позавчера;
T1: early beginning start начале; T2: middle середине; T3: late end конце; n1: a an one один одну; n2: two couple два две пару;
n3: three few три; n4: four several четыре несколько; n5: five пять; n6: six шесть; n7: seven семь; n8: eight восемь;
n9: nine девять; n10: ten десять; t: the; j: and to through и;
P: in of next since during mid until till by from every before after between on at within в во за на с со до к по от после перед между`)

// vocabulary is the kinds of words, and of those with some beginnings that are up to four letters longer.
type vocabulary struct{ words, beginnings map[string]string }

// vocabularyOf reads a list of kinds with their words; a beginning ends with an asterisk.
func vocabularyOf(list string) vocabulary {
	v := vocabulary{map[string]string{}, map[string]string{}}
	for entry := range strings.SplitSeq(list, ";") {
		kind, forms, _ := strings.Cut(entry, ":")
		for form := range strings.FieldsSeq(forms) {
			if start, is := strings.CutSuffix(form, "*"); is {
				v.beginnings[start] += strings.TrimSpace(kind)
			} else {
				v.words[form] += strings.TrimSpace(kind)
			}
		}
	}
	return v
}

// kind is that of a word, several of one that is listed several times; empty for none.
func (v vocabulary) kind(w string) string {
	if k, known := v.words[w]; known {
		return k
	}
	for n := range w {
		if k, known := v.beginnings[w[:n]]; known && len(w)-n <= 2*4 {
			return k
		}
	}
	return v.beginnings[w]
}

// has says whether a word is of one of some kinds of a letter each.
func (v vocabulary) has(w, kinds string) bool { return strings.ContainsAny(v.kind(w), kinds) }

var (
	number = regexp.MustCompile(`^(\d{1,4})(st|nd|rd|th|-?го|-е|-ого)?$`)
	// layouts are those of dates and of months in numbers.
	layouts = strings.Fields("2006-1-2 2006/1/2 2.1.2006 2/1/2006 1/2/2006 2.1.06 2006-1 2006/1 1.2006 1/2006")
)

// kind is that of a word: of the vocabulary, a number (N), a year (Y), a date (X), or w for another word.
func kind(w string) string {
	if k := timeWords.kind(w); k != "" {
		return k
	}
	if m := number.FindStringSubmatch(w); m != nil {
		switch n, _ := strconv.Atoi(m[1]); {
		case n >= 1970 && n <= 2100:
			return fmt.Sprint("Y", n)
		case n > 0 && n <= 1000:
			return fmt.Sprint("N", n)
		}
	}
	if len(w) > 5 && w[0] >= '0' && w[0] <= '9' && slices.ContainsFunc(layouts, func(layout string) bool {
		_, err := time.Parse(layout, w)
		return err == nil
	}) {
		return "X" + w
	}
	return "w"
}

// clock makes spans of what a question says, as it was asked at some time.
type clock struct{ asked time.Time }

// rules are the ways in which times are told, by the kinds of their words, each behind a space. What they make of the
// numbers and the units in it may be nothing. The first one that fits counts.
var rules = []struct {
	words *regexp.Regexp
	span  func(c clock, g []string) span
}{
	{rule(`X(\S+)`), func(c clock, g []string) span { return c.date(g[1]) }},
	{rule(`(?:B\d )?(?:T(\d) (?:[Pt] )*)?(?:N(\d\d?) (?:P )?)?M(\d+)(?: N(\d\d?)\b)?(?: Y(\d+))?`), clock.month},
	{rule(`(?:B\d )?()()m(\d+) N(\d\d?)\b(?: Y(\d+))?`), clock.month},
	{rule(`()N(\d\d?) (?:P )?m(\d+)()(?: Y(\d+))?`), clock.month},
	{rule(`()()m(\d+)() Y(\d+)`), clock.month},
	{rule(`(?:B\d|P|T(\d)(?: [Pt])*)() m(\d+)(?: N(\d\d?)\b)?(?: Y(\d+))?`), clock.month},
	{rule(`B(\d) [sS](\d+)`), func(c clock, g []string) span { return c.seasonBack(num(g[1]), num(g[2])) }},
	{rule(`(?:T(\d) (?:[Pt] )*)?()S(\d+)()(?:(?: P)? Y(\d+))?`), clock.season},
	{rule(`(?:T(\d) (?:[Pt] )*)?()s(\d+)()(?: P)? Y(\d+)`), clock.season},
	{rule(`(?:T(\d) )?P(?: t)?() s(\d+)()(?: Y(\d+))?`), clock.season},
	{rule(`Ud P R-1`), func(c clock, _ []string) span { return during(c.day(-2), c.day(-1)) }},
	{rule(`R(-?\d)`), func(c clock, g []string) span { return during(c.day(num(g[1])), c.day(num(g[1])+1)) }},
	{rule(`(?:B1|L) [Nn](\d+) U(.)`), func(c clock, g []string) span { return during(c.back(g[2], num(g[1])), c.day(1)) }},
	{rule(`L U(.)`), func(c clock, g []string) span { return during(c.back(g[1], 1), c.day(1)) }},
	{rule(`B(\d) U(.)`), func(c clock, g []string) span {
		return during(c.begin(g[2], num(g[1])), c.begin(g[2], num(g[1])-1))
	}},
	{rule(`B(\d) E`), func(c clock, g []string) span {
		saturday := c.begin("w", num(g[1])).AddDate(0, 0, 5)
		return during(saturday, saturday.AddDate(0, 0, 2))
	}},
	{rule(`(?:[Nn](\d+) (?:P )?)?U(.) A(?: A)?`), func(c clock, g []string) span { return c.ago(max(num(g[1]), 1), g[2]) }},
	{rule(`(?:B\d )?D(\d)`), func(c clock, g []string) span {
		days := (int(c.asked.Weekday())-num(g[1])+6)%7 + 1 // the latest before the day of the question
		return span{c.day(-days), c.day(-days + 1), weekly}
	}},
	{rule(`(?:P Y(\d+)|Y(\d+) Uy)`), func(c clock, g []string) span {
		return during(c.on(num(g[1]+g[2]), 1, 1), c.on(num(g[1]+g[2])+1, 1, 1))
	}},
}

func rule(kinds string) *regexp.Regexp { return regexp.MustCompile(`^ ` + kinds + `( |$)`) }

func num(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func (c clock) on(year, month, day int) time.Time {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, c.asked.Location())
}

// day is the beginning of a day so many days after the one of the question.
func (c clock) day(days int) time.Time {
	return c.on(c.asked.Year(), int(c.asked.Month()), c.asked.Day()+days)
}

func (c clock) date(w string) span {
	for i, layout := range layouts {
		if t, err := time.ParseInLocation(layout, w, c.asked.Location()); err == nil {
			if i < 6 {
				return during(t, t.AddDate(0, 0, 1))
			}
			return during(t, t.AddDate(0, 1, 0))
		}
	}
	return span{}
}

// month is one of its third, day before its name, number, day behind and year, and season the same of three.
func (c clock) month(g []string) span {
	if day := num(g[2] + g[4]); day > 0 && day < 32 {
		return c.yearly(num(g[5]), func(y int) span { return during(c.on(y, num(g[3]), day), c.on(y, num(g[3]), day+1)) })
	}
	return c.months(g, 1)
}

func (c clock) season(g []string) span { return c.months(g, 3) }

func (c clock) months(g []string, n int) span {
	return c.yearly(num(g[5]), func(year int) span {
		from, to := c.on(year, num(g[3]), 1), c.on(year, num(g[3])+n, 1)
		if third := num(g[1]); third > 0 {
			part := to.Sub(from) / 3
			from, to = from.Add(time.Duration(third-1)*part), from.Add(time.Duration(third)*part)
		}
		return during(from, to)
	})
}

// yearly is a time of a year, of the latest in which it has begun if the year is 0.
func (c clock) yearly(year int, in func(year int) span) span {
	if year > 0 {
		return in(year)
	}
	s := in(c.asked.Year())
	if s.from.After(c.asked) {
		s = in(c.asked.Year() - 1)
	}
	s.again = yearly
	return s
}

// seasonBack is "last summer", which is over, for 1 and "this summer" for 0.
func (c clock) seasonBack(back, first int) span {
	start := c.on(c.asked.Year(), first, 1)
	for start.After(c.asked) || back == 1 && !start.AddDate(0, 3, 0).Before(c.asked) {
		start = start.AddDate(-1, 0, 0)
	}
	return during(start, start.AddDate(0, 3, 0))
}

// begin is when the day, week, month or year began that is so many before the present.
func (c clock) begin(unit string, back int) time.Time {
	switch unit {
	case "w":
		return c.day(-(int(c.asked.Weekday())+6)%7 - 7*back)
	case "m":
		return c.on(c.asked.Year(), int(c.asked.Month())-back, 1)
	case "y":
		return c.on(c.asked.Year()-back, 1, 1)
	}
	return c.day(-back)
}

// back is the day so many units before the present one.
func (c clock) back(unit string, n int) time.Time {
	days := map[string][3]int{"d": {0, 0, 1}, "w": {0, 0, 7}, "m": {0, 1, 0}, "y": {1, 0, 0}}[unit]
	return c.day(0).AddDate(-n*days[0], -n*days[1], -n*days[2])
}

// ago is a time some units back, give or take one, and more for many.
func (c clock) ago(n int, unit string) span {
	about := map[string][2]int{"d": {0, 1}, "w": {3, 1}, "m": {15, 5}, "y": {120, 30}}[unit]
	days, day := about[0]+about[1]*n/4, c.back(unit, n)
	return during(day.AddDate(0, 0, -days), day.AddDate(0, 0, days+1))
}

// before is the beginning of what lies before a time, behind words of these kinds: none, or a little more than the
// units, the weekend or the weekday that they end with.
func (c clock) before(of []string, t time.Time) time.Time {
	m := ahead.FindStringSubmatch(strings.Join(of, " "))
	switch {
	case m == nil:
		return time.Time{}
	case m[2] == "":
		return t.AddDate(0, 0, -weekly)
	}
	return clock{t}.back(m[2], max(num(m[1]), 1)+1)
}

var ahead = regexp.MustCompile(`(?:(?:[Nn](\d+) )?U(.)|E|D\d)(?: P)?$`)

// timed are the times of a question.
type timed struct {
	spans []span
	loose map[string]bool // the words of those that come each year: they say less of what is looked for than the time
	rest  []string        // the words that speak of no time
}

// alone says whether the time is all that a question names: beside it are words that every question has, and at most a
// verb behind "what". Then it asks for what was said at that time, and for nothing else.
func (t timed) alone() bool {
	if len(t.spans) == 0 {
		return false
	}
	left, what := 0, false
	for i, w := range t.rest {
		what = what || whats[w] && (i+1 == len(t.rest) || t.rest[i+1] != "about")
		if !asked[w] && says(w) {
			left++
		}
	}
	return left == 0 || left == 1 && what
}

var whats = words(`what what's что чем о`)

// What stands before a time or between two: a range, what opens one, or the time behind or before another.
var (
	ranging = words(`and to until till through по до и`)
	opening = words(`between from since с со между`)
	behind  = words(`since after с со после`)
	upTo    = words(`before until till by до перед`)
)

// times are those that a text speaks of, as it was said at some time: dates, months, years, weekdays, and what lies a
// while back. Of two beside each other, as in "November last year", the part is meant that they have in common;
// "since", "before" and "from … to" make ranges.
func times(text string, asked time.Time) timed {
	out := timed{loose: map[string]bool{}}
	text = oneSpelling.Replace(strings.ToLower(text))
	all := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("-./'", r)
	})
	of := make([]string, len(all))
	for i, w := range all {
		all[i] = strings.Trim(w, "-./'")
		of[i] = kind(all[i])
	}
	c, end, opened := clock{asked}, 0, "" // end of the last time, and the word before it
	var raw span
	for at := 0; at < len(all); at++ {
		s, n := c.read(of[at:])
		if n == 0 {
			if of[at] == "w" {
				out.rest = append(out.rest, all[at])
			}
			continue
		}
		lead := "" // the word before the time, or its first
		if first := of[at]; first == "P" || first == "t" {
			lead = all[at]
		} else if at > 0 {
			lead = all[at-1]
		}
		parted := func(k string) bool { return !strings.Contains("Ptj", k) }
		beside := len(out.spans) > 0 && !slices.ContainsFunc(of[end:at], parted)
		last := len(out.spans) - 1
		switch part, common := s, false; {
		case beside && ranging[lead] && opening[opened]:
			out.spans[last] = during(raw.before(s.to).from, s.to)
		default:
			if beside && !ranging[lead] {
				if part, common = s.within(raw); !common || raw.again > 0 && s.again == 0 {
					part, common = raw.within(s)
				}
			}
			raw, opened = s, lead
			switch {
			case common:
				raw, out.spans[last] = part, part
			case behind[lead]:
				from := s.from
				if lead == "after" || lead == "после" {
					from = s.to
				}
				out.spans = append(out.spans, during(from, c.day(1)))
			case upTo[lead]:
				if beside && strings.ContainsAny(of[end-1][:1], "DE") { // "the Sunday before 11 May"
					out.spans = out.spans[:last]
				}
				out.spans = append(out.spans, during(c.before(of[:at], s.from), s.from))
			default:
				out.spans = append(out.spans, s)
			}
		}
		for i := range n {
			out.loose[all[at+i]] = s.again == yearly || out.loose[all[at+i]]
		}
		at += n - 1
		end = at + 1
	}
	return out
}

// read is the time that begins with the first of some words, by their kinds, and of how many words it is; 0 for none.
func (c clock) read(of []string) (span, int) {
	if strings.Contains("wtj", of[0]) { // most words begin no time
		return span{}, 0
	}
	text := " " + strings.Join(of[:min(len(of), 8)], " ")
	for _, r := range rules {
		if g := r.words.FindStringSubmatch(text); g != nil {
			if s := r.span(c, g); s.from.Before(s.to) {
				return s, len(strings.Fields(g[0]))
			}
		}
	}
	return span{}, 0
}

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}
