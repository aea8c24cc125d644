package rag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"mneme/subagent/rag/docstore"
)

// replica is this process's copy of one collection, kept up to date by the collection's change log.
type replica struct {
	collection docstore.Collection
	library    *Library
	gate       chan struct{}             // a mutex with a deadline: full while a goroutine changes the copy
	local      atomic.Pointer[localCopy] // the copy; nil before it is read
	tidied     atomic.Pointer[localCopy] // the copy that the vectors in the store were last compared with
	used       int64                     // guarded by the library's mu
	lag        lag
	saved      saved // belongs to the follower's goroutine
	flight           // of catching up
	feeding    flight
}

// flight is work of which there is one attempt at a time (single flight): callers share the one that runs.
type flight struct {
	mu      sync.Mutex
	running *catchUp // nil while no goroutine works; guarded by mu
}

// catchUp is one attempt to apply missing changes.
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

func (r *replica) unlock() { <-r.gate }

// leg is the replica's part in a search: current as of this call (linearizable with the store), or else marked as
// degraded, with a proof if the store can still check the hits. The mark in the store is asked for first. If it is the
// copy's, nothing is missing; if the store is away, the copy is all there is; otherwise the search joins the catch-up.
func (r *replica) leg(ctx context.Context) (leg, error) {
	if g, fed, err := r.outside(ctx); fed || err != nil {
		return g, err
	}
	if r.local.Load() == nil {
		if err := r.first(ctx); err != nil {
			return leg{}, err
		}
	}
	o := r.library.o
	bounded, cancel := context.WithTimeout(ctx, o.Patience)
	last, err := r.library.store.Last(bounded, r.collection)
	cancel()
	k := r.local.Load()
	switch {
	case errors.Is(err, docstore.ErrUnavailable) && k != nil:
		return leg{collection: r.collection, local: k, degraded: true}, nil
	case errors.Is(err, docstore.ErrNoCollection):
		r.drop()
		return leg{}, err
	case err != nil:
		return leg{}, err
	}
	if k != nil && *k.mark.Load() == last {
		r.lag.level()
		return leg{collection: r.collection, local: k}, nil
	}
	r.lag.observe(last)
	return r.caughtUp(ctx, last, o.CatchUp)
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

// caughtUp waits until a change of the store is applied, for some time at most.
func (r *replica) caughtUp(ctx context.Context, last docstore.Mark, patience time.Duration) (leg, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		run, started := r.catchUp()
		select {
		case <-run.done:
		case <-timer.C:
			if k := r.local.Load(); k != nil {
				return r.degradedLeg(k), nil
			}
			return leg{}, r.first(ctx) // the collection was made anew
		case <-ctx.Done():
			return leg{}, context.Cause(ctx)
		}
		k := r.local.Load()
		switch {
		case errors.Is(run.err, docstore.ErrUnavailable) && k != nil:
			return r.degradedLeg(k), nil
		case run.err != nil:
			return leg{}, run.err
		case started || k != nil && *k.mark.Load() == last:
			return leg{collection: r.collection, local: k}, nil
		}
	}
}

// degradedLeg is the part in a search of a copy that lacks changes: its hits have to be proven by the store.
func (r *replica) degradedLeg(k *localCopy) leg {
	return leg{collection: r.collection, local: k, degraded: true, proof: &proof{replica: r}}
}

// catchUp starts to apply missing changes unless that is under way.
func (r *replica) catchUp() (run *catchUp, started bool) { return r.begin(r.library, r.apply) }

// begin starts an attempt unless one is under way. The work belongs to the library and goes on when the caller leaves.
func (f *flight) begin(l *Library, work func(ctx context.Context) error) (run *catchUp, started bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running != nil {
		return f.running, false
	}
	run = &catchUp{done: make(chan struct{})}
	f.running = run
	started = l.spawn(func(ctx context.Context) {
		err := work(ctx)
		f.mu.Lock()
		f.running = nil
		f.mu.Unlock()
		run.err = err
		close(run.done)
	})
	if !started {
		f.running = nil
		run.err = errStopped
		close(run.done)
	}
	return run, started
}

var errStopped = fmt.Errorf("%w: this process stops", docstore.ErrUnavailable)

// attempts bounds the comparisons during which the log was cut or the collection made anew.
const attempts = 5

// tailPage is how many changes of the log are read at once.
const tailPage = 1000

// apply brings the copy up to date. There is one way to do that: heads of documents are compared with what is known,
// and those that differ are read (advance). If the log reaches back to the copy's mark, they are the heads of the
// documents that it names; else those of all documents, as for a copy that has none.
func (r *replica) apply(ctx context.Context) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	store := r.library.store
	last, err := store.Last(ctx, r.collection)
	if errors.Is(err, docstore.ErrNoCollection) {
		r.drop()
	}
	if err != nil {
		return err
	}
	r.lag.observe(last)
	k := r.local.Load()
	if k == nil {
		k = r.restored()
	}
	for gaps := 0; gaps < attempts; {
		changes, err := []docstore.Change(nil), docstore.ErrGap
		if mark := *k.mark.Load(); mark != (docstore.Mark{}) {
			changes, err = store.Tail(ctx, r.collection, mark, tailPage)
		}
		compared := errors.Is(err, docstore.ErrGap)
		switch {
		case compared:
			// What changes while the heads are read is in the log behind the mark, which is therefore read first.
			gaps++
			if last, err = store.Last(ctx, r.collection); err == nil {
				err = r.advance(ctx, k, last, k.ids(), r.allHeads(ctx))
			}
		case err == nil && len(changes) > 0:
			ids := changed(changes)
			err = r.advance(ctx, k, changes[len(changes)-1].Mark, ids, r.headsOf(ctx, ids))
		}
		switch {
		case errors.Is(err, docstore.ErrNoCollection):
			r.drop()
			return err
		case err != nil:
			return err
		}
		r.local.Store(k)
		if !compared && len(changes) < tailPage {
			r.lag.level()
			return nil
		}
	}
	return fmt.Errorf("reading collection %s: %w: its log was cut under every attempt", r.collection,
		docstore.ErrUnavailable)
}

