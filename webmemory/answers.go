package webmemory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/journal"
	"mneme/memory/spool"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// statusGone is what the log says of a request whose client left first.
const statusGone = 499

func badRequest(format string, args ...any) *api.Problem {
	return &api.Problem{Status: http.StatusBadRequest, Code: webapi.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// problemOf is the one place that turns this service's errors into answers.
func problemOf(err error) *api.Problem {
	var known *api.Problem
	if errors.As(err, &known) {
		return known
	}
	internal := *api.ErrInternal
	p := &internal
	say := func(status int, code, message string, retryable bool) {
		p.Status, p.Code, p.Message, p.Retryable = status, code, message, retryable
	}
	switch {
	case errors.Is(err, memory.ErrBadName):
		say(http.StatusBadRequest, webapi.CodeBadRequest, sentence(err), false)
	case errors.Is(err, errQueueFull):
		say(http.StatusTooManyRequests, webapi.CodeTooManyMessages, "Too many messages of this chat wait for their turn; please wait for an answer first.", true)
	case errors.Is(err, errTooManyChats):
		say(http.StatusServiceUnavailable, webapi.CodeTooManyChats, "As many chats as allowed are busy; please try again in a moment.", true)
	case errors.Is(err, errQueueSlow):
		say(http.StatusConflict, webapi.CodeChatBusy, "The chat is still busy with an earlier message; please try again.", true)
	case errors.Is(err, errErased):
		say(http.StatusConflict, webapi.CodeChatErased, "The chat was erased while this message waited for its turn; send it again if it is still meant.", true)
	case errors.Is(err, memory.ErrMoved):
		say(http.StatusConflict, webapi.CodeTurnMoved, "Another process has taken over this chat; please read its history and try again.", true)
	case errors.Is(err, memory.ErrFull):
		say(http.StatusInsufficientStorage, webapi.CodeHistoryFull, "The chat's history is full; delete it, or a part of it, to go on.", false)
	case errors.Is(err, memory.ErrDamaged):
		say(http.StatusInternalServerError, webapi.CodeHistoryDamaged, "What is stored here is not a history; the next message sets it aside and goes on.", false)
		if named := new(memory.DamagedError); errors.As(err, &named) {
			p.Message = fmt.Sprintf("What Redis holds under %s is not what is kept there. The next message sets it aside and goes on; if it is refused too, look at /readyz and move the key away by hand.", named.Key)
		}
	case errors.Is(err, memory.ErrReadOnly):
		say(http.StatusServiceUnavailable, webapi.CodeMemoryUnavailable, "The memory can be read and takes no changes right now, as when its disk is full; GET /readyz says why. Please try again later.", true)
	case errors.Is(err, memory.ErrUnavailable), errors.Is(err, spool.ErrFull), errors.Is(err, journal.ErrFailed):
		say(http.StatusServiceUnavailable, webapi.CodeMemoryUnavailable, "The memory cannot be reached right now; please try again.", true)
	case errors.Is(err, errShutdown):
		say(http.StatusServiceUnavailable, webapi.CodeShuttingDown, "The service is shutting down; please try again.", true)
	case errors.Is(err, context.Canceled):
		say(statusGone, webapi.CodeClientLeft, "The client left before the answer.", true)
	case errors.Is(err, context.DeadlineExceeded):
		say(http.StatusGatewayTimeout, webapi.CodeTimeout, "It took longer than is allowed.", true)
	}
	return p
}

// sentence is an error's text as a sentence.
func sentence(err error) string {
	text := strings.TrimPrefix(err.Error(), memory.ErrBadName.Error()+": ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// fail answers with an error.
func (s *Server) fail(c *gin.Context, err error) {
	switch err {
	case telemetry.ErrNoRoute:
		err = &api.Problem{
			Status: http.StatusNotFound, Code: "unknown_route",
			Message: fmt.Sprintf("There is no route %s; docs/api.md lists them.", c.Request.URL.Path),
		}
	case telemetry.ErrNoMethod:
		err = api.NoMethod(c.Request, c.Writer.Header())
	}
	p := *problemOf(err)
	p.RunID = cmp.Or(telemetry.From(c.Request.Context()).Run, p.RunID)
	if p.Status == statusGone {
		c.Status(statusGone)
		return
	}
	if p.Retryable {
		p.RetryAfter = max(p.RetryAfter, 2*time.Second)
	}
	api.WriteProblem(c.Writer, &p)
}
