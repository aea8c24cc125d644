package textindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The two best passages add their commonest words, worked out by hand.
func TestFeedbackAddsWords(t *testing.T) {
	given := map[string]string{
		"a": "the ship ship harbour",
		"b": "the ship anchor anchor anchor",
		"c": "the anchor",
		"d": "the mountain",
	}
	c := NewCollection()
	for id, text := range given {
		c.Put(document(id, text))
	}
	q := Query{Text: "ships", Limit: 10}
	plain := c.Search(q)
	require.Equal(t, []string{"a", "b"}, ids(plain.Hits))
	q.Feedback = &Feedback{Text: func(id string, _ int) string { return given[id] }, Weight: 0.4}
	wide := c.Search(q)
	require.Equal(t, []string{"a", "b", "c"}, ids(wide.Hits), "c has no word of the question")
	require.Equal(t, plain.Strength, wide.Strength)

	a, b := plain.Hits[0].Score, plain.Hits[1].Score
	ship, anchor, harbour := a*2/3+b*1/4, b*3/4, a/3
	sum := ship + anchor + harbour
	shipWeight, anchorWeight := 0.6+0.4*ship/sum, 0.4*anchor/sum
	score := func(idf, times, length float64) float64 {
		return idf * times * 2.2 / (times + 1.2*(0.25+0.75*length/3.25))
	}
	require.InDelta(t, shipWeight*a+0.4*harbour/sum*score(idf(1, 4), 1, 4), wide.Hits[0].Score, 1e-12)
	require.InDelta(t, shipWeight*b+anchorWeight*score(idf(2, 4), 3, 5), wide.Hits[1].Score, 1e-12)
	require.InDelta(t, anchorWeight*score(idf(2, 4), 1, 2), wide.Hits[2].Score, 1e-12)

	q.Feedback.MaxStrength = plain.Strength
	require.Equal(t, plain, c.Search(q), "the question is strong enough by itself")
	q.Feedback.MaxStrength = 2 * plain.Strength
	require.Equal(t, wide, c.Search(q))
}

func TestFeedbackWithoutTextsChangesNoOrder(t *testing.T) {
	c := texts("apple pie", "apple apple sauce", "pie")
	q := Query{Text: "apple pie", Limit: 10}
	want := c.Search(q)
	q.Feedback = &Feedback{Text: func(string, int) string { return "" }, Weight: 0.3}
	require.Equal(t, want, c.Search(q))
	q.Text = "unknown"
	require.Equal(t, StatusEmpty, c.Search(q).Status)
}

func hits(scores ...any) []Hit {
	var list []Hit
	for i := 0; i < len(scores); i += 2 {
		id := scores[i].(string)
		list = append(list, Hit{Document: id, Score: scores[i+1].(float64), text: hashID(id)})
	}
	return list
}

func TestFuseScores(t *testing.T) {
	words := hits("a", 10.0, "b", 6.0, "c", 2.0)
	meaning := hits("c", 0.9, "d", 0.8, "a", 0.5)
	got := FuseScores(10, Ranking{words, 0.7}, Ranking{meaning, 0.3})
	require.Equal(t, []string{"a", "b", "c", "d"}, fusedIDs(got))
	for i, want := range []float64{0.7, 0.35, 0.3, 0.3 * 0.75} {
		require.InDelta(t, want, got[i].Score, 1e-12)
	}
	require.Equal(t, [][]int{{1, 3}, {2, 0}, {3, 1}, {0, 2}}, ranks(got))
	require.Len(t, FuseScores(2, Ranking{words, 0.7}, Ranking{meaning, 0.3}), 2)
	equal := FuseScores(10, Ranking{hits("b", 3.0, "a", 3.0), 1})
	require.Equal(t, []string{"a", "b"}, fusedIDs(equal))
	require.Equal(t, 1.0, equal[0].Score)
	require.Empty(t, FuseScores(10))
	require.Empty(t, FuseScores(10, Ranking{nil, 1}, Ranking{nil, 1}))
}

func TestFuseRanks(t *testing.T) {
	got := FuseRanks(10, Ranking{hits("a", 10.0, "b", 6.0, "c", 2.0), 1}, Ranking{hits("c", 0.9, "d", 0.8, "a", 0.5), 1})
	require.Equal(t, []string{"a", "c", "b", "d"}, fusedIDs(got), "a and c tie: the smaller id")
	for i, want := range []float64{1.0/61 + 1.0/63, 1.0/63 + 1.0/61, 1.0 / 62, 1.0 / 62} {
		require.InDelta(t, want, got[i].Score, 1e-15)
	}
}

// Equal texts under two ids are one hit, whichever ranking has which.
func TestFusionFindsEqualTextsOnce(t *testing.T) {
	twin := Hit{Document: "z", Score: 5, text: hashID("a")}
	got := FuseRanks(10, Ranking{hits("a", 3.0, "b", 2.0), 1}, Ranking{[]Hit{twin}, 1})
	require.Equal(t, []string{"a", "b"}, fusedIDs(got))
}

