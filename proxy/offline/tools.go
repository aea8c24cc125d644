package offline

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// toolkit holds the tools that the model can recognise, each by its name, description and schema:
//
//   - a calculator mentions calculation, arithmetic or expressions and takes one required string;
//   - date arithmetic mentions dates or days and has an enumerated string property for the operation;
//   - a search mentions searching or documents and takes one required string.
type toolkit struct {
	calculator *tool
	dates      *tool
	search     *tool
}

func newToolkit(offered []tool) toolkit {
	var k toolkit
	for _, t := range offered {
		about := fold(t.Name + " " + t.Description)
		single := t.onlyString() != ""
		switch {
		case k.dates == nil && mentions(about, "date", "day", "calendar", "дат", "дней") && t.operation() != "":
			k.dates = &t
		case k.calculator == nil && single && mentions(about, "calc", "arithmetic", "expression", "evaluat", "вычисл", "арифмет"):
			k.calculator = &t
		case k.search == nil && single && mentions(about, "search", "document", "passage", "retriev", "lookup", "look up", "поиск", "документ"):
			k.search = &t
		}
	}
	return k
}

func mentions(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// operation is the name of the enumerated property of t, "" when there is none; of several, the first by name.
func (t tool) operation() string {
	found := ""
	for name, p := range t.InputSchema.Properties {
		if len(p.Enum) > 0 && (found == "" || name < found) {
			found = name
		}
	}
	return found
}

// job is the work of tools on one step.
type job interface {
	// next is the call to make after the results done, false when there is none left.
	next(done []use) (call, bool)
	// conclude says the answer from all results.
	conclude(done []use, l lang) string
	// searches says whether the results are passages to be read, not an answer.
	searches() bool
}

// jobFor picks the tool for a question or command; nil means memory alone.
func (k toolkit) jobFor(st step) job {
	if k.dates != nil {
		if work := dateWork(st.text); work != nil && (work.op == opNow || work.op == opWeekday || len(work.dates)+len(work.shift) > 0) {
			if j := newDateJob(*k.dates, *work); j != nil {
				return j
			}
		}
	}
	if k.calculator != nil {
		if expr, ok := arithmetic(st.text, styleOf(*k.calculator)); ok {
			return &singleCall{tool: *k.calculator, argument: expr}
		}
	}
	if k.search != nil {
		return &singleCall{tool: *k.search, argument: shorten(strings.TrimRight(st.text, "?!. "), maxQuery), search: true}
	}
	return nil
}

// maxQuery bounds a search, in bytes; a longer question is pasted text, whose beginning says what it is about.
const maxQuery = 800

// singleCall is one call of a tool that takes one string.
type singleCall struct {
	tool     tool
	argument string
	search   bool
}

func (s *singleCall) next(done []use) (call, bool) {
	return call{tool: s.tool.Name, input: arguments{}.text(s.tool.onlyString(), s.argument)}, len(done) == 0
}

func (s *singleCall) searches() bool { return s.search }

func (s *singleCall) conclude(done []use, _ lang) string {
	result := plainResult(done[0].result)
	if strings.Contains(result, "=") {
		return terminated(result, ".")
	}
	if strings.HasPrefix(result, "≈") {
		return fmt.Sprintf("%s %s.", s.argument, strings.TrimRight(result, ". "))
	}
	return fmt.Sprintf("%s = %s.", s.argument, strings.TrimRight(result, ". "))
}

// plainResult is the value of a tool's result: itself, or the one telling field of a JSON object.
func plainResult(s string) string {
	var obj map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &obj) != nil {
		return s
	}
	for _, key := range []string{"result", "value", "answer", "text", "date", "weekday", "days"} {
		raw, ok := obj[key]
		if !ok {
			continue
		}
		var str string
		if json.Unmarshal(raw, &str) == nil {
			return str
		}
		return string(raw)
	}
	return s
}

// dateJob is date arithmetic; a step relative to today asks for today's date first.
type dateJob struct {
	tool tool
	work dateQuestion
	ops  map[dateOp]string
}

