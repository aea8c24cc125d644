package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// This file is about values that are not what a store left: written by another
// program, damaged, deleted by hand, lost by Redis. Each is put right by one
// compare-and-set on what was seen, so that of two processes one does it and the other looks
// again. A deliberate change, of a user or of another program, is marked with its turn (the cut): copies from
// before it bring nothing back. What Redis lost is no deliberate change, and copies do.

// adoptedWhole is the size of a foreign value above which it is worth a round trip
// not to send it twice, in bytes.
const adoptedWhole = 1 << 20

// How a history is read, beside a turn's number above 0.
const (
	looking     = 0  // nothing is changed
	writingBack = -1 // what Redis lost and a copy holds is brought back, at any time of any turn
)

// loadInfo is what is known of a history beside its content, from the load script.
type loadInfo struct {
	cut   int64  // turn of the last deliberate change
	first string // id of the first message that a trim kept
	turn  int64  // the stored turn, before this one
}

func parseLoadInfo(r redisscript.Reply) loadInfo {
	return loadInfo{integer(r.Part(1)), r.Part(2), integer(r.Part(3))}
}

// adopt takes over a value that another program wrote: it is laid out anew, each message
// with its id, and gets a meta. In the place of a history that a meta knew, it is a
// deliberate change. Where no meta was, Redis lost the history before that program wrote, and
// so the caller's copy is joined to what is there.
func (s *Store) adopt(ctx context.Context, turn int64, have *memory.History, f loadInfo, hasMeta bool,
	value []byte) (*memory.History, error) {
	key := have.Key()
	theirs, err := memory.ParseHistory(key, value)
	if errors.Is(err, memory.ErrDamaged) {
		return s.setAside(ctx, turn, key, value, err)
	}
	if err != nil || turn == looking {
		return theirs, err
	}
	c := change{turn: turn, expected: "value", old: value, fresh: theirs}
	restored := 0
	if hasMeta {
		c.cut = turn
	} else {
		theirs.Follows(max(f.cut, have.Cut()), f.first)
		c, restored = s.join(c, theirs, have)
	}
	if turn == writingBack && restored == 0 {
		return theirs, nil // the chat's next turn will
	}
	first := c.fresh.First()
	c.fresh = c.fresh.Identified()
	c.fresh.Follows(c.cut, first)
	if len(value) > adoptedWhole {
		// A script that Redis does not know is sent again with all its arguments.
		if err := replaceScript.Load(ctx, s.redis).Err(); err != nil {
			return nil, unavailable(err)
		}
	}
	if err := s.replace(ctx, c); err != nil {
		return nil, err
	}
	s.Counts.Adopted.Add(1)
	if hasMeta {
		s.onCut(key, turn)
	}
	s.log.Warn().Str("key", key.String()).Int("messages",
		c.fresh.Len()).Msg("took over a history that another program wrote")
	s.noteLoss(ctx, c, restored, "Redis lost a history that another program then wrote anew; both are kept")
	return c.fresh, nil
}

// setAside moves a value that is no history to another key, where a person may look at it,
// and begins an empty history in its place.
func (s *Store) setAside(ctx context.Context, turn int64, key memory.Key, value []byte, cause error) (*memory.History,
	error) {
	if turn <= looking {
		return nil, cause
	}
	empty, err := s.emptied(ctx, change{turn: turn, expected: "value", old: value, fresh: memory.Empty(key),
		keepOld: true})
	if err == nil {
		s.Counts.Damaged.Add(1)
		s.log.Error().Err(cause).Str("key", key.String()).Msg("a damaged history was set aside, under {key}:damaged:<time>")
	}
	return empty, err
}

// accept takes note that a history was deleted by hand.
func (s *Store) accept(ctx context.Context, turn int64, key memory.Key) (*memory.History, error) {
	if turn <= looking {
		return memory.Empty(key), nil
	}
	empty, err := s.emptied(ctx, change{turn: turn, expected: "deleted", old: "", fresh: memory.Empty(key)})
	if err == nil {
		s.Counts.Deleted.Add(1)
		s.log.Warn().Str("key", key.String()).Msg("a history was deleted by hand")
	}
	return empty, err
}

// emptied makes a change that leaves nothing, as a deliberate one in its turn.
func (s *Store) emptied(ctx context.Context, c change) (*memory.History, error) {
	c.cut = c.turn
	c.fresh.Follows(c.turn, "")
	if err := s.replace(ctx, c); err != nil {
		return nil, err
	}
	s.onCut(c.fresh.Key(), c.turn)
	return c.fresh, nil
}

