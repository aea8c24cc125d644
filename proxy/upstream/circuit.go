package upstream

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOpen is in every *OpenError.
var ErrOpen = errors.New("the backend is not asked: it failed too often in a row")

// OpenError says that a call did not leave, because the backend's circuit is
// open.
type OpenError struct {
	RetryAfter time.Duration // until a call may try again; more than 0
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%v; one call may try again in %v", ErrOpen, e.RetryAfter.Round(time.Millisecond))
}

func (e *OpenError) Unwrap() error { return ErrOpen }

// verdict is what an attempt shows about its backend.
type verdict int

const (
	silent  verdict = iota // nothing: the caller left first
	alive                  // the backend answers, if only with a refusal
	failing                // it failed, or did not answer in time
)

// circuit is a circuit breaker for one backend. Closed, it lets every attempt through and counts
// failures in a row. Open, it lets one attempt per cooldown through, the probe, until one finds the
// backend alive. A slow probe does not block the next one, because models may answer only after
// minutes.
type circuit struct {
	limit    int // failures in a row that open it; negative for never
	cooldown time.Duration

	mu       sync.Mutex
	failures int // in a row, while it is closed
	open     bool
	until    time.Time // while open: the earliest time of the next probe
}

// enter asks for permission to make an attempt, after which report must be called at least once.
func (c *circuit) enter() (probe bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return false, nil
	}
	now := time.Now()
	if wait := c.until.Sub(now); wait > 0 {
		return false, &OpenError{RetryAfter: wait}
	}
	c.until = now.Add(c.cooldown)
	return true, nil
}

// report evaluates an attempt. While the circuit is open only probes count, because other attempts
// began before it opened.
func (c *circuit) report(probe bool, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open && !probe:
	case v == alive:
		c.open, c.failures = false, 0
	case v == failing && c.open:
		c.until = time.Now().Add(c.cooldown)
	case v == failing:
		if c.failures++; c.failures >= c.limit && c.limit > 0 {
			c.open, c.until = true, time.Now().Add(c.cooldown)
		}
	case c.open: // a probe without a verdict: the next one may follow at once
		c.until = time.Time{}
	}
}

func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}
