package proxy_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// toolReports are the cases about tools, and about members that a translation has no place for.
var toolReports = map[string]report{
	"srv-tool-chat": {
		refuses: func(r received) bool { return strings.Contains(r.body, "web_search") },
		check: func(t *testing.T, _ []received, answers []answered) {
			require.Contains(t, answers[0].header.Get("X-AG-Mended"), "left_out:tools.web_search_20250305")
		},
	},
	"names-long": {
		refuses: func(r received) bool { return len(gjson.Get(r.body, "tools.0.function.name").Str) > 64 },
		check: func(t *testing.T, accepted []received, _ []answered) {
			require.Regexp(t, "^mcp__8b383b1d.*_[0-9a-f]{8}$", gjson.Get(accepted[0].body, "tools.0.function.name").Str)
		},
	},
	"native-noid": {
		refuses: func(r received) bool {
			reasoning := gjson.Get(r.body, `input.#(type=="reasoning")`)
			return reasoning.Exists() && !reasoning.Get("id").Exists()
		},
		quotes: true,
		check: func(t *testing.T, accepted []received, _ []answered) {
			require.Equal(t, "rs_622e63e69097622e63e69097622e63e69097cccc", gjson.Get(accepted[1].body, "input.1.id").Str)
		},
	},
	"tools-empty": {refuses: func(r received) bool { return gjson.Get(r.body, "tools.#").Raw == "0" }},
	"force-lmstudio": {
		refuses: func(r received) bool { return gjson.Get(r.body, "tool_choice").IsObject() },
		check: func(t *testing.T, accepted []received, _ []answered) {
			body := accepted[len(accepted)-1].body
			require.Equal(t, "required", gjson.Get(body, "tool_choice").Str)
			require.Equal(t, `["read_file"]`, gjson.Get(body, "tools.#.function.name").Raw)
		},
	},
}

// fails answers every request with an error of the messages dialect.
func fails(status int, kind, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"}}`))
	}
}

// A route skips a choice that cannot take the request. If no choice remains, the client gets the first choice's own
// error, also while the first choice is known to fail.
func TestARouteSkipsAChoiceThatCannotTakeTheRequest(t *testing.T) {
	t.Parallel()
	const history = `{"role":"user","content":"search tea"},{"role":"assistant","content":[` +
		`{"type":"server_tool_use","id":"srvtoolu_0dc56b64ea08d602e5e989fa","name":"web_search","input":{"query":"tea"}},` +
		`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_0dc56b64ea08d602e5e989fa","content":[]},` +
		`{"type":"text","text":"Tea is good."}]},`
	for name, c := range map[string]struct {
		history, members string
		taken            bool // the second choice takes it
	}{
		"history":      {history: history, taken: true},
		"server tools": {members: `,"tools":[{"name":"read_file","input_schema":{"type":"object"}},` + search + `]`, taken: true},
		"only one":     {members: `,"tools":[` + search + `]`},
		"container":    {members: `,"container":"c_1"`},
		"MCP servers":  {members: `,"mcp_servers":[{"type":"url","url":"https://example.com","name":"n"}]`},
		"a thread":     {members: `,"thread":{"type":"continue","previous_message_id":"msg_1"}`},
	} {
		for _, third := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", a third choice"}[third], func(t *testing.T) {
				t.Parallel()
				vendors := map[string]*script{
					"a": vendor(t, fails(529, "overloaded_error", "Overloaded")),
					"b": vendor(t, says("application/json", chatBody)),
					"c": vendor(t, says("application/json", messagesBody)),
				}
				config := proxy.Config{Active: "main", Routes: map[string]proxy.RouteConfig{"main": {Use: []string{"a", "b"}}},
					Backends: map[string]proxy.BackendConfig{}}
				for name, kind := range map[string]string{"a": "anthropic", "b": "openai", "c": "anthropic"} {
					config.Backends[name] = proxy.BackendConfig{Kind: kind, BaseURL: vendors[name].server.URL, APIKey: "k"}
				}
				want, status := "a", 529
				if third {
					config.Routes["main"] = proxy.RouteConfig{Use: []string{"a", "b", "c"}}
					want, status = "c", 200
				}
				if c.taken {
					want, status = "b", 200
				}
				url, _ := gateway(t, config)
				body := `{"model":"m","max_tokens":9,"messages":[` + c.history + `{"role":"user","content":"hi"}]` + c.members + `}`
				for range 2 {
					got := post(t, url+"/v1/messages", body)
					if name == "history" { // which blocks b takes is another test's to say
						require.NotEqual(t, 400, got.status, got.body)
						continue
					}
					require.Equal(t, status, got.status, got.body)
					require.Equal(t, want, got.header.Get("X-AG-Backend"))
					if status == 529 {
						require.Contains(t, got.body, "Overloaded")
					}
				}
			})
		}
	}
}

