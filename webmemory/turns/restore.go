package turns

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// Restorer restores single runs that Redis lost: finished runs, runs that wait, and the calls that they made. Its
// caller holds the chat's lease. It restores a run only as far as a process or a disk knows it. It never restores a run
// that was rewound, redacted or erased since.
//
// The process that suspended a run has the run's state on its disk, with its events; see node.EndStore.
type Restorer struct {
	*node.Core
	Registry   *runs.Registry
	Peers      *node.Peers
	StoreWatch *node.StoreWatch
	ToolCalls  *runs.ToolCalls
	Runner     *runs.Runner
}

// waitBack restores a run that Redis lost while it waited or after it resumed, if this process or another one knows it.
// It reports whether the caller must look at the run again.
func (s *Resumer) waitBack(ctx context.Context, chat memory.Chat, run string) (bool, error) {
	head, events, err := s.Restorer.longestKnown(ctx, chat, run)
	if err != nil || len(events) == 0 {
		return false, err
	}
	finished := events[len(events)-1].Terminal()
	if !finished && head.Waiting == nil {
		return true, nil // the run is active in the process that knows it, which will restore it
	}
	w, err := s.Leaser.takeTurn(ctx, ctx, chat, "", runs.PlaceIdle)
	if err != nil {
		return errors.Is(err, problem.ErrQueueSlow), nil
	}
	if w.Open != nil {
		s.Runner.Resume(w)
		return true, nil
	}
	restored := false
	if finished {
		err = s.Restorer.putBack(ctx, w, head, events)
		restored = w.FinishedRun != nil
	} else {
		restored, err = s.Restorer.restoreWait(ctx, w, head, events)
	}
	return restored || w.Waiting != nil, errors.Join(err, w.Release(w.End, &s.Log))
}

// longestKnown returns the longest list of a run's events that this process or another one has, or none.
func (s *Restorer) longestKnown(ctx context.Context, chat memory.Chat,
	run string) (node.EndHead, []event.Event, error) {
	head, lines := s.Registry.KnownEvents(chat, run)
	otherHead, otherLines, err := s.Peers.AskForRun(ctx, chat, run)
	if len(otherLines) > len(lines) {
		head, lines = otherHead, otherLines
	}
	return head, head.Decode(lines), err
}

// restoreWait suspends a run again that Redis lost while it waited. It needs the chat's lease, and returns it with the
// run. It skips a run that was answered or closed since, as far as the chat's histories and other processes show.
// Otherwise the run would be answered twice, and a call made twice. If no process and no message with the answer
// remains, restoreWait cannot detect the answer.
func (s *Restorer) restoreWait(ctx context.Context, w *runs.Writer, head node.EndHead,
	events []event.Event) (bool, error) {
	if w.Waiting != nil || w.Open != nil || len(events) == 0 {
		return false, nil
	}
	if wentOn(w, head) {
		return false, s.EndStore.RemoveRun(w.Chat, head.Run)
	}
	_, others, err := s.Peers.AskForRun(ctx, w.Chat, head.Run)
	if err != nil || len(others) > len(events) {
		return false, err
	}
	d, err := s.tellAgain(ctx, w, head, events)
	if d == nil || err != nil {
		return false, err
	}
	d.Run.Identify(head.Waiting.Open)
	d.Waiting = head.Waiting
	if err := s.Store.Suspensions.SaveState(ctx, w.Chat, w.Token, head.Waiting); err != nil {
		return false, err
	}
	if err := d.Rest(); err != nil {
		return false, err
	}
	d.LossLog().Warn().Msg("Redis has lost a run that waits; it waits again")
	return true, nil
}

// wentOn reports whether a chat's histories show that a run did not keep waiting. Either it has written more, or its
// message is not the user's newest.
func wentOn(w *runs.Writer, head node.EndHead) bool {
	newest := ""
	for key, h := range w.Histories {
		for i, id := range h.IDs() {
			run, seq, _ := memory.SplitID(id)
			if memory.RunOf(id) == head.Run && (seq > head.Waiting.Seq || run != head.Run) {
				return true
			}
			if msg, _ := past.HeadOf(h.Raw(i)[0]); msg.Role == memory.RoleUser && key.Agent() == "" {
				newest = run
			}
		}
	}
	return newest != "" && newest != head.Run
}

