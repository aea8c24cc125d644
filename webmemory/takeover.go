package webmemory

import (
	"context"
	"errors"
	"net/http"
	"time"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
)

// This file is about runs of other processes that died: they are brought to their
// end here.

// soon is how often it is looked whether a process with the same disk died, how often
// a chat's turn is tried for while the spool holds some of it, since this process
// knows most of it, and how often a turn is given back while Redis is away.
const soon = 500 * time.Millisecond

// lookAfter looks, at once and then three times in the life of a lease, for what
// others left: it finishes runs whose holders died and drains the spool, also of
// chats that nobody writes to again. The leases of those who died on this disk are
// not waited for.
func (s *Server) lookAfter() {
	var next time.Time // when it is time to look again
	buried := 0        // deaths on this disk of which the runs were looked after
	for s.life.Err() == nil {
		s.adopt()
		deaths := s.spool.Deaths()
		if spooled := s.spool.Bytes() > 0; spooled || deaths > buried || !time.Now().Before(next) {
			if s.lookOnce(deaths > buried) == nil {
				buried = deaths
			}
			next = time.Now().Add(jitter(s.cfg.Lease / 3))
		}
		select {
		case <-s.life.Done():
		case <-time.After(jitter(min(s.cfg.Lease/3, soon))):
		}
	}
}

// lookOnce looks at all chats that need it; died: a process on this disk did.
func (s *Server) lookOnce(died bool) error {
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	chats, err := s.store.Abandoned(ctx)
	if err != nil {
		return err // Redis is away; the health check tells
	}
	if died {
		holders, err := s.store.Holders(ctx)
		if err != nil {
			return err
		}
		for chat, token := range holders {
			if s.isDead(token) {
				chats = append(chats, chat)
			}
		}
	}
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
	return nil
}

// adopt takes the spools of processes that died on this disk.
func (s *Server) adopt() {
	if err := s.spool.Adopt(); err != nil {
		s.seen.Often.Warn().Err(err).Msg("the spools of dead processes were not looked for")
	}
}

// lookAt takes a chat's turn if nobody has it; taking it drains the spool.
func (s *Server) lookAt(chat memory.Chat) {
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	t, err := s.takeTurn(ctx, ctx, chat, "", now)
	if err != nil {
		busy := errors.Is(err, errQueueSlow) || errors.Is(err, errTooManyChats) || errors.Is(err, errErased)
		if !busy && s.life.Err() == nil {
			s.seen.Often.Warn().Err(err).Str("chat", chat.String()).Msg("what was left of a chat could not be looked after")
		}
		return
	}
	if t.Open != nil {
		s.resume(t)
		return
	}
	if err := t.end(); err != nil {
		s.log.Warn().Err(err).Msg("a turn was not given back; it runs out by itself")
	}
	t.next()
}

// resume brings the run that t found open to its end. The turn is the run's from here
// on.
func (s *Server) resume(t *turn) *run {
	_, known := s.knownEvents(t.chat, t.Open.Run)
	r := newRun(t.Open.Run, t.chat, t.Open.Body)
	r.keyed = true // as far as is known
	r.trail = telemetry.Take(http.Header{telemetry.Header: {t.Open.Trace}})
	r.trail.Run, r.trail.Chat = r.id, r.chat.String()
	r.elsewhere = true
	close(r.posted)
	s.mu.Lock()
	s.enlist(r)
	s.mu.Unlock()
	d := s.driver(r, t, t.Open.Events)
	d.left, d.owner = true, t.Open.By
	t.opened(*t.Open)
	d.log.Warn().Msg("finishing a run that another process left")
	s.metrics.takeovers.Inc()
	s.workers.Go(func() {
		if err := d.catchUp(s.life, known); err != nil {
			d.log.Warn().Err(err).Msg("a left run's log could not be replayed")
			d.run.log.Abort(problemOf(err))
			_ = t.leave()
			t.next()
			r.end()
			s.retire(r)
			return
		}
		s.work(d)
	})
	return r
}

// catchUp brings a left run to where others have shown it: by its log, and by the events
// that are known here.
func (d *driver) catchUp(ctx context.Context, known [][]byte) error {
	if err := d.replay(ctx); err != nil {
		return err
	}
	return d.retell(ctx, known)
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
			if err != nil {
				return err
			}
			if e.Seq != d.run.log.Last()+1 {
				// A gap, from a time without Redis, or from one who wrote on after Redis lost
				// the log. The apiserver has the rest.
				return d.turn.closeGap(ctx)
			}
			if err := d.fold.Apply(e); err != nil {
				return err
			}
			if err := d.run.log.Append(e); err != nil {
				return err
			}
		}
		if len(logged) < batch {
			d.turn.entries, err = d.server.store.LogLen(ctx, d.run.chat, d.run.id)
			return err
		}
	}
}
