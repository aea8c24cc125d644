package webmemory_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// ids are those of a chat's own history, with its archive.
func (w *world) ids(t *testing.T, chat string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(w.export(t, chat)) {
		var of webapi.ExportLine
		require.NoError(t, json.Unmarshal([]byte(line), &of))
		var m memory.Message
		if of.Subagent == "" && len(of.Message) > 0 {
			require.NoError(t, json.Unmarshal(of.Message, &m))
			out = append(out, m.ID)
		}
	}
	return out
}

// last is the id of the chat's last message, "" for none.
func (w *world) last(t *testing.T, chat string) string {
	t.Helper()
	if ids := w.ids(t, chat); len(ids) > 0 {
		return ids[len(ids)-1]
	}
	return ""
}

// said are the texts of a chat's own history, with its archive.
func (w *world) said(t *testing.T, chat string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(w.export(t, chat)) {
		var of webapi.ExportLine
		require.NoError(t, json.Unmarshal([]byte(line), &of))
		var m memory.Message
		if of.Subagent == "" && len(of.Message) > 0 {
			require.NoError(t, json.Unmarshal(of.Message, &m))
			out = append(out, m.Content)
		}
	}
	return out
}

// placed is a post that says where it stands.
func placed(text string, after, ifLast *string) webapi.MessageRequest {
	return webapi.MessageRequest{Message: text, After: after, IfLast: ifLast}
}

// A message is regenerated or edited anywhere in a chat, in the archive too: all histories go back as by a
// rewind, for every process, and the message is answered from there.
func TestAPostBehindAMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), sixAtHand)
	other := w.process(sixAtHand)
	posted := w.recordRuns()
	var exports []string
	for i := range 12 {
		exports = append(exports, w.export(t, "c"))
		w.talk(t, "c", i, i+1)
		<-posted
	}
	for i, n := range []int{11, 10, 4, 2, 0} { // exchanges that stay
		text, url := fmt.Sprintf("edited %d", n), []string{other, w.url}[i%2]
		ids := w.ids(t, "c")
		after, last, taken := "", ids[len(ids)-1], ids[2*n]
		if n > 0 {
			after = ids[2*n-1]
		}
		w.on(url, func() {
			got := w.do("POST", "/v1/chats/c/messages", placed(text, &after, &last), "Idempotency-Key", text)
			require.Equal(t, 200, got.status, string(got.body))
			again := w.do("POST", "/v1/chats/c/messages", placed(text, &after, &last), "Idempotency-Key", text)
			require.Equal(t, got.header.Get("Mneme-Run-Id"), again.header.Get("Mneme-Run-Id"), "it joins its run")
		})
		require.Contains(t, string(<-posted), `"message":"`+text+`"`)
		require.Empty(t, posted)
		whole := w.export(t, "c")
		require.Equal(t, strings.Split(exports[n], "\n")[:2*n], strings.Split(whole, "\n")[:2*n])
		require.Equal(t, []string{text, "hello"}, w.said(t, "c")[2*n:])
		require.Equal(t, 2*n+2, strings.Count(whole, `"subagent":"analytic"`), "the subagent's goes back, too")
		run, _, _ := memory.SplitID(taken)
		for _, url := range []string{w.url, other} {
			w.on(url, func() {
				require.Equal(t, whole, w.export(t, "c"))
				require.Equal(t, 404, w.do("GET", "/v1/chats/c/runs/"+run+"/events", nil).status)
			})
		}
		aside := w.asides(t, "c")
		require.Len(t, aside, i+1)
		w.restore(t, "c", aside[i].ID, http.StatusConflict)
	}
	require.Equal(t, []string{"edited 0", "hello"}, w.said(t, "c"))
	// Once the post is taken back, what it took back can come again.
	aside := w.asides(t, "c")
	w.rewind(t, "c", "")
	w.restore(t, "c", aside[4].ID, http.StatusOK)
	require.Equal(t, []string{"message 0", "hello", "message 1", "hello", "edited 2", "hello"}, w.said(t, "c"))
}

