package turns

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"mneme/memory"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// This file is about taking over runs that other processes left, most of them by dying.
// Before a left run is closed every process is asked that may have shown more of it than
// Redis has, since a failover of Redis loses its last writes: what a client has seen stays
// true, and no event's id gets two contents.

// Takeover looks for chats that a process which died has left with an open run, a wait that expired, or entries in a
// spool. It takes the lease of each if no process holds it, and leaves the rest to the leaser and the runner.
type Takeover struct {
	*node.Core
	Runner *runs.Runner
	Leaser *Leaser
}

// LookAfter looks for what others left: at once, then three times in the life of a lease.
// It finishes runs of holders that died, and drains the spool, also of chats that no
// client writes to again. The leases of processes that died on this disk are not waited
// for.
func (s *Takeover) LookAfter() {
	var next time.Time // when it is time to look again
	handled := 0       // deaths on this disk of which the runs were looked after
	for trying := true; trying; trying = node.Pause(s.Life, node.Jitter(min(s.Cfg.Lease/3, node.RetryEvery))) == nil {
		s.Adopt()
		deaths := s.Spool.Deaths()
		if spooled := s.Spool.Bytes() > 0; spooled || deaths > handled || !time.Now().Before(next) {
			if s.lookOnce(deaths > handled) == nil {
				handled = deaths
			}
			next = time.Now().Add(node.Jitter(s.Cfg.Lease / 3))
		}
	}
}

// lookOnce looks at all chats that need it; died: a process on this disk did.
func (s *Takeover) lookOnce(died bool) error {
	ctx, cancel := context.WithTimeout(s.Life, node.StoreTimeout)
	defer cancel()
	chats, err := s.Store.Turns.Abandoned(ctx)
	if err != nil {
		return err // Redis is away; the health check tells
	}
	if died {
		holders, err := s.Store.Turns.Holders(ctx)
		if err != nil {
			return err
		}
		for chat, token := range holders {
			if s.IsDead(token) {
				chats = append(chats, chat)
			}
		}
	}
	for _, q := range s.Spool.Queues() {
		chats = append(chats, q.Key.Chat())
	}
	slices.SortFunc(chats, func(a, b memory.Chat) int { return strings.Compare(a.String(), b.String()) })
	chats = slices.Compact(chats)
	// In another order than other processes that look now: each finds chats that none has taken yet.
	rand.Shuffle(len(chats), func(i, j int) { chats[i], chats[j] = chats[j], chats[i] })
	var looking errgroup.Group
	looking.SetLimit(runs.WriteBackers)
	for _, chat := range chats {
		looking.Go(func() error {
			if s.Life.Err() == nil {
				s.lookAt(chat)
			}
			return nil
		})
	}
	return looking.Wait()
}

// lookAt takes a chat's lease if no process has it; taking it drains the spool.
func (s *Takeover) lookAt(chat memory.Chat) {
	ctx, cancel := context.WithTimeout(s.Life, node.StoreTimeout)
	defer cancel()
	w, err := s.Leaser.takeTurn(ctx, ctx, chat, "", runs.PlaceIdle)
	if err != nil {
		busy := errors.Is(err, problem.ErrQueueSlow) || errors.Is(err, problem.ErrTooManyChats) || errors.Is(err,
			problem.ErrErased)
		if !busy && s.Life.Err() == nil {
			s.Telemetry.Often.Warn().Err(err).Str("chat", chat.String()).Msg("what was left of a chat could not be looked after")
		}
		return
	}
	switch {
	case w.Open != nil:
		s.Runner.Resume(w)
	case w.Waiting != nil && runs.Expired(w.Waiting):
		s.Runner.Deny(w, runs.TimedOut)
	default:
		_ = w.Release(w.End, &s.Log)
	}
}