// RestoreCut says again that a history was changed on purpose in a turn, after Redis
// has lost that with the history: copies from before bring nothing back. What is
// stored by now stays; a copy that follows the change puts it right.
func (s *Store) RestoreCut(ctx context.Context, turn int64, key memory.Key) error {
	return failure(restoreCutScript.Run(ctx, s.redis, historyKeys(key), turn, int(tombstone.Seconds())).Err(),
		"noting a change of %s again", key)
}

// restore writes a copy back of which Redis has nothing, create-only. Without a copy the
// history is a new one; a copy from before an erasure counts as none.
// seen is "absent", or "deleted" if Redis has its meta.
func (s *Store) restore(ctx context.Context, turn int64, have *memory.History, f loadInfo,
	expected string) (*memory.History, error) {
	empty := memory.Empty(have.Key())
	empty.Follows(f.cut, "")
	if have = have.DropBefore(f.cut); have.Len() == 0 || have.Turn() == 0 || have.Turn() < f.cut || turn == looking {
		return empty, nil
	}
	h, err := memory.ParseHistory(have.Key(), have.JSON()) // computes the sum
	if err != nil {
		return nil, err
	}
	h.Follows(max(f.cut, have.Cut()), have.First())
	h.ProvenIn(have.Turn())
	c := change{turn: turn, expected: expected, old: "", fresh: h, cut: h.Cut(), copy: have}
	if err := s.replace(ctx, c); err != nil {
		return nil, err
	}
	s.noteLoss(ctx, c, h.Len(), "Redis lost a history; it was written back")
	return h, nil
}

// regain joins a copy to a history that lacks some of it: a failover lost its last writes, or
// Redis lost all of it and others have begun anew since.
func (s *Store) regain(ctx context.Context, turn int64, have, stored *memory.History) (*memory.History, error) {
	if turn == looking || have.Len() == 0 || have.Turn() == 0 {
		return stored, nil
	}
	c := change{turn: turn, expected: "version", old: stored.Sum().String(), oldLen: stored.Size(), fresh: stored}
	c, restored := s.join(c, stored, have)
	if c.copy == nil {
		return stored, nil
	}
	if err := s.replace(ctx, c); err != nil {
		return nil, err
	}
	s.noteLoss(ctx, c, restored, "Redis lost a part of a history; it was written back")
	return c.fresh, nil
}

// join makes of a change one that brings a copy in, by memory.Merge, and says how many
// messages that adds. If the copy adds nothing the change stays as it is.
func (s *Store) join(c change, stored, have *memory.History) (change, int) {
	if have.Len() == 0 || have.Turn() == 0 {
		return c, 0
	}
	merged, odd := memory.Merge(stored, have)
	if merged == stored && len(odd) == 0 {
		return c, 0
	}
	c.fresh, c.cut, c.copy, c.odd = merged, merged.Cut(), have, odd
	return c, max(merged.Len()-stored.Len(), 0)
}

// noteLoss logs and counts that a copy was needed, and marks the chat, so that its next run
// tells the user.
func (s *Store) noteLoss(ctx context.Context, c change, restored int, what string) {
	key := c.fresh.Key()
	if len(c.odd) > 0 {
		s.Counts.Damaged.Add(1)
		s.log.Error().Str("key", key.String()).Strs("ids", c.odd[:min(len(c.odd), 10)]).
			Msg("a copy has other contents under the same ids; it was set aside, under {key}:damaged:<time>")
	}
	if restored == 0 {
		return
	}
	s.Counts.Recovered.Add(1)
	level := s.LossLog.Error()
	if c.turn == writingBack { // one of many, of which there is a summary
		level = s.LossLog.Debug()
	}
	level.Str("key", key.String()).Int("messages", restored).Msg(what)
	// What was brought back is safe without this mark.
	err := s.redis.HSet(ctx, chatMeta(key.Chat()), "lost", s.now().UnixMilli()).Err()
	if err != nil {
		s.LossLog.Warn().Err(err).Str("key", key.String()).Msg("the chat's next run will not tell of the loss")
	}
}

// change is one compare-and-set of a whole history, see replace.
type change struct {
	turn     int64  // of the writer, or writingBack
	expected string // what must still hold: "value", "version", "absent" or "deleted"
	old      any    // the value, or its sum
	oldLen   int
	fresh    *memory.History // Empty stores nothing, unless there is a value to replace
	keepOld  bool            // keep the old value under another key
	cut      int64           // turn of the deliberate change that fresh follows; 0 for none
	copy     *memory.History // that is brought in; nil if none is
	odd      []string        // ids under which the copy has other bytes, so that it is set aside
}

