package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// judgedEndpoint gives embeddings that throw words into dimensions, knows that who resides has a home, and reranks by how
// many words a text shares with the query.
type judgedEndpoint struct {
	*httptest.Server

	mu     sync.Mutex
	fail   []int // the status of the next answers; guarded by mu
	size   int   // of the vectors; guarded by mu
	broken bool  // the reranker; guarded by mu
}

func newJudgedEndpoint(t *testing.T) *judgedEndpoint {
	e := &judgedEndpoint{size: 512}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embeddings", e.embed)
	mux.HandleFunc("POST /v1/rerank", e.rerank)
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

func (e *judgedEndpoint) embed(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var req struct {
		Input []string
		Model string
	}
	_ = json.NewDecoder(r.Body).Decode(&req)
	if len(e.fail) > 0 {
		w.WriteHeader(e.fail[0])
		e.fail = e.fail[1:]
		return
	}
	if r.Header.Get("Authorization") != "Bearer hush" || req.Model != "embed-1" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var data []string
	for i, text := range req.Input {
		if strings.Contains(text, "the blade") { // a text that it does not take
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		v := make([]float32, e.size)
		for _, word := range strings.Fields(strings.ReplaceAll(strings.ToLower(text), "reside", "home")) {
			sum := fnv.New32a()
			sum.Write([]byte(strings.Trim(word, ".,?")))
			v[sum.Sum32()%uint32(e.size)]++
		}
		numbers, _ := json.Marshal(v)
		data = append(data, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, numbers))
	}
	fmt.Fprintf(w, `{"data":[%s],"model":"embed-1","usage":{"prompt_tokens":%d,"total_tokens":%d}}`,
		strings.Join(data, ","), 7*len(req.Input), 7*len(req.Input))
}

func (e *judgedEndpoint) rerank(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Query     string
		Documents []string
	}
	_ = json.NewDecoder(r.Body).Decode(&req)
	e.mu.Lock()
	broken := e.broken
	e.mu.Unlock()
	if broken {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var results []string
	for i, text := range req.Documents {
		score := 0
		for _, word := range strings.Fields(req.Query) {
			score += strings.Count(text, word)
		}
		results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":%d}`, i, score))
	}
	fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
}

// evaluated runs the command and gives its report.
func evaluated(t *testing.T, args ...string) (report struct {
	Limit    int
	Embedded *struct{ Documents, Kept, Queries, Refused, Tokens, Dimensions int }
	Rows     []struct {
		Documents, Queries int
		Wording, Ranking   string
		NDCG               float64  `json:"ndcg_at_10"`
		MS                 *float64 `json:"median_ms"`
		Failed             *int
	}
}, said string) {
	t.Helper()
	t.Setenv("EMBED_KEY", "hush")
	data := filepath.Join("internal", "documents", "testdata")
	r := eval(t, append([]string{"retrieval", "--data", data, "--json"}, args...)...)
	if r.code == 0 {
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	} else {
		require.Empty(t, r.stdout)
	}
	return report, r.stderr
}

func TestAnEndpointOfEmbeddingsIsMeasured(t *testing.T) {
	e := newJudgedEndpoint(t)
	file := filepath.Join(t.TempDir(), "vectors")
	flags := []string{"--embed-url", e.URL + "/v1", "--embed-model", "embed-1", "--embed-key-env", "EMBED_KEY",
		"--vectors", file, "--vector-weight", "0.2,0.6"}
	report, said := evaluated(t, flags...)
	var names []string
	for _, row := range report.Rows[:5] {
		names = append(names, row.Ranking)
		require.NotNil(t, row.MS)
		require.Zero(t, *row.Failed)
	}
	require.Equal(t, []string{"mneme", "plain BM25", "vectors", "words + vectors 0.2", "words + vectors 0.6"}, names, said)
	require.Len(t, report.Rows, 15, "of three wordings")
	require.Greater(t, report.Rows[2].NDCG, 0.3)
	first := *report.Embedded
	require.Equal(t, 512, first.Dimensions)
	require.Equal(t, 9, first.Documents, "a text that is there twice is sent once")
	require.Equal(t, 1, first.Refused)
	require.Equal(t, 7*(first.Documents-first.Refused+first.Queries+1), first.Tokens,
		"and once a text that nobody refuses")
	require.Contains(t, said, "kitchen: embedding")

	// The documents' vectors are there now, also if the run before was killed while it
	// wrote one; queries are timed and so always sent.
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, raw[:len(raw)-5], 0o600))
	again, _ := evaluated(t, flags...)
	require.Equal(t, 2, again.Embedded.Documents, "the one that was cut, and the one that is refused")
	require.Equal(t, first.Queries, again.Embedded.Queries)
	for i := range report.Rows {
		require.Equal(t, report.Rows[i].NDCG, again.Rows[i].NDCG)
	}

	_, said = evaluated(t, append(flags, "--dimensions", "7")...)
	require.Contains(t, said, "eval: "+file+": it has vectors of "+e.URL+"/v1 embed-1@0, not of "+e.URL+
		"/v1 embed-1@7: name another file for those")
	_, said = evaluated(t, append(flags, "--dimensions", "7", "--vectors", file+"2")...)
	require.Contains(t, said, "a vector of 512 dimensions where 7 are configured")
	e.mu.Lock()
	e.size = 256
	e.mu.Unlock()
	_, said = evaluated(t, flags...)
	require.Contains(t, said, "the vectors are not of one size: one has 256 dimensions, those before have 512")
}

