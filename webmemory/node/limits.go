package node

import (
	"context"
	"crypto/rand"
	"math/big"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// StoreTimeout bounds one command to the store.
const StoreTimeout = 5 * time.Second

// maxUsed bounds how many chats are remembered to have been used here.
const maxUsed = 1 << 16

// makeRoom takes out any chats while there are as many as may be remembered.
func makeRoom[V any](chats map[memory.Chat]V) {
	for chat := range chats {
		if len(chats) < maxUsed {
			return
		}
		delete(chats, chat)
	}
}

// Retelling is for how long after a loss Redis may still lack what other processes know:
// they notice it, write back, and wait for the leases of busy chats.
const Retelling = 2 * time.Minute

// PageSize is the default number of messages or chats on a page.
const PageSize = 100

// MaxPage is the largest number of messages or chats on a page.
const MaxPage = 1000

// StaleFor is how long after the last contact with Redis copies are still shown.
// Later on they could be of a chat that was erased elsewhere.
const StaleFor = time.Minute

// ScanTimeout bounds an erasure that looks through all keys: a million take seconds.
const ScanTimeout = 10 * time.Minute

// ScrubWait is how long an erasure waits until its text is in no file of the store's.
const ScrubWait = time.Minute

// RetryEvery is how often it is looked whether a process on this disk died, how often a
// chat's lease is tried for while the spool holds some of the chat, and how often a lease
// is given back while Redis is away.
const RetryEvery = 500 * time.Millisecond

// Decode are a run's from the first on, decoded; none if something is wrong with them.
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
