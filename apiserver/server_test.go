package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/access"
	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.IgnoreIdle()) }

// agent is a scripted Agent.
type agent func(ctx context.Context, r master.Request, say func(event.Payload))

func (a agent) Run(ctx context.Context, r master.Request, publish func(event.Event) error) {
	seq := int64(0)
	a(ctx, r, func(p event.Payload) {
		seq++
		if err := publish(event.Event{Head: event.Head{RunID: r.RunID, Seq: seq, TS: 1763711157}, Payload: p}); err != nil {
			panic(err)
		}
	})
}

var done = &event.RunFinished{Outcome: event.Completed}

// echo answers with the message.
var echo = agent(func(_ context.Context, r master.Request, say func(event.Payload)) {
	say(&event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
	say(&event.Assistant{Content: r.Message})
	say(done)
})

// untilStopped says that it has begun and then works until it is told to end.
var untilStopped = agent(func(ctx context.Context, r master.Request, say func(event.Payload)) {
	say(&event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
	<-ctx.Done()
	outcome := event.Stopped
	if why := context.Cause(ctx); !errors.Is(why, subagent.ErrStopped) {
		say(subagent.Describe(why))
		outcome = event.Failed
	}
	say(&event.RunFinished{Outcome: outcome})
})

var subagents = []api.SubagentInfo{{Name: "analytic", Description: "It counts.", Calls: event.Serial}}

// service is a Server behind real HTTP.
type service struct {
	*apiserver.Server
	*api.Client
	url string
	log *logged // of runs it is complete once the server is closed
}

// Events reads a run's events one by one.
func (s service) Events(ctx context.Context, url string, after int64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for batch, err := range s.Batches(ctx, url, after, 1) {
			if !yield(append(batch, event.Event{})[0], err) {
				return
			}
		}
	}
}

// logged keeps log lines. Safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t *testing.T, cfg apiserver.Config, a apiserver.Agent) service {
	t.Helper()
	log := &logged{}
	s := apiserver.New(cfg, a, func() []api.SubagentInfo { return subagents }, zerolog.New(log))
	web := httptest.NewServer(s.Handler())
	c, err := api.NewClient(web.URL, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Close() // a test that cares closes it first
		c.Close()
		web.Close()
	})
	return service{s, c, web.URL, log}
}

func request(id string) api.RunRequest {
	return api.RunRequest{RunID: id, Message: "hello", ChatID: memory.MustChat("c1"), AgentVersion: "master"}
}

// post starts a run that must be accepted.
func (s service) post(t *testing.T, r api.RunRequest) api.RunAccepted {
	t.Helper()
	accepted, err := s.PostRun(t.Context(), r)
	require.NoError(t, err)
	return accepted
}

// roles reads a run to its end.
func (s service) roles(t *testing.T, events string) (roles []string) {
	t.Helper()
	for e, err := range s.Events(t.Context(), events, 0) {
		require.NoError(t, err)
		roles = append(roles, e.Role())
	}
	return roles
}

// begun waits for a run's first event.
func (s service) begun(t *testing.T, events string) {
	t.Helper()
	for _, err := range s.Events(t.Context(), events, 0) {
		require.NoError(t, err)
		return
	}
}

func TestARunFromPostToDone(t *testing.T) {
	var got master.Request
	s := start(t, apiserver.Config{}, agent(func(ctx context.Context, r master.Request, say func(event.Payload)) {
		got = r
		echo(ctx, r, say)
	}))
	r := request("r1")
	r.ConversationID = "conv"
	r.Context = []json.RawMessage{json.RawMessage(`{"role":"user","content":"before","timestamp":1}`)}
	r.SubagentContexts = map[memory.Agent][]json.RawMessage{
		"analytic": {json.RawMessage(`{"role":"user","content":"task","timestamp":2}`)},
	}
	accepted := s.post(t, r)
	require.Equal(t, api.RunAccepted{RunID: "r1", Events: s.url + "/v1/runs/r1/events"}, accepted)
	require.Equal(t, []string{"run_started", "assistant", "run_finished"}, s.roles(t, accepted.Events))
	require.Equal(t, master.Request{
		RunID: "r1", Chat: memory.MustChat("c1"), Message: "hello", AgentVersion: "master", Conversation: "conv",
		Context:   []memory.Message{{Role: "user", Content: "before", Timestamp: 1}},
		Subagents: map[memory.Agent][]memory.Message{"analytic": {{Role: "user", Content: "task", Timestamp: 2}}},
	}, got)

	for range s.Events(t.Context(), accepted.Events, 3) {
		t.Fatal("nothing is new")
	}
	require.NoError(t, s.Done(t.Context(), "r1", math.MaxInt64))
	require.NoError(t, s.Done(t.Context(), "r1", math.MaxInt64), "done may be said twice")
	for _, err := range s.Events(t.Context(), accepted.Events, 0) {
		require.ErrorIs(t, err, api.ErrGone)
	}
	require.Equal(t, accepted, s.post(t, r), "a late copy of the request starts nothing")
}

