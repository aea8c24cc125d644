package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// caller is a model that calls the client's tool "light" as often as the message has words, a step
// for each, and then says what it gave.
type caller struct{}

func (caller) Generate(_ context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		var results []string
		words := 0
		for _, m := range r.Messages {
			switch m.Role {
			case memory.RoleUser:
				words, results = len(strings.Fields(m.Content)), nil
			case memory.RoleTool:
				results = append(results, m.Content)
			}
		}
		if len(results) == words {
			yield(loop.Delta{Text: strings.Join(results, " | ")}, nil)
			return
		}
		call := memory.ToolCall{ID: fmt.Sprint("call-", len(results)), Type: "function",
			Function: memory.FunctionCall{Name: "light", Arguments: "{}"}}
		yield(loop.Delta{Text: "A moment. ", Calls: []memory.ToolCall{call}}, nil)
	}
}

func waits() *master.Agent {
	return &master.Agent{Model: caller{}, MaxSteps: 5, Now: time.Now, Log: zerolog.Nop()}
}

// lights asks for a run that waits for the client's tool.
func lights(id, message string) api.RunRequest {
	r := request(id)
	r.Message, r.ConversationID = message, "conv"
	r.Memory = &api.MemoryAccess{URL: "http://127.0.0.1:1", Token: "secret-token"}
	r.Context = []json.RawMessage{json.RawMessage(`{"role":"user","content":"before <&>","timestamp":1,"id":"x.1"}`),
		json.RawMessage(`{"role":"assistant","content":"ok","timestamp":2}`)}
	r.Tools = []api.ClientTool{{Name: "light", Description: "Turns it on.", Parameters: json.RawMessage(`{"type":"object"}`)}}
	return r
}

// stored reads a run to where it ends or waits, as the webmemory that stores its events does.
func (s service) stored(
	t *testing.T, events string, before ...json.RawMessage,
) (lines []json.RawMessage, last event.Event) {
	t.Helper()
	for e, err := range s.Events(t.Context(), events, int64(len(before))) {
		require.NoError(t, err)
		last = e
		if w, ok := e.Payload.(*event.RunWaiting); ok {
			e = event.New(e.Head, &event.RunWaiting{Pending: w.Pending})
		}
		lines = append(lines, e.Line())
	}
	return append(before, lines...), last
}

// goesOn is the request that answers what a run waits for.
func goesOn(id string, lines []json.RawMessage, last event.Event, result string) api.RunRequest {
	waiting, _ := last.Payload.(*event.RunWaiting)
	r := api.RunRequest{RunID: id, ChatID: memory.MustChat("c1"), ConversationID: "conv",
		Memory: &api.MemoryAccess{URL: "http://127.0.0.1:2", Token: "another"},
		Resume: &api.Resume{Events: lines, State: waiting.State}}
	for _, w := range waiting.Pending {
		raw, _ := json.Marshal(result)
		r.Resume.Answers = append(r.Resume.Answers, event.WaitAnswer{ID: w.ID, Decision: event.Approve, Result: raw})
	}
	return r
}

// A run that waits goes on in another process, from what was stored of it alone, in its
// numbering and with what was posted at first.
func TestARunGoesOnInAnotherProcess(t *testing.T) {
	first, second := start(t, apiserver.Config{}, waits()), start(t, apiserver.Config{}, waits())
	lines, last := first.stored(t, first.post(t, lights("r1", "one two")).Events)
	require.True(t, last.Blocking())
	state := string(last.Payload.(*event.RunWaiting).State)
	require.NotContains(t, state, "secret-token")
	require.Contains(t, state, "before <&>", "it is there for people to read")
	require.NoError(t, first.Server.Close())

	lines, last = second.stored(t, second.post(t, goesOn("r1", lines, last, "ONE")).Events, lines...)
	require.True(t, last.Blocking(), "it waits once more, elsewhere")
	third := start(t, apiserver.Config{}, waits())
	accepted := third.post(t, goesOn("r1", lines, last, "TWO"))
	lines, last = third.stored(t, accepted.Events, lines...)
	require.True(t, last.Terminal())
	var roles []string
	for i, line := range lines {
		e, err := event.Decode(line)
		require.NoError(t, err)
		require.EqualValues(t, i+1, e.Seq)
		roles = append(roles, e.Role())
		if p, ok := e.Payload.(*event.Assistant); ok {
			require.Contains(t, p.Content, "ONE")
			require.Contains(t, p.Content, "TWO")
		}
	}
	require.Equal(t, "run_started assistant_delta tool run_waiting run_resumed tool assistant_delta tool run_waiting "+
		"run_resumed tool assistant_delta assistant run_finished", strings.Join(roles, " "))
	require.Len(t, third.roles(t, accepted.Events), len(lines), "the process that went on has all events")
}

