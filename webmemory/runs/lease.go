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

var (
	// errLeaseLost is the cause of a lease's context after another process could take the lease.
	errLeaseLost = fmt.Errorf("the lease is no longer held: %w", memory.ErrMoved)
	// ErrClaimed indicates that another waiter has claimed the chat's next lease. That waiter may come after the caller in
	// this process's queue, so the caller must enter the queue again.
	ErrClaimed = errors.New("the chat's next lease is claimed")
)

// Lease is the right to write into one chat. A chat has one lease in Redis, which expires unless the keeper renews it.
// Requests wait in the chat's line of their process (Queue), so only the first of a line asks Redis.
//
// Number is the fencing token, the chat's turn. Every write carries it, and Redis rejects a number below the newest.
// Token identifies the holder. Renewal and release are compare-and-set operations on it. The keeper renews the lease;
// its other methods are for the goroutine that acquired it.
type Lease struct {
	redisstore.Turn
	Chat   memory.Chat
	Token  string
	keeper *Keeper
	Next   func() // admits the next waiter in this process's line

	// Ctx ends when the lease is released or lost. The cause of a lost lease is errLeaseLost.
	Ctx    context.Context
	cancel context.CancelCauseFunc
	// detached is set after Redis did not answer for most of the lease's life. Writes then go only to the spool. Without
	// Redis, no other process can take the lease either.
	detached atomic.Bool

	OpenRun     atomic.Pointer[redisstore.OpenRun] // open run, stored in Redis with the lease; nil if none
	FinishedRun *Run                               // run that ended under the lease, as stored in Redis
	driven      atomic.Pointer[Driver]             // driver of the open run; nil before
	// lease was lost and regained; other lost data is not yet restored
	needsRestore atomic.Bool
	regained     chan struct{} // holds a value when the lost data should be restored

	Renewing  sync.Mutex    // held during a renewal
	Requested time.Duration // guarded by Renewing: time of the last request, on the monotonic clock
	renewed   atomic.Int64  // time of the last successful request, on the monotonic clock, ns
}

// mayWrite returns nil while the holder may write. If the lease may have expired, for example after a pause of this
// process, it waits for the keeper's result.
func (l *Lease) mayWrite() error {
	for l.Ctx.Err() == nil && !l.detached.Load() && l.unrenewed() >= l.keeper.life {
		select {
		case <-l.Ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return context.Cause(l.Ctx)
}

// unrenewed returns the time since the last successful request for the lease.
func (l *Lease) unrenewed() time.Duration { return node.Monotonic() - time.Duration(l.renewed.Load()) }

// Opened stores the run that is open under the lease. If Redis loses the lease, the run is stored with it again.
func (l *Lease) Opened(run redisstore.OpenRun) { l.OpenRun.Store(&run) }

// renewLast renews a lease that is about to be released. It returns the number of entries in the run's log, or 0 if
// unknown.
func (l *Lease) renewLast(ctx context.Context, run string) (entries int) {
	l.Renewing.Lock()
	defer l.Renewing.Unlock()
	owned, entries, err := l.keeper.store.Turns.RenewLast(ctx, l.Chat, l.Token, l.keeper.life, run)
	_, _ = l.orRegain(ctx, owned, err)
	return entries
}

// orRegain completes a renewal. It takes a lost lease again by compare-and-set, unless another process has taken it
// since.
//
// Redis has then probably lost the run's log and the histories too. The driver restores them before it takes the next
// events. While the driver waits, a goroutine of the keeper does so (Driver.mend).
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
		default: // a restore is already pending
		}
	}
	return owned, err
}

// End releases the lease of a finished run. If Redis is unavailable, the release is retried in the background.
func (l *Lease) End() error {
	store := l.keeper.store
	switch waiting := l.Waiting; {
	case waiting != nil && (l.FinishedRun == nil || l.FinishedRun.ID != waiting.Run): // the run still waits
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

// Leave releases the lease and keeps an open run open, so that another process can finish it.
func (l *Lease) Leave() error { return l.giveBack(l.keeper.store.Turns.Leave) }

// Release calls how, which releases the lease, and then admits the next waiter in line. how is End, Leave or
// Driver.Rest.
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
	l.Renewing.Lock() // a concurrent renewal would take the lease again
	defer l.Renewing.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Ctx), node.StoreTimeout)
	defer cancel()
	err := how(ctx, l.Chat, l.Token)
	if errors.Is(err, memory.ErrUnavailable) {
		l.keeper.retry(func(ctx context.Context) error { return how(ctx, l.Chat, l.Token) })
	}
	return err
}

// Keeper renews all leases of a process from one goroutine, with one pipeline for all due leases. Create it with
// NewKeeper and stop it with Close.
type Keeper struct {
	store *redisstore.Store
	life  time.Duration                     // lifetime of a lease
	retry func(func(context.Context) error) // see node.Core.RetryInBackground
	// released is called with the chat of each released lease.
	released func(memory.Chat)

	mu     sync.Mutex
	leases map[*Lease]bool // guarded by mu
	wake   chan struct{}   // signals the first lease after an idle period

	stop    context.CancelFunc
	working sync.WaitGroup
}

// NewKeeper returns a keeper of leases that last for life. retry repeats a release after Redis was unavailable.
// released is called after each release.
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

// Add starts the renewal of an acquired lease. It ends when the lease is released, lost or detached.
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

// keep renews each lease about three times in its life, until ctx ends.
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
		select { // no ticks in an idle process
		case <-k.wake:
			tick.Reset(every)
		case <-ctx.Done():
			return
		}
	}
}

// due returns the leases to renew, each with Renewing locked. Once a lease has waited for a third of its life, due
// returns all leases that have waited for a sixth. This saves round trips.
func (k *Keeper) due() (due []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, urgent := node.Monotonic(), false
	for l := range k.leases {
		if !l.Renewing.TryLock() {
			continue // its holder renews or releases it
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

// renew renews the leases that due returned. A lease without an answer for two thirds of its life is detached. Its
// holder then stops writing to Redis before the lease can expire and another process can begin.
//
// If this process did not run for that long (a paused machine, too little CPU), the lease may have expired and counts
// as lost. Times are on the monotonic clock, which ignores changes to the machine's clock.
func (k *Keeper) renew(due []*Lease) {
	requested := node.Monotonic() // not the time of the answer, which a pause can delay
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

// settle applies the result of a renewal and unlocks l.Renewing.
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
		return // the keeper tries again
	}
	l.keeper.drop(l)
}
