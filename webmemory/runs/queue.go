package runs

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"mneme/memory"
	"mneme/webmemory/problem"
)

// Place is a waiter's position in a chat's line.
type Place int

// Places in a chat's line.
const (
	PlaceLast  Place = iota // after all waiters; the default
	PlaceIdle               // only in an empty line
	PlaceFirst              // before all waiters with a lower place
	Erasing                 // like PlaceFirst, without limits
	Deleting                // like Erasing; breaks a lease that is still held after turns.breakAfter
)

// Queue lets one holder per chat run in this process, first come, first served. It provides the service's backpressure:
// a request above the limits is rejected at once.
type Queue struct {
	Chats int // maximum number of chats with a holder
	Limit int // maximum number of waiters per chat

	mu    sync.Mutex
	Lines map[memory.Chat]*Line // guarded by mu; one per chat with a holder
}

// Line holds the waiters for a chat.
type Line struct {
	waiting []*waiter
	erased  string // fencing token of the chat's last erasure, as last seen; "" if unknown
	turn    int64  // newest fencing token of a holder from this line; 0 if none
}

// waiter is one waiting post or erasure.
type waiter struct {
	place  Place
	called chan struct{} // closed to admit the waiter
}

// Enter waits in the chat's line and returns leave, which admits the next waiter. Errors are problem.ErrQueueFull,
// problem.ErrQueueSlow, problem.ErrTooManyChats and the cause of ctx's end. After an error, the caller is not in the
// line.
//
// retry is for an admitted caller that yielded to another waiter (ErrClaimed). It enters after waiters of PlaceFirst
// and above, before all others, and without limits.
func (q *Queue) Enter(ctx context.Context, chat memory.Chat, pos Place, retry bool) (leave func(), err error) {
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
	return nil, WaitError(ctx)
}

// WaitError returns the cause of a failed wait; problem.ErrQueueSlow for an exceeded deadline.
func WaitError(waiting context.Context) error {
	err := context.Cause(waiting)
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.ErrQueueSlow
	}
	return err
}

// line adds a waiter to the chat's line. If the chat has no holder, the waiter is admitted at once.
func (q *Queue) line(chat memory.Chat, pos Place, retry bool) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &waiter{pos, make(chan struct{})}
	l := q.Lines[chat]
	switch {
	case l == nil && len(q.Lines) >= q.Chats && pos < Erasing && !retry:
		return nil, problem.ErrTooManyChats
	case l == nil:
		q.Lines[chat] = &Line{}
		close(w.called)
		return w, nil
	case pos == PlaceIdle:
		return nil, problem.ErrQueueSlow
	case len(l.waiting) >= q.Limit && pos < Erasing && !retry:
		return nil, problem.ErrQueueFull
	}
	i := len(l.waiting)
	if pos >= PlaceFirst || retry {
		if j := slices.IndexFunc(l.waiting, func(w *waiter) bool { return w.place < PlaceFirst }); j >= 0 {
			i = j
		}
	}
	l.waiting = slices.Insert(l.waiting, i, w)
	return w, nil
}

// next admits the first waiter.
func (q *Queue) next(chat memory.Chat) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.Lines[chat]
	if len(l.waiting) == 0 {
		delete(q.Lines, chat)
		return
	}
	w := l.waiting[0]
	l.waiting = l.waiting[1:]
	close(w.called)
}

func (q *Queue) withdraw(chat memory.Chat, w *waiter) {
	q.mu.Lock()
	l := q.Lines[chat] // not nil: w waits in it or was admitted
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 {
		q.next(chat) // w was admitted meanwhile, so the next waiter follows
	}
}

// length returns the number of waiters in all lines.
func (q *Queue) length() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.Lines {
		n += len(l.waiting)
	}
	return n
}

// NoteErasure reports whether a chat was erased between two attempts at its lease. The posts of this line then precede
// the erasure and must not run.
//
// erased is the fencing token of the chat's last erasure in the latest attempt; "" clears it. turn is the token of the
// lease that this attempt acquired, or 0. An erasure older than a lease of this line does not count: it was only
// restored after a loss.
func (q *Queue) NoteErasure(chat memory.Chat, erased string, turn int64) (changed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.Lines[chat]
	if l == nil {
		return false
	}
	erasedTurn, err := strconv.ParseInt(erased, 10, 64)
	changed = erased != "" && l.erased != "" && l.erased != erased && (err != nil || erasedTurn > l.turn)
	l.erased, l.turn = erased, max(l.turn, turn)
	return changed
}
