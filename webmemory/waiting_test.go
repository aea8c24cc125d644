package webmemory_test

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
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// suspending is an apiserver with runs that wait for a person, and go on from their states.
// What it holds is lost by forget.
type suspending struct {
	w      *world
	script func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload))

	mu     sync.Mutex
	runs   map[string]*suspendingRun // guarded by mu
	posted []api.RunRequest          // guarded by mu
	refuse int                       // guarded by mu: posts to be refused
	stops  int                       // guarded by mu
}

type suspendingRun struct {
	log    *api.Log
	cancel context.CancelFunc
	read   chan struct{} // has a token once somebody reads its events
}

// suspends puts one in the place of a world's apiserver.
func (w *world) suspends(script func(context.Context, api.RunRequest, func(event.Head, event.Payload))) *suspending {
	s := &suspending{w: w, script: script, runs: map[string]*suspendingRun{}}
	w.putApiserver(s)
	return s
}

// forget loses all runs, as a process that is killed does.
func (s *suspending) forget() {
	s.mu.Lock()
	for _, r := range s.runs {
		r.cancel()
	}
	s.runs = map[string]*suspendingRun{}
	s.mu.Unlock()
	s.w.api.CloseClientConnections()
}

// requests are those for runs so far.
func (s *suspending) requests() []api.RunRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]api.RunRequest{}, s.posted...)
}

func (s *suspending) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == "POST" && r.URL.Path == "/v1/runs":
		var req api.RunRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			s.w.t.Error(err)
		}
		if !s.start(req) {
			api.WriteProblem(rw, &api.Problem{Status: 503, Code: "too_many_runs", Message: "Busy.", Retryable: true})
			return
		}
		api.WriteJSON(rw, 202, api.RunAccepted{RunID: req.RunID, Events: s.w.api.URL + "/v1/runs/" + req.RunID + "/events"})
	case len(path) > 2 && path[1] == "runs":
		s.mu.Lock()
		run := s.runs[path[2]]
		stop := strings.HasSuffix(r.URL.Path, "/stop")
		if stop {
			s.stops++
		}
		s.mu.Unlock()
		switch {
		case run == nil:
			api.WriteProblem(rw, api.ErrUnknownRun)
		case r.Method == "GET":
			select {
			case run.read <- struct{}{}:
			default:
			}
			api.ServeEvents(rw, r, run.log, api.Pace{})
		case stop && run.log.Waiting():
			api.WriteProblem(rw, api.ErrWaits)
		case r.Method == "POST":
			run.cancel()
			rw.WriteHeader(204)
		default:
			rw.WriteHeader(204)
		}
	default:
		rw.WriteHeader(204)
	}
}

