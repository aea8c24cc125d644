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

// Join waits until the apiserver has accepted the first post with this idempotency key.
// Neither run nor error means that it was refused.
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
			return nil, problem.ErrErased // what was erased comes back by no repetition
		}
		if r.Log.Last() == 0 {
			return nil, nil
		}
	default:
	}
	return r, nil
}

// RecordOf gives the record of a run that was begun; nil for none. A process that dies between the record and the note
// of the open run beside the chat's lease has not asked an apiserver for the run yet and leaves the record alone, which
// no process looks after: that counts as none, and the post that finds it begins the run under the same record.
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

// IsNamed says whether a chat's meta names a run, as one that goes on or that waits.
func IsNamed(ctx context.Context, store *redisstore.Store, chat memory.Chat, run string) (bool, error) {
	open, err := store.Turns.OpenRun(ctx, chat)
	if err != nil || open != nil && open.Run == run {
		return true, err
	}
	waiting, err := store.Suspensions.Rest(ctx, chat)
	return waiting != nil && waiting.Run == run, err
}

// Final is the answer to a post that waits for its run's end, as it is kept in the run's
// record for posts that repeat it: a webapi.Result, or an api.Problem.
type Final struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// MayPass says whether the answer is a failure that another attempt may not meet.
func (f *Final) MayPass() bool {
	var p api.Problem
	return f.Status != http.StatusOK && json.Unmarshal(f.Body, &p) == nil && p.Retryable
}

// Encoded is the answer as it is sent.
func (f *Final) Encoded() []byte {
	if f.Status != http.StatusOK {
		return append(append([]byte(`{"error":`), f.Body...), '}')
	}
	return f.Body
}

// MayPass says whether the run failed in a way that another attempt may not.
func (r *Run) MayPass() bool {
	if r.Log.Outcome() != event.Failed {
		return false
	}
	_, _, err := r.Collect(context.Background()) // it is over: nothing is waited for
	var p *api.Problem
	return errors.As(err, &p) && p.Retryable
}

// Final is the answer to a post that waits for the run's end: a webapi.Result, or an
// *api.Problem.
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
		panic(fmt.Sprintf("webmemory: an answer does not encode: %v", err)) // plain structs of ours
	}
	if raw, err = json.Marshal(Final{status, raw}); err != nil {
		panic(fmt.Sprintf("webmemory: a final answer does not encode: %v", err))
	}
	return raw
}
