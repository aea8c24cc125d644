package webmemory_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	"mneme/webmemory"
)

// streamBody returns the body of an event stream.
func streamBody(w *webmemorytest.World, method, path string, body any, header ...string) string {
	w.T.Helper()
	got := w.Do(method, path, body, append(header, "Accept", "text/event-stream")...)
	require.Equal(w.T, http.StatusOK, got.Status, string(got.Body))
	return string(got.Body)
}

// Finished runs are held in a bounded part of the process's memory. One that has
// left it is resumed, replayed and answered as before.
func TestFinishedRunsAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	a := webmemorytest.Agent(func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		for n := range 20 {
			emit(event.Head{}, &event.AssistantDelta{Text: fmt.Sprint(n, " ")})
		}
		emit(event.Head{}, &event.Assistant{Content: strings.Repeat(r.Message, 5000)})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	const limit = 64 << 10
	w := webmemorytest.NewWorld(t, a, func(c *webmemory.Config) { c.KeepBytes = limit })
	path := func(n int) string { return fmt.Sprintf("/v1/chats/%d", n) }
	runs, whole := map[int]string{}, map[int]string{}
	const posts = 20 // of more than 5 kB each
	for n := range posts {
		tr := w.Do("POST", path(n)+"/messages", webmemorytest.Message(fmt.Sprint(n%10)), "Accept", "text/event-stream",
			"Idempotency-Key", "k")
		require.Equal(t, http.StatusOK, tr.Status)
		runs[n], whole[n] = tr.RunID(), string(tr.Body)
	}
	webmemorytest.Eventually(t, "the bytes are bounded", func() bool {
		held := w.Metric("mneme_finished_run_bytes")
		return held > limit/2 && held <= limit
	})
	for _, n := range []int{0, posts - 1} { // one that has left, and one that is held
		events := path(n) + "/runs/" + runs[n] + "/events"
		require.Equal(t, whole[n], streamBody(w, "GET", events, nil))
		const shown = "id: 15\n\n"
		after := strings.Index(whole[n], shown) + len(shown)
		require.Equal(t, "retry: 1000\n"+whole[n][after:], streamBody(w, "GET", events, nil, "Last-Event-ID", "15"))
		require.Equal(t, http.StatusNoContent, w.Do("GET", events, nil, "Last-Event-ID", "23").Status)
		require.Equal(t, whole[n], streamBody(w, "POST", path(n)+"/messages", webmemorytest.Message(fmt.Sprint(n%10)),
			"Idempotency-Key", "k"))
		answered := w.Do("POST", path(n)+"/messages", webmemorytest.Message(fmt.Sprint(n%10)), "Idempotency-Key", "k")
		require.Equal(t, http.StatusOK, answered.Status)
		require.Contains(t, string(answered.Body), strings.Repeat(fmt.Sprint(n%10), 5000))
		require.Len(t, w.History("chat_history:"+fmt.Sprint(n)), 2, "nothing ran twice")
	}
	require.Equal(t, 200, w.Do("DELETE", path(posts-1), nil).Status)
	require.Equal(t, 200, w.Do("DELETE", path(0), nil).Status)
	require.Equal(t, http.StatusNotFound, w.Do("GET", path(0)+"/runs/"+runs[0]+"/events", nil).Status)
	require.Equal(t, http.StatusNotFound, w.Do("GET", path(posts-1)+"/runs/"+runs[posts-1]+"/events", nil).Status)
}

// A client comes back to another process with the number of an event that waits in
// the first one's spool: it gets what follows, once that is in Redis.
func TestAResumeElsewhereWaitsForWhatWasShown(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	patient := func(c *webmemory.Config) { c.Lease, c.ResumeWait = time.Minute, time.Minute }
	w := webmemorytest.NewDurableWorld(t, s.Play, patient)
	second := w.StartReplica(patient)
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi", "Idempotency-Key", "k")
	tr.Until("subagent_delegation")
	run := tr.RunID()
	w.RedisServer.Kill()
	s.Allow("1", 4)
	tr.Until("subagent_completion")
	require.Equal(t, "6", tr.LastID)
	require.NoError(t, w.RedisServer.Run())
	w.Target(second, func() {
		resumed := make(chan webmemorytest.Response, 2)
		get := w.NewRequest("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", tr.LastID)
		post := w.NewRequest("POST", "/v1/chats/1/messages", webmemorytest.Message("hi"), "Last-Event-ID", tr.LastID,
			"Idempotency-Key", "k",
			"Accept", "text/event-stream")
		for _, req := range []*http.Request{get, post} {
			go func() { resumed <- w.Send(req) }()
		}
		s.Allow("1", webmemorytest.ScriptEvents-6)
		for range 2 {
			got := <-resumed
			require.Equal(t, http.StatusOK, got.Status, string(got.Body))
			require.Contains(t, string(got.Body), "id: 7\n")
			require.NotContains(t, string(got.Body), "id: 6\n")
			require.Contains(t, string(got.Body), "run_finished")
		}
	})
}

// A run was closed short of what its dead process had shown: a client that has seen
// more is told that this is gone, not that its number is wrong.
func TestAResumeBehindTheEndOfAClosedRun(t *testing.T) {
	t.Parallel()
	w, _, run := deadSpool(t, true)
	events := "/v1/chats/1/runs/" + run + "/events"
	require.Contains(t, streamBody(w, "GET", events, nil), "run_finished", "the run is closed")
	second := w.StartReplica()
	for _, url := range []string{w.URL, second} {
		w.Target(url, func() {
			got := w.Do("GET", events, nil, "Last-Event-ID", "6")
			require.Equal(t, http.StatusGone, got.Status, string(got.Body))
			require.Equal(t, "events_gone", got.Problem(t).Code)
			require.Equal(t, http.StatusBadRequest, w.Do("GET", events, nil, "Last-Event-ID", "x").Status)
		})
	}
}

// Redis refuses reads, so nothing is known about the events.
func TestARunOfAnotherProcessWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	second := w.StartReplica()
	first := w.Post("1", "hi", "Idempotency-Key", "k", "Accept", "text/event-stream")
	id := first.RunID()
	events := "/v1/chats/1/runs/" + id + "/events"
	ctx := context.Background()
	w.Target(second, func() {
		// Before that the run counts as one that goes on, and its reader waits for Redis.
		webmemorytest.Eventually(t, "the end is kept", func() bool {
			return w.Redis.HGet(ctx, "run:1:"+id, "result").Val() != ""
		})
		require.NoError(t, w.Redis.Do(ctx, "ACL", "SETUSER", "default", "-xrange").Err())
		for _, got := range []webmemorytest.Response{
			w.Do("GET", events, nil),
			w.Do("GET", events, nil, "Last-Event-ID", "2"),
			w.Post("1", "hi", "Idempotency-Key", "k", "Accept", "text/event-stream"),
		} {
			require.Equal(t, http.StatusServiceUnavailable, got.Status, string(got.Body))
			require.Equal(t, "memory_refused", got.Problem(t).Code)
		}
		require.NoError(t, w.Redis.Do(ctx, "ACL", "SETUSER", "default", "+xrange").Err())
		require.Equal(t, string(first.Body), streamBody(w, "GET", events, nil))
	})
}
