package weaviate_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
)

// judged is a set of documents and queries with what people judged relevant, as scripts/eval reads them.
type judged struct {
	documents []rag.Input
	queries   map[string][]memory.Message // the last turn is the query
	grades    map[string]map[string]float64
}

func readLines(t *testing.T, name string, each func(line []byte)) {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		each(lines.Bytes())
	}
	require.NoError(t, lines.Err())
}

func readJudged(t *testing.T, folder string) judged {
	t.Helper()
	set := judged{queries: map[string][]memory.Message{}, grades: map[string]map[string]float64{}}
	readLines(t, filepath.Join(folder, "corpus.jsonl"), func(line []byte) {
		var d struct{ ID, Title, Text string }
		require.NoError(t, json.Unmarshal(line, &d))
		if strings.TrimSpace(d.Text) != "" {
			set.documents = append(set.documents, rag.Input{ID: d.ID, Document: chunk.Document{Title: d.Title, Text: d.Text}})
		}
	})
	name := filepath.Join(folder, "conversations.jsonl")
	if _, err := os.Stat(name); err != nil {
		name = filepath.Join(folder, "queries.jsonl")
	}
	readLines(t, name, func(line []byte) {
		var q struct {
			ID, Text string
			Messages []memory.Message
		}
		require.NoError(t, json.Unmarshal(line, &q))
		if q.Text != "" {
			q.Messages = []memory.Message{{Role: memory.RoleUser, Content: q.Text}}
		}
		set.queries[q.ID] = q.Messages
	})
	readLines(t, filepath.Join(folder, "qrels.tsv"), func(line []byte) {
		cells := strings.Fields(string(line))
		grade, err := strconv.ParseFloat(cells[len(cells)-1], 64)
		require.NoError(t, err)
		if set.grades[cells[0]] == nil {
			set.grades[cells[0]] = map[string]float64{}
		}
		set.grades[cells[0]][cells[1]] = grade
	})
	return set
}

// ndcg is the mean nDCG@10 by trec_eval's formula (linear gain) of the documents that searches give, best first.
func (set judged) ndcg(t *testing.T, l *rag.Library, c docstore.Collection) float64 {
	t.Helper()
	sum, n := 0.0, 0.0
	for id, turns := range set.queries {
		grades, last := set.grades[id], len(turns)-1
		if len(grades) == 0 || len(turns[last].Content) > rag.MaxSearchText {
			continue
		}
		r, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: turns[last].Content,
			History: turns[:last], K: 50})
		require.NoError(t, err)
		var found []string
		gain := 0.0
		for _, p := range r.Passages {
			if len(found) < 10 && !slices.Contains(found, p.DocID) {
				found = append(found, p.DocID)
				gain += max(0, grades[p.DocID]) / math.Log2(float64(len(found)+1))
			}
		}
		best := slices.SortedFunc(maps.Values(grades), func(a, b float64) int { return cmp.Compare(b, a) })
		ideal := 0.0
		for i, grade := range best[:min(10, len(best))] {
			ideal += max(0, grade) / math.Log2(float64(i+2))
		}
		if ideal > 0 {
			sum, n = sum+gain/ideal, n+1
		}
	}
	return sum / n
}

// asGood asserts that an engine is as good as the index in the process on a judged set, and prints both.
func asGood(t *testing.T, w *world, name, folder string, after ...func(l *rag.Library, c docstore.Collection)) {
	t.Helper()
	set := readJudged(t, folder)
	require.Eventually(t, func() bool { // nodes that say that they are ready may lack each other
		_, err := w.engine().Identity(t.Context())
		return err == nil
	}, 2*time.Minute, 100*time.Millisecond)
	inside, outside := w.process(t, false), w.process(t, true)
	c := named(t, memory.Tenant{}, strings.ToLower(name))
	create(t, inside, c)
	for page := range slices.Chunk(set.documents, 64) {
		outcomes, err := inside.PutAll(t.Context(), c, page...)
		require.NoError(t, err)
		for _, o := range outcomes {
			require.NoError(t, o.Err)
		}
	}
	require.Eventually(t, func() bool { // a search begins what is to be fed; a node may lack the class for a moment
		_, err := outside.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "begins the feeding"})
		require.NoError(t, err)
		return isFed(t, w, c)
	}, 10*time.Minute, 100*time.Millisecond)
	for _, change := range after {
		change(outside, c)
	}
	a, b := set.ndcg(t, inside, c), set.ndcg(t, outside, c)
	t.Logf("%s: nDCG@10 by the index %.4f, by the engine %.4f", name, a, b)
	require.InDelta(t, a, b, 0.01)
	outside.Close()
}

var kitchen = filepath.Join("..", "..", "..", "scripts", "eval", "internal", "documents", "testdata", "kitchen")

func TestAnEngineIsAsGoodAsTheIndex(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) { asGood(t, w, "kitchen", kitchen) })
}

func TestAnEngineIsAsGoodAsTheIndexOutsideData(t *testing.T) {
	outsidedata.Path(t, "rag")
	w := worldOver(t, startReal(t, 1).urls)
	for _, name := range []string{"xquad-ru", "mtrag-mini", "cranfield", "cacm"} {
		t.Run(name, func(t *testing.T) { asGood(t, w, name, outsidedata.Path(t, "rag", name)) })
	}
}

// Three nodes have all; with one of them killed, be it the one that is asked, everything goes on.
func TestThreeNodes(t *testing.T) {
	cluster := startReal(t, 3)
	w := worldOver(t, cluster.urls)
	asGood(t, w, "kitchen", kitchen, func(l *rag.Library, c docstore.Collection) {
		cluster.kill[0]() // the leader, which is asked first
		began := time.Now()
		require.Eventually(t, func() bool {
			_, err := l.Search(t.Context(), rag.Request{Collections: []docstore.Collection{c}, Query: "beans"})
			return err == nil
		}, 2*time.Minute, 10*time.Millisecond)
		t.Logf("the others elected a leader and answered after %s", time.Since(began).Round(100*time.Millisecond))
	})
	l := w.process(t, true)
	c := named(t, memory.Tenant{}, "docs")
	create(t, l, c)
	put(t, l, c, "ferry", "A ferry ticket costs 14 crowns.")
	put(t, l, c, "gone", "The ferry that was deleted.")
	fed(t, w, c)
	_, err := l.Delete(t.Context(), c, "gone")
	require.NoError(t, err)
	for range 60 {
		require.Equal(t, []string{"A ferry ticket costs 14 crowns."}, find(t, l, c, "what does the ferry cost"))
	}
	t.Log(cluster.rss())
}
