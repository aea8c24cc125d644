package webmemory

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// This file is about posts that are repeated with their Idempotency-Key: they join
// the run of the first one, replay its end, or, if it failed in a way that may pass,
// try once more in a run of their own.

// runID is random, or follows from the chat, the client's key and the number of the
// attempt, so that a repeated post finds its run.
func runID(chat memory.Chat, key string, attempt int) string {
	if key == "" {
		return rand.Text()
	}
	name := chat.String() + "\x00" + key // no header can hold the separator
	if attempt > 1 {
		name += "\x00" + strconv.Itoa(attempt)
	}
	sum := sha256.Sum256([]byte(name))
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// begin gives the run of a post: a new one, or the one that an earlier post with
// the same key began, here or in another process, with its final answer if that
// was kept. It returns once the apiserver has accepted the run; a post refused
// before that has left nothing behind. fresh: the run began for this very post.
func (s *Server) begin(
	ctx context.Context, chat memory.Chat, p webapi.MessageRequest, key string,
) (found *run, kept *final, fresh bool, err error) {
	sum := sha256.Sum256([]byte(p.AgentVersion + "\x00" + p.Message))
	for attempt := 1; ; {
		r := newRun(runID(chat, key, attempt), chat, hex.EncodeToString(sum[:]))
		telemetry.Concerns(ctx, chat.String(), r.id)
		r.trail = telemetry.From(ctx)
		r.keyed = key != ""
		if r.attempt = attempt; attempt > 1 {
			r.first, r.retryOf = runID(chat, key, 1), runID(chat, key, attempt-1)
		}
		found, kept, newer, err := s.try(ctx, r, p, key)
		if newer <= attempt || err != nil {
			return found, kept, found == r, err
		}
		attempt = newer
	}
}

// try is one attempt at a post. The number of a newer one instead: this attempt
// has failed in a way that may pass, or there is a newer one already.
func (s *Server) try(
	ctx context.Context, r *run, p webapi.MessageRequest, key string,
) (found *run, kept *final, newer int, err error) {
	for {
		other, err := s.register(r)
		if err != nil {
			return nil, nil, 0, err
		}
		if other == nil {
			break
		}
		if s.outdated(ctx, other) {
			s.forgetRun(other)
			continue
		}
		joined, err := other.join(ctx, r)
		if err != nil {
			return nil, nil, 0, err
		}
		if joined != nil && key != "" && joined.mayPass() {
			return nil, nil, r.attempt + 1, nil
		}
		if joined != nil {
			return joined, nil, 0, nil
		}
		// The earlier post was refused; this one may still run.
	}
	record, newer, err := s.knownOrStarted(ctx, r, p, key)
	if err != nil || record != nil {
		r.refused = err
		s.forgetRun(r)
		r.end()
	}
	close(r.posted)
	if err != nil || newer > r.attempt {
		return nil, nil, newer, err
	}
	if record == nil {
		return r, nil, 0, nil
	}
	kept = keptAnswer(record)
	found = s.mirror(ctx, r.chat, r.id, kept != nil)
	found.attempt = r.attempt
	return found, kept, 0, nil
}

// knownOrStarted gives the record of a run that another process has, with the number of a
// newer attempt if there is one or should be. Without a record the run was started here.
func (s *Server) knownOrStarted(
	ctx context.Context, r *run, p webapi.MessageRequest, key string,
) (record *redisstore.Record, newer int, err error) {
	record, err = s.known(ctx, r, key)
	if err != nil {
		return nil, 0, err
	}
	if record != nil {
		newer = record.Newest
		if kept := keptAnswer(record); newer == 0 && kept != nil && kept.mayPass() {
			newer = r.attempt + 1
		}
		return record, newer, sameBody(record, r)
	}
	// One that is found now was begun by somebody who tried at the same time.
	if record, err = s.start(ctx, r, p); err != nil || record == nil {
		return record, 0, err
	}
	return record, 0, sameBody(record, r)
}

// known looks for a run that another process, or this one before its last start,
// began for the same key. One that is over, as its client knows already, is waited
// for until its answer is kept.
func (s *Server) known(ctx context.Context, r *run, key string) (*redisstore.Record, error) {
	if key == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		record, err := s.store.Record(ctx, r.chat, r.id)
		if err != nil || record == nil || len(record.Result) > 0 || record.Newest > r.attempt {
			return record, err
		}
		line, err := s.store.LastEvent(ctx, r.chat, r.id)
		if err != nil {
			return nil, err
		}
		if last, err := event.Decode(line); err != nil || !last.Terminal() {
			return record, nil // it goes on, or nothing of it is known
		}
		select {
		case <-time.After(jitter(40 * time.Millisecond)):
		case <-ctx.Done():
			return record, nil // who has it did not come to keep its answer
		}
	}
}