func TestTheSameRunIDAgain(t *testing.T) {
	var runs sync.Map
	s := start(t, apiserver.Config{Advertise: "http://me:1/"},
		agent(func(ctx context.Context, r master.Request, say func(event.Payload)) {
			if _, twice := runs.LoadOrStore(r.RunID, true); twice {
				t.Errorf("run %s ran twice", r.RunID)
			}
			echo(ctx, r, say)
		}))
	var posting sync.WaitGroup
	for range 20 {
		posting.Go(func() {
			accepted, err := s.PostRun(t.Context(), request("r1"))
			if err != nil || accepted.Events != "http://me:1/v1/runs/r1/events" {
				t.Errorf("%v, %v", accepted, err)
			}
		})
	}
	posting.Wait()
	spaced, err := http.Post(s.url+"/v1/runs", "application/json", //nolint:noctx // a plain client
		strings.NewReader(`{ "chat_id": "c1", "message": "hello", "run_id": "r1" }`))
	require.NoError(t, err)
	defer spaced.Body.Close()
	require.Equal(t, http.StatusAccepted, spaced.StatusCode, "the layout of the JSON makes no other request")

	other := request("r1")
	other.Message = "something else"
	_, err = s.PostRun(t.Context(), other)
	require.ErrorIs(t, err, &api.Problem{Code: "run_conflict"})
	http.DefaultClient.CloseIdleConnections()
}

func TestBadInput(t *testing.T) {
	s := start(t, apiserver.Config{MaxBody: 4 << 20}, echo)
	run := func(field string) string { return `{"run_id":"r","chat_id":"c","message":"m",` + field + `}` }
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code                     string
	}{
		{"no JSON", "POST", "/v1/runs", `{`, 400, "bad_request"},
		{"a wrong type", "POST", "/v1/runs", `{"run_id":1}`, 400, "bad_request"},
		{"no message", "POST", "/v1/runs", `{"run_id":"r","chat_id":"c"}`, 400, "bad_request"},
		{"no chat", "POST", "/v1/runs", `{"run_id":"r","message":"m"}`, 400, "bad_request"},
		{"a bad chat", "POST", "/v1/runs", `{"run_id":"r","message":"m","chat_id":1e3}`, 400, "bad_request"},
		{"a message too long", "POST", "/v1/runs", `{"run_id":"r","chat_id":"c","message":"` + strings.Repeat("x", 1<<20+1) +
			`"}`, 413, "too_large"},
		{"a body too long", "POST", "/v1/runs", `"` + strings.Repeat("x", 4<<20) + `"`, 413, "too_large"},
		{"instructions too long", "POST", "/v1/runs", run(`"instructions":"` + strings.Repeat("x", 64<<10+1) + `"`), 413,
			"too_large"},
		{"metadata too long", "POST", "/v1/runs", run(`"metadata":{"` + strings.Repeat("x", 65) + `":""}`), 400, "bad_request"},
		{"bare, with a subagent", "POST", "/v1/runs", run(`"bare":true,"agent_version":"analytic"`), 400, "bad_request"},
		{"an unknown agent", "POST", "/v1/runs", run(`"agent_version":"nobody"`), 400, "unknown_agent"},
		{"a context that is none", "POST", "/v1/runs", run(`"context":[{"content":"x"}]`), 400, "bad_request"},
		{"a subagent's context that is none", "POST", "/v1/runs", run(`"subagent_contexts":{"analytic":[1]}`), 400,
			"bad_request"},
		{"events of no run", "GET", "/v1/runs/none/events", "", 404, "unknown_run"},
		{"stop of no run", "POST", "/v1/runs/none/stop", "", 404, "unknown_run"},
		{"done of no run", "DELETE", "/v1/runs/none", "", 404, "unknown_run"},
		{"a chat that is none", "DELETE", "/v1/chats/a%20b", "", 400, "bad_request"},
		{"no such route", "GET", "/v2/runs", "", 404, "not_found"},
		{"a slash too many", "POST", "/v1/runs/", "", 404, "not_found"},
		{"a wrong method", "GET", "/v1/runs", "", 405, "method_not_allowed"},
		{"a wrong method on events", "PUT", "/v1/runs/r/events", "", 405, "method_not_allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
			require.Equal(t, c.status, w.Code, w.Body)
			p := api.ReadProblem(w.Result())
			require.Equal(t, c.code, p.Code)
			require.True(t, strings.HasSuffix(p.Message, "."), p.Message)
		})
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("PUT", "/v1/runs", nil))
	require.Equal(t, "POST", w.Header().Get("Allow"))
}

