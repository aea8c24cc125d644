package textindex

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// texts makes a collection of documents a, b, c, … of one passage each.
func texts(list ...string) *Collection {
	c := NewCollection()
	for i, text := range list {
		c.Put(document(string(rune('a'+i)), text))
	}
	return c
}

func document(id string, texts ...string) Document {
	d := Document{ID: id}
	for _, text := range texts {
		d.Passages = append(d.Passages, Passage{Text: text})
	}
	return d
}

// ids are those of hits, "a" or "a#1".
func ids(hits []Hit) []string {
	list := []string{}
	for _, h := range hits {
		id := h.Document
		if h.Passage > 0 {
			id += fmt.Sprintf("#%d", h.Passage)
		}
		list = append(list, id)
	}
	return list
}

func search(c *Collection, query string) []string {
	return ids(c.Search(Query{Text: query, Limit: 10}).Hits)
}

func TestSearchRanks(t *testing.T) {
	c := texts(
		"Cats sleep most of the day.",
		"Dogs bark. Dogs run. Dogs dig.",
		"A dog and a cat share one house in the quiet part of the old town by the river.",
		"Кошки спят почти весь день.",
	)
	require.Equal(t, []string{"b", "c"}, search(c, "dog"), "more often in a shorter text is better")
	require.Equal(t, []string{"c", "a"}, search(c, "river cat"), "a rare word weighs more, and two words more than one")
	require.Equal(t, []string{"d"}, search(c, "кошка"))
	require.Empty(t, search(c, "elephant"))
	require.Empty(t, search(c, "what is the"))
	require.Empty(t, search(c, ""))
	require.Empty(t, search(NewCollection(), "dog"))
	require.Len(t, c.Search(Query{Text: "dog cat", Limit: 1}).Hits, 1)
	require.Empty(t, c.Search(Query{Text: "dog cat"}).Hits)
	require.Empty(t, c.Search(Query{Text: "dog cat", Limit: -1}).Hits)
}

// idf is that of a term in some of all texts.
func idf(with, all float64) float64 { return math.Log(1 + (all-with+0.5)/(with+0.5)) }

// The score is BM25, worked out by hand for two texts of two and three terms, and one for the language. The
// question's second "green" counts, but less than the first.
func TestSearchScore(t *testing.T) {
	c := texts("the red apple", "the green apple green")
	text := 2 * 2.2 / (2 + 1.2*(0.25+0.75*4/3.5))
	once := c.Search(Query{Text: "the green", Limit: 5})
	require.InDelta(t, idf(1, 2)*text, once.Hits[0].Score, 1e-12)
	twice := c.Search(Query{Text: "the green green", Limit: 5})
	require.InDelta(t, idf(1, 2)*text*9*2/(8+2), twice.Hits[0].Score, 1e-12)
	require.InDelta(t, once.Strength, twice.Strength, 1e-12)
	require.InDelta(t, text, once.Strength, 1e-12)
}

// A heading's words count thrice in each of its passages, words of both the title
// and the section once only.
func TestHeadingsCount(t *testing.T) {
	c := NewCollection()
	c.Put(Document{ID: "a", Title: "Red apples", Passages: []Passage{
		{Section: "Red apples > Storing", Text: "the cool"},
		{Text: "dry and dark"},
	}})
	hits := c.Search(Query{Text: "apple", Limit: 5}).Hits
	require.Equal(t, []string{"a#1", "a"}, ids(hits), "the shorter one")
	length := 11.0 // red, apple, store: 9, cool, and the language; the other has 6, dry, dark, and the language
	require.InDelta(t, idf(2, 2)*3*2.2/(3+1.2*(0.25+0.75*length/10)), hits[1].Score, 1e-12)
	require.Equal(t, []string{"a"}, search(c, "storing"))
}

