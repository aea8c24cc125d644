package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mneme/memory/textindex"
	"mneme/subagent/rag"
)

// reachFiltered is how many times as long a search may take with a filter.
const reachFiltered = 2

// filter measures searches behind filters of metadata against the same ones without,
// each query in all ways, one after the other.
func (s *searched) filter(ctx context.Context) error {
	s.options.Progress(fmt.Sprintf("filtering %s passages", count(s.passages)))
	metadata := map[string]map[string]string{}
	for number := range s.passages/perDocument + 1 {
		metadata[documentID(number)] = map[string]string{"part": strconv.Itoa(number % 100), "lang": "en"}
	}
	where := func(json string) func() *textindex.Filter {
		return func() *textindex.Filter {
			w, err := rag.ParseWhere([]byte(json))
			if err != nil {
				panic(err) // those below are right
			}
			match := w.Matcher()
			return textindex.NewFilter(func(id string) bool { return match(metadata[id]) })
		}
	}
	few, most := where(`{"lang": "en", "part": "7"}`), where(`{"lang": "en", "part": {"lte": 98}}`)
	kept := [2]*textindex.Filter{few(), most()}
	times := [5][]float64{}
	for range s.options.Queries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q := s.texts.query()
		for way, filter := range []func() *textindex.Filter{
			func() *textindex.Filter { return nil },
			func() *textindex.Filter { return kept[0] }, func() *textindex.Filter { return kept[1] }, few, most,
		} {
			start := time.Now()
			q.Filter = filter()
			s.index.Search(q)
			times[way] = append(times[way], milliseconds(time.Since(start)))
		}
	}
	for way := range times {
		slices.Sort(times[way])
	}
	for way, what := range []string{
		"", "a filter that 1 of 100 documents passes", "one that 99 of 100 pass", "the first of the two, never used before", "the second, never used before",
	} {
		if way > 0 {
			s.row("search behind "+what+" ÷ without, medians", "×", quantile(times[way], 0.5)/quantile(times[0], 0.5), reachFiltered)
		}
	}
	return nil
}
