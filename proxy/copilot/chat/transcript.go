package chat

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// What the model reads around a record. A record is JSON, one message a line, so
// that no message can pretend to be another.
const (
	recordHead = "The conversation has been going on for a while. This is the record of it, oldest first, one JSON " +
		"object a line: " +
		"what the user said, what you answered, which tools you called and what they gave. Go on from its end as if you " +
		"remembered it, and do not speak of the record.\n"
	resultsHead = "The tools that you called last gave these results, one JSON object a line. Go on from there.\n"
	noResult    = "There is no result: the call was not answered."
)

// line is a message in a record.
type line struct {
	Role    string         `json:"role"`
	Text    string         `json:"text,omitzero"`
	Omitted string         `json:"left_out,omitzero"` // what was no text
	Calls   []recordedCall `json:"calls,omitempty"`
	Call    string         `json:"call,omitzero"` // that this is the result of
}

type recordedCall struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

func record(messages []wire.ChatMessage) string {
	var out strings.Builder
	for _, m := range messages {
		l := line{Role: m.Role, Text: m.Content.Text(""), Omitted: noText(m.Content), Call: m.ToolCallID}
		for _, c := range m.ToolCalls {
			arguments := jsontext.Value(c.Function.Arguments)
			if !arguments.IsValid() {
				arguments = wire.Quote(c.Function.Arguments)
			}
			l.Calls = append(l.Calls, recordedCall{c.ID, c.Function.Name, arguments})
		}
		out.Write(encode(l))
		out.WriteByte('\n')
	}
	return out.String()
}

// systemPrompt is the system prompt with a record of the first n messages.
func (r *request) systemPrompt(n int) string {
	if n == 0 {
		return r.system
	}
	return wire.Join("\n\n", r.system, recordHead+record(r.messages[:n]))
}

// prompt makes one prompt of the input: results of tools first, since they stand in
// front.
func (r *request) prompt() string {
	var results []wire.ChatMessage
	words := ""
	for _, m := range r.messages[r.answered():] {
		if m.Role == wire.RoleTool {
			results = append(results, m)
			continue
		}
		words = wire.Join("\n\n", words, strings.TrimSpace(m.Content.Text("")))
	}
	if len(results) > 0 {
		words = wire.Join("\n\n", resultsHead+record(results), words)
	}
	return words
}
