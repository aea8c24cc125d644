package offline

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type dateOp int

const (
	opAdd dateOp = iota
	opDiff
	opWeekday
	opNow
)

// dateQuestion is a question that date arithmetic answers.
type dateQuestion struct {
	op       dateOp
	dates    []string       // YYYY-MM-DD, in the order named; --MM-DD is in the year nearest to today on the side asked about
	shift    map[string]int // by "days", "months", "years"; negative is back
	relative bool           // today belongs to the dates and has to be asked for
	past     bool           // counted from the date to today, not from today to the date
}

var (
	dmyDate   = regexp.MustCompile(`\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b`)
	dayMonth  = regexp.MustCompile(`(?i)(\d{1,2})(?:st|nd|rd|th)?(?:\s+of)?\s+(\p{L}{3,})\.?,?\s+(\d{4})`)
	monthDay  = regexp.MustCompile(`(?i)(\p{L}{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})`)
	spanOf    = regexp.MustCompile(`(?i)(\d{1,5})[\s-]+(\p{L}+)`)
	dayOnly   = regexp.MustCompile(`(?i)(\d{1,2})(?:st|nd|rd|th)?(?:\s+of)?\s+(\p{L}{3,})`)
	monthOnly = regexp.MustCompile(`(?i)(\p{L}{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?\b`)
	yearWord  = regexp.MustCompile(`(?i)^\s*(года|году|год|г\.)`)
	christmas = regexp.MustCompile(`(?i)\bchristmas( day)?\b`)
	newYear   = regexp.MustCompile(`(?i)\bnew year('s day|'s|s)?\b|нов(ого|ый|ому) год[ау]?`)
	eve       = regexp.MustCompile(`(?i)\beve\b|канун`)
	countRE   = regexp.MustCompile(`(?i)\bdays?\b|\bhow long\b|дней|день|дня|сколько (времени|еще|ещё|осталось|прошло)`)
	untilRE   = regexp.MustCompile(`(?i)\b(until|till|til|to|before|between)\s|(^|\s)до\s|через сколько|осталось|\bleft\b`)
	sinceRE   = regexp.MustCompile(`(?i)\b(since|after|from|ago|passed)\b|прошл[оа]|прошел|прошёл|назад|(^|\s)(с|со)\s`)
	fromToday = regexp.MustCompile(`(?i)\b(from|between) (today|now)\b|(с|от) (сегодня|этого дня|сейчас)`)
	betweenRE = regexp.MustCompile(`(?i)\b(between|difference|from|until|till|since|how many|how long)\b|между|сколько|разниц|прош|осталось|до `)
	backRE    = regexp.MustCompile(`(?i)\b(before|ago|minus|earlier|prior)\b|назад|\sдо\s|минус|раньше|отними|вычти`)
	onwardRE  = regexp.MustCompile(`(?i)\b(after|plus|add|from|in|later|and)\b|через|после|плюс|прибав|добав|спустя|\+`)
	weekdayRE = regexp.MustCompile(`(?i)day of the week|weekday|(what|which) day|день недели|какой день|какого дня`)
	todayRE   = regexp.MustCompile(`(?i)\b(today|now|current)\b|сегодня|сейчас|текущ`)
	askDateRE = regexp.MustCompile(`(?i)\b(date|day|when|what|which)\b|какое|какой|какая|когда|числ|дат`)
)

// monthOf is the month that a word begins like.
func monthOf(low string) (int, bool) {
	if len([]rune(low)) < 3 {
		return 0, false
	}
	list := monthStems
	if isCyrillic(low) {
		list = ruMonths
		if strings.HasPrefix(low, "мар") {
			return 3, true
		}
	}
	for i, m := range list {
		if !strings.HasPrefix(low, m) {
			continue
		}
		if m == "ма" && low != "мая" && low != "май" && low != "мае" {
			continue
		}
		if list[0] == "jan" && len(low) > 3 && !strings.HasPrefix(strings.ToLower(time.Month(i+1).String()), low) && low != "sept" {
			continue
		}
		return i + 1, true
	}
	return 0, false
}

// foundDate is a date with its place in a text.
type foundDate struct {
	from, to int
	date     string
}

// datesIn finds the full dates of s in their order.
func datesIn(s string) []string {
	var out []string
	for _, f := range findDates(s) {
		out = append(out, f.date)
	}
	return out
}

