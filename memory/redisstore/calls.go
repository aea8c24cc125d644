package redisstore

import (
	"context"
	"encoding/json"
	"errors"

	"mneme/memory"
)

// Call is one external tool call, as stored under its id. A run claims a call before it makes it.
type Call struct {
	Run       string       `json:"run"` // the first attempt that was granted the call
	Subagent  memory.Agent `json:"subagent,omitempty"`
	Tool      string       `json:"tool"`
	N         int          `json:"n"`
	ClaimedAt int64        `json:"at"` // Unix ms
}

// Claim claims a run's call by its id, under the chat's lease and turn. word is a state of memory.Claimed, and result
// is the result that Settle stored. first is the run of the first attempt at the post; all attempts share their calls.
// memory.ErrMoved means that the turn has ended. memory.ErrUnavailable means that the call is not granted, for example
// because too few replicas confirmed it.
func (s Runs) Claim(ctx context.Context, chat memory.Chat, token string, turn int64, first, id string, c Call,
	repeatable bool) (word string, result []byte, err error) {
	record, err := json.Marshal(c)
	if err != nil {
		return "", nil, err
	}
	// Write the index first. The erasure of a chat finds calls by their run.
	err = s.redis.HSetNX(ctx, chatMeta(chat), "r:"+first, s.now().Add(s.openLife(true)).UnixMilli()).Err()
	if err != nil {
		return "", nil, failure(err, "claiming a call of run %s", first)
	}
	r, err := s.replicated(ctx, claimScript, append(turnKeys(chat), callsKey(chat, first)),
		token, turn, id, record, repeatable, s.openLife(true).Milliseconds())
	if errors.Is(err, errFewReplicas) && r.Word() == memory.CallGranted {
		err = errors.Join(err, s.Unclaim(ctx, chat, first, id))
	}
	return r.Word(), []byte(r.Part(1)), failure(err, "claiming a call of run %s", first)
}

// Settle stores the result of a granted call. It keeps an earlier result. It returns false if the call was not granted.
func (s Runs) Settle(ctx context.Context, chat memory.Chat, turn int64, first, id string, result []byte) (bool,
	error) {
	r, err := s.replicated(ctx, settleScript, []string{chatMeta(chat), callsKey(chat, first)},
		turn, id, result)
	return r.Word() == "ok", failure(err, "keeping the result of a call of run %s", first)
}

// Unclaim withdraws a granted call that will not be made.
func (s Runs) Unclaim(ctx context.Context, chat memory.Chat, first, id string) error {
	return failure(s.redis.HDel(ctx, callsKey(chat, first), id).Err(), "taking back a call of run %s", first)
}

// ResultOf returns the field that holds the result of a call.
func ResultOf(id string) string { return id + ":result" }

// RestoreCalls restores calls of a run that Redis lost, under the token of the chat's lease. fields are calls by their
// ids, and results by ResultOf. Existing fields stay.
func (s Runs) RestoreCalls(ctx context.Context, chat memory.Chat, token, first string,
	fields map[string]string) error {
	if len(fields) == 0 {
		return nil
	}
	life := s.openLife(true)
	args := []any{token, "r:" + first, s.now().Add(life).UnixMilli(), life.Milliseconds()}
	for name, value := range fields {
		args = append(args, name, value)
	}
	_, err := s.call(ctx, callsScript, append(turnKeys(chat), callsKey(chat, first)), args...)
	return failure(err, "putting back the calls of run %s", first)
}
