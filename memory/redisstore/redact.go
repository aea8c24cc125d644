package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// This file is about redaction: messages stay where they are, and say nothing any more. It is a deliberate
// change: copies from before it bring nothing back.

// Redact takes away what the messages of a history say that has names by their ids, in the history and in its
// archive, in a turn. It may be called again. Without its turn, for a redaction that Redis has forgotten
// (again), it is no turn's write: a running turn finds the history changed. h is what is stored then, if the
// history or its archive was changed, else nil. A segment that cannot be read goes if one of the suspects
// stands in it. clean says of which segments it is known that they have none of the messages, see rearchive.
func (s *Store) Redact(ctx context.Context, turn int64, again bool, key memory.Key, has func(id string) bool,
	clean func(Segment) bool, suspects ...string) (h *memory.History, err error) {
	matched := false
	redact := func(raw []json.RawMessage) ([]json.RawMessage, error) {
		out, found, err := memory.RedactIn(raw, has)
		matched = matched || found
		return out, err
	}
	unread := func(value string) bool {
		return slices.ContainsFunc(suspects, func(text string) bool { return strings.Contains(value, text) })
	}
	writer := turn
	if again {
		writer = writingBack
	}
	// The archive first, so that an index that is made under the new cut does not find it as it was.
	archived, err := s.rearchive(ctx, key, clean, redact, unread)
	if err != nil {
		return nil, failure(err, "redacting the archive of %s", key)
	}
	h, err = s.rewrite(ctx, writer, key, turn, func(h *memory.History) ([]json.RawMessage, bool, error) {
		left, err := redact(h.Raw(0))
		changed := !slices.EqualFunc(left, h.Raw(0), equalBytes)
		return left, changed || archived || again && matched && h.Cut() < turn, err
	})
	if err == nil && again && h != nil { // a trim may have moved some before they were redacted
		_, err = s.rearchive(ctx, key, nil, redact, unread)
	}
	if err != nil {
		return nil, failure(err, "redacting %s", key)
	}
	if h != nil || archived {
		s.onCut(key, turn)
	}
	return h, nil
}

