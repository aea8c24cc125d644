package turns_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// A run that waits holds nothing, and goes on in any process with the same numbering.
func TestARunWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, s, run := webmemorytest.NewSuspendedWorld(t)
	require.Zero(t, w.Redis.HExists(ctx, "{chat_history:1}:meta", "open").Val())
	require.Equal(t, `{"step":1}`, w.Redis.HGet(ctx, "{chat_history:1}:waiting", "state").Val())
	require.Positive(t, w.Redis.ZScore(ctx, "mneme:waiting", "1").Val())
	for _, key := range []string{"{chat_history:1}:waiting", "events:1:" + run, "run:1:" + run} {
		require.Greater(t, w.Redis.PTTL(ctx, key).Val(), 24*time.Hour, key)
	}
	var info webapi.ChatInfo
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/1", nil).Body, &info))
	require.Equal(t, run, info.Waiting.RunID)
	require.Empty(t, info.Run)

	s.LoseRuns()
	other := w.StartReplica()
	w.Target(other, func() {
		// A client that has all of its events has nothing to wait for.
		require.Equal(t, 204, w.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", "4").Status)
		tr := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_assistant_with_tools", "run_waiting"},
			tr.Roles())
		require.Equal(t, "4", tr.LastID)
		again := w.Stream("POST", "/v1/chats/1/runs/"+run+"/resume", webmemorytest.Approve("w1"))
		role, data, _ := again.Next()
		require.Equal(t, "run_resumed", role, string(data))
		require.Equal(t, "5", again.LastID)
		require.Equal(t, []string{"subagent_tool_result", "subagent_completion", "assistant", "run_finished"}, again.Roles())
	})
	posted := s.Requests()
	require.Len(t, posted, 2)
	require.Len(t, posted[1].Resume.Events, 4)
	require.NotContains(t, string(posted[1].Resume.Events[3]), "step", "the state is sent beside the events")
	require.JSONEq(t, `{"step":1}`, string(posted[1].Resume.State))
	require.Equal(t, webmemorytest.Approve("w1").Answers, posted[1].Resume.Answers)
	require.Equal(t, []string{"user: refund me", "assistant: decided: approve"}, w.History("chat_history:1"))
	require.Equal(t, []string{"user: task", "assistant: ", "tool: approve", "assistant: done"},
		w.History("subagent:analytic:1"))
	webmemorytest.Eventually(t, "nothing is kept of the wait", func() bool {
		return w.Redis.Exists(ctx, "{chat_history:1}:waiting").Val() == 0 && w.Redis.ZCard(ctx, "mneme:waiting").Val() == 0 &&
			!w.Redis.HExists(ctx, "{chat_history:1}:meta", "waits").Val() && w.Redis.ZCard(ctx, "turns:open").Val() == 0
	})
}

func TestAPostThatIsRepeatedWhileItsRunWaits(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	s := w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
	run := w.PostSuspended("1", "Idempotency-Key", "k")
	other := w.StartReplica()
	for _, url := range []string{w.URL, other} {
		w.Target(url, func() {
			require.Equal(t, run, w.PostSuspended("1", "Idempotency-Key", "k"))
			tr := w.PostStream("1", "refund me", "Idempotency-Key", "k")
			roles := tr.Roles()
			require.Equal(t, "run_waiting", roles[len(roles)-1])
			require.Equal(t, 202, w.Post("1", "refund me", "Idempotency-Key", "k", "Prefer", "respond-async").Status)
		})
	}
	got := w.Resume("1", run, webmemorytest.Approve("w1"))
	require.Equal(t, 200, got.Status, string(got.Body))
	for _, url := range []string{w.URL, other} {
		w.Target(url, func() {
			kept := w.Post("1", "refund me", "Idempotency-Key", "k")
			require.Equal(t, 200, kept.Status)
			require.JSONEq(t, string(got.Body), string(kept.Body))
		})
	}
	require.Len(t, s.Requests(), 2)
}

