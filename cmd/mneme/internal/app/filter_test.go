package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/subagent/rag"
)

// A subagent that may read the Russian news only answers from them, whatever it is asked
// for; a search by the public API names its own filter; a reranker orders both.
func TestFiltersAndARerankerEndToEnd(t *testing.T) {
	var favourite atomic.Value
	favourite.Store("nothing")
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Model     string   `json:"model"`
			Documents []string `json:"documents"`
		}
		_ = json.NewDecoder(r.Body).Decode(&q)
		if q.Model != "judge-1" || r.Header.Get("Authorization") != "Bearer hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var results []string
		for i, text := range q.Documents {
			results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":%d}`, i,
				strings.Count(text, favourite.Load().(string))))
		}
		fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
	}))
	t.Cleanup(judge.Close)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(config.DefaultFile, []byte(`
retrieval: {rerank: {url: "`+judge.URL+`/v1/rerank", model: judge-1, timeout: 1m, api_key_env: JUDGE_KEY}}
agents:
  subagents:
    - name: analytic
    - name: knowledge
      collections: [{name: docs, where: {lang: ru, year: {gte: 2024}}}]
`), 0o600))
	u := start(t, scriptedModel{otherwise: "knowledge"}.environ(t, "MNEME_DATA_DIR="+t.TempDir(), "JUDGE_KEY=hush")...)
	status, body := u.request("PUT", "/v1/collections/docs", "", "")
	require.Equal(t, http.StatusCreated, status, body)
	require.Contains(t, body, `"read_by":["knowledge"]`)
	for i, document := range []string{
		`{"text":"The ferry costs 14 crowns.","metadata":{"lang":"en","year":2025}}`,
		`{"text":"The ferry costs 12 crowns.","metadata":{"lang":"ru","year":2023}}`,
		`{"text":"The ferry costs 15 crowns, they say.","metadata":{"lang":"ru","year":2024}}`,
	} {
		status, body := u.request("PUT", fmt.Sprintf("/v1/collections/docs/documents/d%d", i), "application/json", document)
		require.Equal(t, http.StatusCreated, status, body)
	}
	search := func(filter string) rag.Result {
		status, body := u.request("POST", "/v1/collections/docs/search", "application/json",
			`{"query":"what does the ferry cost","where":`+filter+`}`)
		require.Equal(t, http.StatusOK, status, body)
		var r rag.Result
		require.NoError(t, json.Unmarshal([]byte(body), &r))
		require.False(t, r.Degraded)
		return r
	}
	require.ElementsMatch(t, []string{"d1", "d2"}, found(search(`{"lang":"ru"}`)))
	require.ElementsMatch(t, []string{"d0", "d2"}, found(search(`{"year":{"gte":2024}}`)))
	require.Len(t, found(search(`null`)), 3)
	status, body = u.request("POST", "/v1/collections/docs/search", "application/json",
		`{"query":"ferry","where":{"lang":{"not":"ru"}}}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "The filter where.lang.not has no such operator: there are eq, in, gte and lte.")
	a := u.ask("1", "What does the ferry cost?")
	require.Len(t, a.Citations, 1, a.Content)
	require.Equal(t, "d2#0", a.Citations[0].PassageID)

	favourite.Store("15")
	r := search(`null`)
	require.Equal(t, "d2", r.Passages[0].DocID)
	require.Equal(t, 1.0, *r.Passages[0].RerankScore)
}

// The key of the reranker is the apiserver's to have.
func TestAnApiserverNeedsTheKeyOfItsReranker(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", []string{"MNEME_RETRIEVAL_RERANK_URL=http://127.0.0.1:1/v1/rerank",
		"MNEME_RETRIEVAL_RERANK_API_KEY_ENV=NO_SUCH_KEY",
		"MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_DATA_DIR=" + t.TempDir()})
	require.NoError(t, err)
	require.ErrorContains(t, app.Apiserver(t.Context(), cfg, app.Options{Log: zerolog.Nop()}),
		"MNEME_RETRIEVAL_RERANK_API_KEY_ENV: the environment variable NO_SUCH_KEY is not set; export the key in it")
}
