package runs

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/webmemory/node"
)

// regainIfLost is regain if the lease was regained and no goroutine has put back yet what
// else was lost.
func (d *Driver) regainIfLost(ctx context.Context) error {
	select {
	case <-d.writer.regained:
		return d.regain(ctx)
	default:
		return nil
	}
}

// LossLog is the log of what one loss does to many runs.
func (d *Driver) LossLog() *zerolog.Logger {
	log := d.runner.Telemetry.Limited(d.Log)
	return &log
}

// regain puts back what Redis lost of a run under a lease that was regained: its record,
// its log and the pinned histories, in this order, since a history is never ahead of its
// log. Readers see nothing of it, and other processes find the run where it was.
func (d *Driver) regain(ctx context.Context) error {
	d.LossLog().Error().Msg("Redis has lost a chat in the middle of a run; it is put back")
	ctx, cancel := context.WithTimeout(ctx, 2*node.StoreTimeout)
	defer cancel()
	err := d.putLostBack(ctx)
	if errors.Is(err, memory.ErrUnavailable) {
		// The run goes on without Redis; the next renewal asks for this again.
		d.LossLog().Warn().Err(err).Msg("what Redis lost of a chat was not put back; it is tried again")
		return nil
	}
	if err != nil {
		return err
	}
	d.writer.needsRestore.Store(false)
	d.runner.Metrics.Regained.Inc()
	return nil
}

func (d *Driver) putLostBack(ctx context.Context) error {
	if _, err := d.runner.NoteRun(ctx, d.Run); err != nil {
		return err
	}
	entries, err := d.runner.Store.Runs.Relog(ctx, d.Run.Chat, d.Run.ID, d.Run.Logged()...)
	if err != nil {
		return err
	}
	d.writer.entries = entries
	if err := putOwnCallsBack(ctx, d); err != nil {
		return err
	}
	return d.writer.Load(ctx, d.writer.Subagents)
}

// fillLog writes the run's log anew if Redis came back without some of its events, but
// with the lease, so that nothing else told of the loss.
func (d *Driver) fillLog(ctx context.Context) error {
	n, err := d.runner.Store.Runs.LogLen(ctx, d.Run.Chat, d.Run.ID)
	if err != nil || n >= d.writer.entries {
		return err
	}
	d.LossLog().Warn().Msg("Redis has lost events of a run that went on; its log is written anew")
	return d.writer.closeGap(ctx)
}

// Bounds of writing back: histories that are looked at in one round trip, round trips
// at one time, and how often it is said how far it is.
const (
	WriteBackers = 8
)
