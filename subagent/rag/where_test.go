package rag_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/loop"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

func where(t testing.TB, filter string) rag.Where {
	t.Helper()
	w, err := rag.ParseWhere([]byte(filter))
	require.NoError(t, err, filter)
	return w
}

// putWith puts a document that is titled after its metadata.
func putWith(t testing.TB, l *rag.Library, c docstore.Collection, id, text string, pairs ...string) rag.Outcome {
	t.Helper()
	in := input(id, text)
	in.Document.Metadata = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		in.Document.Metadata[pairs[i]] = pairs[i+1]
	}
	in.Document.Title = strings.Join(pairs, " ")
	o, err := l.Put(ctx, c, in)
	require.NoError(t, err)
	return o
}

// found are the ids of the documents that a filtered search finds, in order of the ids.
func found(t testing.TB, l *rag.Library, c docstore.Collection, query, filter string) []string {
	t.Helper()
	r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: query, Where: where(t, filter),
		K: rag.MaxK})
	require.NoError(t, err)
	return slices.Sorted(slices.Values(documents(r)))
}

func TestAFilterSeesMetadata(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	putWith(t, l, c, "a", "apples are red", "lang", "en", "date", "2024-01-31", "price", "9", "draft", "true")
	putWith(t, l, c, "b", "apples are green", "lang", "ru", "date", "2024-02-01", "price", "10.50", "draft", "false")
	putWith(t, l, c, "c", "apples are sweet", "lang", "ru", "date", "2023-12-31T10:00", "price", "1e2", "note.kind", "faq")
	putWith(t, l, c, "d", "apples are sour", "lang", "", "price", "on request")
	put(t, l, c, "e", "apples without metadata")
	for filter, want := range map[string]string{
		`null`:                                     "a b c d e",
		`{"lang":"ru"}`:                            "b c",
		`{"lang":{"eq":"ru"}}`:                     "b c",
		`{"lang":""}`:                              "d",
		`{"lang":{"in":["en","ru"]}}`:              "a b c",
		`{"lang":{"in":["en","de"],"eq":"ru"}}`:    "",
		`{"lang":"RU"}`:                            "",
		`{"other":"x"}`:                            "",
		`{"note.kind":"faq"}`:                      "c",
		`{"draft":true}`:                           "a",
		`{"draft":{"in":[true,false]}}`:            "a b",
		`{"price":9}`:                              "a",
		`{"price":10.5}`:                           "",
		`{"price":10.50}`:                          "b",
		`{"price":{"gte":9.0,"lte":10.5}}`:         "a b",
		`{"price":{"gte":10}}`:                     "b c d",
		`{"price":{"lte":"99"}}`:                   "a b",
		`{"date":{"gte":"2024-01-01"}}`:            "a b",
		`{"date":{"gte":2024,"lte":"2024-01-31"}}`: "a",
		`{"date":{"lte":"2024"}}`:                  "c",
		`{"lang":"ru","price":{"gte":100}}`:        "c",
	} {
		require.Equal(t, strings.Fields(want), append([]string{}, found(t, l, c, "apples", filter)...), filter)
	}
	r,
		err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples",
		Where:   where(t, `{"lang":"fr"}`),
		History: []memory.Message{{Role: memory.RoleUser, Content: "apples?"}}})
	require.NoError(t, err)
	require.Equal(t, textindex.StatusEmpty, r.Status)
	require.Empty(t, r.Passages)
}

// Decimal numbers of any size are compared exactly. Everything else is a text.
func TestBoundsAreExact(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	for _, at := range []string{"9007199254740993", "9007199254740992", "-1", "inf", "0x10", "1_0", "1e400", ".5", "+7",
		"-"} {
		putWith(t, l, c, at, "apples weigh "+at, "at", at)
	}
	for filter, want := range map[string]string{
		`{"at":{"gte":9007199254740993,"lte":9007199254740993}}`: "9007199254740993",
		`{"at":{"gte":"0.5","lte":7}}`:                           "+7 .5 0x10 1_0",
		`{"at":{"gte":"1e399","lte":"1e401"}}`:                   "1e400",
		`{"at":{"gte":"i","lte":"j"}}`:                           "inf",
	} {
		require.Equal(t, strings.Fields(want), found(t, l, c, "apples", filter), filter)
	}
}

