// Package wire is the gateway's knowledge of what goes over the network: the messages dialect (POST /v1/messages),
// server-sent events, the body of an error in either dialect, and edits of raw JSON. An answer is heard as an Event
// or a Chunk for each frame, read once for all who want to know of it.
//
// It owns nothing and has no goroutine. Where a request's endpoint and backend speak the same dialect it never
// decodes it: ReadOutline finds the few spans that matter and Splice replaces them, so that unknown fields, number
// formats and the order of keys reach the vendor as the client sent them.
package wire

// A request of the messages dialect is one object: model, max_tokens, system (a
// string or text blocks), messages (roles user, assistant and system; content a
// string or blocks), tools and sampling parameters. An answer is a message with a list of
// blocks as its content: text, thinking, redacted_thinking, tool_use. Streamed, it is
//
//	message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
//
// with ping anywhere and error instead of any of them. Blocks come one after
// another, never interleaved, and their index counts from 0.
//
// An answer is heard as an Event or a Chunk for each frame, read once for all who want to know of it. The other structs here
// serve translation only. If a request's endpoint and backend speak the same
// dialect, it is never decoded into them: ReadOutline finds the few spans that matter and Splice
// replaces them, so that unknown fields, number formats and the order of keys reach the vendor as
// the client sent them.

import (
	"net/http"
	"time"
)

// Dialect is a protocol for talking to a model over HTTP.
type Dialect string

// Their names appear in logs and metrics.
const (
	Messages Dialect = "messages" // POST /v1/messages
	Chat     Dialect = "chat"     // POST /v1/chat/completions
	// Responses is POST /v1/responses. What a backend of it is asked and answers is held as messages.
	Responses Dialect = "responses"
	// Interactions is Google's POST /v1beta/interactions, for which the same holds.
	Interactions Dialect = "interactions"
)

// Call is a request that is ready to be sent to a backend.
type Call struct {
	Dialect Dialect
	// Path is joined to the backend's base URL and may end in a query. A base URL
	// of the chat dialect ends in /v1, one of the messages dialect does not.
	Path    string
	Model   string      // the backend's name for the model, by which failures are told apart
	Tenant  string      // the caller's, by which failures are told apart, too
	Header  http.Header // as it is sent, except for the backend's credential, which is added to it
	Body    []byte      // buffered, so that it can be sent again
	Stream  bool        // the answer was asked for as server-sent events
	NoRetry bool        // it is not retried, since its caller does that
	Quick   bool        // it is retried once at most, since another backend can be asked
	Until   time.Time   // when it is over at the latest; zero for the backend's own limit
	Tries   *int        // grows by 1 whenever it is sent, by a backend that sends it more than once; nil for nothing
}
