package webmemory

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"mneme/memory"
	"mneme/webmemory/problem"
)

// place is where a chat's line takes a waiter in.
type place int

const (
	placeLast  place = iota // all waiters: the usual one
	placeIdle               // only an empty line
	placeFirst              // all waiters except others of this place
	erasing                 // as before, whatever the limits
	deleting                // as erasing, and from a holder that does not give the lease back within breakAfter
)

// queue lets one holder per chat run in this process, first come first served. It is the
// service's backpressure: a request that finds too many waiting is refused at once.
type queue struct {
	chats int // that have a holder at one time
	limit int // waiting per chat

	mu    sync.Mutex
	lines map[memory.Chat]*line // guarded by mu; present while a chat has a holder
}

// line holds the waiters for a chat.
type line struct {
	waiting []*waiter
	erased  string // the fencing token of the chat's last erasure, as last seen; "" for unknown
	turn    int64  // the newest fencing token that a holder from this line had; 0 for none
}

// waiter is one post, or one erasure, that waits.
type waiter struct {
	place  place
	called chan struct{} // closed to call it in
}

// enter waits in the chat's line and returns what calls in the next. It fails with
// problem.ErrQueueFull, problem.ErrQueueSlow, problem.ErrTooManyChats or the cause of ctx's end, and has then left
// nothing behind. again is for a caller that had its turn and gave it up to one that goes first
// (errClaimed): it lines up behind those that go first and before all others, whatever the
// limits.
func (q *queue) enter(ctx context.Context, chat memory.Chat, pos place, retry bool) (leave func(), err error) {
	w, err := q.line(chat, pos, retry)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.called:
		return func() { q.next(chat) }, nil
	case <-ctx.Done():
	}
	q.withdraw(chat, w)
	return nil, waitError(ctx)
}

// waitError is why a wait ended in vain.
func waitError(waiting context.Context) error {
	err := context.Cause(waiting)
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.ErrQueueSlow
	}
	return err
}

// line takes a waiter in; one that finds no holder and no waiter there is called at once.
func (q *queue) line(chat memory.Chat, pos place, retry bool) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &waiter{pos, make(chan struct{})}
	l := q.lines[chat]
	switch {
	case l == nil && len(q.lines) >= q.chats && pos < erasing && !retry:
		return nil, problem.ErrTooManyChats
	case l == nil:
		q.lines[chat] = &line{}
		close(w.called)
		return w, nil
	case pos == placeIdle:
		return nil, problem.ErrQueueSlow
	case len(l.waiting) >= q.limit && pos < erasing && !retry:
		return nil, problem.ErrQueueFull
	}
	i := len(l.waiting)
	if pos >= placeFirst || retry {
		if j := slices.IndexFunc(l.waiting, func(w *waiter) bool { return w.place < placeFirst }); j >= 0 {
			i = j
		}
	}
	l.waiting = slices.Insert(l.waiting, i, w)
	return w, nil
}

// next calls in the first waiter.
func (q *queue) next(chat memory.Chat) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[chat]
	if len(l.waiting) == 0 {
		delete(q.lines, chat)
		return
	}
	w := l.waiting[0]
	l.waiting = l.waiting[1:]
	close(w.called)
}

func (q *queue) withdraw(chat memory.Chat, w *waiter) {
	q.mu.Lock()
	l := q.lines[chat] // there is one: the waiter stands in it, or was called in
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 {
		q.next(chat) // called in meanwhile: the one behind comes next
	}
}

// length is how many wait, in all lines.
func (q *queue) length() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		n += len(l.waiting)
	}
	return n
}

// noteErasure says whether a chat was erased between two attempts at its lease: then the posts of this
// line were made before the erasure, and must not run after it. erased is the fencing token of
// the chat's last erasure as the latest attempt found it, "" to forget what was seen; turn is
// the token of the lease if that attempt got it, else 0. An erasure that is older than a lease
// which this line had does not count: it was told again to a Redis that had lost it.
func (q *queue) noteErasure(chat memory.Chat, erased string, turn int64) (changed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[chat]
	if l == nil {
		return false
	}
	erasedTurn, err := strconv.ParseInt(erased, 10, 64)
	changed = erased != "" && l.erased != "" && l.erased != erased && (err != nil || erasedTurn > l.turn)
	l.erased, l.turn = erased, max(l.turn, turn)
	return changed
}
