package rerank_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/subagent/rag/rerank"
)

// clientOf serves h and makes a Client that asks it.
func clientOf(t *testing.T, c rerank.Config, h http.HandlerFunc) *rerank.Client {
	t.Helper()
	server := httptest.NewServer(h)
	c.URL, c.HTTP = server.URL+"/v1/rerank", server.Client()
	t.Cleanup(func() { c.HTTP.CloseIdleConnections(); server.Close() })
	return rerank.New(c)
}

func TestScoresComeInTheOrderOfTheTexts(t *testing.T) {
	c := clientOf(t, rerank.Config{Model: "m-1", Key: "hush"}, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		if r.Method != "POST" || r.URL.Path != "/v1/rerank" || r.Header.Get("Authorization") != "Bearer hush" ||
			r.Header.Get("Content-Type") != "application/json" ||
			fmt.Sprint(body) != "map[documents:[a <b> c] model:m-1 query:q & a top_n:3]" {
			w.WriteHeader(500)
			t.Errorf("%s %s %v %v", r.Method, r.URL.Path, r.Header, body)
			return
		}
		fmt.Fprint(w,
			`{"id":"x","results":[{"index":2,"relevance_score":0.9,"document":{"text":"c"}},{"index":0,"relevance_score":-3},{"index":1,"relevance_score":0}],"usage":{}}`)
	})
	scores, err := c.Rerank(t.Context(), "q & a", []string{"a", "<b>", "c"})
	require.NoError(t, err)
	require.Equal(t, []float64{-3, 0, 0.9}, scores)
}

// An endpoint of the other dialect refuses the first question once.
func TestTextEmbeddingsInference(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	c := clientOf(t, rerank.Config{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mu.Lock()
		asked = append(asked, string(raw))
		mu.Unlock()
		if !strings.Contains(string(raw), `"texts"`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, "missing field `texts`")
			return
		}
		fmt.Fprint(w, `[{"index":1,"score":0.5},{"index":0,"score":0.25}]`)
	})
	for range 2 {
		scores, err := c.Rerank(t.Context(), "q", []string{"a", "b"})
		require.NoError(t, err)
		require.Equal(t, []float64{0.25, 0.5}, scores)
	}
	const tei = `{"query":"q","texts":["a","b"],"truncate":true}`
	require.Equal(t, []string{`{"model":"m","query":"q","documents":["a","b"],"top_n":2}`, tei, tei}, asked)
}

func TestWrongAnswers(t *testing.T) {
	testtier.Slow(t)
	for name, test := range map[string]struct {
		status     int
		body, want string
		retryable  bool
	}{
		"missing index": {200, `{"results":[{"index":0,"relevance_score":1}]}`,
			"the reranker's answer has scores for 1 of 2 texts", false},
		"twice": {200, `{"results":[{"index":0,"relevance_score":1},{"index":0,"relevance_score":1}]}`,
			"the reranker's answer has two scores for text 0", false},
		"foreign index": {200, `{"results":[{"index":0,"relevance_score":1},{"index":2,"relevance_score":1}]}`,
			"the reranker's answer is about text 2 of 2", false},
		"negative index": {200, `[{"index":-1,"score":1},{"index":0,"score":1}]`,
			"the reranker's answer is about text -1 of 2", false},
		"no score": {200, `{"results":[{"index":0},{"index":1,"relevance_score":1}]}`,
			"the reranker's answer has a result without index or score", false},
		"no index": {200, `{"results":[{"relevance_score":1},{"index":1,"relevance_score":1}]}`,
			"the reranker's answer has a result without index or score", false},
		"null score": {200, `{"results":[{"index":0,"relevance_score":null}]}`,
			"the reranker's answer has a result without index or score", false},
		"NaN": {200, `{"results":[{"index":0,"relevance_score":NaN},{"index":1,"relevance_score":1}]}`,
			"the reranker's answer is no list of results", false},
		"infinite": {200, `{"results":[{"index":0,"relevance_score":1e999},{"index":1,"relevance_score":1}]}`,
			"the reranker's answer is no list of results", false},
		"words": {200, `{"results":[{"index":"0","relevance_score":"high"}]}`,
			"the reranker's answer is no list of results", false},
		"empty":      {200, `{}`, "the reranker's answer is no list of results", false},
		"empty list": {200, `[]`, "the reranker's answer has scores for 0 of 2 texts", false},
		"null":       {200, `null`, "the reranker's answer has scores for 0 of 2 texts", false},
		"a page":     {200, `<html>`, "the reranker's answer is no list of results", false},
		"endless": {200, "[" + strings.Repeat(" ", 17<<20), "the reranker's answer is longer than 16777216 bytes",
			false},
		"refused": {400, `secret words`, "the reranker answered 400 Bad Request", false},
		"key":     {401, `secret words`, "the reranker answered 401 Unauthorized", false},
		"limited": {429, ``, "the reranker answered 429 Too Many Requests", true},
		"down":    {500, `secret words`, "the reranker answered 500 Internal Server Error", true},
		"moved":   {307, ``, "the reranker answered 307 Temporary Redirect", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, rerank.Config{}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/rerank" {
					t.Error("a redirection was followed")
				}
				w.Header().Set("Location", "/other")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			})
			_, err := c.Rerank(t.Context(), "q", []string{"a", "b"})
			var known *rerank.Error
			require.ErrorAs(t, err, &known)
			require.EqualError(t, err, test.want)
			require.Equal(t, test.retryable, known.Retryable())
		})
	}
}

func TestARerankerThatIsAway(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := rerank.New(rerank.Config{URL: server.URL}).Rerank(t.Context(), "q", []string{"a"})
	var known *rerank.Error
	require.ErrorAs(t, err, &known)
	require.ErrorContains(t, err, "the reranker cannot be reached")
	require.True(t, known.Retryable())
}

func TestARerankerThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	c := clientOf(t, rerank.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, `{"results":[`)
		w.(http.Flusher).Flush()
		cancel(gaveUp)
		<-r.Context().Done()
	})
	_, err := c.Rerank(ctx, "q", []string{"a"})
	require.ErrorIs(t, err, gaveUp)
}
