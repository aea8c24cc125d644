package responseswire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// Translated is a request of this dialect in the messages dialect.
type Translated struct {
	chatwire.Translated
	Options AnswerOptions // of the answer; Asked.Model and Asked.ID are the caller's to set

	Effort string // that was asked for
	// What refers to earlier requests or outlives this one is left to the caller.
	Previous     string // previous_response_id
	Conversation string // the conversation's id
	Background   bool
	Store        bool

	// Items are, with chatwire.Options.Native, the client's own items that each message of Body was made of.
	Items [][]jsontext.Value
	Lead  []jsontext.Value // those before the first message, which are in its system prompt
}

// ToolName is a tool as the client calls it.
type ToolName struct {
	Namespace string // empty for none
	Name      string
	Custom    bool // its input is a text
}

// MessagesRequest translates a request of this dialect. Its errors are a wire.Failure with status 400, or wrap
// wire.ErrBadJSON.
func MessagesRequest(body []byte, o chatwire.Options) (Translated, error) {
	var in request
	if err := wire.Unmarshal(body, &in); err != nil {
		return Translated{}, err
	}
	t := Translated{Store: in.Store == nil || *in.Store}
	if err := t.takeMembers(in.Other); err != nil {
		return t, err
	}
	var err error
	if o.Native {
		if items := gjson.GetBytes(body, "input"); items.IsArray() { // a text is a message without bytes of its own
			for i, it := range items.Array() {
				in.Input[i].raw = it.Raw
			}
		}
	} else if t.Ignored, err = responsesParameters.Judge(in.Other); err != nil {
		return t, err
	}
	for _, name := range in.Include {
		if why := refusedIncludes[name]; why != "" && !o.Native {
			return t, wire.Refuse("include: %q cannot be served by this backend: %s", name, why)
		}
	}
	out := wire.Request{Model: in.Model, Stream: in.Stream, TopP: chatwire.Number(in.TopP)}
	if out.Temperature = chatwire.Number(in.Temperature); !o.Intermediate {
		out.Temperature = chatwire.Temperature(in.Temperature)
	}
	if in.MaxOutputTokens != nil {
		out.MaxTokens = max(0, *in.MaxOutputTokens)
	}
	tools := toolbox{names: map[string]ToolName{}, native: o.Native, separate: o.Separate, body: body}
	if err = tools.add(in.Tools, "", o); err != nil {
		return t, err
	}
	for _, it := range in.Input {
		if it.Type == toolsItem && !o.Native {
			tools.join(it.Tools, o)
		}
	}
	if out.System, out.Messages, err = tools.turns(in); err != nil {
		return t, err
	}
	t.Items, t.Lead, t.Replaced, t.Newest = tools.items, tools.lead, tools.replaced, tools.lastBlocks
	if out.Tools, out.ToolChoice, err = tools.chosen(in); err != nil {
		return t, err
	}
	if id := cmp.Or(string(in.SafetyIdentifier), in.User); id != "" {
		out.Metadata = &wire.Metadata{UserID: id}
	}
	if in.Text != nil && in.Text.Format != nil {
		f := chatwire.AnswerForm{Type: in.Text.Format.Type, Schema: in.Text.Format.Schema,
			Description: in.Text.Format.Description, Member: "text.format"}
		if t.AnswerTool, err = f.Hold(&out, o); err != nil {
			return t, err
		}
	}
	if in.Reasoning != nil {
		t.Effort = in.Reasoning.Effort
	}
	chatwire.Think(&out, cmp.Or(t.Effort, o.Effort), o)
	t.Ignored = slices.Concat(t.Ignored, tools.ignored, tools.omitted, in.droppedMembers(out, o))
	t.Options = AnswerOptions{Stream: in.Stream, Names: tools.names}
	if o.Native { // the vendor's answer repeats its request itself
		t.Body, err = wire.Marshal(out)
		return t, err
	}
	if t.Options.Echo, err = in.echo(t.Previous); err != nil {
		return t, err
	}
	t.Body, err = wire.Marshal(out)
	return t, err
}

// takeMembers takes the members that the caller has to see to out of the others.
func (t *Translated) takeMembers(members map[string]jsontext.Value) error {
	for _, m := range []struct {
		name string
		dst  any
	}{{"previous_response_id", &t.Previous}, {"background", &t.Background}} {
		if v := members[m.name]; v != nil && json.Unmarshal(v, m.dst) != nil {
			return wire.Refuse("%s has the wrong type (a JSON %s)", m.name, v.Kind())
		}
	}
	var ref struct {
		ID string `json:"id"`
	}
	v := members["conversation"]
	if v != nil && json.Unmarshal(v, &ref) != nil && json.Unmarshal(v, &ref.ID) != nil {
		return wire.Refuse(`conversation must be an id, or {"id":…}`)
	}
	t.Conversation = ref.ID
	for _, name := range []string{"previous_response_id", "background", "conversation"} {
		delete(members, name)
	}
	return nil
}

