package runs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/redisstore"
	"mneme/webmemory/node"
)

// This file is about the right to write into a chat: a lease in Redis, of which there is
// one per chat among all processes. A request for it first waits in the chat's line of
// this process (queue.go), so that only the first of a line asks Redis.

var (
	// errLeaseLost is the cause of a lease's context after another process could take it.
	errLeaseLost = fmt.Errorf("the lease is no longer held: %w", memory.ErrMoved)
	// ErrClaimed indicates that another waiter has claimed the chat's next lease. That waiter may be behind the caller
	// in this process's queue, so the caller must enter the queue again.
	ErrClaimed = errors.New("the chat's next lease is claimed")
)

// Lease is the right to write into one chat until it runs out, unless it is renewed
// before. Its Number is the fencing token, the chat's turn: each write carries it, and
// Redis refuses one that is lower than the newest. Its token names its holder: renewing
// and giving back are compare-and-set on it. The keeper renews it; its other methods are
// for the goroutine that acquired it.
type Lease struct {
	redisstore.Turn
	Chat   memory.Chat
	Token  string
	keeper *Keeper
	Next   func() // calls in the waiter that is next in the line of this process

	// Ctx ends when the lease is lost, with errLeaseLost, or given back.
	Ctx    context.Context
	cancel context.CancelCauseFunc
	// detached: Redis did not answer for most of the lease's life. Nothing is written
	// there any more; the run goes on into the spool, since without Redis no other process
	// can take the lease either.
	detached atomic.Bool

	OpenRun     atomic.Pointer[redisstore.OpenRun] // the open run, in Redis beside the lease; nil for none
	FinishedRun *Run                               // ran under it, and Redis knows that it is over; nil before
	driven      atomic.Pointer[Driver]             // brings the open run to its end; nil before
	// Redis lost it; it was regained, and what else was lost is not put back yet
	needsRestore atomic.Bool
	regained     chan struct{} // holds a token when it is time to put it back

	Renewing  sync.Mutex    // one renewal at a time
	Requested time.Duration // guarded by Renewing: when it was asked for last, on the monotonic clock
	renewed   atomic.Int64  // when it was last asked for with success, on the monotonic clock, ns
}

