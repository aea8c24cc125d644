package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"mneme/access"
	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent"
)

// run is one request and its events. After it is forgotten only its id and digest
// stay, until KeepFinished is over, so that a late copy of its request starts
// nothing.
type run struct {
	id     string
	chat   memory.Chat
	digest [32]byte // of the request
	log    *api.Log
	// Of what goes on with a run that waited: the number of the event.RunWaiting, and the fencing
	// token of the caller.
	resumeSeq, turn int64
	trail           telemetry.Trail
	cancel          context.CancelCauseFunc
	leave           func()        // its place among the runs at once
	done            chan struct{} // closed last of all: the agent has returned, the log is complete

	started time.Time
	endTime time.Time // guarded by Server.mu; set before ended is closed
	waitSeq int64     // the number of the event.RunWaiting that it ended with here; 0 for none; guarded as over
}

var (
	errTooManyRuns = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "too_many_runs", Retryable: true, RetryAfter: 2 * time.Second,
		Message: "As many runs as allowed are running, and none has ended in time; try again in a moment.",
	}
	errDraining = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: api.Draining, Retryable: true, RetryAfter: 5 * time.Second,
		Message: "The server is shutting down and takes no new runs.",
	}
	// The caller has told its client by then that nothing was done.
	errGivenUp = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "given_up", Retryable: true,
		Message: "Who asked for the run left before it began, so it was not begun.",
	}
	errConflict = &api.Problem{
		Status: http.StatusUnprocessableEntity, Code: api.RunConflict,
		Message: "There is a run with this id for another request; use a new id.",
	}
	errStillEnding = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "runs_still_ending", Retryable: true, RetryAfter: 2 * time.Second,
		Message: "Runs were told to end and have not done so yet; try again in a moment.",
	}
	errNotOver = &api.Problem{
		Status: http.StatusConflict, Code: "run_not_over", Retryable: true,
		Message: "The run is not over: wait for run_finished, or stop it.",
	}
)

