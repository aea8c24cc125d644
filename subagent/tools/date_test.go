package tools

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

func TestDate(t *testing.T) {
	for _, c := range []struct{ name, arguments, want string }{
		{"now in the clock's zone", `{"operation":"now"}`, "2026-02-03 Tuesday, 14:05:06 MSK (+03:00)"},
		{"empty fields count as left out", `{"operation":"now","date":"","other":"","days":0,"months":0,"years":0}`,
			"2026-02-03 Tuesday, 14:05:06 MSK (+03:00)"},
		{"days over a leap day", `{"operation":"add","date":"2024-02-28","days":2}`, "2024-03-01 Friday"},
		{"days over no leap day", `{"operation":"add","date":"2023-02-28","days":2}`, "2023-03-02 Thursday"},
		{"days back", `{"operation":"add","date":"2025-01-01","days":-1}`, "2024-12-31 Tuesday"},
		{"end of month in a leap year", `{"operation":"add","date":"2024-01-31","months":1}`, "2024-02-29 Thursday"},
		{"end of month in another year", `{"operation":"add","date":"2023-01-31","months":1}`, "2023-02-28 Tuesday"},
		{"leap day in another year", `{"operation":"add","date":"2024-02-29","years":1}`, "2025-02-28 Friday"},
		{"leap day to leap day", `{"operation":"add","date":"2024-02-29","years":4}`, "2028-02-29 Tuesday"},
		{"years and months together", `{"operation":"add","date":"2023-01-31","years":1,"months":1}`, "2024-02-29 Thursday"},
		{"months back over the year", `{"operation":"add","date":"2024-03-31","months":-4}`, "2023-11-30 Thursday"},
		{"days after months", `{"operation":"add","date":"2024-01-31","months":1,"days":1}`, "2024-03-01 Friday"},
		{"nothing to add", `{"operation":"add","date":"2024-01-31"}`, "2024-01-31 Wednesday"},
		{"no leap year in 1900", `{"operation":"add","date":"1900-02-28","days":1}`, "1900-03-01 Thursday"},
		{"weekday", `{"operation":"weekday","date":"1970-01-01"}`, "1970-01-01 Thursday"},
		{"first day", `{"operation":"weekday","date":"0001-01-01"}`, "0001-01-01 Monday"},
		{"difference", `{"operation":"diff","date":"2024-01-31","other":"2025-03-01"}`,
			"395 days = 1 year, 1 month, 1 day (from 2024-01-31 Wednesday to 2025-03-01 Saturday)"},
		{"short difference", `{"operation":"diff","date":"2026-02-03","other":"2026-02-04"}`,
			"1 day (from 2026-02-03 Tuesday to 2026-02-04 Wednesday)"},
		{"no difference", `{"operation":"diff","date":"2026-02-03","other":"2026-02-03"}`,
			"0 days (from 2026-02-03 Tuesday to 2026-02-03 Tuesday)"},
		{"difference back", `{"operation":"diff","date":"2025-03-01","other":"2024-01-31"}`,
			"-395 days = 1 year, 1 month, 1 day back (from 2025-03-01 Saturday to 2024-01-31 Wednesday)"},
		{"the whole calendar", `{"operation":"diff","date":"0001-01-01","other":"9999-12-31"}`,
			"3652058 days = 9998 years, 11 months, 30 days (from 0001-01-01 Monday to 9999-12-31 Friday)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := call(t, "date", c.arguments)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestDateInTheZoneOfTheRun(t *testing.T) {
	for zone, want := range map[string]string{
		"Asia/Kathmandu":      "2026-02-03 Tuesday, 16:50:06 +0545 (+05:45)",
		"Pacific/Kiritimati":  "2026-02-04 Wednesday, 01:05:06 +14 (+14:00)",
		"America/Los_Angeles": "2026-02-03 Tuesday, 03:05:06 PST (-08:00)",
	} {
		in, err := time.LoadLocation(zone)
		require.NoError(t, err)
		got, err := callIn(memory.WithZone(t.Context(), in), t, "date", `{"operation":"now"}`)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestDateRefuses(t *testing.T) {
	for _, c := range []struct{ name, arguments, want string }{
		{"no operation", `{}`, `the field "operation" must be now, add, diff or weekday, not ""`},
		{"unknown operation", `{"operation":"subtract"}`,
			`the field "operation" must be now, add, diff or weekday, not "subtract"`},
		{"no date", `{"operation":"weekday"}`, `the field "date" must be set to a date, YYYY-MM-DD`},
		{"no other date", `{"operation":"diff","date":"2024-01-01"}`, `the field "other" must be set to a date`},
		{"another layout", `{"operation":"weekday","date":"01.02.2024"}`,
			`the field "date" must be a date, YYYY-MM-DD, not "01.02.2024"`},
		{"no such day", `{"operation":"weekday","date":"2023-02-29"}`,
			`the field "date" must be a day of the calendar, years 0001 to 9999; "2023-02-29" is none`},
		{"year zero", `{"operation":"weekday","date":"0000-01-01"}`, `"0000-01-01" is none`},
		{"time behind the date", `{"operation":"diff","date":"2023-01-01","other":"2023-01-01T10:00"}`,
			`the field "other" must be a date`},
		{"number as text", `{"operation":"add","date":"2023-01-01","days":"5"}`,
			`the field "days" must be an integer, not string`},
		{"fraction", `{"operation":"add","date":"2023-01-01","months":1.5}`,
			`the field "months" must be an integer, not number 1.5`},
		{"date as number", `{"operation":"weekday","date":20230101}`, `the field "date" must be a string, not number`},
		{"field of another operation", `{"operation":"diff","date":"2023-01-01","other":"2023-01-02","days":3}`,
			`the field "days" has no meaning for diff, leave it out`},
		{"too many days", `{"operation":"add","date":"2023-01-01","days":9000000}`,
			`the field "days" must be from -3659634 to 3659634, not 9000000`},
		{"too many years", `{"operation":"add","date":"2023-01-01","years":10000}`,
			`the field "years" must be from -9999 to 9999`},
		{"out of the calendar", `{"operation":"add","date":"9999-12-31","days":1}`, `outside of the years 1 to 9999`},
		{"before the calendar", `{"operation":"add","date":"0001-01-01","months":-1}`, `outside of the years 1 to 9999`},
		{"unknown field", `{"operation":"now","zone":"UTC"}`, `unknown field "zone"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := call(t, "date", c.arguments)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func anyDay(t *rapid.T, label string) time.Time {
	first := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	return first.AddDate(0, 0, rapid.IntRange(0, 3652058).Draw(t, label))
}

// What diff tells, as days or as a calendar distance, is what add needs to get
// from the one date to the other.
func TestAddUndoesDiff(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from, to := anyDay(rt, "from"), anyDay(rt, "to")
		var days int
		_, err := fmt.Sscanf(difference(from, to), "%d day", &days)
		require.NoError(rt, err)
		add := func(a dateArguments) string {
			a.Operation, a.Date = "add", from.Format(dateLayout)
			b, err := json.Marshal(a)
			require.NoError(rt, err)
			got, err := call(t, "date", string(b))
			require.NoError(rt, err)
			return got
		}
		require.Equal(rt, to.Format(dayLayout), add(dateArguments{Days: days}))
		if days >= 0 {
			months, rest := calendar(from, to)
			require.Less(rt, rest, 31)
			require.Equal(rt, to.Format(dayLayout), add(dateArguments{Years: months / 12, Months: months % 12, Days: rest}))
		}
	})
}
