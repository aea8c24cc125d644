package limit

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Times and bounds of the writer.
const (
	maxBatch     = 128                   // that go in one round trip
	writeTimeout = 2 * time.Second       // of one attempt
	gather       = 10 * time.Millisecond // for more charges, once one waits, or for a reservation: they go together
	firstPause   = 50 * time.Millisecond
	maxPause     = 2 * time.Second
	giveUpAfter  = 12 * time.Hour // then a charge is left to its lease
	remembered   = 24 * time.Hour // how long Redis knows that a call has ended: longer than any charge is tried
	closeWait    = 3 * time.Second

	// lookEvery is how often a process that has nothing to write looks whether Redis has its newest charge.
	lookEvery = time.Second
)

// write is the writer: it sends what waits almost at once, all that came meanwhile in the next round trip.
func (l *Limiter) write() {
	defer close(l.done)
	for pause := firstPause; ; {
		batch, closed := l.charges.take(maxBatch)
		if len(batch) == 0 {
			if closed {
				return
			}
			select {
			case <-l.charges.wake:
				select {
				case <-time.After(gather):
				case <-l.closing:
				}
			case <-time.After(lookEvery):
				l.charges.look()
			case <-l.closing:
			}
			continue
		}
		failed := l.send(batch)
		l.charges.requeue(failed)
		if len(failed) == 0 {
			pause = firstPause
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-l.ctx.Done():
			for batch, _ := l.charges.take(maxWaiting); len(batch) > 0; batch = batch[1:] {
				l.charges.drop(batch[0], l.ctx.Err())
			}
			return
		}
	}
}

// send writes charges, and gives those that are to be tried again.
func (l *Limiter) send(batch []charge) (failed []charge) {
	calls := make([]redisscript.Call, len(batch))
	for i, c := range batch {
		calls[i] = l.charges.commit(c)
	}
	ctx, cancel := context.WithTimeout(l.ctx, writeTimeout)
	defer cancel()
	failed = l.written(batch, redisscript.Run(ctx, l.redis, calls...))
	for _, c := range batch {
		if err := l.Usage.Sweep(ctx, c.tenant); err != nil {
			break // the next batch tries again
		}
	}
	return failed
}

// written looks at what came of charges, and gives those that are to be tried again.
func (l *Limiter) written(batch []charge, cmds []*redis.Cmd) (failed []charge) {
	restored := int64(0)
	_, losses, _ := l.charges.state(memory.Tenant{})
	for i, cmd := range cmds {
		switch reply, err := redisscript.Read(cmd); {
		case err == nil && reply.Word() == "lost":
			l.charges.rewrite()
			failed = append(failed, batch[i])
		case err == nil:
			if batch[i].retry && reply.Word() == "ok" {
				restored++
			}
			l.charges.took(batch[i])
		case batch[i].retry && batch[i].losses == losses: // that Redis has it was all there was to find out
			l.charges.took(batch[i])
		case time.Since(batch[i].queuedAt) > giveUpAfter || redisscript.WrongType(err):
			l.charges.drop(batch[i], err)
		default:
			failed = append(failed, batch[i])
		}
	}
	if restored > 0 {
		l.Restored.Add(restored)
		l.options.Log.Error().Int64("calls", restored).Msg("Redis had lost what calls took: it is written again; what it " +
			"lost that is older than five minutes is not, so look why it lost data, and what of budgets is spent")
	}
	if slices.ContainsFunc(cmds, func(cmd *redis.Cmd) bool { return cmd.Err() == nil }) {
		l.outageCalls.Store(0)
	}
	return failed
}

// Close writes what waits, for 3 s at most, and stops the writer. Later commits are left to their leases.
func (l *Limiter) Close() error {
	l.charges.mu.Lock()
	if !l.charges.closed {
		l.charges.closed = true
		close(l.closing)
	}
	l.charges.mu.Unlock()
	late := time.AfterFunc(closeWait, l.cancel)
	<-l.done
	l.running.start.Do(func() { l.running.done = l.done }) // none was ever counted
	<-l.running.done
	late.Stop()
	l.cancel()
	return nil
}
