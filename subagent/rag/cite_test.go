package rag

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/memory/event"
)

// three are passages that an answer may cite as [1] to [3].
var three = []Passage{
	{ID: "guide#0", DocID: "guide", Title: "Guide", Source: "https://docs.example/guide", Collection: "docs", Hash: "a",
		Start: 100,
		Text:  "Everyone has 28 days of leave. It starts on 2024-03-12.\n\nThe fee is 1,500.50 euros."},
	{ID: "lunch#2", DocID: "lunch", Title: "Lunch", Source: "lunch.md", Collection: "docs", Hash: "b",
		Text: "Lunch is at 12:30 for 5 euros."},
	{ID: "ru#0", DocID: "ru", Title: "Отпуск", Source: "ru.md", Collection: "docs", Hash: "c",
		Text: "Отпуск начинается 5 мая 2023 года. Всего 10 000 рублей."},
}

func kinds(a event.Answer) []string {
	list := []string{}
	for _, f := range a.Flags {
		list = append(list, f.Kind+" "+f.Text)
	}
	return list
}

// numbered are passages by number, from 1.
func numbered(passages ...Passage) *scope {
	s := &scope{passages: map[int]*support{}}
	for i, p := range passages {
		s.passages[i+1] = passageSupport(p)
	}
	return s
}

func numbersOf(a event.Answer) []int {
	list := []int{}
	for _, c := range a.Citations {
		list = append(list, c.N)
	}
	return list
}

func TestMarkersAreChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		response, answer string
		cites            []int
		flags            []string
	}{
		"good":         {"There are 28 days [1].", "There are 28 days [1].", []int{1}, []string{}},
		"several":      {"It is so [1][3].", "It is so [1][3].", []int{1, 3}, []string{}},
		"unknown":      {"It is so [4].", "It is so.", []int{}, []string{"unknown_marker 4"}},
		"zero":         {"It is so [0].", "It is so.", []int{}, []string{"unknown_marker 0"}},
		"leading zero": {"It is so [01].", "It is so [1].", []int{1}, []string{}},
		"huge": {"It is so [99999999999999999999].", "It is so.", []int{}, []string{
			"unknown_marker 99999999999999999999",
		}},
		"good and unknown": {"It is so [1][7] indeed.", "It is so [1] indeed.", []int{1}, []string{"unknown_marker 7"}},
		"list":             {"It is so [1, 2, 9].", "It is so [1][2].", []int{1, 2}, []string{"unknown_marker 9"}},
		"lenticular": {"It is so 【1】 and 【8†source】.", "It is so [1] and.", []int{1}, []string{
			"unknown_marker 8",
		}},
		"fullwidth":           {"It is so ［２］.", "It is so [2].", []int{2}, []string{}},
		"superscript":         {"It is so [¹].", "It is so [1].", []int{1}, []string{}},
		"never renumbered":    {"So [3]. Then [1].", "So [3]. Then [1].", []int{1, 3}, []string{}},
		"the same many times": {"So [1] and [1] and [1] and [1].", "So [1] and [1] and [1] and [1].", []int{1}, []string{}},
		"in code": {"Call `a[9]` or\n```\nb[7]\n```\nas said [2].",
			"Call `a[9]` or\n```\nb[7]\n```\nas said [2].", []int{2}, []string{}},
		"negative":            {"It is so [-1] [–2].", "It is so.", []int{}, []string{"unknown_marker -1", "unknown_marker –2"}},
		"decimal":             {"It is so [1.5] here [1].", "It is so here [1].", []int{1}, []string{"unknown_marker 1.5"}},
		"an interval":         {"It is in [0.5, 1.5] [1].", "It is in [0.5, 1.5] [1].", []int{1}, []string{"unverified 0.5", "unverified 1.5"}},
		"not a number":        {"See [a] and [x] [1].", "See [a] and [x] [1].", []int{1}, []string{}},
		"behind the sentence": {"It is so. [2] Next.", "It is so. [2] Next.", []int{2}, []string{}},
		"image and link": {"See ![x](https://evil.example/?q=1) and https://evil.example/a. [1]",
			"See ! [x]((link removed)) and (link removed). [1]", []int{1}, []string{
				"removed_link https://evil.example/?q=1", "removed_link https://evil.example/a"}},
		"link that is a source": {"See https://docs.example/guide. [1]", "See https://docs.example/guide. [1]", []int{1},
			[]string{}},
		"markdown link": {"See [here](https://evil.example) [1].", "See [here]((link removed)) [1].", []int{1},
			[]string{"removed_link https://evil.example"}},
		"data address": {"See data:text/html,x and www.evil.example [1].",
			"See (link removed) and (link removed) [1].", []int{1}, []string{
				"removed_link data:text/html,x", "removed_link www.evil.example",
			}},
		"image element": {`<img src="//evil.example/x"> It is so [1].`, `< img src="(link removed)"> It is so [1].`,
			[]int{1}, []string{"removed_link //evil.example/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := check(tt.response, numbered(three...))
			require.Equal(t, tt.answer, a.Answer)
			require.Equal(t, tt.cites, numbersOf(a))
			require.Equal(t, tt.flags, kinds(a))
		})
	}
}

