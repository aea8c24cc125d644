package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api/sse"
	"mneme/memory"
	"mneme/memory/event"
)

// second is a point in time of these tests' clock.
func second(s float64) time.Time { return time.UnixMilli(int64(s * 1000)) }

// scene is a chat, what was acknowledged of it, and what is stored.
type scene struct {
	*checker
	chat    *chat
	key     memory.Key
	history *memory.History
}

func newScene(key memory.Key) *scene {
	return &scene{
		checker: &checker{ledger: newLedger(newTrial(options{}, io.Discard))}, chat: newChat(1), key: key,
		history: memory.Empty(key),
	}
}

// hear acknowledges a run: a request that begins at a time, one task of the
// analytic subagent with a tool, and the answer. It gives the run's messages in the
// scene's history.
func (s *scene) hear(id string, at float64) []memory.Message {
	calls := []memory.ToolCall{
		{ID: id + "-tool", Type: "function", Function: memory.FunctionCall{Name: "calculator", Arguments: "{}"}},
	}
	events := []event.Payload{
		&event.RunStarted{ChatID: s.chat.id, Message: "asked in " + id},
		&event.Delegation{Task: "task of " + id, Calls: event.Serial},
		&event.AssistantWithTools{ToolCalls: calls},
		&event.ToolResult{ToolCallID: id + "-tool", Name: "calculator", Content: "1"},
		&event.Completion{Response: "done " + id, Status: event.Completed},
		&event.Assistant{Content: "answer of " + id},
	}
	p := s.ledger.post(s.chat, "asked in "+id, "master", "")
	s.ledger.addAttempt(p, attempt{status: 200, run: id})
	copies := event.Copies{}
	fold := event.NewHistories(s.chat.id, copies)
	for i, payload := range events {
		e := event.Event{Head: event.Head{RunID: id, Seq: int64(i + 1), TS: at + float64(i)/100}, Payload: payload}
		if i > 0 && i < 5 {
			e.Subagent, e.CallID = "analytic", id+"-1"
		}
		s.ledger.receive(p, e, e.Line(), webA)
		if err := fold.Apply(e); err != nil {
			panic(err)
		}
	}
	return copies[s.key]
}

func (s *scene) store(messages ...memory.Message) {
	for _, m := range messages {
		s.history = s.history.With(m.Encode())
	}
}

// kinds checks and gives what was found.
func (s *scene) kinds(t *testing.T) []kind {
	t.Helper()
	h := &stored{chat: s.chat, key: s.key, history: s.history}
	for _, raw := range s.history.Raw(0) {
		h.raw = append(h.raw, string(raw))
	}
	var err error
	h.messages, err = s.history.Messages(0)
	require.NoError(t, err)
	s.fold()
	s.checker.history(h)
	if s.key.Agent() == "" {
		s.checkPosts()
	}
	var found []kind
	for _, v := range s.violations {
		found = append(found, v.kind)
	}
	return found
}

// hearRetry acknowledges a run that failed, and one of the same post that tried it
// once more. It gives their messages in the scene's history.
func (s *scene) hearRetry() []memory.Message {
	p := s.ledger.post(s.chat, "asked", "master", "key")
	copies := event.Copies{}
	for id, events := range map[string][]event.Payload{
		"a": {&event.RunStarted{ChatID: s.chat.id, Message: "asked"}, &event.Error{Code: "model_failed", Retryable: true},
			&event.RunFinished{Outcome: event.Failed}},
		"b": {&event.RunStarted{ChatID: s.chat.id, Message: "asked", RetryOf: "a"},
			&event.Delegation{Task: "task", Calls: event.Serial}, &event.Completion{Response: "done", Status: event.Completed},
			&event.Assistant{Content: "answer"}, &event.RunFinished{Outcome: event.Completed}},
	} {
		s.ledger.addAttempt(p, attempt{status: 200, run: id})
		sink := event.Copies{}
		fold := event.NewHistories(s.chat.id, sink)
		for i, payload := range events {
			e := event.Event{Head: event.Head{RunID: id, Seq: int64(i + 1), TS: float64(10 + i)}, Payload: payload}
			if id == "b" && i > 0 && i < 3 {
				e.Subagent, e.CallID = "analytic", "b-1"
			}
			s.ledger.receive(p, e, e.Line(), webA)
			if err := fold.Apply(e); err != nil {
				panic(err)
			}
		}
		copies[memory.ChatKey(memory.MustChat(id))] = sink[s.key]
	}
	s.addAnswer(p, "b", "answer")
	return append(copies[memory.ChatKey(memory.MustChat("a"))], copies[memory.ChatKey(memory.MustChat("b"))]...)
}

var (
	chatKey  = memory.ChatKey(memory.MustChat("soak-001"))
	agentKey = memory.SubagentKey("analytic", memory.MustChat("soak-001"))
)

