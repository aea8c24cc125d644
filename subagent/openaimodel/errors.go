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

	"mneme/memory/event"
)

// Error is a failed model call in words that can be shown to a user.
type Error struct {
	Status     int    // HTTP status; 0 when there was none
	Code       string // of an event.Failure
	Message    string
	RetryAfter time.Duration // as the backend asked; 0 if it did not
	Request    string        // the gateway's id of the call, by which its log has the vendor's words

	broken              bool // the answer had begun
	limit, promptTokens int  // what the vendor said of the length, in tokens; 0 if it did not
	cause               error
}

// Error is the message with what leads to its cause in the gateway's log.
func (e *Error) Error() string {
	text := e.Describe().Message
	text = strings.ToLower(text[:1]) + strings.TrimSuffix(text[1:], ".")
	if e.Request == "" {
		return text
	}
	return fmt.Sprintf("%s (%s, status %d, request %s of the gateway)", text, e.Code, e.Status, e.Request)
}

// TooLong says, if the request was refused for its length, what the vendor said
// about that, see loop.TooLong.
func (e *Error) TooLong() (limit, promptTokens int, window, ok bool) {
	return e.limit, e.promptTokens, e.Code == event.TooLong, e.Code == event.TooLong || e.Code == event.TooLarge
}

// Broken says that the answer broke off after it had begun, see loop.Broken.
func (e *Error) Broken() bool { return e.broken }

// Unwrap gives the transport's error, if it was one.
func (e *Error) Unwrap() error { return e.cause }

// Retryable reports whether the same call may succeed later.
func (e *Error) Retryable() bool {
	return e.Describe().Retryable
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
	e := &Error{RetryAfter: call.retryAfter, Request: call.request, limit: call.limit, promptTokens: call.promptTokens}
	switch {
	case errors.As(err, &request):
		e.Status = request.HTTPStatusCode
		e.say(cmp.Or(event.CodeOf(call.reason), codeOf(e.Status)), "", call)
	case errors.As(err, &api):
		e.Status = api.HTTPStatusCode
		e.say(cmp.Or(event.CodeOf(call.reason), apiCode(api)), api.Message, call)
	case call.answered && unreadable(err):
		e.Code, e.Message = event.Unavailable, "the gateway's answer cannot be understood"
		e.cause = err
	case call.answered:
		e.Code, e.Message = event.AnswerCut, "the model's answer was cut off: the connection to the gateway broke"
		e.cause = err
	case errors.Is(err, openai.ErrReasoningModelMaxTokensDeprecated), errors.Is(err, openai.ErrChatCompletionInvalidModel),
		errors.Is(err, openai.ErrReasoningEffortUnsupported), errors.Is(err, openai.ErrReasoningToolsRequireResponses),
		errors.Is(err, openai.ErrReasoningSamplingUnsupported), errors.Is(err, openai.ErrReasoningModelLimitationsOther):
		e.Code = event.Rejected
		e.Message = fmt.Sprintf("the OpenAI client refuses this model's name: use an alias and the gateway's model_map (%v)",
			err)
	default:
		e.Code, e.Message = event.Unavailable, "the gateway cannot be reached"
		e.cause = err
	}
	e.broken = call.answered && e.Status == 0 && e.Retryable()
	return e
}

// say sets the code and the sentence for it. The words are those of the body, which are a vendor's but for limits of
// our own.
func (e *Error) say(code, words string, call *exchange) {
	e.Code, e.Message = code, event.Fail(code, "", e.RetryAfter).Message
	switch {
	case event.FailureOf(code).Own:
		e.Message = cmp.Or(words, e.Message)
	case code == event.Rejected && call.reason == "":
		e.Message = "the gateway refused the request as wrong; its log says why"
	case code == event.NoImages && call.backend != "":
		e.Message = fmt.Sprintf("the model %s of the backend %s takes no images: send the text alone, or have a model "+
			"answer that sees", call.model, call.backend)
	case code == event.KeyRefused:
		e.Message = fmt.Sprintf("%s (check %s)", strings.TrimSuffix(e.Message, "."),
			cmp.Or(call.keyName, "api_key_env of the gateway's backend"))
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
		return event.VendorRate
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return event.KeyRefused
	case status >= 400 && status < 500:
		return event.Rejected
	}
	return event.Unavailable
}

// apiCode goes by the error's own code where that is known, and else by the
// status; an error inside a stream has none.
func apiCode(e *openai.APIError) string {
	switch code, _ := e.Code.(string); {
	case code == event.TooLong:
		return event.TooLong
	case e.HTTPStatusCode != 0:
		return codeOf(e.HTTPStatusCode)
	case code == "answer_cut":
		return event.AnswerCut
	case code == "rate_limit_exceeded", e.Type == "rate_limit_error":
		return event.VendorRate
	case e.Type == "invalid_request_error":
		return event.Rejected
	}
	return event.Unavailable
}

// retryAfter reads the header's form in seconds.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || seconds < 0 || seconds > 1e6 {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// Describe gives the error as a run's error event has it.
func (e *Error) Describe() *event.Error { return event.Fail(e.Code, e.Message, e.RetryAfter) }
