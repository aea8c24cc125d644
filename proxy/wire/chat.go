package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ChatMessage is one message of a request of the chat dialect.
type ChatMessage struct {
	Role       string      `json:"role"`
	Name       string      `json:"name,omitzero"`
	Content    ChatContent `json:"content"`
	Refusal    string      `json:"refusal,omitzero"`
	ToolCalls  []ChatCall  `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitzero"`
}

// ChatContent is a list of parts. In JSON a single text part is a string, and nil is null.
type ChatContent []ChatPart

// ChatPart is one part of a content.
type ChatPart struct {
	Type     string     `json:"type"` // text, image_url, file, refusal
	Text     string     `json:"text,omitzero"`
	Refusal  string     `json:"refusal,omitzero"`
	ImageURL *ChatImage `json:"image_url,omitzero"`
	File     *ChatFile  `json:"file,omitzero"`
}

// ChatFile is the file of a part.
type ChatFile struct {
	Name string `json:"filename,omitzero"`
	Data string `json:"file_data,omitzero"` // a data: URL, or an address
	ID   string `json:"file_id,omitzero"`
}

// ChatImage is the image of a part.
type ChatImage struct {
	URL string `json:"url"`
}

// ChatText is a content of one text.
func ChatText(s string) ChatContent { return ChatContent{{Type: TextBlock, Text: s}} }

// UnmarshalJSONFrom reads a string as one text part, and a list as parts.
func (c *ChatContent) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		*c = ChatContent{{Type: TextBlock}}
		return json.UnmarshalDecode(d, &(*c)[0].Text)
	}
	return json.UnmarshalDecode(d, (*[]ChatPart)(c))
}

// MarshalJSONTo writes a single text part as a string, and nil as null.
func (c ChatContent) MarshalJSONTo(e *jsontext.Encoder) error {
	switch {
	case c == nil:
		return e.WriteToken(jsontext.Null)
	case len(c) == 1 && c[0].Type == TextBlock:
		return json.MarshalEncode(e, c[0].Text)
	}
	return json.MarshalEncode(e, []ChatPart(c))
}

// Text joins the texts and refusals of c.
func (c ChatContent) Text(between string) string {
	return JoinTexts(c, between, func(p ChatPart) string { return p.Text + p.Refusal })
}

// ChatTool is a tool, or a choice of one.
type ChatTool struct {
	Type     string       `json:"type"`
	Function ChatFunction `json:"function"`
	Custom   *ChatCustom  `json:"custom,omitzero"`
}

// Name is the name of a tool.
func (t ChatTool) Name() string {
	if t.Custom != nil {
		return t.Custom.Name
	}
	return t.Function.Name
}

// ChatCustom is a custom tool, or a choice or a call of one.
type ChatCustom struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Format      jsontext.Value `json:"format,omitzero"`
	Input       string         `json:"input,omitzero"`
}

// ChatFunction is a tool with arguments in JSON.
type ChatFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      bool           `json:"strict,omitzero"`
}

// ChatCall is a tool call of an assistant's message, or a piece of one in a chunk.
type ChatCall struct {
	Index    *int        `json:"index,omitzero"` // in chunks only
	ID       string      `json:"id,omitzero"`
	Type     string      `json:"type,omitzero"`
	Function ChatCalled  `json:"function"`
	Custom   *ChatCustom `json:"custom,omitzero"`
}

// ChatCalled is a called function.
type ChatCalled struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"` // JSON
}
