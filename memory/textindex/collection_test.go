package textindex

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
		for i, p := range d.Passages {
			var heading []string
			heading = append(append(heading, Terms(d.Title)...), Terms(p.Section)...)
			slices.Sort(heading)
			heading = slices.Compact(heading)
			terms := slices.Concat(Terms(p.Text), heading, heading, heading)
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
		for _, q := range new(analyzer).query(question, nil) {
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

// rounded are hits whose scores differ by more than what adding in another order
// does.
func rounded(hits []Hit) []Hit {
	list := []Hit{}
	for _, h := range hits {
		list = append(list, Hit{Document: h.Document, Passage: h.Passage, Score: math.Round(h.Score*1e9) / 1e9})
	}
	slices.SortFunc(list, Hit.compare)
	return list
}

// However documents come and go, searches find what a look at every word of the
// present ones finds, with the same scores.
func TestIndexFindsWhatARescanFinds(t *testing.T) {
	words := func(most int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, most), func(w []string) string {
			return strings.Join(w, " ")
		})
	}
	passage := rapid.Custom(func(t *rapid.T) Passage {
		return Passage{Section: words(2).Draw(t, "section"), Text: words(8).Draw(t, "text")}
	})
	id := rapid.SampledFrom(strings.Split("abcdefghijklmnop", ""))
	doc := rapid.Custom(func(t *rapid.T) Document {
		return Document{ID: id.Draw(t, "id"), Title: words(2).Draw(t, "title"),
			Passages: rapid.SliceOfN(passage, 0, 4).Draw(t, "passages")}
	})
	rapid.Check(t, func(t *rapid.T) {
		c, model, version := NewCollection(), map[string]Document{}, uint64(0)
		filters := map[string]*Filter{}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				change := Change{Put: rapid.SliceOfN(doc, 0, 5).Draw(t, "put"), Delete: rapid.SliceOfN(id, 0, 3).Draw(t, "delete")}
				if rapid.Bool().Draw(t, "numbered") {
					change.Version = version + 10
				}
				version = cmp.Or(change.Version, version+1)
				c.Apply(change)
				for _, id := range change.Delete {
					delete(model, id)
				}
				for _, d := range change.Put {
					model[d.ID] = d
				}
			},
			"": func(t *rapid.T) {
				question := words(5).Draw(t, "question")
				refused := id.Draw(t, "refused")
				accept := func(id string) bool { return id != refused }
				if filters[refused] == nil { // it lives on while the collection changes
					filters[refused] = NewFilter(accept)
				}
				filter := filters[refused]
				want := rescan(model, question, math.MaxInt, accept)
				result := c.Search(Query{Text: question, Limit: 1000, Filter: filter, Duplicates: true})
				require.Equal(t, rounded(want), rounded(result.Hits))
				require.True(t, slices.IsSortedFunc(result.Hits, Hit.compare))
				limit := rapid.IntRange(0, 5).Draw(t, "limit")
				few := c.Search(Query{Text: question, Limit: limit, Filter: filter, Duplicates: true})
				require.Equal(t, result.Hits[:min(limit, len(result.Hits))], few.Hits[:len(few.Hits):len(few.Hits)])
				require.Equal(t, version, result.Version)
				documents, passages := c.Snapshot().Len()
				require.Len(t, model, documents)
				for _, d := range model {
					passages -= len(d.Passages)
				}
				require.Zero(t, passages)
			},
		})
	})
}

// Ten thousand changes in two collections: what is deleted, replaced or of the other
// collection is never found, and what is there is.
func TestNothingDanglesOverManyChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	collections := []*Collection{NewCollection(), NewCollection()}
	present := []map[string]string{{}, {}} // the word that only this version has
	for i := range 10_000 {
		n := random.IntN(2)
		id := fmt.Sprintf("d%d", random.IntN(300))
		before := present[n][id]
		if random.IntN(3) == 0 {
			collections[n].Delete(id)
			delete(present[n], id)
		} else {
			word := fmt.Sprintf("v%dv", i)
			collections[n].Put(document(id, "common "+word, "second "+word))
			present[n][id] = word
			require.Equal(t, []string{id, id + "#1"}, search(collections[n], word))
			require.Empty(t, search(collections[1-n], word))
		}
		if before != "" {
			require.Empty(t, search(collections[n], before))
		}
		if i%500 == 0 {
			found := collections[n].Search(Query{Text: "common", Limit: 1000, Duplicates: true}).Hits
			require.Len(t, found, len(present[n]))
			for _, h := range found {
				require.Contains(t, present[n], h.Document)
			}
		}
	}
	for n, c := range collections {
		require.Less(t, len(c.Snapshot().parts), 40)
		for id := range present[n] {
			c.Delete(id)
		}
		require.Empty(t, c.Snapshot().parts, "what is gone takes no room")
		require.Empty(t, c.places)
		require.Empty(t, c.sample)
	}
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
