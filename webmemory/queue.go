package webmemory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mneme/memory"
)

var (
	errQueueFull    = errors.New("too many messages wait for this chat's turn")
	errQueueSlow    = errors.New("the chat's turn did not come in time")
	errTooManyChats = errors.New("too many chats have work in hand")
)

// queue lets one turn per chat run in this process, first come first served.
type queue struct {
	chats int           // with a turn at one time
	limit int           // waiting per chat
	wait  time.Duration // at most

	mu    sync.Mutex
	lines map[memory.Chat][]chan struct{} // guarded by mu; present while a turn runs; closed to call one in
}

// enter waits for the chat's turn and returns what gives it on. It fails with
// errQueueFull, errQueueSlow, errTooManyChats or the end of ctx, and has then left nothing behind.
func (q *queue) enter(ctx context.Context, chat memory.Chat) (leave func(), err error) {
	q.mu.Lock()
	line, busy := q.lines[chat]
	if !busy && len(q.lines) >= q.chats {
		q.mu.Unlock()
		return nil, errTooManyChats
	}
	if !busy {
		q.lines[chat] = nil
		q.mu.Unlock()
		return func() { q.next(chat) }, nil
	}
	if len(line) >= q.limit {
		q.mu.Unlock()
		return nil, errQueueFull
	}
	called := make(chan struct{})
	q.lines[chat] = append(line, called)
	q.mu.Unlock()

	late := time.NewTimer(q.wait)
	defer late.Stop()
	select {
	case <-called:
		return func() { q.next(chat) }, nil
	case <-late.C:
		err = errQueueSlow
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	q.withdraw(chat, called)
	return nil, err
}

// try takes the chat's turn if nobody in this process has it.
func (q *queue) try(chat memory.Chat) (leave func(), free bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, busy := q.lines[chat]; busy {
		return nil, false
	}
	q.lines[chat] = nil
	return func() { q.next(chat) }, true
}

// next calls in the one who waits longest.
func (q *queue) next(chat memory.Chat) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.lines[chat]
	if len(line) == 0 {
		delete(q.lines, chat)
		return
	}
	q.lines[chat] = line[1:]
	close(line[0])
}

func (q *queue) withdraw(chat memory.Chat, called chan struct{}) {
	q.mu.Lock()
	i := slices.Index(q.lines[chat], called)
	if i >= 0 {
		q.lines[chat] = slices.Delete(q.lines[chat], i, i+1)
	}
	q.mu.Unlock()
	if i < 0 {
		q.next(chat) // called in meanwhile: the turn goes to the one behind
	}
}
