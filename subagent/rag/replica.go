package rag

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/subagent/rag/docstore"
)

// replica is this process's copy of one collection, kept up to date by the collection's change log.
type replica struct {
	collection docstore.Collection
	library    *Library
	gate       chan struct{}         // a mutex with a deadline: full while a goroutine changes the copy
	known      atomic.Pointer[known] // the copy; nil before it is read
	tidied     atomic.Pointer[known] // the copy that the vectors in the store were last compared with
	used       int64                 // guarded by the library's mu
	lag        lag
	saved      saved // belongs to the follower's goroutine

	mu      sync.Mutex
	running *catchUp // nil while no goroutine catches up; guarded by mu
	written []wrote  // writes of this process while the gate was taken; guarded by mu
}

// catchUp is one attempt to apply missing changes. Attempts are single flight: callers share the
// one that runs.
type catchUp struct {
	done chan struct{} // closed after err is set
	err  error
}

// lock takes the gate, the lock of all writers of the copy, or gives up when ctx ends. A sync.Mutex cannot do that.
// Readers need no gate: the copy's own mutex and the index's snapshots are enough for them.
func (r *replica) lock(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlock applies what this process wrote meanwhile and releases the gate. A write that comes between the two finds the
// gate taken and leaves its change in written; so unlock looks once more after the release, and takes the gate again if
// something was left. If another goroutine has it by then, its unlock does the work: no write is forgotten.
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
			return // the goroutine that has the gate does it
		}
	}
}

// leg is the replica's part in a search: current as of this call (linearizable with the store), or else marked as
// degraded, with a proof if the store can still check the hits. The mark in the store is asked for first. If it is the
// copy's, nothing is missing; if the store is away, the copy is all there is; otherwise the search joins the catch-up.
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

// first waits until what is missing has been read, for as long as the caller does.
func (r *replica) first(ctx context.Context) error {
	run, _ := r.catchUp()
	select {
	case <-run.done:
		return run.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// caughtUp waits until the store's last change is applied, for Options.CatchUp at most.
func (r *replica) caughtUp(ctx context.Context, last docstore.Mark) (leg, error) {
	over := time.NewTimer(r.library.o.CatchUp)
	defer over.Stop()
	for {
		run, begun := r.catchUp()
		select {
		case <-run.done:
		case <-over.C:
			if k := r.known.Load(); k != nil {
				return r.behind(k), nil
			}
			return leg{}, r.first(ctx) // the collection was made anew
		case <-ctx.Done():
			return leg{}, context.Cause(ctx)
		}
		k := r.known.Load()
		switch {
		case errors.Is(run.err, docstore.ErrUnavailable) && k != nil:
			return r.behind(k), nil
		case run.err != nil:
			return leg{}, run.err
		case begun || k != nil && *k.mark.Load() == last:
			return leg{collection: r.collection, known: k}, nil
		}
	}
}

// behind is the part in a search of a copy that lacks changes: its hits have to be proven by the store.
func (r *replica) behind(k *known) leg {
	return leg{collection: r.collection, known: k, degraded: true, proof: &proof{replica: r}}
}

// catchUp starts to apply missing changes unless that is under way. The work belongs to the library
// and goes on when the caller leaves.
func (r *replica) catchUp() (run *catchUp, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running, false
	}
	run = &catchUp{done: make(chan struct{})}
	r.running = run
	begun = r.library.goes(func(ctx context.Context) {
		r.end(run, r.apply(ctx))
	})
	if !begun {
		r.running = nil
		run.err = errStopped
		close(run.done)
	}
	return run, begun
}

var errStopped = fmt.Errorf("%w: this process stops", docstore.ErrUnavailable)

// end publishes the result of an attempt.
func (r *replica) end(run *catchUp, err error) {
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	run.err = err
	close(run.done)
}

// attempts bounds the retries of a comparison during which the log was cut or the collection made
// anew.
const attempts = 5

// apply brings the copy up to date: from the log if that reaches back far enough, else by comparing all documents. A
// comparison takes the log's mark before it reads, so that what changes meanwhile is in the log behind that mark and is
// followed afterwards. If the log was cut even there, it begins again, and has less to compare.
func (r *replica) apply(ctx context.Context) error {
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
			if err = r.compare(ctx, k); err == nil {
				err = r.follow(ctx, k)
			}
		}
		switch {
		case err == nil:
			r.known.Store(k)
			r.lag.level()
			return nil
		case errors.Is(err, docstore.ErrGap): // cut meanwhile: the next comparison has less to do
			r.known.Store(k)
		case errors.Is(err, docstore.ErrNoCollection):
			r.drop()
			return err
		default:
			return err
		}
	}
	return fmt.Errorf("reading collection %s: %w: its log was cut under every attempt", r.collection,
		docstore.ErrUnavailable)
}