const (
	longName = "mcp__8b383b1d-b46a-4b70-994c-c7c26b866287__check_domain_availability_and_price"
	search   = `{"type":"web_search_20250305","name":"web_search"}`
	bash     = `{"type":"bash_20250124","name":"bash"}`
)

// The gateway omits a tool that only another vendor runs. A tool that the client runs becomes a function, or keeps its
// type where the vendor takes it.
func TestToolsWithTypesOfAVendor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, vendor, answer, members string
		status                        int
		has, hasNot, mended           string
	}{
		"chat": {"openai", "", chatBody, `"tools":[` + bash + `,` + search + `]`, 200, `"restart"`, "web_search",
			"left_out:tools.web_search_20250305"},
		"responses": {"responses", "", responsesBody, `"tools":[` + bash + `,` + search + `]`, 200, `"restart"`, "web_search",
			"left_out:tools.web_search_20250305"},
		"an imitator": {"anthropic", "kimi", messagesBody, `"tools":[` + bash + `,` + search + `]`, 200, `"restart"`,
			"web_search", "left_out:tools.web_search_20250305"},
		"bedrock": {"anthropic", "bedrock", messagesBody, `"tools":[` + bash + `,` + search + `]`, 200, bash, "web_search",
			"left_out:tools.web_search_20250305"},
		"Claude": {"anthropic", "", messagesBody, `"tools":[` + bash + `,` + search + `]`, 200, bash + `,` + search, "restart", ""},
		"alone":  {"openai", "", chatBody, `"tools":[` + search + `]`, 400, "run by its vendor", "", ""},
		"forced": {"openai", "", chatBody, `"tools":[` + bash + `,` + search + `],"tool_choice":{"type":"tool","name":"web_search"}`,
			400, "run by its vendor", "", ""},
		"forced, at Responses": {"responses", "", responsesBody, `"tools":[` + bash + `,` + search +
			`],"tool_choice":{"type":"tool","name":"web_search"}`, 400, "run by its vendor", "", ""},
		"not to be called": {"openai", "", chatBody, `"tools":[` + search + `],"tool_choice":{"type":"none"}`, 200, "", "tools",
			"left_out:tools.web_search_20250305"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendor(t, says("application/json", c.answer))
			config := to(v, c.kind)
			b := config.Backends["v"]
			b.Vendor = c.vendor
			config.Backends["v"] = b
			url, _ := gateway(t, config)
			got := post(t, url+"/v1/messages", ask+","+c.members+"}")
			require.Equal(t, c.status, got.status, got.body)
			require.Equal(t, c.mended, got.header.Get("X-AG-Mended"))
			body := got.body
			if c.status == 200 {
				body = v.last(t).body
			}
			require.Contains(t, body, c.has)
			if c.hasNot != "" {
				require.NotContains(t, body, c.hasNot)
			}
		})
	}
}

// A name that the vendor refuses goes in a short form in tools, choice and history, and comes back as the client's.
func TestLongNamesOfTools(t *testing.T) {
	t.Parallel()
	tool := map[string]string{
		"/v1/messages": `"tools":[{"name":"` + longName + `","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"` +
			longName + `"}`,
		"/v1/chat/completions": `"tools":[{"type":"function","function":{"name":"` + longName + `","parameters":{"type":"object"}}}],` +
			`"tool_choice":{"type":"function","function":{"name":"` + longName + `"}}`,
		"/v1/responses": `"tools":[{"type":"function","name":"` + longName + `","parameters":{"type":"object"}}],"tool_choice":` +
			`{"type":"function","name":"` + longName + `"}`,
	}
	said := map[string]string{
		"/v1/messages": `"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":` +
			`"toolu_1","name":"` + longName + `","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1"}]}]`,
		"/v1/chat/completions": `"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"call_1","type":` +
			`"function","function":{"name":"` + longName + `","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"b"}]`,
		"/v1/responses": `"store":false,"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"call_1","name":"` +
			longName + `","arguments":"{}"},{"type":"function_call_output","call_id":"call_1","output":"b"}]`,
	}
	short := regexp.MustCompile(`mcp__8b383b1d[\w-]*_[0-9a-f]{8}"`)
	for kind, answers := range map[string][2]string{
		proxy.KindOpenAI: {strings.ReplaceAll(chatBody, `"f"`, `"NAME"`), strings.ReplaceAll(chatStream, `"f"`, `"NAME"`)},
		proxy.KindResponses: {strings.Replace(responsesBody, responsesItem, `{"type":"function_call","id":"fc_1","call_id":"call_2",`+
			`"name":"NAME","arguments":"{}","status":"completed"}`, 1), ""},
	} {
		for path, members := range tool {
			for _, stream := range []bool{false, true}[:min(2, 1+len(answers[1]))] {
				t.Run(fmt.Sprint(path, " to ", kind, ", stream=", stream), func(t *testing.T) {
					t.Parallel()
					v := vendor(t, nil)
					v.answer = func(w http.ResponseWriter, r *http.Request) {
						name := strings.Trim(short.FindString(v.last(t).body), `"`)
						if stream {
							says("text/event-stream", strings.ReplaceAll(answers[1], "NAME", name))(w, r)
							return
						}
						says("application/json", strings.ReplaceAll(answers[0], "NAME", name))(w, r)
					}
					url, _ := gateway(t, to(v, kind))
					got := post(t, url+path, fmt.Sprintf(`{"model":"m","stream":%v,%s,%s}`, stream, said[path], members))
					require.Equal(t, 200, got.status, got.body)
					require.NotContains(t, v.last(t).body, longName)
					require.Len(t, short.FindAllString(v.last(t).body, -1), 3, v.last(t).body)
					require.Contains(t, got.body, `"`+longName+`"`)
					require.NotRegexp(t, short, got.body)
				})
			}
		}
	}
}

