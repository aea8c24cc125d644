package responseswire

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// encryptedReasoning is what an answer must include for its reasoning to go back without being stored.
const encryptedReasoning = "reasoning.encrypted_content"

// minOutput is the smallest max_output_tokens that vendors accept.
const minOutput = 16

// ResponsesRequest translates a request of the messages dialect. Nothing is stored at the vendor. Errors are those of
// MessagesRequest.
func ResponsesRequest(body []byte, _ chatwire.Options) (chatwire.Translated, error) {
	var in wire.Request
	if err := wire.Unmarshal(body, &in); err != nil {
		return chatwire.Translated{}, err
	}
	out := request{Model: in.Model, Stream: in.Stream, Store: new(bool), Include: []string{encryptedReasoning}}
	if s := plain(in.System, "\n\n"); s != "" {
		out.Instructions = &s
	}
	var err error
	if out.Temperature, err = float("temperature", in.Temperature); err != nil {
		return chatwire.Translated{}, err
	}
	if out.TopP, err = float("top_p", in.TopP); err != nil {
		return chatwire.Translated{}, err
	}
	if out.Text, out.Reasoning, err = config(in); err != nil {
		return chatwire.Translated{}, err
	}
	ignored, err := messagesParameters.Judge(in.Other)
	if err != nil {
		return chatwire.Translated{}, err
	}
	if len(in.StopSequences) > 0 {
		ignored = append(ignored, "stop_sequences")
	}
	if out.Input, err = items(in.Messages); err != nil {
		return chatwire.Translated{}, err
	}
	if in.MaxTokens > 0 {
		out.MaxOutputTokens = new(max(in.MaxTokens, minOutput))
	}
	for i, t := range in.Tools {
		if t.Type != "" && t.Type != customTool {
			return chatwire.Translated{}, refuse("tools[%d]: %q is run by its vendor, and this backend is another one", i,
				t.Type)
		}
		out.Tools = append(out.Tools, tool{Type: functionTool, Name: t.Name, Description: t.Description,
			Parameters: t.InputSchema, Strict: new(t.Strict)}) // without it a vendor is strict
	}
	if len(in.Tools) > 0 && in.ToolChoice != nil {
		if out.ToolChoice, err = choice(*in.ToolChoice); err != nil {
			return chatwire.Translated{}, err
		}
		if in.ToolChoice.DisableParallel {
			out.ParallelToolCalls = new(false)
		}
	}
	t := chatwire.Translated{Ignored: ignored, IncludeUsage: true}
	t.Body, err = wire.Marshal(out)
	return t, err
}

// config reads the form of the answer and how the model is to think, and takes what it reads out of the members that
// have no counterpart. A summary of its thoughts is asked for if the client turned thinking on.
func config(in wire.Request) (*textConfig, *reasoning, error) {
	asked := gjson.ParseBytes(in.Other["output_config"])
	form, name := asked.Get("format"), "output_config.format"
	if !form.IsObject() {
		form, name = gjson.ParseBytes(in.Other["output_format"]), "output_format"
	}
	var r reasoning
	if r.Effort = asked.Get("effort").Str; r.Effort == "max" {
		r.Effort = "xhigh"
	}
	known := 0
	for _, m := range []string{"format", "effort"} {
		if asked.Get(m).Exists() {
			known++
		}
	}
	if len(asked.Map()) == known {
		delete(in.Other, "output_config")
	}
	if in.Thinking != nil && in.Thinking.Type == "disabled" && r.Effort == "" {
		r.Effort = "none"
	} else if in.Thinking != nil && in.Thinking.Type != "disabled" {
		r.Summary = "auto"
	}
	how := &r
	if r == (reasoning{}) {
		how = nil
	}
	if !form.IsObject() {
		return nil, how, nil
	}
	delete(in.Other, "output_format")
	schema := form.Get("schema")
	if form.Get("type").Str != "json_schema" || schema.Get("type").Str != "object" {
		return nil, nil, refuse(`%s must be of "type": "json_schema", with a schema of "type": "object"`, name)
	}
	return &textConfig{Format: &format{Type: "json_schema", Name: wire.AnswerTool, Schema: jsontext.Value(schema.Raw),
		Strict: new(chatwire.Strict(jsontext.Value(schema.Raw)))}}, how, nil
}

func items(messages []wire.Message) (input, error) {
	var out input
	for i, m := range messages {
		var added []item
		var err error
		switch m.Role {
		case wire.RoleSystem:
			added = []item{{Type: messageItem, Role: wire.RoleDeveloper,
				Content: content{{Type: inputText, Text: plain(m.Content, "\n\n")}}}}
		case wire.RoleUser:
			added, err = userItems(m.Content)
		case wire.RoleAssistant:
			added, err = assistantItems(m.Content)
		default:
			err = refuse("its role %q is none of user, assistant, system", m.Role)
		}
		if err != nil {
			return nil, refuse("messages[%d]: %v", i, err)
		}
		out = append(out, added...)
	}
	if len(out) == 0 {
		return nil, refuse("messages must hold at least one message with content")
	}
	return out, nil
}

