package openaimodel_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/subagent/openaimodel"
)

// embedderOf serves h and makes an Embedder that asks it.
func embedderOf(t *testing.T, c openaimodel.EmbedderConfig, h http.HandlerFunc) *openaimodel.Embedder {
	t.Helper()
	server := httptest.NewServer(h)
	c.HTTP, c.BaseURL, c.Model = server.Client(), server.URL, "embed-1"
	t.Cleanup(func() { c.HTTP.CloseIdleConnections(); server.Close() })
	return openaimodel.NewEmbedder(c)
}

// embeddingRequest is what an endpoint is sent.
type embeddingRequest struct {
	Input          []string `json:"input"`
	Model          string   `json:"model"`
	EncodingFormat string   `json:"encoding_format"`
	Dimensions     *int     `json:"dimensions"`
}

// lengths answers with vectors that begin with the length of the text, the last text
// first.
func lengths(t *testing.T, size int, seen func(embeddingRequest)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req embeddingRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/v1/embeddings" {
			t.Errorf("%s %v", r.URL.Path, err)
		}
		seen(req)
		var data []string
		for i, text := range req.Input {
			v := make([]float32, size)
			v[0], v[1] = float32(len(text)), 0.5
			encoded, _ := json.Marshal(v)
			if req.EncodingFormat == "base64" {
				var raw []byte
				for _, x := range v {
					raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
				}
				encoded, _ = json.Marshal(base64.StdEncoding.EncodeToString(raw))
			}
			data = append([]string{fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, encoded)}, data...)
		}
		fmt.Fprintf(w, `{"object":"list","model":"m","data":[%s],"usage":{}}`, strings.Join(data, ","))
	}
}

func TestVectorsComeInTheOrderOfTheTexts(t *testing.T) {
	var requests []embeddingRequest
	e := embedderOf(t, openaimodel.EmbedderConfig{BatchSize: 2, Dimensions: 4},
		lengths(t, 4, func(r embeddingRequest) { requests = append(requests, r) }))
	vectors, err := e.Embed(t.Context(), []string{"a", "bb", "ccc", "dddd", "ё"})
	require.NoError(t, err)
	require.Equal(t, "embed-1@4", e.Space())
	var first []float32
	for _, v := range vectors {
		require.Len(t, v, 4)
		require.Equal(t, float32(0.5), v[1])
		first = append(first, v[0])
	}
	require.Equal(t, []float32{1, 2, 3, 4, 2}, first)
	require.Len(t, requests, 3, "two texts in a request")
	require.Equal(t, []string{"ccc", "dddd"}, requests[1].Input)
	for _, r := range requests {
		require.Equal(t, "embed-1", r.Model)
		require.Equal(t, "base64", r.EncodingFormat)
		require.Equal(t, 4, *r.Dimensions)
	}
}

func TestDimensionsAreTheModelsUnlessAskedFor(t *testing.T) {
	e := embedderOf(t, openaimodel.EmbedderConfig{}, lengths(t, 7, func(r embeddingRequest) {
		if r.Dimensions != nil {
			t.Error("a model without that option would refuse it")
		}
	}))
	vectors, err := e.Embed(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Len(t, vectors[0], 7)
	require.Equal(t, "embed-1", e.Space())
}

// A server that knows no base64 is asked once more, and then in numbers only.
func TestAnEndpointThatGivesNumbers(t *testing.T) {
	var formats []string
	plain := lengths(t, 2, func(embeddingRequest) {})
	e := embedderOf(t, openaimodel.EmbedderConfig{}, func(w http.ResponseWriter, r *http.Request) {
		var raw map[string]any
		_ = json.NewDecoder(r.Body).Decode(&raw)
		formats = append(formats, fmt.Sprint(raw["encoding_format"]))
		raw["encoding_format"] = "float"
		body, _ := json.Marshal(raw)
		inner, _ := http.NewRequest("POST", "/v1/embeddings", strings.NewReader(string(body)))
		plain(w, inner)
	})
	for range 2 {
		vectors, err := e.Embed(t.Context(), []string{"abc"})
		require.NoError(t, err)
		require.Equal(t, [][]float32{{3, 0.5}}, vectors)
	}
	require.Equal(t, []string{"base64", "float", "float"}, formats)
}

func TestWrongAnswersOfAnEndpoint(t *testing.T) {
	for name, test := range map[string]struct {
		status     int
		body, want string
		retryable  bool
	}{
		"other size": {200, `{"data":[{"index":0,"embedding":"AACAPw=="},{"index":1,"embedding":"AACAPw=="}]}`,
			"a vector of 1 dimensions where 3 are configured", true},
		"too few": {200, `{"data":[{"index":1,"embedding":"AACAPwAAgD8AAIA/"}]}`, "no vector for text 0 of 2", true},
		"twice": {
			200, `{"data":[{"index":1,"embedding":"AACAPwAAgD8AAIA/"},{"index":1,"embedding":"AACAPwAAgD8AAIA/"}]}`, "text 1",
			true,
		},
		"foreign index": {200, `{"data":[{"index":7,"embedding":"AACAPwAAgD8AAIA/"}]}`, "text 7", true},
		"empty":         {200, `{}`, "no vector", true},
		"no JSON":       {200, `<html>`, "cannot be understood", true},
		"bad base64":    {200, `{"data":[{"index":0,"embedding":"!!"}]}`, "cannot be understood", true},
		"refused":       {400, `{"error":{"message":"input is wrong"}}`, "refused the request as wrong", false},
		"limited":       {429, `{"error":{"message":"slow down"}}`, "no more requests for the moment", true},
		"down":          {500, `oops`, "cannot be reached or failed", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := embedderOf(t, openaimodel.EmbedderConfig{Dimensions: 3}, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			})
			_, err := e.Embed(t.Context(), []string{"a", "b"})
			var known *openaimodel.Error
			require.ErrorAs(t, err, &known)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, test.retryable, known.Retryable())
		})
	}
}

func TestAnEndpointThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	var calls atomic.Int64
	e := embedderOf(t, openaimodel.EmbedderConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that its client has left
		cancel(gaveUp)
		<-r.Context().Done()
	})
	_, err := e.Embed(ctx, []string{"a"})
	require.ErrorIs(t, err, gaveUp)
	require.EqualValues(t, 1, calls.Load())
}
