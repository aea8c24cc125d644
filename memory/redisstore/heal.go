package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	err = s.replace(ctx, change{turn: turn, seen: "value", old: value, fresh: h})
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
	if err := s.replace(ctx, change{turn: turn, seen: "value", old: value, fresh: memory.Empty(key), aside: true}); err != nil {
		return nil, err
	}
	s.Counts.Damaged.Add(1)
	s.log.Error().Err(cause).Str("key", key.String()).Msg("a damaged history was set aside, under {key}:damaged:<time>")
	return memory.Empty(key), nil
}

// accept takes note that somebody deleted a history by hand.
func (s *Store) accept(ctx context.Context, turn int64, key memory.Key) (*memory.History, error) {
	if turn == 0 {
		return memory.Empty(key), nil
	}
	err := s.replace(ctx, change{turn: turn, seen: "absent", old: "", fresh: memory.Empty(key)})
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
	err = s.replace(ctx, change{turn: turn, seen: "absent", old: "", fresh: h, applied: have.Applied()})
	if err == nil {
		s.Counts.Lost.Add(1)
		s.log.Error().Str("key", have.Key().String()).Int("messages", h.Len()).Msg("Redis lost a history; it was written back")
	}
	return h, err
}

// regain brings back the writes that a failover lost. stored is proven, and so was
// the copy once; if stored begins where the copy does, or before, and does not go
// on as the copy does, then it is an older state of the same history. A trim or an
// erasure leaves another beginning; what somebody cut by hand was adopted in a
// turn that the copy has not seen. What the copy alone has is put behind what is
// stored.
func (s *Store) regain(ctx context.Context, turn, adopted int64, have, stored *memory.History) (*memory.History, error) {
	if turn == 0 || have.Len() == 0 || adopted > have.Turn() {
		return stored, nil
	}
	// Messages of ours carry the time they were made; without one two beginnings may be alike by chance.
	if first, err := memory.Decode(have.Raw(0)[:1]); err != nil || first[0].Timestamp == 0 {
		return stored, err
	}
	missing := have.Missing(stored)
	if len(missing) == 0 {
		return stored, nil
	}
	whole := stored
	for _, raw := range missing {
		whole = whole.With(raw)
	}
	err := s.replace(ctx, change{
		turn: turn, seen: "version", old: stored.Sum().String(), oldLen: stored.Size(), fresh: whole, applied: have.Applied(),
	})
	if err != nil {
		return nil, err
	}
	s.Counts.Lost.Add(1)
	s.log.Error().Str("key", have.Key().String()).Int("messages", len(missing)).Msg("Redis lost the end of a history; it was written back")
	return whole, nil
}

// change is one compare-and-set of a whole history.
type change struct {
	turn    int64
	seen    string // what must still hold: "value", "version" or "absent"
	old     any    // the value, or its sum
	oldLen  int
	fresh   *memory.History // Empty stores nothing, unless there is a value to replace
	aside   bool            // keep the old value under another key
	applied []memory.Mark   // events whose messages are written back
}

// replace makes a change if what was seen still holds; errChanged if it does not.
func (s *Store) replace(ctx context.Context, c change) error {
	key := c.fresh.Key()
	if c.fresh.Len() > 0 && key.Agent() != "" && c.seen != "version" {
		if err := s.index(ctx, key, c.turn); err != nil {
			return err
		}
	}
	value, aside := []byte{}, 0
	if c.aside {
		aside = 1
	} else if c.fresh.Len() > 0 || c.seen == "value" {
		value = c.fresh.JSON()
	}
	var applied []string
	for _, m := range c.applied {
		applied = append(applied, fmt.Sprintf("%s=%d", m.Run, m.Seq))
	}
	r, err := s.call(ctx, replaceScript, append(historyKeys(key), s.damagedKey(key)),
		c.turn, c.seen, c.old, c.oldLen, value, c.fresh.Sum().String(), c.fresh.Len(), aside, strings.Join(applied, " "))
	if err != nil {
		return err
	}
	if r.word() != "ok" {
		return errChanged
	}
	return nil
}
