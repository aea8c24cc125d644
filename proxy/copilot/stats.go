package copilot

import (
	"sync/atomic"

	"mneme/proxy/copilot/jsonrpc"
)

// Stats are counters since the start, apart from Routes and RPC.Pending.
type Stats struct {
	Routes     int    // sessions now
	QueueDepth int    // most events that waited for one session
	Coalesced  uint64 // deltas that were joined to the one before
	Filtered   uint64 // events and notifications that are not read here
	Malformed  uint64 // events of a kind that is read and that could not be
	Orphans    uint64 // events and requests of sessions that are unknown here
	Denied     uint64 // uses of tools that were refused
	Slow       uint64 // sessions given up since they did not read
	Redials    uint64 // connections after the first; of a Supervisor
	RPC        jsonrpc.Stats
}

// Add sums counters; of QueueDepth it keeps the higher one.
func (s Stats) Add(o Stats) Stats {
	return Stats{
		Routes: s.Routes + o.Routes, QueueDepth: max(s.QueueDepth, o.QueueDepth), Coalesced: s.Coalesced + o.Coalesced,
		Filtered: s.Filtered + o.Filtered, Malformed: s.Malformed + o.Malformed, Orphans: s.Orphans + o.Orphans,
		Denied: s.Denied + o.Denied, Slow: s.Slow + o.Slow, Redials: s.Redials + o.Redials, RPC: s.RPC.Add(o.RPC),
	}
}

type counters struct {
	coalesced, filtered, malformed, orphans, denied, slow atomic.Uint64
	depth                                                 atomic.Int64
}

// deep notes how many events wait for a session. Only the reader calls it.
func (c *counters) deep(n int) {
	if int64(n) > c.depth.Load() {
		c.depth.Store(int64(n))
	}
}

// Stats is a snapshot.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	routes := len(r.routes)
	r.mu.Unlock()
	return Stats{
		Routes: routes, QueueDepth: int(r.counters.depth.Load()), Coalesced: r.counters.coalesced.Load(),
		Filtered: r.counters.filtered.Load(), Malformed: r.counters.malformed.Load(), Orphans: r.counters.orphans.Load(),
		Denied: r.counters.denied.Load(), Slow: r.counters.slow.Load(), RPC: r.conn.Stats(),
	}
}