func (s *suspending) start(req api.RunRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse > 0 {
		s.refuse--
		return false
	}
	s.posted = append(s.posted, req)
	log := api.NewLog(req.RunID, api.Limits{})
	if req.Resume != nil {
		var err error
		if log, err = api.GoOn(req.RunID, api.Limits{}, req.Resume.Events); err != nil {
			s.w.t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.w.t.Cleanup(cancel)
	s.runs[req.RunID] = &suspendingRun{log, cancel, make(chan struct{}, 1)}
	var emitting sync.Mutex
	go s.script(ctx, req, func(h event.Head, p event.Payload) {
		emitting.Lock()
		defer emitting.Unlock()
		h.RunID, h.Seq, h.TS = req.RunID, log.Last()+1, event.Seconds(time.Now())
		_ = log.Append(event.New(h, p))
	})
	return true
}

// of is the head of the asking subagent's events.
var of = event.Head{Subagent: "analytic", CallID: "c"}

// inTime is when waits of tests expire, unless they are about that.
func inTime() float64 { return event.Seconds(time.Now().Add(time.Hour)) }

// approvals are waits of a run for its calls of a tool.
func approvals(at float64, ids ...string) (waits []event.Wait) {
	for _, id := range ids {
		waits = append(waits, event.Wait{ID: id, Kind: event.Approval, Subagent: "analytic", CallID: "c",
			ToolCallID: "t-" + id, Tool: "refund", Arguments: json.RawMessage(`{"amount":5}`), Reason: "refund asks",
			ExpiresAt: at})
	}
	return waits
}

// asksFor is a run that delegates once, waits for a yes to calls of a tool, and answers with what
// was decided. A message that begins with "plain" is answered at once.
func asksFor(waits func(api.RunRequest) []event.Wait) func(context.Context, api.RunRequest,
	func(event.Head, event.Payload)) {
	return func(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		if r.Resume == nil {
			emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message,
				RetryOf: r.RetryOf, Subagents: []memory.Agent{"analytic"}})
			if strings.HasPrefix(r.Message, "plain") {
				emit(event.Head{}, &event.Assistant{Content: "plainly"})
				emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
				return
			}
			open := waits(r)
			emit(of, &event.Delegation{Task: "task", Calls: event.Serial})
			var calls []memory.ToolCall
			for _, w := range open {
				calls = append(calls, memory.ToolCall{ID: w.ToolCallID, Type: "function",
					Function: memory.FunctionCall{Name: w.Tool, Arguments: string(w.Arguments)}})
			}
			emit(of, &event.AssistantWithTools{ToolCalls: calls})
			emit(event.Head{}, &event.RunWaiting{Waits: open, State: json.RawMessage(`{"step":1}`)})
			return
		}
		emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
		var said []string
		for _, a := range r.Resume.Answers {
			said = append(said, a.Decision)
			emit(of, &event.ToolResult{ToolCallID: "t-" + a.ID, Name: "refund", Content: a.Decision})
		}
		emit(of, &event.Completion{Response: "done", Status: event.Completed})
		emit(event.Head{}, &event.Assistant{Content: "decided: " + strings.Join(said, " ")})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

func one(api.RunRequest) []event.Wait { return approvals(inTime(), "w1") }

// waitingWorld is a world in which a run of chat 1 waits for w1.
func waitingWorld(t *testing.T, change ...func(*webmemory.Config)) (w *world, s *suspending, run string) {
	t.Helper()
	w = newWorld(t, nil, change...)
	s = w.suspends(asksFor(one))
	return w, s, w.wait("1")
}

// wait posts a message to a chat, and gives the run that waits then.
func (w *world) wait(chat string, header ...string) (run string) {
	w.t.Helper()
	got := w.do("POST", "/v1/chats/"+chat+"/messages", message{"refund me"}, header...)
	require.Equal(w.t, 202, got.status, string(got.body))
	var waiting webapi.Waiting
	require.NoError(w.t, json.Unmarshal(got.body, &waiting))
	require.Equal(w.t, webapi.OutcomeWaiting, waiting.Outcome)
	require.NotEmpty(w.t, waiting.Waits)
	w.atRest(chat)
	return waiting.RunID
}

// atRest waits until no process has the lease of a chat with a run that waits, and none is about to write of it: that
// it is listed comes last.
func (w *world) atRest(chat string) {
	w.t.Helper()
	eventually(w.t, "the run is suspended", func() bool {
		ctx := context.Background()
		return w.look.HExists(ctx, "{chat_history:"+chat+"}:meta", "waits").Val() &&
			w.look.Exists(ctx, "{chat_history:"+chat+"}:turn").Val() == 0 &&
			w.look.ZScore(ctx, "mneme:waiting", chat).Val() > 0
	})
}

func yes(ids ...string) webapi.ResumeRequest { return decided(event.Approve, ids...) }

func decided(decision string, ids ...string) (r webapi.ResumeRequest) {
	for _, id := range ids {
		r.Answers = append(r.Answers, event.WaitAnswer{ID: id, Decision: decision})
	}
	return r
}

func (w *world) resume(chat, run string, body any, header ...string) answer {
	w.t.Helper()
	return w.do("POST", "/v1/chats/"+chat+"/runs/"+run+"/resume", body, header...)
}

// A run that waits holds nothing, and goes on in any process with the same numbering.
func TestARunWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, s, run := waitingWorld(t)
	require.Zero(t, w.look.HExists(ctx, "{chat_history:1}:meta", "open").Val())
	require.Equal(t, `{"step":1}`, w.look.HGet(ctx, "{chat_history:1}:waiting", "state").Val())
	require.Positive(t, w.look.ZScore(ctx, "mneme:waiting", "1").Val())
	for _, key := range []string{"{chat_history:1}:waiting", "events:1:" + run, "run:1:" + run} {
		require.Greater(t, w.look.PTTL(ctx, key).Val(), 24*time.Hour, key)
	}
	var info webapi.ChatInfo
	require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/1", nil).body, &info))
	require.Equal(t, run, info.Waiting.RunID)
	require.Empty(t, info.Run)

	s.forget()
	other := w.process()
	w.on(other, func() {
		// A client that has all of its events has nothing to wait for.
		require.Equal(t, 204, w.do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", "4").status)
		tr := w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_assistant_with_tools", "run_waiting"},
			tr.roles())
		require.Equal(t, "4", tr.id)
		again := w.open("POST", "/v1/chats/1/runs/"+run+"/resume", yes("w1"))
		role, data, _ := again.next()
		require.Equal(t, "run_resumed", role, string(data))
		require.Equal(t, "5", again.id)
		require.Equal(t, []string{"subagent_tool_result", "subagent_completion", "assistant", "run_finished"}, again.roles())
	})
	posted := s.requests()
	require.Len(t, posted, 2)
	require.Len(t, posted[1].Resume.Events, 4)
	require.NotContains(t, string(posted[1].Resume.Events[3]), "step", "the state is sent beside the events")
	require.JSONEq(t, `{"step":1}`, string(posted[1].Resume.State))
	require.Equal(t, yes("w1").Answers, posted[1].Resume.Answers)
	require.Equal(t, []string{"user: refund me", "assistant: decided: approve"}, w.stored("chat_history:1"))
	require.Equal(t, []string{"user: task", "assistant: ", "tool: approve", "assistant: done"},
		w.stored("subagent:analytic:1"))
	eventually(t, "nothing is kept of the wait", func() bool {
		return w.look.Exists(ctx, "{chat_history:1}:waiting").Val() == 0 && w.look.ZCard(ctx, "mneme:waiting").Val() == 0 &&
			!w.look.HExists(ctx, "{chat_history:1}:meta", "waits").Val() && w.look.ZCard(ctx, "turns:open").Val() == 0
	})
}

func TestAPostThatIsRepeatedWhileItsRunWaits(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, nil)
	s := w.suspends(asksFor(one))
	run := w.wait("1", "Idempotency-Key", "k")
	other := w.process()
	for _, url := range []string{w.url, other} {
		w.on(url, func() {
			require.Equal(t, run, w.wait("1", "Idempotency-Key", "k"))
			tr := w.open("POST", "/v1/chats/1/messages", message{"refund me"}, "Idempotency-Key", "k")
			roles := tr.roles()
			require.Equal(t, "run_waiting", roles[len(roles)-1])
			require.Equal(t, 202, w.do("POST", "/v1/chats/1/messages", message{"refund me"}, "Idempotency-Key", "k", "Prefer",
				"respond-async").status)
		})
	}
	got := w.resume("1", run, yes("w1"))
	require.Equal(t, 200, got.status, string(got.body))
	for _, url := range []string{w.url, other} {
		w.on(url, func() {
			kept := w.do("POST", "/v1/chats/1/messages", message{"refund me"}, "Idempotency-Key", "k")
			require.Equal(t, 200, kept.status)
			require.JSONEq(t, string(got.body), string(kept.body))
		})
	}
	require.Len(t, s.requests(), 2)
}