func TestADirectTalkNamesItsSubagent(t *testing.T) {
	s := start(t, apiserver.Config{}, echo)
	r := request("r1")
	r.AgentVersion = "analytic"
	for e, err := range s.Events(t.Context(), s.post(t, r).Events, 0) {
		require.NoError(t, err)
		if started, ok := e.Payload.(*event.RunStarted); ok {
			require.Equal(t, "analytic", started.AgentVersion)
		}
	}
	listed, err := http.Get(s.url + "/v1/subagents") //nolint:noctx // a plain client
	require.NoError(t, err)
	defer listed.Body.Close()
	var list api.SubagentList
	require.NoError(t, json.NewDecoder(listed.Body).Decode(&list))
	require.Equal(t, subagents, list.Subagents)
}

func TestStop(t *testing.T) {
	s := start(t, apiserver.Config{}, untilStopped)
	accepted := s.post(t, request("r1"))
	s.begun(t, accepted.Events)
	require.ErrorIs(t, s.Done(t.Context(), "r1", math.MaxInt64), &api.Problem{Code: "run_not_over"})
	require.NoError(t, s.Stop(t.Context(), "r1"))
	require.Equal(t, []string{"run_started", "run_finished"}, s.roles(t, accepted.Events),
		"stopped by the user is no error")
	require.NoError(t, s.Stop(t.Context(), "r1"))
}

func TestTheLimitOfRunningRuns(t *testing.T) {
	testtier.Slow(t)
	s := start(t, apiserver.Config{MaxRuns: 1}, untilStopped)
	first := s.post(t, request("r1"))
	_, err := s.PostRun(t.Context(), request("r2"))
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, 503, p.Status)
	require.True(t, p.Retryable)
	require.Positive(t, p.RetryAfter)
	require.Equal(t, first, s.post(t, request("r1")), "the running run is still found")
	require.NoError(t, s.Stop(t.Context(), "r1"))
	s.roles(t, first.Events)
	require.NoError(t, s.Done(t.Context(), "r1", math.MaxInt64)) // returns once the run has left
	s.post(t, request("r2"))
}

func TestErasingAChatEndsItsRunsAndNoOthers(t *testing.T) {
	s := start(t, apiserver.Config{}, untilStopped)
	mine, other := s.post(t, request("r1")), request("r2")
	other.ChatID = memory.MustChat("c2")
	theirs := s.post(t, other)
	s.begun(t, mine.Events)
	_, err := s.DeleteChat(t.Context(), memory.MustChat("c1"))
	require.NoError(t, err)
	for _, err := range s.Events(t.Context(), mine.Events, 0) {
		require.ErrorIs(t, err, api.ErrUnknownRun)
	}
	s.begun(t, theirs.Events)
	_, err = s.DeleteChat(t.Context(), memory.MustChat("never:seen@here"))
	require.NoError(t, err)
	require.NoError(t, s.DeleteRuns(t.Context(), memory.MustChat("c2")))
	for _, err := range s.Events(t.Context(), theirs.Events, 0) {
		require.ErrorIs(t, err, api.ErrUnknownRun)
	}
	require.NoError(t, s.DeleteRuns(t.Context(), memory.MustChat("never:seen@here")))
}

