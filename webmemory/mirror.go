package webmemory

import (
	"context"
	"errors"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
)

// mirrorEvery is how often the log of another process's run is read.
const mirrorEvery = 150 * time.Millisecond

// lookEvery is how often a log that does not grow is looked at more closely.
const lookEvery = time.Second

// lastMoment is when a stream ends whatever happens: a run ends before it, so who
// still waits then waits for nothing.
func (s *Server) lastMoment() time.Duration { return s.cfg.RunTimeout + s.cfg.Lease }

// mirror is a run of another process, read from its log in Redis for as long as
// ctx. finished: its log will not grow, so an empty one is gone. A log that vanished,
// or lost its beginning, is waited for: Redis may have lost it under a run that goes
// on, whose owner writes it anew at its next renewal.
func (s *Server) mirror(ctx context.Context, chat memory.Chat, id string, finished bool) *run {
	r := newRun(id, chat, "")
	r.elsewhere, r.finished = true, finished
	close(r.posted)
	s.workers.Go(func() {
		defer r.end()
		last := time.NewTimer(s.lastMoment())
		defer last.Stop()
		var missing, looked time.Time // since when the log lacks what was read or comes next; when that was asked
		for !r.log.Done() {
			before := r.log.Last()
			logged, err := s.store.Events(ctx, chat, id, before, batch)
			for _, l := range logged {
				var e event.Event
				if e, err = event.Decode(l.Line); err == nil {
					err = r.log.Append(e)
				}
				if err != nil {
					break
				}
			}
			grown := r.log.Last() > before
			sound := grown
			if err == nil && !grown && !finished && time.Since(looked) >= lookEvery {
				looked = time.Now()
				err = s.stillLogged(ctx, r)
				sound = err == nil
			}
			switch {
			case ctx.Err() != nil:
			case finished && errors.Is(err, memory.ErrUnavailable):
				r.log.Abort(problemOf(err))
				return
			case errors.Is(err, memory.ErrUnavailable):
			case finished && !grown && !r.log.Done():
				r.log.Abort(api.ErrGone)
				return
			case sound:
				missing = time.Time{}
			case err != nil && missing.IsZero():
				missing = time.Now()
			case err != nil && time.Since(missing) > s.cfg.Lease:
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
				r.log.Abort(problemOf(errShutdown))
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
func (s *Server) stillLogged(ctx context.Context, r *run) error {
	line, err := s.store.LastEvent(ctx, r.chat, r.id)
	if err != nil {
		return err
	}
	if line == nil && r.log.Last() == 0 { // it may not have begun yet
		record, err := s.store.Record(ctx, r.chat, r.id)
		if err == nil && record == nil {
			err = errUnlogged
		}
		return err
	}
	newest, err := event.Decode(line)
	if err != nil || newest.Seq < r.log.Last() {
		return errUnlogged
	}
	return nil
}
