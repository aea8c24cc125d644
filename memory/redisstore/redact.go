package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"mneme/memory"
)

// Redactions redacts messages: they keep their place and lose their text. A redaction is a deliberate change, so copies
// from before it restore nothing. Redactions stores no data of its own. Its writes to histories are compare-and-sets
// and fenced by the number of a turn.
type Redactions struct {
	*core
	histories *Store
	archives  Archives
}

// Redact redacts the messages whose ids has accepts, in a history and its archive, under a turn. It can be repeated. If
// repeat is true, Redact applies a redaction that Redis has forgotten, without its turn. A running turn finds the
// history changed. h is the stored history if Redact changed the history or its archive, else nil.
//
// Redact deletes an unreadable segment that contains one of suspects. clean reports whether a segment is known to have
// none of the messages, see rearchive.
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
	// Redact the archive first, so that an index built under the new cut never sees the old text.
	archived, err := s.archives.rearchive(ctx, key, clean, redact, unread)
	if err != nil {
		return nil, failure(err, "redacting the archive of %s", key)
	}
	h, err = s.histories.rewrite(ctx, writer, key, turn, func(h *memory.History) ([]json.RawMessage, bool, error) {
		rest, err := redact(h.Raw(0))
		changed := !slices.EqualFunc(rest, h.Raw(0), equalBytes)
		return rest, changed || archived || repeat && matched && h.Cut() < turn, err
	})
	if err == nil && repeat && h != nil { // a trim may have moved messages before they were redacted
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

// RemoveDamaged deletes the set-aside values of histories, because single messages cannot be removed from them.
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
