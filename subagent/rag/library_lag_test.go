package rag_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// bulk are documents with a text that is long enough for a narrow way.
func bulk(from, to int, word string) []rag.Input {
	var list []rag.Input
	for i := from; i < to; i++ {
		list = append(list,
			input(fmt.Sprintf("d%05d", i), fmt.Sprintf("%s of number%d. %s", word, i, strings.Repeat("filler ", 20))))
	}
	return list
}

// A replica that is 20,000 changes behind answers searches of short patience, without
// the new documents and without any that was deleted or replaced; the changes are
// applied once, behind the searches that came and went.
func TestSearchesOverAReplicaThatIsFarBehind(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	changes := 20_000
	if testing.Short() {
		changes = 2_000
	}
	server := redistest.Start(t)
	way := server.Narrow(t, "xrange")
	writer := library(server.Client())
	c := collection(t, writer, "docs")
	_, err := writer.PutAll(ctx, c, bulk(0, 1000, "apples")...)
	require.NoError(t, err)
	behind := rag.NewLibrary(docstore.New(way.Client(), 0), rag.Options{
		Log: zerolog.Nop(), CatchUp: 200 * time.Millisecond,
	})
	defer behind.Close()
	require.Len(t, search(t, behind, "apples", c).Passages, 10)
	require.Zero(t, behind.Lag())

	way.Close()
	for from := 1000; from < changes; from += 1000 {
		_, err := writer.PutAll(ctx, c, bulk(from, from+1000, "pears")...)
		require.NoError(t, err)
	}
	var gone []string
	for i := range 900 {
		gone = append(gone, fmt.Sprintf("d%05d", i))
	}
	_, err = writer.Delete(ctx, c, gone...)
	require.NoError(t, err)
	put(t, writer, c, "d00950", "replaced by cherries")

	for i := range 12 {
		bounded, cancel := context.WithTimeout(ctx, time.Minute) // and the way stays closed
		r, err := behind.Search(bounded, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
		cancel()
		require.NoError(t, err, i)
		require.True(t, r.Degraded)
		require.Len(t, r.Passages, 10, "as many are left as are wanted")
		for _, p := range r.Passages {
			require.True(t, p.DocID >= "d00900" && p.DocID != "d00950", "%s was deleted or replaced", p.DocID)
			require.Contains(t, p.Text, "apples")
		}
	}
	require.Positive(t, behind.Lag().Changes)

	way.Open()
	require.Eventually(t, func() bool {
		r := search(t, behind, "pears", c)
		return !r.Degraded && len(r.Passages) == 10
	}, 5*time.Minute, 50*time.Millisecond)
	require.Zero(t, behind.Lag())
	require.Equal(t, []string{fmt.Sprintf("d%05d", changes-1)},
		documents(search(t, behind, fmt.Sprintf("number%d", changes-1), c)))
	require.Equal(t, []string{"d00950"}, documents(search(t, behind, "cherries", c)))
}

// What a collection of the same name held before is never found in the new one, also
// while that is not read yet.
func TestACollectionMadeAnewUnderAReplicaThatIsBehind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	way := server.Narrow(t, "xrange")
	writer := library(server.Client())
	c := collection(t, writer, "docs")
	_, err := writer.PutAll(ctx, c, bulk(0, 500, "apples")...)
	require.NoError(t, err)
	behind := rag.NewLibrary(docstore.New(way.Client(), 0), rag.Options{
		Log: zerolog.Nop(), CatchUp: 50 * time.Millisecond,
	})
	defer behind.Close()
	require.Len(t, search(t, behind, "apples", c).Passages, 10)
	way.Close()
	_, err = writer.Drop(ctx, c)
	require.NoError(t, err)
	_, err = writer.Create(ctx, c)
	require.NoError(t, err)
	_, err = writer.PutAll(ctx, c, bulk(0, 500, "secrets")...) // the same ids and versions
	require.NoError(t, err)
	require.Empty(t, search(t, behind, "apples", c).Passages)
	way.Open()
	require.Eventually(t, func() bool { return len(search(t, behind, "secrets", c).Passages) == 10 }, time.Minute,
		20*time.Millisecond)
	require.Empty(t, search(t, behind, "apples", c).Passages)
}

// Follow keeps a replica in step that is never searched, and leaves nothing behind.
func TestReplicasFollowTheStoreWithoutBeingSearched(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	one := library(server.Client())
	c := collection(t, one, "docs")
	put(t, one, c, "a", "apples")
	others := goleak.IgnoreCurrent()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	l := rag.NewLibrary(docstore.New(client, 0), rag.Options{Log: zerolog.Nop(), Patience: 100 * time.Millisecond})
	require.NoError(t, l.Load(ctx, memory.Tenant{}))
	following, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { l.Follow(following, memory.Tenant{}) })

	put(t, one, c, "b", "pears")
	require.Eventually(t, func() bool {
		server.Signal(syscall.SIGSTOP) // what is found then was known before
		defer server.Signal(syscall.SIGCONT)
		r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "pears"})
		return err == nil && r.Degraded && len(r.Passages) == 1
	}, time.Minute, 300*time.Millisecond)
	stop()
	done.Wait()
	l.Close()
	require.NoError(t, client.Close())
	goleak.VerifyNone(t, others, redistest.IgnoreIdle())
}

// snapshots runs a library over a directory until it has written a snapshot.
func snapshots(t *testing.T, client redis.UniversalClient, dir string, use func(l *rag.Library)) {
	t.Helper()
	l := rag.NewLibrary(docstore.New(client, 0), rag.Options{Dir: dir, Log: zerolog.Nop(), Patience: 10 * time.Second,
		CatchUp: 10 * time.Second})
	defer l.Close()
	require.NoError(t, l.Load(ctx, memory.Tenant{}))
	use(l)
	following, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { l.Follow(following, memory.Tenant{}) })
	defer done.Wait()
	defer stop()
	require.Eventually(t, func() bool {
		there, _ := filepath.Glob(filepath.Join(dir, "*.snapshot"))
		return len(there) > 0
	}, time.Minute, 20*time.Millisecond)
}

