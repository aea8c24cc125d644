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

// Takeover finds chats that a dead process left with an open run, an expired wait, or entries in a spool. It takes the
// lease of each chat if no process holds it. The leaser and the runner do the rest.
//
// A failover of Redis loses the last writes. Before a run is closed, every process that may have shown more of it than
// Redis has is therefore queried. The events that a client has seen stay true, and no event id gets two contents.
type Takeover struct {
	*node.Core
	Runner *runs.Runner
	Leaser *Leaser
}

// LookAfter looks for abandoned chats at once, then three times per lease. It finishes runs of dead holders and drains
// the spool, also for chats that no client writes to again. It does not wait for the leases of processes that died on
// this disk.
func (s *Takeover) LookAfter() {
	var next time.Time // time of the next look
	handled := 0       // deaths on this disk whose runs were taken over
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

// lookOnce looks at all chats that need it. died is true if a process on this disk died.
func (s *Takeover) lookOnce(died bool) error {
	ctx, cancel := context.WithTimeout(s.Life, node.StoreTimeout)
	defer cancel()
	chats, err := s.Store.Turns.Abandoned(ctx)
	if err != nil {
		return err // Redis is unavailable; the health check reports it
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
	// The order is random, so that concurrent processes find chats that no other process has taken yet.
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

// lookAt takes a chat's lease if no process holds it. Taking the lease drains the spool.
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
