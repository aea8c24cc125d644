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

// This file is about chats that are idle for long: each leaves Redis as one object of the cold store, and comes back
// with the next request for it.

// Cold says where chats sleep.
type Cold struct {
	Store    cold.Store    // nil for none
	IdleTime time.Duration // since their last run; 0: none falls asleep
	// Settle is the time between the two rounds in which a chat leaves Redis; a minute. Requests that began to read before
	// the first one have ended then.
	Settle time.Duration
}

// ColdTier has chats fall asleep, and wakes them. Each step is made under the chat's lease, and fenced by its turn. The
// order is always: the object, the list of those that sleep, the keys of Redis, the list of those that are awake; a
// kill in between leaves the chat in both lists, and whole in one place or the other. What is taken away of a chat
// is taken out of the store first, as a mark there says from then on.
type ColdTier struct {
	*Core
	Watch    *StoreWatch
	sweeping sync.Mutex // one sweep at a time
	listed   time.Time  // guarded by sweeping: when the objects were listed last
}

// Bounds of one sweep, and how many chats are woken or read at once.
const (
	sweepCount  = 256 // chats of each tenant
	sweepTime   = 30 * time.Second
	coldAtOnce  = 8
	freshlyUsed = 24 * time.Hour // a chat that was only read falls asleep again so much later
)

// Unread reports whether an error concerns a single chat: its stored copy is damaged or cannot be read.
func Unread(err error) bool {
	return errors.Is(err, memory.ErrDamaged) || errors.Is(err, problem.ErrAsleep)
}

// Awake returns a handler that wakes the chat of its path first. A chat with an object that cannot be read can still be
// erased.
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

// Wake brings a chat back if it sleeps.
func (s *ColdTier) Wake(ctx context.Context, chat memory.Chat) error {
	if s.Cfg.Cold.Store == nil {
		return nil
	}
	states, err := s.Store.Cold.Look(ctx, chat)
	if err != nil {
		// While Redis is away, what is cached is shown.
		if s.Cache.Peek(memory.ChatKey(chat)) != nil {
			err = nil
		}
		return err
	}
	return s.wakeOne(ctx, chat, states[0])
}

// Slept says whether a chat of which the lease was just taken slept: it fell asleep after its request looked, and
// before that had the lease. It is awake then, and the lease is to be taken once more, with all that the chat has.
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

// maySleep reports whether a chat sleeps, or may do so because Redis has no list of sleeping chats. After a loss of
// Redis, a process may have written an older copy of a sleeping chat back before the objects are listed.
func (s *ColdTier) maySleep(state redisstore.Sleep) bool {
	return state.Asleep || !state.Listed && state.Note == 0 && s.Cfg.Cold.IdleTime > 0
}

