package webmemory

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory/problem"
)

// This file is about single runs that Redis lost. What one that waits for an answer goes on from is beside its events
// on the disk of the process that suspended it, see ends.

// restorer puts single runs back that Redis lost, under a lease that its caller holds: ended ones, waiting ones, and
// the calls that they made. It writes a run only as far as a process or a disk knows it, and none that was taken back,
// redacted or erased since.
type restorer struct {
	*core
	registry   *registry
	peers      *peers
	storeWatch *storeWatch
	toolCalls  *toolCalls
	runner     *runner
}

// waitBack has a run again that Redis lost while it waited or after it went on, if this process or another one knows
// it. True: it is to be looked at once more.
func (s *resumer) waitBack(ctx context.Context, chat memory.Chat, run string) (bool, error) {
	head, events, err := s.restorer.longestKnown(ctx, chat, run)
	if err != nil || len(events) == 0 {
		return false, err
	}
	finished := events[len(events)-1].Terminal()
	if !finished && head.Waiting == nil {
		return true, nil // it goes on where it is known, and is about to be put back from there
	}
	w, err := s.leaser.takeTurn(ctx, ctx, chat, "", placeIdle)
	if err != nil {
		return errors.Is(err, problem.ErrQueueSlow), nil
	}
	if w.Open != nil {
		s.runner.resume(w)
		return true, nil
	}
	restored := false
	if finished {
		err = s.restorer.putBack(ctx, w, head, events)
		restored = w.finishedRun != nil
	} else {
		restored, err = s.restorer.restoreWait(ctx, w, head, events)
	}
	return restored || w.Waiting != nil, errors.Join(err, w.release(w.end, &s.log))
}

// longestKnown is the most that this process or another one knows of a run; no events if none does.
func (s *restorer) longestKnown(ctx context.Context, chat memory.Chat, run string) (endHead, []event.Event, error) {
	head, lines := s.registry.knownEvents(chat, run)
	otherHead, otherLines, err := s.peers.askForRun(ctx, chat, run)
	if len(otherLines) > len(lines) {
		head, lines = otherHead, otherLines
	}
	return head, head.events(lines), err
}

// restoreWait suspends a run again that Redis lost while it waited, under its chat's lease, which is given back with
// that. Not one that was answered or closed since, as far as the chat's histories and other processes tell: it would be
// answered twice, and a call made twice. Where neither the process nor the messages are left that knew of the answer,
// nothing tells.
func (s *restorer) restoreWait(ctx context.Context, w *writer, head endHead, events []event.Event) (bool, error) {
	if w.Waiting != nil || w.Open != nil || len(events) == 0 {
		return false, nil
	}
	if wentOn(w, head) {
		return false, s.endStore.removeRun(w.chat, head.Run)
	}
	_, others, err := s.peers.askForRun(ctx, w.chat, head.Run)
	if err != nil || len(others) > len(events) {
		return false, err
	}
	d, err := s.tellAgain(ctx, w, head, events)
	if d == nil || err != nil {
		return false, err
	}
	d.run.identify(head.Waiting.Open)
	d.waiting = head.Waiting
	if err := s.store.Suspensions.SaveState(ctx, w.chat, w.token, head.Waiting); err != nil {
		return false, err
	}
	if err := d.rest(); err != nil {
		return false, err
	}
	d.lossLog().Warn().Msg("Redis has lost a run that waits; it waits again")
	return true, nil
}

// wentOn says whether a chat's histories tell that a run did not stay where it waits: it has said more, or its message
// is not the user's newest.
func wentOn(w *writer, head endHead) bool {
	newest := ""
	for key, h := range w.histories {
		for i, id := range h.IDs() {
			run, seq, _ := memory.SplitID(id)
			if memory.RunOf(id) == head.Run && (seq > head.Waiting.Seq || run != head.Run) {
				return true
			}
			if msg, _ := headOf(h.Raw(i)[0]); msg.Role == memory.RoleUser && key.Agent() == "" {
				newest = run
			}
		}
	}
	return newest != "" && newest != head.Run
}

