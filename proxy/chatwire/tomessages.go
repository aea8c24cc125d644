package chatwire

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// defaultMaxTokens is the max_tokens of a request that has none, in tokens, as the messages dialect
// requires it. A thinking budget is added to it.
const defaultMaxTokens = 8192

// minBudget is the smallest thinking budget that vendors accept, in tokens.
const minBudget = 1024

// Options are the properties of the backend's model that translation depends on.
type Options struct {
	// Budget is the number of thinking tokens for an effort; nil ignores a chat client's
	// reasoning_effort.
	Budget func(effort string) int64
	// Adaptive: the model chooses its budget itself and is told the effort instead.
	Adaptive bool
	// Schemas: the model holds its answer to a JSON Schema by itself, by output_config.format.
	Schemas bool
	// Effort is used for a request that has none, as one of the messages dialect always has; empty for
	// no effort.
	Effort string
	// Files: the chat backend takes files in messages, as OpenAI's does.
	Files bool
	// Through: the request is on its way to a third dialect. What this one has no place for is kept in the
	// words that it came in: no limit where none was asked for, any temperature, any form of the answer.
	Through bool
	// Apart keeps each item of the user in a message of its own, in the order of a Responses request.
	Apart bool
	// Efforts: the effort goes along in output_config, in the words that it came in. Only with Through.
	Efforts bool
	// Bounded: the last hop bounds an answer that the request leaves open.
	Bounded bool
	// Native: the third dialect is the client's own. Nothing is refused, since the client's own request goes
	// there, and what has no counterpart here keeps its place.
	Native bool
}

// Translated is a request in the other dialect.
type Translated struct {
	Body         []byte
	Ignored      []string // members without a counterpart there, sorted
	IncludeUsage bool     // the stream was asked to end with its usage
	AnswerTool   string   // the tool that the model calls to give its answer; empty for none
}

// MessagesRequest translates a chat-completions request. Its errors are a wire.Failure with status
// 400, or wrap wire.ErrBadJSON.
func MessagesRequest(body []byte, o Options) (Translated, error) {
	var in request
	if err := wire.Unmarshal(body, &in); err != nil {
		return Translated{}, err
	}
	ignored, err := chatParameters.Judge(in.Other)
	if err != nil {
		return Translated{}, err
	}
	out := wire.Request{Model: in.Model, Stream: in.Stream, Temperature: Temperature(in.Temperature),
		TopP: number(in.TopP)}
	if out.System, out.Messages, err = turns(in.Messages); err != nil {
		return Translated{}, err
	}
	if out.Tools, err = messagesTools(in.Tools); err != nil {
		return Translated{}, err
	}
	if out.ToolChoice, err = messagesChoice(in); err != nil {
		return Translated{}, err
	}
	for _, s := range in.Stop {
		// Vendors refuse a stop sequence of white space only, and an answer matters more than
		// stopping there.
		if strings.TrimSpace(s) != "" {
			out.StopSequences = append(out.StopSequences, s)
		}
	}
	if in.User != "" {
		out.Metadata = &wire.Metadata{UserID: in.User}
	}
	out.MaxTokens = max(in.MaxCompletionTokens, in.MaxTokens)
	t := Translated{Ignored: ignored, IncludeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage}
	if t.AnswerTool, err = format(&out, in.ResponseFormat, o); err != nil {
		return Translated{}, err
	}
	Think(&out, cmp.Or(in.ReasoningEffort, o.Effort), o)
	t.Body, err = wire.Marshal(out)
	return t, err
}

// Think sets max_tokens, and turns thinking on where it is wanted and allowed, which it is not when
// a tool is forced. Inside a tool loop the last hop decides whether the thinking, which a chat
// client never saw in full, could be put back.
func Think(out *wire.Request, effort string, o Options) {
	if o.Through {
		if o.Efforts && effort != "" {
			out.Thinking = &wire.Thinking{Type: "adaptive"}
			if effort == "none" {
				out.Thinking.Type = "disabled"
			}
			setEffort(out, effort)
		}
		return
	}
	forced := out.ToolChoice != nil && (out.ToolChoice.Type == "any" || out.ToolChoice.Type == "tool")
	if o.Adaptive && effort == "minimal" {
		effort = "low" // the lowest effort there is
	}
	var budget int64
	if !forced && o.Budget != nil && effort != "" && effort != "none" && effort != "minimal" {
		budget = o.Budget(effort)
	}
	if out.MaxTokens > 0 && !o.Adaptive {
		if budget = min(budget, out.MaxTokens-minBudget); budget < minBudget {
			budget = 0
		}
	}
	if out.MaxTokens <= 0 && !o.Bounded {
		out.MaxTokens = defaultMaxTokens + budget
	}
	switch {
	case o.Adaptive && (effort == "none" || forced):
		out.Thinking = &wire.Thinking{Type: "disabled"}
		return
	case budget <= 0:
		return
	case o.Adaptive:
		out.Thinking = &wire.Thinking{Type: "adaptive"}
		setEffort(out, effort)
	default:
		out.Thinking = &wire.Thinking{Type: "enabled", BudgetTokens: budget}
	}
	out.Temperature, out.TopP = nil, nil // vendors accept only the defaults beside thinking
}

