package recall

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/textindex"
)

// A search that scores only what can be among the best finds what one finds that scores all, so that what recall makes of
// it (lending, favors) is the same.
func TestPrunedSearchesFindWhatAllScoresDo(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"english", "german"} {
		s := newSpeech(language)
		ix := New(key)
		ix.Append(s.messages(3_000)...)
		questions := append(s.questions(40, 0, 30), s.questions(40, 20, 3_000)...)
		for _, q := range questions {
			for _, query := range []textindex.Query{
				{Limit: pool, Terms: maxTerms}, {Limit: laterPool, MaxFrequency: 500}, {Limit: 1 + rand.IntN(20)},
			} {
				query.Text, query.Duplicates = q, true
				pruned := ix.words.Search(query)
				limit := query.Limit
				query.Limit = ix.Len()
				all := ix.words.Search(query)
				require.Equal(t, all.Hits[:min(limit, len(all.Hits))], pruned.Hits, q)
				require.InDelta(t, all.Strength, pruned.Strength, 0)
			}
		}
	}
}