func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	two := func(api.RunRequest) []event.Wait {
		waits := approvals(inTime(), "w1", "w2")
		waits[1].Kind = event.ClientResult
		return waits
	}
	w := newWorld(t, nil)
	s := w.suspends(asksFor(two))
	run := w.wait("1")
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
			got := w.resume(c.chat, c.run, c.body, "Content-Type", "application/json")
			require.Equal(t, c.status, got.status, string(got.body))
			p := got.problem(t)
			require.Equal(t, c.code, p.Code)
			require.Contains(t, p.Message, c.says)
			if c.code == "waits_open" {
				require.Len(t, p.Waits, 2)
			}
		})
	}
	require.Len(t, s.requests(), 1, "nothing of it has reached the agents")
	got := w.resume("1", run, `{"answers":[{"id":"w1","decision":"edit","arguments":{"amount":1}},`+result+`]}`,
		"Content-Type", "application/json")
	require.Equal(t, 200, got.status, string(got.body))
	require.JSONEq(t, `{"amount":1}`, string(s.requests()[1].Resume.Answers[0].Arguments))
}

func TestAnswersAreIdempotent(t *testing.T) {
	t.Parallel()
	w, s, run := waitingWorld(t)
	other := w.process()
	urls, answers := []string{w.url, other, w.url, other}, make([]answer, 4)
	var asking sync.WaitGroup
	for i, url := range urls {
		w.on(url, func() {
			req := w.request("POST", "/v1/chats/1/runs/"+run+"/resume", yes("w1"))
			asking.Go(func() { answers[i] = w.send(req) })
		})
	}
	asking.Wait()
	for _, got := range answers {
		require.Equal(t, 200, got.status, string(got.body))
		require.Contains(t, string(got.body), "decided: approve")
	}
	require.Len(t, s.requests(), 2, "it went on once")
	w.on(other, func() {
		require.Equal(t, 200, w.resume("1", run, yes("w1")).status, "the same again gets the same")
		got := w.resume("1", run, decided(event.Deny, "w1"))
		require.Equal(t, 409, got.status)
		require.Equal(t, "answered", got.problem(t).Code)
		require.Contains(t, got.problem(t).Message, "approve")
		require.Equal(t, "not_waiting", w.resume("1", run, yes("w9")).problem(t).Code)
	})
	plain := w.do("POST", "/v1/chats/1/messages", message{"plain"})
	require.Equal(t, 200, plain.status)
	require.Equal(t, "not_waiting", w.resume("1", plain.header.Get(webapi.RunID), yes("w1")).problem(t).Code)
}