func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	two := func(api.RunRequest) []event.Wait {
		waits := webmemorytest.Approvals("w1", "w2")
		waits[1].Kind = event.ClientResult
		return waits
	}
	w := webmemorytest.NewWorld(t, nil)
	s := w.ScriptApiserver(webmemorytest.SuspendOn(two))
	run := w.PostSuspended("1")
	result := `{"id":"w2","decision":"approve","result":{"ok":1}}`
	for _, c := range []struct {
		name, chat, run, body string
		status                int
		code, says            string
	}{
		{"no JSON", "1", run, `{`, 400, "bad_request", ""},
		{"no answers", "1", run, `{"answers":[]}`, 400, "bad_request", "answers"},
		{"a mistyped member", "1", run, `{"answer":[]}`, 400, "bad_request", "answers"},
		{"no id", "1", run, `{"decision":"approve"}`, 400, "bad_request", "id"},
		{"twice in one", "1", run,
			`{"id":"w1","decision":"approve"},{"id":"w1","decision":"deny"}`, 400, "bad_request", "twice"},
		{"an unknown decision", "1", run, `{"id":"w1","decision":"maybe"}`, 400, "bad_request", "maybe"},
		{"an edit without arguments", "1", run,
			`{"id":"w1","decision":"edit"}`, 400, "bad_request", "arguments"},
		{"an edit with a list", "1", run,
			`{"id":"w1","decision":"edit","arguments":[1]}`, 400, "bad_request", "object"},
		{"arguments without an edit", "1", run,
			`{"id":"w1","decision":"approve","arguments":{}}`, 400, "bad_request", "edit"},
		{"a result for an approval", "1", run,
			`{"id":"w1","decision":"approve","result":1},` + result + ``, 400, "bad_request", "no result"},
		{"no result of the client's", "1", run,
			`{"id":"w1","decision":"approve"},{"id":"w2","decision":"approve"}`, 400, "bad_request", "result"},
		{"an edit of what is no approval", "1", run,
			`{"id":"w1","decision":"approve"},{"id":"w2","decision":"edit","arguments":{}}`, 400, "bad_request", "approval"},
		{"too large a result", "1", run,
			`{"id":"w2","decision":"approve","result":"` + strings.Repeat("x", 300<<10) + `"}`, 413, "too_large", "bytes"},
		{"some of them", "1", run, `{"id":"w1","decision":"approve"}`, 409, "waits_open", "w2"},
		{"another wait", "1", run, `{"id":"w3","decision":"approve"}`, 404, "unknown_wait", "w3"},
		{"another run", "1", "NOSUCHRUN", `{"id":"w1","decision":"approve"}`, 404, "unknown_run", ""},
		{"another chat's run", "2", run, `{"id":"w1","decision":"approve"}`, 404, "unknown_run", ""},
		{"a bad chat", "a%20b", run, `{"id":"w1","decision":"approve"}`, 400, "bad_request", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.body, `{"id"`) || strings.HasPrefix(c.body, `{"decision"`) {
				c.body = `{"answers":[` + c.body + `]}`
			}
			got := w.Resume(c.chat, c.run, c.body, "Content-Type", "application/json")
			require.Equal(t, c.status, got.Status, string(got.Body))
			p := got.Problem(t)
			require.Equal(t, c.code, p.Code)
			require.Contains(t, p.Message, c.says)
			if c.code == "waits_open" {
				require.Len(t, p.Pending, 2)
			}
		})
	}
	require.Len(t, s.Requests(), 1, "nothing of it has reached the agents")
	got := w.Resume("1", run, `{"answers":[{"id":"w1","decision":"edit","arguments":{"amount":1}},`+result+`]}`,
		"Content-Type", "application/json")
	require.Equal(t, 200, got.Status, string(got.Body))
	require.JSONEq(t, `{"amount":1}`, string(s.Requests()[1].Resume.Answers[0].Arguments))
}

