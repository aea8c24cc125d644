package webmemory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"mneme/access"
	"mneme/access/limit"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// runner drives runs to their end or to where they wait, those of this process (driver) and those that another one
// left. It writes the run's log, its record and, by the writer, the histories, all under the lease that it is handed
// and gives back. An event is stored before any reader sees it.
type runner struct {
	*core
	registry   *registry
	peers      *peers
	storeWatch *storeWatch
	webhooks   *webhooks
	toolCalls  *toolCalls
}

// driver makes the driver of a run under a chat's lease. events is the URL of its events;
// empty for that of the configured apiserver.
func (s *runner) driver(r *run, w *writer, events string) *driver {
	if events == "" {
		events = s.runs.EventsURL(r.id)
	}
	client, err := s.runs.ForEvents(events)
	if err != nil {
		client = s.runs
	}
	r.mu.Lock()
	r.client, r.conversation, r.leaseToken = client, w.Conversation, w.token
	r.mu.Unlock()
	r.turn.Store(w.Number)
	w.run, w.logged = r.id, r.logged
	var sink event.Sink = w
	if s.cfg.Traces != nil {
		sink = tracedSink{w, s.cfg.Traces, r}
	}
	return &driver{
		runner: s, run: r, writer: w, runs: client, events: events, fold: event.NewHistories(r.chat, sink),
		log: r.trail.Logger(s.log),
	}
}

// noteRun keeps a record of a run; found is one that is there already.
func (s *runner) noteRun(ctx context.Context, r *run) (record *redisstore.Record, err error) {
	begin := s.store.Runs.Begin
	if !r.keyed {
		begin = s.store.Runs.BeginUnkeyed
	}
	record, err = begin(ctx, r.chat, r.id, r.body)
	if record != nil && record.Body == r.body {
		if record, err = recordOf(ctx, s.store, r); record == nil && err == nil {
			s.metrics.faults.WithLabelValues(deadPost).Inc()
			s.log.Warn().EmbedObject(r.trail).Msg("a process died between a post and its run; it begins with this repetition")
		}
	}
	if err != nil || record != nil || r.attempt <= 1 {
		return record, err
	}
	return nil, s.store.Runs.Retried(ctx, r.chat, r.first, r.body, r.attempt)
}

