package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// OneShotLife is how long a run without a chat is kept that waits for its client's tools.
const OneShotLife = time.Hour

// SaveOneShot keeps what a run without a chat goes on from, for OneShotLife.
func (s *Store) SaveOneShot(ctx context.Context, run string, state []byte) error {
	return failure(s.redis.Set(ctx, oneShotKey(run), state, OneShotLife).Err(), "keeping the one-shot %s", run)
}

// OneShot gives what SaveOneShot kept; nil if there is no such run, or not any more.
func (s *Store) OneShot(ctx context.Context, run string) ([]byte, error) {
	state, err := s.redis.Get(ctx, oneShotKey(run)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return state, failure(err, "reading the one-shot %s", run)
}

func oneShotKey(run string) string {
	return memory.RedisKey{Kind: memory.KindOneShot, Run: run}.String()
}
