package upstreamtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Types of items of Responses that rules refer to.
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

// maxItemID is the maximum length of an item's or a call's id in Responses.
const maxItemID = 64

var itemShapes = map[string]shape{
	messageItem:      {nil, "msg", []string{"role", "content"}, []string{"status", "phase"}},
	reasoningItem:    {nil, "rs", []string{"summary"}, []string{"content", "encrypted_content"}},
	compactionItem:   {nil, "cmp", []string{"encrypted_content"}, []string{"created_by"}},
	callItem:         {nil, "fc", []string{"call_id", "name", "arguments"}, []string{"status", "namespace"}},
	outputItem:       {nil, "fc", []string{"call_id", "output"}, []string{"status"}},
	customItem:       {nil, "ctc", []string{"call_id", "name", "input"}, []string{"status", "namespace"}},
	customOutputItem: {nil, "ctc", []string{"call_id", "output"}, []string{"status"}},
	referenceItem:    {nil, "", []string{"id"}, nil},

	"web_search_call": {}, "file_search_call": {}, "code_interpreter_call": {}, "image_generation_call": {},
	"mcp_call": {}, "mcp_list_tools": {}, "local_shell_call": {}, "local_shell_call_output": {},
}

// itemKind returns the type of an item. An item with a role and no type is a message.
func itemKind(item members) string {
	if !item.has("type") && item.has("role") {
		return messageItem
	}
	return item.kind()
}

// The allowed types of content parts.
var (
	userParts      = []string{"input_text", "input_image", "input_file"}
	assistantParts = []string{"output_text", "refusal"}
)

const (
	textOrObjects = "one of an array of objects or a string"
	anItem        = "input[]:message|reasoning|compaction|function_call|function_call_output|custom_tool_call|" +
		"custom_tool_call_output|item_reference" // one that is looked into
	anOutput = "input[]:function_call_output|custom_tool_call_output"
)

// fits limits a member to maxItemID bytes.
func fits(name string) row {
	return row{anItem, func(s *spot) bool {
		n := len(s.str(name))
		return n <= maxItemID || s.finds(strconv.Itoa(n))
	}, refused("string_above_max_length", "{at}."+name, "Invalid '{at}."+name+"': string too long. Expected a string "+
		"with maximum length 64, but got a string with length {found} instead.")}
}

// partRows check the parts of a content or an output.
var partRows = []row{
	{":input_text|output_text", isText("text"), missingParameter("{at}.text")},
	{":refusal", has("refusal"), missingParameter("{at}.refusal")},
	{":input_image", either(lacks("image_url"), isText("image_url")), invalidType("{at}.image_url", "a string")},
	{":input_image", either(lacks("image_url"), func(s *spot) bool { return urlHolds(s, s.str("image_url")) }),
		refused("invalid_value", "{at}.image_url", "{found}")},
}

// itemRows check the schema of every item of the input and resolve references.
var itemRows = rowsOf([]row{
	{"input[]", func(s *spot) bool { return itemKind(s.members) != "" }, missingParameter("{at}.type")},
	{"input[]", func(s *spot) bool { _, ok := itemShapes[itemKind(s.members)]; return ok },
		invalidValue("{at}", "{type}", slices.Sorted(maps.Keys(itemShapes))...)},
	{anItem, either(lacks("id"), isText("id")), invalidType("{at}.id", "a string")},
	{anItem, func(s *spot) bool {
		prefix := itemShapes[itemKind(s.members)].id
		return !s.has("id") || strings.HasPrefix(s.str("id"), prefix) || s.finds(prefix)
	}, refused("invalid_value", "{at}.id", "Invalid '{at}.id': '{id}'. Expected an ID that begins with '{found}'.")},
	fits("id"),
	{anItem, either(not(isText("call_id")), not(isOne("call_id", ""))), refused("empty_string", "{at}.call_id",
		"Invalid '{at}.call_id': empty string. Expected a string with minimum length 1, but got an empty string instead.")},
	fits("call_id"),
	{anItem, either(lacks("name"), hasName(legalName)),
		refused("invalid_value", "{at}.name", badName)},
	{anItem, complete, nil},
	{anItem, func(s *spot) bool { return s.finds(itemShapes[itemKind(s.members)].stray(s.members)) },
		unknownParameter("{at}.{found}")},
	{"input[]:message", isOne("role", user, system, developer, assistant),
		invalidValue("{at}.role", "{role}", assistant, system, developer, user)},
	{"input[]:message", either(isText("content"), isList("content")), invalidType("{at}.content", textOrObjects)},
	{"input[]:message.content[]", either(not(modelsOwn), isOne("type", assistantParts...)),
		invalidValue("{at}", "{type}", assistantParts...)},
	{"input[]:message.content[]", either(modelsOwn, isOne("type", userParts...)),
		invalidValue("{at}", "{type}", userParts...)},
}, nest("input[]:message.content[]", partRows), []row{
	{"input[]:reasoning", isList("summary"), invalidType("{at}.summary", "an array of objects")},
	{"input[]:reasoning.summary[]", func(s *spot) bool { return s.is("type", "summary_text") && isText("text")(s) },
		invalidValue("{at}", "{type}", "summary_text")},
	{"input[]:reasoning", func(s *spot) bool {
		content, _ := s.listed("content")
		s.finding = fmt.Sprint(len(content))
		return len(content) == 0 || s.config.vendor() == DeepSeek
	}, refused("array_above_max_length", "{at}.content", "Invalid '{at}.content': array too long. Expected an array with "+
		"maximum length 0, but got an array with length {found} instead.")},
	{anOutput, either(isText("output"), isList("output")), invalidType("{at}.output", textOrObjects)},
	{anOutput + ".output[]", isOne("type", userParts...), invalidValue("{at}", "{type}", userParts...)},
}, nest(anOutput+".output[]", partRows), []row{
	{"input[]", unique(func(m members) string { return m.str("id") }), refused("", "input",
		"Duplicate item found with id {id}. Remove duplicate items from your input and try again.")},
	{"input[]", func(s *spot) bool {
		if s.is("type", referenceItem) {
			s.items[s.input+s.i] = s.server.stored(s.str("id"))
		}
		s.err = s.notFound(s.str("id"))
		return s.items[s.input+s.i] != nil
	}, nil},
	{"", run((*exchange).readItemTexts), nil},
})

