package webmemory_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/stack"
	"mneme/internal/testtier"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/cold"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/webmemory"
)

// shortLease makes the time after which a dead holder is replaced bearable. A living
// one must be able to renew it on a busy machine: two thirds of it without doing so
// are a lost turn.
const shortLease = 4 * time.Second

func lease(c *webmemory.Config) { c.Lease = shortLease }

// childKey holds a child's settings; a test binary that finds it is a webmemory.
const childKey = "MNEME_TEST_CHILD"

type childSettings struct {
	Redis, Apiserver, Spool, Ends, Listen string
	Data                                  string   // folder for all that a process keeps; the others are in it then
	Sentinels                             []string // in the place of Redis
	Lease                                 time.Duration
	Cold                                  string // folder in which idle chats sleep, "" for none
}

// connect is a client that gives up soon.
func (c childSettings) connect() redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: []string{c.Redis}, ContextTimeoutEnabled: true, MaxRetries: 1, DialTimeout: time.Second, DialerRetries: 1,
	}
	if c.Sentinels != nil {
		o.Addrs, o.MasterName = c.Sentinels, redistest.MasterName
	}
	return redis.NewUniversalClient(o)
}

func TestMain(m *testing.M) {
	if settings := os.Getenv(childKey); settings != "" {
		beWebmemory(settings)
		return
	}
	os.Exit(m.Run())
}

// beWebmemory is a whole process with one webmemory, which serves until it is killed.
func beWebmemory(settings string) {
	var c childSettings
	must(json.Unmarshal([]byte(settings), &c))
	runs, err := api.NewClient(c.Apiserver, nil)
	must(err)
	store := redisstore.New(c.connect(), zerolog.Nop())
	cfg := webmemory.Config{Agents: agentNames, Lease: cmp.Or(c.Lease, shortLease),
		Ends: c.Ends}
	if c.Cold != "" {
		sleepy(cold.Folder(c.Cold), 10*time.Millisecond)(&cfg)
		cfg.MaxHistory = 4
	}
	if c.Data != "" {
		c.Spool, cfg.Ends, cfg.SessionLogs = filepath.Join(c.Data, "spool"), filepath.Join(c.Data, "ends"),
			filepath.Join(c.Data, "logs")
		cfg.Erasures, err = erasures.Open(filepath.Join(c.Data, "erasures.ndjson"))
		must(err)
	}
	appends, err := spool.Open(c.Spool, spool.Options{}, zerolog.Nop())
	must(err)
	l, err := listen(c.Listen)
	must(err)
	cfg.Advertise = "http://" + l.Addr().String()
	cfg.SelfURL = cfg.Advertise
	server := webmemory.New(cfg, store, cache.New(store, 1<<20), appends, runs,
		zerolog.New(os.Stderr).Level(zerolog.ErrorLevel))
	must(http.Serve(l, server.Handler()))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child starts one more webmemory as a process of its own.
func (w *world) child() (url string, process *stack.Process) { return w.childOn(w.spools) }

// childOn is child with a disk of its own.
func (w *world) childOn(spools string) (url string, process *stack.Process) {
	w.t.Helper()
	s := w.settings()
	s.Spool = spools
	return w.start(s)
}

// start starts one more webmemory as a process of its own.
func (w *world) start(s childSettings) (url string, process *stack.Process) {
	w.t.Helper()
	if testing.Short() {
		w.t.Skip("runs webmemory as a process of its own")
	}
	s.Listen = freeport.Addr(w.t)
	settings, err := json.Marshal(s)
	require.NoError(w.t, err)
	p := &stack.Process{Name: "webmemory", Args: []string{os.Args[0]}, Env: []string{childKey + "=" + string(settings)},
		Log: "/dev/stderr", Ready: func() error {
			conn, err := net.Dial("tcp", s.Listen)
			if err == nil {
				err = conn.Close()
			}
			return err
		}}
	w.t.Cleanup(func() { p.Kill() })
	require.NoError(w.t, p.Start())
	require.NoError(w.t, p.Await(time.Minute))
	return "http://" + s.Listen, p
}

// pause stops a process, and waits until it stands: a signal is not there at once.
func pause(t *testing.T, process *stack.Process) {
	t.Helper()
	process.Signal(syscall.SIGSTOP)
	eventually(t, "the process stands", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid()))
		require.NoError(t, err)
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "T")
	})
}

