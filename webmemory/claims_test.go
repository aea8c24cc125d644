package webmemory_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
)

// refund is the claim of a call, behind an event.
func refund(after int64) memory.ClaimRequest {
	return memory.ClaimRequest{Subagent: "analytic", Tool: "crm/refund", Arguments: json.RawMessage(`{"amount":5,"to":"x"}`),
		N: 1, Seq: after}
}

// claiming is a world where a run of chat 1 is under way, with two events, and has access to
// its memory.
func claiming(t *testing.T) (w *webmemorytest.World, access api.MemoryAccess, emit func(event.Head, event.Payload)) {
	t.Helper()
	w = webmemorytest.NewWorld(t, nil)
	began := make(chan api.RunRequest, 1)
	emits := make(chan func(event.Head, event.Payload), 1)
	w.ScriptApiserver(func(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, Message: r.Message})
		emit(webmemorytest.Analytic, &event.Delegation{Task: "task", Calls: event.Serial})
		began <- r
		emits <- emit
	})
	w.PostStream("1", "hi", "Idempotency-Key", "k").Until("subagent_delegation")
	r := <-began
	return w, *r.Memory, <-emits
}

func TestACallIsGrantedOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, access, emit := claiming(t)
	claim := func(r memory.ClaimRequest) memory.Claimed {
		t.Helper()
		got, err := access.Claim(ctx, r)
		require.NoError(t, err)
		return got
	}
	first := claim(refund(2))
	require.Equal(t, memory.CallGranted, first.State)
	same := refund(2)
	same.Arguments = json.RawMessage(` { "to": "x",  "amount":5}`)
	unknown := memory.Claimed{CallID: first.CallID, State: memory.CallUnknown}
	require.Equal(t, unknown, claim(same), "the arguments are the same")
	again := refund(2)
	again.Repeatable = true
	require.Equal(t, memory.Claimed{CallID: first.CallID, State: memory.CallGranted}, claim(again))
	for _, other := range []func(*memory.ClaimRequest){
		func(r *memory.ClaimRequest) { r.N = 2 },
		func(r *memory.ClaimRequest) { r.Tool = "crm/pay" },
		func(r *memory.ClaimRequest) { r.Subagent = "" },
		func(r *memory.ClaimRequest) { r.Arguments = json.RawMessage(`{"amount":6}`) },
	} {
		r := refund(2)
		other(&r)
		got := claim(r)
		require.Equal(t, memory.CallGranted, got.State)
		require.NotEqual(t, first.CallID, got.CallID)
	}
	require.NoError(t, access.Settle(ctx, first.CallID, "paid", true))
	require.NoError(t, access.Settle(ctx, first.CallID, "later", false))
	paid := memory.Claimed{CallID: first.CallID, State: memory.CallDone, Result: "paid", Failed: true}
	require.Equal(t, paid, claim(same))

	t.Run("behind its event", func(t *testing.T) {
		r := refund(3)
		r.N = 7
		claimed := make(chan memory.Claimed)
		go func() {
			got, err := access.Claim(ctx, r)
			if err != nil {
				t.Error(err)
			}
			claimed <- got
		}()
		emit(webmemorytest.Analytic, &event.ToolProgress{Tool: "refund", Status: "running"})
		require.Equal(t, memory.CallGranted, (<-claimed).State)
	})
	t.Run("bad input", func(t *testing.T) {
		for _, bad := range []func(*memory.ClaimRequest){
			func(r *memory.ClaimRequest) { r.N = 0 },
			func(r *memory.ClaimRequest) { r.Seq = -1 },
			func(r *memory.ClaimRequest) { r.Tool = "" },
			func(r *memory.ClaimRequest) { r.Tool = strings.Repeat("x", 300) },
			func(r *memory.ClaimRequest) { r.Subagent = "no such:name" },
			func(r *memory.ClaimRequest) { r.Arguments = json.RawMessage(`[1]`) },
		} {
			r := refund(2)
			bad(&r)
			_, err := access.Claim(ctx, r)
			require.ErrorIs(t, err, &api.Problem{Code: "bad_request"})
		}
		err := access.Settle(ctx, "none", "", false)
		require.ErrorIs(t, err, &api.Problem{Code: "unknown_call"})
		err = access.Settle(ctx, first.CallID, strings.Repeat("x", 300<<10), false)
		require.ErrorIs(t, err, &api.Problem{Code: "too_large"})
		stranger := access
		stranger.Token = "other"
		_, err = stranger.Claim(ctx, refund(2))
		require.ErrorIs(t, err, &api.Problem{Code: "run_not_held"})
	})
	t.Run("not under a turn that is over", func(t *testing.T) {
		turn := w.Redis.HGet(ctx, "{chat_history:1}:meta", "turn").Val()
		require.NoError(t, w.Redis.HIncrBy(ctx, "{chat_history:1}:meta", "turn", 1).Err())
		r := refund(2)
		r.N = 9
		_, err := access.Claim(ctx, r)
		require.ErrorIs(t, err, &api.Problem{Code: "run_not_held"})
		require.ErrorIs(t, access.Settle(ctx, first.CallID, "", false),
			&api.Problem{Code: "run_not_held"})
		require.NoError(t, w.Redis.HSet(ctx, "{chat_history:1}:meta", "turn", turn).Err())
	})
	emit(event.Head{}, &event.Error{Code: "upstream_failed", Message: "Away.", Retryable: true})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	webmemorytest.Eventually(t, "the run is over", func() bool { return w.Redis.ZCard(ctx, "turns:open").Val() == 0 })
	_, err := access.Claim(ctx, refund(2))
	require.ErrorIs(t, err, &api.Problem{Code: "run_not_held"})
}

