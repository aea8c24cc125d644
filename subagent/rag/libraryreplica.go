package rag

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/index"
)

// replica is a collection as this process has it.
type replica struct {
	collection docstore.Collection
	store      *docstore.Store
	vectors    bool          // documents are to have some
	gate       chan struct{} // full while somebody changes what follows
	known      atomic.Pointer[known]
	tidied     atomic.Pointer[known] // what the vectors in the store were last compared with
	used       int64                 // guarded by the library's mu
}

// known is what a replica has: one index and the documents behind it. The index
// knows a document by a name that holds its version, so that a hit belongs to
// exactly one text, however old the snapshot is that it comes from.
type known struct {
	index   *index.Collection
	filters filters
	mark    atomic.Pointer[docstore.Mark] // up to where the log is applied; stored under the gate

	mu     sync.RWMutex
	byName map[string]*held // guarded by mu
	byID   map[string]*held // guarded by mu
	bare   map[string]*held // by name, those that wait for vectors; nil if none are wanted; guarded by mu
	space  *space           // of the vectors in the index; nil before there are some; guarded by mu
}

// held is a document of an index. It does not change.
type held struct {
	docstore.Document
	name string // in the index
}

func newKnown(vectors bool) *known {
	k := &known{index: index.NewCollection(), byName: map[string]*held{}, byID: map[string]*held{}}
	if vectors {
		k.bare = map[string]*held{}
	}
	k.mark.Store(&docstore.Mark{})
	return k
}

func hold(d docstore.Document) *held {
	return &held{d, d.ID + "\x00" + strconv.FormatInt(d.Version, 10)}
}

// get is the document of a name in the index; nil if it is no longer there.
func (k *known) get(name string) *held {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byName[name]
}

// document is the document with an id, nil if there is none.
func (k *known) document(id string) *held {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.byID[id]
}

// update is what is to be applied.
type update struct {
	puts []docstore.Document
	gone map[string]int64 // ids → the version by which they are gone
	mark docstore.Mark    // up to where the log is applied then
}

