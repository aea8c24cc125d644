package ledger

import "slices"

// Calling returns the only turn that made all of these calls, by the ids that the client got. It returns nil for none
// or several. The turn has no place if Turn.Place is nil.
func (t Tree) Calling(ids []string) *Node {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	b := t.ledger.find(t.scope)
	if b == nil || len(ids) == 0 {
		return nil
	}
	var calling *entry
	for _, e := range b.index[toolKey(ids[0])] {
		hasCall := func(id string) bool {
			return slices.ContainsFunc(e.ids, func(have ToolID) bool { return have.Client == id })
		}
		if e.turn.Cut || slices.ContainsFunc(ids, func(id string) bool { return !hasCall(id) }) {
			continue
		}
		if calling != nil {
			return nil
		}
		calling = e
	}
	switch {
	case calling == nil:
		return nil
	case calling.node == nil:
		return &Node{entry: calling, answer: calling.form}
	}
	return calling.node
}

// Newest is the turn of the tree with the request that began last; nil for none.
func (t Tree) Newest() *Node {
	if e := t.last(func(e *entry) bool { return e.node != nil }); e != nil {
		return e.node
	}
	return nil
}

// Last is the complete turn with the request that began last, whether it has a place in the tree or not; nil for none.
func (t Tree) Last() *Turn {
	if e := t.last(func(e *entry) bool { return !e.turn.Cut }); e != nil {
		return e.turn
	}
	return nil
}

func (t Tree) last(counts func(*entry) bool) *entry {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	b := t.ledger.find(t.scope)
	if b == nil {
		return nil
	}
	for _, e := range slices.Backward(b.turns) {
		if counts(e) {
			return e
		}
	}
	return nil
}
