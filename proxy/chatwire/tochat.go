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
		f := wire.ChatFunction{Name: t.Name, Description: t.Description, Parameters: t.InputSchema, Strict: t.Strict}
		out.Tools = append(out.Tools, wire.ChatTool{Type: functionTool, Function: f})
	}
	out.ToolChoice, out.ParallelToolCalls, err = in.OpenAIChoice(func(name string) any {
		return wire.ChatTool{Type: functionTool, Function: wire.ChatFunction{Name: name}}
	})
	if err != nil {
		return Translated{}, err
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

func chatMessages(in wire.Request, files bool) (out []wire.ChatMessage, replaced bool, err error) {
	if s := in.System.Text("\n\n"); s != "" {
		out = append(out, wire.ChatMessage{Role: wire.RoleSystem, Content: wire.ChatText(s)})
	}
	for i, m := range in.Messages {
		var added []wire.ChatMessage
		var stood bool
		switch m.Role {
		case wire.RoleSystem:
			added = []wire.ChatMessage{{Role: wire.RoleSystem, Content: wire.ChatText(m.Content.Text("\n\n"))}}
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
func userMessages(blocks wire.Content, files bool) (results []wire.ChatMessage, replaced bool) {
	var parts wire.ChatContent
	for _, b := range blocks {
		if b.Type != wire.ToolResultBlock {
			p, ok := userPart(b, files)
			parts, replaced = append(parts, p), replaced || !ok
			continue
		}
		var words wire.ChatContent
		for _, inner := range b.Content {
			p, ok := userPart(inner, files)
			switch {
			case p.Type == wire.TextBlock:
				words = append(words, p)
			case files:
				words, ok = append(words, wire.ChatPart{Type: wire.TextBlock, Text: inner.StandIn()}), false
			default:
				parts = append(parts, p)
			}
			replaced = replaced || !ok
		}
		text := words.Text("\n")
		if b.IsError {
			text = strings.TrimSpace("(error) " + text)
		}
		results = append(results, wire.ChatMessage{Role: wire.RoleTool, ToolCallID: b.ToolUseID,
			Content: wire.ChatText(text)})
	}
	if len(parts) > 0 {
		results = append(results, wire.ChatMessage{Role: wire.RoleUser, Content: compact(parts)})
	}
	return results, replaced
}

// compact makes one string of parts that are all text, because many backends accept nothing else.
func compact(parts wire.ChatContent) wire.ChatContent {
	if slices.ContainsFunc(parts, func(p wire.ChatPart) bool { return p.Type != wire.TextBlock }) {
		return parts
	}
	return wire.ChatText(parts.Text("\n"))
}

// userPart translates a block. ok is false if a text replaces it.
func userPart(b wire.Block, files bool) (p wire.ChatPart, ok bool) {
	switch kind := b.SourceKind(); {
	case kind == wire.TextBlock:
		return wire.ChatPart{Type: wire.TextBlock, Text: b.Text}, true
	case kind == wire.DocumentText:
		return wire.ChatPart{Type: wire.TextBlock, Text: b.Source.Data}, true
	case kind == wire.ImageBlock+"/base64", kind == wire.ImageBlock+"/url":
		return wire.ChatPart{Type: imagePart, ImageURL: &wire.ChatImage{URL: b.Source.Address()}}, true
	case kind == wire.DocumentBlock+"/base64" && files:
		return wire.ChatPart{Type: wire.FileContent, File: &wire.ChatFile{Name: cmp.Or(b.Title, "document.pdf"),
			Data: b.Source.Address()}}, true
	}
	return wire.ChatPart{Type: wire.TextBlock, Text: b.StandIn()}, false
}

// assistantMessage drops thinking, which is of use only to the vendor that produced it. replaced reports whether a text
// replaces anything.
func assistantMessage(blocks wire.Content) (out []wire.ChatMessage, replaced bool) {
	m := wire.ChatMessage{Role: wire.RoleAssistant}
	var words wire.ChatContent
	for _, b := range blocks {
		switch b.Type {
		case wire.TextBlock:
			words = append(words, wire.ChatPart{Type: wire.TextBlock, Text: b.Text})
		case wire.ToolUseBlock:
			m.ToolCalls = append(m.ToolCalls, wire.ChatCall{
				ID: b.ID, Type: functionTool, Function: wire.ChatCalled{Name: b.Name, Arguments: string(b.Arguments())},
			})
		case wire.ThinkingBlock, wire.RedactedBlock:
		default:
			words, replaced = append(words, wire.ChatPart{Type: wire.TextBlock, Text: b.StandIn()}), true
		}
	}
	if s := words.Text(""); s != "" {
		m.Content = wire.ChatText(s)
	}
	if m.Content == nil && m.ToolCalls == nil {
		return nil, replaced
	}
	return []wire.ChatMessage{m}, replaced
}
