package upstreamtest

import (
	"maps"
	"slices"
	"sync"
)

// key returns the key of an answer, which has its calls' ids as further keys.
func (id blockID) key() string { return "answer " + string(id[:]) }

// placed is a thinking block of a turn. A run is a series of assistant messages, counted from the user's question.
type placed struct {
	run int
	id  blockID
}

// answered is an issued answer.
type answered struct {
	id    blockID
	model string
	own   []blockID // its thinking
	turn  []placed  // the thinking of its turn as the model saw it, its own last
}

// newest is a bounded map. It forgets the oldest additions.
type newest[T any] struct {
	limit int // maximum number of additions
	bytes int // maximum size of the additions, except the newest; 0 is unlimited

	mu    sync.Mutex // guards the rest
	order []*added
	size  int
	byKey map[string]entry[T]
}

// added is one addition of several keys.
type added struct {
	keys []string
	size int
}

type entry[T any] struct {
	value    T
	addition *added
}

// add stores values of this total size under their keys.
func (n *newest[T]) add(values map[string]T, size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKey == nil {
		n.byKey = map[string]entry[T]{}
	}
	addition := &added{slices.Collect(maps.Keys(values)), size}
	for key, value := range values {
		n.byKey[key] = entry[T]{value, addition}
	}
	n.order = append(n.order, addition)
	n.size += size
	for len(n.order) > n.limit || n.bytes > 0 && n.size > n.bytes && len(n.order) > 1 {
		oldest := n.order[0]
		n.order[0] = nil
		n.order = n.order[1:]
		n.size -= oldest.size
		for _, key := range oldest.keys {
			if n.byKey[key].addition == oldest {
				delete(n.byKey, key)
			}
		}
	}
}

// get returns the value of a key, or the zero value if it is forgotten.
func (n *newest[T]) get(key string) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byKey[key].value
}

// turn returns the thinking that the latest turn must contain. all is the thinking of its answers, and sent is the
// part that the newest of them was made with. known is false if all of its answers are forgotten, or if it contains
// thinking of a forgotten answer.
func (x *exchange) turn() (blocks, input []placed, complete bool) {
	run := -1
	visited := map[*answered]bool{}
	for i := x.loop; i < len(x.turns); i++ {
		if x.beginsRun(i) {
			run++
		}
		for _, a := range x.answersIn(i) {
			if visited[a] {
				continue
			}
			visited[a] = true
			input = slices.Clone(a.turn)
			for _, id := range a.own {
				blocks = append(blocks, placed{run, id})
			}
			complete = true
		}
	}
	strange := func(k mark) bool {
		return k.run >= 0 && k.state == genuine && x.server.answered.get(k.seal.answer.key()) == nil
	}
	return blocks, input, complete && !slices.ContainsFunc(x.marks, strange)
}

// answersIn returns the answers that message i consists of. It finds them by their calls, else by their thinking.
func (x *exchange) answersIn(i int) (answers []*answered) {
	add := func(a *answered) {
		if a != nil && a.model == x.Model && !slices.Contains(answers, a) {
			answers = append(answers, a)
		}
	}
	for _, b := range x.turns[i].blocks {
		if b.kind() == useBlock {
			add(x.server.answered.get(b.str("id")))
		}
	}
	if len(answers) > 0 {
		return answers
	}
	for _, k := range x.marks {
		if k.i == i && k.state == genuine {
			add(x.server.answered.get(k.seal.answer.key()))
		}
	}
	return answers
}