// A post that takes another message for the last one, or stands behind one that is not there, changes nothing
// and ends nothing.
func TestAPostThatDoesNotFollow(t *testing.T) {
	testtier.Slow(t)
	w := newWorld(t, answers("hello"))
	refused := func(chat string, p webapi.MessageRequest, status int, code string) {
		t.Helper()
		before, asides := w.export(t, chat), w.asides(t, chat)
		for _, busy := range []string{webapi.Queue, webapi.Reject, webapi.Interrupt} {
			p.OnBusy = busy
			got := w.do("POST", "/v1/chats/"+chat+"/messages", p)
			require.Equal(t, status, got.status, string(got.body))
			require.Equal(t, code, got.problem(t).Code)
			require.Equal(t, before, w.export(t, chat))
			require.Equal(t, asides, w.asides(t, chat))
		}
	}
	none, wrong := "", "x.1"
	refused("c", placed("hi", &wrong, nil), 404, "unknown_message")
	refused("c", placed("hi", nil, &wrong), 409, "messages_since")
	got := w.do("POST", "/v1/chats/c/messages", placed("hi", &none, &none))
	require.Equal(t, 200, got.status, string(got.body))
	refused("c", placed("hi", nil, &none), 409, "messages_since")
	first, last := w.ids(t, "c")[0], w.last(t, "c")
	refused("c", placed("hi", &none, &first), 409, "messages_since")
	refused("c", placed("hi", &wrong, &last), 404, "unknown_message")
	require.Equal(t, 200, w.do("POST", "/v1/chats/c/messages", placed("more", &last, &last)).status)
	require.Equal(t, []string{"hi", "hello", "more", "hello"}, w.said(t, "c"))
	require.Empty(t, w.asides(t, "c"))
	// The run of the message stays whole, as with a rewind, and so does that of a subagent's.
	require.Equal(t, 200, w.do("POST", "/v1/chats/c/messages", placed("again", &first, nil)).status)
	require.Equal(t, []string{"hi", "hello", "again", "hello"}, w.said(t, "c"))
	run, _, _ := memory.SplitID(first)
	task := run + ".2"
	require.Equal(t, 200, w.do("POST", "/v1/chats/c/messages", placed("once more", &task, nil)).status)
	require.Equal(t, []string{"hi", "hello", "once more", "hello"}, w.said(t, "c"))
}

// A run that goes on, or that waits for an answer, is ended for a post that follows, and for no other.
func TestAPostThatEndsARun(t *testing.T) {
	t.Parallel()
	w, s, run := waitingWorld(t)
	question, wrong, none := w.last(t, "1"), "x.1", ""
	for _, p := range []webapi.MessageRequest{placed("plain", nil, &wrong), placed("plain", &wrong, nil)} {
		require.Contains(t, []int{404, 409}, w.do("POST", "/v1/chats/1/messages", p).status)
		require.True(t, w.look.HExists(t.Context(), "{chat_history:1}:meta", "waits").Val())
	}
	got := w.do("POST", "/v1/chats/1/messages", placed("plain one", nil, &question))
	require.Equal(t, 200, got.status, string(got.body))
	require.Equal(t, []string{"refund me", "plain one", "plainly"}, w.said(t, "1"))
	require.Equal(t, 409, w.resume("1", run, yes("w1")).status)

	run = w.wait("2")
	question = w.last(t, "2")
	got = w.do("POST", "/v1/chats/2/messages", placed("plain two", &none, &question))
	require.Equal(t, 200, got.status, string(got.body))
	require.Equal(t, []string{"plain two", "plainly"}, w.said(t, "2"), "the run that waited is taken back, too")
	require.Equal(t, 404, w.resume("2", run, yes("w1")).status)
	require.Len(t, s.requests(), 4)

	// A run that goes on leaves what was shown, which is no message since.
	w = newWorld(t, waits(nil))
	w.open("POST", "/v1/chats/1/messages", message{"one"}).until("subagent_delegation")
	question = w.last(t, "1")
	p := placed("two", nil, &wrong)
	p.OnBusy = webapi.Interrupt
	require.Equal(t, 409, w.do("POST", "/v1/chats/1/messages", p).status)
	require.Equal(t, []string{"one"}, w.said(t, "1"), "it goes on")
	p.IfLast, p.After = &question, &none
	w.open("POST", "/v1/chats/1/messages", p).until("subagent_delegation")
	require.Equal(t, []string{"two"}, w.said(t, "1"))
}

// Of posts that take the same message for the last one, exactly one is taken, wherever they arrive.
func TestOneOfSeveralThatFollowIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"))
	urls := []string{w.url, w.process()}
	for round := range 6 {
		last, none := w.last(t, "c"), ""
		after := []*string{nil, &last, &none}[round%3]
		statuses := make([]int, 4)
		var posting sync.WaitGroup
		for i := range statuses {
			var req *http.Request
			w.on(urls[i%2], func() {
				req = w.request("POST", "/v1/chats/c/messages", placed(fmt.Sprintf("%d of %d", i, round), after, &last))
			})
			posting.Go(func() { statuses[i] = w.send(req).status })
		}
		posting.Wait()
		require.ElementsMatch(t, []int{200, 409, 409, 409}, statuses)
		want := map[int]int{0: 2*round + 2, 1: 2*round + 2, 2: 2}[round%3]
		if round > 2 {
			want = map[int]int{0: 4, 1: 6, 2: 2}[round%3]
		}
		require.Len(t, w.said(t, "c"), want)
	}
}

