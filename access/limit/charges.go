package limit

import (
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/redisscript"
)

// What Redis took is kept for a Redis that forgets: one that is restarted from an older file, that a replica
// replaces, or that is emptied.
const (
	keptFor = 5 * time.Minute // less than remembered: what Redis has is not charged again
	maxKept = 10_000          // charges
	// settling is how long calls wait once a loss is found, so that the other processes find it and write what they keep.
	settling = 3 * time.Second
)

const maxWaiting = 4096 + maxKept // charges that may wait for Redis

// charge is a commit on its way into the books, or in them.
type charge struct {
	Reservation
	actual Amount
	since  time.Time
	again  bool // Redis took it once
}

// old says whether Redis may remember no longer that the call has ended, as it is meant to: written again, the charge
// would count twice. A machine that sleeps stops the one clock and not the other, so both are asked.
func (c charge) old() bool {
	return max(time.Since(c.since), time.Now().Round(0).Sub(c.since.Round(0))) > keptFor
}

// mark is the key by which Redis knows that the call has ended.
func (c charge) mark() string { return c.head + ":done:" + c.id }

// charges are those of a process: that Redis has not taken yet, and that it took in the last minutes, which are written
// again if it forgets them.
type charges struct {
	log  zerolog.Logger
	wake chan struct{} // something waits; of size 1

	mu      sync.Mutex        // guards all below
	waiting []charge          // not in the books yet, the oldest first
	closed  bool              // nothing more may wait
	kept    []charge          // in the order in which Redis took them
	newest  map[string]charge // of kept, by the head of a tenant's books: Redis knows it unless it has lost data
	losses  int64             // how many were found
	settled time.Time         // until then calls wait
}

// put has a charge wait for the writer. It never waits itself.
func (cs *charges) put(c charge) {
	c.since = time.Now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed || len(cs.waiting) >= maxWaiting {
		cs.log.Error().Str("request_id", c.id).Bool("closed", cs.closed).
			Msg("what a call took is not in the books: it is charged by its lease")
		return
	}
	cs.waiting = append(cs.waiting, c)
	cs.awaken()
}

// awaken tells the writer that something waits.
func (cs *charges) awaken() {
	select {
	case cs.wake <- struct{}{}:
	default:
	}
}

// take gives the oldest charges that wait, which its caller sends, and says whether no more will come.
func (cs *charges) take(most int) (batch []charge, closed bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	batch = slices.Clone(cs.waiting[:min(most, len(cs.waiting))])
	cs.waiting = slices.Delete(cs.waiting, 0, len(batch))
	return batch, cs.closed
}

// back puts charges back that were not written.
func (cs *charges) back(failed []charge) {
	if len(failed) == 0 {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.waiting = append(failed, cs.waiting...)
	cs.awaken()
}

// keys are those of a script about the books of a head: with them it finds out whether Redis has lost charges of this
// process. losses is how many losses came before, and a call waits until what they lost is written again.
func (cs *charges) keys(head string) (keys []string, losses int64, settled time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	keys = []string{head}
	if c, ok := cs.newest[head]; ok && !c.old() {
		keys = append(keys, c.mark())
	}
	return keys, cs.losses, cs.settled
}

// call is the commit of a charge. What Redis may have lost since its reservation is charged as without one, and is
// written whatever else is missing.
func (cs *charges) call(c charge) redisscript.Call {
	keys, losses, _ := cs.keys(c.head)
	args := []any{c.id, remembered.Milliseconds(), c.actual.Tokens, c.actual.Micros, 0}
	if c.unreserved || c.losses != losses {
		args[4] = 1
		args = append(args, c.enclosing.words()...)
	}
	if c.losses != losses {
		keys = keys[:1]
	} else if c.again { // it is asked whether Redis has it
		keys = []string{c.head, c.mark()}
	}
	return redisscript.Call{Script: commit, Keys: keys, Args: args}
}

// keep notes a charge that Redis took, and forgets those that are too old or too many.
func (cs *charges) keep(c charge) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.losses, c.again = cs.losses, true
	cs.kept = append(cs.kept, c)
	if !cs.newest[c.head].since.After(c.since) { // one that is written again is older
		cs.newest[c.head] = c
	}
	for len(cs.kept) > 0 && (len(cs.kept) > maxKept || cs.kept[0].old()) {
		if c := cs.kept[0]; cs.newest[c.head].id == c.id {
			delete(cs.newest, c.head)
		}
		cs.kept = cs.kept[1:]
	}
}

// lost has all that is kept written again, and calls wait; not while that of a moment ago goes on.
func (cs *charges) lost() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if time.Now().Before(cs.settled) {
		return
	}
	cs.waiting, cs.kept = append(slices.DeleteFunc(cs.kept, charge.old), cs.waiting...), nil
	cs.losses++
	cs.settled = time.Now().Add(settling)
	cs.awaken()
}

// look has the newest charge written once more, by which it is found out whether Redis has lost it.
func (cs *charges) look() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if last := len(cs.kept) - 1; last >= 0 && !cs.kept[last].old() {
		cs.waiting, cs.kept = append(cs.waiting, cs.kept[last]), cs.kept[:last]
	}
}
