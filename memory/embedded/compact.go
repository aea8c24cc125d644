package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A compaction rewrites the journal as a snapshot of the live data. It is made when
// the journal has outgrown that data, at a quiet moment already for little, and when
// what was erased must not be in any file.
const (
	compactMin    = 1 << 20
	compactFactor = 4

	quietMin  = 8 << 10 // bytes of journal beside the live data for which a quiet moment is used
	quietPart = 4       // … and at least this part of the live data, so that much of it is rewritten rarely
)

// rounds lets those who ask for a compaction at the same time share one.
type rounds struct {
	running sync.Mutex // held by the round that compacts

	mu   sync.Mutex
	next *round // guarded by mu: begins once the one that runs is over
}

type round struct {
	over chan struct{}
	err  error // set before over is closed
}

// Compact rewrites the journal, so that no file holds what was deleted or
// overwritten before the call. Calls that meet share one. Commands wait for it: about
// a second for 100 MB of live data. Its end is not waited for beyond that of ctx.
//
// An error means that files may hold such data still; the store goes on with what it
// has, and the call may be repeated.
func (s *Server) Compact(ctx context.Context) error {
	s.rounds.mu.Lock()
	r := s.rounds.next
	if r == nil {
		r = &round{over: make(chan struct{})}
		if !s.start(func() { s.compactRound(r) }) {
			s.rounds.mu.Unlock()
			return ErrClosed
		}
		s.rounds.next = r
	}
	s.rounds.mu.Unlock()
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("compacting the embedded store's journal: %w", context.Cause(ctx))
	}
}

func (s *Server) compactRound(r *round) {
	s.rounds.running.Lock()
	defer s.rounds.running.Unlock()
	s.rounds.mu.Lock()
	s.rounds.next = nil // who comes from here on may have deleted more than this round leaves out
	s.rounds.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(r.over)
	switch {
	case s.broken != nil:
		r.err = fmt.Errorf("compacting the embedded store's journal: %w", s.broken)
	default:
		r.err = s.compact()
	}
}

// compactIfLarge rewrites a journal that has outgrown the live data. Not being able to is no failure: the journal is
// whole, and the next attempt comes when it has grown as much again.
func (s *Server) compactIfLarge() {
	if s.journal.Size() > max(compactMin, compactFactor*s.live) {
		_ = s.compact() // logged
	}
}

// compactIfWorth is compactIfLarge for a moment in which nobody waits.
func (s *Server) compactIfWorth() {
	if s.journal.Size()-s.live > max(quietMin, s.live/quietPart) {
		_ = s.compact() // logged
	}
}

// compact rewrites the journal; the caller holds mu.
func (s *Server) compact() error {
	before, started := s.journal.Size(), time.Now()
	err := s.journal.Rewrite(s.engine.snapshot)
	s.live = s.journal.Size()
	if err != nil {
		s.log.Warn().Err(err).Int64("bytes", before).Msg("embedded store: the journal could not be compacted")
		return fmt.Errorf("compacting the embedded store's journal: %w", err)
	}
	s.log.Debug().Int64("before", before).Int64("after", s.live).Dur("took", time.Since(started)).
		Msg("embedded store: journal compacted")
	return nil
}

// measure finds the size of the live data.
func (s *Server) measure() error {
	s.live = 0
	return s.engine.snapshot(func(payload []byte) error {
		s.live += int64(len(payload))
		return nil
	})
}
