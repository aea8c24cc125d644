package openaimodel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/subagent/openaimodel"
)

func TestKeepAConversation(t *testing.T) {
	status, got := 204, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.EscapedPath() + " " + string(body)
		w.WriteHeader(status)
	}))
	defer s.Close()
	keep := func() error {
		return openaimodel.KeepConversation(t.Context(), s.Client(), s.URL+"/", "chat:1/2", time.Unix(1_760_000_000, 5))
	}
	require.NoError(t, keep())
	require.Equal(t, `PUT /v1/conversations/chat:1%2F2/keep {"until":1760000000}`, got)
	for status = range map[int]bool{404: true, 405: true} {
		require.NoError(t, keep(), "a server that keeps no conversations has nothing to keep")
	}
	for status = range map[int]bool{400: true, 503: true} {
		require.ErrorContains(t, keep(), "keep conversation chat:1/2")
	}
}
