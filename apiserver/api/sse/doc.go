// Package sse writes and reads server-sent events (text/event-stream, as the HTML standard defines them). The
// services and their clients have no other writer and no other reader; the gateway alone keeps one of its own, which
// passes vendors' streams on byte for byte.
//
// It owns nothing but the connection that it is given; a Writer writes from the goroutine of the request's handler. A
// Reader never gives what is left of a frame at the end of a body as if it were a whole one.
package sse

// # What of r3labs/sse serves
//
// Reader stands on its EventStreamReader, which cuts a body into frames. It hands out what
// is left at the end of a body as if it were a whole frame; such a rest is recognised by
// the end of the body and not given. Its Client is not used: it is GET-only, gives up at
// 64 KiB per event and then asks again for the same one forever, and does not end with its
// context while it waits to retry.
//
// Its Server is not used either. It hands every event through three goroutines and two
// queues to a subscriber, which is worth it for many subscribers of one stream; here each
// reader follows a log at its own pace, and all that stands between the log and the
// connection would be overhead, of which the library leaves the hard half undone: it
// ignores write errors, sets no deadlines, blocks in the slowest subscriber, loses what
// is queued when a stream is removed, and writes an id into every frame with data.
// Writer writes from the goroutine of the request's handler.
