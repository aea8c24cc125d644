package copilot

import "sync/atomic"

// Stats are counters since the start, apart from Routes and Pending.
type Stats struct {
	Routes     int    // sessions now
	Pending    int    // calls that wait for an answer now
	QueueDepth int    // most events that waited for one session
	Coalesced  uint64 // deltas that were joined to the one before
	Filtered   uint64 // events and notifications that are not read here
	Malformed  uint64 // events of a kind that is read and that could not be
	Orphans    uint64 // events and requests of sessions that are unknown here
	Denied     uint64 // uses of tools that were refused
	Slow       uint64 // sessions given up since they did not read
	Redials    uint64 // connections after the first; of a Supervisor
	Late       uint64 // answers to calls whose callers had stopped waiting
	FramesIn   uint64 // whole frames
	FramesOut  uint64
}

// counters outlive the Routers of a Supervisor.
type counters struct {
	coalesced, filtered, malformed, orphans, denied, slow, late, framesIn, framesOut atomic.Uint64
	depth, pending                                                                   atomic.Int64
}

// deep notes how many events wait for a session. Only the reader calls it.
func (c *counters) deep(n int) {
	if int64(n) > c.depth.Load() {
		c.depth.Store(int64(n))
	}
}

// stats returns a snapshot without Routes and Redials.
func (c *counters) stats() Stats {
	return Stats{
		Pending: int(c.pending.Load()), QueueDepth: int(c.depth.Load()), Coalesced: c.coalesced.Load(),
		Filtered: c.filtered.Load(), Malformed: c.malformed.Load(), Orphans: c.orphans.Load(), Denied: c.denied.Load(),
		Slow: c.slow.Load(), Late: c.late.Load(), FramesIn: c.framesIn.Load(), FramesOut: c.framesOut.Load(),
	}
}

// Stats is a snapshot. The Routers of a Supervisor share their counters.
func (r *Router) Stats() Stats {
	stats := r.counters.stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	stats.Routes = len(r.routes)
	return stats
}
