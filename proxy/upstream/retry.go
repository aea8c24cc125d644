package upstream

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// refill is what a budget of retries gets back for every call, and for every
// second.
const refill = 0.2

// budget bounds what retries add to the load of a backend: a few at once for one
// that stumbles, and one for every five calls when it is down. The seconds serve
// a backend with few callers.
type budget struct {
	max float64

	mu   sync.Mutex
	left float64
	at   time.Time // of the last refill by the clock
}

func newBudget(burst int) *budget {
	return &budget{max: float64(burst), left: float64(burst), at: time.Now()}
}

// earn counts a call.
func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.max, b.left+refill)
}

// spend takes a retry out of the budget, if there is one.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.left = min(b.max, b.left+refill*now.Sub(b.at).Seconds())
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// maxJudged bounds what Config.Judge sees of a body, in bytes.
const maxJudged = 64 << 10

// weigh says what a try showed of the backend, and whether it may be repeated.
func (c *Client) weigh(resp *http.Response, err error) (v verdict, again bool) {
	switch {
	case errors.Is(err, ErrUnreachable):
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
	case s == http.StatusTooManyRequests:
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

// wait is the time before the retry that follows a try; ok is false if the vendor
// wants a longer one than a call may take.
func (c *Client) wait(try int, resp *http.Response) (d time.Duration, ok bool) {
	if resp != nil {
		if after, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return after, after <= c.limits.MaxWait
		}
	}
	d = c.limits.MaxWait
	if backoff := c.limits.Backoff; backoff <= d>>try { // not shifted the other way, which could overflow
		d = backoff << try
	}
	return d + rand.N(d/2+1), true // so that clients that failed together do not return together
}

// retryAfter reads the header's two forms: seconds and a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second)), true
	}
	if t, err := http.ParseTime(value); err == nil {
		return max(0, t.Sub(now)), true
	}
	return 0, false
}
