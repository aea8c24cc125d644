package upstreamtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// chat is a chat-completions request with these messages.
func chat(list ...string) string {
	return `{"model":"m","messages":[` + strings.Join(list, ",") + `]}`
}

func call(id string) string { return callOf(id, "calc", "{}") }

func callOf(id, name, arguments string) string {
	return fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}`, id, name, arguments)
}

func calls(list ...string) string {
	return `{"role":"assistant","tool_calls":[` + strings.Join(list, ",") + `]}`
}

func result(id string) string {
	return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"4"}`, id)
}

func TestValidChats(t *testing.T) {
	long := strings.Repeat("x", 40)
	for name, body := range map[string]string{
		"a question":                 chat(ask),
		"prompts and a question":     chat(says("system", `"s"`), says("developer", `"d"`), ask),
		"a prompt behind a question": chat(ask, says("system", `"s"`), ask),
		"answers in a row":           chat(ask, reply, reply, ask),
		"parts": chat(
			says("user", `[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://x"}}]`),
		),
		"a loop with parallel tools": chat(ask, calls(call("a"), call(long)), result(long), result("a"), calls(call("c")),
			result("c")),
		"text beside calls": chat(ask, `{"role":"assistant","content":"hm","tool_calls":[`+call("a")+`]}`,
			result("a"), reply, ask),
		"empty content beside calls": chat(ask, `{"role":"assistant","content":"","tool_calls":[`+call("a")+`]}`,
			result("a")),
		"null content beside calls": chat(ask, `{"role":"assistant","content":null,"tool_calls":[`+call("a")+`]}`,
			result("a")),
		"an id with a dot": chat(ask, calls(call("functions.calc:0")), result("functions.calc:0")),
		"tools": chat(ask)[:len(chat(ask))-1] +
			`,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]}`,
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, upstreamtest.ValidateChat([]byte(body))) })
	}
}

func TestInvalidChats(t *testing.T) {
	const unanswered = "The following tool_call_ids did not have response messages: "
	tools := func(list string) string { return chat(ask)[:len(chat(ask))-1] + `,"tools":[` + list + `]}` }
	function := `{"type":"function","function":{"name":"f"}}`
	for name, c := range map[string]struct{ body, want string }{
		"no JSON":         {`[]`, "not valid JSON"},
		"no model":        {`{"messages":[` + ask + `]}`, "you must provide a model parameter"},
		"no messages":     {chat(), "Invalid 'messages': empty array"},
		"an unknown role": {chat(ask, says("USER", `"a"`)), "Invalid value: 'USER'"},
		"only a prompt": {
			chat(says("system", `"s"`)),
			"Expected last role User or Tool (or Assistant with prefix True) for serving but got system",
		},
		"an assistant begins": {chat(reply, ask), "the first to speak is the user"},
		"a prompt behind an answer": {chat(ask, reply, says("system", `"s"`), ask),
			"Unexpected role 'system' after role 'assistant'"},
		"a prompt behind a result": {chat(ask, calls(call("a")), result("a"), says("system", `"s"`)),
			"Unexpected role 'system' after role 'tool'"},
		"questions in a row": {chat(ask, ask), "Unexpected role 'user' after role 'user'"},
		"a question behind a result": {chat(ask, calls(call("a")), result("a"), ask),
			"Unexpected role 'user' after role 'tool'"},
		"an answer at the end": {chat(ask, reply), "but got assistant"},
		"an empty question": {
			chat(says("user", `""`)), "Invalid 'messages[0].content': text content must be non-empty",
		},
		"a blank question": {
			chat(says("user", `" "`)), "Invalid 'messages[0].content': text content must be non-empty",
		},
		"no parts": {chat(says("user", `[]`)), "Invalid value for 'messages[0].content'"},
		"a blank part": {chat(says("user", `[{"type":"text","text":" "}]`)),
			"Invalid 'messages[0].content[0].text'"},
		"a part of another dialect": {chat(says("user", `[{"type":"tool_result"}]`)),
			"'tool_result' is no type of content part here"},
		"an answer that says nothing": {chat(ask, says("assistant", `null`), ask), "Invalid value for 'messages[1].content'"},
		"a blank answer beside calls": {
			chat(ask, `{"role":"assistant","content":" ","tool_calls":[`+call("a")+`]}`, result("a")),
			"Invalid 'messages[1].content'",
		},
		"an empty list of calls": {chat(ask, `{"role":"assistant","content":"a","tool_calls":[]}`, ask),
			"[] is too short - 'messages[1].tool_calls'"},
		"a call of no type": {chat(ask, calls(`{"id":"a","function":{"name":"f","arguments":"{}"}}`), result("a")),
			"Invalid 'messages[1].tool_calls[0]'"},
		"a call without id": {chat(ask, calls(call("")), result("")),
			"Invalid 'messages[1].tool_calls[0].id': empty string"},
		"an id that is too long": {chat(ask, calls(call(strings.Repeat("x", 41))), result("a")),
			"maximum length 40, but got a string with length 41"},
		"an id used again": {chat(ask, calls(call("a")), result("a"), calls(call("a")), result("a")),
			"duplicate tool call id a"},
		"a call without name": {chat(ask, calls(callOf("a", "", "{}")), result("a")),
			"Invalid 'messages[1].tool_calls[0].function.name'"},
		"a name with a space": {chat(ask, calls(callOf("a", "my tool", "{}")), result("a")),
			"Invalid 'messages[1].tool_calls[0].function.name'"},
		"no arguments": {chat(ask, calls(callOf("a", "f", "")), result("a")),
			"expected the text of a JSON object"},
		"arguments cut off": {chat(ask, calls(callOf("a", "f", `{"x":`)), result("a")),
			"expected the text of a JSON object"},
		"arguments that are a list": {chat(ask, calls(callOf("a", "f", `[]`)), result("a")),
			"expected the text of a JSON object"},
		"arguments with half a pair": {chat(ask, calls(callOf("a", "f", `{"x":"\ud83d"}`)), result("a")),
			"expected the text of a JSON object"},
		"no result at the end":        {chat(ask, calls(call("a"))), "Expected last role"},
		"one result of two":           {chat(ask, calls(call("a"), call("b")), result("a")), unanswered + "b"},
		"no result before an answer":  {chat(ask, calls(call("a")), reply, ask), unanswered + "a"},
		"no result before a question": {chat(ask, calls(call("a")), ask), unanswered + "a"},
		"a result for nobody": {chat(ask, calls(call("a")), result("z"), result("a")),
			"must be a response to a preceeding message with 'tool_calls'"},
		"a result behind a question": {
			chat(ask, result("a")), "must be a response to a preceeding message with 'tool_calls'",
		},
		"two results for one call": {chat(ask, calls(call("a")), result("a"), result("a")),
			"Not the same number of function calls and responses"},
		"an empty result": {chat(ask, calls(call("a")), `{"role":"tool","tool_call_id":"a","content":""}`),
			"Invalid 'messages[2].content'"},
		"no tools":            {tools(""), "Invalid 'tools'"},
		"a tool of no type":   {tools(`{"function":{"name":"f"}}`), "Invalid 'tools[0]'"},
		"a tool's name twice": {tools(function + "," + function), "Tool names must be unique"},
		"a tool's name with a dot": {tools(`{"type":"function","function":{"name":"a.b"}}`),
			"Invalid 'tools[0].function.name'"},
		"a tool that takes a list": {tools(`{"type":"function","function":{"name":"f","parameters":{"type":"array"}}}`),
			"Invalid schema for function 'f'"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, upstreamtest.ValidateChat([]byte(c.body)), c.want) })
	}
}
