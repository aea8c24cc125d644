package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/event"
)

func TestLogTakesOnlyTheNextEvent(t *testing.T) {
	log := logOf(t, delta(1, "a"))
	require.ErrorIs(t, log.Append(delta(1, "a")), api.ErrOrder)
	require.ErrorIs(t, log.Append(delta(3, "c")), api.ErrOrder)
	other := delta(2, "b")
	other.RunID = "r2"
	require.ErrorIs(t, log.Append(other), api.ErrOrder)
	require.NoError(t, log.Append(finished(2)))
	require.ErrorIs(t, log.Append(delta(3, "c")), api.ErrOver)
	require.EqualValues(t, 2, log.Last())
	require.Equal(t, event.Completed, log.Outcome())
}

func TestLogIsBoundedAndAlwaysTakesTheEnd(t *testing.T) {
	testtier.Slow(t)
	for name, limits := range map[string]api.Limits{
		"by count": {Events: 1},
		"by bytes": {Bytes: len(delta(1, "a").Line()) + 10},
	} {
		t.Run(name, func(t *testing.T) {
			log := api.NewLog(runID, limits)
			require.NoError(t, log.Append(delta(1, "a")))
			require.ErrorIs(t, log.Append(delta(2, "b")), api.ErrLogFull)
			require.EqualValues(t, 1, log.Last())
			require.NoError(t, log.Append(finished(2)))
			require.True(t, log.Done())
		})
	}
	huge := delta(1, strings.Repeat("x", api.MaxEvent))
	require.ErrorIs(t, api.NewLog(runID, api.Limits{}).Append(huge), api.ErrLogFull)
}

func TestLogRefusesARoleThatWouldBreakItsFrame(t *testing.T) {
	e, err := event.Decode([]byte(`{"role":"x\ndata: {}","run_id":"r1","seq":1}`))
	require.NoError(t, err)
	require.Error(t, api.NewLog(runID, api.Limits{}).Append(e))
}

