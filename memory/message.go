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
// apart from timestamp, from, source, pasted, partial, failure, finish_reason, metadata, images, citations, run and id it
// is the chat-completions message.
type Message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Timestamp  float64    `json:"timestamp"` // Unix seconds: the ts of the event that carried it
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Name       string     `json:"name,omitempty"` // of the tool whose result this is
	Origin
	// Pasted are the parts of a person's message that the client says were pasted; nil if it does not say. See Own.
	Pasted  []Span `json:"pasted,omitzero"`
	Partial bool   `json:"partial,omitempty"` // an answer that was stopped while it was shown
	Failure string `json:"failure,omitempty"` // code of the error that stands in place of an answer; see Repair
	// FinishReason is FinishLength or FinishFilter for an answer that its model did not complete, else empty.
	FinishReason string `json:"finish_reason,omitempty"`
	// Metadata is what the client said of its message; never sent to a model.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Images are those that came with it; its Content says that they were there, see WithImages. A model is never
	// sent them from here.
	Images []Image `json:"images,omitempty"`
	// Citations are what the markers in an answer stand for, each an event.Citation; never sent to a model.
	Citations json.RawMessage `json:"citations,omitempty"`
	// Run counts what the run took that ends with this message, an event.Record; never sent to a model.
	Run json.RawMessage `json:"run,omitempty"`
	ID  string          `json:"id,omitempty"` // see IDs; the last member, and never sent to a model
}

// Reasons why a model did not complete its answer.
const (
	FinishLength = "length" // the limit of tokens cut it
	FinishFilter = "content_filter"
)

// Stopped is the Failure of a run that was stopped before the first word of its answer.
const Stopped = "stopped"

// Failed returns the message that takes the place of an answer if the run failed with an error of this code.
func Failed(code string) Message {
	return Message{Role: RoleAssistant, Content: "(no answer: " + code + ")", Failure: code}
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
	b, err := EncodeJSON(m)
	if err != nil {
		// Strings, numbers and slices of them cannot fail; a timestamp that is
		// not a number can, and it never comes from an event.
		panic(fmt.Sprintf("memory: message does not encode: %v", err))
	}
	return b
}

// EncodeJSON returns the JSON of a value in one line. <, > and & stay as they are, for people and models.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON also reads what other programs store under the same keys: content
// that is null or a list of parts, ids that are numbers, arguments that are an
// object. What cannot be read as its field reads as nothing: one odd field must
// not cost a history. Only a message without a role is an error.
func (m *Message) UnmarshalJSON(b []byte) error {
	type plain Message
	var p plain
	if json.Unmarshal(b, &p) == nil && p.Role != "" { // as Encode writes it, in most cases
		*m = Message(p)
		if len(m.ID) > maxID || !only(m.ID, idByte) {
			m.ID = ""
		}
		for i := range m.ToolCalls {
			m.ToolCalls[i].Type = "function"
		}
		if len(m.ToolCalls) == 0 {
			m.ToolCalls = nil
		}
		return nil
	}
	var f map[string]json.RawMessage // what other writers may have put where Message has plain types
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	var role string
	if json.Unmarshal(f["role"], &role) != nil || role == "" {
		return fmt.Errorf("a message needs a role, this has none: %s", clip(string(b)))
	}
	*m = Message{Role: role, Content: text(f["content"]), ToolCallID: text(f["tool_call_id"]), Name: text(f["name"]),
		Origin: Origin{Authority(text(f["from"])), text(f["source"])}, Failure: text(f["failure"]),
		FinishReason: text(f["finish_reason"]), Citations: f["citations"], Run: f["run"]}
	// Of what is absent or of another type, nothing is read.
	_ = json.Unmarshal(f["timestamp"], &m.Timestamp)
	_ = json.Unmarshal(f["partial"], &m.Partial)
	if json.Unmarshal(f["metadata"], &m.Metadata) != nil {
		m.Metadata = nil
	}
	if json.Unmarshal(f["pasted"], &m.Pasted) != nil {
		m.Pasted = nil
	}
	if json.Unmarshal(f["images"], &m.Images) != nil {
		m.Images = nil
	}
	m.ID = readID(f["id"])
	var calls []foreignCall
	_ = json.Unmarshal(f["tool_calls"], &calls)
	for _, c := range calls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{
			ID: text(c.ID), Type: "function",
			Function: FunctionCall{Name: text(c.Function.Name), Arguments: text(c.Function.Arguments)},
		})
	}
	return nil
}

// foreignCall is a tool call of which nothing is certain but its keys.
type foreignCall struct {
	ID       json.RawMessage `json:"id"`
	Function struct {
		Name      json.RawMessage `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// text flattens a field: a string as it is, the text of a list of parts, null as
// nothing, anything else as its JSON.
func text(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, p := range parts {
		var part struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(p, &s) == nil {
			part.Text = s
		} else {
			_ = json.Unmarshal(p, &part) // a part without text, an image say, says nothing here
		}
		b.WriteString(part.Text)
	}
	return b.String()
}
