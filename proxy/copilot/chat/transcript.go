package chat

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// What the model reads around a record. A record is JSON, one message a line, so
// that no message can pretend to be another.
const (
	recordHead = "The conversation has been going on for a while. This is the record of it, oldest first, one JSON object a line: " +
		"what the user said, what you answered, which tools you called and what they gave. Go on from its end as if you remembered it, and do not speak of the record.\n"
	resultsHead = "The tools that you called last gave these results, one JSON object a line. Go on from there.\n"
	noResult    = "There is no result: the call was not answered."
)

// line is a message in a record.
type line struct {
	Role  string `json:"role"`
	Text  string `json:"text,omitzero"`
	Left  string `json:"left_out,omitzero"` // what was no text
	Calls []call `json:"calls,omitempty"`
	Call  string `json:"call,omitzero"` // that this is the result of
}

type call struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

func record(messages []message) string {
	var out strings.Builder
	for _, m := range messages {
		l := line{Role: m.Role, Text: m.Content.text, Left: m.Content.other, Call: m.ToolCallID}
		for _, c := range m.ToolCalls {
			arguments := jsontext.Value(c.Function.Arguments)
			if !arguments.IsValid() {
				arguments = wire.Quote(c.Function.Arguments)
			}
			l.Calls = append(l.Calls, call{c.ID, c.Function.Name, arguments})
		}
		b, err := wire.Marshal(l)
		if err != nil { // strings and checked JSON always encode
			panic(err)
		}
		out.Write(b)
		out.WriteByte('\n')
	}
	return out.String()
}

// replay is what a fresh session is told of a request: the system prompt with the
// record of the earlier turns, if there are any, and the prompt.
func (r *request) replay() (system, prompt string) {
	answered := r.answered()
	system = r.system
	if answered > 0 {
		system = join(system, recordHead+record(r.said[:answered]))
	}
	return system, prompted(r.said[answered:])
}

// prompted makes one prompt of the input: results of tools first, since they stand
// in front.
func prompted(input []message) string {
	var results []message
	words := ""
	for _, m := range input {
		if m.Role == roleTool {
			results = append(results, m)
			continue
		}
		words = join(words, strings.TrimSpace(m.Content.text))
	}
	if len(results) == 0 {
		return words
	}
	return join(resultsHead+record(results), words)
}
