package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Roles of a message in a history.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one entry of a history. Its JSON is the format stored in Redis;
// apart from timestamp and partial it is the chat-completions message.
type Message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Timestamp  float64    `json:"timestamp"` // Unix seconds: the ts of the event that carried it
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Name       string     `json:"name,omitempty"`    // of the tool whose result this is
	Partial    bool       `json:"partial,omitempty"` // an answer that was stopped while it was shown
}

// ToolCall is a model's request to run a function.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"` // always "function"
	Function FunctionCall `json:"function"`
}

// FunctionCall is the function's name and its arguments, a JSON object as text.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Encode gives the bytes that are stored: one line, no HTML escaping. Equal
// messages have equal bytes, which is what makes a replayed append a duplicate.
func (m Message) Encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		// Strings, numbers and slices of them cannot fail; a timestamp that is
		// not a number can, and it never comes from an event.
		panic(fmt.Sprintf("memory: message does not encode: %v", err))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// foreign is what other writers may have put where Message has plain types.
type foreign struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Timestamp  json.RawMessage `json:"timestamp"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	Name       string          `json:"name"`
	Partial    bool            `json:"partial"`
}

// UnmarshalJSON also reads what other programs store under the same keys:
// content that is null or a list of parts, a timestamp that is text. A message
// without a role is an error.
func (m *Message) UnmarshalJSON(b []byte) error {
	var f foreign
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if f.Role == "" {
		return fmt.Errorf("a message needs a role, this has none: %s", clip(string(b)))
	}
	*m = Message{Role: f.Role, Content: text(f.Content), ToolCallID: f.ToolCallID, Name: f.Name, Partial: f.Partial}
	// Neither field is worth losing a history for: a time that is not a number
	// reads as 0, calls that are not a list read as none.
	_ = json.Unmarshal(f.Timestamp, &m.Timestamp)
	if json.Unmarshal(f.ToolCalls, &m.ToolCalls) != nil {
		m.ToolCalls = nil
	}
	return nil
}

// text flattens a content field: a string as it is, the text of a list of
// parts, null as nothing, anything else as its JSON.
func text(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