// closeLost closes lost runs in a chat's histories before another run starts, under the chat's lease. It skips a run
// that a process or a disk still knows. An open question or task would look unanswered.
func (s *Restorer) closeLost(ctx context.Context, w *runs.Writer) error {
	for _, h := range w.Histories {
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
		if _, lines := s.Registry.KnownEvents(w.Chat, run); len(lines) > 0 {
			continue // it will be written back
		}
		if s.StoreWatch.LostLately(ctx) {
			if _, lines, err := s.Peers.AskForRun(ctx, w.Chat, run); err != nil || len(lines) > 0 {
				continue
			}
		}
		if err := w.CloseWith(ctx, h, last[0], run, seq); err != nil {
			return err
		}
		s.Metrics.Faults.WithLabelValues(node.LostRun).Inc()
		s.Telemetry.Often.Error().Str("history", h.Key().String()).Str("run", run).
			Msg("Redis has lost a run, and no process knows it any more; it is closed as run_lost")
	}
	return nil
}

// putBack writes back a finished run under its chat's lease. events are all events of the run.
func (s *Restorer) putBack(ctx context.Context, w *runs.Writer, head node.EndHead, events []event.Event) error {
	d, err := s.tellAgain(ctx, w, head, events)
	if d == nil || err != nil {
		return err
	}
	status, body := d.Run.Final(ctx)
	if err := s.Store.Runs.Finish(ctx, d.Run.Chat, d.Run.ID, runs.EncodeFinal(status, body)); err != nil {
		return err
	}
	w.FinishedRun = d.Run
	d.LossLog().Warn().Msg("Redis has lost a run that was over; it was told again")
	return nil
}

