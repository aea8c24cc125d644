package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// gated is a run of two subagents, each of which waits for a yes to one call. Its events come one
// at a time, each when it is let. Calls are claimed, and counted where they are made.
type gated struct {
	gates script

	mu    sync.Mutex
	calls map[string]int // guarded by mu: by chat, subagent and message
}

// Events of a gated run up to its wait, and behind it.
const gatedBefore, gatedBehind = 6, 9

func (g *gated) run(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
	let := func(h event.Head, p event.Payload) bool {
		select {
		case <-g.gates.gate(r.ChatID):
			emit(h, p)
			return true
		case <-ctx.Done():
			return false
		}
	}
	heads := []event.Head{{Subagent: "analytic", CallID: r.RunID + "-1"}, {Subagent: "knowledge", CallID: r.RunID + "-2"}}
	if r.Resume == nil {
		waits := approvals(inTime(), "w1", "w2")
		ok := let(event.Head{}, &event.RunStarted{ChatID: r.ChatID, Message: r.Message, RetryOf: r.RetryOf})
		for i, h := range heads {
			waits[i].ID += r.RunID
			waits[i].Subagent, waits[i].CallID = h.Subagent, h.CallID
			call := memory.ToolCall{ID: waits[i].ToolCallID, Type: "function",
				Function: memory.FunctionCall{Name: "refund", Arguments: "{}"}}
			ok = ok && let(h, &event.Delegation{Task: "task", Calls: event.Serial}) &&
				let(h, &event.AssistantWithTools{ToolCalls: []memory.ToolCall{call}})
		}
		if ok {
			let(event.Head{}, &event.RunWaiting{Waits: waits, State: json.RawMessage(`{}`)})
		}
		return
	}
	seq := int64(gatedBefore)
	next := func(h event.Head, p event.Payload) bool { seq++; return let(h, p) }
	ok := next(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
	for i, h := range heads {
		ok = ok && next(h, &event.ToolProgress{Tool: "refund", Status: "running"})
		if ok {
			said := g.call(r, h.Subagent, seq)
			ok = next(h, &event.ToolResult{ToolCallID: fmt.Sprintf("t-w%d", i+1), Name: "refund", Content: said})
		}
	}
	for _, h := range heads {
		ok = ok && next(h, &event.Completion{Response: "done", Status: event.Completed})
	}
	if ok && next(event.Head{}, &event.Assistant{Content: "all done"}) {
		next(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// call is one of the tool, if it is granted.
func (g *gated) call(r api.RunRequest, who memory.Agent, after int64) string {
	claimed, err := r.Memory.Claim(context.Background(), http.DefaultClient, api.ClaimRequest{
		Subagent: who, Tool: "crm/refund", Arguments: json.RawMessage(`{}`), N: 1, After: after})
	switch {
	case err != nil:
		return "not called"
	case claimed.State == api.CallDone:
		return claimed.Result
	case claimed.State == api.CallUnknown:
		return "outcome unknown"
	}
	g.mu.Lock()
	g.calls[fmt.Sprint(r.ChatID, who, r.Message)]++
	g.mu.Unlock()
	_ = r.Memory.Settle(context.Background(), http.DefaultClient, claimed.CallID, api.SettleRequest{Result: "refunded"})
	return "refunded"
}

// Of two replicas one is killed while chats stand at every boundary between two events of a run
// with two approvals, with the agents or without. Each call is made once or never, whatever is
// repeated, and the chats stay usable.
func TestProcessesAreKilledAtEveryEventOfARunThatWaits(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"webmemory": false, "webmemory and the agents": true} {
		t.Run(name, func(t *testing.T) {
			g := &gated{gates: *newScript(), calls: map[string]int{}}
			w := newWorld(t, nil, lease)
			s := w.suspends(g.run)
			other, process := w.child()
			const boundaries = gatedBefore + gatedBehind
			for n := range boundaries {
				w.on(other, func() { w.standAt(g, n+1) })
			}
			process.Kill()
			if all {
				s.forget()
			}
			var ending sync.WaitGroup
			for n := range boundaries {
				chat := fmt.Sprintf("at%d", n+1)
				close(g.gates.gate(memory.MustChat(chat))) // all may come
				first := w.request("POST", "/v1/chats/"+chat+"/messages", message{"refund me"}, "Idempotency-Key", "k")
				plain := w.request("POST", "/v1/chats/"+chat+"/messages", message{"refund me again"})
				ending.Go(func() { w.endsWell(chat, first, plain) })
			}
			ending.Wait()
			require.Greater(t, len(g.calls), boundaries)
			for call, n := range g.calls {
				require.Equal(t, 1, n, call)
			}
			for n := range boundaries {
				for _, of := range []string{"chat_history:", "subagent:analytic:", "subagent:knowledge:"} {
					w.answersItsCalls(fmt.Sprintf("%sat%d", of, n+1))
				}
			}
		})
	}
}

// standAt brings a chat to where n events of its run were shown.
func (w *world) standAt(g *gated, n int) {
	w.t.Helper()
	chat := fmt.Sprintf("at%d", n)
	g.gates.let(memory.MustChat(chat), min(n, gatedBefore))
	tr := w.open("POST", "/v1/chats/"+chat+"/messages", message{"refund me"}, "Idempotency-Key", "k")
	var waiting event.RunWaiting
	for range min(n, gatedBefore) {
		_, data, ok := tr.next()
		require.True(w.t, ok)
		_ = json.Unmarshal(data, &waiting)
	}
	if n <= gatedBefore {
		return
	}
	g.gates.let(memory.MustChat(chat), n-gatedBefore)
	tr = w.open("POST", "/v1/chats/"+chat+"/runs/"+tr.resp.Header.Get(webapi.RunID)+"/resume",
		yes(waiting.Waits[0].ID, waiting.Waits[1].ID))
	for range n - gatedBefore {
		_, _, ok := tr.next()
		require.True(w.t, ok)
	}
}

// endsWell repeats a post, and answers what its run waits for, until there is an answer; then the
// chat takes another message.
func (w *world) endsWell(chat string, first, plain *http.Request) {
	for _, req := range []*http.Request{first, plain} {
		for tries := 0; ; tries++ {
			again := req.Clone(context.Background())
			again.Body, _ = req.GetBody()
			got := w.send(again)
			if got.status == 202 {
				var waiting webapi.Waiting
				if err := json.Unmarshal(got.body, &waiting); err != nil {
					w.t.Error(err)
				}
				got = w.send(w.request("POST", "/v1/chats/"+chat+"/runs/"+waiting.RunID+"/resume",
					yes(waiting.Waits[0].ID, waiting.Waits[1].ID)))
			}
			if got.status == 200 {
				break
			}
			if tries == 5 {
				w.t.Errorf("chat %s: %d %s", chat, got.status, got.body)
				return
			}
		}
	}
}

// answersItsCalls looks that a history is one that a vendor takes: after it was made valid, every
// call of a tool has its result directly behind it.
func (w *world) answersItsCalls(key string) {
	w.t.Helper()
	raw, err := w.look.Get(context.Background(), key).Bytes()
	require.NoError(w.t, err, key)
	var stored []memory.Message
	require.NoError(w.t, json.Unmarshal(raw, &stored))
	messages, _ := memory.Repair(stored)
	var open []string
	for _, m := range messages {
		if m.Role == memory.RoleTool {
			i := slices.Index(open, m.ToolCallID)
			require.GreaterOrEqual(w.t, i, 0, "%s: %s", key, raw)
			open = slices.Delete(open, i, i+1)
			continue
		}
		require.Empty(w.t, open, "%s: %s", key, raw)
		for _, c := range m.ToolCalls {
			open = append(open, c.ID)
		}
	}
	require.Empty(w.t, open, "%s: %s", key, raw)
}

// A process dies between the steps of a run's suspension, or of its going on: the process that
// takes it over has it wait.
func TestARunWaitsThoughItsProcessDied(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	for name, lost := range map[string]bool{"its agents are there": false, "its agents are gone": true} {
		for step, undo := range map[string]func(w *world, run string){
			"before it was suspended": func(*world, string) {},
			"before the log had it": func(w *world, run string) {
				lines := w.look.XRange(ctx, "events:1:"+run, "-", "+").Val()
				require.NoError(t, w.look.Del(ctx, "events:1:"+run).Err())
				for _, l := range lines { // entries may hold several events
					before, _ := l.Values["b"].(string)
					for text := range strings.SplitSeq(before+fmt.Sprint(l.Values["e"]), "\n") {
						e, err := event.Decode([]byte(text))
						if err == nil && !e.Waits() {
							require.NoError(t, w.look.XAdd(ctx, &redis.XAddArgs{Stream: "events:1:" + run, ID: fmt.Sprintf("%d-0", e.Seq),
								Values: []any{"e", text}}).Err())
						}
					}
				}
			},
		} {
			t.Run(step+", "+name, func(t *testing.T) {
				w, s, run := waitingWorld(t, lease)
				if lost {
					s.forget()
				}
				undo(w, run)
				open := w.look.HGet(ctx, "{chat_history:1}:waiting", "open").Val()
				require.NoError(t, w.look.HSet(ctx, "{chat_history:1}:meta", "open", open).Err())
				require.NoError(t, w.look.HDel(ctx, "{chat_history:1}:meta", "waits").Err())
				require.NoError(t, w.look.ZRem(ctx, "mneme:waiting", "1").Err())
				require.NoError(t, w.look.ZAdd(ctx, "turns:open", redis.Z{Member: "1"}).Err())
				w.atRest("1")
				eventually(t, "the list of waits has it", func() bool { return w.look.ZScore(ctx, "mneme:waiting", "1").Val() > 0 })
				got := w.resume("1", run, yes("w1"))
				require.Equal(t, 200, got.status, string(got.body))
				require.Equal(t, []string{"user: refund me", "assistant: decided: approve"}, w.stored("chat_history:1"))
			})
		}
	}
}
