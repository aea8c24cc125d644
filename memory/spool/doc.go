// Package spool keeps appends that Redis could not take, on disk, until they are drained into it. An append is in the
// spool for good when Add returns: it may be acknowledged then, and survives a killed process and a power loss.
//
// It owns folders of journals, one for each process that lived, under locks, and no goroutine: its caller drains. It
// never copies an append, never drops one that was not drained or erased, and never puts a late one between those of
// a newer turn.
package spool

// # Folders
//
//	<dir>/<host>-<pid>-<random>/        one process's appends, a memory/journal
//	<dir>/<host>-<pid>-<random>.gone/   one being deleted, never read
//	<dir>/<host>-<pid>-<random>.dead    empty: the process of this name was proven dead
//
// A process writes new appends only into a folder that it made itself and holds the lock of. A folder with a free
// lock belonged to a process that died: the next Open or Adopt takes the lock, and with it the appends, where they
// lie. Nothing is copied, so no crash leaves an append in no folder, and adoption needs no room on a full disk. Nor
// does Open: without room a process has its name and no folder, until Add or Check can make one. They also make one
// when theirs was removed. A folder that is not the one written to is deleted when its last append was drained: it is
// renamed first, under its lock, so that it is whole or gone. The first folder that a process makes gives it its name
// and stays as long as it lives.
//
// # Records
//
// A record of the journal is one line of JSON, and for an append the bytes of the message or the event behind it,
// unaltered:
//
//	{"v":1,"at":1760000000000000,"key":"subagent:analytic:12345","run":"…","seq":7,"turn":1760000000000}
//	{"role":"user",…}
//
//	{"v":1,"at":1760000000000000,"key":"chat_history:12345","event":true,"run":"…","seq":7,"turn":1760000000000}
//	{"role":"subagent_delegation",…}
//
//	{"v":1,"done":[1760000000000000]}
//
// at is the time of the append in Unix µs, made to grow strictly within a process; done names appends of the same
// folder that need no further try. v is 1; a folder with another version is left as it is.
//
// # Order
//
// The appends of a queue are ordered by turn and then by at, across folders. So what a paused process adds late for a
// turn that is over stands with its own turn, not between the messages of a newer one. A process that drains a chat
// drains the events of its runs before its histories.
