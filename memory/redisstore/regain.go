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

// This file is about what a turn's holder puts right when Redis has lost data under
// it.

// Regain takes a turn again whose lease Redis does not know any more, with the run
// that is open in it, nil for none. False: somebody else holds the chat's turn, or
// has held it since.
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

// Relog writes a run's log anew, from its first event on. Whoever reads it meanwhile
// finds it shorter for a moment, never with a hole. Only the holder of the chat's
// newest turn may: another one would take away what was logged since. It says how many
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
