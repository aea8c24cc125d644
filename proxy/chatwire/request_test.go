package chatwire_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

func TestMessagesRequest(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		options  chatwire.Options
		ignored  []string
	}{
		"smallest": {
			in:   `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"system and developer become the system prompt, or stay inside": {
			in: `{"model":"m","messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"hi"},{"role":"developer","content":[{"type":"text","text":"c"}]}]}`,
			want: `{"model":"m","max_tokens":8192,"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"system","content":[{"type":"text","text":"c"}]}]}`,
		},
		"a round of two tools is one user message, results first": {
			in: `{"model":"m","messages":[{"role":"user","content":"hi"},
				{"role":"assistant","content":null,"tool_calls":[
					{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1.50}"}},
					{"id":"c2","type":"function","function":{"name":"g","arguments":""}}]},
				{"role":"tool","tool_call_id":"c1","content":"one"},
				{"role":"tool","tool_call_id":"c2","content":""},
				{"role":"user","content":"go on"}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},
				{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"x":1.50}},{"type":"tool_use","id":"c2","name":"g","input":{}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"one"}]},
					{"type":"tool_result","tool_use_id":"c2"},{"type":"text","text":"go on"}]}]}`,
		},
		"a result after the user's text still comes first": {
			in: `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
				{"role":"user","content":"hm"},{"role":"tool","tool_call_id":"c","content":"r"}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]},{"type":"text","text":"hm"}]}]}`,
		},
		"neighbours of one role are merged, empty ones left out": {
			in:   `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"b"}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
		},
		"arguments that are no object travel as one": {
			in: `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{oops"}}]},{"role":"tool","tool_call_id":"c","content":"bad"}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"_arguments":"{oops"}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"bad"}]}]}]}`,
		},
		"images": {
			in: `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[
				{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]}`,
		},
		"tools and their choice": {
			in: `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","x":1.0}}},{"type":"function","function":{"name":"g"}}],
				"tool_choice":"required","parallel_tool_calls":false}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
				"tools":[{"name":"f","description":"d","input_schema":{"type":"object","x":1.0}},{"name":"g","input_schema":{"type":"object","properties":{}}}],
				"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`,
		},
		"one tool at a time without a choice": {
			in: `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
				"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`,
		},
		"a named tool": {
			in: `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
				"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"tool","name":"f"}}`,
		},
		"sampling, limits, stops, user": {
			in: `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":77,"temperature":1.7,"top_p":0.25,"stop":["END","\n"],"user":"u1","stream":true,"stream_options":{"include_usage":true}}`,
			want: `{"model":"m","max_tokens":77,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
				"temperature":1,"top_p":0.25,"stop_sequences":["END"],"metadata":{"user_id":"u1"},"stream":true}`,
		},
		"ignored parameters are named": {
			in:      `{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1,"seed":4,"store":null,"frequency_penalty":0.5,"made_up":{"a":1},"response_format":{ "type" : "text" }}`,
			want:    `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			ignored: []string{"frequency_penalty", "made_up", "seed"},
		},
		"effort without a configured budget": {
			in:      `{"model":"m","reasoning_effort":"high","messages":[{"role":"user","content":"hi"}]}`,
			want:    `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			ignored: []string{"reasoning_effort"},
		},
		"effort asks for thinking, which forbids sampling": {
			options: chatwire.Options{Budget: worth(10000)},
			in:      `{"model":"m","reasoning_effort":"medium","temperature":0.2,"messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_tokens":18192,"thinking":{"type":"enabled","budget_tokens":10000},
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			ignored: []string{"temperature"},
		},
		"the budget leaves room for the answer": {
			options: chatwire.Options{Budget: worth(10000)},
			in:      `{"model":"m","reasoning_effort":"low","max_tokens":4096,"messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":3072},
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"a budget under the least one turns thinking off": {
			options: chatwire.Options{Budget: worth(10000)},
			in:      `{"model":"m","reasoning_effort":"low","max_tokens":2000,"messages":[{"role":"user","content":"hi"}]}`,
			want:    `{"model":"m","max_tokens":2000,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			ignored: []string{"reasoning_effort"},
		},
		"a model that chooses its budget is told the effort": {
			options: chatwire.Options{Adaptive: true, Budget: worth(10000)},
			in:      `{"model":"m","reasoning_effort":"high","max_tokens":1500,"top_p":0.5,"messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_tokens":1500,"thinking":{"type":"adaptive"},"output_config":{"effort":"high"},
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			ignored: []string{"top_p"},
		},
		"or not to think": {
			options: chatwire.Options{Adaptive: true, Budget: worth(10000)},
			in:      `{"model":"m","reasoning_effort":"none","max_tokens":1500,"messages":[{"role":"user","content":"hi"}]}`,
			want:    `{"model":"m","max_tokens":1500,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"an effort that is left to the gateway": {
			options: chatwire.Options{Adaptive: true, Budget: worth(4000), Effort: "medium"},
			in:      `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_tokens":12192,"thinking":{"type":"adaptive"},"output_config":{"effort":"medium"},
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"a schema that the model holds by itself": {
			options: chatwire.Options{Adaptive: true, Budget: worth(1), Schemas: true},
			in: `{"model":"m","max_tokens":9,"reasoning_effort":"low","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` +
				`{"type":"object","$schema":"x","additionalProperties":false,"properties":{"maximum":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["maximum"]}}}}`,
			want: `{"model":"m","max_tokens":9,"thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":
				{"type":"object","$schema":"x","additionalProperties":false,"properties":{"maximum":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["maximum"]}}},
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"a call that is forced is no answer yet": {
			in: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"},"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}]}`,
			want: `{"model":"m","max_tokens":9,"tool_choice":{"type":"any"},"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"thinking inside a tool loop": {
			options: chatwire.Options{Budget: worth(10000)},
			in:      `{"model":"m","reasoning_effort":"high","messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}]}`,
			want: `{"model":"m","max_tokens":18192,"thinking":{"type":"enabled","budget_tokens":10000},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := chatwire.MessagesRequest([]byte(c.in), c.options)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got.Body))
			require.Equal(t, c.ignored, got.Ignored)
		})
	}
}

func TestSchemasThatAVendorTakesItself(t *testing.T) {
	for schema, own := range map[string]bool{
		`{"type":"object","additionalProperties":false}`: true,
		`{"type":"object"}`: false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"integer","minimum":1}}}`:                                                   false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"type":["object","null"]}}}`:                                                       false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"array","items":{"type":"object"}}}}`:                                       false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/a.b"}},"$defs":{"a.b":{"type":"string"}}}`:                         true,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/none"}}}`:                                                          false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"https://x/y"}}}`:                                                           false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}`:                                         false,
		`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}}}`: false,
	} {
		got, err := chatwire.MessagesRequest([]byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":`+
			`{"type":"json_schema","json_schema":{"schema":`+schema+`}}}`), chatwire.Options{Schemas: true})
		require.NoError(t, err)
		require.Equal(t, own, got.AnswerTool == "", schema)
	}
}

