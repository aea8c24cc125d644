package webmemory

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
)

// This file is about erasures as facts: each is in Redis for all processes, and on
// the disk of each that has applied it. A process applies one to what it holds in
// memory and on its disk, when another asks it to, or when it looks.

// followMargin is by how much the clocks that make turns may differ.
const followMargin = 10 * time.Minute

// follower is what a process knows of erasures.
type follower struct {
	file *erasures.File // what was applied to this disk

	mu      sync.Mutex
	applied map[string]int64 // guarded by mu: to what this process holds in memory
	since   int64            // guarded by mu: the turn from which Redis is asked
}

// followErasures applies what was erased since this process last looked.
func (s *Server) followErasures(ctx context.Context) error {
	began := time.Now()
	s.follower.mu.Lock()
	since := s.follower.since
	s.follower.mu.Unlock()
	turns, err := s.store.Erasures(ctx, since)
	if err != nil {
		return err
	}
	if err := s.applyErasures(ctx, turns); err != nil {
		return err
	}
	if err := s.followHandCuts(ctx, turns); err != nil {
		return err
	}
	s.follower.mu.Lock()
	defer s.follower.mu.Unlock()
	s.follower.since = began.Add(-followMargin).UnixMilli()
	return nil
}

// applyErasures erases from this process's memory and disk what was erased in turns,
// by name, and notes it on the disk. What was applied before costs nothing. The
// gateway's conversations go first: once they are forgotten here nobody may know them.
func (s *Server) applyErasures(ctx context.Context, turns map[string]int64) error {
	f := &s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, turn := range turns {
		if chat, _, ok := erasures.ChatOf(name); ok && turn > f.applied[name] {
			if err := s.eraseConversations(ctx, chat, turn); err != nil {
				return err
			}
		}
	}
	known, err := f.file.All()
	if err != nil {
		return err
	}
	fresh := map[string]int64{}
	for name, turn := range turns {
		chat, key, ok := erasures.ChatOf(name)
		if !ok || turn <= f.applied[name] {
			continue
		}
		fresh[name] = turn
		for _, h := range s.cache.All() {
			// In the turn itself it was read before it was erased.
			if h.Key().Chat() == chat && (key == nil || *key == h.Key()) && h.Turn() <= turn {
				s.cache.Forget(h.Key())
			}
		}
		s.dropRuns(chat)
		if turn <= known[name] {
			continue // another process of this disk has
		}
		if err := s.sessions.remove(chat); err != nil {
			return err
		}
		if err := s.ends.remove(chat); err != nil {
			return err
		}
	}
	if err := f.file.Add(fresh); err != nil {
		return err
	}
	if err := s.spool.ForgetBefore(f.file.Of); err != nil { // also of folders adopted since
		return err
	}
	maps.Copy(f.applied, fresh)
	return nil
}

// halfErased is for how long after an erasure Redis may lose a part of it: far longer
// than a failover or a start from an older file reaches back.
const halfErased = time.Hour

// restoreErasures tells Redis again of what this disk knows to be erased, and erases
// it there once more, before anything else is written back.
func (s *Server) restoreErasures(ctx context.Context) error {
	known, err := s.follower.file.All()
	if err != nil {
		return err
	}
	stored, err := s.store.Erasures(ctx, 0)
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	// That Redis knows of an erasure does not say that all of it is done there: a failover
	// may have lost the rest of it.
	recent := time.Now().Add(-halfErased).UnixMilli()
	for name, turn := range known {
		chat, key, ok := erasures.ChatOf(name)
		if !ok || turn < oldest || turn <= stored[name] && turn < recent {
			continue
		}
		if err := s.eraseAgain(ctx, turn, chat, key); err != nil {
			return err
		}
		if err := s.store.NoteErasure(ctx, turn, name); err != nil {
			return err
		}
	}
	return nil
}

// eraseForgotten is restoreErasures for one chat, of which the turn was just taken: a
// Redis that came back older is noticed moments later only, and until then nobody may
// use what was erased, nor hold it as read in a later turn.
func (s *Server) eraseForgotten(ctx context.Context, chat memory.Chat) error {
	names := []string{erasures.Chat(chat), memory.ChatKey(chat).String()}
	for _, a := range s.cfg.Agents {
		names = append(names, memory.SubagentKey(a, chat).String())
	}
	for _, name := range names {
		turn := s.follower.file.Turn(name)
		if turn == 0 {
			continue
		}
		_, key, _ := erasures.ChatOf(name)
		of := memory.ChatKey(chat)
		if key != nil {
			of = *key
		}
		known, err := s.store.Tombstone(ctx, of)
		if err != nil {
			return err
		}
		if turn <= known {
			continue
		}
		if err := s.eraseAgain(ctx, turn, chat, key); err != nil {
			return err
		}
		if err := s.store.NoteErasure(ctx, turn, name); err != nil {
			return err
		}
	}
	return nil
}

