package upstreamtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Types of items of Responses that rules speak of.
const (
	messageItem      = "message"
	reasoningItem    = "reasoning"
	compactionItem   = "compaction"
	callItem         = "function_call"
	outputItem       = "function_call_output"
	customItem       = "custom_tool_call"
	customOutputItem = "custom_tool_call_output"
	referenceItem    = "item_reference"
)

// maxItemID is the longest id of an item or of a call that Responses take.
const maxItemID = 64

// itemRule says which members a type of item has beside "type" and "id", and what its ids begin with. An item with a
// zero rule is not looked into.
type itemRule struct {
	id        string
	must, may []string
}

var itemRules = map[string]itemRule{
	messageItem:      {"msg", []string{"role", "content"}, []string{"status", "phase"}},
	reasoningItem:    {"rs", []string{"summary"}, []string{"content", "encrypted_content"}},
	compactionItem:   {"cmp", []string{"encrypted_content"}, []string{"created_by"}},
	callItem:         {"fc", []string{"call_id", "name", "arguments"}, []string{"status", "namespace"}},
	outputItem:       {"fc", []string{"call_id", "output"}, []string{"status"}},
	customItem:       {"ctc", []string{"call_id", "name", "input"}, []string{"status", "namespace"}},
	customOutputItem: {"ctc", []string{"call_id", "output"}, []string{"status"}},
	referenceItem:    {"", []string{"id"}, nil},

	"web_search_call": {}, "file_search_call": {}, "code_interpreter_call": {}, "image_generation_call": {},
	"mcp_call": {}, "mcp_list_tools": {}, "local_shell_call": {}, "local_shell_call_output": {},
}

// itemKind is the type of an item; one with a role needs none.
func itemKind(item members) string {
	if !item.has("type") && item.has("role") {
		return messageItem
	}
	return item.kind()
}

// readItems puts together the context: what the response before knew and said, then the input.
func readItems(x *exchange) error {
	previous, _ := x.body.text("previous_response_id")
	conversation, _ := x.body.text("conversation")
	switch {
	case previous != "" && x.body.has("conversation"):
		return refused("mutually_exclusive_parameters", "", "Mutually exclusive parameters: Ensure you are only providing "+
			"one of: 'previous_response_id' or 'conversation'.")
	case x.body.has("conversation"):
		return refusal{status: http.StatusNotFound, message: "Conversation with id '" + conversation + "' not found."}
	case previous != "":
		before, ok := x.server.items.response(previous)
		if !ok {
			return refused("previous_response_not_found", "previous_response_id",
				"Previous response with id '%s' not found.", previous)
		}
		x.items = before
	}
	x.input = len(x.items)
	input, ok := x.body.list("input")
	if s, isText := x.body.text("input"); isText && s != "" {
		input, ok = []members{{"type": quoted(messageItem), "role": quoted(user), "content": x.body["input"]}}, true
	} else if isText || !x.body.has("input") {
		input, ok = nil, true
	}
	switch {
	case !ok:
		return invalidType("input", "one of an array of objects or a string")
	case len(x.items)+len(input) == 0:
		return refused("missing_required_parameter", "input",
			`One of "input" or "previous_response_id" or 'prompt' or 'conversation_id' must be provided.`)
	}
	x.items = append(slices.Clone(x.items), input...)
	return nil
}

// itemsHold is the schema of every item of the input, and what references stand for.
func itemsHold(x *exchange) error {
	seen := map[string]bool{}
	for i, item := range x.items {
		id, _ := item.text("id")
		if i >= x.input {
			at := fmt.Sprintf("input[%d]", i-x.input)
			if err := checkItem(item, at, x.config.vendor() == DeepSeek); err != nil {
				return err
			}
		}
		if seen[id] && id != "" {
			return refused("", "input",
				"Duplicate item found with id %s. Remove duplicate items from your input and try again.", id)
		}
		seen[id] = true
		if itemKind(item) == referenceItem {
			if x.items[i] = x.server.items.stored(id); x.items[i] == nil {
				return x.notFound(id)
			}
		}
	}
	x.hear()
	return nil
}

// hear notes what was said last.
func (x *exchange) hear() {
	for i, item := range x.items {
		role, _ := item.text("role")
		switch kind := itemKind(item); {
		case kind == messageItem && role == user:
			x.User, x.Results, x.loop = itemText(item, "content"), nil, i+1
		case kind == outputItem || kind == customOutputItem:
			x.Results = append(x.Results, itemText(item, "output"))
		}
	}
}

// itemText is the text of a content or an output: a string, or parts.
func itemText(item members, name string) string {
	if s, ok := item.text(name); ok {
		return s
	}
	parts, _ := item.list(name)
	var all []string
	for _, p := range parts {
		if s, ok := p.text("text"); ok {
			all = append(all, s)
		}
	}
	return strings.Join(all, "\n")
}

