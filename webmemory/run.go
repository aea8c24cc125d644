package webmemory

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
)

// patience is how long a run whose events do not come is waited for.
const patience = 15 * time.Second

// run is one request while it is answered, and for a while after.
type run struct {
	id   string
	chat memory.Chat
	body string   // hash of what was posted; the same key with another body is refused
	log  *api.Log // its events, each stored before it is here

	posted chan struct{} // closed once the apiserver has the run, or never will
	done   chan struct{} // closed when nothing more happens

	mu    sync.Mutex
	at    *api.Client // guarded by mu: where the run is; nil before it is posted
	ended time.Time   // guarded by mu; zero while it runs
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

}

// drive follows a run to its end. It belongs to the server: no client's leaving
// ends it.
func (d *driver) drive(ctx context.Context) {
	err := d.follow(ctx)
	if gone := new(goneError); errors.As(err, &gone) {
		d.log.Error().Err(err).Msg("the apiserver lost a run; it is closed here")
		err = d.closeRun()
	}
	if err != nil {
		d.abandon(err)
		return
	}
	if err := d.turn.trim(d.server.cfg.MaxHistory); err != nil {
		d.log.Warn().Err(err).Msg("histories could not be trimmed")
	}
}

// goneError says that a run's events will not come any more.
type goneError struct{ cause error }

func (e *goneError) Error() string {
	return "the run's events ended before the run: " + e.cause.Error()
}
func (e *goneError) Unwrap() error { return e.cause }

// follow reads the run's events, over as many connections as it takes.
func (d *driver) follow(ctx context.Context) error {
	progress := time.Now()
	for {
		var broken error
		for e, err := range d.runs.Events(ctx, d.events, d.run.log.Last()) {
			if err != nil {
				broken = err
				break
			}
			progress = time.Now()
			if err := d.take(e); err != nil {
				return err
			}
			if e.Terminal() {
				return nil
			}
		}
		var problem *api.Problem
		switch {
		case d.turn.ctx.Err() != nil:
			return context.Cause(d.turn.ctx)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(broken, &problem) && (problem.Status == http.StatusNotFound || problem.Status == http.StatusGone),
			time.Since(progress) > patience:
			return &goneError{errors.Join(errors.New("no more events"), broken)}
		}
		select {
		case <-time.After(jitter(300 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// take stores one event, then shows it.
func (d *driver) take(e event.Event) error {
	if e.Seq <= d.run.log.Last() {
		return nil // sent again after a reconnect
	}
	if err := d.fold.Apply(e); err != nil {
		return err
	}
	switch p := e.Payload.(type) {
	case *event.Delegation:
		d.server.sessions.write(d.run.chat, "delegation to %s saved: %s", e.Subagent, p.Task)
	case *event.Completion:
		d.server.sessions.write(d.run.chat, "answer of %s saved (%s): %s", e.Subagent, p.Status, p.Response)
	case *event.Assistant:
		d.server.sessions.write(d.run.chat, "answer saved: %s", p.Content)
	case *event.Error:
		d.server.sessions.write(d.run.chat, "error %s: %s", p.Code, p.Message)
	case *event.RunFinished:
		d.server.sessions.write(d.run.chat, "run %s finished: %s", d.run.id, p.Outcome)
		d.server.metrics.runs.WithLabelValues(p.Outcome).Inc()
	}
	return d.run.log.Append(e)
}

// closeRun stores the end that a lost run did not get.
func (d *driver) closeRun() error {
	lost := event.Error{
		Code: "run_lost", Retryable: true,
		Message: "The service that worked on this message was lost; please send it again.",
	}
	for _, e := range d.run.log.Closing(lost, time.Now()) {
		if err := d.take(e); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends a run whose events cannot be stored here: its readers get an
// error that is no event of the run, and the apiserver stops working on it.
func (d *driver) abandon(cause error) {
	p := problemOf(cause)
	d.log.Error().Err(cause).Str("code", p.Code).Int64("seq", d.run.log.Last()).Msg("a run was abandoned")
	d.server.metrics.runs.WithLabelValues("abandoned").Inc()
	d.server.sessions.write(d.run.chat, "run %s abandoned: %s", d.run.id, p.Code)
	d.run.log.Abort(p)
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := d.runs.Stop(ctx, d.run.id); err != nil {
		d.log.Warn().Err(err).Msg("the apiserver could not be told to stop")
	}
}

// result is a run's end as one JSON answer.
type result struct {
	RunID     string           `json:"run_id"`
	Content   string           `json:"content"`
	Citations []event.Citation `json:"citations"`
	Usage     event.Usage      `json:"usage"`
	Outcome   string           `json:"outcome"`
	Partial   bool             `json:"partial,omitempty"`
}

// collect waits for a run's end.
func (r *run) collect(ctx context.Context) (result, error) {
	out := result{RunID: r.id, Citations: []event.Citation{}}
	var failure *event.Error
	for e, err := range r.log.Follow(ctx, 0) {
		if err != nil {
			return out, err
		}
		switch p := e.Payload.(type) {
		case *event.Assistant:
			out.Content, out.Partial = p.Content, p.Partial
			out.Citations = append(out.Citations, p.Citations...)
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
			failure = &event.Error{Code: "run_failed", Message: "The run failed."}
		}
		return out, &api.Problem{
			Status: http.StatusBadGateway, Code: failure.Code, Message: failure.Message, Retryable: failure.Retryable,
		}
	}
	return out, nil
}
