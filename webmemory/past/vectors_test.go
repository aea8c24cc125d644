package past_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
)

// Where the apiserver has an embedding model, what says the same in other words is found; a
// message that the model refuses is found by its words, and without the model all are.
func TestRecallByMeaning(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.RecallVectors = 100 })
	var down atomic.Bool
	runs := apiserver.New(apiserver.Config{Embed: func(_ context.Context, texts []string) ([][]float32, error) {
		if down.Load() {
			return nil, errors.New("no answer")
		}
		vectors := make([][]float32, len(texts))
		for i, text := range texts {
			switch {
			case strings.Contains(text, "refused"):
			case strings.Contains(text, "Aliya"), strings.Contains(text, "name"):
				vectors[i] = []float32{1, 0, 0}
			case strings.Contains(text, "violet"):
				vectors[i] = []float32{0, 0, 1}
			default:
				vectors[i] = []float32{0, 1, 0}
			}
		}
		return vectors, nil
	}}, webmemorytest.Answers("hello"), nil, webmemorytest.Logger())
	t.Cleanup(func() { _ = runs.Close() })
	w.SetApiserver(runs.Handler())

	lines := `{"message":{"role":"user","content":"I'm Aliya."}}` + "\n" +
		`{"message":{"role":"user","content":"a refused violet"}}` + "\n" + strings.Repeat(
		`{"message":{"role":"user","content":"It rains."}}`+"\n", 90)
	status, body := w.Do("POST", "/v1/chats/a/import", lines).Text()
	require.Equal(t, 201, status, "%s", body)
	require.Eventually(t, func() bool {
		hits := webmemorytest.RecallChat(t, w, "a", "What is my name?").Hits
		return len(hits) > 0 && hits[0].Text == "I'm Aliya."
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "a refused violet", webmemorytest.RecallChat(t, w, "a", "violet").Hits[0].Text)

	down.Store(true)
	require.Equal(t, "a refused violet", webmemorytest.RecallChat(t, w, "a", "violet").Hits[0].Text)
	require.Equal(t, "I'm Aliya.", webmemorytest.RecallChat(t, w, "a", "Aliya").Hits[0].Text)
	client, err := api.NewClient(w.Apiserver.URL, nil)
	require.NoError(t, err)
	defer client.Close()
	for want, texts := range map[string][]string{"has 0 entries": {}, "none of them empty": {"a", ""},
		"has 65 entries": strings.Fields(strings.Repeat("a ", 65)), "did not answer": {"a"}} {
		_, err := client.Embed(t.Context(), texts...)
		require.ErrorContains(t, err, want)
	}
	w.SetApiserver(w.Runs.Handler())
	_, err = client.Embed(t.Context(), "a")
	require.ErrorContains(t, err, "retrieval.embeddings.model")
}
