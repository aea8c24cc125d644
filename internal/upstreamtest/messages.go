package upstreamtest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Roles and block types of the messages dialect that rules speak of.
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

// legalName is what every vendor takes as the name of a tool, legalUseID what
// Anthropic takes as the id of a call.
var (
	legalName  = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	legalUseID = legalName
)

// maxMarkers is how many blocks Anthropic takes cache_control on.
const maxMarkers = 4

// structure is the part of a vendor's rules on messages that needs nothing but
// the request. The zero value holds everything to the letter.
type structure struct {
	unsigned    bool     // a thinking block needs no signature
	recurring   bool     // a call's id may come again in a later answer and holds any characters
	unlimited   bool     // max_tokens may be missing
	unsupported []string // types of blocks that the vendor does not know
}

// blockRule says where a type of block may stand and which members it has beside
// "type". A block with a zero rule is not looked into.
type blockRule struct {
	roles     []string
	must, may []string
}

var blockRules = map[string]blockRule{
	textBlock:     {[]string{user, assistant, system}, []string{"text"}, []string{"cache_control", "citations"}},
	imageBlock:    {[]string{user}, []string{"source"}, []string{"cache_control"}},
	"document":    {[]string{user}, []string{"source"}, []string{"cache_control", "citations", "context", "title"}},
	thinkingBlock: {[]string{assistant}, []string{"thinking", "signature"}, nil},
	redactedBlock: {[]string{assistant}, []string{"data"}, nil},
	useBlock:      {[]string{assistant}, []string{"id", "name", "input"}, []string{"cache_control", "caller"}},
	resultBlock:   {[]string{user}, []string{"tool_use_id"}, []string{"cache_control", "content", "is_error"}},

	"search_result":              {},
	"server_tool_use":            {},
	"web_search_tool_result":     {},
	"web_fetch_tool_result":      {},
	"code_execution_tool_result": {},
}

// turn is a message as far as it has been read; a string is one text block.
type turn struct {
	role   string
	blocks []members
}

func (m members) kind() string {
	kind, _ := m.text("type")
	return kind
}

