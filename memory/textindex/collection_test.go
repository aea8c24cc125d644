package textindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

var vocabulary = []string{"cat", "dog", "sun", "moon", "tree", "кошка", "день", "река"}

// rescan ranks documents for a question by looking at every word of them.
func rescan(documents map[string]Document, question string, limit int, accept func(string) bool) []Hit {
	type text struct {
		hit    Hit
		counts map[string]float64
		length float64
	}
	var all []text
	total := 0.0
	frequency := map[string]float64{}
	for id, d := range documents {
		for i, terms := range PassageTerms(d) {
			x := text{Hit{Document: id, Passage: i}, map[string]float64{}, float64(len(terms))}
			for _, term := range terms {
				if x.counts[term]++; x.counts[term] == 1 {
					frequency[term]++
				}
			}
			total += x.length
			all = append(all, x)
		}
	}
	average := total / float64(len(all))
	var hits []Hit
	for _, x := range all {
		for _, q := range new(analyzer).query(question, nil, anyLanguage) {
			idf := math.Log(1 + (float64(len(all))-frequency[q.text]+0.5)/(frequency[q.text]+0.5))
			n := x.counts[q.text]
			x.hit.Score += q.weight * idf * (1.2 + 1) * n / (n + 1.2*(1-0.75) + 1.2*0.75/average*x.length)
		}
		if x.hit.Score > 0 && accept(x.hit.Document) {
			hits = append(hits, x.hit)
		}
	}
	slices.SortFunc(hits, Hit.compare)
	return hits[:min(limit, len(hits))]
}

// rounded are hits with scores that differ by more than what adding in another order
// does.
func rounded(hits []Hit) []Hit {
	list := []Hit{}
	for _, h := range hits {
		list = append(list, Hit{Document: h.Document, Passage: h.Passage, Score: math.Round(h.Score*1e9) / 1e9})
	}
	slices.SortFunc(list, Hit.compare)
	return list
}

// A snapshot stays as it was.
func TestSnapshotsDoNotChange(t *testing.T) {
	c := NewCollection()
	for i := range 30 {
		c.Put(document(fmt.Sprintf("d%02d", i), "apple"))
	}
	old := c.Snapshot()
	before := old.Search(Query{Text: "apple", Limit: 100, Duplicates: true})
	for i := range 20 {
		c.Put(document(fmt.Sprintf("d%02d", i), "pear"))
	}
	c.Delete("d29")
	require.Equal(t, before, old.Search(Query{Text: "apple", Limit: 100, Duplicates: true}))
	require.Len(t, c.Search(Query{Text: "apple", Limit: 100, Duplicates: true}).Hits, 9)
}

// In which order, how many at a time and on how many processors documents came does
// not show.
func TestResultsDependOnTheDocumentsOnly(t *testing.T) {
	var documents []Document
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 700 {
		d := document(fmt.Sprintf("d%03d", i))
		for range 1 + i%3 {
			var words []string
			for range 5 + random.IntN(20) {
				words = append(words, vocabulary[random.IntN(len(vocabulary))])
			}
			d.Passages = append(d.Passages, Passage{Text: strings.Join(words, " ")})
		}
		documents = append(documents, d)
	}
	queries := []Query{
		{Text: "cat", Limit: 20}, {Text: "moon tree кошка", Limit: 2000, Duplicates: true},
		{Text: "день", History: []memory.Message{{Role: memory.RoleUser, Content: "sun dog"}}, Limit: 50},
	}
	at := NewCollection()
	at.Put(documents...)
	single := NewCollection()
	random.Shuffle(len(documents), func(i, j int) { documents[i], documents[j] = documents[j], documents[i] })
	for _, d := range documents {
		single.Put(Document{ID: d.ID})
		single.Put(d)
	}
	for _, q := range queries {
		first, again, other := at.Search(q), at.Search(q), single.Search(q)
		require.Equal(t, first, again)
		require.Len(t, other.Hits, len(first.Hits))
		for i, h := range other.Hits {
			require.Equal(t, Hit{Document: h.Document, Passage: h.Passage, Score: h.Score},
				Hit{Document: first.Hits[i].Document, Passage: first.Hits[i].Passage, Score: first.Hits[i].Score})
		}
	}
}

// While documents are replaced, every search sees each of them once, old or new.
func TestSearchesSeeADocumentOldOrNew(t *testing.T) {
	const documents, rounds = 20, 60
	c := NewCollection()
	put := func(round int) {
		for i := range documents {
			c.Put(document(fmt.Sprintf("d%02d", i), fmt.Sprintf("common r%dr", round), fmt.Sprintf("other r%dr", round)))
		}
	}
	put(0)
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			version := uint64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				result := c.Search(Query{Text: "common", Limit: 1000, Duplicates: true})
				seen := map[string]int{}
				for _, h := range result.Hits {
					seen[h.Document]++
					if h.Passage != 0 {
						t.Errorf("passage %d has no such word", h.Passage)
					}
				}
				if len(seen) != documents || len(result.Hits) != documents {
					t.Errorf("%d hits of %d documents", len(result.Hits), len(seen))
				}
				if result.Version < version {
					t.Errorf("version %d after %d", result.Version, version)
				}
				version = result.Version
			}
		})
	}
	var writers sync.WaitGroup
	writers.Go(func() {
		for round := range rounds {
			put(round)
		}
	})
	writers.Go(func() {
		for i := range rounds * 10 {
			c.Put(document(fmt.Sprintf("x%d", i%7), "else"))
			c.Delete(fmt.Sprintf("x%d", (i+3)%7))
		}
	})
	writers.Wait()
	close(done)
	group.Wait()
}
