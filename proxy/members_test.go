package proxy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// documented are the documented members of requests, by the endpoint, each with a value that differs from its default.
// Messages: https://platform.claude.com/docs/en/api/beta/messages/create. Chat completions and Responses:
// https://platform.openai.com/docs/api-reference.
var documented = map[string]map[string]string{
	"/v1/messages": {
		"cache_control": `{"type":"ephemeral"}`, "compaction": `{"type":"auto"}`, "container": `"c_1"`,
		"context_management": `{"edits":[{"type":"clear_tool_uses_20250919"}]}`, "diagnostics": `{"cache":true}`,
		"fallback_credit_token": `"token"`, "fallbacks": `[{"model":"m2"}]`, "inference_geo": `"us"`,
		"max_tokens": `777`, "mcp_servers": `[{"type":"url","url":"https://example.com","name":"n"}]`,
		"metadata": `{"user_id":"user-7"}`, "output_config": `{"effort":"low"}`,
		"output_config.format": `{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}`,
		"service_tier":         `"standard_only"`, "speed": `"fast"`, "stop_sequences": `["STOP7"]`, "system": `"sys-7"`,
		"temperature": `0.37`, "thinking": `{"type":"enabled","budget_tokens":2048}`, "top_k": `37`, "top_p": `0.73`,
		"thread":          `{"type":"continue","previous_message_id":"msg_1"}`,
		"tool_choice":     `{"type":"any"}`,
		"user_profile_id": `"profile-7"`, "workspace_id": `"workspace-7"`,
		"tools.input_examples": `[{"a":7}]`, "tools.defer_loading": `true`, "tools.strict": `true`,
		"messages.output_config": `{"effort":"low"}`,
	},
	"/v1/chat/completions": {
		"audio": `{"voice":"alloy","format":"wav"}`, "frequency_penalty": `0.37`, "function_call": `{"name":"f"}`,
		"functions": `[{"name":"f"}]`, "logit_bias": `{"7":1}`, "logprobs": `true`, "max_completion_tokens": `777`,
		"max_tokens": `777`, "metadata": `{"a":"seven"}`, "modalities": `["text","audio"]`, "moderation": `{"model":"m"}`,
		"n": `2`, "parallel_tool_calls": `false`, "prediction": `{"type":"content","content":"seven"}`,
		"presence_penalty": `0.73`, "prompt_cache_key": `"key-7"`, "prompt_cache_options": `{"mode":"explicit"}`,
		"prompt_cache_retention": `"24h"`, "reasoning_effort": `"low"`, "safety_identifier": `"user-7"`, "seed": `37`,
		"service_tier": `"flex"`, "stop": `["STOP7"]`, "store": `true`, "temperature": `0.37`, "tool_choice": `"required"`,
		"response_format": `{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","additionalProperties":false}}}`,
		"top_logprobs":    `3`, "top_p": `0.73`, "user": `"user-7"`, "verbosity": `"low"`, "web_search_options": `{}`,
		"messages.name": `"name-7"`, "tools.strict": `true`,
	},
	"/v1/responses": {
		"background": `true`, "context_management": `[{"type":"compaction","compact_threshold":9}]`, "conversation": `"conv_7"`,
		"include": `["web_search_call.action.sources"]`, "instructions": `"sys-7"`, "max_output_tokens": `777`,
		"max_tool_calls": `7`, "metadata": `{"a":"seven"}`, "moderation": `{"model":"m"}`, "parallel_tool_calls": `false`,
		"prompt": `{"id":"p"}`, "prompt_cache_key": `"key-7"`, "prompt_cache_options": `{"mode":"explicit"}`,
		"prompt_cache_retention": `"24h"`, "reasoning.effort": `"low"`, "safety_identifier": `"user-7"`,
		"service_tier": `"flex"`, "temperature": `0.37`, "text.verbosity": `"low"`,
		"text.format": `{"type":"json_schema","name":"n","schema":{"type":"object","additionalProperties":false}}`,
		"tool_choice": `"required"`, "top_logprobs": `3`, "top_p": `0.73`, "truncation": `"auto"`, "user": `"user-7"`,
		"stream_options": `{"include_obfuscation":false}`,
	},
}

