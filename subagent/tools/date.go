package tools

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mneme/memory"
	"mneme/subagent/loop"
)

const (
	dateLayout = "2006-01-02"
	dayLayout  = "2006-01-02 Monday"
)

// Limits of the numbers handed to add: the whole calendar, once across.
const (
	maxYears  = 9999
	maxMonths = 12 * maxYears
	maxDays   = 366 * maxYears
)

// date calculates in the proleptic Gregorian calendar, years 1 to 9999. Years
// and months are added first and together; if the day does not exist in the
// month reached, its last day is taken (January 31 + 1 month is February 28 or
// 29). Days are added after that.
type date struct {
	now func() time.Time
}

var dateSpec = loop.Spec{
	Name: "date",
	Description: "Exact date arithmetic and the current date. Operations: now (current date, time and zone); " +
		"add (date plus years, months and days, negative to subtract; a day that the month does not have becomes its last " +
		"day); " +
		"diff (from date to other, in days and in years, months, days); weekday (of date).",
	Parameters: schema(`{
		"type": "object",
		"properties": {
			"operation": {"type": "string", "enum": ["now", "add", "diff", "weekday"], "description": "What to do."},
			"date": {"type": "string", "description": "The date to start from, YYYY-MM-DD. Needed for add, diff and weekday."},
			"other": {"type": "string", "description": "The second date of diff, YYYY-MM-DD."},
			"days": {"type": "integer", "description": "Days to add, negative to subtract."},
			"months": {"type": "integer", "description": "Months to add, negative to subtract."},
			"years": {"type": "integer", "description": "Years to add, negative to subtract."}
		},
		"required": ["operation"],
		"additionalProperties": false
	}`),
	Parallel: true,
}

type dateArguments struct {
	Operation string `json:"operation"`
	Date      string `json:"date"`
	Other     string `json:"other"`
	Days      int    `json:"days"`
	Months    int    `json:"months"`
	Years     int    `json:"years"`
}

// Spec presents the date tool.
func (date) Spec() loop.Spec { return dateSpec }

// Computes implements loop.Computing.
func (date) Computes() {}

// Call does what the arguments say and returns one line of text.
func (d date) Call(ctx context.Context, call memory.ToolCall) (string, error) {
	var a dateArguments
	if err := decode(call, &a); err != nil {
		return "", err
	}
	if err := a.check(); err != nil {
		return "", err
	}
	if a.Operation == "now" {
		now := d.now()
		return now.In(memory.ZoneOf(ctx, now.Location())).Format(dayLayout + ", 15:04:05 MST (-07:00)"), nil
	}
	start, err := parseDate("date", a.Date)
	if err != nil {
		return "", err
	}
	switch a.Operation {
	case "add":
		return a.add(start)
	case "diff":
		end, err := parseDate("other", a.Other)
		if err != nil {
			return "", err
		}
		return difference(start, end), nil
	}
	return start.Format(dayLayout), nil
}

// check refuses unknown operations, fields that the operation does not use and
// numbers out of range. Fields set to nothing ("" or 0) count as left out, since
// many models fill in all of them.
func (a dateArguments) check() error {
	uses, ok := map[string]string{"now": "", "add": "date days months years", "diff": "date other",
		"weekday": "date"}[a.Operation]
	if !ok {
		return fmt.Errorf(`the field "operation" must be now, add, diff or weekday, not %q`, a.Operation)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"date", a.Date != ""}, {"other", a.Other != ""}, {"days", a.Days != 0}, {"months", a.Months != 0},
		{"years", a.Years != 0},
	} {
		if f.set && !strings.Contains(uses, f.name) {
			return fmt.Errorf("the field %q has no meaning for %s, leave it out", f.name, a.Operation)
		}
	}
	for _, f := range []struct {
		name         string
		value, limit int
	}{
		{"days", a.Days, maxDays}, {"months", a.Months, maxMonths}, {"years", a.Years, maxYears},
	} {
		if f.value > f.limit || f.value < -f.limit {
			return fmt.Errorf("the field %q must be from -%d to %d, not %d", f.name, f.limit, f.limit, f.value)
		}
	}
	return nil
}

func (a dateArguments) add(start time.Time) (string, error) {
	end := addMonths(start, 12*a.Years+a.Months).AddDate(0, 0, a.Days)
	if end.Year() < 1 || end.Year() > 9999 {
		return "", fmt.Errorf("the result lies outside of the years 1 to 9999")
	}
	return end.Format(dayLayout), nil
}

func parseDate(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, fmt.Errorf("the field %q must be set to a date, YYYY-MM-DD", field)
	}
	t, err := time.Parse(dateLayout, text)
	switch {
	case err == nil && t.Year() >= 1:
		return t, nil
	case err == nil || strings.Contains(err.Error(), "out of range"):
		return time.Time{}, fmt.Errorf("the field %q must be a day of the calendar, years 0001 to 9999; %q is none", field,
			text)
	}
	return time.Time{}, fmt.Errorf("the field %q must be a date, YYYY-MM-DD, not %q", field, text)
}

// addMonths keeps the day of the month, or takes the month's last.
func addMonths(t time.Time, months int) time.Time {
	year, month, day := t.Date()
	first := time.Date(year, month+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(day, last)-1)
}

// difference tells the days from one date to another, negative if the second is
// earlier, and the distance in the calendar: the most whole months that addMonths
// can add to the earlier date without passing the later one, and the days left.
func difference(start, end time.Time) string {
	days := int((end.Unix() - start.Unix()) / (24 * 60 * 60))
	first, last := start, end
	if days < 0 {
		first, last = end, start
	}
	months, rest := calendar(first, last)
	text := count(days, "day")
	if months > 0 {
		text += " = " + count(months/12, "year") + ", " + count(months%12, "month") + ", " + count(rest, "day")
		if days < 0 {
			text += " back"
		}
	}
	return text + " (from " + start.Format(dayLayout) + " to " + end.Format(dayLayout) + ")"
}

// calendar splits the distance into whole months and days; earlier comes first.
func calendar(first, last time.Time) (months, days int) {
	months = 12*(last.Year()-first.Year()) + int(last.Month()) - int(first.Month())
	if addMonths(first, months).After(last) {
		months--
	}
	return months, int(last.Sub(addMonths(first, months)).Hours() / 24)
}

func count(n int, unit string) string {
	if n != 1 && n != -1 {
		unit += "s"
	}
	return strconv.Itoa(n) + " " + unit
}
