// Package chat answers chat completions with sessions of the Copilot CLI: a conversation of the gateway is a session
// there. A session serves a request only if that goes on from exactly what the session has seen; any other request
// gets a fresh session, to which the earlier turns are told as a record: a replay.
//
// It owns which session a conversation has, in memory and, for replicas, in proxy:copilot:… of Redis, the turns that
// wait for results of tools, and the goroutines that end what is over. It never lets two requests share a session at
// one time, and never gives an answer of another conversation.
package chat

// A request of chat completions holds the whole conversation, the CLI takes one
// prompt after the other. So a session serves a request only if that goes on from
// exactly what the session has seen: the same model, system prompt and tools, the
// same messages, the session's own answer, and new input behind them. Any other
// request gets a fresh session, to which the earlier turns are told as a record in
// the system prompt: a replay. It loses nothing but what the CLI had in its own
// mind, and it is what edits, restarts, other replicas and expired sessions have in
// common.
//
// A turn in which the model calls tools is parked: the answer ends with the calls,
// and the results in the next request let the same turn go on. The calls get ids
// of this package, so that they are long, random and unique.
//
//	fresh ──▶ busy ──answer──▶ idle ──10 min──▶ dormant ──TTL──▶ deleted
//	           │ ▲               │                 │
//	           │ └── new input ──┴──── resumed ────┘
//	           ▼
//	         parked ── results ──▶ busy
//	           └── 10 min, or 256 newer ones ──▶ deleted
