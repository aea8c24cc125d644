package node

import (
	"context"
	"crypto/rand"
	"math/big"
	"time"
)

// NotGivenBack is what the log says of a lease that Redis did not take back.
const NotGivenBack = "a turn was not given back; it runs out by itself"

// started is where the monotonic clock begins.
var started = time.Now()

// Monotonic is the time since this process began, on a clock that goes on evenly when the
// machine's is set.
func Monotonic() time.Duration { return time.Since(started) }

// Pause waits for d, or until ctx ends; its cause is the error then.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter is a time between half of d and d.
func Jitter(d time.Duration) time.Duration {
	half := max(int64(d)/2, int64(time.Millisecond))
	n, err := rand.Int(rand.Reader, big.NewInt(half))
	if err != nil {
		return d
	}
	return time.Duration(half + n.Int64())
}
