package rag_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

var ctx = context.Background()

// library waits for the store, and for what it has to catch up with, as long as a busy machine may take.
func library(client redis.UniversalClient) *rag.Library {
	return rag.NewLibrary(docstore.New(client, 0), rag.Options{Log: zerolog.Nop(), Patience: 10 * time.Second,
		CatchUp: 30 * time.Second})
}

func collection(t testing.TB, l *rag.Library, name string) docstore.Collection {
	t.Helper()
	c, err := docstore.NamedCollection(memory.Tenant{}, name)
	require.NoError(t, err)
	_, err = l.Create(ctx, c)
	require.NoError(t, err)
	return c
}

func input(id, text string) rag.Input {
	return rag.Input{ID: id, Document: chunk.Document{Title: "About " + id, Source: id, Text: text}}
}

func put(t testing.TB, l *rag.Library, c docstore.Collection, id, text string) rag.Outcome {
	t.Helper()
	o, err := l.Put(ctx, c, input(id, text))
	require.NoError(t, err)
	return o
}

func search(t testing.TB, l *rag.Library, query string, collections ...docstore.Collection) rag.Result {
	t.Helper()
	r, err := l.Search(ctx, rag.Request{Collections: collections, Query: query})
	require.NoError(t, err)
	return r
}

func documents(r rag.Result) []string {
	list := []string{}
	for _, p := range r.Passages {
		list = append(list, p.DocID)
	}
	return list
}

func TestALibraryFindsWhatWasPut(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	require.Equal(t, rag.Result{Status: textindex.StatusEmpty, Query: "leave", FromHistory: []string{}, Collection: "docs",
		IndexVersion: 1, Passages: []rag.Passage{}}, search(t, l, "leave", c))
	o := put(t, l, c, "guide.md", "Everyone has 28 days of leave.")
	require.Equal(t, rag.Outcome{ID: "guide.md", Status: rag.OutcomeNew, Version: 2, Passages: 1}, o)
	put(t, l, c, "lunch.md", "Lunch is at noon.")
	r := search(t, l, "How much leave is there?", c)
	require.Equal(t, textindex.StatusOK, r.Status)
	require.Equal(t, int64(3), r.IndexVersion)
	require.False(t, r.Degraded)
	require.Len(t, r.Passages, 1)
	p := r.Passages[0]
	require.Equal(t, "guide.md#0", p.ID)
	require.Equal(t, 1, p.N)
	require.Equal(t, 1, p.BM25Rank)
	require.Equal(t, "Everyone has 28 days of leave.", p.Text)
	require.Equal(t, [2]int{0, len(p.Text)}, [2]int{p.Start, p.End})
	require.Equal(t, rag.OutcomeUnchanged, put(t, l, c, "guide.md", "Everyone has 28 days of leave.").Status)
	require.Equal(t, rag.OutcomeChanged, put(t, l, c, "guide.md", "Everyone has 30 days of holiday.").Status)
	require.Empty(t, documents(search(t, l, "leave", c)))
	require.Equal(t, []string{"guide.md"}, documents(search(t, l, "holiday", c)))
	removed, err := l.Delete(ctx, c, "guide.md", "absent")
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	require.Empty(t, documents(search(t, l, "holiday", c)))
}

