package chatwire

import (
	"crypto/rand"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Values of finish_reason.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishTools  = "tool_calls"
	finishFilter = "content_filter"
)

// request is a chat-completions request. Members without a field are collected in Other and treated
// by the table of parameters.
type request struct {
	Model               string             `json:"model"`
	Messages            []wire.ChatMessage `json:"messages"`
	Tools               []wire.ChatTool    `json:"tools,omitempty"`
	ToolChoice          jsontext.Value     `json:"tool_choice,omitzero"`
	ParallelToolCalls   *bool              `json:"parallel_tool_calls,omitzero"`
	MaxTokens           int64              `json:"max_tokens,omitzero"`
	MaxCompletionTokens int64              `json:"max_completion_tokens,omitzero"`
	Temperature         *float64           `json:"temperature,omitzero"`
	TopP                *float64           `json:"top_p,omitzero"`
	Stop                stopList           `json:"stop,omitempty"`
	Stream              bool               `json:"stream,omitzero"`
	StreamOptions       *streamOptions     `json:"stream_options,omitzero"`
	ReasoningEffort     string             `json:"reasoning_effort,omitzero"`
	User                string             `json:"user,omitzero"`

	ResponseFormat *responseFormat `json:"response_format,omitzero"`

	Other map[string]jsontext.Value `json:",embed"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// stopList is a list of strings that may also be a single string in JSON.
type stopList []string

func (s *stopList) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		*s = make(stopList, 1)
		return json.UnmarshalDecode(d, &(*s)[0])
	}
	return json.UnmarshalDecode(d, (*[]string)(s))
}

const (
	imagePart    = "image_url"
	functionTool = "function"
	customTool   = "custom" // its input is a text
)

// CustomInput is the schema for a tool with a text as its input.
var CustomInput = jsontext.Value(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],` +
	`"additionalProperties":false}`)

// CustomSays is the description of a custom tool as a function.
func CustomSays(description string, format jsontext.Value) string {
	if len(format) == 0 {
		return description
	}
	return description + "\n\nThe format of the input: " + string(format)
}

// newID makes a random id.
func newID(prefix string) string { return prefix + rand.Text()[:24] }
