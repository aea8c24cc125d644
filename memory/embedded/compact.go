package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Compaction rewrites the journal as a snapshot of the live data. It is done when the journal has
// outgrown that data; at a quiet moment already for less; and when no file may hold what was
// erased.
const (
	// A journal is compacted once it is larger than compactMin bytes and than compactFactor times
	// the live data.
	compactMin    = 1 << 20
	compactFactor = 4

	quietMin  = 8 << 10 // bytes of garbage from which a quiet moment is used
	quietPart = 4       // … and at least this fraction of the live data, so that large data is rewritten rarely
)

// rounds is a single flight for compactions: calls that come while one runs share the next one.
// They cannot share the one that runs, since it may have passed what they are to erase.
type rounds struct {
	running sync.Mutex // held by the round that compacts

	mu   sync.Mutex
	next *round // guarded by mu: begins once the one that runs is over
}

// round is one compaction that several callers may wait for.
type round struct {
	done chan struct{}
	err  error // set before over is closed
}

// Compact rewrites the journal, so that no file holds what was deleted or overwritten before the
// call. Concurrent calls share a compaction. Commands wait for it: about a second for 100 MB of
// live data. The caller waits until ctx ends; the compaction itself goes on.
//
// An error means that files may hold such data still. The store goes on, and the call may be
// repeated.
func (s *Server) Compact(ctx context.Context) error {
	s.rounds.mu.Lock()
	r := s.rounds.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		if !s.start(func() { s.compactRound(r) }) {
			s.rounds.mu.Unlock()
			return errClosed
		}
		s.rounds.next = r
	}
	s.rounds.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("compacting the embedded store's journal: %w", context.Cause(ctx))
	}
}

// compactRound runs one shared compaction.
func (s *Server) compactRound(r *round) {
	s.rounds.running.Lock()
	defer s.rounds.running.Unlock()
	s.rounds.mu.Lock()
	s.rounds.next = nil // a later caller may have deleted more than this snapshot leaves out
	s.rounds.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(r.done)
	if s.broken == nil {
		r.err = s.compact()
		return
	}
	r.err = fmt.Errorf("compacting the embedded store's journal: %w", s.broken)
}

// compactIfLarge compacts a journal that has outgrown the live data, which is sooner in a quiet
// moment, in which no command waits. A failure, which is logged, is harmless: the journal is whole,
// and the next attempt comes when it has grown as much again.
func (s *Server) compactIfLarge(quiet bool) {
	size := s.journal.Size()
	if size > max(compactMin, compactFactor*s.live) || quiet && size-s.live > max(quietMin, s.live/quietPart) {
		_ = s.compact()
	}
}

// compact rewrites the journal; the caller holds mu.
func (s *Server) compact() error {
	oldSize, started := s.journal.Size(), time.Now()
	err := s.journal.Rewrite(s.engine.snapshot)
	s.live = s.journal.Size()
	if err != nil {
		s.log.Warn().Err(err).Int64("bytes", oldSize).Msg("embedded store: the journal could not be compacted")
		return fmt.Errorf("compacting the embedded store's journal: %w", err)
	}
	s.log.Debug().Int64("before", oldSize).Int64("after", s.live).Dur("took", time.Since(started)).
		Msg("embedded store: journal compacted")
	return nil
}

// measure finds the size of the live data as a snapshot would encode it.
func (s *Server) measure() error {
	s.live = 0
	return s.engine.snapshot(func(payload []byte) error {
		s.live += int64(len(payload))
		return nil
	})
}
