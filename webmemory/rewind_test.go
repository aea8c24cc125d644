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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// sixAtHand keeps few messages at hand, so that most are in archives.
func sixAtHand(c *webmemory.Config) { c.MaxHistory = 6 }

// talk posts the messages "message FROM" to "message TO-1" to a chat.
func talk(t *testing.T, w *webmemorytest.World, chat string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		status, body := w.Do("POST", "/v1/chats/"+chat+"/messages", fmt.Sprintf(`{"message":"message %d"}`, i)).Text()
		require.Equal(t, 200, status, body)
	}
}

// exportChat returns the export of a chat, or "" if there is no chat.
func exportChat(t *testing.T, w *webmemorytest.World, chat string) string {
	t.Helper()
	status, body := w.Do("GET", "/v1/chats/"+chat+"/export", nil).Text()
	if status == 404 {
		return ""
	}
	require.Equal(t, 200, status, body)
	return body
}

// messageID returns the id of message n of the chat's own history.
func messageID(t *testing.T, w *webmemorytest.World, chat string, n int) string {
	t.Helper()
	var line webapi.ExportLine
	var m memory.Message
	require.NoError(t, json.Unmarshal([]byte(strings.Split(exportChat(t, w, chat), "\n")[n]), &line))
	require.NoError(t, json.Unmarshal(line.Message, &m))
	return m.ID
}

// rewindChat rewinds a chat to a message, or to its beginning if to is empty.
func rewindChat(t *testing.T, w *webmemorytest.World, chat, to string) webapi.SetAside {
	t.Helper()
	body := `{"to":null}`
	if to != "" {
		body = fmt.Sprintf(`{"to":%q}`, to)
	}
	status, got := w.Do("POST", "/v1/chats/"+chat+"/rewind", body).Text()
	require.Equal(t, 200, status, got)
	var out webapi.SetAside
	require.NoError(t, json.Unmarshal([]byte(got), &out))
	return out
}

// restoreAside undoes a rewind. The response must have the status want.
func restoreAside(t *testing.T, w *webmemorytest.World, chat, id string, want int) {
	t.Helper()
	status, got := w.Do("POST", "/v1/chats/"+chat+"/set-aside/"+id+"/restore", nil).Text()
	require.Equal(t, want, status, got)
}

// listAsides returns the parts of a chat that are set aside.
func listAsides(t *testing.T, w *webmemorytest.World, chat string) []webapi.SetAside {
	t.Helper()
	status, got := w.Do("GET", "/v1/chats/"+chat+"/set-aside", nil).Text()
	require.Equal(t, 200, status, got)
	var out webapi.SetAsides
	require.NoError(t, json.Unmarshal([]byte(got), &out))
	return out.SetAside
}

