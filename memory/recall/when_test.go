package recall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTimesInQuestions(t *testing.T) {
	wednesday := time.Date(2024, 3, 6, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string][]string{
		"what did I say on 2024-03-05?":     {"2024-03-05 2024-03-06"},
		"the plan of 2024-03":               {"2024-03-01 2024-04-01"},
		"встреча 15.02.2024":                {"2024-02-15 2024-02-16"},
		"in March 2023":                     {"2023-03-01 2023-04-01"},
		"in May":                            {"2023-05-01 2023-06-01"},
		"in February":                       {"2024-02-01 2024-03-01"},
		"on 7 July, 2023":                   {"2023-07-07 2023-07-08"},
		"on August 3rd":                     {"2023-08-03 2023-08-04"},
		"on the 3rd of August":              {"2023-08-03 2023-08-04"},
		"Sept. 5":                           {"2023-09-05 2023-09-06"},
		"during 2022":                       {"2022-01-01 2023-01-01"},
		"between January and February":      {"2024-01-01 2024-02-01", "2024-02-01 2024-03-01"},
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
		spans, _ := times(text, wednesday)
		for _, s := range spans {
			got = append(got, s.from.Format(time.DateOnly)+" "+s.to.Format(time.DateOnly))
		}
		assert.Equal(t, want, got, text)
	}
}