// A chat client's custom tool is a function at a backend of another dialect, and its call comes back as custom.
func TestCustomToolsOfAChatClient(t *testing.T) {
	t.Parallel()
	call := strings.NewReplacer(`{"a":1.0}`, `{"input":"x \"y\""}`, `{\"a\":1.0}`, `{\"input\":\"x \\\"y\\\"\"}`)
	for _, stream := range []bool{false, true} {
		v := vendor(t, byStream(call.Replace(messagesBody), call.Replace(messagesStream)))
		url, _ := gateway(t, to(v, proxy.KindAnthropic))
		kind := map[bool]string{true: "stream"}[stream]
		got := post(t, url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":"a"},`+
			`{"role":"assistant","tool_calls":[{"id":"call_1","type":"custom","custom":{"name":"f","input":"z"}}]},`+
			`{"role":"tool","tool_call_id":"call_1","content":"b"}],"tools":[{"type":"custom","custom":{"name":"f"}},`+
			`{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required",`+
			`"tools":[{"type":"custom","custom":{"name":"f"}}]}}}`, stream), "X-Test", kind)
		require.Equal(t, 200, got.status, got.body)
		sent := v.last(t).body
		require.Equal(t, `["f"]`, gjson.Get(sent, "tools.#.name").Raw)
		require.Equal(t, "any", gjson.Get(sent, "tool_choice.type").Str)
		require.JSONEq(t, `{"input":"z"}`, gjson.Get(sent, "messages.1.content.0.input").Raw)
		if !stream {
			require.JSONEq(t, `{"name":"f","input":"x \"y\""}`, gjson.Get(got.body, "choices.0.message.tool_calls.0.custom").Raw)
			continue
		}
		require.Contains(t, got.body, `"type":"custom","custom":{"name":"f","input":""}`)
		require.Contains(t, got.body, `"custom":{"input":"x \"y\""}`)
	}
}

// A vendor that is not known to take tool_choice only as a word is asked once more, and the rule is remembered.
func TestAForcedToolByAWord(t *testing.T) {
	t.Parallel()
	v := vendor(t, nil)
	v.answer = func(w http.ResponseWriter, r *http.Request) {
		if gjson.Get(v.last(t).body, "tool_choice").IsObject() {
			fails(400, "e", "Invalid tool_choice type: 'object'. Supported string values: none, auto, required")(w, r)
			return
		}
		says("application/json", chatBody)(w, r)
	}
	url, _ := gateway(t, to(v, proxy.KindOpenAI))
	for i := range 2 {
		got := post(t, url+"/v1/messages", ask+`,"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":`+
			`{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"}}`)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, 2+i, v.count())
		require.Equal(t, `["f"]`, gjson.Get(v.last(t).body, "tools.#.function.name").Raw)
	}
}

// A system message that only has an effort keeps its bytes.
func TestASystemMessageWithAnEffortStays(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	const body = `{"model":"claude-opus-4-8","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":` +
		`"b"},{"role":"user","content":"c"},{"role":"system","content":[],"output_config":{"effort":"low"}}]`
	require.Equal(t, 200, post(t, url+"/v1/messages", body+"}").status)
	require.Contains(t, v.last(t).body, `{"role":"system","content":[],"output_config":{"effort":"low"}}`)
}

// A thread is not continued at a vendor that has not begun it. The status makes clients send the whole conversation.
func TestAThreadIsNotContinuedElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, vendor string
		status       int
	}{
		"Claude": {"anthropic", "", 200}, "an imitator": {"anthropic", "kimi", 404}, "chat": {"openai", "", 404},
		"responses": {"responses", "", 404},
	} {
		v := vendor(t, says("application/json", messagesBody))
		config := to(v, c.kind)
		b := config.Backends["v"]
		b.Vendor = c.vendor
		config.Backends["v"] = b
		url, _ := gateway(t, config)
		got := post(t, url+"/v1/messages", ask+`,"thread":{"type":"continue","previous_message_id":"msg_1"}}`)
		require.Equal(t, c.status, got.status, name)
		require.Equal(t, c.status != 200, strings.Contains(got.body, "thread_not_found"), got.body)
	}
}
