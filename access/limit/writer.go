package limit

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisscript"
)

// Times and bounds of the writer.
const (
	maxWaiting   = 4096                  // charges that may wait for Redis
	maxBatch     = 128                   // that go in one round trip
	writeTimeout = 2 * time.Second       // of one attempt
	gather       = 10 * time.Millisecond // for more charges, once one waits, or for a reservation: they go together
	firstPause   = 50 * time.Millisecond
	maxPause     = 2 * time.Second
	giveUpAfter  = 5 * time.Minute  // then a charge is left to its lease
	remembered   = 15 * time.Minute // how long Redis knows that a call has ended: longer than any charge is tried
	closeWait    = 3 * time.Second
)

// charge is a commit on its way into the books.
type charge struct {
	Reservation
	actual Amount
	since  time.Time
}

func (c charge) call() redisscript.Call {
	unreserved := 0
	if c.unreserved {
		unreserved = 1
	}
	args := []any{c.id, remembered.Milliseconds(), c.actual.Tokens, c.actual.Micros, unreserved}
	if c.unreserved {
		args = append(args, c.enclosing.words()...)
	}
	return redisscript.Call{Script: commit, Keys: []string{c.head}, Args: args}
}

// put hands a charge to the writer. It never waits.
func (l *Limiter) put(c charge) {
	c.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) >= maxWaiting {
		l.options.Log.Error().Str("request_id", c.id).Bool("closed", l.closed).
			Msg("what a call took is not in the books: it is charged by its lease")
		return
	}
	l.waiting = append(l.waiting, c)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take gives the oldest charges that wait, which its caller sends.
func (l *Limiter) take(most int) []charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := slices.Clone(l.waiting[:min(most, len(l.waiting))])
	l.waiting = slices.Delete(l.waiting, 0, len(batch))
	return batch
}

// again puts charges back that were not written.
func (l *Limiter) again(failed []charge) {
	if len(failed) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(failed, l.waiting...)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write is the writer: it sends what waits almost at once, all that came meanwhile in the next round trip.
func (l *Limiter) write() {
	defer close(l.done)
	for pause := firstPause; ; {
		l.mu.Lock()
		closed := l.closed // before the look at what waits, behind which nothing more comes then
		l.mu.Unlock()
		batch := l.take(maxBatch)
		if len(batch) == 0 {
			if closed {
				return
			}
			select {
			case <-l.wake:
				select {
				case <-time.After(gather):
				case <-l.closing:
				}
			case <-l.closing:
			}
			continue
		}
		failed := l.send(batch)
		l.again(failed)
		if len(failed) == 0 {
			pause = firstPause
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-l.ctx.Done():
			l.options.Log.Error().Int("calls", len(failed)).
				Msg("what calls took is not in the books at the end: they are charged by their leases")
			return
		}
	}
}

// send writes charges, and gives those that are to be tried again.
func (l *Limiter) send(batch []charge) (failed []charge) {
	calls := make([]redisscript.Call, len(batch))
	for i, c := range batch {
		calls[i] = c.call()
	}
	ctx, cancel := context.WithTimeout(l.ctx, writeTimeout)
	defer cancel()
	return l.written(batch, redisscript.Run(ctx, l.redis, calls...))
}

// written looks at what came of charges, and gives those that are to be tried again.
func (l *Limiter) written(batch []charge, cmds []*redis.Cmd) (failed []charge) {
	for i, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
		case time.Since(batch[i].since) > giveUpAfter || redisscript.WrongType(err):
			l.options.Log.Error().Err(err).Str("request_id", batch[i].id).
				Msg("what a call took cannot be written into the books: it is charged by its lease")
		default:
			failed = append(failed, batch[i])
		}
	}
	if len(failed) < len(cmds) {
		l.answers()
	}
	return failed
}

// Close writes what waits, for 3 s at most, and stops the writer. Later commits are left to their leases.
func (l *Limiter) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	late := time.AfterFunc(closeWait, l.cancel)
	<-l.done
	l.running.start.Do(func() { l.running.done = l.done }) // none was ever counted
	<-l.running.done
	late.Stop()
	l.cancel()
	return nil
}
