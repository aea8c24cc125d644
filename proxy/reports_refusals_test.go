package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// A refusal is a rule of a vendor with the words of its error.
type refusal struct {
	source       string // owner/repository#number
	kind, vendor string
	path, body   string
	refuses      func(r received) bool
	status       int // 0 is 400
	says         string
	calls        int    // of the first request; 0 is 2
	has, mended  string // of the accepted request, and of X-AG-Mended
}

const (
	aTool    = `"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	aCall    = `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01","name":"f","input":{}}]}`
	aPicture = `"max_tokens":99,` + aTool + `,"messages":[{"role":"user","content":"Go."},` + aCall + `,{"role":"user","content":[` +
		`{"type":"tool_result","tool_use_id":"toolu_01","content":[{"type":"image",` + pngSource + `}]}]}]`
	aDialogue = `"messages":[{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},` +
		`{"role":"system","content":"RULE"},{"role":"user","content":"p"}]`
	aRequest = `"max_tokens":64000,"messages":[{"role":"user","content":"hi"}]`
	aChoice  = aRequest + "," + aTool + `,"tool_choice":{"type":"tool","name":"f"}`
)

func includes(s string) func(received) bool {
	return func(r received) bool { return strings.Contains(r.body, s) }
}

func exists(path string) func(received) bool {
	return func(r received) bool { return strings.Trim(gjson.Get(r.body, path).Raw, "[],") != "" }
}

func above(path string, most int64) func(received) bool {
	return func(r received) bool { return gjson.Get(r.body, path).Int() > most }
}

func speaksAs(role string) func(received) bool {
	return func(r received) bool { return strings.Contains(gjson.Get(r.body, "messages.#.role").Raw, role) }
}

func forces(r received) bool {
	choice := gjson.Get(r.body, "tool_choice")
	return choice.Exists() && choice.Str != "auto" && choice.Get("type").Str != "auto"
}

func item(item, says, source string) refusal {
	kind := gjson.Get(item, "type").Str
	return refusal{source: source, kind: proxy.KindResponses, vendor: "generic", path: "/v1/responses",
		body:    `"store":false,"input":[{"role":"user","content":"q"},` + item + `,{"role":"user","content":"p"}]`,
		refuses: includes(`"type":"` + kind + `"`), says: says, mended: "content_replaced"}
}

func serverTools(says string) refusal {
	return refusal{source: "CommandCodeAI/command-code#885", kind: proxy.KindResponses, vendor: "generic",
		path: "/v1/responses",
		body: `"store":false,"input":"q","tools":[{"type":"function","name":"f","parameters":{"type":"object"}},` +
			`{"type":"web_search"}]`,
		refuses: includes("web_search"), says: says, has: `"name":"f"`, mended: "left_out:tools.web_search"}
}

func picture(kind, says, source string, status int) refusal {
	return refusal{source: source, kind: kind, vendor: "generic", path: "/v1/messages", body: aPicture,
		refuses: func(r received) bool { return strings.Contains(r.body, "iVBORw0KGgo=") },
		status:  status, says: says, has: "[an image", mended: "content_replaced"}
}

func developer(says, source string) refusal {
	return refusal{source: source, kind: proxy.KindOpenAI, vendor: "openai", path: "/v1/chat/completions",
		body:    `"messages":[{"role":"developer","content":"RULE"},{"role":"user","content":"q"}]`,
		refuses: speaksAs("developer"), says: says, has: "RULE", mended: "role"}
}

func answerLimit(says, source string) refusal {
	return refusal{source: source, kind: proxy.KindOpenAI, vendor: "generic", path: "/v1/messages", body: aRequest,
		refuses: above("max_tokens", 4000), says: says, has: `"max_tokens":4000`, mended: "refused_length"}
}

func withBetas(says, source string) refusal {
	return refusal{source: source, kind: proxy.KindAnthropic, vendor: "generic", path: "/v1/messages", body: aRequest,
		refuses: func(r received) bool { return strings.Contains(r.header.Get("Anthropic-Beta"), "context-1m") },
		says:    says, mended: "refused_parameter"}
}

func noTools(kind, says, source string) refusal {
	return refusal{source: source, kind: kind, vendor: "generic", path: "/v1/messages",
		body:    strings.Replace(aPicture, aTool+",", "", 1),
		refuses: func(r received) bool { return !gjson.Get(r.body, "tools").Exists() }, says: says, has: "no_tool",
		mended: "refused_parameter"}
}