// wakeOne wakes a chat that was found to sleep, or of which nothing is known. While another process holds the chat's
// lease, as to wake it or to have it fall asleep, it waits.
func (s *ColdTier) wakeOne(ctx context.Context, chat memory.Chat, state redisstore.Sleep) error {
	ctx, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	for s.maySleep(state) {
		if !state.Asleep { // most such chats are new, and a lease would leave something of each
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

// withLease does something under a chat's lease, which nothing is written into the chat's histories for. The error is a
// HeldError if another process has it.
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

// thaw brings a chat back under its lease. An object from before something of the chat was taken away goes, and brings
// nothing back. That there is none must follow from that, too.
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

// Frozen returns chats that sleep, as their objects hold them, and wakes none. It does not return awake and erased
// chats. unread are chats with objects that cannot be read.
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
	_ = reading.Wait() // no function returns an error
	return byChat, unread, context.Cause(ctx)
}

// read returns a sleeping chat as its object holds it. The chat is absent if it woke, or was erased later.
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

// failed counts and logs that something of a chat could not be done. What does not come from Redis, and says of no
// object that it is damaged, is problem.ErrAsleep.
func (s *ColdTier) failed(err error, chat memory.Chat) error {
	s.Metrics.cold.WithLabelValues(coldFailed).Inc()
	s.Telemetry.Often.Error().Err(err).Str("chat",
		chat.String()).Msg("a chat does not go into the cold store, or out of it")
	if errors.Is(err, memory.ErrDamaged) || errors.Is(err, memory.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", problem.ErrAsleep, err)
}

// skip logs the error of one chat of a sweep, which continues with the next. A chat in use is no error.
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
		if !errors.Is(err, memory.ErrMoved) { // else another turn began meanwhile
			return err
		}
		if err := Pause(ctx, Jitter(10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// ForgetCut deletes the object of a chat after another program has deleted or rewritten one of its histories. If Redis
// lost data lately, the history may be a part of that, so the object stays.
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

// Forget deletes the object of a chat before a removal in a turn (0: without one), and returns the object's name if
// there was one. It does not ask the store about a chat that never slept, as its meta and the list show. Unless the
// whole chat is erased, it waits until Redis has the chat on its disk: otherwise the loss of Redis's last writes would
// take the only copy.
func (s *ColdTier) Forget(ctx context.Context, chat memory.Chat, turn int64, erasing bool) (names []string, err error) {
	if s.Cfg.Cold.Store == nil {
		return nil, nil
	}
	states, err := s.Store.Cold.Look(ctx, chat)
	if err != nil {
		return nil, err
	}
	state := states[0]
	if turn == 0 { // an object that is being written now has none after it
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

// saveWait bounds how long a request waits until Redis has a chat on its disk that just woke.
const saveWait = 20 * time.Second

// untilSaved waits until Redis has all writes before a time on its disk. If Redis has no disk or refuses INFO, untilSaved
// waits as long as an append-only file would need.
func (s *ColdTier) untilSaved(ctx context.Context, cutoff time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	for requested := false; ; {
		until, hasDisk, err := s.Store.Server.Saved(ctx)
		if err != nil || until.After(cutoff) || !hasDisk && time.Since(cutoff) > redisstore.SyncTime {
			return err
		}
		if late := time.Since(cutoff) > 5*time.Second; hasDisk && late && !requested { // it has no append-only file
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

// deleteCopies deletes the objects of chats that woke once Redis has the chats on its disk.
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
			if !state.Asleep && state.Note > 0 { // else the object is the chat, or deleted
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

// Sweep deletes the objects of chats that woke, lists the objects of the store if that is due, and has some idle chats
// fall asleep.
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

// step has an idle chat take the next step to sleep.
func (s *ColdTier) step(ctx context.Context, chat memory.Chat, used int64, state redisstore.Sleep) error {
	now := time.Now().UnixMilli()
	switch {
	case !state.Asleep && state.Turn != state.Note && now-state.Turn < min(s.Cfg.Cold.IdleTime,
		freshlyUsed).Milliseconds():
		return nil // another hand than the sweeper's has held its lease
	case state.Asleep && state.Turn != 0 && state.Note <= 0: // a sweeper was killed, or Redis has lost a part
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

// putAway is the first round: the chat becomes an object, and stays in Redis.
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
		// This process was paused, and something may have been taken away meanwhile.
		forgotten, unknown := cold.Forgotten(ctx, s.Cfg.Cold.Store, chat)
		if unknown == nil && forgotten > turn {
			unknown = s.Cfg.Cold.Store.Delete(ctx, cold.Name(cold.Chats, chat))
		}
		return errors.Join(err, unknown)
	}
	return s.Store.Cold.FallAsleep(ctx, chat, used)
}

// leave is the second round: what is still as the object has it goes. left says that all is gone but the entry in the
// list.
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
			return tier.WakeUp(ctx, chat, used, true) // it begins again another time
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

// list brings all objects of the store into the lists of those that sleep, when Redis does not say that they are, or
// may have lost some since.
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
		if err != nil || states[0].Note != 0 { // it is awake, or falls asleep
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

// Cards are what objects say of chats that sleep; an object that cannot be read says nothing.
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
			if o.Turn > s.Follower.File.HistoryTurn(memory.ChatKey(chat)) { // else it was erased since
				cards[i] = o.Card
			}
			return nil
		})
	}
	_ = reading.Wait() // it says nothing
	return cards
}
