package app_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/subagent/rag"
)

// endpoint is an OpenAI-compatible server of embeddings. It throws words into
// dimensions, of which cars and automobiles share one, and gives the vectors of a
// request last first.
type endpoint struct {
	*httptest.Server

	mu       sync.Mutex
	fail     []int // the status of the next answers, 0 for one that never comes; guarded by mu
	down     int   // of all answers, unless 0; guarded by mu
	size     int   // of vectors if no request asks for another size; guarded by mu
	floats   bool  // it knows no base64; guarded by mu
	batches  []int // texts of each request that was answered; guarded by mu
	problems []string
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{size: 128}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(func() {
		e.Close()
		require.Empty(t, e.problems)
	})
	return e
}

func (e *endpoint) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Input      []string `json:"input"`
		Model      string   `json:"model"`
		Format     string   `json:"encoding_format"`
		Dimensions int      `json:"dimensions"`
	}
	body, _ := io.ReadAll(r.Body)
	err := json.Unmarshal(body, &req)
	e.mu.Lock()
	if err != nil || r.URL.Path != "/v1/embeddings" || req.Model != "embed-1" || len(req.Input) == 0 {
		e.problems = append(e.problems, fmt.Sprintf("%s %s %v", r.URL.Path, body, err))
	}
	status := e.down
	if len(e.fail) > 0 {
		status, e.fail = e.fail[0], e.fail[1:]
		if status == 0 {
			e.mu.Unlock()
			<-r.Context().Done()
			return
		}
	}
	if status == 0 {
		e.batches = append(e.batches, len(req.Input))
	}
	size, base := e.size, req.Format == "base64" && !e.floats
	e.mu.Unlock()
	if status != 0 {
		http.Error(w, `{"error":{"message":"not now"}}`, status)
		return
	}
	if req.Dimensions != 0 {
		size = req.Dimensions
	}
	var data []string
	for i, text := range slices.Backward(req.Input) {
		data = append(data, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, encoded(place(text, size), base)))
	}
	fmt.Fprintf(w, `{"object":"list","model":"embed-1","data":[%s],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		strings.Join(data, ","))
}

func place(text string, size int) []float32 {
	v := make([]float32, size)
	plain := strings.NewReplacer("automobiles", "cars", ".", "").Replace(strings.ToLower(text))
	for _, word := range strings.Fields(plain) {
		sum := fnv.New32a()
		sum.Write([]byte(word))
		v[sum.Sum32()%uint32(size)]++
	}
	return v
}

func encoded(v []float32, base bool) []byte {
	var value any = v
	if base {
		var raw []byte
		for _, x := range v {
			bits := math.Float32bits(x)
			raw = append(raw, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		value = base64.StdEncoding.EncodeToString(raw)
	}
	text, _ := json.Marshal(value)
	return text
}

// hybrid is a mneme with a scripted model and the embeddings of e.
func hybrid(t *testing.T, e *endpoint, environ ...string) *up {
	return start(t, scriptedModel{otherwise: "knowledge"}.environ(t, append([]string{
		backend("places", "openai", e.URL+"/v1"),
		"MNEME_PROXY_EMBEDDINGS_BACKEND=places", "MNEME_RETRIEVAL_EMBEDDINGS_MODEL=embed-1",
	}, environ...)...)...)
}

// search asks the public API.
func (u *up) search(query string) rag.Result {
	u.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query})
	require.NoError(u.t, err)
	status, raw := u.request("POST", "/v1/collections/docs/search", "application/json", string(body))
	require.Equal(u.t, http.StatusOK, status, raw)
	var r rag.Result
	require.NoError(u.t, json.Unmarshal([]byte(raw), &r))
	return r
}

// whole waits until a search is no longer degraded.
func (u *up) whole(query string) rag.Result {
	u.t.Helper()
	var r rag.Result
	require.Eventually(u.t, func() bool {
		r = u.search(query)
		return !r.Degraded
	}, 60*time.Second, 20*time.Millisecond)
	return r
}

func found(r rag.Result) (ids []string) {
	for _, p := range r.Passages {
		ids = append(ids, p.DocID)
	}
	return ids
}

var garage = map[string]string{
	"oil.md":  "All automobiles need oil.",
	"cars.md": "Keep cars in the shed.",
	"rope.md": "Rope hangs beside sail.",
	"tar.md":  "Tar is kept in barrels.",
	"oar.md":  "Oars lie on the rack.",
}

// A search finds by vectors what shares no word with it, through every service.
func TestHybridSearchEndToEnd(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, test := range map[string]struct {
		floats  bool
		environ []string
	}{
		"base64":           {environ: []string{"MNEME_RETRIEVAL_EMBEDDINGS_DIMENSIONS=96"}},
		"numbers":          {floats: true},
		"reciprocal ranks": {environ: []string{"MNEME_RETRIEVAL_FUSION=rrf"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t)
			e.floats = test.floats
			u := hybrid(t, e, append(test.environ, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_RETRIEVAL_EMBEDDINGS_BATCH_SIZE=2")...)
			e.set(func() { e.fail = []int{429, 500} }) // the gateway tries again
			u.load(garage)
			r := u.whole("automobiles")
			require.Equal(t, []string{"oil.md", "cars.md"}, found(r)[:2])
			require.Zero(t, r.Passages[1].BM25Rank, "no word of the query is in it")
			require.Positive(t, r.Passages[1].VecRank)
			e.set(func() {
				require.LessOrEqual(t, slices.Max(e.batches), 2)
				require.Empty(t, e.fail)
			})
			require.Contains(t, u.ask("1", "What do all automobiles need?").Content, "oil")
		})
	}
}

// What was said is found by vectors, too, where the configuration says so, and sent nowhere
// where it does not.
func TestRecallByMeaningEndToEnd(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	for _, vectors := range []string{"0", "100"} {
		u := hybrid(t, e, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_RECALL_VECTORS="+vectors)
		e.set(func() { e.batches = nil }) // what the documents' library asked
		var lines strings.Builder
		said := slices.Concat([]string{"Keep automobiles in the shed."}, slices.Repeat([]string{"It rains."}, 40))
		for _, text := range said {
			fmt.Fprintf(&lines, `{"message":{"role":"user","content":%q}}`+"\n", text)
		}
		status, body := u.request("POST", "/v1/chats/a/import", "application/x-ndjson", lines.String())
		require.Equal(t, http.StatusCreated, status, body)
		search := func() string {
			status, body := u.request("GET", "/v1/chats/a/recall?query=cars", "", "")
			require.Equal(t, http.StatusOK, status, body)
			return body
		}
		if vectors == "0" {
			require.NotContains(t, search(), "shed")
			e.set(func() { require.Empty(t, e.batches) })
			continue
		}
		require.Eventually(t, func() bool { return strings.Contains(search(), "shed") }, time.Minute, 10*time.Millisecond)
	}
}

// Whatever becomes of the endpoint, a search answers by words and says so.
func TestASearchWithoutTheEndpoint(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	byWords := func(u *up) {
		u.t.Helper()
		r := u.search("automobiles")
		require.True(u.t, r.Degraded)
		require.Equal(u.t, []string{"oil.md"}, found(r))
	}
	for name, environ := range map[string][]string{
		"down from the start":      nil,
		"vectors of another size":  {"MNEME_PROXY_EMBEDDINGS_BACKEND=short"},
		"unreachable":              nil,
		"refuses the model's name": nil,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t)
			short := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"data":[{"index":0,"embedding":%s}]}`, encoded(make([]float32, 3), true))
			}))
			t.Cleanup(short.Close)
			switch name {
			case "down from the start":
				e.down = 500
			case "refuses the model's name":
				e.down = 404
			case "unreachable":
				e.URL = "http://127.0.0.1:1"
			}
			u := hybrid(t, e, append([]string{
				"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_RETRIEVAL_EMBEDDINGS_DIMENSIONS=96",
				backend("short", "openai", short.URL+"/v1"),
			}, environ...)...)
			u.load(garage)
			byWords(u)
			byWords(u)
		})
	}
	t.Run("later", func(t *testing.T) {
		e := newEndpoint(t)
		u := hybrid(t, e, "MNEME_DATA_DIR="+t.TempDir())
		u.load(garage)
		require.Greater(t, len(u.whole("automobiles").Passages), 1)
		e.set(func() { e.down = 429 })
		byWords(u)
		e.set(func() { e.down, e.fail = 0, []int{0} })
		byWords(u) // it hangs
		require.Greater(t, len(u.whole("automobiles").Passages), 1)
	})
}

