package recall

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// span is a time that a question speaks of: from its beginning up to its end. One without a
// year is the latest, and those of the years before it are meant less.
type span struct {
	from, to time.Time
	yearly   bool
}

// during is a span of one time alone.
func during(from, to time.Time) span { return span{from: from, to: to} }

func (s span) has(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// earlier is the span in the year of a time, if that is a year before its own.
func (s span) earlier(t time.Time) span {
	years := min(t.In(s.from.Location()).Year()-s.from.Year(), 0)
	if !s.yearly {
		years = 0
	}
	return span{from: s.from.AddDate(years, 0, 0), to: s.to.AddDate(years, 0, 0)}
}

// clock reads the times in the words of a question, English or Russian.
type clock struct {
	asked time.Time
	words []string
	at    int // of the word that is read
}

// times are the spans of time that a text speaks of, as it was said at some time:
// dates, months, years, weekdays, and what lies a while back; and the words of those that
// are without a year, which say less of what is looked for than the time does.
func times(text string, asked time.Time) (spans []span, timed map[string]bool) {
	timed = map[string]bool{}
	text = oneSpelling.Replace(strings.ToLower(text))
	c := clock{asked: asked, words: strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '-' && r != '.' && r != '/'
	})}
	for i, w := range c.words {
		c.words[i] = strings.Trim(w, "-./")
	}
	for c.at < len(c.words) {
		for _, read := range []func(clock) (span, int){clock.date, clock.month, clock.relative, clock.ago, clock.weekday,
			clock.year} {
			if s, n := read(c); n > 0 {
				spans = append(spans, s)
				for range n {
					timed[c.word(0)] = s.yearly || timed[c.word(0)]
					c.at++
				}
				c.at--
				break
			}
		}
		c.at++
	}
	return spans, timed
}

// word is the one at a distance, "" for none.
func (c clock) word(distance int) string {
	if i := c.at + distance; i >= 0 && i < len(c.words) {
		return c.words[i]
	}
	return ""
}

// layouts of dates in numbers.
var layouts = []string{"2006-1-2", "2006/1/2", "2.1.2006", "2/1/2006", "1/2/2006", "2.1.06"}

func (c clock) date() (span, int) {
	w := c.word(0)
	if len(w) < 6 || w[0] < '0' || w[0] > '9' {
		return span{}, 0
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, w, c.asked.Location()); err == nil {
			return during(t, t.AddDate(0, 0, 1)), 1
		}
	}
	for _, layout := range []string{"2006-1", "2006/1", "1.2006", "1/2006"} {
		if t, err := time.ParseInLocation(layout, w, c.asked.Location()); err == nil {
			return during(t, t.AddDate(0, 1, 0)), 1
		}
	}
	return span{}, 0
}

// The beginnings of months' names. Shorter words are months beside a number only, and so
// are "may" and "march", unless a word before them says that a time follows.
var (
	months = [][]string{{"january", "январ", "jan"}, {"february", "феврал", "feb"}, {"march", "март", "mar"},
		{"april", "апрел", "apr"}, {"may", "май", "мая", "мае", "маю", "маем"},
		{"june", "июн", "jun"}, {"july", "июл", "jul"}, {"august", "август", "aug"},
		{"september", "сентябр", "sep", "sept"}, {"october", "октябр", "oct"},
		{"november", "ноябр", "nov"}, {"december", "декабр", "dec"}}
	before = words(`in of last this next since during early late mid until till by from every past previous before after`)
)

// isMonth gives the month that a word names; sure is false if it may be another word.
func isMonth(w string) (month int, sure bool) {
	w = strings.ReplaceAll(w, ".", "")
	for i, names := range months {
		for _, name := range names {
			switch {
			case w == name:
				return i + 1, len(w) > 4 && w != "march" || w[0] >= 0x80 || w == "june" || w == "july"
			case name[0] >= 0x80 && len(name) > len("мая") && strings.HasPrefix(w, name) && len(w) <= len(name)+4:
				return i + 1, true
			}
		}
	}
	return 0, false
}

