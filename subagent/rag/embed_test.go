package rag_test

import (
	"context"
	"errors"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory/redistest"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/index"
)

// hashing is an Embedder that throws words into dimensions, of which cars and
// automobiles share one.
type hashing struct {
	space string
	size  int
	seen  sync.Map // texts that were embedded
	down  atomic.Bool
}

func (h *hashing) Space() string { return h.space }

func (h *hashing) Embed(_ context.Context, texts []string) ([][]float32, error) {
	if h.down.Load() {
		return nil, errors.New("the endpoint is down")
	}
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		h.seen.Store(text, true)
		vectors[i] = make([]float32, h.size)
		for _, word := range strings.Fields(strings.NewReplacer("automobiles", "cars").Replace(strings.ToLower(text))) {
			sum := fnv.New32a()
			sum.Write([]byte(word))
			vectors[i][sum.Sum32()%uint32(h.size)]++
		}
	}
	return vectors, nil
}

// hybrid is a library that embeds until the test ends.
func hybrid(t *testing.T, server *redistest.Server, e *hashing) *rag.Library {
	t.Helper()
	l := rag.NewLibrary(docstore.New(server.Client(), 0), rag.Options{Embedder: e, Log: zerolog.Nop()})
	running, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { l.RunEmbedding(running) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return l
}

// embedded waits until a search is no longer degraded.
func embedded(t *testing.T, l *rag.Library, query string, c docstore.Collection) rag.Result {
	t.Helper()
	var r rag.Result
	require.Eventually(t, func() bool {
		r = search(t, l, query, c)
		return !r.Degraded
	}, 20*time.Second, 5*time.Millisecond)
	return r
}

func TestAHybridSearchFindsWhatSharesNoWord(t *testing.T) {
	server := redistest.Start(t)
	e := &hashing{space: "hash/256", size: 256}
	l := hybrid(t, server, e)
	c := collection(t, l, "docs")
	put(t, l, c, "cars", "cars need oil")
	put(t, l, c, "bread", "bread needs flour")
	put(t, l, c, "both", "automobiles and oil")
	r := embedded(t, l, "automobiles", c)
	require.Equal(t, "both", r.Passages[0].DocID)
	require.Equal(t, 1, r.Passages[0].BM25Rank)
	require.Equal(t, 1, r.Passages[0].VecRank)
	require.Equal(t, "cars", r.Passages[1].DocID)
	require.Zero(t, r.Passages[1].BM25Rank)
	require.Equal(t, 2, r.Passages[1].VecRank)

	// The endpoint down: words alone, and it says so.
	e.down.Store(true)
	r = search(t, l, "automobiles", c)
	require.True(t, r.Degraded)
	require.Equal(t, []string{"both"}, documents(r))
	put(t, l, c, "new", "automobiles anew")
	require.ElementsMatch(t, []string{"both", "new"}, documents(search(t, l, "automobiles", c)))
	e.down.Store(false)
	require.Len(t, embedded(t, l, "automobiles", c).Passages, 4)

	// What is deleted is not near anything.
	_, err := l.Delete(ctx, c, "cars")
	require.NoError(t, err)
	require.NotContains(t, documents(embedded(t, l, "automobiles", c)), "cars")
}

func TestVectorsAreKeptAndMadeAnewForAnotherModel(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	t.Run("kept", func(t *testing.T) {
		first := &hashing{space: "hash/256", size: 256}
		l := hybrid(t, server, first)
		c := collection(t, l, "docs")
		put(t, l, c, "a", "cars need oil")
		put(t, l, c, "b", "bread needs flour")
		require.Equal(t, index.StatusOK, embedded(t, l, "cars", c).Status)
		n, err := client.HLen(ctx, "documents:{default:docs}:vectors").Result()
		require.NoError(t, err)
		require.EqualValues(t, 2, n)

		// A process that starts reads them.
		second := &hashing{space: "hash/256", size: 256}
		require.Len(t, embedded(t, hybrid(t, server, second), "automobiles", c).Passages, 2)
		_, made := second.seen.Load("cars need oil")
		require.False(t, made)
		_, made = first.seen.Load("cars need oil")
		require.True(t, made)
	})

	// Another space is another matter: the old vectors go once all are made anew. The
	// processes of the old one have ended; each would keep its own.
	l := hybrid(t, server, &hashing{space: "hash/64", size: 64})
	c, err := docstore.Named(docstore.DefaultTenant, "docs")
	require.NoError(t, err)
	require.Len(t, embedded(t, l, "automobiles", c).Passages, 2)
	require.Eventually(t, func() bool {
		fields, err := client.HKeys(ctx, "documents:{default:docs}:vectors").Result()
		return err == nil && len(fields) == 2 && strings.HasPrefix(fields[0], "hash/64 ") && strings.HasPrefix(fields[1], "hash/64 ")
	}, 20*time.Second, 10*time.Millisecond)
	_, err = l.Drop(ctx, c)
	require.NoError(t, err)
	n, err := client.Exists(ctx, "documents:{default:docs}:vectors").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}
