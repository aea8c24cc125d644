package rag_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// kept runs a library over a directory that it follows the store with, until the
// given function gives it back.
func kept(t *testing.T, server *redistest.Server, dir string) (l *rag.Library, end func()) {
	l = rag.NewLibrary(docstore.New(server.Client(), 0), rag.Options{
		Dir: dir, Log: zerolog.Nop(), Patience: 10 * time.Second, CatchUp: 10 * time.Second,
	})
	require.NoError(t, l.Load(ctx, memory.Tenant{}))
	following, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { l.Follow(following, memory.Tenant{}) })
	end = sync.OnceFunc(func() { stop(); done.Wait(); l.Close() })
	t.Cleanup(end)
	return l, end
}

// onDisk says whether a file of texts in a directory has one, as of now.
func onDisk(t *testing.T, dir, text string) bool {
	for name, content := range image(t, dir) {
		if strings.Contains(name, ".texts-") && bytes.Contains(content, []byte(text)) {
			return true
		}
	}
	return false
}

// image is what a directory has; files that go meanwhile are left out.
func image(t *testing.T, dir string) map[string][]byte {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, e := range entries {
		if content, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			files[e.Name()] = content
		}
	}
	return files
}

// The texts of documents that are deleted or replaced are overwritten where they are
// kept, and the others stay.
func TestDeletedTextsLeaveTheDisk(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	l, end := kept(t, server, dir)
	c := collection(t, l, "docs")
	put(t, l, c, "a", "apples and a secret of pears")
	put(t, l, c, "b", "apples and a secret of plums")
	put(t, l, c, "c", "apples and cherries")
	require.Len(t, search(t, l, "apples", c).Passages, 3)
	require.True(t, onDisk(t, dir, "secret"))
	_, err := l.Delete(ctx, c, "a")
	require.NoError(t, err)
	put(t, l, c, "b", "apples alone")
	require.Eventually(t, func() bool { return !onDisk(t, dir, "secret of pears") && !onDisk(t, dir, "secret of plums") },
		time.Minute, 20*time.Millisecond)
	r := search(t, l, "apples", c)
	require.ElementsMatch(t, []string{"b", "c"}, documents(r))
	require.False(t, r.Degraded)
	put(t, l, c, "c", "replaced just before the end")
	end()
	require.False(t, onDisk(t, dir, "cherries"))
}

// A file of more than 8 MB of which more than half is dead is compacted while it is searched. A process that is killed at
// any moment of the compaction finds the same documents when it starts again.
func TestTextsAreCompactedWhileTheyAreSearched(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	l, end := kept(t, server, dir)
	c := collection(t, l, "docs")
	const all, left = 24, 9
	for i := range all {
		put(t, l, c, fmt.Sprintf("d%d", i),
			fmt.Sprintf("apples of number%d. %s", i, strings.Repeat(fmt.Sprintf("filler%d ", i), 50_000)))
	}
	// A search waits until the replica has read all versions. One that reads them late never stores the replaced ones,
	// so too little of its file is dead.
	search(t, l, "apples", c)
	for i := left; i < all; i++ {
		put(t, l, c, fmt.Sprintf("d%d", i), fmt.Sprintf("pears of number%d.", i))
	}
	find := func(l *rag.Library) {
		for i := range all {
			fruit := "pears"
			if i < left {
				fruit = "apples"
			}
			r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: fmt.Sprintf("number%d", i)})
			if err != nil || len(r.Passages) != 1 ||
				!strings.HasPrefix(r.Passages[0].Text, fmt.Sprintf("%s of number%d.", fruit, i)) {
				t.Errorf("number%d: %v, %d passages", i, err, len(r.Passages))
			}
		}
	}
	compacted := func() bool {
		size := 0
		for name, content := range image(t, dir) {
			if strings.Contains(name, ".texts-") {
				size += len(content)
			}
		}
		return 0 < size && size < 6<<20
	}
	var images []map[string][]byte
	for deadline := time.Now().Add(5 * time.Minute); !compacted(); find(l) {
		require.True(t, time.Now().Before(deadline), "it is not compacted")
		images = append(images, image(t, dir))
	}
	find(l)
	end()
	images = append(images[max(0, len(images)-3):], image(t, dir))
	for _, files := range images {
		dir := t.TempDir()
		files["default.docs.texts-ofadraft"] = []byte("apples of a compaction that was not finished")
		for name, content := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
		l, end := kept(t, server, dir)
		find(l)
		require.NoFileExists(t, filepath.Join(dir, "default.docs.texts-ofadraft"))
		end()
	}
}

// What was read is not kept in memory: neither texts, nor what an index was built of.
func TestTextsTakeNoMemory(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	writer := library(server.Client())
	c := collection(t, writer, "docs")
	const size = 6 << 20
	text := strings.Repeat("filler of a large document. ", size/28)
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	reader, end := kept(t, server, t.TempDir())
	defer end()
	before := heap()
	put(t, writer, c, "large", text)
	require.Eventually(t, func() bool { return len(search(t, reader, "large document", c).Passages) > 0 }, time.Minute,
		20*time.Millisecond)
	require.Eventually(t, func() bool { // the follower may be at work
		return heap()-before < size/2
	}, time.Minute, 100*time.Millisecond)
	runtime.KeepAlive(text)
}