// arrives lists the texts that show that a backend's request has a member in another form. One of them suffices.
var arrives = map[string][]string{
	"max_tokens": {"777"}, "max_completion_tokens": {"777"}, "max_output_tokens": {"777"}, "system": {"sys-7"},
	"stop_sequences": {"STOP7"}, "stop": {"STOP7"}, "metadata": {"user-7", "seven"}, "user": {"user-7"},
	"safety_identifier": {"user-7"}, "output_config": {`"effort":"low"`, `"reasoning_effort":"low"`, `"thinking_level":"low"`},
	"reasoning_effort": {`"effort":"low"`, `"thinking_level":"low"`}, "output_config.format": {`"additionalProperties":false`},
	"reasoning.effort": {`"effort":"low"`, `"reasoning_effort":"low"`, `"thinking_level":"low"`},
	"response_format":  {`"additionalProperties":false`}, "text.format": {`"additionalProperties":false`},
	"thinking": {`"thinking":{`, `"effort":`, `"thinking_level":`}, "tool_choice": {`"any"`, `"required"`},
	"parallel_tool_calls": {`"disable_parallel_tool_use":true`, `"parallel_tool_calls":false`},
	"tools.strict":        {`"strict":true`}, "instructions": {"sys-7"}, "messages.output_config": {`"output_config"`},
	"stream_options": {`"stream_options"`}, "include": {"web_search_call.action.sources"},
}

// No member of a request is dropped silently: the backend gets it, the client reads that it does not, or the request is
// refused.
func TestNoMemberIsDroppedSilently(t *testing.T) {
	t.Parallel()
	backends := map[string]string{
		proxy.KindAnthropic: messagesBody, proxy.KindOpenAI: chatBody, proxy.KindResponses: responsesBody,
		proxy.KindInteractions: `{"id":"i","status":"completed","steps":[{"type":"model_output","content":[{"type":"text","text":"ok"}]}]}`,
	}
	for path, all := range documented {
		for kind, answer := range backends {
			t.Run(strings.TrimPrefix(path, "/v1/")+" to "+kind, func(t *testing.T) {
				t.Parallel()
				v := vendor(t, says("application/json", answer))
				url, _ := gateway(t, to(v, kind))
				for _, name := range slices.Sorted(maps.Keys(all)) {
					before := v.count()
					got := post(t, url+path, requestWith(path, name, all[name]))
					if got.status >= 400 && got.status != 502 && v.count() == before {
						continue // refused
					}
					require.Equal(t, 200, got.status, "%s: %s", name, got.body)
					body := v.last(t).body
					outer, inner, nested := strings.Cut(name, ".")
					there := gjson.Get(body, name).Raw == all[name] || nested && strings.Contains(body, `"`+inner+`":`+all[name])
					for _, text := range arrives[name] {
						there = there || strings.Contains(body, text)
					}
					named := slices.ContainsFunc(strings.Split(got.header.Get("X-AG-Mended"), ","), func(m string) bool {
						path, ok := strings.CutPrefix(m, "left_out:")
						return ok && (path == name || path == outer || strings.HasPrefix(path, name+"."))
					})
					if !there && !named {
						t.Errorf("%s is neither in\n%s\nnor in X-AG-Mended: %s", name, body, got.header.Get("X-AG-Mended"))
					}
				}
			})
		}
	}
}

// requestWith is a request with one tool and a member, by its path.
func requestWith(path, name, value string) string {
	put := func(at string) string {
		if inner, ok := strings.CutPrefix(name, at+"."); ok {
			return `,"` + inner + `":` + value
		}
		return ""
	}
	tools := `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","additionalProperties":false}` +
		put("tools") + `}}]`
	messages := `"messages":[{"role":"user","content":"hi"` + put("messages") + `}]`
	switch path {
	case "/v1/messages":
		tools = `"tools":[{"name":"f","input_schema":{"type":"object","additionalProperties":false}` + put("tools") + `}]`
		if name == "messages.output_config" {
			messages = `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a"},{"role":"user","content":"b"},` +
				`{"role":"system","content":[],"output_config":` + value + `}]`
		}
		if name != "max_tokens" {
			messages += `,"max_tokens":4096`
		}
	case "/v1/responses":
		tools = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}` + put("tools") + `}]`
		messages = `"store":false,"input":"hi"`
	}
	body := `{"model":"claude-opus-4-8",` + messages + "," + tools
	outer, inner, nested := strings.Cut(name, ".")
	switch {
	case outer == "tools" || outer == "messages":
	case nested:
		body += `,"` + outer + `":{"` + inner + `":` + value + `}`
	default:
		body += `,"` + name + `":` + value
	}
	return body + "}"
}
