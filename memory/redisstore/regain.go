package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// This file is about what the holder of a lease puts right when Redis has lost data under
// it: the lease with its number, and the log of its run.

// Regain takes a lease again that Redis has lost, under the same token and number, with the
// run that is open in it, nil for none. It answers false where somebody else holds the
// chat's lease, or has taken a newer number since: then this holder is fenced.
func (s *Store) Regain(ctx context.Context, chat memory.Chat, token string, ttl time.Duration, turn Turn,
	run *OpenRun) (bool, error) {
	record := []byte{}
	var err error
	if run != nil {
		if record, err = json.Marshal(run); err != nil {
			return false, err
		}
		// As in Open, the set first.
		err = s.redis.ZAdd(ctx, openChats, redis.Z{Score: s.deadline(ttl), Member: chat.String()}).Err()
	}
	held := false
	if err == nil {
		held, err = regainScript.Run(ctx, s.redis, turnKeys(chat),
			token, ttl.Milliseconds(), turn.Number, turn.Conversation, record).Bool()
	}
	return held, failure(err, "taking the turn of chat %s again", chat)
}

// TurnOf is the number of a chat's newest turn, 0 if there was none.
func (s *Store) TurnOf(ctx context.Context, chat memory.Chat) (int64, error) {
	text, err := s.redis.HGet(ctx, chatMeta(chat), "turn").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, failure(err, "looking for the turn of chat %s", chat)
	}
	return integer(text), nil
}

// Relog writes a run's log anew, from its first event on, in pieces: the first replaces what
// is there in one transaction, the others are added behind it. Whoever reads meanwhile finds
// the log shorter for a moment, and never with a gap. Only the holder of the chat's newest
// turn may call it, since it takes away what anybody else has logged. It says how many
// entries the log has then.
func (s *Store) Relog(ctx context.Context, chat memory.Chat, run string, events ...Logged) (entries int, err error) {
	const chunk = 256 // so that nobody else waits long for one command
	key, n := eventsKey(chat, run), min(len(events), chunk)
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, key)
		for _, e := range join(events[:n]) {
			p.XAdd(ctx, e.add(key))
			entries++
		}
		p.Expire(ctx, key, s.logLife())
		return nil
	})
	if err != nil {
		return 0, failure(err, "logging the events of run %s again", run)
	}
	for more := range slices.Chunk(events[n:], chunk) {
		added, err := s.Log(ctx, chat, run, true, more...)
		if err != nil {
			return 0, err
		}
		entries += added
	}
	return entries, nil
}

// LogLen is how many entries a run's log has.
func (s *Store) LogLen(ctx context.Context, chat memory.Chat, run string) (int, error) {
	n, err := s.redis.XLen(ctx, eventsKey(chat, run)).Result()
	return int(n), failure(err, "counting the events of run %s", run)
}
