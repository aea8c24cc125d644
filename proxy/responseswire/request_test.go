package responseswire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/responsestest"
	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
)

// worth gives every effort the same budget.
func worth(tokens int64) func(string) int64 { return func(string) int64 { return tokens } }

func TestMessagesRequest(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		options  chatwire.Options
		ignored  []string
	}{
		"a string": {
			in:   `{"model":"m","input":"hi"}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
		},
		"instructions, a developer at the beginning and one later, a message without a type": {
			in: `{"model":"m","stream":true,"instructions":"be brief","input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"a"}]},
				{"role":"user","content":"hi"},{"role":"system","content":"now be long"},{"role":"user","content":"go"}],"max_output_tokens":100,"temperature":1.5,"top_p":0.5,"store":false,"safety_identifier":"u"}`,
			want: `{"model":"m","stream":true,"max_tokens":100,"temperature":1,"top_p":0.5,"metadata":{"user_id":"u"},
				"system":[{"type":"text","text":"be brief"},{"type":"text","text":"a"}],
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"system","content":[{"type":"text","text":"now be long"}]},
				{"role":"user","content":[{"type":"text","text":"go"}]}]}`,
		},
		"images and files": {
			in: `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,AA","detail":"low"},
				{"type":"input_image","image_url":"https://x/y.png"},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"},{"type":"input_file","file_url":"https://x/z.pdf"}]}]}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},
				{"type":"image","source":{"type":"url","url":"https://x/y.png"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"title":"a.pdf"},
				{"type":"document","source":{"type":"url","url":"https://x/z.pdf"}}]}]}`,
		},
		"a round of tools as codex replays it": {
			in: `{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
				{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAA"},{"type":"message","role":"assistant","id":"msg_1","content":[{"type":"output_text","text":"ok","annotations":[]}]},
				{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\": 1.0}"},{"type":"function_call","call_id":"c2","namespace":"mcp__files","name":"read","arguments":"oops"},
				{"type":"custom_tool_call","call_id":"c3","name":"patch","input":"*** \"x\""},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}},
				{"type":"function_call_output","call_id":"c1","output":"one"},{"type":"function_call_output","id":"fco_1","call_id":"c2","output":[{"type":"input_text","text":"two"},{"type":"input_image","image_url":"data:image/png;base64,AA"}]},
				{"type":"custom_tool_call_output","call_id":"c3","output":""},{"type":"message","role":"user","content":"go"}],
				"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"z":{},"a":{}}},"strict":true},
				{"type":"namespace","name":"mcp__files","description":"files","tools":[{"type":"function","name":"read","parameters":{"type":"object","additionalProperties":false},"strict":true}]},
				{"type":"custom","name":"patch","description":"p","format":{"type":"text"}},{"type":"web_search","external_web_access":false}],
				"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"effort":"high","summary":"auto"},"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{}}`,
			options: chatwire.Options{Schemas: true, Adaptive: true, Budget: worth(2048)},
			want: `{"model":"m","max_tokens":10240,"thinking":{"type":"adaptive"},"output_config":{"effort":"high"},
				"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},
				{"role":"assistant","content":[{"type":"text","text":"ok"},{"type":"tool_use","id":"c1","name":"f","input":{"a":1.0}},{"type":"tool_use","id":"c2","name":"mcp__files__read","input":{"_arguments":"oops"}},
					{"type":"tool_use","id":"c3","name":"patch","input":{"input":"*** \"x\""}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"one"}]},
					{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"two"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]},
					{"type":"tool_result","tool_use_id":"c3"},{"type":"text","text":"go"}]}],
				"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"z":{},"a":{}}}},
				{"name":"mcp__files__read","input_schema":{"type":"object","additionalProperties":false},"strict":true},
				{"name":"patch","description":"p\n\nThe format of the input: {\"type\":\"text\"}","input_schema":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}],
				"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`,
			ignored: []string{"client_metadata", "prompt_cache_key", "tools.web_search", "web_search_call"},
		},
		"a tool is forced": {
			in: `{"model":"m","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],
				"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"tool","name":"f"}}`,
		},
		"tools are allowed": {
			in: `{"model":"m","input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],
				"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],
				"tools":[{"name":"g","input_schema":{"type":"object","properties":{}}}],"tool_choice":{"type":"any"}}`,
		},
		"a form that the vendor has": {
			in: `{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","additionalProperties":false}},"verbosity":"low"}}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],
				"output_config":{"format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}}}`,
			options: chatwire.Options{Schemas: true},
			ignored: []string{"text.verbosity"},
		},
		"on its way to a third dialect": {
			in: `{"model":"m","input":"x","temperature":1.5,"reasoning":{"effort":"high"},"tools":[{"type":"function","name":"f","strict":true}],
				"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}}`,
			want: `{"model":"m","max_tokens":0,"temperature":1.5,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],
				"tools":[{"name":"f","input_schema":{"type":"object","properties":{}},"strict":true}],
				"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}}`,
			options: chatwire.Options{Intermediate: true},
		},
		"null is as if it were not there": {
			in: `{"model":"m","input":"x","instructions":null,"tools":null,"tool_choice":null,"parallel_tool_calls":null,"max_output_tokens":null,"temperature":null,"reasoning":null,
				"text":null,"metadata":null,"previous_response_id":null,"conversation":null,"background":null,"prompt":null,"include":null,"top_logprobs":0,"truncation":null}`,
			want: `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := responseswire.MessagesRequest([]byte(c.in), c.options)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got.Body))
			require.Equal(t, c.ignored, got.Ignored)
			got.Options.Stream = true
			responsestest.Response(t, responsestest.Assemble(t, once(t, answer(got.Options), []byte(`{"id":"x","content":[],"stop_reason":"end_turn"}`))))
		})
	}
}

func TestAFormByACall(t *testing.T) {
	got, err := responseswire.MessagesRequest([]byte(`{"model":"m","input":"x","text":{"format":{"type":"json_object"}}}`),
		chatwire.Options{})
	require.NoError(t, err)
	require.Equal(t, wire.AnswerTool, got.AnswerTool)
}

func TestNamesOfToolsThatAreTooLong(t *testing.T) {
	long := "a_namespace_with_a_rather_long_name_that_somebody_thought_of"
	in := fmt.Sprintf(`{"model":"m","input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","namespace":%q,"name":"first","arguments":"{}"}],
		"tools":[{"type":"namespace","name":%q,"tools":[{"type":"function","name":"first"},{"type":"function","name":"other"}]}]}`, long, long)
	got, err := responseswire.MessagesRequest([]byte(in), chatwire.Options{})
	require.NoError(t, err)
	var r wire.Request
	require.NoError(t, wire.Unmarshal(got.Body, &r))
	require.Len(t, r.Tools, 2)
	require.NotEqual(t, r.Tools[0].Name, r.Tools[1].Name)
	require.Len(t, r.Tools[0].Name, 64)
	require.Equal(t, r.Tools[0].Name, r.Messages[1].Content[0].Name, "a call in the history has the tool's name")
	require.Equal(t, responseswire.ToolName{Namespace: long, Name: "first"}, got.Options.Names[r.Tools[0].Name])
}

func TestWhatIsLeftToTheCaller(t *testing.T) {
	got, err := responseswire.MessagesRequest([]byte(`{"model":"m","input":"x","previous_response_id":"resp_1",
		"conversation":{"id":"conv_1"},"background":true,"store":false,"reasoning":{"effort":"low"}}`), chatwire.Options{})
	require.NoError(t, err)
	require.Equal(t, "resp_1", got.Previous)
	require.Equal(t, "conv_1", got.Conversation)
	require.Equal(t, "low", got.Effort)
	require.True(t, got.Background)
	require.False(t, got.Store)
	require.Equal(t, []string{"reasoning.effort"}, got.Ignored)
	got, err = responseswire.MessagesRequest([]byte(`{"model":"m","input":"x","conversation":"conv_2"}`), chatwire.Options{})
	require.NoError(t, err)
	require.Equal(t, "conv_2", got.Conversation)
	require.True(t, got.Store, "storing is what the dialect does")
}

func TestMessagesRequestRefuses(t *testing.T) {
	const x = `{"model":"m","input":"x",`
	for body, says := range map[string]string{
		`{"model":"m","input":[]}`: "at least one item of the user",
		`{"model":"m"}`:            "at least one item of the user",
		`{"model":"m","input":[{"role":"system","content":"s"}]}`:                                                                       "at least one item of the user",
		`{"model":"m","input":[{"role":"robot","content":"x"}]}`:                                                                        `input[0]: its role "robot"`,
		`{"model":"m","input":[{"role":"user"}]}`:                                                                                       "needs content",
		`{"model":"m","input":[{"role":"user","content":7}]}`:                                                                           "needs content",
		`{"model":"m","input":[{"type":"function_call_output","call_id":"c"}]}`:                                                         "needs output",
		`{"model":"m","input":[{"id":"msg_1"}]}`:                                                                                        "neither a type nor a role",
		`{"model":"m","input":[{"type":"function_call","name":"f"}]}`:                                                                   "call_id and name",
		`{"model":"m","input":[{"type":"function_call_output","output":"x"}]}`:                                                          "needs call_id",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_audio"}]}]}`:                                                    "input_audio",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`:                                       "there is no file_id",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`:                                    "must begin with",
		x + `"tools":[{"type":"file_search","vector_store_ids":["v"]}]}`:                                                                `"file_search"`,
		x + `"tools":[{"type":"function"}]}`:                                                                                            "needs a name",
		x + `"tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]}`:                                                  `two tools have the name "f"`,
		x + `"tools":[{"type":"function","name":"f"}],"tool_choice":"perhaps"}`:                                                         "perhaps",
		x + `"tools":[{"type":"function","name":"f"}],"tool_choice":7}`:                                                                 "a string or an object",
		x + `"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}}`:                                    `no tool "g"`,
		x + `"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"web_search"}}`:                                             `"web_search"`,
		x + `"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"g"}]}}`: "none of the allowed tools",
		x + `"prompt":{"id":"p"}}`:                        `"prompt" cannot be served`,
		x + `"top_logprobs":3}`:                           "log probabilities",
		x + `"include":["message.output_text.logprobs"]}`: "log probabilities",
		x + `"text":{"format":{"type":"grammar"}}}`:       `text.format "grammar"`,
		x + `"conversation":7}`:                           "conversation must be",
		x + `"background":"yes"}`:                         "background has the wrong type",
	} {
		_, err := responseswire.MessagesRequest([]byte(body), chatwire.Options{})
		var f wire.Failure
		require.ErrorAs(t, err, &f, body)
		require.Equal(t, 400, f.Status)
		require.ErrorContains(t, err, says, body)
	}
	_, err := responseswire.MessagesRequest([]byte(`{"model":"m","input":[{"role":7}]}`), chatwire.Options{})
	require.ErrorIs(t, err, wire.ErrBadJSON)
	require.ErrorContains(t, err, "/input/0/role")
}

