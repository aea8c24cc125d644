package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// sixAtHand keeps few messages at hand, so that most are in archives.
func sixAtHand(c *webmemory.Config) { c.MaxHistory = 6 }

// talk posts messages to a chat, which answers each and delegates once.
func (w *world) talk(t *testing.T, chat string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		status, body := w.ask(t, "POST", "/v1/chats/"+chat+"/messages", fmt.Sprintf(`{"message":"message %d"}`, i))
		require.Equal(t, 200, status, body)
	}
}

func (w *world) export(t *testing.T, chat string) string {
	t.Helper()
	status, body := w.ask(t, "GET", "/v1/chats/"+chat+"/export", "")
	if status == 404 {
		return ""
	}
	require.Equal(t, 200, status, body)
	return body
}

// id is that of a message of the chat's own history.
func (w *world) id(t *testing.T, chat string, n int) string {
	t.Helper()
	var line webapi.ExportLine
	var m memory.Message
	require.NoError(t, json.Unmarshal([]byte(strings.Split(w.export(t, chat), "\n")[n]), &line))
	require.NoError(t, json.Unmarshal(line.Message, &m))
	return m.ID
}

func (w *world) rewind(t *testing.T, chat, to string) webapi.SetAside {
	t.Helper()
	body := `{"to":null}`
	if to != "" {
		body = fmt.Sprintf(`{"to":%q}`, to)
	}
	status, got := w.ask(t, "POST", "/v1/chats/"+chat+"/rewind", body)
	require.Equal(t, 200, status, got)
	var out webapi.SetAside
	require.NoError(t, json.Unmarshal([]byte(got), &out))
	return out
}

func (w *world) restore(t *testing.T, chat, id string, want int) {
	t.Helper()
	status, got := w.ask(t, "POST", "/v1/chats/"+chat+"/set-aside/"+id+"/restore", "")
	require.Equal(t, want, status, got)
}

func (w *world) asides(t *testing.T, chat string) []webapi.SetAside {
	t.Helper()
	status, got := w.ask(t, "GET", "/v1/chats/"+chat+"/set-aside", "")
	require.Equal(t, 200, status, got)
	var out webapi.SetAsides
	require.NoError(t, json.Unmarshal([]byte(got), &out))
	return out.SetAside
}

// A chat goes back to any message, in the archive too, in all of its histories and for every process, and
// what was taken back is there for a day.
func TestRewind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), sixAtHand)
	other := w.process(sixAtHand)
	var exports []string
	for i := range 20 {
		exports = append(exports, w.export(t, "c"))
		w.on([]string{w.url, other}[i%2], func() { w.talk(t, "c", i, i+1) })
	}
	whole := w.export(t, "c")
	question := func(n int) string { return w.id(t, "c", 2*n) }
	rewound := w.rewind(t, "c", question(17))
	require.Equal(t, exports[18], w.export(t, "c"), "the run of the message stays whole")
	require.Equal(t, 8, rewound.Messages)
	require.Equal(t, []webapi.SetAsideHistory{{Subagent: "", Messages: 4}, {Subagent: "analytic", Messages: 4}},
		rewound.Histories)
	deep := w.rewind(t, "c", w.id(t, "c", 2*4+1))
	require.Equal(t, exports[5], w.export(t, "c"))
	require.Len(t, w.stored("chat_history:c"), 6, "what is at hand is filled up from the archive")
	require.Equal(t, []webapi.SetAside{rewound, deep}, rounded(w.asides(t, "c"), rewound, deep))
	require.InDelta(t, 24*3600, w.look.PTTL(t.Context(), "{chat_history:c}:rewound:"+deep.ID).Val().Seconds(), 60)
	w.restore(t, "c", rewound.ID, http.StatusConflict)
	w.restore(t, "c", "12", http.StatusNotFound)
	w.on(other, func() {
		require.Equal(t, exports[5], w.export(t, "c"))
		require.NotContains(t, string(w.do("GET", "/v1/chats/c/recall?query=message+17", nil).body), "message 17")
		w.restore(t, "c", deep.ID, http.StatusOK)
		require.Equal(t, exports[18], w.export(t, "c"))
		require.Contains(t, string(w.do("GET", "/v1/chats/c/recall?query=message+17", nil).body), "message 17")
	})
	w.restore(t, "c", rewound.ID, http.StatusOK)
	require.Equal(t, whole, w.export(t, "c"))
	require.Empty(t, w.asides(t, "c"))

	start := w.rewind(t, "c", "")
	require.Empty(t, w.export(t, "c"))
	w.restore(t, "c", start.ID, http.StatusOK)
	require.Equal(t, whole, w.export(t, "c"))
	w.rewind(t, "c", question(9))
	again := w.rewind(t, "c", question(9))
	require.Zero(t, again.Messages)
	require.Empty(t, again.ID)
	last := w.asides(t, "c")[0].ID
	w.on(other, func() { w.talk(t, "c", 50, 51) })
	require.True(t, strings.HasPrefix(w.export(t, "c"), exports[10][:strings.Index(exports[10], `{"subagent"`)]))
	w.restore(t, "c", last, http.StatusConflict)
	require.Len(t, w.stored("chat_history:c"), 6)
}