// closeLost ends what a run left in the histories of a chat of which Redis lost something, before another run begins
// under the chat's lease: where nothing else is left of it, neither in a process nor on a disk. A question or a task
// that stays open would be read as one that is still to be answered.
func (s *restorer) closeLost(ctx context.Context, w *writer) error {
	for _, h := range w.histories {
		if h.Len() == 0 {
			continue
		}
		last, err := memory.Decode(h.Raw(h.Len() - 1))
		if err != nil || last[0].Role == memory.RoleAssistant && len(last[0].ToolCalls) == 0 {
			continue
		}
		run, seq, ok := memory.SplitID(last[0].ID)
		if !ok {
			continue // another program wrote it
		}
		if _, lines := s.registry.knownEvents(w.chat, run); len(lines) > 0 {
			continue // it is about to be written back
		}
		if s.storeWatch.lostLately(ctx) {
			if _, lines, err := s.peers.askForRun(ctx, w.chat, run); err != nil || len(lines) > 0 {
				continue
			}
		}
		if err := w.closeWith(ctx, h, last[0], run, seq); err != nil {
			return err
		}
		s.metrics.faults.WithLabelValues(lostRun).Inc()
		s.telemetry.Often.Error().Str("history", h.Key().String()).Str("run", run).
			Msg("Redis has lost a run, and no process knows it any more; it is closed as run_lost")
	}
	return nil
}

// putBack writes back a run that is over, under its chat's lease; events are all of it.
func (s *restorer) putBack(ctx context.Context, w *writer, head endHead, events []event.Event) error {
	d, err := s.tellAgain(ctx, w, head, events)
	if d == nil || err != nil {
		return err
	}
	status, body := d.run.final(ctx)
	if err := s.store.Runs.Finish(ctx, d.run.chat, d.run.id, encodeFinal(status, body)); err != nil {
		return err
	}
	w.finishedRun = d.run
	d.lossLog().Warn().Msg("Redis has lost a run that was over; it was told again")
	return nil
}

