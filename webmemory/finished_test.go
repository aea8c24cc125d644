package webmemory_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
)

// metric is the value of a metric without labels.
func (w *world) metric(name string) float64 {
	w.t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(w.do("GET", "/metrics", nil).body)
	require.NotNil(w.t, found, name)
	value, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(w.t, err)
	return value
}

// frames is what a stream sends until it ends.
func (w *world) frames(method, path string, body any, header ...string) string {
	w.t.Helper()
	got := w.do(method, path, body, append(header, "Accept", "text/event-stream")...)
	require.Equal(w.t, http.StatusOK, got.status, string(got.body))
	return string(got.body)
}

// Finished runs are held in a bounded part of the process's memory. One that has
// left it is resumed, replayed and answered as before.
func TestFinishedRunsAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	a := agent(func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		for n := range 20 {
			emit(event.Head{}, &event.AssistantDelta{Text: fmt.Sprint(n, " ")})
		}
		emit(event.Head{}, &event.Assistant{Content: strings.Repeat(r.Message, 5000)})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	const limit = 64 << 10
	w := newWorld(t, a, func(c *webmemory.Config) { c.KeepBytes = limit })
	path := func(n int) string { return fmt.Sprintf("/v1/chats/%d", n) }
	runs, whole := map[int]string{}, map[int]string{}
	const posts = 20 // of more than 5 kB each
	for n := range posts {
		tr := w.do("POST", path(n)+"/messages", message{fmt.Sprint(n % 10)}, "Accept", "text/event-stream", "Idempotency-Key",
			"k")
		require.Equal(t, http.StatusOK, tr.status)
		runs[n], whole[n] = tr.header.Get("Mneme-Run-Id"), string(tr.body)
	}
	eventually(t, "the bytes are bounded", func() bool {
		held := w.metric("mneme_finished_run_bytes")
		return held > limit/2 && held <= limit
	})
	for _, n := range []int{0, posts - 1} { // one that has left, and one that is held
		events := path(n) + "/runs/" + runs[n] + "/events"
		require.Equal(t, whole[n], w.frames("GET", events, nil))
		const shown = "id: 15\n\n"
		after := strings.Index(whole[n], shown) + len(shown)
		require.Equal(t, "retry: 1000\n\n"+whole[n][after:], w.frames("GET", events, nil, "Last-Event-ID", "15"))
		require.Equal(t, http.StatusNoContent, w.do("GET", events, nil, "Last-Event-ID", "23").status)
		require.Equal(t, whole[n], w.frames("POST", path(n)+"/messages", message{fmt.Sprint(n % 10)}, "Idempotency-Key", "k"))
		answered := w.do("POST", path(n)+"/messages", message{fmt.Sprint(n % 10)}, "Idempotency-Key", "k")
		require.Equal(t, http.StatusOK, answered.status)
		require.Contains(t, string(answered.body), strings.Repeat(fmt.Sprint(n%10), 5000))
		require.Len(t, w.stored("chat_history:"+fmt.Sprint(n)), 2, "nothing ran twice")
	}
	require.Equal(t, 200, w.do("DELETE", path(posts-1), nil).status)
	require.Equal(t, 200, w.do("DELETE", path(0), nil).status)
	require.Equal(t, http.StatusNotFound, w.do("GET", path(0)+"/runs/"+runs[0]+"/events", nil).status)
	require.Equal(t, http.StatusNotFound, w.do("GET", path(posts-1)+"/runs/"+runs[posts-1]+"/events", nil).status)
}

// A client comes back to another process with the number of an event that waits in
// the first one's spool: it gets what follows, once that is in Redis.
func TestAResumeElsewhereWaitsForWhatWasShown(t *testing.T) {
	t.Parallel()
	s := newScript()
	patient := func(c *webmemory.Config) { c.Lease, c.ResumeWait = time.Minute, time.Minute }
	w := newWorldOver(t, s.agent, []string{"--appendonly", "yes", "--appendfsync", "always"}, patient)
	second := w.process(patient)
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
	tr.until("subagent_delegation")
	run := tr.resp.Header.Get("Mneme-Run-Id")
	w.redis.Kill()
	s.let(memory.MustChat("1"), 4)
	tr.until("subagent_completion")
	require.Equal(t, "6", tr.id)
	require.NoError(t, w.redis.Run())
	w.on(second, func() {
		resumed := make(chan answer, 2)
		get := w.request("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", tr.id)
		post := w.request("POST", "/v1/chats/1/messages", message{"hi"}, "Last-Event-ID", tr.id, "Idempotency-Key", "k",
			"Accept", "text/event-stream")
		for _, req := range []*http.Request{get, post} {
			go func() { resumed <- w.send(req) }()
		}
		s.let(memory.MustChat("1"), scriptEvents-6)
		for range 2 {
			got := <-resumed
			require.Equal(t, http.StatusOK, got.status, string(got.body))
			require.Contains(t, string(got.body), "id: 7\n")
			require.NotContains(t, string(got.body), "id: 6\n")
			require.Contains(t, string(got.body), "run_finished")
		}
	})
}

// A run was closed short of what its dead process had shown: a client that has seen
// more is told that this is gone, not that its number is wrong.
func TestAResumeBehindTheEndOfAClosedRun(t *testing.T) {
	t.Parallel()
	w, _, run := deadSpool(t, true)
	events := "/v1/chats/1/runs/" + run + "/events"
	require.Contains(t, w.frames("GET", events, nil), "run_finished", "the run is closed")
	second := w.process()
	for _, url := range []string{w.url, second} {
		w.on(url, func() {
			got := w.do("GET", events, nil, "Last-Event-ID", "6")
			require.Equal(t, http.StatusGone, got.status, string(got.body))
			require.Equal(t, "events_gone", got.problem(t).Code)
			require.Equal(t, http.StatusBadRequest, w.do("GET", events, nil, "Last-Event-ID", "x").status)
		})
	}
}

// Redis cannot be read: that the events are gone is not known.
func TestARunOfAnotherProcessWhileRedisIsAway(t *testing.T) {
	w := newWorld(t, answers("hello"))
	second := w.process()
	first := w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k", "Accept", "text/event-stream")
	id := first.header.Get("Mneme-Run-Id")
	events := "/v1/chats/1/runs/" + id + "/events"
	ctx := context.Background()
	w.on(second, func() {
		// Before that the run counts as one that goes on, and its reader waits for Redis.
		eventually(t, "the end is kept", func() bool { return w.look.HGet(ctx, "run:1:"+id, "result").Val() != "" })
		require.NoError(t, w.look.Do(ctx, "ACL", "SETUSER", "default", "-xrange").Err())
		for _, got := range []answer{
			w.do("GET", events, nil),
			w.do("GET", events, nil, "Last-Event-ID", "2"),
			w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k", "Accept", "text/event-stream"),
		} {
			require.Equal(t, http.StatusServiceUnavailable, got.status, string(got.body))
			require.True(t, got.problem(t).Retryable)
			require.NotEmpty(t, got.header.Get("Retry-After"))
		}
		require.NoError(t, w.look.Do(ctx, "ACL", "SETUSER", "default", "+xrange").Err())
		require.Equal(t, string(first.body), w.frames("GET", events, nil))
	})
}
