package webmemorytest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// Emit publishes an event of a run.
type Emit = func(event.Head, event.Payload)

// Agent is an apiserver.Agent made of a function.
type Agent func(ctx context.Context, r master.Request, emit Emit)

// Run implements apiserver.Agent. It numbers the events.
func (a Agent) Run(ctx context.Context, r master.Request, publish func(event.Event) error) {
	var mu sync.Mutex
	var seq int64
	if r.Resume != nil {
		seq = int64(len(r.Resume.Events))
	}
	a(ctx, r, func(h event.Head, p event.Payload) {
		mu.Lock()
		defer mu.Unlock()
		payloads := []event.Payload{p}
		if _, first := p.(*event.RunStarted); first && r.MemoryReset {
			payloads = append(payloads, &event.MemoryReset{})
		}
		for _, p := range payloads {
			seq++
			h.RunID, h.Seq, h.TS = r.RunID, seq, event.Seconds(time.Now())
			_ = publish(event.New(h, p))
		}
	})
}

// Analytic is the head of the events of one delegation to the subagent analytic.
var Analytic = event.Head{Subagent: "analytic", CallID: "c"}

// Answers returns an agent that delegates once and answers with text.
func Answers(text string) Agent {
	return func(_ context.Context, r master.Request, emit Emit) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
			Metadata: r.Metadata})
		emit(Analytic, &event.Delegation{Task: "task: " + r.Message, Calls: event.Serial})
		emit(Analytic, &event.Completion{Response: "done", Status: event.Completed})
		emit(event.Head{}, &event.AssistantDelta{Text: text})
		emit(event.Head{}, &event.Assistant{Content: text})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// AnswersAfter returns an agent that delegates once and then waits for release or a stop. It answers "answer to MESSAGE".
func AnswersAfter(release <-chan struct{}) Agent {
	return func(ctx context.Context, r master.Request, emit Emit) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(Analytic, &event.Delegation{Task: "task", Calls: event.Serial})
		outcome := event.Completed
		select {
		case <-release:
		case <-ctx.Done():
			outcome = event.Stopped
		}
		emit(Analytic, &event.Completion{Response: "done", Status: outcome})
		emit(event.Head{}, &event.Assistant{Content: "answer to " + r.Message, Partial: outcome == event.Stopped})
		emit(event.Head{}, &event.RunFinished{Outcome: outcome})
	}
}

// Script is an agent whose events the test releases one at a time.
type Script struct {
	gates sync.Map // memory.Chat to chan struct{}, which has one token per released event
}

// Gate returns the channel with one token per released event of a chat.
func (s *Script) Gate(chat memory.Chat) chan struct{} {
	gate, _ := s.gates.LoadOrStore(chat, make(chan struct{}, 100))
	return gate.(chan struct{})
}

// Allow releases n more events of a chat's runs.
func (s *Script) Allow(chat string, n int) {
	for range n {
		s.Gate(memory.MustChat(chat)) <- struct{}{}
	}
}

// ScriptEvents is the number of events of a completed run of a Script.
const ScriptEvents = 9

// Play is an Agent.
func (s *Script) Play(ctx context.Context, r master.Request, emit Emit) {
	analytic := event.Head{Subagent: "analytic", CallID: r.RunID + "-1"}
	call := memory.ToolCall{ID: "t1", Type: "function", Function: memory.FunctionCall{Name: "calculator", Arguments: "{}"}}
	for _, e := range []event.Event{
		{Payload: &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message, Images: r.ImageRefs}},
		{Head: analytic, Payload: &event.Delegation{Task: "task of " + r.Message, Calls: event.Serial}},
		{Head: analytic, Payload: &event.AssistantWithTools{Content: "", ToolCalls: []memory.ToolCall{call}}},
		{Head: analytic, Payload: &event.ToolProgress{Tool: "calculator", Status: "running"}},
		{Head: analytic, Payload: &event.ToolResult{ToolCallID: "t1", Name: "calculator", Content: "42"}},
		{Head: analytic, Payload: &event.Completion{Response: "it is 42", Status: event.Completed}},
		{Payload: &event.AssistantDelta{Text: "42"}},
		{Payload: &event.Assistant{Content: "answer to " + r.Message}},
		{Payload: &event.RunFinished{Outcome: event.Completed}},
	} {
		select {
		case <-s.Gate(r.Chat):
			emit(e.Head, e.Payload)
		case <-ctx.Done():
			emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
			return
		}
	}
}