// A chat goes back to any message, in the archive too, in all of its histories and for every process, and
// what was taken back is there for a day.
func TestRewind(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	other := w.StartReplica(sixAtHand)
	var exports []string
	for i := range 20 {
		exports = append(exports, exportChat(t, w, "c"))
		w.Target([]string{w.URL, other}[i%2], func() { talk(t, w, "c", i, i+1) })
	}
	whole := exportChat(t, w, "c")
	question := func(n int) string { return messageID(t, w, "c", 2*n) }
	rewound := rewindChat(t, w, "c", question(17))
	require.Equal(t, exports[18], exportChat(t, w, "c"), "the run of the message stays whole")
	require.Equal(t, 8, rewound.Messages)
	require.Equal(t, []webapi.SetAsideHistory{{Subagent: "", Messages: 4}, {Subagent: "analytic", Messages: 4}},
		rewound.Histories)
	deep := rewindChat(t, w, "c", messageID(t, w, "c", 2*4+1))
	require.Equal(t, exports[5], exportChat(t, w, "c"))
	require.Len(t, w.History("chat_history:c"), 6, "what is at hand is filled up from the archive")
	require.Equal(t, []webapi.SetAside{rewound, deep}, rounded(listAsides(t, w, "c"), rewound, deep))
	require.InDelta(t, 24*3600, w.Redis.PTTL(t.Context(), "{chat_history:c}:rewound:"+deep.ID).Val().Seconds(), 60)
	restoreAside(t, w, "c", rewound.ID, http.StatusConflict)
	restoreAside(t, w, "c", "12", http.StatusNotFound)
	w.Target(other, func() {
		require.Equal(t, exports[5], exportChat(t, w, "c"))
		require.NotContains(t, string(w.Do("GET", "/v1/chats/c/recall?query=message+17", nil).Body), "message 17")
		restoreAside(t, w, "c", deep.ID, http.StatusOK)
		require.Equal(t, exports[18], exportChat(t, w, "c"))
		require.Contains(t, string(w.Do("GET", "/v1/chats/c/recall?query=message+17", nil).Body), "message 17")
	})
	restoreAside(t, w, "c", rewound.ID, http.StatusOK)
	require.Equal(t, whole, exportChat(t, w, "c"))
	require.Empty(t, listAsides(t, w, "c"))

	start := rewindChat(t, w, "c", "")
	require.Empty(t, exportChat(t, w, "c"))
	restoreAside(t, w, "c", start.ID, http.StatusOK)
	require.Equal(t, whole, exportChat(t, w, "c"))
	rewindChat(t, w, "c", question(9))
	again := rewindChat(t, w, "c", question(9))
	require.Zero(t, again.Messages)
	require.Empty(t, again.ID)
	last := listAsides(t, w, "c")[0].ID
	w.Target(other, func() { talk(t, w, "c", 50, 51) })
	require.True(t, strings.HasPrefix(exportChat(t, w, "c"), exports[10][:strings.Index(exports[10], `{"subagent"`)]))
	restoreAside(t, w, "c", last, http.StatusConflict)
	require.Len(t, w.History("chat_history:c"), 6)
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
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	talk(t, w, "c", 0, 3)
	talk(t, w, "other", 0, 3)
	before := exportChat(t, w, "c")
	for body, want := range map[string]string{
		`{}`:                   "to is missing",
		`{"to":""}`:            "id of a message or null",
		`{"to":7}`:             "id of a message or null",
		`{"to":null`:           "",
		`{"to":null,"at":"x"}`: "at",
	} {
		status, got := w.Do("POST", "/v1/chats/c/rewind", body).Text()
		require.Equal(t, 400, status, "%s: %s", body, got)
		require.Contains(t, got, want)
	}
	for chat, to := range map[string]string{"c": messageID(t, w, "other", 0), "new": "x.1"} {
		status, got := w.Do("POST", "/v1/chats/"+chat+"/rewind", fmt.Sprintf(`{"to":%q}`, to)).Text()
		require.Equal(t, 404, status, got)
		require.Contains(t, got, "unknown_")
	}
	status, got := w.Do("POST", "/v1/chats/a b/rewind", `{"to":null}`).Text()
	require.Equal(t, 400, status, got)
	require.Equal(t, before, exportChat(t, w, "c"))
	require.Empty(t, listAsides(t, w, "c"))
}

// A rewind stops what runs, and what the run leaves goes too; the post with its key is a new message then,
// and what was said to models is erased.
func TestARewindStopsWhatRuns(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil), sixAtHand)
	other := w.StartReplica(sixAtHand)
	const path = "/v1/chats/c/messages"
	w.Target(other, func() {
		w.Stream("POST", path, webmemorytest.Message("one"), "Idempotency-Key", "1").Until("subagent_delegation")
	})
	question := messageID(t, w, "c", 0)
	second := make(chan webmemorytest.Response)
	w.Target(other, func() {
		req := w.NewRequest("POST", path, webmemorytest.Message("two"), "Idempotency-Key", "2")
		go func() { second <- w.Send(req) }()
		webmemorytest.AwaitQueued(w, 1)
	})
	require.Zero(t, rewindChat(t, w, "c", question).Messages, "what began before the message stays")
	require.Equal(t, 409, (<-second).Status, "who waits is refused")
	require.Equal(t, []string{"user: one", "assistant: answer to one"}, w.History("chat_history:c"))
	require.Empty(t, w.Gateway.Erased(), "nothing was taken back")
	run := w.Stream("POST", path, webmemorytest.Message("two"), "Idempotency-Key", "2")
	run.Until("subagent_delegation")
	first := rewindChat(t, w, "c", question)
	require.Equal(t, 4, first.Messages)
	require.NotEmpty(t, w.Gateway.Erased())
	for _, url := range []string{w.URL, other} {
		w.Target(url, func() {
			got := w.Do("GET", "/v1/chats/c/runs/"+run.RunID()+"/events", nil)
			require.Equal(t, 404, got.Status, string(got.Body))
		})
	}
	w.Target(other, func() {
		again := w.Stream("POST", path, webmemorytest.Message("two"), "Idempotency-Key", "2")
		again.Until("subagent_delegation")
		require.Equal(t, []string{"user: one", "assistant: answer to one", "user: two"}, w.History("chat_history:c"))
	})
	w.Gateway.Down.Store(true)
	status, got := w.Do("POST", "/v1/chats/c/rewind", `{"to":null}`).Text()
	require.Equal(t, 503, status, got)
	w.Gateway.Down.Store(false)
	require.Len(t, listAsides(t, w, "c"), 1)
	require.Len(t, w.History("chat_history:c"), 4)
}

