package webmemory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
)

// This file is about runs that ended, and of which Redis knows nothing any more, or
// not the end: it lost its data, or a failover its last writes. Nobody would look
// after them, and a repeated post would run again what its client saw completed.

// restoreTries bounds how often chats that are busy are tried for, about once a second.
const restoreTries = 60

// restoreRuns tells Redis again of the runs that ended lately, as far as this process
// remembers them or finds them on its disk: first, at once, of their messages, then of
// all that is kept of each, as their chats' turns come.
func (s *Server) restoreRuns(ctx context.Context) {
	left := s.endedRuns()
	var placing sync.WaitGroup
	some := make(chan struct{}, writeBackers)
	for _, head := range left {
		some <- struct{}{}
		placing.Go(func() {
			defer func() { <-some }()
			if err := s.placeRun(ctx, head); err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("run", head.Run).Msg("the messages of a run come back with it")
			}
		})
	}
	placing.Wait()
	for range restoreTries {
		left = slices.DeleteFunc(left, func(head endHead) bool {
			err := s.restoreRun(ctx, head)
			if err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("run", head.Run).Msg("a run was not restored; it is tried again")
			}
			return err == nil
		})
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(jitter(time.Second)):
		case <-ctx.Done():
			return
		}
	}
	s.log.Warn().Int("runs", len(left)).Msg("Redis does not know some runs that ended; their chats were busy, or it is away")
}

// placeRun brings back the messages of a run of which Redis knows no end. That is no
// turn's write, and needs none.
func (s *Server) placeRun(ctx context.Context, head endHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	if known, err := s.knowsEnd(ctx, head); known || err != nil {
		return err
	}
	_, lines := s.knownEvents(head.Chat, head.Run)
	copies, err := folded(head.Chat, head.Turn, head.events(lines))
	if err != nil {
		return err
	}
	_, err = s.store.WriteBack(ctx, copies...)
	return err
}

// knowsEnd says whether Redis knows how a run ended.
func (s *Server) knowsEnd(ctx context.Context, head endHead) (bool, error) {
	record, err := s.store.Record(ctx, head.Chat, head.Run)
	return err == nil && record != nil && len(record.Result) > 0 && record.Body != "", err
}

// endedRuns are those that ended here, or in a process with the same disk, oldest
// first.
func (s *Server) endedRuns() []endHead {
	heads := s.ends.heads()
	s.mu.Lock()
	for _, r := range s.live {
		if r.log.Done() {
			heads = append(heads, r.head())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(heads, func(a, b endHead) int { return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Run, b.Run)) })
	return slices.CompactFunc(heads, func(a, b endHead) bool { return a.Run == b.Run })
}

// restoreRun puts one run back, unless Redis knows its end or its chat was erased
// since. It takes the chat's turn for that, which brings an open run to its end too.
func (s *Server) restoreRun(ctx context.Context, head endHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	if known, err := s.knowsEnd(ctx, head); known || err != nil {
		return err
	}
	t, err := s.takeTurn(ctx, ctx, head.Chat, "", now)
	if errors.Is(err, errErased) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.Open != nil {
		run := t.Open.Run
		s.resume(t)
		if run == head.Run {
			return nil
		}
		return errQueueSlow
	}
	defer t.next()
	_, lines := s.knownEvents(head.Chat, head.Run)
	if events := head.events(lines); len(events) > 0 && events[len(events)-1].Terminal() {
		err = s.putBack(ctx, t, head, events)
	}
	return errors.Join(err, t.end())
}

