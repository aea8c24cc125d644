package chat

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/copilot"
	"mneme/proxy/wire"
)

// body is what is read of a request. What is not here is ignored: the CLI has no
// place for sampling and limits of tokens.
type body struct {
	Model         string             `json:"model"`
	Messages      []wire.ChatMessage `json:"messages"`
	Tools         []wire.ChatTool    `json:"tools"`
	ToolChoice    jsontext.Value     `json:"tool_choice"`
	N             *float64           `json:"n"`
	Format        format             `json:"response_format"`
	Stream        bool               `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type format struct {
	Type string `json:"type"`
}

// noText returns the type of the first part that is not text, or "".
func noText(parts wire.ChatContent) string {
	for _, p := range parts {
		if p.Type != wire.TextBlock && p.Type != "refusal" {
			return p.Type
		}
	}
	return ""
}

// request is a body made ready.
type request struct {
	model    string
	system   string
	tools    []copilot.Tool
	setup    sum                // of the three
	messages []wire.ChatMessage // without the system prompt
	sums     []sum              // of said
	stream   bool
	tallied  bool // a stream is to end with its usage
}

// sum stands for a part of a request, whatever its layout.
type sum [sha256.Size]byte

func sumOf(v any) sum { return sha256.Sum256(encode(v)) }

// read makes a request of its bytes. Failures are a wire.Failure, or wrap
// wire.ErrBadJSON.
func read(b []byte) (*request, error) {
	var in body
	if err := wire.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	if in.N != nil && *in.N != 1 {
		return nil, wire.Refuse("n must be 1: the Copilot CLI gives one answer")
	}
	if in.Format.Type != "" && in.Format.Type != "text" {
		return nil, wire.Refuse("response_format %q cannot be had: the Copilot CLI answers with text", in.Format.Type)
	}
	r := &request{model: in.Model, stream: in.Stream, tallied: in.StreamOptions.IncludeUsage}
	for len(in.Messages) > 0 && wire.IsSystem(in.Messages[0].Role) {
		r.system = wire.Join("\n\n", r.system, in.Messages[0].Content.Text(""))
		in.Messages = in.Messages[1:]
	}
	r.messages = in.Messages
	if err := r.check(); err != nil {
		return nil, err
	}
	if string(in.ToolChoice) != `"none"` {
		if err := r.offer(in.Tools); err != nil {
			return nil, err
		}
	}
	r.setup = sumOf(struct {
		Model, System string
		Tools         []copilot.Tool
	}{r.model, string(wire.Fold([]byte(r.system))), r.tools})
	for _, m := range r.messages {
		r.sums = append(r.sums, sumOfMessage(m))
	}
	return r, nil
}

// check refuses what the CLI has no way to take.
func (r *request) check() error {
	for i, m := range r.messages {
		if !wire.IsSystem(m.Role) && !slices.Contains([]string{wire.RoleUser, wire.RoleAssistant, wire.RoleTool}, m.Role) {
			return wire.Refuse("messages: the role %q at place %d behind the system prompt is not known", m.Role, i)
		}
	}
	input := r.messages[r.answered():]
	if len(input) == 0 {
		return wire.Refuse("messages must end with the user's or with results of tools: the Copilot CLI cannot go on with " +
			"an answer that has begun")
	}
	silent := true
	for _, m := range input {
		if other := noText(m.Content); other != "" {
			return wire.Refuse("a part of type %q cannot be sent to this backend: the Copilot CLI is given text only", other)
		}
		silent = silent && m.Role != wire.RoleTool && strings.TrimSpace(m.Content.Text("")) == ""
	}
	if silent {
		return wire.Refuse("the last message says nothing: the Copilot CLI needs a prompt")
	}
	return nil
}

// answered is how many messages there are up to the last answer; behind it stands
// what is new.
func (r *request) answered() int {
	for i, m := range slices.Backward(r.messages) {
		if m.Role == wire.RoleAssistant {
			return i + 1
		}
	}
	return 0
}

func (r *request) offer(tools []wire.ChatTool) error {
	for i, t := range tools {
		if t.Type != "" && t.Type != "function" || t.Function.Name == "" {
			return wire.Refuse("tools[%d] is no function with a name: the Copilot CLI takes no other tools", i)
		}
		parameters := t.Function.Parameters
		if parameters.Kind() == 'n' {
			parameters = nil
		}
		r.tools = append(r.tools, copilot.Tool{Name: t.Function.Name, Description: t.Function.Description,
			Parameters: canonical(parameters)})
	}
	return nil
}

// sumOfMessage forgives a message the way its lines end, the spaces at their ends and how
// the JSON in it is written. Ids of calls are names, not content.
func sumOfMessage(m wire.ChatMessage) sum {
	type call struct{ Name, Arguments string }
	var calls []call
	for _, c := range m.ToolCalls {
		calls = append(calls, call{c.Function.Name, string(canonical(jsontext.Value(c.Function.Arguments)))})
	}
	role := m.Role
	if wire.IsSystem(role) {
		role = wire.RoleSystem
	}
	return sumOf(struct {
		Role, Text, Other string
		Calls             []call
	}{role, string(wire.Fold([]byte(m.Content.Text("")))), noText(m.Content), calls})
}

// canonical writes JSON in one way; what is none stays.
func canonical(v jsontext.Value) jsontext.Value {
	out := v.Clone()
	if out.Canonicalize(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return v
	}
	return out
}

// results gives what the input says of each call, by its id, if the input is
// nothing but results.
func (r *request) results() map[string]string {
	out := map[string]string{}
	for _, m := range r.messages[r.answered():] {
		if m.Role != wire.RoleTool {
			return nil
		}
		out[m.ToolCallID] = m.Content.Text("")
	}
	return out
}