var refusals = []refusal{
	answerLimit("max_tokens (current value: 64000) must be between 0 and 4000 ", "neavo/KeywordGacha#111"),
	answerLimit("max_tokens is too large: 64000. This model supports at most 4000 completion tokens, whereas you "+
		"provided 64000.", "diffbot/code-gpt-docs#284"),
	answerLimit("max_tokens for `llama-3.1-8b-instant` must be less than or equal to 4000", "skapadia3214/groq-moa#8"),
	answerLimit(`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":`+
		`\"max_tokens: 64000 > 4000, which is the maximum allowed number of output tokens for m\"}}"}}}`, "BerriAI/litellm#15715"),

	picture(proxy.KindAnthropic, "Only text tool_result blocks are supported when tool_result.content is an array.",
		"lmstudio-ai/localization#425", 400),
	picture(proxy.KindAnthropic, "User message image blocks are not supported for OpenAI chat conversion; use a "+
		"vision-capable native Anthropic provider or extend the converter.", "Alishahryar1/free-claude-code#512", 400),
	picture(proxy.KindOpenAI, "image input is not supported - hint: if this is unexpected, you may need to provide the "+
		"mmproj", "ggml-org/llama.cpp#15404", 500),
	picture(proxy.KindResponses, `{"error":{"message":"Invalid value: 'input_image'. Supported values are: 'input_text'.",`+
		`"param":"input[2].output[0].type","code":"invalid_value"}}`, "openai/codex#7073", 400),
	picture(proxy.KindResponses, `{"error":{"message":"Invalid value.","param":"input[2].output[0].type",`+
		`"code":"invalid_value"}}`, "openai/codex#7073, by its place", 400),

	item(`{"type":"compaction","encrypted_content":"E"}`, `invalid_request_error: input.1: item type "compaction" is not `+
		`supported`, "openai/codex#45401"),
	item(`{"type":"context_compaction","encrypted_content":"E"}`, "[ItemParam] [input[1]] [invalid_enum_value] Invalid value: "+
		"'context_compaction'. Supported values are: 'additional_tools', 'compaction', 'message'.", "openai/codex#27423"),
	item(`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"other"}}`, `{"error":{"message":`+
		`"Invalid value: 'other'. Supported values are: 'search', 'open_page', and 'find_in_page'.","param":`+
		`"input[1].action.type","code":"invalid_value"}}`, "openai/codex#7073"),
	serverTools(`{"error":{"message":"Only ` + "`type:\\\"function\\\"`" + ` tools are supported on this endpoint.",` +
		`"param":"tools.1.type"}}`),
	serverTools("tools[1].type: unknown variant `web_search`, expected `function`"),

	developer("角色信息不正确", "openclaw/openclaw#23115"),
	developer("Incorrect role information", "earendil-works/pi#547"),
	developer("'messages.0' : discriminator property 'role' has invalid value",
		"nhaouari/obsidian-textgenerator-plugin#309"),
	developer("developer is not one of ['system', 'assistant', 'user', 'tool', 'function'] - 'messages.['0].role'",
		"earendil-works/pi#1048"),
	{source: "ggml-org/llama.cpp#20861", kind: proxy.KindOpenAI, path: "/v1/chat/completions",
		body: `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]`, refuses: lastAnswer,
		says: "Assistant response prefill is incompatible with enable_thinking.", has: "Continue.", mended: "role"},
	{source: "suitenumerique/conversations#197", kind: proxy.KindOpenAI, path: "/v1/chat/completions", body: aDialogue,
		refuses: neighbours, says: "Conversation roles must alternate user/assistant/user/assistant/...", status: 500,
		has: "RULE", mended: "role"},

	withBetas("The long context beta is not yet available for this subscription.", "anthropics/claude-code#27944"),
	withBetas("This authentication style is incompatible with the long context beta header.",
		"anthropics/claude-code#24493"),
	withBetas("Unexpected beta header: context-1m-2025-08-07", "vercel/ai#10981"),

	{source: "cg-dot/vertexai-cf-workers#21", kind: proxy.KindAnthropic, vendor: "generic", path: "/v1/messages",
		body: `"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":` +
			`{"type":"ephemeral"}}]}]`, refuses: includes("cache_control"),
		says: "*.cache_control: Extra inputs are not permitted", mended: "refused_parameter"},
	{source: "decolua/9router#812", kind: proxy.KindResponses, vendor: "generic", path: "/v1/messages", body: aRequest,
		refuses: exists("max_output_tokens"), says: `{"detail":"Unsupported parameter: max_output_tokens"}`,
		mended: "refused_parameter"},
	{source: "RooCodeInc/Roo-Code#10334", kind: proxy.KindOpenAI, path: "/v1/chat/completions",
		body: `"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","strict":true,` +
			`"parameters":{"type":"object"}}}]`, refuses: exists("tools.#.function.strict"),
		says: "Tools with mixed values for 'strict' are not allowed. Please set all tools to 'strict: true' or " +
			"'strict: false'",
		has: `"name":"f"`, mended: "refused_parameter"},
	{source: "openclaw/openclaw#57672", kind: proxy.KindOpenAI, path: "/v1/messages", body: aPicture,
		refuses: func(r received) bool { return len(gjson.Get(r.body, "messages.2.tool_call_id").Str) != 9 },
		says:    "Tool call id was exec1774786568428215 but must be a-z, A-Z, 0-9, with a length of 9.", mended: "tool_ids"},
	{source: "lmstudio-ai/lmstudio-bug-tracker#1586", kind: proxy.KindOpenAI, path: "/v1/chat/completions",
		body: `"messages":[{"role":"system","content":"S"},{"role":"assistant","tool_calls":[{"id":"call_1","type":"function",` +
			`"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"SEEN"}]`,
		refuses: func(r received) bool { return !speaksAs("user")(r) }, has: "SEEN", mended: "role",
		says: `Error rendering prompt with jinja template: "No user query found in messages."`},
	{source: "getsentry/sentry-mcp#106", kind: proxy.KindOpenAI, path: "/v1/messages",
		body:    `"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","description":"` + strings.Repeat("d", 1103) + `"}]`,
		refuses: func(r received) bool { return len(gjson.Get(r.body, "tools.0.function.description").Str) > 1024 },
		says: "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but " +
			"got a string with length 1103 instead.", mended: "refused_parameter"},
	{source: "vybestack/llxprt-code#2135", kind: proxy.KindResponses, vendor: "generic", path: "/v1/responses",
		body:    `"store":false,"input":"hi","prompt_cache_key":"` + strings.Repeat("k", 69) + `"`,
		refuses: func(r received) bool { return len(gjson.Get(r.body, "prompt_cache_key").Str) > 64 },
		says: "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string " +
			"with length 69 instead.", mended: "refused_parameter"},
	noTools(proxy.KindOpenAI, "bedrock error: The toolConfig field must be defined when using toolUse and toolResult "+
		"content blocks.", "anomalyco/opencode#34089"),
	noTools(proxy.KindAnthropic, "Requests which include `tool_use` or `tool_result` blocks must define tools",
		"aws-samples/bedrock-access-gateway#239"),
	{source: "deepseek-ai/awesome-deepseek-integration#598", kind: proxy.KindAnthropic, vendor: "generic",
		path: "/v1/messages", body: aChoice, refuses: forces, calls: 3,
		says: "deepseek-reasoner does not support this tool_choice", has: `"type":"auto"`},
}

