// Package apiserver runs the master's requests and streams their events: the routes of package api, and those about
// documents and tools. A run belongs to the server, not to the socket it came by: only stop, erasure, its timeout and
// the server's end cancel it.
//
// It owns the registry of runs with their event logs, in memory, a goroutine for each run and one that drops runs of
// which nobody asks any more. Of a chat it stores nothing but its runs and, by package
// rag, its documents. It logs ids, never contents.
package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent"
)

// Agent runs one request to its end: it publishes the events 1, 2, 3 … in order,
// run_finished always last, and returns when that is published. The end of ctx
// ends the run; its cause is subagent.ErrStopped if the user asked for it.
type Agent interface {
	Run(ctx context.Context, r master.Request, publish func(event.Event) error)
}

// Server runs requests and serves their events. Close it.
type Server struct {
	cfg       Config
	agent     Agent
	subagents func() []api.SubagentInfo
	log       zerolog.Logger
	svc       *telemetry.Service
	metrics   metrics
	documents *documents
	places    *fair.Places // of runs at once
	work      *fair.Places // of runs that read their requests
	handler   http.Handler

	life    context.Context // parent of every run; ends with Close
	end     context.CancelCauseFunc
	janitor sync.WaitGroup

	mu            sync.Mutex // guards the rest, and run.over
	runs          map[string]*run
	finished      []*run // in the order they finished; a prefix of it leaves at a time
	finishedBytes int    // bytes held by finished
	draining      bool
}

// runPatience is how long a run waits for a place: shorter than webmemory waits for the answer.
const runPatience = 2 * time.Second

// New makes a server and starts the goroutine that forgets finished runs. subagents are those of the moment; nil for
// none.
func New(cfg Config, agent Agent, subagents func() []api.SubagentInfo, log zerolog.Logger) *Server {
	if subagents == nil {
		subagents = func() []api.SubagentInfo { return nil }
	}
	s := &Server{cfg: cfg.withDefaults(), agent: agent, subagents: subagents, log: log, runs: map[string]*run{}}
	s.places = fair.New(s.cfg.MaxRuns, runPatience)
	s.work = fair.ForProcessors()
	s.life, s.end = context.WithCancelCause(context.Background())
	if s.svc = cfg.Telemetry; s.svc == nil {
		s.svc = telemetry.Open("", log)
	}
	s.documents = &documents{cfg.Documents, subagents, s.cfg.MaxDocument, fair.New(putsAtOnce, putPatience)}
	s.metrics = newMetrics(s)
	s.handler = s.routes()
	s.janitor.Go(s.sweep)
	return s
}

// Handler serves the routes of package api, health and metrics.
func (s *Server) Handler() http.Handler { return s.handler }

// errShutdown is why runs end when the server does.
var errShutdown = subagent.Failure{
	Code: "shutting_down", Message: "The server shut down before the run was over.", Retryable: true,
}

// Drain refuses new runs and waits for the running ones. When ctx ends it stops
// those that are left, and waits StopGrace for them to publish their end. Events
// are served throughout. The error is that a run did not end.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	var running []*run
	for _, r := range s.runs {
		if !r.hasEnded() {
			running = append(running, r)
		}
	}
	s.mu.Unlock()
	if awaitAll(ctx, running) == nil {
		return nil
	}
	for _, r := range running {
		r.cancel(errShutdown)
	}
	if err := s.await(context.WithoutCancel(ctx), running...); err != nil {
		return fmt.Errorf("after %s: %w", s.cfg.StopGrace, err)
	}
	return nil
}

// Close stops what still runs, as Drain with no time left does, and frees the
// server's goroutines.
func (s *Server) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.Drain(now)
	s.end(errShutdown)
	s.janitor.Wait()
	return err
}

// await gives runs that were told to end StopGrace to do so.
func (s *Server) await(ctx context.Context, runs ...*run) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StopGrace)
	defer cancel()
	return awaitAll(ctx, runs)
}

// awaitAll waits until all runs have ended, or says that ctx did before.
func awaitAll(ctx context.Context, runs []*run) error {
	for _, r := range runs {
		select {
		case <-r.done:
		case <-ctx.Done():
			if !r.hasEnded() { // select takes either when both are ready
				return errStillEnding
			}
		}
	}
	return nil
}

// sweep forgets what is older than KeepFinished, until the server is closed.
func (s *Server) sweep() {
	tick := time.NewTicker(min(time.Minute, s.cfg.KeepFinished))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.trim()
			s.mu.Unlock()
		case <-s.life.Done():
			return
		}
	}
}
