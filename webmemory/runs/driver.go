package runs

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
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// Driver drives one run until it ends or waits. It reads events from the apiserver, stores them and then shows them to
// readers. One goroutine owns it; only mend may run in another.
type Driver struct {
	busy       sync.Mutex // held while events are taken; mend takes it between events
	concluding bool       // guarded by busy: no more events are expected

	runner *Runner
	Run    *Run
	writer *Writer
	fold   *event.Histories
	Log    zerolog.Logger
	runs   *api.Client // client of the run's apiserver
	events string      // URL of the run's events

	// Waiting is the state that the run resumes from. It is nil unless the run's last event is run_waiting.
	Waiting *redisstore.Waiting

	abandoned bool   // the run was taken over
	owner     string // process that left the run; empty if unknown
	// recorded holds the events that were last added to the run's log.
	recorded  []event.Event
	logLines  []string  // lines not yet in the session log
	flushedAt time.Time // time of the last write to the session log
	first     time.Time // time of the first event shown; zero before
	text      time.Time // time of the first answer text shown; zero before
}

// Batch bounds the number of pending events that are logged in one round trip.
const Batch = 64

// drive follows a run until it ends or waits. The server owns the run, so a client's disconnect does not end it. drive
// reports whether the end is stored or the run can be suspended.
func (d *Driver) drive(ctx context.Context) bool {
	d.writer.driven.Store(d)
	err := d.follow(ctx)
	d.busy.Lock()
	d.concluding = true
	d.busy.Unlock()
	return d.storeEnd(ctx, err)
}

// storeEnd stores the end of a run. err is the result of follow.
//
//go:noinline
func (d *Driver) storeEnd(ctx context.Context, err error) (finished bool) {
	d.tell()
	if permanent(err) {
		d.runner.Metrics.Faults.WithLabelValues(node.DamagedRun).Inc()
		err = &GoneError{err}
	}
	// Without the lease, do not make up an end: another process may close the run too.
	if goneErr := new(GoneError); errors.As(err, &goneErr) && !d.writer.detached.Load() {
		waiting, failed := d.restAgain(ctx)
		switch {
		case failed != nil:
			err = failed
		case waiting:
			err = nil
		default:
			if err = d.giveUp(ctx, goneErr); permanent(err) {
				err = &GoneError{err}
			}
		}
	}
	if goneErr := new(GoneError); errors.As(err, &goneErr) && !d.writer.detached.Load() {
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
		d.Log.Warn().Err(unfinished).Msg("the end of a run waits for Redis")
	}
	if err := d.writer.Trim(d.runner.Cfg.MaxHistory); err != nil {
		d.Log.Warn().Err(err).Msg("histories could not be trimmed")
	}
	return unfinished == nil
}

// secured reports whether Redis has all of a run that is about to be suspended. If not, the run stays open, and the
// process that takes it over suspends it.
//
//go:noinline
func (d *Driver) secured() bool {
	ctx, cancel := context.WithTimeout(d.writer.Ctx, node.StoreTimeout)
	defer cancel()
	if err := d.secure(ctx); err != nil {
		d.Log.Warn().Err(err).Msg("a run that waits is suspended later: Redis does not have all of it")
		return false
	}
	return true
}

// GoneError indicates that no more events of a run will arrive.
type GoneError struct{ cause error }

func (e *GoneError) Error() string {
	return "the run's events ended before the run: " + e.cause.Error()
}

func (e *GoneError) Unwrap() error { return e.cause }

// follow reads the run's events, over as many connections as necessary. It gives up after connection attempts have
// failed for longer than Cfg.Patience. A quiet run with unstable connections is still alive.
func (d *Driver) follow(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(d.writer.Ctx, stop)()
	var failing time.Time // start of the current connection failures; zero for none
	for !d.Run.Log.Done() && !d.isWaiting() {
		last := d.Run.Log.Last()
		if err := d.reconnect(ctx, d.read(reading), last, &failing); err != nil {
			return err
		}
	}
	return nil
}