// on does something with another process as the one that is asked.
func (w *world) on(url string, f func()) {
	before := w.url
	w.url = url
	defer func() { w.url = before }()
	f()
}

// script is an agent with events that come one at a time, each when it is let.
type script struct {
	mu    sync.Mutex
	gates map[memory.Chat]chan struct{} // one token per event
}

func newScript() *script { return &script{gates: map[memory.Chat]chan struct{}{}} }

func (s *script) gate(chat memory.Chat) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[chat] == nil {
		s.gates[chat] = make(chan struct{}, 100)
	}
	return s.gates[chat]
}

// let allows n more events of a chat's runs.
func (s *script) let(chat memory.Chat, n int) {
	for range n {
		s.gate(chat) <- struct{}{}
	}
}

// scriptEvents is how many events a scripted run has.
const scriptEvents = 9

func (s *script) agent(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
	of := event.Head{Subagent: "analytic", CallID: r.RunID + "-1"}
	call := memory.ToolCall{ID: "t1", Type: "function", Function: memory.FunctionCall{Name: "calculator", Arguments: "{}"}}
	events := []struct {
		head event.Head
		p    event.Payload
	}{
		{event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message, Images: r.Sent}},
		{of, &event.Delegation{Task: "task of " + r.Message, Calls: event.Serial}},
		{of, &event.AssistantWithTools{Content: "", ToolCalls: []memory.ToolCall{call}}},
		{of, &event.ToolProgress{Tool: "calculator", Status: "running"}},
		{of, &event.ToolResult{ToolCallID: "t1", Name: "calculator", Content: "42"}},
		{of, &event.Completion{Response: "it is 42", Status: event.Completed}},
		{event.Head{}, &event.AssistantDelta{Text: "42"}},
		{event.Head{}, &event.Assistant{Content: "answer to " + r.Message}},
		{event.Head{}, &event.RunFinished{Outcome: event.Completed}},
	}
	for _, e := range events {
		select {
		case <-s.gate(r.Chat):
			emit(e.head, e.p)
		case <-ctx.Done():
			emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
			return
		}
	}
}

// lost is what stands for the answer of a run that was closed for a dead process.
const lost = "assistant: (no answer: run_lost)"

// whole is what a scripted run leaves in both histories.
func whole(message string) (chat, analytic []string) {
	return []string{"user: " + message, "assistant: answer to " + message},
		[]string{"user: task of " + message, "assistant: ", "tool: 42", "assistant: it is 42"}
}

// One process is killed while chats stand at every boundary between two events;
// another one brings every run to its end, also of chats that no client writes to again.
func TestAKilledProcessIsReplacedAtEveryEvent(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	other, process := w.child()
	streams := map[int]*transcript{}
	for n := range scriptEvents {
		chat := fmt.Sprintf("at%d", n)
		s.let(memory.MustChat(chat), max(n, 1))
		w.on(other, func() {
			tr := w.open("POST", "/v1/chats/"+chat+"/messages", message{"hi"}, "Idempotency-Key", "k")
			for range n {
				_, _, ok := tr.next()
				require.True(t, ok)
			}
			streams[n] = tr
		})
	}
	process.Kill()
	chatWant, analyticWant := whole("hi")
	for n, tr := range streams {
		chat := fmt.Sprintf("at%d", n)
		s.let(memory.MustChat(chat), scriptEvents-max(n, 1))
		// The client comes back to the process that is left and gets exactly what it misses.
		again := w.open("GET", "/v1/chats/"+chat+"/runs/"+tr.resp.Header.Get("Mneme-Run-Id")+"/events", nil, "Last-Event-ID",
			or(tr.id, "0"))
		require.Len(t, again.roles(), scriptEvents-n, "after %d events", n)
		eventually(t, "the run is over", func() bool {
			return errors.Is(w.look.ZScore(context.Background(), "turns:open", chat).Err(), redis.Nil)
		})
		require.Equal(t, chatWant, w.stored("chat_history:"+chat))
		require.Equal(t, analyticWant, w.stored("subagent:analytic:"+chat))
		// A repeated post finds its run, in a process that never had it.
		repeated := w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi"}, "Idempotency-Key", "k")
		require.Equal(t, 200, repeated.status, string(repeated.body))
		require.Contains(t, string(repeated.body), "answer to hi")
		require.Equal(t, chatWant, w.stored("chat_history:"+chat))
	}
	require.Contains(t, string(w.do("GET", "/metrics", nil).body), fmt.Sprintf("mneme_takeovers_total %d", scriptEvents))
}