func TestASearchNamesItsCollections(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	a, b := collection(t, l, "a"), collection(t, l, "b")
	put(t, l, a, "1", "apples in a")
	put(t, l, b, "1", "apples in b")
	chat, err := docstore.OfChat(memory.MustChat("42"))
	require.NoError(t, err)
	_, err = l.Create(ctx, chat)
	require.NoError(t, err)
	put(t, l, chat, "1", "apples in the chat")
	for _, c := range []docstore.Collection{a, b, chat} {
		r := search(t, l, "apples", c)
		require.Len(t, r.Passages, 1)
		require.Equal(t, c.String(), r.Passages[0].Collection)
	}
	r := search(t, l, "apples", a, chat, a)
	require.Equal(t, "a,chat:42", r.Collection)
	require.Len(t, r.Passages, 2)
	put(t, l, chat, "1", "apples in a")
	require.Len(t, search(t, l, "apples", a, chat).Passages, 1, "equal texts are one")

	_, err = l.Search(ctx, rag.Request{Query: "apples"})
	require.ErrorIs(t, err, rag.ErrNoScope)
	unknown, err := docstore.NamedCollection(memory.Tenant{}, "unknown")
	require.NoError(t, err)
	_, err = l.Search(ctx, rag.Request{Query: "apples", Collections: []docstore.Collection{a, unknown}})
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	_, err = l.Put(ctx, unknown, input("1", "x"))
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	other, err := memory.ParseTenant("other")
	require.NoError(t, err)
	foreign, err := docstore.NamedCollection(other, "a")
	require.NoError(t, err)
	_, err = l.Search(ctx, rag.Request{Query: "apples", Collections: []docstore.Collection{foreign}})
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	for _, bad := range []rag.Request{
		{Query: " "}, {Query: strings.Repeat("x", rag.MaxSearchText+1)}, {Query: "a\xff"}, {Query: "x", K: 101},
		{Query: "x", K: -1},
	} {
		bad.Collections = []docstore.Collection{a}
		_, err = l.Search(ctx, bad)
		require.ErrorIs(t, err, rag.ErrBadQuery)
	}
	dropped, err := l.Drop(ctx, chat)
	require.NoError(t, err)
	require.True(t, dropped)
	_, err = l.Search(ctx, rag.Request{Query: "apples", Collections: []docstore.Collection{chat}})
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	infos, err := l.Collections(ctx, memory.Tenant{})
	require.NoError(t, err)
	require.Len(t, infos, 2)
}

func TestAWeakResultIsTriedInTheOtherForm(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	put(t, l, c, "tarsk", "Tarsk is the capital of Veldoria.")
	put(t, l, c, "router", "Hold the rear button to reset the router.")
	history := []memory.Message{{Role: memory.RoleUser, Content: "Tell me about Veldoria"},
		{Role: memory.RoleAssistant, Content: "It is a country."}}
	r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "And what is its centre called?",
		History: history})
	require.NoError(t, err)
	require.Equal(t, []string{"tarsk"}, documents(r))
	require.Contains(t, r.FromHistory, "veldoria")
	r, err = l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "How do I reset the router?",
		History: history})
	require.NoError(t, err)
	require.Equal(t, "router", r.Passages[0].DocID)
	r, err = l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "zyzzyva", History: []memory.Message{
		{Role: memory.RoleUser, Content: "quux"},
	}})
	require.NoError(t, err)
	require.Equal(t, textindex.StatusEmpty, r.Status)
}

// Two processes over one store: what one changes the other finds at once.
func TestReplicasSeeEachOthersChangesBeforeTheyAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one, two := library(server.Client()), library(server.Client())
	c := collection(t, one, "docs")
	for i := range 50 {
		word := fmt.Sprintf("word%d", i)
		put(t, one, c, "doc", "about "+word)
		require.Equal(t, []string{"doc"}, documents(search(t, two, word, c)))
		put(t, two, c, "other", "also "+word)
		require.ElementsMatch(t, []string{"doc", "other"}, documents(search(t, one, word, c)))
		_, err := two.Delete(ctx, c, "doc")
		require.NoError(t, err)
		require.Equal(t, []string{"other"}, documents(search(t, one, word, c)))
		require.Equal(t, search(t, one, word, c).IndexVersion, search(t, two, word, c).IndexVersion)
	}
}

