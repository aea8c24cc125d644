// Package limit bounds what keys, tenants and users may use of models, over all processes that share a Redis, and
// counts what all calls took. Rates say how much at a time: the generic cell rate algorithm (GCRA), with the whole of
// a limit as its burst. Budgets say how much in a day, a month or for ever, in tokens and in money. Reserve admits a
// call in one round trip if all of its limits have room for what it may take at most; Commit puts what it took in the
// place of that.
//
// It owns mneme:limits:{<tenant>}:… in Redis, writes the counters that package tally reads, and has the goroutines of
// a Limiter, which write what waits for Redis and answer calls that wait for one round trip. A call that is refused
// never consumes anything, and nothing is ever charged twice: both are idempotent by the call's id.
package limit

// # What cannot happen
//
//   - Calls that come at once cannot pass together what they could not pass one after the other: the reservations
//     that live count as spent.
//   - A process that dies leaves nothing for ever: a reservation ends with its lease, and is then charged at its
//     estimate, and counted for its key, tenant and user, or released (Options.Unclosed). A commit that comes later
//     still puts it right, for a day.
//   - A reply that is lost counts nothing twice: Reserve and Commit are idempotent by the call's id.
//   - A clock that is wrong changes no limit: time is Redis's. It only says under which day a call is reported.
//
// # When Redis is away
//
// Options.OutagePolicy says whether calls are refused or go on. Those that go on are bounded by Options.AwayCalls in each
// process and outage, and are charged when Redis is back. What calls took waits for twelve hours, 14,096 calls of it;
// those that a process has to drop are charged by their leases, or, if they had none, not at all.
//
// # When Redis forgets
//
// A Redis that is restarted from an older file, that a replica replaces or that is emptied has lost calls that it
// had acknowledged. Each process keeps what it committed in the last five minutes, 10,000 calls. Each script is told the
// newest one that Redis took of its tenant's, and does nothing if Redis does not know it; a process without calls
// looks every second. Then all that are kept are written again, and calls wait for three seconds, in which other
// processes find the loss, too. A call that Redis has is not charged or counted again, since it remembers for longer
// that the call has ended. What is older is lost, as are the rates of what was called, what calls that run held, and
// what a process that has ended had committed.