// A process dies with a message in its spool that Redis has taken after all. The one that takes over a run of the chat
// meets it while a subagent of that run has an open task: the task is not the late message's, and is not closed for it.
func TestAMessageThatComesLateClosesNoTaskOfAnotherRun(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	chat, key := memory.MustChat("1"), memory.SubagentKey("analytic", memory.MustChat("1"))
	urls, data, processes := w.disks(2)
	w.shutdown[w.url]() // so that no other takes over
	s.let(chat, scriptEvents)
	var open *transcript
	w.on(urls[0], func() {
		require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"first"}).status)
		s.let(chat, 2)
		open = w.open("POST", "/v1/chats/1/messages", message{"second"})
		open.until("subagent_delegation")
	})
	eventually(t, "the task is stored", func() bool { return len(w.stored(key.String())) == 5 })
	processes[1].Kill()
	left, err := spool.Open(filepath.Join(data[1], "spool"), spool.Options{}, logger())
	require.NoError(t, err)
	var raw []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(w.look.Get(t.Context(), key.String()).Val()), &raw))
	run, seq, _ := memory.SplitID(memory.IDs(raw)[3])
	require.NoError(t, left.Add(spool.Entry{Queue: spool.History(key), Bytes: raw[3],
		Mark: memory.Mark{Run: run, Seq: seq, Turn: time.Now().UnixMilli() - 1}}))
	require.NoError(t, left.Close())
	processes[0].Kill()
	url, _ := w.start(processes[1].settings)
	s.let(chat, scriptEvents)
	w.on(url, func() {
		again := w.open("GET", "/v1/chats/1/runs/"+open.resp.Header.Get("Mneme-Run-Id")+"/events", nil)
		again.until("run_finished")
	})
	_, first := whole("first")
	_, second := whole("second")
	require.Equal(t, append(first, second...), w.stored(key.String()))
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// A process that was stopped past its lease and goes on must not write into any
// history of the chat, also not into one that the new turn has not touched.
func TestAPausedProcessWritesNothing(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	other, process := w.child()
	s.let(memory.MustChat("1"), 1)
	var paused *transcript
	w.on(other, func() {
		paused = w.open("POST", "/v1/chats/1/messages", message{"hi"})
		paused.until("run_started")
	})
	pause(t, process)
	s.let(memory.MustChat("1"), scriptEvents-1)
	eventually(t, "the run is finished by the other process", func() bool { return len(w.stored("chat_history:1")) == 2 })
	s.let(memory.MustChat("1"), scriptEvents)
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"again"}).status)
	chat, analytic := w.stored("chat_history:1"), w.stored("subagent:analytic:1")
	process.Signal(syscall.SIGCONT)
	last := ""
	for role, _, ok := paused.next(); ok; role, _, ok = paused.next() {
		last = role
		require.NotEqual(t, "run_finished", role)
	}
	require.Equal(t, "error", last, "the client is told to look elsewhere")
	require.Empty(t, paused.id, "by a frame that is no event of the run")
	require.Equal(t, chat, w.stored("chat_history:1"))
	require.Equal(t, analytic, w.stored("subagent:analytic:1"))
	wantChat, wantAnalytic := whole("hi")
	moreChat, moreAnalytic := whole("again")
	require.Equal(t, append(wantChat, moreChat...), chat)
	require.Equal(t, append(wantAnalytic, moreAnalytic...), analytic)
}