// closesHeld delays the replies to the script that closes a run and returns its lease.
type closesHeld chan struct{}

func (closesHeld) DialHook(next redis.DialHook) redis.DialHook { return next }
func (closesHeld) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h closesHeld) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.Count(cmd.String(), " r:") == 2 { // the run and its first attempt
			<-h
		}
		return err
	}
}

// A process has a run until Redis confirms that its lease is returned. Another process may take the lease before.
func TestNoReplicaShowsARunThatWasRemovedWhileItsLeaseWasReturned(t *testing.T) {
	t.Parallel()
	for _, remove := range []struct{ method, path, body string }{
		{"POST", "/v1/chats/c/rewind", `{"to":null}`}, {"DELETE", "/v1/chats/c", ""},
	} {
		w, held := webmemorytest.NewWorld(t, webmemorytest.Answers("hello")), make(closesHeld)
		w.Hook = held
		other, run := w.StartReplica(), ""
		t.Cleanup(func() { close(held) }) // before the replica waits for its runs
		w.Target(other, func() {
			stream := w.PostStream("c", "one")
			run = stream.RunID()
			stream.Until("run_finished")
		})
		status, got := w.Do(remove.method, remove.path, remove.body).Text()
		require.Equal(t, 200, status, got)
		w.Target(other, func() {
			status, got := w.Do("GET", "/v1/chats/c/runs/"+run+"/events", nil).Text()
			require.Equal(t, 404, status, remove.method+got)
		})
	}
}

// What is erased is erased also where it is set aside.
func TestAnErasureReachesWhatIsSetAside(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, path := range []string{"/v1/chats/c", "/v1/chats/c?scan=true", "/v1/chats/c/history",
		"/v1/chats/c/subagents/analytic/history"} {
		w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
		talk(t, w, "c", 0, 12)
		rewindChat(t, w, "c", messageID(t, w, "c", 6))
		rewindChat(t, w, "c", "")
		require.Len(t, listAsides(t, w, "c"), 2)
		status, got := w.Do("DELETE", path, nil).Text()
		require.Equal(t, 200, status, got)
		require.Empty(t, listAsides(t, w, "c"))
		for _, key := range w.Redis.Keys(t.Context(), "*").Val() {
			require.NotContains(t, key, "rewound")
			require.NotContains(t, w.Redis.Dump(t.Context(), key).Val(), "message ", key)
		}
	}
}

// A redaction leaves nothing set aside that may hold the same words.
func TestARedactionReachesWhatIsSetAside(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	talk(t, w, "c", 0, 4)
	rewindChat(t, w, "c", messageID(t, w, "c", 2))
	require.Len(t, listAsides(t, w, "c"), 1)
	status, got := w.Do("DELETE", "/v1/chats/c/messages/"+messageID(t, w, "c", 0), nil).Text()
	require.Equal(t, 200, status, got)
	require.Empty(t, listAsides(t, w, "c"))
	require.Empty(t, w.Redis.Keys(t.Context(), "*rewound*").Val())
}

// Of many rewinds the newest are kept.
func TestSetAsideIsBounded(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	for i := range redisstore.MaxSetAside + 2 {
		require.Equal(t, 200, w.Post("c", fmt.Sprint("message ", i)).Status)
		rewindChat(t, w, "c", "")
	}
	require.Len(t, listAsides(t, w, "c"), redisstore.MaxSetAside)
	require.Len(t, w.Redis.Keys(t.Context(), "*rewound*").Val(), redisstore.MaxSetAside)
}

