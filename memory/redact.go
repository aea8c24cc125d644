package memory

import "encoding/json"

// RedactedText stands where a text was taken away.
const RedactedText = "(redacted)"

// Redacted is a stored message without what it says: its content, the arguments of its tool calls, and the
// name of who spoke. What orders it stays: the role, the time, its id, which is given, and what ties tool calls
// and their results together, so that a model takes the history as before. A message that is redacted stays as
// it is, byte for byte.
func Redacted(raw json.RawMessage, id string) (json.RawMessage, error) {
	messages, err := Decode([]json.RawMessage{raw})
	if err != nil {
		return nil, err
	}
	m := messages[0]
	if m.Content != "" {
		m.Content = RedactedText
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].Function.Arguments = "{}"
	}
	if m.Role != RoleTool {
		m.Name = ""
	}
	m.ID = id
	return m.Encode(), nil
}

// Texts are what a message says.
func (m Message) Texts() []string {
	all := []string{m.Content}
	for _, call := range m.ToolCalls {
		all = append(all, call.Function.Arguments)
	}
	return all
}
