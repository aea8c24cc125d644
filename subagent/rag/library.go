package rag

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// Errors of a Library; test with errors.Is. Those of docstore come through too:
// ErrNoCollection, ErrNoDocument, ErrUnavailable and the refusals *docstore.Error.
var (
	// ErrNoScope: a search must name its collections; there is no search in all.
	ErrNoScope = errors.New("a search must name at least one collection")
	// ErrBadQuery is wrapped by what is wrong with a query.
	ErrBadQuery = errors.New("bad query")
)

// Options are how a Library works; zero fields are defaults.
type Options struct {
	// Loader reads the files that are put.
	Loader loader.Loader
	// Chunks are the sizes of passages of documents that are put from now on.
	Chunks chunk.Options
	// Patience is how long a search waits for the store before it answers from what
	// is known here; 2 s.
	Patience time.Duration
	// CatchUp is how long a search waits for changes that are not applied here yet,
	// before it answers without them; 500 ms.
	CatchUp time.Duration
	// Dir is a directory of this process's own for what a restart begins with, and for
	// the texts of documents; "" for temporary files and nothing behind a restart.
	Dir string
	// Chats is how many chats' documents are kept searchable at a time; 256. Those of
	// others are read again when they are searched.
	Chats int
	// Embedder makes searches hybrid, by words and by vectors; nil for words alone.
	// RunEmbedding must run then. VectorWeight is what vectors weigh of 1, between 0 and
	// 1; anything else stands for DefaultVectorWeight.
	// Fusion is how the two rankings are joined; "" for WeightedSum.
	Embedder     Embedder
	VectorWeight float64
	Fusion       Fusion
	Rerank       RerankOptions
	Log          zerolog.Logger
}

// DefaultVectorWeight is the vectors' part in a fusion: half.
const DefaultVectorWeight = 0.5

// Fusion is a way to join rankings.
type Fusion string

// The ways to join rankings.
const (
	WeightedSum     Fusion = "wsum" // of scores, see index.FuseScores
	ReciprocalRanks Fusion = "rrf"  // see index.FuseRanks
)

func (o Options) orDefault() Options {
	if o.Chunks == (chunk.Options{}) {
		o.Chunks = chunk.Default()
	}
	if o.Patience <= 0 {
		o.Patience = 2 * time.Second
	}
	if o.CatchUp <= 0 {
		o.CatchUp = 500 * time.Millisecond
	}
	if o.Chats <= 0 {
		o.Chats = 256
	}
	if !(o.VectorWeight > 0 && o.VectorWeight < 1) { // also NaN
		o.VectorWeight = DefaultVectorWeight
	}
	o.Rerank = o.Rerank.orDefault()
	return o
}

// Library keeps the collections of a Store searchable in this process. A search
// asks the store whether something has changed since, and waits a little for it to be
// applied. What takes longer is applied behind it; until then its hits are proven by
// the store, so that nothing is found that was deleted or replaced. Safe for
// concurrent use. Close ends what it does by itself.
type Library struct {
	store *docstore.Store
	o     Options
	files *files // nil without a directory
	ready atomic.Bool
	space atomic.Pointer[space] // of the Embedder's vectors; nil as long as it is not known
	mute  atomic.Int64          // until when searches do not call the Embedder, Unix nanoseconds

	rerankMute atomic.Int64 // the same of the Reranker

	ctx     context.Context // of what outlives requests
	stop    context.CancelFunc
	working sync.WaitGroup

	mu       sync.Mutex
	closed   bool                             // guarded by mu
	replicas map[docstore.Collection]*replica // guarded by mu
	clock    int64                            // counts uses of replicas; guarded by mu
}

// NewLibrary is a Library over a store. Collections are read when they are first
// searched, or by Load.
func NewLibrary(store *docstore.Store, o Options) *Library {
	l := &Library{store: store, o: o.orDefault(), replicas: map[docstore.Collection]*replica{}}
	l.files = openFiles(l.o.Dir, l.o.Log)
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Close ends what goes on behind requests. Searches then are of what is known.
func (l *Library) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.working.Wait()
	for _, r := range l.held() {
		t := r.known.Load().texts
		t.wipe()
		t.wipe() // nobody searches any more
	}
	l.files.close()
}