// What the agents have not begun to do waits as before, also for another decision.
func TestARunThatDoesNotGoOnWaitsAgain(t *testing.T) {
	w, s, run := waitingWorld(t)
	s.mu.Lock()
	s.refuse = 1
	s.mu.Unlock()
	got := w.resume("1", run, yes("w1"))
	require.Equal(t, 503, got.status, string(got.body))
	require.True(t, got.problem(t).Retryable)
	require.True(t, w.look.HExists(context.Background(), "{chat_history:1}:meta", "waits").Val())
	require.False(t, w.look.HExists(context.Background(), "{chat_history:1}:meta", "open").Val())
	got = w.resume("1", run, decided(event.Deny, "w1"))
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), "decided: deny")

	t.Run("since the agents died at once", func(t *testing.T) {
		held := make(chan struct{})
		s.mu.Lock()
		asks := s.script
		s.script = func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
			if r.Resume != nil {
				close(held)
				<-ctx.Done()
				return
			}
			asks(ctx, r, emit)
		}
		s.mu.Unlock()
		run := w.wait("2")
		req := w.request("POST", "/v1/chats/2/runs/"+run+"/resume", yes("w1"))
		answered := make(chan answer)
		go func() { answered <- w.send(req) }()
		<-held
		s.mu.Lock()
		read := s.runs[run].read
		s.mu.Unlock()
		<-read
		s.mu.Lock()
		s.script = asks
		s.mu.Unlock()
		s.forget()
		got := <-answered
		require.Equal(t, 202, got.status, string(got.body))
		w.atRest("2")
		require.Equal(t, 200, w.resume("2", run, yes("w1")).status)
	})
}

