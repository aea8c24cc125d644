package copilot

import (
	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/copilot/jsonrpc"
)

// Tool is a tool of ours that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  jsontext.Value // a JSON schema; nil: no parameters
}

// ToolCall is a call that the turn is parked on.
type ToolCall struct {
	ID        string // the model's
	Name      string
	Arguments jsontext.Value // as the model wrote them, an object as a rule

	requestID string     // what the CLI waits for, in protocol 3
	rpc       jsonrpc.ID // the same in protocol 2; else nil
}

// ToolResult is what a call came to.
type ToolResult struct {
	Text   string // for the model
	Failed bool
}

func (r ToolResult) wire() toolResult {
	if r.Failed {
		return toolResult{Text: r.Text, Type: "failure"}
	}
	return toolResult{Text: r.Text, Type: "success"}
}

// Usage counts the tokens of model calls as the CLI reports them: JSON numbers, which
// may be written as 12.0.
type Usage struct {
	Input      float64 `json:"inputTokens"`
	Output     float64 `json:"outputTokens"`
	CacheRead  float64 `json:"cacheReadTokens"`
	CacheWrite float64 `json:"cacheWriteTokens"`
}
