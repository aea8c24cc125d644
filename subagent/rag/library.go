// Package rag answers from documents. A Library keeps the collections of a
// docstore.Store searchable in this process and in step with it. A Session is what one
// subagent gets of it for one run: searches in the collections that it may read,
// passages with numbers that stay as long as the session lasts, and the check of an
// answer that cites them as [n]. A Question is one delegation of that session.
//
// Passages go to a model in an envelope that they cannot close, see SystemRule;
// histories keep ids and quotes of them only, so that a document that is deleted
// does not live on there.
package rag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// Errors of a Library, for errors.Is. Errors of docstore are passed through: ErrNoCollection,
// ErrNoDocument, ErrUnavailable and the refusals *docstore.Error.
var (
	// ErrNoScope: a search has to name its collections, so that no caller searches all of them
	// by accident.
	ErrNoScope = errors.New("a search must name at least one collection")
	// ErrBadQuery is wrapped by what is wrong with a query.
	ErrBadQuery = errors.New("bad query")
)

// Options configure a Library. Zero fields stand for defaults.
type Options struct {
	// Loader reads the files that are put.
	Loader loader.Loader
	// Patience is how long a search waits for the store before it answers from this process's copy;
	// 2 s.
	Patience time.Duration
	// CatchUp is how long a search waits for changes that this process has not applied yet, before
	// it answers without them; 500 ms.
	CatchUp time.Duration
	// Dir is a directory that only this process uses, for snapshots that a restart begins with and
	// for the texts of documents. Empty for temporary files, and no snapshots.
	Dir string
	// Chats is how many chats' documents are kept searchable; 256. Those of other chats are read
	// again when they are searched (an LRU cache).
	Chats int
	// Embedder makes searches hybrid, by words and by vectors; nil for words only. With it
	// RunEmbedding has to run. VectorWeight is the share of vectors, between 0 and 1; any other
	// value stands for DefaultVectorWeight. Fusion is how the two rankings are combined; "" for
	// WeightedSum.
	Embedder     Embedder
	VectorWeight float64
	Fusion       Fusion
	Rerank       RerankOptions
	// Searcher is a search engine that finds the candidates in collections by name, once it was fed all of one; nil for
	// none. There are no vectors with it: the Embedder is not asked.
	Searcher Searcher
	Log      zerolog.Logger
}

// DefaultVectorWeight is the share of vectors in a fusion: half.
const DefaultVectorWeight = 0.5

// Fusion is a method to combine two rankings.
type Fusion string

// The ways to join rankings.
const (
	WeightedSum     Fusion = "wsum" // of scores, see index.FuseScores
	ReciprocalRanks Fusion = "rrf"  // see index.FuseRanks
)

// Fuse combines a ranking by words and one by vectors, which has the weight, to the limit best.
func (f Fusion) Fuse(limit int, words, vectors []textindex.Hit, weight float64) []textindex.Fused {
	fuse := textindex.FuseScores
	if f == ReciprocalRanks {
		fuse = textindex.FuseRanks
	}
	return fuse(limit, textindex.Ranking{Hits: words, Weight: 1 - weight},
		textindex.Ranking{Hits: vectors, Weight: weight})
}

func (o Options) orDefault() Options {
	o.Patience = cmp.Or(max(o.Patience, 0), 2*time.Second)
	o.CatchUp = cmp.Or(max(o.CatchUp, 0), 500*time.Millisecond)
	o.Chats = cmp.Or(max(o.Chats, 0), 256)
	if !(o.VectorWeight > 0 && o.VectorWeight < 1) { // also NaN
		o.VectorWeight = DefaultVectorWeight
	}
	if o.Searcher != nil {
		o.Embedder = nil
	}
	o.Rerank = o.Rerank.orDefault()
	return o
}

// Library is a read replica of collections: it keeps them searchable in this process and in step
// with the store. A search asks the store for the newest change and waits a little until that is
// applied. If that takes too long the search runs on the old state, and its hits are checked
// against the store, so that nothing is found that was deleted or replaced. Safe for concurrent
// use. Close ends its goroutines.
type Library struct {
	store *docstore.Store
	o     Options
	files *files                // nil without a directory
	ready atomic.Bool           // the first Load has finished
	space atomic.Pointer[space] // of the Embedder's vectors; nil until known
	mute  atomic.Int64          // searches do not call the Embedder before this time, in Unix ns

	rerankMute atomic.Int64 // the same for the Reranker

	ctx     context.Context // for work that outlives requests
	stop    context.CancelFunc
	working sync.WaitGroup

	mu       sync.Mutex
	closed   bool                             // guarded by mu
	replicas map[docstore.Collection]*replica // guarded by mu
	clock    int64                            // counts uses of replicas, for eviction; guarded by mu
}

// NewLibrary makes a Library over a store. A collection is read when it is first searched, or by
// Load.
func NewLibrary(store *docstore.Store, o Options) *Library {
	l := &Library{store: store, o: o.orDefault(), replicas: map[docstore.Collection]*replica{}}
	l.files = openFiles(l.o.Dir, l.o.Log)
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Close ends the work in the background. Searches still work on what is known.
func (l *Library) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.working.Wait()
	for _, r := range l.loadedReplicas() {
		t := r.local.Load().texts
		t.wipe()
		t.wipe() // twice, since a wipe spares what searches may still read; by this time none does
	}
	l.files.close()
}

