// Package jsonrpc speaks JSON-RPC 2.0 with one peer over one connection, in the framing of the Language Server
// Protocol. Both sides may call.
//
// A Conn owns its connection, the table of calls, and two goroutines, the reader and the writer, both ended by its
// end. The reader never waits for another goroutine and never writes, so a slow part of this process can never fill
// the peer's buffers. It never goes on behind half a frame: then the connection ends.
package jsonrpc

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
