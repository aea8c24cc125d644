package upstreamtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Roles and block types of the messages dialect that rules refer to.
const (
	user      = "user"
	assistant = "assistant"
	system    = "system"

	textBlock     = "text"
	thinkingBlock = "thinking"
	redactedBlock = "redacted_thinking"
	useBlock      = "tool_use"
	resultBlock   = "tool_result"

	compactionBlock = "compaction" // of an Answer only
)

// legalName is the form of a tool's name at every vendor, and of a call's id at Anthropic.
var legalName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// maxMarkers is Anthropic's maximum number of blocks with cache_control.
const maxMarkers = 4

// structure is the part of a vendor's rules on messages that depends only on the request. The zero value is the
// strictest.
type structure struct {
	unsigned    bool     // a thinking block needs no signature
	recurring   bool     // ids may recur in later answers and contain any character
	unsupported []string // block types that the vendor does not know
}

var structures = map[Vendor]structure{
	GLM: {unsigned: true}, Kimi: {true, true, vendorOnly}, // MoonshotAI/Kimi-K2.5#27
	// https://api-docs.deepseek.com/guides/anthropic_api
	DeepSeek: {true, true, append([]string{redactedBlock, imageBlock}, vendorOnly...)},
}

// vendorOnly are the block types that Anthropic has and imitators lack.
var vendorOnly = []string{"document", "search_result", "web_fetch_tool_result", "code_execution_tool_result",
	"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
	"mcp_tool_use", "mcp_tool_result", "compaction", "container_upload", "tool_reference"}

// form returns the vendor's structural rules.
func (x *exchange) form() structure { return structures[x.config.vendor()] }

// shape describes an object of one type: its required and optional members beside "type", the roles of a block, and
// the prefix of an item's id. Objects with a zero shape are not checked.
type shape struct {
	roles              []string
	id                 string
	required, optional []string
}

// stray returns a member that the shape does not allow, or "".
func (h shape) stray(m members) string {
	return m.first(func(name string) bool {
		return name != "type" && (h.roles != nil || name != "id") && !slices.Contains(h.required, name) &&
			!slices.Contains(h.optional, name)
	})
}

var blockShapes = map[string]shape{
	textBlock:     {[]string{user, assistant, system}, "", []string{"text"}, []string{"cache_control", "citations"}},
	imageBlock:    {[]string{user}, "", []string{"source"}, []string{"cache_control"}},
	"document":    {[]string{user}, "", []string{"source"}, []string{"cache_control", "citations", "context", "title"}},
	thinkingBlock: {[]string{assistant}, "", []string{"thinking", "signature"}, nil},
	redactedBlock: {[]string{assistant}, "", []string{"data"}, nil},
	useBlock:      {[]string{assistant}, "", []string{"id", "name", "input"}, []string{"cache_control", "caller"}},
	resultBlock:   {[]string{user}, "", []string{"tool_use_id"}, []string{"cache_control", "content", "is_error"}},

	"search_result": {}, "server_tool_use": {}, "web_search_tool_result": {}, "web_fetch_tool_result": {},
	"code_execution_tool_result": {}, "bash_code_execution_tool_result": {}, "tool_search_tool_result": {},
	"text_editor_code_execution_tool_result": {}, "mcp_tool_use": {}, "mcp_tool_result": {}, "compaction": {},
	"container_upload": {}, "tool_reference": {},
}

var unsignedThinking = shape{[]string{assistant}, "", []string{"thinking"}, []string{"signature", "cache_control"}}

// turn is a message as far as it has been read. A string is one text block.
type turn struct {
	role   string
	blocks []members
}

// Messages of Anthropic's refusals that several rows share.
const extraInputs, emptyText = ": Extra inputs are not permitted", badRequest("messages: text content blocks must {found}")

var unlike = ": String should match pattern '" + legalName.String() + "'"