// ValidateMessages checks a request of the messages dialect. The error is what
// the vendor would answer with status 400 and type invalid_request_error.
func ValidateMessages(body []byte) error {
	r, err := read(body)
	if err != nil {
		return err
	}
	var s structure
	turns, err := s.readTurns(r)
	if err != nil {
		return err
	}
	for _, err := range []error{
		checkTools(r), s.checkPairs(turns), checkContents(turns), s.checkSystem(r), checkCacheControl(r, turns),
		checkThinking(turns), checkEnding(turns),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// readTurns checks the schema of the request and of every block.
func (s structure) readTurns(r members) ([]turn, error) {
	if model, ok := r.text("model"); !ok || model == "" {
		return nil, errors.New("model: Field required")
	}
	if !s.unlimited && !r.has("max_tokens") {
		return nil, errors.New("max_tokens: Field required")
	}
	messages, ok := r.list("messages")
	if !ok || len(messages) == 0 {
		return nil, errors.New("messages: at least one message is required")
	}
	turns := make([]turn, len(messages))
	for i, m := range messages {
		role, _ := m.text("role")
		switch {
		case !slices.Contains([]string{user, assistant, system}, role):
			return nil, fmt.Errorf("messages.%d.role: Input should be 'user', 'assistant' or 'system'", i)
		case i == 0 && role != user:
			return nil, errors.New(`messages: first message must use the "user" role`)
		case !m.has("content"):
			return nil, fmt.Errorf("messages.%d.content: Field required", i)
		case m.unknown("role", "content") != "":
			return nil, fmt.Errorf("messages.%d.%s: Extra inputs are not permitted", i, m.unknown("role", "content"))
		}
		blocks, err := s.readContent(m, role, fmt.Sprintf("messages.%d", i))
		if err != nil {
			return nil, err
		}
		turns[i] = turn{role, blocks}
	}
	return turns, nil
}

func (s structure) readContent(m members, role, at string) ([]members, error) {
	if said, ok := m.text("content"); ok {
		if said == "" {
			return nil, nil
		}
		return []members{{"type": []byte(`"text"`), "text": m["content"]}}, nil
	}
	blocks, ok := m.list("content")
	if !ok {
		return nil, fmt.Errorf("%s.content: Input should be a valid list", at)
	}
	for j, b := range blocks {
		if err := s.checkBlock(b, role, fmt.Sprintf("%s.content.%d", at, j)); err != nil {
			return nil, err
		}
	}
	return blocks, nil
}

func (s structure) checkBlock(b members, role, at string) error {
	kind := b.kind()
	rule, known := blockRules[kind]
	if s.unsigned && kind == thinkingBlock {
		rule.must, rule.may = []string{"thinking"}, []string{"signature", "cache_control"}
	}
	switch {
	case slices.Contains(s.unsupported, kind):
		return fmt.Errorf("Failed to deserialize the JSON body into the target type: %s: unknown variant `%s`", at, kind)
	case !known:
		return fmt.Errorf("%s: Input tag '%s' found using 'type' does not match any of the expected tags", at, kind)
	case rule.roles == nil:
		return nil
	case !slices.Contains(rule.roles, role):
		return fmt.Errorf("%s: `%s` blocks are not permitted in `%s` messages", at, kind, role)
	}
	at += "." + kind
	for _, name := range rule.must {
		if !b.has(name) {
			return fmt.Errorf("%s.%s: Field required", at, name)
		}
		if _, ok := b.text(name); !ok && name != "input" && name != "source" {
			return fmt.Errorf("%s.%s: Input should be a valid string", at, name)
		}
	}
	if extra := b.unknown(slices.Concat([]string{"type"}, rule.must, rule.may)...); extra != "" {
		return fmt.Errorf("%s.%s: Extra inputs are not permitted", at, extra)
	}
	switch kind {
	case useBlock:
		return s.checkUse(b, at)
	case imageBlock:
		return checkImageBlock(b, at)
	case resultBlock:
		if b.has("content") {
			_, err := s.readContent(b, user, at)
			return err
		}
	}
	return nil
}

func (s structure) checkUse(b members, at string) error {
	if id, _ := b.text("id"); id == "" || !s.recurring && !legalUseID.MatchString(id) {
		return fmt.Errorf("%s.id: String should match pattern '%s'", at, legalUseID)
	}
	if name, _ := b.text("name"); !legalName.MatchString(name) {
		return fmt.Errorf("%s.name: String should match pattern '%s'", at, legalName)
	}
	if _, ok := b.object("input"); !ok {
		return fmt.Errorf("%s.input: Input should be a valid dictionary", at)
	}
	return nil
}

func checkTools(r members) error {
	if !r.has("tools") {
		return nil
	}
	tools, ok := r.list("tools")
	if !ok {
		return errors.New("tools: Input should be a valid list")
	}
	seen := map[string]bool{}
	for i, t := range tools {
		name, _ := t.text("name")
		if !legalName.MatchString(name) {
			return fmt.Errorf("tools.%d.custom.name: String should match pattern '%s'", i, legalName)
		}
		if seen[name] {
			return errors.New("tools: Tool names must be unique.")
		}
		seen[name] = true
		if kind := t.kind(); kind != "" && kind != "custom" {
			continue // the vendor's own tool has no schema
		}
		schema, ok := t.object("input_schema")
		if !ok {
			return fmt.Errorf("tools.%d.custom.input_schema: Field required", i)
		}
		if kind := schema.kind(); kind != "object" {
			return fmt.Errorf("tools.%d.custom.input_schema.type: Input should be 'object'", i)
		}
	}
	return nil
}

// checkPairs holds every tool_use to exactly one tool_result at the beginning of
// the next message.
func (s structure) checkPairs(turns []turn) error {
	used := map[string]bool{}
	var open []string // uses of the message before
	for i := 0; i <= len(turns); i++ {
		var t turn
		if i < len(turns) {
			t = turns[i]
		}
		if err := checkResults(t, i, open); err != nil {
			return err
		}
		open = nil
		if s.recurring {
			clear(used)
		}
		for j, b := range t.blocks {
			if b.kind() != useBlock {
				continue
			}
			id, _ := b.text("id")
			if used[id] {
				return fmt.Errorf("messages.%d.content.%d: `tool_use` ids must be unique", i, j)
			}
			used[id] = true
			open = append(open, id)
		}
	}
	return nil
}

// checkResults compares the results in message i with the uses before it.
func checkResults(t turn, i int, open []string) error {
	answered := map[string]bool{}
	leading := true
	for j, b := range t.blocks {
		if b.kind() != resultBlock {
			leading = false
			continue
		}
		id, _ := b.text("tool_use_id")
		switch {
		case !slices.Contains(open, id):
			return fmt.Errorf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
				"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, id)
		case answered[id]:
			return fmt.Errorf("messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` "+
				"blocks with id: %s", i, j, id)
		}
		answered[id] = leading
	}
	missing := slices.DeleteFunc(slices.Clone(open), func(id string) bool { return answered[id] })
	if len(missing) > 0 {
		return fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
			"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i-1,
			strings.Join(missing, ", "))
	}
	return nil
}

func checkContents(turns []turn) error {
	for i, t := range turns {
		if len(t.blocks) == 0 && (t.role != assistant || i < len(turns)-1) {
			return fmt.Errorf("messages.%d: all messages must have non-empty content except for the optional final assistant "+
				"message", i)
		}
		for _, b := range t.blocks {
			inner, _ := b.list("content") // of a result
			if b.kind() != resultBlock {
				inner = nil
			}
			for _, b := range append(inner, b) {
				if err := checkText(b, "messages"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func checkText(b members, at string) error {
	s, _ := b.text("text")
	switch {
	case b.kind() != textBlock || !blank(s):
		return nil
	case s == "":
		return fmt.Errorf("%s: text content blocks must be non-empty", at)
	}
	return fmt.Errorf("%s: text content blocks must contain non-whitespace text", at)
}

func (s structure) checkSystem(r members) error {
	if _, ok := r.text(system); ok || !r.has(system) {
		return nil
	}
	blocks, ok := r.list(system)
	if !ok {
		return errors.New("system: Input should be a valid list")
	}
	for i, b := range blocks {
		if err := s.checkBlock(b, system, fmt.Sprintf("system.%d", i)); err != nil {
			return err
		}
		if err := checkText(b, system); err != nil {
			return err
		}
	}
	return nil
}

func checkCacheControl(r members, turns []turn) error {
	blocks, _ := r.list("system")
	tools, _ := r.list("tools")
	blocks = append(blocks, tools...)
	for _, t := range turns {
		for _, b := range t.blocks {
			inner, _ := b.list("content")
			blocks = append(append(blocks, b), inner...)
		}
	}
	n := 0
	for _, b := range blocks {
		if b.has("cache_control") {
			n++
		}
	}
	if n > maxMarkers {
		return fmt.Errorf("A maximum of %d blocks with cache_control may be provided. Found %d.", maxMarkers, n)
	}
	return nil
}

// thinks says whether b is a thinking block, redacted or not.
func thinks(b members) bool { return b.kind() == thinkingBlock || b.kind() == redactedBlock }

func checkThinking(turns []turn) error {
	for i, t := range turns {
		if slices.ContainsFunc(t.blocks, thinks) && !thinks(t.blocks[0]) {
			return fmt.Errorf("messages.%d.content.0: If an assistant message contains any thinking blocks, "+
				"the first block must be `thinking` or `redacted_thinking`. Found `%s`.", i, t.blocks[0].kind())
		}
	}
	return nil
}

// checkEnding is about a final assistant message, which the model is to go on with.
func checkEnding(turns []turn) error {
	i := len(turns) - 1
	t := turns[i]
	if t.role != assistant || len(t.blocks) == 0 {
		return nil
	}
	last := t.blocks[len(t.blocks)-1]
	s, _ := last.text("text")
	switch {
	case thinks(last):
		return fmt.Errorf("messages.%d: The final block in an assistant message cannot be `thinking`.", i)
	case last.kind() == textBlock && strings.TrimRight(s, " \t\r\n") != s:
		return errors.New("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}
