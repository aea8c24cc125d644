package upstreamtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// messages is a request of the messages dialect with these messages.
func messages(list ...string) string {
	return `{"model":"m","max_tokens":10,"messages":[` + strings.Join(list, ",") + `]}`
}

func says(role, content string) string { return fmt.Sprintf(`{"role":%q,"content":%s}`, role, content) }

func use(id string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"calc","input":{}}`, id)
}

func gives(id string) string {
	return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"4"}`, id)
}

const (
	text    = `{"type":"text","text":"a"}`
	thought = `{"type":"thinking","thinking":"t","signature":"s"}`
	bare    = `{"type":"thinking","thinking":""}`
	space   = `{"type":"thinking","thinking":" "}`
	hidden  = `{"type":"redacted_thinking","data":"d"}`
	cached  = `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`
)

var (
	ask     = says("user", `"ask"`)
	reply   = says("assistant", `"reply"`)
	uses    = func(blocks ...string) string { return says("assistant", `[`+strings.Join(blocks, ",")+`]`) }
	results = func(blocks ...string) string { return says("user", `[`+strings.Join(blocks, ",")+`]`) }
	one     = messages(ask)[:len(messages(ask))-1] // open for more members
)

func TestValidMessages(t *testing.T) {
	for name, body := range map[string]string{
		"a question":             messages(ask),
		"neighbours of one role": messages(ask, ask, reply, reply, ask),
		"a loop with parallel tools": messages(ask, uses(thought, text, use("a"), use("b")),
			results(gives("b"), gives("a"), text), uses(use("c")), results(gives("c"))),
		"a system message inside":       messages(ask, reply, says("system", `"note"`), ask),
		"an answer to go on with":       messages(ask, says("assistant", `"Once"`)),
		"an empty answer to go on with": messages(ask, says("assistant", `""`)),
		"a result without content": messages(ask, uses(use("a")),
			results(`{"type":"tool_result","tool_use_id":"a","is_error":true}`)),
		"a result of blocks": messages(ask, uses(use("a")),
			results(`{"type":"tool_result","tool_use_id":"a","content":[`+text+`]}`)),
		"thinking that was redacted": messages(ask, uses(hidden, text), ask),
		"a prompt, tools, cache control": one + `,"system":[` + cached +
			`],"tools":[{"name":"calc","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}]}`,
		"a name that comes twice in an input": messages(ask,
			uses(`{"type":"tool_use","id":"a","name":"calc","input":{"x":1,"x":2}}`), results(gives("a"))),
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, upstreamtest.ValidateMessages([]byte(body))) })
	}
}

