package redisstore

import (
	"context"
	"encoding/json"
	"errors"

	"mneme/memory"
)

// This file is about calls of tools outside, which a run claims before it makes them.

// Call is one call of a tool outside, as a run's calls have it under the call's id.
type Call struct {
	Run       string       `json:"run"` // the attempt that was granted it first
	Subagent  memory.Agent `json:"subagent,omitempty"`
	Tool      string       `json:"tool"`
	N         int          `json:"n"`
	ClaimedAt int64        `json:"at"` // Unix ms
}

// Claim asks for a call of a run's, by its id, under the chat's lease and turn. The word is one of
// the states of a memory.Claimed; result is that of Settle. first is the run of the first attempt at the post: all
// attempts share their calls. memory.ErrMoved: the turn is over. memory.ErrUnavailable: it is not granted, also where
// too few replicas have it.
func (s Runs) Claim(ctx context.Context, chat memory.Chat, token string, turn int64, first, id string, c Call,
	repeatable bool) (word string, result []byte, err error) {
	record, err := json.Marshal(c)
	if err != nil {
		return "", nil, err
	}
	// The index first: calls are found by their run when the chat is erased.
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

// Settle keeps what a granted call returned; the first result stays. false: it was not granted.
func (s Runs) Settle(ctx context.Context, chat memory.Chat, turn int64, first, id string, result []byte) (bool,
	error) {
	r, err := s.replicated(ctx, settleScript, []string{chatMeta(chat), callsKey(chat, first)},
		turn, id, result)
	return r.Word() == "ok", failure(err, "keeping the result of a call of run %s", first)
}

// Unclaim takes a call back that was granted and will not be made.
func (s Runs) Unclaim(ctx context.Context, chat memory.Chat, first, id string) error {
	return failure(s.redis.HDel(ctx, callsKey(chat, first), id).Err(), "taking back a call of run %s", first)
}

// ResultOf is the field beside a call's own that has its result.
func ResultOf(id string) string { return id + ":result" }

// RestoreCalls puts back what Redis lost of a run's calls, under the token of the chat's lease: fields are calls by
// their ids and results by ResultOf. What Redis has stays.
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