// Erasure while a paused process has a run: nothing of it comes back.
func TestErasureBeatsAPausedProcess(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	other, process := w.child()
	s.let(memory.MustChat("1"), 2)
	var paused *transcript
	w.on(other, func() {
		paused = w.open("POST", "/v1/chats/1/messages", message{"secret"})
		paused.until("subagent_delegation")
	})
	pause(t, process)
	got := w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.status, string(got.body))
	process.Signal(syscall.SIGCONT)
	s.let(memory.MustChat("1"), scriptEvents)
	paused.roles()
	require.Nil(t, w.stored("chat_history:1"))
	require.Nil(t, w.stored("subagent:analytic:1"))
	for _, key := range w.look.Keys(context.Background(), "*").Val() {
		require.NotContains(t, w.look.Dump(context.Background(), key).Val(), "secret", key)
	}
}

// Both the apiserver and the holder die: the run is closed with what was stored and
// shown.
func TestBothDie(t *testing.T) {
	t.Parallel()
	task := []string{"user: task of hi", "assistant: ", "tool: 42"}
	for name, test := range map[string]struct {
		events         int
		closed         []string
		chat, analytic []string
	}{
		"inside a delegation": {5, []string{"subagent_completion", "error", "run_finished"}, []string{
			"user: hi", lost,
		}, append(task, lost)},
		"while the answer is shown": {7, []string{"assistant", "error", "run_finished"}, []string{
			"user: hi", "assistant: 42",
		}, append(task, "assistant: it is 42")},
		"before it is said that the run is over": {
			8, []string{"run_finished"}, []string{"user: hi", "assistant: answer to hi"}, append(task, "assistant: it is 42"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			w := newWorld(t, s.agent, lease)
			other, process := w.child()
			s.let(memory.MustChat("1"), test.events)
			var run string
			w.on(other, func() {
				tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
				for range test.events {
					_, _, ok := tr.next()
					require.True(t, ok)
				}
				run = tr.resp.Header.Get("Mneme-Run-Id")
			})
			ctx := context.Background()
			open := w.look.HGet(ctx, "{chat_history:1}:meta", "open").Val()
			require.NotEmpty(t, open)
			w.loseApiserver()
			process.Kill()
			tr := w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", fmt.Sprint(test.events))
			require.Equal(t, test.closed, tr.roles())
			look := func() {
				require.Equal(t, test.analytic, w.stored("subagent:analytic:1"))
				require.Equal(t, test.chat, w.stored("chat_history:1"))
			}
			look()

			// As if the process that closed the run had died before it could note that.
			over := func() bool { return errors.Is(w.look.ZScore(ctx, "turns:open", "1").Err(), redis.Nil) }
			eventually(t, "the run is over", over)
			require.NoError(t, w.look.HSet(ctx, "{chat_history:1}:meta", "open", open).Err())
			require.NoError(t, w.look.ZAdd(ctx, "turns:open", redis.Z{Score: 1, Member: "1"}).Err())
			eventually(t, "the run is over again", over)
			look()
		})
	}
}

// While Redis is away a run goes on; what it acknowledged is in Redis afterwards,
// in its order.
func TestRedisAwayDuringARun(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	for name, away := range map[string]time.Duration{"for a moment": 0, "for longer than the lease": shortLease +
		shortLease/2} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			w := newWorldOver(t, s.agent, []string{"--appendonly", "yes", "--appendfsync", "always"}, lease)
			s.let(memory.MustChat("1"), 2)
			tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
			tr.until("subagent_delegation")
			w.redis.Kill()
			s.let(memory.MustChat("1"), 4)
			tr.until("subagent_completion")
			refused := w.do("POST", "/v1/chats/2/messages", message{"hi"})
			require.Equal(t, 503, refused.status)
			stale := w.do("GET", "/v1/chats/1/history", nil)
			require.Equal(t, 200, stale.status)
			require.Contains(t, string(stale.body), `"stale":true`)
			<-time.After(away)
			require.NoError(t, w.redis.Run())
			s.let(memory.MustChat("1"), scriptEvents)
			require.Equal(t, []string{"assistant_delta", "assistant", "run_finished"}, tr.roles())
			chat, analytic := whole("hi")
			eventually(t, "everything is in Redis", func() bool {
				return len(w.stored("chat_history:1")) == len(chat) && len(w.stored("subagent:analytic:1")) == len(analytic)
			})
			require.Equal(t, chat, w.stored("chat_history:1"))
			require.Equal(t, analytic, w.stored("subagent:analytic:1"))
			eventually(t, "the next message is taken", func() bool {
				s.let(memory.MustChat("1"), scriptEvents)
				return w.do("POST", "/v1/chats/1/messages", message{"again"}).status == 200
			})
		})
	}
}

