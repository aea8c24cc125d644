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

// This file is about driving a run: its events come from the apiserver, are stored, and
// are shown to its readers, in this order, until it ends.

// Driver brings one run to its end: it carries events from the apiserver into the memory
// and to the run's readers. One goroutine owns it from the first event to the last; another
// one has mend only.
type Driver struct {
	busy       sync.Mutex // held while events are taken; mend may take their place while none is there
	concluding bool       // guarded by busy: no events are waited for any more

	runner *Runner
	Run    *Run
	writer *Writer
	fold   *event.Histories
	Log    zerolog.Logger
	runs   *api.Client // of the process that has the run
	events string      // URL of the run's events

	// Waiting is what the run goes on from, kept since its last event says that it waits; nil for
	// a run that goes on.
	Waiting *redisstore.Waiting

	abandoned bool   // by another process, which this one has replaced
	owner     string // of a left run: the process that had it; empty if that is not known
	// recorded are the events that the run's log took last.
	recorded  []event.Event
	logLines  []string  // lines for the session log that it does not have yet
	flushedAt time.Time // when it got the ones before
	first     time.Time // when the first event was shown; zero before
	text      time.Time // when the first of the answer's text was shown; zero before
}

// Batch is how many events that wait already are logged in one round trip.
const Batch = 64

