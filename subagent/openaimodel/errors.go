package openaimodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// Codes of an Error.
const (
	CodeUnavailable = "model_unavailable" // the gateway or the backend cannot be reached or failed
	CodeRateLimited = "rate_limited"
	CodeRejected    = "model_rejected"     // the request was refused as wrong
	CodeAuth        = "model_unauthorized" // a key is missing or wrong
	CodeRefused     = "model_refused"      // the model would not answer
	CodeAnswerCut   = "answer_cut"         // the answer ended before its end
)

// Error is a failed model call in words that can be shown to a user.
type Error struct {
	Status     int    // HTTP status; 0 when there was none
	Code       string // one of the codes
	Message    string
	RetryAfter time.Duration // as the backend asked; 0 if it did not
	cause      error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the transport's error, if it was one.
func (e *Error) Unwrap() error { return e.cause }

// Retryable reports whether the same call may succeed later.
func (e *Error) Retryable() bool {
	return e.Code == CodeUnavailable || e.Code == CodeRateLimited || e.Code == CodeAnswerCut
}

// explain makes an *Error of what go-openai returned; the end of ctx stays as it
// is. A RequestError must be looked for first: it may wrap an APIError that is
// only half filled.
func explain(ctx context.Context, err error, call *exchange) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var request *openai.RequestError
	var api *openai.APIError
	e := &Error{RetryAfter: call.retryAfter, cause: err}
	switch {
	case errors.As(err, &request):
		e.Status = request.HTTPStatusCode
		e.Message = fmt.Sprintf("the gateway answered with status %d", e.Status)
		e.Code = codeOf(e.Status)
	case errors.As(err, &api):
		e.Status, e.Message = api.HTTPStatusCode, api.Message
		e.Code = codeOf(e.Status)
		if e.Status == 0 { // it came inside the stream, where only its own code tells
			e.Code = streamCode(api)
		}
	case call.answered && unreadable(err):
		e.Code, e.Message = CodeUnavailable, "the gateway's answer cannot be understood"
	case call.answered:
		e.Code, e.Message = CodeAnswerCut, "the model's answer was cut off: the connection to the gateway broke"
	case errors.Is(err, openai.ErrReasoningModelMaxTokensDeprecated), errors.Is(err, openai.ErrChatCompletionInvalidModel),
		errors.Is(err, openai.ErrReasoningEffortUnsupported), errors.Is(err, openai.ErrReasoningToolsRequireResponses),
		errors.Is(err, openai.ErrReasoningSamplingUnsupported), errors.Is(err, openai.ErrReasoningModelLimitationsOther):
		e.Code = CodeRejected
		e.Message = fmt.Sprintf("the OpenAI client refuses this model's name: use an alias and the gateway's model_map (%v)", err)
	default:
		e.Code, e.Message = CodeUnavailable, "the gateway cannot be reached"
	}
	return e
}

func isSyntax(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

func codeOf(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return CodeRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return CodeAuth
	case status >= 400 && status < 500:
		return CodeRejected
	}
	return CodeUnavailable
}

func streamCode(e *openai.APIError) string {
	switch code, _ := e.Code.(string); {
	case code == "answer_cut":
		return CodeAnswerCut
	case code == "rate_limit_exceeded", e.Type == "rate_limit_error":
		return CodeRateLimited
	case e.Type == "invalid_request_error":
		return CodeRejected
	}
	return CodeUnavailable
}

// retryAfter reads the header's form in seconds.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || seconds < 0 || seconds > 1e6 {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// Describe gives the error in the words of a run's error event.
func (e *Error) Describe() (code, message string, retryable bool) {
	message = e.Message
	if message == "" {
		message = "the model did not answer"
	}
	return e.Code, strings.ToUpper(message[:1]) + strings.TrimRight(message[1:], ".") + ".", e.Retryable()
}
