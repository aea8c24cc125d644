package openaimodel

import (
	"cmp"
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
	CodeRejected    = "model_rejected"          // the request was refused as wrong
	CodeAuth        = "model_unauthorized"      // a key is missing or wrong
	CodeQuota       = "quota_exhausted"         // the account has no credit
	CodeRefused     = "model_refused"           // the model, or its vendor's filter, would not answer
	CodeUnknown     = "model_unknown"           // the vendor has no such model
	CodeTooLong     = "context_length_exceeded" // longer than the model's context window
	CodeTooLarge    = "request_too_large"       // larger than the account may send per minute
	CodeNoImages    = "image_not_supported"     // the model takes no images
	CodeAnswerCut   = "answer_cut"              // the answer ended before its end
)

// reasons are the codes by what the gateway's header X-AG-Error says.
var reasons = map[string]string{
	"context_length_exceeded": CodeTooLong, "request_too_large": CodeTooLarge, "key_refused": CodeAuth,
	"quota_exhausted": CodeQuota,
	"rate_limited":    CodeRateLimited, "content_refused": CodeRefused, "model_unknown": CodeUnknown,
	"vendor_failed": CodeUnavailable,
	"rejected":      CodeRejected, "image_not_supported": CodeNoImages,
}

// sentences are the messages by code. A vendor's own words are not among them: they
// may repeat what was asked, and nobody at a chat can do anything with them. The
// gateway's log has them.
var sentences = map[string]string{
	CodeUnavailable: "the model's vendor cannot be reached or failed; try again in a moment",
	CodeRateLimited: "the model's vendor takes no more requests for the moment; try again a little later",
	CodeRejected:    "the model's vendor refused the request as wrong; the gateway's log says why",
	CodeAuth:        "the model's vendor refused the key",
	CodeQuota:       "the account at the model's vendor has no credit left",
	CodeRefused:     "the model's vendor refused to answer this (content filter)",
	CodeUnknown:     "the model's vendor does not have the model; check model_map of the gateway's backend",
	CodeTooLong:     "the request is longer than the model can read",
	CodeTooLarge:    "the request is larger than the model's vendor allows this account per minute; send less at once",
	CodeNoImages:    "the model takes no images: send the text alone, or have a model answer that sees",
	CodeAnswerCut:   "the model's answer was cut off before its end",
}

// Error is a failed model call in words that can be shown to a user.
type Error struct {
	Status     int    // HTTP status; 0 when there was none
	Code       string // one of the codes
	Message    string
	RetryAfter time.Duration // as the backend asked; 0 if it did not
	Request    string        // the gateway's id of the call, by which its log has the vendor's words

	limit, sent int // what the vendor said of the length, in tokens; 0 if it did not
	cause       error
}

// Error is the message with what leads to its cause in the gateway's log.
func (e *Error) Error() string {
	if e.Request == "" {
		return e.Message
	}
	return fmt.Sprintf("%s (%s, status %d, request %s of the gateway)", e.Message, e.Code, e.Status, e.Request)
}

// TooLong says, if the request was refused for its length, what the vendor said
// about that, see loop.TooLong.
func (e *Error) TooLong() (limit, sent int, window, ok bool) {
	return e.limit, e.sent, e.Code == CodeTooLong, e.Code == CodeTooLong || e.Code == CodeTooLarge
}

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
	e := &Error{RetryAfter: call.retryAfter, Request: call.request, limit: call.limit, sent: call.sent}
	switch {
	case errors.As(err, &request):
		e.Status = request.HTTPStatusCode
		e.say(cmp.Or(reasons[call.reason], codeOf(e.Status)), call)
	case errors.As(err, &api):
		e.Status = api.HTTPStatusCode
		e.say(cmp.Or(reasons[call.reason], apiCode(api)), call)
	case call.answered && unreadable(err):
		e.Code, e.Message = CodeUnavailable, "the gateway's answer cannot be understood"
		e.cause = err
	case call.answered:
		e.Code, e.Message = CodeAnswerCut, "the model's answer was cut off: the connection to the gateway broke"
		e.cause = err
	case errors.Is(err, openai.ErrReasoningModelMaxTokensDeprecated), errors.Is(err, openai.ErrChatCompletionInvalidModel),
		errors.Is(err, openai.ErrReasoningEffortUnsupported), errors.Is(err, openai.ErrReasoningToolsRequireResponses),
		errors.Is(err, openai.ErrReasoningSamplingUnsupported), errors.Is(err, openai.ErrReasoningModelLimitationsOther):
		e.Code = CodeRejected
		e.Message = fmt.Sprintf("the OpenAI client refuses this model's name: use an alias and the gateway's model_map (%v)",
			err)
	default:
		e.Code, e.Message = CodeUnavailable, "the gateway cannot be reached"
		e.cause = err
	}
	return e
}

// say sets the code and the sentence for it.
func (e *Error) say(code string, call *exchange) {
	e.Code, e.Message = code, sentences[code]
	switch {
	case code == CodeRejected && call.reason == "":
		e.Message = "the gateway refused the request as wrong; its log says why"
	case code == CodeNoImages && call.backend != "":
		e.Message = fmt.Sprintf("the model %s of the backend %s takes no images: send the text alone, or have a model "+
			"answer that sees", call.model, call.backend)
	case code == CodeAuth && call.keyName != "":
		e.Message += fmt.Sprintf(" (check %s)", call.keyName)
	case code == CodeAuth:
		e.Message += " (check api_key_env of the gateway's backend)"
	case code == CodeRateLimited && e.RetryAfter > 0:
		e.Message = fmt.Sprintf("the model's vendor takes no more requests for the moment; try again in %d s",
			int(e.RetryAfter.Seconds()+0.5))
	}
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

// apiCode goes by the error's own code where that is known, and else by the
// status; an error inside a stream has none.
func apiCode(e *openai.APIError) string {
	switch code, _ := e.Code.(string); {
	case code == CodeTooLong:
		return CodeTooLong
	case e.HTTPStatusCode != 0:
		return codeOf(e.HTTPStatusCode)
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
