package webmemory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/webmemory/problem"
)

// This file is about bringing back what Redis lost by a restart or a failover, which storewatch.go notices: a lease
// with its run, histories that are cached, and runs that ended. Erasures come first (tombstones.go), so that nothing
// erased is brought back.

// writeBacker brings back what Redis lost while this process still knows it: cached histories, and runs that ended or
// wait here. It writes by compare-and-set or under a chat's lease, and only after the tombstones are synced.
type writeBacker struct {
	*core
	registry   *registry
	storeWatch *storeWatch
	tombstones *tombstones
	runner     *runner
	restorer   *restorer
	leaser     *leaser
}

// maxUsed bounds how many chats are remembered to have been used here.
const maxUsed = 1 << 16

// makeRoom takes out any chats while there are as many as may be remembered.
func makeRoom[V any](chats map[memory.Chat]V) {
	for chat := range chats {
		if len(chats) < maxUsed {
			return
		}
		delete(chats, chat)
	}
}

// retelling is for how long after a loss Redis may still lack what other processes know:
// they notice it, write back, and wait for the leases of busy chats.
const retelling = 2 * time.Minute

// regainIfLost is regain if the lease was regained and no goroutine has put back yet what
// else was lost.
func (d *driver) regainIfLost(ctx context.Context) error {
	select {
	case <-d.writer.regained:
		return d.regain(ctx)
	default:
		return nil
	}
}

// lossLog is the log of what one loss does to many runs.
func (d *driver) lossLog() *zerolog.Logger {
	log := d.runner.telemetry.Limited(d.log)
	return &log
}

// regain puts back what Redis lost of a run under a lease that was regained: its record,
// its log and the pinned histories, in this order, since a history is never ahead of its
// log. Readers see nothing of it, and other processes find the run where it was.
func (d *driver) regain(ctx context.Context) error {
	d.lossLog().Error().Msg("Redis has lost a chat in the middle of a run; it is put back")
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	err := d.putLostBack(ctx)
	if errors.Is(err, memory.ErrUnavailable) {
		// The run goes on without Redis; the next renewal asks for this again.
		d.lossLog().Warn().Err(err).Msg("what Redis lost of a chat was not put back; it is tried again")
		return nil
	}
	if err != nil {
		return err
	}
	d.writer.needsRestore.Store(false)
	d.runner.metrics.regained.Inc()
	return nil
}

func (d *driver) putLostBack(ctx context.Context) error {
	if _, err := d.runner.noteRun(ctx, d.run); err != nil {
		return err
	}
	entries, err := d.runner.store.Runs.Relog(ctx, d.run.chat, d.run.id, d.run.logged()...)
	if err != nil {
		return err
	}
	d.writer.entries = entries
	if err := putOwnCallsBack(ctx, d); err != nil {
		return err
	}
	return d.writer.load(ctx, d.writer.agents)
}

// fillLog writes the run's log anew if Redis came back without some of its events, but
// with the lease, so that nothing else told of the loss.
func (d *driver) fillLog(ctx context.Context) error {
	n, err := d.runner.store.Runs.LogLen(ctx, d.run.chat, d.run.id)
	if err != nil || n >= d.writer.entries {
		return err
	}
	d.lossLog().Warn().Msg("Redis has lost events of a run that went on; its log is written anew")
	return d.writer.closeGap(ctx)
}

// Bounds of writing back: histories that are looked at in one round trip, round trips
// at one time, and how often it is said how far it is.
const (
	writeBackBatch = 64
	writeBackers   = 8
	writeBackSays  = 5 * time.Second
)

// writeBack brings back what Redis lost, each time that something may be lost, until
// it has succeeded.
func (s *writeBacker) writeBack() {
	for {
		select {
		case <-s.storeWatch.losses.wake:
		case <-s.life.Done():
			return
		}
		for err := s.writeBackAll(s.life); err != nil; err = s.writeBackAll(s.life) {
			if s.life.Err() != nil {
				return
			}
			s.log.Warn().Err(err).Msg("what is known here was not written back whole; it is tried again")
			_ = pause(s.life, jitter(time.Second))
		}
		s.workers.Go(func() { s.restoreRuns(s.life) })
	}
}