// notFound is about an item that only its id is known of.
func (x *exchange) notFound(id string) error {
	r := refusal{status: http.StatusNotFound, param: "input", message: fmt.Sprintf("Item with id '%s' not found. Items "+
		"are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from "+
		"your input.", id)}
	if x.config.Responses.Azure {
		r.status = http.StatusBadRequest
	}
	return r
}

// checkItem is the schema of an item; readable says that reasoning may have its text.
func checkItem(item members, at string, readable bool) error {
	kind := itemKind(item)
	rule, known := itemRules[kind]
	switch {
	case kind == "":
		return missingParameter(at + ".type")
	case !known:
		return invalidValue(at, kind, sortedKinds()...)
	case rule.must == nil:
		return nil
	}
	if err := checkItemID(item, rule.id, at); err != nil {
		return err
	}
	for _, name := range rule.must {
		if !item.has(name) {
			return missingParameter(at + "." + name)
		}
		if _, ok := item.text(name); !ok && !slices.Contains([]string{"content", "output", "summary"}, name) {
			return invalidType(at+"."+name, "a string")
		}
	}
	if extra := item.unknown(slices.Concat([]string{"type", "id"}, rule.must, rule.may)...); extra != "" {
		return unknownParameter(at + "." + extra)
	}
	switch kind {
	case messageItem:
		return checkSaid(item, at)
	case reasoningItem:
		return checkReasoning(item, at, readable)
	case outputItem, customOutputItem:
		return checkTypedParts(item, "output", at, userParts)
	}
	return nil
}

func sortedKinds() (kinds []string) {
	for kind := range itemRules {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

func checkItemID(item members, prefix, at string) error {
	id, ok := item.text("id")
	call, isCall := item.text("call_id")
	name, _ := item.text("name")
	switch {
	case item.has("id") && !ok:
		return invalidType(at+".id", "a string")
	case ok && !strings.HasPrefix(id, prefix):
		return refused("invalid_value", at+".id", "Invalid '%s.id': '%s'. Expected an ID that begins with '%s'.", at, id,
			prefix)
	case len(id) > maxItemID:
		return tooLong(at+".id", id, maxItemID)
	case isCall && call == "":
		return refused("empty_string", at+".call_id", "Invalid '%s.call_id': empty string. Expected a string with minimum "+
			"length 1, but got an empty string instead.", at)
	case len(call) > maxItemID:
		return tooLong(at+".call_id", call, maxItemID)
	case item.has("name") && !legalName.MatchString(name):
		return refused("invalid_value", at+".name", "%v", badName(at+".name"))
	}
	return nil
}

// The types of parts that contents may have.
var (
	userParts      = []string{"input_text", "input_image", "input_file"}
	assistantParts = []string{"output_text", "refusal"}
)

func checkSaid(item members, at string) error {
	parts := userParts
	switch role, _ := item.text("role"); role {
	case user, system, developer:
	case assistant:
		parts = assistantParts
	default:
		return invalidValue(at+".role", role, assistant, system, developer, user)
	}
	return checkTypedParts(item, "content", at, parts)
}

// checkTypedParts wants a string, or parts of these types.
func checkTypedParts(item members, name, at string, kinds []string) error {
	at += "." + name
	if _, ok := item.text(name); ok {
		return nil
	}
	parts, ok := item.list(name)
	if !ok {
		return invalidType(at, "one of an array of objects or a string")
	}
	for j, p := range parts {
		at := fmt.Sprintf("%s[%d]", at, j)
		kind := p.kind()
		if !slices.Contains(kinds, kind) {
			return invalidValue(at, kind, kinds...)
		}
		switch _, isText := p.text("text"); {
		case strings.HasSuffix(kind, "_text") && !isText:
			return missingParameter(at + ".text")
		case kind == "refusal" && !p.has("refusal"):
			return missingParameter(at + ".refusal")
		case kind == "input_image" && p.has("image_url"):
			url, ok := p.text("image_url")
			if !ok {
				return invalidType(at+".image_url", "a string")
			}
			inner := object(nil).text("url", url).end()
			if err := checkImagePart(members{imagePart: inner}, at); err != nil {
				return refused("invalid_value", at+".image_url", "%v", err)
			}
		}
	}
	return nil
}

func checkReasoning(item members, at string, readable bool) error {
	summary, ok := item.list("summary")
	if !ok {
		return invalidType(at+".summary", "an array of objects")
	}
	for j, p := range summary {
		if _, ok := p.text("text"); p.kind() != "summary_text" || !ok {
			return invalidValue(fmt.Sprintf("%s.summary[%d]", at, j), p.kind(), "summary_text")
		}
	}
	content, _ := item.list("content")
	if len(content) > 0 && !readable {
		return refused("array_above_max_length", at+".content", "Invalid '%s.content': array too long. Expected an array "+
			"with maximum length 0, but got an array with length %d instead.", at, len(content))
	}
	return nil
}
