package problem

import (
	"net/http"

	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
)

var ErrKeyReused = &api.Problem{
	Status: http.StatusUnprocessableEntity, Code: webapi.CodeKeyReused,
	Message: "This Idempotency-Key was used with another message.",
}

var (
	ErrKeysOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeKeysOff,
		Message: "The service asks nobody for a key: set auth.mode: keys (MNEME_AUTH_MODE=keys), start it again, and then " +
			"make keys."}
)

var (
	ErrUnknownNote = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownNote,
		Message: "There is no such note here; GET …/notes lists those that there are."}
)

var (
	ErrUnknownChat = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownChat,
		Message: "This chat has no memory."}
	ErrNotEmpty = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeChatNotEmpty,
		Message: "The chat has a memory already; import into a chat that has none, or delete this one first."}
)

var ErrUnknownRun = &api.Problem{
	Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
	Message: "This chat has no such run, or it ended long ago; what it stored is in the chat's history.",
}

var (
	ErrLostRun = &api.Problem{Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
		Message: "This chat has no such run, or the memory lost what it would go on from; please send the message again."}

	ErrMayComeBack = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeMemoryUnavailable, Retryable: true,
		Message: "The memory has just lost data, and what other processes know of this run may not be written back yet; " +
			"please answer again in a moment.",
	}
)

var (
	ErrUnknownMessage = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownMessage,
		Message: "The chat's memory has no message with this id."}

	ErrMessagesSince = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeMessagesSince,
		Message: "The chat's memory has changed since; what was set aside is put back only where it was taken."}
)

var ErrNotHeld = &api.Problem{
	Status: http.StatusForbidden, Code: "run_not_held",
	Message: "This process does not hold the run: another one has taken over its chat, the run is over or unknown, or " +
		"the token is not the one that the run was posted with.",
}

var (

	// errMayRun: that could not be taken back, since Redis went away: a process that looks
	// after the chat may find the run and bring it to its end.
	ErrMayRun = &api.Problem{
		Status: http.StatusBadGateway, Code: webapi.CodeOutcomeUnknown, Retryable: true,
		Message: "The message may be answered or not; repeat it with its Idempotency-Key, or read the chat's history.",
	}
)
