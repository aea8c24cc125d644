// Package problem turns errors of webmemory into problem responses and reads request parameters. It defines the errors
// that several packages share. It never reads a store.
package problem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"mneme/access"
	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/journal"
	"mneme/memory/spool"
	webapi "mneme/webmemory/api"
)

// Errors that FromError turns into problems.
var (
	ErrQueueFull    = errors.New("too many messages wait for this chat's turn")
	ErrQueueSlow    = errors.New("the chat's turn did not come in time")
	ErrTooManyChats = errors.New("too many chats have pending work")
	ErrErased       = errors.New("the chat was erased while this request waited for its turn")
	ErrAsleep       = errors.New("the cold store is unavailable")
	ErrShutdown     = errors.New("the service is shutting down")
)

// BadRequest returns a 400 response.
func BadRequest(format string, args ...any) *api.Problem {
	return &api.Problem{Status: http.StatusBadRequest, Code: webapi.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// FromError returns the response to an error. It is the only place that maps errors to responses.
func FromError(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	if no := new(access.Refusal); errors.As(err, &no) {
		return &api.Problem{Status: no.Status, Code: no.Code, Message: no.Message, Retryable: no.RetryAfter > 0,
			RetryAfter: no.RetryAfter}
	}
	var damaged *memory.DamagedError
	var refused *memory.RefusedError
	code, message := webapi.CodeInternal, ""
	if i := slices.IndexFunc(failures, func(f failure) bool { return errors.Is(err, f.err) }); i >= 0 {
		code = failures[i].code
	}
	switch {
	case code == webapi.CodeBadRequest:
		message = sentence(err)
	case errors.Is(err, ErrAsleep):
		message = "The chat sleeps in the cold store, which cannot be asked right now. Please try again later."
	case code == webapi.CodeHistoryDamaged && errors.As(err, &damaged) && strings.HasSuffix(damaged.Key, ".json.gz"):
		message = fmt.Sprintf("The object %s of the cold store is missing or damaged. Bring it back from a backup, or erase "+
			"the chat.", damaged.Key)
	case code == webapi.CodeHistoryDamaged && errors.As(err, &damaged):
		message = fmt.Sprintf("What Redis holds under %s is not what is kept there. The next message sets it aside and "+
			"goes on; if it is refused too, look at /readyz and move the key away by hand.", damaged.Key)
	case errors.As(err, &refused):
		message = fmt.Sprintf("Redis refuses %s. GET /readyz says how an operator permits it.", refused.What)
	case errors.Is(err, memory.ErrReadOnly):
		message = "The memory can be read and takes no changes right now, as when its disk is full; GET /readyz says why. " +
			"Please try again later."
	}
	return api.ProblemOf(event.Fail(code, message, 0))
}

// failure is an error of this service and the code of its event.Failure.
type failure struct {
	err  error
	code string
}

// failures lists the errors of this service. The first matching entry counts.
var failures = []failure{
	{memory.ErrBadName, webapi.CodeBadRequest},
	{ErrQueueFull, webapi.CodeTooManyMessages},
	{ErrTooManyChats, webapi.CodeTooManyChats},
	{fair.ErrFull, webapi.CodeTooManyChats},
	{ErrQueueSlow, webapi.CodeChatBusy},
	{ErrErased, webapi.CodeChatErased},
	{memory.ErrMoved, webapi.CodeTurnMoved},
	{memory.ErrFull, webapi.CodeHistoryFull},
	{memory.ErrDamaged, webapi.CodeHistoryDamaged},
	{memory.ErrReadOnly, webapi.CodeMemoryUnavailable},
	{memory.ErrRefused, webapi.CodeMemoryRefused},
	{memory.ErrUnavailable, webapi.CodeMemoryUnavailable},
	{ErrAsleep, webapi.CodeMemoryUnavailable},
	{spool.ErrFull, webapi.CodeMemoryUnavailable},
	{journal.ErrFailed, webapi.CodeMemoryUnavailable},
	{ErrShutdown, webapi.CodeShuttingDown},
	{context.Canceled, webapi.CodeClientLeft},
	{context.DeadlineExceeded, webapi.CodeTimeout},
}

// sentence returns an error's text as a sentence.
func sentence(err error) string {
	text := strings.TrimPrefix(err.Error(), memory.ErrBadName.Error()+": ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