func TestAnswersAreIdempotent(t *testing.T) {
	t.Parallel()
	w, s, run := webmemorytest.NewSuspendedWorld(t)
	other := w.StartReplica()
	urls, answers := []string{w.URL, other, w.URL, other}, make([]webmemorytest.Response, 4)
	var asking sync.WaitGroup
	for i, url := range urls {
		w.Target(url, func() {
			req := w.NewRequest("POST", "/v1/chats/1/runs/"+run+"/resume", webmemorytest.Approve("w1"))
			asking.Go(func() { answers[i] = w.Send(req) })
		})
	}
	asking.Wait()
	for _, got := range answers {
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Contains(t, string(got.Body), "decided: approve")
	}
	require.Len(t, s.Requests(), 2, "it went on once")
	w.Target(other, func() {
		require.Equal(t, 200, w.Resume("1", run, webmemorytest.Approve("w1")).Status,
			"the same again gets the same")
		got := w.Resume("1", run, webmemorytest.Decide(event.Deny, "w1"))
		require.Equal(t, 409, got.Status)
		require.Equal(t, "answered", got.Problem(t).Code)
		require.Contains(t, got.Problem(t).Message, "approve")
		require.Equal(t, "not_waiting", w.Resume("1", run, webmemorytest.Approve("w9")).Problem(t).Code)
	})
	plain := w.Post("1", "plain")
	require.Equal(t, 200, plain.Status)
	require.Equal(t, "not_waiting", w.Resume("1", plain.RunID(), webmemorytest.Approve("w1")).Problem(t).Code)
}

// What the agents have not begun to do waits as before, also for another decision.
func TestARunThatDoesNotGoOnWaitsAgain(t *testing.T) {
	t.Parallel()
	w, s, run := webmemorytest.NewSuspendedWorld(t)
	w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/runs" {
			api.WriteProblem(rw, &api.Problem{Status: 503, Code: "too_many_runs", Message: "Busy.", Retryable: true})
			return
		}
		s.ServeHTTP(rw, r)
	}))
	got := w.Resume("1", run, webmemorytest.Approve("w1"))
	w.SetApiserver(s)
	require.Equal(t, 503, got.Status, string(got.Body))
	require.True(t, got.Problem(t).Retryable)
	require.True(t, w.Redis.HExists(context.Background(), "{chat_history:1}:meta", "waits").Val())
	require.False(t, w.Redis.HExists(context.Background(), "{chat_history:1}:meta", "open").Val())
	got = w.Resume("1", run, webmemorytest.Decide(event.Deny, "w1"))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), "decided: deny")

	t.Run("since the agents died at once", func(t *testing.T) {
		held, read, asks := make(chan struct{}), make(chan struct{}, 10), webmemorytest.SuspendOn(webmemorytest.OneApproval)
		dying := w.ScriptApiserver(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
			if r.Resume != nil {
				close(held)
				<-ctx.Done()
				return
			}
			asks(ctx, r, emit)
		})
		run := w.PostSuspended("2")
		w.SetApiserver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				read <- struct{}{}
			}
			dying.ServeHTTP(rw, r)
		}))
		req := w.NewRequest("POST", "/v1/chats/2/runs/"+run+"/resume", webmemorytest.Approve("w1"))
		answered := make(chan webmemorytest.Response)
		go func() { answered <- w.Send(req) }()
		<-held
		<-read
		w.SetApiserver(s)
		dying.LoseRuns()
		got := <-answered
		require.Equal(t, 202, got.Status, string(got.Body))
		w.AwaitSuspension("2")
		require.Equal(t, 200, w.Resume("2", run, webmemorytest.Approve("w1")).Status)
	})
}