// rounded has the times of the answers, which say them to the millisecond of their moment.
func rounded(all []webapi.SetAside, like ...webapi.SetAside) []webapi.SetAside {
	for i := range all {
		all[i].Until = like[i].Until
	}
	return all
}

// What is no rewind is refused before it stops a run or changes anything.
func TestRewindsThatAreRefused(t *testing.T) {
	w := newWorld(t, answers("hello"), sixAtHand)
	w.talk(t, "c", 0, 3)
	w.talk(t, "other", 0, 3)
	before := w.export(t, "c")
	for body, want := range map[string]string{
		`{}`:                   "to is missing",
		`{"to":""}`:            "id of a message or null",
		`{"to":7}`:             "id of a message or null",
		`{"to":null`:           "",
		`{"to":null,"at":"x"}`: "at",
	} {
		status, got := w.ask(t, "POST", "/v1/chats/c/rewind", body)
		require.Equal(t, 400, status, "%s: %s", body, got)
		require.Contains(t, got, want)
	}
	for chat, to := range map[string]string{"c": w.id(t, "other", 0), "new": "x.1"} {
		status, got := w.ask(t, "POST", "/v1/chats/"+chat+"/rewind", fmt.Sprintf(`{"to":%q}`, to))
		require.Equal(t, 404, status, got)
		require.Contains(t, got, "unknown_")
	}
	status, got := w.ask(t, "POST", "/v1/chats/a b/rewind", `{"to":null}`)
	require.Equal(t, 400, status, got)
	require.Equal(t, before, w.export(t, "c"))
	require.Empty(t, w.asides(t, "c"))
}

// A rewind stops what runs, and what the run leaves goes too; the post with its key is a new message then,
// and what was said to models is erased.
func TestARewindStopsWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, waits(nil), sixAtHand)
	other := w.process(sixAtHand)
	const path = "/v1/chats/c/messages"
	w.on(other, func() { w.open("POST", path, message{"one"}, "Idempotency-Key", "1").until("subagent_delegation") })
	question := w.id(t, "c", 0)
	second := make(chan answer)
	w.on(other, func() {
		req := w.request("POST", path, message{"two"}, "Idempotency-Key", "2")
		go func() { second <- w.send(req) }()
		w.waitFor(1)
	})
	require.Zero(t, w.rewind(t, "c", question).Messages, "what began before the message stays")
	require.Equal(t, 409, (<-second).status, "who waits is refused")
	require.Equal(t, []string{"user: one", "assistant: answer to one"}, w.stored("chat_history:c"))
	require.Empty(t, w.gateway.set(false), "nothing was taken back")
	run := w.open("POST", path, message{"two"}, "Idempotency-Key", "2")
	run.until("subagent_delegation")
	first := w.rewind(t, "c", question)
	require.Equal(t, 4, first.Messages)
	require.NotEmpty(t, w.gateway.set(false))
	for _, url := range []string{w.url, other} {
		w.on(url, func() {
			got := w.do("GET", "/v1/chats/c/runs/"+run.resp.Header.Get("Mneme-Run-Id")+"/events", nil)
			require.Equal(t, 404, got.status, string(got.body))
		})
	}
	w.on(other, func() {
		again := w.open("POST", path, message{"two"}, "Idempotency-Key", "2")
		again.until("subagent_delegation")
		require.Equal(t, []string{"user: one", "assistant: answer to one", "user: two"}, w.stored("chat_history:c"))
	})
	w.gateway.set(true)
	status, got := w.ask(t, "POST", "/v1/chats/c/rewind", `{"to":null}`)
	require.Equal(t, 503, status, got)
	w.gateway.set(false)
	require.Len(t, w.asides(t, "c"), 1)
	require.Len(t, w.stored("chat_history:c"), 4)
}

