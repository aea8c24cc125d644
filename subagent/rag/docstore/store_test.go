package docstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/embedded"
	"mneme/subagent/rag/docstore"
)

var ctx = context.Background()

// suite is what holds of a store over any kind of Redis.
var suite = map[string]func(t *testing.T, client redis.UniversalClient){
	"documents come back as they were put":       documentsComeBack,
	"lists":                                      lists,
	"collections are apart":                      collectionsAreApart,
	"the log tells every change":                 theLogTells,
	"of two writers of one document one is last": twoWriters,
	"how far an index was fed is noted once":     notesOnce,
}

func run(t *testing.T, client redis.UniversalClient, clear func() error) {
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, clear())
			test(t, client)
		})
	}
}

func TestOverRedis(t *testing.T) {
	client := redistest.Start(t).Client()
	run(t, client, func() error { return client.FlushAll(ctx).Err() })
}

func TestOverTheEmbeddedStore(t *testing.T) {
	client := inside(t)
	run(t, client, func() error { return client.FlushAll(ctx).Err() })
}

func TestOverACluster(t *testing.T) {
	testtier.Slow(t)
	client := redistest.StartCluster(t).Client()
	run(t, client, func() error {
		return client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		})
	})
}

// inside is a client of an embedded store.
func inside(t *testing.T) redis.UniversalClient {
	t.Helper()
	server, err := embedded.Open(ctx, embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"embedded"}, Dialer: server.Dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { client.Close() })
	return client
}

// impatient is a client that does not try again.
func impatient(t *testing.T, server *redistest.Server) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	return client
}

func named(t *testing.T, name string) docstore.Collection {
	t.Helper()
	c, err := docstore.NamedCollection(memory.Tenant{}, name)
	require.NoError(t, err)
	return c
}

func created(t *testing.T, s *docstore.Store, name string) docstore.Collection {
	t.Helper()
	c := named(t, name)
	_, err := s.Create(ctx, c)
	require.NoError(t, err)
	return c
}

func doc(id, text string) docstore.Document {
	return docstore.Document{ID: id, Title: "About " + id, Text: text, Passages: []docstore.Passage{
		{End: len(text), Section: "A > B"},
	}}
}

func put(t *testing.T, s *docstore.Store, c docstore.Collection, d docstore.Document) docstore.Written {
	t.Helper()
	w := s.Put(ctx, c, d)[0]
	require.NoError(t, w.Err)
	return w
}

func documentsComeBack(t *testing.T, client redis.UniversalClient) {
	s := docstore.New(client, 0)
	c := named(t, "docs")
	require.ErrorIs(t, s.Put(ctx, c, doc("a", "x"))[0].Err, docstore.ErrNoCollection)
	_, err := s.Get(ctx, c, "a")
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	_, _, err = s.List(ctx, c, "", 10)
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	_, err = s.Delete(ctx, c, "a")
	require.ErrorIs(t, err, docstore.ErrNoCollection)

	made, err := s.Create(ctx, c)
	require.NoError(t, err)
	require.True(t, made)
	made, err = s.Create(ctx, c)
	require.NoError(t, err)
	require.False(t, made)
	_, err = s.Get(ctx, c, "a")
	require.ErrorIs(t, err, docstore.ErrNoDocument)

	d := doc("guide/a.md", "Ёлки <b>\"quoted\"</b>\n\tи \u2028 конец")
	d.Source, d.Origin, d.Raw, d.Metadata = "guide/a.md", "dir", "cafe", map[string]string{"язык": "ru"}
	w := put(t, s, c, d)
	require.Equal(t, docstore.StatusNew, w.Status)
	got, err := s.Get(ctx, c, d.ID)
	require.NoError(t, err)
	require.Equal(t, w.Mark.Version, got.Version)
	require.Len(t, got.Hash, 64)
	d.Version, d.Hash = got.Version, got.Hash
	require.Equal(t, d, got)

	again := put(t, s, c, d)
	require.Equal(t, docstore.StatusUnchanged, again.Status)
	require.Equal(t, w.Mark.Version, again.Mark.Version)
	d.Text += "!"
	changed := put(t, s, c, d)
	require.Equal(t, docstore.StatusChanged, changed.Status)
	require.Greater(t, changed.Mark.Version, w.Mark.Version)

	info, err := s.Info(ctx, c)
	require.NoError(t, err)
	require.Equal(t, "docs", info.Name)
	require.Equal(t, int64(1), info.Documents)
	require.Equal(t, changed.Mark.Version, info.Version)
	require.Positive(t, info.Bytes)
	marks, err := s.Delete(ctx, c, d.ID, "absent", d.ID)
	require.NoError(t, err)
	require.Greater(t, marks[0].Version, changed.Mark.Version)
	require.Zero(t, marks[1])
	require.Zero(t, marks[2])
	_, err = s.Get(ctx, c, d.ID)
	require.ErrorIs(t, err, docstore.ErrNoDocument)
	info, err = s.Info(ctx, c)
	require.NoError(t, err)
	require.Zero(t, info.Documents)
	require.Zero(t, info.Bytes)
}