// A run may wait any number of times.
func TestARunWaitsAgain(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	asks := webmemorytest.SuspendOn(webmemorytest.OneApproval)
	w.ScriptApiserver(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		if r.Resume != nil && r.Resume.Answers[0].ID == "w1" {
			emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
			emit(event.Head{}, &event.RunWaiting{Pending: webmemorytest.Approvals("w2"), State: json.RawMessage(`{"step":2}`)})
			return
		}
		asks(ctx, r, emit)
	})
	run := w.PostSuspended("1", "Idempotency-Key", "k")
	got := w.Resume("1", run, webmemorytest.Approve("w1"))
	require.Equal(t, 202, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), `"w2"`)
	w.AwaitSuspension("1")
	repeated := w.Post("1", "refund me", "Idempotency-Key", "k")
	require.Contains(t, string(repeated.Body), `"w2"`)
	other := w.StartReplica()
	w.Target(other, func() {
		tr := w.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_assistant_with_tools", "run_waiting",
			"run_resumed", "run_waiting"}, tr.Roles())
		require.Equal(t, "unknown_wait", w.Resume("1", run, webmemorytest.Approve("w3")).Problem(t).Code)
		require.Equal(t, "answered", w.Resume("1", run, webmemorytest.Decide(event.Deny, "w1")).Problem(t).Code)
		got := w.Resume("1", run, webmemorytest.Approve("w1"))
		require.Equal(t, 202, got.Status, "an answer that is given once more: %s", got.Body)
		require.Contains(t, string(got.Body), `"w2"`)
		got = w.Resume("1", run, webmemorytest.Approve("w2"))
		require.Equal(t, 200, got.Status, string(got.Body))
	})
}

// closed are the histories of a chat with a wait that was not answered.
func closed(reason string) (chat, analytic []string) {
	return []string{"user: refund me"},
		[]string{"user: task", "assistant: ", "tool: (denied: " + reason + ")", "assistant: (denied: " + reason + ")"}
}