func (r *run) hasEnded() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// start admits a request and runs it. The run's id is its idempotency key: a repeated
// request finds the run that the first one started, also a while after that is over, and
// another request under the same id is refused, by the digest. It runs for the caller's principal; no more of the
// caller's context is used. A run that waits has ended here; what goes on with it takes its place, and from then on
// the requests before are other ones.
func (s *Server) start(
	reqCtx context.Context, req master.Request, digest [32]byte, events *api.Log,
) (*run, error) {
	leave, full := s.places.Enter(reqCtx, req.Chat.Tenant())
	if full == nil {
		defer func() { leave() }() // unless the run takes it along
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.runs[req.RunID]
	switch {
	case current != nil && current.digest == digest:
		return current, nil
	case current != nil && !current.givesWay(req.Resume, events.Last()):
		return nil, errConflict
	case current != nil && !current.hasEnded():
		// The webmemory that holds the run asks once more, since the answer was lost; what began has no reader.
		current.cancel(subagent.ErrStopped)
		return nil, errStillEnding
	case reqCtx.Err() != nil:
		return nil, s.refuse(errGivenUp)
	case s.draining:
		return nil, s.refuse(errDraining)
	case full != nil:
		return nil, s.refuse(errTooManyRuns)
	}
	life := s.life
	if who, ok := access.Authenticated(reqCtx); ok {
		who.User = cmp.Or(req.User, who.User)
		life = access.With(life, who)
	}
	life, cancel := context.WithCancelCause(life)
	r := &run{
		id: req.RunID, chat: req.Chat, digest: digest, trail: telemetry.FromContext(reqCtx), cancel: cancel,
		log: events, done: make(chan struct{}), started: time.Now(), leave: leave,
	}
	leave = func() {}
	if req.Resume != nil {
		r.resumeSeq, r.turn = events.Last(), req.Resume.Turn
	}
	if current != nil {
		s.drop(current)
	}
	s.runs[r.id] = r
	s.metrics.started.Inc()
	go s.execute(life, r, req) // ends with the agent's Run; Drain and Close wait for it
	return r, nil
}

// givesWay says whether what goes on from an event takes the run's place: the run waits there, or waited before that and
// went on at another apiserver, or it went on here in an earlier turn of its chat.
func (r *run) givesWay(resume *master.Resume, seq int64) bool {
	return resume != nil && (r.waitSeq > 0 && r.waitSeq <= seq || r.resumeSeq > 0 && r.resumeSeq <= seq &&
		r.turn < resume.Turn)
}

func (s *Server) refuse(p *api.Problem) error {
	s.metrics.refused.WithLabelValues(p.Code).Inc()
	return p
}

// execute runs the agent and makes sure that the log has an end, also when the agent
// panicked or forgot it. The order at the end matters: the context is released first, so
// that nothing of the run works on; then the log gets its end, which readers wait for; only
// then the run counts as finished, and may be dropped.
func (s *Server) execute(ctx context.Context, r *run, req master.Request) {
	log := r.trail.Logger(s.log)
	spans, trail := newSpans(s.cfg.Traces, r.trail, req)
	ctx, release := context.WithTimeout(trail.In(ctx), s.cfg.RunTimeout)
	cause := event.Error{Code: event.Internal, Message: "The run ended without a result; the server's log says why.",
		Retryable: true}
	defer func() {
		if p := recover(); p != nil {
			log.Error().Str("panic", telemetry.PanicText(p)).Bytes("stack", debug.Stack()).Msg("a run panicked")
		}
		release()
		r.cancel(nil)
		if !r.log.Waiting() && r.log.End(cause, time.Now()) {
			log.Error().Msg("a run came back without its end")
		}
		spans.end(r.outcome())
		log.Info().Str("outcome", r.outcome()).Int64("events", r.log.Last()).
			Dur("took", time.Since(r.started)).Msg("run finished")
		s.finish(r)
	}()
	log.Debug().Str("agent", req.AgentVersion).Msg("run started")
	s.agent.Run(fair.With(ctx, s.work, req.Chat.Tenant()), req, func(e event.Event) error {
		if waiting, ok := e.Payload.(*event.RunWaiting); ok {
			s.keepConversation(ctx, req.Conversation, waiting.Pending)
		}
		spans.see(e)
		return r.log.Append(e)
	})
}

// waiting is the outcome of a run that waits, in logs and metrics.
const waiting = "waiting"

// outcome is how the run ended here.
func (r *run) outcome() string {
	if r.log.Waiting() {
		return waiting
	}
	return r.log.Outcome()
}

// finish moves a run from the running to the finished ones.
func (s *Server) finish(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.endTime = time.Now()
	r.leave()
	s.finished = append(s.finished, r)
	s.finishedBytes += r.log.Size()
	if r.log.Waiting() {
		r.waitSeq = r.log.Last()
	}
	s.metrics.seconds.WithLabelValues(r.outcome()).Observe(r.endTime.Sub(r.started).Seconds())
	close(r.done) // before trim can hide the run from Drain
	s.trim()
}

// trim lets the oldest finished runs go while they are too old, too many or too
// large. The caller holds mu.
func (s *Server) trim() {
	n := 0
	for _, r := range s.finished {
		if len(s.finished)-n <= s.cfg.KeepRuns && s.finishedBytes <= s.cfg.KeepBytes &&
			time.Since(r.endTime) < s.cfg.KeepFinished {
			break
		}
		s.drop(r)
		s.unlist(r)
		n++
	}
	clear(s.finished[:n])
	s.finished = s.finished[n:]
}

// drop lets go of a finished run's events. The caller holds mu.
func (s *Server) drop(r *run) {
	s.finishedBytes -= r.log.Size()
	r.log.Drop()
}

// find gives the run with this id.
func (s *Server) find(id string) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[id]; r != nil {
		return r, nil
	}
	return nil, api.ErrUnknownRun
}

// ofChat gives all runs of a chat, running or not.
func (s *Server) ofChat(chat memory.Chat) []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	var runs []*run
	for _, r := range s.runs {
		if r.chat == chat {
			runs = append(runs, r)
		}
	}
	return runs
}

// unlist forgets that there was a run with this id. The caller holds mu.
func (s *Server) unlist(r *run) {
	if s.runs[r.id] == r {
		delete(s.runs, r.id)
	}
}

// erase forgets runs that have ended as if they had never been.
func (s *Server) erase(runs ...*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		s.drop(r)
		s.unlist(r)
	}
}