// A run may wait any number of times.
func TestARunWaitsAgain(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, nil)
	asks := asksFor(one)
	w.suspends(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		if r.Resume != nil && r.Resume.Answers[0].ID == "w1" {
			emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
			emit(event.Head{}, &event.RunWaiting{Waits: approvals(inTime(), "w2"), State: json.RawMessage(`{"step":2}`)})
			return
		}
		asks(ctx, r, emit)
	})
	run := w.wait("1", "Idempotency-Key", "k")
	got := w.resume("1", run, yes("w1"))
	require.Equal(t, 202, got.status, string(got.body))
	require.Contains(t, string(got.body), `"w2"`)
	w.atRest("1")
	repeated := w.do("POST", "/v1/chats/1/messages", message{"refund me"}, "Idempotency-Key", "k")
	require.Contains(t, string(repeated.body), `"w2"`)
	other := w.process()
	w.on(other, func() {
		tr := w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_assistant_with_tools", "run_waiting",
			"run_resumed", "run_waiting"}, tr.roles())
		require.Equal(t, "unknown_wait", w.resume("1", run, yes("w3")).problem(t).Code)
		require.Equal(t, "answered", w.resume("1", run, decided(event.Deny, "w1")).problem(t).Code)
		got := w.resume("1", run, yes("w1"))
		require.Equal(t, 202, got.status, "an answer that is given once more: %s", got.body)
		require.Contains(t, string(got.body), `"w2"`)
		got = w.resume("1", run, yes("w2"))
		require.Equal(t, 200, got.status, string(got.body))
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
	w, s, run := waitingWorld(t)
	t.Run("not by a post that rejects", func(t *testing.T) {
		got := w.do("POST", "/v1/chats/1/messages", `{"message":"plain","on_busy":"reject"}`, "Content-Type",
			"application/json")
		require.Equal(t, 409, got.status, string(got.body))
		require.Equal(t, "chat_busy", got.problem(t).Code)
		require.Equal(t, "w1", got.problem(t).Waits[0].ID)
	})
	t.Run("not by a note or a fork", func(t *testing.T) {
		require.Equal(t, 201, w.do("POST", "/v1/chats/1/notes", `{"text":"allergic to nuts"}`, "Content-Type",
			"application/json").status)
		got := w.do("POST", "/v1/chats/1/fork", `{"as":"fork"}`, "Content-Type", "application/json")
		require.Equal(t, 201, got.status, string(got.body))
		w.atRest("1")
		require.Positive(t, w.look.ZScore(context.Background(), "turns:open", "1").Val())
		// The fork has what was said, and waits for nothing.
		require.Equal(t, 200, w.do("POST", "/v1/chats/fork/messages", message{"plain"}).status)
		require.Equal(t, []string{"user: refund me", "user: plain", "assistant: plainly"}, w.stored("chat_history:fork"))
	})
	chat, analytic := closed("the user said something else")
	for _, busy := range []string{"queue", "interrupt"} {
		t.Run("by a post that says "+busy, func(t *testing.T) {
			id := "by-" + busy
			run := w.wait(id)
			body := fmt.Sprintf(`{"message":"plain","on_busy":%q}`, busy)
			got := w.do("POST", "/v1/chats/"+id+"/messages", body, "Content-Type", "application/json")
			require.Equal(t, 200, got.status, string(got.body))
			require.Equal(t, append(chat[:1:1], "user: plain", "assistant: plainly"), w.stored("chat_history:"+id))
			require.Equal(t, analytic, w.stored("subagent:analytic:"+id))
			roles := w.open("GET", "/v1/chats/"+id+"/runs/"+run+"/events", nil).roles()
			require.Equal(t, []string{"run_waiting", "run_resumed", "subagent_tool_result", "subagent_completion",
				"run_finished"}, roles[3:])
			late := w.resume(id, run, yes("w1"))
			require.Equal(t, 409, late.status)
			require.Equal(t, "not_waiting", late.problem(t).Code)
		})
	}
	t.Run("by a stop", func(t *testing.T) {
		got := w.do("POST", "/v1/chats/1/runs/"+run+"/stop", nil)
		require.Equal(t, 200, got.status, string(got.body))
		_, analytic := closed("the user stopped the run")
		require.Equal(t, analytic, w.stored("subagent:analytic:1"))
		require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"plain"}).status)
	})
	t.Run("by its time", func(t *testing.T) {
		s.mu.Lock()
		before := s.script
		s.script = asksFor(func(api.RunRequest) []event.Wait {
			return approvals(event.Seconds(time.Now().Add(3*time.Second)), "w1")
		})
		s.mu.Unlock()
		run := w.wait("late", "Idempotency-Key", "k")
		s.mu.Lock()
		s.script = before
		s.mu.Unlock()
		_, analytic := closed("nobody answered in time")
		eventually(t, "the run is ended", func() bool { return len(w.stored("subagent:analytic:late")) == len(analytic) })
		require.Equal(t, analytic, w.stored("subagent:analytic:late"))
		got := w.resume("late", run, yes("w1"))
		require.Equal(t, 410, got.status, string(got.body))
		require.Equal(t, "wait_expired", got.problem(t).Code)
		kept := w.do("POST", "/v1/chats/late/messages", message{"refund me"}, "Idempotency-Key", "k")
		require.Equal(t, 200, kept.status, string(kept.body))
		require.Contains(t, string(kept.body), `"outcome":"stopped"`)
	})
	for name, take := range map[string]func(chat string) answer{
		"a redaction": func(chat string) answer {
			var page struct{ Messages []struct{ ID string } }
			require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/"+chat+"/history", nil).body, &page))
			return w.do("DELETE", "/v1/chats/"+chat+"/messages/"+page.Messages[0].ID, nil)
		},
		"a rewind": func(chat string) answer {
			return w.do("POST", "/v1/chats/"+chat+"/rewind", `{"to":null}`, "Content-Type", "application/json")
		},
		"an erasure of one history": func(chat string) answer {
			return w.do("DELETE", "/v1/chats/"+chat+"/subagents/analytic/history", nil)
		},
		"an erasure": func(chat string) answer { return w.do("DELETE", "/v1/chats/"+chat, nil) },
	} {
		t.Run("by "+name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			run := w.wait(id)
			got := take(id)
			require.Equal(t, 200, got.status, string(got.body))
			require.False(t, w.look.HExists(context.Background(), "{chat_history:"+id+"}:meta", "waits").Val())
			require.Zero(t, w.look.Exists(context.Background(), "{chat_history:"+id+"}:waiting").Val())
			require.Contains(t, []int{404, 409}, w.resume(id, run, yes("w1")).status)
			require.Equal(t, 200, w.do("POST", "/v1/chats/"+id+"/messages", message{"plain"}).status)
		})
	}
}

