package recall

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/memory/textindex"
)

// span is a time that a question speaks of: from its beginning up to its end. One that comes again, each year or each
// week, is the latest, and those before it are meant less.
type span struct {
	start, end time.Time
	period     int // days after which it comes again, about; 0 for never
}

const weekly, yearly = 7, 365

// during is a span of one time alone.
func during(start, end time.Time) span { return span{start: start, end: end} }

func (s span) has(t time.Time) bool { return !t.Before(s.start) && t.Before(s.end) }

// shift is the span so many times later as it comes again.
func (s span) shift(times int) span {
	years, days := times*(s.period/yearly), times*(s.period%yearly)
	return span{s.start.AddDate(years, 0, days), s.end.AddDate(years, 0, days), s.period}
}

// alignYear is the span in the year of a time, if that is a year before its own.
func (s span) alignYear(t time.Time) span {
	if s.period != yearly {
		return s
	}
	return s.shift(min(t.In(s.start.Location()).Year()-s.start.Year(), 0))
}

// lastBefore is the span, or of one that comes again the latest that begins before a time.
func (s span) lastBefore(t time.Time) span {
	for s.period > 0 && !s.start.Before(t) && !t.IsZero() {
		s = s.shift(-1)
	}
	return s
}

// intersect returns the common part of two spans; false if there is none.
func (s span) intersect(other span) (span, bool) {
	s = s.lastBefore(other.end)
	s.start = slices.MaxFunc([]time.Time{s.start, other.start}, time.Time.Compare)
	s.end = slices.MinFunc([]time.Time{s.end, other.end}, time.Time.Compare)
	s.period = min(s.period, other.period)
	return s, s.start.Before(s.end)
}

