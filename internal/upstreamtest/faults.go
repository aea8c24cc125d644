package upstreamtest

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"mneme/proxy/wire"
)

// Pause holds up an answer before one of its events; it should return when ctx,
// which ends with the request, is done.
type Pause func(ctx context.Context, event int)

// Until is a Pause before the first event that lasts until released is closed.
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

// Fault fails a request before any rule is looked at.
type Fault struct {
	// Status of the answer; 200 for an event inside a stream, 0 for a connection
	// that is cut without any answer.
	Status int
	Header http.Header
	// Body as it is sent; empty is an error of that status in the dialect of the endpoint.
	Body string
	// ContentType; empty is application/json.
	ContentType string
	// Pause, if set, holds the fault up.
	Pause Pause
}

// RateLimited is a 429 with a Retry-After of so many seconds; less than 0 is none.
func RateLimited(seconds int) Fault {
	f := Fault{Status: http.StatusTooManyRequests}
	if seconds >= 0 {
		f.Header = http.Header{"Retry-After": {strconv.Itoa(seconds)}}
	}
	return f
}

// Overloaded is a 529.
func Overloaded() Fault { return Fault{Status: statusOverloaded} }

// Canned is any status with any body.
func Canned(status int, body string) Fault { return Fault{Status: status, Body: body} }

// Opaque is a 400 that says nothing of its cause.
func Opaque() Fault {
	return Canned(http.StatusBadRequest, `{"error":{"message":"invalid request body","code":"invalid_request_body"}}`)
}

// ErrorFirst is a stream of status 200 with an error of this text as its first event,
// named as an error of this status.
func ErrorFirst(d wire.Dialect, status int, message string) Fault {
	return Fault{Status: http.StatusOK, ContentType: eventStream, Body: string(errorFrame(d, status, message))}
}

// Dropped is a connection that is cut without any answer.
func Dropped() Fault { return Fault{} }

const (
	statusOverloaded = 529
	eventStream      = "text/event-stream"
)

// faultTexts are what a vendor says with a status.
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
	kind := f.ContentType
	if kind == "" {
		kind = "application/json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // a client that left gets nothing
}

// refusal is an answer that is an error.
type refusal struct {
	status  int
	message string
	code    string // of the chat dialect and of Responses; may be empty
	param   string // likewise
	body    string // if not empty, in place of the usual shape
	listed  bool   // in the shape that Gemini has: a list
	// inStream says that a stream is refused by events, with status 200.
	inStream bool
}

func (r refusal) Error() string { return r.message }

// errorTypes are what the messages dialect calls an error, by status.
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

// detailIn is what stands in an error of chat completions or of Responses.
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

// errorFrame is an error as the events that end a stream.
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

// frame is one server-sent event; tight leaves out the space behind "data:".
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