// A run is stopped as soon as its client knows that it waits, through this replica or another: it may not be suspended
// yet, and does not wait after the stop all the same.
func TestAStopOfARunThatIsAboutToWait(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, nil)
	w.suspends(asksFor(one))
	other := w.process()
	for i := range 40 {
		path := fmt.Sprintf("/v1/chats/%d/", i)
		got := w.do("POST", path+"messages", message{"refund me"})
		require.Equal(t, 202, got.status, string(got.body))
		stop := func() { got = w.do("POST", path+"runs/"+got.header.Get("Mneme-Run-Id")+"/stop", nil) }
		if i%2 == 0 {
			stop()
		} else {
			w.on(other, stop)
		}
		require.Less(t, got.status, 300, string(got.body))
	}
	eventually(t, "none waits", func() bool {
		return strings.Contains(string(w.do("GET", "/v1/approvals", nil).body), `"approvals":[]`)
	})
}

// What Redis loses of a run that waits is lost, with a sentence; the chat stays usable.
func TestWhatARunGoesOnFromIsLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, _, _ := waitingWorld(t)
	t.Run("its state", func(t *testing.T) {
		run := w.wait("2")
		require.NoError(t, w.look.Del(ctx, "{chat_history:2}:waiting").Err())
		got := w.resume("2", run, yes("w1"))
		require.Equal(t, 409, got.status, string(got.body))
		require.Contains(t, got.problem(t).Message, "lost")
		require.Equal(t, 200, w.do("POST", "/v1/chats/2/messages", message{"plain"}).status)
	})
	t.Run("its log", func(t *testing.T) {
		run := w.wait("3")
		require.NoError(t, w.look.Del(ctx, "events:3:"+run).Err())
		require.Contains(t, []int{404, 409}, w.resume("3", run, yes("w1")).status)
		require.Equal(t, 200, w.do("POST", "/v1/chats/3/messages", message{"plain"}).status)
	})
	t.Run("all of it, with the disk of who suspended it", func(t *testing.T) {
		w := newWorld(t, nil)
		w.suspends(asksFor(one))
		run := w.wait("1")
		require.NoError(t, w.look.FlushAll(ctx).Err())
		got := w.resume("1", run, yes("w1"))
		require.Equal(t, 503, got.status, string(got.body))
		require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"plain"}).status)
	})
}

// Redis loses all while runs wait: each waits again, in the list and for its answer, at whatever process it comes
// first, and a post that is repeated finds it. One that was answered or closed before does not wait again.
func TestAWaitOutlivesRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, _, run := waitingWorld(t, apart(t))
	settings := w.settings()
	settings.Spool, settings.Ends = t.TempDir(), filepath.Join(t.TempDir(), "ends")
	other, _ := w.start(settings)
	keyed := w.wait("4", "Idempotency-Key", "k")
	listed := w.wait("5")
	answered, closed, there := w.wait("6"), w.wait("7"), w.wait("8")
	require.Equal(t, 200, w.resume("6", answered, yes("w1")).status)
	require.Equal(t, 200, w.do("POST", "/v1/chats/7/messages", message{"plain"}).status)
	require.NoError(t, w.look.FlushAll(ctx).Err())

	got := w.resume("1", run, yes("w1"))
	require.Equal(t, 200, got.status, string(got.body))
	w.answersItsCalls("subagent:analytic:1")
	require.Equal(t, keyed, w.wait("4", "Idempotency-Key", "k"))
	w.on(other, func() {
		got := w.resume("8", there, yes("w1"))
		require.Equal(t, 200, got.status, string(got.body))
	})
	eventually(t, "it is in the list", func() bool {
		return strings.Contains(string(w.do("GET", "/v1/approvals", nil).body), listed)
	})
	require.Equal(t, 200, w.resume("5", listed, yes("w1")).status)
	stored := w.stored("subagent:analytic:5")
	require.Equal(t, []string{"user: task", "assistant: ", "tool: approve", "assistant: done"}, stored[len(stored)-4:])
	require.Positive(t, w.metric("mneme_retold_runs_total"))
	for chat, run := range map[string]string{"6": answered, "7": closed} {
		require.False(t, w.look.HExists(ctx, "{chat_history:"+chat+"}:meta", "waits").Val(), chat)
		require.NotContains(t, string(w.do("GET", "/v1/approvals", nil).body), run)
	}
}