// timeWords are the kinds of the words that times are told in, English and Russian, each with its number. A form that ends
// with an asterisk stands for those that are up to four letters longer. Kinds in lower case are other words, too, and
// count beside a number, or behind a word that a time follows. Behind the kind of a word before a time stands what it
// makes of that: ~ for a range, ( for what opens one, ≥, > and < for the time since, after and before.
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
n9: nine девять; n10: ten десять; t: the; j~: and to through и; P: in of next during mid every on at within в во за на к от;
P(: between from между; P(≥: since с со; P>: after после; P<: before by перед; P~<: until till до; P~: по`)

// vocabulary are the kinds of words, and of beginnings of words with an asterisk behind them.
type vocabulary map[string]string

// vocabularyOf reads a list of kinds with their words. A word that is listed several times has all of its kinds.
func vocabularyOf(list string) vocabulary {
	v := vocabulary{}
	for entry := range strings.SplitSeq(list, ";") {
		kind, forms, _ := strings.Cut(strings.TrimSpace(entry), ":")
		for form := range strings.FieldsSeq(forms) {
			v[form] += kind
		}
	}
	return v
}

// kind is that of a word; empty for none.
func (v vocabulary) kind(w string) string {
	if k, ok := v[w]; ok {
		return k
	}
	for n := len(w); n > 0 && len(w)-n <= 2*4; n-- {
		if k, ok := v[w[:n]+"*"]; ok {
			return k
		}
	}
	return ""
}

// has says whether a word is of one of some kinds of a letter each.
func (v vocabulary) has(w, kinds string) bool { return strings.ContainsAny(v.kind(w), kinds) }

var (
	timeWord = regexp.MustCompile(`[\pL\pN](?:[\pL\pN./'-]*[\pL\pN])?`)
	number   = regexp.MustCompile(`^(?:(19[7-9]\d|20\d\d)|(\d{1,3}))(?:st|nd|rd|th|-?го|-е|-ого)?$`)
	// layouts are those of six forms of dates, and then of months in numbers.
	layouts = strings.Fields("2006-1-2 2006/1/2 2.1.2006 2/1/2006 1/2/2006 2.1.06 2006-1 2006/1 1.2006 1/2006")
)

// kind is that of a word: of the vocabulary, a number (N), a year (Y), a date (X), or w for another word.
func kind(w string) string {
	if k := timeWords.kind(w); k != "" {
		return k
	}
	if m := number.FindStringSubmatch(w); m != nil && m[1] != "" {
		return "Y" + m[1]
	} else if m != nil {
		return "N" + m[2]
	}
	if len(w) > 5 && w[0] <= '9' && !(clock{}).date(w).end.IsZero() {
		return "X" + w
	}
	return "w"
}

// clock makes spans of what a question says, as it was asked at some time.
type clock struct{ now time.Time }

// beforeName stands before a month or a season: what it is, and which third of it is meant.
const beforeName = `(?:P (?:t )?)?(?:B(\d) )?(?:T(\d) (?:P |t )*)?`

// rules are the ways in which times are told, by the kinds of their words, each behind a space. What they make of the
// numbers and the units in it, the first of them as n, too, may be nothing. The first one that fits counts.
var rules = []struct {
	words *regexp.Regexp
	span  func(c clock, n int, g []string) span
}{
	{rule(`X(\S+)`), func(c clock, _ int, g []string) span { return c.date(g[1]) }},
	{rule(beforeName + `(?:N(\d\d?) (?:P )?)?([Mm])(\d+)(?: N(\d\d?)\b)?(?:(?: P)? Y(\d+))?`), clock.month},
	{rule(beforeName + `()([Ss])(\d+)()(?:(?: P)? Y(\d+))?`), clock.month},
	{rule(`Ud P R-1`), func(c clock, _ int, _ []string) span { return c.days(-2, -1) }},
	{rule(`R(-?\d)`), func(c clock, n int, _ []string) span { return c.days(n, n+1) }},
	{rule(`B(\d) U(.)`), func(c clock, n int, g []string) span { return during(c.begin(g[2], n), c.begin(g[2], n-1)) }},
	{rule(`(?:B1|L)(?: [Nn](\d+))? U(.)`), func(c clock, n int, g []string) span {
		return during(c.subtract(g[2], max(n, 1)), c.day(1))
	}},
	{rule(`B(\d) E`), func(c clock, n int, _ []string) span { return clock{c.begin("w", n)}.days(5, 7) }},
	{rule(`(?:[Nn](\d+) (?:P )?)?U(.) A(?: A)?`), func(c clock, n int, g []string) span { return c.ago(max(n, 1), g[2]) }},
	{rule(`(?:B\d )?D(\d)`), clock.weekday},
	{rule(`P Y(\d+)`), clock.year},
	{rule(`Y(\d+) Uy`), clock.year},
}

func rule(kinds string) *regexp.Regexp {
	return regexp.MustCompile(`^ ` + strings.ReplaceAll(kinds, "P", `P\S*`) + `( |$)`)
}

func num(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// on returns the first moment of a day. If the clock changes at midnight, the day begins at 01:00 or has 00:00 twice, and
// time.Date may return a time of the day before or the second 00:00.
func (c clock) on(y, m, d int) time.Time {
	noon := time.Date(y, time.Month(m), d, 12, 0, 0, 0, c.now.Location())
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, c.now.Location()).Add(-time.Hour)
	for t.Day() != noon.Day() {
		t = t.Add(time.Hour)
	}
	return t
}

// day is the beginning of a day so many days after the one of the question.
func (c clock) day(n int) time.Time {
	return c.on(c.now.Year(), int(c.now.Month()), c.now.Day()+n)
}

// days are those from so many after the day of the question up to another.
func (c clock) days(start, end int) span { return during(c.day(start), c.day(end)) }

func (c clock) date(w string) span {
	for i, layout := range layouts {
		if t, err := time.Parse(layout, w); err == nil {
			year, month, day := t.Date()
			months := i / 6 // 1 from the first month on
			return during(c.on(year, int(month), day), c.on(year, int(month)+months, day+1-months))
		}
	}
	return span{}
}

func (c clock) year(n int, _ []string) span { return during(c.on(n, 1, 1), c.on(n+1, 1, 1)) }

// weekday is the latest one before the day of the question.
func (c clock) weekday(n int, _ []string) span {
	days := (int(c.now.Weekday())-n+6)%7 + 1
	return span{c.day(-days), c.day(-days + 1), weekly}
}

// month is one, or a season, of what its rules find: 0 for this and 1 for the last one, its third, the day before its
// name, the kind of that, its first month, the day behind and the year. Without a year it is the latest that has begun;
// the last one is over. A name that is another word, too, needs something beside it.
func (c clock) month(_ int, g []string) span {
	if strings.Contains("ms", g[4]) && len(strings.Fields(g[0])) == 1 {
		return span{}
	}
	months, third, day, period := 1+2*strings.Count("Ss", g[4]), num(g[2]), num(g[3]+g[6]), 0
	if g[1]+g[7] == "" {
		period = yearly
	}
	for year := cmp.Or(num(g[7]), c.now.Year()); ; year-- {
		start, end := c.on(year, num(g[5]), 1), c.on(year, num(g[5])+months, 1)
		if day > 0 && day < 32 {
			start, end = c.on(year, num(g[5]), day), c.on(year, num(g[5]), day+1)
		} else if third > 0 {
			part := end.Sub(start) / 3
			start, end = start.Add(time.Duration(third-1)*part), start.Add(time.Duration(third)*part)
		}
		if isPast := !end.After(c.now); g[7] != "" || !start.After(c.now) && (isPast || g[1] != "1") {
			return span{start, end, period}
		}
	}
}

// begin is when the day, week, month or year began that is so many before the present.
func (c clock) begin(unit string, n int) time.Time {
	year, month, _ := c.now.Date()
	present := map[string]time.Time{"d": c.day(0), "w": c.day(-(int(c.now.Weekday()) + 6) % 7),
		"m": c.on(year, int(month), 1), "y": c.on(year, 1, 1)}
	return clock{present[unit]}.subtract(unit, n)
}

// subtract is the day so many units before the present one.
func (c clock) subtract(unit string, n int) time.Time {
	days := map[string][3]int{"d": {0, 0, 1}, "w": {0, 0, 7}, "m": {0, 1, 0}, "y": {1, 0, 0}}[unit]
	year, month, day := c.now.Date()
	return c.on(year-n*days[0], int(month)-n*days[1], day-n*days[2])
}

// ago is a time some units back, give or take one, and more for many.
func (c clock) ago(n int, unit string) span {
	margin := map[string][2]int{"d": {0, 1}, "w": {3, 1}, "m": {15, 5}, "y": {120, 30}}[unit]
	days := margin[0] + margin[1]*n/4
	return clock{c.subtract(unit, n)}.days(-days, days+1)
}

// startBefore is the beginning of what lies before a time, behind words of these kinds: none, or a little more than the
// units, the weekend or the weekday that they end with.
func (c clock) startBefore(kinds []string, t time.Time) time.Time {
	m := ahead.FindStringSubmatch(strings.Join(kinds, " "))
	if m == nil {
		return time.Time{}
	}
	return clock{t}.subtract(cmp.Or(m[2], "w"), max(num(m[1]), 1)+len(m[2])) // of a unit one more
}

var ahead = regexp.MustCompile(`(?:(?:[Nn](\d+) )?U(.)|E|D\d)(?: P\S*)?$`)

// timed are the times of a question.
type timed struct {
	spans []span
	loose map[string]bool // the words of those that come each year: they say less of what is looked for than the time
	rest  []string        // the words that speak of no time
}

// timeOnly says whether the time is all that a question names: beside it are words that every question has, and at most a
// verb behind "what". Then it asks for what was said at that time, and for nothing else.
func (t timed) timeOnly() bool {
	count, what := 0, false
	for i, w := range t.rest {
		what = what || whats[w] && (i+1 == len(t.rest) || t.rest[i+1] != "about")
		if !questionWords[w] && hasTerms(w) {
			count++
		}
	}
	return len(t.spans) > 0 && (count == 0 || count == 1 && what)
}

var whats = textindex.WordSet(`what what's что чем о`)

// times are those that a text speaks of, as it was said at some time: dates, months, years, weekdays, and what lies a
// while back. Of two beside each other, as in "November last year", the part is meant that they have in common;
// "since", "before" and "from … to" make ranges.
func times(text string, now time.Time) timed {
	out := timed{loose: map[string]bool{}}
	words := timeWord.FindAllString(oneSpelling.Replace(strings.ToLower(text)), -1)
	kinds := make([]string, len(words))
	for i, w := range words {
		kinds[i] = kind(w)
	}
	c, end, opened := clock{now}, 0, "" // end of the last time, and the kind of the word before it
	var raw span
	for pos := 0; pos < len(words); pos++ {
		s, n := c.read(kinds[pos:])
		if n == 0 {
			if kinds[pos] == "w" {
				out.rest = append(out.rest, words[pos])
			}
			continue
		}
		lead := kinds[pos] // the kind of the word before the time, or of its first
		if lead[0] != 'P' && pos > 0 {
			lead = kinds[pos-1]
		}
		is := func(mark string) bool { return strings.Contains("Pj", lead[:1]) && strings.Contains(lead, mark) }
		last := len(out.spans) - 1
		parts := func(k string) bool { return !strings.Contains("Ptj", k[:1]) }
		adjacent := last >= 0 && !slices.ContainsFunc(kinds[end:pos], parts)
		part, common := s, false
		if adjacent && !is("~") {
			if part, common = s.intersect(raw); !common || raw.period > 0 && s.period == 0 {
				part, common = raw.intersect(s)
			}
		}
		prev, open := raw, opened
		raw, opened = s, lead
		switch {
		case adjacent && is("~") && strings.Contains(open, "P("):
			out.spans[last] = during(prev.lastBefore(s.end).start, s.end)
		case common:
			raw, out.spans[last] = part, part
		case is(">"):
			out.spans = append(out.spans, during(s.end, c.day(1)))
		case is("≥"):
			out.spans = append(out.spans, during(s.start, c.day(1)))
		case is("<"):
			if adjacent && strings.ContainsAny(kinds[end-1][:1], "DE") { // "the Sunday before 11 May"
				out.spans = out.spans[:last]
			}
			out.spans = append(out.spans, during(c.startBefore(kinds[:pos], s.start), s.start))
		default:
			out.spans = append(out.spans, s)
		}
		for i := range n {
			out.loose[words[pos+i]] = s.period == yearly || out.loose[words[pos+i]]
		}
		pos += n - 1
		end = pos + 1
	}
	return out
}

// read is the time that begins with the first of some words, by their kinds, and of how many words it is; 0 for none.
func (c clock) read(kinds []string) (span, int) {
	if strings.Contains("wtj", kinds[0][:1]) { // most words begin no time
		return span{}, 0
	}
	text := " " + strings.Join(kinds[:min(len(kinds), 8)], " ")
	for _, r := range rules {
		if g := r.words.FindStringSubmatch(text); g != nil {
			if s := r.span(c, num(g[1]), g); s.start.Before(s.end) {
				return s, len(strings.Fields(g[0]))
			}
		}
	}
	return span{}, 0
}
