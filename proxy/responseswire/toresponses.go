package responseswire

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// encryptedReasoning is what an answer must include for its reasoning to go back without being stored.
const encryptedReasoning = "reasoning.encrypted_content"

// minOutput is the smallest max_output_tokens that vendors accept.
const minOutput = 16

// ResponsesRequest translates a request of the messages dialect. Nothing is stored at the vendor. What MessagesAnswer
// has kept of items comes back as it was, as far as the vendor takes it, see mend. Errors are those of MessagesRequest.
func ResponsesRequest(body []byte, _ chatwire.Options) (chatwire.Translated, error) {
	o, in, ignored, err := parameters(body)
	if err != nil {
		return chatwire.Translated{}, err
	}
	inputs, err := new(items).convert(in.Messages)
	if err != nil {
		return chatwire.Translated{}, err
	}
	t := chatwire.Translated{Ignored: ignored, IncludeUsage: true}
	t.Body = wire.Splice(o.Body, o.Members.Get("input"), wire.Array(mend(inputs, false)))
	return t, nil
}

// parameters translates all of a request but its messages.
func parameters(body []byte) (o *wire.Outline, in wire.Request, ignored []string, err error) {
	if err := wire.Unmarshal(body, &in); err != nil {
		return nil, in, nil, err
	}
	out := request{Model: in.Model, Stream: in.Stream, Input: input{}, Store: new(bool),
		Include: []string{encryptedReasoning}}
	if s := in.System.Text("\n\n"); s != "" {
		out.Instructions = &s
	}
	if out.Temperature, err = chatwire.Float("temperature", in.Temperature); err != nil {
		return nil, in, nil, err
	}
	if out.TopP, err = chatwire.Float("top_p", in.TopP); err != nil {
		return nil, in, nil, err
	}
	if out.Text, out.Reasoning, err = config(in); err != nil {
		return nil, in, nil, err
	}
	if ignored, err = chatwire.Unmapped(&in); err != nil {
		return nil, in, nil, err
	}
	if len(in.StopSequences) > 0 {
		ignored = append(ignored, "stop_sequences")
	}
	if in.MaxTokens > 0 {
		out.MaxOutputTokens = new(max(in.MaxTokens, minOutput))
	}
	for _, t := range in.Tools {
		out.Tools = append(out.Tools, tool{Type: functionTool, Name: t.Name, Description: t.Description,
			Parameters: t.InputSchema, Strict: new(t.Strict)}) // without it a vendor is strict
	}
	out.ToolChoice, out.ParallelToolCalls, err = in.OpenAIChoice(func(name string) any {
		return tool{Type: functionTool, Name: name}
	})
	if err != nil {
		return nil, in, nil, err
	}
	translation, err := wire.Marshal(out)
	if err != nil {
		return nil, in, nil, err
	}
	o, err = wire.ReadOutline(translation)
	return o, in, ignored, err
}

// config reads the form of the answer and how the model is to think, and takes what it reads out of the members that
// have no counterpart. A summary of its thoughts is asked for if the client turned thinking on. The effort is the last
// hop's, which knows what the model takes.
func config(in wire.Request) (*textConfig, *reasoning, error) {
	r := reasoning{Effort: gjson.GetBytes(in.Other["output_config"], "effort").Str}
	schema, err := chatwire.SchemaOf(in.Other, "effort")
	if in.Thinking != nil && in.Thinking.Type != "disabled" {
		r.Summary = "auto"
	}
	how := &r
	if r == (reasoning{}) {
		how = nil
	}
	if schema == nil {
		return nil, how, err
	}
	return &textConfig{Format: &format{Type: "json_schema", Name: wire.AnswerTool, Schema: schema,
		Strict: new(chatwire.Strict(schema))}}, how, nil
}

// items translates messages.
type items struct {
	names  map[string]ToolName // of tools that the client calls otherwise than the model; nil for none
	custom []string            // ids of the calls of custom tools
}

func (t *items) convert(messages []wire.Message) ([]jsontext.Value, error) {
	var out []jsontext.Value
	for i, m := range messages {
		added, err := t.message(m)
		if err != nil {
			return nil, wire.Refuse("messages[%d]: %v", i, err)
		}
		out = append(out, added...)
	}
	if len(out) == 0 {
		return nil, wire.Refuse("messages must hold at least one message with content")
	}
	return out, nil
}