func TestMessagesRequestKeepsNumbersOfToolsAndInputs(t *testing.T) {
	got,
		err :=
		chatwire.MessagesRequest([]byte(`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"z":1.0,"a":1e2}}}],
		"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"z\": 12345678901234567890.10}"}}]}]}`), chatwire.Options{})
	require.NoError(t, err)
	require.Contains(t, string(got.Body), `{"z":1.0,"a":1e2}`)
	require.Contains(t, string(got.Body), `12345678901234567890.10`)
}

func TestMessagesRequestRefuses(t *testing.T) {
	for body, says := range map[string]string{
		`{"model":"m","messages":[]}`:                                                                                                                 "at least one user message",
		`{"model":"m","messages":[{"role":"system","content":"s"}]}`:                                                                                  "at least one user message",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"n":2}`:                                                                              `"n" cannot be served`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"logprobs":true}`:                                                                    "log probabilities",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"functions":[{"name":"f"}]}`:                                                         "use tools",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"grammar"}}`:                                               "none of text, json_object",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"array"}}}}`: `must be of "type": "object"`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`:                                               "there is no file_id",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"JVBERi0"}}]}]}`:                                       "must be a data: URL",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:image/png;base64,AA"}}]}]}`:                      `"image/png" cannot be sent`,
		`{"model":"m","messages":[{"role":"robot","content":"x"}]}`:                                                                                   `messages[0]: its role "robot"`,
		`{"model":"m","messages":[{"role":"tool","content":"x"}]}`:                                                                                    "tool_call_id",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`:                                                               "input_audio",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`:                                         "must begin with",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"custom"}]}`:                                                        "tools[0]",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"perhaps"}`:      "perhaps",
	} {
		_, err := chatwire.MessagesRequest([]byte(body), chatwire.Options{})
		var f wire.Failure
		require.ErrorAs(t, err, &f, body)
		require.Equal(t, 400, f.Status)
		require.ErrorContains(t, err, says, body)
	}
	_, err := chatwire.MessagesRequest([]byte(`{"model":"m","messages":[{"role":7}]}`), chatwire.Options{})
	require.ErrorIs(t, err, wire.ErrBadJSON)
	require.ErrorContains(t, err, "/messages/0/role")
}

