package upstreamtest

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"mneme/proxy/wire"
)

// Pause delays an answer before one of its events. It should return when ctx, the request's context, is done.
type Pause func(ctx context.Context, event int)

// Until returns a Pause before the first event that lasts until released is closed.
func Until(released <-chan struct{}) Pause {
	return func(ctx context.Context, event int) {
		if event > 0 {
			return
		}
		select {
		case <-released:
		case <-ctx.Done():
		}
	}
}

// Fault fails a request before any rule is applied.
type Fault struct {
	// Status is the status of the answer. 200 is an event inside a stream, 0 cuts the connection without an answer.
	Status int
	Header http.Header
	// Body is sent unchanged. Empty is an error of that status in the endpoint's dialect.
	Body string
	// ContentType is application/json if it is empty.
	ContentType string
	// Pause, if set, delays the fault.
	Pause Pause
}

// RateLimited returns a 429 with a Retry-After of this many seconds. A negative number omits the header.
func RateLimited(seconds int) Fault {
	f := Fault{Status: http.StatusTooManyRequests}
	if seconds >= 0 {
		f.Header = http.Header{"Retry-After": {strconv.Itoa(seconds)}}
	}
	return f
}

// Overloaded returns a 529.
func Overloaded() Fault { return Fault{Status: statusOverloaded} }

// Canned returns a fault with this status and body.
func Canned(status int, body string) Fault { return Fault{Status: status, Body: body} }

// Opaque returns a 400 that does not name its cause.
func Opaque() Fault {
	return Canned(http.StatusBadRequest, `{"error":{"message":"invalid request body","code":"invalid_request_body"}}`)
}

// ErrorFirst returns a stream of status 200 whose first event is an error of this status and text.
func ErrorFirst(d wire.Dialect, status int, message string) Fault {
	return Fault{Status: http.StatusOK, ContentType: eventStream, Body: string(errorFrame(d, status, message))}
}

// Dropped returns a connection that is cut without an answer.
func Dropped() Fault { return Fault{} }

const (
	statusOverloaded = 529
	eventStream      = "text/event-stream"
)

// faultTexts are the messages of faults by status.
var faultTexts = map[int]string{
	http.StatusTooManyRequests:     "This request would exceed your account's rate limit. Please try again later.",
	http.StatusInternalServerError: "Internal server error",
	statusOverloaded:               "Overloaded",
}

func faultText(status int) string { return cmp.Or(faultTexts[status], http.StatusText(status)) }

// write answers with f.
func (f Fault) write(w http.ResponseWriter, r *http.Request, d wire.Dialect) {
	if f.Pause != nil {
		f.Pause(r.Context(), 0)
	}
	if f.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	body := []byte(f.Body)
	if len(body) == 0 {
		body = refusal{status: f.Status, message: faultText(f.Status)}.bodyIn(d)
	}
	for name, values := range f.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.Header().Set("Content-Type", cmp.Or(f.ContentType, "application/json"))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // fails only if the client has disconnected
}

// refusal is an error as the vendor answers it.
type refusal struct {
	status  int
	message string
	code    string // of chat completions and Responses; may be empty
	param   string // of chat completions and Responses; may be empty
	body    string // if not empty, replaces the default body
	listed  bool   // in Gemini's shape, a list
	// inStream refuses a stream with events and status 200.
	inStream bool
}

func (r refusal) Error() string { return r.message }

// errorTypes are the error types of the messages dialect by status.
var errorTypes = map[int]string{
	401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
	429: "rate_limit_error", 500: "api_error", 504: "timeout_error", 529: "overloaded_error",
}

func errorType(status int) string {
	if t, ok := errorTypes[status]; ok {
		return t
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

func (r refusal) bodyIn(d wire.Dialect) []byte {
	switch {
	case r.body != "":
		return []byte(r.body)
	case r.listed:
		return array([]object{obj("error", obj("code", r.status, "message", r.message, "status", "INVALID_ARGUMENT"))})
	case d == wire.Messages:
		return obj("type", "error", "error", obj("type", errorType(r.status), "message", r.message),
			"request_id", "req_01"+randomText(22))
	case d == wire.Interactions:
		return googleError(r.status, r.code, r.message)
	}
	return obj("error", r.detailIn(d))
}

// detailIn returns the error object of chat completions or Responses.
func (r refusal) detailIn(d wire.Dialect) object {
	kind := errorType(r.status)
	switch {
	case d == wire.Responses && r.status == http.StatusNotFound:
		kind = errorType(http.StatusBadRequest)
	case d == wire.Responses && r.status >= http.StatusInternalServerError:
		kind = serverError
	}
	return obj("message", r.message, "type", kind, "param", orNull(r.param), "code", orNull(r.code))
}

// errorFrame returns the events of an error that ends a stream.
func errorFrame(d wire.Dialect, status int, message string) []byte {
	r := refusal{status: status, message: message}
	switch d {
	case wire.Messages:
		return frame("error", r.bodyIn(d), false)
	case wire.Responses:
		v := rendering{exchange: &exchange{config: &Config{}, Request: &Request{}, responseID: itemID("resp")}}
		return v.failed(0, r)
	case wire.Interactions:
		return googleFailure(status, "", message)
	}
	return frame("", r.bodyIn(d), false)
}

// frame returns one server-sent event. If tight is set, no space follows "data:".
func frame(name string, data []byte, tight bool) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(b, "data:"...)
	if !tight {
		b = append(b, ' ')
	}
	return append(append(b, data...), "\n\n"...)
}
