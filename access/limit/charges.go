package limit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"mneme/access/tally"
	"mneme/memory"
	"mneme/memory/redisscript"
)

// What Redis took is kept for a Redis that forgets: one that is restarted from an older file, that a replica
// replaces, or that is emptied.
const (
	keptFor = 5 * time.Minute // far less than remembered: what Redis has is not charged again
	maxKept = 10_000          // charges
	// settling is how long calls wait once a loss is found, so that the other processes find it and write what they keep.
	settling = 3 * time.Second
)

const maxWaiting = 4096 + maxKept // charges that may wait for Redis

// charge is a commit on its way into the books, or in them.
type charge struct {
	Reservation
	call     tally.Call // none for a reservation that is taken back
	queuedAt time.Time
	retry    bool // Redis took it once
}

// mark is that by which Redis knows that a call has ended; of none it is empty.
type mark struct{ hour, id string }

func (r Reservation) mark() mark { return mark{r.hour, r.id} }

func hourOf(t time.Time) string { return t.UTC().Format("2006-01-02T15") }

// keys are those of a script about the books of the reservation's tenant.
func (r Reservation) keys() []string { return []string{head(r.tenant), tally.Head(r.tenant)} }

// args are what all scripts about the books have. By the mark that is known they find out whether Redis has lost
// charges of this process.
func (r Reservation) args(newest mark, a Amount, keep time.Duration, limits bool) []any {
	args := append(make([]any, 0, 30), newest.hour, newest.id, r.hour, r.id, a.Tokens, a.Micros, keep.Milliseconds())
	if limits {
		return r.enclosing.append(args)
	}
	return append(args, "", "", "", "")
}

// old says whether Redis may remember no longer that the call has ended, as it is meant to: written again, the charge
// would count twice. A machine that sleeps stops the one clock and not the other, so both are asked.
func (c charge) old() bool {
	return max(time.Since(c.queuedAt), time.Now().Round(0).Sub(c.queuedAt.Round(0))) > keptFor
}

// charges are those of a process: that Redis has not taken yet, and that it took in the last minutes, which are written
// again if it forgets them.
type charges struct {
	log     zerolog.Logger
	keep    time.Duration // for which counters are kept
	wake    chan struct{} // something waits; of size 1
	dropped atomic.Int64

	mu      sync.Mutex               // guards all below
	waiting []charge                 // not in the books yet, the oldest first
	closed  bool                     // nothing more may wait
	stored  []charge                 // in the order in which Redis took them
	newest  map[memory.Tenant]charge // of kept: Redis knows it unless it has lost data
	losses  int64                    // how many were found
	settled time.Time                // until then calls wait
}

// put has a charge wait for the writer. It never waits itself.
func (cs *charges) put(c charge) {
	c.queuedAt = time.Now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.id == "" { // nothing bounds it
		c.tenant, c.id, c.hour, c.losses = c.call.Tenant, c.call.Request, hourOf(c.call.Time), cs.losses
	}
	if cs.closed || len(cs.waiting) >= maxWaiting {
		cs.drop(c, nil)
		return
	}
	cs.waiting = append(cs.waiting, c)
	cs.awaken()
}

// drop gives a charge up.
func (cs *charges) drop(c charge, err error) {
	cs.dropped.Add(1)
	cs.log.Error().Err(err).Str("request_id", c.id).
		Msg("what a call took is not in the books: budgets are charged by its lease, and reports lack it")
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

// requeue puts charges back that were not written.
func (cs *charges) requeue(failed []charge) {
	if len(failed) == 0 {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.waiting = append(failed, cs.waiting...)
	cs.awaken()
}

// state is the mark of the newest charge that Redis took of a tenant's. losses is how many losses came before, and a
// call waits until what they lost is written again.
func (cs *charges) state(tenant memory.Tenant) (newest mark, losses int64, settled time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c, ok := cs.newest[tenant]; ok && !c.old() {
		newest = c.mark()
	}
	return newest, cs.losses, cs.settled
}

// commit is the commit of a charge. What Redis may have lost since its reservation is charged as without one, and is
// written whatever else is missing.
func (cs *charges) commit(c charge) redisscript.Call {
	newest, losses, _ := cs.state(c.tenant)
	how := "reserved"
	if c.losses != losses {
		newest = mark{}
	} else if c.retry { // it is asked whether Redis has it
		newest = c.mark()
	}
	if c.enclosing == nil {
		how = "unlimited"
	} else if c.unreserved || c.losses != losses {
		how = "unreserved"
	}
	n, day := c.call.Counts, ""
	if c.call.Request != "" {
		day = c.call.Time.UTC().Format(time.DateOnly)
	}
	actual := Amount{n.Input + n.Output, n.Micros}.clamp()
	args := append(c.args(newest, actual, cs.keep, how == "unreserved"), how, remembered.Milliseconds(), day,
		n.String())
	for dim, name := range c.call.Names {
		args = append(args, string(dim), name)
	}
	return redisscript.Call{Script: commit, Keys: c.keys(), Args: args}
}

// took notes a charge that Redis took, and forgets those that are too old or too many.
func (cs *charges) took(c charge) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.losses, c.retry = cs.losses, true
	cs.stored = append(cs.stored, c)
	if !cs.newest[c.tenant].queuedAt.After(c.queuedAt) { // one that is written again is older
		cs.newest[c.tenant] = c
	}
	for len(cs.stored) > 0 && (len(cs.stored) > maxKept || cs.stored[0].old()) {
		if c := cs.stored[0]; cs.newest[c.tenant].id == c.id {
			delete(cs.newest, c.tenant)
		}
		cs.stored = cs.stored[1:]
	}
}

// rewrite has all that is kept written again, and calls wait; not while that of a moment ago goes on.
func (cs *charges) rewrite() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if time.Now().Before(cs.settled) {
		return
	}
	cs.waiting, cs.stored = append(slices.DeleteFunc(cs.stored, charge.old), cs.waiting...), nil
	cs.losses++
	cs.settled = time.Now().Add(settling)
	cs.awaken()
}

// look has the newest charge written once more, by which it is found out whether Redis has lost it.
func (cs *charges) look() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if last := len(cs.stored) - 1; last >= 0 && !cs.stored[last].old() {
		cs.waiting, cs.stored = append(cs.waiting, cs.stored[last]), cs.stored[:last]
	}
}
