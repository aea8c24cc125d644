package jsonrpc

import "sync/atomic"

// Stats are counters since the start of a Conn, apart from Pending.
type Stats struct {
	Pending   int    // calls that wait for an answer now
	FramesIn  uint64 // whole frames
	FramesOut uint64
	Skipped   uint64 // frames with sound bounds and an unsound content
	Late      uint64 // answers to calls that were given up
	Unknown   uint64 // answers to no call of ours, or to one that had its answer
	Anonymous uint64 // answers with the id null: the peer could not read a message of ours
	Refused   uint64 // calls by the peer that are unknown here
	Dropped   uint64 // replies and posts that found no room in the queue of the writer
}

// Add sums counters; Pending is summed, too.
func (s Stats) Add(o Stats) Stats {
	return Stats{
		Pending: s.Pending + o.Pending, FramesIn: s.FramesIn + o.FramesIn, FramesOut: s.FramesOut + o.FramesOut,
		Skipped: s.Skipped + o.Skipped, Late: s.Late + o.Late, Unknown: s.Unknown + o.Unknown,
		Anonymous: s.Anonymous + o.Anonymous, Refused: s.Refused + o.Refused, Dropped: s.Dropped + o.Dropped,
	}
}

type counters struct {
	framesIn, framesOut, skipped, late, unknown, anonymous, refused, dropped atomic.Uint64
}

// Stats is a snapshot.
func (c *Conn) Stats() Stats {
	return Stats{
		Pending: c.table.size(), FramesIn: c.counters.framesIn.Load(), FramesOut: c.counters.framesOut.Load(),
		Skipped: c.counters.skipped.Load(), Late: c.counters.late.Load(), Unknown: c.counters.unknown.Load(),
		Anonymous: c.counters.anonymous.Load(), Refused: c.counters.refused.Load(), Dropped: c.counters.dropped.Load(),
	}
}
