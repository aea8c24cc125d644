package webmemory

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// run is one request while it is answered, and for a while after.
type run struct {
	id   string
	chat memory.Chat
	body string   // hash of what was posted; the same key with another body is refused
	log  *api.Log // its events, each stored before it is here

	trail telemetry.Trail // of the post that began it, or of its own
	began time.Time

	elsewhere bool // another process had it, or has it, and may have shown events that are not here yet
	finished  bool // it was over when this copy of it was begun

	keyed   bool   // a post may repeat it, by its Idempotency-Key
	attempt int    // at what was posted: 1, 2 …
	first   string // run of the first attempt, if this is another one
	retryOf string // run of the attempt before, if this is another one
	refused error  // why it never ran; set before posted is closed
	// asked is how the run begins, as the apiserver was asked for it here.
	asked []event.Payload
	// tells says that the run tells of a loss, under the store's mark in epoch.
	tells bool
	epoch string

	posted chan struct{} // closed once the apiserver has the run, or never will
	done   chan struct{} // closed when nothing more happens here

	turn  atomic.Int64  // in which it runs; 0 before it has one
	place *list.Element // guarded by Server.mu: among the finished ones; nil if it is not there
	size  int           // guarded by Server.mu: what it takes of them, in bytes

	mu    sync.Mutex
	at    *api.Client // guarded by mu: where the run is; nil before it is posted
	ended time.Time   // guarded by mu; zero while it runs
	// conversation is the gateway's, in which it runs; guarded by mu.
	conversation string
	// dismiss ends the wait for the chat's turn; guarded by mu, nil unless it waits.
	dismiss context.CancelCauseFunc
}

func newRun(id string, chat memory.Chat, body string) *run {
	trail := telemetry.New()
	trail.Run, trail.Chat = id, chat.String()
	return &run{
		trail: trail, began: time.Now(),
		id: id, chat: chat, body: body, log: api.NewLog(id, api.Limits{}),
		posted: make(chan struct{}), done: make(chan struct{}),
	}
}

// over says whether the run ended longer than keep ago.
func (r *run) over(keep time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended.IsZero() && time.Since(r.ended) >= keep
}

// waits notes what ends the run's wait for the chat's turn; nil once it waits no more.
func (r *run) waits(dismiss context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dismiss = dismiss
}

func (r *run) end() {
	r.mu.Lock()
	r.ended = time.Now()
	r.mu.Unlock()
	close(r.done)
}

// driver carries one run's events into the memory and to its readers. One
// goroutine owns it from the first event to the last.
type driver struct {
	server *Server
	run    *run
	turn   *turn
	fold   *event.Histories
	log    zerolog.Logger
	runs   *api.Client // of the process that has the run
	events string      // URL of the run's events

	left  bool   // by another process, which this one has replaced
	owner string // of a left run: the process that had it; empty if that is not known
	// recorded are the events that the run's log took last.
	recorded []event.Event
	said     []string  // lines for the session log that it does not have yet
	first    time.Time // when the first event was shown; zero before
	text     time.Time // when the first of the answer's text was shown; zero before
}

// batch is how many events that wait already are logged in one round trip.
const batch = 64

// drive follows a run to its end. It belongs to the server: no client's leaving
// ends it. True: the run is over and stored as such.
func (d *driver) drive(ctx context.Context) bool {
	err := d.follow(ctx)
	// Without the lease nothing is made up: another process may close the run too.
	if gone := new(goneError); errors.As(err, &gone) && !d.turn.detached.Load() {
		err = d.giveUp(ctx, gone)
	}
	if gone := new(goneError); errors.As(err, &gone) && !d.turn.detached.Load() {
		return d.withdraw(err)
	}
	if err != nil {
		d.abandon(err)
		return false
	}
	finished := d.conclude()
	if err := d.turn.trim(d.server.cfg.MaxHistory); err != nil {
		d.log.Warn().Err(err).Msg("histories could not be trimmed")
	}
	return finished
}

