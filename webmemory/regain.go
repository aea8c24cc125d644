package webmemory

import (
	"context"
	"errors"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// This file is about a Redis that loses its data in the middle of a run: the owner
// takes its turn again and puts back what it holds of the run, so that its client
// sees nothing of it and other processes find the run where it was.

// regainIfLost is regain if the turn was taken again and nobody has put right yet
// what else was lost.
func (d *driver) regainIfLost(ctx context.Context) error {
	select {
	case <-d.turn.regained:
		return d.regain(ctx)
	default:
		return nil
	}
}

// regain puts back the run's record, its log and the turn's histories, in this order:
// a history is never ahead of its log.
func (d *driver) regain(ctx context.Context) error {
	d.log.Error().Msg("Redis has lost a chat in the middle of a run; it is put back")
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	err := d.putLostBack(ctx)
	if errors.Is(err, memory.ErrUnavailable) {
		// The run goes on without Redis; the next renewal asks for this again.
		d.log.Warn().Err(err).Msg("what Redis lost of a chat was not put back; it is tried again")
		return nil
	}
	if err != nil {
		return err
	}
	d.turn.lost.Store(false)
	d.server.metrics.regained.Inc()
	return nil
}

func (d *driver) putLostBack(ctx context.Context) error {
	if _, err := d.server.noteRun(ctx, d.run); err != nil {
		return err
	}
	entries, err := d.server.store.Relog(ctx, d.run.chat, d.run.id, d.run.logged()...)
	if err != nil {
		return err
	}
	d.turn.entries = entries
	return d.turn.load(ctx, d.server.cfg.Agents)
}

// fillLog writes the run's log anew if Redis came back without some of its events, but
// with the lease, so that nothing else told.
func (d *driver) fillLog(ctx context.Context) error {
	n, err := d.server.store.LogLen(ctx, d.run.chat, d.run.id)
	if err != nil || n >= d.turn.entries {
		return err
	}
	d.log.Warn().Msg("Redis has lost events of a run that went on; its log is written anew")
	return d.turn.closeGap(ctx)
}

// logged are the run's events as its log in Redis holds them.
func (r *run) logged() (all []redisstore.Logged) {
	for i, line := range r.log.Lines(0) {
		all = append(all, redisstore.Logged{Seq: int64(i) + 1, Line: line})
	}
	return all
}
