package chatwire

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// ChatRequest translates a request of the messages dialect. A stream always asks for the usage.
// Errors are those of MessagesRequest.
func ChatRequest(body []byte, o Options) (Translated, error) {
	var in wire.Request
	if err := wire.Unmarshal(body, &in); err != nil {
		return Translated{}, err
	}
	form, err := chatFormat(in.Other)
	if err != nil {
		return Translated{}, err
	}
	ignored, err := MessagesParameters.Judge(in.Other)
	if err != nil {
		return Translated{}, err
	}
	out := request{Model: in.Model, Stream: in.Stream, Stop: in.StopSequences, ResponseFormat: form,
		ReasoningEffort: o.Effort}
	if out.Temperature, err = float("temperature", in.Temperature); err != nil {
		return Translated{}, err
	}
	if out.TopP, err = float("top_p", in.TopP); err != nil {
		return Translated{}, err
	}
	if out.Messages, err = chatMessages(in, o.Files); err != nil {
		return Translated{}, err
	}
	if out.Tools, err = chatTools(in.Tools); err != nil {
		return Translated{}, err
	}
	if len(in.Tools) > 0 && in.ToolChoice != nil {
		if out.ToolChoice, err = chatChoice(*in.ToolChoice); err != nil {
			return Translated{}, err
		}
		if in.ToolChoice.DisableParallel {
			out.ParallelToolCalls = new(bool)
		}
	}
	out.MaxTokens = in.MaxTokens // the last hop renames it for vendors that use another name
	if in.Stream {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	t := Translated{Ignored: ignored, IncludeUsage: true}
	t.Body, err = wire.Marshal(out)
	return t, err
}

func float(name string, v jsontext.Value) (*float64, error) {
	var f *float64
	if len(v) > 0 && json.Unmarshal(v, &f) != nil {
		return nil, refuse("%s must be a number", name)
	}
	return f, nil
}

func chatMessages(in wire.Request, files bool) ([]chatMessage, error) {
	var out []chatMessage
	if s := plain(in.System, "\n\n"); s != "" {
		out = append(out, chatMessage{Role: wire.RoleSystem, Content: textContent(s)})
	}
	for i, m := range in.Messages {
		var added []chatMessage
		var err error
		switch m.Role {
		case wire.RoleSystem:
			added = []chatMessage{{Role: wire.RoleSystem, Content: textContent(plain(m.Content, "\n\n"))}}
		case wire.RoleUser:
			added, err = userMessages(m.Content, files)
		case wire.RoleAssistant:
			added, err = assistantMessage(m.Content)
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

// userMessages puts tool results first, each as a message of its own, because the chat dialect
// wants them directly behind the calls. Images and files in a result follow in the user's message,
// since a tool message can only hold text. With files, see Options, results are read as text only: a message of the user
// after them would be a new one.
func userMessages(blocks wire.Content, files bool) ([]chatMessage, error) {
	var results []chatMessage
	var parts content
	for _, b := range blocks {
		if b.Type != wire.ToolResultBlock {
			p, err := userPart(b, files)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
			continue
		}
		var words content
		for _, inner := range b.Content {
			p, err := userPart(inner, files)
			switch {
			case err != nil:
				return nil, err
			case p.Type != textPart && !files:
				parts = append(parts, p)
			default:
				words = append(words, p)
			}
		}
		text := words.text("\n")
		if b.IsError {
			text = strings.TrimSpace("(error) " + text)
		}
		results = append(results, chatMessage{Role: wire.RoleTool, ToolCallID: b.ToolUseID, Content: textContent(text)})
	}
	if len(parts) == 0 {
		return results, nil
	}
	return append(results, chatMessage{Role: wire.RoleUser, Content: compact(parts)}), nil
}

// compact makes one string of parts that are all text, because many backends accept nothing else.
func compact(parts content) content {
	for _, p := range parts {
		if p.Type != textPart {
			return parts
		}
	}
	return textContent(parts.text("\n"))
}

func userPart(b wire.Block, files bool) (part, error) {
	switch {
	case b.Type == wire.TextBlock:
		return part{Type: textPart, Text: b.Text}, nil
	case b.Type == wire.DocumentBlock && b.Source != nil && b.Source.Type == "text":
		return part{Type: textPart, Text: b.Source.Data}, nil
	case b.Type == wire.ImageBlock && b.Source != nil && b.Source.Type == "base64":
		return part{Type: imagePart, ImageURL: &imageURL{"data:" + b.Source.MediaType + ";base64," + b.Source.Data}}, nil
	case b.Type == wire.ImageBlock && b.Source != nil && b.Source.Type == "url":
		return part{Type: imagePart, ImageURL: &imageURL{b.Source.URL}}, nil
	}
	if b.Type == wire.DocumentBlock {
		return documentPart(b, files)
	}
	return part{}, refuse("a block of type %q cannot be sent to this backend, only text, images and tool results", b.Type)
}

// documentPart makes a file of a document that is no text.
func documentPart(b wire.Block, files bool) (part, error) {
	switch {
	case !files:
		return part{}, refuse("a document that is no text cannot be sent to this backend: send its text, or use a " +
			"backend that reads files")
	case b.Source == nil || b.Source.Type != "base64":
		return part{}, refuse("a document's address cannot be sent to this backend: send the file itself, in base64")
	}
	return part{Type: filePart, File: &file{Name: cmp.Or(b.Title, "document.pdf"),
		Data: "data:" + b.Source.MediaType + ";base64," + b.Source.Data}}, nil
}

// assistantMessage drops thinking, which is of use only to the vendor that produced it.
func assistantMessage(blocks wire.Content) ([]chatMessage, error) {
	m := chatMessage{Role: wire.RoleAssistant}
	var words content
	for _, b := range blocks {
		switch b.Type {
		case wire.TextBlock:
			words = append(words, part{Type: textPart, Text: b.Text})
		case wire.ToolUseBlock:
			input := b.Input.Clone()
			if len(input) == 0 {
				input = jsontext.Value("{}")
			}
			if err := input.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
				return nil, refuse("the input of tool use %q cannot be read: %v", b.ID, err)
			}
			m.ToolCalls = append(m.ToolCalls, toolCall{
				ID: b.ID, Type: "function", Function: functionCall{b.Name, string(input)},
			})
		case wire.ThinkingBlock, wire.RedactedBlock:
		default:
			return nil, refuse("a block of type %q cannot be sent to this backend, only text and tool uses", b.Type)
		}
	}
	if s := words.text(""); s != "" {
		m.Content = textContent(s)
	}
	if m.Content == nil && m.ToolCalls == nil {
		return nil, nil
	}
	return []chatMessage{m}, nil
}

// plain joins the texts of blocks.
func plain(blocks wire.Content, between string) string {
	var words []string
	for _, b := range blocks {
		if b.Text != "" {
			words = append(words, b.Text)
		}
	}
	return strings.Join(words, between)
}

func chatTools(in []wire.Tool) ([]tool, error) {
	var out []tool
	for i, t := range in {
		if t.Type != "" && t.Type != "custom" {
			return nil, refuse("tools[%d]: %q is run by its vendor, and this backend is another one", i, t.Type)
		}
		out = append(out, tool{"function", function{t.Name, t.Description, t.InputSchema, t.Strict}})
	}
	return out, nil
}

func chatChoice(c wire.ToolChoice) (jsontext.Value, error) {
	switch c.Type {
	case "auto", "none":
		return wire.Quote(c.Type), nil
	case "any":
		return wire.Quote("required"), nil
	case "tool":
		return wire.Marshal(tool{"function", function{Name: c.Name}})
	}
	return nil, refuse("tool_choice.type %q is none of auto, any, tool, none", c.Type)
}
