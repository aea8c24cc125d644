package textindex_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/textindex"
)

// The benchmarks index documents of four passages, made of words that are about as
// frequent as those of English, the same in every run: 11,000 passages, and 95,000 unless
// -short is given. scripts/eval retrieval measures the quality of the hits.

const passagesOfDocument = 4

// madeUp makes the same documents and queries in every run.
type madeUp struct {
	*rand.Rand
	zipf *rand.Zipf
}

func newMadeUp() *madeUp {
	r := rand.New(rand.NewPCG(1, 2))
	return &madeUp{r, rand.NewZipf(r, 1.01, 30, 80_000-1)}
}

func (m *madeUp) document(number int, mark string) textindex.Document {
	d := textindex.Document{ID: fmt.Sprintf("document-%06d", number), Title: m.text(3, 8)}
	for range passagesOfDocument {
		d.Passages = append(d.Passages, textindex.Passage{Section: m.text(2, 5), Text: m.text(60, 180) + " " + mark})
	}
	return d
}

// query is a question; every other one has a conversation of three turns before it.
func (m *madeUp) query(i int) textindex.Query {
	q := textindex.Query{Text: m.text(3, 12), Limit: 10}
	for range 3 * (i % 2) {
		q.History = append(q.History, memory.Message{Role: memory.RoleUser, Content: m.text(3, 12)},
			memory.Message{Role: memory.RoleAssistant, Content: m.text(60, 180)})
	}
	return q
}

// text has words of syllables, the frequent ones being short.
func (m *madeUp) text(least, most int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for range least + m.IntN(most-least+1) {
		for n := m.zipf.Uint64() + 1; n > 0; n /= uint64(len(consonants) * len(vowels)) {
			b.WriteByte(consonants[n%uint64(len(consonants))])
			b.WriteByte(vowels[n/uint64(len(consonants))%uint64(len(vowels))])
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// sizes runs a benchmark over collections that it fills.
func sizes(b *testing.B, f func(b *testing.B, m *madeUp, c *textindex.Collection, passages int)) {
	for _, passages := range []int{11_000, 95_000} {
		if testing.Short() && passages > 11_000 {
			continue
		}
		m, c := newMadeUp(), textindex.NewCollection()
		for n := 0; n < passages/passagesOfDocument; n += 250 {
			var batch []textindex.Document
			for i := range 250 {
				batch = append(batch, m.document(n+i, ""))
			}
			c.Put(batch...)
		}
		b.Run(fmt.Sprintf("%d", passages), func(b *testing.B) { f(b, m, c, passages) })
	}
}

func BenchmarkSearch(b *testing.B) {
	sizes(b, func(b *testing.B, m *madeUp, c *textindex.Collection, _ int) {
		queries := make([]textindex.Query, 1000)
		for i := range queries {
			queries[i] = m.query(i)
		}
		for i := 0; b.Loop(); i++ {
			c.Search(queries[i%len(queries)])
		}
	})
}

// A document is added until a search shows it, and deleted until one does not.
func BenchmarkChangeSeen(b *testing.B) {
	sizes(b, func(b *testing.B, m *madeUp, c *textindex.Collection, passages int) {
		d := m.document(passages, "qmarkq")
		seen := func() int { return len(c.Search(textindex.Query{Text: "qmarkq", Limit: 1}).Hits) }
		for b.Loop() {
			c.Put(d)
			require.Equal(b, 1, seen())
			c.Delete(d.ID)
			require.Zero(b, seen())
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	m := newMadeUp()
	batch := make([]textindex.Document, 2750)
	for i := range batch {
		batch[i] = m.document(i, "")
	}
	for b.Loop() {
		textindex.NewCollection().Put(batch...)
	}
	b.ReportMetric(float64(passagesOfDocument*len(batch)), "passages")
}
