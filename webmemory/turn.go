package webmemory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// How a lease is held: taken for leaseTTL, renewed every renewEvery, given up
// by its holder when it could not be renewed for holdFor. holdFor is less than
// leaseTTL, so that a holder stops before another may begin.
const (
	leaseTTL   = 15 * time.Second
	renewEvery = 5 * time.Second
	holdFor    = 10 * time.Second
)

// storeTimeout bounds one command to the store.
const storeTimeout = 5 * time.Second

// errTurnLost is the cause of a turn's context after its lease could not be kept.
var errTurnLost = fmt.Errorf("the lease could not be renewed: %w", memory.ErrMoved)

// turn is the right to write into one chat, and the histories as they were when
// it began plus what was appended since. It is a fold's sink; its methods are
// for one goroutine.
type turn struct {
	redisstore.Turn
	chat  memory.Chat
	token string
	store *redisstore.Store
	cache *cache.Cache

	ctx    context.Context // ends when the turn is lost or given back
	cancel context.CancelCauseFunc
	keeper sync.WaitGroup // the goroutine that renews

	run       string                         // whose events are appended
	histories map[memory.Key]*memory.History // pinned
}

// takeTurn takes the chat's lease, waiting for other processes until ctx ends,
// and brings every history of the chat up to date under it.
func takeTurn(ctx context.Context, s *redisstore.Store, c *cache.Cache, chat memory.Chat, agents []memory.Agent) (*turn, error) {
	t := &turn{chat: chat, token: rand.Text(), store: s, cache: c, histories: map[memory.Key]*memory.History{}}
	for {
		taken, err := s.Take(ctx, chat, t.token, rand.Text(), leaseTTL)
		var held *redisstore.HeldError
		if err == nil {
			t.Turn = taken
			break
		}
		if !errors.As(err, &held) {
			return nil, err
		}
		select {
		case <-time.After(jitter(min(held.Left, 250*time.Millisecond))):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errQueueSlow, err)
		}
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.keeper.Go(t.keep)
	if err := t.load(ctx, agents); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// jitter is a time between half of d and d.
func jitter(d time.Duration) time.Duration {
	half := max(int64(d)/2, int64(time.Millisecond))
	n, err := rand.Int(rand.Reader, big.NewInt(half))
	if err != nil {
		return d
	}
	return time.Duration(half + n.Int64())
}

func (t *turn) load(ctx context.Context, agents []memory.Agent) error {
	keys := []memory.Key{memory.ChatKey(t.chat)}
	for _, a := range append(slices.Clone(agents), t.Agents...) {
		if key := memory.SubagentKey(a, t.chat); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	copies := make([]*memory.History, len(keys))
	for i, k := range keys {
		copies[i] = memory.Empty(k)
	}
	current, err := t.cache.Load(ctx, t.Number, copies...)
	if err != nil {
		return err
	}
	for _, h := range current {
		t.histories[h.Key()] = h
	}
	return nil
}

// keep renews the lease until the turn ends.
func (t *turn) keep() {
	renewed := time.Now()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
		held, err := t.store.Renew(ctx, t.chat, t.token, leaseTTL)
		cancel()
		switch {
		case err == nil && held:
			renewed = asked
		case err == nil || time.Since(renewed) >= holdFor:
			t.cancel(errTurnLost)
			return
		}
	}
}

// history is the turn's copy of one history.
func (t *turn) history(key memory.Key) *memory.History {
	if h := t.histories[key]; h != nil {
		return h
	}
	return memory.Empty(key)
}

// Append stores what an event adds, under this turn's number. While the store
// does not answer it is tried again: the mark makes that safe.
func (t *turn) Append(key memory.Key, seq int64, m memory.Message) error {
	mark := memory.Mark{Run: t.run, Seq: seq, Turn: t.Number}
	encoded := m.Encode()
	deadline := time.Now().Add(holdFor)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
		h, err := t.cache.Append(ctx, t.history(key), mark, encoded)
		cancel()
		if err == nil {
			t.histories[key] = h
			return nil
		}
		if !errors.Is(err, memory.ErrUnavailable) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-t.ctx.Done():
		}
	}
}

// trim cuts the histories back to limit messages. What cannot be trimmed now is
// trimmed after a later turn.
func (t *turn) trim(limit int) error {
	var failed error
	for key, h := range t.histories {
		ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
		short, err := t.store.Trim(ctx, h, t.Number, limit)
		cancel()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if short != h {
			t.histories[key] = short
			t.cache.Put(short)
		}
	}
	return failed
}

// end gives the turn back. The lease runs out by itself if Redis is away.
func (t *turn) end() error {
	t.cancel(nil)
	t.keeper.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), storeTimeout)
	defer cancel()
	return t.store.Release(ctx, t.chat, t.token)
}
