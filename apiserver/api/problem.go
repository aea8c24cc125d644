package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"mneme/access/jsonbound"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/secrets"
)

// Problem is the error body of every HTTP answer, {"error":{…}}, and the error
// that a client makes of it. Two Problems are the same error (errors.Is) if they
// have the same code.
type Problem struct {
	Status     int           `json:"-"` // HTTP status
	Code       string        `json:"code"`
	Message    string        `json:"message"` // one sentence that says what to do
	Retryable  bool          `json:"retryable"`
	RunID      string        `json:"run_id,omitempty"` // of the run that it is about, by which the logs know it
	Waits      []event.Wait  `json:"waits,omitempty"`  // that are open, where the run waits for somebody
	RetryAfter time.Duration `json:"-"`                // sent as Retry-After in whole seconds; 0 for none
}

// Problems about a run's events; test with errors.Is.
var (
	// ErrUnknownRun: no run has this id here, or it was forgotten long ago.
	ErrUnknownRun = &Problem{Status: http.StatusNotFound, Code: "unknown_run", Message: "There is no run with this id."}
	// ErrWaits: a run could not be stopped, since it waits for an answer; the events before are complete.
	ErrWaits = &Problem{Status: http.StatusConflict, Code: "run_waits", Message: "The run waits for an answer."}
	// ErrGone: the events asked for are no longer kept.
	ErrGone = &Problem{Status: http.StatusGone, Code: "events_gone",
		Message: "The events of this run are gone: read the chat's history instead."}
	// ErrPosition: the run never had an event with this number.
	ErrPosition = &Problem{Status: http.StatusBadRequest, Code: "bad_last_event_id",
		Message: "Last-Event-ID must be the number of an event of this run."}
)

// ErrInternal is all that a client learns of a failure inside.
var ErrInternal = ProblemOf(event.Fail(event.Internal, "", 0))

// ProblemOf is the answer to a request that fails by a failure.
func ProblemOf(e *event.Error) *Problem {
	return &Problem{Status: event.FailureOf(e.Code).Status, Code: e.Code, Message: e.Message, Retryable: e.Retryable,
		RetryAfter: time.Duration(e.RetryAfter) * time.Second}
}

// Failure is the problem as the failure of a run.
func (p *Problem) Failure() event.Error {
	return event.Error{Code: p.Code, Message: p.Message, Retryable: p.Retryable,
		RetryAfter: int64(math.Ceil(p.RetryAfter.Seconds()))}
}

// NoMethod refuses a method that a route does not take; answer is the header that says
// which it takes.
func NoMethod(r *http.Request, answer http.Header) *Problem {
	return &Problem{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Message: fmt.Sprintf("%s does not take %s, only %s.", r.URL.Path, r.Method, answer.Get("Allow")),
	}
}

// RunConflict is the code of the refusal of a run with an id that another request's has.
const RunConflict = "run_conflict"

// Draining is the code of the refusal of a run by an apiserver that is being stopped.
const Draining = "draining"

// ErrBodyTimeout says that the body came too slowly.
var ErrBodyTimeout = &Problem{
	Status: http.StatusRequestTimeout, Code: "body_timeout", Retryable: true,
	Message: "The body did not come in time; send the request again.",
}

// Error is the sentence with its code.
func (p *Problem) Error() string { return fmt.Sprintf("%s (%s)", p.Message, p.Code) }

// Is compares codes.
func (p *Problem) Is(target error) bool {
	q, ok := target.(*Problem)
	return ok && p.Code == q.Code
}

// BadRequest is the Problem of an input that err says is wrong.
func BadRequest(err error) *Problem {
	text := strings.Replace(err.Error(), memory.ErrBadName.Error()+": ", "", 1) // says nothing to a user
	return badRequest(strings.ToUpper(text[:1]) + text[1:] + ".")
}

func badRequest(message string) *Problem {
	return &Problem{Status: http.StatusBadRequest, Code: "bad_request", Message: message}
}

func tooLarge(message string) *Problem {
	return &Problem{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: message}
}

type problemBody struct {
	Error *Problem `json:"error"`
}

// longWait is a wait that no client library should sit out.
const longWait = time.Minute

// SetHeader says in an answer's header when trying again may help. It keeps the vendors' client libraries, which come
// again sooner all the same, from trying again before that.
func (p *Problem) SetHeader(h http.Header) {
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	if p.RetryAfter > longWait {
		h.Set("X-Should-Retry", "false")
	}
}