// A conversation's turns weigh 1 for the last, 0.3, 0.15, … for the user's before,
// 0.1 for the last reply, once per turn however often they have a word.
func TestConversationsWeigh(t *testing.T) {
	c := texts("the alpha one", "the beta two", "the gamma three", "the delta four", "the epsilon five", "the zeta six")
	result := c.Search(Query{Text: "Omega?", Limit: 10, History: []memory.Message{
		{Role: memory.RoleAssistant, Content: "zeta"},
		{Role: memory.RoleUser, Content: "Gamma, gammas!"},
		{Role: memory.RoleAssistant, Content: "deltas nowhere"},
		{Role: memory.RoleUser, Content: "beta beta what"},
		{Role: "tool", Content: "epsilon"},
	}})
	require.Equal(t, []string{"b", "c", "d"}, ids(result.Hits))
	require.Equal(t, []string{"beta", "gamma", "deltas"}, result.FromHistory)
	for i, weight := range []float64{0.3, 0.15, 0.1} {
		require.InDelta(t, weight*idf(1, 6), result.Hits[i].Score, 1e-12)
	}
	unknown := math.Log(1 + 6.5/0.5)
	require.InDelta(t, 0.3*idf(1, 6)/((0.3+0.15+0.1)*idf(1, 6)+(1+0.1)*unknown), result.Strength, 1e-12)

	again := c.Search(Query{Text: "alpha", Limit: 10, History: []memory.Message{
		{Role: memory.RoleUser, Content: "alpha"},
	}})
	require.InDelta(t, 1.3*idf(1, 6), again.Hits[0].Score, 1e-12)
	require.Empty(t, again.FromHistory)

	only := c.Search(Query{Text: "And why?", Limit: 10, History: []memory.Message{
		{Role: memory.RoleUser, Content: "beta"},
	}})
	require.Equal(t, []string{"b"}, ids(only.Hits), "a question without words of its own")
}

// What was said of something else does not lead a question astray that stands by
// itself: only the turns since it count, and only within the filter.
func TestTurnsOnOtherTopicsDoNotCount(t *testing.T) {
	c := NewCollection()
	for id, text := range map[string]string{
		"tea":    "Steep green tea for three minutes in hot water.",
		"black":  "Steep black tea for five minutes.",
		"engine": "Check the oil of the engine and the water of the radiator every month.",
		"tyres":  "The pressure of the tyres is printed in the door of the car.",
		"bread":  "Bake the bread for forty minutes in a hot oven.",
	} {
		c.Put(document(id, text))
	}
	cars := []memory.Message{
		{Role: memory.RoleUser, Content: "How often do I check the oil of the engine and the water of the radiator?"},
		{Role: memory.RoleAssistant, Content: "Check the oil of the engine and the water of the radiator every month."},
	}
	asked := func(question string, filter *Filter, history ...memory.Message) Result {
		return c.Search(Query{Text: question, Limit: 3, History: history, Filter: filter})
	}
	alone := asked("How hot is the oven for bread?", nil)
	require.Equal(t, alone, asked("How hot is the oven for bread?", nil, cars...))

	tea := append(slices.Clone(cars), memory.Message{Role: memory.RoleUser, Content: "How long do I steep green tea?"},
		memory.Message{Role: memory.RoleAssistant, Content: "Three minutes."})
	on := asked("And how long do I steep black tea?", nil, tea...)
	require.Equal(t, "black", on.Hits[0].Document)
	require.Contains(t, on.FromHistory, "green")
	require.NotContains(t, on.FromHistory, "engine")

	oven := append(slices.Clone(tea), memory.Message{
		Role: memory.RoleUser, Content: "How long do I bake bread in the oven?",
	})
	ended := asked("And how long do I steep black tea?", nil, oven...)
	require.Empty(t, ended.FromHistory, "the turn before the last is behind another topic")

	one := asked("Pressure?", nil, tea...)
	require.Contains(t, one.FromHistory, "green", "a single word rests on what was said before it")
	require.NotContains(t, one.FromHistory, "engine")

	linked := append(slices.Clone(cars), memory.Message{Role: memory.RoleUser, Content: "How long do I steep green tea?"},
		memory.Message{Role: memory.RoleUser, Content: "What does tea have to do with hot bread in the oven?"})
	through := asked("Is forty minutes too long for bread?", nil, linked...)
	require.Contains(t, through.FromHistory, "green",
		"a turn counts that only the turn after it has something in common with")
	require.NotContains(t, through.FromHistory, "engine")

	without := NewFilter(func(id string) bool { return id != "black" && id != "tea" })
	require.NotContains(t, asked("And how long do I steep bread?", without, tea...).FromHistory, "tea")
}

