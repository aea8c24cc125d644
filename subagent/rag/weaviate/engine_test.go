package weaviate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/weaviate"
)

// world is a store, an engine, and as many processes as a test makes.
type world struct {
	redis *redistest.Server
	store *docstore.Store
	urls  []string
	fake  *fake // nil over a real one
}

func newWorld(t *testing.T) *world {
	t.Helper()
	f := newFake(t)
	w := worldOver(t, []string{f.url})
	w.fake = f
	return w
}

func worldOver(t *testing.T, urls []string) *world {
	t.Helper()
	w := &world{redis: redistest.Start(t), urls: urls}
	w.store = docstore.New(w.redis.Client(), 0)
	return w
}

// eachEngine runs a test over the fake and, where there is one, over a real server.
func eachEngine(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("fake", func(t *testing.T) { test(t, newWorld(t)) })
	t.Run("real", func(t *testing.T) { test(t, worldOver(t, startReal(t, 1).urls)) })
}

func (w *world) engine() *weaviate.Engine {
	return weaviate.New(weaviate.Config{URLs: w.urls, Class: "Mneme"})
}

// process is a Library with the engine, or with its own index alone.
func (w *world) process(t *testing.T, outside bool) *rag.Library {
	t.Helper()
	o := rag.Options{Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel), Patience: 30 * time.Second,
		CatchUp: 30 * time.Second}
	if outside {
		o.Searcher = w.engine()
	}
	l := rag.NewLibrary(w.store, o)
	t.Cleanup(l.Close)
	return l
}

func named(t *testing.T, tenant memory.Tenant, name string) docstore.Collection {
	t.Helper()
	c, err := docstore.NamedCollection(tenant, name)
	require.NoError(t, err)
	return c
}

func create(t *testing.T, l *rag.Library, c docstore.Collection) {
	t.Helper()
	_, err := l.Create(t.Context(), c)
	require.NoError(t, err)
}

func put(t *testing.T, l *rag.Library, c docstore.Collection, id, text string) {
	t.Helper()
	_, err := l.Put(t.Context(), c, rag.Input{ID: id, Document: chunk.Document{Text: text,
		Metadata: map[string]string{"first": id[:1]}}})
	require.NoError(t, err)
}

// find are the texts that a search gives.
func find(t *testing.T, l *rag.Library, c docstore.Collection, query string) []string {
	t.Helper()
	r, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: query})
	require.NoError(t, err)
	require.False(t, r.Degraded)
	texts := []string{}
	for _, p := range r.Passages {
		require.NotZero(t, p.Score)
		texts = append(texts, p.Text)
	}
	return texts
}

// fed waits until searches of a collection go to the engine.
func fed(t *testing.T, w *world, c docstore.Collection) {
	t.Helper()
	require.Eventually(t, func() bool { return isFed(t, w, c) }, time.Minute, 5*time.Millisecond)
}

func isFed(t *testing.T, w *world, c docstore.Collection) bool {
	t.Helper()
	_, text, err := docstore.Fed(t.Context(), w.store, c)
	return err == nil && text != "" && !strings.Contains(text, `"filling":true`)
}