func TestAPanicEndsTheRunAndNotTheServer(t *testing.T) {
	const secret = "what the user said"
	s := start(t, apiserver.Config{}, agent(func(_ context.Context, r master.Request, say func(event.Payload)) {
		say(&event.RunStarted{ChatID: r.Chat, Message: r.Message})
		say(&event.Delegation{Task: secret, Calls: event.Serial})
		panic(secret)
	}))
	r := request("r1")
	r.Message = secret
	accepted := s.post(t, r)
	require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_completion", "error", "run_finished"},
		s.roles(t, accepted.Events))
	require.NoError(t, s.Server.Close())
	require.Contains(t, s.log.String(), "a run panicked")
	require.Contains(t, s.log.String(), "server_test.go", "the stack is there")
	require.NotContains(t, s.log.String(), secret)
}

func TestAnAgentThatForgetsTheEndOrOverfillsTheLog(t *testing.T) {
	for name, a := range map[string]agent{
		"forgets": func(_ context.Context, r master.Request, say func(event.Payload)) {
			say(&event.RunStarted{ChatID: r.Chat})
		},
		"overfills": func(_ context.Context, r master.Request, say func(event.Payload)) {
			for {
				say(&event.RunStarted{ChatID: r.Chat})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, apiserver.Config{Log: api.Limits{Events: 1}}, a)
			require.Equal(t, []string{"run_started", "error", "run_finished"}, s.roles(t, s.post(t, request("r1")).Events))
		})
	}
}

func TestDrainLetsRunsEndAndRefusesNewOnes(t *testing.T) {
	release := make(chan struct{})
	s := start(t, apiserver.Config{}, agent(func(ctx context.Context, r master.Request, say func(event.Payload)) {
		<-release
		echo(ctx, r, say)
	}))
	accepted := s.post(t, request("r1"))
	drained := make(chan error)
	go func() { drained <- s.Drain(context.Background()) }()
	ready := func() (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	require.Eventually(t, func() bool { code, _ := ready(); return code == 503 }, time.Minute, time.Millisecond)
	_, why := ready()
	require.JSONEq(t, `{"status":"draining","reasons":["The server is shutting down and takes no new runs."]}`, why)
	_, err := s.PostRun(t.Context(), request("r2"))
	require.ErrorIs(t, err, &api.Problem{Code: "draining"})
	require.Equal(t, accepted, s.post(t, request("r1")), "a run that is there is still found")
	close(release)
	require.NoError(t, <-drained)
	require.Equal(t, []string{"run_started", "assistant", "run_finished"}, s.roles(t, accepted.Events))
}

func TestDrainStopsWhatDoesNotEndInTime(t *testing.T) {
	s := start(t, apiserver.Config{}, untilStopped)
	accepted := s.post(t, request("r1"))
	s.begun(t, accepted.Events)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Drain(ctx))
	require.Equal(t, []string{"run_started", "error", "run_finished"}, s.roles(t, accepted.Events))
}

func TestAnAgentThatDoesNotListenDoesNotHoldUpTheEnd(t *testing.T) {
	release := make(chan struct{})
	s := start(t, apiserver.Config{StopGrace: time.Millisecond},
		agent(func(ctx context.Context, r master.Request, say func(event.Payload)) {
			<-release
			echo(ctx, r, say)
		}))
	s.post(t, request("r1"))
	_, err := s.DeleteChat(t.Context(), memory.MustChat("c1"))
	require.ErrorIs(t, err, &api.Problem{Code: "runs_still_ending"})
	require.Error(t, s.Server.Close())
	close(release)
}

func TestManyRunsManyFollowers(t *testing.T) {
	const runs, followers, deltas = 50, 4, 30
	s := start(t, apiserver.Config{}, agent(func(_ context.Context, r master.Request, say func(event.Payload)) {
		say(&event.RunStarted{ChatID: r.Chat, Message: r.Message})
		for i := range deltas {
			say(&event.AssistantDelta{Text: fmt.Sprint(i)})
		}
		say(done)
	}))
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			id := fmt.Sprintf("r%d", i)
			accepted, err := s.PostRun(t.Context(), request(id))
			if err != nil {
				t.Error(err)
				return
			}
			for after := range int64(followers) {
				all.Go(func() {
					next := int64(0)
					if after > 0 { // its events are there for sure only once it was followed
						for range s.Events(t.Context(), accepted.Events, 0) {
						}
						next = after
					}
					for e, err := range s.Events(t.Context(), accepted.Events, next) {
						if next++; err != nil || e.Seq != next || e.RunID != id {
							t.Errorf("run %s: event %d of %s, %v; want %d", id, e.Seq, e.RunID, err, next)
							return
						}
					}
					if next != deltas+2 {
						t.Errorf("run %s ended after event %d", id, next)
					}
				})
			}
		})
	}
	all.Wait()
}