// mayWrite is nil while the holder may write. When the lease may have run out, as after a
// time in which this process did not run, it waits for what the keeper finds.
func (l *Lease) mayWrite() error {
	for l.Ctx.Err() == nil && !l.detached.Load() && l.unrenewed() >= l.keeper.life {
		select {
		case <-l.Ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return context.Cause(l.Ctx)
}

// unrenewed is how long ago the lease was last known to be held.
func (l *Lease) unrenewed() time.Duration { return node.Monotonic() - time.Duration(l.renewed.Load()) }

// Opened notes which run is open under the lease, to be noted again should Redis lose it.
func (l *Lease) Opened(run redisstore.OpenRun) { l.OpenRun.Store(&run) }

// renewLast prolongs a lease that is given back next, and says how many entries the log
// of its run has; 0 if that is not known.
func (l *Lease) renewLast(ctx context.Context, run string) (entries int) {
	l.Renewing.Lock()
	defer l.Renewing.Unlock()
	owned, entries, err := l.keeper.store.Turns.RenewLast(ctx, l.Chat, l.Token, l.keeper.life, run)
	_, _ = l.orRegain(ctx, owned, err)
	return entries
}

// orRegain is the end of a renewal. A lease that Redis lost is taken again by compare-and-set,
// unless another process took it since. With the lease Redis has most likely lost the run's log
// and the histories too: the driver puts them back when it takes the next events, or, while it
// waits for some, in a goroutine of the keeper's (Driver.mend).
func (l *Lease) orRegain(ctx context.Context, owned bool, err error) (bool, error) {
	if err == nil && !owned {
		owned, err = l.keeper.store.Turns.Regain(ctx, l.Chat, l.Token, l.keeper.life, l.Turn, l.OpenRun.Load())
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

// End gives the lease back, its run over; once Redis is back, if it is away.
func (l *Lease) End() error {
	store := l.keeper.store
	switch waiting := l.Waiting; {
	case waiting != nil && (l.FinishedRun == nil || l.FinishedRun.ID != waiting.Run): // and goes on to do so
		return l.giveBack(func(ctx context.Context, chat memory.Chat, token string) error {
			return store.Suspensions.Release(ctx, chat, token, *waiting)
		})
	case l.FinishedRun == nil:
		return l.giveBack(store.Turns.Release)
	}
	return l.giveBack(func(ctx context.Context, chat memory.Chat, token string) error {
		return store.Turns.Close(ctx, chat, token, l.FinishedRun.ID, l.FinishedRun.FirstRun(), l.FinishedRun.Keyed)
	})
}

// Leave gives the lease back as it was found: a run that is open stays so, for another
// process to finish.
func (l *Lease) Leave() error { return l.giveBack(l.keeper.store.Turns.Leave) }

// Release gives the lease back in one of these ways, and calls in the next waiter in line.
func (l *Lease) Release(how func() error, log *zerolog.Logger) error {
	err := how()
	if err != nil {
		log.Warn().Err(err).Msg(node.NotGivenBack)
	}
	l.Next()
	return err
}

func (l *Lease) giveBack(how func(context.Context, memory.Chat, string) error) error {
	defer l.keeper.released(l.Chat)
	l.keeper.drop(l)
	l.cancel(nil)
	l.Renewing.Lock() // a renewal under way would take the lease again
	defer l.Renewing.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Ctx), node.StoreTimeout)
	defer cancel()
	err := how(ctx, l.Chat, l.Token)
	if errors.Is(err, memory.ErrUnavailable) {
		l.keeper.retry(func(ctx context.Context) error { return how(ctx, l.Chat, l.Token) })
	}
	return err
}

// Keeper renews all leases of a process, from one goroutine and with one pipeline for all
// that are due. Make it with NewKeeper, end it with close.
type Keeper struct {
	store *redisstore.Store
	life  time.Duration                     // of a lease
	retry func(func(context.Context) error) // see node.Core.RetryInBackground
	// released is called with the chat of each lease that was given back.
	released func(memory.Chat)

	mu     sync.Mutex
	leases map[*Lease]bool // guarded by mu
	wake   chan struct{}   // there is a lease again

	stop    context.CancelFunc
	working sync.WaitGroup
}

// NewKeeper returns a keeper of leases that last for life. retry repeats a release that Redis did not take, and released
// is called after each release.
func NewKeeper(store *redisstore.Store, life time.Duration, retry func(func(context.Context) error),
	released func(memory.Chat)) *Keeper {
	k := &Keeper{store: store, life: life, retry: retry, released: released, leases: map[*Lease]bool{},
		wake: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.working.Go(func() { k.keep(ctx) })
	return k
}

// Close stops the renewal of leases.
func (k *Keeper) Close() {
	k.stop()
	k.working.Wait()
}

// Add keeps a lease that was taken, from then on until it is dropped.
func (k *Keeper) Add(ctx context.Context, l *Lease) {
	l.keeper, l.regained = k, make(chan struct{}, 1)
	l.Ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.renewed.Store(int64(l.Requested))
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

func (k *Keeper) drop(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, l)
}

// keep renews until ctx ends, each lease about three times in its life.
func (k *Keeper) keep(ctx context.Context) {
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
func (k *Keeper) due() (due []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, urgent := node.Monotonic(), false
	for l := range k.leases {
		if !l.Renewing.TryLock() {
			continue // its holder does it
		}
		waited := now - l.Requested
		if waited < k.life/6 {
			l.Renewing.Unlock()
			continue
		}
		due, urgent = append(due, l), urgent || waited >= k.life/3
	}
	if urgent {
		return due
	}
	for _, l := range due {
		l.Renewing.Unlock()
	}
	return nil
}

// renew prolongs leases that due gave. A lease that got no answer for two thirds of its life is
// detached: its holder stops writing to Redis before the lease can run out there and another
// process may begin. If this process itself did not run for that long (a paused machine, too
// little CPU), it cannot know whether the lease has run out, and the lease counts as lost.
// Times are those of the monotonic clock, which goes on when the machine's is set.
func (k *Keeper) renew(due []*Lease) {
	requested := node.Monotonic() // not when it was answered: a pause may lie between the two
	oldest := requested
	names := make([]redisstore.Lease, len(due))
	for i, l := range due {
		oldest = min(oldest, time.Duration(l.renewed.Load()))
		names[i] = redisstore.Lease{Chat: l.Chat, Token: l.Token}
	}
	patience := min(max(oldest+k.life*2/3-requested, k.life/6), k.life/3, node.StoreTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results, failed := k.store.Turns.RenewAll(ctx, k.life, names)
	var settling sync.WaitGroup
	sem := make(chan struct{}, WriteBackers)
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
func (l *Lease) settle(requested time.Duration, owned bool, err error) {
	defer l.Renewing.Unlock()
	previous := l.Requested
	l.Requested = requested
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
