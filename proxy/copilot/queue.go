package copilot

// queue holds the events of one session that nobody has read yet. It is guarded
// by its route.
type queue struct {
	events    []event // from first on; those before it are zero
	first     int
	bytes     int
	maxEvents int
	maxBytes  int
}

// push adds an event, or its text to the event before it. False means that there
// is no room. An empty queue has room for any one event: the frame it came in is
// bounded, and a reader that keeps up must not fail for the length of an answer.
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

// compact moves the events to the front instead of letting the slice grow, once
// half of it is empty: a reader that is always a little behind never empties it.
func (q *queue) compact() {
	if len(q.events) < cap(q.events) || q.first < len(q.events)/2 {
		return
	}
	n := copy(q.events, q.events[q.first:])
	clear(q.events[n:])
	q.events, q.first = q.events[:n], 0
}

// pop takes the oldest event.
func (q *queue) pop() (event, bool) {
	if q.len() == 0 {
		return event{}, false
	}
	e := q.events[q.first]
	q.events[q.first] = event{} // what it holds is the reader's now
	q.first++
	q.bytes -= e.size()
	if q.first == len(q.events) {
		q.events, q.first = q.events[:0], 0
	}
	return e, true
}

func (q *queue) len() int { return len(q.events) - q.first }

// drop forgets all events and their memory.
func (q *queue) drop() { q.events, q.first, q.bytes = nil, 0, 0 }
