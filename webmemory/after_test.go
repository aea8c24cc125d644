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
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// messageIDs returns the ids of the messages in a chat's own history, with its archive.
func messageIDs(t *testing.T, w *webmemorytest.World, chat string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(exportChat(t, w, chat)) {
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

// lastMessageID returns the id of the chat's last message, or "" if there is none.
func lastMessageID(t *testing.T, w *webmemorytest.World, chat string) string {
	t.Helper()
	if ids := messageIDs(t, w, chat); len(ids) > 0 {
		return ids[len(ids)-1]
	}
	return ""
}

// exportedTexts returns the texts of a chat's own history, with its archive.
func exportedTexts(t *testing.T, w *webmemorytest.World, chat string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(exportChat(t, w, chat)) {
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
	return webapi.MessageRequest{Message: text, ParentID: after, IfLast: ifLast}
}

// A message is regenerated or edited anywhere in a chat, in the archive too: all histories go back as by a
// rewind, for every process, and the message is answered from there.
func TestAPostBehindAMessage(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	other := w.StartReplica(sixAtHand)
	posted := w.RecordRuns()
	var exports []string
	for i := range 12 {
		exports = append(exports, exportChat(t, w, "c"))
		talk(t, w, "c", i, i+1)
		<-posted
	}
	for i, n := range []int{11, 10, 4, 2, 0} { // exchanges that stay
		text, url := fmt.Sprintf("edited %d", n), []string{other, w.URL}[i%2]
		ids := messageIDs(t, w, "c")
		after, last, taken := "", ids[len(ids)-1], ids[2*n]
		if n > 0 {
			after = ids[2*n-1]
		}
		w.Target(url, func() {
			got := w.Do("POST", "/v1/chats/c/messages", placed(text, &after, &last), "Idempotency-Key", text)
			require.Equal(t, 200, got.Status, string(got.Body))
			again := w.Do("POST", "/v1/chats/c/messages", placed(text, &after, &last), "Idempotency-Key", text)
			require.Equal(t, got.RunID(), again.RunID(), "it joins its run")
		})
		require.Contains(t, string(<-posted), `"message":"`+text+`"`)
		require.Empty(t, posted)
		whole := exportChat(t, w, "c")
		require.Equal(t, strings.Split(exports[n], "\n")[:2*n], strings.Split(whole, "\n")[:2*n])
		require.Equal(t, []string{text, "hello"}, exportedTexts(t, w, "c")[2*n:])
		require.Equal(t, 2*n+2, strings.Count(whole, `"subagent":"analytic"`), "the subagent's goes back, too")
		run, _, _ := memory.SplitID(taken)
		for _, url := range []string{w.URL, other} {
			w.Target(url, func() {
				require.Equal(t, whole, exportChat(t, w, "c"))
				require.Equal(t, 404, w.Do("GET", "/v1/chats/c/runs/"+run+"/events", nil).Status)
			})
		}
		aside := listAsides(t, w, "c")
		require.Len(t, aside, i+1)
		restoreAside(t, w, "c", aside[i].ID, http.StatusConflict)
	}
	require.Equal(t, []string{"edited 0", "hello"}, exportedTexts(t, w, "c"))
	// Once the post is taken back, what it took back can come again.
	aside := listAsides(t, w, "c")
	rewindChat(t, w, "c", "")
	restoreAside(t, w, "c", aside[4].ID, http.StatusOK)
	require.Equal(t, []string{"message 0", "hello", "message 1", "hello", "edited 2", "hello"}, exportedTexts(t, w, "c"))
}

// A post that takes another message for the last one, or stands behind one that is not there, changes nothing
// and ends nothing.
func TestAPostThatDoesNotFollow(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	refused := func(chat string, p webapi.MessageRequest, status int, code string) {
		t.Helper()
		before, asides := exportChat(t, w, chat), listAsides(t, w, chat)
		for _, busy := range []string{webapi.Queue, webapi.Reject, webapi.Interrupt} {
			p.OnBusy = busy
			got := w.Do("POST", "/v1/chats/"+chat+"/messages", p)
			require.Equal(t, status, got.Status, string(got.Body))
			require.Equal(t, code, got.Problem(t).Code)
			require.Equal(t, before, exportChat(t, w, chat))
			require.Equal(t, asides, listAsides(t, w, chat))
		}
	}
	none, wrong := "", "x.1"
	refused("c", placed("hi", &wrong, nil), 404, "unknown_message")
	refused("c", placed("hi", nil, &wrong), 409, "messages_since")
	got := w.Do("POST", "/v1/chats/c/messages", placed("hi", &none, &none))
	require.Equal(t, 200, got.Status, string(got.Body))
	refused("c", placed("hi", nil, &none), 409, "messages_since")
	first, last := messageIDs(t, w, "c")[0], lastMessageID(t, w, "c")
	refused("c", placed("hi", &none, &first), 409, "messages_since")
	refused("c", placed("hi", &wrong, &last), 404, "unknown_message")
	require.Equal(t, 200, w.Do("POST", "/v1/chats/c/messages", placed("more", &last, &last)).Status)
	require.Equal(t, []string{"hi", "hello", "more", "hello"}, exportedTexts(t, w, "c"))
	require.Empty(t, listAsides(t, w, "c"))
	// The run of the message stays whole, as with a rewind, and so does that of a subagent's.
	require.Equal(t, 200, w.Do("POST", "/v1/chats/c/messages", placed("again", &first, nil)).Status)
	require.Equal(t, []string{"hi", "hello", "again", "hello"}, exportedTexts(t, w, "c"))
	run, _, _ := memory.SplitID(first)
	task := run + ".2"
	require.Equal(t, 200, w.Do("POST", "/v1/chats/c/messages", placed("once more", &task, nil)).Status)
	require.Equal(t, []string{"hi", "hello", "once more", "hello"}, exportedTexts(t, w, "c"))
}

// A run that goes on, or that waits for an answer, is ended for a post that follows, and for no other.
func TestAPostThatEndsARun(t *testing.T) {
	t.Parallel()
	w, s, run := webmemorytest.NewSuspendedWorld(t)
	question, wrong, none := lastMessageID(t, w, "1"), "x.1", ""
	for _, p := range []webapi.MessageRequest{placed("plain", nil, &wrong), placed("plain", &wrong, nil)} {
		require.Contains(t, []int{404, 409}, w.Do("POST", "/v1/chats/1/messages", p).Status)
		require.True(t, w.Redis.HExists(t.Context(), "{chat_history:1}:meta", "waits").Val())
	}
	got := w.Do("POST", "/v1/chats/1/messages", placed("plain one", nil, &question))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, []string{"refund me", "(no answer: stopped)", "plain one", "plainly"}, exportedTexts(t, w, "1"))
	require.Equal(t, 409, w.Resume("1", run, webmemorytest.Approve("w1")).Status)

	run = w.PostSuspended("2")
	question = lastMessageID(t, w, "2")
	got = w.Do("POST", "/v1/chats/2/messages", placed("plain two", &none, &question))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, []string{"plain two", "plainly"}, exportedTexts(t, w, "2"), "the run that waited is taken back, too")
	require.Equal(t, 404, w.Resume("2", run, webmemorytest.Approve("w1")).Status)
	require.Len(t, s.Requests(), 4)

	// A run that goes on leaves what was shown, which is no message since.
	w = webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	w.PostStream("1", "one").Until("subagent_delegation")
	question = lastMessageID(t, w, "1")
	p := placed("two", nil, &wrong)
	p.OnBusy = webapi.Interrupt
	require.Equal(t, 409, w.Do("POST", "/v1/chats/1/messages", p).Status)
	require.Equal(t, []string{"one"}, exportedTexts(t, w, "1"), "it goes on")
	p.IfLast, p.ParentID = &question, &none
	w.Stream("POST", "/v1/chats/1/messages", p).Until("subagent_delegation")
	require.Equal(t, []string{"two"}, exportedTexts(t, w, "1"))
}

// Of posts that take the same message for the last one, exactly one is taken, wherever they arrive.
func TestOneOfSeveralThatFollowIsTaken(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	urls := []string{w.URL, w.StartReplica()}
	for round := range 6 {
		last, none := lastMessageID(t, w, "c"), ""
		after := []*string{nil, &last, &none}[round%3]
		statuses := make([]int, 4)
		var posting sync.WaitGroup
		for i := range statuses {
			var req *http.Request
			w.Target(urls[i%2], func() {
				req = w.NewRequest("POST", "/v1/chats/c/messages", placed(fmt.Sprintf("%d of %d", i, round), after, &last))
			})
			posting.Go(func() { statuses[i] = w.Send(req).Status })
		}
		posting.Wait()
		require.ElementsMatch(t, []int{200, 409, 409, 409}, statuses)
		want := map[int]int{0: 2*round + 2, 1: 2*round + 2, 2: 2}[round%3]
		if round > 2 {
			want = map[int]int{0: 4, 1: 6, 2: 2}[round%3]
		}
		require.Len(t, exportedTexts(t, w, "c"), want)
	}
}

// A failure that may pass is tried once more under the same key, whatever its first attempt took back.
func TestARetryOfAPostBehindAMessage(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	f := &flaky{errors: map[memory.Chat][]event.Error{}}
	w := webmemorytest.NewWorld(t, f.agent)
	talk(t, w, "c", 0, 2)
	none, last := "", lastMessageID(t, w, "c")
	f.errors[memory.MustChat("c")] = []event.Error{passing}
	require.Equal(t, 502, w.Do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k").Status)
	other := w.StartReplica()
	w.Target(other, func() {
		got := w.Do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k")
		require.Equal(t, 200, got.Status, string(got.Body))
	})
	require.Equal(t, []string{"hi", "(no answer: model_failed)", "answer to hi"}, exportedTexts(t, w, "c"))
	require.NotEmpty(t, f.last().RetryOf)
	require.Len(t, listAsides(t, w, "c"), 1)
}

// A post that no apiserver takes leaves the chat as it was.
func TestARefusedPostTakesNothingBack(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	talk(t, w, "c", 0, 8)
	before, none := exportChat(t, w, "c"), ""
	w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.URL.Path == "/v1/runs" {
			http.Error(rw, "busy", http.StatusServiceUnavailable)
			return
		}
		w.Runs.Handler().ServeHTTP(rw, r)
	}))
	last := lastMessageID(t, w, "c")
	require.Equal(t, 503, w.Do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k").Status)
	require.Equal(t, before, exportChat(t, w, "c"))
	require.Empty(t, listAsides(t, w, "c"))
	w.SetApiserver(w.Runs.Handler())
	got := w.Do("POST", "/v1/chats/c/messages", placed("hi", &none, &last), "Idempotency-Key", "k")
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, []string{"hi", "hello"}, exportedTexts(t, w, "c"))
}