func TestFollowRefusesPositionsThatNeverWere(t *testing.T) {
	log := logOf(t, delta(1, "a"), delta(2, "b"))
	for _, after := range []int64{-1, 3, 1 << 62} {
		for _, err := range log.Follow(t.Context(), after) {
			require.ErrorIs(t, err, api.ErrPosition)
		}
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	log := logOf(t, delta(1, "a"))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for e, err := range log.Follow(ctx, 0) {
		if last = err; err == nil {
			require.EqualValues(t, 1, e.Seq)
			cancel(why)
		}
	}
	require.ErrorIs(t, last, why)
}

func TestDroppedEventsAreGoneButTheEndIsKnown(t *testing.T) {
	log := logOf(t, delta(1, "a"), finished(2))
	log.Drop()
	require.Zero(t, log.Size())
	for _, err := range log.Follow(t.Context(), 1) {
		require.ErrorIs(t, err, api.ErrGone)
	}
	for range log.Follow(t.Context(), 2) {
		t.Fatal("nothing is new to who has everything")
	}
}

func TestAbortGivesWhatIsThereAndThenItsProblem(t *testing.T) {
	log := logOf(t, delta(1, "a"))
	moved := &api.Problem{Code: "turn_moved", Message: "Another turn has begun.", Retryable: true}
	var seqs []int64
	var last error
	for e, err := range log.Follow(t.Context(), 0) {
		if err != nil {
			last = err
			break
		}
		seqs = append(seqs, e.Seq)
		log.Abort(moved)
	}
	require.Equal(t, []int64{1}, seqs)
	require.ErrorIs(t, last, moved)
	require.ErrorIs(t, log.Append(delta(2, "b")), api.ErrOver)
	require.False(t, log.Done())
}

func TestEndCompletesEveryOpenDelegation(t *testing.T) {
	call := func(seq int64, id string, p event.Payload) event.Event {
		e := at(seq, p)
		e.Subagent, e.CallID = "analytic", id
		return e
	}
	log := api.NewLog(runID, api.Limits{Events: 4}) // full: the end must fit all the same
	for _, e := range []event.Event{
		at(1, &event.RunStarted{ChatID: memory.MustChat("1"), Message: "hi"}),
		call(2, "c1", &event.Delegation{Task: "a", Calls: event.Serial}),
		call(3, "c2", &event.Delegation{Task: "b", Calls: event.Serial}),
		call(4, "c1", &event.Completion{Response: "done", Status: event.Completed}),
	} {
		require.NoError(t, log.Append(e))
	}
	cause := event.Error{Code: "internal", Message: "It broke."}
	planned := log.Closing(cause, time.Unix(10, 0))
	require.True(t, log.End(cause, time.Unix(10, 0)))
	require.False(t, log.End(cause, time.Unix(11, 0)), "an end is written once")

	var got []event.Event
	for e, err := range log.Follow(t.Context(), 4) {
		require.NoError(t, err)
		got = append(got, e)
	}
	require.Equal(t, planned, got)
	require.Equal(t, []event.Event{
		event.New(event.Head{RunID: runID, Seq: 5, TS: 10, Subagent: "analytic", CallID: "c2"},
			&event.Completion{Response: "(no answer: internal)", Status: event.Failed, Failure: "internal"}),
		event.New(event.Head{RunID: runID, Seq: 6, TS: 10}, &cause),
		event.New(event.Head{RunID: runID, Seq: 7, TS: 10}, &event.RunFinished{Outcome: event.Failed}),
	}, got)
}

// What a lost run had shown is not lost with it, and a run that had its answer is
// closed as what it was.
func TestEndKeepsWhatWasShown(t *testing.T) {
	lost := event.Error{Code: "run_lost", Retryable: true}
	text, part := &event.AssistantDelta{Text: "half "}, &event.AssistantDelta{Text: "an answer"}
	half := &event.Assistant{Content: "half an answer", Partial: true, Failure: "run_lost"}
	used := event.Usage{InputTokens: 5, OutputTokens: 2}
	failed := func(u event.Usage) *event.RunFinished {
		return &event.RunFinished{Outcome: event.Failed, Usage: u}
	}
	for name, test := range map[string]struct{ came, want []event.Payload }{
		"nothing":             {nil, []event.Payload{&lost, failed(event.Usage{})}},
		"a part of an answer": {[]event.Payload{text, part}, []event.Payload{half, &lost, failed(event.Usage{})}},
		"what delegations used": {[]event.Payload{&event.Completion{Response: "x", Usage: used}, &event.Completion{
			Response: "y", Usage: used,
		}},
			[]event.Payload{&lost, failed(used.Add(used))}},
		"an answer": {[]event.Payload{text, &event.Assistant{Content: "half "}}, []event.Payload{
			&event.RunFinished{Outcome: event.Completed},
		}},
		"a stop": {[]event.Payload{text, &event.Assistant{Content: "half ", Partial: true}}, []event.Payload{
			&event.RunFinished{Outcome: event.Stopped},
		}},
		"an error": {[]event.Payload{&event.Error{Code: "model_failed"}}, []event.Payload{failed(event.Usage{})}},
		"a part that is told, and not its error": {[]event.Payload{
			text, &event.Assistant{Content: "half ", Partial: true, Failure: "model_failed"},
		},
			[]event.Payload{&lost, failed(event.Usage{})}},
	} {
		t.Run(name, func(t *testing.T) {
			log := api.NewLog(runID, api.Limits{})
			for i, p := range test.came {
				require.NoError(t, log.Append(at(int64(i+1), p)))
			}
			var got []event.Payload
			for _, e := range log.Closing(lost, time.Unix(10, 0)) {
				got = append(got, e.Payload)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// However appends and readers interleave, a reader gets exactly what it misses.
func TestFollowGivesExactlyTheMissingEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 40).Draw(t, "events")
		before := rapid.Int64Range(0, total).Draw(t, "already there")
		readers := rapid.SliceOfN(rapid.Int64Range(0, before), 1, 5).Draw(t, "readers' positions")
		log := api.NewLog(runID, api.Limits{})
		add := func(seq int64) {
			e := delta(seq, "x")
			if seq == total {
				e = finished(seq)
			}
			if err := log.Append(e); err != nil {
				t.Fatal(err)
			}
		}
		for seq := int64(1); seq <= before; seq++ {
			add(seq)
		}
		got := make([][]int64, len(readers))
		var reading sync.WaitGroup
		for i, after := range readers {
			reading.Go(func() {
				for e := range log.Follow(context.Background(), after) {
					got[i] = append(got[i], e.Seq)
				}
			})
		}
		for seq := before + 1; seq <= total; seq++ {
			add(seq)
		}
		reading.Wait()
		for i, after := range readers {
			require.Equal(t, from(after+1, total), got[i])
		}
	})
}

// A reader of a run that waits comes to an end; a reader of it once it goes on gets what follows.
func TestALogRestsWhereItsRunWaits(t *testing.T) {
	waiting := at(2, &event.RunWaiting{Pending: []event.Wait{{ID: "w1", Kind: event.Approval}}})
	log := logOf(t, delta(1, "a"), waiting)
	require.True(t, log.Waiting())
	require.False(t, log.Done())
	var seqs []int64
	for e, err := range log.Follow(t.Context(), 0) {
		require.NoError(t, err)
		seqs = append(seqs, e.Seq)
	}
	require.Equal(t, from(1, 2), seqs)
	require.ErrorIs(t, log.Reach(t.Context(), 3), api.ErrGone)
	server := serve(t, log, api.Pace{})
	got, err := read(t.Context(), client(t, server.URL), server.URL, 0)
	require.NoError(t, err)
	require.Equal(t, from(1, 2), got)
	resp, _ := get(t, server.URL, "2")
	require.Equal(t, 204, resp.StatusCode)

	again, err := api.GoOn(runID, api.Limits{}, []json.RawMessage{delta(1, "a").Line(), waiting.Line()})
	require.NoError(t, err)
	require.False(t, again.Waiting())
	server = serve(t, again, api.Pace{})
	reading := make(chan []int64)
	go func() {
		seqs, _ := read(t.Context(), client(t, server.URL), server.URL, 0)
		reading <- seqs
	}()
	require.NoError(t, again.Append(at(3, &event.RunResumed{})))
	require.NoError(t, again.Append(finished(4)))
	require.Equal(t, from(1, 4), <-reading)
	require.EqualValues(t, 4, again.Last())

	passed := api.NewLog(runID, api.Limits{})
	passed.GoOn()
	require.NoError(t, passed.Append(at(1, &event.RunWaiting{})))
	require.False(t, passed.Waiting())
	require.True(t, passed.AtWait())
	passed.Rest()
	require.True(t, passed.Waiting())
	require.NoError(t, passed.Append(at(2, &event.RunResumed{})))
	require.False(t, passed.AtWait())
	require.NoError(t, passed.Append(at(3, &event.RunWaiting{})))
	require.True(t, passed.Waiting(), "each wait ends reading anew")

	_, err = api.GoOn(runID, api.Limits{}, []json.RawMessage{waiting.Line()})
	require.ErrorIs(t, err, api.ErrOrder)
}

// A run that waits is ended without leaving a call unanswered, also where that broke off.
func TestDenyingEndsARunThatWaits(t *testing.T) {
	of := func(seq int64, p event.Payload) event.Event {
		e := at(seq, p)
		e.Subagent, e.CallID = "billing", "c1"
		return e
	}
	calls := []memory.ToolCall{{ID: "t1", Function: memory.FunctionCall{Name: "refund"}},
		{ID: "t2", Function: memory.FunctionCall{Name: "find"}}}
	log := logOf(t,
		at(1, &event.RunStarted{ChatID: memory.MustChat("1"), Message: "hi"}),
		at(2, &event.AssistantDelta{Text: "one moment"}),
		of(3, &event.Delegation{Task: "a", Calls: event.Serial}),
		of(4, &event.AssistantWithTools{ToolCalls: calls}),
		of(5, &event.ToolResult{ToolCallID: "t2", Name: "find", Content: "found"}),
		at(6, &event.RunWaiting{Pending: []event.Wait{{ID: "w1", Subagent: "billing", CallID: "c1", ToolCallID: "t1"},
			{ID: "w2", Tool: "own"}}}))
	whole := log.Denying("too late", time.Unix(10, 0))
	var payloads []event.Payload
	for _, e := range whole {
		payloads = append(payloads, e.Payload)
	}
	require.Equal(t, []event.Payload{
		&event.RunResumed{Answers: []event.WaitAnswer{{ID: "w1", Decision: event.Deny, Reason: "too late"},
			{ID: "w2", Decision: event.Deny, Reason: "too late"}}},
		&event.MasterTool{Tool: "own", Status: "failed", Detail: "too late"},
		&event.ToolResult{ToolCallID: "t1", Name: "refund", Content: "(denied: too late)"},
		&event.Completion{Response: "(denied: too late)", Status: event.Stopped},
		&event.Assistant{Content: "one moment", Partial: true},
		&event.RunFinished{Outcome: event.Stopped},
	}, payloads)
	for _, e := range whole[:2] {
		require.NoError(t, log.Append(e))
	}
	for i, e := range whole[2:] {
		require.Equal(t, whole[i+2:], log.Denying("too late", time.Unix(10, 0)))
		require.NoError(t, log.Append(e))
	}
	require.Empty(t, log.Denying("too late", time.Unix(10, 0)))
}