// giveUp brings a run to its end whose events do not come any more: to the one that
// others know of, or else to one that is made here.
func (d *driver) giveUp(ctx context.Context, gone *goneError) error {
	if d.left {
		if err := d.inquire(ctx); err != nil || d.run.log.Done() {
			return err
		}
		if d.run.log.Last() == 0 {
			return gone
		}
	}
	d.log.Error().Err(gone).Msg("the apiserver lost a run; it is closed here")
	d.server.workers.Go(func() { d.stopThere() })
	return d.closeRun()
}

// goneError says that a run's events will not come any more.
type goneError struct{ cause error }

func (e *goneError) Error() string {
	return "the run's events ended before the run: " + e.cause.Error()
}
func (e *goneError) Unwrap() error { return e.cause }

// follow takes the run's events, over as many connections as it takes. It gives up
// once none could be made for longer than the patience, counted from the first that
// failed: a quiet run whose connections break is a living one.
func (d *driver) follow(ctx context.Context) error {
	var failing time.Time // since when no connection could be made; zero while they can
	for !d.run.log.Done() {
		before := d.run.log.Last()
		broken, err := d.read(ctx)
		if err != nil || d.run.log.Done() {
			return err
		}
		var problem *api.Problem
		refused := errors.As(broken, &problem)
		switch {
		case d.turn.ctx.Err() != nil:
			return context.Cause(d.turn.ctx)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case refused && (problem.Status == http.StatusNotFound || problem.Status == http.StatusGone):
			return &goneError{errors.Join(errors.New("no more events"), broken)}
		case d.run.log.Last() > before, broken == nil, errors.Is(broken, api.ErrCut):
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > d.server.cfg.Patience:
			return &goneError{errors.Join(errors.New("no more events"), broken)}
		}
		select {
		case <-time.After(jitter(300 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
	return nil
}

// arrival is an event, or the end of a connection.
type arrival struct {
	event event.Event
	err   error
}

// read takes events from one connection until it ends. What waits already when
// one is taken is taken with it.
func (d *driver) read(ctx context.Context) (broken, failed error) {
	ctx, cancel := context.WithCancel(ctx)
	arrivals := make(chan arrival, batch)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(arrivals)
		for e, err := range d.runs.Events(ctx, d.events, d.run.log.Last()) {
			select {
			case arrivals <- arrival{e, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	defer reading.Wait()
	defer cancel()
	lost := context.AfterFunc(d.turn.ctx, cancel)
	defer lost()
	for {
		var first arrival
		var more bool
		select {
		case first, more = <-arrivals:
		case <-d.turn.regained:
			if err := d.regain(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if !more {
			return nil, nil
		}
		taken := []arrival{first}
		for len(arrivals) > 0 && len(taken) < batch {
			taken = append(taken, <-arrivals)
		}
		var events []event.Event
		for _, a := range taken {
			if broken = a.err; broken != nil {
				break
			}
			events = append(events, a.event)
		}
		if err := d.take(events); err != nil || broken != nil {
			return broken, err
		}
	}
}

// take stores events, in the run's log and each in the history that it changes,
// and shows them then. The log comes first: whoever takes over folds it once more,
// so that a history may be behind its log, but never ahead of it, where nobody
// could tell which delegation a message belongs to.
func (d *driver) take(events []event.Event) error {
	if err := d.turn.record(events); err != nil {
		return err
	}
	d.recorded = events
	before := d.run.log.Size()
	for _, e := range events {
		if err := d.show(e); err != nil {
			return err
		}
		d.clock(e)
		if _, ok := e.Payload.(*event.MemoryReset); ok && !d.turn.detached.Load() {
			d.server.toldLoss(d.turn.ctx, d.run.chat, d.run.epoch)
		}
	}
	d.tell()
	d.server.metrics.logged.Add(float64(max(0, d.run.log.Size()-before)))
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
		d.keepEnd(e.Line())
		d.tell()
	}
	return d.run.log.Append(e)
}

// note tells the session log and the metrics of an event.
func (d *driver) note(e event.Event) {
	say := func(format string, args ...any) { d.said = append(d.said, fmt.Sprintf(format, args...)) }
	switch p := e.Payload.(type) {
	case *event.Delegation:
		say("delegation to %s saved: %s", e.Subagent, p.Task)
	case *event.Completion:
		say("answer of %s saved (%s): %s", e.Subagent, p.Status, p.Response)
	case *event.Assistant:
		say("answer saved: %s", p.Content)
	case *event.Error:
		say("error %s: %s", p.Code, p.Message)
	case *event.RunFinished:
		say("run %s finished: %s", d.run.id, p.Outcome)
		d.finished(e.Seq, p)
	}
}

// tell writes to the session log what was said since.
func (d *driver) tell() {
	d.server.sessions.write(d.run.chat, d.said...)
	d.said = nil
}

// clock notes when a run's readers first had something. A run that another process
// left says nothing of that.
func (d *driver) clock(e event.Event) {
	if d.left {
		return
	}
	now := time.Now()
	if d.first.IsZero() {
		d.first = now
		d.server.metrics.firstEvent.Observe(now.Sub(d.run.began).Seconds())
	}
	if _, ok := e.Payload.(*event.AssistantDelta); ok && d.text.IsZero() {
		d.text = now
		d.server.metrics.firstText.Observe(now.Sub(d.run.began).Seconds())
	}
}

// finished writes the line of a run that is over, which begins where it was posted.
func (d *driver) finished(events int64, end *event.RunFinished) {
	took := time.Since(d.run.began)
	d.server.metrics.runs.WithLabelValues(end.Outcome).Inc()
	d.server.metrics.runSeconds.WithLabelValues(end.Outcome).Observe(took.Seconds())
	line := d.log.Info().Str("outcome", end.Outcome).Dur("took", took).Int64("events", events).
		Int64("input_tokens", end.Usage.InputTokens).Int64("output_tokens", end.Usage.OutputTokens)
	for name, at := range map[string]time.Time{"first_event": d.first, "first_text": d.text} {
		if !at.IsZero() {
			line.Dur(name, at.Sub(d.run.began))
		}
	}
	line.Bool("taken_over", d.left).Msg("run finished")
}

// closeRun stores the end that a lost run did not get.
func (d *driver) closeRun() error {
	lost := event.Error{
		Code: event.RunLost, Retryable: true,
		Message: "The service that worked on this message was lost; please send it again.",
	}
	// With the time of what is known, so that who closes a run twice writes the same.
	at := time.Now()
	if last := d.run.log.LastTime(); !last.IsZero() {
		at = last
	}
	if d.run.log.Last() == 0 {
		// Nothing was heard of it. What the user said is stored all the same.
		var begin []event.Event
		for i, p := range d.run.asked {
			begin = append(begin, event.New(event.Head{RunID: d.run.id, Seq: int64(i) + 1, TS: event.Seconds(at)}, p))
		}
		if err := d.take(begin); err != nil {
			return err
		}
	}
	return d.take(d.run.log.Closing(lost, at))
}

// stopThere stops a run that is closed here, so that nobody pays for an answer that
// nobody reads. Its apiserver may be out of reach for a while.
func (d *driver) stopThere() {
	ctx, cancel := context.WithTimeout(d.server.life, d.server.cfg.RunTimeout)
	defer cancel()
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, storeTimeout)
		err := d.runs.Stop(try, d.run.id)
		cancel()
		var problem *api.Problem
		if err == nil || errors.As(err, &problem) && problem.Status < http.StatusInternalServerError {
			return // it stops, or is not there any more
		}
		select {
		case <-time.After(jitter(2 * time.Second)):
		case <-ctx.Done():
		}
	}
}

// withdraw forgets a left run of which nothing is known: it never began, or what
// it said lies where only the process that died can find it. To close it with
// numbers that it may have used would say two things under one id.
func (d *driver) withdraw(cause error) bool {
	d.log.Error().Err(cause).Msg("nothing is known of a left run; it is forgotten")
	d.run.log.Abort(errUnknownRun)
	ctx, cancel := context.WithTimeout(d.turn.ctx, storeTimeout)
	defer cancel()
	if err := d.server.store.Withdraw(ctx, d.run.chat, d.run.id); err != nil {
		d.log.Warn().Err(err).Msg("a run could not be forgotten")
		return false
	}
	return true
}

// conclude drains what the run left in the spool, and keeps the final answer for
// posts that are repeated. False: Redis does not know yet that the run is over.
func (d *driver) conclude() bool {
	ctx, cancel := context.WithTimeout(d.turn.ctx, storeTimeout)
	defer cancel()
	if err := d.finish(ctx); err != nil {
		d.log.Warn().Err(err).Msg("the end of a run waits for Redis")
		return false
	}
	return true
}

func (d *driver) finish(ctx context.Context) error {
	logged := d.turn.renewLast(ctx, d.run.id) // Redis may have lost the run since; what fails here fails again below
	if err := d.regainIfLost(ctx); err != nil {
		return err
	}
	if err := d.turn.drain(ctx); err != nil {
		return err
	}
	if logged < d.turn.entries {
		if err := d.fillLog(ctx); err != nil {
			return err
		}
	}
	status, body := d.run.final(ctx)
	if err := d.server.store.Finish(ctx, d.run.chat, d.run.id, encodeFinal(status, body)); err != nil {
		return err
	}
	d.turn.over = d.run
	return nil
}

// abandon stops driving a run. Its readers get an error that is no event of the
// run; the run itself goes on if somebody else has it or will have it, and is
// stopped if its events can be stored nowhere.
func (d *driver) abandon(cause error) {
	p := problemOf(cause)
	d.run.log.Abort(p)
	level := d.log.Error()
	if errors.Is(cause, errShutdown) {
		level = d.log.Info()
	}
	level.Err(cause).Str("code", p.Code).Int64("seq", d.run.log.Last()).Msg("a run was left")
	d.server.metrics.runs.WithLabelValues("left").Inc()
	if errors.Is(cause, errShutdown) || errors.Is(cause, memory.ErrMoved) && d.hasFollower() {
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

// hasFollower says whether another process may bring the run to its end: unless Redis
// says that no run is open, or another one.
func (d *driver) hasFollower() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.turn.ctx), storeTimeout)
	defer cancel()
	open, err := d.server.store.OpenRun(ctx, d.run.chat)
	return err != nil || open != nil && open.Run == d.run.id
}

// collect waits for a run's end.
func (r *run) collect(ctx context.Context) (webapi.Result, error) {
	out := webapi.Result{RunID: r.id, Citations: []event.Citation{}}
	var failure *event.Error
	for e, err := range r.log.Follow(ctx, 0, "assistant", "subagent_completion", "error", "run_finished") {
		if err != nil {
			return out, err
		}
		switch p := e.Payload.(type) {
		case *event.Assistant:
			out.Content, out.Partial = p.Content, p.Partial
			out.Citations = append(out.Citations, p.Citations...)
		case *event.Completion:
			if p.Answer != nil {
				out.Answers = append(out.Answers, webapi.Finding{Subagent: e.Subagent, CallID: e.CallID, Answer: p.Answer})
			}
		case *event.Error:
			if e.Subagent == "" {
				failure = p
			}
		case *event.RunFinished:
			out.Usage, out.Outcome = p.Usage, p.Outcome
		}
	}
	if out.Outcome == event.Failed {
		if failure == nil {
			failure = &event.Error{Code: webapi.CodeRunFailed, Message: "The run failed."}
		}
		return out, &api.Problem{
			Status: http.StatusBadGateway, Code: failure.Code, Message: failure.Message, Retryable: failure.Retryable, RunID: r.id,
		}
	}
	return out, nil
}
