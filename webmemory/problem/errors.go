package problem

import (
	"net/http"

	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
)

// Responses that several packages return.
var (
	// ErrKeyReused rejects a post whose Idempotency-Key was used with another message.
	ErrKeyReused = &api.Problem{
		Status: http.StatusUnprocessableEntity, Code: webapi.CodeKeyReused,
		Message: "This Idempotency-Key was used with another message.",
	}
	// ErrKeysOff rejects requests about keys while auth.mode is none.
	ErrKeysOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeKeysOff,
		Message: "The service asks nobody for a key: set auth.mode: keys (MNEME_AUTH_MODE=keys), start it again, and then " +
			"make keys."}
	// ErrUnknownNote indicates that a history has no note with this id.
	ErrUnknownNote = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownNote,
		Message: "There is no such note here; GET …/notes lists those that there are."}
	// ErrUnknownChat indicates that nothing is stored for this chat.
	ErrUnknownChat = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownChat,
		Message: "This chat has no memory."}
	// ErrNotEmpty rejects an import or fork into a chat with histories.
	ErrNotEmpty = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeChatNotEmpty,
		Message: "The chat has a memory already; import into a chat that has none, or delete this one first."}
	// ErrUnknownRun indicates that a chat has no run with this id.
	ErrUnknownRun = &api.Problem{
		Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
		Message: "This chat has no such run, or it ended long ago; what it stored is in the chat's history.",
	}
	// ErrLostRun indicates that a pending run cannot resume because its state is lost.
	ErrLostRun = &api.Problem{Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
		Message: "This chat has no such run, or the memory lost what it would go on from; please send the message again."}
	// ErrMayComeBack indicates that another process may still restore the state of a run.
	ErrMayComeBack = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeMemoryUnavailable, Retryable: true,
		Message: "The memory has just lost data, and what other processes know of this run may not be written back yet; " +
			"please answer again in a moment.",
	}
	// ErrUnknownMessage indicates that a chat has no message with this id.
	ErrUnknownMessage = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownMessage,
		Message: "The chat's memory has no message with this id."}
	// ErrMessagesSince rejects a restore after the chat has changed.
	ErrMessagesSince = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeMessagesSince,
		Message: "The chat's memory has changed since; what was set aside is put back only where it was taken."}
	// ErrNotHeld rejects requests of agents whose run this process does not hold.
	ErrNotHeld = &api.Problem{
		Status: http.StatusForbidden, Code: "run_not_held",
		Message: "This process does not hold the run: another one has taken over its chat, the run is over or unknown, or " +
			"the token is not the one that the run was posted with.",
	}
	// ErrMayRun indicates that a run may have started although its post failed. A takeover may find and finish the run.
	ErrMayRun = &api.Problem{
		Status: http.StatusBadGateway, Code: webapi.CodeOutcomeUnknown, Retryable: true,
		Message: "The message may be answered or not; repeat it with its Idempotency-Key, or read the chat's history.",
	}
)