// writeBackAll writes back all histories that are cached. What was erased or changed
// on purpose comes first, so that nothing of that is brought back.
func (s *writeBacker) writeBackAll(ctx context.Context) error {
	if err := s.tombstones.syncErasures(ctx); err != nil {
		return err
	}
	began, initial := time.Now(), s.store.Counts.Recovered.Load()
	copies := s.cache.List()
	for i, h := range copies {
		redacted, err := s.redactedCopy(h)
		if err != nil {
			return err
		}
		if redacted != h {
			s.cache.Refresh(h, redacted)
			copies[i] = redacted
		}
	}
	var scanned atomic.Int64
	logProgress := func() {
		if len(copies) == 0 {
			return
		}
		s.log.Warn().Int("histories", len(copies)).Int64("looked_at", scanned.Load()).
			Int64("brought_back", s.store.Counts.Recovered.Load()-initial).Dur("took", time.Since(began)).
			Msg("writing back what Redis lost")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []*memory.History)
	var working sync.WaitGroup
	for range writeBackers {
		working.Go(func() {
			for batch := range batches {
				ctx, stop := context.WithTimeout(ctx, 6*storeTimeout)
				current, err := s.store.WriteBack(ctx, batch...)
				stop()
				scanned.Add(int64(len(batch)))
				if err != nil {
					cancel(err)
					continue
				}
				for i, h := range current {
					if h != nil {
						s.cache.Refresh(batch[i], h)
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
func (s *writeBacker) restoreRuns(ctx context.Context) {
	remaining := s.registry.endedRuns()
	var placing sync.WaitGroup
	sem := make(chan struct{}, writeBackers)
	for _, head := range remaining {
		if head.Waiting != nil { // what it said goes back with it, if it still waits
			continue
		}
		sem <- struct{}{}
		placing.Go(func() {
			defer func() { <-sem }()
			if err := s.placeRun(ctx, head); err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("run", head.Run).Msg("the messages of a run come back with it")
			}
		})
	}
	placing.Wait()
	for range restoreTries {
		remaining = slices.DeleteFunc(remaining, func(head endHead) bool {
			err := s.restoreRun(ctx, head)
			if err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("run", head.Run).Msg("a run was not restored; it is tried again")
			}
			return err == nil
		})
		if len(remaining) == 0 {
			return
		}
		if pause(ctx, jitter(time.Second)) != nil {
			return
		}
	}
	s.log.Warn().Int("runs", len(remaining)).
		Msg("Redis does not know some runs that ended; their chats were busy, or it is away")
}

// placeRun brings back the messages of a run of which Redis knows no end. It fences no
// other writer, and so needs no lease.
func (s *writeBacker) placeRun(ctx context.Context, head endHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	if ok, err := s.knowsEnd(ctx, head); ok || err != nil {
		return err
	}
	if err := s.tombstones.followErasures(ctx); err != nil || s.redactedSince(head.Chat.Chat, head.Turn) {
		return err
	}
	_, lines := s.registry.knownEvents(head.Chat.Chat, head.Run)
	copies, err := folded(head.Chat.Chat, head.Turn, head.events(lines))
	if err != nil {
		return err
	}
	_, err = s.store.WriteBack(ctx, copies...)
	return err
}

// knowsEnd says whether Redis knows how a run ended.
func (s *writeBacker) knowsEnd(ctx context.Context, head endHead) (bool, error) {
	record, err := s.store.Runs.Record(ctx, head.Chat.Chat, head.Run)
	return err == nil && record != nil && len(record.Result) > 0 && record.Body != "", err
}

// restoreRun writes one run back, unless Redis knows its end or its chat was erased since.
// It takes the chat's lease for that, which brings an open run to its end too.
func (s *writeBacker) restoreRun(ctx context.Context, head endHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	if ok, err := s.knowsEnd(ctx, head); ok || err != nil {
		return err
	}
	if head.Waiting != nil {
		if ok, err := isNamed(ctx, s.store, head.Chat.Chat, head.Run); err != nil || ok {
			return err
		}
	}
	if err := s.tombstones.followErasures(ctx); err != nil {
		return err
	}
	w, err := s.leaser.takeTurn(ctx, ctx, head.Chat.Chat, "", placeIdle)
	if errors.Is(err, problem.ErrErased) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.Open != nil {
		run := w.Open.Run
		s.runner.resume(w)
		if run == head.Run {
			return nil
		}
		return problem.ErrQueueSlow
	}
	defer w.next()
	_, lines := s.registry.knownEvents(head.Chat.Chat, head.Run)
	if events := head.events(lines); head.Waiting != nil {
		_, err = s.restorer.restoreWait(ctx, w, head, events)
	} else if len(events) > 0 && events[len(events)-1].Terminal() {
		err = s.restorer.putBack(ctx, w, head, events)
	}
	return errors.Join(err, w.end())
}
