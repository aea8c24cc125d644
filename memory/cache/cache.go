// Package cache is tier one of the memory: a bounded in-process cache in front of any Store. A cached history is
// validated before use: it goes to the store as the caller's copy, and the store answers whether that still is the
// content. So any number of processes may cache the same chat without invalidating each other's copies.
//
// It owns copies of histories, up to a number of bytes, and no goroutine. Load never answers from a copy that the store
// has not confirmed; Peek gives one that may be stale. Losing all of it loses nothing.
package cache

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"mneme/memory"
)

// overhead is about what an entry costs beside the stored bytes, in bytes.
const overhead = 256

// Cache is a read-through memory.Store that passes its copies to the store below for validation.
// Safe for concurrent use.
type Cache struct {
	store  memory.Store
	copies *otter.Cache[memory.Key, *memory.History]

	hits, misses atomic.Int64
}

// Stats say what a Cache holds, and how often a copy was current.
type Stats struct {
	Bytes   uint64 // about, with what an entry costs beside the history
	Entries int
	Hits    int64 // loads for which the copy was current
	Misses  int64 // loads for which the store below had other or more messages
}

// Stats are as of now.
func (c *Cache) Stats() Stats {
	return Stats{c.copies.WeightedSize(), c.copies.EstimatedSize(), c.hits.Load(), c.misses.Load()}
}

var _ memory.Store = (*Cache)(nil)

// New makes a cache of at most about maxBytes of histories. An evicted history only costs a full
// read.
func New(store memory.Store, maxBytes int) *Cache {
	return &Cache{store: store, copies: otter.Must(&otter.Options[memory.Key, *memory.History]{
		MaximumWeight: uint64(max(maxBytes, 1)),
		Weigher: func(_ memory.Key, h *memory.History) uint32 {
			return uint32(h.Size() + h.Len()*32 + overhead) // a history is 64 MiB at most
		},
	})}
}

// Peek is the cached copy of a history, nil if there is none. It may be stale: only Load validates
// it.
func (c *Cache) Peek(key memory.Key) *memory.History {
	h, _ := c.copies.GetIfPresent(key)
	return h
}

// Load implements memory.Store. It offers the longer of the caller's copy and the cached one to the
// store below.
func (c *Cache) Load(ctx context.Context, turn int64, copies ...*memory.History) ([]*memory.History, error) {
	best, cached := make([]*memory.History, len(copies)), make([]*memory.History, len(copies))
	for i, h := range copies {
		best[i], cached[i] = h, c.Peek(h.Key())
		if cached[i] != nil && cached[i].Len() > h.Len() {
			best[i] = cached[i]
		}
	}
	current, err := c.store.Load(ctx, turn, best...)
	if err != nil {
		return nil, err
	}
	for i, h := range current {
		switch {
		case h.Len() == 0:
		case h == best[i]:
			c.hits.Add(1)
		default:
			c.misses.Add(1)
		}
		switch {
		case turn > 0:
			c.Put(h)
		case covers(h, best[i]):
			c.swap(cached[i], h)
		}
	}
	return current, nil
}

// Append implements memory.Store.
func (c *Cache) Append(ctx context.Context, have *memory.History, mark memory.Mark, message []byte) (*memory.History,
	error) {
	h, err := c.store.Append(ctx, have, mark, message)
	if err == nil {
		c.Put(h)
	}
	return h, err
}

// Erase implements memory.Store.
func (c *Cache) Erase(ctx context.Context, turn int64, keys ...memory.Key) error {
	c.Forget(keys...)
	err := c.store.Erase(ctx, turn, keys...)
	c.Forget(keys...) // again, for copies that were read while the store erased
	return err
}

// covers reports whether h makes a copy superfluous. A read without the lease (turn 0) may find
// less than was once stored, after a loss in Redis: then the longer copy is kept, as it is what
// brings the messages back.
func covers(h, have *memory.History) bool {
	merged, _ := memory.Merge(h, have)
	return h == have || have.Turn() == 0 || merged == h
}

// List are the cached copies, in no particular order.
func (c *Cache) List() []*memory.History {
	return slices.Collect(c.copies.Values())
}

// Refresh replaces a cached copy by what is stored. Nothing happens if the copy was replaced
// meanwhile.
func (c *Cache) Refresh(have, current *memory.History) {
	c.swap(have, current)
}

// swap caches a history in the place of a copy, nil for none. Nothing happens if that was replaced
// meanwhile: the holder of the turn may have put a newer one, which exists nowhere else if the
// store loses its data.
func (c *Cache) swap(have, h *memory.History) {
	c.copies.Compute(h.Key(), func(cached *memory.History, _ bool) (*memory.History, otter.ComputeOp) {
		switch {
		case cached != have:
			return nil, otter.CancelOp
		case h.Len() == 0:
			return nil, otter.InvalidateOp
		}
		return h, otter.WriteOp
	})
}

// Forget drops copies and revokes them, so that no goroutine that still holds one writes it back.
func (c *Cache) Forget(keys ...memory.Key) {
	for _, k := range keys {
		if h := c.Peek(k); h != nil {
			h.Revoke()
		}
		c.copies.Invalidate(k)
	}
}

// Put caches a history, also one that was changed without going through the cache; an empty one is
// not kept, and neither is what it replaces.
func (c *Cache) Put(h *memory.History) {
	if h.Len() == 0 {
		c.copies.Invalidate(h.Key())
		return
	}
	c.copies.Set(h.Key(), h)
}