func findDates(s string) []foundDate {
	var found []foundDate
	add := func(m []int, y, mo, d string) {
		year, _ := strconv.Atoi(y)
		month, _ := strconv.Atoi(mo)
		day, _ := strconv.Atoi(d)
		iso := fmt.Sprintf("%04d-%02d-%02d", year, month, day)
		if _, err := time.Parse(time.DateOnly, iso); err == nil {
			found = append(found, foundDate{m[0], m[1], iso})
		}
	}
	for _, m := range isoDate.FindAllStringIndex(s, -1) {
		d := s[m[0]:m[1]]
		add(m, d[:4], d[5:7], d[8:])
	}
	for _, m := range dmyDate.FindAllStringSubmatchIndex(s, -1) {
		add(m, s[m[6]:m[7]], s[m[4]:m[5]], s[m[2]:m[3]])
	}
	for _, m := range dayMonth.FindAllStringSubmatchIndex(s, -1) {
		if month, ok := monthOf(fold(s[m[4]:m[5]])); ok {
			add(m, s[m[6]:m[7]], strconv.Itoa(month), s[m[2]:m[3]])
		}
	}
	for _, m := range monthDay.FindAllStringSubmatchIndex(s, -1) {
		if month, ok := monthOf(fold(s[m[2]:m[3]])); ok {
			add(m, s[m[6]:m[7]], strconv.Itoa(month), s[m[4]:m[5]])
		}
	}
	slices.SortStableFunc(found, func(a, b foundDate) int { return a.from - b.from })
	return found
}

// withoutDates is s with its full dates cut out, «года» behind them too, so that their years are not taken for spans.
func withoutDates(s string, found []foundDate) string {
	var sb strings.Builder
	from := 0
	for _, f := range found {
		if f.from < from {
			continue
		}
		sb.WriteString(s[from:f.from])
		sb.WriteByte(' ')
		from = f.to + len(yearWord.FindString(s[f.to:]))
	}
	sb.WriteString(s[from:])
	return sb.String()
}

// yearlessDate finds the one date of s that names no year, as --MM-DD, "" for none, and where it is.
func yearlessDate(s string) foundDate {
	at := func(m []int, month int, day string) foundDate {
		d, _ := strconv.Atoi(day)
		date := fmt.Sprintf("%02d-%02d", month, d)
		if _, err := time.Parse(time.DateOnly, "2000-"+date); err != nil { // a leap year
			return foundDate{}
		}
		return foundDate{m[0], m[1], "--" + date}
	}
	if m := dayOnly.FindStringSubmatchIndex(s); m != nil {
		if month, ok := monthOf(fold(s[m[4]:m[5]])); ok {
			return at(m, month, s[m[2]:m[3]])
		}
	}
	if m := monthOnly.FindStringSubmatchIndex(s); m != nil {
		if month, ok := monthOf(fold(s[m[2]:m[3]])); ok {
			return at(m, month, s[m[4]:m[5]])
		}
	}
	if eve.MatchString(s) {
		return foundDate{}
	}
	if m := christmas.FindStringIndex(s); m != nil {
		return at(m, 12, "25")
	}
	if m := newYear.FindStringIndex(s); m != nil {
		return at(m, 1, "1")
	}
	return foundDate{}
}

// inYear gives --MM-DD the year in which it comes next, or came last, seen from today. Other dates stay as they are.
func inYear(date, today string, past bool) string {
	monthDay, ok := strings.CutPrefix(date, "--")
	year, err := strconv.Atoi(today[:4])
	if !ok || err != nil {
		return date
	}
	step := 1
	if past {
		step = -1
	}
	for range 9 { // February 29 may be eight years away
		full := fmt.Sprintf("%04d-%s", year, monthDay)
		_, err := time.Parse(time.DateOnly, full)
		if err == nil && (past && full <= today || !past && full >= today) {
			return full
		}
		year += step
	}
	return date
}

