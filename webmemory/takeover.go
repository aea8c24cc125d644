package webmemory

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory/problem"
)

// This file is about taking over runs that other processes left, most of them by dying.
// Before a left run is closed every process is asked that may have shown more of it than
// Redis has, since a failover of Redis loses its last writes: what a client has seen stays
// true, and no event's id gets two contents.

// Takeover looks for chats that a process which died has left with an open run, a wait that expired, or entries in a
// spool. It takes the lease of each if no process holds it, and leaves the rest to the leaser and the runner.
type Takeover struct {
	*Core
	Runner *Runner
	Leaser *Leaser
}

// retryEvery is how often it is looked whether a process on this disk died, how often a
// chat's lease is tried for while the spool holds some of the chat, and how often a lease
// is given back while Redis is away.
const RetryEvery = 500 * time.Millisecond

// LookAfter looks for what others left: at once, then three times in the life of a lease.
// It finishes runs of holders that died, and drains the spool, also of chats that no
// client writes to again. The leases of processes that died on this disk are not waited
// for.
func (s *Takeover) LookAfter() {
	var next time.Time // when it is time to look again
	handled := 0       // deaths on this disk of which the runs were looked after
	for trying := true; trying; trying = Pause(s.Life, Jitter(min(s.Cfg.Lease/3, RetryEvery))) == nil {
		s.Adopt()
		deaths := s.Spool.Deaths()
		if spooled := s.Spool.Bytes() > 0; spooled || deaths > handled || !time.Now().Before(next) {
			if s.lookOnce(deaths > handled) == nil {
				handled = deaths
			}
			next = time.Now().Add(Jitter(s.Cfg.Lease / 3))
		}
	}
}

// lookOnce looks at all chats that need it; died: a process on this disk did.
func (s *Takeover) lookOnce(died bool) error {
	ctx, cancel := context.WithTimeout(s.Life, StoreTimeout)
	defer cancel()
	chats, err := s.Store.Turns.Abandoned(ctx)
	if err != nil {
		return err // Redis is away; the health check tells
	}
	if died {
		holders, err := s.Store.Turns.Holders(ctx)
		if err != nil {
			return err
		}
		for chat, token := range holders {
			if s.IsDead(token) {
				chats = append(chats, chat)
			}
		}
	}
	for _, q := range s.Spool.Queues() {
		chats = append(chats, q.Key.Chat())
	}
	slices.SortFunc(chats, func(a, b memory.Chat) int { return strings.Compare(a.String(), b.String()) })
	chats = slices.Compact(chats)
	// In another order than other processes that look now: each finds chats that none has taken yet.
	rand.Shuffle(len(chats), func(i, j int) { chats[i], chats[j] = chats[j], chats[i] })
	var looking errgroup.Group
	looking.SetLimit(WriteBackers)
	for _, chat := range chats {
		looking.Go(func() error {
			if s.Life.Err() == nil {
				s.lookAt(chat)
			}
			return nil
		})
	}
	return looking.Wait()
}

// lookAt takes a chat's lease if no process has it; taking it drains the spool.
func (s *Takeover) lookAt(chat memory.Chat) {
	ctx, cancel := context.WithTimeout(s.Life, StoreTimeout)
	defer cancel()
	w, err := s.Leaser.takeTurn(ctx, ctx, chat, "", PlaceIdle)
	if err != nil {
		busy := errors.Is(err, problem.ErrQueueSlow) || errors.Is(err, problem.ErrTooManyChats) || errors.Is(err,
			problem.ErrErased)
		if !busy && s.Life.Err() == nil {
			s.Telemetry.Often.Warn().Err(err).Str("chat", chat.String()).Msg("what was left of a chat could not be looked after")
		}
		return
	}
	switch {
	case w.Open != nil:
		s.Runner.Resume(w)
	case w.Waiting != nil && Expired(w.Waiting):
		s.Runner.Deny(w, NobodyInTime)
	default:
		_ = w.Release(w.End, &s.Log)
	}
}

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
		logged, err := d.runner.Store.Runs.Events(ctx, d.Run.Chat, d.Run.Id, d.Run.Log.Last(), Batch)
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
			d.writer.entries, err = d.runner.Store.Runs.LogLen(ctx, d.Run.Chat, d.Run.Id)
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
		_, lines, err := d.runner.Peers.AskForRun(ctx, d.Run.Chat, d.Run.Id)
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

// KnownRun is the answer of an internal route: a run's events from the first on, as
// far as a process has shown them.
type KnownRun struct {
	Run    EndHead           `json:"run"`
	Events []json.RawMessage `json:"events"`
}

// Decode are a run's from the first on, decoded; none if something is wrong with them.
func (h EndHead) Decode(lines [][]byte) []event.Event {
	events := make([]event.Event, len(lines))
	for i, l := range lines {
		e, err := event.Decode(l)
		if err != nil || e.RunID != h.Run || e.Seq != int64(i)+1 {
			return nil
		}
		events[i] = e
	}
	return events
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.writer.Ctx), StoreTimeout)
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
