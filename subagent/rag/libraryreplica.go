package rag

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"mneme/subagent/rag/docstore"
)

// replica is a collection as this process has it.
type replica struct {
	collection docstore.Collection
	library    *Library
	gate       chan struct{} // full while somebody changes what follows
	known      atomic.Pointer[known]
	tidied     atomic.Pointer[known] // what the vectors in the store were last compared with
	used       int64                 // guarded by the library's mu
	lag        lag
	saved      saved // of the follower

	mu      sync.Mutex
	running *catchUp // nil if nobody catches up; guarded by mu
	written []wrote  // by this process while the gate was full; guarded by mu
}

// catchUp is an attempt to apply what is missing, of which there is one at a time,
// whoever waits for it.
type catchUp struct {
	read atomic.Int64  // documents
	done chan struct{} // closed behind err
	err  error
}

// lock takes the gate.
func (r *replica) lock(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlock gives the gate back when all is applied that this process wrote meanwhile.
func (r *replica) unlock() {
	for {
		r.applyWritten()
		<-r.gate
		r.mu.Lock()
		left := len(r.written) > 0
		r.mu.Unlock()
		if !left {
			return
		}
		select {
		case r.gate <- struct{}{}: // what came in between
		default:
			return // the next one does it
		}
	}
}

// leg is the replica as one of the collections of a search: with all that the store
// had when it was called, or behind it or degraded if that cannot be had in time.
func (r *replica) leg(ctx context.Context) (leg, error) {
	if r.known.Load() == nil {
		if err := r.first(ctx); err != nil {
			return leg{}, err
		}
	}
	o := r.library.o
	bounded, cancel := context.WithTimeout(ctx, o.Patience)
	last, err := r.library.store.Last(bounded, r.collection)
	cancel()
	k := r.known.Load()
	switch {
	case errors.Is(err, docstore.ErrUnavailable) && k != nil:
		return leg{collection: r.collection, known: k, degraded: true}, nil
	case errors.Is(err, docstore.ErrNoCollection):
		r.drop()
		return leg{}, err
	case err != nil:
		return leg{}, err
	}
	if k != nil && *k.mark.Load() == last {
		r.lag.level()
		return leg{collection: r.collection, known: k}, nil
	}
	r.lag.heard(last)
	return r.caughtUp(ctx, last)
}

// first waits for a replica that has nothing yet, as long as the caller does.
func (r *replica) first(ctx context.Context) error {
	run, _ := r.catchUp()
	select {
	case <-run.done:
		return run.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// caughtUp waits for the store's last change to be applied, at most as long as a
// search does for that.
func (r *replica) caughtUp(ctx context.Context, last docstore.Mark) (leg, error) {
	over := time.NewTimer(r.library.o.CatchUp)
	defer over.Stop()
	for {
		run, begun := r.catchUp()
		select {
		case <-run.done:
		case <-over.C:
			if k := r.known.Load(); k != nil {
				return leg{collection: r.collection, known: k, degraded: true, proof: &proof{replica: r}}, nil
			}
			return leg{}, r.first(ctx) // it was made anew
		case <-ctx.Done():
			return leg{}, context.Cause(ctx)
		}
		k := r.known.Load()
		switch {
		case errors.Is(run.err, docstore.ErrUnavailable) && k != nil:
			return leg{collection: r.collection, known: k, degraded: true, proof: &proof{replica: r}}, nil
		case run.err != nil:
			return leg{}, run.err
		case begun || k != nil && *k.mark.Load() == last:
			return leg{collection: r.collection, known: k}, nil
		}
	}
}

// catchUp begins to apply what is missing, unless that goes on already. It belongs to
// the library: whoever began it may leave.
func (r *replica) catchUp() (run *catchUp, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running, false
	}
	run = &catchUp{done: make(chan struct{})}
	r.running = run
	begun = r.library.goes(func(ctx context.Context) {
		r.end(run, r.apply(ctx, &run.read))
	})
	if !begun {
		r.running = nil
		run.err = errStopped
		close(run.done)
	}
	return run, begun
}

var errStopped = fmt.Errorf("%w: this process stops", docstore.ErrUnavailable)

func (r *replica) end(run *catchUp, err error) {
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	run.err = err
	close(run.done)
}

// attempts bounds how often a collection is compared with the store because its log
// was cut, or it was made anew, while that was done.
const attempts = 5

// apply applies what is missing; read counts the documents read for that, if they
// have to be compared one by one.
func (r *replica) apply(ctx context.Context, read *atomic.Int64) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	last, err := r.library.store.Last(ctx, r.collection)
	if errors.Is(err, docstore.ErrNoCollection) {
		r.drop()
	}
	if err != nil {
		return err
	}
	r.lag.heard(last)
	for range attempts {
		k := r.known.Load()
		if k == nil {
			k = r.restored()
		}
		err := docstore.ErrGap
		if *k.mark.Load() != (docstore.Mark{}) {
			err = r.follow(ctx, k)
		}
		if errors.Is(err, docstore.ErrGap) {
			if err = r.compare(ctx, k, read); err == nil {
				err = r.follow(ctx, k)
			}
		}
		switch {
		case err == nil:
			r.known.Store(k)
			r.lag.level()
			return nil
		case errors.Is(err, docstore.ErrGap): // cut meanwhile: less differs the next time
			r.known.Store(k)
		case errors.Is(err, docstore.ErrNoCollection):
			r.drop()
			return err
		default:
			return err
		}
	}
	return fmt.Errorf("reading collection %s: %w: its log was cut under every attempt", r.collection, docstore.ErrUnavailable)
}

// drop forgets a collection that is gone.
func (r *replica) drop() {
	r.known.Store(nil)
	r.lag.level()
	r.library.forget(r.collection)
}

// tailPage is how many changes are read at once.
const tailPage = 1000

// follow applies the log's end. The caller has the gate.
func (r *replica) follow(ctx context.Context, k *known) error {
	for {
		changes, err := r.library.store.Tail(ctx, r.collection, *k.mark.Load(), tailPage)
		if err != nil || len(changes) == 0 {
			return err
		}
		last := map[string]int64{} // of each document
		var ids []string
		for _, c := range changes {
			if c.ID == "" {
				continue
			}
			if last[c.ID] == 0 {
				ids = append(ids, c.ID)
			}
			last[c.ID] = c.Mark.Version
		}
		// As they are now, which may be newer than the change: later ones of the same
		// document then change nothing. One that is not there now is gone by its last
		// change at the latest.
		u := update{mark: changes[len(changes)-1].Mark}
		for page := range pages(ids, fetchPage) {
			found, err := r.library.store.GetAll(ctx, r.collection, page...)
			if err != nil {
				return err
			}
			for _, id := range page {
				if d, ok := found[id]; ok {
					u.puts = append(u.puts, d)
					delete(last, id)
				}
			}
		}
		u.gone = last
		k.apply(u)
		r.applyWritten()
	}
}

// fetchPage is how many documents are read at once, and fetchBytes how many bytes
// of them if their sizes are known.
const (
	fetchPage  = 200
	fetchBytes = 8 << 20
)

func pages(ids []string, size int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(ids) > 0 {
			n := min(size, len(ids))
			if !yield(ids[:n]) {
				return
			}
			ids = ids[n:]
		}
	}
}