// eraseAgain erases in Redis what was written before a turn: of one history, or, if
// key is nil, of all of a chat.
func (s *Server) eraseAgain(ctx context.Context, turn int64, chat memory.Chat, key *memory.Key) error {
	keys := []memory.Key{memory.ChatKey(chat)}
	if key != nil {
		keys[0] = *key
	} else {
		named, err := s.store.Keys(ctx, chat, s.cfg.Agents...)
		if err != nil {
			return err
		}
		found, err := s.store.Found(ctx, named...)
		if err != nil {
			return err
		}
		for i, k := range named {
			if found[i] && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	back := false
	for _, k := range keys {
		cut, err := s.store.Cut(ctx, turn, k)
		if err != nil {
			return err
		}
		back = back || cut
	}
	if !back {
		return nil
	}
	s.log.Warn().Str("chat", chat.String()).Msg("Redis came back with what was erased; it was erased once more")
	if key != nil {
		return nil
	}
	conversation, err := s.store.EraseOldRuns(ctx, turn, chat)
	if err != nil || conversation == "" {
		return err
	}
	return s.runs.EraseConversation(ctx, conversation)
}

// syncErasures brings together what this disk and Redis know of erasures and of changes
// by hand. It tries until it has, or ctx ends: before that nothing may be written back.
func (s *Server) syncErasures(ctx context.Context) error {
	for {
		err := s.trySyncErasures(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.log.Debug().Err(err).Msg("what was erased is not known yet")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(jitter(time.Second)):
		}
	}
}

func (s *Server) trySyncErasures(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	if err := s.followErasures(ctx); err != nil {
		return err
	}
	if err := s.restoreErasures(ctx); err != nil {
		return err
	}
	return s.restoreHandCuts(ctx)
}

// runs names the runs of a chat that are kept.
func (e *ends) runs(chat memory.Chat) (ids []string) {
	if e.dir == "" {
		return nil
	}
	files, _ := os.ReadDir(e.folder(chat)) // absent in most cases
	for _, f := range files {
		ids = append(ids, f.Name())
	}
	return ids
}

// erasure is the body of POST /internal/v1/erasures.
type erasure struct {
	Name string `json:"name"`
	Turn int64  `json:"turn"`
}

// applied says what a process knew of the chat, and Redis may still keep.
type applied struct {
	Runs []string `json:"runs"`
}

// postErasure is POST /internal/v1/erasures: another process has erased something.
func (s *Server) postErasure(c *gin.Context) error {
	var e erasure
	if err := api.DecodeBody(c.Writer, c.Request, maxBody, &e); err != nil {
		return err
	}
	chat, _, ok := erasures.ChatOf(e.Name)
	if !ok || e.Turn <= 0 {
		return badRequest("An erasure has a name, chat:<chat> or the key of a history, and a turn.")
	}
	out := applied{Runs: s.runsHere(chat)}
	if err := s.applyErasures(c.Request.Context(), map[string]int64{e.Name: e.Turn}); err != nil {
		return err
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// tellOthers asks all living processes to apply an erasure, and waits for them, but
// for no longer than each may take to answer. Who cannot be reached applies it when
// it looks next. It gives the runs of the chat that they knew of.
func (s *Server) tellOthers(ctx context.Context, e erasure) (runs []string) {
	if wait := redisstore.Beat - monotonic(); wait > 0 && s.cfg.Advertise != "" {
		// Redis may have lost the list just before this process began: after a beat all who
		// live are on it.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	others, err := s.others(ctx)
	if err != nil {
		s.log.Warn().Err(err).Msg("other processes are not known; they apply an erasure when they look")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*otherAnswers)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range others {
		asking.Go(func() {
			var out applied
			if err := s.askOther(ctx, p, http.MethodPost, "/erasures", e, &out); err != nil {
				s.log.Warn().Err(err).Str("process", p.ID).Msg("another process has not applied an erasure yet; it does when it looks")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, out.Runs...)
		})
	}
	asking.Wait()
	return runs
}

// runsHere are the runs of a chat that this process, or a dead one of its disk, has
// lately shown.
func (s *Server) runsHere(chat memory.Chat) []string {
	runs := map[string]bool{}
	s.mu.Lock()
	for id, r := range s.live {
		if r.chat == chat {
			runs[id] = true
		}
	}
	s.mu.Unlock()
	for _, id := range s.ends.runs(chat) {
		runs[id] = true
	}
	return slices.Collect(maps.Keys(runs))
}