// At most one run of a chat is not over: what comes next ends one that waits.
func TestAWaitIsClosed(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w, s, run := webmemorytest.NewSuspendedWorld(t)
	t.Run("not by a post that rejects", func(t *testing.T) {
		got := w.Do("POST", "/v1/chats/1/messages", `{"message":"plain","on_busy":"reject"}`, "Content-Type",
			"application/json")
		require.Equal(t, 409, got.Status, string(got.Body))
		require.Equal(t, "chat_busy", got.Problem(t).Code)
		require.Equal(t, "w1", got.Problem(t).Pending[0].ID)
	})
	t.Run("not by a note or a fork", func(t *testing.T) {
		require.Equal(t, 201, w.Do("POST", "/v1/chats/1/notes", `{"text":"allergic to nuts"}`, "Content-Type",
			"application/json").Status)
		got := w.Do("POST", "/v1/chats/1/fork", `{"as":"fork"}`, "Content-Type", "application/json")
		require.Equal(t, 201, got.Status, string(got.Body))
		w.AwaitSuspension("1")
		require.Positive(t, w.Redis.ZScore(context.Background(), "turns:open", "1").Val())
		// The fork has what was said, and waits for nothing.
		require.Equal(t, 200, w.Post("fork", "plain").Status)
		require.Equal(t, []string{"user: refund me", "user: plain", "assistant: plainly"}, w.History("chat_history:fork"))
	})
	chat, analytic := closed("the user said something else")
	for _, busy := range []string{"queue", "interrupt"} {
		t.Run("by a post that says "+busy, func(t *testing.T) {
			id := "by-" + busy
			run := w.PostSuspended(id)
			body := fmt.Sprintf(`{"message":"plain","on_busy":%q}`, busy)
			got := w.Do("POST", "/v1/chats/"+id+"/messages", body, "Content-Type", "application/json")
			require.Equal(t, 200, got.Status, string(got.Body))
			require.Equal(t, append(chat[:1:1], "assistant: (no answer: stopped)", "user: plain", "assistant: plainly"),
				w.History("chat_history:"+id))
			require.Equal(t, analytic, w.History("subagent:analytic:"+id))
			roles := w.Stream("GET", "/v1/chats/"+id+"/runs/"+run+"/events", nil).Roles()
			require.Equal(t, []string{"run_waiting", "run_resumed", "subagent_tool_result", "subagent_completion",
				"run_finished"}, roles[3:])
			late := w.Resume(id, run, webmemorytest.Approve("w1"))
			require.Equal(t, 409, late.Status)
			require.Equal(t, "not_waiting", late.Problem(t).Code)
		})
	}
	t.Run("by a stop", func(t *testing.T) {
		got := w.Do("POST", "/v1/chats/1/runs/"+run+"/stop", nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		_, analytic := closed("the user stopped the run")
		require.Equal(t, analytic, w.History("subagent:analytic:1"))
		require.Equal(t, 200, w.Post("1", "plain").Status)
	})
	t.Run("by its time", func(t *testing.T) {
		w.ScriptApiserver(webmemorytest.SuspendOn(func(api.RunRequest) []event.Wait {
			waits := webmemorytest.Approvals("w1")
			waits[0].ExpiresAt = event.Seconds(time.Now().Add(3 * time.Second))
			return waits
		}))
		run := w.PostSuspended("late", "Idempotency-Key", "k")
		w.SetApiserver(s)
		_, analytic := closed("nobody answered in time")
		webmemorytest.Eventually(t, "the run is ended", func() bool {
			return len(w.History("subagent:analytic:late")) == len(analytic)
		})
		require.Equal(t, analytic, w.History("subagent:analytic:late"))
		got := w.Resume("late", run, webmemorytest.Approve("w1"))
		require.Equal(t, 410, got.Status, string(got.Body))
		require.Equal(t, "wait_expired", got.Problem(t).Code)
		kept := w.Post("late", "refund me", "Idempotency-Key", "k")
		require.Equal(t, 200, kept.Status, string(kept.Body))
		require.Contains(t, string(kept.Body), `"outcome":"stopped"`)
	})
	for name, take := range map[string]func(chat string) webmemorytest.Response{
		"a redaction": func(chat string) webmemorytest.Response {
			var page struct{ Messages []struct{ ID string } }
			require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/"+chat+"/history", nil).Body, &page))
			return w.Do("DELETE", "/v1/chats/"+chat+"/messages/"+page.Messages[0].ID, nil)
		},
		"a rewind": func(chat string) webmemorytest.Response {
			return w.Do("POST", "/v1/chats/"+chat+"/rewind", `{"to":null}`, "Content-Type", "application/json")
		},
		"an erasure of one history": func(chat string) webmemorytest.Response {
			return w.Do("DELETE", "/v1/chats/"+chat+"/subagents/analytic/history", nil)
		},
		"an erasure": func(chat string) webmemorytest.Response { return w.Do("DELETE", "/v1/chats/"+chat, nil) },
	} {
		t.Run("by "+name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			run := w.PostSuspended(id)
			got := take(id)
			require.Equal(t, 200, got.Status, string(got.Body))
			require.False(t, w.Redis.HExists(context.Background(), "{chat_history:"+id+"}:meta", "waits").Val())
			require.Zero(t, w.Redis.Exists(context.Background(), "{chat_history:"+id+"}:waiting").Val())
			require.Contains(t, []int{404, 409}, w.Resume(id, run, webmemorytest.Approve("w1")).Status)
			require.Equal(t, 200, w.Post(id, "plain").Status)
		})
	}
}

// A run is stopped as soon as its client knows that it waits, through this replica or another: it may not be suspended
// yet, and does not wait after the stop all the same.
func TestAStopOfARunThatIsAboutToWait(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
	other := w.StartReplica()
	for i := range 40 {
		path := fmt.Sprintf("/v1/chats/%d/", i)
		got := w.Do("POST", path+"messages", webmemorytest.Message("refund me"))
		require.Equal(t, 202, got.Status, string(got.Body))
		stop := func() { got = w.Do("POST", path+"runs/"+got.RunID()+"/stop", nil) }
		if i%2 == 0 {
			stop()
		} else {
			w.Target(other, stop)
		}
		require.Less(t, got.Status, 300, string(got.Body))
	}
	webmemorytest.Eventually(t, "none waits", func() bool {
		return strings.Contains(string(w.Do("GET", "/v1/approvals", nil).Body), `"approvals":[]`)
	})
}

