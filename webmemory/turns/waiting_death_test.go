package turns_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// gated is a run of two subagents, each of which waits for a yes to one call. Its events come one
// at a time, each when it is let. Calls are claimed, and counted where they are made.
type gated struct {
	gates webmemorytest.Script

	mu    sync.Mutex
	calls map[string]int // guarded by mu: by chat, subagent and message
}

// Events of a gated run up to its wait, and behind it.
const gatedBefore, gatedBehind = 6, 9

func (g *gated) run(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
	let := func(h event.Head, p event.Payload) bool {
		select {
		case <-g.gates.Gate(r.ChatID):
			emit(h, p)
			return true
		case <-ctx.Done():
			return false
		}
	}
	heads := []event.Head{{Subagent: "analytic", CallID: r.RunID + "-1"}, {Subagent: "knowledge", CallID: r.RunID + "-2"}}
	if r.Resume == nil {
		waits := webmemorytest.Approvals("w1", "w2")
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
			let(event.Head{}, &event.RunWaiting{Pending: waits, State: json.RawMessage(`{}`)})
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
	claimed, err := r.Memory.Claim(context.Background(), memory.ClaimRequest{
		Subagent: who, Tool: "crm/refund", Arguments: json.RawMessage(`{}`), N: 1, Seq: after})
	switch {
	case err != nil:
		return "not called"
	case claimed.State == memory.CallDone:
		return claimed.Result
	case claimed.State == memory.CallUnknown:
		return "outcome unknown"
	}
	g.mu.Lock()
	g.calls[fmt.Sprint(r.ChatID, who, r.Message)]++
	g.mu.Unlock()
	_ = r.Memory.Settle(context.Background(), claimed.CallID, "refunded", false)
	return "refunded"
}

// Of two replicas one is killed while chats stand at every boundary between two events of a run
// with two approvals, with the agents or without. Each call is made once or never, whatever is
// repeated, and the chats stay usable.
func TestProcessesAreKilledAtEveryEventOfARunThatWaits(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"webmemory": false, "webmemory and the agents": true} {
		t.Run(name, func(t *testing.T) {
			g := &gated{calls: map[string]int{}}
			w := webmemorytest.NewWorld(t, nil, webmemorytest.ShortenLease)
			s := w.ScriptApiserver(g.run)
			other, process := w.StartChild(w.ChildConfig())
			const boundaries = gatedBefore + gatedBehind
			for n := range boundaries {
				w.Target(other, func() { advanceTo(w, g, n+1) })
			}
			process.Kill()
			if all {
				s.LoseRuns()
			}
			var ending sync.WaitGroup
			for n := range boundaries {
				chat := fmt.Sprintf("at%d", n+1)
				close(g.gates.Gate(memory.MustChat(chat))) // all may come
				first := w.NewRequest("POST", "/v1/chats/"+chat+"/messages", webmemorytest.Message("refund me"),
					"Idempotency-Key", "k")
				plain := w.NewRequest("POST", "/v1/chats/"+chat+"/messages", webmemorytest.Message("refund me again"))
				ending.Go(func() { requireAnswer(w, chat, first, plain) })
			}
			ending.Wait()
			require.Greater(t, len(g.calls), boundaries)
			for call, n := range g.calls {
				require.Equal(t, 1, n, call)
			}
			for n := range boundaries {
				for _, of := range []string{"chat_history:", "subagent:analytic:", "subagent:knowledge:"} {
					requireResults(w, fmt.Sprintf("%sat%d", of, n+1))
				}
			}
		})
	}
}

// advanceTo runs a chat until n events of its run were shown.
func advanceTo(w *webmemorytest.World, g *gated, n int) {
	w.T.Helper()
	chat := fmt.Sprintf("at%d", n)
	g.gates.Allow(chat, min(n, gatedBefore))
	tr := w.PostStream(chat, "refund me", "Idempotency-Key", "k")
	var waiting event.RunWaiting
	for range min(n, gatedBefore) {
		_, data, ok := tr.Next()
		require.True(w.T, ok)
		_ = json.Unmarshal(data, &waiting)
	}
	if n <= gatedBefore {
		return
	}
	g.gates.Allow(chat, n-gatedBefore)
	tr = w.Stream("POST", "/v1/chats/"+chat+"/runs/"+tr.RunID()+"/resume",
		webmemorytest.Approve(waiting.Pending[0].ID, waiting.Pending[1].ID))
	for range n - gatedBefore {
		_, _, ok := tr.Next()
		require.True(w.T, ok)
	}
}

