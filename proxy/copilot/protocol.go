package copilot

import (
	"crypto/rand"
	"fmt"
	"maps"

	"github.com/go-json-experiment/json/jsontext"
)

// Versions of the protocol that are understood. In 2 tool calls are requests of
// the CLI, in 3 events.
const (
	minProtocol = 2
	maxProtocol = 3
)

// Methods of the CLI.
const (
	methodConnect    = "connect"
	methodPing       = "ping"
	methodCreate     = "session.create"
	methodResume     = "session.resume"
	methodSend       = "session.send"
	methodAbort      = "session.abort"
	methodDestroy    = "session.destroy"
	methodDelete     = "session.delete"
	methodToolResult = "session.tools.handlePendingToolCall"
	methodPermission = "session.permissions.handlePendingPermissionRequest"
)

// Methods that the CLI calls here.
const (
	methodEvent    = "session.event"
	methodToolCall = "tool.call" // protocol 2
)

type (
	connectParams struct {
		Token string `json:"token,omitempty"`
	}
	pingParams struct {
		Message string `json:"message"`
	}
	// greeting is the result of connect, and of ping as far as that goes.
	greeting struct {
		ProtocolVersion int    `json:"protocolVersion"`
		Version         string `json:"version"`
	}
	sessionParams struct {
		SessionID string `json:"sessionId"`
	}
	sendParams struct {
		SessionID string `json:"sessionId"`
		Prompt    string `json:"prompt"`
	}
	success struct {
		Success bool `json:"success"`
	}
	toolResultParams struct {
		SessionID string      `json:"sessionId"`
		RequestID string      `json:"requestId"`
		Result    *toolResult `json:"result,omitempty"`
		Error     string      `json:"error,omitempty"` // instead of a result
	}
	toolResult struct {
		Text string `json:"textResultForLlm"`
		Type string `json:"resultType"` // success or failure
	}
	permissionParams struct {
		SessionID string             `json:"sessionId"`
		RequestID string             `json:"requestId"`
		Result    permissionDecision `json:"result"`
	}
	permissionDecision struct {
		Kind     string `json:"kind"` // approve-once or reject
		Feedback string `json:"feedback,omitempty"`
	}
)

// createParams are those of session.create and session.resume.
type createParams struct {
	SessionID      string        `json:"sessionId"`
	Model          string        `json:"model,omitempty"`
	Provider       *Provider     `json:"provider,omitempty"`
	SystemMessage  systemMessage `json:"systemMessage"`
	Tools          []toolParams  `json:"tools"`
	AvailableTools []string      `json:"availableTools"` // without it the model has a shell
	Behaviour      behaviour     `json:",embed"`
}

type systemMessage struct {
	Mode    string `json:"mode"`
	Content string `json:"content"`
}

type toolParams struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters,omitempty"`
	Overrides   bool           `json:"overridesBuiltInTool"`
}

// behaviour is the same for every session: answers stream, every use of a tool is
// asked for, and nothing but the request decides what the model sees.
type behaviour struct {
	Streaming              bool     `json:"streaming"`
	RequestPermission      bool     `json:"requestPermission"`
	SkipCustomInstructions bool     `json:"skipCustomInstructions"`
	EnableConfigDiscovery  bool     `json:"enableConfigDiscovery"`
	SubAgentEvents         bool     `json:"includeSubAgentStreamingEvents"`
	Telemetry              bool     `json:"enableSessionTelemetry"`
	InfiniteSessions       infinite `json:"infiniteSessions"` // off: it rewrites the conversation
}

type infinite struct {
	Enabled bool `json:"enabled"`
}

func newCreateParams(id string, c SessionConfig) createParams {
	p := createParams{
		SessionID: id, Model: c.Model, Provider: c.provider(id),
		SystemMessage:  systemMessage{Mode: "replace", Content: c.System},
		Tools:          []toolParams{},
		AvailableTools: []string{},
		Behaviour:      behaviour{Streaming: true, RequestPermission: true, SkipCustomInstructions: true},
	}
	for _, t := range c.Tools {
		// Without Overrides a tool with the name of one of the CLI's own, such as
		// "bash", fails the first turn.
		p.Tools = append(p.Tools, toolParams{Name: t.Name, Description: t.Description, Parameters: t.Parameters,
			Overrides: true})
		p.AvailableTools = append(p.AvailableTools, "custom:"+t.Name)
	}
	return p
}

// provider is that of the session with the id.
func (c SessionConfig) provider(id string) *Provider {
	if c.Provider == nil || c.IDHeader == "" {
		return c.Provider
	}
	p := *c.Provider
	p.Headers = map[string]string{}
	maps.Copy(p.Headers, c.Provider.Headers)
	p.Headers[c.IDHeader] = id
	return &p
}

// newSessionID is a random UUID. Ids are never made of anything known: to create
// one that is live succeeds, and two callers would share its session.
func newSessionID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
