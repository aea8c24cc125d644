package recall

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mneme/memory"
)

// A chat of 100,000 messages: how long it takes until the newest are found, until all are,
// and how long a search takes then.
func BenchmarkLargeChat(b *testing.B) {
	const messages, segment = 100_000, 1_000
	raw := conversation(messages)
	var queries []string
	for i := range 200 {
		m, err := memory.Decode(raw[i*(messages/200) : i*(messages/200)+1])
		if err != nil {
			b.Fatal(err)
		}
		words := strings.Fields(m[0].Content)
		queries = append(queries, "what did I say about "+strings.Join(words[5:11], " ")+"?")
	}
	build := func() (ix *Index, first time.Duration) {
		began := time.Now()
		ix = New(key)
		ix.Append(raw[messages-segment:]...)
		Search([]*Index{ix}, Query{Text: queries[0]})
		first = time.Since(began)
		for end := messages - segment; end > 0; end -= segment {
			ix.Prepend(raw[end-segment : end]...)
		}
		return ix, first
	}
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			ix, first := build()
			b.ReportMetric(float64(first.Microseconds())/1000, "ms/first-answer")
			b.ReportMetric(float64(ix.Size())/messages, "bytes/message")
		}
	})
	ix, _ := build()
	search := func(b *testing.B, questions int, q Query) {
		var times []time.Duration
		for i := 0; b.Loop(); i++ {
			first := i % (len(queries) - questions)
			q.Text = strings.Join(queries[first:first+questions], " ")
			began := time.Now()
			Search([]*Index{ix}, q)
			times = append(times, time.Since(began))
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "ms/p95")
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/median")
	}
	b.Run("search", func(b *testing.B) { search(b, 1, Query{}) })
	b.Run("search-4000", func(b *testing.B) { search(b, 1, Query{Budget: 4000}) })
	b.Run("search-bounded", func(b *testing.B) { search(b, 1, Query{From: start.AddDate(0, 0, 20)}) })
	b.Run("search-task", func(b *testing.B) { search(b, 20, Query{}) })
	b.Run("append", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			ix.Append(said("b."+time.Now().String(), memory.RoleUser, queries[i%len(queries)], start))
		}
	})
}