func TestASentenceCitesAtMostThree(t *testing.T) {
	t.Parallel()
	given := append(append([]Passage{}, three...), three...)
	a := check("So it is [1][2][3][4][1]. And then [5] and [6].\nOr [4]", numbered(given...))
	require.Equal(t, "So it is [1][2][3][1]. And then [5] and [6].\nOr [4]", a.Answer)
	require.Equal(t, []string{"many_markers 4"}, kinds(a))
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, numbersOf(a))
	a = check("Call `a` [1][2][3]. Then `b` [4][5].", numbered(given...))
	require.Empty(t, kinds(a), "a line with code has sentences too")
	a = check("So it is. [1] [2] [3] [4] And more [5].", numbered(given...))
	require.Equal(t, []string{"many_markers 4"}, kinds(a))
}

// markers matches one or more numbers in any of the brackets that models write, with digits of any script.
var markers = regexp.MustCompile(
	`[\[【［][ \t\p{Zs}]*(\pN+(?:[ \t\p{Zs}]*[,;，、][ \t\p{Zs}]*\pN+)*)[ \t\p{Zs}]*(?:†[^\[【［\]】］\n]{0,40})?[\]】］]`,
)

// Whatever a model writes, what is left of its markers stands for passages that it
// was given.
func TestNoBadMarkerIsLeft(t *testing.T) {
	t.Parallel()
	pieces := []string{"[", "]", "1", "2", "3", "4", "0", "9", ",", " ", ".", "word ", "【", "】", "［", "］", "１", "¹",
		"†source", "`", "\n", "[1]", "[17]", "[2][2]"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 20).Draw(t, "pieces"), "")
		c := newChecker(numbered(three...))
		answer := c.write(text) + c.close(false)
		left := codeSpan.ReplaceAllString(answer, "code")
		for _, m := range markers.FindAllStringSubmatch(left, -1) {
			if !map[string]bool{"1": true, "2": true, "3": true}[m[1]] && !year.MatchString(m[0]) {
				t.Fatalf("%q became %q", text, answer)
			}
		}
	})
}

func TestNumbersAndDatesMustStandInACitedPassage(t *testing.T) {
	t.Parallel()
	for answer, unverified := range map[string][]string{
		"There are 28 days [1].":                               {},
		"There are 29 days [1].":                               {"29"},
		"There are 28 days [2].":                               {"28"},
		"The fee is 1500.50 euros [1].":                        {},
		"The fee is 1 500,5 euros [1].":                        {},
		"The fee is 1,500 euros [1].":                          {"1,500"},
		"The fee is 15 euros [1].":                             {"15"},
		"It starts on 12 March 2024 [1].":                      {},
		"It starts on March 12, 2024 [1].":                     {},
		"It starts on 12.03.2024 [1].":                         {},
		"It starts on 12 April 2024 [1].":                      {"12 Apr"},
		"It starts on 13 March 2024 [1].":                      {"13"},
		"It starts on 2024-03-13 [1].":                         {"2024-03-13"},
		"Lunch is at 12:30 [2].":                               {},
		"Lunch is at 12:45 [2].":                               {"12:45"},
		"Отпуск с 5 мая 2023 года, 10000 рублей [3].":          {},
		"Отпуск с 5 июня 2023 года, 10 000 рублей [3].":        {"5 июн"},
		"1. There are 28 days [1].\n2. Lunch is at 12:30 [2].": {},
		"Between 28 and 2024 [1].":                             {},
		"It costs 5 [2] and 028 [1].":                          {},
	} {
		var got []string
		a := check(answer, numbered(three...))
		for _, f := range a.Flags {
			require.Equal(t, Unverified, f.Kind, answer)
			got = append(got, f.Text)
		}
		require.ElementsMatch(t, unverified, got, answer)
	}
}