func TestWhatIsFoundInAHistory(t *testing.T) {
	for name, test := range map[string]struct {
		key  memory.Key
		act  func(s *scene)
		want []kind
	}{
		"two runs, whole": {agentKey, func(s *scene) { s.store(s.hear("a", 10)...); s.store(s.hear("b", 20)...) },
			nil},
		"a chat, whole": {chatKey, func(s *scene) { s.store(s.hear("a", 10)...); s.store(s.hear("b", 20)...) },
			nil},
		"a failure and its retry":  {chatKey, func(s *scene) { s.store(s.hearRetry()...) }, nil},
		"a retry's delegation":     {agentKey, func(s *scene) { s.store(s.hearRetry()...) }, nil},
		"a retry's answer is lost": {chatKey, func(s *scene) { s.store(s.hearRetry()[:2]...) }, []kind{missing, missing}},
		"the last message is lost": {chatKey, func(s *scene) { s.store(s.hear("a", 10)[:1]...) }, []kind{missing}},
		"a completion is lost":     {agentKey, func(s *scene) { s.store(s.hear("a", 10)[:3]...) }, []kind{missing, invalid}},
		"another time, not itself": {chatKey, func(s *scene) { m := s.hear("a", 10); m[1].Timestamp++; s.store(m...) },
			[]kind{rewritten}},
		"a message is stored twice": {chatKey, func(s *scene) { m := s.hear("a", 10); s.store(m[0], m[1], m[1]) },
			[]kind{doubled, invalid}},
		"a run is stored twice, made anew": {chatKey, func(s *scene) {
			m := s.hear("a", 10)
			s.store(m...)
			m[0].Timestamp, m[1].Timestamp = 11, 12
			s.store(m...)
		}, []kind{doubled}},
		"out of order": {agentKey, func(s *scene) { m := s.hear("a", 10); s.store(m[0], m[2], m[1], m[3]) },
			[]kind{disorder, invalid, invalid}},
		"interleaved": {agentKey, func(s *scene) {
			a, b := s.hear("a", 10), s.hear("b", 10)
			s.store(a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3])
		}, []kind{disorder}},
		"late, behind another run": {agentKey, func(s *scene) {
			a, b := s.hear("a", 10), s.hear("b", 20)
			s.store(a[:2]...)
			s.store(b...)
			s.store(a[2:]...)
		}, nil},
		"a completed run, closed as lost": {chatKey, func(s *scene) {
			m := s.hear("a", 10)
			p, e := s.posts[0], event.Event{Head: event.Head{RunID: "a", Seq: 7, TS: 11}, Payload: &event.RunFinished{
				Outcome: event.Completed,
			}}
			s.ledger.receive(p, e, e.Line(), webA)
			closing := memory.Failed(event.RunLost)
			closing.Timestamp, closing.ID = 12, "a-end.7"
			s.store(append(m, closing)...)
		}, []kind{declared}},
		"a message of no run": {chatKey, func(s *scene) { s.store(memory.Message{Role: "user", Content: "x"}) },
			[]kind{invalid}},
		"a foreign chat's text": {chatKey, func(s *scene) {
			s.store(memory.Message{Role: "user", Content: "box c002n00007"})
		}, []kind{invalid}},
		"a second result": {agentKey, func(s *scene) {
			m := s.hear("a", 10)
			again := m[2]
			again.Timestamp++
			s.store(m[0], m[1], m[2], again, m[3])
		}, []kind{invalid, invalid}},
		"refused and yet there": {chatKey, func(s *scene) {
			p := s.ledger.post(s.chat, "refused", "master", "")
			s.ledger.addAttempt(p, attempt{status: 503, code: "shutting_down"})
			s.store(memory.Message{Role: "user", Content: "refused", Timestamp: 5, ID: "r.1"})
		}, []kind{ghost}},
		"answered with another text": {chatKey, func(s *scene) {
			s.store(s.hear("a", 10)...)
			s.addAnswer(s.posts[0], "a", "something else")
		}, []kind{missing}},
		"one key, two runs": {chatKey, func(s *scene) {
			s.store(s.hear("a", 10)...)
			s.posts[0].key = "k"
			s.ledger.addAttempt(s.posts[0], attempt{status: 200, run: "b"})
			e := event.Event{Head: event.Head{RunID: "b", Seq: 1, TS: 20}, Payload: &event.RunFinished{Outcome: event.Completed}}
			s.ledger.receive(s.posts[0], e, e.Line(), webA)
		}, []kind{invalid}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(test.key)
			test.act(s)
			found := s.kinds(t)
			if test.want == nil {
				require.Empty(t, found)
				return
			}
			for _, k := range test.want {
				require.Contains(t, found, k, "%v", s.violations)
			}
		})
	}
}

func TestLateMessagesAreCounted(t *testing.T) {
	s := newScene(agentKey)
	a, b := s.hear("a", 10), s.hear("b", 20)
	s.store(append(append(a[:2:2], b...), a[2:]...)...)
	require.Empty(t, s.kinds(t))
	require.Equal(t, 2, s.late)
	s = newScene(agentKey)
	a, b = s.hear("a", 10), s.hear("b", 20)
	s.store(append(b, a...)...)
	require.Empty(t, s.kinds(t))
	require.Equal(t, 4, s.late, "runs stand in the order in which they began")
}