// ScriptHistories returns the histories that a completed run of a Script adds, in the form of World.History.
func ScriptHistories(message string) (chat, analytic []string) {
	return []string{"user: " + message, "assistant: answer to " + message},
		[]string{"user: task of " + message, "assistant: ", "tool: 42", "assistant: it is 42"}
}

// LostAnswer is the answer that webmemory stores for a run of a dead process, in the form of World.History.
const LostAnswer = "assistant: (no answer: run_lost)"

// RunScript plays a run. Unlike an Agent, it gets the request as webmemory posts it, and may emit RunWaiting.
type RunScript func(ctx context.Context, r api.RunRequest, emit Emit)

// ScriptedApiserver is an apiserver whose runs a RunScript plays.
type ScriptedApiserver struct {
	w      *World
	script RunScript

	mu       sync.Mutex
	runs     map[string]*scriptedRun // guarded by mu
	requests []api.RunRequest        // guarded by mu
}

type scriptedRun struct {
	log    *api.Log
	cancel context.CancelFunc
}

// ScriptApiserver replaces w's apiserver with a ScriptedApiserver.
func (w *World) ScriptApiserver(script RunScript) *ScriptedApiserver {
	s := &ScriptedApiserver{w: w, script: script, runs: map[string]*scriptedRun{}}
	w.SetApiserver(s)
	return s
}

// LoseRuns forgets all runs, as a killed process does.
func (s *ScriptedApiserver) LoseRuns() {
	s.mu.Lock()
	for _, r := range s.runs {
		r.cancel()
	}
	clear(s.runs)
	s.mu.Unlock()
	s.w.Apiserver.CloseClientConnections()
}

// Requests returns the run requests so far.
func (s *ScriptedApiserver) Requests() []api.RunRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP serves the routes of runs. It answers all others with 204.
func (s *ScriptedApiserver) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path, ofRun := strings.CutPrefix(r.URL.Path, "/v1/runs/")
	id, action, _ := strings.Cut(path, "/")
	s.mu.Lock()
	run := s.runs[id]
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/v1/runs":
		s.start(rw, r)
	case ofRun && run == nil:
		api.WriteProblem(rw, api.ErrUnknownRun)
	case ofRun && r.Method == "GET":
		api.ServeEvents(rw, r, run.log, api.Pace{})
	case action == "stop" && run.log.Waiting():
		api.WriteProblem(rw, api.ErrWaits)
	case action == "stop":
		run.cancel()
		fallthrough
	default:
		rw.WriteHeader(204)
	}
}