// count has a run counted among those that its key, its tenant and its user may have at once, until it ends or waits
// for an answer. One that is counted already stays so.
func (s *runner) count(ctx context.Context, r *run) (err error) {
	if s.cfg.Limiter == nil || r.counted != nil {
		return nil
	}
	who := access.FromContext(ctx)
	who.User = r.user.ID()
	r.counted, err = s.cfg.Limiter.Enter(ctx, who, r.id)
	var refused *limit.Refusal
	switch {
	case errors.As(err, &refused):
		return api.ProblemOf(event.Fail(event.OwnRate, err.Error(), refused.RetryAfter))
	case errors.Is(err, limit.ErrAway):
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	return err
}

// access lets a run's agents reach this process, which holds it. shown is as of lend.
func (s *runner) access(r *run, windows map[memory.Key]windowed) *api.MemoryAccess {
	a := &api.MemoryAccess{URL: s.cfg.SelfURL + internalPath + "/runs/" + r.id, Token: rand.Text()}
	r.lend(a.Token, windows)
	return a
}

// work drives a run to its end and gives the chat's lease back.
func (s *runner) work(d *driver) {
	ctx, cancel := context.WithTimeout(d.run.trail.In(s.life), s.cfg.RunTimeout)
	defer cancel()
	s.metrics.running.Inc()
	finished := d.drive(ctx)
	s.metrics.running.Dec()
	s.leave(d, finished)
}

// leave gives the chat's lease back after a run was driven, and lets go of the run. No
// caller waits for what is left after its end: that the apiserver may forget it, and that
// its log in Redis shrinks to what it needs.
//
//go:noinline
func (s *runner) leave(d *driver, finished bool) {
	giveBack, waiting := d.writer.leave, finished && d.isWaiting()
	switch {
	case waiting:
		giveBack = d.rest
	case finished:
		giveBack = d.writer.end
	}
	d.run.close()
	_ = d.writer.release(giveBack, &d.log)
	d.run.end()
	if waiting {
		s.registry.forgetRun(d.run) // from here on it is that of any process
		s.suspended(d)
	} else {
		s.registry.retire(d.run)
	}
	if !finished {
		return // the apiserver keeps the run for the process that finishes it
	}
	done, stop := context.WithTimeout(d.run.trail.In(context.Background()), storeTimeout)
	defer stop()
	if err := d.runs.Done(done, d.run.id, d.run.log.Last()); err != nil {
		d.log.Debug().Err(err).Msg("the apiserver was not told that a run is stored")
	}
	if waiting {
		return
	}
	packing, stop := context.WithTimeout(s.life, storeTimeout)
	defer stop()
	if err := s.store.Runs.Pack(packing, d.run.chat, d.run.id, d.run.logged()...); err != nil && s.life.Err() == nil {
		d.log.Debug().Err(err).Msg("a run's log was not packed; it goes as it is when its time is over")
	}
}

// suspended tells of a run that was.
func (s *runner) suspended(d *driver) {
	s.metrics.runs.WithLabelValues(webapi.OutcomeWaiting).Inc()
	pending := d.run.openWaits()
	s.webhooks.tellWebhook(d.run.chat, d.run.id, pending)
	d.log.Info().Int("waits", len(pending)).Int64("events", d.run.log.Last()).Msg("run waits")
}

// forget stops a run at the apiserver that is not followed.
func (s *runner) forget(r *run) {
	ctx, cancel := context.WithTimeout(r.trail.In(context.Background()), storeTimeout)
	defer cancel()
	_ = s.runs.Stop(ctx, r.id) // not there in most cases, and bounded by run_timeout in the others
}

// reconnect judges the end of a connection to a run that is not over, as again does. What will not come any more
// is a goneError.
func (s *runner) reconnect(ctx context.Context, log *api.Log, broken error, last int64, failing *time.Time) error {
	var p *api.Problem
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(broken, &p) && (p.Status == http.StatusNotFound || p.Status == http.StatusGone ||
		p.Status == http.StatusBadRequest): // it has an earlier leg of the run, which went on elsewhere
		return &goneError{errors.Join(errors.New("no more events"), broken)}
	case broken == nil && log.AtWait():
		return &goneError{errors.New("the apiserver has nothing behind a wait that was answered, or not kept")}
	case log.Last() > last, broken == nil, errors.Is(broken, api.ErrCut):
		*failing = time.Time{}
	case failing.IsZero():
		*failing = time.Now()
	case time.Since(*failing) > s.cfg.Patience:
		return &goneError{errors.Join(errors.New("no more events"), broken)}
	}
	_ = pause(ctx, jitter(300*time.Millisecond)) // its end is for the next attempt to find
	return nil
}

// resume takes over the run that was found open under a lease, and brings it to its end.
// The lease is the run's from here on.
func (s *runner) resume(w *writer) *run {
	_, lines := s.registry.knownEvents(w.chat, w.Open.Run)
	r := newRun(w.Open.Run, w.chat, w.Open.Body)
	r.identify(*w.Open)
	r.keyed = true // as far as is known
	r.trail = telemetry.Take(http.Header{telemetry.Header: {w.Open.Trace}})
	r.trail.Run, r.trail.Chat = r.id, r.chat.String()
	r.remote = true
	close(r.posted)
	s.registry.enlist(r)
	d := s.driver(r, w, w.Open.Events)
	d.abandoned, d.owner = true, w.Open.Process
	w.opened(*w.Open)
	d.log.Warn().Msg("finishing a run that another process left")
	s.metrics.takeovers.Inc()
	s.workers.Go(func() {
		err := d.catchUp(s.life, lines)
		if permanent(err) {
			s.leave(d, d.storeEnd(r.trail.In(s.life), err))
			return
		}
		if err != nil {
			d.log.Warn().Err(err).Msg("a left run's log could not be replayed")
			d.run.log.Abort(problem.FromError(err))
			_ = w.release(w.leave, &d.log)
			r.end()
			s.registry.retire(r)
			return
		}
		s.work(d)
	})
	return r
}

// deny brings the waiting run of a lease to its end as if its waits were denied. The lease is the
// run's from here on.
func (s *runner) deny(w *writer, why *denial) *run {
	open := redisstore.OpenRun{Run: w.Waiting.Run, Turn: w.Waiting.Turn}
	r := newRun(open.Run, w.chat, "")
	r.keyed, r.remote = true, true // as far as is known
	close(r.posted)
	s.registry.enlist(r)
	d := s.driver(r, w, "")
	d.abandoned = true
	s.workers.Go(func() {
		finished, err := d.denied(r.trail.In(s.life), why)
		if err != nil {
			d.log.Warn().Err(err).Msg("a run that waits was not ended; it is tried again")
			r.log.Abort(problem.FromError(err))
		}
		s.leave(d, finished)
	})
	return r
}
