package event

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Failure is a kind of failure as every surface tells it: the events of a run, the answers to requests in whatever
// dialect, a result of MCP, the page and the terminal. What a vendor says itself is not told: it may repeat what was
// asked, and no user of a chat can do anything with it. The gateway's log has it.
type Failure struct {
	Code      string
	Status    int    // of the answer to a request that fails by it
	Retryable bool   // the same may succeed later
	Message   string // a whole sentence
	Reason    string // what the gateway's header X-AG-Error says of it; empty for the code
	// Own is of a limit of mneme's own: the gateway says in words for its caller which, and what is left of it. Trying
	// again helps where it says when.
	Own bool
}

// Codes of failures that are made in more than one place. Histories and records keep the codes, so none of them
// changes its meaning.
const (
	Unavailable = "model_unavailable" // the gateway or the backend cannot be reached or failed
	VendorRate  = "rate_limited"
	VendorQuota = "quota_exhausted"
	Rejected    = "model_rejected"          // the request was refused as wrong
	KeyRefused  = "model_unauthorized"      // the vendor's key is missing or wrong
	Refused     = "model_refused"           // the model, or its vendor's filter, would not answer
	NoModel     = "model_unknown"           // the vendor has no such model
	TooLong     = "context_length_exceeded" // longer than the model's context window
	TooLarge    = "request_too_large"       // larger than the account may send per minute
	NoImages    = "image_not_supported"
	AnswerCut   = "answer_cut" // the answer ended before its end

	AnswerTooLong = "answer_too_long" // for an event

	OwnRate   = "rate_limit_exceeded" // of a key, a tenant or a user
	OwnBudget = "budget_exceeded"
	Internal  = "internal"
)

const retrySuffix = "; please try again."

var failures = []Failure{
	{Code: OwnRate, Status: http.StatusTooManyRequests, Own: true,
		Message: "A rate of the key, the tenant or the user is used up."},
	{Code: OwnBudget, Status: http.StatusTooManyRequests, Own: true,
		Message: "A budget of the key, the tenant or the user is spent."},
	{Code: "budgets_unavailable", Status: http.StatusServiceUnavailable, Own: true,
		Message: "The limits of the key, the tenant or the user cannot be checked."},
	{Code: "unpriced_model", Status: http.StatusBadRequest, Own: true,
		Message: "A budget in USD holds, and the model has no price."},
	{Code: VendorRate, Status: http.StatusTooManyRequests, Retryable: true,
		Message: "The model's vendor takes no more requests for the moment; try again a little later."},
	{Code: VendorQuota, Message: "The account at the model's vendor has no credit left."},
	{Code: Unavailable, Retryable: true, Reason: "vendor_failed",
		Message: "The model's vendor cannot be reached or failed; try again in a moment."},
	{Code: Rejected, Reason: "rejected",
		Message: "The model's vendor refused the request as wrong; the gateway's log says why."},
	{Code: KeyRefused, Reason: "key_refused", Message: "The model's vendor refused the key."},
	{Code: Refused, Reason: "content_refused",
		Message: "The model's vendor refused to answer this (content filter)."},
	{Code: NoModel, Message: "The model's vendor does not have the model; check model_map of the gateway's backend."},
	{Code: TooLong, Message: "The request is longer than the model can read."},
	{Code: TooLarge,
		Message: "The request is larger than the model's vendor allows this account per minute; send less at once."},
	{Code: NoImages, Status: http.StatusBadRequest, // it is the message that another model is needed for
		Message: "The model takes no images: send the text alone, or have a model answer that sees."},
	{Code: AnswerTooLong, Message: "The answer was longer than agents.max_answer allows. What fits was stored."},
	{Code: AnswerCut, Retryable: true, Message: "The model's answer was cut off before its end."},
	{Code: "model_failed", Retryable: true, Message: "The model did not answer."},
	{Code: "run_timeout", Retryable: true, Message: "The run took longer than is allowed."},
	{Code: RunLost, Retryable: true, Message: "The service that worked on this message was lost; please send it again."},
	{Code: Internal, Status: http.StatusInternalServerError, Message: "Something went wrong inside; the log says what."},

	{Code: "too_many_messages", Status: http.StatusTooManyRequests, Retryable: true,
		Message: "Too many messages of this chat wait for their turn; please wait for an answer first."},
	{Code: "too_many_chats", Status: http.StatusServiceUnavailable, Retryable: true,
		Message: "As many chats as allowed are busy, or searched and filled; please try again in a moment."},
	{Code: "chat_busy", Status: http.StatusConflict, Retryable: true,
		Message: "The chat is still busy with an earlier message" + retrySuffix},
	{Code: "chat_erased", Status: http.StatusConflict, Retryable: true, Message: "The chat, or a part of it, was erased " +
		"or taken back while this waited for its turn; send it again if it is still meant."},
	{Code: "turn_moved", Status: http.StatusConflict, Retryable: true,
		Message: "Another process has taken over this chat; please read its history and try again."},
	{Code: "history_full", Status: http.StatusInsufficientStorage,
		Message: "The chat's history is full; delete it, or a part of it, to go on."},
	{Code: "history_damaged", Status: http.StatusInternalServerError,
		Message: "What is stored here is not a history; the next message sets it aside and goes on."},
	{Code: "memory_unavailable", Status: http.StatusServiceUnavailable, Retryable: true,
		Message: "The memory cannot be reached right now" + retrySuffix},
	{Code: "memory_refused", Status: http.StatusServiceUnavailable,
		Message: "Redis refuses what the memory needs. An operator has to permit it."},
	{Code: "shutting_down", Status: http.StatusServiceUnavailable, Retryable: true,
		Message: "The service is shutting down" + retrySuffix},
	{Code: "client_left", Status: 499, Retryable: true, Message: "The client left before the answer."},
	{Code: "timeout", Status: http.StatusGatewayTimeout, Retryable: true, Message: "It took longer than is allowed."},
	{Code: "bad_request", Status: http.StatusBadRequest, Message: "The request is wrong."},
	{Code: "webmemory_unavailable", Message: "The answer broke off" + retrySuffix},
}

// FailureOf is the kind of failure that has a code, as this version knows it. Others are a run's that failed by itself.
func FailureOf(code string) Failure {
	f := Failure{Code: code, Message: "The run failed."}
	if i := slices.IndexFunc(failures, func(f Failure) bool { return f.Code == code }); i >= 0 {
		f = failures[i]
	}
	f.Status = cmp.Or(f.Status, http.StatusBadGateway)
	return f
}

// CodeOf is the code for what the gateway's header X-AG-Error says; empty where that is not known.
func CodeOf(reason string) string {
	i := slices.IndexFunc(failures, func(f Failure) bool { return cmp.Or(f.Reason, f.Code) == reason })
	if reason == "" || i < 0 {
		return ""
	}
	return failures[i].Code
}

// Fail is the error of a failure. What is said takes the place of its kind's sentence where it is not empty, and after
// is when trying again may help, 0 where that is not known.
func Fail(code, message string, retryAfter time.Duration) *Error {
	f := FailureOf(code)
	e := &Error{Code: code, Message: f.Message, Retryable: f.Retryable || f.Own && retryAfter > 0}
	if e.Retryable {
		e.RetryAfter = int64((retryAfter + time.Second - 1) / time.Second)
	}
	switch {
	case message != "":
		e.Message = strings.ToUpper(message[:1]) + strings.TrimRight(message[1:], ".") + "."
	case e.RetryAfter > 0:
		e.Message = strings.Replace(e.Message, "a little later", fmt.Sprintf("in %d s", e.RetryAfter), 1)
	}
	return e
}
