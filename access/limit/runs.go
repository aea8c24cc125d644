package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"mneme/access"
	"mneme/memory/redisscript"
)

var runs = redisscript.New(lua, "runs")

// runLease is after which time a run that is not renewed counts as over, since its process died.
const runLease = 30 * time.Second

// running are the runs of this process that are counted in Redis.
type running struct {
	start sync.Once // of the goroutine that renews their leases
	done  chan struct{}

	// Held for writing while leases are renewed: a run that leaves meanwhile would be counted once more.
	renewing sync.RWMutex
	mu       sync.Mutex
	active   map[*Run]bool // guarded by mu
}

// Run is one that was let in. Those that nothing bounds are nil.
type Run struct {
	limiter *Limiter
	head    string
	id      string
	holders []any // the field and the limit of each
	leave   sync.Once
}

func (r *Run) call(what string) redisscript.Call {
	return redisscript.Call{Script: runs, Keys: []string{r.head},
		Args: append([]any{what, r.id, r.limiter.options.RunLease.Milliseconds()}, r.holders...)}
}

// Enter lets a run of p in, or says why not: the error is a *Refusal, or ErrAway, or the context's. It counts until it
// leaves, or, if its process dies, until its lease ends. The id is the run's: one that comes again is counted once.
func (l *Limiter) Enter(ctx context.Context, p access.Principal, id string) (*Run, error) {
	r := &Run{limiter: l, head: head(p.Tenant), id: id}
	var bounding []access.Rate
	var whose []holder
	for _, h := range l.enclosing(p) {
		for _, rate := range h.limits.Rate {
			if rate.Unit == access.Runs {
				bounding, whose = append(bounding, rate), append(whose, h)
				r.holders = append(r.holders, h.field(), rate.N)
			}
		}
	}
	if len(whose) == 0 {
		return nil, nil
	}
	reply, err := l.ask(ctx, r.call("enter"))
	switch i := int(number(reply, 1)) - 1; {
	case err != nil && (ctx.Err() != nil || !l.passes(err)):
		r.Leave() // it may be counted all the same
		return nil, cmp.Or(context.Cause(ctx), ErrAway)
	case err == nil && reply.Word() == "refused" && i >= 0 && i < len(whose):
		return nil, &Refusal{Standing: Standing{Limit: bounding[i].N}, RetryAfter: time.Second,
			message: fmt.Sprintf("the %s has as many runs at once as it may (%d): try again when one has ended", whose[i],
				bounding[i].N)}
	}
	l.running.mu.Lock()
	l.running.active[r] = true
	l.running.mu.Unlock()
	l.running.start.Do(func() {
		l.running.done = make(chan struct{})
		go l.renew()
	})
	return r, nil
}

// Leave says that the run is over. It waits for Redis, so that a client that is told of the end finds the place free;
// if Redis does not answer in time, the run counts until its lease ends. Of what has left, and of nil, it does
// nothing.
func (r *Run) Leave() {
	if r == nil {
		return
	}
	r.leave.Do(func() {
		l := r.limiter
		l.running.mu.Lock()
		delete(l.running.active, r)
		l.running.mu.Unlock()
		l.running.renewing.RLock()
		defer l.running.renewing.RUnlock()
		ctx, cancel := context.WithTimeout(context.Background(), l.options.Patience)
		defer cancel()
		if err := redisscript.Run(ctx, l.redis, r.call("leave"))[0].Err(); err != nil {
			l.options.Log.Warn().Err(err).Str("run", r.id).Msg("a run that is over counts until its lease ends")
		}
	})
}

// renew prolongs the leases of the runs that go on, three times in their life, until the limiter is closed.
func (l *Limiter) renew() {
	defer close(l.running.done)
	tick := time.NewTicker(l.options.RunLease / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.renewAll()
		case <-l.closing:
			return
		}
	}
}

func (l *Limiter) renewAll() {
	l.running.renewing.Lock()
	defer l.running.renewing.Unlock()
	l.running.mu.Lock()
	active := slices.Collect(maps.Keys(l.running.active))
	l.running.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.ctx, l.options.Patience)
	defer cancel()
	var failed []error
	for chunk := range slices.Chunk(active, maxBatch) {
		calls := make([]redisscript.Call, len(chunk))
		for i, r := range chunk {
			calls[i] = r.call("stay")
		}
		for _, cmd := range redisscript.Run(ctx, l.redis, calls...) {
			failed = append(failed, cmd.Err())
		}
	}
	if err := errors.Join(failed...); err != nil {
		l.options.Log.Warn().Err(err).Msg("runs that go on are not renewed: their limits may let more in")
	}
}
