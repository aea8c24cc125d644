package weaviate_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/weaviate"
)

// TestManyPassages measures, and asserts nothing that is timed: WEAVIATE_PASSAGES=1000000 WEAVIATE_SERVER=… go test -v
// -timeout 0 -run ManyPassages ./subagent/rag/weaviate fills a real engine and prints what a process costs that searches
// it: docs/scale.md has the figures.
func TestManyPassages(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("WEAVIATE_PASSAGES"))
	if n == 0 {
		t.Skip("WEAVIATE_PASSAGES is not set: it says how many passages to measure with, such as 100000")
	}
	cluster, server := startReal(t, 1), redistest.Start(t)
	store := docstore.New(server.Client(), 0)
	c, err := docstore.NamedCollection(memory.Tenant{}, "many")
	require.NoError(t, err)
	_, err = store.Create(t.Context(), c)
	require.NoError(t, err)
	random := zipf()
	began := time.Now()
	for first := 0; first < n; first += 10 * 100 {
		var documents []docstore.Document
		for d := first; d < min(first+1000, n); d += 10 {
			doc := docstore.Document{ID: fmt.Sprintf("d%d", d), Title: random.text(4)}
			for range 10 {
				text := random.text(60 + random.IntN(120))
				doc.Passages = append(doc.Passages, docstore.Passage{Start: len(doc.Text), End: len(doc.Text) + len(text)})
				doc.Text += text
			}
			documents = append(documents, doc)
		}
		for _, w := range store.Put(t.Context(), c, documents...) {
			require.NoError(t, w.Err)
		}
	}
	t.Logf("%d passages are in Redis after %s", n, time.Since(began).Round(time.Second))
	began = time.Now()
	feeder := rag.NewLibrary(store, rag.Options{Log: zerolog.New(os.Stderr), Searcher: weaviate.New(weaviate.Config{
		URLs: cluster.urls, Class: "Mneme"}), Patience: time.Millisecond})
	defer feeder.Close()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	_, _ = feeder.Search(short, rag.Request{Collections: []docstore.Collection{c}, Query: "begins the feeding"})
	cancel()
	for said := time.Now(); ; time.Sleep(time.Second) {
		_, text, err := docstore.Fed(t.Context(), store, c)
		require.NoError(t, err)
		if text != "" && !strings.Contains(text, `"filling":true`) {
			break
		}
		if time.Since(said) > time.Minute {
			t.Logf("%s: %s, %s", time.Since(began).Round(time.Second), text, cluster.rss())
			said = time.Now()
		}
	}
	took := time.Since(began)
	t.Logf("fed in %s, %.0f a second, %s", took.Round(time.Second), float64(n)/took.Seconds(), cluster.rss())
	time.Sleep(70 * time.Second) // the engine writes what is new to disk after a minute
	child := exec.Command(os.Args[0], "-test.run=TestOneOfManyProcesses", "-test.v")
	child.Env = append(os.Environ(), "WEAVIATE_AT="+cluster.urls[0], "REDIS_AT="+server.Addr)
	said, err := child.CombinedOutput()
	require.NoError(t, err, string(said))
	t.Logf("%s\n%s", said, cluster.rss())
}

// TestOneOfManyProcesses is the process of TestManyPassages that searches.
func TestOneOfManyProcesses(t *testing.T) {
	at := os.Getenv("WEAVIATE_AT")
	if at == "" {
		t.Skip("it is a part of TestManyPassages")
	}
	began := time.Now()
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_AT")})
	defer client.Close()
	l := rag.NewLibrary(docstore.New(client, 0), rag.Options{Log: zerolog.New(os.Stderr),
		Searcher: weaviate.New(weaviate.Config{URLs: []string{at}, Class: "Mneme"})})
	defer l.Close()
	require.NoError(t, l.Load(t.Context(), memory.Tenant{}))
	t.Logf("ready after %s, RSS %s", time.Since(began), rss(os.Getpid()))
	c, err := docstore.NamedCollection(memory.Tenant{}, "many")
	require.NoError(t, err)
	random := zipf()
	for _, kind := range []string{"cold", "warm"} {
		var times []time.Duration
		queries := zipf()
		for range 200 {
			r := rag.Request{Collections: []docstore.Collection{c}, Query: queries.text(3 + random.IntN(6))}
			asked := time.Now()
			found, err := l.Search(t.Context(), r)
			require.NoError(t, err)
			require.NotEmpty(t, found.Passages)
			times = append(times, time.Since(asked))
		}
		slices.Sort(times)
		t.Logf("%s: first %s p50 %s, p95 %s, most %s, RSS %s", kind, times[0], times[100], times[190], times[199],
			rss(os.Getpid()))
	}
}

// words draws from 200,000 words, the common ones often (Zipf's law).
type words struct {
	*rand.Rand
	*rand.Zipf
}

func zipf() words {
	r := rand.New(rand.NewPCG(1, 2))
	return words{r, rand.NewZipf(r, 1.07, 10, 200_000)}
}

func (w words) text(n int) string {
	var b strings.Builder
	for range n {
		for x := w.Zipf.Uint64(); ; x /= 100 {
			b.WriteByte("bcdfghklmnprstvwxzbj"[x%100/5])
			b.WriteByte("aeiou"[x%5])
			if x < 100 {
				break
			}
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func rss(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if size, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 64)
			return fmt.Sprintf("%.0f MB", math.Round(kb/1000))
		}
	}
	return "unknown"
}

func (r *real) rss() string {
	var all []string
	for _, pid := range r.pids {
		all = append(all, rss(pid))
	}
	return "RSS of the engine " + strings.Join(all, ", ")
}
