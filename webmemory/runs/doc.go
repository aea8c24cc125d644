// Package runs holds the runs of this process and drives each run until it ends or waits.
//
// It owns the registry of runs, the queue of posts per chat, the leases and their renewal (Keeper), and the event
// streams to readers. Only the Writer changes a chat's histories under its lease. Readers see only stored events.
// Package turns decides which run may begin.
package runs