// The gateway cures each refusal with few calls, and remembers the rule.
func TestPublicRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range refusals {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			v := vendor(t, nil)
			v.answer = func(w http.ResponseWriter, r *http.Request) {
				got := v.last(t)
				if !c.refuses(got) {
					acceptReport(w, r, got.body)
					return
				}
				says := c.says
				if !strings.HasPrefix(says, "{") {
					says = string(marshal(map[string]any{"error": map[string]any{"message": says}}))
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(max(c.status, http.StatusBadRequest))
				_, _ = w.Write([]byte(says))
			}
			config := to(v, c.kind)
			b := config.Backends["v"]
			b.Vendor, b.ModelMap = c.vendor, map[string]string{"*": "m"}
			config.Backends["v"] = b
			url, _ := gateway(t, config)
			calls := max(c.calls, 2)
			for _, stream := range []string{"", "", `,"stream":true`} {
				before := v.count()
				got := post(t, url+c.path, `{"model":"x",`+c.body+stream+"}", "Anthropic-Beta", "context-1m-2025-08-07")
				require.Equal(t, http.StatusOK, got.status, got.body)
				require.LessOrEqual(t, v.count()-before, calls)
				require.Contains(t, v.last(t).body, c.has)
				require.Contains(t, got.header.Get("X-AG-Mended"), c.mended)
				calls = 1
			}
		})
	}
}