// tellAgain stores the record, the events and the messages of a run that Redis lost, under its chat's lease. Neither
// driver nor error: it was erased, redacted or taken back since.
func (s *restorer) tellAgain(ctx context.Context, w *writer, head endHead, events []event.Event) (*driver, error) {
	if w.ErasedIn() > head.Turn || s.redactedSince(head.Chat.Chat, head.Turn) ||
		s.rewoundSince(head.Chat.Chat, head.Run, head.Turn) {
		return nil, nil
	}
	r := newRun(head.Run, head.Chat.Chat, head.Body)
	r.keyed, r.first = !head.Unkeyed, head.First
	d := s.runner.driver(r, w, "")
	// Before the record: an answer that comes in between would find a run that was never answered. Nothing is granted
	// here, so that no process is waited for.
	calls, err := s.toolCalls.callsOf(ctx, r.chat, r.firstRun())
	if err == nil || errors.Is(err, errMayComeBack) {
		err = s.toolCalls.putCallsBack(ctx, w.lease, r.id, r.firstRun(), calls)
	}
	if err == nil {
		_, err = s.runner.noteRun(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Seq > 1 && r.log.AtWait() {
			r.log.GoOn()
		}
		if err := r.log.Append(e); err != nil {
			return nil, err
		}
	}
	if _, err := s.store.Runs.Relog(ctx, r.chat, r.id, r.logged()...); err != nil {
		return nil, err
	}
	if err := w.place(ctx, head.Turn, events); err != nil {
		return nil, err
	}
	s.metrics.retold.Inc()
	return d, nil
}

// forgotten looks for a run that is about to begin, and that may have run: Redis lost its
// record a moment ago, and the process that knows it has not written it back yet. Begun
// once more it would say other things under the ids of events that were shown. The record
// is that of a run that is over, written back under the chat's lease; one that goes on
// becomes the lease's open run. Neither, if no process knows the run. Of one of which
// nothing but its messages is left the record says that it was taken back: it is tried
// under another id.
func (s *restorer) forgotten(ctx context.Context, r *run, w *writer) (*redisstore.Record, error) {
	if !r.keyed {
		return nil, nil
	}
	head, lines := s.registry.knownEvents(r.chat, r.id)
	if len(lines) == 0 && s.storeWatch.lostLately(ctx) {
		var err error
		if head, lines, err = s.peers.askForRun(ctx, r.chat, r.id); err != nil {
			return nil, err
		}
		if len(lines) == 0 && slices.Contains(w.runs(), r.id) { // as of a run that waited
			return &redisstore.Record{Body: r.body, Rewound: true}, nil
		}
		if len(lines) == 0 { // Redis may have only its answer, see Record.Torn
			record, err := s.store.Runs.Record(ctx, r.chat, r.id)
			if err != nil || record.Done() {
				return record, err
			}
		}
	}
	head.Chat.Chat, head.Run = r.chat, r.id
	events := head.events(lines)
	switch {
	case len(events) == 0, s.rewoundSince(r.chat, r.id, head.Turn):
		return nil, nil
	case head.Waiting != nil && head.Body == r.body:
		if restored, err := s.restoreWait(ctx, w, head, events); !restored || err != nil {
			return nil, err
		}
		return &redisstore.Record{Body: r.body}, nil
	case head.Body != "" && head.Body != r.body:
		return nil, errKeyReused
	case s.redactedSince(r.chat, head.Turn):
		return &redisstore.Record{Body: r.body, Result: redactedAnswer()}, nil
	case !events[len(events)-1].Terminal():
		w.Open = &redisstore.OpenRun{Run: r.id, Turn: head.Turn, Body: r.body, Trace: r.trail.Parent(), Events: head.Events}
		_, err := s.store.Turns.Open(ctx, r.chat, w.token, s.cfg.Lease, *w.Open)
		return nil, err
	}
	if err := s.putBack(ctx, w, head, events); err != nil {
		return nil, err
	}
	return s.store.Runs.Record(ctx, r.chat, r.id)
}

// wentOnSince looks, under the lease of a chat of which a run waits as far as Redis knows, whether the run went on
// since and Redis has forgotten that. Then the run is put back as it is known: over, or waiting for something else, and
// the lease is given back with that (again); or as the lease's open run.
func (s *restorer) wentOnSince(ctx context.Context, w *writer) (retry bool, err error) {
	if !s.storeWatch.lostLately(ctx) {
		return false, nil
	}
	run := w.Waiting.Run
	state, err := s.store.Suspensions.State(ctx, w.chat, run)
	if err != nil || state == nil {
		return false, err
	}
	first := cmp.Or(state.Open.First, run)
	calls, err := s.toolCalls.callsOf(ctx, w.chat, first)
	if err != nil {
		return false, err
	}
	head, events, err := s.longestKnown(ctx, w.chat, run)
	if err != nil {
		return false, err
	}
	if int64(len(events)) <= state.Seq && calls.Runs[run].Called <= state.Seq {
		return false, nil
	}
	w.Waiting = nil
	switch {
	case int64(len(events)) > state.Seq && events[len(events)-1].Terminal():
		if err := s.putBack(ctx, w, head, events); err != nil || w.finishedRun == nil {
			return false, err
		}
		return true, w.end()
	case int64(len(events)) > state.Seq && head.Waiting != nil:
		return s.restoreWait(ctx, w, head, events)
	}
	open := state.Open
	open.Turn, open.Events = cmp.Or(head.Turn, open.Turn), cmp.Or(head.Events, open.Events)
	w.Open = &open
	if _, err := s.store.Turns.Open(ctx, w.chat, w.token, s.cfg.Lease, open); err != nil {
		return false, err
	}
	return false, s.toolCalls.putCallsBack(ctx, w.lease, run, first, calls)
}