func TestResponsesRequest(t *testing.T) {
	const always = `,"store":false,"include":["reasoning.encrypted_content"]}`
	for name, c := range map[string]struct {
		in, want string
		ignored  []string
	}{
		"a system prompt of blocks, a stream": {
			in: `{"model":"m","max_tokens":5,"stream":true,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],"messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","instructions":"a\n\nb","max_output_tokens":16,"stream":true,
				"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]` + always,
		},
		"a tool round with thinking, an image in the result, a system message last": {
			in: `{"model":"m","max_tokens":50,"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JV"}}]},
				{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"ok"},{"type":"tool_use","id":"t1","name":"f","input":{"a": 1.0}},{"type":"tool_use","id":"t2","name":"g","input":{}}]},
				{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]},
					{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":"broke"}]},
				{"role":"system","content":"be brief"}]}`,
			want: `{"model":"m","max_output_tokens":50,"input":[
				{"type":"message","role":"user","content":[{"type":"input_text","text":"one"},{"type":"input_file","filename":"document.pdf","file_data":"data:application/pdf;base64,JV"}]},
				{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]},
				{"type":"function_call","call_id":"t1","name":"f","arguments":"{\"a\":1.0}"},{"type":"function_call","call_id":"t2","name":"g","arguments":"{}"},
				{"type":"function_call_output","call_id":"t1","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,AA"}]},
				{"type":"function_call_output","call_id":"t2","output":"(error)\nbroke"},
				{"type":"message","role":"user","content":[{"type":"input_text","text":"and"}]},
				{"type":"message","role":"developer","content":[{"type":"input_text","text":"be brief"}]}]` + always,
		},
		"only calls, a result without anything": {
			in: `{"model":"m","max_tokens":50,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}`,
			want: `{"model":"m","max_output_tokens":50,"input":[{"type":"function_call","call_id":"t","name":"f","arguments":"{}"},
				{"type":"function_call_output","call_id":"t","output":""}]` + always,
		},
		"tools, choice, limits": {
			in: `{"model":"m","max_tokens":50,"temperature":0.5,"top_p":0.9,"top_k":4,"stop_sequences":["X"],"context_management":{},"messages":[{"role":"user","content":"hi"}],
				"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"},"strict":true}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`,
			want: `{"model":"m","max_output_tokens":50,"temperature":0.5,"top_p":0.9,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],
				"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":false},{"type":"function","name":"g","parameters":{"type":"object"},"strict":true}],
				"tool_choice":"required","parallel_tool_calls":false` + always,
			ignored: []string{"context_management", "top_k", "stop_sequences"},
		},
		"thinking, an effort and a form": {
			in: `{"model":"m","max_tokens":50,"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"hi"}],"output_config":{"effort":"max","format":{"type":"json_schema","schema":
				{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}}`,
			want: `{"model":"m","max_output_tokens":50,"reasoning":{"effort":"max","summary":"auto"},"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],
				"text":{"format":{"type":"json_schema","name":"answer_in_json","strict":true,"schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}` + always,
		},
		"no thinking, which is the last hop's to say": {
			in: `{"model":"m","max_tokens":50,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"hi"}]}`,
			want: `{"model":"m","max_output_tokens":50,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]` +
				always,
		},
		"a named tool": {
			in: `{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"f"}}`,
			want: `{"model":"m","max_output_tokens":50,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],
				"tools":[{"type":"function","name":"f","strict":false}],"tool_choice":{"type":"function","name":"f"}` + always,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := responseswire.ResponsesRequest([]byte(c.in), chatwire.Options{})
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got.Body))
			require.Equal(t, c.ignored, got.Ignored)
		})
	}
}