var (
	schemaRows = rowsOf([]row{
		{"", not(isOne("model", "")), badRequest("model: Field required")},
		{"", either(counts, has("max_tokens")),
			badRequest("max_tokens: Field required")},
		{"", isFull("messages"), badRequest("messages: at least one message is required")},
		{"messages[]", isOne("role", user, assistant, system),
			badRequest("{at}.role: Input should be 'user', 'assistant' or 'system'")},
		{"messages[]", func(s *spot) bool { return s.i > 0 || s.is("role", user) },
			badRequest(`messages: first message must use the "user" role`)},
		{"messages[]", has("content"), badRequest("{at}.content: Field required")},
		{"messages[]", knows("role", "content"), badRequest("{at}.{found}" + extraInputs)},
		{"messages[]", either(isText("content"), isList("content")),
			badRequest("{at}.content: Input should be a valid list")},
	}, nest("messages[].content[]", blockRows), []row{
		onceMore,
		{"messages[].content[]", either(not(bedrock), func(s *spot) bool {
			return !s.is("type", thinkingBlock) || s.str("signature") != ""
		}), badRequest("{at}.thinking.signature: Field required")},
		{"", run(readTurns), nil},
	})
	blockRows = []row{
		{"", func(s *spot) bool { return !slices.Contains(s.form().unsupported, s.kind()) },
			badRequest("Failed to deserialize the JSON body into the target type: {at}: unknown variant `{type}`")},
		{"", func(s *spot) bool { _, ok := blockShapes[s.kind()]; return ok },
			badRequest("{at}: Input tag '{type}' found using 'type' does not match any of the expected tags")},
		{"", func(s *spot) bool {
			s.finding = s.speaker()
			roles := blockShapes[s.kind()].roles
			return roles == nil || slices.Contains(roles, s.finding)
		}, badRequest("{at}: `{type}` blocks are not permitted in `{found}` messages")},
		{"", func(s *spot) bool { return s.finds(s.lack("input", "source")) }, badRequest("{at}.{type}.{found}")},
		{"", func(s *spot) bool {
			return s.shape().roles == nil || s.finds(s.shape().stray(s.members))
		}, badRequest("{at}.{type}.{found}" + extraInputs)},
		{":tool_use", func(s *spot) bool {
			id := s.str("id")
			return id != "" && (s.form().recurring || legalName.MatchString(id))
		}, badRequest("{at}.id" + unlike)},
		{":tool_use", hasName(legalName), badRequest("{at}.name" + unlike)},
		{":tool_use", isObjectAt("input"), badRequest("{at}.input: Input should be a valid dictionary")},
		{":image", isObjectAt("source"), badRequest("{at}.source: Input should be a valid dictionary")},
		{":image.source:base64", func(s *spot) bool { return s.finds(imageFault(s.str("media_type"), s.str("data"))) },
			badRequest("{at}{found}")},
		{":image.source:url", func(s *spot) bool { return strings.HasPrefix(s.str("url"), "https://") },
			badRequest("{at}: Only HTTPS URLs are supported.")},
		{":tool_result", either(lacks("content"), isText("content"), isList("content")),
			badRequest("{at}.content: Input should be a valid list")},
		{":tool_result.content[]", recurse(&blocksAgain), nil},
	}
	blocksAgain rows

	toolRows = rowsOf([]row{
		{"", either(lacks("tools"), isList("tools")), badRequest("tools: Input should be a valid list")},
		{"tools[]", hasName(legalName), badRequest("{at}.custom.name" + unlike)},
		{"tools[]", unique(func(m members) string { return m.str("name") }), badRequest("tools: Tool names must be unique.")},
		{"tools[]", either(vendorsOwn, isObjectAt("input_schema")), badRequest("{at}.custom.input_schema: Field required")},
		{"tools[]", either(vendorsOwn, hasType("input_schema", "object")),
			badRequest("{at}.custom.input_schema.type: Input should be 'object'")},
		{"", passes(usesPair), nil},
	})
	contentRows = rowsOf([]row{
		{"messages[]", func(s *spot) bool {
			return len(s.turns[s.i].blocks) > 0 || s.is("role", assistant) && s.i == s.count-1
		}, badRequest("{at}: all messages must have non-empty content except for the optional final assistant message")},
		{"messages[]", either(isOne("content", ""), speaks("content")), emptyText},
		{"messages[].content[]:tool_result.content[]:text", speaks("text"), emptyText},
		{"messages[].content[]:text", speaks("text"), emptyText},
		{"", either(lacks(system), isText(system), isList(system)), badRequest("system: Input should be a valid list")},
	}, nest("system[]", blockRows), []row{
		{"system[]:text", speaks("text"), badRequest("system: text content blocks must {found}")},
	})
	endingRows = rowsOf([]row{
		{"messages[]", func(s *spot) bool {
			blocks := s.turns[s.i].blocks
			if !s.modes.allows("enabled") || s.mode == "adaptive" || !slices.ContainsFunc(blocks, thinks) || thinks(blocks[0]) {
				return true // a model that thinks adaptively may begin with anything
			}
			return s.finds(blocks[0].kind())
		}, badRequest("{at}.content.0: If an assistant message contains any thinking blocks, the first block must be `thinking` " +
			"or `redacted_thinking`. Found `{found}`.")},
		{"messages[]", endsWith(func(last members) bool { return !thinks(last) }),
			badRequest("{at}: The final block in an assistant message cannot be `thinking`.")},
		{"messages[]", endsWith(func(last members) bool {
			s := last.str("text")
			return last.kind() != textBlock || strings.TrimRight(s, " \t\r\n") == s
		}), badRequest("messages: final assistant content cannot end with trailing whitespace")},
	})
)

