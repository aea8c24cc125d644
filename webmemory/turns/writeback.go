package turns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// This file is about bringing back what Redis lost by a restart or a failover, which storewatch.go notices: a lease
// with its run, histories that are cached, and runs that ended. Erasures come first (tombstones.go), so that nothing
// erased is brought back.

// WriteBacker brings back what Redis lost while this process still knows it: cached histories, and runs that ended or
// wait here. It writes by compare-and-set or under a chat's lease, and only after the tombstones are synced.
type WriteBacker struct {
	*node.Core
	Registry   *runs.Registry
	StoreWatch *node.StoreWatch
	Tombstones *erase.Tombstones
	Runner     *runs.Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

// Bounds of writing back: histories that are looked at in one round trip, round trips
// at one time, and how often it is said how far it is.
const (
	writeBackBatch = 64

	writeBackSays = 5 * time.Second
)

// WriteBack brings back what Redis lost, each time that something may be lost, until
// it has succeeded.
func (s *WriteBacker) WriteBack() {
	for {
		select {
		case <-s.StoreWatch.Losses.Wake:
		case <-s.Life.Done():
			return
		}
		for err := s.writeBackAll(s.Life); err != nil; err = s.writeBackAll(s.Life) {
			if s.Life.Err() != nil {
				return
			}
			s.Log.Warn().Err(err).Msg("what is known here was not written back whole; it is tried again")
			_ = node.Pause(s.Life, node.Jitter(time.Second))
		}
		s.Workers.Go(func() { s.restoreRuns(s.Life) })
	}
}

// writeBackAll writes back all histories that are cached. What was erased or changed
// on purpose comes first, so that nothing of that is brought back.
func (s *WriteBacker) writeBackAll(ctx context.Context) error {
	if err := s.Tombstones.SyncErasures(ctx); err != nil {
		return err
	}
	began, initial := time.Now(), s.Store.Counts.Recovered.Load()
	copies := s.Cache.List()
	for i, h := range copies {
		redacted, err := s.RedactedCopy(h)
		if err != nil {
			return err
		}
		if redacted != h {
			s.Cache.Refresh(h, redacted)
			copies[i] = redacted
		}
	}
	var scanned atomic.Int64
	logProgress := func() {
		if len(copies) == 0 {
			return
		}
		s.Log.Warn().Int("histories", len(copies)).Int64("looked_at", scanned.Load()).
			Int64("brought_back", s.Store.Counts.Recovered.Load()-initial).Dur("took", time.Since(began)).
			Msg("writing back what Redis lost")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []*memory.History)
	var working sync.WaitGroup
	for range runs.WriteBackers {
		working.Go(func() {
			for batch := range batches {
				ctx, stop := context.WithTimeout(ctx, 6*node.StoreTimeout)
				current, err := s.Store.WriteBack(ctx, batch...)
				stop()
				scanned.Add(int64(len(batch)))
				if err != nil {
					cancel(err)
					continue
				}
				for i, h := range current {
					if h != nil {
						s.Cache.Refresh(batch[i], h)
					}
				}
			}
		})
	}
	tick := time.NewTicker(writeBackSays)
	defer tick.Stop()
	for batch := range slices.Chunk(copies, writeBackBatch) {
		for queued := false; !queued && ctx.Err() == nil; {
			select {
			case batches <- batch:
				queued = true
			case <-tick.C:
				logProgress()
			case <-ctx.Done():
			}
		}
	}
	close(batches)
	working.Wait()
	logProgress()
	return context.Cause(ctx)
}

// restoreTries bounds how often chats that are busy are tried for, about once a second.
const restoreTries = 60

// restoreRuns writes back the runs that ended lately, as far as this process remembers
// them or finds them on its disk, since no other process looks after them and a repeated
// post would run again what its client saw completed: first, at once, their messages,
// then all that is kept of each, as it gets their chats' leases.
func (s *WriteBacker) restoreRuns(ctx context.Context) {
	remaining := s.Registry.EndedRuns()
	var placing sync.WaitGroup
	sem := make(chan struct{}, runs.WriteBackers)
	for _, head := range remaining {
		if head.Waiting != nil { // what it said goes back with it, if it still waits
			continue
		}
		sem <- struct{}{}
		placing.Go(func() {
			defer func() { <-sem }()
			if err := s.placeRun(ctx, head); err != nil && ctx.Err() == nil {
				s.Log.Debug().Err(err).Str("run", head.Run).Msg("the messages of a run come back with it")
			}
		})
	}
	placing.Wait()
	for range restoreTries {
		remaining = slices.DeleteFunc(remaining, func(head node.EndHead) bool {
			err := s.restoreRun(ctx, head)
			if err != nil && ctx.Err() == nil {
				s.Log.Debug().Err(err).Str("run", head.Run).Msg("a run was not restored; it is tried again")
			}
			return err == nil
		})
		if len(remaining) == 0 {
			return
		}
		if node.Pause(ctx, node.Jitter(time.Second)) != nil {
			return
		}
	}
	s.Log.Warn().Int("runs", len(remaining)).
		Msg("Redis does not know some runs that ended; their chats were busy, or it is away")
}

// placeRun brings back the messages of a run of which Redis knows no end. It fences no
// other writer, and so needs no lease.
func (s *WriteBacker) placeRun(ctx context.Context, head node.EndHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*node.StoreTimeout)
	defer cancel()
	if ok, err := s.knowsEnd(ctx, head); ok || err != nil {
		return err
	}
	if err := s.Tombstones.FollowErasures(ctx); err != nil || s.RedactedSince(head.Chat.Chat, head.Turn) {
		return err
	}
	_, lines := s.Registry.KnownEvents(head.Chat.Chat, head.Run)
	copies, err := runs.Folded(head.Chat.Chat, head.Turn, head.Decode(lines))
	if err != nil {
		return err
	}
	_, err = s.Store.WriteBack(ctx, copies...)
	return err
}

// knowsEnd says whether Redis knows how a run ended.
func (s *WriteBacker) knowsEnd(ctx context.Context, head node.EndHead) (bool, error) {
	record, err := s.Store.Runs.Record(ctx, head.Chat.Chat, head.Run)
	return err == nil && record != nil && len(record.Result) > 0 && record.Body != "", err
}

// restoreRun writes one run back, unless Redis knows its end or its chat was erased since.
// It takes the chat's lease for that, which brings an open run to its end too.
func (s *WriteBacker) restoreRun(ctx context.Context, head node.EndHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*node.StoreTimeout)
	defer cancel()
	if ok, err := s.knowsEnd(ctx, head); ok || err != nil {
		return err
	}
	if head.Waiting != nil {
		if ok, err := runs.IsNamed(ctx, s.Store, head.Chat.Chat, head.Run); err != nil || ok {
			return err
		}
	}
	if err := s.Tombstones.FollowErasures(ctx); err != nil {
		return err
	}
	w, err := s.Leaser.takeTurn(ctx, ctx, head.Chat.Chat, "", runs.PlaceIdle)
	if errors.Is(err, problem.ErrErased) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.Open != nil {
		run := w.Open.Run
		s.Runner.Resume(w)
		if run == head.Run {
			return nil
		}
		return problem.ErrQueueSlow
	}
	defer w.Next()
	_, lines := s.Registry.KnownEvents(head.Chat.Chat, head.Run)
	if events := head.Decode(lines); head.Waiting != nil {
		_, err = s.Restorer.restoreWait(ctx, w, head, events)
	} else if len(events) > 0 && events[len(events)-1].Terminal() {
		err = s.Restorer.putBack(ctx, w, head, events)
	}
	return errors.Join(err, w.End())
}