func TestDocumentsAreFoundByAnEngine(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		l, other := w.process(t, true), w.process(t, true)
		c := named(t, memory.Tenant{}, "docs")
		create(t, l, c)
		put(t, l, c, "ferry", "A ferry ticket costs 14 crowns.")
		fed(t, w, c)
		put(t, l, c, "bridge", "The bridge is closed at night. It's «Мост» 桥, \"quoted\" and \\ odd.")
		for _, process := range []*rag.Library{l, other} {
			require.Equal(t, []string{"A ferry ticket costs 14 crowns."}, find(t, process, c, "what does the ferry cost"))
			require.Len(t, find(t, process, c, `мосты "quoted" \`), 1)
		}
		// Another process's change is found at once.
		put(t, other, c, "ferry", "Ferries are free of charge.")
		require.Equal(t, []string{"Ferries are free of charge."}, find(t, l, c, "ferry"))
		require.Empty(t, find(t, l, c, "crowns"))
		n, err := other.Delete(t.Context(), c, "ferry")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Empty(t, find(t, l, c, "ferry"))
		r, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "zeppelin"})
		require.NoError(t, err)
		require.Equal(t, textindex.StatusEmpty, r.Status)
	})
}

// With the engine's frequencies and our formula the order and the scores are those of the index in the process.
func TestTheOrderIsThatOfTheIndex(t *testing.T) {
	testtier.Slow(t)
	eachEngine(t, func(t *testing.T, w *world) {
		outside, inside := w.process(t, true), w.process(t, false)
		c := named(t, memory.Tenant{}, "docs")
		create(t, outside, c)
		words := strings.Fields("harbour ferry ticket crown bridge night tower market garden river мост билет паром")
		for i := range 120 {
			var text strings.Builder
			for k := range 5 + i%17 {
				text.WriteString(words[(i*7+k*k*(i%5+1))%len(words)] + " ")
			}
			put(t, inside, c, fmt.Sprintf("d%d", i), fmt.Sprintf("%snumber%d", text.String(), i))
		}
		history := []memory.Message{{Role: memory.RoleUser, Content: "garden river"},
			{Role: memory.RoleAssistant, Content: "the river"}, {Role: memory.RoleUser, Content: "bridge tower"}}
		_, err := outside.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "x"})
		require.NoError(t, err)
		fed(t, w, c)
		for _, h := range [][]memory.Message{nil, history} {
			for _, query := range []string{"ferry ticket", "билеты на паром", "night market number7", "river", "and the crown?"} {
				r := rag.Request{Collections: []docstore.Collection{c}, Query: query, History: h, K: 10}
				a, err := outside.Search(t.Context(), r)
				require.NoError(t, err)
				b, err := inside.Search(t.Context(), r)
				require.NoError(t, err)
				require.Equal(t, b.Status, a.Status)
				require.Equal(t, b.FromHistory, a.FromHistory)
				require.Len(t, a.Passages, len(b.Passages), query)
				for i, p := range b.Passages {
					require.InDelta(t, p.Score, a.Passages[i].Score, 0.002, "%s, %d", query, i)
					require.Equal(t, b.IndexVersion, a.IndexVersion)
				}
			}
		}
	})
}

func TestCollectionsAndTenantsAreApart(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		l := w.process(t, true)
		acme, err := memory.ParseTenant("acme")
		require.NoError(t, err)
		all := []docstore.Collection{named(t, memory.Tenant{}, "a"), named(t, memory.Tenant{}, "b"), named(t, acme, "a")}
		for i, c := range all {
			create(t, l, c)
			put(t, l, c, "same", fmt.Sprintf("The ferry of place %d.", i))
			fed(t, w, c)
		}
		for i, c := range all {
			require.Equal(t, []string{fmt.Sprintf("The ferry of place %d.", i)}, find(t, l, c, "ferry"))
		}
		// One made anew has nothing of the one before, whose versions began at 1 as its own do.
		_, err = l.Drop(t.Context(), all[0])
		require.NoError(t, err)
		create(t, l, all[0])
		put(t, l, all[0], "same", "No ship here.")
		fed(t, w, all[0])
		require.Empty(t, find(t, l, all[0], "ferry"))
		require.NotEmpty(t, find(t, l, all[0], "ship"))
		require.NotEmpty(t, find(t, l, all[2], "ferry"))
		shards, err := w.engine().Shards(t.Context())
		require.NoError(t, err)
		require.Len(t, shards, 3, "that of the one before is removed")
	})
}

func TestAFilterAndManyPassages(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		l := w.process(t, true)
		c := named(t, memory.Tenant{}, "docs")
		create(t, l, c)
		var inputs []rag.Input
		for i := range 300 {
			id := fmt.Sprintf("%c%d", 'a'+i%3, i)
			inputs = append(inputs, rag.Input{ID: id, Document: chunk.Document{Text: fmt.Sprintf("Ferry %d.", i),
				Metadata: map[string]string{"first": id[:1]}}})
		}
		_, err := l.PutAll(t.Context(), c, inputs...)
		require.NoError(t, err)
		fed(t, w, c)
		long := "# Book\n\n" + strings.Repeat("The tower stands in the middle of the town and is very old, they say. ", 2000)
		put(t, l, c, "book", long)
		put(t, l, c, "book", long+"And new.")
		b := "b"
		r, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "ferry", K: 100,
			Where: rag.Where{"first": {Eq: &b}}})
		require.NoError(t, err)
		require.Len(t, r.Passages, 100)
		for _, p := range r.Passages {
			require.Equal(t, "b", p.DocID[:1])
		}
		n, err := l.Delete(t.Context(), c, "book")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Empty(t, find(t, l, c, "tower"))
		if w.fake != nil {
			require.Equal(t, 300, w.fake.objects(), "of the book nothing is left, in either version")
		}
	})
}

// Whatever an engine says, only what the store has at this moment is shown.
func TestALyingEngine(t *testing.T) {
	w := newWorld(t)
	l := w.process(t, true)
	c, foreign := named(t, memory.Tenant{}, "docs"), named(t, memory.Tenant{}, "other")
	create(t, l, c)
	create(t, l, foreign)
	put(t, l, foreign, "secret", "The ferry of another collection.")
	put(t, l, c, "ferry", "The old ferry.")
	put(t, l, c, "gone", "The deleted ferry.")
	fed(t, w, c)
	fed(t, w, foreign)
	var remembered []scored
	w.fake.set(func() {
		for _, all := range w.fake.tenants {
			for _, o := range all {
				for _, passage := range []int{o.Passage, -1, 1, 1 << 40} {
					for _, version := range []int{o.Version, o.Version + 1, 0} {
						changed := o
						changed.Passage, changed.Version = passage, version
						remembered = append(remembered, scored{changed, 9}, scored{changed, -1})
					}
				}
				elsewhere := o
				elsewhere.Document = "ferry"
				remembered = append(remembered, scored{elsewhere, 9})
			}
		}
	})
	put(t, l, c, "ferry", "The new ferry.")
	_, err := l.Delete(t.Context(), c, "gone")
	require.NoError(t, err)
	w.fake.set(func() {
		w.fake.lie = func(query string, found []scored) []scored { return append(remembered, found...) }
	})
	require.Equal(t, []string{"The new ferry."}, find(t, l, c, "ferry"))
	// Wrong terms and hashes of texts decide on the order only.
	w.fake.set(func() {
		w.fake.lie = func(_ string, found []scored) []scored {
			for i := range found {
				found[i].Terms, found[i].Sum, found[i].score = "ferri ferri x", "", -5
			}
			return found
		}
	})
	require.Equal(t, []string{"The new ferry."}, find(t, l, c, "ferry"))
	require.Equal(t, []string{"The ferry of another collection."}, find(t, l, foreign, "ferry"))
}

// What a search cannot be answered from is an error, and never a wrong answer.
func TestAnEngineThatFails(t *testing.T) {
	for name, before := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"5xx":     func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true },
		"garbage": func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("<html>")); return true },
		"nothing": func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("{}")); return true },
		"cut off": func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
		"errors": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"errors":[{"message":"shard is overloaded"}]}`))
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l, other := w.process(t, true), w.process(t, false)
			c := named(t, memory.Tenant{}, "docs")
			create(t, l, c)
			put(t, l, c, "ferry", "The ferry.")
			fed(t, w, c)
			w.fake.set(func() { w.fake.before = before })
			_, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "ferry"})
			require.ErrorIs(t, err, docstore.ErrUnavailable)
			put(t, l, c, "bridge", "The bridge.") // it is kept all the same
			require.Equal(t, []string{"The bridge."}, find(t, other, c, "bridge"))
			w.fake.set(func() { w.fake.before = nil })
			require.Equal(t, []string{"The bridge."}, find(t, l, c, "bridge"), "it is fed what it lacks")
		})
	}
}

