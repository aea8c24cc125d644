package webmemory_test

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
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
)

// limitsRuns has a process count the runs of the default tenant and of each user.
func (w *world) limitsRuns(tenant, user string) func(*webmemory.Config) {
	parsed := func(rate string) access.Limits {
		limits, err := access.ParseLimits(rate, "")
		require.NoError(w.t, err)
		return limits
	}
	l := limit.New(w.redis.Client(), limit.Options{Bounds: limit.Bounds{Users: parsed(user),
		Tenants: map[string]access.Limits{"default": parsed(tenant)}}})
	w.t.Cleanup(func() { require.NoError(w.t, l.Close()) })
	return func(c *webmemory.Config) { c.Limiter = l }
}

// later posts a message that is not waited for.
func (w *world) later(chat, user string) answer {
	return w.do("POST", "/v1/chats/"+chat+"/messages", map[string]string{"message": "hi", "user": user}, "Prefer",
		"respond-async")
}

// overLimit is a refusal that names a limit.
func overLimit(t *testing.T, got answer, says string) {
	t.Helper()
	require.Equal(t, 429, got.status, string(got.body))
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Equal(t, "rate_limit_exceeded", gjson.GetBytes(got.body, "error.code").Str)
	require.Contains(t, gjson.GetBytes(got.body, "error.message").Str, says)
}

// Two processes have as many runs as a tenant and a user may, in every way that a run begins.
func TestRunsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWorld(t, waits(release))
	one := w.process(w.limitsRuns("2runs", "1runs"))
	var completions atomic.Pointer[openaiapi.Handler]
	limits := w.limitsRuns("2runs", "1runs")
	two := w.process(limits, func(c *webmemory.Config) {
		c.OpenAI = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { completions.Load().ServeHTTP(rw, r) })
	})
	memory, err := webapi.New(two)
	require.NoError(t, err)
	t.Cleanup(memory.Close)
	completions.Store(openaiapi.New(openaiapi.Config{Memory: memory, Agents: agentNames, Log: zerolog.Nop(),
		Settings: openaiapi.Defaults()}))
	t.Cleanup(completions.Load().Close)

	w.url = one
	first := w.later("1", "ann")
	require.Equal(t, 202, first.status, string(first.body))
	overLimit(t, w.later("2", "ann"), "The user ann has as many runs at once as it may (1)")
	w.url = two
	require.Equal(t, 202, w.later("2", "bob").status)
	overLimit(t, w.later("3", ""), "The tenant default has as many runs at once as it may (2)")
	overLimit(t, w.do("POST", "/chat", `{"chat_id":"3","message":"hi"}`), "tenant default")
	overLimit(t, w.do("POST", "/v1/oneshot", message{"hi"}), "tenant default")
	got := w.complete("3", transcriptOf("hi"))
	overLimit(t, got, "tenant default")
	require.Equal(t, "rate_limit_error", gjson.GetBytes(got.body, "error.type").Str)
	require.Empty(t, w.keys("chat_history:3"), "what is refused leaves nothing behind")

	run := gjson.GetBytes(first.body, "run_id").Str
	w.url = one
	require.Less(t, w.do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).status, 300)
	w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).roles()
	require.Equal(t, 202, w.later("3", "").status, "a run that is over counts no more")
	close(release)
}

// A client that sees the end of a run finds its place free.
func TestOneRunAfterAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"))
	w.url = w.process(w.limitsRuns("1runs", ""))
	for i := range 20 {
		got := w.do("POST", fmt.Sprintf("/v1/chats/%d/messages", i), message{"hi"})
		require.Equal(t, 200, got.status, string(got.body))
		got = w.do("POST", "/v1/oneshot", message{"hi"})
		require.Equal(t, 200, got.status, string(got.body))
	}
}

// A run that waits for a person does not count. One for which there is no room waits on: its answers can come again,
// and a message that would end it is refused first.
func TestARunThatWaitsDoesNotCount(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWorld(t, waits(release))
	w.url = w.process(w.limitsRuns("1runs", ""))
	agents := *w.apiHandler.Load()
	s := w.suspends(asksFor(one))
	run := w.wait("1")
	w.wait("2")
	w.putApiserver(agents)
	other := w.later("3", "")
	require.Equal(t, 202, other.status)
	overLimit(t, w.resume("1", run, yes("w1")), "tenant default")
	overLimit(t, w.later("1", ""), "tenant default")
	w.atRest("1")
	close(release)
	w.open("GET", gjson.GetBytes(other.body, "events").Str, nil).roles()
	w.putApiserver(s)
	got := w.resume("1", run, yes("w1"))
	require.Equal(t, 200, got.status, string(got.body))
}