// WriteProblem answers with p. What p repeats of the request may be a key, in an address for example.
func WriteProblem(w http.ResponseWriter, p *Problem) {
	p.SetHeader(w.Header())
	shown := *p
	shown.Message, shown.RunID = secrets.Keyless(p.Message), secrets.Keyless(p.RunID)
	WriteJSON(w, p.Status, problemBody{&shown})
}

// WriteJSON answers with v, without HTML escaping. v must be encodable.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client is gone; the error cannot be told
}

// maxProblem bounds what is read of an error answer, in bytes.
const maxProblem = 64 << 10

// ReadProblem makes an error of a refusing answer. A body that is no Problem,
// such as a load balancer's page, becomes one from the status alone. It leaves
// closing the body to the caller.
func ReadProblem(resp *http.Response) *Problem {
	var body problemBody
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // what arrived decides
	if json.Unmarshal(raw, &body) != nil || body.Error == nil || body.Error.Code == "" {
		body.Error = &Problem{
			Code:      "http_" + strconv.Itoa(resp.StatusCode),
			Message:   fmt.Sprintf("The server answered %s.", resp.Status),
			Retryable: resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests,
		}
	}
	body.Error.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		body.Error.RetryAfter = time.Duration(seconds) * time.Second
	}
	return body.Error
}

// DecodeBody reads a JSON body of at most limit bytes into v. What is wrong with
// it comes back as a *Problem: 413 over the limit, 415 for another media type, 408
// if it did not come in time, 400 with a sentence that names the field for the rest,
// also for a member that is there twice or in another spelling of upper and lower case. Unknown
// fields are let through, so that a newer caller can talk to an older server.
func DecodeBody(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	_, err := decodeBody(w, r, limit, jsonbound.Members, math.MaxInt, v)
	return err
}

// DecodeRun is DecodeBody for a run. The messages in it stand as they are stored, and
// another program may have written a member of one twice.
func DecodeRun(w http.ResponseWriter, r *http.Request, limit int64) (body RunRequest, err error) {
	_, err = decodeBody(w, r, limit, jsonbound.Run, 1, &body)
	return body, err
}

// BodyError is the Problem of a request with a body that could not be read to its end.
func BodyError(err error) *Problem {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(fmt.Sprintf("The body is larger than %d bytes.", over.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrBodyTimeout
	}
	return badRequest("The body ended before it was complete.")
}

// decodeBody reads a body of at most so many members, none of which is there twice down to a depth, into v.
func decodeBody(w http.ResponseWriter, r *http.Request, limit int64, members, depth int, v any) ([]byte, error) {
	raw, err := readBody(w, r, limit, members)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, explain(err)
	}
	return raw, checkMembers(raw, depth, v)
}

// ReadBody reads a JSON body of at most so many bytes and members. What is wrong with it comes back as a *Problem, before
// any decoder finds it costly.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, members int) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, BodyError(err)
	}
	if no := new(jsonbound.Refusal); errors.As(jsonbound.Check(raw, jsonbound.Depth, members), &no) {
		return nil, &Problem{Status: no.Status, Code: no.Code, Message: "The body " + no.Reason + "."}
	}
	return raw, nil
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64, members int) ([]byte, error) {
	if kind := r.Header.Get("Content-Type"); !takesAsJSON(kind) {
		return nil, &Problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
			Message: fmt.Sprintf("The body must be application/json, not %q.", kind)}
	}
	raw, err := ReadBody(w, r, limit, members)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, badRequest("The body is empty: send a JSON object.")
	}
	return raw, nil
}

// takesAsJSON lets pass JSON, what names no type, and what curl -d calls a form.
func takesAsJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json") ||
		kind == "application/x-www-form-urlencoded")
}

// explain says a decoding error in words for the author of the body.
func explain(err error) *Problem {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return badRequest(fmt.Sprintf("The body is not valid JSON: %v, at byte %d.", syntax, syntax.Offset))
	case errors.As(err, &kind) && kind.Field == "":
		return badRequest(fmt.Sprintf("The body must be a JSON object, not %s.", article(kind.Value)))
	case errors.As(err, &kind):
		return badRequest(fmt.Sprintf("%s must be %s, not %s, at byte %d.", kind.Field, jsonName(kind.Type.Kind()),
			article(kind.Value), kind.Offset))
	}
	return BadRequest(err)
}

// jsonName says in JSON's words what a Go type takes.
func jsonName(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number that fits its field"
}

func article(value string) string {
	switch {
	case value == "array" || value == "object":
		return "an " + value
	case value == "string":
		return "a string"
	case strings.HasPrefix(value, "number"): // followed by its digits
		return "a number"
	}
	return value
}
