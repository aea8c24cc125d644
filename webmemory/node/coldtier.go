package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"mneme/access/fair"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/memory/redisstore"
	"mneme/webmemory/problem"
)

// Cold configures where and when chats sleep.
type Cold struct {
	Store    cold.Store    // nil for none
	IdleTime time.Duration // time after a chat's last run until it falls asleep; 0 for never
	// Settle is the time between the two rounds in which a chat leaves Redis; 1 min. Requests that began to read before
	// the first round have ended by then.
	Settle time.Duration
}

// ColdTier moves idle chats from Redis to the cold store and wakes them. A sleeping chat is one object of the store.
// The next request for the chat brings it back.
//
// Each step runs under the chat's lease and is fenced by its turn. The order is always: the object, the list of
// sleeping chats, the keys of Redis, the list of awake chats. If a kill interrupts the steps, the chat is in both
// lists, and complete in Redis or in the store. A removal first leaves a mark in the store and deletes the object.
type ColdTier struct {
	*Core
	Watch    *StoreWatch
	sweeping sync.Mutex // serializes sweeps
	listed   time.Time  // guarded by sweeping: time of the last listing of the objects
}

// Limits of one sweep. coldAtOnce is the maximum number of chats that are woken or read concurrently.
const (
	sweepCount  = 256 // chats per tenant
	sweepTime   = 30 * time.Second
	coldAtOnce  = 8
	freshlyUsed = 24 * time.Hour // delay until a chat that was only read falls asleep again
)

// Unread reports whether an error concerns a single chat whose stored copy is damaged or unreadable.
func Unread(err error) bool {
	return errors.Is(err, memory.ErrDamaged) || errors.Is(err, problem.ErrAsleep)
}

// Awake returns a handler that wakes the chat of the request path and then calls answer. A chat with an unreadable
// object can still be erased.
func (s *ColdTier) Awake(answer func(*gin.Context) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if chat, err := problem.ChatOf(c); err == nil {
			err = s.Wake(c.Request.Context(), chat)
			erases := c.Request.Method == "DELETE" && c.FullPath() == "/v1/chats/:chat"
			if err != nil && !(erases && Unread(err)) {
				return err
			}
		}
		return answer(c)
	}
}

// Wake restores a chat to Redis if it sleeps.
func (s *ColdTier) Wake(ctx context.Context, chat memory.Chat) error {
	if s.Cfg.Cold.Store == nil {
		return nil
	}
	states, err := s.Store.Cold.Look(ctx, chat)
	if err != nil {
		// While Redis is unavailable, the cached copy is shown.
		if s.Cache.Peek(memory.ChatKey(chat)) != nil {
			err = nil
		}
		return err
	}
	return s.wakeOne(ctx, chat, states[0])
}

// Slept reports whether a chat whose lease was just taken was asleep, and wakes it. The chat fell asleep between the
// request's check and the lease. If Slept returns true, the caller takes the lease again to get the chat's state.
func (s *ColdTier) Slept(ctx context.Context, chat memory.Chat, turn redisstore.Turn) (bool, error) {
	if s.Cfg.Cold.Store == nil {
		return false, nil
	}
	states, err := s.Store.Cold.Look(ctx, chat)
	if err != nil || !states[0].Asleep {
		return false, err
	}
	err = s.thaw(ctx, chat, turn, states[0])
	return err == nil, err
}

// maySleep reports whether a chat sleeps, or may sleep because Redis has no list of sleeping chats. A chat with keys in
// Redis may sleep too. After a loss of Redis, a process may have written back an older copy before the objects are
// listed.
func (s *ColdTier) maySleep(state redisstore.Sleep) bool {
	return state.Asleep || !state.Listed && state.Note == 0 && s.Cfg.Cold.IdleTime > 0
}

