package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// body is an answer being read, under the limits of its call.
type body struct {
	rc     io.ReadCloser // nil until there is an answer
	ahead  []byte        // read by peek and not yet by Read
	ctx    context.Context
	cancel context.CancelCauseFunc
	limits Limits
	began  time.Time
	end    time.Duration // of the call, from began

	// until is when, from began, the backend will have been silent for too long; 0
	// while nobody waits for it.
	until atomic.Int64
	mu    sync.Mutex
	clock *time.Timer // looks whether a limit is over; guarded by mu

	circuit *circuit    // to be told how the answer ends; nil if its head has told all
	settled atomic.Bool // it was told
}

// watch starts the clock of one try, which waits for the head of the answer; Close
// of the body stops it. One timer for all limits, that nothing moves as long as it
// has not run out: an answer has more pieces than seconds.
func (c *Client) watch(ctx context.Context, deadline time.Time) *body {
	b := &body{limits: c.limits, began: time.Now()}
	b.end = deadline.Sub(b.began)
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.until.Store(max(1, int64(c.limits.FirstByte)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock = time.AfterFunc(min(b.end, c.limits.FirstByte, c.limits.Idle), b.look)
	return b
}

// look ends the call if a limit is over, else looks again when one could be.
func (b *body) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.began)
	next := b.limits.Idle // a wait that begins from now on lasts as long
	if until := time.Duration(b.until.Load()); until > 0 {
		next = min(next, until-now)
	}
	switch {
	case b.ctx.Err() != nil:
	case now >= b.end:
		b.cancel(fmt.Errorf("%w: the call was not over after %v", ErrTimeout, b.limits.Total))
	case next <= 0:
		b.cancel(fmt.Errorf("%w: it was silent for too long", ErrTimeout))
	default:
		b.clock.Reset(min(next, b.end-now))
	}
}

// Read waits at most the idle limit. Time that the reader of the answer spends
// elsewhere does not count.
func (b *body) Read(p []byte) (int, error) {
	if len(b.ahead) > 0 {
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	b.until.Store(int64(time.Since(b.began) + b.limits.Idle))
	n, err := b.rc.Read(p)
	b.until.Store(0)
	if err != nil && err != io.EOF {
		err = b.explain(ErrBroken, err)
		v := silent
		if errors.Is(err, ErrBroken) || errors.Is(err, ErrTimeout) {
			v = failing
		}
		b.settle(v)
	}
	return n, err
}

// peek shows up to limit bytes of what Read will give.
func (b *body) peek(limit int64) []byte {
	// What fails here fails again in Read.
	ahead, _ := io.ReadAll(io.LimitReader(b, limit))
	b.ahead = ahead
	return ahead
}

// settle tells how the answer ended, once.
func (b *body) settle(v verdict) {
	if b.circuit != nil && !b.settled.Swap(true) {
		b.circuit.report(false, v)
	}
}

// Close ends the call.
func (b *body) Close() error {
	b.settle(alive)
	b.mu.Lock()
	b.clock.Stop()
	b.cancel(nil)
	b.mu.Unlock()
	if b.rc == nil {
		return nil
	}
	return b.rc.Close()
}

// explain gives the reason for which the call was ended by us or by the caller,
// else the kind of failure with the transport's own words.
func (b *body) explain(kind, err error) error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	return fmt.Errorf("%w: %w", kind, err)
}