// deadSpool leaves a chat with acknowledged events that lie in Redis up to the
// delegation, and from there to the completion in the spool of a process that was killed;
// own says whether that is on a disk of its own. Redis is back, the apiserver knows
// nothing any more.
func deadSpool(t *testing.T, own bool) (w *world, spools, run string) {
	s := newScript()
	w = newWorldOver(t, s.agent, []string{"--appendonly", "yes", "--appendfsync", "always"}, lease)
	if spools = w.spools; own {
		spools = t.TempDir()
	}
	other, process := w.childOn(spools)
	s.let(memory.MustChat("1"), 2)
	w.on(other, func() {
		tr := w.open("POST", "/v1/chats/1/messages", message{"secret"})
		run = tr.resp.Header.Get("Mneme-Run-Id")
		tr.until("subagent_delegation")
		w.redis.Kill()
		s.let(memory.MustChat("1"), 4)
		tr.until("subagent_completion")
	})
	process.Kill()
	w.putApiserver(http.NotFoundHandler())
	w.api.CloseClientConnections()
	require.NoError(t, w.redis.Run())
	return w, spools, run
}

// A run with events that were shown while Redis was away is closed behind them, by the
// process that finds the dead one's spool: no event's id means two things.
func TestARunIsClosedBehindWhatWasShown(t *testing.T) {
	t.Parallel()
	w, _, run := deadSpool(t, false)
	events := "/v1/chats/1/runs/" + run + "/events"
	require.Equal(t, []string{"error", "run_finished"}, w.open("GET", events, nil, "Last-Event-ID", "6").roles())
	all := w.open("GET", events, nil).roles()
	require.Equal(t, []string{
		"run_started", "subagent_delegation", "subagent_assistant_with_tools", "subagent_tool", "subagent_tool_result",
		"subagent_completion", "error", "run_finished",
	}, all)
	chat, analytic := whole("secret")
	require.Equal(t, []string{chat[0], lost}, w.stored("chat_history:1"))
	require.Equal(t, analytic, w.stored("subagent:analytic:1"))
	require.Contains(t, string(w.do("GET", "/metrics", nil).body), "mneme_spool_bytes 0")
}

// The same while the process that has shown the events lives, with its spool.
func TestARunIsClosedBehindWhatALivingProcessHasShown(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorldOver(t, s.agent, []string{"--appendonly", "yes", "--appendfsync", "always"}, lease)
	other, process := w.child()
	s.let(memory.MustChat("1"), 2)
	var run string
	w.on(other, func() {
		tr := w.open("POST", "/v1/chats/1/messages", message{"secret"})
		run = tr.resp.Header.Get("Mneme-Run-Id")
		tr.until("subagent_delegation")
		w.redis.Kill()
		s.let(memory.MustChat("1"), 4)
		tr.until("subagent_completion")
	})
	pause(t, process)
	w.putApiserver(http.NotFoundHandler())
	w.api.CloseClientConnections()
	require.NoError(t, w.redis.Run())
	events := "/v1/chats/1/runs/" + run + "/events"
	require.Equal(t, []string{"error", "run_finished"}, w.open("GET", events, nil, "Last-Event-ID", "6").roles())
	process.Signal(syscall.SIGCONT)
	chat, analytic := whole("secret")
	w.on(other, func() {
		eventually(t, "its spool is drained", func() bool {
			return strings.Contains(string(w.do("GET", "/metrics", nil).body), "mneme_spool_bytes 0")
		})
	})
	require.Equal(t, []string{chat[0], lost}, w.stored("chat_history:1"))
	require.Equal(t, analytic, w.stored("subagent:analytic:1"))
}