// What is erased is erased also where it is set aside.
func TestAnErasureReachesWhatIsSetAside(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, path := range []string{"/v1/chats/c", "/v1/chats/c?scan=true", "/v1/chats/c/history",
		"/v1/chats/c/subagents/analytic/history"} {
		w := newWorld(t, answers("hello"), sixAtHand)
		w.talk(t, "c", 0, 12)
		w.rewind(t, "c", w.id(t, "c", 6))
		w.rewind(t, "c", "")
		require.Len(t, w.asides(t, "c"), 2)
		status, got := w.ask(t, "DELETE", path, "")
		require.Equal(t, 200, status, got)
		require.Empty(t, w.asides(t, "c"))
		for _, key := range w.look.Keys(t.Context(), "*").Val() {
			require.NotContains(t, key, "rewound")
			require.NotContains(t, w.look.Dump(t.Context(), key).Val(), "message ", key)
		}
	}
}

// A redaction leaves nothing set aside that may hold the same words.
func TestARedactionReachesWhatIsSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), sixAtHand)
	w.talk(t, "c", 0, 4)
	w.rewind(t, "c", w.id(t, "c", 2))
	require.Len(t, w.asides(t, "c"), 1)
	status, got := w.ask(t, "DELETE", "/v1/chats/c/messages/"+w.id(t, "c", 0), "")
	require.Equal(t, 200, status, got)
	require.Empty(t, w.asides(t, "c"))
	require.Empty(t, w.look.Keys(t.Context(), "*rewound*").Val())
}

// Of many rewinds the newest are kept.
func TestSetAsideIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), sixAtHand)
	w.talk(t, "c", 0, 12)
	for i := range 10 {
		w.rewind(t, "c", w.id(t, "c", 2*(10-i)))
	}
	require.Len(t, w.asides(t, "c"), 8)
	require.Len(t, w.look.Keys(t.Context(), "*rewound*").Val(), 8)
}

// What Redis forgets of a rewind the processes know: neither an older copy of one that was not told, nor an
// older state of Redis brings anything back.
func TestARewindOutlivesRedis(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *world, []string){
		"all is lost": func(t *testing.T, w *world, _ []string) { require.NoError(t, w.look.FlushAll(t.Context()).Err()) },
		"an older state": func(t *testing.T, w *world, dumps []string) {
			require.NoError(t, w.look.FlushAll(t.Context()).Err())
			for i := 0; i < len(dumps); i += 2 {
				require.NoError(t, w.look.Restore(t.Context(), dumps[i], 0, dumps[i+1]).Err())
			}
			require.NoError(t, w.look.Set(t.Context(), "mneme:epoch", "another", 0).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, answers("hello"), sixAtHand)
			older, process := w.child()
			w.talk(t, "c", 0, 8)
			w.on(older, func() { require.NotEmpty(t, w.export(t, "c")) })
			kept := w.id(t, "c", 5)
			pause(t, process)
			var dumps []string
			for _, key := range w.look.Keys(t.Context(), "*").Val() {
				if !strings.HasPrefix(key, "mneme:") {
					dumps = append(dumps, key, w.look.Dump(t.Context(), key).Val())
				}
			}
			w.rewind(t, "c", kept)
			lose(t, w, dumps)
			process.Signal(syscall.SIGCONT)
			w.on(older, func() { w.talk(t, "c", 100, 101) })
			for _, url := range []string{w.url, older} {
				w.on(url, func() {
					eventually(t, "what was taken back is away", func() bool {
						text := w.export(t, "c")
						return !strings.Contains(text, "message 3") && !strings.Contains(text, "message 7") &&
							strings.Contains(text, "message 2") && strings.Contains(text, "message 100")
					})
				})
			}
			w.talk(t, "c", 101, 102)
			require.NotContains(t, w.export(t, "c"), "message 3")
		})
	}
}