// spawn runs work that outlives its request. It reports false after Close.
func (l *Library) spawn(do func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.working.Go(func() { do(l.ctx) })
	}
	return !l.closed
}

// loadPause is the time between attempts of Load to reach the store.
const loadPause = time.Second

// Load reads all collections of a tenant, except those of chats, and then makes the Library Ready. It retries until the
// store can be reached or ctx ends. A collection that cannot be read is logged, and read by its first search.
func (l *Library) Load(ctx context.Context, tenant memory.Tenant) error {
	for {
		err := l.load(ctx, tenant)
		if err == nil {
			l.ready.Store(true)
			return nil
		}
		if !errors.Is(err, docstore.ErrUnavailable) {
			return err
		}
		l.o.Log.Warn().Err(err).Msg("the documents cannot be read yet")
		select {
		case <-ctx.Done():
			return fmt.Errorf("loading the documents: %w", context.Cause(ctx))
		case <-time.After(loadPause):
		}
	}
}

// load is one attempt of Load.
func (l *Library) load(ctx context.Context, tenant memory.Tenant) error {
	replicas, err := l.listed(ctx, tenant)
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if r.isFed(ctx) {
			continue
		}
		err = r.first(ctx)
		switch {
		case errors.Is(err, docstore.ErrUnavailable), ctx.Err() != nil:
			return err
		case err != nil && !errors.Is(err, docstore.ErrNoCollection): // dropped meanwhile
			l.o.Log.Error().Err(err).Stringer("collection", r.collection).Msg("a collection cannot be searched")
		}
	}
	return nil
}

// listed are the copies of a tenant's collections, which may be empty yet. Files of collections that are gone are removed.
func (l *Library) listed(ctx context.Context, tenant memory.Tenant) ([]*replica, error) {
	infos, err := l.store.Collections(ctx, tenant)
	if err != nil {
		return nil, err
	}
	l.files.keep(tenant, infos)
	var replicas []*replica
	for _, info := range infos {
		c, err := docstore.NamedCollection(tenant, info.Name)
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, l.replica(c))
	}
	return replicas, nil
}

// Ready reports whether Load has finished.
func (l *Library) Ready() bool { return l.ready.Load() }

// replica returns this process's copy of a collection, which may be empty yet.
func (l *Library) replica(c docstore.Collection) *replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	r := l.replicas[c]
	if r == nil {
		r = &replica{collection: c, library: l, gate: make(chan struct{}, 1)}
		l.replicas[c] = r
		if !c.Chat().IsZero() {
			l.evict()
		}
	}
	r.used = l.clock
	return r
}

// evict drops the least recently searched chats if there are too many. Searches that use one go on
// with it.
func (l *Library) evict() {
	var chats []*replica
	for c, r := range l.replicas {
		if !c.Chat().IsZero() {
			chats = append(chats, r)
		}
	}
	if len(chats) <= l.o.Chats {
		return
	}
	slices.SortFunc(chats, func(a, b *replica) int { return int(a.used - b.used) })
	// Several at once, so that the next chats cost no eviction. The newest one is in use.
	for _, r := range chats[:min(len(chats)-1, len(chats)-l.o.Chats+l.o.Chats/8)] {
		delete(l.replicas, r.collection)
	}
}

// forget drops a collection's copy and its files.
func (l *Library) forget(c docstore.Collection) {
	l.mu.Lock()
	delete(l.replicas, c)
	l.mu.Unlock()
	l.files.remove(c)
}

// Create makes a collection. It returns false if there is one already.
func (l *Library) Create(ctx context.Context, c docstore.Collection) (bool, error) {
	return l.store.Create(ctx, c)
}

// Drop removes a collection with its documents. It returns false if there was none. For a chat's
// documents drop the collection of docstore.OfChat.
func (l *Library) Drop(ctx context.Context, c docstore.Collection) (bool, error) {
	dropped, err := l.store.Drop(ctx, c)
	if err != nil {
		return dropped, err
	}
	l.forget(c)
	if engine := engineOf(l, c); engine != nil { // also of one that is not there: its dropping may have failed here before
		shards, err := engine.Shards(ctx)
		if err == nil {
			err = dropShards(ctx, engine, shards, shardOf(c), nil)
		}
		return dropped, err
	}
	return dropped, nil
}

// Info describes a collection.
func (l *Library) Info(ctx context.Context, c docstore.Collection) (docstore.Info, error) {
	return l.store.Info(ctx, c)
}

