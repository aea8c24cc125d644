package copilot

import (
	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/copilot/jsonrpc"
)

// kind is a type of event that a turn is made of.
type kind string

// The events that anybody here reads. All others are dropped before they are
// decoded: some repeat the whole conversation on every turn.
const (
	eventDelta      kind = "assistant.message_delta"
	eventMessage    kind = "assistant.message"
	eventUsage      kind = "assistant.usage"
	eventToolCall   kind = "external_tool.requested"
	eventToolDone   kind = "tool.execution_complete"
	eventPermission kind = "permission.requested" // answered at once, never queued
	eventError      kind = "session.error"
	eventIdle       kind = "session.idle"
	eventShutdown   kind = "session.shutdown"
)

// wanted says whether events of a kind are read.
func (k kind) wanted() bool {
	switch k {
	case eventDelta, eventMessage, eventUsage, eventToolCall, eventToolDone, eventPermission, eventError, eventIdle, eventShutdown:
		return true
	}
	return false
}

// asks says whether the CLI waits for an answer to events of a kind.
func (k kind) asks() bool { return k == eventToolCall || k == eventPermission }

// event is one of a session.
type event struct {
	kind kind
	data eventData
	text []byte     // of eventDelta; adjacent ones grow together
	rpc  jsonrpc.ID // of a tool call in protocol 2
}

// eventData are the members of all wanted kinds; each has some. Numbers may come
// as 10 and as 10.0.
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

// eventParams are those of session.event, but for the session's id.
type eventParams struct {
	Event struct {
		AgentID string    `json:"agentId"` // of an agent under the session's own
		Data    eventData `json:"data"`
	} `json:"event"`
}

// toolCallParams are those of tool.call, in protocol 2.
type toolCallParams struct {
	SessionID  string         `json:"sessionId"`
	ToolCallID string         `json:"toolCallId"`
	ToolName   string         `json:"toolName"`
	Arguments  jsontext.Value `json:"arguments"`
}

// eventOverhead is about what an event costs beside what it holds, in bytes.
const eventOverhead = 256

func (e *event) size() int {
	return eventOverhead + len(e.text) + len(e.data.Content) + len(e.data.Arguments) + len(e.data.Failure.Message) +
		eventOverhead*len(e.data.ToolRequests)/4
}

// joins reports whether next only continues the text of e.
func (e *event) joins(next *event) bool {
	return e.kind == eventDelta && next.kind == eventDelta && e.data.MessageID == next.data.MessageID
}