// wakeOne wakes a chat that sleeps or whose state is unknown. It waits while another process holds the chat's lease.
func (s *ColdTier) wakeOne(ctx context.Context, chat memory.Chat, state redisstore.Sleep) error {
	ctx, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	for s.maySleep(state) {
		if !state.Asleep { // most such chats are new, and a lease would leave a key for each
			_, err := s.Cfg.Cold.Store.Get(ctx, cold.Name(cold.Chats, chat))
			if errors.Is(err, cold.ErrNone) {
				return nil
			}
			if err != nil {
				err = s.failed(err, chat)
				if state.Turn != 0 && s.Watch.Losses.Newest().IsZero() { // the objects were never listed
					return nil
				}
				return err
			}
		}
		err := s.withLease(ctx, chat, func(turn redisstore.Turn, _ string) error {
			now, err := s.Store.Cold.Look(ctx, chat)
			if err != nil || !s.maySleep(now[0]) {
				return err
			}
			return s.thaw(ctx, chat, turn, now[0])
		})
		heldErr := new(redisstore.HeldError)
		switch {
		case errors.As(err, &heldErr):
			if Pause(ctx, Jitter(min(heldErr.Remaining, 100*time.Millisecond))) != nil {
				return fmt.Errorf("%w: %w", problem.ErrQueueSlow, err)
			}
		case !errors.Is(err, memory.ErrMoved):
			return err
		}
		states, err := s.Store.Cold.Look(ctx, chat)
		if err != nil {
			return err
		}
		state = states[0]
	}
	return nil
}

// withLease runs do under a chat's lease. do appends nothing to the chat's histories. The error is a
// redisstore.HeldError if another process holds the lease.
func (s *ColdTier) withLease(ctx context.Context, chat memory.Chat, do func(redisstore.Turn, string) error) error {
	token, turns := s.Token(), s.Store.Turns
	turn, err := turns.Take(ctx, chat, token, rand.Text(), s.Cfg.Lease)
	if heldErr := new(redisstore.HeldError); errors.As(err, &heldErr) && s.IsDead(heldErr.Token) {
		err = errors.Join(err, turns.Leave(ctx, chat, heldErr.Token), turns.Yield(ctx, chat, heldErr.Token))
	}
	if err != nil {
		return err
	}
	err = do(turn, token)
	leaveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StoreTimeout)
	defer cancel()
	if leaveErr := turns.Leave(leaveCtx, chat, token); leaveErr != nil {
		s.Log.Warn().Err(leaveErr).Msg(NotGivenBack)
	}
	return err
}

// thaw restores a chat under its lease. If something was removed from the chat after the object was written, thaw
// deletes the object and restores nothing. A missing object is an error unless a removal or an earlier wake explains
// it.
func (s *ColdTier) thaw(ctx context.Context, chat memory.Chat, turn redisstore.Turn, state redisstore.Sleep) error {
	store := s.Cfg.Cold.Store
	o, err := cold.Take(ctx, store, chat)
	missing := errors.Is(err, cold.ErrNone)
	if err != nil && !missing {
		return s.failed(err, chat)
	}
	forgotten, err := cold.Forgotten(ctx, store, chat)
	if err != nil {
		return s.failed(err, chat)
	}
	forgotten = max(forgotten, turn.ErasedIn(), s.Follower.File.HistoryTurn(memory.ChatKey(chat)))
	switch {
	case missing && forgotten <= state.Used:
		// If Redis lost the wake, it lists the chat as sleeping again, although the object was deleted after the wake.
		if cards, err := s.Store.Chats.Cards(ctx, chat); err != nil || state.Note >= 0 && cards[0].Messages > 0 {
			return cmp.Or(err, s.Store.Cold.WakeUp(ctx, chat, state.Used, true))
		}
		return s.failed(&memory.DamagedError{Key: cold.Name(cold.Chats, chat), Cause: cold.ErrNone}, chat)
	case o.Turn <= forgotten:
		if err := store.Delete(ctx, cold.Name(cold.Chats, chat)); err != nil {
			return s.failed(err, chat)
		}
		return s.Store.Cold.WakeUp(ctx, chat, 0, false)
	}
	err = s.Store.Cold.Woke(ctx, chat)
	if err == nil {
		err = s.Store.Cold.Restore(ctx, chat, turn.Number, o,
			func(key memory.Key) int64 { return s.Cfg.Cuts.Turn(key.String()) })
	}
	if err == nil {
		err = s.Store.Cold.Note(ctx, chat, turn.Number, o.Turn)
	}
	if err == nil {
		s.Metrics.cold.WithLabelValues(thawed).Inc()
		err = s.Store.Cold.WakeUp(ctx, chat, o.Used, true)
	}
	return err
}