// What Redis loses of a run that waits is lost, with a sentence; the chat stays usable.
func TestWhatARunGoesOnFromIsLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, _, _ := webmemorytest.NewSuspendedWorld(t)
	t.Run("its state", func(t *testing.T) {
		run := w.PostSuspended("2")
		require.NoError(t, w.Redis.Del(ctx, "{chat_history:2}:waiting").Err())
		got := w.Resume("2", run, webmemorytest.Approve("w1"))
		require.Equal(t, 409, got.Status, string(got.Body))
		require.Contains(t, got.Problem(t).Message, "lost")
		require.Equal(t, 200, w.Post("2", "plain").Status)
	})
	t.Run("its log", func(t *testing.T) {
		run := w.PostSuspended("3")
		require.NoError(t, w.Redis.Del(ctx, "events:3:"+run).Err())
		require.Contains(t, []int{404, 409}, w.Resume("3", run, webmemorytest.Approve("w1")).Status)
		require.Equal(t, 200, w.Post("3", "plain").Status)
	})
	t.Run("all of it, with the disk of who suspended it", func(t *testing.T) {
		w := webmemorytest.NewWorld(t, nil)
		w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
		run := w.PostSuspended("1")
		require.NoError(t, w.Redis.FlushAll(ctx).Err())
		got := w.Resume("1", run, webmemorytest.Approve("w1"))
		require.Equal(t, 503, got.Status, string(got.Body))
		require.Equal(t, 200, w.Post("1", "plain").Status)
	})
}

// Redis loses all while runs wait: each waits again, in the list and for its answer, at whatever process it comes
// first, and a post that is repeated finds it. One that was answered or closed before does not wait again.
func TestAWaitOutlivesRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, _, run := webmemorytest.NewSuspendedWorld(t, webmemorytest.OwnDisk(t))
	settings := w.ChildConfig()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	other, _ := w.StartChild(settings)
	keyed := w.PostSuspended("4", "Idempotency-Key", "k")
	listed := w.PostSuspended("5")
	answered, closed, there := w.PostSuspended("6"), w.PostSuspended("7"), w.PostSuspended("8")
	require.Equal(t, 200, w.Resume("6", answered, webmemorytest.Approve("w1")).Status)
	require.Equal(t, 200, w.Post("7", "plain").Status)
	require.NoError(t, w.Redis.FlushAll(ctx).Err())

	got := w.Resume("1", run, webmemorytest.Approve("w1"))
	require.Equal(t, 200, got.Status, string(got.Body))
	requireResults(w, "subagent:analytic:1")
	require.Equal(t, keyed, w.PostSuspended("4", "Idempotency-Key", "k"))
	w.Target(other, func() {
		got := w.Resume("8", there, webmemorytest.Approve("w1"))
		require.Equal(t, 200, got.Status, string(got.Body))
	})
	webmemorytest.Eventually(t, "it is in the list", func() bool {
		return strings.Contains(string(w.Do("GET", "/v1/approvals", nil).Body), listed)
	})
	require.Equal(t, 200, w.Resume("5", listed, webmemorytest.Approve("w1")).Status)
	stored := w.History("subagent:analytic:5")
	require.Equal(t, []string{"user: task", "assistant: ", "tool: approve", "assistant: done"}, stored[len(stored)-4:])
	require.Positive(t, w.Metric("mneme_retold_runs_total"))
	for chat, run := range map[string]string{"6": answered, "7": closed} {
		require.False(t, w.Redis.HExists(ctx, "{chat_history:"+chat+"}:meta", "waits").Val(), chat)
		require.NotContains(t, string(w.Do("GET", "/v1/approvals", nil).Body), run)
	}
}

// While the process that holds a lost wait is away, a yes gets a 503. After its return, the run goes on.
func TestAYesToALostWaitIsNeverUnknown(t *testing.T) {
	t.Parallel()
	w, disk := webmemorytest.NewWorld(t, nil), webmemorytest.OwnDisk(t)
	w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
	holder, run := w.StartReplica(disk), ""
	w.Target(holder, func() { run = w.PostSuspended("1") })
	w.Shutdown(holder)
	require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
	yes := func() int {
		got := w.Resume("1", run, webmemorytest.Approve("w1"))
		require.Contains(t, []int{200, 503}, got.Status, string(got.Body))
		return got.Status
	}
	for range 3 {
		require.Equal(t, 503, yes())
	}
	w.StartReplica(disk)
	webmemorytest.Eventually(t, "the run goes on", func() bool { return yes() == 200 })
	require.Equal(t, []string{"user: refund me", "assistant: decided: approve"}, w.History("chat_history:1"))
}