// Numbers in words are figures, too, with either in the passage. What tells of others, or counts what the answer itself
// lists, is none.
func TestNumbersInWordsMustStandInACitedPassage(t *testing.T) {
	t.Parallel()
	given := numbered(
		Passage{Text: "A cluster has 16384 hash slots, and 2,500,000 keys. " +
			"Nine nodes hold 205 of them; the rule is of 2024."},
		Passage{Text: "Sixteen thousand three hundred eighty-four slots belong to thirteen nodes and twenty-one clients."},
		Passage{Text: "В кластере тринадцать узлов, двадцать один клиент и " +
			"шестнадцать тысяч триста восемьдесят четыре слота, 10 000 рублей."},
		Passage{Text: "Der Cluster hat dreizehn Knoten und 16 Tausend Slots."})
	for answer, unverified := range map[string][]string{
		"There are sixteen thousand slots [1].":                                        {"sixteen thousand"},
		"There are sixteen thousand three hundred and eighty-four slots [1].":          {},
		"There are 16384 slots [2] on 13 nodes [2] for 21 clients [2].":                {},
		"There are three nodes [1].":                                                   {"three"},
		"There are 3 nodes [1].":                                                       {"3"},
		"There are nine nodes [1], that is 9 nodes [1].":                               {},
		"There are two and a half million keys, 2.5 million [1].":                      {},
		"It is 2.5 million keys [1], and two hundred and five slots of it [1].":        {},
		"It is 3.5 million keys [1].":                                                  {"3.5 million"},
		"It came in two thousand twenty-four [1], not in two thousand twenty-five.":    {"two thousand twenty-five"},
		"**Thirty** nodes hold Nine hundred slots [2].":                                {"Thirty", "Nine hundred"},
		"Узлов тринадцать, 13 [3], а рублей десять тысяч, 10 тысяч [3].":               {},
		"На тринадцати узлах живут двадцать три клиента [3].":                          {"двадцать три"},
		"Слотов шестнадцать тысяч триста восемьдесят четыре, 16384 [3].":               {},
		"У нас четырнадцать узлов и трём не хватает [3].":                              {"четырнадцать", "трём"},
		"Es sind dreizehn Knoten mit 16000 Slots [4], und vierzehn Leute [4].":         {"vierzehn"},
		"One can say that no one of the two, or all three, has thousands of keys [1].": {},
		"It needs two-factor checks, a two-thirds majority and a hundred reasons [1].": {},
		"There are three ways [1]:\n- one\n- another\n- a third":                       {},
		"Одним словом, эти два узла знают тысячи ключей [1].":                          {},
	} {
		a := check(answer, given)
		got := []string{}
		for _, f := range a.Flags {
			require.Equal(t, Unverified, f.Kind, answer)
			got = append(got, f.Text)
		}
		require.ElementsMatch(t, unverified, got, answer)
	}
}

// An answer that denies the only figure of a sentence is wrong where the passage states it. What the user asked about
// may be denied.
func TestADeniedFigureMustBeDeniedInThePassage(t *testing.T) {
	t.Parallel()
	s := numbered(
		Passage{Text: "There are 16384 slots. A ticket costs 14 crowns, for children 7.\nIt does not cost nine crowns."},
		Passage{Text: "В кластере 16384 слота. Рублей не 9."})
	s.supports = []*support{{text: "Does it take 30 days?"}}
	for answer, unverified := range map[string][]string{
		"There are **not** 16384 slots [1].":               {"not** 16384"},
		"There aren't 16384 slots [1].":                    {"n't 16384"},
		"There are no 16384 slots [1].":                    {"are no 16384"},
		"It does not have 16384 slots [1]. It has others.": {"not have 16384"},
		"Слотов не 16384 [2].":                             {"не 16384"},
		"Es sind nicht 16384 Slots [1].":                   {"nicht 16384"},
		"There are 16384 slots [1]. That is not in doubt.": {},
		"It costs 7 crowns for children, not 14 [1].":      {},
		"It is not 9 crowns [1], nor is it not nine [1].":  {},
		"No, it is not 30 days [1].":                       {},
		"There are not more than 16384 slots [1].":         {},
		"There are not only 16384 slots [1].":              {},
		"Bus no 14 goes there [1].":                        {},
		"Рублей не 9 [2].":                                 {},
	} {
		a := check(answer, s)
		got := []string{}
		for _, f := range a.Flags {
			require.Equal(t, Unverified, f.Kind, answer)
			got = append(got, f.Text)
		}
		require.ElementsMatch(t, unverified, got, answer)
	}
}