// maxApplied is how many runs a meta remembers; the scripts have the same number.
const maxApplied = 32

// replace puts the new content of a history in place, if what was seen still holds, with its
// meta; errChanged if it does not, memory.ErrMoved if a newer turn is there. A change of no
// turn (writingBack) is fenced by the cut alone, and raises the stored turn to the one in
// which the copy was proven, so that a holder older than that stays fenced.
func (s *Store) replace(ctx context.Context, c change) error {
	key := c.fresh.Key()
	turn, floor := max(c.turn, 0), int64(0)
	if c.fresh.Len() > 0 && key.Agent() != "" && c.expected != "version" {
		var err error
		if floor, err = s.indexHistory(ctx, key, turn); err != nil {
			return err
		}
	}
	value, conflict := []byte{}, []byte{}
	if !c.keepOld && (c.fresh.Len() > 0 || c.expected == "value") {
		value = c.fresh.JSON()
	}
	var applied []string
	var proven any = ""
	if c.copy != nil {
		for _, m := range c.fresh.Applied(maxApplied) {
			applied = append(applied, fmt.Sprintf("%s=%d", m.Run, m.Seq))
		}
		proven, floor = c.copy.Turn(), max(floor, c.copy.Turn())
	}
	if len(c.odd) > 0 {
		conflict = c.copy.JSON()
	}
	if turn > 0 {
		floor = 0 // the turn's load has raised the number to its own
	}
	r, err := s.call(ctx, replaceScript, append(historyKeys(key), damagedKey(key, s.timestamp())),
		turn, c.expected, c.old, c.oldLen, value, c.fresh.Sum().String(), c.fresh.Len(), c.keepOld, conflict,
		strings.Join(applied, " "), proven, c.cut, c.fresh.First(), floor)
	if err != nil {
		return err
	}
	if r.Word() != "ok" {
		return errChanged
	}
	return nil
}

// WriteBack brings back what Redis lost of the histories and the copies hold. It
// is no turn's write: what it changes under a running turn, that turn finds changed,
// and goes on from there. The copies may be of any state; those from before a
// deliberate change bring nothing. It gives what is stored now, in their order; one
// that cannot be read, or that only a turn may put right, is left as it is, and nil.
func (s *Store) WriteBack(ctx context.Context, copies ...*memory.History) ([]*memory.History, error) {
	calls := make([]redisscript.Call, len(copies))
	for i, have := range copies {
		calls[i] = redisscript.Call{Script: loadScript, Keys: historyKeys(have.Key()), Args: loadArgs(looking, have)}
	}
	current := make([]*memory.History, len(copies))
	for i, cmd := range redisscript.Run(ctx, s.redis, calls...) {
		have := copies[i]
		r, err := read(cmd)
		if err == nil {
			if current[i], err = s.settle(ctx, writingBack, have, r, nil); errors.Is(err, memory.ErrDamaged) {
				continue
			}
		}
		if err != nil {
			return nil, failure(err, "writing back %s", have.Key())
		}
	}
	return current, nil
}

// rewrite puts what keep leaves of a history in its place, as a deliberate change in turn cut, if it says that there
// is a change. It starts over if the history was changed meanwhile.
func (s *Store) rewrite(ctx context.Context, turn int64, key memory.Key, cut int64,
	keep func(*memory.History) (rest []json.RawMessage, changed bool, err error)) (*memory.History, error) {
	for try := range attempts {
		loaded, err := s.Load(ctx, looking, memory.Empty(key))
		if err != nil {
			return nil, err
		}
		h := loaded[0]
		rest, changed, err := keep(h)
		if err != nil || h.Len() == 0 || !changed {
			return nil, err
		}
		fresh := memory.Empty(key).With(rest...)
		if fresh.Len() == h.Len() {
			fresh.Follows(cut, h.First())
		}
		c := change{turn: turn, expected: "version", old: h.Sum().String(), oldLen: h.Size(), fresh: fresh, cut: cut}
		err = s.replace(ctx, c)
		if errors.Is(err, errChanged) { // its meta is gone, perhaps
			var value []byte
			if value, err = s.bytesOf(ctx, key, nil); err == nil && bytes.Equal(value, h.JSON()) {
				c.expected, c.old = "value", value
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
