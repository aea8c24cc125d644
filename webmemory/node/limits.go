package node

import (
	"context"
	"crypto/rand"
	"math/big"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// StoreTimeout is the timeout of a command to Redis.
const StoreTimeout = 5 * time.Second

// maxUsed is the maximum number of used chats that this process remembers.
const maxUsed = 1 << 16

// makeRoom deletes arbitrary chats until there are fewer than maxUsed.
func makeRoom[V any](chats map[memory.Chat]V) {
	for chat := range chats {
		if len(chats) < maxUsed {
			return
		}
		delete(chats, chat)
	}
}

// Retelling is how long after a loss Redis may still lack data that other processes have. They must notice the loss,
// write their data back, and wait for the leases of busy chats.
const Retelling = 2 * time.Minute

// PageSize is the default number of messages or chats on a page.
const PageSize = 100

// MaxPage is the largest number of messages or chats on a page.
const MaxPage = 1000

// StaleFor is how long after the last contact with Redis cached copies are shown. Older copies may belong to chats that
// were erased elsewhere.
const StaleFor = time.Minute

// ScanTimeout is the timeout of an erasure that scans all keys. A million keys take seconds.
const ScanTimeout = 10 * time.Minute

// ScrubWait is how long an erasure waits until no file of Redis contains its text.
const ScrubWait = time.Minute

// RetryEvery is the interval of checks for dead processes on this disk. It is also the retry interval for leases of
// chats with spooled entries. Releases of leases are retried at this interval while Redis is unavailable.
const RetryEvery = 500 * time.Millisecond

// Decode decodes the events of a run from the first one on. It returns nil if an event is damaged, missing or of
// another run.
func (h EndHead) Decode(lines [][]byte) []event.Event {
	events := make([]event.Event, len(lines))
	for i, l := range lines {
		e, err := event.Decode(l)
		if err != nil || e.RunID != h.Run || e.Seq != int64(i)+1 {
			return nil
		}
		events[i] = e
	}
	return events
}

// NotGivenBack is the log message for a lease that could not be released in Redis.
const NotGivenBack = "a turn was not given back; it runs out by itself"

// started is the zero point of Monotonic.
var started = time.Now()

// Monotonic returns the time since this process began. Setting the system clock does not affect it.
func Monotonic() time.Duration { return time.Since(started) }

// Pause waits for d or until ctx ends. If ctx ends, Pause returns its cause.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Jitter returns a random time between half of d and d.
func Jitter(d time.Duration) time.Duration {
	half := max(int64(d)/2, int64(time.Millisecond))
	n, err := rand.Int(rand.Reader, big.NewInt(half))
	if err != nil {
		return d
	}
	return time.Duration(half + n.Int64())
}