// A further attempt at the same post finds what the first one called.
func TestAFurtherAttemptDoesNotCallAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, access, emit := claiming(t)
	got, err := access.Claim(ctx, refund(2))
	require.NoError(t, err)
	require.NoError(t, access.Settle(ctx, got.CallID, "paid", false))
	emit(event.Head{}, &event.Error{Code: "upstream_failed", Message: "Away.", Retryable: true})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	webmemorytest.Eventually(t, "the run is over", func() bool { return w.Redis.ZCard(ctx, "turns:open").Val() == 0 })

	claims := make(chan memory.Claimed, 2)
	asks := webmemorytest.SuspendOn(webmemorytest.OneApproval)
	w.ScriptApiserver(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		emits := emit
		if r.Resume != nil { // where the tool is called again
			emits = func(h event.Head, p event.Payload) {
				emit(h, p)
				if _, ok := p.(*event.RunResumed); ok {
					got, err := r.Memory.Claim(ctx, refund(5))
					if err != nil {
						w.T.Error(err)
					}
					claims <- got
				}
			}
		}
		asks(ctx, r, emits)
	})
	other := w.StartReplica()
	run := w.PostSuspended("1", "Idempotency-Key", "k2")
	require.NotEmpty(t, run)
	// The chat's first post again: a second attempt, which waits, and goes on in another process.
	answered := w.Post("1", "hi", "Idempotency-Key", "k")
	require.Equal(t, 202, answered.Status, string(answered.Body))
	w.AwaitSuspension("1")
	w.Target(other, func() {
		got := w.Resume("1", answered.RunID(), webmemorytest.Approve("w1"))
		require.Equal(t, 200, got.Status, string(got.Body))
	})
	require.Equal(t, memory.Claimed{CallID: got.CallID, State: memory.CallDone, Result: "paid"}, <-claims)

	calls := w.Redis.Keys(ctx, "{chat_history:1}:calls:*").Val()
	require.Len(t, calls, 1)
	require.Greater(t, w.Redis.PTTL(ctx, calls[0]).Val(), 23*time.Hour)
	require.Contains(t, w.Redis.HGet(ctx, calls[0], got.CallID).Val(), `"tool":"crm/refund"`)
	t.Run("and nothing of it outlives a redaction", func(t *testing.T) {
		var page struct{ Messages []struct{ ID string } }
		require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/1/history", nil).Body, &page))
		got := w.Do("DELETE", "/v1/chats/1/messages/"+page.Messages[0].ID, nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Empty(t, w.Redis.Keys(ctx, "*calls*").Val())
	})
}

func TestCallsAreErasedWithTheirChat(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w, access, emit := claiming(t)
	_, err := access.Claim(ctx, refund(2))
	require.NoError(t, err)
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	webmemorytest.Eventually(t, "the run is over", func() bool { return w.Redis.ZCard(ctx, "turns:open").Val() == 0 })
	require.NotEmpty(t, w.Redis.Keys(ctx, "*calls*").Val())
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Empty(t, w.Redis.Keys(ctx, "*calls*").Val())
}
