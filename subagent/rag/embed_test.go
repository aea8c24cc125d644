package rag_test

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// hashing is an Embedder that throws words into dimensions, of which cars and
// automobiles share one.
type hashing struct {
	space string
	size  int
	seen  sync.Map // texts that were embedded
	down  atomic.Bool
	wider atomic.Int64 // dimensions that it has more since the model was changed
	hang  atomic.Bool
	calls atomic.Int64
	hates string // texts with this word are refused
}

// refusal is an error that no repetition mends.
type refusal struct{ error }

func (refusal) Retryable() bool { return false }

func (h *hashing) Space() string { return h.space }

func (h *hashing) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	h.calls.Add(1)
	if h.hang.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if h.down.Load() {
		return nil, errors.New("the endpoint is down")
	}
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		if h.hates != "" && strings.Contains(text, h.hates) {
			return nil, refusal{errors.New("the input is too long")}
		}
		h.seen.Store(text, true)
		size := h.size + int(h.wider.Load())
		vectors[i] = make([]float32, size)
		for _, word := range strings.Fields(strings.NewReplacer("automobiles", "cars").Replace(strings.ToLower(text))) {
			sum := fnv.New32a()
			sum.Write([]byte(word))
			vectors[i][sum.Sum32()%uint32(size)]++
		}
	}
	return vectors, nil
}

// hybrid is a library that embeds until the test ends.
func hybrid(t *testing.T, server *redistest.Server, e *hashing) *rag.Library {
	t.Helper()
	return embedding(t, server, rag.Options{Embedder: e, Log: zerolog.Nop()})
}

func embedding(t *testing.T, server *redistest.Server, o rag.Options) *rag.Library {
	t.Helper()
	l := rag.NewLibrary(docstore.New(server.Client(), 0), o)
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
	}, time.Minute, 5*time.Millisecond)
	return r
}

func TestAHybridSearchFindsWhatSharesNoWord(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	e := &hashing{space: "hash", size: 256}
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
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	t.Run("kept", func(t *testing.T) {
		first := &hashing{space: "hash", size: 256}
		l := hybrid(t, server, first)
		c := collection(t, l, "docs")
		put(t, l, c, "a", "cars need oil")
		put(t, l, c, "b", "bread needs flour")
		require.Equal(t, textindex.StatusOK, embedded(t, l, "cars", c).Status)
		n, err := client.HLen(ctx, "documents:{default:docs}:vectors").Result()
		require.NoError(t, err)
		require.EqualValues(t, 2, n)

		// A process that starts reads them.
		second := &hashing{space: "hash", size: 256}
		require.Len(t, embedded(t, hybrid(t, server, second), "automobiles", c).Passages, 2)
		_, made := second.seen.Load("cars need oil")
		require.False(t, made)
		_, made = first.seen.Load("cars need oil")
		require.True(t, made)
	})

	// Another space is another matter: the old vectors go once all are made anew. The
	// processes of the old one have ended; each would keep its own.
	l := hybrid(t, server, &hashing{space: "hash", size: 64})
	c, err := docstore.NamedCollection(memory.Tenant{}, "docs")
	require.NoError(t, err)
	require.Len(t, embedded(t, l, "automobiles", c).Passages, 2)
	require.Eventually(t, func() bool {
		fields, err := client.HKeys(ctx, "documents:{default:docs}:vectors").Result()
		return err == nil && len(fields) == 2 && strings.HasPrefix(fields[0], "hash/64 ") &&
			strings.HasPrefix(fields[1], "hash/64 ")
	}, time.Minute, 10*time.Millisecond)
	_, err = l.Drop(ctx, c)
	require.NoError(t, err)
	n, err := client.Exists(ctx, "documents:{default:docs}:vectors").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// A model that is changed behind its name gives vectors that compare with nothing:
// words alone count until all are made anew.
func TestVectorsOfAnotherSizeAreRefusedAndAllMadeAnew(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	e := &hashing{space: "hash", size: 256}
	l := hybrid(t, server, e)
	c := collection(t, l, "docs")
	put(t, l, c, "a", "cars need oil")
	put(t, l, c, "b", "automobiles are many")
	require.Len(t, embedded(t, l, "automobiles", c).Passages, 2)
	e.wider.Store(64)
	r := search(t, l, "automobiles", c)
	require.True(t, r.Degraded)
	require.Equal(t, []string{"b"}, documents(r))
	require.Len(t, embedded(t, l, "automobiles", c).Passages, 2)
	require.Eventually(t, func() bool {
		fields, err := server.Client().HKeys(ctx, "documents:{default:docs}:vectors").Result()
		return err == nil && len(fields) == 2 && strings.HasPrefix(fields[0], "hash/320 ") &&
			strings.HasPrefix(fields[1], "hash/320 ")
	}, time.Minute, 10*time.Millisecond, "the old ones go")
}

// One text that the endpoint refuses keeps no other from its vector.
func TestARefusedTextStandsAlone(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	e := &hashing{space: "hash", size: 256, hates: "endless"}
	l := hybrid(t, server, e)
	c := collection(t, l, "docs")
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		put(t, l, c, id, "cars need oil "+id)
	}
	put(t, l, c, "long", "an endless story of rope")
	require.GreaterOrEqual(t, len(embedded(t, l, "automobiles", c).Passages), 5)
	r := search(t, l, "rope", c)
	require.False(t, r.Degraded)
	long := slices.IndexFunc(r.Passages, func(p rag.Passage) bool { return p.DocID == "long" })
	require.GreaterOrEqual(t, long, 0, "its words find it")
	require.Zero(t, r.Passages[long].VecRank)
}