// toolbox are a request's tools under the names that the model gets to see.
type toolbox struct {
	tools   []wire.Tool
	names   map[string]ToolName // of those that the client calls otherwise
	ignored []string

	native   bool               // see chatwire.Options
	separate bool               // see chatwire.Options
	items    [][]jsontext.Value // see Translated
	lead     []jsontext.Value   // see Translated
	tail     tail               // of the turn that is being read

	body       []byte   // the request
	omitted    []string // types of items
	replaced   bool     // see chatwire.Translated
	lastBlocks int      // blocks of the user's very last message
}

// maxName is the longest name of a tool that vendors take, in bytes.
const maxName = 64

// flat is the name of a tool for the model: that of a namespace and its own, joined.
func flat(space, name string) string {
	switch {
	case space == "":
		return name
	case strings.HasSuffix(space, "_") || strings.HasPrefix(name, "_"):
		name = space + name
	default:
		name = space + "__" + name
	}
	return wire.ToolName(name, maxName)
}

// add takes tools, of a namespace unless that is empty.
func (b *toolbox) add(tools []tool, space string, o chatwire.Options) error {
	for _, t := range tools {
		name := flat(space, t.Name)
		out := wire.Tool{Name: name, Description: t.Description, InputSchema: t.Parameters}
		switch kind := t.Type; {
		case kind == namespaceTool && space == "":
			if err := b.add(t.Tools, t.Name, o); err != nil {
				return err
			}
			continue
		case kind == customTool:
			out.InputSchema, out.Description = chatwire.CustomInput, chatwire.CustomSays(t.Description, t.Format)
		case kind != functionTool:
			if !b.native {
				b.ignored = append(b.ignored, "tools."+kind)
			}
			continue
		case t.Strict != nil && *t.Strict && (o.Intermediate || o.Schemas && chatwire.Closed(t.Parameters)):
			out.Strict = true
		}
		if t.Name == "" {
			return wire.Refuse("tools: a tool of type %q needs a name", t.Type)
		}
		if slices.ContainsFunc(b.tools, func(other wire.Tool) bool { return other.Name == name }) {
			return wire.Refuse("tools: two tools have the name %q", name)
		}
		if out.InputSchema.Kind() != '{' {
			out.InputSchema = jsontext.Value(`{"type":"object","properties":{}}`)
		}
		if space != "" || t.Type == customTool {
			b.names[name] = ToolName{Namespace: space, Name: t.Name, Custom: t.Type == customTool}
		}
		b.tools = append(b.tools, out)
	}
	return nil
}

// join takes additional tools, as far as they are functions that the request does not have yet.
func (b *toolbox) join(list jsontext.Value, o chatwire.Options) {
	var tools []tool
	if json.Unmarshal(list, &tools) != nil {
		b.ignored = append(b.ignored, toolsItem)
	}
	for _, t := range tools {
		if b.add([]tool{t}, "", o) != nil {
			b.ignored = append(b.ignored, "tools."+t.Type)
		}
	}
}

// newest is the index of the user's very last message; -1 if the model has spoken or called tools since.
func (in request) newest() int {
	for i := len(in.Input) - 1; i >= 0; i-- {
		it := in.Input[i]
		message := it.Type == messageItem || it.Type == ""
		switch {
		case it.Type == toolsItem, it.Type == snapshotItem, message && wire.IsSystem(it.Role):
		case message && it.Role == wire.RoleUser:
			return i
		default:
			return -1
		}
	}
	return -1
}

