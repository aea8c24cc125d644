package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// epochKey holds a random text that is set once. Another one means that Redis
// lost its data.
const epochKey = "mneme:epoch"

// Epoch is the store's random mark, set now if there is none.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	epoch, err := s.redis.Get(ctx, epochKey).Result()
	if err == redis.Nil {
		if err = s.redis.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err == nil {
			epoch, err = s.redis.Get(ctx, epochKey).Result()
		}
	}
	if err != nil {
		return "", fmt.Errorf("reading the store's epoch: %w", unavailable(err))
	}
	return epoch, nil
}

// Erased is the turn in which a history was erased last, 0 if it never was:
// nothing that was written in an earlier turn may come back.
func (s *Store) Erased(ctx context.Context, key memory.Key) (int64, error) {
	text, err := s.redis.HGet(ctx, metaKey(key), "erased").Result()
	if err == redis.Nil {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking whether %s was erased: %w", key, unavailable(err))
	}
	turn, _ := strconv.ParseInt(text, 10, 64) // what is no number is no turn
	return turn, nil
}

// OpenRun is the run of a chat that is not over, if there is one.
func (s *Store) OpenRun(ctx context.Context, chat memory.Chat) (*OpenRun, error) {
	text, err := s.redis.HGet(ctx, metaKey(memory.ChatKey(chat)), "open").Bytes()
	if err == redis.Nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the open run of chat %s: %w", chat, unavailable(err))
	}
	return readOpenRun(text), nil
}
