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

// catchUp brings a left run to where others have shown it: by its log, and by the events
// that are known here.
func (d *Driver) catchUp(ctx context.Context, lines [][]byte) error {
	if err := d.Replay(ctx); err != nil {
		return err
	}
	if err := putOwnCallsBack(ctx, d); err != nil {
		return err
	}
	return d.retell(ctx, lines)
}

// Replay folds the run's log again. The histories drop what they have already. It ends at a gap, as Redis leaves after an
// outage, and at an event that cannot be read or taken: the log is written again up to there, and the apiserver has the
// rest. Entries of other programs are skipped.
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

// permanent reports whether an operation on a run's events can never succeed: an event is damaged, too large or out of
// order. Every other error, such as that of a Redis that is away, may pass.
func permanent(err error) bool {
	return errors.Is(err, memory.ErrDamaged) || errors.Is(err, api.ErrLogFull) || errors.Is(err, api.ErrOrder)
}

// inquire asks the other processes whether they have shown more of a left run than its log
// in Redis holds, and takes that. If the process that had the run may just be coming back,
// on a disk that is not read here, it is asked again after one of its heartbeats.
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

// ownerGone says that all that the run's former process showed of it is known here: it was
// this one, or a dead one on the same disk.
func (d *Driver) ownerGone() bool {
	return d.owner != "" && (d.owner == d.runner.Spool.Name() || d.runner.Spool.Dead(d.owner))
}

// retell stores and shows what others have shown of a run, from where its log ends:
// first in the log, then in the histories.
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

// Place writes the messages of a run into the histories where they belong: a run of which
// Redis lost a part may not be the last one there by now. number is the run's fencing
// token; what was erased or trimmed since stays away. events are the run's first ones.
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

// Folded are the messages of a run of turn number, as copies of the histories.
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

// collected is the sink of a fold of which only the messages are wanted.
type collected map[memory.Key]*memory.History

func (c collected) Append(key memory.Key, _ int64, m memory.Message) error {
	if c[key] == nil {
		c[key] = memory.Empty(key)
	}
	c[key] = c[key].With(m.Encode())
	return nil
}

// placeRecorded brings into the histories what readers of the run's log have seen, of a
// run that no process follows: Redis forgot it, and another process took the chat's turn,
// between an event's coming into the log and its message's into its history. A subagent
// that has no history is left out: it may be gone with its chat, and nothing there would
// keep its text away.
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
		return err // it may say what was redacted since
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
