package wire

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Roles of a message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"    // legal inside messages too
	RoleDeveloper = "developer" // in chat completions, the newer name of system
	RoleTool      = "tool"      // in chat completions, of a tool's result
)

// IsSystem reports whether messages of a role instruct the model, in either dialect.
func IsSystem(role string) bool { return role == RoleSystem || role == RoleDeveloper }

// Block types that translation knows.
const (
	TextBlock       = "text"
	ImageBlock      = "image"
	DocumentBlock   = "document"
	ThinkingBlock   = "thinking"
	RedactedBlock   = "redacted_thinking"
	ToolUseBlock    = "tool_use"
	ToolResultBlock = "tool_result"
)

// LostThinking is the text that stands for thinking that is not known. Some models refuse an empty text as they do a
// missing one: Kimi K2.5 and K2.6 (https://github.com/theopenco/llmgateway/pull/2093) and DeepSeek V4 Pro
// (https://github.com/NousResearch/hermes-agent/pull/18263). One space passes with all of both vendors.
const LostThinking = " "

// IsThinking reports whether blocks of a type hold a model's thinking.
func IsThinking(block string) bool { return block == ThinkingBlock || block == RedactedBlock }

// Values of stop_reason.
const (
	StopEndTurn   = "end_turn"
	StopMaxTokens = "max_tokens"
	StopToolUse   = "tool_use"
	StopRefusal   = "refusal"
	StopWindow    = "model_context_window_exceeded"
	StopStopped   = "stopped" // by somebody, which no vendor says
)

// Request is a request of the messages dialect, as far as translation needs it.
type Request struct {
	Model         string         `json:"model"`
	MaxTokens     int64          `json:"max_tokens"`
	System        Content        `json:"system,omitempty"`
	Messages      []Message      `json:"messages"`
	Tools         []Tool         `json:"tools,omitempty"`
	ToolChoice    *ToolChoice    `json:"tool_choice,omitzero"`
	Thinking      *Thinking      `json:"thinking,omitzero"`
	Temperature   jsontext.Value `json:"temperature,omitzero"`
	TopP          jsontext.Value `json:"top_p,omitzero"`
	StopSequences []string       `json:"stop_sequences,omitempty"`
	Stream        bool           `json:"stream,omitzero"`
	Metadata      *Metadata      `json:"metadata,omitzero"`

	// Other holds all remaining members.
	Other map[string]jsontext.Value `json:",embed"`
}

// Message is one message of a conversation.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
	// OutputConfig is the effort from a system message on, see
	// https://platform.claude.com/docs/en/build-with-claude/effort-per-message.
	OutputConfig jsontext.Value `json:"output_config,omitzero"`
}

// Content is a list of blocks. In JSON a string stands for one text block.
type Content []Block

// Text joins the texts of the blocks.
func (c Content) Text(between string) string {
	return JoinTexts(c, between, func(b Block) string { return b.Text })
}

// JoinTexts joins the texts of parts. It omits empty texts.
func JoinTexts[P any](parts []P, between string, text func(P) string) string {
	var words []string
	for _, p := range parts {
		if s := text(p); s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, between)
}

// UnmarshalJSONFrom reads a string, null, a list of blocks or, as results of some tools that a vendor runs have it, one
// block. It reads from the decoder and not from bytes, so that nested content is scanned once.
func (c *Content) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		var s string
		if err := json.UnmarshalDecode(d, &s); err != nil {
			return err
		}
		*c = nil
		if s != "" {
			*c = Content{{Type: TextBlock, Text: s}}
		}
		return nil
	}
	if d.PeekKind() == '{' {
		*c = make(Content, 1)
		return json.UnmarshalDecode(d, &(*c)[0])
	}
	return json.UnmarshalDecode(d, (*[]Block)(c))
}