// The same number may be written in many ways. A raised figure, a sign and a half of the day change it.
func TestANumberMayBeWrittenInManyWays(t *testing.T) {
	t.Parallel()
	for passage, answers := range map[string]struct{ good, bad []string }{
		"The fee is 500² euros.":             {[]string{"500", "500.00", "€500", "five hundred"}, []string{"5002", "250,000", "2"}},
		"The fee is 500^2 euros.":            {[]string{"500", "500²"}, []string{"5002", "502"}},
		"The fee is 500 [2] euros.":          {[]string{"500"}, []string{"5002"}},
		"The fee is 500.² More follows.":     {[]string{"500"}, []string{"500.2", "5002"}},
		"The fee is ¹500 euros.":             {[]string{"500"}, []string{"1500"}},
		"Pay 1) 500 euros.":                  {[]string{"500"}, []string{"1500"}},
		"It takes 3½ hours.":                 {[]string{"3.5", "3,5", "3 1/2", "3½"}, []string{"31", "312", "3"}},
		"It takes 3 1/2 hours.":              {[]string{"3.5", "3½"}, []string{"31", "35"}},
		"It moves 10⁶ litres.":               {[]string{"1,000,000", "1000000", "10^6", "1e6", "1 million"}, []string{"106", "10^5"}},
		"It moves 10^6 litres.":              {[]string{"1.000.000", "1 000 000", "1’000’000"}, []string{"106"}},
		"It moves 1e6 litres.":               {[]string{"1,000,000", "10⁶"}, []string{"16"}},
		"It moves 3.2 × 10^3 litres.":        {[]string{"3,200", "3200", "3.2·10³"}, []string{"3.2103", "103"}},
		"It weighs 10⁻³ grams.":              {[]string{"0.001", "10^-3", "1e-3"}, []string{"103", "1000"}},
		"It moves 10,00,000 litres.":         {[]string{"1,000,000", "1000000"}, []string{"10,000"}},
		"It is −5 degrees.":                  {[]string{"−5", "-5", "minus 5", "minus five"}, []string{"5", "five"}},
		"It is -5 degrees.":                  {[]string{"−5"}, []string{"5"}},
		"It is 5 degrees.":                   {[]string{"5", "+5"}, []string{"−5", "-5"}},
		"It is -$5 a day, 3-7 days.":         {[]string{"-$5", "−5", "7"}, []string{"5", "-7"}},
		"Sales: −5 %.":                       {[]string{"a loss of 5 %"}, []string{"5 %"}},
		"Dinner is at 19:30.":                {[]string{"7:30 pm", "7.30 p.m.", "19:30", "19h30"}, []string{"7:30 am", "7:30", "9:30 pm"}},
		"Dinner is at 7:30 pm.":              {[]string{"19:30", "7:30", "7:30 PM", "19.30"}, []string{"7:30 am", "8:30"}},
		"Lunch is at 12:15 pm, tea at 4 pm.": {[]string{"12:15", "16:00", "4", "16"}, []string{"0:15", "4 am"}},
		"ثمنه ٥٠٠ دينار و١٬٠٠٠٬٠٠٠":          {[]string{"500", "1,000,000"}, []string{"50"}},
		"इसकी कीमत ५०० रुपये है":             {[]string{"500"}, []string{"50"}},
		"It costs ５００ yen.":                  {[]string{"500"}, []string{"50"}},
		"The limit is 1,500.50 or 2.500,25.": {[]string{"1500.5", "1 500,50", "2500.25"}, []string{"1,500", "150050"}},
	} {
		for want, list := range map[bool][]string{true: answers.good, false: answers.bad} {
			for _, figure := range list {
				a := check("So it is "+figure+" [1].", numbered(Passage{Text: passage}))
				require.Equal(t, want, len(a.Flags) == 0, "%q of %q: %v", figure, passage, a.Flags)
			}
		}
	}
}