// A failure that may pass is tried once more under the same key, whatever its first attempt took back.
func TestARetryOfAPostBehindAMessage(t *testing.T) {
	testtier.Slow(t)
	f := &flaky{errors: map[memory.Chat][]event.Error{}}
	w := newWorld(t, f.agent)
	w.talk(t, "c", 0, 2)
	none, last := "", w.last(t, "c")
	f.errors[memory.MustChat("c")] = []event.Error{passing}
	require.Equal(t, 502, w.do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k").status)
	other := w.process()
	w.on(other, func() {
		got := w.do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k")
		require.Equal(t, 200, got.status, string(got.body))
	})
	require.Equal(t, []string{"hi", "(no answer: model_failed)", "answer to hi"}, w.said(t, "c"))
	require.NotEmpty(t, f.last().RetryOf)
	require.Len(t, w.asides(t, "c"), 1)
}

// A post that no apiserver takes leaves the chat as it was.
func TestARefusedPostTakesNothingBack(t *testing.T) {
	w := newWorld(t, answers("hello"), sixAtHand)
	w.talk(t, "c", 0, 8)
	before, none := w.export(t, "c"), ""
	w.putApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.URL.Path == "/v1/runs" {
			http.Error(rw, "busy", http.StatusServiceUnavailable)
			return
		}
		w.runs.Handler().ServeHTTP(rw, r)
	}))
	last := w.last(t, "c")
	require.Equal(t, 503, w.do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k").status)
	require.Equal(t, before, w.export(t, "c"))
	require.Empty(t, w.asides(t, "c"))
	w.putApiserver(w.runs.Handler())
	got := w.do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k")
	require.Equal(t, 200, got.status, string(got.body))
	require.Equal(t, []string{"hi", "hello"}, w.said(t, "c"))
}

// A process is killed at any point between the rewind of a post and its run; the post is repeated to another one,
// with its key or without, and the end is the same.
func TestAProcessIsKilledWhileAPostGoesBack(t *testing.T) {
	t.Parallel()
	var stand atomic.Pointer[string] // "METHOD /path" at which nothing answers
	reached := make(chan struct{}, 10)
	w := newWorld(t, answers("hello"), sixAtHand, lease)
	stands := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if at := stand.Load(); at != nil && strings.HasPrefix(r.Method+" "+r.URL.Path, *at) {
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see who hangs up
				reached <- struct{}{}
				<-r.Context().Done()
				return
			}
			h.ServeHTTP(rw, r)
		})
	}
	w.putApiserver(stands(w.runs.Handler()))
	w.guard = stands
	other := w.process(sixAtHand, lease)
	for i, c := range []struct{ at, key string }{
		{"DELETE /v1/conversations/", "k"}, {"POST /internal/v1/rewinds", "k"}, {"POST /internal/v1/rewinds", ""},
		{"POST /v1/runs", ""},
	} {
		chat := fmt.Sprintf("c%d", i)
		url, process := w.child()
		w.on(url, func() { w.talk(t, chat, 0, 5) })
		ids := w.ids(t, chat)
		p := placed("edited", &ids[3], &ids[len(ids)-1])
		header := []string{"Idempotency-Key", "k"}[:2*len(c.key)]
		var req *http.Request
		w.on(url, func() { req = w.request("POST", "/v1/chats/"+chat+"/messages", p, header...) })
		stand.Store(&c.at)
		broken := make(chan struct{})
		go func() {
			defer close(broken)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		<-reached
		process.Kill()
		<-broken
		stand.Store(nil)
		w.on(other, func() {
			got := w.do("POST", "/v1/chats/"+chat+"/messages", p, header...)
			require.Equal(t, 200, got.status, "%v: %s", c, got.body)
		})
		require.Equal(t, []string{"message 0", "hello", "message 1", "hello", "edited", "hello"}, w.said(t, chat))
		require.Len(t, w.stored("subagent:analytic:"+chat), 6)
		require.Len(t, w.asides(t, chat), 1)
	}
}