// modelsOwn holds for a part of the model's message.
func modelsOwn(s *spot) bool { return s.up.is("role", assistant) }

// complete requires all required members of an item. Most of them must be strings.
func complete(s *spot) bool {
	for _, name := range itemShapes[itemKind(s.members)].required {
		if !s.has(name) {
			s.err = missingParameter(s.place() + "." + name)
			return false
		}
		if s.members[name].Kind() != '"' && name != "content" && name != "output" && name != "summary" {
			s.err = invalidType(s.place()+"."+name, "a string")
			return false
		}
	}
	return true
}

// readItems reads the context: the previous response's context and output, then the input.
func readItems(x *exchange) error {
	previous, conversation := x.body.str("previous_response_id"), x.body.str("conversation")
	switch {
	case previous != "" && x.body.has("conversation"):
		return refused("mutually_exclusive_parameters", "", "Mutually exclusive parameters: Ensure you are only providing "+
			"one of: 'previous_response_id' or 'conversation'.")
	case x.body.has("conversation"):
		return refusedWith(http.StatusNotFound, "", "Conversation with id '"+conversation+"' not found.")
	case previous != "":
		items := x.server.responses.get(previous)
		if items == nil {
			return refused("previous_response_not_found", "previous_response_id",
				"Previous response with id '"+previous+"' not found.")
		}
		x.items = items
	}
	x.input = len(x.items)
	input, ok := x.list(x.body, "input")
	if s, isText := x.body.text("input"); isText && s != "" {
		input, ok = []members{{"type": quoted(messageItem), "role": quoted(user), "content": x.body["input"]}}, true
	} else if isText || !x.body.has("input") {
		input, ok = nil, true
	}
	switch {
	case !ok:
		return invalidType("input", textOrObjects)
	case len(x.items)+len(input) == 0:
		return refused("missing_required_parameter", "input",
			`One of "input" or "previous_response_id" or 'prompt' or 'conversation_id' must be provided.`)
	}
	x.items = append(slices.Clone(x.items), input...)
	return nil
}

// readItemTexts reads the user's last text and the results after it.
func (x *exchange) readItemTexts() {
	for i, item := range x.items {
		switch kind := itemKind(item); {
		case kind == messageItem && item.is("role", user):
			x.User, x.Results, x.loop = itemText(item, "content"), nil, i+1
		case kind == outputItem || kind == customOutputItem:
			x.Results = append(x.Results, itemText(item, "output"))
		}
	}
}

// itemText returns the text of a content or an output, which is a string or parts.
func itemText(item members, name string) string {
	if s, ok := item.text(name); ok {
		return s
	}
	parts, _ := item.list(name)
	var out []string
	for _, p := range parts {
		if s, ok := p.text("text"); ok {
			out = append(out, s)
		}
	}
	return strings.Join(out, "\n")
}

// notFound returns the refusal of an item that is not persisted.
func (x *exchange) notFound(id string) error {
	r := refusal{status: http.StatusNotFound, param: "input", message: "Item with id '" + id + "' not found. Items " +
		"are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from " +
		"your input."}
	if x.config.Responses.Azure {
		r.status = http.StatusBadRequest
	}
	return r
}