// chosen are the tools that the model may call, and whether it must. That some are allowed is a condition, so
// that the model does not get the others.
func (b *toolbox) chosen(in request) ([]wire.Tool, *wire.ToolChoice, error) {
	var choice struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Mode      string `json:"mode"`
		Tools     []tool `json:"tools"`
	}
	tools, mode := b.tools, "auto"
	switch v := in.ToolChoice; {
	case v.Kind() == '"':
		mode = gjson.ParseBytes(v).Str
	case v.Kind() == '{' && json.Unmarshal(v, &choice) == nil:
		mode = cmp.Or(choice.Mode, mode)
	case len(v) > 0 && v.Kind() != 'n':
		return nil, nil, wire.Refuse("tool_choice must be a string or an object")
	}
	out := &wire.ToolChoice{Type: map[string]string{"auto": "auto", "none": "none", "required": "any"}[mode]}
	switch choice.Type {
	case "":
	case functionTool, customTool:
		out.Type, out.Name = "tool", flat(choice.Namespace, choice.Name)
		if !slices.ContainsFunc(tools, func(t wire.Tool) bool { return t.Name == out.Name }) {
			return nil, nil, wire.Refuse("tool_choice: there is no tool %q among the tools", out.Name)
		}
	case "allowed_tools":
		tools = slices.DeleteFunc(slices.Clone(tools), func(t wire.Tool) bool {
			return !slices.ContainsFunc(choice.Tools, func(allowed tool) bool {
				return allowed.Name == t.Name || allowed.Name == b.names[t.Name].Name && allowed.Name != ""
			})
		})
		if len(tools) == 0 && !b.native {
			return nil, nil, wire.Refuse("tool_choice: none of the allowed tools is among the tools")
		}
	default:
		if b.native {
			return tools, nil, nil
		}
		return nil, nil, wire.Refuse("tool_choice: a tool of type %q cannot be served by this backend", choice.Type)
	}
	if out.Type == "" {
		return nil, nil, wire.Refuse("tool_choice %q is none of auto, none, required", mode)
	}
	if len(tools) == 0 {
		unasked := func(path string) bool {
			kind := strings.TrimPrefix(path, "tools.")
			return slices.Contains(ignoredTools, kind) || strings.HasPrefix(kind, "web_search")
		}
		i := slices.IndexFunc(b.ignored, func(path string) bool { return out.Type == "any" || !unasked(path) })
		if i >= 0 && out.Type != "none" {
			return nil, nil, wire.Refuse("tools: a tool of type %q cannot be served by this backend: offer a function or a "+
				"custom tool beside it, or use a backend that has it", strings.TrimPrefix(b.ignored[i], "tools."))
		}
		return nil, nil, nil
	}
	serial := in.ParallelToolCalls != nil && !*in.ParallelToolCalls
	if out.Type == "auto" && !serial {
		return tools, nil, nil
	}
	out.DisableParallel = serial && out.Type != "none"
	return tools, out, nil
}

// turns separates what instructs the model before the conversation begins, and makes messages of the items:
// neighbours of one role are one message.
func (b *toolbox) turns(in request) (system wire.Content, out []wire.Message, err error) {
	if in.Instructions != nil && *in.Instructions != "" {
		system = wire.Content{{Type: wire.TextBlock, Text: *in.Instructions}}
	}
	newest := in.newest()
	for i, it := range in.Input {
		role, blocks, err := b.blocks(i, it, i == newest)
		if err != nil {
			return nil, nil, wire.Refuse("input[%d]: %v", i, err)
		}
		if i == newest {
			b.lastBlocks = len(blocks)
		}
		if role == wire.RoleSystem && len(out) == 0 {
			system = append(system, blocks...)
			b.lead = append(b.lead, jsontext.Value(it.raw))
			continue
		}
		if b.native && len(blocks) > 0 {
			out = b.keep(out, it, role, blocks)
		}
		if b.separate && role == wire.RoleUser && len(blocks) > 0 {
			out = append(out, wire.Message{Role: role, Content: blocks})
			continue
		}
		out = chatwire.Join(out, role, blocks)
	}
	if b.native {
		out = b.endTurn(out)
	}
	if len(out) == 0 {
		return nil, nil, wire.Refuse("input must hold at least one item of the user with content")
	}
	return system, out, nil
}

// keep notes what an item says beyond its blocks, which come next.
func (b *toolbox) keep(out []wire.Message, it item, role string, blocks wire.Content) []wire.Message {
	if last := len(out) - 1; last < 0 || out[last].Role != role {
		out = b.endTurn(out)
		b.items = append(b.items, nil)
		b.tail = tail{}
	}
	raw := jsontext.Value(it.raw)
	b.items[len(b.items)-1] = append(b.items[len(b.items)-1], raw)
	if role != wire.RoleAssistant {
		return out
	}
	if b.tail.Blocks++; blocks[0].Type == wire.ThinkingBlock {
		b.tail.Thoughts++
	} else if _, own := wire.Unseal(blocks[0].Text); !own {
		b.tail.add(b.tail.Blocks-1, it.raw)
	}
	return out
}

