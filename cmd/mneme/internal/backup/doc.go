// Package backup saves everything that mneme keeps in a Redis, or in the embedded
// store, into one file, and restores it into either of them.
//
// # The file
//
// A backup is gzip over lines of JSON, so that zcat shows what is in it:
//
//	{"mneme_backup":1,"created":"2026-01-31T12:00:00Z"}
//	{"key":"chat_history:12345","type":"string","value":"[…]"}
//	{"key":"{chat_history:12345}:meta","type":"hash","rows":[["count","2"],…]}
//	…
//	{"end":true,"records":2,"sha256":"…"}
//
// The first line names the format's version. A record holds one key, or a part of
// one: the first record of a key replaces what was stored under it before, one with
// "more" adds to that. Type none says that the key is not there. A row is a hash's
// field and value, a set's member, a sorted set's score and member, or a stream
// entry's id, fields and values. "expires" is when the key ends, in Unix ms. Text
// that is no UTF-8 is {"base64":"…"}. The last line has the number of records and
// the SHA-256 of all lines before it. Commands of Redis that carry its own format
// (DUMP) are not used: it depends on the version of the server.
//
// # What is consistent
//
// Services may run while a backup is made. A history and its meta are read in one
// transaction, so is a document with its head. The log of a run is read after the
// histories that it describes, since the process that finishes an open run folds that log
// once more, and a history may be behind the log but not ahead of it. Different chats may
// be of different moments.
//
// # What is left out
//
// What only means something to processes that run: leases, the list of open runs
// (a restore makes it from the metas), owners of Copilot sessions, and the random
// marks mneme:epoch and proxy:turns:born, of which a restored store gets new ones.
// What lies in files is not in a backup either: session logs, and appends in a
// spool that wait for Redis.
package backup
