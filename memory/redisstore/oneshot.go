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

// SaveOneShot keeps what a run without a chat goes on from, for OneShotLife.
func (s *Store) SaveOneShot(ctx context.Context, of memory.Tenant, run string, state []byte) error {
	if err := s.listOneShot(ctx, of, run); err != nil {
		return failure(err, "listing the one-shot %s", run)
	}
	return failure(s.redis.Set(ctx, oneShotKey(of, run), state, OneShotLife).Err(), "keeping the one-shot %s", run)
}

// OneShot gives what SaveOneShot kept, and keeps it for another OneShotLife; nil if there is no such run, or not any
// more.
func (s *Store) OneShot(ctx context.Context, of memory.Tenant, run string) ([]byte, error) {
	if err := s.listOneShot(ctx, of, run); err != nil { // as long as somebody goes on with it
		return nil, failure(err, "listing the one-shot %s", run)
	}
	var state *redis.StringCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		state = p.Get(ctx, oneShotKey(of, run))
		p.Expire(ctx, oneShotKey(of, run), OneShotLife)
		p.Expire(ctx, oneShotCallsKey(of, run), OneShotLife)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return []byte(state.Val()), failure(err, "reading the one-shot %s", run)
}

// The calls of a run without a chat are a hash, as those of a chat's run: a call under its id, and its result under
// that and ":result".

// ClaimOneShot is Claim for a run that SaveOneShot has kept, however many processes go on with it. memory.ErrMoved:
// it is not kept any more.
func (s *Store) ClaimOneShot(
	ctx context.Context, of memory.Tenant, run, id string, c Call, repeatable bool,
) (word string, result []byte, err error) {
	record, err := json.Marshal(c)
	if err != nil {
		return "", nil, err
	}
	kept, err := s.redis.Expire(ctx, oneShotKey(of, run), OneShotLife).Result()
	if err == nil && !kept {
		err = memory.ErrMoved
	}
	if err != nil {
		return "", nil, failure(err, "claiming a call of the one-shot %s", run)
	}
	key := oneShotCallsKey(of, run)
	var granted *redis.BoolCmd
	var done *redis.StringCmd
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		granted, done = p.HSetNX(ctx, key, id, record), p.HGet(ctx, key, id+":result")
		p.Expire(ctx, key, OneShotLife)
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
func (s *Store) SettleOneShot(ctx context.Context, of memory.Tenant, run, id string, result []byte) (bool, error) {
	key := oneShotCallsKey(of, run)
	granted, err := s.redis.HExists(ctx, key, id).Result()
	if err == nil && granted {
		err = s.redis.HSetNX(ctx, key, id+":result", result).Err()
	}
	return granted, failure(err, "keeping the result of a call of the one-shot %s", run)
}

func oneShotKey(of memory.Tenant, run string) string {
	return memory.OneShotKey(memory.KindOneShot, of, run)
}

func oneShotCallsKey(of memory.Tenant, run string) string {
	return memory.OneShotKey(memory.KindOneShotCalls, of, run)
}
