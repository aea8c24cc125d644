package rag_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
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
	"mneme/subagent/rag/rerank"
)

// judge is a reranker: the more often a text has the word "best", the better.
type judge struct {
	*httptest.Server

	mu      sync.Mutex
	asked   []judged // guarded by mu
	status  int      // of the answers; 0 for 200; guarded by mu
	answer  string   // in place of the right one; guarded by mu
	hanging bool     // guarded by mu
}

type judged struct {
	Query     string   `json:"query"`
	Documents []string `json:"documents"`
}

func newJudge(t *testing.T) *judge {
	j := &judge{}
	j.Server = httptest.NewServer(http.HandlerFunc(j.serve))
	t.Cleanup(j.Close)
	return j
}

func (j *judge) set(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
}

// last is what was asked last, and how many times anything was.
func (j *judge) last() (judged, int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked[len(j.asked)-1], len(j.asked)
}

func (j *judge) serve(w http.ResponseWriter, r *http.Request) {
	var q judged
	raw, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &q)
	j.mu.Lock()
	j.asked = append(j.asked, q)
	status, answer, hanging := j.status, j.answer, j.hanging
	j.mu.Unlock()
	if hanging {
		<-r.Context().Done()
		return
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	if answer != "" {
		_, _ = io.WriteString(w, answer)
		return
	}
	var results []string
	for i, text := range slices.Backward(q.Documents) {
		results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":%d}`, i, strings.Count(text, "best")))
	}
	fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
}

// reranked is a library of twelve documents, each a little worse by its words than the
// one before; the last is the judge's favourite.
func reranked(t *testing.T, j *judge, o rag.RerankOptions) (*rag.Library, docstore.Collection) {
	t.Helper()
	o.Reranker = rerank.New(rerank.Config{URL: j.URL, HTTP: j.Client()})
	l := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{
		Rerank: o, Log: zerolog.Nop(), Patience: 10 * time.Second,
	})
	c := collection(t, l, "docs")
	for i := range 12 {
		put(t, l, c, fmt.Sprintf("d%02d", i), "apples "+strings.Repeat("and other fruit ", i+1)+
			strings.Repeat("best ", i/6*i))
	}
	return l, c
}

func TestARerankerHasTheLastWord(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	l, c := reranked(t, j, rag.RerankOptions{Top: 10, Timeout: time.Minute})
	r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples", K: 4})
	require.NoError(t, err)
	require.False(t, r.Degraded)
	require.Equal(t, textindex.StatusOK, r.Status)
	require.Equal(t, []string{"d09", "d08", "d07", "d06"}, documents(r), "the best ten by words, in the judge's order")
	for i, p := range r.Passages {
		require.Equal(t, i+1, p.N)
		require.Equal(t, 10-i, p.BM25Rank)
		require.Equal(t, float64(9-i), *p.RerankScore)
	}
	asked, _ := j.last()
	require.Equal(t, "apples", asked.Query)
	require.Len(t, asked.Documents, 10)
	require.True(t, strings.HasPrefix(asked.Documents[0], "About d00\napples and"), asked.Documents[0])

	// More than it sees follow behind, in the order before, without a score.
	r, err = l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples", K: 12})
	require.NoError(t, err)
	require.Equal(t, []string{"d09", "d08", "d07", "d06", "d00", "d01", "d02", "d03", "d04", "d05", "d10", "d11"},
		documents(r))
	require.Nil(t, r.Passages[10].RerankScore)

	// A question that leans on the one before it is asked with it.
	_, err = l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "and other?",
		History: []memory.Message{{Role: memory.RoleUser, Content: "Which apples?"}}})
	require.NoError(t, err)
	asked, _ = j.last()
	require.Equal(t, "Which apples?\nand other?", asked.Query)

	// Nothing to order, nothing asked.
	_, before := j.last()
	require.Empty(t, search(t, l, "zyzzyva", c).Passages)
	_, after := j.last()
	require.Equal(t, before, after)
}

// Whatever the reranker does, a search gives what it would give without.
func TestASearchDoesNotDependOnItsReranker(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	l, c := reranked(t, j, rag.RerankOptions{Timeout: time.Minute})
	plain := func() {
		t.Helper()
		r := search(t, l, "apples", c)
		require.True(t, r.Degraded)
		require.Equal(t, textindex.StatusOK, r.Status)
		require.Equal(t, []string{"d00", "d01", "d02", "d03", "d04", "d05", "d06", "d07", "d08", "d09"}, documents(r))
		for i, p := range r.Passages {
			require.Equal(t, i+1, p.N)
			require.Nil(t, p.RerankScore)
		}
	}
	for _, nonsense := range []string{`{}`, `{"results":[]}`, `{"results":[{"index":99,"relevance_score":1}]}`,
		`{"results":[{"index":0,"relevance_score":NaN}]}`} {
		j.set(func() { j.answer = nonsense })
		plain()
	}
	j.set(func() { j.answer = "" })
	require.Equal(t, "d11", search(t, l, "apples", c).Passages[0].DocID, "nonsense does not mute it")
	j.set(func() { j.status = http.StatusServiceUnavailable })
	plain()
	_, before := j.last()
	j.set(func() { j.status = 0 })
	plain()
	_, after := j.last()
	require.Equal(t, before, after, "after a failure it is left alone for a while")
}

func TestASlowRerankerIsNotWaitedFor(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	j := newJudge(t)
	l, c := reranked(t, j, rag.RerankOptions{Timeout: 2 * time.Second})
	j.set(func() { j.hanging = true })
	for range 3 {
		r := search(t, l, "apples", c)
		require.True(t, r.Degraded)
		require.Equal(t, "d00", r.Passages[0].DocID)
	}
	_, times := j.last()
	require.Equal(t, 1, times)
}
