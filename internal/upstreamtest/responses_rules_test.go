package upstreamtest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// Each of these is refused by OpenAI in these words; without the fault, the request is taken.
func TestInvalidResponses(t *testing.T) {
	const (
		call   = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
		output = `{"type":"function_call_output","call_id":"call_1","output":"4"}`
		custom = `{"type":"custom_tool_call","call_id":"call_2","name":"f","input":"a"}`
		thing  = `{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"a"}]}`
	)
	long := strings.Repeat("x", 65)
	v := openAI(upstreamtest.Config{})
	rs, _, _, _, _ := unitOf(t, v, encrypted)
	tools := func(list string) string { return response(`"tools":[`+list+`],`, said) }
	function := `{"type":"function","name":"f","parameters":{"type":"object"}}`
	model := func(name, rest string) string {
		return strings.Replace(response(rest, said), `"m"`, `"`+name+`"`, 1)
	}
	for name, c := range map[string]struct{ body, param, code, want string }{
		"no model":     {`{"input":"hi"}`, "model", "missing_required_parameter", "Missing required parameter: 'model'."},
		"empty input":  {response(""), "input", "missing_required_parameter", `One of "input" or "previous_response_id"`},
		"no input":     {`{"model":"m"}`, "input", "missing_required_parameter", `One of "input" or`},
		"empty text":   {`{"model":"m","input":""}`, "input", "missing_required_parameter", `One of "input" or`},
		"input of one": {`{"model":"m","input":` + said + `}`, "input", "invalid_type", "Invalid type for 'input'"},
		"a parameter of another dialect": {response(`"messages":[],`, said), "messages", "unknown_parameter",
			"Unknown parameter: 'messages'."},
		"an unknown parameter inside": {response(`"reasoning":{"enabled":true},`, said), "reasoning.enabled",
			"unknown_parameter", "Unknown parameter: 'reasoning.enabled'."},
		"too few tokens": {response(`"max_output_tokens":1,`, said), "max_output_tokens", "integer_below_min_value",
			"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead."},
		"include":          {response(`"include":["all"],`, said), "include[0]", "invalid_value", "Invalid value: 'all'."},
		"format":           {response(`"text":{"format":{"type":"xml"}},`, said), "text.format.type", "invalid_value", "'json_object', 'json_schema', and 'text'."},
		"format's name":    {response(`"text":{"format":{"type":"json_schema"}},`, said), "text.format.name", "missing_required_parameter", ""},
		"no reasoning":     {model("gpt-4o", `"reasoning":{"effort":"low"},`), "reasoning.effort", "unsupported_parameter", "is not supported with this model."},
		"effort":           {model("gpt-5", `"reasoning":{"effort":"none"},`), "reasoning.effort", "unsupported_value", "'none' is not supported with the 'gpt-5' model."},
		"nothing to hide":  {model("gpt-4o", encrypted), "include", "", "Encrypted content is not supported with this model."},
		"temperature":      {model("gpt-5", `"temperature":0,`), "temperature", "unsupported_parameter", "'temperature' is not supported with this model."},
		"a chat tool":      {tools(`{"type":"function","function":{"name":"f"}}`), "tools[0].name", "missing_required_parameter", "Missing required parameter: 'tools[0].name'."},
		"no type of tool":  {tools(`{"name":"f"}`), "tools[0].type", "missing_required_parameter", ""},
		"unknown tool":     {tools(`{"type":"magic"}`), "tools[0].type", "invalid_value", "Invalid value: 'magic'."},
		"member of a tool": {tools(`{"type":"function","name":"f","input_schema":{}}`), "tools[0].input_schema", "unknown_parameter", ""},
		"name of a tool":   {tools(`{"type":"function","name":"a.b"}`), "tools[0].name", "invalid_value", "string does not match pattern"},
		"nested tool":      {tools(`{"type":"namespace","name":"n","tools":[{"type":"function"}]}`), "tools[0].tools[0].name", "missing_required_parameter", ""},
		"namespace":        {tools(`{"type":"namespace","name":"n"}`), "tools[0].tools", "missing_required_parameter", ""},
		"schema of a tool": {tools(`{"type":"function","name":"f","parameters":{"type":"array"}}`), "tools[0].parameters", "invalid_function_parameters", `got 'type: "array"'.`},
		"strict": {tools(`{"type":"function","name":"f","strict":true,"parameters":{"type":"object"}}`), "tools[0].parameters",
			"invalid_function_parameters", "'additionalProperties' is required to be supplied and to be false."},
		"anyOf on top": {tools(`{"type":"function","name":"f","parameters":{"type":"object","anyOf":[]}}`), "tools[0].parameters",
			"invalid_function_parameters", "at the top level."},
		"a tool that is not there": {response(`"tools":[`+function+`],"tool_choice":{"type":"function","name":"g"},`, said),
			"tool_choice", "", "Tool choice 'function' not found in 'tools' parameter."},

		"no type":        {response("", `{"content":"a"}`), "input[0].type", "missing_required_parameter", ""},
		"a chat result":  {response("", said, `{"role":"tool","tool_call_id":"a","content":"4"}`), "input[1].tool_call_id", "unknown_parameter", ""},
		"a role":         {response("", `{"role":"tool","content":"4"}`), "input[0].role", "invalid_value", "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'."},
		"an item":        {response("", said, `{"type":"thinking"}`), "input[1]", "invalid_value", "Invalid value: 'thinking'."},
		"a user's part":  {response("", `{"role":"user","content":[{"type":"text","text":"a"}]}`), "input[0].content[0]", "invalid_value", "Supported values are: 'input_text', 'input_image', and 'input_file'."},
		"a model's part": {response("", said, `{"role":"assistant","content":[{"type":"input_text","text":"a"}]}`), "input[1].content[0]", "invalid_value", "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."},
		"a part's text":  {response("", `{"role":"user","content":[{"type":"input_text"}]}`), "input[0].content[0].text", "missing_required_parameter", ""},
		"an image":       {response("", `{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}`), "input[0].content[0].image_url", "invalid_value", "does not match"},
		"a chat image":   {response("", `{"role":"user","content":[{"type":"input_image","image_url":{"url":"https://x"}}]}`), "input[0].content[0].image_url", "invalid_type", ""},
		"no summary": {response("", said, lacking(rs, "summary"), thing), "input[1].summary", "missing_required_parameter",
			"Missing required parameter: 'input[1].summary'."},
		"a summary's part": {response("", said, with(rs, "summary", `[{"type":"text","text":"a"}]`), thing), "input[1].summary[0]", "invalid_value", ""},
		"readable reasoning": {response("", said, with(rs, "content", `[{"type":"reasoning_text","text":"a"}]`), thing),
			"input[1].content", "array_above_max_length", "Invalid 'input[1].content': array too long. Expected an array " +
				"with maximum length 0, but got an array with length 1 instead."},
		"reasoning's status": {response("", said, with(rs, "status", "null"), thing), "input[1].status", "unknown_parameter",
			"Unknown parameter: 'input[1].status'."},
		"an id twice": {response("", said, thing, thing), "input", "",
			"Duplicate item found with id msg_1. Remove duplicate items from your input and try again."},
		"an id of another kind": {response("", said, with(rs, "id", `"msg_1"`), thing), "input[1].id", "invalid_value",
			"Invalid 'input[1].id': 'msg_1'. Expected an ID that begins with 'rs'."},
		"a call's id": {response("", said, with(call, "id", `"call_1"`), output), "input[1].id", "invalid_value",
			"Expected an ID that begins with 'fc'."},
		"a long id": {response("", said, with(thing, "id", `"msg_`+long+`"`)), "input[1].id", "string_above_max_length",
			"Invalid 'input[1].id': string too long. Expected a string with maximum length 64, but got a string with length 69"},
		"a long call_id": {response("", said, with(call, "call_id", `"`+long+`"`), output), "input[1].call_id",
			"string_above_max_length", "length 65 instead"},
		"an empty call_id": {response("", said, with(call, "call_id", `""`), output), "input[1].call_id", "empty_string", ""},
		"no arguments":     {response("", said, lacking(call, "arguments"), output), "input[1].arguments", "missing_required_parameter", ""},
		"arguments":        {response("", said, with(call, "arguments", "{}"), output), "input[1].arguments", "invalid_type", ""},
		"a call's name":    {response("", said, with(call, "name", `"a b"`), output), "input[1].name", "invalid_value", ""},
		"no output":        {response("", said, call, lacking(output, "output")), "input[2].output", "missing_required_parameter", ""},
		"output's parts":   {response("", said, call, with(output, "output", `[{"type":"text","text":"a"}]`)), "input[2].output[0]", "invalid_value", ""},
		"output alone": {response("", said, output), "input", "",
			"No tool call found for function call output with call_id call_1."},
		"output before": {response("", said, output, call), "input", "", "No tool call found for function call output"},
		"call alone":    {response("", said, call), "input", "", "No tool output found for function call call_1."},
		"a custom call": {response("", said, custom), "input", "", "No tool output found for custom tool call call_2."},
		"a custom output": {response("", said, call, output, strings.ReplaceAll(output, "function_call", "custom_tool_call")),
			"input", "", "No tool call found for custom tool call output with call_id call_1."},
		"a compaction without content": {response("", said, `{"type":"compaction","id":"cmp_1"}`), "input[1].encrypted_content",
			"missing_required_parameter", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, v, "/v1/responses", c.body)
			require.Equal(t, 400, w.Code, w.Body)
			e := gjson.Get(w.Body.String(), "error")
			require.Contains(t, e.Get("message").Str, c.want)
			require.Equal(t, []string{c.param, c.code}, []string{e.Get("param").Str, e.Get("code").Str})
			require.Equal(t, "invalid_request_error", e.Get("type").Str)
			require.Equal(t, e.Get("message").Str, v.Last().Rejection)
		})
	}
	for name, body := range map[string]string{
		"a text":            `{"model":"m","input":"hi"}`,
		"what a tool gave":  response("", said, call, output),
		"a custom tool":     response("", said, custom, `{"type":"custom_tool_call_output","id":"ctco_1","call_id":"call_2","output":"4"}`),
		"parts of a result": response("", said, call, with(output, "output", `[{"type":"input_text","text":"a"}]`)),
		"an image":          response("", `{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}`),
		"roles":             response("", `{"role":"developer","content":"a"}`, `{"role":"system","content":"a"}`, said, thing),
		"a status of a message and a call": response("", said, thing, with(call, "status", `"completed"`),
			with(output, "status", `"completed"`)),
		"empty readable reasoning": response("", said, with(rs, "content", "[]"), thing),
		"its own tools":            tools(`{"type":"web_search"},{"type":"namespace","name":"n","tools":[` + function + `]},{"type":"custom","name":"c"}`),
		"enough tokens":            response(`"max_output_tokens":16,`, said),
		"what codex says": response(`"store":false,"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"summary":"auto"},
			"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{"a":"b"},"instructions":"s",`,
			`{"type":"message","id":"msg_0","role":"developer","content":[{"type":"input_text","text":"a"}]}`, said),
		"a call_id of 64 characters": response("", said, with(call, "call_id", `"`+long[1:]+`"`),
			with(output, "call_id", `"`+long[1:]+`"`)),
		"a model that does not think": model("gpt-4o", `"temperature":0,`),
	} {
		t.Run(name, func(t *testing.T) { require.NotEmpty(t, given(t, v, body)) })
	}
}

// A tool that must not be called is not.
func TestAllowedTools(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	const tools = `"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],`
	for choice, want := range map[string]string{
		`"required"`:                     "f",
		`{"type":"function","name":"g"}`: "g",
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}`: "g",
		`"none"`: "",
		`"auto"`: "",
	} {
		o := given(t, v, response(tools+`"tool_choice":`+choice+`,`, said))
		require.Equal(t, want, gjson.Get(o[len(o)-1], "name").Str, choice)
	}
}
