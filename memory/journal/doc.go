// Package journal keeps an append-only file of checksummed records in a directory that one process owns.
//
// It owns that directory while the journal is open, by a lock, and no goroutine: its caller says when to sync and to
// compact. A killed process never loses what Append has answered. Damage is never passed over: the beginning of one
// record at the end of the file is dropped and told, anything else is refused, and a person decides by Salvage.
package journal

// # Layout
//
// The directory holds the file "journal", the file "lock" (flocked while the journal is open; it names the owner's
// process id unless the disk was full), during a rewrite "journal.new", and after a salvage "journal.damaged-<time>".
// The journal starts with eight magic bytes. Each record is
//
//	length      uint32, little endian, at least 1
//	payload sum uint32, little endian, CRC32C of the payload
//	header sum  uint32, little endian, CRC32C of the eight bytes before it
//	payload     length bytes
//
// The header has a sum of its own so that a length can be trusted before the payload is there: it separates a record
// that was cut short from one that was altered.
//
// # What survives what
//
// Append hands the record to the operating system before it returns: a killed process loses nothing. What Sync has not
// yet confirmed may be lost with the power. A file that is no longer in the directory counts for nothing: Append fails.
//
// A failed write or sync fails the journal until Resume finds that the disk works again.
//
// # Torn tail or corruption
//
// A killed process leaves at most the beginning of one record at the end of the file. Open drops such a tail and says
// how many bytes it had. The rule, at the first record that does not check out:
//
//   - fewer bytes than a header are left, or the header is sound and its payload runs past the end: a torn tail;
//   - otherwise a whole record that checks out is searched for after it. There is one: the damage is in the middle,
//     records behind it would be lost, and Open refuses with a CorruptError. There is none: a torn tail.
//
// Two cases cannot be told apart from inside the file. Damage to the very last record looks like a tail that power loss
// left half written: it is dropped, and Open says that it is no beginning of a record. Power loss may also write later
// blocks and not earlier ones; that looks like damage in the middle, and is refused: a person decides. Salvage keeps
// every sound record on both sides of such damage.
//
// A journal has its magic bytes from its first moment: a shorter file was emptied by something else, and is refused.
