package erase

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// Tombstones makes what was taken away (erasures, redactions, rewinds, cuts by hand) true in all that this process and
// its disk hold, follows what other processes took away, and tells Redis again of what it has forgotten. It writes the
// file of erasures and the list in Redis. Nothing is written back to Redis before it was synced (SyncErasures).
type Tombstones struct {
	*node.Core
	Registry  *runs.Registry
	Histories *past.Histories
	Searcher  *past.Searcher
	Redactor  *Redactor
	Rewinder  *Rewinder
}

// PostErasure is POST /internal/v1/erasures: another process has erased something.
func (s *Tombstones) PostErasure(c *gin.Context, e node.Erasure) error {
	concerned, ok := concernedBy(e.Name)
	if !ok || e.Turn <= 0 {
		return problem.BadRequest(
			"An erasure has a name, chat:<chat>, the key of a history or that of a redaction, and a turn.")
	}
	out := node.Applied{Runs: s.Registry.RunsHere(concerned.chat)}
	if err := s.applyErasures(c.Request.Context(), map[string]int64{e.Name: e.Turn}); err != nil {
		return err
	}
	if concerned.key == nil {
		// An erasure or a redaction has the chat's turn, so that none of them goes on. A post that comes again with its key
		// would find one that its apiserver knows.
		if err := s.Runs.DeleteRuns(c.Request.Context(), concerned.chat); err != nil {
			return node.Unreachable(err)
		}
	}
	if concerned.redacted {
		// With it Redis has the cuts of the histories, by which cached copies are brought up to date.
		if err := s.FollowErasures(c.Request.Context()); err != nil {
			return err
		}
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// concerned is what an erasure is of, by its name.
type concerned struct {
	chat     memory.Chat
	key      *memory.Key // one history, nil for all of the chat
	redacted bool        // messages lost their text; the histories stay
}

// concernedBy reads a name of package erasures; ok is false for that of another kind.
func concernedBy(name string) (c concerned, ok bool) {
	if r, redacted := erasures.RedactionOf(name); redacted {
		return concerned{chat: r.Chat, redacted: true}, true
	}
	c.chat, c.key, ok = erasures.ChatOf(name)
	return c, ok
}

// followMargin is by how much the clocks that make turns may differ.
const followMargin = 10 * time.Minute

// FollowErasures applies what was erased since this process last looked.
func (s *Tombstones) FollowErasures(ctx context.Context) error {
	began := time.Now()
	s.Follower.Mu.Lock()
	startTurn := s.Follower.StartTurn
	s.Follower.Mu.Unlock()
	turns, err := s.Store.Erasures.ListSince(ctx, startTurn)
	if err != nil {
		return err
	}
	if err := s.applyErasures(ctx, turns); err != nil {
		return err
	}
	if err := s.followHandCuts(ctx, turns); err != nil {
		return err
	}
	if err := s.Rewinder.followRewinds(ctx, turns); err != nil {
		return err
	}
	s.Follower.Mu.Lock()
	defer s.Follower.Mu.Unlock()
	s.Follower.StartTurn = began.Add(-followMargin).UnixMilli()
	return nil
}

// applyErasures erases from this process's memory and disk what was erased in turns,
// by name, and notes it on the disk. What was applied before costs nothing. The
// gateway's conversations go first: once they are forgotten here no other process may
// know them.
func (s *Tombstones) applyErasures(ctx context.Context, turns map[string]int64) error {
	f := &s.Follower
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for name, turn := range turns {
		if target, ok := concernedBy(name); ok && turn > f.Applied[name] {
			if err := s.EraseConversations(ctx, target.chat, turn); err != nil {
				return err
			}
		}
	}
	recorded, err := f.File.Lookup(turns)
	if err != nil {
		return err
	}
	fresh := map[string]int64{}
	for name, turn := range turns {
		if _, ok := erasures.UserOf(name); ok && turn > recorded[name] {
			fresh[name] = turn // notes of users are in Redis alone: that it was told is what this disk has to know
		}
		target, ok := concernedBy(name)
		if !ok || turn <= f.Applied[name] {
			continue
		}
		fresh[name] = turn
		for _, h := range s.Cache.List() {
			// In the turn itself it was read before it was erased. After a redaction copies follow its cuts.
			if h.Key().Chat() == target.chat && (target.key == nil || *target.key == h.Key()) && !target.redacted &&
				h.Turn() <= turn {
				s.Cache.Forget(h.Key())
			}
		}
		s.Registry.DropRuns(target.chat)
		s.Searcher.Indexes.DropChat(target.chat)
		if turn <= recorded[name] {
			continue // another process of this disk has
		}
		if err := s.Sessions.Remove(target.chat); err != nil {
			return err
		}
		if err := s.EndStore.Remove(target.chat); err != nil {
			return err
		}
	}
	if err := f.File.Add(fresh); err != nil {
		return err
	}
	if err := s.Spool.Forget(f.Reach, f.Covers); err != nil { // also of folders adopted since
		return err
	}
	for name := range fresh {
		if target, _ := concernedBy(name); target.redacted {
			if err := s.Redactor.RedactCopies(target.chat); err != nil {
				return err
			}
		}
	}
	maps.Copy(f.Applied, fresh)
	return nil
}

// runsOf are the runs of a chat that this process knows of: those that it has lately
// shown, and those that wrote the messages of the histories.
func (s *Tombstones) runsOf(w *runs.Writer) []string {
	runs := append(s.Registry.RunsHere(w.Chat), w.Runs()...)
	slices.Sort(runs)
	return slices.Compact(runs)
}

// followHandCuts keeps on this disk what other processes found changed by hand, and
// brings copies of it up to date: should Redis lose it, an older one brings nothing
// back.
func (s *Tombstones) followHandCuts(ctx context.Context, turns map[string]int64) error {
	cuts, err := s.Cfg.Cuts.Turns()
	if err != nil {
		return err
	}
	fresh := map[string]int64{}
	for name, turn := range turns {
		key, ok := erasures.HandCutOf(name)
		if !ok || turn <= cuts[key.String()] {
			continue
		}
		fresh[key.String()] = turn
		if have := s.Cache.Peek(key); have != nil && have.Turn() < turn {
			if _, err := s.Cache.Load(ctx, 0, memory.Empty(key)); err != nil {
				return err
			}
		}
	}
	return s.Cfg.Cuts.Add(fresh)
}

// SyncErasures brings together what this disk and Redis know of erasures and of changes
// by hand. It tries until it has, or ctx ends: before that nothing may be written back.
func (s *Tombstones) SyncErasures(ctx context.Context) error {
	for {
		err := s.trySyncErasures(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.Log.Debug().Err(err).Msg("what was erased is not known yet")
		if err := node.Pause(ctx, node.Jitter(time.Second)); err != nil {
			return err
		}
	}
}

func (s *Tombstones) trySyncErasures(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, node.ScanTimeout)
	defer cancel()
	if err := s.FollowErasures(ctx); err != nil {
		return err
	}
	if err := s.restoreErasures(ctx); err != nil {
		return err
	}
	if err := s.restoreHandCuts(ctx); err != nil {
		return err
	}
	return s.Rewinder.restoreRewinds(ctx)
}

// restoreErasures tells Redis again of what this disk knows to be erased, and erases
// it there once more, before anything else is written back.
func (s *Tombstones) restoreErasures(ctx context.Context) error {
	recorded, err := s.Follower.File.Turns()
	if err != nil {
		return err
	}
	stored, err := s.Store.Erasures.ListSince(ctx, 0)
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	// That Redis knows of an erasure does not say that all of it is done there: a failover
	// may have lost the rest of it.
	recent := time.Now().Add(-node.HalfErased).UnixMilli()
	for name, turn := range recorded {
		if turn < oldest || turn <= stored[name] && turn < recent {
			continue
		}
		if err := s.EraseAgain(ctx, name, turn); err != nil {
			return err
		}
	}
	return nil
}

// restoreHandCuts tells Redis again which histories were deleted or rewritten by hand.
func (s *Tombstones) restoreHandCuts(ctx context.Context) error {
	cuts, err := s.Cfg.Cuts.Turns()
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	for name, turn := range cuts {
		if key, ok := memory.ParseKey(name); ok && turn >= oldest {
			if err := s.Store.RestoreCut(ctx, turn, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// EraseForgotten is restoreErasures for one chat, just after its lease was taken. That a
// Redis came back with an older state is noticed moments later only, and until then no
// run may use what was erased, nor take it for read under the new fencing token.
func (s *Tombstones) EraseForgotten(ctx context.Context, chat memory.Chat) error {
	if err := s.redactForgotten(ctx, chat); err != nil {
		return err
	}
	names := []string{erasures.Chat(chat), memory.ChatKey(chat).String()}
	for _, a := range s.Cfg.Agents() {
		names = append(names, memory.SubagentKey(a, chat).String())
	}
	for _, name := range names {
		turn := s.Follower.File.Turn(name)
		if turn == 0 {
			continue
		}
		chatKey := memory.ChatKey(chat)
		if _, key, _ := erasures.ChatOf(name); key != nil {
			chatKey = *key
		}
		tombstone, err := s.Store.Erasures.Tombstone(ctx, chatKey)
		if err == nil && turn > tombstone {
			err = s.EraseAgain(ctx, name, turn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// redactForgotten is redactAgain of what this disk knows to be redacted in a chat, and Redis does not, just after the
// chat's lease was taken.
func (s *Tombstones) redactForgotten(ctx context.Context, chat memory.Chat) error {
	recorded := s.Follower.File.Redactions(chat)
	if len(recorded) == 0 {
		return nil
	}
	names := make([]string, len(recorded))
	for i, r := range recorded {
		names[i] = r.Name()
	}
	stored, err := s.Store.Erasures.Turns(ctx, names...)
	if err != nil {
		return err
	}
	for i, r := range recorded {
		if stored[i] >= r.Turn {
			continue
		}
		if err := s.EraseAgain(ctx, names[i], r.Turn); err != nil {
			return err
		}
	}
	return nil
}

// EraseAgain erases in Redis what was written before the turn in which a chat or a history was
// erased, by its name, and then tells Redis of the erasure, so that other processes apply it too.
func (s *Tombstones) EraseAgain(ctx context.Context, name string, turn int64) error {
	if u, ok := erasures.UserOf(name); ok {
		if err := s.Store.Users.VoidOldNotes(ctx, turn, u); err != nil {
			return err
		}
		return s.Store.Erasures.Note(ctx, turn, name)
	}
	target, ok := concernedBy(name)
	if !ok {
		return nil // of a newer version
	}
	redo := func() error { return s.cutAgain(ctx, turn, target.chat, target.key) }
	if r, redacted := erasures.RedactionOf(name); redacted {
		redo = func() error { return s.Redactor.redactAgain(ctx, r, turn) }
	}
	if err := redo(); err != nil {
		return err
	}
	return s.Store.Erasures.Note(ctx, turn, name)
}

// cutAgain erases what was written before a turn: of one history, or, if key is nil, of all of
// a chat, with what belongs to its runs and, at the gateway, its conversation.
func (s *Tombstones) cutAgain(ctx context.Context, turn int64, chat memory.Chat, key *memory.Key) error {
	if err := s.Store.Rewinds.Drop(ctx, chat, turn, 0); err != nil {
		return err
	}
	keys, err := s.Histories.KeysThere(ctx, chat)
	if err != nil {
		return err
	}
	if key != nil {
		keys = []memory.Key{*key}
	}
	restored := false
	for _, k := range keys {
		cut, err := s.Store.Erasures.Cut(ctx, turn, k, key == nil)
		if err != nil {
			return err
		}
		restored = restored || cut
	}
	if key == nil || key.Agent() == "" {
		void, err := s.Store.Users.VoidNotes(ctx, chat, func(n memory.Note) bool { return n.TS*1000 < float64(turn) })
		if err != nil {
			return err
		}
		restored = restored || void > 0
	}
	rest, err := s.Store.Suspensions.Rest(ctx, chat)
	if err != nil {
		return err
	}
	restored = restored || rest != nil && rest.Turn < turn
	if !restored {
		return nil
	}
	s.Log.Warn().Str("chat", chat.String()).Msg("Redis came back with what was erased; it was erased once more")
	if key != nil {
		return nil
	}
	conversation, err := s.Store.Runs.EraseOld(ctx, turn, chat)
	if err != nil || conversation == "" {
		return err
	}
	return s.Runs.EraseConversation(ctx, chat.Tenant(), conversation)
}
