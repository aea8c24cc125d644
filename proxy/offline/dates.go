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
	op         dateOp
	dates      []string       // YYYY-MM-DD, in the order named
	shift      map[string]int // by "days", "months", "years"; negative is back
	sinceToday bool           // today comes first among the dates and has to be asked for
}

var (
	dmyDate   = regexp.MustCompile(`\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b`)
	dayMonth  = regexp.MustCompile(`(?i)(\d{1,2})(?:st|nd|rd|th)?(?:\s+of)?\s+(\p{L}{3,})\.?,?\s+(\d{4})`)
	monthDay  = regexp.MustCompile(`(?i)(\p{L}{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})`)
	spanOf    = regexp.MustCompile(`(?i)(\d{1,5})[\s-]+(\p{L}+)`)
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

// datesIn finds the full dates of s in their order.
func datesIn(s string) []string {
	type at struct {
		pos  int
		date string
	}
	var found []at
	add := func(pos int, y, m, d string) {
		year, _ := strconv.Atoi(y)
		month, _ := strconv.Atoi(m)
		day, _ := strconv.Atoi(d)
		iso := fmt.Sprintf("%04d-%02d-%02d", year, month, day)
		if _, err := time.Parse(time.DateOnly, iso); err == nil {
			found = append(found, at{pos, iso})
		}
	}
	for _, m := range isoDate.FindAllStringIndex(s, -1) {
		d := s[m[0]:m[1]]
		add(m[0], d[:4], d[5:7], d[8:])
	}
	for _, m := range dmyDate.FindAllStringSubmatchIndex(s, -1) {
		add(m[0], s[m[6]:m[7]], s[m[4]:m[5]], s[m[2]:m[3]])
	}
	for _, m := range dayMonth.FindAllStringSubmatchIndex(s, -1) {
		if month, ok := monthOf(fold(s[m[4]:m[5]])); ok {
			add(m[0], s[m[6]:m[7]], strconv.Itoa(month), s[m[2]:m[3]])
		}
	}
	for _, m := range monthDay.FindAllStringSubmatchIndex(s, -1) {
		if month, ok := monthOf(fold(s[m[2]:m[3]])); ok {
			add(m[0], s[m[6]:m[7]], strconv.Itoa(month), s[m[4]:m[5]])
		}
	}
	slices.SortStableFunc(found, func(a, b at) int { return a.pos - b.pos })
	var out []string
	for _, f := range found {
		out = append(out, f.date)
	}
	return out
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
	dates, shift := datesIn(s), shiftIn(s)
	switch {
	case len(dates) >= 2 && betweenRE.MatchString(s):
		return &dateQuestion{op: opDiff, dates: dates[:2]}
	case len(dates) == 1 && shift != nil && (backRE.MatchString(s) || onwardRE.MatchString(s)):
		return &dateQuestion{op: opAdd, dates: dates, shift: signed(shift, s)}
	case len(dates) == 1 && weekdayRE.MatchString(s):
		return &dateQuestion{op: opWeekday, dates: dates}
	case len(dates) == 1 && betweenRE.MatchString(s) && mentions(fold(s), "day", "дней", "день", "long", "осталось", "прошло"):
		return &dateQuestion{op: opDiff, dates: dates, sinceToday: true}
	case len(dates) == 0 && shift != nil && askDateRE.MatchString(s) && onlyDateWords(s) && (backRE.MatchString(s) || onwardRE.MatchString(s)):
		return &dateQuestion{op: opAdd, shift: signed(shift, s), sinceToday: true}
	case len(dates) == 0 && shift == nil && onlyDateWords(s) && (todayRE.MatchString(s) || weekdayRE.MatchString(s)) && askDateRE.MatchString(s):
		return &dateQuestion{op: opNow}
	}
	return nil
}

func signed(shift map[string]int, s string) map[string]int {
	if backRE.MatchString(s) {
		for unit := range shift {
			shift[unit] = -shift[unit]
		}
	}
	return shift
}

var dateVocabulary = words(`today today's date day days now time current weekday week weeks month months year years ago after before later
	сегодня сегодняшняя сегодняшнее число дата день дня дней недели неделя неделю сейчас текущая через назад месяц месяца месяцев год года лет будет какого после`)

// onlyDateWords says whether s speaks of nothing but dates, so that "what did I do today" is no date question.
func onlyDateWords(s string) bool {
	for _, t := range termsOf(s) {
		if t.self || t.content() && !dateVocabulary[t.low] && !isNumber(t.low) {
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
