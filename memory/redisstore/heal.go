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

// adoptedWhole is the size of another program's value, in bytes, above which an extra round trip avoids sending the
// value twice.
const adoptedWhole = 1 << 20

// Special values of turn; turn numbers are above 0.
const (
	looking     = 0  // read without changes
	writingBack = -1 // restore lost data from a copy, during any turn
)

// loadInfo is the state of a history besides its content, as the load script returns it.
type loadInfo struct {
	cut   int64  // turn of the last deliberate change
	first string // id of the first message that a trim kept
	turn  int64  // the stored turn before this call
}

func parseLoadInfo(r redisscript.Reply) loadInfo {
	return loadInfo{integer(r.Part(1)), r.Part(2), integer(r.Part(3))}
}

// adopt takes over a value that another program wrote. It rewrites the value, adds an id to each message, and creates a
// meta. If a meta described the previous value, this is a deliberate change. Otherwise Redis lost the history before
// that program wrote, so adopt merges the caller's copy into the value.
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
		return theirs, nil // the chat's next turn adopts it
	}
	first := c.fresh.First()
	c.fresh = c.fresh.Identified()
	c.fresh.Follows(c.cut, first)
	if len(value) > adoptedWhole {
		// go-redis sends an unknown script again with all arguments.
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

// setAside moves an unreadable value to another key for inspection and starts an empty history.
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

// accept records that a history was deleted by hand.
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

// emptied applies a change that leaves an empty history, as a deliberate change in its turn.
func (s *Store) emptied(ctx context.Context, c change) (*memory.History, error) {
	c.cut = c.turn
	c.fresh.Follows(c.turn, "")
	if err := s.replace(ctx, c); err != nil {
		return nil, err
	}
	s.onCut(c.fresh.Key(), c.turn)
	return c.fresh, nil
}

// RestoreCut records a deliberate change of a history again, after Redis lost it together with the history. Copies from
// before turn then restore nothing. The stored value stays; a copy that includes the change corrects it.
func (s *Store) RestoreCut(ctx context.Context, turn int64, key memory.Key) error {
	return failure(restoreCutScript.Run(ctx, s.redis, historyKeys(key), turn, int(tombstone.Seconds())).Err(),
		"noting a change of %s again", key)
}

// restore writes a copy back if Redis has no value. Without a copy the history is new. A copy from before an erasure is
// ignored. expected is "absent", or "deleted" if Redis has the meta.
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

// regain merges a copy into a stored history that lacks a part of it. Either a failover lost the last writes, or Redis
// lost all of the history and other processes started it again.
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

// join returns c with the copy merged in by memory.Merge, and the number of messages that the copy adds. If the copy
// adds nothing, c stays unchanged.
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

// noteLoss logs and counts a restored loss. It marks the chat, so that its next run tells the user.
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
	if c.turn == writingBack { // one of many, which a summary line covers
		level = s.LossLog.Debug()
	}
	level.Str("key", key.String()).Int("messages", restored).Msg(what)
	// The restored data is safe without this mark.
	err := s.redis.HSet(ctx, chatMeta(key.Chat()), "lost", s.now().UnixMilli()).Err()
	if err != nil {
		s.LossLog.Warn().Err(err).Str("key", key.String()).Msg("the chat's next run will not tell of the loss")
	}
}

// change is one compare-and-set of a whole history, see replace. Such a change also repairs values that another program
// wrote or deleted, or that Redis lost. Of two processes that repair a value, one succeeds and the other reads again. A
// deliberate change, by a user or another program, stores its turn as the cut. Copies from before the cut restore
// nothing. A loss sets no cut, so copies restore it.
type change struct {
	turn     int64  // of the writer, or writingBack
	expected string // required state: "value", "version", "absent" or "deleted"
	old      any    // the old value or its sum
	oldLen   int
	fresh    *memory.History // if empty, nothing is stored, except in place of a value
	keepOld  bool            // keep the old value under another key
	cut      int64           // turn of the deliberate change in fresh; 0 for none
	copy     *memory.History // the copy that is merged in, nil for none
	odd      []string        // ids with other bytes in copy, which is then set aside
}

// maxApplied is the number of runs that a meta remembers. The scripts have the same number.
const maxApplied = 32

// replace stores the new content of a history and its meta if the expected state still holds. Otherwise it returns
// errChanged, or memory.ErrMoved if a newer turn is stored. Only the cut fences a change without a turn (writingBack).
// Such a change raises the stored turn to the turn in which the copy was proven. So older holders stay fenced.
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
		floor = 0 // the turn's load already raised the stored number
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

// WriteBack restores the parts of histories that Redis lost and the copies contain. It needs no turn; a running turn
// finds the history changed and continues from there. The copies may be outdated; copies from before a deliberate
// change restore nothing. WriteBack returns the stored histories in the order of copies. An entry is nil if the history
// is unreadable or only a turn may repair it.
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

// rewrite replaces a history with the messages that keep returns, as a deliberate change in turn cut. It does nothing
// if keep reports no change. It starts over if the history changed meanwhile.
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
		if errors.Is(err, errChanged) { // its meta may be missing
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
