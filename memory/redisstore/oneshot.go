package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// OneShotLife is how long a run without a chat is kept that waits for its client's tools.
const OneShotLife = time.Hour

// A run without a chat that waits is a hash, with what it goes on from in the field state and its calls as those of a
// chat's run: the call under its id, and its result under that and ":result".

// SaveOneShot keeps what a run without a chat goes on from, for OneShotLife.
func (s *Store) SaveOneShot(ctx context.Context, run string, state []byte) error {
	key := oneShotKey(run)
	_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, "state", state)
		p.Expire(ctx, key, OneShotLife)
		return nil
	})
	return failure(err, "keeping the one-shot %s", run)
}

// OneShot gives what SaveOneShot kept, and keeps it for another OneShotLife; nil if there is no such run, or not any
// more.
func (s *Store) OneShot(ctx context.Context, run string) ([]byte, error) {
	key := oneShotKey(run)
	var state *redis.StringCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		state = p.HGet(ctx, key, "state")
		p.Expire(ctx, key, OneShotLife)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return []byte(state.Val()), failure(err, "reading the one-shot %s", run)
}

// ClaimOneShot is Claim for a run that SaveOneShot has kept, however many processes go on with it. memory.ErrMoved:
// it is not kept any more.
func (s *Store) ClaimOneShot(ctx context.Context, run, id string, c Call, repeatable bool) (word string, result []byte,
	err error) {
	record, err := json.Marshal(c)
	if err != nil {
		return "", nil, err
	}
	key := oneShotKey(run)
	kept, err := s.redis.Expire(ctx, key, OneShotLife).Result()
	if err == nil && !kept {
		err = memory.ErrMoved
	}
	if err != nil {
		return "", nil, failure(err, "claiming a call of the one-shot %s", run)
	}
	var granted *redis.BoolCmd
	var done *redis.StringCmd
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		granted, done = p.HSetNX(ctx, key, id, record), p.HGet(ctx, key, id+":result")
		p.Expire(ctx, key, OneShotLife) // also of a key that was lost since
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return "", nil, failure(err, "claiming a call of the one-shot %s", run)
	case done.Err() == nil:
		return CallDone, []byte(done.Val()), nil
	case granted.Val() || repeatable:
		return CallGranted, nil, nil
	}
	return CallUnknown, nil, nil
}

// SettleOneShot is Settle for a call of ClaimOneShot.
func (s *Store) SettleOneShot(ctx context.Context, run, id string, result []byte) (bool, error) {
	key := oneShotKey(run)
	granted, err := s.redis.HExists(ctx, key, id).Result()
	if err == nil && granted {
		err = s.redis.HSetNX(ctx, key, id+":result", result).Err()
	}
	return granted, failure(err, "keeping the result of a call of the one-shot %s", run)
}

func oneShotKey(run string) string {
	return memory.RedisKey{Kind: memory.KindOneShot, Run: run}.String()
}