func TestResponsesRequestRefuses(t *testing.T) {
	for body, says := range map[string]string{
		`{"model":"m","messages":[]}`:                               "at least one message",
		`{"model":"m","messages":[{"role":"robot","content":"x"}]}`: `messages[0]: its role "robot"`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`: "web_search_20250305",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"mcp_servers":[{"url":"x"}]}`:                                  "MCP",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":"warm"}`:                                         "temperature",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"text"}}}`:                   "output_config.format",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],"tool_choice":{"type":"some"}}`:         `"some"`,
	} {
		_, err := responseswire.ResponsesRequest([]byte(body), chatwire.Options{})
		var f wire.Failure
		require.ErrorAs(t, err, &f, body)
		require.ErrorContains(t, err, says, body)
	}
}

// There and back: what both dialects can say of a conversation is the same again.
func TestARequestThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zя"\\<\n ]{1,12}`)
		in := wire.Request{Model: "m", MaxTokens: 100, Stream: rapid.Bool().Draw(t, "stream")}
		if rapid.Bool().Draw(t, "system") {
			in.System = wire.Content{{Type: wire.TextBlock, Text: word.Draw(t, "instructions")}}
		}
		in.Messages = []wire.Message{{Role: wire.RoleUser, Content: wire.Content{
			{Type: wire.TextBlock, Text: word.Draw(t, "first")},
			{Type: wire.ImageBlock, Source: &wire.Source{Type: "url", URL: "https://x/" + rapid.StringMatching("[a-z]+").Draw(t, "url")}}}}}
		for i := range rapid.IntRange(0, 4).Draw(t, "rounds") {
			said := wire.Content{{Type: wire.TextBlock, Text: word.Draw(t, "said")}}
			var results wire.Content
			for j := range rapid.IntRange(0, 3).Draw(t, "calls") {
				input, err := json.Marshal(map[string]string{"q": word.Draw(t, "argument")})
				require.NoError(t, err)
				id := fmt.Sprintf("t%d_%d", i, j)
				said = append(said, wire.Block{Type: wire.ToolUseBlock, ID: id, Name: "f", Input: input})
				results = append(results, wire.Block{Type: wire.ToolResultBlock, ToolUseID: id,
					Content: wire.Content{{Type: wire.TextBlock, Text: word.Draw(t, "result")}}})
			}
			in.Messages = append(in.Messages, wire.Message{Role: wire.RoleAssistant, Content: said},
				wire.Message{Role: wire.RoleUser, Content: append(results, wire.Block{
					Type: wire.TextBlock, Text: word.Draw(t, "more"),
				})})
		}
		if rapid.Bool().Draw(t, "tools") {
			in.Tools = []wire.Tool{{Name: "f", Description: word.Draw(t, "description"), InputSchema: []byte(`{"type":"object"}`)}}
			in.ToolChoice = &wire.ToolChoice{Type: rapid.SampledFrom([]string{"any", "none"}).Draw(t, "choice")}
		}
		want, err := wire.Marshal(in)
		require.NoError(t, err)
		there, err := responseswire.ResponsesRequest(want, chatwire.Options{})
		require.NoError(t, err)
		back, err := responseswire.MessagesRequest(there.Body, chatwire.Options{})
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(back.Body))
	})
}

