package webmemory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// This file is about the right to write into a chat: a lease in Redis, of which there is
// one per chat among all processes. A request for it first waits in the chat's line of
// this process (queue.go), so that only the first of a line asks Redis.

var (
	// errLeaseLost is the cause of a lease's context after another process could take it.
	errLeaseLost = fmt.Errorf("the lease is no longer held: %w", memory.ErrMoved)
	// errClaimed: another waiter claimed the chat's next lease. It may stand in this
	// process's line behind the caller, and can only come when the caller steps back.
	errClaimed = errors.New("the chat's next lease is claimed")
)

// storeTimeout bounds one command to the store.
const storeTimeout = 5 * time.Second

// lease is the right to write into one chat until it runs out, unless it is renewed
// before. Its Number is the fencing token, the chat's turn: each write carries it, and
// Redis refuses one that is lower than the newest. Its token names its holder: renewing
// and giving back are compare-and-set on it. The keeper renews it; its other methods are
// for the goroutine that acquired it.
type lease struct {
	redisstore.Turn
	chat   memory.Chat
	token  string
	keeper *keeper
	next   func() // calls in the waiter that is next in the line of this process

	// ctx ends when the lease is lost, with errLeaseLost, or given back.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// detached: Redis did not answer for most of the lease's life. Nothing is written
	// there any more; the run goes on into the spool, since without Redis no other process
	// can take the lease either.
	detached atomic.Bool

	openRun     atomic.Pointer[redisstore.OpenRun] // the open run, in Redis beside the lease; nil for none
	finishedRun *run                               // ran under it, and Redis knows that it is over; nil before
	driven      atomic.Pointer[driver]             // brings the open run to its end; nil before
	// Redis lost it; it was regained, and what else was lost is not put back yet
	needsRestore atomic.Bool
	regained     chan struct{} // holds a token when it is time to put it back

	renewing  sync.Mutex    // one renewal at a time
	requested time.Duration // guarded by renewing: when it was asked for last, on the monotonic clock
	renewed   atomic.Int64  // when it was last asked for with success, on the monotonic clock, ns
}

// mayWrite is nil while the holder may write. When the lease may have run out, as after a
// time in which this process did not run, it waits for what the keeper finds.
func (l *lease) mayWrite() error {
	for l.ctx.Err() == nil && !l.detached.Load() && l.unrenewed() >= l.keeper.life {
		select {
		case <-l.ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return context.Cause(l.ctx)
}

// unrenewed is how long ago the lease was last known to be held.
func (l *lease) unrenewed() time.Duration { return monotonic() - time.Duration(l.renewed.Load()) }

// opened notes which run is open under the lease, to be noted again should Redis lose it.
func (l *lease) opened(run redisstore.OpenRun) { l.openRun.Store(&run) }

// renewLast prolongs a lease that is given back next, and says how many entries the log
// of its run has; 0 if that is not known.
func (l *lease) renewLast(ctx context.Context, run string) (entries int) {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	owned, entries, err := l.keeper.store.Turns.RenewLast(ctx, l.chat, l.token, l.keeper.life, run)
	_, _ = l.orRegain(ctx, owned, err)
	return entries
}

// orRegain is the end of a renewal. A lease that Redis lost is taken again by compare-and-set,
// unless another process took it since. With the lease Redis has most likely lost the run's log
// and the histories too: the driver puts them back when it takes the next events, or, while it
// waits for some, in a goroutine of the keeper's (driver.mend).
func (l *lease) orRegain(ctx context.Context, owned bool, err error) (bool, error) {
	if err == nil && !owned {
		owned, err = l.keeper.store.Turns.Regain(ctx, l.chat, l.token, l.keeper.life, l.Turn, l.openRun.Load())
		if owned {
			l.needsRestore.Store(true)
		}
	}
	if owned && l.needsRestore.Load() {
		select {
		case l.regained <- struct{}{}:
			if d := l.driven.Load(); d != nil {
				l.keeper.working.Go(d.mend)
			}
		default: // it is about to be put back
		}
	}
	return owned, err
}

// end gives the lease back, its run over; once Redis is back, if it is away.
func (l *lease) end() error {
	store := l.keeper.store
	switch waiting := l.Waiting; {
	case waiting != nil && (l.finishedRun == nil || l.finishedRun.id != waiting.Run): // and goes on to do so
		return l.giveBack(func(ctx context.Context, chat memory.Chat, token string) error {
			return store.Suspensions.Release(ctx, chat, token, *waiting)
		})
	case l.finishedRun == nil:
		return l.giveBack(store.Turns.Release)
	}
	return l.giveBack(func(ctx context.Context, chat memory.Chat, token string) error {
		return store.Turns.Close(ctx, chat, token, l.finishedRun.id, l.finishedRun.firstRun(), l.finishedRun.keyed)
	})
}

// leave gives the lease back as it was found: a run that is open stays so, for another
// process to finish.
func (l *lease) leave() error { return l.giveBack(l.keeper.store.Turns.Leave) }

// notGivenBack is what the log says of a lease that Redis did not take back.
const notGivenBack = "a turn was not given back; it runs out by itself"

// release gives the lease back in one of these ways, and calls in the next waiter in line.
func (l *lease) release(how func() error, log *zerolog.Logger) error {
	err := how()
	if err != nil {
		log.Warn().Err(err).Msg(notGivenBack)
	}
	l.next()
	return err
}

func (l *lease) giveBack(how func(context.Context, memory.Chat, string) error) error {
	defer l.keeper.released(l.chat)
	l.keeper.drop(l)
	l.cancel(nil)
	l.renewing.Lock() // a renewal under way would take the lease again
	defer l.renewing.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), storeTimeout)
	defer cancel()
	err := how(ctx, l.chat, l.token)
	if errors.Is(err, memory.ErrUnavailable) {
		l.keeper.retry(func(ctx context.Context) error { return how(ctx, l.chat, l.token) })
	}
	return err
}

