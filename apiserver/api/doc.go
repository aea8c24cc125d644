// Package api is the contract between webmemory and the apiserver: the requests, the errors, a run's event log, and
// its transport as server-sent events. Both ends serve events with it, so that a resumed stream means the same
// everywhere.
//
// It owns a Log's lines in memory. A Log never waits for a reader, and a Client never gives an event twice or leaves
// one out: a stream that breaks off goes on behind the last number. Package sse writes and reads the frames.
package api

// # On the wire
//
//	POST   /v1/runs               RunRequest → 202 RunAccepted; the same run_id again → the same run;
//	                              with resume, a run that waits goes on, be it one of another process
//	GET    /v1/runs/{id}/events   the run's events from the start, or after Last-Event-ID
//	POST   /v1/runs/{id}/stop     → 204, whether the run still went or not
//	DELETE /v1/runs/{id}          the caller has all events: → 204, they are dropped
//	DELETE /v1/chats/{chat}       → 200 ChatErased, once the chat's runs have ended, their events are dropped and its
//	                              documents are deleted
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
// and the frame of run_finished, or of run_waiting where the run waits, is the last. A stream that cannot go on although
// the run is not over ends with an error frame that has no id, so that it does not
// move the client's Last-Event-ID. A comment comes every 15 s. Asked for events
// after the last one of a run that is over, the answer is 204; for events that
// were dropped, 410 events_gone; for a position that never was, 400.
//
// Package sse writes and reads the frames; the log and the ids are ours (Log).
