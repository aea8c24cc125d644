package rag

import (
	"cmp"
	"context"
	"slices"
)

// compactBytes is how many bytes are copied at once.
const compactBytes = 4 << 20

// compact copies the live texts into a new file. Most of it happens while searches and changes go
// on; only what changed meanwhile is copied under the gate.
func (r *replica) compact(ctx context.Context, k *known) bool {
	next := r.library.files.texts(r.collection, r.library.o.Log)
	k.mu.RLock()
	documents := make([]*held, 0, len(k.byID))
	for _, h := range k.byID {
		documents = append(documents, h)
	}
	k.mu.RUnlock()
	moved := map[string]*held{}
	if !move(ctx, documents, next, moved) || r.lock(ctx) != nil {
		next.remove()
		return false
	}
	defer r.unlock()
	if r.known.Load() != k {
		next.remove()
		return false
	}
	var late []*held
	k.mu.RLock()
	for _, h := range k.byID {
		if moved[h.name] == nil {
			late = append(late, h)
		}
	}
	k.mu.RUnlock()
	if !move(ctx, late, next, moved) {
		next.remove()
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, h := range moved {
		if now := k.byID[h.ID]; now == nil || now.name != name {
			h.texts.drop(h) // deleted or replaced meanwhile
			continue
		}
		k.byID[h.ID] = h
		if k.bare[name] != nil {
			k.bare[name] = h
		}
	}
	k.texts = next
	return true
}

// move copies the texts of documents, in the order of their offsets, and adds the documents with
// their new places to moved, by name. A text that cannot be read is left to the store.
func move(ctx context.Context, documents []*held, to *texts, moved map[string]*held) bool {
	slices.SortFunc(documents, func(a, b *held) int { return cmp.Compare(a.at, b.at) })
	for len(documents) > 0 {
		if ctx.Err() != nil {
			return false
		}
		var some []*held
		var bodies []string
		for size := 0; len(documents) > 0 && size < compactBytes; documents = documents[1:] {
			h := *documents[0]
			text, ok := h.whole()
			if h.texts = to; !ok {
				h.texts, text = nil, ""
			}
			some, bodies = append(some, &h), append(bodies, text)
			size += len(text)
		}
		at, ok := to.add(bodies)
		if !ok {
			return false
		}
		for i, h := range some {
			h.at = at
			at += int64(len(bodies[i]))
			moved[h.name] = h
		}
	}
	return true
}