func init() { blocksAgain = rowsOf(blockRows) }

func counts(s *spot) bool { return s.Endpoint == EndpointCount }

// speaker returns the role of the message that contains the block.
func (s *spot) speaker() string {
	for s.up.up != nil {
		s = s.up
	}
	if s.way == "system[]" {
		return system
	}
	return s.str("role")
}

// shape returns the shape of the block's type at this vendor.
func (s *spot) shape() shape {
	if kind := s.kind(); kind != thinkingBlock || !s.form().unsigned {
		return blockShapes[kind]
	}
	return unsignedThinking
}

// lack returns the fault of the first required member that is missing or not a string. The other names need not be
// strings.
func (s *spot) lack(others ...string) string {
	for _, name := range s.shape().required {
		if !s.has(name) {
			return name + ": Field required"
		}
		if s.members[name].Kind() != '"' && !slices.Contains(others, name) {
			return name + ": Input should be a valid string"
		}
	}
	return ""
}

// vendorsOwn holds for tools of the vendor, which have no schema.
func vendorsOwn(s *spot) bool { return s.kind() != "" && s.kind() != "custom" }

// speaks holds unless the member is a blank text.
func speaks(name string) test {
	return func(s *spot) bool {
		switch text := s.str(name); {
		case !blank(text):
			return true
		case text == "":
			return s.finds("be non-empty")
		}
		return s.finds("contain non-whitespace text")
	}
}

// endsWith checks the last block of a final assistant message, which the model continues.
func endsWith(holds func(last members) bool) test {
	return func(s *spot) bool {
		blocks := s.turns[s.i].blocks
		return s.i < s.count-1 || !s.is("role", assistant) || len(blocks) == 0 || holds(blocks[len(blocks)-1])
	}
}

// ValidateMessages checks the structure of a messages request. The error is the message of the vendor's answer of
// status 400 and type invalid_request_error.
func ValidateMessages(body []byte) error {
	return validate(body, &exchange{config: &Config{}, Request: &Request{Endpoint: EndpointMessages},
		modes: generations[Manual]}, blocksRule, pairsRule, emptyRule, markersRule, placedRule)
}

func validate(body []byte, x *exchange, rules ...rule) (err error) {
	if x.body, err = read(body); err != nil {
		return err
	}
	return x.hold(rules...)
}

