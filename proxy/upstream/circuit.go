package upstream

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"mneme/proxy/wire"
)

// ErrOpen is in every *OpenError.
var ErrOpen = errors.New("the backend is not asked: it failed too often")

// OpenError says that a call did not leave, because the backend's circuit is
// open.
type OpenError struct {
	RetryAfter time.Duration // until a call may try again; more than 0
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%v; one call may try again in %v", ErrOpen, e.RetryAfter.Round(time.Millisecond))
}

func (e *OpenError) Unwrap() error { return ErrOpen }

// verdict is what a call shows about its backend.
type verdict int

const (
	silent  verdict = iota // nothing: the caller left first
	alive                  // the backend answers, if only with a refusal
	failing                // it failed, or did not answer in time
)

// circuits are the circuit breakers of a backend: one for each model and credential, since a
// deployment that is down, or an account that is blocked, says nothing of the others; and of these one for each
// tenant, since the requests of one may be at fault. What fails for two tenants at a time is held back for all.
type circuits struct {
	limits Limits
	seed   maphash.Seed

	mu     sync.Mutex
	byLane map[lane]*circuit // guarded by mu
}

// lane is what calls have in common that share a circuit.
type lane struct {
	model      string
	credential uint64 // a hash of the caller's; 0 if all calls have the backend's own
	tenant     string
}

// maxCircuits bounds their number, since clients choose the names of models.
const maxCircuits = 256

// forCall is the circuit of a call, with the header as the client sent it. The error is an
// *OpenError: calls like it fail for two other tenants.
func (c *circuits) forCall(call wire.Call, auth Auth) (*circuit, error) {
	l := lane{model: call.Model, tenant: call.Tenant}
	if auth == AuthPassthrough {
		var presented []string
		for _, name := range credentials {
			presented = append(presented, call.Header.Get(name))
		}
		l.credential = maphash.String(c.seed, strings.Join(presented, "\n"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.byLane[l]
	if !ok {
		if len(c.byLane) >= maxCircuits {
			clear(c.byLane)
		}
		l.model = strings.Clone(l.model)
		entry = &circuit{limit: c.limits.Failures, cooldown: c.limits.Cooldown}
		c.byLane[l] = entry
	}
	if open, _ := c.failing(l, 0); open > 1 && !entry.isOpen(window) {
		return nil, &OpenError{RetryAfter: c.limits.Cooldown}
	}
	return entry, nil
}

// failing counts the tenants that call as in a lane, and those with circuits that are open, or were until so long
// ago. The caller holds mu.
func (c *circuits) failing(like lane, ago time.Duration) (open, total int) {
	for l, one := range c.byLane {
		if l.model == like.model && l.credential == like.credential {
			if total++; one.isOpen(ago) {
				open++
			}
		}
	}
	return open, total
}

// open reports whether calls fail for two tenants, or for the only one that makes any, unless no call has tried for
// long whether they still do.
func (c *circuits) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.byLane {
		if open, total := c.failing(l, window); open > 1 || open == 1 && total == 1 {
			return true
		}
	}
	return false
}

// Failures count for so long, in spans of which each is forgotten as a whole.
const (
	spans  = 12
	span   = 5 * time.Second
	window = spans * span
)

// circuit is a circuit breaker. Closed, it lets every call through and opens when enough calls of
// the last minute have failed and less than a fifth of them have not: a request that always fails,
// sent over and over, locks no caller out as long as others are answered. Open, it lets one call
// per cooldown through, the probe, until one finds the backend alive. A slow probe does not block
// the next one, because models may answer only after minutes.
type circuit struct {
	limit    int // failures that open it; negative for never
	cooldown time.Duration

	mu     sync.Mutex
	counts [spans]struct{ slot, calls, failures int64 } // at: the number of the span; while it is closed
	opened bool
	until  time.Time // while open: the earliest time of the next probe
}

// enter asks for permission to make a call, after which report must be called at least once.
func (c *circuit) enter() (probe bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.opened {
		return false, nil
	}
	now := time.Now()
	if wait := c.until.Sub(now); wait > 0 {
		return false, &OpenError{RetryAfter: wait}
	}
	c.until = now.Add(c.cooldown)
	return true, nil
}

// report evaluates a call. While the circuit is open only probes count, because other calls began
// before it opened.
func (c *circuit) report(probe bool, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.opened && !probe:
	case c.opened && v == alive:
		c.opened, c.counts = false, [spans]struct{ slot, calls, failures int64 }{}
	case c.opened && v == failing:
		c.until = time.Now().Add(c.cooldown)
	case c.opened: // a probe without a verdict: the next one may follow at once
		c.until = time.Time{}
	case v != silent:
		c.opened = c.count(v == failing)
		c.until = time.Now().Add(c.cooldown)
	}
}

// count adds a call to those of the window, and reports whether they open the circuit.
func (c *circuit) count(failed bool) bool {
	slot := time.Now().UnixNano() / int64(span)
	current := &c.counts[slot%spans]
	if current.slot != slot {
		*current = struct{ slot, calls, failures int64 }{slot: slot}
	}
	current.calls++
	if failed {
		current.failures++
	}
	var calls, failures int64
	for _, s := range c.counts {
		if slot-s.slot < spans {
			calls, failures = calls+s.calls, failures+s.failures
		}
	}
	return failed && c.limit > 0 && failures >= int64(c.limit) && failures*5 > calls*4
}

// isOpen reports whether calls are held back, or were until so long ago.
func (c *circuit) isOpen(ago time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened && time.Since(c.until) < ago
}
