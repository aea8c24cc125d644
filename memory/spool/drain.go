package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mneme/memory"
	"mneme/memory/journal"
)

// Apply appends entries to Redis: all waiting ones of one run in one queue, in order, as one block.
// It must be idempotent by (run, seq), because entries are handed out again after a crash. It
// returns how many from the front need no further try: appended, found to be duplicates, or refused
// for good, for example because the history was erased. If these are not all it must return an
// error.
type Apply func(ctx context.Context, entries []Entry) (done int, err error)

// Drain hands the entries of one queue to apply, run by run, and removes those that were taken,
// until none is left, including those added meanwhile. It stops at the first error of apply,
// returns it wrapped, and keeps the rest. Drains of one queue exclude each other; an Add never
// waits for a drain.
//
// Delivery is at least once: should the process die between apply and the removal, the entries are
// handed out again. When Drain returns, the removal is synced.
func (s *Spool) Drain(ctx context.Context, q Queue, apply Apply) error {
	release, err := s.claim(ctx, q)
	if err == nil {
		defer release()
		err = s.drain(ctx, q, apply)
		s.syncRemovals()
	}
	if err != nil {
		return fmt.Errorf("drain the spool for %s: %w", q, err)
	}
	return nil
}

// claim takes the exclusive right to drain q, and waits for the goroutine that has it. release gives it back.
func (s *Spool) claim(ctx context.Context, q Queue) (release func(), err error) {
	mine := make(chan struct{})
	for {
		s.mu.Lock()
		other, busy := s.draining[q]
		if !busy {
			s.draining[q] = mine
		}
		s.mu.Unlock()
		if !busy {
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.draining, q)
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// drain is Drain for the holder of the claim on q.
func (s *Spool) drain(ctx context.Context, q Queue, apply Apply) error {
	for {
		waiting, err := s.firstRun(q)
		if err != nil || len(waiting) == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		done, err := apply(ctx, entriesOf(waiting))
		if done < 0 || done > len(waiting) || err == nil && done < len(waiting) {
			err = errors.Join(err, fmt.Errorf("%d of %d appends were taken, without a reason", done, len(waiting)))
		}
		s.settle(waiting[:min(max(done, 0), len(waiting))])
		if err != nil {
			return err
		}
	}
}

func entriesOf(list []*pending) []Entry {
	entries := make([]Entry, len(list))
	for i, p := range list {
		entries[i] = p.Entry
	}
	return entries
}

// firstRun copies the entries at the front of a queue that belong to one run: the unit of one
// Apply.
func (s *Spool) firstRun(q Queue) ([]*pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	list := s.queues[q]
	n := slices.IndexFunc(list, func(p *pending) bool { return p.Mark.Run != list[0].Mark.Run })
	if n < 0 {
		n = len(list)
	}
	return slices.Clone(list[:n]), nil
}

// settle removes entries that need no further try, from memory and by a record in the file. A
// failure to write that record is not an error: the entries are handed out once more after a
// restart, and Apply is idempotent.
func (s *Spool) settle(entries []*pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	done := map[*segment][]int64{}
	for _, p := range entries {
		if p.segment.live[p.timestamp] == p { // else forgotten meanwhile
			done[p.segment] = append(done[p.segment], p.timestamp)
		}
	}
	s.drop(entries)
	for g, timestamps := range done {
		if !g.failed {
			s.note(g, g.journal.Append(encodeDone(timestamps)))
		}
	}
}

// syncRemovals syncs the records of removal and compacts or deletes files that are mostly garbage.
// It is needed for idempotency: Redis remembers (run, seq) for a limited time, so an entry that a
// power loss brings back much later would be appended twice.
func (s *Spool) syncRemovals() {
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	for _, g := range segments {
		err := g.journal.Sync() // without mu, so that no other goroutine waits for it
		s.mu.Lock()
		if !g.failed {
			s.note(g, err)
		}
		s.tidy(g)
		s.mu.Unlock()
	}
}

// note handles an error for which there is no caller to return it to. journal.ErrClosed is
// expected: the folder was empty and is deleted, or the spool is closed.
func (s *Spool) note(g *segment, err error) {
	if err == nil || errors.Is(err, journal.ErrClosed) {
		return
	}
	s.failed(g, err)
	s.log.Warn().Err(err).Str("folder", g.dir).
		Msg("the spool's file could not be cleaned up and is kept until all of it is drained")
}

// tidy deletes a folder that is empty and not written to, and compacts a file that is mostly
// garbage.
func (s *Spool) tidy(g *segment) {
	if s.closed || !slices.Contains(s.segments, g) {
		return
	}
	switch {
	case g != s.active && g != s.own && len(g.live) == 0:
		s.note(g, s.remove(g))
	case g.wasteful() && !g.failed:
		s.note(g, g.rewrite(g.sorted(nil)))
	}
}

// remove deletes a folder and takes it off the list.
func (s *Spool) remove(g *segment) error {
	if err := g.remove(); err != nil {
		return err
	}
	s.segments = slices.DeleteFunc(s.segments, func(other *segment) bool { return other == g })
	return nil
}

// Forget erases the entries of which erased says so. since is the turn before which a history may have such
// text, 0 for none: a file that has text of it from before is rewritten, so that when Forget returns nil no
// file of this spool holds erased text, including that of entries that were drained before. Entries that a
// drain has already handed out are refused by the store, by the fencing token (the turn's number) that the
// erasure has raised. After an error nothing is lost, and the call may be repeated.
func (s *Spool) Forget(cutoff func(memory.Key) int64, erased func(Entry) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("erase from the spool: %w", journal.ErrClosed)
	}
	var failed error
	for _, g := range slices.Clone(s.segments) {
		if g.has(cutoff) {
			failed = errors.Join(failed, s.forget(g, erased))
		}
	}
	if failed != nil {
		return fmt.Errorf("erase from the spool: %w", failed)
	}
	return nil
}

func (s *Spool) forget(g *segment, erased func(Entry) bool) error {
	keep := g.sorted(erased)
	var err error
	if len(keep) == 0 && g != s.active {
		err = s.remove(g)
	} else {
		err = g.rewrite(keep)
	}
	if err != nil {
		s.failed(g, err)
		return err
	}
	for _, p := range g.sorted(nil) {
		if erased(p.Entry) {
			s.drop([]*pending{p})
		}
	}
	return nil
}
