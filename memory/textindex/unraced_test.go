//go:build !race

// Everything here happens in one goroutine, so scripts/test runs it without the race detector, which finds nothing in
// it and takes twenty times as long.

package textindex

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
)

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
	testtier.Slow(t)
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

// What an analyzer remembers is bounded, and forgetting changes no terms.
func TestWordsAreForgotten(t *testing.T) {
	testtier.Slow(t)
	var a analyzer
	before := a.list("horses running")
	for i := 0; a.size <= maxKnown; i++ {
		a.list(fmt.Sprintf("word%d", i))
	}
	a.forget()
	require.Zero(t, a.size)
	require.Equal(t, before, a.list("horses running"))
	require.Len(t, a.words, 2)
}