// What a run that was taken back has left in the spool of a dead process stays away.
func TestASpoolBringsNothingBackThatWasRewound(t *testing.T) {
	t.Parallel()
	w, spools, run := deadSpool(t, true)
	require.Equal(t, 200, w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).resp.StatusCode)
	eventually(t, "the run is over", func() bool { return len(w.stored("chat_history:1")) == 2 })
	w.putApiserver(w.runs.Handler())
	w.rewind(t, "1", "")
	beside, _ := w.childOn(spools)
	w.on(beside, func() {
		eventually(t, "its spool is drained", func() bool {
			return strings.Contains(string(w.do("GET", "/metrics", nil).body), "mneme_spool_bytes 0")
		})
		require.Empty(t, w.export(t, "1"))
	})
	require.Empty(t, w.export(t, "1"))
	require.Nil(t, w.stored("subagent:analytic:1"))
}

// A fork begins with what its source remembers up to a message, byte for byte, and leaves the source as it is.
func TestFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), sixAtHand)
	other := w.process(sixAtHand)
	w.talk(t, "c", 0, 9)
	upTo := w.export(t, "c")
	w.talk(t, "c", 9, 14)
	whole := w.export(t, "c")
	fork := func(body string, want int) string {
		status, got := w.ask(t, "POST", "/v1/chats/c/fork", body)
		require.Equal(t, want, status, "%s: %s", body, got)
		return got
	}
	require.JSONEq(t, `{"messages":56,"histories":2}`, fork(`{"as":"all"}`, 201))
	require.Equal(t, whole, w.export(t, "all"))
	fork(fmt.Sprintf(`{"as":"up:to","at":%q}`, w.id(t, "c", 16)), 201)
	require.Equal(t, upTo, w.export(t, "up:to"))
	require.Equal(t, whole, w.export(t, "c"))
	w.on(other, func() { w.talk(t, "up:to", 50, 51) })
	require.Contains(t, w.export(t, "up:to"), "message 50")
	require.Equal(t, whole, w.export(t, "c"))

	fork(`{"as":"all"}`, 409)
	fork(`{"as":"c"}`, 409)
	fork(`{"as":"new","at":"nothing.1"}`, 404)
	fork(`{"as":"new","up_to":"x"}`, 400)
	fork(`{"as":"a b"}`, 400)
	fork(`{}`, 400)
	status, got := w.ask(t, "POST", "/v1/chats/none/fork", `{"as":"new"}`)
	require.Equal(t, 404, status, got)
	require.Empty(t, w.export(t, "new"))

	statuses := make(chan int, 4)
	for i := range 4 {
		w.on([]string{w.url, other}[i%2], func() {
			req := w.request("POST", "/v1/chats/c/fork", `{"as":"race"}`)
			go func() { statuses <- w.send(req).status }()
		})
	}
	made := 0
	for range 4 {
		switch status := <-statuses; status {
		case 201:
			made++
		default:
			require.Equal(t, 409, status)
		}
	}
	require.Equal(t, 1, made)
	require.Equal(t, whole, w.export(t, "race"))
}

// An imported chat, with ids that look like those of runs and are none, goes back by the order and the times of its
// messages, to a message of a subagent's too.
func TestARewindOfWhatNoRunMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), sixAtHand)
	status, got := w.ask(t, "POST", "/v1/chats/c/import", lines(20, 20))
	require.Equal(t, 201, status, got)
	for _, to := range []string{"x.11", "s1:11"} {
		chat := "fork-" + to
		status, got = w.ask(t, "POST", "/v1/chats/c/fork", fmt.Sprintf(`{"as":%q,"at":%q}`, chat, to))
		require.Equal(t, 201, status, got)
		text := w.export(t, chat)
		kept := 24 // to the answer
		if to == "s1:11" {
			kept = 23
		}
		require.Equal(t, 2*kept, strings.Count(text, `"message":`), text)
		id := w.rewind(t, "c", to).ID
		require.Equal(t, text, w.export(t, "c"))
		w.restore(t, "c", id, http.StatusOK)
		require.Equal(t, lines(20, 20), w.export(t, "c"))
	}
}