func TestADocumentIsReadableByHand(t *testing.T) {
	client := redistest.Start(t).Client()
	s := docstore.New(client, 0)
	c := created(t, s, "docs")
	w := put(t, s, c, doc("a.md", "Text & <more>"))
	text, err := client.HGet(ctx, "documents:{default:docs}", "a.md").Result()
	require.NoError(t, err)
	require.Contains(t, text, "Text & <more>")
	var read map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &read))
	require.Equal(t, "a.md", read["id"])
	require.EqualValues(t, w.Mark.Version, read["version"])
}

func lists(t *testing.T, client redis.UniversalClient) {
	s := docstore.New(client, 0)
	c := created(t, s, "docs")
	heads, next, err := s.List(ctx, c, "", 10)
	require.NoError(t, err)
	require.Empty(t, heads)
	require.Empty(t, next)
	var all []docstore.Document
	for i := range 25 {
		all = append(all, doc(fmt.Sprintf("d%02d", i), "text"))
	}
	for _, w := range s.Put(ctx, c, all...) {
		require.NoError(t, w.Err)
	}
	var ids []string
	for cursor := ""; ; {
		heads, next, err := s.List(ctx, c, cursor, 10)
		require.NoError(t, err)
		for _, h := range heads {
			require.Equal(t, 1, h.Passages)
			require.Equal(t, "About "+h.ID, h.Title)
			ids = append(ids, h.ID)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	require.Len(t, ids, 25)
	require.IsIncreasing(t, ids)
}

func collectionsAreApart(t *testing.T, client redis.UniversalClient) {
	s := docstore.New(client, 0)
	a, b := created(t, s, "a"), created(t, s, "b")
	other, err := memory.ParseTenant("other")
	require.NoError(t, err)
	foreign, err := docstore.NamedCollection(other, "a")
	require.NoError(t, err)
	chat, err := docstore.OfChat(memory.MustChat("12345:x@y"))
	require.NoError(t, err)
	for _, c := range []docstore.Collection{foreign, chat} {
		_, err = s.Create(ctx, c)
		require.NoError(t, err)
	}
	put(t, s, a, doc("1", "in a"))
	put(t, s, chat, doc("1", "in the chat"))
	for c, want := range map[docstore.Collection]int{a: 1, b: 0, foreign: 0, chat: 1} {
		heads, _, err := s.List(ctx, c, "", 10)
		require.NoError(t, err)
		require.Len(t, heads, want, c)
	}
	infos, err := s.Collections(ctx, memory.Tenant{})
	require.NoError(t, err)
	var names []string
	for _, i := range infos {
		names = append(names, i.Name)
	}
	require.ElementsMatch(t, []string{"a", "b"}, names)

	dropped, err := s.Drop(ctx, a)
	require.NoError(t, err)
	require.True(t, dropped)
	dropped, err = s.Drop(ctx, a)
	require.NoError(t, err)
	require.False(t, dropped)
	_, err = s.Drop(ctx, chat)
	require.NoError(t, err)
	infos, err = s.Collections(ctx, memory.Tenant{})
	require.NoError(t, err)
	require.Len(t, infos, 1)
	if _, cluster := client.(*redis.ClusterClient); !cluster {
		keys, err := client.Keys(ctx, "documents:*").Result()
		require.NoError(t, err)
		for _, k := range keys {
			require.NotContains(t, k, "chat:")
			require.NotContains(t, k, "{default:a}")
		}
	}
}

func theLogTells(t *testing.T, client redis.UniversalClient) {
	s := docstore.New(client, 5)
	c := named(t, "docs")
	_, err := s.Last(ctx, c)
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	_, err = s.Tail(ctx, c, docstore.Mark{}, 10)
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	created(t, s, "docs")
	start, err := s.Last(ctx, c)
	require.NoError(t, err)
	w := put(t, s, c, doc("a", "1"))
	put(t, s, c, doc("a", "1")) // no change
	marks, err := s.Delete(ctx, c, "a")
	require.NoError(t, err)
	changes, err := s.Tail(ctx, c, start, 10)
	require.NoError(t, err)
	require.Equal(t, []docstore.Change{{w.Mark, "a"}, {marks[0], "a"}}, changes)
	changes, err = s.Tail(ctx, c, start, 1)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	last, err := s.Last(ctx, c)
	require.NoError(t, err)
	require.Equal(t, marks[0], last)
	changes, err = s.Tail(ctx, c, last, 10)
	require.NoError(t, err)
	require.Empty(t, changes)

	// Cut: the log keeps about the last five; Redis cuts in blocks of a hundred.
	for i := range 400 {
		put(t, s, c, doc("b", fmt.Sprint(i)))
	}
	_, err = s.Tail(ctx, c, last, 10)
	require.ErrorIs(t, err, docstore.ErrGap)

	// Made anew: the same versions come again, with other content.
	_, err = s.Drop(ctx, c)
	require.NoError(t, err)
	created(t, s, "docs")
	put(t, s, c, doc("c", "1"))
	_, err = s.Tail(ctx, c, start, 10)
	require.ErrorIs(t, err, docstore.ErrGap)
	_, err = s.Tail(ctx, c, w.Mark, 10)
	require.ErrorIs(t, err, docstore.ErrGap)
}

func twoWriters(t *testing.T, client redis.UniversalClient) {
	s := docstore.New(client, 0)
	c := created(t, s, "docs")
	start, err := s.Last(ctx, c)
	require.NoError(t, err)
	const rounds = 50
	texts := map[int64]string{}
	var mu sync.Mutex
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := range rounds {
				text := strings.Repeat(fmt.Sprintf("writer %d round %d ", w, i), 50)
				written := s.Put(ctx, c, doc("same", text))[0]
				mu.Lock()
				texts[written.Mark.Version] = text
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	require.Len(t, texts, 2*rounds, "every version was one writer's")
	changes, err := s.Tail(ctx, c, start, 1000)
	require.NoError(t, err)
	require.Len(t, changes, 2*rounds)
	got, err := s.Get(ctx, c, "same")
	require.NoError(t, err)
	require.Equal(t, changes[len(changes)-1].Mark.Version, got.Version)
	require.Equal(t, texts[got.Version], got.Text)
}

// A redis-server that is killed while documents are put has each of them whole or
// not at all, and those that were acknowledged.
func TestAKillLeavesNoHalfDocument(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := docstore.New(impatient(t, server), 0)
	c := created(t, s, "docs")
	for round := range 3 {
		acknowledged := map[string]int64{}
		enough := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				id := fmt.Sprintf("r%d-%d", round, i)
				w := s.Put(ctx, c, doc(id, strings.Repeat(id+" ", 200)))[0]
				if w.Err != nil {
					return
				}
				acknowledged[id] = w.Mark.Version
				if i == 50 {
					close(enough)
				}
			}
		}()
		<-enough
		server.Kill()
		<-done
		require.NoError(t, server.Run())
		heads := map[string]docstore.Head{}
		for cursor := ""; ; {
			page, next, err := s.List(ctx, c, cursor, 1000)
			require.NoError(t, err)
			for _, h := range page {
				heads[h.ID] = h
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		for id, version := range acknowledged {
			d, err := s.Get(ctx, c, id)
			require.NoError(t, err)
			require.Equal(t, version, d.Version)
			require.Equal(t, d.Hash, heads[id].Hash)
			require.Equal(t, strings.Repeat(id+" ", 200), d.Text)
		}
		info, err := s.Info(ctx, c)
		require.NoError(t, err)
		require.EqualValues(t, len(heads), info.Documents)
		last, err := s.Last(ctx, c)
		require.NoError(t, err)
		require.Equal(t, info.Version, last.Version)
	}
}

func TestAStoreThatIsAwayIsUnavailable(t *testing.T) {
	server := redistest.Start(t)
	s := docstore.New(impatient(t, server), 0)
	c := created(t, s, "docs")
	put(t, s, c, doc("a", "x"))
	last, err := s.Last(ctx, c)
	require.NoError(t, err)
	server.Kill()
	_, err = s.Create(ctx, c)
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Drop(ctx, c)
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Delete(ctx, c, "a")
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Get(ctx, c, "a")
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, _, err = s.List(ctx, c, "", 1)
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Tail(ctx, c, last, 1)
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Last(ctx, c)
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Info(ctx, c)
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	_, err = s.Collections(ctx, memory.Tenant{})
	require.ErrorIs(t, err, docstore.ErrUnavailable)
	require.ErrorIs(t, s.Put(ctx, c, doc("b", "x"))[0].Err, docstore.ErrUnavailable)
	require.NoError(t, server.Run()) // keeps nothing: no script, no collection
	require.ErrorIs(t, s.Put(ctx, c, doc("b", "x"))[0].Err, docstore.ErrNoCollection)
	_, err = s.Tail(ctx, c, last, 1)
	require.ErrorIs(t, err, docstore.ErrNoCollection)
}

func TestRefusals(t *testing.T) {
	client := redistest.Start(t).Client()
	s := docstore.New(client, 0)
	c := created(t, s, "docs")
	for name, tt := range map[string]struct {
		change func(*docstore.Document)
		code   docstore.Code
	}{
		"no id":              {func(d *docstore.Document) { d.ID = "" }, docstore.BadID},
		"long id":            {func(d *docstore.Document) { d.ID = strings.Repeat("я", 257) }, docstore.BadID},
		"control in the id":  {func(d *docstore.Document) { d.ID = "a\nb" }, docstore.BadID},
		"invisible id":       {func(d *docstore.Document) { d.ID = "a\u200bb" }, docstore.BadID},
		"id of broken UTF-8": {func(d *docstore.Document) { d.ID = "a\xff" }, docstore.BadID},
		"broken text":        {func(d *docstore.Document) { d.Text = "a\xff" }, docstore.BadText},
		"no text":            {func(d *docstore.Document) { d.Text, d.Passages = " \n", nil }, docstore.BadText},
		"large text": {func(d *docstore.Document) { d.Text = strings.Repeat("x", docstore.MaxText+1) },
			docstore.TooLarge},
		"long title": {func(d *docstore.Document) { d.Title = strings.Repeat("x", docstore.MaxTitle+1) },
			docstore.BadTitle},
		"long source": {func(d *docstore.Document) { d.Source = strings.Repeat("x", docstore.MaxSource+1) },
			docstore.BadSource},
		"much metadata": {func(d *docstore.Document) {
			d.Metadata = map[string]string{"k": strings.Repeat("x", docstore.MaxMetadata)}
		}, docstore.BadMetadata},
	} {
		t.Run(name, func(t *testing.T) {
			bad := doc("a", "text")
			tt.change(&bad)
			results := s.Put(ctx, c, doc("before", "x"), bad, doc("behind", "x"))
			require.NoError(t, results[0].Err)
			require.NoError(t, results[2].Err)
			var refusal *docstore.Error
			require.ErrorAs(t, results[1].Err, &refusal)
			require.Equal(t, tt.code, refusal.Code)
			require.NotEmpty(t, refusal.Error())
		})
	}
	limit := doc(strings.Repeat("я", 256), "text")
	require.NoError(t, s.Put(ctx, c, limit)[0].Err)
	outside := doc("a", "text")
	outside.Passages[0].End++
	require.Error(t, s.Put(ctx, c, outside)[0].Err)

	for _, name := range []string{"", "A", "chat:1", "a b", "a/b", "{a}", "я", strings.Repeat("a", 65)} {
		var refusal *docstore.Error
		_, err := docstore.NamedCollection(memory.Tenant{}, name)
		require.ErrorAs(t, err, &refusal, name)
		require.Equal(t, docstore.BadCollection, refusal.Code)
	}
	_, err := docstore.OfChat(memory.Chat{})
	require.Error(t, err)
}

// The largest document goes through, in the embedded store too.
func TestTheLargestDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("50 MB")
	}
	within := inside(t)
	text := strings.Repeat("a line of text\n", docstore.MaxText/15)
	for name, client := range map[string]redis.UniversalClient{"redis": redistest.Start(t).Client(), "embedded": within} {
		s := docstore.New(client, 0)
		c := created(t, s, "docs")
		put(t, s, c, doc("large", text))
		got, err := s.Get(ctx, c, "large")
		require.NoError(t, err, name)
		require.True(t, got.Text == text, name)
	}
	s := docstore.New(within, 0)
	escaped := doc("escaped", strings.Repeat("\x01", docstore.MaxText/2))
	var refusal *docstore.Error
	require.True(t, errors.As(s.Put(ctx, named(t, "docs"), escaped)[0].Err, &refusal))
	require.Equal(t, docstore.TooLarge, refusal.Code)
}

// What is noted of an index elsewhere takes the place of what the writer read only, goes with the collection, and makes
// none.
func notesOnce(t *testing.T, client redis.UniversalClient) {
	s := docstore.New(client, 0)
	c := created(t, s, "docs")
	put(t, s, c, doc("a", "text"))
	last, fed, err := docstore.Fed(ctx, s, c)
	require.NoError(t, err)
	require.Equal(t, int64(2), last.Version)
	require.Empty(t, fed)
	for _, step := range []struct {
		before, now string
		noted       bool
		then        string
	}{{"x", "1", false, ""}, {"", "1", true, "1"}, {"", "2", false, "1"}, {"1", "2", true, "2"}, {"2", "", true, ""}} {
		noted, err := docstore.Feed(ctx, s, c, step.before, step.now)
		require.NoError(t, err)
		require.Equal(t, step.noted, noted)
		at, fed, err := docstore.Fed(ctx, s, c)
		require.NoError(t, err)
		require.Equal(t, step.then, fed)
		require.Equal(t, last, at, "it is no change of the collection")
	}
	_, err = s.Drop(ctx, c)
	require.NoError(t, err)
	_, err = docstore.Feed(ctx, s, c, "", "3")
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	_, _, err = docstore.Fed(ctx, s, c)
	require.ErrorIs(t, err, docstore.ErrNoCollection)
	created(t, s, "docs")
	_, fed, err = docstore.Fed(ctx, s, c)
	require.NoError(t, err)
	require.Empty(t, fed)
}
