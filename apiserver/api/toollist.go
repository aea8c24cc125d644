package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"mneme/memory"
)

// ToolInfo is a tool that an agent has.
type ToolInfo struct {
	Agent  memory.Agent `json:"agent"` // empty for the master
	Name   string       `json:"name"`  // as models call it
	ID     string       `json:"id"`    // unique, also among tools of one name: "crm/refund"
	Kind   string       `json:"kind"`  // one of the kinds below
	Policy string       `json:"policy,omitempty"`
	State  string       `json:"state"` // ready, that of its server, or ToolLeftOut
}

// Kinds of tools.
const (
	ToolBuiltIn = "built_in"
	ToolHTTP    = "http"
	ToolMCP     = "mcp"
)

// ToolLeftOut is the state of a tool that its agent is not shown, since it has too many.
const ToolLeftOut = "left_out"

// ToolServer is how a server of tools is.
type ToolServer struct {
	Server  string   `json:"server"`
	State   string   `json:"state"`             // ready, starting or away
	Reason  string   `json:"reason,omitempty"`  // why it is not ready
	Tools   int      `json:"tools"`             // that may be used
	Changed []string `json:"changed,omitempty"` // names of tools that are not what was accepted, and not used
	Refused []string `json:"refused,omitempty"` // names of tools that cannot be used
}

// ToolList answers GET /v1/tools.
type ToolList struct {
	Tools   []ToolInfo   `json:"tools"`
	Servers []ToolServer `json:"servers"`
	LeftOut []string     `json:"left_out,omitempty"` // of each agent that has too many tools, how many it is not shown
}

// ToolCall is the body of POST /v1/tools/call: a call by hand. It is of no run, no person is
// asked before it, and it is made once more if it is asked for once more.
type ToolCall struct {
	Agent     memory.Agent    `json:"agent"` // empty for the master
	Tool      string          `json:"tool"`  // its name, or its id
	Arguments json.RawMessage `json:"arguments"`
}

// ToolCalled answers a ToolCall.
type ToolCalled struct {
	Result string `json:"result"`
	Failed bool   `json:"failed,omitempty"` // the tool says that it failed
	Asks   string `json:"asks,omitempty"`   // what it wants to know from a person, which can only be answered in a run
}

// ToolAccept is the body of POST /v1/tools/accept.
type ToolAccept struct {
	Server string `json:"server"`
}

// Problems with tools.
var (
	ErrUnknownTool = &Problem{
		Status: http.StatusNotFound, Code: "unknown_tool", Message: "The agent has no such tool."}
	ErrUnknownToolServer = &Problem{Status: http.StatusNotFound, Code: "unknown_tool_server",
		Message: "There is no such server of tools."}
	ErrToolFailed = &Problem{Status: http.StatusBadGateway, Code: "tool_failed", Message: "The tool failed."}
)

// toolTimeout bounds a call of a tool by hand; the tool's own is shorter.
const toolTimeout = 15 * time.Minute

// Tools lists the tools of all agents.
func (c *Client) Tools(ctx context.Context) (ToolList, error) {
	var list ToolList
	err := c.call(ctx, http.MethodGet, "/v1/tools", nil, &list)
	return list, err
}

// CallTool calls a tool by hand.
func (c *Client) CallTool(ctx context.Context, call ToolCall) (ToolCalled, error) {
	var called ToolCalled
	err := c.callWithin(ctx, toolTimeout, "", http.MethodPost, "/v1/tools/call", call, &called)
	return called, err
}

// AcceptTools has what a server offers now used from now on.
func (c *Client) AcceptTools(ctx context.Context, server string) (ToolServer, error) {
	var now ToolServer
	err := c.call(ctx, http.MethodPost, "/v1/tools/accept", ToolAccept{server}, &now)
	return now, err
}
