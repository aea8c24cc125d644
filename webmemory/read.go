package webmemory

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
	"mneme/webmemory/problem"
)

// This file is about looking at runs. A run of another process is read from its log in Redis.

// streams shows the events of runs to readers, of this process's runs and, by mirroring their logs in Redis, of other
// processes'. It writes nothing.
type streams struct {
	*core
	registry   *registry
	storeWatch *storeWatch
}

// pageSize is how many messages or chats one answer lists, maxPage the most.
const pageSize, maxPage = 100, 1000

// staleFor is how long after the last contact with Redis copies are still shown.
// Later on they could be of a chat that was erased elsewhere.
const staleFor = time.Minute

// getEvents is GET …/runs/{run}/events: the events after Last-Event-ID, from
// whichever process has the run.
func (s *streams) getEvents(c *gin.Context) error {
	chat, r, err := s.registry.find(c)
	if err != nil {
		return err
	}
	if r == nil || !r.accepted() {
		ctx := c.Request.Context()
		record, err := s.store.Runs.Record(ctx, chat, c.Param("run"))
		if err != nil {
			return err
		}
		if record == nil || record.Rewound {
			return errUnknownRun
		}
		r = s.mirror(ctx, chat, c.Param("run"), len(record.Result) > 0)
	}
	return s.serveEvents(c, r)
}

var errUnknownRun = &api.Problem{
	Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
	Message: "This chat has no such run, or it ended long ago; what it stored is in the chat's history.",
}

// serveEvents answers with a run's events from the request's position on.
func (s *streams) serveEvents(c *gin.Context, r *run) error {
	if r.remote {
		if err := s.caughtUp(r, c.Request); err != nil {
			return err
		}
	}
	c.Header(webapi.RunID, r.id)
	s.metrics.readers.Inc()
	defer s.metrics.readers.Dec()
	api.ServeEvents(c.Writer, c.Request, r.log, api.Pace{Heartbeat: s.cfg.Heartbeat})
	return nil
}

// caughtUp waits until the log of a run that another process had holds what the
// request has seen already: what that process showed may have to come out of its
// spool first. An event that does not come, since the run was closed without it, is
// gone. Of a finished run it waits for one event more, which tells whether there is
// anything to send.
func (s *streams) caughtUp(r *run, req *http.Request) error {
	lastID, err := api.LastEventID(req)
	if err != nil {
		return err
	}
	want := lastID
	if r.finished {
		want++
	}
	ctx, cancel := context.WithTimeout(req.Context(), s.cfg.ResumeWait)
	defer cancel()
	err = r.log.Reach(ctx, want)
	if err == nil && r.log.AtWait() && r.log.Last() == lastID { // does it wait, or go on?
		_ = r.log.Reach(ctx, lastID+1)
		return nil
	}
	switch {
	case err == nil, errors.Is(err, api.ErrGone) && r.log.Done() && r.log.Last() == lastID:
		return nil
	case req.Context().Err() != nil:
		return context.Cause(req.Context())
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if !s.storeWatch.health.get().downSince.IsZero() {
		return memory.ErrUnavailable
	}
	return api.ErrGone
}

// mirrorEvery is how often the log of another process's run is read.
const mirrorEvery = 150 * time.Millisecond

// lookEvery is how often a log that does not grow is looked at more closely.
const lookEvery = time.Second

// lastMoment is after which time a stream of another process's run ends whatever happens:
// the run has ended before it, so a reader that still waits then waits for nothing.
func (s *streams) lastMoment() time.Duration { return s.cfg.RunTimeout + s.cfg.Lease }

// mirror polls a run of another process from its log in Redis, for as long as ctx.
// finished: the log will not grow, so an empty one is gone. A log that vanished, or lost
// its beginning, is waited for: Redis may have lost it under a run that goes on; the
// run's holder writes it anew when it renews its lease.
func (s *streams) mirror(ctx context.Context, chat memory.Chat, id string, finished bool) *run {
	r := newRun(id, chat, "")
	r.remote, r.finished = true, finished
	close(r.posted)
	s.workers.Go(func() {
		defer r.end()
		last := time.NewTimer(s.lastMoment())
		defer last.Stop()
		var missingSince, checkedAt time.Time // since when the log lacks what was read or comes next; when that was asked
		for !r.log.Done() && !r.log.Waiting() {
			prevSeq := r.log.Last()
			logged, err := s.store.Runs.Events(ctx, chat, id, prevSeq, batch)
			for _, l := range logged {
				var e event.Event
				if e, err = event.Decode(l.Line); err == nil {
					if e.Blocking() { // whether the run still does is looked for when nothing follows
						r.log.GoOn()
					}
					err = r.log.Append(e)
				}
				if err != nil {
					break
				}
			}
			grown := r.log.Last() > prevSeq
			sound := grown
			if err == nil && !grown && r.log.AtWait() {
				if rest, failed := s.store.Suspensions.Rest(ctx, chat); failed == nil && rest != nil && rest.Run == id {
					r.log.Rest()
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
				r.log.Abort(problem.FromError(err))
				return
			case errors.Is(err, memory.ErrUnavailable):
			case finished && !grown && !r.log.Done():
				r.log.Abort(api.ErrGone)
				return
			case sound:
				missingSince = time.Time{}
			case err != nil && missingSince.IsZero():
				missingSince = time.Now()
			case errors.Is(err, errMayRun) && time.Since(missingSince) > s.cfg.Lease:
				r.log.Abort(errMayRun)
				return
			case err != nil && time.Since(missingSince) > s.cfg.Lease:
				r.log.Abort(api.ErrGone)
				return
			}
			if grown && len(logged) >= batch {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-s.life.Done():
				r.log.Abort(problem.FromError(problem.ErrShutdown))
				return
			case <-last.C:
				r.log.Abort(api.ErrGone)
				return
			case <-time.After(mirrorEvery):
			}
		}
	})
	return r
}

// errUnlogged: what was read of a run's log is not there any more.
var errUnlogged = errors.New("the run's log is gone")

// stillLogged looks whether the log of a mirrored run still holds what was read of it.
func (s *streams) stillLogged(ctx context.Context, r *run) error {
	line, err := s.store.Runs.LastEvent(ctx, r.chat, r.id)
	if err != nil {
		return err
	}
	if line == nil && r.log.Last() == 0 { // it may not have begun yet
		record, err := s.store.Runs.Record(ctx, r.chat, r.id)
		exists := err == nil && record != nil
		if exists && !record.Done() { // a record that is no chat's open run is of one that began nowhere, see recordOf
			exists, err = isNamed(ctx, s.store, r.chat, r.id)
		}
		if err == nil && !exists { // its process died, or was refused, before anything was shown
			err = errMayRun
		}
		return err
	}
	newest, err := event.Decode(line)
	if err != nil || newest.Seq < r.log.Last() {
		return errUnlogged
	}
	return nil
}
