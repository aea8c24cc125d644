package runs

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
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// Runner drives runs of this process, and runs that another process left, until they end or wait. It writes the run's
// log, its record and, through Writer, the histories, under a lease that it receives and releases. An event is stored
// before any reader sees it.
type Runner struct {
	*node.Core
	Registry   *Registry
	Peers      *node.Peers
	StoreWatch *node.StoreWatch
	Webhooks   *Webhooks
	ToolCalls  *ToolCalls
}

// Driver returns the driver of a run under the chat's lease in w. events is the URL of the run's events; "" selects the
// configured apiserver.
func (s *Runner) Driver(r *Run, w *Writer, events string) *Driver {
	if events == "" {
		events = s.Runs.EventsURL(r.ID)
	}
	client, err := s.Runs.ForEvents(events)
	if err != nil {
		client = s.Runs
	}
	r.Mu.Lock()
	r.Client, r.conversation, r.LeaseToken = client, w.Conversation, w.Token
	r.Mu.Unlock()
	r.Turn.Store(w.Number)
	w.run, w.logged = r.ID, r.Logged
	var sink event.Sink = w
	if s.Cfg.Traces != nil {
		sink = tracedSink{w, s.Cfg.Traces, r}
	}
	return &Driver{
		runner: s, Run: r, writer: w, runs: client, events: events, fold: event.NewHistories(r.Chat, sink),
		Log: r.Trail.Logger(s.Log),
	}
}

// NoteRun stores a record of r. If a record already exists, NoteRun returns it.
func (s *Runner) NoteRun(ctx context.Context, r *Run) (record *redisstore.Record, err error) {
	begin := s.Store.Runs.Begin
	if !r.Keyed {
		begin = s.Store.Runs.BeginUnkeyed
	}
	record, err = begin(ctx, r.Chat, r.ID, r.Body)
	if record != nil && record.Body == r.Body {
		if record, err = RecordOf(ctx, s.Store, r); record == nil && err == nil {
			s.Metrics.Faults.WithLabelValues(node.DeadPost).Inc()
			s.Log.Warn().EmbedObject(r.Trail).Msg("a process died between a post and its run; it begins with this repetition")
		}
	}
	if err != nil || record != nil || r.Attempt <= 1 {
		return record, err
	}
	return nil, s.Store.Runs.Retried(ctx, r.Chat, r.First, r.Body, r.Attempt)
}