// changed are the ids of the documents that changes name.
func changed(changes []docstore.Change) (ids []string) {
	for _, c := range changes {
		if c.ID != "" {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// drop forgets a collection that the store no longer has.
func (r *replica) drop() {
	r.local.Store(nil)
	r.lag.level()
	r.library.forget(r.collection)
}

// allHeads are the heads of all documents, in pages.
func (r *replica) allHeads(ctx context.Context) iter.Seq2[[]docstore.Head, error] {
	return func(yield func([]docstore.Head, error) bool) {
		for cursor := ""; ; {
			heads, next, err := r.library.store.List(ctx, r.collection, cursor, docstore.MaxPage)
			if cursor = next; !yield(heads, err) || err != nil || cursor == "" {
				return
			}
		}
	}
}

// headsOf are the heads of those of the documents that there are, in pages.
func (r *replica) headsOf(ctx context.Context, ids []string) iter.Seq2[[]docstore.Head, error] {
	return func(yield func([]docstore.Head, error) bool) {
		for page := range slices.Chunk(ids, docstore.MaxPage) {
			heads, err := r.library.store.Heads(ctx, r.collection, page...)
			if !yield(heads, err) || err != nil {
				return
			}
		}
	}
}

// One job of advance has about jobPassages passages and jobBytes bytes. From manyPassages on, memory is returned to the
// operating system: building took much that is not needed again soon.
const (
	jobPassages  = 4096
	jobBytes     = 8 << 20
	manyPassages = 20_000
)

// advance makes the copy equal to the store as far as some documents go, and takes a mark of the log: documents with
// another head are read, on all processors, and those of the suspects that have no head are deleted. Documents are read
// as they are, which may be newer than the mark; their later changes then have no effect. The caller has the gate.
func (r *replica) advance(ctx context.Context, k *localCopy, mark docstore.Mark, suspects []string,
	pages iter.Seq2[[]docstore.Head, error]) error {
	u := update{mark: mark}
	var mu sync.Mutex // of u while there are workers
	workers, work := errgroup.WithContext(ctx)
	workers.SetLimit(runtime.GOMAXPROCS(0) + 1) // one more, since workers also wait for the store
	var job []string
	total, passages, bytes := 0, 0, 0
	hand := func() {
		if ids := job; len(ids) > 0 {
			workers.Go(func() error {
				p, err := r.prepared(work, k, ids)
				mu.Lock()
				defer mu.Unlock()
				u.prepared = append(u.prepared, p)
				return err
			})
		}
		total += passages
		job, passages, bytes = nil, 0, 0
	}
	live := map[string]bool{}
	var err error
	for heads, failed := range pages {
		if err = cmp.Or(failed, work.Err()); err != nil {
			break
		}
		for _, h := range heads {
			if len(suspects) > 0 {
				live[h.ID] = true
			}
			if old := k.document(h.ID); old != nil && old.Version == h.Version && old.Sum == contentHashOf(h.Hash) {
				continue
			}
			if bytes+h.Bytes > jobBytes || passages >= jobPassages {
				hand()
			}
			job = append(job, h.ID)
			passages, bytes = passages+h.Passages, bytes+h.Bytes
		}
	}
	hand()
	err = cmp.Or(workers.Wait(), err) // a worker's error ends the reading of heads too
	switch {
	case ctx.Err() != nil:
		return errStopped
	case err != nil:
		return err
	}
	for _, id := range suspects {
		if !live[id] {
			u.deleted = append(u.deleted, id)
		}
	}
	k.apply(u)
	if total > manyPassages {
		u.prepared = nil
		debug.FreeOSMemory()
	}
	return nil
}

// prepared reads documents and builds their part of the index. One that is missing was deleted meanwhile, which is in
// the log.
func (r *replica) prepared(ctx context.Context, k *localCopy, ids []string) (prepared, error) {
	byID, err := r.library.store.GetAll(ctx, r.collection, ids...)
	if err != nil {
		return prepared{}, err
	}
	var documents []docstore.Document
	for _, id := range ids {
		if d, ok := byID[id]; ok {
			documents = append(documents, d)
		}
	}
	return k.prepare(documents), nil
}

// wrote waits until the copy, or the engine if there is no copy, has a change that this process made, so that it is known
// here even if the store cannot be reached afterwards. What is far behind comes to it later: until then, searches ask the
// store.
func (r *replica) wrote(ctx context.Context, last docstore.Mark) {
	if r.local.Load() != nil {
		if r.engine() != nil {
			r.feeding.begin(r.library, r.feed)
		}
		_, _ = r.caughtUp(ctx, last, r.library.o.Patience) // the store has it, whatever becomes of the copy
		return
	}
	bounded, cancel := context.WithTimeout(ctx, r.library.o.Patience)
	defer cancel()
	_ = r.fedUp(bounded) // what it lacks is tried again
}