// operationNames are the spellings under which a tool may list an operation.
var operationNames = map[dateOp][]string{
	opAdd:     {"add", "plus", "shift", "offset"},
	opDiff:    {"diff", "difference", "between", "days_between"},
	opWeekday: {"weekday", "day_of_week", "dayofweek"},
	opNow:     {"now", "today", "current"},
}

// newDateJob returns nil when the tool lacks an operation that the work needs.
func newDateJob(t tool, work dateQuestion) *dateJob {
	j := &dateJob{tool: t, work: work, ops: map[dateOp]string{}}
	for _, v := range t.InputSchema.Properties[t.operation()].Enum {
		name, _ := v.(string)
		for op, names := range operationNames {
			if slices.Contains(names, strings.ToLower(name)) {
				j.ops[op] = name
			}
		}
	}
	if j.ops[work.op] == "" || work.relative && j.ops[opNow] == "" {
		return nil
	}
	return j
}

func (j *dateJob) searches() bool { return false }

func (j *dateJob) next(done []use) (call, bool) {
	input := arguments{}
	c := call{tool: j.tool.Name, input: input}
	operation := j.tool.operation()
	dates := j.work.dates
	if j.work.relative {
		if len(done) == 0 {
			input.text(operation, j.ops[opNow])
			return c, true
		}
		today := isoDate.FindString(done[0].result)
		if today == "" {
			return call{}, false
		}
		dates = j.work.resolve(today)
		done = done[1:]
	}
	if len(done) > 0 {
		return call{}, false
	}
	input.text(operation, j.ops[j.work.op])
	names := j.tool.dateProperties()
	for i := range min(len(dates), len(names)) {
		input.text(names[i], dates[i])
	}
	for unit, n := range j.work.shift {
		if _, ok := j.tool.InputSchema.Properties[unit]; ok {
			input.number(unit, n)
		}
	}
	return c, true
}

// dateProperties are the properties that take a date: the one counted from, then the other.
func (t tool) dateProperties() []string {
	var out []string
	for _, group := range [][]string{{"date", "from", "start", "start_date", "date1", "a"}, {"other", "to", "end", "until", "end_date", "date2", "b"}} {
		for _, name := range group {
			if p, ok := t.InputSchema.Properties[name]; ok && p.Type == "string" {
				out = append(out, name)
				break
			}
		}
	}
	return out
}

var isoDate = regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}\b`)

// sayDate is a tool's line without the repetition of its arguments, with the names that a Russian answer would not use
// put into Russian.
func sayDate(result string, l lang) string {
	if i := strings.Index(result, " (from "); i > 0 {
		result = result[:i]
	}
	if l == ru {
		result = russianDates.Replace(result)
	}
	return strings.TrimRight(result, ". ")
}

var russianDates = strings.NewReplacer("Monday", "понедельник", "Tuesday", "вторник", "Wednesday", "среда", "Thursday", "четверг",
	"Friday", "пятница", "Saturday", "суббота", "Sunday", "воскресенье", " days", " дн.", " day", " дн.", " months", " мес.", " month", " мес.",
	" years", " г.", " year", " г.", " back", " назад")

func (j *dateJob) conclude(done []use, l lang) string {
	result := sayDate(plainResult(done[len(done)-1].result), l)
	dates := j.work.dates
	if j.work.relative {
		if today := isoDate.FindString(done[0].result); today != "" {
			dates = j.work.resolve(today)
		}
	}
	switch {
	case j.work.op == opDiff && len(dates) == 2:
		if isNumber(strings.TrimPrefix(result, "-")) {
			result += l.pick(" days", " дн.")
		}
		return terminated(fmt.Sprintf(l.pick("From %s to %s: %s", "С %s по %s: %s"), dates[0], dates[1], result), ".")
	case j.work.op == opNow:
		return terminated(l.pick("Today: ", "Сегодня: ")+result, ".")
	case len(dates) == 0:
		return terminated(result, ".")
	case j.work.op == opAdd:
		return terminated(fmt.Sprintf("%s %s: %s", dates[0], j.work.shiftText(l), result), ".")
	}
	return terminated(dates[0]+": "+result, ".")
}