// The filter comes before the ranking: there are as many results as match, however far
// down they would stand, and of equal texts the one that matches.
func TestAFilterComesBeforeTheRanking(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	for i := range 150 {
		putWith(t, l, c, fmt.Sprintf("en%03d", i), fmt.Sprintf("apples apples apples n%d", i), "lang", "en")
	}
	for i := range 12 {
		text := fmt.Sprintf("one word of apples among many others that nobody asks for n%d", i)
		putWith(t, l, c, fmt.Sprintf("ru%03d", i), text, "lang", "ru")
	}
	whole := search(t, l, "apples", c)
	r,
		err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples",
		Where: where(t, `{"lang":"ru"}`)})
	require.NoError(t, err)
	require.Len(t, r.Passages, rag.DefaultK)
	require.NotContains(t, documents(whole), r.Passages[0].DocID)
	require.Equal(t, 1, r.Passages[0].BM25Rank)
	require.Equal(t, 1, r.Passages[0].N)

	putWith(t, l, c, "copy-en", "pears in a basket", "lang", "en")
	putWith(t, l, c, "copy-ru", "pears in a basket", "lang", "ru")
	require.Equal(t, []string{"copy-en"}, found(t, l, c, "pears", `{"lang":"en"}`))
	require.Equal(t, []string{"copy-ru"}, found(t, l, c, "pears", `{"lang":"ru"}`))
	require.Len(t, found(t, l, c, "pears", `{"lang":{"in":["ru","en"]}}`), 1)
}

// Metadata belongs to the version of a document: a search in the same moment knows it.
func TestAFilterFollowsMetadata(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	writer, reader := library(server.Client()), library(server.Client())
	c := collection(t, writer, "docs")
	for i := range 40 {
		putWith(t, writer, c, fmt.Sprintf("other%d", i), fmt.Sprintf("pears %d", i), "lang", "ru")
	}
	for i, lang := range []string{"ru", "en", "ru"} {
		o := putWith(t, writer, c, "a", "apples", "lang", lang)
		require.Equal(t, []rag.OutcomeStatus{rag.OutcomeNew, rag.OutcomeChanged, rag.OutcomeChanged}[i], o.Status)
		for _, l := range []*rag.Library{writer, reader} {
			require.Equal(t, []string{"a"}, found(t, l, c, "apples", `{"lang":"`+lang+`"}`))
			require.Empty(t, found(t, l, c, "apples", `{"lang":"de"}`))
			require.Equal(t, lang == "ru", len(found(t, l, c, "apples", `{"lang":"ru"}`)) == 1)
		}
	}
	require.Equal(t, rag.OutcomeUnchanged, putWith(t, writer, c, "a", "apples", "lang", "ru").Status)
}

// While documents change their metadata and go, a filtered search gives each at most
// once and only with the metadata that was asked for.
func TestAFilterWhileDocumentsChange(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	l, other := library(server.Client()), library(server.Client())
	c := collection(t, l, "docs")
	const documents = 20
	var changing sync.WaitGroup
	for w := range 2 {
		changing.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range 150 {
				id := fmt.Sprint(w*documents/2 + random.IntN(documents/2))
				if random.IntN(5) == 0 {
					_, err := l.Delete(ctx, c, id)
					require.NoError(t, err)
					continue
				}
				putWith(t, l, c, id, fmt.Sprintf("apples %d of %d", i, w), "lang", []string{"en", "ru"}[random.IntN(2)])
			}
		})
	}
	changed := make(chan struct{})
	go func() { changing.Wait(); close(changed) }()
	for over := false; !over; {
		select {
		case <-changed:
			over = true // and once more
		default:
		}
		for _, from := range []*rag.Library{l, other} {
			for _, lang := range []string{"en", "ru"} {
				r, err := from.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples",
					Where: where(t, `{"lang":"`+lang+`"}`), K: rag.MaxK})
				require.NoError(t, err)
				seen := map[string]bool{}
				for _, p := range r.Passages {
					require.Equal(t, "lang "+lang, p.Title)
					require.False(t, seen[p.DocID])
					seen[p.DocID] = true
				}
			}
		}
	}
	for _, from := range []*rag.Library{l, other} { // nothing is missing at the end
		all := found(t, from, c, "apples", `null`)
		filtered := append(found(t, from, c, "apples", `{"lang":"en"}`), found(t, from, c, "apples", `{"lang":"ru"}`)...)
		require.ElementsMatch(t, all, filtered)
	}
}