// An engine that does not take changes lags: what it finds is shown, as degraded, without what was deleted.
func TestALaggingEngine(t *testing.T) {
	w := newWorld(t)
	l := w.process(t, true)
	c := named(t, memory.Tenant{}, "docs")
	create(t, l, c)
	put(t, l, c, "ferry", "The ferry.")
	put(t, l, c, "gone", "The deleted ferry.")
	fed(t, w, c)
	w.fake.set(func() {
		w.fake.before = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/v1/batch") {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			return false
		}
	})
	_, err := l.Delete(t.Context(), c, "gone")
	require.NoError(t, err)
	r, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "ferry"})
	require.NoError(t, err)
	require.True(t, r.Degraded)
	require.Len(t, r.Passages, 1)
	require.Equal(t, "The ferry.", r.Passages[0].Text)
}

// A process that ends between the store and the engine leaves what the follower of another feeds, without a search.
func TestWhatAKilledProcessLeft(t *testing.T) {
	testtier.Slow(t)
	w := newWorld(t)
	l := w.process(t, true)
	c, dropped := named(t, memory.Tenant{}, "docs"), named(t, memory.Tenant{}, "dropped")
	for _, one := range []docstore.Collection{c, dropped} {
		create(t, l, one)
		put(t, l, one, "ferry", "The ferry.")
		fed(t, w, one)
	}
	put(t, w.process(t, false), c, "bridge", "The bridge.") // the store alone
	_, err := w.store.Drop(t.Context(), dropped)
	require.NoError(t, err)
	require.Equal(t, 2, w.fake.objects())

	following, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := w.process(t, true)
	require.NoError(t, other.Load(following, memory.Tenant{}))
	go other.Follow(following, memory.Tenant{})
	require.Eventually(t, func() bool {
		shards, err := w.engine().Shards(t.Context())
		return err == nil && len(shards) == 1 && w.fake.objects() == 2
	}, 40*time.Second, 20*time.Millisecond, "the shard of the dropped one goes, the document comes")
}

