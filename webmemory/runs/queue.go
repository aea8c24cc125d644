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

// Place is where a chat's line takes a waiter in.
type Place int

// The places, by which other waiters go first.
const (
	PlaceLast  Place = iota // all waiters: the usual one
	PlaceIdle               // only an empty line
	PlaceFirst              // all waiters except others of this place
	Erasing                 // as before, whatever the limits
	Deleting                // as erasing, and from a holder that does not give the lease back within breakAfter
)

// Queue lets one holder per chat run in this process, first come first served. It is the
// service's backpressure: a request that finds too many waiting is refused at once.
type Queue struct {
	Chats int // that have a holder at one time
	Limit int // waiting per chat

	mu    sync.Mutex
	Lines map[memory.Chat]*Line // guarded by mu; present while a chat has a holder
}

// Line holds the waiters for a chat.
type Line struct {
	waiting []*waiter
	erased  string // the fencing token of the chat's last erasure, as last seen; "" for unknown
	turn    int64  // the newest fencing token that a holder from this line had; 0 for none
}

// waiter is one post, or one erasure, that waits.
type waiter struct {
	place  Place
	called chan struct{} // closed to call it in
}

// Enter waits in the chat's line and returns what calls in the next. It fails with
// problem.ErrQueueFull, problem.ErrQueueSlow, problem.ErrTooManyChats or the cause of ctx's end, and has then left
// nothing behind. again is for a caller that had its turn and gave it up to one that goes first
// (ErrClaimed): it lines up behind those that go first and before all others, whatever the
// limits.
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

// WaitError is why a wait ended in vain.
func WaitError(waiting context.Context) error {
	err := context.Cause(waiting)
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.ErrQueueSlow
	}
	return err
}

// line takes a waiter in; one that finds no holder and no waiter there is called at once.
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

// next calls in the first waiter.
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
	l := q.Lines[chat] // there is one: the waiter stands in it, or was called in
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
func (q *Queue) length() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.Lines {
		n += len(l.waiting)
	}
	return n
}

// NoteErasure says whether a chat was erased between two attempts at its lease: then the posts of this
// line were made before the erasure, and must not run after it. erased is the fencing token of
// the chat's last erasure as the latest attempt found it, "" to forget what was seen; turn is
// the token of the lease if that attempt got it, else 0. An erasure that is older than a lease
// which this line had does not count: it was told again to a Redis that had lost it.
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