func TestChatRequest(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		options  chatwire.Options
		ignored  []string
	}{
		"a system prompt of blocks, a stream": {
			in: `{"model":"m","max_tokens":5,"stream":true,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],"messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},
				"messages":[{"role":"system","content":"a\n\nb"},{"role":"user","content":"hi"}]}`,
		},
		"a tool round with thinking, an image in the result, a system message last": {
			in: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},
				{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"ok"},{"type":"tool_use","id":"t1","name":"f","input":{"a": 1.0}},{"type":"tool_use","id":"t2","name":"g","input":{}}]},
				{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]},
					{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":"broke"}]},
				{"role":"system","content":"be brief"}]}`,
			want: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"one\ntwo"},
				{"role":"assistant","content":"ok","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"t1","content":"x"},{"role":"tool","tool_call_id":"t2","content":"(error) broke"},
				{"role":"user","content":[{"type":"text","text":"and"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]},
				{"role":"system","content":"be brief"}]}`,
		},
		"only calls: content is null": {
			in: `{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}`,
			want: `{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"t","content":""}]}`,
		},
		"tools, choice, limits": {
			in: `{"model":"m","max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":4,"stop_sequences":["X"],"thinking":{"type":"adaptive"},"context_management":{},"messages":[{"role":"user","content":"hi"}],
				"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`,
			want: `{"model":"m","max_tokens":5,"temperature":0.5,"top_p":0.9,"stop":["X"],"messages":[{"role":"user","content":"hi"}],
				"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],"tool_choice":"required","parallel_tool_calls":false}`,
			ignored: []string{"context_management", "top_k", "thinking"},
		},
		"a form of the answer": {
			in: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"output_config":{"format":{"type":"json_schema","schema":
				{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}}`,
			want: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":
				{"name":"answer_in_json","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}}`,
		},
		"a form with an optional member, by its older name": {
			in: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"output_config":{"effort":"low"},"output_format":{"type":"json_schema","schema":
				{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}}}`,
			want: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":
				{"name":"answer_in_json","schema":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}}}}`,
			ignored: []string{"output_config"},
		},
		"no form": {
			in:   `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"output_config":{"format":null},"output_format":null}`,
			want: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
		},
		"a named tool": {
			in: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}}`,
			want: `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],
				"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := chatwire.ChatRequest([]byte(c.in), c.options)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got.Body))
			require.Equal(t, c.ignored, got.Ignored)
		})
	}
}

func TestChatRequestRefuses(t *testing.T) {
	for body, says := range map[string]string{
		`{"model":"m","messages":[]}`: "at least one message",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`: "web_search_20250305",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"mcp_servers":[{"url":"x"}]}`:                                  "MCP",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":"warm"}`:                                         "temperature",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"text"}}}`:                   "output_config.format",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"output_format":{"type":"json_schema","schema":{}}}`:           "output_format",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],"tool_choice":{"type":"some"}}`:         `"some"`,
	} {
		_, err := chatwire.ChatRequest([]byte(body), chatwire.Options{})
		var f wire.Failure
		require.ErrorAs(t, err, &f, body)
		require.ErrorContains(t, err, says, body)
	}
}

// fuzzRequest: a translator never panics, refuses with a 400 or gives JSON.
func fuzzRequest(t *testing.T, translate func([]byte, chatwire.Options) (chatwire.Translated, error), body []byte) {
	got, err := translate(body, chatwire.Options{Budget: worth(2048)})
	if err != nil {
		var f wire.Failure
		require.True(t, errorsAs(err, &f) || errorsIs(err, wire.ErrBadJSON), "%v", err)
		return
	}
	require.True(t, json.Valid(got.Body), "%s", got.Body)
}

func FuzzMessagesRequest(f *testing.F) {
	f.Add(
		[]byte(
			`{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1.50}"}}]},{"role":"tool","tool_call_id":"c1","content":"one"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}`,
		),
	)
	f.Add(
		[]byte(
			`{"model":"m","stop":"x","reasoning_effort":"high","temperature":1e300,"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}]}`,
		),
	)
	f.Fuzz(func(t *testing.T, body []byte) { fuzzRequest(t, chatwire.MessagesRequest, body) })
}

func FuzzChatRequest(f *testing.F) {
	f.Add(
		[]byte(
			`{"model":"m","system":"s","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]}],"tools":[{"name":"f"}],"tool_choice":{"type":"any"},"top_k":1}`,
		),
	)
	f.Fuzz(func(t *testing.T, body []byte) { fuzzRequest(t, chatwire.ChatRequest, body) })
}

// worth gives every effort the same budget.
func worth(tokens int64) func(string) int64 { return func(string) int64 { return tokens } }