// cutting is a transport that breaks every event stream after some bytes.
type cutting struct{ http.RoundTripper }

func (c cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil && resp.Header.Get("Content-Type") == "text/event-stream" {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(resp.Body, 500), brokenWire{}), resp.Body}
	}
	return resp, err
}

type brokenWire struct{}

func (brokenWire) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAReaderThatIsCutAgainAndAgainMissesNothing(t *testing.T) {
	s := start(t, apiserver.Config{}, agent(func(_ context.Context, r master.Request, say func(event.Payload)) {
		say(&event.RunStarted{ChatID: r.Chat, Message: r.Message})
		for range 20 {
			say(&event.AssistantDelta{Text: "piece"})
		}
		say(done)
	}))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	shaky, err := api.NewClient(s.url, &http.Client{Transport: cutting{transport}})
	require.NoError(t, err)
	events := s.post(t, request("r1")).Events
	last, cuts := int64(0), 0
	for over := false; !over; {
		over = true
		for e, err := range (service{Client: shaky}).Events(t.Context(), events, last) {
			if err != nil {
				require.ErrorIs(t, err, api.ErrCut)
				cuts++
				over = false
				break
			}
			require.Equal(t, last+1, e.Seq)
			last = e.Seq
		}
	}
	require.EqualValues(t, 22, last)
	require.Positive(t, cuts)
}

func TestHealthAndMetrics(t *testing.T) {
	s := start(t, apiserver.Config{}, echo)
	s.roles(t, s.post(t, request("r1")).Events)
	require.NoError(t, s.Done(t.Context(), "r1", math.MaxInt64))
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`} {
		code, body := get(path)
		require.Equal(t, 200, code)
		require.JSONEq(t, want, body)
	}
	_, metrics := get("/metrics")
	for _, line := range []string{
		"mneme_apiserver_runs_started_total 1\n", `mneme_apiserver_run_seconds_count{outcome="completed"} 1` + "\n",
		"mneme_apiserver_runs_running 0\n", "mneme_apiserver_finished_bytes 0\n",
	} {
		require.Contains(t, metrics, line)
	}
}

// A caller that gave up waiting has told its client that nothing was done.
func TestARunWhoseCallerGaveUpDoesNotBegin(t *testing.T) {
	ran := make(chan string, 2)
	s := start(t, apiserver.Config{}, agent(func(ctx context.Context, r master.Request, say func(event.Payload)) {
		ran <- r.RunID
		echo(ctx, r, say)
	}))
	asked := func(id string, ctx context.Context) int {
		body, err := json.Marshal(request(id))
		require.NoError(t, err)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/runs", bytes.NewReader(body)))
		return w.Code
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.Equal(t, http.StatusServiceUnavailable, asked("r1", gone))
	require.Equal(t, http.StatusAccepted, asked("r2", t.Context()))
	require.Equal(t, "r2", <-ran)
	require.Equal(t, http.StatusAccepted, asked("r1", t.Context()), "asked again it begins")
	require.Equal(t, "r1", <-ran)
}

// A tenant that has as many runs as it may is refused; another one's run begins all the same.
func TestATenantDoesNotTakeAllRuns(t *testing.T) {
	testtier.Slow(t)
	s := start(t, apiserver.Config{MaxRuns: 4, Gate: &access.Gate{Secret: "secret"}}, untilStopped)
	asked := func(tenant, id string) int {
		body, err := json.Marshal(request(id))
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/runs", bytes.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Mneme-Internal-Secret", "secret")
		r.Header.Set("Mneme-Tenant", tenant)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	for _, id := range []string{"a1", "a2", "a3"} {
		require.Equal(t, http.StatusAccepted, asked("a", id))
	}
	require.Equal(t, http.StatusServiceUnavailable, asked("a", "a4"))
	require.Equal(t, http.StatusAccepted, asked("b", "b1"))
	require.Equal(t, http.StatusAccepted, asked("a", "a3"), "which goes on already")
}
