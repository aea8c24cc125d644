package webmemory

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/webmemory/problem"
)

// This file is about driving a run: its events come from the apiserver, are stored, and
// are shown to its readers, in this order, until it ends.

// driver brings one run to its end: it carries events from the apiserver into the memory
// and to the run's readers. One goroutine owns it from the first event to the last; another
// one has mend only.
type driver struct {
	busy       sync.Mutex // held while events are taken; mend may take their place while none is there
	concluding bool       // guarded by busy: no events are waited for any more

	runner *runner
	run    *run
	writer *writer
	fold   *event.Histories
	log    zerolog.Logger
	runs   *api.Client // of the process that has the run
	events string      // URL of the run's events

	// waiting is what the run goes on from, kept since its last event says that it waits; nil for
	// a run that goes on.
	waiting *redisstore.Waiting

	abandoned bool   // by another process, which this one has replaced
	owner     string // of a left run: the process that had it; empty if that is not known
	// recorded are the events that the run's log took last.
	recorded  []event.Event
	logLines  []string  // lines for the session log that it does not have yet
	flushedAt time.Time // when it got the ones before
	first     time.Time // when the first event was shown; zero before
	text      time.Time // when the first of the answer's text was shown; zero before
}

// batch is how many events that wait already are logged in one round trip.
const batch = 64

// drive follows a run to its end, or to where it waits. It belongs to the server: no client's
// leaving ends it. True: the run is over and stored as such, or is to be suspended.
func (d *driver) drive(ctx context.Context) bool {
	d.writer.driven.Store(d)
	err := d.follow(ctx)
	d.busy.Lock()
	d.concluding = true
	d.busy.Unlock()
	return d.storeEnd(ctx, err)
}

// storeEnd stores how a run ended of which following gave err.
//
//go:noinline
func (d *driver) storeEnd(ctx context.Context, err error) (finished bool) {
	d.tell()
	if permanent(err) {
		d.runner.metrics.faults.WithLabelValues(damagedRun).Inc()
		err = &goneError{err}
	}
	// Without the lease nothing is made up: another process may close the run too.
	if goneErr := new(goneError); errors.As(err, &goneErr) && !d.writer.detached.Load() {
		waiting, failed := d.restAgain(ctx)
		switch {
		case failed != nil:
			err = failed
		case waiting:
			err = nil
		default:
			if err = d.giveUp(ctx, goneErr); permanent(err) {
				err = &goneError{err}
			}
		}
	}
	if goneErr := new(goneError); errors.As(err, &goneErr) && !d.writer.detached.Load() {
		return d.withdraw(err)
	}
	if err != nil {
		d.abandon(err)
		return false
	}
	if d.isWaiting() {
		return d.secured()
	}
	unfinished := d.conclude()
	if unfinished != nil {
		d.log.Warn().Err(unfinished).Msg("the end of a run waits for Redis")
	}
	if err := d.writer.trim(d.runner.cfg.MaxHistory); err != nil {
		d.log.Warn().Err(err).Msg("histories could not be trimmed")
	}
	return unfinished == nil
}

// secured says whether Redis has all of a run that is about to be suspended. If not, it is left
// open, and the process that takes it over suspends it.
//
//go:noinline
func (d *driver) secured() bool {
	ctx, cancel := context.WithTimeout(d.writer.ctx, storeTimeout)
	defer cancel()
	if err := d.secure(ctx); err != nil {
		d.log.Warn().Err(err).Msg("a run that waits is suspended later: Redis does not have all of it")
		return false
	}
	return true
}

// goneError says that a run's events will not come any more.
type goneError struct{ cause error }

func (e *goneError) Error() string {
	return "the run's events ended before the run: " + e.cause.Error()
}

func (e *goneError) Unwrap() error { return e.cause }

// follow takes the run's events, over as many connections as it takes. It gives up
// once none could be made for longer than the patience, counted from the first that
// failed: a quiet run with connections that break is a living one.
func (d *driver) follow(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(d.writer.ctx, stop)()
	var failing time.Time // since when no connection could be made; zero while they can
	for !d.run.log.Done() && !d.isWaiting() {
		last := d.run.log.Last()
		if err := d.reconnect(ctx, d.read(reading), last, &failing); err != nil {
			return err
		}
	}
	return nil
}