// requireAnswer repeats a post, and approves what its run waits for, until there is an answer. Then the chat must take
// another message.
func requireAnswer(w *webmemorytest.World, chat string, first, plain *http.Request) {
	for _, req := range []*http.Request{first, plain} {
		for tries := 0; ; tries++ {
			again := req.Clone(context.Background())
			again.Body, _ = req.GetBody()
			got := w.Send(again)
			if got.Status == 202 {
				var waiting webapi.Waiting
				if err := json.Unmarshal(got.Body, &waiting); err != nil {
					w.T.Error(err)
				}
				got = w.Send(w.NewRequest("POST", "/v1/chats/"+chat+"/runs/"+waiting.RunID+"/resume",
					webmemorytest.Approve(waiting.Pending[0].ID, waiting.Pending[1].ID)))
			}
			if got.Status == 200 {
				break
			}
			if tries == 5 {
				w.T.Errorf("chat %s: %d %s", chat, got.Status, got.Body)
				return
			}
		}
	}
}

// requireResults requires that every tool call in a repaired history has its result directly after it.
func requireResults(w *webmemorytest.World, key string) {
	w.T.Helper()
	raw, err := w.Redis.Get(context.Background(), key).Bytes()
	require.NoError(w.T, err, key)
	var stored []memory.Message
	require.NoError(w.T, json.Unmarshal(raw, &stored))
	messages, _ := memory.Repair(stored)
	var open []string
	for _, m := range messages {
		if m.Role == memory.RoleTool {
			i := slices.Index(open, m.ToolCallID)
			require.GreaterOrEqual(w.T, i, 0, "%s: %s", key, raw)
			open = slices.Delete(open, i, i+1)
			continue
		}
		require.Empty(w.T, open, "%s: %s", key, raw)
		for _, c := range m.ToolCalls {
			open = append(open, c.ID)
		}
	}
	require.Empty(w.T, open, "%s: %s", key, raw)
}

// A process dies between the steps of a run's suspension, or of its going on: the process that
// takes it over has it wait.
func TestARunWaitsThoughItsProcessDied(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	for name, lost := range map[string]bool{"its agents are there": false, "its agents are gone": true} {
		for step, undo := range map[string]func(w *webmemorytest.World, run string){
			"before it was suspended": func(*webmemorytest.World, string) {},
			"before the log had it": func(w *webmemorytest.World, run string) {
				lines := w.Redis.XRange(ctx, "events:1:"+run, "-", "+").Val()
				require.NoError(t, w.Redis.Del(ctx, "events:1:"+run).Err())
				for _, l := range lines { // entries may hold several events
					before, _ := l.Values["b"].(string)
					for text := range strings.SplitSeq(before+fmt.Sprint(l.Values["e"]), "\n") {
						e, err := event.Decode([]byte(text))
						if err == nil && !e.Blocking() {
							require.NoError(t, w.Redis.XAdd(ctx, &redis.XAddArgs{Stream: "events:1:" + run, ID: fmt.Sprintf("%d-0", e.Seq),
								Values: []any{"e", text}}).Err())
						}
					}
				}
			},
		} {
			t.Run(step+", "+name, func(t *testing.T) {
				w, s, run := webmemorytest.NewSuspendedWorld(t, webmemorytest.ShortenLease)
				if lost {
					s.LoseRuns()
				}
				undo(w, run)
				open := w.Redis.HGet(ctx, "{chat_history:1}:waiting", "open").Val()
				require.NoError(t, w.Redis.HSet(ctx, "{chat_history:1}:meta", "open", open).Err())
				require.NoError(t, w.Redis.HDel(ctx, "{chat_history:1}:meta", "waits").Err())
				require.NoError(t, w.Redis.ZRem(ctx, "mneme:waiting", "1").Err())
				require.NoError(t, w.Redis.ZAdd(ctx, "turns:open", redis.Z{Member: "1"}).Err())
				w.AwaitSuspension("1")
				webmemorytest.Eventually(t, "the list of waits has it", func() bool {
					return w.Redis.ZScore(ctx, "mneme:waiting", "1").Val() > 0
				})
				got := w.Resume("1", run, webmemorytest.Approve("w1"))
				require.Equal(t, 200, got.Status, string(got.Body))
				require.Equal(t, []string{"user: refund me", "assistant: decided: approve"}, w.History("chat_history:1"))
			})
		}
	}
}

// The state of a waiting run is on the disk before its client sees the wait: Redis may lose it at that moment.
func TestAWaitIsOnTheDiskBeforeItIsShown(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	w, _, _ := webmemorytest.NewSuspendedWorld(t, func(c *webmemory.Config) { c.EndStoreDir = folder })
	for i := range 20 {
		chat := fmt.Sprint("c", i)
		stream := w.PostStream(chat, "refund me")
		stream.Until("run_waiting")
		kept, err := os.ReadFile(filepath.Join(folder, "c-"+chat, stream.RunID()))
		require.NoError(t, err)
		head, _, _ := strings.Cut(string(kept), "\n")
		require.Contains(t, head, `"waiting":{`)
		require.Contains(t, string(kept), `"role":"run_waiting"`)
	}
}
