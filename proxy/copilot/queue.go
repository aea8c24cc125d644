package copilot

import "slices"

// queue is the bounded queue of a session's unread events. It is guarded by its route.
type queue struct {
	events    []event // oldest first
	bytes     int
	maxEvents int
	maxBytes  int
}

// push adds an event, or joins its text to the event before it. ok is false if there is no room. An
// empty queue takes any one event: a frame's size is bounded anyway, and a reader that keeps up
// must not fail because an answer is long.
func (q *queue) push(e event) (joined, ok bool) {
	n := len(q.events)
	if n > 0 && q.bytes+e.size() > q.maxBytes {
		return false, false
	}
	if n > 0 {
		if last := &q.events[len(q.events)-1]; last.joins(&e) {
			last.text = append(last.text, e.text...)
			q.bytes += len(e.text)
			return true, true
		}
	}
	if n >= q.maxEvents {
		return false, false
	}
	q.events = append(q.events, e)
	q.bytes += e.size()
	return false, true
}

// pop removes the oldest event.
func (q *queue) pop() (event, bool) {
	if len(q.events) == 0 {
		return event{}, false
	}
	e := q.events[0]
	q.events = slices.Delete(q.events, 0, 1) // of few: what a model says is joined
	q.bytes -= e.size()
	return e, true
}

// drop removes all events and frees their memory.
func (q *queue) drop() { q.events, q.bytes = nil, 0 }