// Block is a part of a message's content; Type says which fields count.
type Block struct {
	Type string `json:"type"`

	Text string `json:"text,omitzero"`

	Thinking  string `json:"thinking,omitzero"`
	Signature string `json:"signature,omitzero"`
	Data      string `json:"data,omitzero"` // of redacted thinking

	ID    string         `json:"id,omitzero"` // of a tool use
	Name  string         `json:"name,omitzero"`
	Input jsontext.Value `json:"input,omitzero"`

	ToolUseID string  `json:"tool_use_id,omitzero"` // of a tool result
	Content   Content `json:"content,omitempty"`
	IsError   bool    `json:"is_error,omitzero"`

	Source *Source `json:"source,omitzero"` // of an image or a document
	Title  string  `json:"title,omitzero"`  // of a document

	Raw jsontext.Value `json:"-"` // the block that ReadEvent has read, in the event's memory
}

// MarshalJSONTo writes the members that a block of its type must have, even if they are empty.
func (b Block) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(b.append(e.AvailableBuffer()))
}

// append appends the JSON of a block: of a text, of thinking and of a tool use, which are most of what there is, without
// the cost of reflection.
func (b Block) append(dst []byte) []byte {
	switch b.Type {
	case TextBlock:
		dst = appendQuote(append(dst, `{"type":"text","text":`...), b.Text)
	case ThinkingBlock:
		dst = appendQuote(append(dst, `{"type":"thinking","thinking":`...), b.Thinking)
		dst = appendQuote(append(dst, `,"signature":`...), b.Signature)
	case ToolUseBlock:
		dst = appendQuote(append(dst, `{"type":"tool_use","id":`...), b.ID)
		dst = appendQuote(append(dst, `,"name":`...), b.Name)
		dst = append(append(dst, `,"input":`...), orEmptyObject(b.Input)...)
	default:
		type plain Block
		other, _ := Marshal(plain(b)) // what is raw in it was read before
		return append(dst, other...)
	}
	return append(dst, '}')
}

// Arguments returns the input of a tool use as compact JSON, an empty object without one.
func (b Block) Arguments() jsontext.Value {
	input := orEmptyObject(b.Input).Clone()
	_ = input.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) // it was read before
	return input
}

// SourceKind returns the type of a block. If the block has a source, a slash and the type of the source follow.
func (b Block) SourceKind() string {
	if b.Source == nil {
		return b.Type
	}
	return b.Type + "/" + b.Source.Type
}

// InputObject makes a tool's input of arguments given as text. Models may write arguments that are
// not a JSON object. These are kept as the only member, "_arguments", of an object, so that the
// conversation can go on.
func InputObject(arguments string) jsontext.Value {
	v := jsontext.Value(arguments)
	switch {
	case strings.TrimSpace(arguments) == "":
		return jsontext.Value("{}")
	case v.Kind() == '{' && v.IsValid(lenient):
		return v
	}
	return jsontext.Value(`{"_arguments":` + string(Quote(arguments)) + `}`)
}

func orEmptyObject(v jsontext.Value) jsontext.Value {
	if len(v) == 0 {
		return jsontext.Value("{}")
	}
	return v
}

// Source is the content of an image or a document, or its address.
type Source struct {
	Type      string `json:"type"` // base64, url, text
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
}

// Address is the address of s, or a data: URL that holds it.
func (s Source) Address() string {
	if s.Type == "url" {
		return s.URL
	}
	return "data:" + s.MediaType + ";base64," + s.Data
}

// UnmarshalJSONFrom reads an object, or the text that names the source of a search result.
func (s *Source) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, &s.URL)
	}
	type plain Source
	return json.UnmarshalDecode(d, (*plain)(s))
}

// Tool is a function that the model may call. A Type other than "" and "custom" names a tool of Anthropic's, see
// Function.
type Tool struct {
	Type        string         `json:"type,omitzero"`
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	InputSchema jsontext.Value `json:"input_schema,omitzero"`
	Strict      bool           `json:"strict,omitzero"` // calls keep to the schema

	// Other holds all remaining members.
	Other map[string]jsontext.Value `json:",embed"`
}

// ToolChoice says whether tools may or must be called.
type ToolChoice struct {
	Type            string `json:"type"` // auto, any, tool, none
	Name            string `json:"name,omitzero"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitzero"`
}