// endTurn ends a turn of the model by its tail.
func (b *toolbox) endTurn(out []wire.Message) []wire.Message {
	last := len(out) - 1
	if last < 0 || out[last].Role != wire.RoleAssistant {
		return out
	}
	if signature := b.tail.signature(b.tail.Blocks); signature != "" {
		out[last].Content = append(out[last].Content, wire.Block{Type: wire.ThinkingBlock, Signature: signature})
	}
	return out
}

// blocks translates the item at i. An item of one vendor only has none, or a text replaces it.
func (b *toolbox) blocks(i int, it item, newest bool) (role string, blocks wire.Content, err error) {
	switch kind := it.Type; kind {
	case messageItem, "":
		if it.Content == nil && it.Role != "" {
			return "", nil, wire.Refuse("a message needs content, a string or a list of parts")
		}
		switch it.Role {
		case wire.RoleUser:
			blocks, err = b.userBlocks(it.Content, fmt.Sprintf("input.%d.content", i), newest)
			return wire.RoleUser, blocks, err
		case wire.RoleAssistant:
			role = wire.RoleAssistant
		case wire.RoleSystem, wire.RoleDeveloper:
			role = wire.RoleSystem
		case "":
			return "", nil, wire.Refuse("it has neither a type nor a role")
		default:
			return "", nil, wire.Refuse("its role %q is none of user, assistant, system, developer", it.Role)
		}
		between := ""
		if role == wire.RoleSystem {
			between = "\n"
		}
		if s := it.Content.text(between); s != "" {
			blocks = wire.Content{{Type: wire.TextBlock, Text: s}}
		}
		return role, blocks, nil
	case callItem, customItem:
		if it.CallID == "" || it.Name == "" {
			return "", nil, wire.Refuse("a %s needs call_id and name", kind)
		}
		arguments := string(it.Arguments)
		if kind == customItem {
			arguments = customArguments(it)
		}
		return wire.RoleAssistant, wire.Content{{Type: wire.ToolUseBlock, ID: it.CallID,
			Name: flat(it.Namespace, it.Name), Input: wire.InputObject(arguments)}}, nil
	case resultItem, customResultItem:
		if it.CallID == "" {
			return "", nil, wire.Refuse("a %s needs call_id", kind)
		}
		result := wire.Block{Type: wire.ToolResultBlock, ToolUseID: it.CallID}
		if it.Output == nil || *it.Output == nil {
			return "", nil, wire.Refuse("a %s needs output, a string or a list of parts", kind)
		}
		result.Content, err = b.userBlocks(*it.Output, fmt.Sprintf("input.%d.output", i), false)
		return wire.RoleUser, wire.Content{result}, err
	default:
		switch {
		case b.native && kind == reasoningItem:
			return wire.RoleAssistant, wire.Content{{Type: wire.ThinkingBlock, Thinking: it.thought(""),
				Signature: wire.Seal([]byte(it.raw))}}, nil
		case b.native:
			return wire.RoleAssistant, wire.Content{{Type: wire.TextBlock, Text: wire.Seal([]byte(it.raw))}}, nil
		}
		if slices.Contains(silentItems, kind) {
			if kind != reasoningItem && kind != toolsItem && kind != snapshotItem && !slices.Contains(b.omitted, kind) {
				b.omitted = append(b.omitted, kind)
			}
			return "", nil, nil
		}
		if role = wire.RoleAssistant; strings.HasSuffix(kind, "_output") {
			role = wire.RoleUser
		}
		return role, wire.Content{b.standIn(fmt.Sprintf("input.%d", i))}, nil
	}
}

// standIn is a text in the place of what is at a path of the request.
func (b *toolbox) standIn(path string) wire.Block {
	b.replaced = true
	return wire.Block{Type: wire.TextBlock, Text: wire.StandIn(gjson.GetBytes(b.body, path))}
}

