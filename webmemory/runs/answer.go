package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory/problem"
)

// Join waits until the apiserver has accepted r, and returns r. repeat is a later post with r's idempotency key. If r
// was refused, Join returns nil, nil. If the bodies differ, the error is problem.ErrKeyReused.
func (r *Run) Join(ctx context.Context, repeat *Run) (*Run, error) {
	if r.Body != repeat.Body {
		return nil, problem.ErrKeyReused
	}
	select {
	case <-r.Posted:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-r.Done:
		if errors.Is(r.Refused, problem.ErrErased) {
			return nil, problem.ErrErased // a repeated post must not restore erased text
		}
		if r.Log.Last() == 0 {
			return nil, nil
		}
	default:
	}
	return r, nil
}

// RecordOf returns r's record, or nil if r has not begun.
//
// A process can die after it stores the record and before it stores the open run with the chat's lease. It has not
// asked an apiserver for the run, and no process cleans up the record. RecordOf returns nil for such a record, so the
// next post begins the run under it.
func RecordOf(ctx context.Context, store *redisstore.Store, r *Run) (*redisstore.Record, error) {
	record, err := store.Runs.Record(ctx, r.Chat, r.ID)
	if err != nil || record == nil || record.Done() || record.Newest > r.Attempt {
		return record, err
	}
	line, err := store.Runs.LastEvent(ctx, r.Chat, r.ID)
	if err != nil || len(line) > 0 {
		return record, err
	}
	if ok, err := IsNamed(ctx, store, r.Chat, r.ID); err != nil || ok {
		return record, err
	}
	return nil, nil
}

// IsNamed reports whether the chat's meta names run as its open run or as its waiting run.
func IsNamed(ctx context.Context, store *redisstore.Store, chat memory.Chat, run string) (bool, error) {
	open, err := store.Turns.OpenRun(ctx, chat)
	if err != nil || open != nil && open.Run == run {
		return true, err
	}
	waiting, err := store.Suspensions.Rest(ctx, chat)
	return waiting != nil && waiting.Run == run, err
}

// Final is the stored answer to a post that waits for its run's end. The run's record keeps it for repeated posts. Body
// is a webapi.Result or an api.Problem.
type Final struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// MayPass reports whether the answer is a retryable failure.
func (f *Final) MayPass() bool {
	var p api.Problem
	return f.Status != http.StatusOK && json.Unmarshal(f.Body, &p) == nil && p.Retryable
}

// Encoded returns the body of the response.
func (f *Final) Encoded() []byte {
	if f.Status != http.StatusOK {
		return append(append([]byte(`{"error":`), f.Body...), '}')
	}
	return f.Body
}

// MayPass reports whether the run failed with a retryable problem.
func (r *Run) MayPass() bool {
	if r.Log.Outcome() != event.Failed {
		return false
	}
	_, _, err := r.Collect(context.Background()) // does not block: the run has ended
	var p *api.Problem
	return errors.As(err, &p) && p.Retryable
}

// Final waits for the run's end and returns the answer to its post. body is a webapi.Result or an *api.Problem.
func (r *Run) Final(ctx context.Context) (status int, body any) {
	out, _, err := r.Collect(ctx)
	if err != nil {
		p := problem.FromError(err)
		return p.Status, p
	}
	return http.StatusOK, out
}

// EncodeFinal returns the stored form of a run's final answer.
func EncodeFinal(status int, body any) []byte {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("webmemory: an answer does not encode: %v", err)) // plain structs always encode
	}
	if raw, err = json.Marshal(Final{status, raw}); err != nil {
		panic(fmt.Sprintf("webmemory: a final answer does not encode: %v", err))
	}
	return raw
}