// What a passage says supports that: each is tried as an answer from itself, whole and sentence by sentence. A date that a
// unit of time is attached to may be read otherwise where the sentence begins elsewhere.
func TestPassagesSupportThemselvesOutsideData(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, set := range []string{"xquad-ru", "cranfield", "cacm", "mtrag-mini"} {
		tried, flagged := 0, 0
		for at, p := range sharedSet(t, set) {
			if at%10 > 0 {
				continue
			}
			own := numbered(p)
			for _, said := range append(sentenceRest.Split(p.Text, -1), p.Text) {
				tried++
				for _, f := range own.unsupported(said) {
					if f.Kind == Unverified {
						t.Logf("%s %s: %q of %s", set, p.ID, f.Text, said)
						flagged++
					}
				}
			}
		}
		require.LessOrEqual(t, flagged*500, tried, set)
	}
}

// A quote is always a piece of its text, and not longer than allowed.
func TestEveryQuoteIsAPieceOfItsPassage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(
			rapid.SliceOf(rapid.OneOf(rapid.StringN(0, 300, -1),
				rapid.SampledFrom([]string{"a b. c", " \n\n ", "слово "}))).Draw(t, "text"), "",
		)
		text = strings.ToValidUTF8(text, "")
		start, end, _ := bestQuote(text, rapid.String().Draw(t, "said"))
		if start < 0 || end > len(text) || start > end || len([]rune(text[start:end])) > maxCitation {
			t.Fatalf("%d to %d of %q", start, end, text)
		}
	})
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		response, answer string
		status           string
		missing          []string
	}{
		"plain with citation": {"There are 28 days [1].", "There are 28 days [1].", event.Answered, []string{}},
		"plain without":       {"There are some days.", "There are some days.", event.NotFound, []string{}},
		"plain question":      {"Which year do you mean?", "Which year do you mean?", event.Underspecified, []string{}},
		"said": {"There are 28 days [1].\n\nstatus: partial\nmissing: the fee; the date",
			"There are 28 days [1].", event.Partial, []string{"the fee", "the date"}},
		"said the other way": {"There are 28 days [1].\nMissing: the fee\n**Status: Partial**",
			"There are 28 days [1].", event.Partial, []string{"the fee"}},
		"nothing missing": {"There are 28 days [1].\nstatus: answered\nmissing: none", "There are 28 days [1].",
			event.Answered, []string{}},
		"not found": {"It is not said.\nStatus: not found", "It is not said.", event.NotFound, []string{}},
		"underspecified": {"Tell me the year.\nstatus: underspecified", "Tell me the year.", event.Underspecified,
			[]string{}},
		"claims without citations": {"There are 28 days.\nstatus: answered", "There are 28 days.", event.NotFound,
			[]string{}},
		"cites what is not there": {"There are 28 days [9].\nstatus: answered", "There are 28 days.", event.NotFound,
			[]string{}},
		"missing alone": {"There are 28 days [1].\nmissing: the fee", "There are 28 days [1].", event.Partial,
			[]string{"the fee"}},
		"empty":       {"", "The documents do not answer this.", event.NotFound, []string{}},
		"status only": {"status: not_found", "The documents do not answer this.", event.NotFound, []string{}},
		"status in the text": {"Its status: answered by mail [1].", "Its status: answered by mail [1].", event.Answered,
			[]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := check(tt.response, numbered(three...))
			require.Equal(t, tt.answer, a.Answer)
			require.Equal(t, tt.status, a.Status)
			require.Equal(t, tt.missing, a.Missing)
		})
	}
}

// Of a table a row is quoted, and not what happens to stand around it.
func TestAQuoteOfATableIsARow(t *testing.T) {
	t.Parallel()
	table := Passage{
		ID: "t#0", DocID: "t", Text: "| limit | metres |\n| --- | --- |\n| length | 40 |\n| draught | 3 |\n\nMore follows.",
	}
	a := check("The draught is 3 metres at most [1].", numbered(table))
	require.Len(t, a.Citations, 1)
	require.Equal(t, "| draught | 3 |", a.Citations[0].Quote)
}
