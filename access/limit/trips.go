package limit

import (
	"context"
	"slices"
	"sync"

	"mneme/memory/redisscript"
)

// maxTrips bounds the round trips for reservations that are under way at one time in a process. Calls that come
// meanwhile go together in the next one: a crowd that had a connection each would wait for connections, longer than
// Redis's answer may take, and be told that Redis is away.
const maxTrips = 4

// maxTogether bounds how many go in one round trip: so many have to be answered within Options.Patience, also by the
// store inside the process.
const maxTogether = 32

// trips are the round trips for reservations.
type trips struct {
	mu      sync.Mutex
	busy    int         // guarded by mu: under way
	waiting []*question // guarded by mu: for the next one, the oldest first
}

// question is a call of a script that waits for a round trip.
type question struct {
	ctx  context.Context
	call redisscript.Call

	answered chan struct{} // closed once there is one of the others
	reply    redisscript.Reply
	err      error
}

// ask runs a script, alone if not many are asked, and gives its reply. Redis has Patience to answer.
func (l *Limiter) ask(ctx context.Context, call redisscript.Call) (redisscript.Reply, error) {
	t := &l.trips
	t.mu.Lock()
	if t.busy < maxTrips {
		t.busy++
		t.mu.Unlock()
		defer l.goOn()
		queryCtx, cancel := context.WithTimeout(ctx, l.options.Patience)
		defer cancel()
		// What calls before took goes first, so that a caller that ends one and begins another has its place.
		charges, _ := l.charges.take(maxTogether)
		calls := make([]redisscript.Call, 0, len(charges)+1)
		for _, c := range charges {
			calls = append(calls, l.charges.commit(c))
		}
		cmds := redisscript.Run(queryCtx, l.redis, append(calls, call)...)
		l.charges.requeue(l.written(charges, cmds[:len(charges)]))
		return redisscript.Read(cmds[len(charges)])
	}
	q := &question{ctx: ctx, call: call, answered: make(chan struct{})}
	t.waiting = append(t.waiting, q)
	t.mu.Unlock()
	select {
	case <-q.answered:
		return q.reply, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// goOn ends a round trip, or has a goroutine make further ones in its place for those that wait.
func (l *Limiter) goOn() {
	l.trips.mu.Lock()
	defer l.trips.mu.Unlock()
	if len(l.trips.waiting) == 0 {
		l.trips.busy--
		return
	}
	go l.answerWaiting()
}

// answerWaiting makes round trips until no question waits.
func (l *Limiter) answerWaiting() {
	for {
		l.trips.mu.Lock()
		batch := l.trips.waiting[:min(maxTogether, len(l.trips.waiting))]
		l.trips.waiting = l.trips.waiting[len(batch):]
		if len(batch) == 0 {
			l.trips.waiting = nil
			l.trips.busy--
			l.trips.mu.Unlock()
			return
		}
		l.trips.mu.Unlock()
		if err := l.answer(batch); err != nil { // the questions behind would wait in vain as long
			l.trips.mu.Lock()
			batch, l.trips.waiting = l.trips.waiting, nil
			l.trips.mu.Unlock()
			for _, q := range batch {
				q.err = err
				close(q.answered)
			}
		}
	}
}

// answer makes one round trip for some. The error is that Redis did not answer in time.
func (l *Limiter) answer(batch []*question) error {
	batch = slices.DeleteFunc(batch, func(q *question) bool { return q.ctx.Err() != nil }) // its caller has left
	calls := make([]redisscript.Call, len(batch))
	for i, q := range batch {
		calls[i] = q.call
	}
	queryCtx, cancel := context.WithTimeout(l.ctx, l.options.Patience)
	defer cancel()
	for i, cmd := range redisscript.Run(queryCtx, l.redis, calls...) {
		batch[i].reply, batch[i].err = redisscript.Read(cmd)
		close(batch[i].answered)
	}
	return queryCtx.Err()
}