func TestErasure(t *testing.T) {
	of := func(key memory.Key) erasure {
		return erasure{key: key, first: second(12), last: second(15), ack: second(18)}
	}
	for name, test := range map[string]struct {
		erased memory.Key
		begun  float64
		there  bool
		want   []kind
	}{
		"before it, and gone":             {memory.Key{}, 10, false, nil},
		"before it, and there again":      {memory.Key{}, 10, true, []kind{returned}},
		"while it was asked for, gone":    {memory.Key{}, 16, false, nil},
		"while it was asked for, there":   {memory.Key{}, 16, true, nil},
		"after it, there":                 {memory.Key{}, 20, true, nil},
		"after it, gone":                  {memory.Key{}, 20, false, []kind{missing}},
		"another history was erased":      {agentKey, 10, true, nil},
		"another history took this along": {agentKey, 10, false, []kind{missing}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(chatKey)
			s.chat.erasures = []erasure{of(test.erased)}
			if m := s.hear("a", test.begun); test.there {
				s.store(m...)
			}
			found := s.kinds(t)
			require.Equal(t, test.want == nil, len(found) == 0, "%v", found)
			for _, k := range test.want {
				require.Contains(t, found, k)
			}
		})
	}
}

func TestOneEventHasOneContent(t *testing.T) {
	s := newScene(chatKey)
	s.hear("a", 10)
	p := s.posts[0]
	e := event.Event{Head: event.Head{RunID: "a", Seq: 6, TS: 10.05}, Payload: &event.Assistant{Content: "another"}}
	s.ledger.receive(p, e, e.Line(), webB)
	require.Len(t, s.violations, 1)
	require.Equal(t, conflict, s.violations[0].kind)
}

func TestHistoriesOnlyGrow(t *testing.T) {
	for _, test := range []struct {
		before, after string
		want          bool
	}{
		{``, `[1]`, true}, {`[1]`, `[1]`, true}, {`[1]`, `[1,2]`, true}, {`[]`, `[1]`, true},
		{`[1]`, ``, false}, {`[1,2]`, `[1]`, false}, {`[1]`, `[12]`, false}, {`[1,2]`, `[1,3,2]`, false},
	} {
		_, ok := compareHistory([]byte(test.before), []byte(test.after), false)
		require.Equal(t, test.want, ok, "%s %s", test.before, test.after)
	}
}

func TestFrames(t *testing.T) {
	e := event.New(event.Head{RunID: "r", Seq: 3, TS: 1}, &event.Assistant{Content: "x"})
	in := newFrames(strings.NewReader(fmt.Sprintf(
		": heartbeat\n\nid: 3\ndata: %s\nevent: assistant\n\n: closing\nevent: error\ndata: "+
			"{\"role\":\"error\",\"code\":\"turn_moved\"}\n\nid: 4\ndata: {\"role\"", e.Line())))
	next, err := in.Next()
	require.NoError(t, err)
	got, err := eventOf(next)
	require.NoError(t, err)
	require.Equal(t, e, got)
	next, err = in.Next()
	require.NoError(t, err)
	require.Empty(t, next.ID)
	require.Equal(t, "turn_moved", problemOf(next))
	_, err = in.Next()
	require.ErrorIs(t, err, io.EOF, "what is cut off was not received")
	_, err = eventOf(sse.Event{ID: []byte("7"), Name: []byte("assistant"), Data: e.Line()})
	require.Error(t, err)
}

func TestEveryTextIsOfItsOwnAndCarriesItsChat(t *testing.T) {
	rng, ch, had := options{seed: 1}.random(1), newChat(7), map[string]bool{}
	for range 300 {
		message, agent := text(rng, ch)
		require.False(t, had[message], message)
		had[message] = true
		require.Contains(t, message, ch.tag)
		require.Contains(t, []string{"master", "analytic"}, agent)
		require.Len(t, wordPattern.FindAllString(message, -1), 1, message)
		raw, err := json.Marshal(message)
		require.NoError(t, err)
		for _, tag := range tagPattern.FindAllStringSubmatch(string(raw), -1) {
			require.Equal(t, ch.tag, tag[1])
		}
	}
}

func TestCountersOutliveProcesses(t *testing.T) {
	m := meters{last: map[*span]map[string]float64{{}: {"a_total": 3}, {start: second(1)}: {"a_total": 2, "b_bytes": 0}}}
	require.Equal(t, 5, m.total("a_total"))
}

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "memory, fleet or approvals",
		"approvals --rounds 3":               "",
		"approvals --rounds 0":               "must be positive",
		"memory":                             "",
		"memory --duration 1m --chats 3":     "",
		"memory --duration 1m fast":          `unexpected argument "fast"`,
		"memory --writers 0":                 "must be positive",
		"memory --duration long":             "invalid value",
		"memory --seed 7 --faults-every 0":   "",
		"memory --erase-every -1s --chats 2": "must be positive",
		"memory --fault fire":                "choose one of kills, flushall, empty, oldaof, failover",
		"memory --wait-replicas 1":           "needs --fault failover",
		"memory --fault failover --wait-replicas 1 --edits-every 0": "",
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		if want == "" {
			require.NoError(t, err, args)
		} else {
			require.ErrorContains(t, err, want, args)
		}
	}
}