// A process that was paused past its lease, and finds Redis away when it goes on, cannot
// know that no process has replaced it: it shows nothing more.
func TestAPausedProcessShowsNothingWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	other, process := w.child()
	s.let(memory.MustChat("1"), 1)
	var paused *transcript
	w.on(other, func() {
		paused = w.open("POST", "/v1/chats/1/messages", message{"hi"})
		paused.until("run_started")
	})
	pause(t, process)
	s.let(memory.MustChat("1"), 3)
	eventually(t, "another process has the run", func() bool { return len(w.stored("subagent:analytic:1")) == 2 })
	w.redis.Kill()
	process.Signal(syscall.SIGCONT)
	require.Equal(t, []string{"error"}, paused.roles())
	require.Empty(t, paused.id, "a frame that is no event of the run")
}

// What a killed process left in a spool that no other process can read is in Redis once a
// process starts there, behind what was written since, in one block.
func TestTheSpoolOfADeadProcess(t *testing.T) {
	t.Parallel()
	w, spools, run := deadSpool(t, true)
	require.Contains(t, w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).roles(), "run_finished", "the run is closed")
	w.childOn(spools)
	_, analytic := whole("secret")
	want := append([]string{analytic[0], lost}, analytic[1:]...)
	eventually(t, "what was acknowledged is there", func() bool {
		return len(w.stored("subagent:analytic:1")) == len(want)
	})
	require.Equal(t, want, w.stored("subagent:analytic:1"))
}

// What was erased does not come back from an old spool.
func TestErasureBeatsAnOldSpool(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w, spools, run := deadSpool(t, true)
	w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil).roles()
	w.putApiserver(w.runs.Handler())
	got := w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.status, string(got.body))
	late, _ := w.childOn(spools)
	w.on(late, func() {
		eventually(t, "the spool is drained", func() bool {
			return strings.Contains(string(w.do("GET", "/metrics", nil).body), "mneme_spool_bytes 0")
		})
	})
	require.Nil(t, w.stored("subagent:analytic:1"))
	require.Nil(t, w.stored("chat_history:1"))
	for _, key := range w.look.Keys(context.Background(), "*").Val() {
		require.NotContains(t, w.look.Dump(context.Background(), key).Val(), "secret", key)
	}
}

// Neither Redis nor the spool takes an event: it is not shown, and the run ends.
func TestNothingIsShownThatIsNotStored(t *testing.T) {
	s := newScript()
	w := newWorld(t, s.agent, lease)
	w.spoolOptions.MaxBytes = 1
	w.url = w.process(lease)
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("subagent_delegation")
	w.redis.Kill()
	s.let(memory.MustChat("1"), 1)
	role, data, _ := tr.next()
	require.Equal(t, "error", role)
	require.Empty(t, tr.id, "an error that is no event of the run")
	require.Equal(t, `"memory_unavailable"`, field(t, data, "code"))
	_, _, more := tr.next()
	require.False(t, more)
}

// A process that is asked to end leaves its runs to others.
func TestShutdownLeavesRuns(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent, lease)
	first := w.url
	second := w.process(lease)
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("subagent_delegation")
	w.shutdown[first]()
	role, data, _ := tr.next()
	require.Equal(t, "error", role)
	require.Contains(t, string(data), "shutting_down")
	s.let(memory.MustChat("1"), scriptEvents)
	w.on(second, func() {
		again := w.open("GET", "/v1/chats/1/runs/"+tr.resp.Header.Get("Mneme-Run-Id")+"/events", nil, "Last-Event-ID", "2")
		require.Len(t, again.roles(), scriptEvents-2)
	})
	chat, analytic := whole("hi")
	// The second process may have read the events from the run's log, which is stored before the histories.
	eventually(t, "the histories are stored", func() bool {
		return slices.Equal(chat, w.stored("chat_history:1")) && slices.Equal(analytic, w.stored("subagent:analytic:1"))
	})
}