// setEffort puts an effort beside the form of the answer.
func setEffort(out *wire.Request, effort string) {
	config := slices.Concat([]byte(`{"effort":`), wire.Quote(effort), []byte("}"))
	if own := out.Other["output_config"]; own != nil {
		config = slices.Concat(config[:len(config)-1], []byte(","), own[1:])
	}
	out.Other = map[string]jsontext.Value{"output_config": config}
}

// turns separates the system prompt and merges neighbouring messages of one role.
func turns(in []chatMessage) (system wire.Content, out []wire.Message, err error) {
	for i, m := range in {
		var blocks wire.Content
		role := wire.RoleUser
		switch m.Role {
		case wire.RoleSystem, wire.RoleDeveloper:
			if s := m.Content.text("\n"); s != "" {
				system = append(system, wire.Block{Type: wire.TextBlock, Text: s})
			}
			continue
		case wire.RoleUser:
			blocks, err = userBlocks(m.Content)
		case wire.RoleAssistant:
			role, blocks = wire.RoleAssistant, assistantBlocks(m)
		case wire.RoleTool:
			blocks, err = resultBlocks(m)
		default:
			err = refuse("its role %q is none of system, developer, user, assistant, tool", m.Role)
		}
		if err != nil {
			return nil, nil, refuse("messages[%d]: %v", i, err)
		}
		out = Join(out, role, blocks)
	}
	if len(out) == 0 {
		return nil, nil, refuse("messages must hold at least one user message with content")
	}
	return system, out, nil
}

// Join appends blocks to the last message if it has the same role. Tool results go before all other
// blocks of a user message.
func Join(out []wire.Message, role string, blocks wire.Content) []wire.Message {
	if len(blocks) == 0 {
		return out
	}
	if len(out) == 0 || out[len(out)-1].Role != role {
		return append(out, wire.Message{Role: role, Content: blocks})
	}
	last := &out[len(out)-1]
	if blocks[0].Type != wire.ToolResultBlock {
		last.Content = append(last.Content, blocks...)
		return out
	}
	n := 0
	for n < len(last.Content) && last.Content[n].Type == wire.ToolResultBlock {
		n++
	}
	rest := last.Content[n:]
	last.Content = append(append(last.Content[:n:n], blocks...), rest...)
	return out
}

func userBlocks(c content) (wire.Content, error) {
	var blocks wire.Content
	for _, p := range c {
		switch p.Type {
		case textPart:
			if p.Text != "" {
				blocks = append(blocks, wire.Block{Type: wire.TextBlock, Text: p.Text})
			}
		case imagePart:
			if p.ImageURL == nil {
				return nil, refuse("an image_url part needs image_url.url")
			}
			image, err := Image(p.ImageURL.URL)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, image)
		case filePart:
			if p.File == nil || p.File.Data == "" {
				return nil, refuse("a file part needs file.file_data: files are not kept here, so there is no file_id")
			}
			document, err := Document(p.File.Name, p.File.Data)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, document)
		default:
			return nil, refuse("a content part of type %q cannot be sent to this backend, only text, image_url and file", p.Type)
		}
	}
	return blocks, nil
}

// Image makes an image of its URL. Errors are a wire.Failure with status 400.
func Image(url string) (wire.Block, error) {
	b := wire.Block{Type: wire.ImageBlock}
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		kind, data, ok := strings.Cut(rest, ";base64,")
		if !ok {
			return b, refuse("a data: URL of an image must be base64")
		}
		b.Source = &wire.Source{Type: "base64", MediaType: kind, Data: data}
		return b, nil
	}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		b.Source = &wire.Source{Type: "url", URL: url}
		return b, nil
	}
	return b, refuse("an image's URL must begin with data:, https:// or http://")
}

