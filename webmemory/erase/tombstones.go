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

// Tombstones applies erasures, redactions, rewinds and cuts by hand to everything that this process and its disk hold.
// It follows the removals of other processes, and restores tombstones that Redis lost. It writes the file of erasures
// and the list in Redis. Nothing is written back to Redis before SyncErasures has succeeded.
type Tombstones struct {
	*node.Core
	Registry  *runs.Registry
	Histories *past.Histories
	Searcher  *past.Searcher
	Redactor  *Redactor
	Rewinder  *Rewinder
}

// PostErasure handles POST /internal/v1/erasures. Another process sends it to announce an erasure.
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
		// The erasure or redaction holds the chat's turn, so no run is active. A post that is repeated with its idempotency
		// key must not find a run at this process's apiserver.
		if err := s.Runs.DeleteRuns(c.Request.Context(), concerned.chat); err != nil {
			return node.Unreachable(err)
		}
	}
	if concerned.redacted {
		// Redis has the cuts of the histories by now. They update the cached copies.
		if err := s.FollowErasures(c.Request.Context()); err != nil {
			return err
		}
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// concerned is the target of an erasure, parsed from its name.
type concerned struct {
	chat     memory.Chat
	key      *memory.Key // one history; nil for the whole chat
	redacted bool        // messages lose their text; the histories stay
}

// concernedBy parses a name of package erasures. ok is false for a name of another kind.
func concernedBy(name string) (c concerned, ok bool) {
	if r, redacted := erasures.RedactionOf(name); redacted {
		return concerned{chat: r.Chat, redacted: true}, true
	}
	c.chat, c.key, ok = erasures.ChatOf(name)
	return c, ok
}

// followMargin bounds the difference between the clocks that produce turns.
const followMargin = 10 * time.Minute

// FollowErasures applies the erasures, cuts by hand and rewinds that were recorded since its last call.
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

// applyErasures removes erased text from this process's memory and disk, and records the erasures on the disk. turns
// maps the name of each erasure to its turn. Erasures that were applied before cost nothing. The gateway's
// conversations are erased first: after this process forgets them, no other process may know them.
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
			fresh[name] = turn // notes of users are only in Redis; this disk only records the erasure
		}
		target, ok := concernedBy(name)
		if !ok || turn <= f.Applied[name] {
			continue
		}
		fresh[name] = turn
		for _, h := range s.Cache.List() {
			// A copy of the same turn was read before the erasure. After a redaction, copies follow its cuts.
			if h.Key().Chat() == target.chat && (target.key == nil || *target.key == h.Key()) && !target.redacted &&
				h.Turn() <= turn {
				s.Cache.Forget(h.Key())
			}
		}
		s.Registry.DropRuns(target.chat)
		s.Searcher.Indexes.DropChat(target.chat)
		if turn <= recorded[name] {
			continue // another process on this disk has removed the files
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
	if err := s.Spool.Forget(f.Reach, f.Covers); err != nil { // also in folders adopted since
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

// runsOf returns the runs of a chat that this process knows: runs that it has shown lately, and runs that wrote
// messages of the histories.
func (s *Tombstones) runsOf(w *runs.Writer) []string {
	runs := append(s.Registry.RunsHere(w.Chat), w.Runs()...)
	slices.Sort(runs)
	return slices.Compact(runs)
}

// followHandCuts records on this disk which histories other processes found changed by hand, and updates cached copies.
// If Redis loses such a history, no older copy restores the text.
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

// SyncErasures exchanges erasures and changes by hand between this disk and Redis. It retries until it succeeds or ctx
// ends. Nothing may be written back before it has succeeded.
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

// restoreErasures repeats in Redis the erasures that this disk knows, before anything else is written back.
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
	// Redis may know of an erasure and still have lost a part of its effect in a failover.
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

// restoreHandCuts restores in Redis which histories were deleted or rewritten by hand.
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

// EraseForgotten is restoreErasures for one chat, right after its lease was taken. This process notices only moments
// later that Redis returned with an older state. Until then no run may use erased text, or treat it as read under the
// new fencing token.
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

// redactForgotten repeats the redactions of a chat that this disk knows and Redis does not, right after the chat's
// lease was taken.
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

// EraseAgain erases in Redis what a chat or history had before turn. name identifies the erasure. EraseAgain then
// records the erasure in Redis, so that other processes apply it too.
func (s *Tombstones) EraseAgain(ctx context.Context, name string, turn int64) error {
	if u, ok := erasures.UserOf(name); ok {
		if err := s.Store.Users.VoidOldNotes(ctx, turn, u); err != nil {
			return err
		}
		return s.Store.Erasures.Note(ctx, turn, name)
	}
	target, ok := concernedBy(name)
	if !ok {
		return nil // a newer version wrote the name
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

// cutAgain erases what was written before turn in one history or, if key is nil, in the whole chat. For the whole chat
// it also erases the data of its runs and its conversation at the gateway.
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