func (t *items) message(m wire.Message) (out []jsontext.Value, err error) {
	var added []item
	switch m.Role {
	case wire.RoleSystem:
		added = []item{{Type: messageItem, Role: wire.RoleDeveloper,
			Content: content{{Type: inputText, Text: m.Content.Text("\n\n")}}}}
	case wire.RoleUser:
		added = t.userItems(m.Content)
	case wire.RoleAssistant:
		return t.assistantItems(m.Content)
	default:
		err = wire.Refuse("its role %q is none of user, assistant, system", m.Role)
	}
	for _, it := range added {
		v, err := wire.Marshal(it)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, err
}

// userItems puts results of tools first, directly behind the calls.
func (t *items) userItems(blocks wire.Content) []item {
	var results []item
	var userParts content
	for _, b := range blocks {
		if b.Type != wire.ToolResultBlock {
			userParts = append(userParts, userPart(b))
			continue
		}
		parts := content{} // an output without any is an empty text
		for _, inner := range b.Content {
			parts = append(parts, userPart(inner))
		}
		if b.IsError {
			parts = append(content{{Type: inputText, Text: "(error)"}}, parts...)
		}
		kind := resultItem
		if slices.Contains(t.custom, b.ToolUseID) {
			kind = customResultItem
		}
		results = append(results, item{Type: kind, CallID: b.ToolUseID, Output: new(compact(parts))})
	}
	if len(userParts) == 0 {
		return results
	}
	return append(results, item{Type: messageItem, Role: wire.RoleUser, Content: userParts})
}

// compact makes one string of parts that are all text, as most tools give.
func compact(parts content) content {
	if slices.ContainsFunc(parts, func(p part) bool { return p.Type != inputText }) {
		return parts
	}
	return content{{Text: parts.text("\n")}}
}

func userPart(b wire.Block) part {
	switch b.SourceKind() {
	case wire.TextBlock:
		var own part
		if v, ok := wire.Unseal(b.Text); ok && wire.Unmarshal(v, &own) == nil {
			return own // a part of this dialect alone, in a message that was joined with another
		}
		return part{Type: inputText, Text: b.Text}
	case wire.DocumentBlock + "/text":
		return part{Type: inputText, Text: b.Source.Data}
	case wire.ImageBlock + "/base64", wire.ImageBlock + "/url":
		return part{Type: inputImage, ImageURL: b.Source.Address()}
	case wire.DocumentBlock + "/base64": // vendors tell by the name what the file is
		return part{Type: inputFile, FileName: cmp.Or(b.Title, "document.pdf"), FileData: b.Source.Address()}
	case wire.DocumentBlock + "/url":
		return part{Type: inputFile, FileURL: b.Source.URL}
	}
	return part{Type: inputText, Text: b.StandIn()}
}

// assistantItems gives reasoning back as its vendor gave it, and what followed it with all that its block does not
// say. Thinking of another vendor is left out.
func (t *items) assistantItems(blocks wire.Content) (out []jsontext.Value, err error) {
	var end tail
	if n := len(blocks) - 1; n >= 0 {
		if candidate, ok := readTail(blocks[n]); ok {
			if blocks = blocks[:n]; candidate.Blocks == n {
				end = candidate
			}
		}
	}
	thoughts := 0
	for _, b := range blocks {
		if _, ok := wire.Unseal(b.Signature); ok {
			thoughts++
		}
	}
	if thoughts != end.Thoughts {
		end = tail{} // what an id belongs to is gone
	}
	for i, b := range blocks {
		is := jsontext.Value("{}")
		for _, entry := range end.Items {
			if entry.Index == i {
				is = entry.Is
			}
		}
		if v, ok := wire.Unseal(b.Signature + b.Text); ok {
			out = append(out, v)
			continue
		}
		var it item
		switch b.Type {
		case wire.TextBlock:
			if b.Text == "" {
				continue
			}
			it = item{Type: messageItem, Role: wire.RoleAssistant, Content: content{{Type: outputText, Text: b.Text}}}
		case wire.ToolUseBlock:
			it = t.call(b, is)
		case wire.ThinkingBlock, wire.RedactedBlock:
			continue
		default:
			it = item{Type: messageItem, Role: wire.RoleAssistant, Content: content{{Type: outputText, Text: b.StandIn()}}}
		}
		v, err := wire.Marshal(it)
		if err != nil {
			return nil, err
		}
		out = append(out, wire.Merged(is, v))
	}
	return out, nil
}

func (t *items) call(b wire.Block, is jsontext.Value) item {
	arguments := b.Arguments()
	it := item{Type: callItem, CallID: b.ID, Name: b.Name, Arguments: jsonText(arguments)}
	name, renamed := t.names[b.Name]
	if renamed {
		it.Name, it.Namespace = name.Name, name.Namespace
	}
	if name.Custom || gjson.GetBytes(is, "type").Str == customItem {
		it.Type, it.Arguments, it.Input = customItem, "", jsonText(gjson.GetBytes(arguments, "input").String())
		t.custom = append(t.custom, b.ID)
	}
	return it
}
