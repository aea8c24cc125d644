package chatwire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

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
	Intermediate bool
	// Separate keeps each item of the user in a message of its own, in the order of a Responses request.
	Separate bool
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
	Custom       []string // tools whose calls are shown with a text as their input
	Replaced     bool     // a text replaces content that the other dialect lacks
	Newest       int      // number of blocks at the end that the user's very last message has
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
		TopP: Number(in.TopP)}
	h := history{body: body, messages: in.Messages}
	if out.System, out.Messages, err = h.turns(); err != nil {
		return Translated{}, err
	}
	var custom []string
	if out.Tools, custom, err = messagesTools(in.Tools, o); err != nil {
		return Translated{}, err
	}
	if out.ToolChoice, err = messagesChoice(in, &out); err != nil {
		return Translated{}, err
	}
	dropped, err := onlyFunctions(&out)
	if err != nil {
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
	t := Translated{Custom: custom, IncludeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
		Replaced: h.replaced, Newest: h.lastBlocks}
	if t.AnswerTool, err = format(&out, in.ResponseFormat, o); err != nil {
		return Translated{}, err
	}
	Think(&out, cmp.Or(in.ReasoningEffort, o.Effort), o)
	t.Ignored = slices.Concat(ignored, dropped, in.droppedMembers(out, o))
	slices.Sort(t.Ignored)
	t.Body, err = wire.Marshal(out)
	return t, err
}

// DroppedMembers returns the names of members that are lost, in order.
func DroppedMembers(members map[string]bool) []string {
	maps.DeleteFunc(members, func(_ string, dropped bool) bool { return !dropped })
	return slices.Sorted(maps.Keys(members))
}

// droppedMembers are the members that translation maps, and out does not have.
func (in request) droppedMembers(out wire.Request, o Options) []string {
	strict := func(t wire.ChatTool) bool { return t.Function.Strict }
	return DroppedMembers(map[string]bool{
		"messages.name": slices.ContainsFunc(in.Messages, func(m wire.ChatMessage) bool { return m.Name != "" }),
		"reasoning_effort": in.ReasoningEffort != "" && in.ReasoningEffort != "none" && out.Thinking == nil &&
			!o.Intermediate,
		"temperature": in.Temperature != nil && out.Temperature == nil,
		"tools.strict": slices.ContainsFunc(in.Tools, strict) &&
			!slices.ContainsFunc(out.Tools, func(t wire.Tool) bool { return t.Strict }),
		"top_p": in.TopP != nil && out.TopP == nil,
	})
}

