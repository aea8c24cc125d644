// Package cache is tier one of the memory: a bounded in-process cache over any
// Store. A cached history is never trusted by itself: it goes to the store as the
// caller's copy, and the store answers whether it still is the content, so that
// any number of processes may cache the same chat.
package cache

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"mneme/memory"
)

// overhead is about what an entry costs beside the stored bytes.
const overhead = 256

// Cache is a memory.Store that hands its copies to the one below. Safe for
// concurrent use.
type Cache struct {
	below  memory.Store
	copies *otter.Cache[memory.Key, *memory.History]

	hits, misses atomic.Int64
}

// Stats are what a Cache holds, and how often that was enough.
type Stats struct {
	Bytes   uint64 // about, with what an entry costs beside the history
	Entries int
	Hits    int64 // histories that the store below said were as they are here
	Misses  int64 // histories that it had more of
}

// Stats are as of now.
func (c *Cache) Stats() Stats {
	return Stats{c.copies.WeightedSize(), c.copies.EstimatedSize(), c.hits.Load(), c.misses.Load()}
}

var _ memory.Store = (*Cache)(nil)

// New is a cache that holds about maxBytes of histories at most. What leaves it
// is only slower to read the next time.
func New(below memory.Store, maxBytes int) *Cache {
	return &Cache{below: below, copies: otter.Must(&otter.Options[memory.Key, *memory.History]{
		MaximumWeight: uint64(max(maxBytes, 1)),
		Weigher: func(_ memory.Key, h *memory.History) uint32 {
			return uint32(h.Size() + h.Len()*32 + overhead) // a history is 64 MiB at most
		},
	})}
}

// Peek is the cached copy of a history, nil if there is none. It may be out of
// date: only Load proves it.
func (c *Cache) Peek(key memory.Key) *memory.History {
	h, _ := c.copies.GetIfPresent(key)
	return h
}

// Load implements memory.Store.
func (c *Cache) Load(ctx context.Context, turn int64, copies ...*memory.History) ([]*memory.History, error) {
	best := make([]*memory.History, len(copies))
	for i, h := range copies {
		best[i] = c.longer(h)
	}
	current, err := c.below.Load(ctx, turn, best...)
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
		if turn > 0 || covers(h, best[i]) {
			c.keep(h)
		}
	}
	return current, nil
}

// Append implements memory.Store.
func (c *Cache) Append(ctx context.Context, have *memory.History, mark memory.Mark, message []byte) (*memory.History, error) {
	h, err := c.below.Append(ctx, have, mark, message)
	if err != nil {
		return nil, err
	}
	c.keep(h)
	return h, nil
}

// Erase implements memory.Store.
func (c *Cache) Erase(ctx context.Context, turn int64, keys ...memory.Key) error {
	c.Forget(keys...)
	err := c.below.Erase(ctx, turn, keys...)
	c.Forget(keys...) // what was read while the store erased
	return err
}

// covers says whether h makes a copy superfluous. A look may find less than was once
// stored: then the copy is what brings the rest back.
func covers(h, have *memory.History) bool {
	merged, _ := memory.Merge(h, have)
	return h == have || have.Turn() == 0 || merged == h
}

// All are the copies at this time, in no order.
func (c *Cache) All() []*memory.History {
	return slices.Collect(c.copies.Values())
}

// Refresh puts what is stored now in the place of a copy, unless that has been
// replaced meanwhile.
func (c *Cache) Refresh(have, current *memory.History) {
	if c.Peek(have.Key()) == have {
		c.keep(current)
	}
}

// Forget drops copies, and sees to it that who still holds one does not bring it
// back.
func (c *Cache) Forget(keys ...memory.Key) {
	for _, k := range keys {
		if h := c.Peek(k); h != nil {
			h.Revoke()
		}
		c.copies.Invalidate(k)
	}
}

// Put keeps a history that was changed past the cache.
func (c *Cache) Put(h *memory.History) { c.keep(h) }

func (c *Cache) longer(h *memory.History) *memory.History {
	if cached := c.Peek(h.Key()); cached != nil && cached.Len() > h.Len() {
		return cached
	}
	return h
}

func (c *Cache) keep(h *memory.History) {
	if h.Len() == 0 {
		c.copies.Invalidate(h.Key())
		return
	}
	c.copies.Set(h.Key(), h)
}
