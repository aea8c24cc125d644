package responseswire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// request is a request of the Responses dialect. Members without a field are collected in Other and treated by
// the table of parameters.
type request struct {
	Model             string         `json:"model"`
	Instructions      *string        `json:"instructions,omitzero"`
	Input             input          `json:"input"`
	Tools             []tool         `json:"tools,omitempty"`
	ToolChoice        jsontext.Value `json:"tool_choice,omitzero"`
	ParallelToolCalls *bool          `json:"parallel_tool_calls,omitzero"`
	MaxOutputTokens   *int64         `json:"max_output_tokens,omitzero"`
	Temperature       *float64       `json:"temperature,omitzero"`
	TopP              *float64       `json:"top_p,omitzero"`
	Reasoning         *reasoning     `json:"reasoning,omitzero"`
	Text              *textConfig    `json:"text,omitzero"`
	Include           []string       `json:"include,omitempty"`
	Store             *bool          `json:"store,omitzero"`
	Stream            bool           `json:"stream,omitzero"`
	User              string         `json:"user,omitzero"` // the older name of SafetyIdentifier

	SafetyIdentifier wire.NullString `json:"safety_identifier,omitzero"`

	Other map[string]jsontext.Value `json:",embed"`
}

type reasoning struct {
	Effort  string `json:"effort,omitzero"`
	Summary string `json:"summary,omitzero"`
}

// textConfig is the form that the answer is to have.
type textConfig struct {
	Format    *format `json:"format,omitzero"`
	Verbosity string  `json:"verbosity,omitzero"`
}

type format struct {
	Type        string         `json:"type"` // text, json_object, json_schema
	Name        string         `json:"name,omitzero"`
	Description string         `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// input is what the model is given. In JSON it may be a string, which is a message of the user.
type input []item

func (in *input) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		*in = input{{Type: messageItem, Role: wire.RoleUser, Content: content{{Type: inputText}}}}
		return json.UnmarshalDecode(d, &(*in)[0].Content[0].Text)
	}
	return json.UnmarshalDecode(d, (*[]item)(in))
}

// Types of items that translation maps.
const (
	messageItem      = "message"
	reasoningItem    = "reasoning"
	callItem         = "function_call"
	resultItem       = "function_call_output"
	customItem       = "custom_tool_call"
	customResultItem = "custom_tool_call_output"
	toolsItem        = "additional_tools" // in codex' input, tools that come later
	snapshotItem     = "ghost_snapshot"   // in codex' input, a commit
)

// item is a part of the input or of the output; Type says which fields count.
type item struct {
	Type string `json:"type,omitzero"` // a message may lack it

	Role    string  `json:"role,omitzero"`
	Content content `json:"content,omitempty"` // of a message, or of reasoning that is shown
	Summary content `json:"summary,omitempty"` // of reasoning

	CallID    string   `json:"call_id,omitzero"` // of a call and of its result
	Name      string   `json:"name,omitzero"`
	Namespace string   `json:"namespace,omitzero"`
	Arguments jsonText `json:"arguments,omitzero"`
	Input     jsonText `json:"input,omitzero"` // of a custom call
	Output    *content `json:"output,omitzero"`

	Tools jsontext.Value `json:"tools,omitzero"` // additional ones

	raw string // its own bytes, where they count
}

// jsonText is a string that holds JSON. Some clients, and items that are not translated, have the JSON itself in
// its place.
type jsonText string

func (t *jsonText) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, (*string)(t))
	}
	v, err := d.ReadValue()
	*t = jsonText(v)
	return err
}

// content is a list of parts. In JSON a string stands for one part of text, and some clients have a part without a
// list. null is nil.
type content []part

func (c *content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case '"':
		*c = content{{Type: inputText}}
		return json.UnmarshalDecode(d, &(*c)[0].Text)
	case '[':
		return json.UnmarshalDecode(d, (*[]part)(c))
	case '{':
		*c = make(content, 1)
		return json.UnmarshalDecode(d, &(*c)[0])
	}
	return d.SkipValue()
}

func (c content) MarshalJSONTo(e *jsontext.Encoder) error {
	if len(c) == 1 && c[0].Type == "" { // a result
		return json.MarshalEncode(e, c[0].Text)
	}
	return json.MarshalEncode(e, []part(c))
}

// text joins the texts and refusals of c.
func (c content) text(between string) string {
	return wire.JoinTexts(c, between, func(p part) string { return p.Text + p.Refusal })
}

// Types of parts.
const (
	inputText   = "input_text"
	inputImage  = "input_image"
	inputFile   = "input_file"
	outputText  = "output_text"
	refusalPart = "refusal"
)

type part struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitzero"`
	Refusal  string `json:"refusal,omitzero"`
	ImageURL string `json:"image_url,omitzero"`
	FileName string `json:"filename,omitzero"`
	FileData string `json:"file_data,omitzero"` // a data: URL
	FileURL  string `json:"file_url,omitzero"`

	// Each text of an answer has these, so that they have no place in Other.
	Annotations jsontext.Value `json:"annotations,omitzero"`
	Logprobs    jsontext.Value `json:"logprobs,omitzero"`

	Other map[string]jsontext.Value `json:",embed"`
}

// Types of tools that translation maps.
const (
	functionTool  = "function"
	customTool    = "custom" // its input is a text
	namespaceTool = "namespace"
)

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name,omitzero"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
	Tools       []tool         `json:"tools,omitempty"` // of a namespace
	Format      jsontext.Value `json:"format,omitzero"` // of a custom tool's input
}

// Values of a response's status and of what made it incomplete.
const (
	statusRunning    = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"

	reasonLength = "max_output_tokens"
	reasonFilter = "content_filter"
)

// event is one event of a streamed answer; Type says which fields count.
type event struct {
	Type         string    `json:"type"`
	Response     *response `json:"response"`
	OutputIndex  int       `json:"output_index"`
	SummaryIndex int       `json:"summary_index"`
	Item         *item     `json:"item"`
	Delta        jsonText  `json:"delta"`

	// Of an error, which some vendors have in a member error.
	Code    jsontext.Value `json:"code"`
	Message string         `json:"message"`
	Error   jsontext.Value `json:"error"`
}

// response is an answer, as far as translation needs it.
type response struct {
	ID         string         `json:"id"`
	Model      string         `json:"model"`
	Status     string         `json:"status"`
	Error      jsontext.Value `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Output []item         `json:"output"`
	Usage  jsontext.Value `json:"usage"`
}