// What Redis forgets of a rewind the processes know: neither an older copy of one that was not told, nor an
// older state of Redis brings anything back.
func TestARewindOutlivesRedis(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *webmemorytest.World, []string){
		"all is lost": func(t *testing.T, w *webmemorytest.World, _ []string) {
			require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
		},
		"an older state": func(t *testing.T, w *webmemorytest.World, dumps []string) {
			require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
			for i := 0; i < len(dumps); i += 2 {
				require.NoError(t, w.Redis.Restore(t.Context(), dumps[i], 0, dumps[i+1]).Err())
			}
			require.NoError(t, w.Redis.Set(t.Context(), "mneme:epoch", "another", 0).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
			older, process := w.StartChild(w.ChildConfig())
			talk(t, w, "c", 0, 8)
			w.Target(older, func() { require.NotEmpty(t, exportChat(t, w, "c")) })
			kept := messageID(t, w, "c", 5)
			process.Pause()
			var dumps []string
			for _, key := range w.Redis.Keys(t.Context(), "*").Val() {
				if !strings.HasPrefix(key, "mneme:") {
					dumps = append(dumps, key, w.Redis.Dump(t.Context(), key).Val())
				}
			}
			rewindChat(t, w, "c", kept)
			lose(t, w, dumps)
			process.Signal(syscall.SIGCONT)
			w.Target(older, func() { talk(t, w, "c", 100, 101) })
			for _, url := range []string{w.URL, older} {
				w.Target(url, func() {
					webmemorytest.Eventually(t, "what was taken back is away", func() bool {
						text := exportChat(t, w, "c")
						return !strings.Contains(text, "message 3") && !strings.Contains(text, "message 7") &&
							strings.Contains(text, "message 2") && strings.Contains(text, "message 100")
					})
				})
			}
			talk(t, w, "c", 101, 102)
			require.NotContains(t, exportChat(t, w, "c"), "message 3")
		})
	}
}

// What a run that was taken back has left in the spool of a dead process stays away.
func TestASpoolBringsNothingBackThatWasRewound(t *testing.T) {
	t.Parallel()
	w, spools, run := deadSpool(t, true)
	require.Equal(t, 200, w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil).Response.StatusCode)
	webmemorytest.Eventually(t, "the run is over", func() bool { return len(w.History("chat_history:1")) == 2 })
	w.SetApiserver(w.Runs.Handler())
	rewindChat(t, w, "1", "")
	settings := w.ChildConfig()
	settings.Spool = spools
	other, _ := w.StartChild(settings)
	w.Target(other, func() {
		webmemorytest.Eventually(t, "its spool is drained", func() bool {
			return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "mneme_spool_bytes 0")
		})
		require.Empty(t, exportChat(t, w, "1"))
	})
	require.Empty(t, exportChat(t, w, "1"))
	require.Nil(t, w.History("subagent:analytic:1"))
}