// OpenAIChoice returns the choice of a tool as OpenAI's APIs have it, with their parallel_tool_calls. named is their
// object for a tool.
func (r *Request) OpenAIChoice(named func(tool string) any) (choice jsontext.Value, parallel *bool, err error) {
	c := r.ToolChoice
	if len(r.Tools) == 0 || c == nil {
		return nil, nil, nil
	}
	if c.DisableParallel {
		parallel = new(false)
	}
	switch c.Type {
	case "auto", "none":
		return Quote(c.Type), parallel, nil
	case "any":
		return Quote("required"), parallel, nil
	case "tool":
		choice, err = Marshal(named(c.Name))
		return choice, parallel, err
	}
	return nil, nil, Refuse("tool_choice.type %q is none of auto, any, tool, none", c.Type)
}

// Thinking is the request's setting for thinking.
type Thinking struct {
	Type         string `json:"type"` // enabled, adaptive, disabled
	BudgetTokens int64  `json:"budget_tokens,omitzero"`
}

// Metadata identifies the user of a request.
type Metadata struct {
	UserID string `json:"user_id,omitzero"`
}

// Usage counts tokens. InputTokens does not include those read from and written to the vendor's
// cache.
type Usage struct {
	InputTokens   int64 `json:"input_tokens"`
	OutputTokens  int64 `json:"output_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens,omitzero"`
	CacheRead     int64 `json:"cache_read_input_tokens,omitzero"`

	OutputDetails OutputDetails `json:"output_tokens_details,omitzero"`
}

// OutputDetails says how many of the output tokens are thinking.
type OutputDetails struct {
	ThinkingTokens int64 `json:"thinking_tokens"`
}

// Update takes over the counts that u has, because later events of a stream repeat only some of
// them.
func (c *Usage) Update(u Usage) {
	for _, p := range []struct{ dst, src *int64 }{
		{&c.InputTokens, &u.InputTokens}, {&c.OutputTokens, &u.OutputTokens},
		{&c.CacheCreation, &u.CacheCreation}, {&c.CacheRead, &u.CacheRead},
		{&c.OutputDetails.ThinkingTokens, &u.OutputDetails.ThinkingTokens},
	} {
		if *p.src != 0 {
			*p.dst = *p.src
		}
	}
}

func (c Usage) append(dst []byte) []byte {
	b, _ := Marshal(c) // numbers always encode
	return append(dst, b...)
}

// Response is an answer that is not streamed, or, without content, the head of
// one that is.
type Response struct {
	ID           string     `json:"id"`
	Type         string     `json:"type"`
	Role         string     `json:"role"`
	Model        string     `json:"model"`
	Content      Content    `json:"content"`
	StopReason   NullString `json:"stop_reason"`
	StopSequence NullString `json:"stop_sequence"`
	Usage        Usage      `json:"usage"`
}

// append appends the JSON of an answer with blocks that are JSON.
func (r *Response) append(dst, content []byte) []byte {
	dst = appendQuote(append(slices.Grow(dst, 256+len(content)), `{"id":`...), r.ID)
	dst = appendQuote(append(dst, `,"type":`...), r.Type)
	dst = appendQuote(append(dst, `,"role":`...), r.Role)
	dst = appendQuote(append(dst, `,"model":`...), r.Model)
	dst = r.StopReason.append(append(append(append(dst, `,"content":`...), content...), `,"stop_reason":`...))
	dst = r.StopSequence.append(append(dst, `,"stop_sequence":`...))
	return append(r.Usage.append(append(dst, `,"usage":`...)), '}')
}

// NullString is a string that is null in JSON when it is empty.
type NullString string

// MarshalJSONTo writes null for the empty string.
func (s NullString) MarshalJSONTo(e *jsontext.Encoder) error {
	if s == "" {
		return e.WriteToken(jsontext.Null)
	}
	return e.WriteToken(jsontext.String(string(s)))
}

func (s NullString) append(dst []byte) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendQuote(dst, string(s))
}

// AnswerTool is the tool that a model without a format of its own is made to answer by, with its description.
const (
	AnswerTool     = "answer_in_json"
	AnswerToolSays = "Gives the answer to the user: its input is the whole answer. Call it once, in place of writing a " +
		"text."
)
