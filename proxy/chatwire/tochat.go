package chatwire

import (
	"cmp"
	"slices"
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
	ignored, err := Unmapped(&in)
	if err != nil {
		return Translated{}, err
	}
	if in.Thinking != nil && in.Thinking.Type != "disabled" && o.Effort == "" {
		ignored = append(ignored, "thinking")
	}
	out := request{Model: in.Model, Stream: in.Stream, Stop: in.StopSequences, ResponseFormat: form,
		ReasoningEffort: o.Effort}
	if out.Temperature, err = Float("temperature", in.Temperature); err != nil {
		return Translated{}, err
	}
	if out.TopP, err = Float("top_p", in.TopP); err != nil {
		return Translated{}, err
	}
	var replaced bool
	if out.Messages, replaced, err = chatMessages(in, o.Files); err != nil {
		return Translated{}, err
	}
	for _, t := range in.Tools {
		f := function{t.Name, t.Description, t.InputSchema, t.Strict}
		out.Tools = append(out.Tools, tool{Type: functionTool, Function: f})
	}
	if len(in.Tools) > 0 && in.ToolChoice != nil {
		choice := tool{Type: functionTool, Function: function{Name: in.ToolChoice.Name}}
		if out.ToolChoice, err = in.ToolChoice.OpenAI(choice); err != nil {
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
	t := Translated{Ignored: ignored, IncludeUsage: true, Replaced: replaced}
	t.Body, err = wire.Marshal(out)
	return t, err
}

// Float reads a member of a request that is a number, nil if it is left out.
func Float(name string, v jsontext.Value) (*float64, error) {
	var f *float64
	if len(v) > 0 && json.Unmarshal(v, &f) != nil {
		return nil, wire.Refuse("%s must be a number", name)
	}
	return f, nil
}

// ChatCarries are the kinds of content that ChatRequest can put into chat completions, with files if the vendor takes
// files in messages.
func ChatCarries(files bool) []string {
	kinds := []string{wire.ImageContent, wire.ImageContent + "/url", wire.DocumentText}
	if files {
		kinds = append(kinds, wire.DocumentContent)
	}
	return kinds
}

func chatMessages(in wire.Request, files bool) (out []chatMessage, replaced bool, err error) {
	if s := in.System.Text("\n\n"); s != "" {
		out = append(out, chatMessage{Role: wire.RoleSystem, Content: textContent(s)})
	}
	for i, m := range in.Messages {
		var added []chatMessage
		var stood bool
		switch m.Role {
		case wire.RoleSystem:
			added = []chatMessage{{Role: wire.RoleSystem, Content: textContent(m.Content.Text("\n\n"))}}
		case wire.RoleUser:
			added, stood = userMessages(m.Content, files)
		case wire.RoleAssistant:
			added, stood = assistantMessage(m.Content)
		default:
			return nil, false, wire.Refuse("messages[%d]: its role %q is none of user, assistant, system", i, m.Role)
		}
		out, replaced = append(out, added...), replaced || stood
	}
	if len(out) == 0 {
		return nil, false, wire.Refuse("messages must hold at least one message with content")
	}
	return out, replaced, nil
}

// userMessages puts tool results first, each as a message of its own, because the chat dialect
// wants them directly behind the calls. Images and files in a result follow in the user's message,
// since a tool message can only hold text. With files, see Options, a text replaces them, because a message of the user
// after the results would be a new one. replaced reports whether a text replaces anything.
func userMessages(blocks wire.Content, files bool) (results []chatMessage, replaced bool) {
	var parts content
	for _, b := range blocks {
		if b.Type != wire.ToolResultBlock {
			p, ok := userPart(b, files)
			parts, replaced = append(parts, p), replaced || !ok
			continue
		}
		var words content
		for _, inner := range b.Content {
			p, ok := userPart(inner, files)
			switch {
			case p.Type == textPart:
				words = append(words, p)
			case files:
				words, ok = append(words, part{Type: textPart, Text: inner.StandIn()}), false
			default:
				parts = append(parts, p)
			}
			replaced = replaced || !ok
		}
		text := words.text("\n")
		if b.IsError {
			text = strings.TrimSpace("(error) " + text)
		}
		results = append(results, chatMessage{Role: wire.RoleTool, ToolCallID: b.ToolUseID, Content: textContent(text)})
	}
	if len(parts) > 0 {
		results = append(results, chatMessage{Role: wire.RoleUser, Content: compact(parts)})
	}
	return results, replaced
}

// compact makes one string of parts that are all text, because many backends accept nothing else.
func compact(parts content) content {
	if slices.ContainsFunc(parts, func(p part) bool { return p.Type != textPart }) {
		return parts
	}
	return textContent(parts.text("\n"))
}

// userPart translates a block. ok is false if a text replaces it.
func userPart(b wire.Block, files bool) (p part, ok bool) {
	switch kind := b.SourceKind(); {
	case kind == wire.TextBlock:
		return part{Type: textPart, Text: b.Text}, true
	case kind == wire.DocumentText:
		return part{Type: textPart, Text: b.Source.Data}, true
	case kind == wire.ImageBlock+"/base64":
		return part{Type: imagePart, ImageURL: &imageURL{"data:" + b.Source.MediaType + ";base64," + b.Source.Data}}, true
	case kind == wire.ImageBlock+"/url":
		return part{Type: imagePart, ImageURL: &imageURL{b.Source.URL}}, true
	case kind == wire.DocumentBlock+"/base64" && files:
		return part{Type: filePart, File: &file{Name: cmp.Or(b.Title, "document.pdf"),
			Data: "data:" + b.Source.MediaType + ";base64," + b.Source.Data}}, true
	}
	return part{Type: textPart, Text: b.StandIn()}, false
}

// assistantMessage drops thinking, which is of use only to the vendor that produced it. replaced reports whether a text
// replaces anything.
func assistantMessage(blocks wire.Content) (out []chatMessage, replaced bool) {
	m := chatMessage{Role: wire.RoleAssistant}
	var words content
	for _, b := range blocks {
		switch b.Type {
		case wire.TextBlock:
			words = append(words, part{Type: textPart, Text: b.Text})
		case wire.ToolUseBlock:
			m.ToolCalls = append(m.ToolCalls, toolCall{
				ID: b.ID, Type: functionTool, Function: functionCall{b.Name, string(b.Arguments())},
			})
		case wire.ThinkingBlock, wire.RedactedBlock:
		default:
			words, replaced = append(words, part{Type: textPart, Text: b.StandIn()}), true
		}
	}
	if s := words.text(""); s != "" {
		m.Content = textContent(s)
	}
	if m.Content == nil && m.ToolCalls == nil {
		return nil, replaced
	}
	return []chatMessage{m}, replaced
}