func TestOldTurnsAndLongQueriesAreBounded(t *testing.T) {
	c := texts("alpha", "beta")
	var history []memory.Message
	for i := range 1000 {
		history = append(history, memory.Message{Role: memory.RoleUser, Content: fmt.Sprintf("word%d alpha", i)})
	}
	terms := new(analyzer).query("beta", priorTurns(history), isEnglish)
	require.Len(t, terms, 1+1+5)
	require.InDelta(t, 0.3*(2-1.0/16), terms[1].weight, 1e-12)

	var long strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&long, "word%d ", i)
	}
	require.Len(t, new(analyzer).query(long.String(), nil, isEnglish), maxTerms)
	require.Equal(t, []string{"b"},
		ids(c.Search(Query{Text: "beta", History: []memory.Message{{Role: memory.RoleUser, Content: long.String()}},
			Limit: 1}).Hits))
}

func TestEqualTextsAreFoundOnce(t *testing.T) {
	c := NewCollection()
	c.Put(document("b", "The same  apple"), document("a", "The same apple\n"), document("c", "Another of the apples"),
		document("d", "the same Apple"))
	c.Put(Document{ID: "e", Title: "The apple", Passages: []Passage{{}}}, Document{
		ID: "f", Title: "The apple tree", Passages: []Passage{{Text: " "}},
	})
	require.Equal(t, []string{"e", "f", "a", "d", "c"}, search(c, "apple"),
		"the smallest id stands for its like; headings without text are no equal texts")
	require.Equal(t, []string{"e", "f", "a"}, ids(c.Search(Query{Text: "apple", Limit: 3}).Hits))
	all := c.Search(Query{Text: "apple", Limit: 10, Duplicates: true})
	require.Equal(t, []string{"e", "f", "a", "b", "d", "c"}, ids(all.Hits))

	var many []Document
	for i := range 500 {
		many = append(many, document(fmt.Sprintf("x%03d", i), "the apple apple apple"))
	}
	c.Put(many...)
	require.Equal(t, []string{"e", "x000", "f", "a", "d"}, ids(c.Search(Query{Text: "apple", Limit: 5}).Hits),
		"copies do not crowd out the rest")
}

// The filter comes before the ranking: what it refuses takes no place, and what is
// known about words stays that of the whole collection.
func TestFilter(t *testing.T) {
	c := NewCollection()
	c.Put(document("a", "apple apple", "apple pie"), document("b", "apple sauce"), document("c"), document("d", "pie"))
	c.Put(document("gone", "apple"))
	c.Delete("gone")
	asked := map[string]int{}
	filter := NewFilter(func(id string) bool {
		asked[id]++
		return id != "a"
	})
	result := c.Search(Query{Text: "apple", Limit: 1, Filter: filter})
	require.Equal(t, []string{"b"}, ids(result.Hits))
	require.Equal(t, result, c.Search(Query{Text: "apple", Limit: 1, Filter: filter}))
	c.Put(document("e", "plum"))
	require.Empty(t,
		ids(c.Search(Query{Text: "pie", Limit: 1, Filter: NewFilter(func(string) bool { return false })}).Hits))
	require.Equal(t, []string{"e"}, ids(c.Search(Query{Text: "plum", Limit: 1, Filter: filter}).Hits))
	require.LessOrEqual(t, max(asked["a"], asked["b"], asked["d"], asked["e"]), 2, "once, and once more behind a merge")
	c.Delete("e")
	all := c.Search(Query{Text: "apple", Limit: 5})
	require.Equal(t, all.Hits[2], result.Hits[0])
	none := c.Search(Query{Text: "apple", Limit: 5, Filter: NewFilter(func(string) bool { return false })})
	require.Empty(t, none.Hits)
	require.Equal(t, StatusEmpty, none.Status)
}

