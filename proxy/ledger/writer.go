package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	maxWaiting = 4096     // entries that may wait to be saved
	maxBacklog = 16 << 20 // their size, in bytes
	batchSize  = 64       // entries of one Save

	saveTimeout = 2 * time.Second
	// beat is the interval at which erasures of other processes are asked for, and after which a
	// remote that failed is tried again.
	beat = time.Second
	// skew is the largest assumed difference between the clocks of processes.
	skew = time.Minute
)

// writer is a write-behind queue: one goroutine saves entries to the remote, in their order, and
// watches whether the remote is there.
type writer struct {
	Config
	erased  func([]Erasure)
	saved   func([]*item, []Mark) // called with what was saved, and where it stands
	onLoss  func(context.Context) // called when the remote has lost everything
	born    string                // the remote's incarnation when it was last asked; belongs to the goroutine
	reading trouble               // the last query failed
	saving  trouble               // the last save failed

	mu      sync.Mutex
	waiting []*item // guarded by mu
	bytes   int     // guarded by mu
	dropped int64   // guarded by mu
	closed  bool    // guarded by mu

	wake   chan struct{}      // something waits, or the writer is closed
	cancel context.CancelFunc // ends the goroutine's current call
	done   chan struct{}      // closed when the goroutine has ended
}

// item is an entry that waits to be saved.
type item struct {
	Entry
	size  int
	saved chan struct{} // closed when the item is saved or dropped
}

// startWriter starts the goroutine that close ends.
func startWriter(c Config, l *Ledger) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{
		Config: c, erased: l.erase, saved: l.saved, onLoss: l.saveAll,
		wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go w.run(ctx)
	return w
}

// put queues entries and waits until they are saved, for Config.Patience at most, and longer for a
// stored response, which its client may ask another process for at once. While the remote is failing
// it does not wait.
func (w *writer) put(ctx context.Context, entries ...Entry) {
	var last *item
	for _, e := range entries {
		last = w.enqueue(e)
	}
	if last == nil || w.failing() {
		return
	}
	patience := w.Patience
	if last.Turn != nil && last.Turn.Response != nil {
		patience = max(saveTimeout, patience)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-last.saved:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// enqueue queues an entry; nil after close. If the queue is full, the oldest entries are dropped.
func (w *writer) enqueue(e Entry) *item {
	i := &item{Entry: e, size: 256, saved: make(chan struct{})}
	if e.Turn != nil {
		i.size += len(e.Turn.Content)
		if e.Turn.Place != nil {
			i.size += len(e.Turn.Place.Input)
		}
		if e.Turn.Response != nil {
			i.size += e.Turn.Response.Size()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.waiting = append(w.waiting, i)
	w.bytes += i.size
	for len(w.waiting) > maxWaiting || w.bytes > maxBacklog && len(w.waiting) > 1 {
		w.dropped++
		w.leave(w.waiting[:1])
	}
	w.stir()
	return i
}

// requeue queues turns once more, apart from those that wait already.
func (w *writer) requeue(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	w.mu.Lock()
	waiting := make(map[*Turn]struct{}, len(w.waiting))
	for _, i := range w.waiting {
		waiting[i.Turn] = struct{}{}
	}
	w.mu.Unlock()
	for _, e := range entries {
		if _, queued := waiting[e.turn]; !queued {
			w.enqueue(e.remote())
		}
	}
}

// leave takes items out of the queue and releases the goroutines that wait for them. The caller holds mu.
func (w *writer) leave(items []*item) {
	going := make(map[*item]struct{}, len(items))
	for _, i := range items {
		going[i] = struct{}{}
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(i *item) bool {
		_, ok := going[i]
		if ok {
			w.bytes -= i.size
			close(i.saved)
		}
		return ok
	})
}

// stir wakes the goroutine, without waiting for it.
func (w *writer) stir() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) counts() (waiting int, dropped int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting), w.dropped
}

// run saves what waits until the writer is closed and the queue is empty.
func (w *writer) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	cutoff := w.Now().Add(-skew)
	for ctx.Err() == nil {
		batch, closed := w.batch()
		if len(batch) > 0 && w.save(ctx, batch) {
			continue
		}
		if closed && len(batch) == 0 {
			return
		}
		wake := w.wake
		if len(batch) > 0 {
			wake = nil // after a failure the next attempt comes with the next beat
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-tick.C:
			cutoff = w.watch(ctx, cutoff)
		}
	}
}

// batch is a copy of the queue's first entries.
func (w *writer) batch() (batch []*item, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(batch, w.waiting[:min(batchSize, len(w.waiting))]...), w.closed
}

// save saves a batch, and takes it out of the queue if that succeeded.
func (w *writer) save(ctx context.Context, batch []*item) bool {
	entries := make([]Entry, len(batch))
	for n, i := range batch {
		entries[n] = i.Entry
	}
	timed, cancel := context.WithTimeout(ctx, max(saveTimeout, w.Patience))
	defer cancel()
	marks, err := w.Remote.Save(timed, entries)
	w.saving.note(err, w.Log, "save turns")
	if err != nil {
		return false
	}
	w.saved(batch, marks)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(batch)
	return true
}

// watch asks for erasures, which also shows whether the remote is there, and whether it still has
// what was saved.
func (w *writer) watch(ctx context.Context, cutoff time.Time) time.Time {
	now := w.Now()
	timed, cancel := context.WithTimeout(ctx, max(saveTimeout, w.Patience))
	defer cancel()
	loaded, err := w.Remote.Load(timed, Query{ErasedSince: cutoff})
	w.reading.note(err, w.Log, "look for turns")
	if err != nil {
		return cutoff
	}
	if waiting, _ := w.counts(); waiting == 0 {
		w.saving.note(nil, w.Log, "save turns") // what failed to be saved was erased meanwhile
	}
	w.erased(loaded.Erasures)
	if w.born != "" && loaded.Born != w.born {
		w.Log.Warn().Msg("the ledger's Redis has lost what it had; this process saves again what it knows")
		w.onLoss(ctx)
	}
	w.born = loaded.Born
	return now.Add(-skew)
}

// erase removes a conversation from the queue, then from the remote.
func (w *writer) erase(ctx context.Context, e Erasure) error {
	w.mu.Lock()
	var erased []*item
	for _, i := range w.waiting {
		if i.Scope.Tenant == e.Tenant && i.Scope.Conversation == e.Conversation && !i.Time.After(e.Time) {
			erased = append(erased, i)
		}
	}
	w.leave(erased)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(saveTimeout, w.Patience))
	defer cancel()
	return w.Remote.Erase(ctx, e)
}