// A fork begins with what its source remembers up to a message, byte for byte, and leaves the source as it is.
func TestFork(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	other := w.StartReplica(sixAtHand)
	talk(t, w, "c", 0, 9)
	upTo := exportChat(t, w, "c")
	talk(t, w, "c", 9, 14)
	whole := exportChat(t, w, "c")
	fork := func(body string, want int) string {
		status, got := w.Do("POST", "/v1/chats/c/fork", body).Text()
		require.Equal(t, want, status, "%s: %s", body, got)
		return got
	}
	require.JSONEq(t, `{"messages":56,"histories":2}`, fork(`{"as":"all"}`, 201))
	require.Equal(t, whole, exportChat(t, w, "all"))
	fork(fmt.Sprintf(`{"as":"up:to","at":%q}`, messageID(t, w, "c", 16)), 201)
	require.Equal(t, upTo, exportChat(t, w, "up:to"))
	require.Equal(t, whole, exportChat(t, w, "c"))
	w.Target(other, func() { talk(t, w, "up:to", 50, 51) })
	require.Contains(t, exportChat(t, w, "up:to"), "message 50")
	require.Equal(t, whole, exportChat(t, w, "c"))

	fork(`{"as":"all"}`, 409)
	fork(`{"as":"c"}`, 409)
	fork(`{"as":"new","at":"nothing.1"}`, 404)
	fork(`{"as":"new","up_to":"x"}`, 400)
	fork(`{"as":"a b"}`, 400)
	fork(`{}`, 400)
	status, got := w.Do("POST", "/v1/chats/none/fork", `{"as":"new"}`).Text()
	require.Equal(t, 404, status, got)
	require.Empty(t, exportChat(t, w, "new"))

	statuses := make(chan int, 4)
	for i := range 4 {
		w.Target([]string{w.URL, other}[i%2], func() {
			req := w.NewRequest("POST", "/v1/chats/c/fork", `{"as":"race"}`)
			go func() { statuses <- w.Send(req).Status }()
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
	require.Equal(t, whole, exportChat(t, w, "race"))
}

// An imported chat, with ids that look like those of runs and are none, goes back by the order and the times of its
// messages, to a message of a subagent's too.
func TestARewindOfWhatNoRunMade(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	status, got := w.Do("POST", "/v1/chats/c/import", webmemorytest.ExportLines(20, 20)).Text()
	require.Equal(t, 201, status, got)
	for _, to := range []string{"x.11", "s1:11"} {
		chat := "fork-" + to
		status, got = w.Do("POST", "/v1/chats/c/fork", fmt.Sprintf(`{"as":%q,"at":%q}`, chat, to)).Text()
		require.Equal(t, 201, status, got)
		text := exportChat(t, w, chat)
		kept := 24 // to the answer
		if to == "s1:11" {
			kept = 23
		}
		require.Equal(t, 2*kept, strings.Count(text, `"message":`), text)
		id := rewindChat(t, w, "c", to).ID
		require.Equal(t, text, exportChat(t, w, "c"))
		restoreAside(t, w, "c", id, http.StatusOK)
		require.Equal(t, webmemorytest.ExportLines(20, 20), exportChat(t, w, "c"))
	}
}

// Notes go with the messages that they were made from: a fork has those of what it copies, a rewind
// voids those of what it takes back, and a person's own stay.
func TestNotesOfRewindsAndForks(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	text, _, _ := strings.Cut(webmemorytest.ExportLines(9, 9), `{"messages"`)
	for _, at := range []int{2, 7} {
		text += fmt.Sprintf(`{"note":{"id":"n%d","text":"told in %d","by":"user","message":"s1:%d","ts":%d}}`+"\n", at, at, at, at)
		text += fmt.Sprintf(`{"subagent":"analytic","note":{"id":"a%d","text":"told in %d","by":"user","message":"s1:%d","ts":%d}}`+"\n",
			at, at, at, at)
	}
	status, got := w.Do("POST", "/v1/chats/c/import", text).Text()
	require.Equal(t, 201, status, got)
	doNote(t, w, 200, "PATCH", "c/notes/n2", `{"state":"active"}`)
	doNote(t, w, 201, "POST", "c/notes", `{"text":"the operator's"}`)

	before := []string{"active: told in 2"}
	now := append(before, "proposed: told in 7", "active: the operator's")
	for body, want := range map[string][]string{`{"as":"all"}`: now, `{"as":"part","at":"s1:4"}`: before} {
		status, got := w.Do("POST", "/v1/chats/c/fork", body).Text()
		require.Equal(t, 201, status, got)
		as := map[bool]string{true: "all", false: "part"}[len(want) > 1]
		require.Equal(t, want, states(listNotes(t, w, as)))
	}
	require.Len(t, listNotes(t, w, "part/subagents/analytic"), 1)
	require.Equal(t, now, states(listNotes(t, w, "c")))

	rewindChat(t, w, "c", "s1:4")
	require.Equal(t, []string{"active: told in 2", "active: the operator's"}, states(listNotes(t, w, "c")))
	require.Len(t, listNotes(t, w, "c/subagents/analytic"), 1)
}

// Attempts at one post share their calls. Those of an attempt that was taken back are forgotten, in Redis and on the
// disk, with their results, and made again when the post is repeated; those of one that stays are not made again.
func TestCallsOfWhatWasTakenBackAreMadeAgain(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil, webmemorytest.OwnDisk(t))
	var mu sync.Mutex
	var said []string // guarded by mu: what the claims of the run were answered
	failed := false   // guarded by mu
	w.ScriptApiserver(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message,
			RetryOf: r.RetryOf})
		claim := func(tool string) {
			got, err := r.Memory.Claim(ctx, memory.ClaimRequest{Subagent: "analytic", Tool: tool,
				Arguments: json.RawMessage(`{}`), N: 1, Seq: 1})
			if err == nil && got.State == memory.CallGranted {
				err = r.Memory.Settle(ctx, got.CallID, "done", false)
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
		got := w.Post("c", "pay it", "Idempotency-Key", "k")
		require.Equal(t, want, got.Status, string(got.Body))
		mu.Lock()
		defer mu.Unlock()
		of := said
		said = nil
		return of
	}
	require.Equal(t, []string{"book granted"}, post(502))
	require.Equal(t, []string{"book done", "pay granted"}, post(200))
	for range 2 {
		rewindChat(t, w, "c", messageID(t, w, "c", 1)) // to the failure of the first attempt
		require.Equal(t, []string{"book done", "pay granted"}, post(200))
	}
	rewindChat(t, w, "c", "")
	require.Equal(t, []string{"book granted", "pay granted"}, post(200))
	require.Equal(t, []string{"user: pay it", "assistant: paid"}, w.History("chat_history:c"))
	rewindChat(t, w, "c", "")
	require.Empty(t, w.Keys("{chat_history:c}:calls"))
}