// userBlocks translates the content at a path of the request. The part's own vendor gets a part without a counterpart
// unchanged, so here it only needs the same form each time. At another vendor such a part is an error in the user's
// very last message. In any other message a text replaces it.
func (b *toolbox) userBlocks(c content, path string, newest bool) (wire.Content, error) {
	var blocks wire.Content
	for i, p := range c {
		var block wire.Block
		var err error
		switch {
		case p.Type == inputText || p.Type == outputText || p.Type == "text":
			if block = (wire.Block{Type: wire.TextBlock, Text: p.Text}); p.Text == "" {
				continue
			}
		case p.Type == inputImage && p.ImageURL != "":
			block, err = chatwire.Image(p.ImageURL)
		case p.Type == inputFile && p.FileURL+p.FileData != "":
			block, err = chatwire.Document(p.FileName, cmp.Or(p.FileData, p.FileURL))
		case p.Type == inputImage || p.Type == inputFile:
			err = wire.Refuse("a part of type %q needs image_url, file_data or file_url: files are not kept here, so there is "+
				"no file_id", p.Type)
		default:
			err = wire.Refuse("a content part of type %q cannot be sent to this backend, only input_text, input_image and "+
				"input_file", p.Type)
		}
		switch {
		case err != nil && b.native:
			v, _ := wire.Marshal(p)
			block = wire.Block{Type: wire.TextBlock, Text: wire.Seal(v)}
		case err != nil && newest:
			return nil, err
		case err != nil:
			block = b.standIn(fmt.Sprintf("%s.%d", path, i))
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// echo is what a response repeats of its request. Members that a request may leave out are null, or what the
// dialect has in their place.
type echo struct {
	Instructions      *string        `json:"instructions"`
	Tools             []any          `json:"tools"`
	ToolChoice        jsontext.Value `json:"tool_choice"`
	ParallelToolCalls bool           `json:"parallel_tool_calls"`
	MaxOutputTokens   *int64         `json:"max_output_tokens"`
	MaxToolCalls      jsontext.Value `json:"max_tool_calls"`
	Temperature       jsontext.Value `json:"temperature"`
	TopP              jsontext.Value `json:"top_p"`
	Reasoning         struct {
		Effort  wire.NullString `json:"effort"`
		Summary wire.NullString `json:"summary"`
	} `json:"reasoning"`
	Text             textConfig      `json:"text"`
	Truncation       jsontext.Value  `json:"truncation"`
	TopLogprobs      jsontext.Value  `json:"top_logprobs"`
	PresencePenalty  jsontext.Value  `json:"presence_penalty"`
	FrequencyPenalty jsontext.Value  `json:"frequency_penalty"`
	ServiceTier      jsontext.Value  `json:"service_tier"`
	SafetyIdentifier wire.NullString `json:"safety_identifier"`
	PromptCacheKey   jsontext.Value  `json:"prompt_cache_key"`
	Metadata         jsontext.Value  `json:"metadata"`
	Previous         wire.NullString `json:"previous_response_id"`
	Background       bool            `json:"background"`
}

// shownTool is a function as a response repeats it.
type shownTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description wire.NullString `json:"description"`
	Parameters  jsontext.Value  `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

func (in request) echo(previous string) (jsontext.Value, error) {
	or := func(v jsontext.Value, missing string) jsontext.Value {
		if len(v) == 0 || v.Kind() == 'n' {
			return jsontext.Value(missing)
		}
		return v
	}
	member := func(name, missing string) jsontext.Value { return or(in.Other[name], missing) }
	e := echo{
		Instructions: in.Instructions, Tools: make([]any, len(in.Tools)), ToolChoice: or(in.ToolChoice, `"auto"`),
		ParallelToolCalls: in.ParallelToolCalls == nil || *in.ParallelToolCalls, MaxOutputTokens: in.MaxOutputTokens,
		MaxToolCalls: member("max_tool_calls", "null"), Temperature: or(chatwire.Number(in.Temperature), "1"),
		TopP: or(chatwire.Number(in.TopP), "1"), Truncation: member("truncation", `"disabled"`),
		TopLogprobs: member("top_logprobs", "0"), PresencePenalty: member("presence_penalty", "0"),
		FrequencyPenalty: member("frequency_penalty", "0"), ServiceTier: member("service_tier", `"default"`),
		SafetyIdentifier: in.SafetyIdentifier, PromptCacheKey: member("prompt_cache_key", "null"),
		Metadata: member("metadata", "{}"), Previous: wire.NullString(previous),
	}
	for i, t := range in.Tools {
		if e.Tools[i] = t; t.Type == functionTool {
			e.Tools[i] = shownTool{t.Type, t.Name, wire.NullString(t.Description), t.Parameters, t.Strict}
		}
	}
	if in.Reasoning != nil {
		e.Reasoning.Effort = wire.NullString(in.Reasoning.Effort)
		e.Reasoning.Summary = wire.NullString(in.Reasoning.Summary)
	}
	if in.Text != nil {
		e.Text = *in.Text
	}
	e.Text.Format = cmp.Or(e.Text.Format, &format{Type: "text"})
	return wire.Marshal(e)
}
