package copilot

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
)

// kind is the type of an event.
type kind string

// The events that are read. All others are dropped before they are decoded, since some repeat the
// whole conversation in every turn.
const (
	eventDelta      kind = "assistant.message_delta"
	eventMessage    kind = "assistant.message"
	eventUsage      kind = "assistant.usage"
	eventToolCall   kind = "external_tool.requested"
	eventToolDone   kind = "tool.execution_complete"
	eventPermission kind = "permission.requested" // answered at once and never queued
	eventError      kind = "session.error"
	eventIdle       kind = "session.idle"
	eventShutdown   kind = "session.shutdown"
)

// relevant reports whether events of a kind are read.
func (k kind) relevant() bool {
	switch k {
	case eventDelta, eventMessage, eventUsage, eventToolCall, eventToolDone, eventPermission, eventError, eventIdle,
		eventShutdown:
		return true
	}
	return false
}

// asks reports whether the CLI waits for an answer to events of a kind.
func (k kind) asks() bool { return k == eventToolCall || k == eventPermission }

// event is one event of a session.
type event struct {
	kind kind
	data eventData
	text []byte       // of eventDelta; the texts of adjacent ones are joined
	rpc  *jsonrpc2.ID // of a tool call in protocol 2
}

// eventData has the members of all wanted kinds. Numbers may be encoded as 10 or as 10.0.
type eventData struct {
	// assistant.message, assistant.message_delta
	MessageID    string        `json:"messageId"`
	DeltaContent string        `json:"deltaContent"`
	Content      string        `json:"content"`
	ToolRequests []toolRequest `json:"toolRequests"`

	// external_tool.requested, tool.execution_complete, permission.requested
	RequestID  string         `json:"requestId"`
	ToolCallID string         `json:"toolCallId"`
	ToolName   string         `json:"toolName"`
	Arguments  jsontext.Value `json:"arguments"`
	Permission struct {
		Kind     string `json:"kind"`
		ToolName string `json:"toolName"`
	} `json:"permissionRequest"`

	Failure failure `json:",embed"`  // session.error
	Aborted bool    `json:"aborted"` // session.idle
	Usage   Usage   `json:",embed"`  // assistant.usage
}

type toolRequest struct {
	ToolCallID string `json:"toolCallId"`
}

type failure struct {
	ErrorType  string  `json:"errorType"`
	Message    string  `json:"message"`
	StatusCode float64 `json:"statusCode"`
}

// eventParams are the parameters of session.event without the session's id.
type eventParams struct {
	Event struct {
		AgentID string    `json:"agentId"` // set for an agent below the session's own
		Data    eventData `json:"data"`
	} `json:"event"`
}

// toolCallParams are the parameters of tool.call in protocol 2.
type toolCallParams struct {
	SessionID  string         `json:"sessionId"`
	ToolCallID string         `json:"toolCallId"`
	ToolName   string         `json:"toolName"`
	Arguments  jsontext.Value `json:"arguments"`
}

// eventOverhead is about what an event costs beside its texts, in bytes.
const eventOverhead = 256

// size is the estimated memory of an event, in bytes.
func (e *event) size() int {
	return eventOverhead + len(e.text) + len(e.data.Content) + len(e.data.Arguments) + len(e.data.Failure.Message) +
		eventOverhead*len(e.data.ToolRequests)/4
}

// joins reports whether next only continues the text of e.
func (e *event) joins(next *event) bool {
	return e.kind == eventDelta && next.kind == eventDelta && e.data.MessageID == next.data.MessageID
}
