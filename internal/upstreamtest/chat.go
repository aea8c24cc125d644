package upstreamtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Roles of chat completions that the messages dialect does not have.
const (
	developer = "developer"
	tool      = "tool"
)

// maxCallID is OpenAI's maximum length of a call's id.
const maxCallID = 40

// ValidateChat checks the structure of a chat-completions request. The error is the message of a vendor's answer of
// status 400.
func ValidateChat(body []byte) error {
	x := &exchange{config: &Config{Vendor: Chat}, Request: &Request{Endpoint: EndpointChat}}
	x.talk.ordered = true
	return validate(body, x, dialogRule)
}

// mistralID is the form of a call's id at Mistral.
var mistralID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// dialogue is the state of a conversation while its messages are checked, and the rules for it.
type dialogue struct {
	ordered   bool           // roles must follow Mistral's order
	maxID     int            // maximum length of a call's id; 0 is unlimited
	callID    *regexp.Regexp // form of a call's id; nil is any
	recurring bool           // ids may recur in later answers

	lastRole string // role of the previous message; developer counts as system
	started  bool   // a message other than a system prompt has been checked
	open     []string
	used     map[string]bool
}

// beginTalk selects the rules for the order of messages and the ids of calls.
func beginTalk(x *exchange) {
	d := &x.talk
	switch vendor := x.config.vendor(); {
	case vendor != Chat && vendor != OpenAI:
		d.recurring = true
	case x.config.Chat.ToolIDs == OpenAIIDs:
		d.maxID = maxCallID
	case x.config.Chat.ToolIDs == MistralIDs:
		d.ordered, d.callID = true, mistralID
	}
}

var badName = "Invalid '{at}.name': string does not match pattern. Expected a string that matches the pattern '" +
	legalName.String() + "'."

const noFunction = badRequest("Invalid '{at}': expected an object of type 'function'.")

func isFunction(s *spot) bool { return s.is("type", "function") && isObjectAt("function")(s) }

// settled holds if every call of the last answer has a result.
func settled(s *spot) bool { return s.finds(strings.Join(s.talk.open, ", ")) }

const unsettled = badRequest("An assistant message with 'tool_calls' must be followed by tool messages responding to each " +
	"'tool_call_id'. The following tool_call_ids did not have response messages: {found}")

// onlyCalls holds for an answer with calls and without content.
func onlyCalls(s *spot) bool {
	return s.is("role", assistant) && s.has("tool_calls") && (!s.has("content") || s.is("content", ""))
}

// partKinds are the allowed types of content parts by role.
var partKinds = map[string][]string{
	user: {textBlock, imagePart, "input_audio", "file"}, assistant: {textBlock, "refusal"}, tool: {textBlock},
	system: {textBlock}, developer: {textBlock},
}

