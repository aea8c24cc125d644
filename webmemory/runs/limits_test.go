package runs_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/limit"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
)

// limitRuns limits the runs at once of the default tenant and of each user.
func limitRuns(w *webmemorytest.World, tenant, user string) func(*webmemory.Config) {
	parsed := func(rate string) access.Limits {
		limits, err := access.ParseLimits(rate, "")
		require.NoError(w.T, err)
		return limits
	}
	l := limit.New(w.RedisServer.Client(), limit.Options{Bounds: limit.Bounds{Users: parsed(user),
		Tenants: map[string]access.Limits{"default": parsed(tenant)}}})
	w.T.Cleanup(func() { require.NoError(w.T, l.Close()) })
	return func(c *webmemory.Config) { c.Limiter = l }
}

// postAsync posts a message without waiting for the answer.
func postAsync(w *webmemorytest.World, chat, user string) webmemorytest.Response {
	return w.Do("POST", "/v1/chats/"+chat+"/messages", map[string]string{"message": "hi", "user": user}, "Prefer",
		"respond-async")
}

// overLimit is a refusal that names a limit.
func overLimit(t *testing.T, got webmemorytest.Response, says string) {
	t.Helper()
	require.Equal(t, 429, got.Status, string(got.Body))
	require.NotEmpty(t, got.Header.Get("Retry-After"))
	require.Equal(t, "rate_limit_exceeded", gjson.GetBytes(got.Body, "error.code").Str)
	require.Contains(t, gjson.GetBytes(got.Body, "error.message").Str, says)
}

// Two processes have as many runs as a tenant and a user may, in every way that a run begins.
func TestRunsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
	one := w.StartReplica(limitRuns(w, "2runs", "1runs"))
	var completions atomic.Pointer[openaiapi.Handler]
	limits := limitRuns(w, "2runs", "1runs")
	two := w.StartReplica(limits, func(c *webmemory.Config) {
		c.OpenAI = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { completions.Load().ServeHTTP(rw, r) })
	})
	memory, err := webapi.New(two)
	require.NoError(t, err)
	t.Cleanup(memory.Close)
	completions.Store(openaiapi.New(openaiapi.Config{Memory: memory, Agents: webmemorytest.AgentNames, Log: zerolog.Nop(),
		Settings: openaiapi.Defaults()}))
	t.Cleanup(completions.Load().Close)

	w.URL = one
	first := postAsync(w, "1", "ann")
	require.Equal(t, 202, first.Status, string(first.Body))
	overLimit(t, postAsync(w, "2", "ann"), "The user ann has as many runs at once as it may (1)")
	w.URL = two
	require.Equal(t, 202, postAsync(w, "2", "bob").Status)
	overLimit(t, postAsync(w, "3", ""), "The tenant default has as many runs at once as it may (2)")
	overLimit(t, w.Do("POST", "/chat", `{"chat_id":"3","message":"hi"}`), "tenant default")
	overLimit(t, w.Do("POST", "/v1/oneshot", webmemorytest.Message("hi")), "tenant default")
	got := w.Do("POST", "/v1/chat/completions", `{"model":"mneme","messages":[{"role":"user","content":"hi"}]}`,
		"Mneme-Chat-Id", "3")
	overLimit(t, got, "tenant default")
	require.Equal(t, "rate_limit_error", gjson.GetBytes(got.Body, "error.type").Str)
	require.Empty(t, w.Keys("chat_history:3"), "what is refused leaves nothing behind")

	run := gjson.GetBytes(first.Body, "run_id").Str
	w.URL = one
	require.Less(t, w.Do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).Status, 300)
	w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Roles()
	require.Equal(t, 202, postAsync(w, "3", "").Status, "a run that is over counts no more")
	close(release)
}

// A client that sees the end of a run finds its place free.
func TestOneRunAfterAnother(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	w.URL = w.StartReplica(limitRuns(w, "1runs", ""))
	for i := range 20 {
		got := w.Do("POST", fmt.Sprintf("/v1/chats/%d/messages", i), webmemorytest.Message("hi"))
		require.Equal(t, 200, got.Status, string(got.Body))
		got = w.Do("POST", "/v1/oneshot", webmemorytest.Message("hi"))
		require.Equal(t, 200, got.Status, string(got.Body))
	}
}

// A run that waits for a person does not count. One for which there is no room waits on: its answers can come again,
// and a message that would end it is refused first.
func TestARunThatWaitsDoesNotCount(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
	w.URL = w.StartReplica(limitRuns(w, "1runs", ""))
	s := w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
	run := w.PostSuspended("1")
	w.PostSuspended("2")
	w.SetApiserver(w.Runs.Handler())
	other := postAsync(w, "3", "")
	require.Equal(t, 202, other.Status)
	overLimit(t, w.Resume("1", run, webmemorytest.Approve("w1")), "tenant default")
	overLimit(t, postAsync(w, "1", ""), "tenant default")
	w.AwaitSuspension("1")
	close(release)
	w.Stream("GET", gjson.GetBytes(other.Body, "events").Str, nil).Roles()
	w.SetApiserver(s)
	got := w.Resume("1", run, webmemorytest.Approve("w1"))
	require.Equal(t, 200, got.Status, string(got.Body))
}
