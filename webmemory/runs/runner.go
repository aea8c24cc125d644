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

// Runner drives runs to their end or to where they wait, those of this process (driver) and those that another one
// left. It writes the run's log, its record and, by the writer, the histories, all under the lease that it is handed
// and gives back. An event is stored before any reader sees it.
type Runner struct {
	*node.Core
	Registry   *Registry
	Peers      *node.Peers
	StoreWatch *node.StoreWatch
	Webhooks   *Webhooks
	ToolCalls  *ToolCalls
}

// Driver makes the driver of a run under a chat's lease. events is the URL of its events;
// empty for that of the configured apiserver.
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

// NoteRun keeps a record of a run; found is one that is there already.
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

// Count has a run counted among those that its key, its tenant and its user may have at once, until it ends or waits
// for an answer. One that is counted already stays so.
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

// Access lets a run's agents reach this process, which holds it. windows is as for lend.
func (s *Runner) Access(r *Run, windows map[memory.Key]Windowed) *api.MemoryAccess {
	a := &api.MemoryAccess{URL: s.Cfg.SelfURL + node.InternalPath + "/runs/" + r.ID, Token: rand.Text()}
	r.lend(a.Token, windows)
	return a
}

// Work drives a run to its end and gives the chat's lease back.
func (s *Runner) Work(d *Driver) {
	ctx, cancel := context.WithTimeout(d.Run.Trail.In(s.Life), s.Cfg.RunTimeout)
	defer cancel()
	s.Metrics.Running.Inc()
	finished := d.drive(ctx)
	s.Metrics.Running.Dec()
	s.leave(d, finished)
}

// leave gives the chat's lease back after a run was driven, and lets go of the run. No
// caller waits for what is left after its end: that the apiserver may forget it, and that
// its log in Redis shrinks to what it needs.
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
		s.Registry.ForgetRun(d.Run) // from here on it is that of any process
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

// suspended tells of a run that was.
func (s *Runner) suspended(d *Driver) {
	s.Metrics.Runs.WithLabelValues(webapi.OutcomeWaiting).Inc()
	pending := d.Run.openWaits()
	s.Webhooks.tellWebhook(d.Run.Chat, d.Run.ID, pending)
	d.Log.Info().Int("waits", len(pending)).Int64("events", d.Run.Log.Last()).Msg("run waits")
}

// Forget stops a run at the apiserver that is not followed.
func (s *Runner) Forget(r *Run) {
	ctx, cancel := context.WithTimeout(r.Trail.In(context.Background()), node.StoreTimeout)
	defer cancel()
	_ = s.Runs.Stop(ctx, r.ID) // not there in most cases, and bounded by run_timeout in the others
}

// Reconnect judges the end of a connection to a run that is not over, as again does. What will not come any more
// is a GoneError.
func (s *Runner) Reconnect(ctx context.Context, log *api.Log, broken error, last int64, failing *time.Time) error {
	var p *api.Problem
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(broken, &p) && (p.Status == http.StatusNotFound || p.Status == http.StatusGone ||
		p.Status == http.StatusBadRequest): // it has an earlier leg of the run, which went on elsewhere
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
	_ = node.Pause(ctx, node.Jitter(300*time.Millisecond)) // its end is for the next attempt to find
	return nil
}

// Resume takes over the run that was found open under a lease, and brings it to its end.
// The lease is the run's from here on.
func (s *Runner) Resume(w *Writer) *Run {
	_, lines := s.Registry.KnownEvents(w.Chat, w.Open.Run)
	r := NewRun(w.Open.Run, w.Chat, w.Open.Body)
	r.Identify(*w.Open)
	r.Keyed = true // as far as is known
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

// Deny brings the waiting run of a lease to its end as if its waits were denied. The lease is the
// run's from here on.
func (s *Runner) Deny(w *Writer, why *Denial) *Run {
	open := redisstore.OpenRun{Run: w.Waiting.Run, Turn: w.Waiting.Turn}
	r := NewRun(open.Run, w.Chat, "")
	r.Keyed, r.remote = true, true // as far as is known
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