func (c clock) month() (span, int) {
	month, sure := isMonth(c.word(0))
	if month == 0 {
		return span{}, 0
	}
	used, day, year := 1, c.day(c.word(-1)), 0
	if day == 0 && c.word(-1) == "of" {
		day = c.day(c.word(-2))
	}
	if day == 0 {
		if day = c.day(c.word(1)); day > 0 {
			used++
		}
	}
	if year = yearOf(c.word(used)); year > 0 {
		used++
	}
	if !sure && day == 0 && year == 0 && !before[c.word(-1)] {
		return span{}, 0
	}
	yearly := year == 0
	if yearly {
		year = c.asked.Year()
		if time.Month(month) > c.asked.Month() || time.Month(month) == c.asked.Month() && day > c.asked.Day() {
			year--
		}
	}
	if day > 0 {
		t := c.on(year, month, day)
		return span{t, t.AddDate(0, 0, 1), yearly}, used
	}
	t := c.on(year, month, 1)
	return span{t, t.AddDate(0, 1, 0), yearly}, used
}

func (c clock) on(year, month, day int) time.Time {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, c.asked.Location())
}

// day is that of a month, 0 for a word that is none.
func (c clock) day(w string) int {
	for _, ordinal := range []string{"st", "nd", "rd", "th", "-го", "го", "-е", "-ого"} {
		w = strings.TrimSuffix(w, ordinal)
	}
	n, err := strconv.Atoi(w)
	if err != nil || n < 1 || n > 31 {
		return 0
	}
	return n
}

// yearOf is 0 for a word that is none.
func yearOf(w string) int {
	n, err := strconv.Atoi(w)
	if err != nil || len(w) != 4 || n < 1970 || n > 2100 {
		return 0
	}
	return n
}

func (c clock) year() (span, int) {
	year := yearOf(c.word(0))
	if year == 0 || !before[c.word(-1)] && !slices.Contains([]string{"в", "за", "с", "до", "к"}, c.word(-1)) &&
		!strings.HasPrefix(c.word(1), "год") {
		return span{}, 0
	}
	return during(c.on(year, 1, 1), c.on(year+1, 1, 1)), 1
}

// today is the beginning of a day so many days after the one of the question.
func (c clock) today(days int) time.Time {
	return c.on(c.asked.Year(), int(c.asked.Month()), c.asked.Day()+days)
}

// unit is what time is counted in: 'd', 'w', 'm', 'y', or 0.
func unit(w string) byte {
	switch {
	case w == "":
	case w == "day" || w == "days" || w == "день" || w == "дня" || w == "дней" || w == "дни":
		return 'd'
	case w == "week" || w == "weeks" || strings.HasPrefix(w, "недел"):
		return 'w'
	case w == "month" || w == "months" || strings.HasPrefix(w, "месяц"):
		return 'm'
	case w == "year" || w == "years" || w == "год" || w == "году" || w == "года" || w == "годы" || w == "лет":
		return 'y'
	}
	return 0
}

// seasons by their first month.
var seasons = map[string]int{"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "весной": 3, "весну": 3,
	"летом": 6, "лето": 6, "осенью": 9, "осень": 9, "зимой": 12, "зиму": 12}

// begin is when the day, week, month or year began that is so many before the present.
func (c clock) begin(u byte, back int) time.Time {
	switch u {
	case 'w':
		monday := (int(c.asked.Weekday()) + 6) % 7
		return c.today(-monday - 7*back)
	case 'm':
		return c.on(c.asked.Year(), int(c.asked.Month())-back, 1)
	case 'y':
		return c.on(c.asked.Year()-back, 1, 1)
	}
	return c.today(-back)
}

// back is how many units a word lies back: 1 for "last", 0 for "this", -1 for none.
func back(w string) int {
	switch {
	case w == "last" || w == "previous" || w == "past" || strings.HasPrefix(w, "прошл") ||
		strings.HasPrefix(w, "прошедш") || strings.HasPrefix(w, "предыдущ"):
		return 1
	case w == "this" || w == "current" || w == "этой" || w == "эту" || w == "этом" || w == "этот" || w == "этим":
		return 0
	}
	return -1
}

