package index

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTerms(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"English stems", "Running horses jumped", "run hors jump"},
		{"Russian stems", "Собаки бежали по улицам", "собак бежа улиц"},
		{"ё is е", "Ёлка ёлки", "елк елк"},
		{"decomposed letters", "мои\u0306 зеленыи\u0306", "мо зелен"},
		{"numbers and mixed words", "GPT-4o costs 20$ in 2026", "gpt 4o cost 20 2026"},
		{"stopwords of both languages", "what is the что это о", ""},
		{"apostrophes", "don't 'quoted' dog’s", "quot dog"},
		{"compatibility forms", "ﬁle №５", "file no5"},
		{"other scripts", "東京 ποταμός", "東京 ποταμός"},
		{"nothing", " — … !", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, strings.Join(Terms(c.text), " "))
		})
	}
	long := strings.Repeat("x", 1000)
	require.Equal(t, []string{long}, Terms(long))
}

func TestSearchRanks(t *testing.T) {
	texts := []string{
		"Cats sleep most of the day.",
		"Dogs bark. Dogs run. Dogs dig.",
		"A dog and a cat share one house in the quiet part of the old town by the river.",
		"Кошки спят почти весь день.",
	}
	s := Build(texts)
	order := func(query string) []int {
		var got []int
		for _, h := range Search([]*Segment{s}, query, 5) {
			got = append(got, h.Text)
		}
		return got
	}
	require.Equal(t, []int{1, 2}, order("dog"), "more often in a shorter text is better")
	require.Equal(t, []int{2, 0}, order("river cat"), "a rare word weighs more, and two words more than one")
	require.Equal(t, []int{3}, order("кошка"))
	require.Empty(t, order("elephant"))
	require.Empty(t, order("what is the"))
	require.Empty(t, Search(nil, "dog", 5))
	require.Len(t, Search([]*Segment{s}, "dog cat", 1), 1)
}

// The score is BM25, worked out by hand for two texts of two and three terms.
func TestSearchScore(t *testing.T) {
	hits := Search([]*Segment{Build([]string{"red apple", "green apple green"})}, "green green", 5)
	require.Len(t, hits, 1)
	idf := math.Log(1 + (2-1+0.5)/(1+0.5))
	want := idf * 2 * 2.2 / (2 + 1.2*(0.25+0.75*3/2.5))
	require.InDelta(t, want, hits[0].Score, 1e-12)
}

var words = []string{"cat", "dog", "sun", "moon", "tree", "кошка", "день", "река"}

// However the texts are spread over segments, the ranking is that of one index.
func TestSegmentsMakeOneIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(words), 0, 12), func(w []string) string { return strings.Join(w, " ") })
		texts := rapid.SliceOfN(text, 0, 12).Draw(t, "texts")
		query := text.Draw(t, "query")
		whole := Search([]*Segment{Build(texts)}, query, 100)
		var parts []*Segment
		var firsts []int
		for rest := 0; rest < len(texts); {
			n := rapid.IntRange(1, len(texts)-rest).Draw(t, "part")
			parts, firsts = append(parts, Build(texts[rest:rest+n])), append(firsts, rest)
			rest += n
		}
		spread := Search(parts, query, 100)
		require.Len(t, spread, len(whole))
		for i, h := range spread {
			require.Equal(t, whole[i].Text, firsts[h.Segment]+h.Text)
			require.Equal(t, whole[i].Score, h.Score)
		}
		require.True(t, slices.IsSortedFunc(whole, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) }))
	})
}

func FuzzTerms(f *testing.F) {
	for _, s := range []string{"don't stop", "ёлки-палки", "a''b", "’", "ss's", "y", "ь", "\xff", "İstanbul"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, term := range Terms(text) {
			require.NotEmpty(t, term)
		}
	})
}