// read takes events from one connection until it ends, and says why it did; nil at the run's
// end. What waits already when an event comes is taken with it.
//
// While no event comes thousands of drivers wait in here. What is done with one, or with the
// end of a connection, is in functions that are not inlined, so that each waiting goroutine's
// stack stays small.
func (d *driver) read(ctx context.Context) error {
	if err := d.takeAlone(nil); err != nil {
		return err
	}
	for events, err := range d.runs.Batches(ctx, d.events, d.run.log.Last(), batch) {
		if err == nil {
			err = d.takeAlone(events)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failedError says that events cannot be taken: the run is not driven on.
type failedError struct{ error }

func (e failedError) Unwrap() error { return e.error }

// takeAlone takes events under the driver's lock, and puts back first what Redis was found to
// have lost. An error is a failedError.
//
//go:noinline
func (d *driver) takeAlone(events []event.Event) error {
	d.busy.Lock()
	defer d.busy.Unlock()
	err := d.regainIfLost(d.writer.ctx)
	if err == nil && len(events) > 0 {
		if events, err = d.hold(events); err == nil {
			err = d.take(events)
		}
	}
	if err != nil {
		return failedError{err}
	}
	return nil
}

// mend puts back what Redis lost of the run while its driver waits for the next event. The
// keeper calls it from another goroutine once the lease was regained. A failure ends the
// driving, through the lease's context.
func (d *driver) mend() {
	d.busy.Lock()
	defer d.busy.Unlock()
	if d.concluding {
		return // the process that brings the run to its end looks for itself
	}
	if err := d.regainIfLost(d.writer.ctx); err != nil {
		d.writer.cancel(err)
	}
}

// reconnect judges the end of a connection, before which the run had events up to a number, and
// waits until the next one is to be made. An error: none is.
//
//go:noinline
func (d *driver) reconnect(ctx context.Context, broken error, last int64, failing *time.Time) error {
	var failed failedError
	switch {
	case errors.As(broken, &failed):
		return failed.error
	case d.run.log.Done(), d.isWaiting():
		return nil
	case d.writer.ctx.Err() != nil:
		return context.Cause(d.writer.ctx)
	}
	return d.runner.reconnect(ctx, d.run.log, broken, last, failing)
}

// take stores events and shows them then, in an order that must not change: write-ahead, the
// run's log first, then each event's message in its history, then the readers. A process that
// takes the run over folds the log once more, and the idempotency marks drop what a history has
// already; so a history may be behind its log, but never ahead of it, where no process could
// tell which delegation a message belongs to. What a reader has seen is acknowledged and must
// survive, so nothing is shown that is not stored.
func (d *driver) take(events []event.Event) error {
	if err := d.run.log.Fit(events...); err != nil {
		return err
	}
	if err := d.writer.record(events); err != nil {
		return err
	}
	d.recorded = events
	size := d.run.log.Size()
	for _, e := range events {
		if err := d.show(e); err != nil {
			return err
		}
		if p, ok := e.Payload.(*event.RunStarted); ok && p.RetryOf == "" {
			d.proposeNotes(p)
		}
		d.clock(e)
		if _, ok := e.Payload.(*event.MemoryReset); ok && !d.writer.detached.Load() {
			d.runner.storeWatch.toldLoss(d.writer.ctx, d.run.chat, d.run.epoch)
		}
	}
	if time.Since(d.flushedAt) > time.Second {
		d.tell()
	}
	d.runner.metrics.logged.Add(float64(max(0, d.run.log.Size()-size)))
	return nil
}

// show stores what an event of the run's log adds to a history, and hands it to the
// readers.
func (d *driver) show(e event.Event) error {
	if err := d.fold.Apply(e); err != nil {
		return err
	}
	d.note(e)
	if e.Terminal() {
		d.runner.endStore.keep(d.run.head(), append(slices.Clip(d.run.log.Lines(0)), e.Line())) // it is shown next
		d.tell()
	}
	if e.Blocking() && d.waiting != nil {
		d.keepWait(append(slices.Clip(d.run.log.Lines(0)), e.Line())) // a client may answer it as soon as it is shown
	}
	if e.Terminal() || e.Blocking() {
		d.run.counted.Leave() // before a client sees it, which may post again at once
	}
	return d.run.log.Append(e)
}

// note tells the session log and the metrics of an event.
func (d *driver) note(e event.Event) {
	say := func(format string, args ...any) { d.logLines = append(d.logLines, sessionLine(format, args...)) }
	switch p := e.Payload.(type) {
	case *event.RunStarted:
		if p.RetryOf == "" { // else it is there already
			say("message saved: %s", p.Message)
		}
	case *event.Recalled:
		say("%s: %v", cmp.Or(e.Subagent, "master"), p)
	case *event.Delegation:
		say("delegation to %s saved: %s", e.Subagent, p.Task)
	case *event.Completion:
		say("answer of %s saved (%s): %s", e.Subagent, p.Status, p.Response)
	case *event.Assistant:
		say("answer saved: %s", p.Content)
	case *event.Error:
		say("error %s: %s", p.Code, p.Message)
	case *event.RunWaiting:
		say("run %s waits for %d answers", d.run.id, len(p.Pending))
	case *event.RunFinished:
		say("run %s finished: %s", d.run.id, p.Outcome)
		d.finished(e.Seq, p)
	}
}

// tell writes to the session log what was said since. While a run goes on that is done once in a
// second at most.
func (d *driver) tell() {
	d.runner.sessions.write(d.run.chat, d.logLines...)
	d.logLines, d.flushedAt = nil, time.Now()
}

// clock observes after which time a run's readers had the first event and the first text.
// Of a run that another process left that is not known.
func (d *driver) clock(e event.Event) {
	if d.abandoned {
		return
	}
	now := time.Now()
	if d.first.IsZero() {
		d.first = now
		d.runner.metrics.firstEvent.Observe(now.Sub(d.run.began).Seconds())
	}
	if _, ok := e.Payload.(*event.AssistantDelta); ok && d.text.IsZero() {
		d.text = now
		d.runner.metrics.firstText.Observe(now.Sub(d.run.began).Seconds())
	}
}

// finished writes the line of a run that is over, which begins where it was posted.
func (d *driver) finished(events int64, end *event.RunFinished) {
	took := time.Since(d.run.began)
	d.runner.metrics.runs.WithLabelValues(end.Outcome).Inc()
	d.runner.metrics.runSeconds.WithLabelValues(end.Outcome).Observe(took.Seconds())
	line := d.log.Info().Str("outcome", end.Outcome).Dur("took", took).Int64("events", events).
		Int64("input_tokens", end.Usage.InputTokens).Int64("output_tokens", end.Usage.OutputTokens)
	for name, t := range map[string]time.Time{"first_event": d.first, "first_text": d.text} {
		if !t.IsZero() {
			line.Dur(name, t.Sub(d.run.began))
		}
	}
	line.Bool("taken_over", d.abandoned).Msg("run finished")
}

// giveUp brings a run to its end if its events have ceased to come: to the one that
// others know of, or else to one that is made here.
func (d *driver) giveUp(ctx context.Context, goneErr *goneError) error {
	if d.abandoned {
		if err := d.inquire(ctx); err != nil || d.run.log.Done() {
			return err
		}
		if d.run.log.Last() == 0 {
			return goneErr
		}
	}
	d.log.Error().Err(goneErr).Msg("the apiserver lost a run; it is closed here")
	d.runner.workers.Go(func() { d.stopThere() })
	return d.closeRun()
}

// closeRun stores the end that a lost run did not get.
func (d *driver) closeRun() error {
	// With the time of what is known, so that a process that closes a run twice writes the same.
	ts := time.Now()
	if last := d.run.log.LastTime(); !last.IsZero() {
		ts = last
	}
	if d.run.log.Last() == 0 {
		// Nothing was heard of it. What the user said is stored all the same.
		var begin []event.Event
		for i, p := range d.run.startPayloads {
			begin = append(begin, event.New(event.Head{RunID: d.run.id, Seq: int64(i) + 1, TS: event.Seconds(ts)}, p))
		}
		if err := d.take(begin); err != nil {
			return err
		}
	}
	return d.take(d.run.log.Closing(*event.Fail(event.RunLost, "", 0), ts))
}

// stopThere stops a run that is closed here, so that no tokens are paid for an answer
// without a reader. Its apiserver may be out of reach for a while.
func (d *driver) stopThere() {
	ctx, cancel := context.WithTimeout(d.runner.life, d.runner.cfg.RunTimeout)
	defer cancel()
	for trying := true; trying; trying = pause(ctx, jitter(2*time.Second)) == nil {
		try, cancel := context.WithTimeout(ctx, storeTimeout)
		err := d.runs.Stop(try, d.run.id)
		cancel()
		if p, ok := errors.AsType[*api.Problem](err); err == nil || ok && p.Status < http.StatusInternalServerError {
			return // it stops, or is not there any more
		}
	}
}

// withdraw forgets a left run. Nothing is known of it, because it never began or only the process that died has its
// events; to close it with numbers that it may have used would give one id two contents. Or its end cannot be stored.
func (d *driver) withdraw(cause error) bool {
	d.log.Error().Err(cause).Msg("a run cannot be closed; it is forgotten")
	d.run.log.Abort(errMayRun) // a post that is repeated begins it anew
	ctx, cancel := context.WithTimeout(d.writer.ctx, storeTimeout)
	defer cancel()
	if err := d.closeQuestion(ctx); err != nil {
		d.log.Warn().Err(err).Msg("the question of a lost run was not marked")
	}
	if err := d.runner.store.Runs.Withdraw(ctx, d.run.chat, d.run.id); err != nil {
		d.log.Warn().Err(err).Msg("a run could not be forgotten")
		return false
	}
	return true
}

// closeQuestion ends the chat's history as lost if it ends with a message of the run.
func (d *driver) closeQuestion(ctx context.Context) error {
	h := d.writer.history(memory.ChatKey(d.run.chat))
	last, open, err := openMessage(h, d.run.id)
	if err != nil || !open {
		return err
	}
	_, seq, _ := memory.SplitID(last.ID)
	return d.writer.closeWith(ctx, h, last, d.run.id, seq)
}

// conclude drains what the run left in the spool, and keeps the final answer for
// posts that are repeated. An error: Redis does not know yet that the run is over.
func (d *driver) conclude() error {
	ctx, cancel := context.WithTimeout(d.writer.ctx, storeTimeout)
	defer cancel()
	if err := d.secure(ctx); err != nil {
		return err
	}
	status, body := d.run.final(ctx)
	if err := d.runner.store.Runs.Finish(ctx, d.run.chat, d.run.id, encodeFinal(status, body)); err != nil {
		return err
	}
	d.writer.finishedRun = d.run
	return nil
}

// secure makes sure that Redis has all of the run.
func (d *driver) secure(ctx context.Context) error {
	logged := d.writer.renewLast(ctx, d.run.id) // Redis may have lost the run since; what fails here fails again below
	if err := d.regainIfLost(ctx); err != nil {
		return err
	}
	if err := d.writer.drain(ctx); err != nil {
		return err
	}
	if logged < d.writer.entries {
		return d.fillLog(ctx)
	}
	return nil
}

// abandon stops driving a run. Its readers get an error that is no event of the
// run; the run itself goes on if another process has it or will have it, and is stopped
// if its events can be stored nowhere.
func (d *driver) abandon(cause error) {
	p := problem.FromError(cause)
	d.run.log.Abort(p)
	level := d.log.Error()
	if errors.Is(cause, problem.ErrShutdown) {
		level = d.log.Info()
	}
	level.Err(cause).Str("code", p.Code).Int64("seq", d.run.log.Last()).Msg("a run was left")
	d.runner.metrics.runs.WithLabelValues("left").Inc()
	if errors.Is(cause, problem.ErrShutdown) || errors.Is(cause, memory.ErrMoved) && d.hasFollower() {
		return
	}
	if errors.Is(cause, memory.ErrMoved) {
		d.placeRecorded()
	}
	ctx, cancel := context.WithTimeout(d.run.trail.In(context.Background()), storeTimeout)
	defer cancel()
	if err := d.runs.Stop(ctx, d.run.id); err != nil {
		d.log.Warn().Err(err).Msg("the apiserver could not be told to stop")
	}
}

// hasFollower reports whether another process may complete the run. None may if Redis has no open run or another one.
// After a loss of data in Redis, the new holder of the turn asks this process for the run before it opens it, so an
// absent run is awaited for the duration of a lease.
func (d *driver) hasFollower() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.writer.ctx), max(storeTimeout, d.runner.cfg.Lease))
	defer cancel()
	for {
		open, err := d.runner.store.Turns.OpenRun(ctx, d.run.chat)
		if err != nil || open != nil {
			return err != nil || open.Run == d.run.id
		}
		if !d.runner.storeWatch.lostLately(ctx) || pause(ctx, jitter(100*time.Millisecond)) != nil {
			return false
		}
	}
}