// An empty ranking, or one of weight 0, leaves the order of the other.
func TestFusionWithNothingIsTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []Hit {
			var list []Hit
			for id, score := range rapid.MapOf(rapid.StringMatching("[a-h]"), rapid.Float64Range(0.1, 9)).Draw(t, name) {
				list = append(list, Hit{Document: id, Score: score, text: hashID(id)})
			}
			slices.SortFunc(list, Hit.compare)
			return list
		}
		one, other := draw("one"), draw("other")
		for _, fuse := range []func(int, ...Ranking) []Fused{FuseScores, FuseRanks} {
			require.Equal(t, ids(one), fusedIDs(fuse(100, Ranking{one, 0.7}, Ranking{nil, 0.3})))
			require.Equal(t, ids(other), fusedIDs(fuse(100, Ranking{nil, 0.7}, Ranking{other, 0.3})))
			require.Equal(t, ids(one), fusedIDs(fuse(100, Ranking{one, 1}, Ranking{other, 0})))
		}
	})
}

func fusedIDs(fused []Fused) []string {
	var list []Hit
	for _, f := range fused {
		list = append(list, f.Hit)
	}
	return ids(list)
}

func ranks(fused []Fused) (list [][]int) {
	for _, f := range fused {
		list = append(list, f.Ranks)
	}
	return list
}

// Nearest gives what a look at every vector gives, filtered first.
func TestNearestIsExact(t *testing.T) {
	const dimensions = 37
	random := rand.New(rand.NewPCG(7, 8))
	vector := func() []float32 {
		v := make([]float32, dimensions)
		for i := range v {
			v[i] = float32(random.NormFloat64())
		}
		return v
	}
	c := NewCollection()
	vectors := map[Hit][]float32{}
	for i := range 300 {
		d := Document{ID: fmt.Sprintf("d%03d", i)}
		for p := range 2 {
			v := vector()
			vectors[Hit{Document: d.ID, Passage: p}] = v
			d.Passages = append(d.Passages, Passage{Text: fmt.Sprint(i, p), Vector: v})
		}
		c.Put(document(d.ID, "an old version without vectors"), d)
	}
	for i := range 50 {
		id := fmt.Sprintf("d%03d", i*3)
		c.Delete(id)
		delete(vectors, Hit{Document: id})
		delete(vectors, Hit{Document: id, Passage: 1})
	}
	c.Put(document("none", "no vector"), Document{ID: "short", Passages: []Passage{{Text: "x", Vector: []float32{1}}}},
		Document{ID: "zero", Passages: []Passage{{Text: "y", Vector: make([]float32, dimensions)}}})
	accept := func(id string) bool { return id[3]%2 == 0 }
	filter := NewFilter(accept)
	for range 20 {
		wanted := vector()
		var want []Hit
		for at, v := range vectors {
			if accept(at.Document) {
				want = append(want, Hit{Document: at.Document, Passage: at.Passage, Score: cosine(wanted, v)})
			}
		}
		slices.SortFunc(want, Hit.compare)
		got := c.Snapshot().Nearest(wanted, 10, filter)
		require.Equal(t, ids(want[:10]), ids(got))
		for i, h := range got {
			require.InDelta(t, want[i].Score, h.Score, 1e-6)
		}
	}
	require.Len(t, c.Snapshot().Nearest(vector(), 1000, nil), len(vectors), "negative cosines count too")
	require.Empty(t, c.Snapshot().Nearest(make([]float32, dimensions), 10, nil))
	require.Empty(t, c.Snapshot().Nearest(nil, 10, nil))
	require.Empty(t, c.Snapshot().Nearest([]float32{float32(math.NaN())}, 10, nil))
}

func cosine(v, w []float32) float64 {
	dot, vv, ww := 0.0, 0.0, 0.0
	for i := range v {
		dot += float64(v[i]) * float64(w[i])
		vv += float64(v[i]) * float64(v[i])
		ww += float64(w[i]) * float64(w[i])
	}
	return dot / math.Sqrt(vv*ww)
}

// Of a long text only what tells passages apart is looked for.
func TestTermsAreBounded(t *testing.T) {
	c := NewCollection()
	var all []Document
	for i := range common + 2 {
		text := "everywhere"
		if i < 3 {
			text += " harbour"
		}
		if i < 2 {
			text += " anchor"
		}
		all = append(all, document(fmt.Sprint(i), text))
	}
	c.Put(all...)
	q := Query{Text: "everywhere is an anchor or a harbour", Limit: 2 * common, Duplicates: true}
	require.Len(t, c.Search(q).Hits, common+2)
	q.Terms = 3
	require.Equal(t, []string{"0", "1", "2"}, ids(c.Search(q).Hits), "what is everywhere tells nothing beside rare words")
	q.Terms = 1
	require.Equal(t, []string{"0", "1"}, ids(c.Search(q).Hits))
	q.Text = "everywhere"
	require.Len(t, c.Search(q).Hits, common+2, "it is all there is")
}

func TestSizeGrowsAndShrinksWithTheDocuments(t *testing.T) {
	c := NewCollection()
	require.Zero(t, c.Snapshot().Size())
	require.False(t, c.Has("1"))
	c.Put(document("1", "anchor"))
	one := c.Snapshot().Size()
	require.Positive(t, one)
	require.True(t, c.Has("1"))
	c.Put(document("2", "harbour and mountain"))
	require.Greater(t, c.Snapshot().Size(), one)
	c.Delete("1", "2")
	require.Zero(t, c.Snapshot().Size())
}
