package runs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory/node"
)

// catchUp advances a left run to the last event that was shown. It uses the run's log and lines, the events known here.
func (d *Driver) catchUp(ctx context.Context, lines [][]byte) error {
	if err := d.Replay(ctx); err != nil {
		return err
	}
	if err := putOwnCallsBack(ctx, d); err != nil {
		return err
	}
	return d.retell(ctx, lines)
}

// Replay folds the run's log again. The histories drop messages that they already have.
//
// At a gap, as Redis leaves after an outage, or at an unusable event, Replay stops and rewrites the log up to there.
// The apiserver has the rest. Entries of other programs are skipped.
func (d *Driver) Replay(ctx context.Context) error {
	damaged := false
	for {
		logged, err := d.runner.Store.Runs.Events(ctx, d.Run.Chat, d.Run.ID, d.Run.Log.Last(), Batch)
		switch {
		case errors.Is(err, memory.ErrDamaged):
			damaged = true
		case err != nil:
			return err
		}
		applied := 0
		for _, l := range logged {
			e, err := event.Decode(l.Line)
			if err == nil {
				err = d.Run.Log.Fit(e)
			}
			if err != nil { // damaged, too large or out of order
				damaged = true
				continue
			}
			if err := d.fold.Apply(e); err != nil {
				return err
			}
			if e.Blocking() {
				d.Run.Log.GoOn()
			}
			if err := d.Run.Log.Append(e); err != nil {
				return err
			}
			applied++
		}
		switch {
		case applied > 0 && len(logged) >= Batch:
		case damaged || len(logged) > applied:
			d.Log.Warn().Int64("seq", d.Run.Log.Last()).
				Msg("the log of a run has a gap or an entry that cannot be read; it is written again up to there")
			return d.writer.closeGap(ctx)
		default:
			d.writer.entries, err = d.runner.Store.Runs.LogLen(ctx, d.Run.Chat, d.Run.ID)
			return err
		}
	}
}

// permanent reports whether an operation on a run's events can never succeed, because an event is damaged, too large or
// out of order. Any other error may be temporary, such as an unavailable Redis.
func permanent(err error) bool {
	return errors.Is(err, memory.ErrDamaged) || errors.Is(err, api.ErrLogFull) || errors.Is(err, api.ErrOrder)
}