// Another number of dimensions, at a restart or behind the model's name, has
// everything embedded anew while searches go on.
func TestAChangeOfDimensions(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	e := newEndpoint(t)
	data := "MNEME_DATA_DIR=" + t.TempDir()
	u := hybrid(t, e, data)
	u.load(garage)
	require.Greater(t, len(u.whole("automobiles").Passages), 1)
	u.stop()

	u = hybrid(t, e, data)
	e.set(func() { e.batches = nil })
	require.Greater(t, len(u.whole("automobiles").Passages), 1)
	e.set(func() { require.NotContains(t, e.batches, len(garage), "vectors that are there are not made again") })
	u.stop()

	u = hybrid(t, e, data, "MNEME_RETRIEVAL_EMBEDDINGS_DIMENSIONS=96")
	require.Contains(t, found(u.search("automobiles")), "oil.md")
	require.Greater(t, len(u.whole("automobiles").Passages), 1)
	u.stop()

	u = hybrid(t, e, data)
	require.Greater(t, len(u.whole("automobiles").Passages), 1)
	e.set(func() { e.size = 64 })
	r := u.search("automobiles")
	require.True(t, r.Degraded)
	require.Equal(t, []string{"oil.md"}, found(r))
	require.Greater(t, len(u.whole("automobiles").Passages), 1)
}
