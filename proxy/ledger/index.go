package ledger

import (
	"slices"
	"sync"
)

// index finds entries by key. Its lists are copied on write, so that they may be read after the
// lock was released.
type index map[key][]*entry

func (x index) add(k key, e *entry) {
	switch old := x[k]; {
	case len(old) == 0:
		x[k] = e.alone[:]
	case !slices.Contains(old, e):
		x[k] = slices.Concat(old, e.alone[:])
	}
}

func (x index) remove(k key, e *entry) {
	old := x[k]
	at := slices.Index(old, e)
	switch {
	case at < 0:
	case len(old) == 1:
		delete(x, k)
	default:
		x[k] = slices.Concat(old[:at], old[at+1:])
	}
}

// commons finds the entries of a tenant's route by their unique keys, across conversations. A key
// that is not unique after all, such as a signature that a vendor puts on every block, must not
// grow an endless list: above maxListed, entries are only counted.
type commons struct {
	index
	others map[key]int
}

// maxListed bounds the list of a key.
const maxListed = 4

func (c *commons) add(k key, e *entry) {
	if len(c.index[k]) < maxListed {
		c.index.add(k, e)
	} else {
		c.others[k]++
	}
}

func (c *commons) remove(k key, e *entry) {
	switch {
	case slices.Contains(c.index[k], e):
		c.index.remove(k, e)
	case c.others[k] > 1:
		c.others[k]--
	default:
		delete(c.others, k)
	}
}

// find returns all entries with a key, or none if some of them are not listed.
func (c *commons) find(k key) []*entry {
	if c == nil || c.others[k] > 0 {
		return nil
	}
	return c.index[k]
}

const (
	maxRefusals = 1024 // of a scope
	refusalSize = 192  // bytes, roughly
)

// refusal is a block that a backend and model rejected.
type refusal struct{ backend, model, key string }

// refusals are the newest rejected blocks of a scope, at most maxRefusals.
type refusals struct {
	mu    sync.RWMutex // lock order: after the store's lock, which is never taken while this one is held
	order []refusal    // oldest first; guarded by mu
	set   map[refusal]struct{}
}

func (r *refusals) has(by Origin, key string) bool {
	if r == nil {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.set[refusal{by.Backend, by.Model, key}]
	return ok
}

// add notes rejected blocks, and returns by how many bytes the list grew.
func (r *refusals) add(by Origin, keys []string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.order)
	for _, k := range keys {
		f := refusal{by.Backend, by.Model, k}
		r.order = append(r.order, f)
		r.set[f] = struct{}{}
	}
	over := max(0, len(r.order)-maxRefusals)
	for _, f := range r.order[:over] {
		delete(r.set, f)
	}
	r.order = r.order[over:]
	return refusalSize * (len(r.order) - before)
}
