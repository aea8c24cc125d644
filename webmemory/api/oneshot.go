package api

import (
	"encoding/json"

	"mneme/apiserver/api"
	"mneme/memory"
)

// OneShotPath answers a message without a chat. The request carries all context, and nothing is stored. If the model
// calls a tool of the client, the client sends the result with the transcript in a new request.
const OneShotPath = "/v1/oneshot"

// OneShotRequest is the body of POST /v1/oneshot, which is answered as a message to a chat is.
type OneShotRequest struct {
	// Message is answered; empty where Context ends with the results of tools, and where Images are all there is.
	Message      string `json:"message"`
	AgentVersion string `json:"agent_version,omitempty"` // Master or a subagent's name; empty for Master
	Stream       bool   `json:"stream,omitempty"`        // as Accept: text/event-stream
	// Context are the messages before, each a memory.Message: of user, assistant with or without tool_calls, or tool.
	Context      []json.RawMessage `json:"context,omitempty"`
	Instructions string            `json:"instructions,omitempty"` // as of a MessageRequest
	User         string            `json:"user,omitempty"`         // as of a MessageRequest
	TimeZone     string            `json:"time_zone,omitempty"`    // as of a MessageRequest
	Pasted       []memory.Span     `json:"pasted,omitzero"`        // as of a MessageRequest
	Tools        []ClientTool      `json:"tools,omitempty"`        // as of a MessageRequest
	Images       []string          `json:"images,omitempty"`       // as of a MessageRequest
	api.Wishes                     // as of a MessageRequest
	// ImagesBefore are images of messages in Context, as of a MessageRequest.
	ImagesBefore []string `json:"images_before,omitempty"`
	// Bare: the master's model alone answers, without the master's prompt, subagents and tools.
	Bare bool `json:"bare,omitempty"`
}