// prompted is a caller that notes its prompts.
type prompted struct {
	caller
	prompts chan string
}

func (p prompted) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	p.prompts <- r.System
	return p.caller.Generate(ctx, r)
}

// What was posted beside the message holds over waits, in any process.
func TestInstructionsHoldOverWaits(t *testing.T) {
	prompts := make(chan string, 10)
	a := waits()
	a.Model, a.System = prompted{prompts: prompts}, "Master."
	first, second := start(t, apiserver.Config{}, a), start(t, apiserver.Config{}, a)
	r := lights("r1", "one")
	r.Instructions, r.Metadata = "Answer in rhymes.", map[string]string{"from": "web"}
	lines, last := first.stored(t, first.post(t, r).Events)
	require.Contains(t, string(lines[0]), `"metadata":{"from":"web"}`)
	_, last = second.stored(t, second.post(t, goesOn("r1", lines, last, "ONE")).Events, lines...)
	require.True(t, last.Terminal())
	require.Len(t, prompts, 2)
	for range 2 {
		require.Equal(t, "Master.\n\nAnswer in rhymes.", <-prompts)
	}
}

// A run may wait for its client's tools without a memory, if the client that posts it keeps it; and it goes on behind
// results of tools that the context ends with.
func TestARunWithoutMemoryWaits(t *testing.T) {
	s := start(t, apiserver.Config{}, waits())
	r := lights("r1", "one")
	r.Memory = nil
	_, last := s.stored(t, s.post(t, r).Events)
	require.True(t, last.Terminal(), "nobody keeps it")
	r = lights("r2", "one")
	r.Memory, r.CanWait = nil, true
	lines, last := s.stored(t, s.post(t, r).Events)
	require.True(t, last.Blocking())
	resumed := goesOn("r2", lines, last, "ONE")
	resumed.Memory = nil
	lines, last = s.stored(t, s.post(t, resumed).Events, lines...)
	require.True(t, last.Terminal())
	require.Contains(t, string(lines[len(lines)-2]), "ONE")

	r = lights("r3", "")
	r.Tools, r.Context = nil, []json.RawMessage{json.RawMessage(`{"role":"user","content":"two"}`),
		json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":` +
			`{"name":"light","arguments":"{}"}}]}`), json.RawMessage(`{"role":"tool","content":"ON","tool_call_id":"a"}`)}
	_, err := s.PostRun(t.Context(), api.RunRequest{RunID: "r4", ChatID: r.ChatID, Context: r.Context[:2]})
	require.ErrorContains(t, err, "message is empty")
	r.Context = append(r.Context, json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"id":"b","type":"function",`+
		`"function":{"name":"light","arguments":"{}"}}]}`), json.RawMessage(`{"role":"tool","content":"OFF","tool_call_id":"b"}`))
	r.Context[0] = json.RawMessage(`{"role":"user","content":"two words"}`)
	lines, _ = s.stored(t, s.post(t, r).Events)
	require.Contains(t, string(lines[len(lines)-2]), `"ON | OFF"`, "the model is sent no message behind the results")
}

// A run that waits has ended here: it takes no room, and what is done with runs that are over can
// be done with it.
func TestARunThatWaitsHasEndedHere(t *testing.T) {
	s := start(t, apiserver.Config{MaxRuns: 1}, waits())
	events := s.post(t, lights("r1", "one")).Events
	lines, last := s.stored(t, events)
	require.ErrorIs(t, s.Stop(t.Context(), "r1"), api.ErrWaits)
	require.Equal(t, events, s.post(t, lights("r1", "one")).Events, "a late copy of its request starts nothing")
	other := s.post(t, lights("r2", "one")).Events
	s.stored(t, other)
	require.NoError(t, s.Done(t.Context(), "r1", math.MaxInt64))
	_, err := s.PostRun(t.Context(), goesOn("r1", lines[:len(lines)-1], last, "x"))
	require.ErrorIs(t, err, &api.Problem{Code: "bad_request"})

	resume := goesOn("r1", lines, last, "ON")
	all, over := s.stored(t, s.post(t, resume).Events, lines...)
	require.True(t, over.Terminal())
	require.Equal(t, events, s.post(t, resume).Events, "a late copy of what goes on with it starts nothing")
	for name, late := range map[string]api.RunRequest{
		"its request": lights("r1", "one"), "another answer": goesOn("r1", lines, last, "OFF"),
	} {
		_, err := s.PostRun(t.Context(), late)
		require.ErrorIs(t, err, &api.Problem{Code: "run_conflict"}, name)
	}
	require.NoError(t, s.Done(t.Context(), "r1", last.Seq), "said late, of the events before the answer")
	again, _ := s.stored(t, events)
	require.Equal(t, all, again)
	require.NoError(t, s.Done(t.Context(), "r1", math.MaxInt64))

	_, err = s.DeleteChat(t.Context(), memory.MustChat("c1"))
	require.NoError(t, err)
	for _, err := range s.Events(t.Context(), other, 0) {
		require.ErrorIs(t, err, api.ErrUnknownRun)
	}
	s.stored(t, s.post(t, lights("r3", "one")).Events)
	require.NoError(t, s.Drain(t.Context()), "there is nothing to wait for")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, w.Body.String(), `mneme_apiserver_run_seconds_count{outcome="waiting"} 3`)
	require.Contains(t, w.Body.String(), "mneme_apiserver_runs_running 0\n")
}

// A caller that asked to go on and had no answer has the run wait again, and asks once more:
// what began by the first request is stopped, and gives way.
func TestARunGoesOnAlthoughTheAnswerToTheFirstRequestWasLost(t *testing.T) {
	s := start(t, apiserver.Config{}, waits())
	lines, last := s.stored(t, s.post(t, lights("r1", "one two")).Events)
	resume := goesOn("r1", lines, last, "ONE")
	lost := s.post(t, resume)
	resume.Resume.Turn++
	var accepted api.RunAccepted
	require.Eventually(t, func() bool {
		var err error
		accepted, err = s.PostRun(t.Context(), resume)
		var problem *api.Problem
		if err != nil {
			require.ErrorAs(t, err, &problem)
			require.Equal(t, "runs_still_ending", problem.Code)
		}
		return err == nil
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, lost, accepted)
	lines, last = s.stored(t, accepted.Events, lines...)
	require.True(t, last.Blocking(), "the second word")
	_, last = s.stored(t, s.post(t, goesOn("r1", lines, last, "TWO")).Events, lines...)
	require.True(t, last.Terminal())
}

// A run that waited here, and went on elsewhere to where it waits once more, may come back.
func TestARunComesBackToWhereItWaitedFirst(t *testing.T) {
	here, elsewhere := start(t, apiserver.Config{}, waits()), start(t, apiserver.Config{}, waits())
	lines, last := here.stored(t, here.post(t, lights("r1", "one two")).Events)
	lines, last = elsewhere.stored(t, elsewhere.post(t, goesOn("r1", lines, last, "ONE")).Events, lines...)
	require.True(t, last.Blocking())
	_, last = here.stored(t, here.post(t, goesOn("r1", lines, last, "TWO")).Events, lines...)
	require.True(t, last.Terminal())
}

// The gateway is asked to keep the conversation before any client can know that the run waits.
func TestAConversationIsKeptWhileItsRunWaits(t *testing.T) {
	var kept []string
	s := start(t, apiserver.Config{KeepConversation: func(_ context.Context, id string, until time.Time) error {
		kept = append(kept, id)
		require.WithinDuration(t, time.Now().Add(24*time.Hour+10*time.Minute), until, time.Minute)
		return errors.New("away")
	}}, waits())
	_, last := s.stored(t, s.post(t, lights("r1", "one")).Events)
	require.True(t, last.Blocking(), "a gateway that does not agree is in nobody's way")
	require.Equal(t, []string{"conv"}, kept)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, w.Body.String(), "mneme_apiserver_conversations_not_kept_total 1\n")
}

func TestBadResumesAndTools(t *testing.T) {
	s := start(t, apiserver.Config{MaxBody: 1 << 20}, waits())
	lines, last := s.stored(t, s.post(t, lights("r1", "one")).Events)
	resumes := func(change func(*api.RunRequest)) api.RunRequest {
		r := goesOn("r1", lines, last, "x")
		change(&r)
		return r
	}
	tools := func(tools ...api.ClientTool) api.RunRequest {
		r := lights("new", "one")
		r.Tools = tools
		return r
	}
	object := json.RawMessage(`{"type":"object"}`)
	long := lights("new", "one")
	long.User = strings.Repeat("x", 256)
	direct := lights("new", "one")
	direct.AgentVersion = "analytic"
	for name, c := range map[string]struct {
		request api.RunRequest
		code    string
		says    string
	}{
		"no events": {resumes(func(r *api.RunRequest) { r.Resume.Events = nil }), "bad_request", "the events"},
		"no state":  {resumes(func(r *api.RunRequest) { r.Resume.State = nil }), "bad_request", "state"},
		"events of another run": {resumes(func(r *api.RunRequest) { r.RunID = "r9" }), "bad_request",
			"events in resume are not the run's"},
		"a gap": {resumes(func(r *api.RunRequest) { r.Resume.Events = r.Resume.Events[1:] }), "bad_request", "out of order"},
		"no event": {resumes(func(r *api.RunRequest) { r.Resume.Events = []json.RawMessage{object} }), "bad_request",
			"reading an event"},
		"another chat": {resumes(func(r *api.RunRequest) { r.ChatID = memory.MustChat("c2") }), "bad_request",
			"not that of this run"},
		"a state that is none": {resumes(func(r *api.RunRequest) { r.Resume.State = object }), "state_unreadable",
			"another version"},
		"no answer": {resumes(func(r *api.RunRequest) { r.Resume.Answers = nil }), "answers_missing", "1 answers"},
		"a decision that is none": {resumes(func(r *api.RunRequest) { r.Resume.Answers[0].Decision = "yes" }), "bad_request",
			"decision must be"},
		"an answer twice": {resumes(func(r *api.RunRequest) {
			r.Resume.Answers = append(r.Resume.Answers, r.Resume.Answers[0])
		}), "bad_request", "two for"},
		"too large": {resumes(func(r *api.RunRequest) {
			r.Resume.Answers[0].Reason = strings.Repeat("x", 1<<20)
		}), "too_large", "larger than 1048576 bytes"},
		"a tool without a name": {tools(api.ClientTool{Parameters: object}), "bad_request", "tools[0].name"},
		"a tool twice": {tools(api.ClientTool{Name: "a", Parameters: object}, api.ClientTool{Name: "a", Parameters: object}),
			"bad_request", "twice"},
		"a subagent's name":    {tools(api.ClientTool{Name: "analytic", Parameters: object}), "bad_request", "is taken"},
		"a memory tool's name": {tools(api.ClientTool{Name: "remember", Parameters: object}), "bad_request", "is taken"},
		"no schema":            {tools(api.ClientTool{Name: "a"}), "bad_request", "JSON schema of an object"},
		"a schema of a string": {tools(api.ClientTool{Name: "a", Parameters: json.RawMessage(`{"type":"string"}`)}),
			"bad_request", "JSON schema of an object"},
		"a schema that is none": {tools(api.ClientTool{Name: "a",
			Parameters: json.RawMessage(`{"type":"object","properties":3}`)}), "bad_request", "JSON schema of an object"},
		"a schema elsewhere": {tools(api.ClientTool{Name: "a",
			Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"http://x/y"}}}`)}), "bad_request",
			"JSON schema of an object"},
		"too many tools":        {tools(make([]api.ClientTool, 41)...), "bad_request", "at most 40"},
		"tools of a subagent's": {direct, "bad_request", "are for the agent"},
		"a long user":           {long, "bad_request", "user has 256 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.PostRun(t.Context(), c.request)
			var p *api.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, c.code, p.Code, p.Message)
			require.Contains(t, p.Message, c.says)
			require.True(t, strings.HasSuffix(p.Message, "."), p.Message)
		})
	}
	_, over := s.stored(t, s.post(t, goesOn("r1", lines, last, "x")).Events)
	require.True(t, over.Terminal(), "nothing of it was in the way of the run")
	require.False(t, bytes.Contains(lines[len(lines)-1], []byte("state")))
}