// A run that cannot be kept ends with a clear error, and not half.
func TestARunThatCannotBeKept(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, nil)
	for name, p := range map[string]*event.RunWaiting{
		"too much":     {Waits: approvals(inTime(), "w1"), State: json.RawMessage(`"` + strings.Repeat("x", 5<<20) + `"`)},
		"no waits":     {State: json.RawMessage(`{}`)},
		"one id":       {Waits: approvals(inTime(), "w1", "w1"), State: json.RawMessage(`{}`)},
		"no end":       {Waits: approvals(0, "w1"), State: json.RawMessage(`{}`)},
		"no id at all": {Waits: approvals(inTime(), ""), State: json.RawMessage(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			w.suspends(func(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
				emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, Message: r.Message})
				emit(of, &event.Delegation{Task: "task", Calls: event.Serial})
				emit(event.Head{}, p)
			})
			chat := strings.ReplaceAll(name, " ", "-")
			got := w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi"})
			require.Equal(t, 502, got.status, string(got.body))
			require.Equal(t, "bad_wait", got.problem(t).Code)
			require.Equal(t, []string{"user: task", "assistant: (no answer: bad_wait)"}, w.stored("subagent:analytic:"+chat))
		})
	}
}

// A Redis that comes back with a wait of before an erasure is not believed.
func TestAWaitThatWasErasedStaysSo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, _, run := waitingWorld(t)
	before := map[string]string{}
	for _, key := range []string{"{chat_history:1}:meta", "{chat_history:1}:waiting", "events:1:" + run, "run:1:" + run,
		"mneme:waiting"} {
		before[key] = w.look.Dump(ctx, key).Val()
	}
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status)
	for key, value := range before {
		require.NoError(t, w.look.RestoreReplace(ctx, key, 0, value).Err())
	}
	require.Equal(t, 404, w.resume("1", run, yes("w1")).status)
	require.NotContains(t, string(w.do("GET", "/v1/approvals", nil).body), "w1")
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"plain"}).status)
	require.Equal(t, []string{"user: plain", "assistant: plainly"}, w.stored("chat_history:1"))
	require.Zero(t, w.look.Exists(ctx, "{chat_history:1}:waiting").Val())
	require.Equal(t, 404, w.resume("1", run, yes("w1")).status)
}

// A run that cannot be kept since Redis is away ends, and its client is told.
func TestARunIsToWaitWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := newWorldOver(t, nil, []string{"--appendonly", "yes", "--appendfsync", "always"}, func(c *webmemory.Config) {
		c.Patience = time.Second
	})
	away := make(chan struct{})
	asks := asksFor(one)
	w.suspends(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		asks(ctx, r, func(h event.Head, p event.Payload) {
			if _, waits := p.(*event.RunWaiting); waits {
				<-away
			}
			emit(h, p)
		})
	})
	tr := w.open("POST", "/v1/chats/1/messages", message{"refund me"})
	tr.until("subagent_assistant_with_tools")
	w.redis.Kill()
	close(away)
	require.Contains(t, string(tr.until("error")), "memory_unavailable")
	tr.until("run_finished")
	require.NoError(t, w.redis.Run())
	eventually(t, "the chat is usable", func() bool {
		return w.do("POST", "/v1/chats/1/messages", message{"plain"}).status == 200
	})
	require.Equal(t, []string{"user: refund me", "assistant: (no answer: memory_unavailable)", "user: plain",
		"assistant: plainly"}, w.stored("chat_history:1"))
}