// compare makes what is known what the store has, document by document: those whose
// head says something else than what is known are read, on all processors, and those
// without one are gone. Changes made meanwhile are in the log behind the mark that it
// begins with. The caller has the gate.
func (r *replica) compare(ctx context.Context, k *known, read *atomic.Int64) error {
	mark, err := r.library.store.Last(ctx, r.collection)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	jobs := make(chan []docstore.Head)
	w := &comparison{replica: r, known: k, read: read, stop: stop}
	var working sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 1 { // one more, since they wait for the store too
		working.Go(func() { w.work(ctx, jobs) })
	}
	live, err := w.list(ctx, jobs)
	close(jobs)
	working.Wait()
	if w.err != nil {
		return w.err
	}
	if err != nil {
		return err
	}
	gone := map[string]int64{}
	k.mu.RLock()
	for id := range k.byID {
		if !live[id] {
			gone[id] = gonePast
		}
	}
	k.mu.RUnlock()
	k.apply(update{prepared: w.prepared, gone: gone, mark: mark})
	r.applyWritten()
	if w.passages > manyPassages {
		w.prepared = nil
		debug.FreeOSMemory() // what the building took is not needed again soon
	}
	return nil
}

// gonePast is above all versions.
const gonePast = 1<<63 - 1

// manyPassages are as many as are worth giving back memory for.
const manyPassages = 20_000

