package upstreamtest

import (
	"slices"
	"sync"
)

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
	calls []string  // ids of its calls
	own   []blockID // its thinking
	turn  []placed  // the thinking of its turn as the model saw it, its own last
}

// memory knows the newest answers.
type memory struct {
	limit int

	mu     sync.Mutex // guards the rest
	order  []*answered
	byID   map[blockID]*answered
	byCall map[string]*answered
}

func newMemory(limit int) *memory {
	return &memory{limit: limit, byID: map[blockID]*answered{}, byCall: map[string]*answered{}}
}

func (m *memory) add(a *answered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.order = append(m.order, a)
	m.byID[a.id] = a
	for _, id := range a.calls {
		m.byCall[id] = a
	}
	if len(m.order) <= m.limit {
		return
	}
	oldest := m.order[0]
	m.order[0] = nil
	m.order = m.order[1:]
	delete(m.byID, oldest.id)
	for _, id := range oldest.calls {
		if m.byCall[id] == oldest {
			delete(m.byCall, id)
		}
	}
}

// turn gives the thinking that the latest turn of x must have: all of what its
// answers held, and what was sent of it when the newest of them was made. known
// is false if none of its answers is, or if it holds thinking of one that is not.
func (m *memory) turn(x *exchange) (all, sent []placed, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := -1
	seen := map[*answered]bool{}
	for i := x.loop; i < len(x.turns); i++ {
		if x.beginsRun(i) {
			run++
		}
		for _, a := range m.answers(x, i) {
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
	strange := func(k mark) bool { return k.run >= 0 && k.state == genuine && m.byID[k.seal.answer] == nil }
	return all, sent, known && !slices.ContainsFunc(x.marks, strange)
}

// answers are those that message i is made of, found by their calls; where there
// are none, by their thinking.
func (m *memory) answers(x *exchange, i int) (found []*answered) {
	add := func(a *answered) {
		if a != nil && a.model == x.Model && !slices.Contains(found, a) {
			found = append(found, a)
		}
	}
	for _, b := range x.turns[i].blocks {
		if b.kind() == useBlock {
			add(m.byCall[b.str("id")])
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, k := range x.marks {
		if k.i == i && k.state == genuine {
			add(m.byID[k.seal.answer])
		}
	}
	return found
}
