package rag

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/subagent/rag/docstore"
)

// One round of the follower asks for the marks of at most followAtOnce collections, so that its
// load on the store does not depend on how many there are. followNew is the time between searches
// for collections that others made.
const (
	followPause  = time.Second
	followAtOnce = 8
	followNew    = 10 * time.Second
)

// Follow keeps a tenant's collections in step with the store, and those of chats for as long as
// they are held, whether anybody searches or not, until ctx ends. It also writes snapshots for the
// next restart.
func (l *Library) Follow(ctx context.Context, tenant string) {
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	looked := time.Now()
	next := 0 // index of the first collection of the next round
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(looked) >= followNew {
				looked = now
				l.find(ctx, tenant)
			}
			next = l.round(ctx, next)
			for _, r := range l.held() {
				if ctx.Err() == nil {
					r.tend(ctx)
				}
			}
		}
	}
}

// find adds collections that others made, once Load has finished.
func (l *Library) find(ctx context.Context, tenant string) {
	if !l.Ready() {
		return
	}
	infos, err := l.store.Collections(ctx, tenant)
	if err != nil {
		return // round reports the error
	}
	l.files.keep(tenant, infos)
	for _, info := range infos {
		if c, err := docstore.Named(tenant, info.Name); err == nil {
			l.mu.Lock()
			known := l.replicas[c] != nil
			l.mu.Unlock()
			if !known {
				l.replica(c).catchUp()
			}
		}
	}
}

// round asks the store whether some of the collections changed, starts to catch up with those that
// did, and returns where the next round begins.
func (l *Library) round(ctx context.Context, next int) int {
	all := l.held()
	if len(all) == 0 {
		return 0
	}
	// A fixed order, so that every collection has its turn.
	slices.SortFunc(all, func(a, b *replica) int {
		return cmp.Or(strings.Compare(a.collection.Tenant(), b.collection.Tenant()),
			strings.Compare(a.collection.String(), b.collection.String()))
	})
	var some []*replica
	for i := range min(len(all), followAtOnce) {
		some = append(some, all[(next+i)%len(all)])
	}
	collections := make([]docstore.Collection, len(some))
	for i, r := range some {
		collections[i] = r.collection
	}
	marks, err := l.store.Lasts(ctx, collections...)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			l.o.Log.Debug().Err(err).Msg("changes of documents cannot be followed now")
		}
		return next
	}
	for i, r := range some {
		k := r.known.Load()
		switch {
		case k == nil:
		case marks[i] == (docstore.Mark{}):
			r.drop()
		case *k.mark.Load() != marks[i]:
			r.lag.heard(marks[i])
			r.catchUp()
		default:
			r.lag.level()
		}
	}
	return (next + len(some)) % len(all)
}

// held are the replicas that have been read.
func (l *Library) held() []*replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*replica
	for _, r := range l.replicas {
		if r.known.Load() != nil {
			list = append(list, r)
		}
	}
	return list
}

// lag measures how far a replica is behind the store.
type lag struct {
	mu    sync.Mutex
	last  int64     // the newest version heard of; 0 while nothing is missing; guarded by mu
	since time.Time // when a change was first heard of that is missing; guarded by mu
}

// heard notes a mark of the store that differs from the copy's.
func (l *lag) heard(last docstore.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == 0 {
		l.since = time.Now()
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
	for _, r := range l.held() {
		version := r.known.Load().version()
		r.lag.mu.Lock()
		if r.lag.last != 0 {
			most.Changes = max(most.Changes, r.lag.last-version, 1) // at least 1, for a collection that was made anew
			most.For = max(most.For, time.Since(r.lag.since))
		}
		r.lag.mu.Unlock()
	}
	return most
}

// version is the log's version up to which the copy is applied; 0 for no copy.
func (k *known) version() int64 {
	if k == nil {
		return 0
	}
	return k.mark.Load().Version
}