// comparison is one compare.
type comparison struct {
	replica *replica
	known   *known
	read    *atomic.Int64
	stop    context.CancelFunc

	mu       sync.Mutex
	prepared []prepared // guarded by mu
	passages int        // guarded by mu
	err      error      // the first; guarded by mu
}

// A job is about as many passages, and not many more bytes.
const jobPassages = 4096

// list hands out the heads of documents that differ from what is known, and gives
// the ids of all.
func (w *comparison) list(ctx context.Context, jobs chan<- []docstore.Head) (live map[string]bool, err error) {
	live = map[string]bool{}
	var job []docstore.Head
	passages, bytes := 0, 0
	hand := func() {
		if len(job) > 0 {
			select {
			case jobs <- job:
			case <-ctx.Done():
			}
		}
		job, passages, bytes = nil, 0, 0
	}
	empty := len(w.known.byID) == 0 // nobody else changes it: the caller has the gate
	for cursor := ""; ; {
		heads, next, err := w.replica.library.store.List(ctx, w.replica.collection, cursor, docstore.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			if !empty { // a first reading has nothing that could be gone
				live[h.ID] = true
				sum := contentHashOf(h.Hash)
				if old := w.known.document(h.ID); old != nil && old.Version == h.Version && old.sum == sum {
					continue
				}
			}
			if bytes+h.Bytes > fetchBytes {
				hand()
			}
			job = append(job, h)
			passages, bytes = passages+h.Passages, bytes+h.Bytes
			if passages >= jobPassages {
				hand()
			}
		}
		if cursor = next; cursor == "" {
			hand()
			return live, nil
		}
	}
}

// work reads and prepares documents.
func (w *comparison) work(ctx context.Context, jobs <-chan []docstore.Head) {
	for job := range jobs {
		if ctx.Err() != nil {
			continue
		}
		ids := make([]string, len(job))
		for i, h := range job {
			ids[i] = h.ID
		}
		found, err := w.replica.library.store.GetAll(ctx, w.replica.collection, ids...)
		if err != nil {
			w.mu.Lock()
			if w.err == nil {
				w.err = err
			}
			w.mu.Unlock()
			w.stop()
			continue
		}
		var documents []docstore.Document
		passages := 0
		for _, id := range ids {
			if d, ok := found[id]; ok { // if not, the log says so
				documents = append(documents, d)
				passages += len(d.Passages)
			}
		}
		p := w.known.prepare(documents)
		w.mu.Lock()
		w.prepared = append(w.prepared, p)
		w.passages += passages
		w.mu.Unlock()
		w.read.Add(int64(len(documents)))
	}
}

// wrote is what this process has changed in the store.
type wrote struct {
	puts  []docstore.Document
	gone  map[string]int64 // ids → the version by which they are gone
	steps []docstore.Step
}

// maxWritten bounds what waits for the gate. More is left to the log.
const maxWritten = 1000

// wrote notes what this process has changed in the store, so that it is known here
// whatever becomes of the store; at once, or, while a catch-up changes the replica,
// behind that.
func (r *replica) wrote(w wrote) {
	r.mu.Lock()
	if len(r.written) < maxWritten {
		r.written = append(r.written, w)
	}
	r.mu.Unlock()
	select {
	case r.gate <- struct{}{}:
		r.unlock()
	default:
	}
}

// applyWritten applies what this process wrote. What others changed in between is
// still to be read from the log, and what is applied from there already is left as it
// is. The caller has the gate.
func (r *replica) applyWritten() {
	r.mu.Lock()
	list := r.written
	r.written = nil
	r.mu.Unlock()
	k := r.known.Load()
	if k == nil {
		return // the first search reads it
	}
	for _, w := range list {
		u := update{gone: map[string]int64{}, mark: *k.mark.Load()}
		applied := u.mark.Version
		for _, d := range w.puts {
			if d.Version > applied {
				u.puts = append(u.puts, d)
			}
		}
		for id, version := range w.gone {
			if version > applied {
				u.gone[id] = version
			}
		}
		for _, s := range w.steps {
			if s.Before == u.mark {
				u.mark = s.Mark
			}
		}
		k.apply(u)
	}
}
