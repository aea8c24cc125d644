package loader

import (
	"context"
	"time"
)

// clock is a deadline timer that can be paused: waiting for the engine of PDFs, which other
// files keep busy, is no cost of this file and must not end its reading. It is stopped and
// resumed by the goroutine that reads the file only. A nil one measures nothing.
type clock struct {
	end       func()        // ends the context when the time is over
	timer     *time.Timer   // nil while the clock stands
	until     time.Time     // when the timer fires
	remaining time.Duration // while the clock stands
}

type clockKey struct{}

// deadline is ctx with the time limit; its end is a refusal.
func (l Limits) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.Time < 0 {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := refuse(Timeout, "reading the file takes longer than %s", l.Time.Round(time.Millisecond))
	c := &clock{end: func() { cancel(late) }, remaining: l.Time}
	c.resume()
	return context.WithValue(ctx, clockKey{}, c), func() { c.stand(); cancel(nil) }
}

// stand stops the clock of a context that deadline made, until resume: what follows is no
// cost of the file.
func stand(ctx context.Context) {
	c, _ := ctx.Value(clockKey{}).(*clock)
	c.stand()
}

func resume(ctx context.Context) {
	c, _ := ctx.Value(clockKey{}).(*clock)
	c.resume()
}

func (c *clock) stand() {
	if c != nil && c.timer != nil {
		c.timer.Stop()
		c.timer, c.remaining = nil, time.Until(c.until)
	}
}

func (c *clock) resume() {
	if c != nil && c.timer == nil {
		c.until, c.timer = time.Now().Add(c.remaining), time.AfterFunc(c.remaining, c.end)
	}
}
