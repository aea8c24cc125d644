package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisscript"
)

// Erasures is about what was taken away on purpose and must not come back. It keeps a sorted set of what was erased, by
// the turn, which all processes read, and a tombstone in the meta of each history. A number in either only grows; no
// lease is needed.
type Erasures struct {
	*core
	histories *Store
	archives  Archives
	notes     Notes
}

// Note says to all processes that something was erased in a turn, so that each
// applies it to its own memory and disk. The names are those of package erasures, changes
// by hand among them. What is older than a tombstone's life is dropped.
func (s Erasures) Note(ctx context.Context, turn int64, names ...string) error {
	members := make([]redis.Z, len(names))
	for i, name := range names {
		members[i] = redis.Z{Score: float64(turn), Member: name}
	}
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		p.ZAddGT(ctx, erasuresKey, members...)
		p.ZRemRangeByScore(ctx, erasuresKey, "-inf", strconv.FormatInt(s.now().Add(-tombstone).UnixMilli(), 10))
	})
	return failure(err, "noting an erasure")
}

// ListSince gives what was erased in turns from one on, by name.
func (s Erasures) ListSince(ctx context.Context, turn int64) (map[string]int64, error) {
	entries, err := s.redis.ZRangeByScoreWithScores(ctx, erasuresKey, &redis.ZRangeBy{
		Min: strconv.FormatInt(turn, 10), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, failure(err, "reading what was erased")
	}
	turns := make(map[string]int64, len(entries))
	for _, z := range entries {
		if name, ok := z.Member.(string); ok {
			turns[name] = int64(z.Score)
		}
	}
	return turns, nil
}

// Erased is the turn in which a history was erased last, alone or with its chat, 0
// if it never was: nothing that was written in an earlier turn may come back.
func (s Erasures) Erased(ctx context.Context, key memory.Key) (int64, error) {
	erased, _, _, err := s.state(ctx, key)
	return erased, err
}

// Version is a text that changes with whatever takes something away from a history: an erasure, a redaction, a rewind or
// a quarantine.
func (s Erasures) Version(ctx context.Context, key memory.Key) (string, error) {
	erased, cut, hidden, err := s.state(ctx, key)
	return fmt.Sprintf("%d-%s-%x", erased, cut, crc32.ChecksumIEEE([]byte(hidden))), err
}

// state returns the turn of a history's last erasure, the turn of its last rewrite, and the quarantine of its chat.
func (s Erasures) state(ctx context.Context, key memory.Key) (erased int64, cut, hidden string, err error) {
	var marks [3]*redis.StringCmd
	var scores [2]*redis.FloatCmd
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		marks[0], marks[1] = p.HGet(ctx, metaKey(key), "erased"), p.HGet(ctx, metaKey(key), "cut")
		marks[2] = p.HGet(ctx, chatMeta(key.Chat()), quarantined)
		scores[0] = p.ZScore(ctx, erasuresKey, key.String())
		scores[1] = p.ZScore(ctx, erasuresKey, erasures.Chat(key.Chat()))
	})
	erased = max(integer(marks[0].Val()), int64(scores[0].Val()), int64(scores[1].Val()))
	return erased, marks[1].Val(), marks[2].Val(), failure(err, "looking whether %s was erased", key)
}

// Tombstone is the turn of the last erasure of which a history's own meta tells, 0 for
// none. It is written with the erasure, so a Redis that has it has done that.
func (s Erasures) Tombstone(ctx context.Context, key memory.Key) (int64, error) {
	mark, err := s.field(ctx, metaKey(key), "erased")
	return integer(mark), failure(err, "looking for the erasure of %s", key)
}

// Cut erases once more what was erased in a turn, after Redis has forgotten that:
// messages from before it go, and what is written back later is measured by it. It is
// no turn's write: a running turn finds the history changed. cut says whether there
// was anything from before. What follows a later deliberate change stays, whatever its
// times: an import brings old messages on purpose. whole: all of the chat was erased, with what was set for its list.
func (s Erasures) Cut(ctx context.Context, turn int64, key memory.Key, full bool) (cut bool, err error) {
	filter := func(raw []json.RawMessage) ([]json.RawMessage, error) { return messagesSince(raw, turn) }
	superseded := false
	h, err := s.histories.rewrite(ctx, writingBack, key, turn, func(h *memory.History) ([]json.RawMessage, bool, error) {
		if superseded = h.Cut() > turn; superseded {
			return nil, false, nil
		}
		rest, err := filter(h.Raw(0))
		return rest, len(rest) < h.Len(), err
	})
	if err == nil {
		_, err = s.call(ctx, cutScript, historyKeys(key), turn, int(tombstone.Seconds()), full)
	}
	archived, notes := false, 0
	if err == nil && !superseded { // last, since what a trim moves goes there
		archived, err = s.archives.rearchive(ctx, key, nil, filter, func(string) bool { return true })
	}
	if err == nil && !superseded {
		notes, err = s.notes.Void(ctx, writingBack, key, func(n memory.Note) bool { return n.TS*1000 < float64(turn) })
	}
	if err != nil {
		err = fmt.Errorf("erasing %s once more: %w", key, err)
	}
	return h != nil || archived || notes > 0, err
}

// messagesSince are the messages that are not from before a turn.
func messagesSince(raw []json.RawMessage, turn int64) (rest []json.RawMessage, err error) {
	messages, err := memory.Decode(raw)
	for i, m := range messages {
		if m.Timestamp == 0 || m.Timestamp*1000 >= float64(turn) {
			rest = append(rest, raw[i])
		}
	}
	return rest, err
}

// Turns is the turn under which each name stands among what was erased, 0 for none.
func (s Erasures) Turns(ctx context.Context, names ...string) ([]int64, error) {
	scores, err := s.redis.ZMScore(ctx, erasuresKey, names...).Result()
	turns := make([]int64, len(scores))
	for i, score := range scores {
		turns[i] = int64(score)
	}
	return turns, failure(err, "looking whether something was redacted")
}