// What says the same in other words is found by vectors alone, and is measured beside the words.
func TestWhatVectorsAddToRecallIsMeasured(t *testing.T) {
	e := newJudgedEndpoint(t)
	t.Setenv("EMBED_KEY", "hush")
	dir := t.TempDir()
	write := func(name string, lines ...string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	}
	write("conversations/c.jsonl", `{"id":"m1","ts":1,"role":"user","text":"Almaty, my home"}`,
		`{"id":"m2","ts":2,"role":"user","text":"The dog barks."}`, `{"id":"m3","ts":3,"role":"user","text":"It rains."}`,
		`{"id":"m4","ts":4,"role":"user","text":"Nothing of the blade is taken."}`)
	write("questions.jsonl", `{"conversation":"c","id":"1","kind":"k","question":"Almaty reside","evidence":["m1"]}`,
		`{"conversation":"c","id":"2","kind":"k","question":"reside","evidence":["m1"]}`)
	file := filepath.Join(dir, "vectors")
	line := []string{"recall", "--data", dir, "--embed-url", e.URL + "/v1", "--embed-model", "embed-1",
		"--embed-key-env", "EMBED_KEY", "--vectors", file}
	measured := func() (report struct {
		R1      float64
		Vectors struct {
			R1        float64
			Questions int
			Kinds     map[string]struct{ R1 float64 }
		}
		Embedded struct{ Documents, Kept, Queries, Refused, Tokens, Dimensions int }
	}) {
		r := eval(t, append(line, "--json")...)
		require.Zero(t, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
		return report
	}
	report := measured()
	require.InDelta(t, 0.5, report.R1, 1e-9, "one question has no word of what answers it")
	require.InDelta(t, 1, report.Vectors.R1, 1e-9)
	require.InDelta(t, 1, report.Vectors.Kinds["k"].R1, 1e-9)
	require.Equal(t, 2, report.Vectors.Questions)
	require.Equal(t, 4, report.Embedded.Documents)
	require.Equal(t, 1, report.Embedded.Refused)
	require.Equal(t, 2, report.Embedded.Queries)
	require.Equal(t, 512, report.Embedded.Dimensions)
	require.Equal(t, 3, measured().Embedded.Kept)

	text := eval(t, line...)
	require.Regexp(t, `all +2 +recall \+ vectors +`, text.stdout)
	require.Contains(t, text.stdout, "Recall with vectors, and how much it is above recall by words alone")
	require.Contains(t, text.stdout, "Embeddings of 512 dimensions: 1 texts in ")
	require.NotContains(t, eval(t, "recall", "--data", dir).stdout, "vectors")

	for flags, want := range map[string]result{
		"--turns --embed-url " + e.URL + " --embed-model m": {2, "", "--turns measures words alone: leave out the flags " +
			"about embeddings; see eval --help"},
		"--embed-url nowhere --embed-model m":                {2, "", `--embed-url needs an http:// or https:// URL`},
		"--embed-model m":                                    {2, "", "--embed-url and --embed-model go together"},
		"--embed-url " + e.URL + "/v1 --embed-model embed-1": {1, "", "refused the key"},
		"--embed-url " + e.URL + "/v1 --embed-model m --x":   {2, "", "unknown flag: --x"},
		"--embed-url http://127.0.0.1:1 --embed-model m " +
			"--embed-key-env NONE": {1, "", "--embed-key-env: the environment variable that it names is not set"},
	} {
		r := eval(t, append([]string{"recall", "--data", dir}, strings.Fields(flags)...)...)
		require.Equal(t, want.code, r.code, flags)
		require.Contains(t, r.stderr, want.stderr)
		require.Empty(t, r.stdout)
	}
}

func TestAnEndpointThatFailsIsAskedAgain(t *testing.T) {
	testtier.Slow(t)
	e := newJudgedEndpoint(t)
	e.fail = []int{429, 500}
	report, said := evaluated(t, "--embed-url", e.URL+"/v1/embeddings", "--embed-model", "embed-1", "--embed-key-env",
		"EMBED_KEY", "--limit", "6")
	require.NotNil(t, report.Embedded, said)
	require.Equal(t, 6, report.Rows[0].Documents)
	require.LessOrEqual(t, report.Embedded.Documents, 6)
	require.Equal(t, 6, report.Limit)

	_, said = evaluated(t, "--embed-url", e.URL+"/v1", "--embed-model", "embed-1")
	require.Contains(t, said, "refused the key")
	require.NotContains(t, said, "hush")
}

func TestARerankerIsMeasured(t *testing.T) {
	e := newJudgedEndpoint(t)
	report, said := evaluated(t, "--rerank-url", e.URL+"/v1/rerank")
	require.Len(t, report.Rows, 9, said)
	require.Equal(t, "mneme, reranked", report.Rows[2].Ranking)
	require.Greater(t, report.Rows[2].NDCG, 0.3)
	require.Nil(t, report.Embedded)

	// Both, by a configuration.
	file := filepath.Join(t.TempDir(), "mneme.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
proxy:
  active: off
  embeddings_backend: e
  backends: {off: {kind: offline}, e: {kind: openai, base_url: "`+e.URL+`/v1", api_key_env: EMBED_KEY}}
retrieval: {vector_weight: 0.4, embeddings: {model: embed-1}, rerank: {url: "`+e.URL+`/v1/rerank"}}
`), 0o600))
	report, said = evaluated(t, "--config", file)
	require.Len(t, report.Rows, 3*9, said)
	require.Equal(t, "words + vectors 0.4", report.Rows[4].Ranking)
	require.Equal(t, "words + vectors 0.5, reranked", report.Rows[8].Ranking)

	e.mu.Lock()
	e.broken = true
	e.mu.Unlock()
	_, said = evaluated(t, "--rerank-url", e.URL+"/v1/rerank")
	require.Contains(t, said, "3 queries one after the other: reranking")
	require.Contains(t, said, "the reranker answered 500 Internal Server Error")
}

func TestWrongFlagsOfEndpoints(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain.yaml")
	require.NoError(t, os.WriteFile(plain, []byte("log: {level: info}\n"), 0o600))
	for flags, want := range map[string]string{
		"--embed-url http://127.0.0.1:1/v1": "--embed-url and --embed-model go together",
		"--embed-model m":                   "--embed-url and --embed-model go together",
		"--embed-url 127.0.0.1 --embed-model m": `--embed-url needs an http:// or https:// ` +
			`URL, not "127.0.0.1"`,
		"--embed-url http://127.0.0.1:1 --embed-model m --vector-weight 1": "--vector-weight is more than 0 and less " +
			"than 1, not 1: words alone and vectors alone are measured anyway",
		"--embed-url http://127.0.0.1:1 --embed-model m --embed-key-env NONE": "--embed-key-env: the environment variable " +
			"that it names is not set; export the key in it",
		"--vectors x": "--dimensions, --embed-key-env, --vectors and --vector-weight are about embeddings: add " +
			"--embed-url and --embed-model, or --config",
		"--rerank-model m":     "the other flags about reranking need --rerank-url",
		"--rerank-url nowhere": `--rerank-url needs an http:// or https:// URL, not "nowhere"`,
		"--config " + plain: plain +
			" has neither retrieval.embeddings nor retrieval.rerank: nothing of it would be measured",
		"--config " + plain +
			" --rerank-url http://x": "--config says which endpoints are measured: leave out the flags about them",
		"--embed-url http://127.0.0.1:1 --embed-model m --vectors " + plain + " --limit 3": plain +
			": this is no file of vectors; name another one, or a new one",
	} {
		_, said := evaluated(t, strings.Fields(flags)...)
		require.Equal(t, "eval: "+want+"\n", strings.Replace(said, "; see eval --help", "", 1), flags)
	}
}
