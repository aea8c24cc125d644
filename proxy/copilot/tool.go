package copilot

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
)

// Tool is a tool of the session that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  jsontext.Value // a JSON schema; nil for no parameters
}

// ToolCall is a call on which the turn is parked.
type ToolCall struct {
	ID        string // given by the model
	Name      string
	Arguments jsontext.Value // as the model wrote them, as a rule an object

	requestID string       // under which the CLI waits, in protocol 3
	rpc       *jsonrpc2.ID // the same in protocol 2; otherwise nil
}

// ToolResult is the result of a call.
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
	Input     float64 `json:"inputTokens"`
	Output    float64 `json:"outputTokens"`
	CacheRead float64 `json:"cacheReadTokens"`
}