// Frozen returns the sleeping chats among chats, as their objects hold them. It wakes only chats of unknown state with
// keys in Redis. Awake and erased chats are left out. unread lists the chats whose objects cannot be read.
func (s *ColdTier) Frozen(ctx context.Context, chats ...memory.Chat) (byChat map[memory.Chat]redisstore.Frozen,
	unread []memory.Chat, err error) {
	byChat = map[memory.Chat]redisstore.Frozen{}
	if s.Cfg.Cold.Store == nil || len(chats) == 0 {
		return byChat, nil, nil
	}
	states, err := s.Store.Cold.Look(ctx, chats...)
	if err != nil {
		return nil, nil, err
	}
	var reading errgroup.Group
	reading.SetLimit(coldAtOnce)
	var mu sync.Mutex
	for i, chat := range chats {
		if s.maySleep(states[i]) {
			reading.Go(func() error {
				var f redisstore.Frozen
				var ok bool
				var err error
				if states[i].Asleep || states[i].Turn == 0 {
					f, ok, err = s.read(ctx, chat, states[i])
				} else {
					err = s.wakeOne(ctx, chat, states[i])
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					unread = append(unread, chat)
				} else if ok {
					byChat[chat] = f
				}
				return nil
			})
		}
	}
	_ = reading.Wait() // the functions return no errors
	return byChat, unread, context.Cause(ctx)
}

// read returns a sleeping chat as its object holds it. ok is false if the chat woke or was erased.
func (s *ColdTier) read(ctx context.Context, chat memory.Chat, state redisstore.Sleep) (f redisstore.Frozen, ok bool,
	err error) {
	o, err := cold.Take(ctx, s.Cfg.Cold.Store, chat)
	if errors.Is(err, cold.ErrNone) {
		states, err := s.Store.Cold.Look(ctx, chat)
		if err != nil || !state.Asleep || !states[0].Asleep {
			return f, false, err
		}
		return f, false, s.failed(&memory.DamagedError{Key: cold.Name(cold.Chats, chat), Cause: cold.ErrNone}, chat)
	}
	forgotten := s.Follower.File.HistoryTurn(memory.ChatKey(chat))
	if err == nil {
		var marked int64
		marked, err = cold.Forgotten(ctx, s.Cfg.Cold.Store, chat)
		forgotten = max(forgotten, marked)
	}
	if err == nil && o.Turn > forgotten {
		f, err = s.Store.Cold.Freeze(chat, o.Keys)
		ok = err == nil
	}
	if err != nil {
		err = s.failed(err, chat)
	}
	return f, ok, err
}

