package recall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimesInQuestions(t *testing.T) {
	wednesday := time.Date(2024, 3, 6, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string][]string{
		"what did I say on 2024-03-05?":   {"2024-03-05 2024-03-06"},
		"the plan of 2024-03":             {"2024-03-01 2024-04-01"},
		"встреча 15.02.2024":              {"2024-02-15 2024-02-16"},
		"in March 2023":                   {"2023-03-01 2023-04-01"},
		"in May":                          {"2023-05-01 2023-06-01"},
		"in February":                     {"2024-02-01 2024-03-01"},
		"on 7 July, 2023":                 {"2023-07-07 2023-07-08"},
		"on August 3rd":                   {"2023-08-03 2023-08-04"},
		"on the 3rd of August":            {"2023-08-03 2023-08-04"},
		"Sept. 5":                         {"2023-09-05 2023-09-06"},
		"during 2022":                     {"2022-01-01 2023-01-01"},
		"between January and February":    {"2024-01-01 2024-03-01"},
		"in November last year":           {"2023-11-01 2023-12-01"},
		"last year in November":           {"2023-11-01 2023-12-01"},
		"last year, on 5 May":             {"2023-05-05 2023-05-06"},
		"on Monday last week":             {"2024-02-26 2024-02-27"},
		"in the summer of last year":      {"2023-06-01 2023-09-01"},
		"in summer 2022":                  {"2022-06-01 2022-09-01"},
		"in early March 2023":             {"2023-03-01 2023-03-11"},
		"at the end of March 2023":        {"2023-03-21 2023-04-01"},
		"from May to July 2023":           {"2023-05-01 2023-08-01"},
		"since February":                  {"2024-02-01 2024-03-07"},
		"before February":                 {"0001-01-01 2024-02-01"},
		"two weeks before 11 May 2023":    {"2023-04-20 2023-05-11"},
		"in the week before May 11, 2023": {"2023-04-27 2023-05-11"},
		"the Sunday before May 11, 2023":  {"2023-05-04 2023-05-11"},
		"in June or in July":              {"2023-06-01 2023-07-01", "2023-07-01 2023-08-01"},
		"the march in May":                {"2023-05-01 2023-06-01"},
		"в ноябре прошлого года":          {"2023-11-01 2023-12-01"},
		"в июне":                          {"2023-06-01 2023-07-01"},
		"июлем 2022":                      {"2022-07-01 2022-08-01"},
		"в конце мая":                     {"2023-05-21 2023-06-01"},
		"с марта по май 2022":             {"2022-03-01 2022-06-01"},
		"в понедельник на прошлой неделе":   {"2024-02-26 2024-02-27"},
		"летом 2022 года":                   {"2022-06-01 2022-09-01"},
		"yesterday":                         {"2024-03-05 2024-03-06"},
		"the day before yesterday":          {"2024-03-04 2024-03-05"},
		"today":                             {"2024-03-06 2024-03-07"},
		"last week":                         {"2024-02-26 2024-03-04"},
		"this month":                        {"2024-03-01 2024-04-01"},
		"last year":                         {"2023-01-01 2024-01-01"},
		"last weekend":                      {"2024-03-02 2024-03-04"},
		"last summer":                       {"2023-06-01 2023-09-01"},
		"last Friday":                       {"2024-03-01 2024-03-02"},
		"on Wednesday":                      {"2024-02-28 2024-02-29"},
		"three days ago":                    {"2024-03-03 2024-03-04"},
		"a couple of days ago":              {"2024-03-04 2024-03-05"},
		"over the last 3 days":              {"2024-03-03 2024-03-07"},
		"что я говорил в мае":               {"2023-05-01 2023-06-01"},
		"15 мая 2023 года":                  {"2023-05-15 2023-05-16"},
		"в январе":                          {"2024-01-01 2024-02-01"},
		"в 2022 году":                       {"2022-01-01 2023-01-01"},
		"вчера":                             {"2024-03-05 2024-03-06"},
		"Позавчера":                         {"2024-03-04 2024-03-05"},
		"на прошлой неделе":                 {"2024-02-26 2024-03-04"},
		"в прошлом году":                    {"2023-01-01 2024-01-01"},
		"прошлым летом":                     {"2023-06-01 2023-09-01"},
		"в прошлую пятницу":                 {"2024-03-01 2024-03-02"},
		"три дня назад":                     {"2024-03-03 2024-03-04"},
		"за последние три дня":              {"2024-03-03 2024-03-07"},
		"неделю тому назад":                 {"2024-02-25 2024-03-03"},
		"What may I do? The march was long": nil,
		"среди друзей майор мартышкин":           nil,
		"Flask 2.3.1 on 127.0.0.1, 2024 lines":   nil,
		"what is left of the second apple ago":   nil,
		"the dayside of a sunny Mondaymorning":   nil,
		"последний раз, прошлый опыт, this idea": nil,
	} {
		var got []string
		for _, s := range times(text, wednesday).spans {
			got = append(got, s.start.Format(time.DateOnly)+" "+s.end.Format(time.DateOnly))
		}
		assert.Equal(t, want, got, text)
	}
}