// read reads events from one connection until it ends. It returns the reason, or nil at the run's end. Events that have
// already arrived are taken together.
//
// Thousands of drivers block here. Functions that are not inlined handle events and ended connections, to keep the
// stack of each blocked goroutine small.
func (d *Driver) read(ctx context.Context) error {
	if err := d.takeAlone(nil); err != nil {
		return err
	}
	for events, err := range d.runs.Batches(ctx, d.events, d.Run.Log.Last(), Batch) {
		if err == nil {
			err = d.takeAlone(events)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// FailedError indicates that events cannot be taken, so the driver stops.
type FailedError struct{ Err error }

func (e FailedError) Error() string { return e.Err.Error() }

func (e FailedError) Unwrap() error { return e.Err }

// takeAlone takes events while it holds d.busy. It first restores lost data. Its error is a FailedError.
//
//go:noinline
func (d *Driver) takeAlone(events []event.Event) error {
	d.busy.Lock()
	defer d.busy.Unlock()
	err := d.regainIfLost(d.writer.Ctx)
	if err == nil && len(events) > 0 {
		if events, err = d.hold(events); err == nil {
			err = d.take(events)
		}
	}
	if err != nil {
		return FailedError{err}
	}
	return nil
}

// mend restores the run's data that Redis lost while the driver waits for the next event. The keeper calls it from
// another goroutine after it has regained the lease. A failure cancels the lease's context, which stops the driver.
func (d *Driver) mend() {
	d.busy.Lock()
	defer d.busy.Unlock()
	if d.concluding {
		return // the driver's goroutine checks for losses at the run's end
	}
	if err := d.regainIfLost(d.writer.Ctx); err != nil {
		d.writer.cancel(err)
	}
}

// reconnect handles the end of a connection and waits before the next one. broken is the connection's error, and last
// is the newest event number before it. After an error, the caller must not connect again.
//
//go:noinline
func (d *Driver) reconnect(ctx context.Context, broken error, last int64, failing *time.Time) error {
	var failed FailedError
	switch {
	case errors.As(broken, &failed):
		return failed.Err
	case d.Run.Log.Done(), d.isWaiting():
		return nil
	case d.writer.Ctx.Err() != nil:
		return context.Cause(d.writer.Ctx)
	}
	return d.runner.Reconnect(ctx, d.Run.Log, broken, last, failing)
}

// take stores events and then shows them. The order must not change: first the run's log, then each event's message in
// its history, then the readers.
//
// A process that takes the run over folds the log again, and idempotency marks drop messages that a history already
// has. A history may therefore have less than its log, but never more. Otherwise a message could not be matched to its
// delegation. A shown event is acknowledged and must survive, so only stored events are shown.
func (d *Driver) take(events []event.Event) error {
	if err := d.Run.Log.Fit(events...); err != nil {
		return err
	}
	if err := d.writer.record(events); err != nil {
		return err
	}
	d.recorded = events
	size := d.Run.Log.Size()
	for _, e := range events {
		if err := d.show(e); err != nil {
			return err
		}
		if p, ok := e.Payload.(*event.RunStarted); ok && p.RetryOf == "" {
			d.proposeNotes(p)
		}
		d.clock(e)
		if _, ok := e.Payload.(*event.MemoryReset); ok && !d.writer.detached.Load() {
			d.runner.StoreWatch.ToldLoss(d.writer.Ctx, d.Run.Chat, d.Run.Epoch)
		}
	}
	if time.Since(d.flushedAt) > time.Second {
		d.tell()
	}
	d.runner.Metrics.Logged.Add(float64(max(0, d.Run.Log.Size()-size)))
	return nil
}

// show stores a logged event's message in its history and passes the event to the readers.
func (d *Driver) show(e event.Event) error {
	if err := d.fold.Apply(e); err != nil {
		return err
	}
	d.note(e)
	if e.Terminal() {
		d.runner.EndStore.Keep(d.Run.head(), append(slices.Clip(d.Run.Log.Lines(0)), e.Line())) // the readers see it next
		d.tell()
	}
	if e.Blocking() && d.Waiting != nil {
		d.keepWait(append(slices.Clip(d.Run.Log.Lines(0)), e.Line())) // a client may answer it as soon as it is shown
	}
	if e.Terminal() || e.Blocking() {
		d.Run.Counted.Leave() // before a client sees the event and posts again
	}
	return d.Run.Log.Append(e)
}

// note adds an event to the session log and the metrics.
func (d *Driver) note(e event.Event) {
	say := func(format string, args ...any) { d.logLines = append(d.logLines, node.SessionLine(format, args...)) }
	switch p := e.Payload.(type) {
	case *event.RunStarted:
		if p.RetryOf == "" { // a retry's message is already saved
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
		say("run %s waits for %d answers", d.Run.ID, len(p.Pending))
	case *event.RunFinished:
		say("run %s finished: %s", d.Run.ID, p.Outcome)
		d.finished(e.Seq, p)
	}
}

// tell writes the collected lines to the session log. During a run, take calls it at most once per second.
func (d *Driver) tell() {
	d.runner.Sessions.Write(d.Run.Chat, d.logLines...)
	d.logLines, d.flushedAt = nil, time.Now()
}

// clock observes the time until readers get the first event and the first text. For a taken-over run, it is unknown.
func (d *Driver) clock(e event.Event) {
	if d.abandoned {
		return
	}
	now := time.Now()
	if d.first.IsZero() {
		d.first = now
		d.runner.Metrics.FirstEvent.Observe(now.Sub(d.Run.Began).Seconds())
	}
	if _, ok := e.Payload.(*event.AssistantDelta); ok && d.text.IsZero() {
		d.text = now
		d.runner.Metrics.FirstText.Observe(now.Sub(d.Run.Began).Seconds())
	}
}

// finished updates the metrics and logs the end of a run. Durations start at the run's post.
func (d *Driver) finished(events int64, end *event.RunFinished) {
	took := time.Since(d.Run.Began)
	d.runner.Metrics.Runs.WithLabelValues(end.Outcome).Inc()
	d.runner.Metrics.RunSeconds.WithLabelValues(end.Outcome).Observe(took.Seconds())
	line := d.Log.Info().Str("outcome", end.Outcome).Dur("took", took).Int64("events", events).
		Int64("input_tokens", end.Usage.InputTokens).Int64("output_tokens", end.Usage.OutputTokens)
	for name, t := range map[string]time.Time{"first_event": d.first, "first_text": d.text} {
		if !t.IsZero() {
			line.Dur(name, t.Sub(d.Run.Began))
		}
	}
	line.Bool("taken_over", d.abandoned).Msg("run finished")
}

// giveUp ends a run whose events have stopped. It uses the end that other processes know, or else makes one. For a
// taken-over run without any known event, it returns goneErr.
func (d *Driver) giveUp(ctx context.Context, goneErr *GoneError) error {
	if d.abandoned {
		if err := d.inquire(ctx); err != nil || d.Run.Log.Done() {
			return err
		}
		if d.Run.Log.Last() == 0 {
			return goneErr
		}
	}
	d.Log.Error().Err(goneErr).Msg("the apiserver lost a run; it is closed here")
	d.runner.Workers.Go(func() { d.stopThere() })
	return d.closeRun()
}

// closeRun stores an end for a lost run.
func (d *Driver) closeRun() error {
	// Use the time of the last known event, so that closing a run twice writes the same events.
	ts := time.Now()
	if last := d.Run.Log.LastTime(); !last.IsZero() {
		ts = last
	}
	if d.Run.Log.Last() == 0 {
		// No event arrived. Store the user's message anyway.
		var begin []event.Event
		for i, p := range d.Run.StartPayloads {
			begin = append(begin, event.New(event.Head{RunID: d.Run.ID, Seq: int64(i) + 1, TS: event.Seconds(ts)}, p))
		}
		if err := d.take(begin); err != nil {
			return err
		}
	}
	return d.take(d.Run.Log.Closing(*event.Fail(event.RunLost, "", 0), ts))
}

// stopThere stops a closed run at its apiserver, so that no tokens are spent on an unread answer. It retries, because
// the apiserver may be unreachable for a while.
func (d *Driver) stopThere() {
	ctx, cancel := context.WithTimeout(d.runner.Life, d.runner.Cfg.RunTimeout)
	defer cancel()
	for trying := true; trying; trying = node.Pause(ctx, node.Jitter(2*time.Second)) == nil {
		try, cancel := context.WithTimeout(ctx, node.StoreTimeout)
		err := d.runs.Stop(try, d.Run.ID)
		cancel()
		if p, ok := errors.AsType[*api.Problem](err); err == nil || ok && p.Status < http.StatusInternalServerError {
			return // it stops or no longer exists
		}
	}
}

// withdraw deletes a run that cannot be closed, and reports whether Redis has deleted it. Either the end cannot be
// stored, or no events are known: the run never began, or only a dead process has them. Closing it with event numbers
// that the process may have used would give one id two contents.
func (d *Driver) withdraw(cause error) bool {
	d.Log.Error().Err(cause).Msg("a run cannot be closed; it is forgotten")
	d.Run.Log.Abort(problem.ErrMayRun) // a repeated post begins the run again
	ctx, cancel := context.WithTimeout(d.writer.Ctx, node.StoreTimeout)
	defer cancel()
	if err := d.closeQuestion(ctx); err != nil {
		d.Log.Warn().Err(err).Msg("the question of a lost run was not marked")
	}
	if err := d.runner.Store.Runs.Withdraw(ctx, d.Run.Chat, d.Run.ID); err != nil {
		d.Log.Warn().Err(err).Msg("a run could not be forgotten")
		return false
	}
	return true
}

// closeQuestion closes the chat's history as lost if it ends with a question of the run.
func (d *Driver) closeQuestion(ctx context.Context) error {
	h := d.writer.History(memory.ChatKey(d.Run.Chat))
	last, open, err := openMessage(h, d.Run.ID)
	if err != nil || !open {
		return err
	}
	_, seq, _ := memory.SplitID(last.ID)
	return d.writer.CloseWith(ctx, h, last, d.Run.ID, seq)
}

// conclude drains the run's entries from the spool and stores the final answer for repeated posts. After an error,
// Redis does not know that the run has ended.
func (d *Driver) conclude() error {
	ctx, cancel := context.WithTimeout(d.writer.Ctx, node.StoreTimeout)
	defer cancel()
	if err := d.secure(ctx); err != nil {
		return err
	}
	status, body := d.Run.Final(ctx)
	if err := d.runner.Store.Runs.Finish(ctx, d.Run.Chat, d.Run.ID, EncodeFinal(status, body)); err != nil {
		return err
	}
	d.writer.FinishedRun = d.Run
	return nil
}

// secure makes sure that Redis has all of the run.
func (d *Driver) secure(ctx context.Context) error {
	logged := d.writer.renewLast(ctx, d.Run.ID) // Redis may have lost the run since; an error here recurs below
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

// abandon stops driving a run. Its readers get an error that is not an event of the run. If another process has the run
// or will take it over, the run continues. If its events cannot be stored anywhere, abandon stops it.
func (d *Driver) abandon(cause error) {
	p := problem.FromError(cause)
	d.Run.Log.Abort(p)
	level := d.Log.Error()
	if errors.Is(cause, problem.ErrShutdown) {
		level = d.Log.Info()
	}
	level.Err(cause).Str("code", p.Code).Int64("seq", d.Run.Log.Last()).Msg("a run was left")
	d.runner.Metrics.Runs.WithLabelValues("left").Inc()
	if errors.Is(cause, problem.ErrShutdown) || errors.Is(cause, memory.ErrMoved) && d.hasFollower() {
		return
	}
	if errors.Is(cause, memory.ErrMoved) {
		d.placeRecorded()
	}
	ctx, cancel := context.WithTimeout(d.Run.Trail.In(context.Background()), node.StoreTimeout)
	defer cancel()
	if err := d.runs.Stop(ctx, d.Run.ID); err != nil {
		d.Log.Warn().Err(err).Msg("the apiserver could not be told to stop")
	}
}

// hasFollower reports whether another process may complete the run. It returns false if Redis has no open run or
// another one. After Redis lost data, the turn's new holder asks this process for the run before it opens it.
// hasFollower therefore waits for a missing run for the duration of a lease.
func (d *Driver) hasFollower() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.writer.Ctx), max(node.StoreTimeout, d.runner.Cfg.Lease))
	defer cancel()
	for {
		open, err := d.runner.Store.Turns.OpenRun(ctx, d.Run.Chat)
		if err != nil || open != nil {
			return err != nil || open.Run == d.Run.ID
		}
		if !d.runner.StoreWatch.LostLately(ctx) || node.Pause(ctx, node.Jitter(100*time.Millisecond)) != nil {
			return false
		}
	}
}
