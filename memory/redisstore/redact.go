package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"mneme/memory"
)

// Redactions is about redaction: messages stay where they are, and say nothing any more. It is a deliberate
// change: copies from before it bring nothing back. It keeps nothing of its own. Its writes of histories are
// fenced by the number of a turn, and compare-and-sets besides.
type Redactions struct {
	*core
	histories *Store
	archives  Archives
}

// Redact takes away what the messages of a history say that has names by their ids, in the history and in its
// archive, in a turn. It may be called again. Without its turn, for a redaction that Redis has forgotten
// (again), it is no turn's write: a running turn finds the history changed. h is what is stored then, if the
// history or its archive was changed, else nil. A segment that cannot be read goes if one of the suspects
// stands in it. clean says of which segments it is known that they have none of the messages, see rearchive.
func (s Redactions) Redact(ctx context.Context, turn int64, repeat bool, key memory.Key, has func(id string) bool,
	clean func(Segment) bool, suspects ...string) (h *memory.History, err error) {
	matched := false
	redact := func(raw []json.RawMessage) ([]json.RawMessage, error) {
		out, ok, err := memory.RedactIn(raw, has)
		matched = matched || ok
		return out, err
	}
	unread := func(value string) bool {
		return slices.ContainsFunc(suspects, func(text string) bool { return strings.Contains(value, text) })
	}
	writer := turn
	if repeat {
		writer = writingBack
	}
	// The archive first, so that an index that is made under the new cut does not find it as it was.
	archived, err := s.archives.rearchive(ctx, key, clean, redact, unread)
	if err != nil {
		return nil, failure(err, "redacting the archive of %s", key)
	}
	h, err = s.histories.rewrite(ctx, writer, key, turn, func(h *memory.History) ([]json.RawMessage, bool, error) {
		rest, err := redact(h.Raw(0))
		changed := !slices.EqualFunc(rest, h.Raw(0), equalBytes)
		return rest, changed || archived || repeat && matched && h.Cut() < turn, err
	})
	if err == nil && repeat && h != nil { // a trim may have moved some before they were redacted
		_, err = s.archives.rearchive(ctx, key, nil, redact, unread)
	}
	if err != nil {
		return nil, failure(err, "redacting %s", key)
	}
	if h != nil || archived {
		s.onCut(key, turn)
	}
	return h, nil
}

func equalBytes(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

// RemoveDamaged deletes what was set aside of histories as damaged: a single message cannot be taken out of it.
func (s Redactions) RemoveDamaged(ctx context.Context, keys ...memory.Key) error {
	for _, key := range keys {
		names, err := s.histories.setAsideOf(ctx, key)
		if err != nil {
			return failure(err, "removing what was set aside of %s", key)
		}
		for _, name := range names {
			redisKey, _ := memory.ParseRedisKey(name)
			err := s.redis.Del(ctx, name).Err()
			if err == nil {
				err = s.redis.HDel(ctx, metaKey(key), "d:"+redisKey.DamagedAt).Err()
			}
			if err != nil {
				return failure(err, "removing what was set aside of %s", key)
			}
		}
	}
	return nil
}
