package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// Requests of public reports that the gateway mends before a vendor can refuse them.
func TestRequestsOfPublicReports(t *testing.T) {
	t.Parallel()
	const call = `"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"call_1","type":"function",` +
		`"function":{"name":"mcp.x:y","arguments":%}}]},{"role":"tool","tool_call_id":"call_1","content":"r"}]`
	for source, c := range map[string]struct{ kind, path, body, at, want string }{
		"openai/swarm#30": {proxy.KindOpenAI, "/v1/chat/completions", `"messages":[{"role":"user","content":"q"}],` +
			`"tool_choice":"auto","parallel_tool_calls":false`, "[tool_choice,parallel_tool_calls]", "[null,null]"},
		"anthropics/claude-code#14139": {proxy.KindAnthropic, "/v1/messages", `"max_tokens":9,"messages":[{"role":"user",` +
			`"content":"q"}],"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"f","input_schema":{"type":"object"}}]`,
			"tools.#", "1"},
		"vllm-project/vllm#48922": {proxy.KindOpenAI, "/v1/chat/completions", strings.ReplaceAll(call, "%", `"{\"p\": \"uncl"`),
			"messages.1.tool_calls.0.function.arguments", `"{\"_arguments\":\"{\\\"p\\\": \\\"uncl\"}"`},
		"vllm-project/vllm#19419": {proxy.KindOpenAI, "/v1/chat/completions", strings.ReplaceAll(call, "%", `""`),
			"messages.1.tool_calls.0.function.arguments", `"{}"`},
		"bytedance/deer-flow#4445": {proxy.KindOpenAI, "/v1/chat/completions", strings.ReplaceAll(call, "%", `{"p":1}`),
			"messages.1.tool_calls.0.function.arguments", `"{\"p\":1}"`},
		"a name of another vendor": {proxy.KindOpenAI, "/v1/chat/completions", strings.ReplaceAll(call, "%", `"{}"`),
			"messages.1.tool_calls.0.function.name", `"mcp_x_y_2bf16bb4"`},
		"anomalyco/opencode#1295": {proxy.KindAnthropic, "/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":"q"},` +
			`{"role":"assistant","content":"so \n"}]`, "messages.1.content", `"so"`},
		"anthropics/claude-code#80439": {proxy.KindAnthropic, "/v1/messages", `"max_tokens":9,"messages":[{"role":"user",` +
			`"content":"q"},{"role":"assistant","content":[{"type":"advisor_tool_result","tool_use_id":"srvtoolu_1","content":[]},` +
			`{"type":"server_tool_use","id":"srvtoolu_2","name":"web_search","input":{}}]},{"role":"user","content":"p"}]`,
			"messages.1.content.#.type", `["text","text"]`},
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			v := vendor(t, nil)
			v.answer = func(w http.ResponseWriter, r *http.Request) { acceptReport(w, r, v.last(t).body) }
			config := to(v, c.kind)
			b := config.Backends["v"]
			b.ModelMap = map[string]string{"*": "claude-sonnet-4-5"}
			config.Backends["v"] = b
			url, _ := gateway(t, config)
			got := post(t, url+c.path, `{"model":"x",`+c.body+`}`)
			require.Equal(t, http.StatusOK, got.status, got.body)
			at := c.at
			if at[0] == '[' {
				require.False(t, gjson.Get(v.last(t).body, "tool_choice").Exists() ||
					gjson.Get(v.last(t).body, "parallel_tool_calls").Exists())
				return
			}
			require.Equal(t, c.want, gjson.Get(v.last(t).body, at).Raw)
		})
	}
}