func (s *ScriptedApiserver) start(rw http.ResponseWriter, r *http.Request) {
	var req api.RunRequest
	assert.NoError(s.w.T, json.NewDecoder(r.Body).Decode(&req))
	log := api.NewLog(req.RunID, api.Limits{})
	if req.Resume != nil {
		var err error
		log, err = api.GoOn(req.RunID, api.Limits{}, req.Resume.Events)
		assert.NoError(s.w.T, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.w.T.Cleanup(cancel)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.runs[req.RunID] = append(s.requests, req), &scriptedRun{log, cancel}
	var mu sync.Mutex
	go s.script(ctx, req, func(h event.Head, p event.Payload) {
		mu.Lock()
		defer mu.Unlock()
		h.RunID, h.Seq, h.TS = req.RunID, log.Last()+1, event.Seconds(time.Now())
		_ = log.Append(event.New(h, p))
	})
	events := s.w.Apiserver.URL + "/v1/runs/" + req.RunID + "/events"
	api.WriteJSON(rw, 202, api.RunAccepted{RunID: req.RunID, Events: events})
}

// Approvals returns waits for the approval of calls of the tool refund. They expire in an hour.
func Approvals(ids ...string) (pending []event.Wait) {
	for _, id := range ids {
		pending = append(pending, event.Wait{ID: id, Kind: event.Approval, Subagent: "analytic", CallID: "c",
			ToolCallID: "t-" + id, Tool: "refund", Arguments: json.RawMessage(`{"amount":5}`), Reason: "refund asks",
			ExpiresAt: event.Seconds(time.Now().Add(time.Hour))})
	}
	return pending
}

// OneApproval is the wait w1 for SuspendOn.
func OneApproval(api.RunRequest) []event.Wait { return Approvals("w1") }

// SuspendOn returns a script that delegates once, suspends the run on waits, and answers with the decisions. It answers
// messages that begin with "plain" at once.
func SuspendOn(pending func(api.RunRequest) []event.Wait) RunScript {
	return func(_ context.Context, r api.RunRequest, emit Emit) {
		if r.Resume == nil {
			emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message,
				RetryOf: r.RetryOf, Subagents: []memory.Agent{"analytic"}})
			if strings.HasPrefix(r.Message, "plain") {
				emit(event.Head{}, &event.Assistant{Content: "plainly"})
				emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
				return
			}
			open := pending(r)
			emit(Analytic, &event.Delegation{Task: "task", Calls: event.Serial})
			var calls []memory.ToolCall
			for _, w := range open {
				calls = append(calls, memory.ToolCall{ID: w.ToolCallID, Type: "function",
					Function: memory.FunctionCall{Name: w.Tool, Arguments: string(w.Arguments)}})
			}
			emit(Analytic, &event.AssistantWithTools{ToolCalls: calls})
			emit(event.Head{}, &event.RunWaiting{Pending: open, State: json.RawMessage(`{"step":1}`)})
			return
		}
		emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
		var decisions []string
		for _, a := range r.Resume.Answers {
			decisions = append(decisions, a.Decision)
			emit(Analytic, &event.ToolResult{ToolCallID: "t-" + a.ID, Name: "refund", Content: a.Decision})
		}
		emit(Analytic, &event.Completion{Response: "done", Status: event.Completed})
		emit(event.Head{}, &event.Assistant{Content: "decided: " + strings.Join(decisions, " ")})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// NewSuspendedWorld starts a World with a suspended run in chat 1, which waits for the approval w1.
func NewSuspendedWorld(t *testing.T, change ...func(*webmemory.Config)) (w *World, s *ScriptedApiserver, run string) {
	w = NewWorld(t, nil, change...)
	s = w.ScriptApiserver(SuspendOn(OneApproval))
	return w, s, w.PostSuspended("1")
}

// PostSuspended posts the message "refund me", waits until its run is suspended, and returns the run's id.
func (w *World) PostSuspended(chat string, header ...string) (run string) {
	got := w.Post(chat, "refund me", header...)
	require.Equal(w.T, 202, got.Status, string(got.Body))
	require.Equal(w.T, webapi.OutcomeWaiting, gjson.GetBytes(got.Body, "outcome").Str)
	require.NotEmpty(w.T, gjson.GetBytes(got.Body, "waits").Array())
	w.AwaitSuspension(chat)
	return gjson.GetBytes(got.Body, "run_id").Str
}

// AwaitSuspension waits until a chat's run is suspended. No process has the chat's lease then, or is about to write.
func (w *World) AwaitSuspension(chat string) {
	Eventually(w.T, "the run is suspended", func() bool {
		ctx := context.Background()
		return w.Redis.HExists(ctx, "{chat_history:"+chat+"}:meta", "waits").Val() &&
			w.Redis.Exists(ctx, "{chat_history:"+chat+"}:turn").Val() == 0 &&
			w.Redis.ZScore(ctx, "mneme:waiting", chat).Val() > 0 // written last
	})
}

// Approve returns answers that approve all waits.
func Approve(ids ...string) webapi.ResumeRequest { return Decide(event.Approve, ids...) }

// Decide returns answers with one decision for all waits.
func Decide(decision string, ids ...string) (r webapi.ResumeRequest) {
	for _, id := range ids {
		r.Answers = append(r.Answers, event.WaitAnswer{ID: id, Decision: decision})
	}
	return r
}
