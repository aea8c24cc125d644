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
	Model               string         `json:"model"`
	Messages            []chatMessage  `json:"messages"`
	Tools               []tool         `json:"tools,omitempty"`
	ToolChoice          jsontext.Value `json:"tool_choice,omitzero"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls,omitzero"`
	MaxTokens           int64          `json:"max_tokens,omitzero"`
	MaxCompletionTokens int64          `json:"max_completion_tokens,omitzero"`
	Temperature         *float64       `json:"temperature,omitzero"`
	TopP                *float64       `json:"top_p,omitzero"`
	Stop                stopList       `json:"stop,omitempty"`
	Stream              bool           `json:"stream,omitzero"`
	StreamOptions       *streamOptions `json:"stream_options,omitzero"`
	ReasoningEffort     string         `json:"reasoning_effort,omitzero"`
	User                string         `json:"user,omitzero"`

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

// chatMessage is one message of a request.
type chatMessage struct {
	Role       string     `json:"role"`
	Name       string     `json:"name,omitzero"`
	Content    content    `json:"content"`
	Refusal    string     `json:"refusal,omitzero"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitzero"`
}

// content is a list of parts. In JSON a single text part is a string, and nil is null.
type content []part

type part struct {
	Type     string    `json:"type"` // text, image_url, file, refusal
	Text     string    `json:"text,omitzero"`
	Refusal  string    `json:"refusal,omitzero"`
	ImageURL *imageURL `json:"image_url,omitzero"`
	File     *file     `json:"file,omitzero"`
}

type file struct {
	Name string `json:"filename,omitzero"`
	Data string `json:"file_data,omitzero"` // a data: URL, or an address
	ID   string `json:"file_id,omitzero"`
}

type imageURL struct {
	URL string `json:"url"`
}

const (
	textPart    = "text"
	imagePart   = "image_url"
	filePart    = "file"
	refusalPart = "refusal"
)

func textContent(s string) content { return content{{Type: textPart, Text: s}} }

func (c *content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		*c = content{{Type: textPart}}
		return json.UnmarshalDecode(d, &(*c)[0].Text)
	}
	return json.UnmarshalDecode(d, (*[]part)(c))
}

func (c content) MarshalJSONTo(e *jsontext.Encoder) error {
	switch {
	case c == nil:
		return e.WriteToken(jsontext.Null)
	case len(c) == 1 && c[0].Type == textPart:
		return json.MarshalEncode(e, c[0].Text)
	}
	return json.MarshalEncode(e, []part(c))
}

// text joins the texts and refusals of c.
func (c content) text(between string) string {
	return wire.JoinTexts(c, between, func(p part) string { return p.Text + p.Refusal })
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
	Custom   *custom  `json:"custom,omitzero"`
}

const (
	functionTool = "function"
	customTool   = "custom" // its input is a text
)

// custom is a custom tool, or a choice or a call of one.
type custom struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Format      jsontext.Value `json:"format,omitzero"`
	Input       string         `json:"input,omitzero"`
}

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

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      bool           `json:"strict,omitzero"`
}

// toolCall is a tool call of an assistant's message, or a piece of one in a chunk.
type toolCall struct {
	Index    *int         `json:"index,omitzero"` // in chunks only
	ID       string       `json:"id,omitzero"`
	Type     string       `json:"type,omitzero"`
	Function functionCall `json:"function"`
	Custom   *custom      `json:"custom,omitzero"`
}

type functionCall struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
}

// newID makes a random id.
func newID(prefix string) string { return prefix + rand.Text()[:24] }
