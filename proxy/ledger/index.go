package ledger

import (
	"encoding/hex"
	"slices"
	"strings"
	"sync"
)

// index finds entries by key. Its lists are copied on write, so that they may be read after the
// lock was released.
type index map[key][]*entry

func (x index) add(k key, e *entry) {
	switch old := x[k]; {
	case len(old) == 0:
		x[k] = []*entry{e}
	case !slices.Contains(old, e):
		x[k] = slices.Concat(old, []*entry{e})
	}
}

func (x index) remove(k key, e *entry) {
	old := x[k]
	i := slices.Index(old, e)
	switch {
	case i < 0:
	case len(old) == 1:
		delete(x, k)
	default:
		x[k] = slices.Concat(old[:i], old[i+1:])
	}
}

// owners lead from keys that cannot recur to the conversation that has them, on one route of a tenant.
type owners map[key]owner

// owner is the conversation with a key. A key that several have, such as a signature that a vendor puts on
// every block, leads to none.
type owner struct {
	conversation string // empty if there are several
	uses         int    // turns and refusals with the key
}

func (o owners) add(k key, conversation string) {
	was := o[k]
	if was.uses > 0 && was.conversation != conversation {
		conversation = ""
	}
	o[k] = owner{conversation, was.uses + 1}
}

func (o owners) remove(k key) {
	if was := o[k]; was.uses > 1 {
		o[k] = owner{was.conversation, was.uses - 1}
		return
	}
	delete(o, k)
}

// lasting are the keys that lead to a conversation in which blocks were refused: of those that have a signature or data.
func lasting(blockKeys ...string) (keys []key) {
	for _, k := range blockKeys {
		var s sum
		if text, ok := strings.CutPrefix(k, sealed); ok {
			if n, err := hex.Decode(s[:], []byte(text)); err == nil && n == len(s) {
				keys = append(keys, key{byBlock, s})
			}
		}
	}
	return keys
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

func (r *refusals) has(origin Origin, key string) bool {
	if r == nil {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.set[refusal{origin.Backend, origin.Model, key}]
	return ok
}

// add notes rejected blocks, and returns those of the oldest ones, which go for them.
func (r *refusals) add(origin Origin, keys []string) (evicted []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		f := refusal{origin.Backend, origin.Model, k}
		r.order = append(r.order, f)
		r.set[f] = struct{}{}
	}
	excess := max(0, len(r.order)-maxRefusals)
	for _, f := range r.order[:excess] {
		delete(r.set, f)
		evicted = append(evicted, f.key)
	}
	r.order = r.order[excess:]
	return evicted
}