// fuzzRequest: a translator never panics, refuses with a 400 or gives JSON.
func fuzzRequest(t *testing.T, body []byte, err error) {
	if err != nil {
		var f wire.Failure
		require.True(t, errors.As(err, &f) && f.Status == 400 || errors.Is(err, wire.ErrBadJSON), "%v", err)
		return
	}
	require.True(t, json.Valid(body), "%s", body)
}

func FuzzMessagesRequest(f *testing.F) {
	f.Add([]byte(plainRequest))
	f.Add([]byte(`{"model":"m","temperature":1e300,"input":[{"role":"user","content":[{"type":"input_text","text":"\ud800"},{"type":"input_image","image_url":"data:"}]},
		{"type":"function_call","call_id":"c","name":"f","arguments":{"a":1}},{"type":"function_call_output","call_id":"c","output":{"a":1}}],
		"tool_choice":{"type":"allowed_tools","tools":[{"name":"f"}]},"text":{"format":{"type":"json_schema","schema":{}}},"reasoning":{"effort":"high"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := responseswire.MessagesRequest(body, chatwire.Options{Budget: worth(2048), Schemas: true})
		fuzzRequest(t, got.Body, err)
		if err == nil {
			require.True(t, json.Valid(got.Options.Echo), "%s", got.Options.Echo)
			require.NotContains(t, string(got.Options.Echo), "\n", "an event is one line")
		}
	})
}

func FuzzResponsesRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","system":"s","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]}],"tools":[{"name":"f"}],"tool_choice":{"type":"any"},"top_k":1,"output_config":7}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := responseswire.ResponsesRequest(body, chatwire.Options{})
		fuzzRequest(t, got.Body, err)
	})
}

// What one small call costs: its request, its stream and its body.
func BenchmarkSmall(b *testing.B) {
	request := []byte(`{"model":"m","max_output_tokens":8192,"stream":true,"store":false,"reasoning":{"effort":"low"},
		"input":[{"role":"user","content":"What is to be checked?"}]}`)
	body := []byte(`{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"Hm.",
		"signature":"c2lnbmF0dXJl"},{"type":"text","text":"All of it."}],"stop_reason":"end_turn","stop_sequence":null,
		"usage":{"input_tokens":10,"output_tokens":20}}`)
	events := [][]byte{
		[]byte(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}`),
		[]byte(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
		[]byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"All "}}`),
		[]byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"of it."}}`),
		[]byte(`{"type":"content_block_stop","index":0}`),
		[]byte(`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":20}}`),
		[]byte(`{"type":"message_stop"}`),
	}
	asked := func() responseswire.AnswerOptions {
		got, err := responseswire.MessagesRequest(request, chatwire.Options{Budget: worth(2048)})
		require.NoError(b, err)
		return got.Options
	}
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			asked()
		}
	})
	a := asked()
	b.Run("stream", func(b *testing.B) {
		b.ReportAllocs()
		var out []byte
		for b.Loop() {
			answer := answer(a)
			out = out[:0]
			for _, e := range events {
				out, _ = answer.Event(out, e)
			}
			_, err := answer.End(out)
			require.NoError(b, err)
		}
	})
	a.Stream = false
	b.Run("body", func(b *testing.B) {
		b.ReportAllocs()
		var out []byte
		for b.Loop() {
			answer := answer(a)
			out, _ = answer.Body(out[:0], body)
			_, err := answer.End(out)
			require.NoError(b, err)
		}
	})
}