// dialogRows check all messages in order. Their state is exchange.talk.
var dialogRows = rowsOf([]row{
	{"", run(beginTalk), nil},
	{"", not(isOne("model", "")), badRequest("you must provide a model parameter")},
	{"", either(lacks("tools"), isFull("tools")), badRequest("Invalid 'tools': expected an array with minimum length 1.")},
	{"tools[]", isFunction, noFunction},
	{"tools[].function", hasName(legalName), badRequest(badName)},
	{"tools[]", unique(func(m members) string { return m.in("function").str("name") }),
		badRequest("Tool names must be unique")},
	{"tools[].function", either(lacks("parameters"), hasType("parameters", "object")),
		badRequest("Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'.")},
	{"", isFull("messages"),
		badRequest("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an " +
			"empty array instead.")},
	{"messages[]", either(isOne("role", tool), settled), unsettled},
	{"messages[]", func(s *spot) bool { return partKinds[s.str("role")] != nil },
		badRequest("Invalid value: '{role}'. Supported values are: 'system', 'developer', 'user', 'assistant' and 'tool' " +
			"({at}.role).")},
	{"messages[]", func(s *spot) bool {
		previous, inside := s.talk.lastRole, s.talk.lastRole == tool || s.talk.lastRole == assistant
		switch role := roleOf(s.members); {
		case role == system && inside, role == user && (previous == tool || previous == user):
			s.finding = role + "' after role '" + previous
			return !s.talk.ordered
		}
		return true
	}, badRequest("Unexpected role '{found}'")},
	{"messages[]@assistant", func(s *spot) bool { return s.talk.started || !s.talk.ordered },
		badRequest("Conversation must start with a user message or system message, and the first to speak is the user")},
	{"messages[]@assistant", either(lacks("tool_calls"), isFull("tool_calls")),
		badRequest("[] is too short - '{at}.tool_calls'")},
	{"messages[]@assistant.tool_calls[]", isFunction, noFunction},
	{"messages[]@assistant.tool_calls[]", not(isOne("id", "")),
		badRequest("Invalid '{at}.id': empty string. Expected a string with minimum length 1, but got an empty " +
			"string instead.")},
	{"messages[]@assistant.tool_calls[]", func(s *spot) bool {
		return s.talk.callID == nil || s.talk.callID.MatchString(s.str("id"))
	}, badRequest("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.")},
	{"messages[]@assistant.tool_calls[]", func(s *spot) bool {
		n, most := len(s.str("id")), s.talk.maxID
		return most == 0 || n <= most || s.finds(fmt.Sprintf("%d, but got a string with length %d", most, n))
	}, badRequest("Invalid '{at}.id': string too long. Expected a string with maximum length {found} instead.")},
	{"messages[]@assistant.tool_calls[]", func(s *spot) bool {
		id := s.str("id")
		return (!s.talk.used[id] || s.talk.recurring) && !slices.Contains(s.talk.open, id)
	}, badRequest("Invalid '{at}.id': duplicate tool call id {id}")},
	{"messages[]@assistant.tool_calls[].function", hasName(legalName), badRequest(badName)},
	{"messages[]@assistant.tool_calls[].function", func(s *spot) bool {
		arguments := jsontext.Value(s.str("arguments"))
		return arguments.Kind() == '{' && arguments.IsValid(lenient) || s.finds(fmt.Sprintf("%.60q", string(arguments)))
	}, badRequest("Invalid '{at}.arguments': expected the text of a JSON object, but got {found} instead.")},
	{"messages[]@assistant.tool_calls[]", func(s *spot) bool {
		if s.talk.used == nil {
			s.talk.used = map[string]bool{}
		}
		s.talk.used[s.str("id")] = true
		s.talk.open = append(s.talk.open, s.str("id"))
		return true
	}, nil},
	{"messages[]@tool", func(s *spot) bool {
		id, previous := s.str("tool_call_id"), s.talk.lastRole
		return (previous == assistant || previous == tool) && (s.talk.used[id] || slices.Contains(s.talk.open, id))
	}, badRequest("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with " +
		"'tool_calls' ({at}, id {tool_call_id}).")},
	{"messages[]@tool", func(s *spot) bool {
		i := slices.Index(s.talk.open, s.str("tool_call_id"))
		if i >= 0 {
			s.talk.open = slices.Delete(s.talk.open, i, i+1)
		}
		return i >= 0
	}, badRequest("Not the same number of function calls and responses ({at} answers id {tool_call_id} again)")},
	{"messages[]", either(onlyCalls, not(isText("content")), func(s *spot) bool { return !blank(s.str("content")) }),
		badRequest("Invalid '{at}.content': text content must be non-empty")},
	{"messages[]", either(onlyCalls, isText("content"), isFull("content")),
		badRequest("Invalid value for '{at}.content': expected a string or an array of content parts.")},
	{"messages[].content[]", func(s *spot) bool { return slices.Contains(partKinds[s.up.str("role")], s.kind()) },
		badRequest("Invalid value: '{type}' is no type of content part here ({at}).")},
	{"messages[].content[]:text|refusal", func(s *spot) bool { return !blank(s.str(s.kind())) },
		badRequest("Invalid '{at}.{type}': text content must be non-empty")},
	{"messages[].content[]:image_url", func(s *spot) bool { return s.in(imagePart)["url"].Kind() == '"' },
		badRequest("Invalid type for '{at}.image_url': expected an object with a url.")},
	{"messages[].content[]:image_url", func(s *spot) bool { return urlHolds(s, s.in(imagePart).str("url")) },
		badRequest("{found}")},
	{"messages[]", func(s *spot) bool {
		s.talk.lastRole = roleOf(s.members)
		s.talk.started = s.talk.started || s.talk.lastRole != system
		return true
	}, nil},
	{"", func(s *spot) bool {
		previous := s.talk.lastRole
		return !s.talk.ordered || previous == user || previous == tool || s.finds(previous)
	}, badRequest("Expected last role User or Tool (or Assistant with prefix True) for serving but got {found}")},
	{"", settled, unsettled},
	{"", run(readMessages), nil},
})

// roleOf returns the role of a message. A developer message counts as a system message.
func roleOf(m members) string {
	if m.is("role", developer) {
		return system
	}
	return m.str("role")
}

// readMessages stores the user's last text and the results after it.
func readMessages(x *exchange) {
	x.messages, _ = x.list(x.body, "messages")
	for _, m := range x.messages {
		switch text := strings.Join(texts(m), "\n"); m.str("role") {
		case user:
			x.User, x.Results = text, nil
		case tool:
			x.Results = append(x.Results, text)
		}
	}
}