func TestStatus(t *testing.T) {
	const little = "apples unknown words of other things altogether"
	c := NewCollection()
	require.Equal(t, StatusEmpty, c.Search(Query{Text: "x"}).Status)
	for i := range weakDocuments - 1 {
		c.Put(numbered(i))
	}
	few := c.Search(Query{Text: little, Limit: 1})
	require.Equal(t, StatusOK, few.Status)
	require.Equal(t, weakFixed, few.Threshold, "too few documents to learn from")
	require.Equal(t, StatusWeak, c.Search(Query{Text: "keeper of unknown words of other things altogether"}).Status)
	c.Put(numbered(weakDocuments - 1))

	weak := c.Search(Query{Text: little, Limit: 1})
	require.Equal(t, StatusWeak, weak.Status)
	require.Len(t, weak.Hits, 1)
	require.Less(t, weak.Strength, weak.Threshold)
	ok := c.Search(Query{Text: "When do red apples open?", Limit: 1})
	require.Equal(t, StatusOK, ok.Status)
	require.Greater(t, ok.Strength, ok.Threshold)
	require.Equal(t, StatusEmpty, c.Search(Query{Text: "elephants", Limit: 1}).Status)
	require.Equal(t, StatusOK, c.Search(Query{Text: "When do red apples open?"}).Status, "also without hits wanted")

	c.Delete("7")
	require.Equal(t, weakFixed, c.Search(Query{Text: "x"}).Threshold)
	c.Put(numbered(7))
	require.Equal(t, ok.Threshold, c.Search(Query{Text: "x"}).Threshold)
}

// numbered is one of a hundred documents with titles and first sentences that share words
// with those of others.
func numbered(i int) Document {
	colour := strings.Fields("red green blue white black grey brown pink yellow golden")[i/10]
	fruit := strings.Fields("apples pears plums figs dates grapes olives limes melons berries")[i%10]
	return Document{ID: fmt.Sprint(i), Title: colour + " " + fruit, Passages: []Passage{
		{Text: fmt.Sprintf("The shop of %s %s opens in the morning. Ask there.", colour, fruit)},
		{Text: fmt.Sprintf("Keeper number %d sleeps.", i)},
	}}
}

// An index of some passages, by their terms alone and within the statistics of the whole, scores as the whole does.
func TestCandidatesScoreAsInTheWhole(t *testing.T) {
	whole, part := NewUnjudged(), NewUnjudged()
	var all []Document
	for i, text := range []string{"The ferry leaves at noon.", "A ferry, a bridge and a ferry.", "Мосты и паромы", "桥と橋",
		"Nothing of that."} {
		all = append(all, Document{ID: string(rune('a' + i)), Title: "On the harbour",
			Passages: []Passage{{Section: "Times", Text: text}, {Text: "harbour, again"}}})
	}
	whole.Put(all...)
	st := Statistics{Frequency: map[string]int{}}
	for _, d := range all {
		for _, terms := range PassageTerms(d) {
			st.Passages++
			st.Length += float64(len(terms))
		}
	}
	st.Length /= float64(st.Passages)
	for _, d := range all[:3] {
		for i, terms := range PassageTerms(d) {
			d.Passages[i] = Passage{Text: d.Passages[i].Text, Terms: terms}
		}
		d.Title = "is not looked at"
		part.Put(d)
	}
	for _, text := range []string{"a ferry and a bridge", "мост", "the noon harbour", "the ferry unknown"} {
		q := Query{Text: text, Limit: 3, Duplicates: true}
		for _, terms := range QueryTerms(q) {
			for _, term := range terms {
				st.Frequency[term] = Frequency(whole.Snapshot(), term)
			}
		}
		want, got := whole.Search(q), part.Snapshot().WithStatistics(st).Search(q)
		require.NotEmpty(t, want.Hits)
		require.InDelta(t, want.Strength, got.Strength, 1e-9, text)
		require.Equal(t, want.Hits[0].Document, got.Hits[0].Document, text)
		require.InDelta(t, want.Hits[0].Score, got.Hits[0].Score, 1e-9, text)
	}
}
