package openaimodel_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/event"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
)

// told is a gateway that knows a model's window, or with 0 does not.
type told struct {
	tokens atomic.Int64
	asked  atomic.Int64
}

func (g *told) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		g.asked.Add(1)
		if r.URL.EscapedPath() != "/teammate/analytic/v1/models/a%2Fb" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"id":"a/b","context_tokens":9000}`)
		return
	}
	if n := g.tokens.Load(); n > 0 {
		w.Header().Set("X-AG-Context-Tokens", "16000")
	}
	streams(delta(`"content":"x"`), finish("stop"), done)(w, r)
}

// The window is asked for before the first answer, and told by each answer.
func TestContextTokens(t *testing.T) {
	g := &told{}
	m := gateway(t, openaimodel.Config{Model: "a/b"}, g.ServeHTTP)
	require.Equal(t, 9000, m.ContextTokens(t.Context()))
	require.Equal(t, 9000, m.ContextTokens(t.Context()))
	require.Equal(t, int64(1), g.asked.Load(), "it is asked once")

	g.tokens.Store(16000)
	_, err := collect(t.Context(), m, hello)
	require.NoError(t, err)
	require.Equal(t, 16000, m.ContextTokens(t.Context()))

	g.tokens.Store(0) // another backend is active, with a window that is unknown
	_, err = collect(t.Context(), m, hello)
	require.NoError(t, err)
	require.Zero(t, m.ContextTokens(t.Context()))
	require.Equal(t, int64(1), g.asked.Load(), "an answer that tells nothing is told enough")
}

func TestAGatewayThatKnowsNoModels(t *testing.T) {
	m := gateway(t, openaimodel.Config{Model: "other"}, (&told{}).ServeHTTP)
	require.Zero(t, m.ContextTokens(t.Context()))
}

// The reason that the gateway gives counts more than the status, and none of the
// vendor's words is shown.
func TestReasonsOfTheGateway(t *testing.T) {
	for reason, c := range map[string]struct {
		status    int
		code      string
		message   string
		retryable bool
	}{
		"context_length_exceeded": {500, event.TooLong, "The request is longer than the model can read.", false},
		"request_too_large": {
			429, event.TooLarge,
			"The request is larger than the model's vendor allows this account per minute; send less at once.", false,
		},
		"key_refused": {400, event.KeyRefused, "The model's vendor refused the key (check VENDOR_KEY).",
			false},
		"quota_exhausted": {429, event.VendorQuota, "The account at the model's vendor has no credit left.",
			false},
		"content_refused": {
			400, event.Refused, "The model's vendor refused to answer this (content filter).", false,
		},
		"model_unknown": {
			400, event.NoModel,
			"The model's vendor does not have the model; check model_map of the gateway's backend.", false,
		},
		"vendor_failed": {
			400, event.Unavailable, "The model's vendor cannot be reached or failed; try again in a moment.", true,
		},
		"": {
			400, event.Rejected, "The gateway refused the request as wrong; its log says why.", false,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			m := gateway(t, openaimodel.Config{}, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				h := w.Header()
				h.Set("X-AG-Error", reason)
				h.Set("X-AG-Key-Name", "VENDOR_KEY")
				h.Set("X-AG-Limit-Tokens", "4097")
				h.Set("X-AG-Sent-Tokens", "6988")
				h.Set("X-AG-Request-Id", "req_1")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, `{"error":{"message":"words of the vendor"}}`)
			})
			_, err := collect(t.Context(), m, hello)
			var e *openaimodel.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, &event.Error{Code: c.code, Message: c.message, Retryable: c.retryable}, e.Describe())
			require.NotContains(t, err.Error(), "words of the vendor")
			require.True(t, strings.HasSuffix(err.Error(), "request req_1 of the gateway)"), err)
			var long loop.TooLong
			require.ErrorAs(t, err, &long)
			limit, sent, window, ok := long.TooLong()
			require.Equal(t, []int{4097, 6988}, []int{limit, sent})
			require.Equal(t, reason == "context_length_exceeded", window)
			require.Equal(t, reason == "context_length_exceeded" || reason == "request_too_large", ok)
		})
	}
}
