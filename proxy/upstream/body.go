package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mneme/proxy/wire"
)

// body is an answer that is being read, under the time limits of its call.
type body struct {
	rc     io.ReadCloser // nil until the head of the answer has come
	ahead  []byte        // read by peek and not yet returned by Read
	ctx    context.Context
	cancel context.CancelCauseFunc
	limits Limits
	began  time.Time

	// until is the instant, in ns from began, at which the backend has been silent for too long; 0
	// while no reader waits for it.
	until atomic.Int64
	mu    sync.Mutex    // guards the next two
	clock *time.Timer   // checks the limits
	end   time.Duration // limit of the whole call, counted from began

	circuit *circuit    // gets the verdict on the answer; nil if the head of the answer has settled it
	settled atomic.Bool // the verdict was given
}

// watch starts the timer of one attempt, which first waits for the head of the answer; closing the
// body stops it. One timer checks all limits and is not reset by every piece of the answer, since
// an answer has more pieces than seconds.
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

// look cancels the call if a limit has passed, else sets the timer for the next possible one.
func (b *body) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.began)
	next := b.limits.Idle // a wait that begins at this instant ends then
	if until := time.Duration(b.until.Load()); until > 0 {
		next = min(next, until-now)
	}
	switch {
	case b.ctx.Err() != nil:
	case now >= b.end:
		b.cancel(fmt.Errorf("%w: the call was not over after %v", ErrTimeout, now.Round(time.Second)))
	case next <= 0:
		b.cancel(fmt.Errorf("%w: it was silent for too long", ErrTimeout))
	default:
		b.clock.Reset(min(next, b.end-now))
	}
}

// extend replaces the limit of the whole call by a longer one, counted from its beginning.
func (b *body) extend(limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end = max(b.end, limit)
}

// Read waits for the idle limit at most. The time between two calls of Read does not count against
// the backend.
func (b *body) Read(p []byte) (int, error) {
	if len(b.ahead) > 0 {
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	b.until.Store(int64(time.Since(b.began) + b.limits.Idle))
	n, err := b.rc.Read(p)
	b.until.Store(0)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.explain(ErrBroken, err)
		v := silent
		if errors.Is(err, ErrBroken) || errors.Is(err, ErrTimeout) {
			v = failing
		}
		b.settle(v)
	}
	return n, err
}

// peek returns up to limit bytes that Read will return again.
func (b *body) peek(limit int64) []byte {
	// An error here occurs again in Read.
	ahead, _ := io.ReadAll(io.LimitReader(b, limit))
	b.ahead = ahead
	return ahead
}

// Bounds of what is held back of a stream until its answer begins. Backends that are slow to begin
// send signs of life, which must reach the client in time.
const (
	maxHeld      = 64 << 10 // bytes
	maxHeldSince = 15 * time.Second
)

// lead reads a stream until early has seen enough of it, and has Read return that again. If early
// finds an error, resp becomes an answer of the status that the error names. A stream that ends
// before that is none.
func (b *body) lead(resp *http.Response, early func([]byte) (int, bool)) error {
	var buf bytes.Buffer
	frames := wire.NewFrameReader(io.TeeReader(b, &buf))
	defer frames.Release()
	for began := time.Now(); ; {
		frame, err := frames.Next()
		status, hasMore := early(frame.Data)
		if status != 0 {
			_ = b.rc.Close()
			b.rc = io.NopCloser(bytes.NewReader(bytes.Clone(frame.Data)))
			resp.StatusCode, resp.ContentLength = status, int64(len(frame.Data))
			resp.Header.Set("Content-Type", "application/json")
			return nil
		}
		if hasMore && errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: the stream ended before its answer began", ErrBroken)
		}
		if hasMore && err != nil {
			return err
		}
		// An error here occurs again in Read.
		if !hasMore || buf.Len() > maxHeld || time.Since(began) > maxHeldSince {
			b.ahead = buf.Bytes()
			return nil
		}
	}
}

// settle reports how the answer ended to the circuit, once.
func (b *body) settle(v verdict) {
	if b.circuit != nil && !b.settled.Swap(true) {
		b.circuit.report(false, v)
	}
}

// Close ends the call and releases the connection.
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

// explain is the cause for which the call was cancelled, by a limit or by the caller; else the
// transport's error as one of the given kind.
func (b *body) explain(kind, err error) error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	return fmt.Errorf("%w: %w", kind, err)
}