// inquire asks the other processes for events of a left run that are missing in its log, and takes them. If the former
// owner may be restarting on a disk that is not read here, inquire asks again after one heartbeat.
func (d *Driver) inquire(ctx context.Context) error {
	for last := false; ; last = true {
		_, lines, err := d.runner.Peers.AskForRun(ctx, d.Run.Chat, d.Run.ID)
		if err == nil {
			err = d.retell(ctx, lines)
		}
		if last || d.Run.Log.Done() || err == nil && d.ownerGone() {
			return err
		}
		select {
		case <-time.After(redisstore.LongestBeat + time.Second):
		case <-d.writer.Ctx.Done():
			return context.Cause(d.writer.Ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ownerGone reports whether this process has all events that the run's former owner showed. The owner was this process,
// or a dead process on the same disk.
func (d *Driver) ownerGone() bool {
	return d.owner != "" && (d.owner == d.runner.Spool.Name() || d.runner.Spool.Dead(d.owner))
}

// retell stores and shows the events in lines that follow the run's log. It adds them to the log first, then to the
// histories.
func (d *Driver) retell(ctx context.Context, lines [][]byte) error {
	events := d.Run.head().Decode(lines)
	last := int(d.Run.Log.Last())
	if len(events) <= last {
		return nil
	}
	d.LossLog().Warn().Int("events", len(events)-last).Msg("Redis has lost events of a run; they are told again")
	d.runner.Metrics.Retold.Inc()
	for chunk := range slices.Chunk(events[last:], Batch) {
		if err := d.writer.record(chunk); err != nil {
			return err
		}
	}
	if err := d.writer.Place(ctx, d.writer.Open.Turn, events); err != nil {
		return err
	}
	d.writer.placed = true
	defer func() { d.writer.placed = false }()
	for _, e := range events[last:] {
		if err := d.show(e); err != nil {
			return err
		}
	}
	d.tell()
	return nil
}

// Place writes a run's messages to their positions in the histories. Newer runs may follow a run that Redis lost in
// part. number is the run's fencing token, and events are its first events. Messages that were erased or trimmed since
// are not restored.
func (w *Writer) Place(ctx context.Context, number int64, events []event.Event) error {
	copies, err := Folded(w.Chat, number, events)
	if err != nil {
		return err
	}
	current, err := w.Store.WriteBack(ctx, copies...)
	for _, h := range current {
		if h != nil {
			w.Histories[h.Key()] = h
			w.Cache.Put(h)
		}
	}
	return err
}

// Folded returns a run's messages as copies of the histories. number is the run's turn.
func Folded(chat memory.Chat, number int64, events []event.Event) (copies []*memory.History, err error) {
	sink := collected{}
	fold := event.NewHistories(chat, sink)
	for _, e := range events {
		if err := fold.Apply(e); err != nil {
			return nil, err
		}
	}
	for _, h := range sink {
		h.ProvenIn(number)
		h.OfOneTurn()
		copies = append(copies, h)
	}
	return copies, nil
}

// collected is a fold's sink that only collects messages.
type collected map[memory.Key]*memory.History

func (c collected) Append(key memory.Key, _ int64, m memory.Message) error {
	if c[key] == nil {
		c[key] = memory.Empty(key)
	}
	c[key] = c[key].With(m.Encode())
	return nil
}

// placeRecorded adds the messages that readers of the log have seen to the histories of a run that no process follows.
// Redis lost the run, and another process took the turn after an event was logged but before its message was stored.
//
// A subagent without a history is skipped. It may have been erased with the chat, and nothing would remove its text
// again.
func (d *Driver) placeRecorded() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.writer.Ctx), node.StoreTimeout)
	defer cancel()
	if err := d.writeRecorded(ctx); err != nil {
		d.Log.Warn().Err(err).Msg("what was seen of a run that was left is not all in the histories")
	}
}

func (d *Driver) writeRecorded(ctx context.Context) error {
	redacted, err := d.runner.RedactionsOf(ctx, d.Run.Chat)
	if err != nil || slices.ContainsFunc(redacted, func(r erasures.Redacted) bool { return r.Turn > d.writer.Number }) {
		return err // the run may contain text that was redacted since
	}
	events := d.Run.head().Decode(d.Run.Log.Lines(0))
	for _, e := range d.recorded {
		if e.Seq == int64(len(events))+1 {
			events = append(events, e)
		}
	}
	copies, err := Folded(d.Run.Chat, d.writer.Number, events)
	if err != nil || len(copies) == 0 {
		return err
	}
	keys := make([]memory.Key, len(copies))
	for i, h := range copies {
		keys[i] = h.Key()
	}
	exists, err := d.runner.Store.Chats.Exist(ctx, keys...)
	if err != nil {
		return err
	}
	for i, h := range copies {
		if !exists[i] {
			continue
		}
		if _, err := d.runner.Store.WriteBack(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// regainIfLost calls regain if the lease was regained and no goroutine has restored the other lost data yet.
func (d *Driver) regainIfLost(ctx context.Context) error {
	select {
	case <-d.writer.regained:
		return d.regain(ctx)
	default:
		return nil
	}
}

// LossLog returns a rate-limited logger, because one loss affects many runs.
func (d *Driver) LossLog() *zerolog.Logger {
	log := d.runner.Telemetry.Limited(d.Log)
	return &log
}

// regain restores a run's lost data under a regained lease: the record, the log and the pinned histories, in this
// order. A history is never ahead of its log. Readers notice nothing, and other processes find the run unchanged.
func (d *Driver) regain(ctx context.Context) error {
	d.LossLog().Error().Msg("Redis has lost a chat in the middle of a run; it is put back")
	ctx, cancel := context.WithTimeout(ctx, 2*node.StoreTimeout)
	defer cancel()
	err := d.putLostBack(ctx)
	if errors.Is(err, memory.ErrUnavailable) {
		// The run continues without Redis. The next renewal triggers another attempt.
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

// fillLog rewrites the run's log if Redis lost some of its events but kept the lease. Nothing else reports such a loss.
func (d *Driver) fillLog(ctx context.Context) error {
	n, err := d.runner.Store.Runs.LogLen(ctx, d.Run.Chat, d.Run.ID)
	if err != nil || n >= d.writer.entries {
		return err
	}
	d.LossLog().Warn().Msg("Redis has lost events of a run that went on; its log is written anew")
	return d.writer.closeGap(ctx)
}

// WriteBackers bounds the concurrent round trips that restore lost data.
const (
	WriteBackers = 8
)
