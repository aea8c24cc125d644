package api

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

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
	Pending    []event.Wait  `json:"waits,omitempty"`  // that are open, where the run waits for somebody
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
	redacted := *p
	redacted.Message, redacted.RunID = secrets.Keyless(p.Message), secrets.Keyless(p.RunID)
	WriteJSON(w, p.Status, problemBody{&redacted})
}

// Answer answers with v if err is nil, without a body if v is nil, and returns err. v must be encodable.
func Answer(w http.ResponseWriter, status int, v any, err error) error {
	switch {
	case err == nil && v == nil:
		w.WriteHeader(status)
	case err == nil:
		WriteJSON(w, status, v)
	}
	return err
}

// WriteJSON answers with v, without HTML escaping. v must be encodable.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client has disconnected, so the error cannot be reported
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