// An endpoint that refuses everything is not taken for texts that are at fault.
func TestAnEndpointThatRefusesEverything(t *testing.T) {
	t.Parallel()
	e := &hashing{space: "hash", size: 256, hates: "e"}
	l := hybrid(t, redistest.Start(t), e)
	c := collection(t, l, "docs")
	put(t, l, c, "a", "rope")
	require.True(t, search(t, l, "rope", c).Degraded)
	require.Eventually(t, func() bool { return e.calls.Load() > 0 }, time.Minute, time.Millisecond)
	r := search(t, l, "rope", c)
	require.True(t, r.Degraded)
	require.Equal(t, []string{"a"}, documents(r))
}

// A search waits once for an endpoint that hangs, and the next ones do not.
func TestAnEndpointThatHangsIsLeftAlone(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	e := &hashing{space: "hash", size: 256}
	e.hang.Store(true)
	l := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{
		Embedder: e, Patience: time.Second, Log: zerolog.Nop(),
	})
	c := collection(t, l, "docs")
	put(t, l, c, "a", "cars need oil")
	for range 5 {
		r := search(t, l, "oil", c)
		require.True(t, r.Degraded)
		require.Equal(t, []string{"a"}, documents(r))
	}
	require.EqualValues(t, 1, e.calls.Load())
}

// By ranks, a passage that is second for words and first for vectors draws level
// with its opposite, whatever the scores are.
func TestFusionByReciprocalRanks(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	texts := map[string]string{"words": "automobiles automobiles rope", "both": "automobiles cars rope sail",
		"vectors": "cars"}
	scores := map[rag.Fusion]float64{}
	for _, fusion := range []rag.Fusion{rag.WeightedSum, rag.ReciprocalRanks} {
		l := embedding(t, server, rag.Options{Embedder: &hashing{space: "hash", size: 256}, Fusion: fusion,
			Log: zerolog.Nop()})
		c, err := docstore.NamedCollection(memory.Tenant{}, "docs")
		require.NoError(t, err)
		_, err = l.Create(ctx, c)
		require.NoError(t, err)
		for id, text := range texts {
			put(t, l, c, id, text)
		}
		r := embedded(t, l, "automobiles", c)
		require.Len(t, r.Passages, 3)
		for _, p := range r.Passages {
			want := 0.0
			for _, rank := range []int{p.BM25Rank, p.VecRank} {
				if rank > 0 {
					want += 0.5 / float64(60+rank)
				}
			}
			if fusion == rag.ReciprocalRanks {
				require.InDelta(t, want, p.Score, 0.001)
			}
		}
		scores[fusion] = r.Passages[0].Score
	}
	require.Greater(t, scores[rag.WeightedSum], 0.5, "a weighted sum of scores up to 1")
	require.Less(t, scores[rag.ReciprocalRanks], 0.02)
}