// relative is a day as it is called on another, or a unit of time before the present.
func (c clock) relative() (span, int) {
	switch c.word(0) {
	case "today", "tonight", "сегодня":
		return during(c.today(0), c.today(1)), 1
	case "yesterday", "вчера":
		return during(c.today(-1), c.today(0)), 1
	case "позавчера":
		return during(c.today(-2), c.today(-1)), 1
	case "day":
		if c.word(1) == "before" && c.word(2) == "yesterday" {
			return during(c.today(-2), c.today(-1)), 3
		}
	}
	latest := c.word(0) == "last" || c.word(0) == "past" || strings.HasPrefix(c.word(0), "последн")
	if n := number(c.word(1)); latest && n > 0 && unit(c.word(2)) != 0 {
		return during(c.before(unit(c.word(2)), n), c.today(1)), 3
	}
	if u := unit(c.word(1)); u != 0 && strings.HasPrefix(c.word(0), "последн") {
		return during(c.before(u, 1), c.today(1)), 2
	}
	n := back(c.word(0))
	if n < 0 {
		return span{}, 0
	}
	if u := unit(c.word(1)); u != 0 {
		return during(c.begin(u, n), c.begin(u, n-1)), 2
	}
	if c.word(1) == "weekend" {
		saturday := c.begin('w', n).AddDate(0, 0, 5)
		return during(saturday, saturday.AddDate(0, 0, 2)), 2
	}
	first, known := seasons[c.word(1)]
	if !known {
		return span{}, 0
	}
	start := c.on(c.asked.Year(), first, 1)
	for start.After(c.asked) || n == 1 && !start.AddDate(0, 3, 0).Before(c.asked) {
		start = start.AddDate(-1, 0, 0)
	}
	return during(start, start.AddDate(0, 3, 0)), 2
}

// before is the day so many units before the present one.
func (c clock) before(u byte, n int) time.Time {
	switch u {
	case 'w':
		return c.today(-7 * n)
	case 'm':
		return c.today(0).AddDate(0, -n, 0)
	case 'y':
		return c.today(0).AddDate(-n, 0, 0)
	}
	return c.today(-n)
}

// numbers by their words.
var numbers = map[string]int{
	"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
	"ten": 10, "couple": 2, "few": 3, "several": 4, "один": 1, "одну": 1, "два": 2, "две": 2, "три": 3, "четыре": 4,
	"пять": 5, "шесть": 6, "семь": 7, "восемь": 8, "девять": 9, "десять": 10, "пару": 2, "несколько": 4,
}

// number is what a word counts, 0 for a word that does not.
func number(w string) int {
	if n, known := numbers[w]; known {
		return n
	}
	n, err := strconv.Atoi(w)
	if err != nil || n < 1 || n > 1000 {
		return 0
	}
	return n
}

// ago is a time some units back, give or take one, and more for many.
func (c clock) ago() (span, int) {
	n, used := number(c.word(0)), 1
	if n > 0 && c.word(1) == "of" {
		used++
	}
	if n == 0 {
		n, used = 1, 0 // «неделю назад»
	}
	u := unit(c.word(used))
	if u == 0 {
		return span{}, 0
	}
	if end := c.word(used + 1); end != "ago" && end != "назад" && (end != "тому" || c.word(used+2) != "назад") {
		return span{}, 0
	}
	about := map[byte]int{'d': 0, 'w': 3, 'm': 15, 'y': 120}[u] + map[byte]int{'d': 1, 'w': 1, 'm': 5, 'y': 30}[u]*n/4
	day := c.before(u, n)
	return during(day.AddDate(0, 0, -about), day.AddDate(0, 0, about+1)), used + 2
}

// weekdays by the beginnings of their names, from Sunday on.
var weekdays = [][]string{{"sunday", "воскресен"}, {"monday", "понедельник"}, {"tuesday", "вторник"},
	{"wednesday", "сред"}, {"thursday", "четверг"}, {"friday", "пятниц"}, {"saturday", "суббот"}}

// weekday is the latest of its name before the day of the question.
func (c clock) weekday() (span, int) {
	w := c.word(0)
	for i, names := range weekdays {
		if w != names[0] && (!strings.HasPrefix(w, names[1]) || len(w) > len(names[1])+4) {
			continue
		}
		if strings.HasPrefix(w, "сред") && w != "среду" { // «среди» is another word
			continue
		}
		days := (int(c.asked.Weekday())-i+6)%7 + 1
		return during(c.today(-days), c.today(-days+1)), 1
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