// Count counts a run against the concurrency limits of its key, tenant and user until it ends or waits for an answer.
// Counting is idempotent.
func (s *Runner) Count(ctx context.Context, r *Run) (err error) {
	if s.Cfg.Limiter == nil || r.Counted != nil {
		return nil
	}
	who := access.FromContext(ctx)
	who.User = r.User.ID()
	r.Counted, err = s.Cfg.Limiter.Enter(ctx, who, r.ID)
	var refused *limit.Refusal
	switch {
	case errors.As(err, &refused):
		return api.ProblemOf(event.Fail(event.OwnRate, err.Error(), refused.RetryAfter))
	case errors.Is(err, limit.ErrAway):
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	return err
}

// Access lets a run's agents reach this process, which holds the run. windows is as in lend.
func (s *Runner) Access(r *Run, windows map[memory.Key]Windowed) *api.MemoryAccess {
	a := &api.MemoryAccess{URL: s.Cfg.SelfURL + node.InternalPath + "/runs/" + r.ID, Token: rand.Text()}
	r.lend(a.Token, windows)
	return a
}

// Work drives a run until it ends or waits, and releases the chat's lease.
func (s *Runner) Work(d *Driver) {
	ctx, cancel := context.WithTimeout(d.Run.Trail.In(s.Life), s.Cfg.RunTimeout)
	defer cancel()
	s.Metrics.Running.Inc()
	finished := d.drive(ctx)
	s.Metrics.Running.Dec()
	s.leave(d, finished)
}

// leave releases the chat's lease after a run was driven and updates the registry. It then lets the apiserver forget
// the run and packs the run's log in Redis. No caller waits for this.
//
//go:noinline
func (s *Runner) leave(d *Driver, finished bool) {
	giveBack, waiting := d.writer.Leave, finished && d.isWaiting()
	switch {
	case waiting:
		giveBack = d.Rest
	case finished:
		giveBack = d.writer.End
	}
	d.Run.Close()
	_ = d.writer.Release(giveBack, &d.Log)
	d.Run.End()
	if waiting {
		s.Registry.ForgetRun(d.Run) // from here on, any process may resume it
		s.suspended(d)
	} else {
		s.Registry.retire(d.Run)
	}
	if !finished {
		return // the apiserver keeps the run for the process that finishes it
	}
	done, stop := context.WithTimeout(d.Run.Trail.In(context.Background()), node.StoreTimeout)
	defer stop()
	if err := d.runs.Done(done, d.Run.ID, d.Run.Log.Last()); err != nil {
		d.Log.Debug().Err(err).Msg("the apiserver was not told that a run is stored")
	}
	if waiting {
		return
	}
	packing, stop := context.WithTimeout(s.Life, node.StoreTimeout)
	defer stop()
	if err := s.Store.Runs.Pack(packing, d.Run.Chat, d.Run.ID, d.Run.Logged()...); err != nil && s.Life.Err() == nil {
		d.Log.Debug().Err(err).Msg("a run's log was not packed; it goes as it is when its time is over")
	}
}

// suspended reports a suspended run to the metrics, the webhook and the log.
func (s *Runner) suspended(d *Driver) {
	s.Metrics.Runs.WithLabelValues(webapi.OutcomeWaiting).Inc()
	pending := d.Run.openWaits()
	s.Webhooks.tellWebhook(d.Run.Chat, d.Run.ID, pending)
	d.Log.Info().Int("waits", len(pending)).Int64("events", d.Run.Log.Last()).Msg("run waits")
}

// Forget stops a run at the apiserver. The run has no driver.
func (s *Runner) Forget(r *Run) {
	ctx, cancel := context.WithTimeout(r.Trail.In(context.Background()), node.StoreTimeout)
	defer cancel()
	_ = s.Runs.Stop(ctx, r.ID) // it rarely exists there; otherwise run_timeout bounds it
}

// Reconnect handles the end of a connection to an unfinished run and waits before the next one. broken and last are as
// in Driver.reconnect. failing is the start of the current failures. If no more events will arrive, the error is a
// GoneError.
func (s *Runner) Reconnect(ctx context.Context, log *api.Log, broken error, last int64, failing *time.Time) error {
	var p *api.Problem
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(broken, &p) && (p.Status == http.StatusNotFound || p.Status == http.StatusGone ||
		p.Status == http.StatusBadRequest): // it has an earlier part of the run, which continued elsewhere
		return &GoneError{errors.Join(errors.New("no more events"), broken)}
	case broken == nil && log.AtWait():
		return &GoneError{errors.New("the apiserver has nothing behind a wait that was answered, or not kept")}
	case log.Last() > last, broken == nil, errors.Is(broken, api.ErrCut):
		*failing = time.Time{}
	case failing.IsZero():
		*failing = time.Now()
	case time.Since(*failing) > s.Cfg.Patience:
		return &GoneError{errors.Join(errors.New("no more events"), broken)}
	}
	_ = node.Pause(ctx, node.Jitter(300*time.Millisecond)) // the next attempt notices the end of ctx
	return nil
}

// Resume takes over the open run of a lease and drives it to its end. The run then owns the lease.
func (s *Runner) Resume(w *Writer) *Run {
	_, lines := s.Registry.KnownEvents(w.Chat, w.Open.Run)
	r := NewRun(w.Open.Run, w.Chat, w.Open.Body)
	r.Identify(*w.Open)
	r.Keyed = true // assumed
	r.Trail = telemetry.Take(http.Header{telemetry.Header: {w.Open.Trace}})
	r.Trail.Run, r.Trail.Chat = r.ID, r.Chat.String()
	r.remote = true
	close(r.Posted)
	s.Registry.Enlist(r)
	d := s.Driver(r, w, w.Open.Events)
	d.abandoned, d.owner = true, w.Open.Process
	w.Opened(*w.Open)
	d.Log.Warn().Msg("finishing a run that another process left")
	s.Metrics.Takeovers.Inc()
	s.Workers.Go(func() {
		err := d.catchUp(s.Life, lines)
		if permanent(err) {
			s.leave(d, d.storeEnd(r.Trail.In(s.Life), err))
			return
		}
		if err != nil {
			d.Log.Warn().Err(err).Msg("a left run's log could not be replayed")
			d.Run.Log.Abort(problem.FromError(err))
			_ = w.Release(w.Leave, &d.Log)
			r.End()
			s.Registry.retire(r)
			return
		}
		s.Work(d)
	})
	return r
}

// Deny ends the waiting run of a lease as if its waits were denied. The run then owns the lease.
func (s *Runner) Deny(w *Writer, why *Denial) *Run {
	open := redisstore.OpenRun{Run: w.Waiting.Run, Turn: w.Waiting.Turn}
	r := NewRun(open.Run, w.Chat, "")
	r.Keyed, r.remote = true, true // Keyed is assumed until Identify
	close(r.Posted)
	s.Registry.Enlist(r)
	d := s.Driver(r, w, "")
	d.abandoned = true
	s.Workers.Go(func() {
		finished, err := d.denied(r.Trail.In(s.Life), why)
		if err != nil {
			d.Log.Warn().Err(err).Msg("a run that waits was not ended; it is tried again")
			r.Log.Abort(problem.FromError(err))
		}
		s.leave(d, finished)
	})
	return r
}