// An address that a stranger wrote into Redis is not followed: a server that gets a request of a service gets the
// services' secret.
func TestAForeignAddressOfARunIsNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(foreign.Close)
	w := newWorld(t, waits(nil))
	second := w.process()
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("subagent_delegation")
	run := tr.resp.Header.Get("Mneme-Run-Id")
	meta := memory.RedisKey{Kind: memory.KindMeta, Key: memory.ChatKey(memory.MustChat("1"))}.String()
	note, err := w.look.HGet(t.Context(), meta, "open").Bytes()
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(note, &members))
	members["events"] = foreign.URL + "/v1/runs/" + run + "/events"
	note, err = json.Marshal(members)
	require.NoError(t, err)
	require.NoError(t, w.look.HSet(t.Context(), meta, "open", note).Err())
	w.on(second, func() {
		require.Equal(t, 202, w.do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).status)
	})
	require.Zero(t, asked.Load())
	require.JSONEq(t, `"stopped"`, field(t, tr.until("run_finished"), "outcome"))
}

// A run is read, joined and stopped through any process.
func TestARunOfAnotherProcess(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent)
	second := w.process()
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
	tr.until("subagent_delegation")
	run := tr.resp.Header.Get("Mneme-Run-Id")
	w.on(second, func() {
		live := w.open("GET", "/v1/chats/1/runs/"+run+"/events", nil)
		live.until("subagent_delegation")
		joined := w.open("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
		joined.until("subagent_delegation")
		require.Equal(t, 422, w.do("POST", "/v1/chats/1/messages", message{"else"}, "Idempotency-Key", "k").status)
		require.Equal(t, 202, w.do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).status)
		require.Equal(t, []string{"run_finished"}, live.roles())
		require.Equal(t, []string{"run_finished"}, joined.roles())
		eventually(t, "over", func() bool { return w.do("POST", "/v1/chats/1/runs/"+run+"/stop", nil).status == 200 })
		require.Equal(t, 204, w.do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", "3").status)
	})
}

// What was erased through one process is shown by no other.
func TestErasureIsEverywhere(t *testing.T) {
	w := newWorld(t, answers("secret answer"))
	second := w.process()
	first := w.do("POST", "/v1/chats/1/messages", message{"secret"}, "Idempotency-Key", "k")
	run := first.header.Get("Mneme-Run-Id")
	read := func() (all string) {
		for _, path := range []string{"/v1/chats/1", "/v1/chats/1/history", "/v1/chats/1/subagents/analytic/history",
			"/v1/chats/1/runs/" + run + "/events", "/v1/chats"} {
			all += string(w.do("GET", path, nil).body)
		}
		return all
	}
	require.Contains(t, read(), "secret")
	w.on(second, func() {
		require.Contains(t, read(), "secret")
		got := w.do("DELETE", "/v1/chats/1", nil)
		require.Equal(t, 200, got.status, string(got.body))
		require.NotContains(t, read(), "secret")
	})
	require.NotContains(t, read(), "secret")
	again := w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k")
	require.Equal(t, 200, again.status, string(again.body))
	require.Equal(t, []string{"user: hi", "assistant: secret answer"}, w.stored("chat_history:1"), "the key is free again")
}

// Redis loses everything between two turns of one process: the next run says so.
func TestResetIsTold(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := newWorld(t, answers("hi"))
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"one"}).status)
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	eventually(t, "the loss is noticed", func() bool {
		return strings.Contains(string(w.do("GET", "/metrics", nil).body), "mneme_redis_resets_total 1")
	})
	roles := w.open("POST", "/v1/chats/1/messages", message{"two"}).roles()
	require.Equal(t, []string{"run_started", "memory_reset"}, roles[:2])
	require.Len(t, w.stored("chat_history:1"), 4, "what was cached is back")
}
