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

// Erasures prevents removed data from coming back. It stores a sorted set of erased names by turn, which all processes
// read, and a tombstone in the meta of each erased history. The turns in both only grow, so no lease is needed.
type Erasures struct {
	*core
	histories *Store
	archives  Archives
	notes     Notes
}

// Note records that names were erased in a turn. Every process applies the erasure to its own memory and disk. The
// names are those of package erasures, including changes made by hand. Note removes entries older than a tombstone's
// lifetime.
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

// ListSince returns the names erased in the given turn or later, with their turns.
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

// Erased returns the turn of the last erasure of a history, alone or with its chat, 0 for none. Data written in an
// earlier turn must not come back.
func (s Erasures) Erased(ctx context.Context, key memory.Key) (int64, error) {
	erased, _, _, err := s.state(ctx, key)
	return erased, err
}

// Version returns a text that changes with every erasure, redaction, rewind or quarantine of a history.
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

// Tombstone returns the turn of the last erasure in a history's own meta, 0 for none. The erasure itself writes it. So
// a Redis that has the tombstone has applied the erasure.
func (s Erasures) Tombstone(ctx context.Context, key memory.Key) (int64, error) {
	mark, err := s.field(ctx, metaKey(key), "erased")
	return integer(mark), failure(err, "looking for the erasure of %s", key)
}

// Cut repeats an erasure that Redis has forgotten. It removes the messages from before turn and restores the tombstone,
// which then rejects older copies. It needs no turn. A running turn finds the history changed. cut reports whether
// older data was removed.
//
// Messages after a later deliberate change stay, whatever their times, because an import adds old messages
// deliberately. full means that the whole chat was erased, including its title and metadata.
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
	if err == nil && !superseded { // last, because a trim may have moved messages there
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

// messagesSince returns the messages from turn on, and messages without a timestamp.
func messagesSince(raw []json.RawMessage, turn int64) (rest []json.RawMessage, err error) {
	messages, err := memory.Decode(raw)
	for i, m := range messages {
		if m.Timestamp == 0 || m.Timestamp*1000 >= float64(turn) {
			rest = append(rest, raw[i])
		}
	}
	return rest, err
}

// Turns returns the turn of each name in the list of erasures, 0 for none.
func (s Erasures) Turns(ctx context.Context, names ...string) ([]int64, error) {
	scores, err := s.redis.ZMScore(ctx, erasuresKey, names...).Result()
	turns := make([]int64, len(scores))
	for i, score := range scores {
		turns[i] = int64(score)
	}
	return turns, failure(err, "looking whether something was redacted")
}
