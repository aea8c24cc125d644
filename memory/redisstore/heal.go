package redisstore

import (
	"context"
	"errors"
	"fmt"

	"mneme/memory"
)

// This file is about values that are not what a store left: written by another
// program, damaged, deleted by hand, lost by Redis. Each is put right by one
// compare-and-set on what was seen, so that two processes cannot both do it.
// A look without a turn changes nothing.

// adopt takes over a value that a foreign writer left: laid out anew, with a meta.
func (s *Store) adopt(ctx context.Context, turn int64, key memory.Key, value []byte) (*memory.History, error) {
	found, err := memory.ParseHistory(key, value)
	if errors.Is(err, memory.ErrDamaged) {
		return s.setAside(ctx, turn, key, value, err)
	}
	if err != nil || turn == 0 {
		return found, err
	}
	h, err := memory.ParseHistory(key, found.JSON())
	if err != nil {
		return nil, err
	}
	err = s.replace(ctx, turn, key, "value", value, h)
	if err == nil {
		s.Counts.Adopted.Add(1)
		s.log.Warn().Str("key", key.String()).Int("messages", h.Len()).Msg("took over a history that another program wrote")
	}
	return h, err
}

// setAside moves a value that is no history out of the way, to be looked at.
func (s *Store) setAside(ctx context.Context, turn int64, key memory.Key, value []byte, cause error) (*memory.History, error) {
	if turn == 0 {
		return nil, cause
	}
	aside := s.damagedKey(key)
	r, err := s.call(ctx, replaceScript, append(historyKeys(key), aside), turn, "value", value, 0, "", "", 0, 1)
	if err != nil {
		return nil, err
	}
	if r.word() != "ok" {
		return nil, errChanged
	}
	s.Counts.Damaged.Add(1)
	s.log.Error().Err(cause).Str("key", key.String()).Str("kept_as", aside).Msg("a damaged history was set aside")
	return memory.Empty(key), nil
}

// accept takes note that somebody deleted a history by hand.
func (s *Store) accept(ctx context.Context, turn int64, key memory.Key) (*memory.History, error) {
	if turn == 0 {
		return memory.Empty(key), nil
	}
	err := s.replace(ctx, turn, key, "absent", nil, memory.Empty(key))
	if err == nil {
		s.Counts.Deleted.Add(1)
		s.log.Warn().Str("key", key.String()).Msg("a history was deleted by hand")
	}
	return memory.Empty(key), err
}

// restore writes back a copy of what Redis no longer knows. Without one the
// history is new.
func (s *Store) restore(ctx context.Context, turn int64, have *memory.History) (*memory.History, error) {
	if have.Len() == 0 || turn == 0 {
		return memory.Empty(have.Key()), nil
	}
	h, err := memory.ParseHistory(have.Key(), have.JSON())
	if err != nil {
		return nil, err
	}
	err = s.replace(ctx, turn, have.Key(), "absent", nil, h)
	if err == nil {
		s.Counts.Lost.Add(1)
		s.log.Error().Str("key", have.Key().String()).Int("messages", h.Len()).Msg("Redis lost a history; it was written back")
	}
	return h, err
}

// regain brings back the writes that a failover lost: stored is proven, and so was
// the copy once, yet stored does not go on where the copy ends although both begin
// alike. Only lost writes do that: a trim or an erasure leaves another beginning.
// What the copy alone has is put behind what is stored.
func (s *Store) regain(ctx context.Context, turn int64, have, stored *memory.History) (*memory.History, error) {
	common := have.Common(stored)
	if turn == 0 || common == 0 || common == have.Len() {
		return stored, nil
	}
	// Messages of ours carry the time they were made; without one two beginnings may be alike by chance.
	if first, err := have.Messages(0); err != nil || first[0].Timestamp == 0 {
		return stored, err
	}
	known := map[string]bool{}
	for _, raw := range stored.Raw(common) {
		known[string(raw)] = true
	}
	whole := stored
	for _, raw := range have.Raw(common) {
		if !known[string(raw)] {
			whole = whole.With(raw)
		}
	}
	if whole == stored {
		return stored, nil
	}
	r, err := s.call(ctx, replaceScript, append(historyKeys(have.Key()), ""),
		turn, "version", stored.Sum().String(), stored.Size(), whole.JSON(), whole.Sum().String(), whole.Len(), 0)
	if err != nil {
		return nil, err
	}
	if r.word() != "ok" {
		return nil, errChanged
	}
	s.Counts.Lost.Add(1)
	s.log.Error().Str("key", have.Key().String()).Int("messages", whole.Len()-stored.Len()).Msg("Redis lost the end of a history; it was written back")
	return whole, nil
}

// replace stores h if what was seen still holds; errChanged if it does not.
func (s *Store) replace(ctx context.Context, turn int64, key memory.Key, seen string, value []byte, h *memory.History) error {
	fresh := []byte{}
	if h.Len() > 0 || len(value) > 0 {
		fresh = h.JSON()
	}
	r, err := s.call(ctx, replaceScript, append(historyKeys(key), s.damagedKey(key)),
		turn, seen, value, 0, fresh, h.Sum().String(), h.Len(), 0)
	if err != nil {
		return err
	}
	if r.word() != "ok" {
		return errChanged
	}
	return nil
}

// eraseDamaged removes what was set aside of these histories.
func (s *Store) eraseDamaged(ctx context.Context, keys []memory.Key) error {
	for _, key := range keys {
		pattern := "{" + escape(key.String()) + "}:damaged:*"
		err := s.scan(ctx, pattern, func(found string) error {
			return s.redis.Del(ctx, found).Err()
		})
		if err != nil {
			return fmt.Errorf("erasing what was set aside of %s: %w", key, unavailable(err))
		}
	}
	return nil
}
