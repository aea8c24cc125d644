package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// Epoch is the store's random mark, set now if there is none.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	epoch, err := s.redis.Get(ctx, epochKey).Result()
	if errors.Is(err, redis.Nil) {
		if err = s.redis.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err == nil {
			epoch, err = s.redis.Get(ctx, epochKey).Result()
		}
	}
	return epoch, failure(err, "reading the store's epoch")
}

// Refusal is why the store takes no writes, in its own words, as Redis and the embedded
// store answer to a PING when they cannot put writes on their disk; "" while it says
// nothing of the kind.
func (s *Store) Refusal(ctx context.Context) string {
	if err := s.redis.Ping(ctx).Err(); errors.Is(unavailable(err), memory.ErrReadOnly) {
		return strings.TrimPrefix(err.Error(), "MISCONF ")
	}
	return ""
}

// Scrub returns when nothing that was erased before is in a file of the store's any
// more, where the store is this process's own; the files of a Redis are out of reach.
func (s *Store) Scrub(ctx context.Context) error {
	if s.Compact == nil {
		return nil
	}
	return failure(s.Compact(ctx), "what was erased may still be on the disk")
}

// Servers are the run ids of the Redis servers that hold keys, in some order. One
// that was not there before may hold other data than the one in its place did: it was
// restarted, or a replica took over. A server that does not say has no id. And full is
// which part of its maxmemory the fullest has used, 0 if none has a limit.
func (s *Store) Servers(ctx context.Context) (ids []string, full float64, err error) {
	masters, err := Masters(ctx, s.redis)
	if err != nil {
		return nil, 0, failure(err, "asking which servers there are")
	}
	for _, node := range masters {
		var server, memory *redis.StringCmd // one section each: older servers take no list
		_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
			server, memory = p.Info(ctx, "server"), p.Info(ctx, "memory")
			return nil
		})
		if err != nil {
			return nil, 0, failure(err, "asking which servers there are")
		}
		var used, limit float64
		for line := range strings.Lines(server.Val() + memory.Val()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "run_id":
				ids = append(ids, value)
			case "used_memory":
				used, _ = strconv.ParseFloat(value, 64)
			case "maxmemory":
				limit, _ = strconv.ParseFloat(value, 64)
			}
		}
		if limit > 0 {
			full = max(full, used/limit)
		}
	}
	return ids, full, nil
}

// OpenRun is the run of a chat that is not over, if there is one.
func (s *Store) OpenRun(ctx context.Context, chat memory.Chat) (*OpenRun, error) {
	text, err := s.redis.HGet(ctx, chatMeta(chat), "open").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, failure(err, "looking for the open run of chat %s", chat)
	}
	return readOpenRun(text, s.Secret), nil
}
