package webmemory

import (
	"context"
	"errors"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
)

// This file is about runs of other processes: those that died, whose runs are
// brought to their end here, and those that live, whose runs are read here.

// mirrorEvery is how often the log of another process's run is read.
const mirrorEvery = 150 * time.Millisecond

// spooledEvery is how often a chat's turn is tried for while the spool holds some
// of it: this process should be the first to go on, since it knows most.
const spooledEvery = 500 * time.Millisecond

// lookAfter looks, three times in the life of a lease, for what others left: it
// finishes runs whose holders died and drains the spool, also of chats that
// nobody writes to again.
func (s *Server) lookAfter() {
	for {
		pause := s.cfg.Lease / 3
		if s.spool.Bytes() > 0 {
			pause = min(pause, spooledEvery)
		}
		select {
		case <-s.life.Done():
			return
		case <-time.After(jitter(pause)):
		}
		ctx, cancel := context.WithTimeout(s.life, storeTimeout)
		chats, err := s.store.Abandoned(ctx)
		cancel()
		if err != nil {
			continue // Redis is away; the health check tells
		}
		s.adopt()
		for _, q := range s.spool.Queues() {
			chats = append(chats, q.Key.Chat())
		}
		seen := map[memory.Chat]bool{}
		for _, chat := range chats {
			if !seen[chat] && s.life.Err() == nil {
				seen[chat] = true
				s.lookAt(chat)
			}
		}
	}
}

// adopt takes the spools of processes that died on this disk.
func (s *Server) adopt() {
	if err := s.spool.Adopt(); err != nil {
		s.log.Warn().Err(err).Msg("the spools of dead processes were not looked for")
	}
}

// lookAt takes a chat's turn if nobody has it; taking it drains the spool.
func (s *Server) lookAt(chat memory.Chat) {
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	leave, err := s.queue.enter(ctx, chat, now, false)
	if err != nil {
		return
	}
	t, err := s.takeTurn(ctx, ctx, chat, "", now)
	if err != nil {
		if !errors.Is(err, errQueueSlow) && !errors.Is(err, errErased) && s.life.Err() == nil {
			s.log.Warn().Err(err).Str("chat", string(chat)).Msg("what was left of a chat could not be looked after")
		}
		leave()
		return
	}
	if t.Open != nil {
		s.resume(t, leave)
		return
	}
	if err := t.end(); err != nil {
		s.log.Warn().Err(err).Msg("a turn was not given back; it runs out by itself")
	}
	leave()
}

// resume brings the run that t found open to its end. The turn and the queue's
// place are the run's from here on.
func (s *Server) resume(t *turn, leave func()) *run {
	known := s.knownEvents(t.chat, t.Open.Run)
	r := newRun(t.Open.Run, t.chat, t.Open.Body)
	r.elsewhere = true
	close(r.posted)
	s.mu.Lock()
	s.enlist(r)
	s.mu.Unlock()
	d := s.driver(r, t, t.Open.Events)
	d.left, d.owner = true, t.Open.By
	d.log.Warn().Msg("finishing a run that another process left")
	s.metrics.takeovers.Inc()
	s.workers.Go(func() {
		err := d.replay(s.life)
		if err == nil {
			err = d.retell(known)
		}
		if err != nil {
			d.log.Warn().Err(err).Msg("a left run's log could not be replayed")
			d.run.log.Abort(problemOf(err))
			_ = t.leave()
			leave()
			r.end()
			s.retire(r)
			return
		}
		s.work(d, leave)
	})
	return r
}

// replay folds what the run's log holds once more: what was appended already
// falls away as a duplicate, and the fold knows then where it is.
func (d *driver) replay(ctx context.Context) error {
	for {
		logged, err := d.server.store.Events(ctx, d.run.chat, d.run.id, d.run.log.Last(), batch)
		if err != nil {
			return err
		}
		for _, l := range logged {
			e, err := event.Decode(l.Line)
			if err == nil && e.Seq != d.run.log.Last()+1 {
				return nil // a gap, from a time without Redis: the apiserver has the rest
			}
			if err == nil {
				err = d.fold.Apply(e)
			}
			if err == nil {
				err = d.run.log.Append(e)
			}
			if err != nil {
				return err
			}
		}
		if len(logged) < batch {
			return nil
		}
	}
}

// mirror is a run of another process, read from its log in Redis for as long as
// ctx. finished: its log will not grow, so an empty one is gone.
func (s *Server) mirror(ctx context.Context, chat memory.Chat, id string, finished bool) *run {
	r := newRun(id, chat, "")
	r.elsewhere, r.finished = true, finished
	close(r.posted)
	s.workers.Go(func() {
		defer r.end()
		for !r.log.Done() {
			logged, err := s.store.Events(ctx, chat, id, r.log.Last(), batch)
			for _, l := range logged {
				var e event.Event
				if e, err = event.Decode(l.Line); err == nil {
					err = r.log.Append(e)
				}
				if err != nil {
					break
				}
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, memory.ErrUnavailable) {
				r.log.Abort(api.ErrGone) // a log with a gap
				return
			}
			if finished && errors.Is(err, memory.ErrUnavailable) && ctx.Err() == nil {
				r.log.Abort(problemOf(err))
				return
			}
			if finished && len(logged) == 0 && !r.log.Done() {
				r.log.Abort(api.ErrGone)
				return
			}
			if len(logged) >= batch {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-s.life.Done():
				r.log.Abort(problemOf(errShutdown))
				return
			case <-time.After(mirrorEvery):
			}
		}
	})
	return r
}
