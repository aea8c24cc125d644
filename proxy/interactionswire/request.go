package interactionswire

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// InteractionsRequest translates a request of the messages dialect. What MessagesAnswer has kept of steps comes back as
// it was. A call of another vendor's has no signature of this one, which refuses such a call since the user spoke last:
// there it is told in words, with what it gave. Errors are wire.Failures of status 400, and those of wire.Unmarshal.
func InteractionsRequest(body []byte) (t chatwire.Translated, err error) {
	var in wire.Request
	if err := wire.Unmarshal(body, &in); err != nil {
		return t, err
	}
	out := request{Model: in.Model, Stream: in.Stream, System: in.System.Text("\n\n")}
	if out.Config, out.Format, err = config(in); err != nil {
		return t, err
	}
	if t.Ignored, err = chatwire.Unmapped(&in); err != nil {
		return t, err
	}
	t.Ignored = append(t.Ignored, chatwire.DroppedMembers(map[string]bool{
		"temperature": len(in.Temperature) > 0, "top_p": len(in.TopP) > 0,
		"tool_choice.disable_parallel_tool_use": in.ToolChoice != nil && in.ToolChoice.DisableParallel,
		"tools.strict":                          slices.ContainsFunc(in.Tools, func(o wire.Tool) bool { return o.Strict }),
	})...)
	slices.Sort(t.Ignored)
	for _, o := range in.Tools {
		out.Tools = append(out.Tools, tool{"function", o.Name, o.Description, o.InputSchema})
	}
	s := steps{names: map[string]string{}, callTexts: map[string]string{}}
	for i, m := range in.Messages {
		if m.Role == wire.RoleUser && slices.ContainsFunc(m.Content, isUserBlock) {
			s.lastUser = i
		}
	}
	for i, m := range in.Messages {
		if err := s.message(i, m); err != nil {
			return t, wire.Refuse("messages[%d]: %v", i, err)
		}
	}
	if out.Input = s.out; len(out.Input) == 0 {
		return t, wire.Refuse("messages must hold at least one message with content")
	}
	t.IncludeUsage = true
	t.Body, err = wire.Marshal(out)
	return t, err
}

// isUserBlock reports whether a block of a user message is not a tool result.
func isUserBlock(b wire.Block) bool { return b.Type != wire.ToolResultBlock }

// config translates how the model is to answer, and takes what it reads out of the members that have no counterpart.
func config(in wire.Request) (*generationConfig, jsontext.Value, error) {
	c := generationConfig{MaxTokens: in.MaxTokens, Stop: in.StopSequences,
		Level: gjson.GetBytes(in.Other["output_config"], "effort").Str}
	if in.Thinking != nil && in.Thinking.Type != "disabled" {
		c.Summaries = "auto"
	}
	if len(in.Tools) > 0 && in.ToolChoice != nil {
		switch kind := in.ToolChoice.Type; kind {
		case "auto", "any", "none":
			c.ToolChoice = wire.Quote(kind)
		case "tool":
			c.ToolChoice = slices.Concat([]byte(`{"allowed_tools":{"mode":"any","tools":[`), wire.Quote(in.ToolChoice.Name),
				[]byte("]}}"))
		default:
			return nil, nil, wire.Refuse("tool_choice.type %q is none of auto, any, tool, none", kind)
		}
	}
	schema, err := chatwire.SchemaOf(in.Other, "effort")
	if schema == nil {
		return &c, nil, err
	}
	return &c, slices.Concat([]byte(`{"type":"text","mime_type":"application/json","schema":`), schema, []byte("}")), nil
}

// steps translates messages.
type steps struct {
	out       []jsontext.Value
	lastUser  int               // index of the user's latest message
	names     map[string]string // of called tools, by the ids of the calls
	callTexts map[string]string // what the calls were that are told in words, by their ids
}

func (s *steps) add(added step) {
	v, _ := wire.Marshal(added) // what is raw in it was read before
	s.out = append(s.out, v)
}

func (s *steps) message(i int, m wire.Message) error {
	switch m.Role {
	case wire.RoleSystem: // there is no such step
		s.add(step{Type: userStep, Content: []content{{Type: wire.TextBlock, Text: m.Content.Text("\n\n")}}})
	case wire.RoleUser:
		s.user(m.Content)
	case wire.RoleAssistant:
		s.assistant(m.Content, i > s.lastUser)
	default:
		return wire.Refuse("its role %q is none of user, assistant, system", m.Role)
	}
	return nil
}