// Notes go with the messages that they were made from: a fork has those of what it copies, a rewind
// voids those of what it takes back, and a person's own stay.
func TestNotesOfRewindsAndForks(t *testing.T) {
	w := newWorld(t, answers("hello"), sixAtHand)
	text, _, _ := strings.Cut(lines(9, 9), `{"messages"`)
	for _, at := range []int{2, 7} {
		text += fmt.Sprintf(`{"note":{"id":"n%d","text":"told in %d","by":"user","message":"s1:%d","ts":%d}}`+"\n", at, at, at, at)
		text += fmt.Sprintf(`{"subagent":"analytic","note":{"id":"a%d","text":"told in %d","by":"user","message":"s1:%d","ts":%d}}`+"\n",
			at, at, at, at)
	}
	status, got := w.ask(t, "POST", "/v1/chats/c/import", text)
	require.Equal(t, 201, status, got)
	w.note(t, 200, "PATCH", "c/notes/n2", `{"state":"active"}`)
	w.note(t, 201, "POST", "c/notes", `{"text":"the operator's"}`)

	before := []string{"active: told in 2"}
	now := append(before, "proposed: told in 7", "active: the operator's")
	for body, want := range map[string][]string{`{"as":"all"}`: now, `{"as":"part","at":"s1:4"}`: before} {
		status, got := w.ask(t, "POST", "/v1/chats/c/fork", body)
		require.Equal(t, 201, status, got)
		as := map[bool]string{true: "all", false: "part"}[len(want) > 1]
		require.Equal(t, want, states(w.notes(t, as)))
	}
	require.Len(t, w.notes(t, "part/subagents/analytic"), 1)
	require.Equal(t, now, states(w.notes(t, "c")))

	w.rewind(t, "c", "s1:4")
	require.Equal(t, []string{"active: told in 2", "active: the operator's"}, states(w.notes(t, "c")))
	require.Len(t, w.notes(t, "c/subagents/analytic"), 1)
}

// Attempts at one post share their calls. Those of an attempt that was taken back are forgotten, in Redis and on the
// disk, with their results, and made again when the post is repeated; those of one that stays are not made again.
func TestCallsOfWhatWasTakenBackAreMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, apart(t))
	var mu sync.Mutex
	var said []string // guarded by mu: what the claims of the run were answered
	failed := false   // guarded by mu
	w.suspends(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message,
			RetryOf: r.RetryOf})
		claim := func(tool string) {
			got, err := r.Memory.Claim(ctx, http.DefaultClient, api.ClaimRequest{Subagent: "analytic", Tool: tool,
				Arguments: json.RawMessage(`{}`), N: 1, After: 1})
			if err == nil && got.State == api.CallGranted {
				err = r.Memory.Settle(ctx, http.DefaultClient, got.CallID, api.SettleRequest{Result: "done"})
			}
			mu.Lock()
			defer mu.Unlock()
			if said = append(said, tool+" "+got.State); err != nil {
				said = append(said, err.Error())
			}
		}
		claim("book")
		mu.Lock()
		fails := !failed
		failed = true
		mu.Unlock()
		if fails {
			emit(event.Head{}, &passing)
			emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
			return
		}
		claim("pay")
		emit(event.Head{}, &event.Assistant{Content: "paid"})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	post := func(want int) []string {
		t.Helper()
		got := w.do("POST", "/v1/chats/c/messages", message{"pay it"}, "Idempotency-Key", "k")
		require.Equal(t, want, got.status, string(got.body))
		mu.Lock()
		defer mu.Unlock()
		of := said
		said = nil
		return of
	}
	require.Equal(t, []string{"book granted"}, post(502))
	require.Equal(t, []string{"book done", "pay granted"}, post(200))
	for range 2 {
		w.rewind(t, "c", w.id(t, "c", 1)) // to the failure of the first attempt
		require.Equal(t, []string{"book done", "pay granted"}, post(200))
	}
	w.rewind(t, "c", "")
	require.Equal(t, []string{"book granted", "pay granted"}, post(200))
	require.Equal(t, []string{"user: pay it", "assistant: paid"}, w.stored("chat_history:c"))
	w.rewind(t, "c", "")
	require.Empty(t, w.keys("{chat_history:c}:calls"))
}