// userItems puts results of tools first, directly behind the calls.
func userItems(blocks wire.Content) ([]item, error) {
	var results []item
	var said content
	for _, b := range blocks {
		if b.Type != wire.ToolResultBlock {
			p, err := userPart(b)
			if err != nil {
				return nil, err
			}
			said = append(said, p)
			continue
		}
		parts := content{} // an output without any is an empty text
		for _, inner := range b.Content {
			p, err := userPart(inner)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
		if b.IsError {
			parts = append(content{{Type: inputText, Text: "(error)"}}, parts...)
		}
		results = append(results, item{Type: resultItem, CallID: b.ToolUseID, Output: new(compact(parts))})
	}
	if len(said) == 0 {
		return results, nil
	}
	return append(results, item{Type: messageItem, Role: wire.RoleUser, Content: said}), nil
}

// compact makes one string of parts that are all text, as most tools give.
func compact(parts content) content {
	for _, p := range parts {
		if p.Type != inputText {
			return parts
		}
	}
	return content{{Text: parts.text("\n")}}
}

func userPart(b wire.Block) (part, error) {
	kind := b.Type
	if b.Source != nil {
		kind += "/" + b.Source.Type
	}
	switch kind {
	case wire.TextBlock:
		return part{Type: inputText, Text: b.Text}, nil
	case wire.DocumentBlock + "/text":
		return part{Type: inputText, Text: b.Source.Data}, nil
	case wire.ImageBlock + "/base64":
		return part{Type: inputImage, ImageURL: "data:" + b.Source.MediaType + ";base64," + b.Source.Data}, nil
	case wire.ImageBlock + "/url":
		return part{Type: inputImage, ImageURL: b.Source.URL}, nil
	case wire.DocumentBlock + "/base64":
		name := b.Title
		if name == "" { // vendors tell by it what the file is
			name = "document.pdf"
		}
		return part{Type: inputFile, FileName: name,
			FileData: "data:" + b.Source.MediaType + ";base64," + b.Source.Data}, nil
	case wire.DocumentBlock + "/url":
		return part{Type: inputFile, FileURL: b.Source.URL}, nil
	}
	return part{}, refuse("a block of type %q cannot be sent to this backend, only text, images, documents and tool "+
		"results", b.Type)
}

// assistantItems drops thinking: the ledger puts back reasoning as its vendor gave it.
func assistantItems(blocks wire.Content) ([]item, error) {
	var out []item
	for _, b := range blocks {
		switch b.Type {
		case wire.TextBlock:
			if b.Text != "" {
				out = append(out, item{Type: messageItem, Role: wire.RoleAssistant,
					Content: content{{Type: outputText, Text: b.Text}}})
			}
		case wire.ToolUseBlock:
			arguments := b.Input.Clone()
			if len(arguments) == 0 {
				arguments = jsontext.Value("{}")
			}
			if err := arguments.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
				return nil, refuse("the input of tool use %q cannot be read: %v", b.ID, err)
			}
			out = append(out, item{Type: callItem, CallID: b.ID, Name: b.Name, Arguments: jsonText(arguments)})
		case wire.ThinkingBlock, wire.RedactedBlock:
		default:
			return nil, refuse("a block of type %q cannot be sent to this backend, only text and tool uses", b.Type)
		}
	}
	return out, nil
}

func choice(c wire.ToolChoice) (jsontext.Value, error) {
	switch c.Type {
	case "auto", "none":
		return wire.Quote(c.Type), nil
	case "any":
		return wire.Quote("required"), nil
	case "tool":
		return wire.Marshal(tool{Type: functionTool, Name: c.Name})
	}
	return nil, refuse("tool_choice.type %q is none of auto, any, tool, none", c.Type)
}

// plain joins the texts of blocks.
func plain(blocks wire.Content, between string) string {
	c := make(content, 0, len(blocks))
	for _, b := range blocks {
		c = append(c, part{Text: b.Text})
	}
	return c.text(between)
}

func float(name string, v jsontext.Value) (*float64, error) {
	var f *float64
	if len(v) > 0 && json.Unmarshal(v, &f) != nil {
		return nil, refuse("%s must be a number", name)
	}
	return f, nil
}

func number(f *float64) jsontext.Value {
	if f == nil {
		return nil
	}
	return strconv.AppendFloat(nil, *f, 'g', -1, 64)
}