// An engine that lost all, or another one, is filled from the store; searches go on meanwhile.
func TestAnEngineThatBeginsEmpty(t *testing.T) {
	w := newWorld(t)
	l := w.process(t, true)
	c := named(t, memory.Tenant{}, "docs")
	create(t, l, c)
	for i := range 700 {
		_, err := w.store.Last(t.Context(), c)
		require.NoError(t, err)
		w.store.Put(t.Context(), c, docstore.Document{ID: fmt.Sprintf("d%d", i), Text: fmt.Sprintf("Ferry number%d.", i),
			Passages: []docstore.Passage{{End: len(fmt.Sprintf("Ferry number%d.", i))}}})
	}
	require.Len(t, find(t, l, c, "number650"), 1, "by the index of this process")
	fed(t, w, c)
	require.Equal(t, 700, w.fake.objects())
	w.fake.set(func() { w.fake.class, w.fake.tenants = nil, map[string]map[string]stored{} })
	_, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "ferry"})
	require.True(t, errors.Is(err, docstore.ErrUnavailable))
	// A feeding that began before the loss may take part of it and fail; a search begins the next.
	require.Eventually(t, func() bool {
		require.Len(t, find(t, l, c, "number650"), 1, "by the index of this process")
		return isFed(t, w, c)
	}, time.Minute, 20*time.Millisecond)
	require.Equal(t, 700, w.fake.objects())
	require.Len(t, find(t, l, c, "number650"), 1)
}

// The next node is asked when one does not serve.
func TestNodesThatFail(t *testing.T) {
	w := newWorld(t)
	w.urls = []string{"http://127.0.0.1:1", w.urls[0]}
	l := w.process(t, true)
	c := named(t, memory.Tenant{}, "docs")
	create(t, l, c)
	put(t, l, c, "ferry", "The ferry.")
	fed(t, w, c)
	require.Equal(t, []string{"The ferry."}, find(t, l, c, "ferry"))
}

// A class that mneme did not make, or in which searches leave out passages, is not used: the index of the process is.
func TestAClassThatIsNotOurs(t *testing.T) {
	for name, class := range map[string]map[string]any{
		"made by a batch": {"class": "Mneme"},
		"BlockMax WAND":   {"description": "mneme x", "invertedIndexConfig": map[string]any{"usingBlockMaxWAND": true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fake.class = class
			_, err := w.engine().Identity(t.Context())
			require.ErrorContains(t, err, "class Mneme")
			l := w.process(t, true)
			c := named(t, memory.Tenant{}, "docs")
			create(t, l, c)
			put(t, l, c, "ferry", "The ferry.")
			require.Equal(t, []string{"The ferry."}, find(t, l, c, "ferry"))
			require.Zero(t, w.fake.objects())
		})
	}
}