// apply makes an update. Documents that are known in the same or a newer version
// stay. The caller has the gate.
func (k *known) apply(u update) {
	fresh := map[string]*held{}
	change := index.Change{Version: uint64(u.mark.Version)}
	var gone []*held
	k.mu.Lock()
	for _, d := range u.puts {
		old, other := k.byID[d.ID], fresh[d.ID]
		if (old == nil || old.Version < d.Version) && (other == nil || other.Version < d.Version) {
			fresh[d.ID] = hold(d)
		}
	}
	for _, d := range u.puts {
		if h := fresh[d.ID]; h != nil && h.Version == d.Version {
			k.byName[h.name] = h // a search may hit it as soon as the index has it
			change.Put = append(change.Put, h.indexed())
			if old := k.byID[d.ID]; old != nil {
				gone = append(gone, old)
			}
		}
	}
	for id, version := range u.gone {
		if old := k.byID[id]; old != nil && old.Version < version && fresh[id] == nil {
			gone = append(gone, old)
		}
	}
	k.mu.Unlock()
	for _, h := range gone {
		change.Delete = append(change.Delete, h.name)
	}
	if k.bare != nil { // first, or a search could miss vectors and not say so
		k.mu.Lock()
		for _, h := range fresh {
			if len(h.Passages) > 0 {
				k.bare[h.name] = h
			}
		}
		k.mu.Unlock()
	}
	if len(change.Put)+len(change.Delete) > 0 || change.Version != k.index.Snapshot().Version() {
		k.index.Apply(change)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range gone {
		delete(k.byName, h.name)
		delete(k.byID, h.ID)
		if k.bare[h.name] == h {
			delete(k.bare, h.name)
		}
	}
	for _, h := range fresh {
		k.byID[h.ID] = h
	}
	k.mark.Store(&u.mark)
}

// indexed is the document as the index takes it.
func (h *held) indexed() index.Document {
	d := index.Document{ID: h.name, Title: h.Title}
	for _, p := range h.Passages {
		d.Passages = append(d.Passages, index.Passage{Section: p.Section, Text: h.Text[p.Start:p.End]})
	}
	return d
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

func (r *replica) unlock() { <-r.gate }

// tailPage is how many changes are read at once.
const tailPage = 1000

// current is what is known once all is applied that the store had when it was
// called. degraded: the store did not answer, if anything was known within
// patience, and this is what was known before.
func (r *replica) current(ctx context.Context, patience time.Duration) (k *known, degraded bool, err error) {
	k = r.known.Load()
	if k != nil {
		bounded, cancel := context.WithTimeout(ctx, patience)
		changes, err := r.store.Tail(bounded, r.collection, *k.mark.Load(), 1)
		cancel()
		if err == nil && len(changes) == 0 {
			return k, false, nil
		}
		if errors.Is(err, docstore.ErrUnavailable) {
			return k, true, nil
		}
	}
	k, err = r.catchUp(ctx, func(int64) {})
	if errors.Is(err, docstore.ErrUnavailable) {
		if k := r.known.Load(); k != nil {
			return k, true, nil
		}
	}
	return k, false, err
}

// attempts bounds how often a collection is read from its start because its log
// was cut, or it was made anew, while that was done.
const attempts = 5

// catchUp applies what is missing; read is told how many documents were read for
// that, if all of them have to be.
func (r *replica) catchUp(ctx context.Context, read func(documents int64)) (*known, error) {
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	defer r.unlock()
	for range attempts {
		k := r.known.Load()
		var err error
		if k == nil {
			k, err = r.rebuild(ctx, read)
		}
		if err == nil {
			err = r.follow(ctx, k)
		}
		switch {
		case err == nil:
			r.known.Store(k)
			return k, nil
		case errors.Is(err, docstore.ErrGap):
			r.known.Store(nil) // what is known may never have been
		case errors.Is(err, docstore.ErrNoCollection):
			r.known.Store(nil)
			return nil, err
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("reading collection %s: %w: its log was cut under every attempt", r.collection, docstore.ErrUnavailable)
}

// follow applies the log's end.
func (r *replica) follow(ctx context.Context, k *known) error {
	for {
		changes, err := r.store.Tail(ctx, r.collection, *k.mark.Load(), tailPage)
		if err != nil || len(changes) == 0 {
			return err
		}
		seen := map[string]bool{}
		var ids []string
		for _, c := range changes {
			if c.ID != "" && !seen[c.ID] {
				seen[c.ID] = true
				ids = append(ids, c.ID)
			}
		}
		// As they are now, which may be newer than the change: later ones of the same
		// document then change nothing.
		var puts []docstore.Document
		for page := range pages(ids, fetchPage) {
			found, err := r.store.GetAll(ctx, r.collection, page...)
			if err != nil {
				return err
			}
			for _, d := range found {
				delete(seen, d.ID)
				puts = append(puts, d)
			}
		}
		u := update{puts: puts, gone: map[string]int64{}, mark: changes[len(changes)-1].Mark}
		for id := range seen {
			u.gone[id] = math.MaxInt64
		}
		k.apply(u)
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

// rebuild reads all of a collection. Changes made meanwhile are in the log behind
// the mark that it begins with.
func (r *replica) rebuild(ctx context.Context, read func(documents int64)) (*known, error) {
	mark, err := r.store.Last(ctx, r.collection)
	if err != nil {
		return nil, err
	}
	k := newKnown(r.vectors)
	total := int64(0)
	for cursor := ""; ; {
		heads, next, err := r.store.List(ctx, r.collection, cursor, docstore.MaxPage)
		if err != nil {
			return nil, err
		}
		for len(heads) > 0 {
			var ids []string
			for bytes := 0; len(heads) > 0 && len(ids) < fetchPage && (bytes == 0 || bytes+heads[0].Bytes < fetchBytes); {
				ids = append(ids, heads[0].ID)
				bytes += heads[0].Bytes
				heads = heads[1:]
			}
			found, err := r.store.GetAll(ctx, r.collection, ids...)
			if err != nil {
				return nil, err
			}
			var documents []docstore.Document
			for _, id := range ids { // in a fixed order: the index is then always the same
				if d, ok := found[id]; ok {
					documents = append(documents, d)
				}
			}
			k.apply(update{puts: documents, mark: mark})
			total += int64(len(documents))
			read(total)
		}
		if cursor = next; cursor == "" {
			k.apply(update{mark: mark})
			return k, nil
		}
	}
}

// wrote notes what this process has changed in the store, so that it is known here
// whatever becomes of the store. What others changed in between is still to be
// read from the log, and what is applied from there already is left as it is.
func (r *replica) wrote(ctx context.Context, puts []docstore.Document, gone map[string]int64, steps []docstore.Step) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	k := r.known.Load()
	if k == nil {
		return nil // the first search reads it
	}
	u := update{gone: map[string]int64{}, mark: *k.mark.Load()}
	applied := u.mark.Version
	for _, d := range puts {
		if d.Version > applied {
			u.puts = append(u.puts, d)
		}
	}
	for id, version := range gone {
		if version > applied {
			u.gone[id] = version
		}
	}
	for _, s := range steps {
		if s.Before == u.mark {
			u.mark = s.Mark
		}
	}
	k.apply(u)
	return nil
}