func TestInvalidMessages(t *testing.T) {
	unanswered := func(i int, ids string) string {
		return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
			"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, ids)
	}
	orphan := func(at, id string) string {
		return fmt.Sprintf("messages.%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` "+
			"block must have a corresponding `tool_use` block in the previous message.", at, id)
	}
	for name, c := range map[string]struct{ body, want string }{
		"no JSON":               {`{`, "not valid JSON"},
		"no object":             {`null`, "must be a JSON object"},
		"half a surrogate pair": {messages(says("user", `"\ud83d"`)), "not valid JSON"},
		"no model":              {`{"max_tokens":1,"messages":[]}`, "model: Field required"},
		"no limit":              {`{"model":"m","messages":[` + ask + `]}`, "max_tokens: Field required"},
		"no messages":           {messages(), "messages: at least one message is required"},
		"an assistant begins":   {messages(reply, ask), `messages: first message must use the "user" role`},
		"a system message begins": {messages(says("system", `"s"`), ask),
			`messages: first message must use the "user" role`},
		"a role of another dialect": {messages(ask, says("tool", `"x"`)), "messages.1.role: Input should be"},
		"no content":                {messages(`{"role":"user"}`), "messages.0.content: Field required"},
		"content that is a number":  {messages(says("user", `1`)), "messages.0.content: Input should be a valid list"},
		"a member of another dialect": {messages(`{"role":"user","content":"a","name":"x"}`),
			"messages.0.name: Extra inputs are not permitted"},
		"an empty question": {
			messages(says("user", `""`)),
			"messages.0: all messages must have non-empty content except for the optional final assistant message",
		},
		"no blocks": {
			messages(says("user", `[]`)),
			"messages.0: all messages must have non-empty content except for the optional final assistant message",
		},
		"an empty answer inside": {messages(ask, says("assistant", `[]`), ask),
			"messages.1: all messages must have non-empty content except for the optional final assistant message"},
		"an empty text": {messages(says("user", `[{"type":"text","text":""}]`)),
			"messages: text content blocks must be non-empty"},
		"a blank text": {
			messages(says("user", `" \n"`)), "messages: text content blocks must contain non-whitespace text",
		},
		"an empty text in a result": {
			messages(ask, uses(use("a")),
				results(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":""}]}`)),
			"messages: text content blocks must be non-empty",
		},
		"an unknown block": {messages(says("user", `[{"type":"video"}]`)),
			"messages.0.content.0: Input tag 'video' found using 'type' does not match any of the expected tags"},
		"a use by the user": {messages(says("user", `[`+use("a")+`]`)),
			"messages.0.content.0: `tool_use` blocks are not permitted in `user` messages"},
		"a result by the assistant": {messages(ask, says("assistant", `[`+gives("a")+`]`)),
			"messages.1.content.0: `tool_result` blocks are not permitted in `assistant` messages"},
		"thinking without signature": {messages(ask, uses(`{"type":"thinking","thinking":"t"}`, text), ask),
			"messages.1.content.0.thinking.signature: Field required"},
		"redacted without data": {messages(ask, uses(`{"type":"redacted_thinking"}`, text), ask),
			"messages.1.content.0.redacted_thinking.data: Field required"},
		"a signature elsewhere": {
			messages(ask, uses(`{"type":"tool_use","id":"a","name":"n","input":{},"signature":"s"}`)),
			"messages.1.content.0.tool_use.signature: Extra inputs are not permitted",
		},
		"a use without id": {messages(ask, uses(`{"type":"tool_use","name":"n","input":{}}`)),
			"messages.1.content.0.tool_use.id: Field required"},
		"an id with a dot": {messages(ask, uses(use("functions.calc:0"))),
			"messages.1.content.0.tool_use.id: String should match pattern"},
		"a name with a space": {messages(ask, uses(`{"type":"tool_use","id":"a","name":"my tool","input":{}}`)),
			"messages.1.content.0.tool_use.name: String should match pattern"},
		"an input that is a list": {messages(ask, uses(`{"type":"tool_use","id":"a","name":"n","input":[]}`)),
			"messages.1.content.0.tool_use.input: Input should be a valid dictionary"},
		"an input that is text": {messages(ask, uses(`{"type":"tool_use","id":"a","name":"n","input":"{}"}`)),
			"messages.1.content.0.tool_use.input: Input should be a valid dictionary"},
		"no result at the end":      {messages(ask, uses(use("a"))), unanswered(1, "a")},
		"no result":                 {messages(ask, uses(use("a"), use("b")), ask), unanswered(1, "a, b")},
		"one result of two":         {messages(ask, uses(use("a"), use("b")), results(gives("a"))), unanswered(1, "b")},
		"a result one message late": {messages(ask, uses(use("a")), reply, results(gives("a"))), unanswered(1, "a")},
		"a result behind text":      {messages(ask, uses(use("a")), results(text, gives("a"))), unanswered(1, "a")},
		"a result for nobody": {messages(ask, uses(use("a")), results(gives("a"), gives("z"))),
			orphan("2.content.1", "z")},
		"a result again, later": {messages(ask, uses(use("a")), results(gives("a")), reply, results(gives("a"))),
			orphan("4.content.0", "a")},
		"two results for one use": {messages(ask, uses(use("a")), results(gives("a"), gives("a"))),
			"each tool_use must have a single result"},
		"an id used again": {
			messages(ask, uses(use("a")), results(gives("a")), uses(use("a")), results(gives("a"))),
			"`tool_use` ids must be unique",
		},
		"an id twice in one answer": {messages(ask, uses(use("a"), use("a")), results(gives("a"))),
			"`tool_use` ids must be unique"},
		"thinking behind text": {messages(ask, uses(text, thought, text), ask), "Found `text`."},
		"thinking at the end": {
			messages(ask, uses(thought)), "messages.1: The final block in an assistant message cannot be `thinking`.",
		},
		"white space at the end": {messages(ask, says("assistant", `"Once "`)),
			"messages: final assistant content cannot end with trailing whitespace"},
		"a tool's name twice": {
			one + `,"tools":[{"name":"a","input_schema":{"type":"object"}},{"name":"a","input_schema":{"type":"object"}}]}`,
			"Tool names must be unique",
		},
		"a tool's name with a dot": {one + `,"tools":[{"name":"a.b","input_schema":{"type":"object"}}]}`,
			"tools.0.custom.name: String should match pattern"},
		"a tool without schema": {one + `,"tools":[{"name":"a"}]}`, "tools.0.custom.input_schema: Field required"},
		"a tool that takes a list": {one + `,"tools":[{"name":"a","input_schema":{"type":"array"}}]}`,
			"tools.0.custom.input_schema.type: Input should be 'object'"},
		"an empty prompt block": {one + `,"system":[{"type":"text","text":""}]}`,
			"system: text content blocks must be non-empty"},
		"too much cache control": {messages(says("user", `[`+strings.Repeat(cached+",", 4)+cached+`]`)),
			"A maximum of 4 blocks with cache_control may be provided. Found 5."},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, upstreamtest.ValidateMessages([]byte(c.body)), c.want)
		})
	}
}