// documentReads counts the documents that a client asks Redis for.
type documentReads struct{ n atomic.Int64 }

func (*documentReads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *documentReads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "hmget" && args[1] == "documents:{default:docs}" {
			d.n.Add(int64(len(args) - 2))
		}
		return next(ctx, cmd)
	}
}

func (*documentReads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A restart begins with the snapshot and reads what changed since; whatever became of
// the files meanwhile, it finds what the store has.
func TestARestartBeginsWithASnapshot(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	writer := library(client)
	c := collection(t, writer, "docs")
	_, err := writer.PutAll(ctx, c, bulk(0, 500, "apples")...)
	require.NoError(t, err)
	dir := t.TempDir()
	snapshots(t, client, dir, func(*rag.Library) {})
	put(t, writer, c, "d00007", "replaced by pears")
	_, err = writer.Delete(ctx, c, "d00008")
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	kept := map[string][]byte{}
	for _, e := range entries {
		kept[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}

	begin := func(name string, change func(name string, content []byte) []byte) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range kept {
				if content = change(name, content); content != nil {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
				}
			}
			asked := documentReads{}
			counted := server.Client()
			counted.AddHook(&asked)
			l := rag.NewLibrary(docstore.New(counted, 0), rag.Options{Dir: dir, Log: zerolog.Nop(), Patience: 10 * time.Second,
				CatchUp: 10 * time.Second})
			defer l.Close()
			require.NoError(t, l.Load(ctx, memory.Tenant{}))
			read := asked.n.Load()
			r := search(t, l, "number42 apples", c)
			require.Equal(t, "d00042", r.Passages[0].DocID)
			require.True(t, strings.HasPrefix(r.Passages[0].Text, "apples of number42. "))
			require.Equal(t, []string{"d00007"}, documents(search(t, l, "pears", c)))
			require.Empty(t, documents(search(t, l, "number8", c)))
			if name == "as it was left" {
				require.EqualValues(t, 1, read, "of 500 documents, the one that was put since")
			}
			put(t, l, c, "new", "a new document with plums")
			require.Equal(t, []string{"new"}, documents(search(t, l, "plums", c)))
			_, err := l.Delete(ctx, c, "new")
			require.NoError(t, err)
		})
	}
	of := func(part string, do func([]byte) []byte) func(string, []byte) []byte {
		return func(name string, content []byte) []byte {
			if strings.Contains(name, part) {
				return do(append([]byte{}, content...))
			}
			return content
		}
	}
	begin("as it was left", of("none", nil))
	begin("a snapshot cut short", of(".snapshot", func(b []byte) []byte { return b[:len(b)/2] }))
	begin("a snapshot with a wrong byte", of(".snapshot", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }))
	begin("an empty snapshot", of(".snapshot", func(b []byte) []byte { return []byte{} }))
	begin("no texts", of(".texts-", func([]byte) []byte { return nil }))
	begin("texts cut short", of(".texts-", func(b []byte) []byte { return b[:100] }))
	begin("other texts", of(".texts-", func(b []byte) []byte {
		for i := range b {
			b[i] ^= 1
		}
		return b
	}))

	// A collection of the same name that was made anew, and one that is gone.
	_, err = writer.Drop(ctx, c)
	require.NoError(t, err)
	collection(t, writer, "docs")
	put(t, writer, c, "d00001", "apples made anew")
	dir = t.TempDir()
	for name, content := range kept {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	l := rag.NewLibrary(docstore.New(client, 0), rag.Options{Dir: dir, Log: zerolog.Nop(), Patience: 10 * time.Second,
		CatchUp: 10 * time.Second})
	defer l.Close()
	require.NoError(t, l.Load(ctx, memory.Tenant{}))
	require.Equal(t, []string{"d00001"}, documents(search(t, l, "apples", c)))
	_, err = l.Drop(ctx, c)
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(dir, "default.docs.*"))
	require.NoError(t, err)
	require.Empty(t, left, "no text of a collection outlives it")
}

// Texts that cannot be kept on disk are read from the store, and what cannot be read
// there either is left out.
func TestWithoutRoomTextsComeFromTheStore(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "absent"))
	l := rag.NewLibrary(docstore.New(server.Client(), 0), rag.Options{Log: zerolog.Nop(), Patience: 10 * time.Second})
	defer l.Close()
	c := collection(t, l, "docs")
	put(t, l, c, "a", "apples")
	put(t, l, c, "b", "apples and pears")
	r := search(t, l, "apples", c)
	require.False(t, r.Degraded)
	require.ElementsMatch(t, []string{"a", "b"}, documents(r))
	server.Kill()
	r = search(t, l, "apples", c)
	require.True(t, r.Degraded)
	require.Empty(t, r.Passages)
}

// Searches of a library share its catch-ups while others write and it deletes.
func TestManySearchesShareOneCatchUp(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	writer := library(server.Client())
	c := collection(t, writer, "docs")
	l := library(server.Client())
	defer l.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 25 {
				id := fmt.Sprintf("d%d-%d", i, n)
				if _, err := writer.Put(ctx, c, input(id, "apples of "+id)); err != nil {
					t.Error(err)
				}
				if _, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"}); err != nil {
					t.Error(err)
				}
				if n%2 == 0 {
					if _, err := l.Delete(ctx, c, id); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples", K: 100})
	require.NoError(t, err)
	require.Len(t, r.Passages, 8*12)
}