// drive follows a run to its end, or to where it waits. It belongs to the server: no client's
// leaving ends it. True: the run is over and stored as such, or is to be suspended.
func (d *Driver) drive(ctx context.Context) bool {
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
func (d *Driver) storeEnd(ctx context.Context, err error) (finished bool) {
	d.tell()
	if permanent(err) {
		d.runner.Metrics.Faults.WithLabelValues(node.DamagedRun).Inc()
		err = &GoneError{err}
	}
	// Without the lease nothing is made up: another process may close the run too.
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

// secured says whether Redis has all of a run that is about to be suspended. If not, it is left
// open, and the process that takes it over suspends it.
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

// GoneError says that a run's events will not come any more.
type GoneError struct{ cause error }

func (e *GoneError) Error() string {
	return "the run's events ended before the run: " + e.cause.Error()
}

func (e *GoneError) Unwrap() error { return e.cause }

// follow takes the run's events, over as many connections as it takes. It gives up
// once none could be made for longer than the patience, counted from the first that
// failed: a quiet run with connections that break is a living one.
func (d *Driver) follow(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(d.writer.Ctx, stop)()
	var failing time.Time // since when no connection could be made; zero while they can
	for !d.Run.Log.Done() && !d.isWaiting() {
		last := d.Run.Log.Last()
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

// FailedError indicates that events cannot be taken, so that the run is not driven any further.
type FailedError struct{ Err error }

func (e FailedError) Error() string { return e.Err.Error() }

func (e FailedError) Unwrap() error { return e.Err }

// takeAlone takes events under the driver's lock, and puts back first what Redis was found to
// have lost. An error is a FailedError.
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

// mend puts back what Redis lost of the run while its driver waits for the next event. The
// keeper calls it from another goroutine once the lease was regained. A failure ends the
// driving, through the lease's context.
func (d *Driver) mend() {
	d.busy.Lock()
	defer d.busy.Unlock()
	if d.concluding {
		return // the process that brings the run to its end looks for itself
	}
	if err := d.regainIfLost(d.writer.Ctx); err != nil {
		d.writer.cancel(err)
	}
}

// reconnect judges the end of a connection, before which the run had events up to a number, and
// waits until the next one is to be made. An error: none is.
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

// take stores events and shows them then, in an order that must not change: write-ahead, the
// run's log first, then each event's message in its history, then the readers. A process that
// takes the run over folds the log once more, and the idempotency marks drop what a history has
// already; so a history may be behind its log, but never ahead of it, where no process could
// tell which delegation a message belongs to. What a reader has seen is acknowledged and must
// survive, so nothing is shown that is not stored.
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

// show stores what an event of the run's log adds to a history, and hands it to the
// readers.
func (d *Driver) show(e event.Event) error {
	if err := d.fold.Apply(e); err != nil {
		return err
	}
	d.note(e)
	if e.Terminal() {
		d.runner.EndStore.Keep(d.Run.head(), append(slices.Clip(d.Run.Log.Lines(0)), e.Line())) // it is shown next
		d.tell()
	}
	if e.Blocking() && d.Waiting != nil {
		d.keepWait(append(slices.Clip(d.Run.Log.Lines(0)), e.Line())) // a client may answer it as soon as it is shown
	}
	if e.Terminal() || e.Blocking() {
		d.Run.Counted.Leave() // before a client sees it, which may post again at once
	}
	return d.Run.Log.Append(e)
}

// note tells the session log and the metrics of an event.
func (d *Driver) note(e event.Event) {
	say := func(format string, args ...any) { d.logLines = append(d.logLines, node.SessionLine(format, args...)) }
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
		say("run %s waits for %d answers", d.Run.ID, len(p.Pending))
	case *event.RunFinished:
		say("run %s finished: %s", d.Run.ID, p.Outcome)
		d.finished(e.Seq, p)
	}
}

// tell writes to the session log what was said since. While a run goes on that is done once in a
// second at most.
func (d *Driver) tell() {
	d.runner.Sessions.Write(d.Run.Chat, d.logLines...)
	d.logLines, d.flushedAt = nil, time.Now()
}

// clock observes after which time a run's readers had the first event and the first text.
// Of a run that another process left that is not known.
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

// finished writes the line of a run that is over, which begins where it was posted.
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

// giveUp brings a run to its end if its events have ceased to come: to the one that
// others know of, or else to one that is made here.
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

// closeRun stores the end that a lost run did not get.
func (d *Driver) closeRun() error {
	// With the time of what is known, so that a process that closes a run twice writes the same.
	ts := time.Now()
	if last := d.Run.Log.LastTime(); !last.IsZero() {
		ts = last
	}
	if d.Run.Log.Last() == 0 {
		// Nothing was heard of it. What the user said is stored all the same.
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

// stopThere stops a run that is closed here, so that no tokens are paid for an answer
// without a reader. Its apiserver may be out of reach for a while.
func (d *Driver) stopThere() {
	ctx, cancel := context.WithTimeout(d.runner.Life, d.runner.Cfg.RunTimeout)
	defer cancel()
	for trying := true; trying; trying = node.Pause(ctx, node.Jitter(2*time.Second)) == nil {
		try, cancel := context.WithTimeout(ctx, node.StoreTimeout)
		err := d.runs.Stop(try, d.Run.ID)
		cancel()
		if p, ok := errors.AsType[*api.Problem](err); err == nil || ok && p.Status < http.StatusInternalServerError {
			return // it stops, or is not there any more
		}
	}
}

// withdraw forgets a left run. Nothing is known of it, because it never began or only the process that died has its
// events; to close it with numbers that it may have used would give one id two contents. Or its end cannot be stored.
func (d *Driver) withdraw(cause error) bool {
	d.Log.Error().Err(cause).Msg("a run cannot be closed; it is forgotten")
	d.Run.Log.Abort(problem.ErrMayRun) // a post that is repeated begins it anew
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

// closeQuestion ends the chat's history as lost if it ends with a message of the run.
func (d *Driver) closeQuestion(ctx context.Context) error {
	h := d.writer.History(memory.ChatKey(d.Run.Chat))
	last, open, err := openMessage(h, d.Run.ID)
	if err != nil || !open {
		return err
	}
	_, seq, _ := memory.SplitID(last.ID)
	return d.writer.CloseWith(ctx, h, last, d.Run.ID, seq)
}

// conclude drains what the run left in the spool, and keeps the final answer for
// posts that are repeated. An error: Redis does not know yet that the run is over.
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
	logged := d.writer.renewLast(ctx, d.Run.ID) // Redis may have lost the run since; what fails here fails again below
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

// hasFollower reports whether another process may complete the run. None may if Redis has no open run or another one.
// After a loss of data in Redis, the new holder of the turn asks this process for the run before it opens it, so an
// absent run is awaited for the duration of a lease.
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