// Days begin and end as the clocks of a zone do, on the days of a change, too.
func TestTimesInAZone(t *testing.T) {
	for _, c := range []struct{ zone, asked, text, from, to string }{
		{"Asia/Tokyo", "2026-03-05T23:30:00+09:00", "yesterday", "2026-03-04T00:00:00+09:00", "2026-03-05T00:00:00+09:00"},
		{"Asia/Tokyo", "2026-03-06T00:30:00+09:00", "yesterday", "2026-03-05T00:00:00+09:00", "2026-03-06T00:00:00+09:00"},
		{"America/Los_Angeles", "2026-03-05T23:30:00-08:00", "today", "2026-03-05T00:00:00-08:00", "2026-03-06T00:00:00-08:00"},
		{"Asia/Kathmandu", "2026-03-05T00:30:00+05:45", "yesterday", "2026-03-04T00:00:00+05:45", "2026-03-05T00:00:00+05:45"},
		{"Pacific/Kiritimati", "2026-01-01T00:30:00+14:00", "last year", "2025-01-01T00:00:00+14:00", "2026-01-01T00:00:00+14:00"},
		{"Europe/Berlin", "2026-03-29T12:00:00+02:00", "today", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"Europe/Berlin", "2026-03-30T00:30:00+02:00", "yesterday", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"Europe/Berlin", "2026-10-25T23:30:00+01:00", "last Sunday", "2026-10-18T00:00:00+02:00", "2026-10-19T00:00:00+02:00"},
		{"Europe/Berlin", "2026-10-26T23:30:00+01:00", "on Sunday", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"Europe/Berlin", "2026-11-15T12:00:00+01:00", "last month", "2026-10-01T00:00:00+02:00", "2026-11-01T00:00:00+01:00"},
		{"Europe/Berlin", "2026-10-26T12:00:00+01:00", "one day ago", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		// Midnight does not exist: the clock goes from 24:00 to 01:00.
		{"Africa/Cairo", "2026-04-24T12:00:00+03:00", "today", "2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"},
		{"America/Santiago", "2026-09-06T12:00:00-03:00", "today", "2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"},
		{"America/Santiago", "2026-09-06T12:00:00-03:00", "yesterday", "2026-09-05T00:00:00-04:00", "2026-09-06T01:00:00-03:00"},
		{"America/Santiago", "2026-09-06T12:00:00-03:00", "two days ago", "2026-09-04T00:00:00-04:00", "2026-09-05T00:00:00-04:00"},
		{"America/Santiago", "2026-09-10T12:00:00-03:00", "on 2026-09-06", "2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"},
		// Midnight comes twice: the clock goes from 01:00 to 00:00.
		{"America/Havana", "2026-11-01T12:00:00-05:00", "today", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
	} {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		asked, err := time.Parse(time.RFC3339, c.asked)
		require.NoError(t, err)
		got := times(c.text, asked.In(zone)).spans
		if assert.Len(t, got, 1, c.text) {
			assert.Equal(t, c.from+" "+c.to, got[0].start.Format(time.RFC3339)+" "+got[0].end.Format(time.RFC3339), "%+v", c)
		}
	}
}