// rewrite puts what keep leaves of a history in its place, as a deliberate change in turn cut, if it says that there
// is a change. It starts over if the history was changed meanwhile.
func (s *Store) rewrite(ctx context.Context, turn int64, key memory.Key, cut int64,
	keep func(*memory.History) (left []json.RawMessage, changed bool, err error)) (*memory.History, error) {
	for try := range attempts {
		before, err := s.Load(ctx, looking, memory.Empty(key))
		if err != nil {
			return nil, err
		}
		h := before[0]
		left, changed, err := keep(h)
		if err != nil || h.Len() == 0 || !changed {
			return nil, err
		}
		fresh := memory.Empty(key)
		for _, raw := range left {
			fresh = fresh.With(raw)
		}
		if fresh.Len() == h.Len() {
			fresh.Follows(cut, h.First())
		}
		c := change{turn: turn, seen: "version", old: h.Sum().String(), oldLen: h.Size(), fresh: fresh, cut: cut}
		err = s.replace(ctx, c)
		if errors.Is(err, errChanged) { // its meta is gone, perhaps
			var value []byte
			if value, err = s.bytesOf(ctx, key, nil); err == nil && bytes.Equal(value, h.JSON()) {
				c.seen, c.old = "value", value
				err = s.replace(ctx, c)
			} else if err == nil {
				err = errChanged
			}
		}
		if err == nil {
			fresh.ProvenIn(cut)
			return fresh, nil
		}
		if !errors.Is(err, errChanged) {
			return nil, err
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: %s changed under every attempt", memory.ErrUnavailable, key)
}

func equalBytes(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

// RedactRuns removes the logs of a chat's runs and what their records keep of their answers: of those in the
// chat's index, and of further ones. A post that repeats one gets answer instead, and does not run again. If
// before is not 0, only runs that were over before that turn are meant.
func (s *Store) RedactRuns(ctx context.Context, chat memory.Chat, before int64, answer []byte,
	further ...string) error {
	_, err := s.forgetWaiting(ctx, chat, before)
	if err != nil {
		return failure(err, "redacting the runs of chat %s", chat)
	}
	fields, err := s.redis.HGetAll(ctx, chatMeta(chat)).Result()
	if err != nil {
		return failure(err, "redacting the runs of chat %s", chat)
	}
	var gone, names []string
	for f, until := range fields {
		if run, ok := strings.CutPrefix(f, "r:"); ok {
			old, err := s.overBefore(ctx, chat, run, integer(until), before)
			if err != nil {
				return err
			}
			if old {
				further = append(further, run)
			}
		} else if name, ok := strings.CutPrefix(f, "d:"); ok && strings.HasPrefix(name, "{") { // of a run
			gone, names = append(gone, f), append(names, name)
		}
	}
	calls := make([]redisscript.Call, len(further))
	for i, run := range further {
		names = append(names, eventsKey(chat, run), callsKey(chat, run))
		calls[i] = redisscript.Call{Script: answerScript, Keys: []string{recordKey(chat, run)}, Args: []any{answer}}
	}
	for _, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		if err := cmd.Err(); err != nil {
			return failure(err, "redacting the runs of chat %s", chat)
		}
	}
	return failure(s.forget(ctx, chat, names, gone), "redacting the runs of chat %s", chat)
}

// overBefore says whether a run was over before a turn, 0 for any: by the time of its last event, or, without
// a log, by how long something is kept of it.
func (s *Store) overBefore(ctx context.Context, chat memory.Chat, run string, until, turn int64) (bool, error) {
	if turn == 0 {
		return true, nil
	}
	line, err := s.LastEvent(ctx, chat, run)
	if err != nil || line == nil {
		return until-recordLife.Milliseconds() < turn, err
	}
	var last struct {
		TS float64 `json:"ts"`
	}
	_ = json.Unmarshal(line, &last) // what has no time is old
	return last.TS*1000 < float64(turn), nil
}

// RemoveDamaged deletes what was set aside of histories as damaged: nobody can take anything out of it.
func (s *Store) RemoveDamaged(ctx context.Context, keys ...memory.Key) error {
	for _, key := range keys {
		names, err := s.setAsideOf(ctx, key)
		if err != nil {
			return failure(err, "removing what was set aside of %s", key)
		}
		for _, name := range names {
			at, _ := memory.ParseRedisKey(name)
			err := s.redis.Del(ctx, name).Err()
			if err == nil {
				err = s.redis.HDel(ctx, metaKey(key), "d:"+at.Aside).Err()
			}
			if err != nil {
				return failure(err, "removing what was set aside of %s", key)
			}
		}
	}
	return nil
}

// ChangeConversation gives a chat another conversation of the gateway's, and names the one that it had.
func (s *Store) ChangeConversation(ctx context.Context, chat memory.Chat, fresh string) (before string, err error) {
	before, err = s.Conversation(ctx, chat)
	if err == nil {
		err = s.redis.HSet(ctx, chatMeta(chat), "conversation", fresh).Err()
	}
	return before, failure(err, "changing the conversation of chat %s", chat)
}

// Conversation is the gateway's conversation of a chat, "" for none.
func (s *Store) Conversation(ctx context.Context, chat memory.Chat) (string, error) {
	id, err := s.redis.HGet(ctx, chatMeta(chat), "conversation").Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return id, failure(err, "looking for the conversation of chat %s", chat)
}

// Noted is the turn under which each name stands among what was erased, 0 for none.
func (s *Store) Noted(ctx context.Context, names ...string) ([]int64, error) {
	scores, err := s.redis.ZMScore(ctx, erasuresKey, names...).Result()
	turns := make([]int64, len(scores))
	for i, score := range scores {
		turns[i] = int64(score)
	}
	return turns, failure(err, "looking whether something was redacted")
}