// Vectors are filtered as words are.
func TestAFilterOfAHybridSearch(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	l := hybrid(t, server, &hashing{space: "hash", size: 256})
	c := collection(t, l, "docs")
	for i := range 120 {
		putWith(t, l, c, fmt.Sprintf("en%d", i), fmt.Sprintf("cars %d", i), "lang", "en")
	}
	putWith(t, l, c, "ru", "automobiles and a long text about other things", "lang", "ru")
	embedded(t, l, "cars", c)
	r,
		err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "cars",
		Where: where(t, `{"lang":"ru"}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"ru"}, documents(r))
	require.Equal(t, textindex.StatusWeak, r.Status, "no word of it, and nearest is not near")
	require.Equal(t, 1, r.Passages[0].VecRank)
	require.Zero(t, r.Passages[0].BM25Rank)
}

// A subagent's filter is its configuration's; the chat's own documents are not under it.
func TestATurnSearchesBehindItsFilter(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "news")
	putWith(t, l, c, "en", "apples are cheap", "lang", "en")
	putWith(t, l, c, "ru", "apples are dear", "lang", "ru")
	own, err := docstore.OfChat(memory.MustChat("7"))
	require.NoError(t, err)
	_, err = l.Create(ctx, own)
	require.NoError(t, err)
	putWith(t, l, own, "mine", "apples are mine", "lang", "en")
	turn, err := l.NewSession(rag.SessionOptions{Collections: []string{"news"},
		Chat:  memory.MustChat("7"),
		Where: map[string]rag.Where{"news": where(t, `{"lang":"ru"}`)}})
	require.NoError(t, err)
	call := calls("apples")
	call.Calls[0].Function.Arguments = `{"query":"apples","where":{"lang":"en"},"collections":["other"]}`
	m := &script{answers: []loop.Delta{call, says("Dear [1].")}}
	converse(t, turn, m, "What do apples cost?")
	require.ElementsMatch(t, []string{"ru", "mine"}, documents(results(t, m)))
}

func TestWrongFiltersAreOneSentence(t *testing.T) {
	t.Parallel()
	many := `"k0":"x"`
	for i := range rag.MaxWhereKeys {
		many += fmt.Sprintf(`,"k%d":"x"`, i+1)
	}
	long := strings.Repeat("x", rag.MaxWhereText+1)
	for filter, want := range map[string]string{
		`"ru"`: `the filter where must be an object of metadata keys, such as {"lang": "en"}, not a ` +
			`string`,
		`[{"lang":"ru"}]`: `the filter where must be an object of metadata keys, such as {"lang": "en"}, not an ` +
			`array`,
		`{}`:                       `the filter where is empty: leave it out to search all documents`,
		`{` + many + `}`:           `the filter where has 17 keys, the limit is 16`,
		`{"":"x"}`:                 `the filter where has a key of 0 bytes: a key has 1 to 1024`,
		`{"lang":null}`:            `the filter where.lang must be a string, a number, true or false, not null`,
		`{"lang":["ru"]}`:          `the filter where.lang must be a string, a number, true or false, not an array`,
		`{"lang":{}}`:              `the filter where.lang is empty: set one of eq, in, gte and lte`,
		`{"date":{"gt":"2024"}}`:   `the filter where.date.gt has no such operator: there are eq, in, gte and lte`,
		`{"date":{"$gte":"2024"}}`: `the filter where.date.$gte has no such operator: there are eq, in, gte and lte`,
		`{"lang":{"in":"ru"}}`:     `the filter where.lang.in must be a list of values, not a string`,
		`{"lang":{"in":null}}`:     `the filter where.lang.in must be a list of values, not null`,
		`{"lang":{"in":[]}}`:       `the filter where.lang.in has 0 values: a list has 1 to 100`,
		`{"lang":{"in":[["ru"]]}}`: `the filter where.lang.in must be a string, a number, true or false, not an array`,
		`{"lang":{"eq":{"a":1}}}`:  `the filter where.lang.eq must be a string, a number, true or false, not an object`,
		`{"lang":"` + long + `"}`:  `the filter where.lang has a value of 1025 bytes, the limit is 1024`,
		`{"lang":{"in":[` + strings.Repeat(`1,`, 100) +
			`1]}}`: `the filter where.lang.in has 101 values: a list has 1 to 100`,
	} {
		_, err := rag.ParseWhere([]byte(filter))
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, rag.ErrBadQuery)
	}
}