// Document makes a document of a file: of a PDF or a text as a data: URL, or of the address of a PDF.
// Errors are those of Image.
func Document(name, url string) (wire.Block, error) {
	b := wire.Block{Type: wire.DocumentBlock, Title: name}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		b.Source = &wire.Source{Type: "url", URL: url}
		return b, nil
	}
	rest, isURL := strings.CutPrefix(url, "data:")
	kind, data, isBase64 := strings.Cut(rest, ";base64,")
	kind, _, _ = strings.Cut(kind, ";")
	switch {
	case !isURL || !isBase64:
		return b, refuse("file_data must be a data: URL in base64, or begin with https:// or http://")
	case kind == "application/pdf":
		b.Source = &wire.Source{Type: "base64", MediaType: kind, Data: data}
	case strings.HasPrefix(kind, "text/"):
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !utf8.Valid(text) {
			return b, refuse("file_data is no UTF-8 text in base64")
		}
		b.Source = &wire.Source{Type: "text", MediaType: "text/plain", Data: string(text)}
	default:
		return b, refuse("a file of type %q cannot be sent to this backend, only application/pdf and text", kind)
	}
	return b, nil
}

func assistantBlocks(m chatMessage) wire.Content {
	var blocks wire.Content
	if s := m.Content.text("") + m.Refusal; s != "" {
		blocks = append(blocks, wire.Block{Type: wire.TextBlock, Text: s})
	}
	for _, c := range m.ToolCalls {
		blocks = append(blocks, wire.Block{
			Type: wire.ToolUseBlock, ID: c.ID, Name: c.Function.Name, Input: wire.InputObject(c.Function.Arguments),
		})
	}
	return blocks
}

func resultBlocks(m chatMessage) (wire.Content, error) {
	if m.ToolCallID == "" {
		return nil, refuse("a tool message needs tool_call_id")
	}
	inner, err := userBlocks(m.Content)
	return wire.Content{{Type: wire.ToolResultBlock, ToolUseID: m.ToolCallID, Content: inner}}, err
}

func messagesTools(in []tool) ([]wire.Tool, error) {
	var out []wire.Tool
	for i, t := range in {
		if t.Type != "function" || t.Function.Name == "" {
			return nil, refuse("tools[%d] must be of type function and have a name", i)
		}
		schema := t.Function.Parameters
		if schema.Kind() != '{' {
			schema = jsontext.Value(`{"type":"object","properties":{}}`)
		}
		out = append(out, wire.Tool{Name: t.Function.Name, Description: t.Function.Description, InputSchema: schema})
	}
	return out, nil
}

func messagesChoice(in request) (*wire.ToolChoice, error) {
	serial := in.ParallelToolCalls != nil && !*in.ParallelToolCalls
	if len(in.Tools) == 0 {
		return nil, nil
	}
	choice := wire.ToolChoice{Type: "auto"}
	var word string
	var named struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	switch {
	case len(in.ToolChoice) == 0 || in.ToolChoice.Kind() == 'n':
		if !serial {
			return nil, nil
		}
	case json.Unmarshal(in.ToolChoice, &word) == nil:
		kind, ok := map[string]string{"auto": "auto", "none": "none", "required": "any"}[word]
		if !ok {
			return nil, refuse("tool_choice %q is none of auto, none, required", word)
		}
		choice.Type = kind
	case json.Unmarshal(in.ToolChoice, &named) == nil && named.Type == "function" && named.Function.Name != "":
		choice = wire.ToolChoice{Type: "tool", Name: named.Function.Name}
	default:
		return nil, refuse(`tool_choice must be "auto", "none", "required" or {"type":"function","function":{"name":…}}`)
	}
	choice.DisableParallel = serial && choice.Type != "none"
	return &choice, nil
}

// Temperature maps OpenAI's range 0–2 to 0–1 by cutting it off at 1.
func Temperature(t *float64) jsontext.Value {
	if t != nil && *t > 1 {
		return jsontext.Value("1")
	}
	return number(t)
}

func number(f *float64) jsontext.Value {
	if f == nil {
		return nil
	}
	return strconv.AppendFloat(nil, *f, 'g', -1, 64)
}