// tellAgain stores the record, the events and the messages of a run that Redis lost, under its chat's lease. If the run
// was erased, redacted or rewound since, it returns neither a driver nor an error.
func (s *Restorer) tellAgain(ctx context.Context, w *runs.Writer, head node.EndHead,
	events []event.Event) (*runs.Driver, error) {
	if w.ErasedIn() > head.Turn || s.RedactedSince(head.Chat.Chat, head.Turn) ||
		s.RewoundSince(head.Chat.Chat, head.Run, head.Turn) {
		return nil, nil
	}
	r := runs.NewRun(head.Run, head.Chat.Chat, head.Body)
	r.Keyed, r.First = !head.Unkeyed, head.First
	d := s.Runner.Driver(r, w, "")
	// Restore the calls before the record. Otherwise an answer in between would find a run that was never answered. This
	// grants no calls, so it need not wait for other processes.
	calls, err := s.ToolCalls.CallsOf(ctx, r.Chat, r.FirstRun())
	if err == nil || errors.Is(err, problem.ErrMayComeBack) {
		err = s.ToolCalls.PutCallsBack(ctx, w.Lease, r.ID, r.FirstRun(), calls)
	}
	if err == nil {
		_, err = s.Runner.NoteRun(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Seq > 1 && r.Log.AtWait() {
			r.Log.GoOn()
		}
		if err := r.Log.Append(e); err != nil {
			return nil, err
		}
	}
	if _, err := s.Store.Runs.Relog(ctx, r.Chat, r.ID, r.Logged()...); err != nil {
		return nil, err
	}
	if err := w.Place(ctx, head.Turn, events); err != nil {
		return nil, err
	}
	s.Metrics.Retold.Inc()
	return d, nil
}

// forgotten looks for an earlier execution of a run that is about to start. Redis may have just lost the run's record,
// and the process that knows the run may not have written it back yet. A second execution would give new content to
// event ids that clients have seen. The cases are:
//
//   - A finished run, or a run that waits, is restored under the chat's lease, and the record is the run's.
//   - An active run becomes the lease's open run, and the record is nil.
//   - A redacted run has a record with erase.RedactedAnswer.
//   - If only the run's messages are left, the record has Rewound set, and the post is tried under another id.
//   - If no process knows the run, the record is nil.
func (s *Restorer) forgotten(ctx context.Context, r *runs.Run, w *runs.Writer) (*redisstore.Record, error) {
	if !r.Keyed {
		return nil, nil
	}
	head, lines := s.Registry.KnownEvents(r.Chat, r.ID)
	if len(lines) == 0 && s.StoreWatch.LostLately(ctx) {
		var err error
		if head, lines, err = s.Peers.AskForRun(ctx, r.Chat, r.ID); err != nil {
			return nil, err
		}
		if len(lines) == 0 && slices.Contains(w.Runs(), r.ID) { // for example the messages of a run that waited
			return &redisstore.Record{Body: r.Body, Rewound: true}, nil
		}
		if len(lines) == 0 { // Redis may have only its answer; see Record.Torn
			record, err := s.Store.Runs.Record(ctx, r.Chat, r.ID)
			if err != nil || record.Done() {
				return record, err
			}
		}
	}
	head.Chat.Chat, head.Run = r.Chat, r.ID
	events := head.Decode(lines)
	switch {
	case len(events) == 0, s.RewoundSince(r.Chat, r.ID, head.Turn):
		return nil, nil
	case head.Waiting != nil && head.Body == r.Body:
		if restored, err := s.restoreWait(ctx, w, head, events); !restored || err != nil {
			return nil, err
		}
		return &redisstore.Record{Body: r.Body}, nil
	case head.Body != "" && head.Body != r.Body:
		return nil, problem.ErrKeyReused
	case s.RedactedSince(r.Chat, head.Turn):
		return &redisstore.Record{Body: r.Body, Result: erase.RedactedAnswer()}, nil
	case !events[len(events)-1].Terminal():
		w.Open = &redisstore.OpenRun{Run: r.ID, Turn: head.Turn, Body: r.Body, Trace: r.Trail.Parent(), Events: head.Events}
		_, err := s.Store.Turns.Open(ctx, r.Chat, w.Token, s.Cfg.Lease, *w.Open)
		return nil, err
	}
	if err := s.putBack(ctx, w, head, events); err != nil {
		return nil, err
	}
	return s.Store.Runs.Record(ctx, r.Chat, r.ID)
}

// wentOnSince checks under the chat's lease whether a run that Redis lists as waiting has resumed since. If so, it
// restores the run as far as it is known. If that run has ended, or waits for something else, wentOnSince returns the
// lease with it, and retry is true. Otherwise the run becomes the lease's open run.
func (s *Restorer) wentOnSince(ctx context.Context, w *runs.Writer) (retry bool, err error) {
	if !s.StoreWatch.LostLately(ctx) {
		return false, nil
	}
	run := w.Waiting.Run
	state, err := s.Store.Suspensions.State(ctx, w.Chat, run)
	if err != nil || state == nil {
		return false, err
	}
	first := cmp.Or(state.Open.First, run)
	calls, err := s.ToolCalls.CallsOf(ctx, w.Chat, first)
	if err != nil {
		return false, err
	}
	head, events, err := s.longestKnown(ctx, w.Chat, run)
	if err != nil {
		return false, err
	}
	if int64(len(events)) <= state.Seq && calls.Runs[run].Called <= state.Seq {
		return false, nil
	}
	w.Waiting = nil
	switch {
	case int64(len(events)) > state.Seq && events[len(events)-1].Terminal():
		if err := s.putBack(ctx, w, head, events); err != nil || w.FinishedRun == nil {
			return false, err
		}
		return true, w.End()
	case int64(len(events)) > state.Seq && head.Waiting != nil:
		return s.restoreWait(ctx, w, head, events)
	}
	open := state.Open
	open.Turn, open.Events = cmp.Or(head.Turn, open.Turn), cmp.Or(head.Events, open.Events)
	w.Open = &open
	if _, err := s.Store.Turns.Open(ctx, w.Chat, w.Token, s.Cfg.Lease, open); err != nil {
		return false, err
	}
	return false, s.ToolCalls.PutCallsBack(ctx, w.Lease, run, first, calls)
}

// WriteBacker restores data that Redis lost in a restart or failover and this process still has: cached histories, and
// runs that ended or wait here. node.StoreWatch detects the loss. It writes by compare-and-set or under a chat's lease,
// and only after the tombstones are synced.
type WriteBacker struct {
	*node.Core
	Registry   *runs.Registry
	StoreWatch *node.StoreWatch
	Tombstones *erase.Tombstones
	Runner     *runs.Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

// Limits of writing back: histories per round trip, and the interval between progress messages.
const (
	writeBackBatch = 64

	writeBackSays = 5 * time.Second
)

// WriteBack restores what Redis lost, after each possible loss. It retries until it has succeeded.
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

// writeBackAll writes back all cached histories. It syncs erasures and deliberate changes first, so that nothing
// removed is restored.
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

// restoreTries is the number of times that restoreRuns tries the chats that are busy, about once a second.
const restoreTries = 60

// restoreRuns writes back the runs that ended lately, as far as this process has them in memory or on its disk. No
// other process restores them, and a repeated post would run again what its client saw completed. It writes the
// messages first. Then it writes all data of each run as it gets the chat's lease.
func (s *WriteBacker) restoreRuns(ctx context.Context) {
	remaining := s.Registry.EndedRuns()
	var placing sync.WaitGroup
	sem := make(chan struct{}, runs.WriteBackers)
	for _, head := range remaining {
		if head.Waiting != nil { // its messages are restored with it, if it still waits
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

// placeRun writes back the messages of a run if Redis does not know its end. It fences no other writer, so it needs no
// lease.
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

// knowsEnd reports whether Redis knows how a run ended.
func (s *WriteBacker) knowsEnd(ctx context.Context, head node.EndHead) (bool, error) {
	record, err := s.Store.Runs.Record(ctx, head.Chat.Chat, head.Run)
	return err == nil && record != nil && len(record.Result) > 0 && record.Body != "", err
}

// restoreRun writes back one run, unless Redis knows its end or its chat was erased since. It takes the chat's lease,
// which also finishes an open run.
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
