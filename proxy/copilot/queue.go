package copilot

// queue is the bounded queue of a session's unread events. It is guarded by its route.
type queue struct {
	events    []event // unread from index first on; those before are zero
	first     int
	bytes     int
	maxEvents int
	maxBytes  int
}

// push adds an event, or joins its text to the event before it. ok is false if there is no room. An
// empty queue takes any one event: a frame's size is bounded anyway, and a reader that keeps up
// must not fail because an answer is long.
func (q *queue) push(e event) (joined, ok bool) {
	n := q.len()
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
	q.compact()
	q.events = append(q.events, e)
	q.bytes += e.size()
	return false, true
}

// compact moves the events to the front of the slice once half of it is unused, so that the slice
// does not grow for a reader that is always slightly behind and never empties it.
func (q *queue) compact() {
	if len(q.events) < cap(q.events) || q.first < len(q.events)/2 {
		return
	}
	n := copy(q.events, q.events[q.first:])
	clear(q.events[n:])
	q.events, q.first = q.events[:n], 0
}

// pop removes the oldest event.
func (q *queue) pop() (event, bool) {
	if q.len() == 0 {
		return event{}, false
	}
	e := q.events[q.first]
	q.events[q.first] = event{} // releases what the event refers to
	q.first++
	q.bytes -= e.size()
	if q.first == len(q.events) {
		q.events, q.first = q.events[:0], 0
	}
	return e, true
}

func (q *queue) len() int { return len(q.events) - q.first }

// drop removes all events and frees their memory.
func (q *queue) drop() { q.events, q.first, q.bytes = nil, 0, 0 }
