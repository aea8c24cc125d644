package runs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// Streams sends the events of runs to readers. It mirrors the runs of other processes from their logs in Redis. It
// writes nothing.
type Streams struct {
	*node.Core
	Registry   *Registry
	StoreWatch *node.StoreWatch
}

// GetEvents handles GET …/runs/{run}/events. It sends the events after Last-Event-ID, whichever process has the run.
func (s *Streams) GetEvents(c *gin.Context) error {
	chat, r, err := s.Registry.Find(c)
	if err != nil {
		return err
	}
	if r == nil || !r.accepted() {
		ctx := c.Request.Context()
		record, err := s.Store.Runs.Record(ctx, chat, c.Param("run"))
		if err != nil {
			return err
		}
		if record == nil || record.Rewound {
			return problem.ErrUnknownRun
		}
		r = s.Mirror(ctx, chat, c.Param("run"), len(record.Result) > 0)
	}
	return s.ServeEvents(c, r)
}

// ServeEvents sends a run's events from the request's position.
func (s *Streams) ServeEvents(c *gin.Context, r *Run) error {
	if r.remote {
		if err := s.caughtUp(r, c.Request); err != nil {
			return err
		}
	}
	c.Header(webapi.RunID, r.ID)
	s.Metrics.Readers.Inc()
	defer s.Metrics.Readers.Dec()
	api.ServeEvents(c.Writer, c.Request, r.Log, api.Pace{Heartbeat: s.Cfg.Heartbeat})
	return nil
}

// caughtUp waits until the log of another process's run has all events that the client has seen. They may still be in
// that process's spool. If the run was closed without such an event, the error is api.ErrGone. For an ended run,
// caughtUp waits for one more event to find out whether there is anything to send.
func (s *Streams) caughtUp(r *Run, req *http.Request) error {
	lastID, err := api.LastEventID(req)
	if err != nil {
		return err
	}
	want := lastID
	if r.finished {
		want++
	}
	ctx, cancel := context.WithTimeout(req.Context(), s.Cfg.ResumeWait)
	defer cancel()
	err = r.Log.Reach(ctx, want)
	if err == nil && r.Log.AtWait() && r.Log.Last() == lastID { // find out whether the run has resumed
		_ = r.Log.Reach(ctx, lastID+1)
		return nil
	}
	switch {
	case err == nil, errors.Is(err, api.ErrGone) && r.Log.Done() && r.Log.Last() == lastID:
		return nil
	case req.Context().Err() != nil:
		return context.Cause(req.Context())
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if !s.StoreWatch.Health.Get().DownSince.IsZero() {
		return memory.ErrUnavailable
	}
	return api.ErrGone
}

// mirrorEvery is the interval between reads of the log of another process's run.
const mirrorEvery = 150 * time.Millisecond

// lookEvery is the interval between closer checks of a log that does not grow.
const lookEvery = time.Second

// lastMoment returns the maximum duration of a stream of another process's run. The run has ended by then.
func (s *Streams) lastMoment() time.Duration { return s.Cfg.RunTimeout + s.Cfg.Lease }

// Mirror polls a run of another process from its log in Redis until ctx ends. finished means that the log does not
// grow, so an empty log results in api.ErrGone.
//
// If a log disappears or loses its beginning, Mirror waits for up to Cfg.Lease. Redis may have lost the log of an
// active run, whose holder rewrites it when it renews its lease.
func (s *Streams) Mirror(ctx context.Context, chat memory.Chat, id string, finished bool) *Run {
	r := NewRun(id, chat, "")
	r.remote, r.finished = true, finished
	close(r.Posted)
	s.Workers.Go(func() {
		defer r.End()
		last := time.NewTimer(s.lastMoment())
		defer last.Stop()
		var missingSince, checkedAt time.Time // when the log was first incomplete; time of the last check
		for !r.Log.Done() && !r.Log.Waiting() {
			prevSeq := r.Log.Last()
			logged, err := s.Store.Runs.Events(ctx, chat, id, prevSeq, Batch)
			for _, l := range logged {
				var e event.Event
				if e, err = event.Decode(l.Line); err == nil {
					if e.Blocking() { // if no event follows, Rest shows whether the run still waits
						r.Log.GoOn()
					}
					err = r.Log.Append(e)
				}
				if err != nil {
					break
				}
			}
			grown := r.Log.Last() > prevSeq
			sound := grown
			if err == nil && !grown && r.Log.AtWait() {
				if rest, failed := s.Store.Suspensions.Rest(ctx, chat); failed == nil && rest != nil && rest.Run == id {
					r.Log.Rest()
					return
				}
			}
			if err == nil && !grown && !finished && time.Since(checkedAt) >= lookEvery {
				checkedAt = time.Now()
				err = s.stillLogged(ctx, r)
				sound = err == nil
			}
			switch {
			case ctx.Err() != nil:
			case finished && errors.Is(err, memory.ErrUnavailable):
				r.Log.Abort(problem.FromError(err))
				return
			case errors.Is(err, memory.ErrUnavailable):
			case finished && !grown && !r.Log.Done():
				r.Log.Abort(api.ErrGone)
				return
			case sound:
				missingSince = time.Time{}
			case err != nil && missingSince.IsZero():
				missingSince = time.Now()
			case errors.Is(err, problem.ErrMayRun) && time.Since(missingSince) > s.Cfg.Lease:
				r.Log.Abort(problem.ErrMayRun)
				return
			case err != nil && time.Since(missingSince) > s.Cfg.Lease:
				r.Log.Abort(api.ErrGone)
				return
			}
			if grown && len(logged) >= Batch {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-s.Life.Done():
				r.Log.Abort(problem.FromError(problem.ErrShutdown))
				return
			case <-last.C:
				r.Log.Abort(api.ErrGone)
				return
			case <-time.After(mirrorEvery):
			}
		}
	})
	return r
}

// errUnlogged indicates that a run's log has lost events that were read from it.
var errUnlogged = errors.New("the run's log is gone")

// stillLogged checks whether the log of a mirrored run still has the events that were read from it. It returns
// errUnlogged if not, and problem.ErrMayRun if the run never began.
func (s *Streams) stillLogged(ctx context.Context, r *Run) error {
	line, err := s.Store.Runs.LastEvent(ctx, r.Chat, r.ID)
	if err != nil {
		return err
	}
	if line == nil && r.Log.Last() == 0 { // the run may not have begun yet
		record, err := s.Store.Runs.Record(ctx, r.Chat, r.ID)
		exists := err == nil && record != nil
		if exists && !record.Done() { // a run that the chat's meta does not name never began; see RecordOf
			exists, err = IsNamed(ctx, s.Store, r.Chat, r.ID)
		}
		if err == nil && !exists { // its process died, or was refused, before it showed any event
			err = problem.ErrMayRun
		}
		return err
	}
	newest, err := event.Decode(line)
	if err != nil || newest.Seq < r.Log.Last() {
		return errUnlogged
	}
	return nil
}