// A run that cannot be kept ends with a clear error, and not half.
func TestARunThatCannotBeKept(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	endless := webmemorytest.Approvals("w1")
	endless[0].ExpiresAt = 0
	for name, p := range map[string]*event.RunWaiting{
		"too much":     {Pending: webmemorytest.Approvals("w1"), State: json.RawMessage(`"` + strings.Repeat("x", 5<<20) + `"`)},
		"no waits":     {State: json.RawMessage(`{}`)},
		"one id":       {Pending: webmemorytest.Approvals("w1", "w1"), State: json.RawMessage(`{}`)},
		"no end":       {Pending: endless, State: json.RawMessage(`{}`)},
		"no id at all": {Pending: webmemorytest.Approvals(""), State: json.RawMessage(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			w.ScriptApiserver(func(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
				emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, Message: r.Message})
				emit(webmemorytest.Analytic, &event.Delegation{Task: "task", Calls: event.Serial})
				emit(event.Head{}, p)
			})
			chat := strings.ReplaceAll(name, " ", "-")
			got := w.Post(chat, "hi")
			require.Equal(t, 502, got.Status, string(got.Body))
			require.Equal(t, "bad_wait", got.Problem(t).Code)
			require.Equal(t, []string{"user: task", "assistant: (no answer: bad_wait)"}, w.History("subagent:analytic:"+chat))
		})
	}
}

// A Redis that comes back with a wait of before an erasure is not believed.
func TestAWaitThatWasErasedStaysSo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, _, run := webmemorytest.NewSuspendedWorld(t)
	before := map[string]string{}
	for _, key := range []string{"{chat_history:1}:meta", "{chat_history:1}:waiting", "events:1:" + run, "run:1:" + run,
		"mneme:waiting"} {
		before[key] = w.Redis.Dump(ctx, key).Val()
	}
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	for key, value := range before {
		require.NoError(t, w.Redis.RestoreReplace(ctx, key, 0, value).Err())
	}
	require.Equal(t, 404, w.Resume("1", run, webmemorytest.Approve("w1")).Status)
	require.NotContains(t, string(w.Do("GET", "/v1/approvals", nil).Body), "w1")
	require.Equal(t, 200, w.Post("1", "plain").Status)
	require.Equal(t, []string{"user: plain", "assistant: plainly"}, w.History("chat_history:1"))
	require.Zero(t, w.Redis.Exists(ctx, "{chat_history:1}:waiting").Val())
	require.Equal(t, 404, w.Resume("1", run, webmemorytest.Approve("w1")).Status)
}

// A run that cannot be kept since Redis is away ends, and its client is told.
func TestARunIsToWaitWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := webmemorytest.NewDurableWorld(t, nil, func(c *webmemory.Config) { c.Patience = time.Second })
	away := make(chan struct{})
	asks := webmemorytest.SuspendOn(webmemorytest.OneApproval)
	w.ScriptApiserver(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		asks(ctx, r, func(h event.Head, p event.Payload) {
			if _, waits := p.(*event.RunWaiting); waits {
				<-away
			}
			emit(h, p)
		})
	})
	tr := w.PostStream("1", "refund me")
	tr.Until("subagent_assistant_with_tools")
	w.RedisServer.Kill()
	close(away)
	require.Contains(t, string(tr.Until("error")), "memory_unavailable")
	tr.Until("run_finished")
	require.NoError(t, w.RedisServer.Run())
	webmemorytest.Eventually(t, "the chat is usable", func() bool {
		return w.Post("1", "plain").Status == 200
	})
	require.Equal(t, []string{"user: refund me", "assistant: (no answer: memory_unavailable)", "user: plain",
		"assistant: plainly"}, w.History("chat_history:1"))
}