// A process is killed at any point between the rewind of a post and its run; the post is repeated to another one,
// with its key or without, and the end is the same.
func TestAProcessIsKilledWhileAPostGoesBack(t *testing.T) {
	t.Parallel()
	var stand atomic.Pointer[string] // "METHOD /path" at which nothing answers
	reached := make(chan struct{}, 10)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand, webmemorytest.ShortenLease)
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
	w.SetApiserver(stands(w.Runs.Handler()))
	w.Middleware = stands
	other := w.StartReplica(sixAtHand, webmemorytest.ShortenLease)
	for i, c := range []struct{ at, key string }{
		{"DELETE /v1/conversations/", "k"}, {"POST /internal/v1/rewinds", "k"}, {"POST /internal/v1/rewinds", ""},
		{"POST /v1/runs", ""},
	} {
		chat := fmt.Sprintf("c%d", i)
		url, process := w.StartChild(w.ChildConfig())
		w.Target(url, func() { talk(t, w, chat, 0, 5) })
		ids := messageIDs(t, w, chat)
		p := placed("edited", &ids[3], &ids[len(ids)-1])
		header := []string{"Idempotency-Key", "k"}[:2*len(c.key)]
		var req *http.Request
		w.Target(url, func() { req = w.NewRequest("POST", "/v1/chats/"+chat+"/messages", p, header...) })
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
		w.Target(other, func() {
			got := w.Do("POST", "/v1/chats/"+chat+"/messages", p, header...)
			require.Equal(t, 200, got.Status, "%v: %s", c, got.Body)
		})
		require.Equal(t, []string{"message 0", "hello", "message 1", "hello", "edited", "hello"}, exportedTexts(t, w, chat))
		require.Len(t, w.History("subagent:analytic:"+chat), 6)
		require.Len(t, listAsides(t, w, chat), 1)
	}
}
