package upstreamtest

import (
	"maps"
	"slices"
	"sync"
)

// key is what an answer is known by, beside the ids of its calls.
func (id blockID) key() string { return "answer " + string(id[:]) }

// placed is a thinking block of a turn: which run of assistant messages it is in,
// counted from the user's question, and which block it is.
type placed struct {
	run int
	id  blockID
}

// answered is an answer that was given.
type answered struct {
	id    blockID
	model string
	own   []blockID // its thinking
	turn  []placed  // the thinking of its turn as the model saw it, its own last
}

// newest knows what was added last, by keys.
type newest[T any] struct {
	limit int // of additions
	bytes int // of them, but for the newest; 0 is any number

	mu    sync.Mutex // guards the rest
	order []*added
	size  int
	byKey map[string]entry[T]
}

// added is what was added at once.
type added struct {
	keys []string
	size int
}

type entry[T any] struct {
	value T
	of    *added
}

// add remembers values of so many bytes under their keys.
func (n *newest[T]) add(values map[string]T, size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKey == nil {
		n.byKey = map[string]entry[T]{}
	}
	all := &added{slices.Collect(maps.Keys(values)), size}
	for key, value := range values {
		n.byKey[key] = entry[T]{value, all}
	}
	n.order = append(n.order, all)
	n.size += size
	for len(n.order) > n.limit || n.bytes > 0 && n.size > n.bytes && len(n.order) > 1 {
		oldest := n.order[0]
		n.order[0] = nil
		n.order = n.order[1:]
		n.size -= oldest.size
		for _, key := range oldest.keys {
			if n.byKey[key].of == oldest {
				delete(n.byKey, key)
			}
		}
	}
}

// get is what a key stands for, the zero value if it is forgotten.
func (n *newest[T]) get(key string) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byKey[key].value
}

// turn gives the thinking that the latest turn must have: all of what its
// answers held, and what was sent of it when the newest of them was made. known
// is false if none of its answers is, or if it holds thinking of one that is not.
func (x *exchange) turn() (all, sent []placed, known bool) {
	run := -1
	seen := map[*answered]bool{}
	for i := x.loop; i < len(x.turns); i++ {
		if x.beginsRun(i) {
			run++
		}
		for _, a := range x.answersIn(i) {
			if seen[a] {
				continue
			}
			seen[a] = true
			sent = slices.Clone(a.turn)
			for _, id := range a.own {
				all = append(all, placed{run, id})
			}
			known = true
		}
	}
	strange := func(k mark) bool {
		return k.run >= 0 && k.state == genuine && x.server.answered.get(k.seal.answer.key()) == nil
	}
	return all, sent, known && !slices.ContainsFunc(x.marks, strange)
}

// answersIn are those that message i is made of, found by their calls; where there
// are none, by their thinking.
func (x *exchange) answersIn(i int) (found []*answered) {
	add := func(a *answered) {
		if a != nil && a.model == x.Model && !slices.Contains(found, a) {
			found = append(found, a)
		}
	}
	for _, b := range x.turns[i].blocks {
		if b.kind() == useBlock {
			add(x.server.answered.get(b.str("id")))
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, k := range x.marks {
		if k.i == i && k.state == genuine {
			add(x.server.answered.get(k.seal.answer.key()))
		}
	}
	return found
}