var errKeyReused = &api.Problem{
	Status: http.StatusUnprocessableEntity, Code: webapi.CodeKeyReused,
	Message: "This Idempotency-Key was used with another message.",
}

func sameBody(record *redisstore.Record, again *run) error {
	if record.Body != "" && record.Body != again.body { // "": Redis lost it before it was told how the run ended
		return errKeyReused
	}
	return nil
}

// join waits until the first post with this key is accepted. Neither run nor
// error means that it was refused.
func (r *run) join(ctx context.Context, again *run) (*run, error) {
	if r.body != again.body {
		return nil, errKeyReused
	}
	select {
	case <-r.posted:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-r.done:
		if errors.Is(r.refused, errErased) {
			return nil, errErased // what was erased comes back by no repetition
		}
		if r.log.Last() == 0 {
			return nil, nil
		}
	default:
	}
	return r, nil
}

// mayPass says whether the run failed in a way that another attempt may not.
func (r *run) mayPass() bool {
	if r.log.Outcome() != event.Failed {
		return false
	}
	_, err := r.collect(context.Background()) // it is over: nothing is waited for
	var p *api.Problem
	return errors.As(err, &p) && p.Retryable
}

// owes says whether a chat's history ends with this message of the user's and its
// failure. Versions that stored no failures left the message alone; whether it is
// the one that failed is not known then.
func owes(h *memory.History, message string) bool {
	for i := h.Len() - 1; i >= 0; i-- {
		last, err := memory.Decode(h.Raw(i)[:1])
		if err != nil {
			return false
		}
		if m := last[0]; m.Role != memory.RoleAssistant || m.Failure == "" {
			return i < h.Len()-1 && m.Role == memory.RoleUser && m.Content == message
		}
	}
	return false
}

// final is how the answer to a post that waits for the run's end is kept: a result,
// or a Problem.
type final struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// keptAnswer is the final answer in a record; nil while the run goes on.
func keptAnswer(record *redisstore.Record) *final {
	f := new(final)
	if len(record.Result) == 0 {
		return nil
	}
	if err := json.Unmarshal(record.Result, f); err != nil {
		return &final{Status: http.StatusInternalServerError, Body: json.RawMessage(`{"code":"internal","message":"The kept answer of this run is damaged; read the chat's history."}`)}
	}
	return f
}

// mayPass says whether the answer is a failure that another attempt may not meet.
func (f *final) mayPass() bool {
	var p api.Problem
	return f.Status != http.StatusOK && json.Unmarshal(f.Body, &p) == nil && p.Retryable
}

// body is the answer as it is sent.
func (f *final) body() []byte {
	if f.Status != http.StatusOK {
		return append(append([]byte(`{"error":`), f.Body...), '}')
	}
	return f.Body
}

// final is the answer to a post that waits for the run's end: a result, or a
// Problem.
func (r *run) final(ctx context.Context) (status int, body any) {
	out, err := r.collect(ctx)
	if err != nil {
		p := problemOf(err)
		return p.Status, p
	}
	return http.StatusOK, out
}

func encodeFinal(status int, body any) []byte {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("webmemory: an answer does not encode: %v", err)) // plain structs of ours
	}
	if raw, err = json.Marshal(final{status, raw}); err != nil {
		panic(fmt.Sprintf("webmemory: a final answer does not encode: %v", err))
	}
	return raw
}