// keeper renews all leases of a process, from one goroutine and with one pipeline for all
// that are due. Make it with newKeeper, end it with close.
type keeper struct {
	store *redisstore.Store
	life  time.Duration                     // of a lease
	retry func(func(context.Context) error) // see core.later
	// released is called with the chat of each lease that was given back.
	released func(memory.Chat)

	mu     sync.Mutex
	leases map[*lease]bool // guarded by mu
	wake   chan struct{}   // there is a lease again

	stop    context.CancelFunc
	working sync.WaitGroup
}

func newKeeper(store *redisstore.Store, life time.Duration, retry func(func(context.Context) error),
	released func(memory.Chat)) *keeper {
	k := &keeper{store: store, life: life, retry: retry, released: released, leases: map[*lease]bool{},
		wake: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.working.Go(func() { k.keep(ctx) })
	return k
}

func (k *keeper) close() {
	k.stop()
	k.working.Wait()
}

// add keeps a lease that was taken, from then on until it is dropped.
func (k *keeper) add(ctx context.Context, l *lease) {
	l.keeper, l.regained = k, make(chan struct{}, 1)
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.renewed.Store(int64(l.requested))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leases[l] = true
	if len(k.leases) == 1 {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *keeper) drop(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, l)
}

// keep renews until ctx ends, each lease about three times in its life.
func (k *keeper) keep(ctx context.Context) {
	every := max(k.life/12, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if due := k.due(); len(due) > 0 {
			k.renew(due)
			continue
		}
		k.mu.Lock()
		idle := len(k.leases) == 0
		k.mu.Unlock()
		if !idle {
			continue
		}
		select { // nothing ticks in a process at rest
		case <-k.wake:
			tick.Reset(every)
		case <-ctx.Done():
			return
		}
	}
}

// due gives the leases that are to be renewed, each locked against another renewal. Once one
// has gone without for a third of its life, all those go along in its pipeline that have for
// more than a sixth: one round trip instead of many.
func (k *keeper) due() (due []*lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, urgent := monotonic(), false
	for l := range k.leases {
		if !l.renewing.TryLock() {
			continue // its holder does it
		}
		waited := now - l.requested
		if waited < k.life/6 {
			l.renewing.Unlock()
			continue
		}
		due, urgent = append(due, l), urgent || waited >= k.life/3
	}
	if urgent {
		return due
	}
	for _, l := range due {
		l.renewing.Unlock()
	}
	return nil
}

// renew prolongs leases that due gave. A lease that got no answer for two thirds of its life is
// detached: its holder stops writing to Redis before the lease can run out there and another
// process may begin. If this process itself did not run for that long (a paused machine, too
// little CPU), it cannot know whether the lease has run out, and the lease counts as lost.
// Times are those of the monotonic clock, which goes on when the machine's is set.
func (k *keeper) renew(due []*lease) {
	requested := monotonic() // not when it was answered: a pause may lie between the two
	oldest := requested
	names := make([]redisstore.Lease, len(due))
	for i, l := range due {
		oldest = min(oldest, time.Duration(l.renewed.Load()))
		names[i] = redisstore.Lease{Chat: l.chat, Token: l.token}
	}
	patience := min(max(oldest+k.life*2/3-requested, k.life/6), k.life/3, storeTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results, failed := k.store.Turns.RenewAll(ctx, k.life, names)
	var settling sync.WaitGroup
	sem := make(chan struct{}, writeBackers)
	for i, l := range due {
		if failed[i] == nil && results[i] && !l.needsRestore.Load() {
			l.settle(requested, true, nil)
			continue
		}
		sem <- struct{}{}
		settling.Go(func() {
			owned, err := l.orRegain(ctx, results[i], failed[i])
			l.settle(requested, owned, err)
			<-sem
		})
	}
	settling.Wait()
}

// settle takes what a renewal brought, and ends it.
func (l *lease) settle(requested time.Duration, owned bool, err error) {
	defer l.renewing.Unlock()
	previous := l.requested
	l.requested = requested
	tooLong := l.keeper.life * 2 / 3
	switch {
	case err == nil && owned:
		l.renewed.Store(int64(requested))
		return
	case err == nil, requested-previous >= tooLong:
		l.cancel(errLeaseLost)
	case l.unrenewed() >= tooLong:
		l.detached.Store(true)
	default:
		return // it is tried again
	}
	l.keeper.drop(l)
}

// started is where the monotonic clock begins.
var started = time.Now()

// monotonic is the time since this process began, on a clock that goes on evenly when the
// machine's is set.
func monotonic() time.Duration { return time.Since(started) }

// pause waits for d, or until ctx ends; its cause is the error then.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// conversations are those that the gateway has of chats used here. Each lease carries the
// chat's: should Redis lose which one that is, it is offered again, with the thinking that
// the gateway kept; and an erasure reaches all of them.
type conversations struct {
	mu    sync.Mutex
	turns map[memory.Chat]map[string]int64 // guarded by mu: the newest turn of each, by its id
}

// note takes note of a chat's conversation, and of the lease's number.
func (c *conversations) note(chat memory.Chat, id string, turn int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns[chat] == nil {
		makeRoom(c.turns)
		c.turns[chat] = map[string]int64{}
	}
	c.turns[chat][id] = max(c.turns[chat][id], turn)
}

// newest is the chat's last one, "" if none is known.
func (c *conversations) newest(chat memory.Chat) (id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, turn := range c.turns[chat] {
		if turn > c.turns[chat][id] {
			id = other
		}
	}
	return id
}

// erased says whether a lease carries a conversation that was erased since it was last
// used here: this process had not heard of the erasure, and has offered it again to a
// Redis that had lost it.
func (c *conversations) erased(chat memory.Chat, turn redisstore.Turn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest, ok := c.turns[chat][turn.Conversation]
	return ok && newest <= turn.ErasedIn()
}

// until are the conversations of a chat that were not used after a number.
func (c *conversations) until(chat memory.Chat, turn int64) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, newest := range c.turns[chat] {
		if newest <= turn {
			ids = append(ids, id)
		}
	}
	return ids
}
