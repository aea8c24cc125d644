// Package api is the contract between webmemory and the apiserver: the requests,
// the errors, a run's event log, and its transport as server-sent events. Both
// ends serve events with it, so that a resumed stream means the same everywhere.
//
// # On the wire
//
//	POST   /v1/runs               RunRequest → 202 RunAccepted; the same run_id again → the same run
//	GET    /v1/runs/{id}/events   the run's events from the start, or after Last-Event-ID
//	POST   /v1/runs/{id}/stop     → 204, whether the run still went or not
//	DELETE /v1/runs/{id}          the caller has all events: → 204, they are dropped
//	DELETE /v1/chats/{chat}       → 204 once the chat's runs have ended and their events are dropped
//	GET    /v1/subagents          → {"subagents":[SubagentInfo …]}
//
// Every refusal is a Problem: {"error":{"code","message","retryable"}}.
//
// A frame of an event stream is
//
//	id: 7
//	data: {"role":"assistant_delta","run_id":"…","seq":7,…}
//	event: assistant_delta
//
// and the frame of run_finished is the last. A stream that cannot go on although
// the run is not over ends with an error frame that has no id, so that it does not
// move the client's Last-Event-ID. A comment comes every 15 s. Asked for events
// after the last one of a run that is over, the answer is 204; for events that
// were dropped, 410 events_gone; for a position that never was, 400.
//
// # r3labs/sse as the wire layer
//
// The log and the ids are ours (Log). On the server each subscriber gets an
// r3labs server of its own with one stream, fed by one goroutine that reads the
// log; what r3labs does not do is done around it:
//   - Its stream blocks in the slowest subscriber: there is only one per stream,
//     and it is fed no faster than frames are flushed to it.
//   - It ignores write errors and sets no deadlines: the ResponseWriter that it
//     is given does both, and ends the subscription on the first failed write.
//   - RemoveStream drops what is queued and strands the goroutine that waits for
//     the request to end: the end of a stream is an event with neither data nor
//     comment, which it obeys in order, and RemoveStream comes after OnUnsubscribe.
//   - Events published before the first subscriber vanish: feeding starts at
//     OnSubscribe.
//   - AutoReplay renumbers events and repeats the last one: it is off.
//   - It writes an id line in every frame with data: the closing error frame
//     travels behind a comment instead.
//
// Its Client is not used: it is GET-only, gives up at 64 KiB per event and then
// asks again for the same one forever, and does not end with its context while it
// waits to retry. Client sends its own request and uses EventStreamReader, which
// hands out what is left at the end of a stream as if it were a whole event; such
// a rest is recognised and thrown away.
package api
