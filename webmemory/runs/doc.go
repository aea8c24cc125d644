// Package runs holds the runs of this process and drives each of them to its end or to a wait.
//
// It owns the registry of runs, the queue of posts per chat, leases and their renewal (Keeper), the Writer, which is the
// only way to change a chat's histories under its lease, and the streams of events to readers. A reader never sees an
// event that is not stored. Package turns decides which run may begin.
package runs
