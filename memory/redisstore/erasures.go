package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/erasures"
)

// NoteErasure says to all processes that something was erased in a turn, so that each
// applies it to its own memory and disk. The names are those of package erasures, changes
// by hand among them. What is older than a tombstone's life is dropped.
func (s *Store) NoteErasure(ctx context.Context, turn int64, names ...string) error {
	members := make([]redis.Z, len(names))
	for i, name := range names {
		members[i] = redis.Z{Score: float64(turn), Member: name}
	}
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAddGT(ctx, erasuresKey, members...)
		p.ZRemRangeByScore(ctx, erasuresKey, "-inf", strconv.FormatInt(s.now().Add(-tombstone).UnixMilli(), 10))
		return nil
	})
	return failure(err, "noting an erasure")
}

// Erasures gives what was erased in turns from one on, by name.
func (s *Store) Erasures(ctx context.Context, since int64) (map[string]int64, error) {
	found, err := s.redis.ZRangeByScoreWithScores(ctx, erasuresKey, &redis.ZRangeBy{
		Min: strconv.FormatInt(since, 10), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, failure(err, "reading what was erased")
	}
	turns := make(map[string]int64, len(found))
	for _, z := range found {
		if name, ok := z.Member.(string); ok {
			turns[name] = int64(z.Score)
		}
	}
	return turns, nil
}

// Erased is the turn in which a history was erased last, alone or with its chat, 0
// if it never was: nothing that was written in an earlier turn may come back.
func (s *Store) Erased(ctx context.Context, key memory.Key) (int64, error) {
	var mark *redis.StringCmd
	var scores [2]*redis.FloatCmd
	_, _ = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
		mark = p.HGet(ctx, metaKey(key), "erased")
		scores[0] = p.ZScore(ctx, erasuresKey, key.String())
		scores[1] = p.ZScore(ctx, erasuresKey, erasures.Chat(key.Chat()))
		return nil
	})
	for _, err := range []error{mark.Err(), scores[0].Err(), scores[1].Err()} {
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, failure(err, "looking whether %s was erased", key)
		}
	}
	return max(integer(mark.Val()), int64(scores[0].Val()), int64(scores[1].Val())), nil
}

// Tombstone is the turn of the last erasure of which a history's own meta tells, 0 for
// none. It is written with the erasure, so a Redis that has it has done that.
func (s *Store) Tombstone(ctx context.Context, key memory.Key) (int64, error) {
	mark, err := s.redis.HGet(ctx, metaKey(key), "erased").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, failure(err, "looking for the erasure of %s", key)
	}
	return integer(mark), nil
}

// Cut erases once more what was erased in a turn, after Redis has forgotten that:
// messages from before it go, and what is written back later is measured by it. It is
// no turn's write: a running turn finds the history changed. cut says whether there
// was anything from before. What follows a later deliberate change stays, whatever its
// times: an import brings old messages on purpose.
func (s *Store) Cut(ctx context.Context, turn int64, key memory.Key) (cut bool, err error) {
	since := func(raw []json.RawMessage) ([]json.RawMessage, error) { return begunSince(raw, turn) }
	later := false
	h, err := s.rewrite(ctx, writingBack, key, turn, func(h *memory.History) ([]json.RawMessage, bool, error) {
		if later = h.Cut() > turn; later {
			return nil, false, nil
		}
		left, err := since(h.Raw(0))
		return left, len(left) < h.Len(), err
	})
	if err == nil {
		_, err = s.call(ctx, cutScript, historyKeys(key), turn, int(tombstone.Seconds()))
	}
	archived, notes := false, 0
	if err == nil && !later { // last, since what a trim moves goes there
		archived, err = s.rearchive(ctx, key, nil, since, func(string) bool { return true })
	}
	if err == nil && !later {
		notes, err = s.VoidNotes(ctx, writingBack, key, func(n memory.Note) bool { return n.TS*1000 < float64(turn) })
	}
	if err != nil {
		err = fmt.Errorf("erasing %s once more: %w", key, err)
	}
	return h != nil || archived || notes > 0, err
}

// begunSince are the messages that are not from before a turn.
func begunSince(raw []json.RawMessage, turn int64) (left []json.RawMessage, err error) {
	messages, err := memory.Decode(raw)
	for i, m := range messages {
		if m.Timestamp == 0 || m.Timestamp*1000 >= float64(turn) {
			left = append(left, raw[i])
		}
	}
	return left, err
}

// EraseOldRuns removes the logs and records of a chat's runs that began before a
// turn, and the conversation of that time, whose name it gives.
func (s *Store) EraseOldRuns(ctx context.Context, turn int64, chat memory.Chat) (conversation string, err error) {
	fields, err := s.redis.HGetAll(ctx, chatMeta(chat)).Result()
	if err != nil {
		return "", failure(err, "erasing old runs of chat %s", chat)
	}
	waited, err := s.forgetWaiting(ctx, chat, turn)
	if err != nil {
		return "", failure(err, "erasing old runs of chat %s", chat)
	}
	gone, names := []string{"conversation", "approved"}, []string{}
	for f, until := range fields {
		at, _ := strconv.ParseInt(until, 10, 64)
		run, ok := strings.CutPrefix(f, "r:")
		if ok && run != "" && (at-recordLife.Milliseconds() < turn || waited != nil && run == waited.Run) {
			gone, names = append(gone, f), append(names, eventsKey(chat, run), recordKey(chat, run), callsKey(chat, run))
		}
	}
	return fields["conversation"], failure(s.forget(ctx, chat, names, gone), "erasing old runs of chat %s", chat)
}