// drop forgets a collection that the store no longer has.
func (r *replica) drop() {
	r.known.Store(nil)
	r.lag.level()
	r.library.forget(r.collection)
}

// tailPage is how many changes of the log are read at once.
const tailPage = 1000

// follow applies the log behind the copy's mark. The caller has the gate.
func (r *replica) follow(ctx context.Context, k *known) error {
	for {
		changes, err := r.library.store.Tail(ctx, r.collection, *k.mark.Load(), tailPage)
		if err != nil || len(changes) == 0 {
			return err
		}
		last := map[string]int64{} // version of each document's last change
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
		// Documents are read as they are, which may be newer than the change; their later changes
		// then have no effect. A document that is missing was deleted by its last change at the
		// latest.
		u := update{mark: changes[len(changes)-1].Mark}
		for page := range slices.Chunk(ids, fetchPage) {
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

// fetchPage is how many documents are read at once, and fetchBytes how many bytes if their sizes
// are known.
const (
	fetchPage  = 200
	fetchBytes = 8 << 20
)

// compare makes the copy equal to the store, document by document (anti-entropy): documents with
// another head are read, on all processors, and those without a head are deleted. Changes that are
// made meanwhile are in the log behind the mark that is read first. The caller has the gate.
func (r *replica) compare(ctx context.Context, k *known) error {
	mark, err := r.library.store.Last(ctx, r.collection)
	if err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	jobs := make(chan []docstore.Head)
	w := &comparison{replica: r, known: k, stop: stop}
	var working sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 1 { // one more, since workers also wait for the store
		working.Go(func() { w.work(work, jobs) })
	}
	live, err := w.list(work, jobs)
	close(jobs)
	working.Wait()
	switch {
	case ctx.Err() != nil:
		return errStopped // some jobs were not done
	case work.Err() != nil:
		return context.Cause(work) // a worker's error, by which the list may have ended too
	case err != nil:
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
		debug.FreeOSMemory() // building took much memory that is not needed again soon
	}
	return nil
}

// gonePast is above all versions: the document is deleted whatever its version.
const gonePast = 1<<63 - 1

// manyPassages is the number from which memory is returned to the operating system.
const manyPassages = 20_000

// comparison is the state of one compare, shared by its workers.
type comparison struct {
	replica *replica
	known   *known
	stop    context.CancelCauseFunc // with the first error of a worker

	mu       sync.Mutex
	prepared []prepared // guarded by mu
	passages int        // guarded by mu
}

// jobPassages is about how many passages one job of a worker has.
const jobPassages = 4096

// list hands the heads of documents that differ to the workers, and returns the ids of all
// documents.
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
	empty := len(w.known.byID) == 0 // read without the lock: only the holder of the gate changes it
	for cursor := ""; ; {
		heads, next, err := w.replica.library.store.List(ctx, w.replica.collection, cursor, docstore.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			if !empty { // while nothing is known, nothing can be deleted
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

// work reads and prepares documents until there are no more jobs.
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
			w.stop(err)
			continue
		}
		var documents []docstore.Document
		passages := 0
		for _, id := range ids {
			if d, ok := found[id]; ok { // a missing one is in the log
				documents = append(documents, d)
				passages += len(d.Passages)
			}
		}
		p := w.known.prepare(documents)
		w.mu.Lock()
		w.prepared = append(w.prepared, p)
		w.passages += passages
		w.mu.Unlock()
	}
}

// wrote is a change of the store by this process.
type wrote struct {
	puts  []docstore.Document
	gone  map[string]int64 // ids → the version by which they are gone
	steps []docstore.Step
}

// maxWritten bounds the writes that wait for the gate. The log has those above it.
const maxWritten = 1000

// wrote applies this process's own change to the copy, so that it is known here (read your writes)
// even if the store becomes unreachable: at once, or after the change of the copy that is under
// way.
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

// applyWritten applies this process's own writes, with the versions that the store gave. A write that is not newer
// than the copy's mark was applied from the log already. The mark itself only moves along steps that follow it
// without a gap: a change of another process in between must still be read from the log. The caller has the gate.
func (r *replica) applyWritten() {
	r.mu.Lock()
	list := r.written
	r.written = nil
	r.mu.Unlock()
	k := r.known.Load()
	if k == nil {
		return // the first search reads everything
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
