package problem_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/memory"
	"mneme/webmemory/problem"
)

// Each error has a status and a code, also behind the context that callers add. Internal errors show no text.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{problem.BadRequest("%s is missing", "text"), 400, "bad_request"},
		{problem.ErrQueueSlow, 409, "chat_busy"},
		{problem.ErrQueueFull, 429, "too_many_messages"},
		{problem.ErrErased, 409, "chat_erased"},
		{problem.ErrAsleep, 503, "memory_unavailable"},
		{problem.ErrShutdown, 503, "shutting_down"},
		{memory.ErrUnavailable, 503, "memory_unavailable"},
		{&access.Refusal{Status: 403, Code: "forbidden", Message: "No."}, 403, "forbidden"},
		{errors.New("secret"), 500, "internal"},
	} {
		p := problem.FromError(fmt.Errorf("reading: %w", c.err))
		require.Equal(t, c.status, p.Status, c.err)
		require.Equal(t, c.code, p.Code, c.err)
		require.NotContains(t, p.Message, "secret")
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	gin.SetMode(gin.TestMode)
	at := func(query string) *gin.Context {
		c, _ := gin.CreateTestContext(httptest.NewRecorder())
		c.Request = httptest.NewRequest(http.MethodGet, "/?"+query, nil)
		return c
	}
	n, err := problem.Number(at("k=3"), "k", 5, 1, 9)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = problem.Number(at(""), "k", 5, 1, 9)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	for _, query := range []string{"k=0", "k=10", "k=x", "k=1.5"} {
		_, err = problem.Number(at(query), "k", 5, 1, 9)
		require.ErrorContains(t, err, "k is a whole number from 1 to 9")
	}
	on, err := problem.Flag(at("dry=true"), "dry")
	require.NoError(t, err)
	require.True(t, on)
	_, err = problem.Flag(at("dry=yes"), "dry")
	require.ErrorContains(t, err, `dry is true or false, not "yes"`)
	sse := httptest.NewRequest(http.MethodGet, "/", nil)
	require.False(t, problem.AcceptsSSE(sse))
	sse.Header.Set("Accept", "text/html, text/event-stream")
	require.True(t, problem.AcceptsSSE(sse))
}
