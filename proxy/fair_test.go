package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/fair"
	"mneme/memory"
	"mneme/proxy"
)

// A tenant that has all places of work it can get keeps no other one from any endpoint, and a call that waits for a
// vendor has no place.
func TestEachEndpointSharesItsPlacesOfWork(t *testing.T) {
	p := fair.New(2, 50*time.Millisecond)
	a, err := memory.ParseTenant("a")
	require.NoError(t, err)
	answers := map[string]string{"/v1/embeddings": embeddingsAnswer, "/v1/messages": messagesAnswer}
	v := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.LessOrEqual(t, p.InUse(), 1)
		w.Header().Set("Content-Type", "application/json")
		answer := answers[r.URL.Path]
		if answer == "" {
			answer = chatAnswer
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(v.Close)
	s, err := proxy.New(proxy.Config{Active: "v", EmbeddingsBackend: "v", Shared: proxy.Shared{Work: p},
		Backends: map[string]proxy.BackendConfig{"v": {Kind: proxy.KindOpenAI, BaseURL: v.URL + "/v1"}}}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	leave, err := p.Enter(t.Context(), a)
	require.NoError(t, err)
	for _, held := range []bool{true, false} {
		for path, body := range map[string]string{
			"/v1/embeddings":            `{"model":"m","input":"hi"}`,
			"/v1/chat/completions":      `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			"/v1/responses":             `{"model":"m","input":"hi"}`,
			"/v1/messages":              `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
			"/v1/messages/count_tokens": `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		} {
			for _, tenant := range []string{"a", "b"} {
				of, err := memory.ParseTenant(tenant)
				require.NoError(t, err)
				r := httptest.NewRequest("POST", path, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				got := httptest.NewRecorder()
				s.Handler().ServeHTTP(got, r.WithContext(access.With(r.Context(), access.Principal{Tenant: of})))
				if held && tenant == "a" {
					require.Equal(t, http.StatusTooManyRequests, got.Code, "%s %s", path, got.Body)
					require.NotEmpty(t, got.Header().Get("Retry-After"), path)
				} else {
					require.Equal(t, http.StatusOK, got.Code, "%s %s: %s", tenant, path, got.Body)
				}
			}
		}
		leave()
	}
	require.Zero(t, p.InUse())
}