// user puts results first, directly behind the calls. A result has texts and images; what else is in it follows.
func (s *steps) user(blocks wire.Content) {
	var inlined, others []content
	for _, b := range blocks {
		if isUserBlock(b) {
			others = append(others, contentOf(b))
			continue
		}
		var parts []content
		text := true
		for _, inner := range b.Content {
			c := contentOf(inner)
			if c.Type == wire.DocumentBlock {
				others = append(others, c)
				continue
			}
			parts, text = append(parts, c), text && c.Type == wire.TextBlock
		}
		if words, ok := s.callTexts[b.ToolUseID]; ok {
			if inlined = append(inlined, content{Type: wire.TextBlock, Text: words}); b.IsError {
				inlined[len(inlined)-1].Text += " (error)"
			}
			inlined = append(inlined, parts...)
			continue
		}
		r := step{Type: resultStep, CallID: b.ToolUseID, Name: s.names[b.ToolUseID], IsError: b.IsError}
		if r.Result, _ = wire.Marshal(parts); text {
			r.Result = wire.Quote(joined(parts, "\n"))
		}
		s.add(r)
	}
	if contents := append(inlined, others...); len(contents) > 0 {
		s.add(step{Type: userStep, Content: contents})
	}
}

// assistant gives thoughts back as they came; others are left out. Since: the user spoke last before it.
func (s *steps) assistant(blocks wire.Content, afterUser bool) {
	for i, b := range blocks {
		switch b.Type {
		case wire.TextBlock:
			if b.Text != "" {
				s.add(step{Type: outputStep, Content: []content{{Type: wire.TextBlock, Text: b.Text}}})
			}
		case wire.ToolUseBlock:
			s.call(b, unsealStep(blocks[i+1:], callStep), afterUser)
		case wire.ThinkingBlock, wire.RedactedBlock:
			if v := unsealStep(blocks[i:], thoughtStep); v != nil {
				s.out = append(s.out, v)
			}
		default:
			s.add(step{Type: outputStep, Content: []content{{Type: wire.TextBlock, Text: b.StandIn()}}})
		}
	}
}

// unsealStep is what the first of blocks seals of a step of a type; nil for nothing.
func unsealStep(blocks wire.Content, kind string) jsontext.Value {
	if len(blocks) == 0 || blocks[0].Type != wire.ThinkingBlock {
		return nil
	}
	v, ok := wire.Unseal(blocks[0].Signature)
	if !ok || gjson.GetBytes(v, "type").Str != kind {
		return nil
	}
	return v
}

// call translates a call; is has the members of one of this vendor's that its block does not have.
func (s *steps) call(b wire.Block, is jsontext.Value, afterUser bool) {
	if is == nil && afterUser {
		s.callTexts[b.ID] = "The tool " + b.Name + " was called with " + string(b.Arguments()) + " and gave:"
		return
	}
	s.names[b.ID] = b.Name
	s.add(step{Type: callStep, ID: b.ID, Name: b.Name, Arguments: b.Arguments()})
	last := &s.out[len(s.out)-1]
	*last = wire.Merged(*last, is)
}

func contentOf(b wire.Block) content {
	switch b.SourceKind() {
	case wire.TextBlock:
		return content{Type: wire.TextBlock, Text: b.Text}
	case wire.DocumentBlock + "/text":
		return content{Type: wire.TextBlock, Text: b.Source.Data}
	case wire.ImageBlock + "/base64", wire.DocumentBlock + "/base64":
		return content{Type: b.Type, Data: b.Source.Data, Mime: b.Source.MediaType}
	case wire.ImageBlock + "/url":
		return content{Type: wire.ImageBlock, URI: b.Source.URL}
	case wire.DocumentBlock + "/url":
		return content{Type: wire.DocumentBlock, URI: b.Source.URL, Mime: "application/pdf"}
	}
	return content{Type: wire.TextBlock, Text: b.StandIn()}
}

func joined(parts []content, between string) string {
	return wire.JoinTexts(parts, between, func(c content) string { return c.Text })
}