// Collections describes a tenant's collections by name, without those of chats.
func (l *Library) Collections(ctx context.Context, tenant memory.Tenant) ([]docstore.Info, error) {
	infos, err := l.store.Collections(ctx, tenant)
	slices.SortFunc(infos, func(a, b docstore.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, err
}

// ListCollections gives all collections of a tenant other than the default one, with those of chats, and some that may not be there.
func (l *Library) ListCollections(ctx context.Context, tenant memory.Tenant) ([]docstore.Collection, error) {
	collections, err := l.store.ListCollections(ctx, tenant)
	slices.SortFunc(collections, func(a, b docstore.Collection) int { return strings.Compare(a.String(), b.String()) })
	return collections, err
}

// List returns the heads of count documents in the order of their ids, beginning behind cursor; ""
// is the start, and the next cursor is "" at the end.
func (l *Library) List(ctx context.Context, c docstore.Collection, cursor string, count int) ([]docstore.Head, string,
	error) {
	heads, next, err := l.store.List(ctx, c, cursor, count)
	for i := range heads {
		heads[i].Outdated = l.outdated(heads[i])
	}
	return heads, next, err
}

// Get reads a document.
func (l *Library) Get(ctx context.Context, c docstore.Collection, id string) (docstore.Document, error) {
	return l.store.Get(ctx, c, id)
}

// One round of the follower asks for the marks of at most followAtOnce collections, so that its
// load on the store does not depend on how many there are. followNew is the time between searches
// for collections that others made.
const (
	followPause  = time.Second
	followAtOnce = 8
	followNew    = 10 * time.Second
)

// Follow keeps a tenant's collections in step with the store, and those of chats for as long as
// they are held, with or without searches, until ctx ends. It also writes snapshots for the next
// restart.
func (l *Library) Follow(ctx context.Context, tenant memory.Tenant) {
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	lastCheck := time.Now()
	next := 0 // index of the first collection of the next round
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(lastCheck) >= followNew && l.Ready() {
				lastCheck = now
				if l.o.Searcher != nil {
					if err := tendOutside(ctx, l, tenant); err != nil && ctx.Err() == nil {
						l.o.Log.Warn().Err(err).Msg("the search engine cannot be fed now")
					}
				}
				replicas, _ := l.listed(ctx, tenant) // round reports the error
				for _, r := range replicas {
					if r.local.Load() == nil && !r.isFed(ctx) { // made by others
						r.catchUp()
					}
				}
			}
			next = l.round(ctx, next)
			for _, r := range l.loadedReplicas() {
				if ctx.Err() == nil {
					r.tend(ctx)
				}
			}
		}
	}
}

// round asks the store whether some of the collections changed, starts to catch up with those that
// did, and returns where the next round begins.
func (l *Library) round(ctx context.Context, next int) int {
	replicas := l.loadedReplicas()
	if len(replicas) == 0 {
		return 0
	}
	// A fixed order, so that every collection has its turn.
	slices.SortFunc(replicas, func(a, b *replica) int {
		return cmp.Or(strings.Compare(a.collection.Tenant().String(), b.collection.Tenant().String()),
			strings.Compare(a.collection.String(), b.collection.String()))
	})
	var batch []*replica
	for i := range min(len(replicas), followAtOnce) {
		batch = append(batch, replicas[(next+i)%len(replicas)])
	}
	collections := make([]docstore.Collection, len(batch))
	for i, r := range batch {
		collections[i] = r.collection
	}
	marks, err := l.store.Lasts(ctx, collections...)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			l.o.Log.Debug().Err(err).Msg("changes of documents cannot be followed now")
		}
		return next
	}
	for i, r := range batch {
		k := r.local.Load()
		switch {
		case k == nil:
		case marks[i] == (docstore.Mark{}):
			r.drop()
		case *k.mark.Load() != marks[i]:
			r.lag.observe(marks[i])
			r.catchUp()
		default:
			r.lag.level()
		}
	}
	return (next + len(batch)) % len(replicas)
}

// loadedReplicas are the replicas that have been read.
func (l *Library) loadedReplicas() []*replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*replica
	for _, r := range l.replicas {
		if r.local.Load() != nil {
			list = append(list, r)
		}
	}
	return list
}

// lag measures how far a replica is behind the store.
type lag struct {
	mu        sync.Mutex
	last      int64     // the newest version heard of; 0 while nothing is missing; guarded by mu
	firstSeen time.Time // when a change was first heard of that is missing; guarded by mu
}

// observe notes a mark of the store that differs from the copy's.
func (l *lag) observe(last docstore.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == 0 {
		l.firstSeen = time.Now()
	}
	l.last = last.Version
}

// level notes that nothing is missing.
func (l *lag) level() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = 0
}

// Lag is how far this process's copy is behind the store, as far as this process has heard.
type Lag struct {
	Changes int64         // of the collection that lacks the most
	For     time.Duration // how long a change has been missing, the longest of all collections
}

// Lag is the lag over all collections.
func (l *Library) Lag() Lag {
	var most Lag
	for _, r := range l.loadedReplicas() {
		version := r.local.Load().version()
		r.lag.mu.Lock()
		if r.lag.last != 0 {
			most.Changes = max(most.Changes, r.lag.last-version, 1) // at least 1, for a collection that was made anew
			most.For = max(most.For, time.Since(r.lag.firstSeen))
		}
		r.lag.mu.Unlock()
	}
	return most
}

// version is the log's version up to which the copy is applied; 0 for no copy.
func (k *localCopy) version() int64 {
	if k == nil {
		return 0
	}
	return k.mark.Load().Version
}
