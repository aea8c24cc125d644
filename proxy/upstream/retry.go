package upstream

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// refill is what a retry budget regains with every call, and with every second.
const refill = 0.2

// budget is a token bucket that bounds the load which retries add to a backend: a few at once while
// it stumbles, and one for every five calls while it is down. The refill by time serves a backend
// with few callers.
type budget struct {
	max float64

	mu         sync.Mutex
	tokens     float64
	lastRefill time.Time // the last refill by time
}

// earn refills the budget for one call.
func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.max, b.tokens+refill)
}

// spend takes a retry from the budget, and reports whether there was one.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.max, b.tokens+refill*now.Sub(b.lastRefill).Seconds())
	b.lastRefill = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// maxJudged bounds the part of a body that Config.Judge sees, in bytes.
const maxJudged = 64 << 10

// weigh says what an attempt shows about the backend, and whether it may be repeated.
func (c *Client) weigh(resp *http.Response, err error) (v verdict, retry bool) {
	switch {
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrBroken):
		return failing, true
	case errors.Is(err, ErrTimeout):
		return failing, false
	case errors.Is(err, ErrEncoding):
		return alive, false
	case err != nil: // the caller left, or the call could not be made
		return silent, false
	}
	v = alive
	switch s := resp.StatusCode; {
	case s == http.StatusTooManyRequests, s == http.StatusRequestTimeout:
	case s < 500, s == http.StatusNotImplemented:
		return alive, false
	default:
		v = failing
	}
	if c.judge != nil && c.judge(resp.StatusCode, resp.Body.(*body).peek(maxJudged)) {
		return alive, false
	}
	return v, true
}

// wait is the delay before the retry that follows an attempt: the vendor's Retry-After, else
// exponential backoff with jitter. ok is false if the vendor asks for a longer delay than a call
// may wait.
func (c *Client) wait(try int, resp *http.Response) (d time.Duration, ok bool) {
	if resp != nil {
		if delay, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return delay, delay <= c.limits.MaxWait
		}
	}
	d = c.limits.MaxWait
	if backoff := c.limits.Backoff; backoff <= d>>try { // the limit is shifted, since shifting backoff could overflow
		d = backoff << try
	}
	return d + rand.N(d/2+1), true // jitter, so that clients that failed together do not return together
}

// retryAfter parses both forms of the header: seconds, and a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second)), true
	}
	if t, err := http.ParseTime(value); err == nil {
		return max(0, t.Sub(now)), true
	}
	return 0, false
}
