// Package embedded is the Redis-compatible store inside the process: miniredis as the engine, behind a RESP server
// and a journal of our own. It is for one process and for data that fits in memory; a real Redis takes its place by
// redis.url.
//
// It owns the data in memory, the journal in its folder, and the goroutines of its connections, of the listener and
// of one that tends the journal. Commands run one at a time. It never answers a write before the journal has it, and
// never lets what comes by the TCP listener write.
package embedded

// # Two ways in
//
// The program's own client connects by Server.Dial, over pipes in memory, and may write. The TCP listener is for
// looking (redis-cli and the like): it answers an allow-list of read commands and refuses the rest with a sentence.
// Which commands exist at all is written in commands.go; each command on that list survives a restart, which is why
// consumer groups, HyperLogLog, field expiry, random pops and blocking commands are not on it.
//
// # Persistence
//
// Commands run one at a time, reads included. What a command changed is appended to a memory/journal, in execution
// order, before its reply leaves: one record for one command, one script or one MULTI. For a script the record holds
// the write commands that it called, not its text, so that a replay needs no script and cannot come out differently.
// kill -9 loses nothing that was answered. The journal is synced every second: power loss costs at most about that.
//
// Every record carries the time at which it ran, and a replay gives every expiry its absolute time: a lease that ended
// while the process was down is gone when it is back.
//
// When a write to the journal fails, the command gets an error, as does every further write and PING. The state in
// memory, which has the change, is thrown away and rebuilt from the journal; so reads go on and show exactly what was
// acknowledged. Should the rebuild fail too, every command is refused. Each second the store tries whether the journal
// works again, by writing some bytes and cutting them off; after a failed sync, which may have left anything on the
// disk, by writing all of it anew. Then writes are let in.
//
// A journal file that is missing from its folder, since the folder was removed, moved or replaced, would take writes
// that are gone with the process. So each write looks for the file before it is acknowledged, and a check does each
// second. The store goes on when the very file is back, and never makes another: the lock went with the folder, and
// another process may use what is in its place.
//
// The journal is compacted when it is larger than 1 MiB and four times the live data, while it is being opened or after
// a write; after a second without a write already when it holds a quarter more than the live data; and by Compact, for
// an erasure that must leave no text in a file. Erasures that meet share a compaction. Commands wait for it: about
// a second for 100 MB of live data.
//
// # Scripts
//
// Scripts run in one Lua state of our own (gopher-lua), as in Redis, and call the engine's commands. miniredis makes a
// state for every run of a script, which costs more than the script.
//
// # Time
//
// Time stands still during a command. miniredis walks all keys when its clock of expiries moves, so that clock stands
// still for good, and expiry.go keeps the keys that are due next.