func TestACutLogAndANewCollectionAreReadFromTheStart(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	writer := rag.NewLibrary(docstore.New(client, 1), rag.Options{Log: zerolog.Nop()})
	reader := rag.NewLibrary(docstore.New(client, 1), rag.Options{Log: zerolog.Nop()})
	c := collection(t, writer, "docs")
	put(t, writer, c, "gone", "apples")
	require.Len(t, search(t, reader, "apples", c).Passages, 1)
	for i := range 400 { // Redis cuts its log in blocks of a hundred
		put(t, writer, c, "doc", fmt.Sprintf("pears %d", i))
	}
	_, err := writer.Delete(ctx, c, "gone")
	require.NoError(t, err)
	require.Empty(t, documents(search(t, reader, "apples", c)))
	require.Equal(t, []string{"doc"}, documents(search(t, reader, "399", c)))

	_, err = writer.Drop(ctx, c)
	require.NoError(t, err)
	_, err = writer.Create(ctx, c)
	require.NoError(t, err)
	put(t, writer, c, "fresh", "plums")
	require.Empty(t, documents(search(t, reader, "pears", c)))
	require.Equal(t, []string{"fresh"}, documents(search(t, reader, "plums", c)))
}

func TestWithTheStoreAwaySearchesAnswerFromWhatIsKnown(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	l, cold := library(server.Client()), library(server.Client())
	c := collection(t, l, "docs")
	put(t, l, c, "a", "apples")
	require.Len(t, search(t, l, "apples", c).Passages, 1)
	put(t, l, c, "b", "apples and pears")
	_, err := l.Delete(ctx, c, "b")
	require.NoError(t, err)
	server.Kill()
	r := search(t, l, "apples", c)
	require.True(t, r.Degraded)
	require.Equal(t, []string{"a"}, documents(r), "what was put and deleted here is known without the store")
	_, err = l.Put(ctx, c, input("c", "x"))
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = l.Delete(ctx, c, "a")
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = cold.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	require.NoError(t, server.Run())
	require.Equal(t, []string{"a"}, documents(search(t, cold, "apples", c)))

	server.Signal(syscall.SIGSTOP) // it takes connections and answers nothing
	r = search(t, l, "apples", c)
	require.True(t, r.Degraded)
	server.Signal(syscall.SIGCONT)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = l.Search(ended, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestLoadReadsAllAndSaysSo(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	first := library(server.Client())
	a, b := collection(t, first, "a"), collection(t, first, "b")
	var many []rag.Input
	for i := range 450 {
		many = append(many, input(fmt.Sprintf("d%03d", i), fmt.Sprintf("apples number%d", i)))
	}
	_, err := first.PutAll(ctx, a, many...)
	require.NoError(t, err)
	put(t, first, b, "x", "pears")

	l := library(server.Client())
	require.False(t, l.Ready())
	require.NoError(t, l.Load(ctx, memory.Tenant{}))
	require.True(t, l.Ready())
	server.Kill()
	require.Equal(t, []string{"d123"}, documents(search(t, l, "number123", a)), "nothing more is needed from the store")

	away := library(server.Client())
	bounded, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.Error(t, away.Load(bounded, memory.Tenant{}))
	require.False(t, away.Ready())
}

// While one document is replaced again and again, a search sees one version of it,
// whole.
func TestASearchSeesOneVersion(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	writer, reader := library(server.Client()), library(server.Client())
	c := collection(t, writer, "docs")
	text := func(i int) string { return fmt.Sprintf("apples of version%d", i) }
	put(t, writer, c, "doc", text(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, l := range []*rag.Library{writer, reader, reader} {
		wg.Go(func() {
			for {
				r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
				if err != nil || len(r.Passages) != 1 || !strings.HasPrefix(r.Passages[0].Text, "apples of version") {
					t.Errorf("found %v, %v", r.Passages, err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 200 {
		_, err := writer.Put(ctx, c, input("doc", text(i)))
		require.NoError(t, err)
	}
	close(done)
	wg.Wait()
	require.Equal(t, text(199), search(t, reader, "apples", c).Passages[0].Text)
}

func TestRefusedDocumentsLeaveTheOthersAndWhatWasThere(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	put(t, l, c, "old", "apples")
	big := input("big", strings.Repeat("x", docstore.MaxText+1))
	bad := input("old", "text")
	bad.Document.Title = strings.Repeat("x", docstore.MaxTitle+1)
	unread := rag.Input{ID: "unread", Err: &loader.Error{Code: loader.Encrypted, Sentence: "it needs a password"}}
	var got []rag.Outcome
	inputs := func(yield func(rag.Input, error) bool) {
		for _, in := range []rag.Input{input("new", "apples too"), big, bad, unread, input("", "x"), input("last", "pears")} {
			if !yield(in, nil) {
				return
			}
		}
	}
	require.NoError(t, l.Ingest(ctx, c, inputs, func(o rag.Outcome) { got = append(got, o) }))
	statuses := map[string]rag.OutcomeStatus{}
	codes := map[string]string{}
	for _, o := range got {
		statuses[o.ID], codes[o.ID] = o.Status, o.Code
		require.Equal(t, o.Failed(), o.Reason != "")
	}
	require.Equal(t, map[string]rag.OutcomeStatus{"new": rag.OutcomeNew, "big": rag.OutcomeRefused,
		"old":    rag.OutcomeStale,
		"unread": rag.OutcomeRefused, "": rag.OutcomeRefused, "last": rag.OutcomeNew}, statuses)
	require.Equal(t, map[string]string{"new": "", "big": "too_large", "old": "bad_title", "unread": "encrypted",
		"": "bad_id", "last": ""}, codes)
	require.ElementsMatch(t, []string{"old", "new"}, documents(search(t, l, "apples", c)))
}

// putFile puts a file's bytes and gives what became of its documents.
func putFile(t *testing.T, l *rag.Library, c docstore.Collection, f rag.File,
	content string) map[string]rag.OutcomeStatus {
	t.Helper()
	f.Bytes = strings.NewReader(content)
	got := map[string]rag.OutcomeStatus{}
	require.NoError(t, l.PutFile(ctx, c, f, func(o rag.Outcome) { got[o.ID] = o.Status }))
	return got
}

// listed are the heads of a collection's documents, by id.
func listed(t *testing.T, l *rag.Library, c docstore.Collection) map[string]docstore.Head {
	t.Helper()
	heads, next, err := l.List(ctx, c, "", docstore.MaxPage)
	require.NoError(t, err)
	require.Empty(t, next)
	byID := map[string]docstore.Head{}
	for _, h := range heads {
		byID[h.ID] = h
	}
	return byID
}

func TestAFileOfManyDocuments(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	put(t, l, c, "faq.jsonl/by hand", "apples by hand")
	put(t, l, c, "faq", "another file")
	faq := rag.File{ID: "faq.jsonl", Origin: "/srv/docs", Metadata: map[string]string{"lang": "en"}}
	require.Equal(t, map[string]rag.OutcomeStatus{"faq.jsonl/1": "new", "faq.jsonl/b": "new"},
		putFile(t, l, c, faq, `{"text":"plums"}`+"\n"+
			`{"id":"b","text":"cherries","lang":"ru","source":"https://example.com/b"}`))
	h := listed(t, l, c)["faq.jsonl/b"]
	require.Equal(t, map[string]string{"lang": "en"}, h.Metadata, "what is said of the file is laid over what it says")
	require.Equal(t, "https://example.com/b", h.Source)
	require.Equal(t, docstore.SourceFile{Origin: "/srv/docs", File: "faq.jsonl",
		Loader: loader.Loader{}.Identity("faq.jsonl"), MetadataKeys: []string{"lang"}}, h.SourceFile)

	// The same document is the same document though others of the file changed.
	require.Equal(t, map[string]rag.OutcomeStatus{"faq.jsonl/b": "unchanged", "faq.jsonl/2": "new",
		"faq.jsonl/1": "removed"},
		putFile(t, l, c, faq, `{"id":"b","text":"cherries","lang":"ru","source":"https://example.com/b"}`+"\n"+
			`{"text":"pears"}`))
	require.Empty(t, documents(search(t, l, "plums", c)))

	// As long as a part of it cannot be read, or it is cut off, nothing is removed.
	require.Equal(t, map[string]rag.OutcomeStatus{"faq.jsonl": "refused", "faq.jsonl/1": "new"},
		putFile(t, l, c, faq, `{"text":"plums"}`+"\n"+`{"text":`))
	faq.Bytes = io.MultiReader(strings.NewReader(`{"text":"quinces"}`+"\n"+`{"text":"half`),
		iotest.ErrReader(io.ErrUnexpectedEOF))
	require.Error(t, l.PutFile(ctx, c, faq, func(rag.Outcome) {}))
	require.Equal(t, []string{"faq", "faq.jsonl/1", "faq.jsonl/2", "faq.jsonl/b", "faq.jsonl/by hand"},
		slices.Sorted(maps.Keys(listed(t, l, c))))
	require.Empty(t, documents(search(t, l, "half", c)))

	require.Equal(t, map[string]rag.OutcomeStatus{"faq.jsonl/x": "new", "faq.jsonl/1": "removed", "faq.jsonl/2": "removed",
		"faq.jsonl/b": "removed"},
		putFile(t, l, c, faq, `{"id":"x","text":"figs"}`), "what lies below its id but is not of it stays")

	// Two documents of one file with the same id are not one.
	outcomes := 0
	faq.Bytes = strings.NewReader(`{"id":"x","text":"figs"}` + "\n" + `{"id":"x","text":"dates"}`)
	require.NoError(t, l.PutFile(ctx, c, faq, func(o rag.Outcome) {
		if outcomes++; outcomes == 2 {
			require.Equal(t, "conflict", o.Code, o.Reason)
		}
	}))
	require.Equal(t, []string{"faq.jsonl/x"}, documents(search(t, l, "figs", c)))
}

func TestAFileThatBecomesManyDocuments(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	file := rag.File{ID: "a.json"}
	require.Equal(t, map[string]rag.OutcomeStatus{"a.json": "new"}, putFile(t, l, c, file, `{"text":"apples"}`))
	require.Equal(t, map[string]rag.OutcomeStatus{"a.json/1": "new", "a.json/2": "new", "a.json": "removed"},
		putFile(t, l, c, file, `[{"text":"apples"},{"text":"pears"}]`))
	require.Equal(t, map[string]rag.OutcomeStatus{"a.json": "new", "a.json/1": "removed", "a.json/2": "removed"},
		putFile(t, l, c, file, `{"text":"apples"}`))
}

func TestOriginsDoNotReplaceEachOther(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	put := func(id, origin, text string) string {
		for _, status := range putFile(t, l, c, rag.File{ID: id, Origin: origin}, text) {
			return string(status)
		}
		return ""
	}
	require.Equal(t, "new", put("readme.md", "", "no origin"))
	require.Equal(t, "changed", put("readme.md", "/a", "of a"), "one without an origin is adopted")
	require.Equal(t, "refused", put("readme.md", "/b", "of b"))
	require.Equal(t, "changed", put("readme.md", "/a/readme.md", "the same file by itself"))
	require.Equal(t, "changed", put("readme.md", "/a", "and again with its directory"))
	require.Equal(t, "refused", put("readme.md", "/b/readme.md", "another one by itself"))
	require.Equal(t, "new", put("b/readme.md", "/b", "of b"))
	require.Equal(t, []string{"readme.md"}, documents(search(t, l, "directory", c)))
	out, err := l.Put(ctx, c, input("readme.md", "said by hand"))
	require.NoError(t, err)
	require.Equal(t, rag.OutcomeChanged, out.Status, "one without an origin replaces any")

	var refused rag.Outcome
	require.NoError(t, l.PutFile(ctx, c, rag.File{ID: "b/readme.md", Origin: "/a", Bytes: strings.NewReader("x")},
		func(o rag.Outcome) { refused = o }))
	require.Equal(t, "conflict", refused.Code)
	for _, want := range []string{`"b/readme.md"`, `"/b"`, "--prefix", "--origin"} {
		require.Contains(t, refused.Reason, want)
	}
}

// Of many that put the same id at the same time, each with an origin of its own, one wins.
func TestOriginsAtTheSameTime(t *testing.T) {
	t.Parallel()
	l := library(redistest.Start(t).Client())
	c := collection(t, l, "docs")
	for round := range 20 {
		id := fmt.Sprintf("%d.md", round)
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				f := rag.File{ID: id, Origin: fmt.Sprintf("/%d", i), Bytes: strings.NewReader(fmt.Sprintf("number %d", i))}
				_ = l.PutFile(ctx, c, f, func(o rag.Outcome) {
					if !o.Failed() {
						won.Add(1)
					}
				})
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, won.Load())
	}
}

func TestWhatAnotherLoaderReadIsOutdated(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	l := library(client)
	c := collection(t, l, "docs")
	put(t, l, c, "text.pdf", "text that came as text")
	putFile(t, l, c, rag.File{ID: "new.md"}, "# New")
	for _, d := range []docstore.Document{
		{ID: "old.md", Text: "x", SourceFile: docstore.SourceFile{Origin: "/a", Raw: "00"}},
		{ID: "faq.jsonl/1", Source: "faq.jsonl", Text: "x", SourceFile: docstore.SourceFile{Origin: "/a", Raw: "00"}},
		{ID: "other.pdf", Text: "x", SourceFile: docstore.SourceFile{Loader: "another"}},
	} {
		require.NoError(t, docstore.New(client, 0).Put(ctx, c, d)[0].Err)
	}
	var outdated []string
	for id, h := range listed(t, l, c) {
		if h.Outdated {
			outdated = append(outdated, id)
		}
	}
	require.ElementsMatch(t, []string{"old.md", "faq.jsonl/1", "other.pdf"}, outdated)
	// The documents of a file that was loaded before files were named in them are its own.
	require.Equal(t, map[string]rag.OutcomeStatus{"faq.jsonl/2": "new", "faq.jsonl/1": "removed"},
		putFile(t, l, c, rag.File{ID: "faq.jsonl", Origin: "/a"}, `{"id":"2","text":"y"}`))
}

func TestOnlySomeChatsAreKept(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	l := rag.NewLibrary(docstore.New(server.Client(), 0), rag.Options{Chats: 3, Log: zerolog.Nop()})
	var chats []docstore.Collection
	for i := range 10 {
		c, err := docstore.OfChat(memory.MustChat(fmt.Sprint(i)))
		require.NoError(t, err)
		_, err = l.Create(ctx, c)
		require.NoError(t, err)
		put(t, l, c, "doc", fmt.Sprintf("apples of %d", i))
		chats = append(chats, c)
	}
	for i, c := range chats {
		require.Equal(t, fmt.Sprintf("apples of %d", i), search(t, l, "apples", c).Passages[0].Text)
	}
	server.Kill()
	answered := 0
	for _, c := range chats {
		if r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"}); err == nil &&
			r.Degraded {
			answered++
		}
	}
	require.Positive(t, answered)
	require.LessOrEqual(t, answered, 3)
}

// Why a program that reads files failed may name what is on this machine: the operator is told, the client that put
// the file is not.
func TestTheOperatorIsToldWhyAnExtractorFailed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	fails := loader.Command{Args: []string{"sh", "-c", "echo 'cannot open /srv/hidden' >&2; exit 3"}}
	l := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{Log: zerolog.New(&log),
		Loader: loader.Loader{Extractors: map[string]loader.Extractor{".png": fails}}})
	defer l.Close()
	c := collection(t, l, "docs")
	var outcomes []rag.Outcome
	require.NoError(t, l.PutFile(ctx, c, rag.File{ID: "a.png", Bytes: strings.NewReader("picture")},
		func(o rag.Outcome) { outcomes = append(outcomes, o) }))
	require.Len(t, outcomes, 1)
	require.Equal(t, rag.OutcomeRefused, outcomes[0].Status)
	require.NotContains(t, outcomes[0].Reason, "hidden")
	require.Contains(t, log.String(), "/srv/hidden")
}
