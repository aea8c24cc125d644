// The structs here serve translation only. A request whose endpoint and backend speak the same
// dialect is never decoded into them: ReadOutline finds the few spans that matter and Splice
// replaces them, so that unknown fields, number formats and the order of keys reach the vendor as
// the client sent them.
package wire

import "net/http"

// Dialect is a protocol for talking to a model over HTTP.
type Dialect string

// Their names appear in logs and metrics.
const (
	Messages Dialect = "messages" // POST /v1/messages
	Chat     Dialect = "chat"     // POST /v1/chat/completions
)

// Call is a request that is ready to be sent to a backend.
type Call struct {
	Dialect Dialect
	// Path is joined to the backend's base URL and may end in a query. A base URL
	// of the chat dialect ends in /v1, one of the messages dialect does not.
	Path   string
	Header http.Header // as it is sent, except for the backend's credential, which is added to it
	Body   []byte      // buffered, so that it can be sent again
	Stream bool        // the answer was asked for as server-sent events
}
