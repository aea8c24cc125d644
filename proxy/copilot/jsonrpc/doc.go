// Package jsonrpc speaks JSON-RPC 2.0 with one peer over one connection, in the
// framing of the Language Server Protocol:
//
//	Content-Length: 58\r\n
//	\r\n
//	{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}
//
// Names of headers are case-insensitive, other headers are skipped, lines end in
// CRLF, and Content-Length stands exactly once, in plain digits. Both sides may
// call. Ids of the two directions have nothing to do with each other: ours are
// the numbers 1, 2, 3… and the peer's are given back as they came.
//
// # Goroutines
//
// A Conn has two goroutines, both ended by its end. The reader owns the reading
// side: it always reads, and neither waits for another goroutine nor writes, so a slow
// part of this process can never fill the peer's buffers. The writer owns the writing
// side: a frame goes out in one Write under a deadline. A Write that fails may have left
// half a frame behind, which nothing can mend: the connection ends.
//
// # Damage
//
// A frame with sound bounds and unsound content is counted and skipped, since the next
// one can still be found; a run of 16 of them ends the connection. Broken framing and
// frames above the bound end it at once, because the start of the next frame is unknown.
//
// An entry of the table of calls is retired once: by its answer, by the end of
// its context, or by the end of the connection. Answers that find no entry are
// late, duplicates or inventions. They are counted and never harm.
package jsonrpc
