package webmemory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// This file is about runs that ended, and of which Redis knows nothing any more, or
// not the end: it lost its data, or a failover its last writes. Nobody would look
// after them, and a repeated post would run again what its client saw completed.

// restoreTries bounds how often a chat that is busy is tried for.
const restoreTries = 30

// restoreRuns tells Redis again of the runs that ended lately, as far as this process
// remembers them or finds them on its disk. Those of the same chat go in their order.
func (s *Server) restoreRuns(ctx context.Context) {
	for _, head := range s.endedRuns() {
		for range restoreTries {
			err := s.restoreRun(ctx, head)
			if err == nil || ctx.Err() != nil {
				break
			}
			s.log.Debug().Err(err).Str("run", head.Run).Msg("a run was not restored; it is tried again")
			select {
			case <-time.After(jitter(time.Second)):
			case <-ctx.Done():
			}
		}
	}
}

// endedRuns are those that ended here, or in a process with the same disk, oldest
// first.
func (s *Server) endedRuns() []endHead {
	heads := s.ends.heads()
	s.mu.Lock()
	for _, r := range s.live {
		if r.log.Done() {
			heads = append(heads, endHead{Chat: r.chat, Run: r.id, Body: r.body, Turn: r.turn.Load()})
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
	record, err := s.store.Record(ctx, head.Chat, head.Run)
	if err != nil || record != nil && len(record.Result) > 0 {
		return err
	}
	leave, err := s.queue.enter(ctx, head.Chat, now, false)
	if err != nil {
		return err
	}
	t, err := s.takeTurn(ctx, ctx, head.Chat, "", now)
	if errors.Is(err, errErased) {
		err = nil
	}
	if err != nil || t == nil {
		leave()
		return err
	}
	if t.Open != nil {
		run := t.Open.Run
		s.resume(t, leave)
		if run == head.Run {
			return nil
		}
		return errQueueSlow
	}
	defer leave()
	err = s.putBack(ctx, t, head)
	return errors.Join(err, t.end())
}

// putBack is restoreRun under the chat's turn.
func (s *Server) putBack(ctx context.Context, t *turn, head endHead) error {
	if erased, _ := strconv.ParseInt(t.Erased, 10, 64); erased > head.Turn {
		return nil
	}
	r := newRun(head.Run, head.Chat, head.Body)
	d := s.driver(r, t, "")
	known := s.knownEvents(head.Chat, head.Run)
	var events []event.Event
	for _, l := range known {
		e, err := event.Decode(l)
		if err != nil || e.RunID != r.id || e.Seq != int64(len(events))+1 {
			return nil
		}
		events = append(events, e)
	}
	if len(events) == 0 || !events[len(events)-1].Terminal() {
		return nil
	}
	sink := &restoring{turn: t, since: head.Turn, late: t.latest() > events[len(events)-1].TS}
	d.fold = event.NewHistories(head.Chat, sink)
	if _, err := s.store.Begin(ctx, r.chat, r.id, r.body); err != nil {
		return err
	}
	for len(events) > 0 {
		n := min(len(events), batch)
		if err := t.record(events[:n]); err != nil {
			return err
		}
		for _, e := range events[:n] {
			if err := errors.Join(d.fold.Apply(e), r.log.Append(e)); err != nil {
				return err
			}
		}
		events = events[n:]
	}
	if err := t.drain(ctx); err != nil {
		return err
	}
	status, body := r.final(ctx)
	if err := s.store.Finish(ctx, r.chat, r.id, encodeFinal(status, body)); err != nil {
		return err
	}
	d.log.Warn().Msg("Redis has lost a run that was over; it was told again")
	s.metrics.retold.Inc()
	return nil
}

// latest is when the newest message of the chat's own history was made, in Unix
// seconds; 0 without one.
func (t *turn) latest() float64 {
	h := t.history(memory.ChatKey(t.chat))
	if h.Len() == 0 {
		return 0
	}
	last, err := memory.Decode(h.Raw(h.Len() - 1))
	if err != nil {
		return 0
	}
	return last[0].Timestamp
}

// restoring is the sink of a run that is put back. It adds what the run said only
// behind everything else: further in front it may have been trimmed, and is put back
// with the histories if somebody has them.
type restoring struct {
	*turn
	since int64 // the run's turn
	late  bool  // the chat has gone on behind it
}

func (r *restoring) Append(key memory.Key, seq int64, m memory.Message) error {
	ctx, cancel := context.WithTimeout(r.ctx, storeTimeout)
	defer cancel()
	erased, err := r.store.Erased(ctx, key)
	if err != nil || erased > r.since || r.late {
		return err
	}
	return r.turn.Append(key, seq, m)
}
