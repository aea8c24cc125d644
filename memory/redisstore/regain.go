package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
			token, ttl.Milliseconds(), strconv.FormatInt(turn.Number, 10), turn.Conversation, record).Bool()
	}
	if err != nil {
		return false, fmt.Errorf("taking the turn of chat %s again: %w", chat, unavailable(err))
	}
	return held, nil
}

// TurnOf is the number of a chat's newest turn, 0 if there was none.
func (s *Store) TurnOf(ctx context.Context, chat memory.Chat) (int64, error) {
	text, err := s.redis.HGet(ctx, metaKey(memory.ChatKey(chat)), "turn").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("looking for the turn of chat %s: %w", chat, unavailable(err))
	}
	turn, _ := strconv.ParseInt(text, 10, 64) // what is no number is no turn
	return turn, nil
}

// Relog writes a run's log anew, from its first event on. Whoever reads it meanwhile
// finds it shorter for a moment, never with a hole. Only the holder of the chat's
// newest turn may: another one would take away what was logged since. It says how many
// entries the log has then.
func (s *Store) Relog(ctx context.Context, chat memory.Chat, run string, events ...Logged) (entries int, err error) {
	const chunk = 256 // so that nobody else waits long for one command
	for first := true; first || len(events) > 0; first = false {
		n := min(len(events), chunk)
		if !first {
			more, err := s.Log(ctx, chat, run, true, events[:n]...)
			if err != nil {
				return 0, err
			}
			entries += more
			events = events[n:]
			continue
		}
		key := eventsKey(chat, run)
		_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, key)
			for _, e := range join(events[:n]) {
				p.XAdd(ctx, e.add(key))
				entries++
			}
			p.Expire(ctx, key, s.logLife())
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("logging the events of run %s again: %w", run, unavailable(err))
		}
		events = events[n:]
	}
	return entries, nil
}

// LogLen is how many entries a run's log has.
func (s *Store) LogLen(ctx context.Context, chat memory.Chat, run string) (int, error) {
	n, err := s.redis.XLen(ctx, eventsKey(chat, run)).Result()
	if err != nil {
		return 0, fmt.Errorf("counting the events of run %s: %w", run, unavailable(err))
	}
	return int(n), nil
}
