package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// body is an answer being read, under the limits of its call.
type body struct {
	rc      io.ReadCloser // nil until there is an answer
	ahead   []byte        // read by peek and not yet by Read
	ctx     context.Context
	cancel  context.CancelCauseFunc
	silence *time.Timer // first until the head of the answer, then during each Read
	total   *time.Timer
	idle    time.Duration

	circuit *circuit    // to be told how the answer ends; nil if its head has told all
	settled atomic.Bool // it was told
}

// watch starts the clocks of one try; Close of the body stops them.
func (c *Client) watch(ctx context.Context, deadline time.Time) *body {
	b := &body{idle: c.limits.Idle}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.silence = time.AfterFunc(c.limits.FirstByte, func() {
		b.cancel(fmt.Errorf("%w: it was silent for too long", ErrTimeout))
	})
	b.total = time.AfterFunc(time.Until(deadline), func() {
		b.cancel(fmt.Errorf("%w: the call was not over after %v", ErrTimeout, c.limits.Total))
	})
	return b
}

// Read waits at most the idle limit. Time that the reader of the answer spends
// elsewhere does not count.
func (b *body) Read(p []byte) (int, error) {
	if len(b.ahead) > 0 {
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	b.silence.Reset(b.idle)
	n, err := b.rc.Read(p)
	b.silence.Stop()
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
	b.silence.Stop()
	b.total.Stop()
	b.cancel(nil)
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