// Think sets max_tokens, and turns thinking on where it is wanted and allowed, which it is not when
// a tool is forced. Inside a tool loop the last hop decides whether the thinking, which a chat
// client never saw in full, could be put back.
func Think(out *wire.Request, effort string, o Options) {
	if o.Intermediate {
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
	out.Other = map[string]jsontext.Value{"output_config": wire.Merged(config, out.Other["output_config"])}
}

// history is the messages of a request that are translated.
type history struct {
	body       []byte
	messages   []wire.ChatMessage
	replaced   bool // see Translated
	lastBlocks int  // blocks of the user's very last message
}

// newest is the index of the user's very last message; -1 if the model has spoken or called tools since.
func (h *history) newest() int {
	i := len(h.messages) - 1
	for i >= 0 && wire.IsSystem(h.messages[i].Role) {
		i--
	}
	if i >= 0 && h.messages[i].Role == wire.RoleUser {
		return i
	}
	return -1
}

// turns separates the system messages before all others, and merges neighbouring messages of one role. The last hop
// decides about later system messages: in the system prompt they would change all that precedes them.
func (h *history) turns() (system wire.Content, out []wire.Message, err error) {
	newest := h.newest()
	for i, m := range h.messages {
		var blocks wire.Content
		role := wire.RoleUser
		switch m.Role {
		case wire.RoleSystem, wire.RoleDeveloper:
			s := m.Content.Text("\n")
			if s == "" {
				continue
			}
			blocks = wire.Content{{Type: wire.TextBlock, Text: s}}
			if len(out) == 0 {
				system = append(system, blocks...)
				continue
			}
			role = wire.RoleSystem
		case wire.RoleUser:
			if blocks, err = h.userBlocks(i, newest); i == newest {
				h.lastBlocks = len(blocks)
			}
		case wire.RoleAssistant:
			role, blocks = wire.RoleAssistant, assistantBlocks(m)
		case wire.RoleTool:
			blocks, err = h.resultBlocks(i)
		default:
			err = wire.Refuse("its role %q is none of system, developer, user, assistant, tool", m.Role)
		}
		if err != nil {
			return nil, nil, wire.Refuse("messages[%d]: %v", i, err)
		}
		out = Join(out, role, blocks)
	}
	if len(out) == 0 {
		return nil, nil, wire.Refuse("messages must hold at least one user message with content")
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

// userBlocks translates the content of the message at i. Content that the dialect lacks is an error in the user's very
// last message. In any other message a text replaces it.
func (h *history) userBlocks(i, newest int) (wire.Content, error) {
	var blocks wire.Content
	for j, p := range h.messages[i].Content {
		if p.Type == wire.TextBlock && p.Text == "" {
			continue
		}
		b, err := userBlock(p)
		switch {
		case err != nil && i == newest:
			return nil, err
		case err != nil:
			h.replaced = true
			b = wire.Block{Type: wire.TextBlock, Text: wire.StandIn(gjson.GetBytes(h.body,
				fmt.Sprintf("messages.%d.content.%d", i, j)))}
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func userBlock(p wire.ChatPart) (wire.Block, error) {
	switch p.Type {
	case wire.TextBlock:
		return wire.Block{Type: wire.TextBlock, Text: p.Text}, nil
	case imagePart:
		if p.ImageURL == nil {
			return wire.Block{}, wire.Refuse("an image_url part needs image_url.url")
		}
		return Image(p.ImageURL.URL)
	case wire.FileContent:
		if p.File == nil || p.File.Data == "" {
			return wire.Block{}, wire.Refuse("a file part needs file.file_data: files are not kept here, so there is no file_id")
		}
		return Document(p.File.Name, p.File.Data)
	}
	return wire.Block{}, wire.Refuse("a content part of type %q cannot be sent to this backend, only text, image_url "+
		"and file", p.Type)
}

// Image makes an image of its URL. Errors are a wire.Failure with status 400.
func Image(url string) (wire.Block, error) {
	b := wire.Block{Type: wire.ImageBlock}
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		kind, data, ok := strings.Cut(rest, ";base64,")
		if !ok {
			return b, wire.Refuse("a data: URL of an image must be base64")
		}
		if kind = strings.ToLower(kind); kind == "image/jpg" || kind == "image/pjpeg" {
			kind = "image/jpeg" // the only name that vendors take
		}
		b.Source = &wire.Source{Type: "base64", MediaType: kind, Data: data}
		return b, nil
	}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		b.Source = &wire.Source{Type: "url", URL: url}
		return b, nil
	}
	return b, wire.Refuse("an image's URL must begin with data:, https:// or http://")
}

// Document makes a document of a file: of a PDF or a text of any type as a data: URL, or of the address of a PDF.
// Errors are those of Image.
func Document(name, url string) (wire.Block, error) {
	b := wire.Block{Type: wire.DocumentBlock, Title: name}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		b.Source = &wire.Source{Type: "url", URL: url}
		return b, nil
	}
	rest, isURL := strings.CutPrefix(url, "data:")
	kind, data, isBase64 := strings.Cut(rest, ";base64,")
	if !isURL || !isBase64 {
		return b, wire.Refuse("file_data must be a data: URL in base64, or begin with https:// or http://")
	}
	if text, ok := wire.TextOfFile(kind, data); ok {
		b.Source = &wire.Source{Type: "text", MediaType: "text/plain", Data: text}
		return b, nil
	}
	if kind, _, _ = strings.Cut(kind, ";"); kind != "application/pdf" {
		return b, wire.Refuse("a file of type %q cannot be sent to this backend, only application/pdf and UTF-8 text", kind)
	}
	b.Source = &wire.Source{Type: "base64", MediaType: kind, Data: data}
	return b, nil
}

func assistantBlocks(m wire.ChatMessage) wire.Content {
	var blocks wire.Content
	if s := m.Content.Text("") + m.Refusal; s != "" {
		blocks = append(blocks, wire.Block{Type: wire.TextBlock, Text: s})
	}
	for _, c := range m.ToolCalls {
		if c.Custom != nil {
			input := `{"input":` + string(wire.Quote(c.Custom.Input)) + `}`
			c.Function = wire.ChatCalled{Name: c.Custom.Name, Arguments: input}
		}
		blocks = append(blocks, wire.Block{
			Type: wire.ToolUseBlock, ID: c.ID, Name: c.Function.Name, Input: wire.InputObject(c.Function.Arguments),
		})
	}
	return blocks
}

func (h *history) resultBlocks(i int) (wire.Content, error) {
	m := h.messages[i]
	if m.ToolCallID == "" {
		return nil, wire.Refuse("a tool message needs tool_call_id")
	}
	inner, err := h.userBlocks(i, -1)
	return wire.Content{{Type: wire.ToolResultBlock, ToolUseID: m.ToolCallID, Content: inner}}, err
}

// messagesTools translates functions and custom tools. Of others only the type remains, see wire.Request.Functions.
func messagesTools(in []wire.ChatTool, o Options) (out []wire.Tool, customs []string, err error) {
	for i, t := range in {
		f := t.Function
		switch {
		case t.Type == customTool && t.Custom == nil:
		case t.Type == customTool:
			f = wire.ChatFunction{Name: t.Custom.Name, Description: CustomSays(t.Custom.Description, t.Custom.Format),
				Parameters: CustomInput}
			customs = append(customs, f.Name)
		case t.Type == "":
			return nil, nil, wire.Refuse("tools[%d] needs a type", i)
		case t.Type != functionTool:
			out = append(out, wire.Tool{Type: t.Type})
			continue
		}
		if f.Name == "" {
			return nil, nil, wire.Refuse("tools[%d] needs a name", i)
		}
		if f.Parameters.Kind() != '{' {
			f.Parameters = jsontext.Value(`{"type":"object","properties":{}}`)
		}
		out = append(out, wire.Tool{Name: f.Name, Description: f.Description, InputSchema: f.Parameters,
			Strict: f.Strict && (o.Intermediate || o.Schemas && Closed(f.Parameters))})
	}
	return out, customs, nil
}

// onlyFunctions removes all tools except functions, and returns the paths of the removed tools.
func onlyFunctions(r *wire.Request) (ignored []string, err error) {
	dropped, ok := r.Functions()
	if !ok {
		return nil, wire.Refuse("tools: a tool of type %q is run by its vendor, and this backend is another one: offer "+
			"other tools beside it, or use a backend that runs it", dropped[0])
	}
	if len(r.Tools) == 0 {
		r.ToolChoice = nil
	}
	for _, kind := range dropped {
		ignored = append(ignored, "tools."+kind)
	}
	return ignored, nil
}

// chatChosen is a choice of a tool, or of some.
type chatChosen struct {
	wire.ChatTool
	Allowed struct {
		Mode  string          `json:"mode"`
		Tools []wire.ChatTool `json:"tools"`
	} `json:"allowed_tools"`
}

// messagesChoice translates the choice of a tool. That some are allowed is a condition, so that out has no others.
func messagesChoice(in request, out *wire.Request) (*wire.ToolChoice, error) {
	serial := in.ParallelToolCalls != nil && !*in.ParallelToolCalls
	if len(in.Tools) == 0 {
		return nil, nil
	}
	choice := wire.ToolChoice{Type: "auto"}
	var word string
	var chosen chatChosen
	switch {
	case len(in.ToolChoice) == 0 || in.ToolChoice.Kind() == 'n':
		if !serial {
			return nil, nil
		}
	case json.Unmarshal(in.ToolChoice, &word) == nil:
	case json.Unmarshal(in.ToolChoice, &chosen) == nil && chosen.Type == "allowed_tools":
		word = chosen.Allowed.Mode
		out.Tools = slices.DeleteFunc(out.Tools, func(t wire.Tool) bool {
			allows := func(a wire.ChatTool) bool { return a.Name() == t.Name && t.Name != "" }
			return !slices.ContainsFunc(chosen.Allowed.Tools, allows)
		})
		if len(out.Tools) == 0 {
			return nil, wire.Refuse("tool_choice: none of the allowed tools is among the tools")
		}
	case chosen.Name() != "" && (chosen.Type == functionTool || chosen.Type == customTool):
		choice = wire.ToolChoice{Type: "tool", Name: chosen.Name()}
	default:
		return nil, wire.Refuse(`tool_choice must be "auto", "none", "required", or an object of type function, custom or ` +
			`allowed_tools with names`)
	}
	if word != "" {
		kind, ok := map[string]string{"auto": "auto", "none": "none", "required": "any"}[word]
		if !ok {
			return nil, wire.Refuse("tool_choice %q is none of auto, none, required", word)
		}
		choice.Type = kind
	}
	choice.DisableParallel = serial && choice.Type != "none"
	return &choice, nil
}

// Temperature maps OpenAI's range 0–2 to 0–1 by cutting it off at 1.
func Temperature(t *float64) jsontext.Value {
	if t != nil && *t > 1 {
		return jsontext.Value("1")
	}
	return Number(t)
}

// Number writes a number, nil for none.
func Number(f *float64) jsontext.Value {
	if f == nil {
		return nil
	}
	return strconv.AppendFloat(nil, *f, 'g', -1, 64)
}