// failed counts and logs a failure to move a chat into or out of the cold store, and returns the error. It wraps errors
// other than memory.ErrDamaged and memory.ErrUnavailable in problem.ErrAsleep.
func (s *ColdTier) failed(err error, chat memory.Chat) error {
	s.Metrics.cold.WithLabelValues(coldFailed).Inc()
	s.Telemetry.Often.Error().Err(err).Str("chat",
		chat.String()).Msg("a chat does not go into the cold store, or out of it")
	if errors.Is(err, memory.ErrDamaged) || errors.Is(err, memory.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", problem.ErrAsleep, err)
}

// skip logs the error of one chat of a sweep. A chat in use is not an error.
func (s *ColdTier) skip(ctx context.Context, chat memory.Chat, err error) {
	_, busy := errors.AsType[*redisstore.HeldError](err)
	if err != nil && ctx.Err() == nil && !busy && !errors.Is(err, memory.ErrMoved) {
		_ = s.failed(err, chat)
	}
}

// ForgetCopy deletes the object of a chat before a removal without a turn.
func (s *ColdTier) ForgetCopy(ctx context.Context, chat memory.Chat) error {
	for {
		_, err := s.Forget(ctx, chat, 0, false)
		if !errors.Is(err, memory.ErrMoved) { // otherwise another turn has begun
			return err
		}
		if err := Pause(ctx, Jitter(10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// ForgetCut deletes the object of a chat after another program deleted or rewrote one of its histories. If Redis lost
// data recently, the change may be a part of that loss, so the object stays.
func (s *ColdTier) ForgetCut(chat memory.Chat) {
	if s.Watch.Losses.Noticed(HalfErased) {
		return
	}
	ctx, cancel := context.WithTimeout(s.Life, time.Minute)
	defer cancel()
	if err := s.ForgetCopy(ctx, chat); err != nil && s.Life.Err() == nil {
		_ = s.failed(err, chat)
	}
}

// Forget deletes the object of a chat before a removal in turn; 0 is a removal without a turn. It returns the object's
// name if there was one. It sends no request to the store if the meta and the list show that the chat never slept.
//
// Unless erasing is set for an erasure of the whole chat, Forget first waits until Redis has saved the chat to disk.
// Otherwise a loss of Redis's last writes would destroy the only copy.
func (s *ColdTier) Forget(ctx context.Context, chat memory.Chat, turn int64, erasing bool) (names []string, err error) {
	if s.Cfg.Cold.Store == nil {
		return nil, nil
	}
	states, err := s.Store.Cold.Look(ctx, chat)
	if err != nil {
		return nil, err
	}
	state := states[0]
	if turn == 0 { // no object that is being written now has a later turn
		turn = max(time.Now().UnixMilli(), state.Turn)
	}
	if state.Asleep || state.Note != 0 {
		names = append(names, cold.Name(cold.Chats, chat))
	} else if state.Listed || s.Cfg.Cold.IdleTime == 0 {
		return nil, nil
	}
	if !erasing && state.Woken != 0 {
		if err := fair.Block(ctx, func() error { return s.untilSaved(ctx, time.UnixMilli(state.Woken)) }); err != nil {
			return nil, err
		}
	}
	if err := cold.Forget(ctx, s.Cfg.Cold.Store, chat, turn); err != nil {
		return nil, s.failed(err, chat)
	}
	if state.Note != 0 {
		err = s.Store.Cold.Note(ctx, chat, turn, 0)
	}
	if err == nil && state.Asleep {
		err = s.Store.Cold.WakeUp(ctx, chat, 0, false)
	}
	if err == nil && state.Woken != 0 {
		err = s.Store.Cold.Unwoke(ctx, chat, state.Woken)
	}
	return names, err
}

// saveWait is how long a request waits until Redis has saved a newly woken chat to disk.
const saveWait = 20 * time.Second

// untilSaved waits until Redis has saved all writes before cutoff to disk. If Redis has no disk or refuses INFO,
// untilSaved waits as long as an append-only file would need.
func (s *ColdTier) untilSaved(ctx context.Context, cutoff time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	for requested := false; ; {
		until, hasDisk, err := s.Store.Server.Saved(ctx)
		if err != nil || until.After(cutoff) || !hasDisk && time.Since(cutoff) > redisstore.SyncTime {
			return err
		}
		if late := time.Since(cutoff) > 5*time.Second; hasDisk && late && !requested { // Redis has no append-only file
			requested = true
			if err := s.Store.Server.Save(ctx); err != nil {
				s.Log.Debug().Err(err).Msg("Redis does not save on request")
			}
		}
		if Pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%w: Redis has not yet saved a chat that woke", memory.ErrUnavailable)
		}
	}
}

// deleteCopies deletes the objects of woken chats after Redis has saved these chats to disk.
func (s *ColdTier) deleteCopies(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	cutoff := time.Now().Add(-s.Cfg.Cold.Settle)
	if chats, err := s.Store.Cold.WokenBefore(ctx, cutoff, 1); err != nil || len(chats) == 0 {
		return err
	}
	until, hasDisk, err := s.Store.Server.Saved(ctx)
	if err != nil || !hasDisk {
		return err
	}
	if until.Before(cutoff) {
		cutoff = until
	}
	chats, err := s.Store.Cold.WokenBefore(ctx, cutoff, sweepCount)
	if err != nil {
		return err
	}
	for _, chat := range chats {
		err := s.withLease(ctx, chat, func(turn redisstore.Turn, _ string) error {
			states, err := s.Store.Cold.Look(ctx, chat)
			if err != nil || states[0].Woken > cutoff.UnixMilli() {
				return err
			}
			state := states[0]
			if !state.Asleep && state.Note > 0 { // otherwise the object is the only copy, or was deleted
				if err := s.Cfg.Cold.Store.Delete(ctx, cold.Name(cold.Chats, chat)); err != nil {
					return err
				}
				if err := s.Store.Cold.Note(ctx, chat, turn.Number, 0); err != nil {
					return err
				}
			}
			return s.Store.Cold.Unwoke(ctx, chat, state.Woken)
		})
		s.skip(ctx, chat, err)
	}
	return nil
}

// Sweep deletes the objects of woken chats, lists the objects of the store if necessary, and puts some idle chats to
// sleep.
func (s *ColdTier) Sweep() {
	_, absent := s.Cfg.Cold.Store.(cold.Absent)
	if s.Cfg.Cold.Store == nil || absent || !s.sweeping.TryLock() {
		return
	}
	defer s.sweeping.Unlock()
	if err := s.deleteCopies(s.Life); err != nil && s.Life.Err() == nil {
		s.Telemetry.Often.Warn().Err(err).Msg("the objects of chats that woke are not deleted yet")
	}
	if s.Cfg.Cold.IdleTime == 0 {
		return
	}
	if err := s.list(s.Life); err != nil { // Redis may have an older copy of a chat, which must not replace the object
		if s.Life.Err() == nil {
			s.Telemetry.Often.Warn().Err(err).Msg("the chats in the cold store are not listed; each is looked up by its name")
		}
		return
	}
	ctx, cancel := context.WithTimeout(s.Life, sweepTime)
	defer cancel()
	tenants, err := s.Store.Tenants.List(ctx, memory.Tenant{})
	for i := 0; i < len(tenants) && err == nil; i++ {
		err = s.sweepOf(ctx, tenants[i].Tenant)
	}
	if err != nil && ctx.Err() == nil {
		s.Telemetry.Often.Warn().Err(err).Msg("idle chats do not fall asleep right now")
	}
}

func (s *ColdTier) sweepOf(ctx context.Context, tenant memory.Tenant) error {
	places, err := s.Store.Cold.Idle(ctx, tenant, time.Now().Add(-s.Cfg.Cold.IdleTime), sweepCount)
	var chats []memory.Chat
	var used []int64
	for _, p := range places {
		if chat, ok := p.Chat(tenant); ok {
			chats, used = append(chats, chat), append(used, p.Used)
		}
	}
	if err != nil || len(chats) == 0 {
		return err
	}
	states, err := s.Store.Cold.Look(ctx, chats...)
	if err != nil {
		return err
	}
	var stepping errgroup.Group
	stepping.SetLimit(coldAtOnce)
	for i, chat := range chats {
		stepping.Go(func() error {
			s.skip(ctx, chat, s.step(ctx, chat, used[i], states[i]))
			return nil
		})
	}
	return stepping.Wait()
}

// step performs the next step of putting an idle chat to sleep.
func (s *ColdTier) step(ctx context.Context, chat memory.Chat, used int64, state redisstore.Sleep) error {
	now := time.Now().UnixMilli()
	switch {
	case !state.Asleep && state.Turn != state.Note && now-state.Turn < min(s.Cfg.Cold.IdleTime,
		freshlyUsed).Milliseconds():
		return nil // the newest lease is recent and was not a sweeper's
	case state.Asleep && state.Turn != 0 && state.Note <= 0: // a sweeper was killed, or Redis lost a part of the chat
		return s.wakeOne(ctx, chat, state)
	case state.Asleep && now-state.Note < s.Cfg.Cold.Settle.Milliseconds():
		return nil
	}
	return s.withLease(ctx, chat, func(turn redisstore.Turn, token string) (err error) {
		states, err := s.Store.Cold.Look(ctx, chat)
		busy := turn.Open != nil || turn.Waiting != nil || turn.Pending != ""
		if err != nil || busy || states[0].Asleep != state.Asleep || states[0].Note != state.Note {
			return err
		}
		if !state.Asleep {
			return s.putAway(ctx, chat, used, turn.Number, token)
		}
		return s.leave(ctx, chat, used, turn.Number, token, state.Note == 0)
	})
}

// putAway is the first round. It stores the chat as an object. The chat also stays in Redis.
func (s *ColdTier) putAway(ctx context.Context, chat memory.Chat, used, turn int64, token string) error {
	setAsides, err := s.Store.Rewinds.List(ctx, chat)
	if err != nil || len(setAsides) > 0 {
		return err
	}
	if err := s.Store.Cold.Note(ctx, chat, turn, turn); err != nil {
		return err
	}
	keys, fit, err := s.Store.Cold.Snapshot(ctx, chat, s.Cfg.Agents()...)
	if err != nil || !fit {
		return err
	}
	cards, err := s.Store.Chats.Cards(ctx, chat)
	if err != nil {
		return err
	}
	c := cards[0]
	card := cold.Card{Title: c.Title, Messages: c.Messages, Bytes: c.Bytes, Metadata: c.Metadata}
	data, err := cold.Object{Chat: chat.ID(), Tenant: chat.Tenant(), Used: used, Turn: turn,
		Frozen: time.Now().UnixMilli(), Card: card, Keys: keys}.Encode()
	if err != nil {
		return err
	}
	putCtx, cancel := context.WithTimeout(ctx, s.Cfg.Lease)
	err = s.Cfg.Cold.Store.Put(putCtx, cold.Name(cold.Chats, chat), data)
	cancel()
	if err != nil {
		return err
	}
	if ok, err := s.Store.Cold.Holds(ctx, chat, token); err != nil || !ok {
		// This process was paused and lost the lease. A removal may have happened meanwhile.
		forgotten, unknown := cold.Forgotten(ctx, s.Cfg.Cold.Store, chat)
		if unknown == nil && forgotten > turn {
			unknown = s.Cfg.Cold.Store.Delete(ctx, cold.Name(cold.Chats, chat))
		}
		return errors.Join(err, unknown)
	}
	return s.Store.Cold.FallAsleep(ctx, chat, used)
}

// leave is the second round. It removes the chat from Redis if the object still matches it. With entryOnly, it removes
// only the entry in the list of awake chats.
func (s *ColdTier) leave(ctx context.Context, chat memory.Chat, used, turn int64, token string, entryOnly bool) error {
	tier, keys := s.Store.Cold, []cold.Key(nil)
	if !entryOnly {
		if err := tier.Note(ctx, chat, turn, turn); err != nil {
			return err
		}
		o, err := cold.Take(ctx, s.Cfg.Cold.Store, chat)
		unusable := errors.Is(err, cold.ErrNone) || errors.Is(err, memory.ErrDamaged)
		if err != nil && !unusable {
			return err
		}
		forgotten, err := cold.Forgotten(ctx, s.Cfg.Cold.Store, chat)
		if err != nil {
			return err
		}
		unusable = unusable || o.Turn <= forgotten
		fit := false
		if keys, fit, err = tier.Snapshot(ctx, chat, s.Cfg.Agents()...); err != nil {
			return err
		}
		if unusable || !fit || !redisstore.SameKeys(chat, keys, o.Keys) {
			return tier.WakeUp(ctx, chat, used, true) // a later sweep starts again
		}
		if err := tier.Note(ctx, chat, turn, -turn); err != nil {
			return err
		}
	}
	if err := tier.Remove(ctx, chat, turn, keys); err != nil {
		return err
	}
	for _, h := range s.Cache.List() {
		if h.Key().Chat() == chat {
			s.Cache.Forget(h.Key())
		}
	}
	s.Metrics.cold.WithLabelValues(frozen).Inc()
	return tier.UnlistAwake(ctx, chat, token, used)
}

// list adds all objects of the store to the lists of sleeping chats. It does so if Redis has no record of a complete
// listing, or may have lost entries since.
func (s *ColdTier) list(ctx context.Context) error {
	lossTime := s.Watch.Losses.Newest()
	states, err := s.Store.Cold.Look(ctx, memory.AnyChat)
	if err != nil || states[0].Listed && !lossTime.After(s.listed) {
		return err
	}
	began := time.Now()
	mark, err := s.Store.Cold.BeginListing(ctx)
	if err != nil {
		return err
	}
	err = s.Cfg.Cold.Store.List(ctx, cold.Chats, func(name string, changed time.Time) error {
		chat, ok := cold.ChatOf(cold.Chats, name)
		if !ok {
			return nil
		}
		states, err := s.Store.Cold.Look(ctx, chat)
		if err != nil || states[0].Note != 0 { // the chat is awake or falling asleep
			return err
		}
		return s.Store.Cold.FallAsleep(ctx, chat, changed.Add(-s.Cfg.Cold.IdleTime).UnixMilli())
	})
	if err == nil {
		err = s.Store.Cold.AllListed(ctx, mark)
	}
	if err == nil {
		s.listed = began
	}
	return err
}

// Cards returns the cards in the objects of sleeping chats. The card of an unreadable object is empty.
func (s *ColdTier) Cards(ctx context.Context, chats []memory.Chat) []cold.Card {
	cards := make([]cold.Card, len(chats))
	var reading errgroup.Group
	reading.SetLimit(coldAtOnce)
	for i, chat := range chats {
		reading.Go(func() error {
			o, err := cold.Take(ctx, s.Cfg.Cold.Store, chat)
			if err != nil && ctx.Err() == nil {
				_ = s.failed(err, chat)
			}
			if o.Turn > s.Follower.File.HistoryTurn(memory.ChatKey(chat)) { // otherwise the chat was erased later
				cards[i] = o.Card
			}
			return nil
		})
	}
	_ = reading.Wait() // the functions return no errors
	return cards
}