// goes runs something that outlives the request that begins it; false when the
// library is closed.
func (l *Library) goes(do func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.working.Go(func() { do(l.ctx) })
	}
	return !l.closed
}

// LoadProgress says how far Load is.
type LoadProgress struct {
	Collection string
	Documents  int64 // of it that are read
	Total      int64 // in it when it was begun
}

// loadPause is the time between attempts to reach the store in Load.
const loadPause = time.Second

// Load reads all collections of a tenant, those of chats excepted, and then makes
// the Library Ready. It tries until the store can be reached or ctx ends; a
// collection that cannot be read is logged and left to its first search. progress,
// which may be nil, is called from this goroutine.
func (l *Library) Load(ctx context.Context, tenant string, progress func(LoadProgress)) error {
	for {
		err := l.load(ctx, tenant, progress)
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

func (l *Library) load(ctx context.Context, tenant string, progress func(LoadProgress)) error {
	infos, err := l.store.Collections(ctx, tenant)
	if err != nil {
		return err
	}
	l.files.keep(tenant, infos)
	for _, info := range infos {
		c, err := docstore.Named(tenant, info.Name)
		if err != nil {
			return err
		}
		report := func(read int64) {
			if progress != nil {
				progress(LoadProgress{info.Name, read, max(read, info.Documents)})
			}
		}
		err = l.replica(c).load(ctx, report)
		switch {
		case errors.Is(err, docstore.ErrUnavailable), ctx.Err() != nil:
			return err
		case err != nil && !errors.Is(err, docstore.ErrNoCollection): // dropped meanwhile
			l.o.Log.Error().Err(err).Str("collection", info.Name).Msg("a collection cannot be searched")
		}
	}
	return nil
}

// loadReport is the time between reports of Load.
const loadReport = 200 * time.Millisecond

// load applies what is missing and reports how many documents were read for that.
func (r *replica) load(ctx context.Context, report func(read int64)) error {
	run, _ := r.catchUp()
	tick := time.NewTicker(loadReport)
	defer tick.Stop()
	for {
		report(run.read.Load())
		select {
		case <-tick.C:
		case <-run.done:
			report(run.read.Load())
			return run.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Ready says whether Load has come to its end.
func (l *Library) Ready() bool { return l.ready.Load() }

// replica is this process's copy of a collection.
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

// evict forgets the chats that were not searched for longest, if there are too
// many. Whoever uses one still does so undisturbed.
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
	// Some at once, so that the next ones cost nothing. The newest is in use.
	for _, r := range chats[:min(len(chats)-1, len(chats)-l.o.Chats+l.o.Chats/8)] {
		delete(l.replicas, r.collection)
	}
}

func (l *Library) forget(c docstore.Collection) {
	l.mu.Lock()
	delete(l.replicas, c)
	l.mu.Unlock()
	l.files.remove(c)
}

// Create makes a collection; false if there is one already.
func (l *Library) Create(ctx context.Context, c docstore.Collection) (bool, error) {
	return l.store.Create(ctx, c)
}

// Drop removes a collection with its documents; false if there was none. With a
// chat, drop the collection docstore.OfChat gives.
func (l *Library) Drop(ctx context.Context, c docstore.Collection) (bool, error) {
	dropped, err := l.store.Drop(ctx, c)
	if err == nil {
		l.forget(c)
	}
	return dropped, err
}

// Info describes a collection.
func (l *Library) Info(ctx context.Context, c docstore.Collection) (docstore.Info, error) {
	return l.store.Info(ctx, c)
}

// Collections describes a tenant's collections by name, without those of chats.
func (l *Library) Collections(ctx context.Context, tenant string) ([]docstore.Info, error) {
	infos, err := l.store.Collections(ctx, tenant)
	slices.SortFunc(infos, func(a, b docstore.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, err
}

// List gives the heads of count documents in the order of their ids, from behind
// cursor on ("" is the start); the next cursor is "" at the end.
func (l *Library) List(ctx context.Context, c docstore.Collection, cursor string, count int) ([]docstore.Head, string, error) {
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