// readTurns reads the messages, the user's last text, the results after it and the beginning of the latest turn. A
// user message with a result does not begin a turn.
func readTurns(x *exchange) {
	messages, _ := x.list(x.body, "messages")
	for i, m := range messages {
		t := turn{role: m.str("role")}
		if t.blocks, _ = x.list(m, "content"); m.str("content") != "" {
			t.blocks = []members{{"type": []byte(`"text"`), "text": m["content"]}}
		}
		x.turns = append(x.turns, t)
		if t.role != user {
			continue
		}
		results := slices.DeleteFunc(slices.Clone(t.blocks), func(b members) bool { return b.kind() != resultBlock })
		if len(results) == 0 {
			x.loop, x.User, x.Results = i+1, strings.Join(blockTexts(t.blocks), "\n"), nil
		}
		for _, b := range results {
			x.Results = append(x.Results, strings.Join(texts(b), "\n"))
		}
	}
	// In manual mode without interleaving, a model thinks only before its first call.
	manual := x.config.vendor() == Anthropic && x.mode == "enabled" && !x.beta(betaInterleaved)
	x.thought = manual && len(x.turns) > x.loop
}

// usesPair requires exactly one tool_result for every tool_use, at the beginning of the next message.
func usesPair(x *exchange) error {
	used := map[string]bool{}
	var open []string // uses of the previous message
	for i, t := range append(slices.Clone(x.turns), turn{}) {
		if err := checkResults(t, i, open); err != nil {
			return err
		}
		open = nil
		if x.form().recurring {
			clear(used)
		}
		for j, b := range t.blocks {
			id := b.str("id")
			switch {
			case !b.is("type", useBlock):
				continue
			case used[id]:
				return fmt.Errorf("messages.%d.content.%d: `tool_use` ids must be unique", i, j)
			}
			used[id] = true
			open = append(open, id)
		}
	}
	return nil
}

// checkResults compares the results in message i with the previous uses.
func checkResults(t turn, i int, open []string) error {
	answered := map[string]bool{}
	leading := true
	for j, b := range t.blocks {
		id := b.str("tool_use_id")
		switch {
		case !b.is("type", resultBlock):
			leading = false
			continue
		case !slices.Contains(open, id):
			return fmt.Errorf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
				"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, id)
		case answered[id]:
			return fmt.Errorf("messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` "+
				"blocks with id: %s", i, j, id)
		}
		answered[id] = leading
	}
	if missing := slices.DeleteFunc(open, func(id string) bool { return answered[id] }); len(missing) > 0 {
		return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
			"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i-1,
			strings.Join(missing, ", "))
	}
	return nil
}

func markersFit(x *exchange) error {
	n := 0
	count := func(m members, name string) {
		blocks, _ := x.list(m, name)
		for _, b := range blocks {
			if b.has("cache_control") {
				n++
			}
		}
	}
	for _, name := range []string{system, "tools"} {
		count(x.body, name)
	}
	messages, _ := x.list(x.body, "messages")
	for _, m := range messages {
		count(m, "content")
		blocks, _ := x.list(m, "content")
		for _, b := range blocks {
			count(b, "content")
		}
	}
	if n > maxMarkers {
		return fmt.Errorf("A maximum of %d blocks with cache_control may be provided. Found %d.", maxMarkers, n)
	}
	return nil
}

// thinks reports whether b is a thinking block, redacted or not.
func thinks(b members) bool { return b.is("type", thinkingBlock) || b.is("type", redactedBlock) }

// Types of images.
const (
	imagePart  = "image_url" // of chat completions
	imageBlock = "image"     // of the messages dialect
)

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// imageFault returns the fault of an image with this media type, or "".
func imageFault(kind, data string) string {
	raw, err := base64.StdEncoding.DecodeString(data)
	switch {
	case !slices.Contains(imageTypes, kind):
		return ".media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
	case err != nil || len(raw) == 0:
		return ".data: Invalid base64 data"
	case http.DetectContentType(raw) != kind:
		return ": Image does not match the provided media type " + kind
	}
	return ""
}

// urlHolds holds for an HTTP URL, or for a data URL whose bytes match its media type.
func urlHolds(s *spot, url string) bool {
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		kind, data, _ := strings.Cut(rest, ";base64,")
		fault := imageFault(kind, data)
		return fault == "" || s.finds(s.place()+".image_url.url"+fault)
	}
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") {
		return s.finds("Invalid '" + s.place() + ".image_url.url'. Expected a valid URL, but got a value with an invalid " +
			"format.")
	}
	return true
}
