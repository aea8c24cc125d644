package textindex

import (
	"sync"
	"weak"
)

// Filter says which documents searches may find. What it finds out of a segment it
// keeps as a bitmap, since neither changes: a document is asked for once, however many
// searches follow. Safe for concurrent use; it belongs to one Collection.
type Filter struct {
	accept func(document string) bool

	mu sync.Mutex
	// passed are the passages that it refuses. A filter that is not used for a while must
	// not keep segments in memory that others have taken the place of. Guarded by mu.
	passed map[weak.Pointer[segment]]bitset
}

// NewFilter makes a Filter of a function that always says the same of a document.
func NewFilter(accept func(document string) bool) *Filter {
	return &Filter{accept: accept, passed: map[weak.Pointer[segment]]bitset{}}
}

// refuses gives the passages of a segment that may not be found. They are never changed.
func (f *Filter) refuses(s *segment) bitset {
	f.mu.Lock()
	defer f.mu.Unlock() // also while it is found out: others would only do the same
	key := weak.Make(s)
	refused, ok := f.passed[key]
	if ok {
		return refused
	}
	refused = newBitset(len(s.lengths))
	for doc, d := range s.docs {
		first, end := s.passages(doc)
		if first == end || f.accept(d.id) {
			continue
		}
		for passage := first; passage < end; passage++ {
			refused.set(passage)
		}
	}
	f.passed[key] = refused
	return refused
}

// forget drops what belongs to segments that others have taken the place of.
func (f *Filter) forget(parts []part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.passed) <= 2*len(parts) {
		return
	}
	live := make(map[weak.Pointer[segment]]bitset, len(parts))
	for _, p := range parts {
		key := weak.Make(p.segment)
		if refused, ok := f.passed[key]; ok {
			live[key] = refused
		}
	}
	f.passed = live
}

// refused are the passages that may not be found, by part: the dead ones, and those
// that a filter refuses, which may be nil.
func (s *Snapshot) refused(f *Filter) []bitset {
	refused := s.dead()
	if f == nil {
		return refused
	}
	for i, p := range s.parts {
		refused[i] = f.refuses(p.segment)
		if p.dead != nil {
			refused[i] = refused[i].or(p.dead)
		}
	}
	f.forget(s.parts)
	return refused
}

// or gives a bitset with the bits of both, which are of one size.
func (b bitset) or(other bitset) bitset {
	both := make(bitset, len(b))
	for i := range b {
		both[i] = b[i] | other[i]
	}
	return both
}
