package copilot

import (
	"context"
	"sync"
	"time"
)

// route carries events from the connection's reader to one session.
type route struct {
	id    string
	tools map[string]bool // names of the session's tools, which the model may use

	mu        sync.Mutex
	queue     queue
	lastEvent time.Time // time of the last event of any kind
	err       error     // why no more events come; set once
	closed    chan struct{}
	wake      chan struct{} // buffered signal that something changed
}

func newRoute(id string, tools []Tool, c RouterConfig) *route {
	r := &route{
		id: id, tools: map[string]bool{}, closed: make(chan struct{}), wake: make(chan struct{}, 1),
		queue: queue{maxEvents: c.MaxEvents, maxBytes: c.MaxBytes},
	}
	for _, t := range tools {
		r.tools[t.Name] = true
	}
	return r
}

// touch notes that the CLI is working on the session.
func (r *route) touch() {
	r.mu.Lock()
	r.lastEvent = time.Now()
	r.mu.Unlock()
}

// pushed is what became of an event.
type pushed int

const (
	queued   pushed = iota
	joined          // its text was joined to the event before it
	refused         // the session has ended
	overflow        // the queue was full, which has ended the session
)

// push passes an event to the session; depth is the length of the queue then. It never blocks.
func (r *route) push(e event) (what pushed, depth int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return refused, 0
	}
	wasJoined, ok := r.queue.push(e)
	if !ok {
		r.err = ErrSlowConsumer
		close(r.closed)
		r.queue.drop()
		return overflow, 0
	}
	r.signal()
	if wasJoined {
		what = joined
	}
	return what, len(r.queue.events)
}

func (r *route) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// end sets why no more events come; events in the queue can still be read. The first reason counts.
func (r *route) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.closed)
	}
}

// endErr is why no more events come; nil as long as they may.
func (r *route) endErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// drop ends the route and empties the queue.
func (r *route) drop(err error) {
	r.end(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.drop()
}

// stale empties the queue before a turn, since what is in it belongs to no turn. It reports whether
// the session was shut down.
func (r *route) stale() (shutdown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		e, ok := r.queue.pop()
		if !ok {
			return shutdown
		}
		shutdown = shutdown || e.kind == eventShutdown
	}
}

// next waits for an event, for the end of ctx or of the route, or until nothing was heard of the
// session for so long (ErrInactive). A route has one reader.
func (r *route) next(ctx context.Context, silence time.Duration) (event, error) {
	began := time.Now()
	for {
		if ctx.Err() != nil { // before the queue, which may never become empty
			return event{}, context.Cause(ctx)
		}
		r.mu.Lock()
		e, ok := r.queue.pop()
		err, last := r.err, r.lastEvent
		r.mu.Unlock()
		if ok {
			return e, nil
		}
		if err != nil {
			return event{}, err
		}
		if last.Before(began) {
			last = began
		}
		timer := time.NewTimer(time.Until(last.Add(silence)))
		select {
		case <-r.wake:
		case <-r.closed:
		case <-ctx.Done():
			timer.Stop()
			return event{}, context.Cause(ctx)
		case <-timer.C:
			if r.quiet(silence, began) {
				return event{}, ErrInactive
			}
		}
		timer.Stop()
	}
}

// quiet reports whether nothing was heard for so long.
func (r *route) quiet(silence time.Duration, began time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue.events) == 0 && time.Since(r.lastEvent) >= silence && time.Since(began) >= silence
}