// events are a run's from the first on, decoded; none if something is wrong with them.
func (h endHead) events(lines [][]byte) []event.Event {
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

// forgotten is about a run that a post is to begin, and that may have run: Redis lost
// it a moment ago, and who knows it has not told it again yet. Begun once more it would
// say other things under the ids of events that were shown. The record is that of a run
// that is over, told again under the chat's turn; one that goes on becomes the turn's
// open run. Neither, if nobody knows the run.
func (s *Server) forgotten(ctx context.Context, r *run, t *turn) (*redisstore.Record, error) {
	if !r.keyed {
		return nil, nil
	}
	head, lines := s.knownEvents(r.chat, r.id)
	if len(lines) == 0 && s.lostLately(ctx) {
		var err error
		if head, lines, err = s.askForRun(ctx, r.chat, r.id); err != nil {
			return nil, err
		}
	}
	head.Chat, head.Run = r.chat, r.id
	events := head.events(lines)
	switch {
	case len(events) == 0:
		return nil, nil
	case head.Body != "" && head.Body != r.body:
		return nil, errKeyReused
	case !events[len(events)-1].Terminal():
		t.Open = &redisstore.OpenRun{Run: r.id, Turn: head.Turn, Body: r.body, Trace: r.trail.Parent()}
		_, err := s.store.Open(ctx, r.chat, t.token, s.cfg.Lease, *t.Open)
		return nil, err
	}
	if err := s.putBack(ctx, t, head, events); err != nil {
		return nil, err
	}
	return s.store.Record(ctx, r.chat, r.id)
}

// putBack is restoreRun under the chat's turn; events are all of the run.
func (s *Server) putBack(ctx context.Context, t *turn, head endHead, events []event.Event) error {
	if t.ErasedIn() > head.Turn {
		return nil
	}
	r := newRun(head.Run, head.Chat, head.Body)
	r.keyed = !head.Unkeyed
	d := s.driver(r, t, "")
	if _, err := s.noteRun(ctx, r); err != nil {
		return err
	}
	for _, e := range events {
		if err := r.log.Append(e); err != nil {
			return err
		}
	}
	if _, err := s.store.Relog(ctx, r.chat, r.id, r.logged()...); err != nil {
		return err
	}
	if err := t.place(ctx, head.Turn, events); err != nil {
		return err
	}
	status, body := r.final(ctx)
	if err := s.store.Finish(ctx, r.chat, r.id, encodeFinal(status, body)); err != nil {
		return err
	}
	t.over = r
	d.log.Warn().Msg("Redis has lost a run that was over; it was told again")
	s.metrics.retold.Inc()
	return nil
}

// place puts the messages of a run of turn number, of which these are the first
// events, where they belong in the histories: a run of which Redis lost a part may not be the last one
// there by now. What was erased or trimmed since the run's turn stays away.
func (t *turn) place(ctx context.Context, number int64, events []event.Event) error {
	copies, err := folded(t.chat, number, events)
	if err != nil {
		return err
	}
	current, err := t.store.WriteBack(ctx, copies...)
	for _, h := range current {
		if h != nil {
			t.histories[h.Key()] = h
			t.cache.Put(h)
		}
	}
	return err
}

// folded are the messages of a run of turn number, as copies of the histories.
func folded(chat memory.Chat, number int64, events []event.Event) (copies []*memory.History, err error) {
	said := collected{}
	fold := event.NewHistories(chat, said)
	for _, e := range events {
		if err := fold.Apply(e); err != nil {
			return nil, err
		}
	}
	for _, h := range said {
		h.ProvenIn(number)
		h.OfOneTurn()
		copies = append(copies, h)
	}
	return copies, nil
}

// placeRecorded brings into the histories what readers of the run's log have seen, of a
// run that nobody follows: Redis forgot it, and another process took the chat's turn,
// between an event's coming into the log and its message's into its history. A subagent
// that has no history is left out: it may be gone with its chat, and nothing there
// would keep its text away.
func (d *driver) placeRecorded() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.turn.ctx), storeTimeout)
	defer cancel()
	if err := d.writeRecorded(ctx); err != nil {
		d.log.Warn().Err(err).Msg("what was seen of a run that was left is not all in the histories")
	}
}

func (d *driver) writeRecorded(ctx context.Context) error {
	events := d.run.head().events(d.run.log.Lines(0))
	for _, e := range d.recorded {
		if e.Seq == int64(len(events))+1 {
			events = append(events, e)
		}
	}
	copies, err := folded(d.run.chat, d.turn.Number, events)
	if err != nil || len(copies) == 0 {
		return err
	}
	keys := make([]memory.Key, len(copies))
	for i, h := range copies {
		keys[i] = h.Key()
	}
	found, err := d.server.store.Found(ctx, keys...)
	if err != nil {
		return err
	}
	for i, h := range copies {
		if !found[i] {
			continue
		}
		if _, err := d.server.store.WriteBack(ctx, h); err != nil {
			return err
		}
	}
	return nil
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