// shiftIn finds "90 days", «2 недели» and the like.
func shiftIn(s string) map[string]int {
	shift := map[string]int{}
	for _, m := range spanOf.FindAllStringSubmatch(s, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		unit := fold(m[2])
		switch {
		case hasAnyPrefix(unit, "day", "дн", "день", "сут"):
			shift["days"] += n
		case hasAnyPrefix(unit, "week", "недел"):
			shift["days"] += 7 * n
		case hasAnyPrefix(unit, "month", "месяц"):
			shift["months"] += n
		case hasAnyPrefix(unit, "year", "год", "лет"):
			shift["years"] += n
		}
	}
	if len(shift) == 0 {
		return nil
	}
	return shift
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// dateWork reads s as a question for date arithmetic; nil when it is none.
func dateWork(s string) *dateQuestion {
	found := findDates(s)
	rest := withoutDates(s, found)
	dates, shift := datesIn(s), shiftIn(rest)
	switch {
	case len(dates) >= 2 && betweenRE.MatchString(s):
		return &dateQuestion{op: opDiff, dates: dates[:2]}
	case len(dates) == 1 && shift != nil && (backRE.MatchString(rest) || onwardRE.MatchString(rest)):
		return &dateQuestion{op: opAdd, dates: dates, shift: signed(shift, rest)}
	case len(dates) == 1 && weekdayRE.MatchString(rest):
		return &dateQuestion{op: opWeekday, dates: dates}
	case len(dates) == 1 && countsToToday(rest):
		return countFrom(dates[0], rest)
	case len(dates) > 0:
		return nil
	}
	if y := yearlessDate(s); y.date != "" {
		rest = withoutDates(s, []foundDate{y})
		switch {
		case countsToToday(rest):
			return countFrom(y.date, rest)
		case weekdayRE.MatchString(rest) && onlyDateWords(rest):
			return &dateQuestion{op: opWeekday, dates: []string{y.date}, relative: true}
		}
		return nil
	}
	switch {
	case shift != nil && askDateRE.MatchString(s) && onlyDateWords(s) && (backRE.MatchString(s) || onwardRE.MatchString(s)):
		return &dateQuestion{op: opAdd, shift: signed(shift, s), relative: true}
	case shift == nil && onlyDateWords(s) && (todayRE.MatchString(s) || weekdayRE.MatchString(s)) && askDateRE.MatchString(s):
		return &dateQuestion{op: opNow}
	}
	return nil
}

// countsToToday says whether s, a question without its date, counts the days between that date and today. What is
// counted stands before "until", "since" and the like; only after them may the date have a name ("until the launch").
func countsToToday(s string) bool {
	if !countRE.MatchString(s) || !untilRE.MatchString(s) && !sinceRE.MatchString(s) {
		return false
	}
	head := s
	for _, re := range []*regexp.Regexp{untilRE, sinceRE} {
		if at := re.FindAllStringIndex(s, -1); at != nil {
			head = s[:min(len(head), at[len(at)-1][0])]
		}
	}
	return onlyDateWords(head) && !slices.ContainsFunc(tokenize(s), isSelf)
}

func countFrom(date, rest string) *dateQuestion {
	past := sinceRE.MatchString(rest) && !fromToday.MatchString(rest)
	return &dateQuestion{op: opDiff, dates: []string{date}, relative: true, past: past}
}

// resolve is the dates of a relative question once today is known.
func (d dateQuestion) resolve(today string) []string {
	switch {
	case len(d.dates) == 0:
		return []string{today}
	case d.op == opWeekday:
		return []string{inYear(d.dates[0], today, false)}
	case d.past:
		return []string{inYear(d.dates[0], today, true), today}
	}
	return []string{today, inYear(d.dates[0], today, false)}
}

// isDateFragment says whether s asks for days without a question word: "days until 2026-12-25".
func isDateFragment(s string) bool {
	toks := tokenize(s)
	if len(toks) == 0 || len(toks) > 12 || !fragmentOpeners[toks[0].low] {
		return false
	}
	work := dateWork(s)
	return work != nil && work.op == opDiff
}

var fragmentOpeners = words("days day number дней")

func signed(shift map[string]int, s string) map[string]int {
	if backRE.MatchString(s) {
		for unit := range shift {
			shift[unit] = -shift[unit]
		}
	}
	return shift
}

var dateVocabulary = words(`today today's date day days now time current weekday week weeks month months year years ago after before later
	left remain remaining passed gone elapsed long
	осталось остается прошло прошел сколько времени сегодня сегодняшняя сегодняшнее число дата день дня дней недели неделя неделю сейчас текущая через назад месяц месяца месяцев год года лет будет какого после`)

// onlyDateWords says whether s speaks of nothing but dates, so that "what did I do today" is no date question.
func onlyDateWords(s string) bool {
	for _, t := range termsOf(s) {
		if t.self || t.content() && !dateVocabulary[t.low] && !calcCommands[t.low] && !isNumber(t.low) {
			return false
		}
	}
	return true
}

// shiftText says a shift as "+ 90 days".
func (d dateQuestion) shiftText(l lang) string {
	var parts []string
	for _, u := range []struct{ key, en, ru string }{{"years", "years", "г."}, {"months", "months", "мес."}, {"days", "days", "дн."}} {
		if n := d.shift[u.key]; n > 0 {
			parts = append(parts, fmt.Sprintf("+ %d %s", n, l.pick(u.en, u.ru)))
		} else if n < 0 {
			parts = append(parts, fmt.Sprintf("- %d %s", -n, l.pick(u.en, u.ru)))
		}
	}
	return strings.Join(parts, " ")
}