// keep tells the remote until when a conversation stays.
func (w *writer) keep(ctx context.Context, t talk, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, max(saveTimeout, w.Patience))
	defer cancel()
	return w.Remote.Keep(ctx, t.tenant, t.conversation, until)
}

// flush waits until what is queued of a conversation is saved.
func (w *writer) flush(ctx context.Context, t talk) error {
	ctx, cancel := context.WithTimeout(ctx, max(saveTimeout, w.Patience))
	defer cancel()
	w.mu.Lock()
	queued := slices.Clone(w.waiting)
	w.mu.Unlock()
	for _, i := range queued {
		if (talk{i.Scope.Tenant, i.Scope.Conversation}) != t {
			continue
		}
		select {
		case <-i.saved:
		case <-ctx.Done():
			return fmt.Errorf("its turns are not saved yet: %w", ctx.Err())
		}
	}
	return nil
}

func (w *writer) failing() bool { return w.reading.Load() || w.saving.Load() }

// trouble is whether a remote failed when it was last tried.
type trouble struct{ atomic.Bool }

// note records an outcome, and logs it only when it changes.
func (t *trouble) note(err error, log zerolog.Logger, what string) {
	switch {
	case errors.Is(err, context.Canceled): // by this process
	case err != nil && !t.Swap(true):
		log.Warn().Err(err).Msgf("Redis cannot be reached to %s; this process uses its own memory until Redis returns", what)
	case err == nil && t.Load() && t.Swap(false):
		log.Info().Msgf("Redis can be reached again to %s", what)
	}
}

// close ends the goroutine once the queue is empty, or when ctx ends.
func (w *writer) close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stir()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	w.cancel()
	<-w.done
	if waiting, _ := w.counts(); waiting > 0 {
		return fmt.Errorf("close the ledger: %d turns and refusals were not saved: %w", waiting, context.Cause(ctx))
	}
	return nil
}
