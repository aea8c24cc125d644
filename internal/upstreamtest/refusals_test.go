package upstreamtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/proxy/wire"
)

// To record a refusal, add a row to refusals: the endpoint, the source, the request and the vendor's answer.
// The source is a thread (owner/repo#n), a page (https://…) or "default", or several of them.
// The answer is a status (400 by default), the message, and "(code param)" if there are any. "…" matches any text.
// An empty answer is an accepted request. "kept m lost n" is one, too, with so much thinking that came back and that is
// missing. An answer that begins with { or [{ is the whole body.
// If no rule refuses the request yet, add a row to a rule in rules_*.go, or a rule to rules.go.

// recorded is a request, or several of them, one per line, and the answer of each of the targets.
type recorded struct {
	at                      targets
	source, request, answer string
}

type targets []target

// target is an endpoint of a vendor.
type target struct {
	path   string
	config Config
	header []string
	// setup plays requests before the row's. It returns pairs of a $name and the text that replaces it in the row.
	setup func(t tester, v *Server) []string
}

func each(requests ...string) string { return strings.Join(requests, "\n") }

func at(path string, c Config) targets { return targets{{path: path, config: c}} }

func (ts targets) each(change func(*target)) targets {
	ts = slices.Clone(ts)
	for i := range ts {
		change(&ts[i])
	}
	return ts
}

func (ts targets) with(header ...string) targets {
	return ts.each(func(t *target) { t.header = slices.Concat(t.header, header) })
}

func (ts targets) beta(values string) targets { return ts.with("Anthropic-Beta", values) }

func (ts targets) after(setup func(t tester, v *Server) []string) targets {
	return ts.each(func(t *target) { t.setup = setup })
}

func serveOther(t *target) { t.config.Models = []string{"other"} }

func wantKey(t *target) { t.config.APIKey = "k" }

func claudeWith(r ThinkingRules) targets { return at("/v1/messages", Config{Thinking: r}) }

func chatWith(r ChatRules) targets { return at("/v1/chat/completions", Config{Vendor: Chat, Chat: r}) }

func openAIWith(r ResponsesRules) targets {
	return at("/v1/responses", Config{Vendor: OpenAI, Responses: r})
}

var (
	claude    = at("/v1/messages", Config{})
	trusting  = claudeWith(ThinkingRules{SkipSignatures: true})
	onAWS     = claudeWith(ThinkingRules{Bedrock: true})
	counting  = at("/v1/messages/count_tokens", Config{})
	replaying = claude.after(played)
	bound     = claudeWith(ThinkingRules{PrefixCheck: true}).after(played)
	machine   = func(name string) targets { return at("/v1/messages", Config{Name: name}).after(elsewherePlayed) }
	kimi      = at("/anthropic/v1/messages", Config{Vendor: Kimi})
	kimiCode  = at("/v1/messages", Config{Vendor: Kimi, Thinking: ThinkingRules{OnlyEnabled: true}})
	deepSeek  = at("/anthropic/v1/messages", Config{Vendor: DeepSeek})
	glm       = at("/api/anthropic/v1/messages", Config{Vendor: GLM})
	messages  = slices.Concat(claude, kimi, deepSeek, glm)

	anyChat       = chatWith(ChatRules{})
	mistral       = chatWith(ChatRules{ToolIDs: MistralIDs})
	signedChat    = chatWith(ChatRules{ThoughtSignatures: true}).after(signedCalls)
	geminiSchemas = chatWith(ChatRules{Schemas: GeminiSchemas})
	openAIChat    = at("/v1/chat/completions", Config{Vendor: OpenAI})
	kimiChat      = at("/v1/chat/completions", Config{Vendor: Kimi})
	kimiSchemas   = kimiChat.each(func(t *target) { t.config.Chat.Schemas = MoonshotSchemas })
	deepSeekChat  = at("/chat/completions", Config{Vendor: DeepSeek})
	glmChat       = at("/api/paas/v4/chat/completions", Config{Vendor: GLM})
	chats         = slices.Concat(anyChat, kimiChat, deepSeekChat, glmChat)

	openAI            = openAIWith(ResponsesRules{})
	openAIUnit        = openAI.after(units)
	azure             = openAIWith(ResponsesRules{Azure: true}).after(units).each(func(t *target) { t.path = azurePath })
	deepSeekResponses = at("/responses", Config{Vendor: DeepSeek})
	deepSeekUnit      = deepSeekResponses.after(storedUnit)
	responses         = slices.Concat(openAI, deepSeekResponses)

	google     = at("/v1beta/interactions", Config{Vendor: Google})
	googleLoop = google.after(steps)
	embeddings = at("/v1/embeddings", Config{Vendor: Chat})
	unserved   = slices.Concat(at("/v1/chat/completions", Config{}), at("/v1/responses", Config{Vendor: Kimi}),
		at("/v1/responses", Config{Vendor: Chat}), at("/v1/messages", Config{Vendor: Chat}),
		at("/v1/messages", Config{Vendor: OpenAI}))
)

const (
	midSystem = "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages"
	hi        = `{"role":"user","content":"hi"}`
	fCall     = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
	fOutput   = `{"type":"function_call_output","call_id":"call_1","output":"4"}`
	cCall     = `{"type":"custom_tool_call","call_id":"call_2","name":"f","input":"a"}`
	cOutput   = `{"type":"custom_tool_call_output","call_id":"call_2","output":"4"}`
	aMessage  = `{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"a"}]}`
	reasoned  = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAA"}`
	userInput = `{"type":"user_input","content":[{"type":"text","text":"Use the tool."}]}`
	lookTool  = `"tools":[{"type":"function","name":"look","parameters":{"type":"object","properties":{}}}]`
	inside    = `{"role":"system","content":"Be brief."}`
	linked    = `{"type":"image_url","image_url":{"url":"https://x"}}`

	azurePath   = "/openai/v1/responses?api-version=preview"
	modesPage   = "https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting"
	prefixPage  = "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation"
	apiErrors   = "https://ai.google.dev/gemini-api/docs/api-errors"
	statePage   = "https://ai.google.dev/gemini-api/docs/interactions"
	thoughtPage = "https://ai.google.dev/gemini-api/docs/interactions/thinking"
)

// long is longer than any id may be.
var long = strings.Repeat("x", 65)

// schemaOf returns the tools of a messages request: one with this input_schema.
func schemaOf(schema string) string { return `"tools":[{"name":"f","input_schema":` + schema + `}]` }

// formatOf returns the format of a messages request's answer.
func formatOf(schema string) string {
	return `"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}`
}

// properties returns the tools of chat completions: a function with properties of these schemas, named a, b and so on.
func properties(schemas ...string) string {
	text := ""
	for i, schema := range schemas {
		text += fmt.Sprintf(`,"%c":%s`, 'a'+i, schema)
	}
	return function(`{"type":"object","properties":{` + text[1:] + `}}`)
}

// played plays conversation. "$0" to "$8" are its messages, "$all" all of them, and "$1-6" some of them. Some have other
// forms: thinking or a result with another text ("$1x", "$4x", "$7x"), without their thinking ("$1-", "$3-", "$7-"), with
// a part of it ("$3p", "$7p"), or with its thoughts in another order ("$7r"). "$3m" has the thinking of "$1", "$3halves"
// is two messages, and "$merged" is one round in place of the first two.
func played(t tester, v *Server) []string {
	m := conversation(t, v).messages
	pairs := []string{"$all", strings.Join(m, ","), "$1-6", strings.Join(m[1:7], ","),
		"$1x", set(m[1], "content.0.thinking", "other"), "$4x", set(m[4], "content.0.content", "other"),
		"$7x", set(m[7], "content.0.thinking", "other"), "$1-", drop(m[1], 0), "$3-", drop(m[3], 0, 1, 3),
		"$7-", drop(m[7], 0, 2), "$7r", reorder(m[7], swap(0, 2)), "$3p", drop(m[3], 1), "$7p", drop(m[7], 2),
		"$3m", reorder(m[3], prepend(m[1])), "$3halves", drop(m[3], 3, 4) + "," + drop(m[3], 0, 1, 2)}
	for i := range m {
		pairs = append(pairs, fmt.Sprint("$", i), m[i])
	}
	return append(pairs, "$merged", strings.Join(mergeRounds(slices.Clone(m)), ","))
}

// forgotten plays conversation and makes the vendor forget it.
func forgotten(t tester, v *Server) []string {
	pairs := played(t, v)
	for range 10 {
		ok(t, v, "/v1/messages", msg("m", ""))
	}
	return pairs
}

// elsewherePlayed plays conversation at another machine of the vendor with the name a.
func elsewherePlayed(t tester, v *Server) []string {
	c := v.config
	c.Name, c.Observe = "a", nil
	return played(t, New(c))
}

// replayed returns a request with messages of the conversation and changed members.
func replayed(from, to string, messages ...string) string {
	if messages == nil {
		messages = []string{"$all"}
	}
	return join("messages", messages, strings.Replace(opusMembers, from, to, 1))
}

// signedCalls answers a question of Gemini's chat completions with two calls.
func signedCalls(t tester, v *Server) []string {
	v.Queue(Reply(Use("f", `{"x":1}`), Use("g", `{}`)))
	m := gjson.Get(ok(t, v, "/v1/chat/completions", chat("m", "")), "choices.0.message")
	signed := func(as string) string { return strings.Replace(m.Raw, m.Get("tool_calls.0.extra_content").Raw, as, 1) }
	require.False(t, m.Get("tool_calls.1.extra_content").Exists(), "only a step's first call is signed")
	return []string{"$answer", m.Raw, "$unsigned", signed("null"), "$undecodable", signed(`{"google":{"thought_signature":"!"}}`),
		"$altered", strings.Replace(m.Raw, `thought_signature":"E`, `thought_signature":"F`, 1),
		"$sentinel", signed(`{"google":{"thought_signature":"skip_thought_signature_validator"}}`),
		"$results", result(m.Get("tool_calls.0.id").Str) + "," + result(m.Get("tool_calls.1.id").Str)}
}

// units answers with two units of reasoning, and then with a compaction. "$rs-" is the item "$rs" without its id.
func units(t tester, v *Server) (pairs []string) {
	rs, text, fc, fc2, outs := unitOf(t, v, encrypted)
	ors, _, ofc, ofc2, oouts := unitOf(t, v, encrypted)
	foreign, _, _, _, _ := unitOf(t, New(Config{Vendor: OpenAI, Name: "another account"}), encrypted)
	v.Queue(Reply(Compact("So far."), Say("Yes.")))
	sealed := gjson.Get(rs, "encrypted_content").Str
	for name, item := range map[string]string{"$rs": rs, "$msg": text, "$fc": fc, "$fc2": fc2, "$out": outs[0],
		"$out2": outs[1], "$ors": ors, "$ofc": ofc, "$ofc2": ofc2, "$oout": oouts[0], "$oout2": oouts[1], "$foreign": foreign,
		"$cmp": output(t, v, resp("m", "", hi))[0], "$renamed": withMember(rs, "id", `"rs_1"`),
		"$rs0": withoutMember(rs, "encrypted_content"), "$rsEmpty": withMember(rs, "content", "[]"),
		"$changed": withMember(rs, "encrypted_content", strconv.Quote(sealed[:40]+strings.ToLower(sealed[40:])))} {
		content := gjson.Get(item, "encrypted_content").Str
		pairs = append(pairs, name, item, name+"-", bare(item), name+".id", idOf(item), name+".content", content,
			name+".end", content[max(0, len(content)-4):])
	}
	for name, members := range map[string]string{"$stored": "", "$unstored": `"store":false`} {
		pairs = append(pairs, name, idOf(ok(t, v, "/v1/responses", resp("m", members, hi))))
	}
	return pairs
}

// storedUnit answers with a stored unit. "$empty" is its reasoning without a text, "$rsRef" and "$msgRef" are references.
func storedUnit(t tester, v *Server) []string {
	rs, text, fc, fc2, outs := unitOf(t, v, `"store":true`)
	reference := func(item string) string { return fmt.Sprintf(`{"type":"item_reference","id":%q}`, idOf(item)) }
	return []string{"$rs", rs, "$rs-", bare(rs), "$msg", text, "$fc", fc, "$fc2", fc2, "$out", outs[0], "$out2", outs[1],
		"$rsRef", reference(rs), "$msgRef", reference(text),
		"$empty", withMember(rs, "content", `[{"type":"reasoning_text","text":""}]`)}
}

// steps answers a user's step with a thought, an output and a call.
func steps(t tester, v *Server) []string {
	const path, summarized = "/v1beta/interactions", `,"generation_config":{"thinking_summaries":"auto"}`
	list := gjson.Get(ok(t, v, path, interact(lookTool+summarized, userInput)), "steps").Array()
	require.Len(t, list, 3)
	foreign := gjson.Get(ok(t, New(Config{Vendor: Google}), path, interact("", userInput)), "steps.0").Raw
	thought, call, id := list[0].Raw, list[2].Raw, list[2].Get("id").Str
	result := `{"type":"function_result","call_id":"` + id + `","name":"look","result":"four"}`
	return []string{"$thought", thought, "$output", list[1].Raw, "$call", call, "$call.id", id, "$result", result,
		"$foreign", foreign, "$otherThought", withMember(thought, "summary", "["+text+"]"),
		"$otherCall", withMember(call, "signature", `"x"`), "$textCall", withMember(call, "arguments", `"{}"`),
		"$numberResult", withMember(result, "result", "1"), "$otherResult", withMember(result, "name", `"see"`),
		"$fileResult", withMember(result, "result", `[{"type":"document","uri":"x"}]`)}
}

// severalSteps answers a user's step with two thoughts, an output and a call. "$later" are all but the first thought.
func severalSteps(t tester, v *Server) []string {
	v.Queue(Reply(Think("a"), Say("b"), Think("c"), Use("look", "{}")))
	list := gjson.Get(ok(t, v, "/v1beta/interactions", interact(lookTool, userInput)), "steps").Array()
	return []string{"$later", list[1].Raw + "," + list[2].Raw + "," + list[3].Raw,
		"$result", `{"type":"function_result","call_id":"` + list[3].Get("id").Str + `","name":"look","result":"four"}`}
}

var refusals = []recorded{
	// Keys, paths, bodies and models.
	{kimi.each(wantKey), "continuedev/continue#9877", msg("m", ""), "401 invalid x-api-key"},
	{kimiChat.each(wantKey).with("Authorization", "Bearer x"), unsourced, chat("m", ""), "401 Incorrect API key provided. (invalid_api_key)"},
	{kimi.each(wantKey).with("X-Api-Key", "k"), unsourced, msg("m", ""), ""},
	{kimi.each(wantKey).with("Authorization", "Bearer k"), unsourced, msg("m", ""), ""},
	{google.each(wantKey).with("X-Goog-Api-Key", "k"), unsourced, `{"model":"m","input":"hi"}`, ""},
	{unserved, unsourced, msg("m", ""), "404 Not found: POST /v1/…"},
	{slices.Concat(messages, chats, responses, google), unsourced, `[]`, "the request body is not valid JSON: …"},
	{slices.Concat(messages, chats, responses), unsourced, `null`, "the request body must be a JSON object"},
	{claude, unsourced, msg("m", "", message("user", `"\ud83d"`)), "the request body is not valid JSON: …"},
	{messages, unsourced, `{"max_tokens":1,"messages":[]}`, "model: Field required"},
	{slices.Concat(claude, kimi, glm).each(serveOther), unsourced, msg("m", ""), "404 model: m"},
	{slices.Concat(deepSeek, deepSeekChat, deepSeekResponses).each(serveOther), "ConardLi/easy-dataset#9", msg("m", ""), "Model Not Exist"},
	{deepSeek.each(serveOther), unsourced, msg("claude-x", ""), ""},
	{chats, unsourced, `{"messages":[` + ask + `]}`, "you must provide a model parameter"},
	{slices.Concat(anyChat, openAIChat, kimiChat, glmChat).each(serveOther), "openai/openai-agents-python#458", chat("m", ""), "404 The model `m` does not exist or you do not have access to it. (model_not_found)"},
	{responses, unsourced, `{"input":"hi"}`, "Missing required parameter: 'model'. (missing_required_parameter model)"},
	{openAI.each(serveOther), unsourced, resp("m", "", hi), "The requested model 'm' does not exist. (model_not_found model)"},
	{google, apiErrors, `{"input":"hi"}`, "model: Field required (invalid_request)"},
	{google.each(serveOther), apiErrors, interact("", userInput), "404 model: gemini-3.8-flash (not_found)"},
	{embeddings, unsourced, `{"model":"e","input":7}`, "Invalid 'input': expected a string or an array of strings."},

	// Anthropic: the version, members and betas.
	{claude.with("Anthropic-Version", ""), "PipedreamHQ/pipedream#9697", msg(opus48, ""), "anthropic-version: header is required"},
	{claude, "anthropics/claude-code#21612", msg(opus48, adaptive+","+cleared), "context_management: Extra inputs are not permitted"},
	{claude.beta(betaContext), unsourced, msg(opus48, adaptive+","+cleared), ""},
	{claudeWith(ThinkingRules{NoContextManagement: true}).beta(betaContext), unsourced, msg(opus48, adaptive+","+cleared), "context_management: Extra inputs are not permitted"},
	{claude, unsourced, msg(opus48, `"mcp_servers":[]`), "mcp_servers: Extra inputs are not permitted"},
	{claude.beta(betaMCP), unsourced, msg(opus48, `"mcp_servers":[]`), ""},
	{claude, "amrit110/oli#7", msg(opus48, `"response_format":{}`), "response_format: Extra inputs are not permitted"},
	{claude, unsourced, msg(opus48, `"metadata":{"conversation_id":"u"}`), "metadata.conversation_id: Extra inputs are not permitted"},
	{claude, unsourced, msg(opus48, `"thinking":{"type":"adaptive","budget_tokens":2000}`), "thinking.adaptive.budget_tokens: Extra inputs are not permitted"},
	{claude, unsourced, msg(opus48, `"thinking":{"type":"adaptive","block_binding":{}}`), "thinking.adaptive.block_binding: Extra inputs are not permitted"},
	{claude.beta(betaBinding), unsourced, msg(opus48, `"thinking":{"type":"adaptive","block_binding":{}}`), ""},
	{claude.beta("effort-2025-11-24, x-1 ,y-2"), "QuantumNous/new-api#2975", msg(opus48, ""), "Unexpected value(s) `x-1`, `y-2` for the `anthropic-beta` header. Please consult our documentation at docs.claude.com or try again without the header."},
	{claudeWith(ThinkingRules{Betas: []string{}}).beta("effort-2025-11-24"), unsourced, msg(opus48, ""), "Unexpected value(s) `effort-2025-11-24` for the `anthropic-beta` header. …"},
	{onAWS.beta("x-1"), "BerriAI/litellm#41203", msg(opus48, ""), "invalid beta flag"},

	// Anthropic: thinking and its settings.
	{claude, unsourced, msg(opus48, `"thinking":true`), "thinking: Input should be a valid dictionary or object to extract fields from"},
	{claude, "askalf/dario#273", msg(sonnet45, adaptive), "adaptive thinking is not supported on this model"},
	{claude, "askalf/dario#273", each(msg(sonnet45, enabled), msg(sonnet45, disabled)), ""},
	{onAWS, unsourced, msg(sonnet45, adaptive), "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'"},
	{claude, modesPage, each(msg(opus46, adaptive), msg(opus48, disabled), msg(opus5, disabled), msg(fable, adaptive), msg("claude-mythos-preview", enabled), msg("claude-sonnet-5-5", `"thinking":{"type":"between_tools"}`)), ""},
	{claude, modesPage, msg(opus48, enabled), `"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`},
	{claude, modesPage, each(msg(fable, disabled), msg("claude-mythos-preview", disabled)), `"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when not specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.`},
	{claude, unsourced, msg(opus48, `"thinking":{"type":"between_tools"}`), "thinking: Input tag 'between_tools' found using 'type' does not match any of the expected tags: 'adaptive', 'disabled'"},
	{claudeWith(ThinkingRules{Generation: Adaptive}), unsourced, msg("m", enabled), `"thinking.type.enabled" is not supported for this model. …`},
	{claude, "anthropics/claude-code#81084", msg(opus5, disabled+`,"output_config":{"effort":"xhigh"}`), "output_config.effort 'xhigh' is not supported when thinking is disabled on this model. Use effort 'high' or below, or enable thinking."},
	{claude, unsourced, each(msg(opus5, disabled+`,"output_config":{"effort":"high"}`), msg(opus48, disabled+`,"output_config":{"effort":"max"}`), msg(sonnet45, `"thinking":{"type":"enabled","budget_tokens":1024}`), msg(sonnet45, `"max_tokens":2001,`+enabled)), ""},
	{claude, unsourced, each(msg(sonnet45, `"temperature":0.5`), msg(opus48, `"tool_choice":{"type":"any"},`+weather), msg(opus48, adaptive+`,"tool_choice":{"type":"auto"},`+weather)), ""},
	{claude, unsourced, msg(opus48, `"output_config":{"format":{"type":"json_schema"}}`), "output_config.format.schema: Field required"},
	{claude, "future-agi/future-agi#412 default", each(msg(opus48, formatOf(`{"type":"object"}`)), msg(opus48, formatOf(`{"type":"object","additionalProperties":false,"properties":{"a":{"anyOf":[{"type":"object"}]}}}`))), "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"},
	{claude, unsourced, msg(opus48, formatOf(`{"type":"array","items":{"type":"integer","minimum":1}}`)), "output_config.format.schema: For 'integer' type, property 'minimum' is not supported"},
	{claude, unsourced, msg(opus48, formatOf(`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"string","enum":["x"]}}}`)), ""},
	{claude, unsourced, msg(sonnet45, `"thinking":{"type":"enabled"}`), "thinking.enabled.budget_tokens: Field required"},
	{claude, unsourced, msg(sonnet45, `"thinking":{"type":"enabled","budget_tokens":"2000"}`), "thinking.enabled.budget_tokens: Input should be a valid integer"},
	{claude, "themaximalist/llm.js#30", msg(sonnet45, `"thinking":{"type":"enabled","budget_tokens":1023}`), "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"},
	{claude, "router-for-me/CLIProxyAPI#413", msg(sonnet45, `"max_tokens":2000,`+enabled), "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size"},
	{claude.beta(betaInterleaved), unsourced, msg(sonnet45, `"max_tokens":100,`+enabled), ""},
	{claude, "egoist/chatwise-releases#1348", msg(sonnet45, `"temperature":0.5,`+enabled), "`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation at https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking"},
	{claude, unsourced, msg(opus48, `"temperature":0.5`), "`temperature` may only be set to 1 on this model."},
	{claude, "mastra-ai/mastra#7507", msg(opus48, adaptive+`,"tool_choice":{"type":"any"},`+weather), "Thinking may not be enabled when tool_choice forces tool use."},
	{claude.beta(betaContext), "anthropics/claude-code#11971 Wei-Shaw/sub2api#599", each(msg(opus48, disabled+","+cleared), msg(opus48, cleared)), "`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive"},
	{claude.beta(betaContext), unsourced, msg(opus5, cleared), ""},

	// Messages: their form. The model "m" thinks only if asked to.
	{messages, unsourced, `{"model":"m","messages":[` + ask + `]}`, "max_tokens: Field required"},
	{messages, unsourced, `{"model":"m","max_tokens":1,"messages":[]}`, "messages: at least one message is required"},
	{messages, unsourced, msg("m", "", ask, message("tool", `"x"`)), "messages.1.role: Input should be 'user', 'assistant' or 'system'"},
	{messages, unsourced, msg("m", "", reply, ask), `messages: first message must use the "user" role`},
	{messages, unsourced, msg("m", "", `{"role":"user"}`), "messages.0.content: Field required"},
	{messages, unsourced, msg("m", "", `{"role":"user","content":"a","name":"x"}`), "messages.0.name: Extra inputs are not permitted"},
	{messages, unsourced, msg("m", "", message("user", "1")), "messages.0.content: Input should be a valid list"},
	{messages, unsourced, msg("m", "", question(`{"type":"video"}`)), "messages.0.content.0: Input tag 'video' found using 'type' does not match any of the expected tags"},
	{messages, unsourced, msg("m", "", question(toolUse("a"))), "messages.0.content.0: `tool_use` blocks are not permitted in `user` messages"},
	{messages, unsourced, msg("m", "", ask, answer(toolResult("a"))), "messages.1.content.0: `tool_result` blocks are not permitted in `assistant` messages"},
	{claude, unsourced, msg("m", `"system":[`+toolUse("a")+`]`), "system.0: `tool_use` blocks are not permitted in `system` messages"},
	{messages, unsourced, msg("m", "", question(`{"type":"text"}`)), "messages.0.content.0.text.text: Field required"},
	{messages, unsourced, msg("m", "", question(`{"type":"text","text":1}`)), "messages.0.content.0.text.text: Input should be a valid string"},
	{slices.Concat(claude, counting), "lbjlaq/Antigravity-Manager#1650", msg("m", "", ask, answer(`{"type":"thinking","thinking":"t"}`, text), ask), "messages.1.content.0.thinking.signature: Field required"},
	{claude, unsourced, msg(opus48, adaptive, loop(`{"type":"thinking","signature":"s"}`)...), "messages.1.content.0.thinking.thinking: Field required"},
	{claude, unsourced, msg(opus48, adaptive, loop(`{"type":"redacted_thinking"}`)...), "messages.1.content.0.redacted_thinking.data: Field required"},
	{trusting, unsourced, msg(opus48, adaptive, loop(withMember(thought, "cache_control", "{}"))...), "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"},
	{onAWS, unsourced, msg(opus48, adaptive, loop(`{"type":"thinking","thinking":"t","signature":""}`)...), "The model returned the following errors: messages.1.content.0.thinking.signature: Field required"},
	{claude, "anthropics/claude-code#4378", msg("m", "", loop(withMember(toolUse("b"), "text", `"s"`))...), "messages.1.content.0.tool_use.text: Extra inputs are not permitted"},
	{messages, unsourced, msg("m", "", ask, answer(withoutMember(toolUse("a"), "id"))), "messages.1.content.0.tool_use.id: Field required"},
	{slices.Concat(claude, glm), "BlockRunAI/ClawRouter#17", msg("m", "", ask, answer(toolUse("functions.calc:0"))), "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"},
	{messages, unsourced, msg("m", "", ask, answer(withMember(toolUse("a"), "name", `"my tool"`))), "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"},
	{messages, unsourced, msg("m", "", ask, answer(withMember(toolUse("a"), "input", `[]`))), "messages.1.content.0.tool_use.input: Input should be a valid dictionary"},
	{claude, unsourced, msg("m", "", question(`{"type":"image","source":"x"}`)), "messages.0.content.0.image.source: Input should be a valid dictionary"},
	{claude, "anthropics/claude-code#15746", msg("m", "", question(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"R0lGODlhAQABAAAAACw="}}`)), "messages.0.content.0.image.source.base64: Image does not match the provided media type image/png"},
	{claude, "anthropics/claude-code#2438", msg("m", "", ask, answer(toolUse("a")), question(withMember(toolResult("a"), "content", `[{"type":"image","source":{"type":"base64","media_type":"image/bmp","data":"aGk="}}]`))), "messages.2.content.0.tool_result.content.0.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"},
	{claude, unsourced, msg("m", "", question(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"!"}}`)), "messages.0.content.0.image.source.base64.data: Invalid base64 data"},
	{claude, unsourced, msg("m", "", question(`{"type":"image","source":{"type":"url","url":"http://x"}}`)), "messages.0.content.0.image.source.url: Only HTTPS URLs are supported."},
	{claude, unsourced, msg("m", "", question(`{"type":"image","source":{"type":"url","url":"https://x"}}`, `{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"R0lGODlhAQABAAAAACw="}}`, `{"type":"document","source":{}}`)), ""},
	{messages, unsourced, msg("m", "", ask, answer(toolUse("a")), question(withMember(toolResult("a"), "content", "1"))), "messages.2.content.0.tool_result.content: Input should be a valid list"},
	{messages, unsourced, each(msg("m", "", ask, ask, reply, reply, ask), msg("m", "", ask, answer(`{"type":"server_tool_use"}`), ask)), ""},
	{slices.Concat(kimi, deepSeek), "deepseek-ai/DeepSeek-V3#1370 default", msg("m", "", ask, reply, ask, message("system", `"note"`)), "Failed to deserialize the JSON body into the target type: messages[3].role: unknown variant `system`, expected `user` or `assistant`"},
	{glm, unsourced, msg("m", "", ask, message("system", `"note"`)), ""},
	{claude, "anthropics/claude-code#61412 UKGovernmentBEIS/inspect_ai#4221 elgorro/aiquila#413", each(msg(sonnet45, "", ask, message("system", `"note"`)), msg("claude-opus-4-7", "", ask, message("system", `"note"`)), msg("claude-mythos-preview", "", ask, message("system", `"note"`)), msg("claude-sonnet-5", "", ask, message("system", `"note"`))), "messages.1: role 'system' is not supported on this model"},
	{claude, midSystem, each(msg(opus48, "", ask, message("system", `"note"`)), msg(opus5, "", ask, message("system", `"note"`), reply, ask), msg(opus48, "", ask, answer(`{"type":"server_tool_use"}`), message("system", `"note"`))), ""},
	{claude, midSystem, each(msg(opus48, "", ask, message("system", `"note"`), ask), msg(opus48, "", ask, message("system", `"note"`), message("system", `"note"`))), "messages.1: a system message must follow a user message and be last or be followed by an assistant message"},
	{claude, midSystem, msg(opus48, "", ask, reply, message("system", `"note"`), ask), "messages.2: a system message must follow a user message and be last or be followed by an assistant message"},
	{claude, "strands-agents/sdk-python#1694 langchain-ai/deepagents#1585", each(msg(opus48, "", ask, reply), msg("claude-sonnet-4-6", "", ask, reply)), "This model does not support assistant message prefill. The conversation must end with a user message."},
	{claude, "langchain-ai/deepagents#1585", msg(sonnet45, "", ask, reply), ""},
	{chatWith(ChatRules{Template: SystemFirst}), "BerriAI/litellm#39282 ai-dynamo/dynamo#10206", each(chat("m", "", message("system", `"s"`), message("developer", `"d"`), ask), chat("m", "", ask, message("system", `"s"`))), "System message must be at the beginning."},
	{chatWith(ChatRules{Template: Alternating}), "suitenumerique/conversations#197 vllm-project/vllm#6862", each(chat("m", "", message("system", `"s"`), ask, ask), chat("m", "", ask, reply, reply, ask)), "Conversation roles must alternate user/assistant/user/assistant/..."},
	{chatWith(ChatRules{Template: Alternating}), unsourced, chat("m", "", message("system", `"s"`), ask, calls(call("a")), result("a"), reply, ask), ""},
	{deepSeek, unsourced, msg("d", "", loop(redacted)...), "Failed to deserialize the JSON body into the target type: messages.1.content.0: unknown variant `redacted_thinking`"},
	{deepSeek, unsourced, msg("d", "", question(`{"type":"image","source":{}}`)), "Failed to deserialize the JSON body into the target type: messages.0.content.0: unknown variant `image`"},
	{slices.Concat(kimi, deepSeek), unsourced, msg("m", `"x":1,"top_k":3,"service_tier":"x","context_management":{}`), ""},
	{slices.Concat(kimi, deepSeek, glm).beta("x-1"), unsourced, msg("m", ""), ""},
	{slices.Concat(kimi, deepSeek), "MoonshotAI/Kimi-K2.5#27 https://api-docs.deepseek.com/guides/anthropic_api", each(msg("m", "", question(`{"type":"document","source":{}}`)), msg("m", "", question(`{"type":"search_result"}`))), "Failed to deserialize the JSON body into the target type: messages.0.content.0: unknown variant …"},

	// Messages: tools, calls, results and texts.
	{claude, unsourced, msg("m", schemaOf(`{"type":"object","anyOf":[]}`)), "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"},
	{claude, unsourced, msg("m", schemaOf(`{"type":"object","properties":{"a b":{}}}`)), "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"},
	{claude, "anthropics/claude-code#7365", msg("m", schemaOf(`{"type":"object","properties":{"a":{"exclusiveMinimum":true}}}`)), "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 (https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.claude.com/en/docs/tool-use."},
	{messages, unsourced, msg("m", `"tools":{}`), "tools: Input should be a valid list"},
	{messages, unsourced, msg("m", `"tools":[{"name":"a.b","input_schema":{"type":"object"}}]`), "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"},
	{messages, unsourced, msg("m", `"tools":[{"name":"a","input_schema":{"type":"object"}},{"name":"a","input_schema":{"type":"object"}}]`), "tools: Tool names must be unique."},
	{messages, unsourced, msg("m", `"tools":[{"name":"a"}]`), "tools.0.custom.input_schema: Field required"},
	{messages, unsourced, msg("m", schemaOf(`{"type":"array"}`)), "tools.0.custom.input_schema.type: Input should be 'object'"},
	{messages, unsourced, msg("m", `"system":[`+cachedText+`],"tools":[{"name":"calc","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}]`), ""},
	{claude, "anthropics/claude-code#6521", msg("m", "", ask, answer(toolUse("a"), toolUse("b")), ask), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b. Each `tool_use` block must have a corresponding `tool_result` block in the next message."},
	{messages, unsourced, msg("m", "", ask, answer(thought, toolUse("a")), ask), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. …"},
	{claude, unsourced, msg("m", "", ask, answer(toolUse("a"), toolUse("b")), question(toolResult("a"))), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b. …"},
	{claude, unsourced, msg("m", "", ask, answer(toolUse("a")), question(text, toolResult("a"))), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. …"},
	{claude, "router-for-me/CLIProxyAPI#497", msg("m", "", ask, reply, question(toolResult("a"))), "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."},
	{messages, unsourced, msg("m", "", ask, answer(toolUse("a")), question(toolResult("a"), toolResult("z"))), "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: z. …"},
	{messages, unsourced, msg("m", "", ask, answer(toolUse("a")), question(toolResult("a"), toolResult("a"))), "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a"},
	{slices.Concat(claude, glm), unsourced, msg("m", "", ask, answer(toolUse("a")), question(toolResult("a")), answer(toolUse("a")), question(toolResult("a"))), "messages.3.content.0: `tool_use` ids must be unique"},
	{slices.Concat(kimi, deepSeek), unsourced, msg("m", "", ask, answer(thought, toolUse("a")), question(toolResult("a")), answer(thought, toolUse("a")), question(toolResult("a"))), ""},
	{messages, unsourced, msg("m", "", ask, answer(thought, toolUse("a"), toolUse("a")), question(toolResult("a"))), "messages.1.content.2: `tool_use` ids must be unique"},
	{trusting, unsourced, msg("m", "", ask, answer(thought, text, toolUse("a"), toolUse("b")), question(toolResult("b"), toolResult("a"), text), answer(toolUse("c")), question(toolResult("c"))), ""},
	{claude, unsourced, each(msg("m", "", ask, answer(toolUse("a")), question(`{"type":"tool_result","tool_use_id":"a","is_error":true}`)), msg("m", "", ask, answer(withMember(toolUse("a"), "input", `{"x":1,"x":2}`)), question(toolResult("a")))), ""},
	{claude, unsourced, each(msg("m", "", ask, message("assistant", `""`)), msg("m", "", question(cachedText, cachedText, cachedText, cachedText))), ""},
	{claude, "anthropics/claude-code#6774", msg("m", "", message("user", `""`)), "messages.0: all messages must have non-empty content except for the optional final assistant message"},
	{messages, unsourced, msg("m", "", question()), "messages.0: all messages must have non-empty content …"},
	{messages, unsourced, msg("m", "", ask, answer(), ask), "messages.1: all messages must have non-empty content …"},
	{claude, "anthropics/claude-code#53473 default", each(msg("m", "", question(`{"type":"text","text":""}`)), msg("m", "", ask, answer(toolUse("a")), question(withMember(toolResult("a"), "content", `[{"type":"text","text":""}]`)))), "messages: text content blocks must be non-empty"},
	{claude, "anthropics/claude-code#23440", msg("m", "", message("user", `" \n"`)), "messages: text content blocks must contain non-whitespace text"},
	{messages, unsourced, msg("m", `"system":{}`), "system: Input should be a valid list"},
	{messages, unsourced, msg("m", `"system":[{"type":"text","text":""}]`), "system: text content blocks must be non-empty"},
	{claude, unsourced, msg("m", `"system":[{"type":"video"}]`), "system.0: Input tag 'video' found using 'type' does not match any of the expected tags"},
	{claude, "hotovo/aider-desk#513 default", each(msg("m", "", question(cachedText, cachedText, cachedText, cachedText, cachedText)), msg("m", `"tools":[{"type":"x","name":"f","cache_control":{}}],"system":[`+cachedText+`]`, ask, answer(toolUse("a")), question(withMember(toolResult("a"), "content", "["+cachedText+","+cachedText+"]"), cachedText))), "A maximum of 4 blocks with cache_control may be provided. Found 5."},
	{claudeWith(ThinkingRules{Window: 5}), "stackblitz/bolt.new#1306", msg("m", "", message("user", `"0123456789012345678901234567890"`)), "prompt is too long: 10 tokens > 5 maximum"},

	// Anthropic: thinking in the history.
	{trusting, "tailcallhq/forgecode#1853", msg(sonnet45, "", ask, answer(thought, text)), "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request."},
	{trusting, unsourced, each(msg(opus48, "", ask, answer(thought, text), ask), msg(opus48, adaptive, ask, answer(text, thought, text), ask), msg(sonnet45, enabled, loop(thought)...)), ""},
	{trusting, unsourced, each(msg(sonnet45, enabled, ask, answer(thought, toolUse("a")), question(toolResult("a")), answer(toolUse("b")), question(toolResult("b"))), msg(sonnet45, enabled, ask, answer(toolUse("a")), question(toolResult("a")), reply, ask)), ""},
	{trusting, "lbjlaq/Antigravity-Manager#690", msg(sonnet45, enabled, ask, answer(text, thought, text), ask), "messages.1.content.0: If an assistant message contains any thinking blocks, the first block must be `thinking` or `redacted_thinking`. Found `text`."},
	{trusting, "tailcallhq/forgecode#2107 router-for-me/CLIProxyAPI#5321", msg(sonnet45, enabled, ask, answer(thought)), "messages.1: The final block in an assistant message cannot be `thinking`."},
	{claude, "tailcallhq/forgecode#1872", msg("m", "", ask, message("assistant", `"Once "`)), "messages: final assistant content cannot end with trailing whitespace"},
	{replaying, "anthropics/claude-code#63404 anthropics/claude-code#63441", each(replayed("", "", "$0", "$1-6", "$7p", "$8"), replayed("", "", "$0", "$1-6", "$7r", "$8")), fmt.Sprintf(modifiedAt, "7.content.0")},
	{replaying, unsourced, replayed("", "", "$0", "$1-6", "$7-", "$8"), ""},
	{trusting, "Kilo-Org/kilocode#5219 default", each(msg(sonnet45, enabled, loop()...), msg(sonnet45, enabled, ask, answer(toolUse("a")), question(toolResult("a"), text))), "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"},
	{trusting, "anthropics/claude-code#20727", msg(sonnet45, enabled, loop(text)...), "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. …"},
	{trusting, modesPage, msg(opus48, adaptive, loop()...), ""},
	{claude, "anthropics/claude-code#71111 anthropics/anthropic-sdk-python#1598", each(msg(opus48, adaptive, loop(thought)...), msg(opus48, "", ask, answer(thought, text), ask)), "messages.1.content.0: Invalid `signature` in `thinking` block"},
	{onAWS, unsourced, msg(opus48, adaptive, loop(thought)...), "The model returned the following errors: messages.1.content.0: Invalid signature in thinking block"},
	{slices.Concat(claude, counting), unsourced, msg(sonnet45, "", ask, answer(redacted, text), ask), "Invalid `data` in `redacted_thinking` block"},

	// Anthropic: replays of a conversation. TestDamagedReplays has more of them.
	{bound, prefixPage, each(replayed(`"You help."`, `"You  help."`), replayed(`"name":"weather"`, `"name":"forecast"`), replayed(`"name":"weather"`, `"description":"new","name":"weather"`)), boundAt("1.content.0") + needsBeta},
	{bound.beta(betaBinding), prefixPage, replayed(`"You help."`, `"You  help."`), boundAt("1.content.0")},
	{bound, unsourced, each(replayed(`"You help."`, `[{"type":"text","text":"You help.","cache_control":{"type":"ephemeral"}}]`), replayed(`"name":"weather"`, `"cache_control":{"type":"ephemeral"},"name":"weather"`), replayed(`9000`, `8000,"output_config":{"effort":"low"},"tool_choice":{"type":"none"},"metadata":{"user_id":"u"}`)), ""},
	{replaying, unsourced, replayed("", "", "$0", "$1", "$2", "$3", "$4x", "$5", "$6", "$7", "$8"), ""},
	{replaying.beta(betaBinding), prefixPage, replayed(adaptive, bindingTo("error"), "$0", "$1", "$2", "$3", "$4x", "$5", "$6", "$7", "$8"), boundAt("5.content.0")},
	{slices.Concat(machine("a"), replaying), unsourced, replayed("", ""), ""},
	{machine("b"), unsourced, replayed("", ""), fmt.Sprintf(invalidAt, "1.content.0")},
	{claudeWith(ThinkingRules{RejectOtherModels: true}).after(played), unsourced, replayed(opus48, "claude-opus-4-7"), fmt.Sprintf(invalidAt, "1.content.0")},
	{at("/v1/messages", Config{Remember: 1}).after(forgotten), unsourced, replayed("", "", "$0", "$1-6", "$7p", "$8"), ""},
	{at("/v1/messages", Config{Remember: 1}).after(forgotten), unsourced, replayed("", "", "$0", "$1-6", "$7x", "$8"), fmt.Sprintf(invalidAt, "7.content.0")},
	{claudeWith(ThinkingRules{Omit: true}).after(played), unsourced, replayed("", "", "$0", "$1x", "$2", "$3", "$4", "$5", "$6", "$7", "$8"), ""},
	{replaying, unsourced, each(replayed(adaptive, disabled), replayed(adaptive, disabled, "$0", "$1-6", "$7-", "$8"), replayed(adaptive, disabled, "$0", "$1-6", "$7p", "$8")), ""},
	{replaying, unsourced, replayed(adaptive, disabled, "$0", "$1x", "$2", "$3", "$4", "$5", "$6", "$7", "$8"), fmt.Sprintf(invalidAt, "1.content.0")},
	{replaying, unsourced, each(replayed("", "", "$0", "$1", "$2", "$3", "$4"), replayed("", "", "$0", "$1", "$2", "$3halves", "$4")), "kept 0 lost 0"},
	{replaying, unsourced, replayed("", "", "$0", "$1-", "$2", "$3-", "$4"), "kept 0 lost 4"},
	{replaying, unsourced, each(replayed("", "", "$0", "$1-", "$2", "$3", "$4"), replayed("", "", "$0", "$1-", "$2", "$3m", "$4")), fmt.Sprintf(modifiedAt, "3.content.0")},
	{replaying, unsourced, replayed("", "", "$0", "$1", "$2", "$3-", "$4"), fmt.Sprintf(modifiedAt, "1.content.0")},
	{replaying, unsourced, replayed("", "", "$0", "$1", "$2", "$3p", "$4"), fmt.Sprintf(modifiedAt, "3.content.2")},
	{replaying, unsourced, replayed("", "", "$merged"), fmt.Sprintf(modifiedAt, "1.content.3")},

	// If a request breaks several rules, the first one refuses it.
	{claude, unsourced, msg(opus48, `"x":1,`+enabled+`,"temperature":0.5`, ask, answer(thought, toolUse("a")), ask), "x: Extra inputs are not permitted"},
	{claude, unsourced, msg(opus48, enabled+`,"temperature":0.5`, ask, answer(thought, toolUse("a")), ask), `"thinking.type.enabled" is not supported for this model. …`},
	{claude, unsourced, msg(opus48, "", ask, answer(thought, toolUse("a")), ask), "messages.1: `tool_use` ids were found without …"},
	{openAIChat, unsourced, chat("o3", `"x":1,"max_tokens":5`, ask, calls(call("a")), ask), "Unrecognized request argument supplied: x"},
	{openAIChat, unsourced, chat("o3", `"max_tokens":5`, ask, calls(call("a")), ask), "Unsupported parameter: 'max_tokens' …"},
	{openAI, unsourced, resp("gpt-5", `"x":1,"temperature":0`, hi, fCall), "Unknown parameter: 'x'. …"},
	{openAI, unsourced, resp("gpt-5", "", hi, fCall, reasoned), "The encrypted content …"},
	{google, unsourced, interact(`"labels":{},"x":1`, userInput, `{"type":"message"}`), "Unknown parameter: x (parameter_unknown)"},

	// Kimi.
	{slices.Concat(kimi, kimiChat), "MoonshotAI/Kimi-K2#141", msg("k", `"thinking":true`), "the thinking field in the request (expected type object) is illegal, and bool is not acceptable"},
	{slices.Concat(kimi, kimiChat), unsourced, msg("k", adaptive), "invalid thinking: only type=enabled or type=disabled is allowed for this model"},
	{kimi, unsourced, each(msg("k", `"thinking":{"type":"enabled","keep":"all"}`), msg("kimi-k2-thinking", "", loop(emptyThought)...), msg("kimi-k2.6", "", loop(blankThought)...), msg("k", "", loop(thought)...), msg("k", disabled, loop()...)), ""},
	{kimi, unsourced, each(msg("k", disabled+`,"temperature":0.6,"tool_choice":{"type":"any"},`+weather), msg("moonshot-v1-8k", `"temperature":0.3`)), ""},
	{slices.Concat(kimi, kimiChat), "can1357/oh-my-pi#1077", msg("k", `"tool_choice":{"type":"any"},`+weather), "tool_choice specified is incompatible with thinking enabled"},
	{slices.Concat(kimi, kimiChat), "UKGovernmentBEIS/inspect_ai#5156", msg("k", `"temperature":0.3`), "invalid temperature: only 1 is allowed for this model"},
	{slices.Concat(kimi, kimiChat), "UKGovernmentBEIS/inspect_ai#5156", msg("k", disabled+`,"temperature":1`), "invalid temperature: only 0.6 is allowed for this model"},
	{slices.Concat(deepSeek, deepSeekChat), "deepseek-ai/DeepSeek-V3#1376", msg("deepseek-v4-pro", `"tool_choice":{"type":"any"},`+weather), "Thinking mode does not support this tool_choice"},
	{deepSeek, unsourced, each(msg("deepseek-chat", `"tool_choice":{"type":"any"},`+weather), msg("d", disabled+`,"tool_choice":{"type":"any"},`+weather)), ""},
	{claude, "anthropics/claude-code#30760 anthropics/claude-code#30795", each(msg("claude-haiku-4-5", `"output_config":{"effort":"low"}`), msg(sonnet45, `"output_config":{"effort":"low"}`)), "This model does not support the effort parameter."},
	{claude, unsourced, each(msg("claude-opus-4-5", `"output_config":{"effort":"low"}`), msg("claude-opus-4-0", `"temperature":0.5,"top_p":0.9`)), ""},
	{claude, "BerriAI/litellm#15097 Vali-98/ChatterUI#564", each(msg(sonnet45, `"temperature":0.5,"top_p":0.9`), msg("claude-sonnet-4-6", `"temperature":1,"top_p":1`)), "`temperature` and `top_p` cannot both be specified for this model. Please use only one."},
	{onAWS, unsourced, msg(opus48, "", ask, inside), "…role 'system' is not supported on this model"},
	{claude, unsourced, each(msg(opus48, "", ask, inside), msg(fable, "", ask, inside, reply, ask)), ""},
	{claude, "anthropics/claude-code#24451", msg("claude-opus-4-5", `"max_tokens":128001`), "max_tokens: 128001 > 64000, which is the maximum allowed number of output tokens for claude-opus-4-5"},
	{claude, "withceleste/celeste-python#387", msg(opus46, `"max_tokens":128001`), "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens for claude-opus-4-6"},
	{claude.beta("output-128k-2025-02-19"), unsourced, msg("claude-3-7-sonnet", `"max_tokens":128000`), ""},
	{openAIChat, "QwenLM/Qwen-Agent#228", chat("gpt-4o", `"stop":["1","2","3","4","5"]`), "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead. (array_above_max_length stop)"},
	{openAIChat, "zed-industries/zed#32946", chat("gpt-4o", `"tools":[{}`+strings.Repeat(`,{}`, 128)+`]`), "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead. (array_above_max_length tools)"},
	{signedChat, "HELPMEEADICE/doge-code#16", chat("gemini-3-pro", enabled), "Invalid JSON payload received. Unknown name \"thinking\": Cannot find field."},
	{chatWith(ChatRules{Replay: ReplayCerebras}), "mengxi-ream/read-frog#1327", chat("m", enabled), "body.thinking: property 'body.thinking' is unsupported"},
	{kimiCode, "MoonshotAI/kimi-code#797", msg("k", disabled), "invalid thinking: only type=enabled is allowed for this model"},
	{kimiChat.each(func(t *target) { t.config.Thinking.OnlyEnabled = true }), "LionSR/TeXRA#1905", chat("k", disabled, ask, calls(call("a")), result("a")), "invalid thinking: only type=enabled is allowed for this model"},
	{kimi, "YishenTu/claudian#759 NousResearch/hermes-agent#14018 default", each(msg("k", "", loop()...), msg("kimi-k2.6", "", loop(emptyThought)...), msg("k", "", ask, answer(toolUse("a")), question(toolResult("a")), reply, ask)), "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"},
	{kimiChat, "theopenco/llmgateway#2093 earendil-works/pi#4178", each(chat("k", "", ask, calls(call("functions.calc:0")), result("functions.calc:0")), chat("kimi-k2.6", "", ask, withMember(calls(call("a")), "reasoning_content", `""`), result("a"))), "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"},
	{kimiChat, unsourced, each(chat("kimi-k2-thinking", "", ask, withMember(calls(call("a")), "reasoning_content", `""`), result("a")), chat("kimi-k2.6", "", ask, withMember(calls(call("a")), "reasoning_content", `" "`), result("a"))), ""},
	{kimiChat, unsourced, chat("k", `"response_format":{"type":"json_schema"}`), "Missing required parameter: 'response_format.json_schema.name'."},

	// GLM.
	{glm, "cline/cline#9939", msg("glm-4.7", adaptive), "Invalid API parameter, please check the documentation."},
	{glmChat, unsourced, chat("glm-4.6", adaptive), "Invalid API parameter, please check the documentation. (1210)"},
	{glm, "KiwiGaze/glm-for-copilot#40", msg("glm-5.3", disabled), "This model always engages in thinking and cannot be disabled; please use low, high, or max."},
	{glmChat, unsourced, chat("glm-5.3", `"reasoning_effort":"medium"`), "This model always engages in thinking and cannot be disabled; please use low, high, or max. (1210)"},
	{glmChat, unsourced, chat("glm-5.3", `"reasoning_effort":"high"`), ""},

	// DeepSeek.
	{slices.Concat(deepSeek, deepSeekChat), unsourced, msg("d", `"thinking":{"type":"auto"}`), "Failed to deserialize the JSON body into the target type: thinking.type: unknown variant `auto`, expected one of `adaptive`, `enabled`, `disabled`"},
	{slices.Concat(deepSeek, deepSeekChat), unsourced, each(msg("d", adaptive), msg("d", disabled)), ""},
	{slices.Concat(deepSeek, deepSeekChat), "lobehub/lobehub#14173", msg("d", disabled+`,"output_config":{"effort":"high"}`), "thinking options type cannot be disabled when reasoning_effort is set"},
	{deepSeek, "decolua/9router#2397 default", each(msg("d", "", loop()...), msg("deepseek-v4-pro", "", loop(emptyThought)...), msg("d", "", ask, answer(emptyThought, toolUse("a")), question(toolResult("a")), reply, ask)), "The `content[].thinking` in the thinking mode must be passed back to the API."},
	{deepSeek, unsourced, each(msg("d", "", loop(thought)...), msg("d", "", loop(emptyThought)...), msg("deepseek-v4-pro", "", loop(blankThought)...), msg("d", disabled, loop()...)), ""},
	{deepSeekChat, "JohnnyZ93/oai-compatible-copilot#215 NousResearch/hermes-agent#18263", each(chat("d", "", ask, calls(call("a")), result("a")), chat("deepseek-v4-pro", "", ask, withMember(calls(call("a")), "reasoning_content", `""`), result("a"))), "The `reasoning_content` in the thinking mode must be passed back to the API."},
	{deepSeekChat, "esengine/DeepSeek-Reasonix#7859", chat("d", "", question(linked)), "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `image_url`, expected `text`"},
	{deepSeekChat, "ItzCrazyKns/Vane#969", chat("d", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}`), "This response_format type is unavailable now"},
	{deepSeekChat, "vercel/ai#7913", chat("d", `"response_format":{"type":"json_object"}`), "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."},
	{deepSeekResponses, "TypeWhisper/typewhisper-mac#1345", resp("d", `"text":{"format":{"type":"xml"}}`, hi), "Invalid value: 'xml'. Supported values are: 'json_object', 'json_schema', and 'text'. (invalid_value text.format.type)"},
	{deepSeekResponses, unsourced, resp("d", "", hi, fCall, fOutput), "The `reasoning_text` in the thinking mode must be passed back to the API. (invalid_request_error)"},
	{deepSeekResponses, unsourced, each(resp("d", "", hi, `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":""}]}`, fCall, fOutput), resp("d", `"reasoning":{"effort":"none"}`, hi, fCall, fOutput)), ""},

	{deepSeekUnit, unsourced, resp("m", "", hi, "$rs-", "$msg", "$fc", "$fc2", "$out", "$out2"), "kept 1 lost 0"},
	{deepSeekUnit, unsourced, resp("m", "", hi, "$empty", "$fc", "$out"), "kept 0 lost 1"},
	{deepSeekUnit, unsourced, resp("m", "", hi, "$rs", "$fc", "$out", "$fc2", "$out2"), "The `reasoning_text` in the thinking mode must be passed back to the API. (invalid_request_error)"},

	// Chat completions: messages.
	{chats, unsourced, `{"model":"m","messages":[]}`, "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."},
	{chats, unsourced, chat("m", "", ask, message("USER", `"a"`)), "Invalid value: 'USER'. Supported values are: 'system', 'developer', 'user', 'assistant' and 'tool' (messages[1].role)."},
	{chats, unsourced, chat("m", "", message("user", `" "`)), "Invalid 'messages[0].content': text content must be non-empty"},
	{chats, unsourced, chat("m", "", question()), "Invalid value for 'messages[0].content': expected a string or an array of content parts."},
	{anyChat, unsourced, chat("m", "", question(`{"type":"text","text":" "}`)), "Invalid 'messages[0].content[0].text': text content must be non-empty"},
	{anyChat, unsourced, chat("m", "", question(`{"type":"tool_result"}`)), "Invalid value: 'tool_result' is no type of content part here (messages[0].content[0])."},
	{anyChat, unsourced, chat("m", "", question(`{"type":"image_url","image_url":"https://x"}`)), "Invalid type for 'messages[0].content[0].image_url': expected an object with a url."},
	{anyChat, unsourced, chat("m", "", question(`{"type":"image_url","image_url":{"url":"x"}}`)), "Invalid 'messages[0].content[0].image_url.url'. Expected a valid URL, but got a value with an invalid format."},
	{anyChat, unsourced, chat("m", "", question(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`)), "messages[0].content[0].image_url.url: Image does not match the provided media type image/png"},
	{anyChat, unsourced, each(chat("m", "", question(text, linked, `{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhAQABAAAAACw="}}`)), chat("m", "", ask, beside(`"hm"`, call("a")), result("a"), reply, ask)), ""},
	{anyChat, unsourced, chat("m", "", ask, calls(call("a"), call(long[:40])), result(long[:40]), result("a"), calls(call("c")), result("c")), ""},
	{anyChat, unsourced, chat("m", "", message("system", `"s"`), message("developer", `"d"`), ask, message("system", `"s"`), ask, ask, reply, reply, ask), ""},
	{anyChat, unsourced, chat("m", "", ask, beside(`" "`, call("a")), result("a")), "Invalid 'messages[1].content': text content must be non-empty"},
	{chats, unsourced, chat("m", "", ask, beside(`"a"`), ask), "[] is too short - 'messages[1].tool_calls'"},
	{anyChat, unsourced, chat("m", "", ask, calls(withoutMember(call("a"), "type")), result("a")), "Invalid 'messages[1].tool_calls[0]': expected an object of type 'function'."},
	{chats, unsourced, chat("m", "", ask, calls(call("")), result("")), "Invalid 'messages[1].tool_calls[0].id': empty string. Expected a string with minimum length 1, but got an empty string instead."},
	{anyChat, "BerriAI/litellm#10083", chat("m", "", ask, calls(call(long[:41])), result(long[:41])), "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 41 instead."},
	{anyChat, unsourced, chat("m", "", ask, calls(call("a")), result("a"), calls(call("a")), result("a")), "Invalid 'messages[3].tool_calls[0].id': duplicate tool call id a"},
	{anyChat, unsourced, chat("m", "", ask, calls(callOf("a", "", "{}")), result("a")), "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]{1,64}$'."},
	{chats, unsourced, chat("m", "", ask, calls(callOf("a", "f", "")), result("a")), "Invalid 'messages[1].tool_calls[0].function.arguments': expected the text of a JSON object, but got \"\" instead."},
	{anyChat, unsourced, chat("m", "", ask, calls(callOf("a", "f", `{"x":"\ud83d"}`)), result("a")), "Invalid 'messages[1].tool_calls[0].function.arguments': expected the text of a JSON object, …"},
	{chats, "langgenius/dify#32222", chat("m", "", ask, calls(call("a")), ask), "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: a"},
	{anyChat, unsourced, chat("m", "", ask, calls(call("a"), call("b")), result("a")), "An assistant message with 'tool_calls' must be followed by … response messages: b"},
	{anyChat, "miurla/morphic#136", chat("m", "", ask, reply, result("a")), "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' (messages[2], id a)."},
	{chats, unsourced, chat("m", "", ask, calls(call("a")), result("z"), result("a")), "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' (messages[2], id z)."},
	{chats, unsourced, chat("m", "", ask, calls(call("a")), result("a"), result("a")), "Not the same number of function calls and responses (messages[3] answers id a again)"},
	{chats, unsourced, chat("m", `"tools":[]`), "Invalid 'tools': expected an array with minimum length 1."},
	{chats, unsourced, chat("m", `"tools":[{"function":{"name":"f"}}]`), "Invalid 'tools[0]': expected an object of type 'function'."},
	{anyChat, unsourced, chat("m", `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]`), "Tool names must be unique"},
	{anyChat, unsourced, chat("m", `"tools":[{"type":"function","function":{"name":"a.b"}}]`), "Invalid 'tools[0].function.name': string does not match pattern. …"},
	{chats, unsourced, chat("m", function(`{"type":"array"}`)), "Invalid schema for function 'f': schema must be a JSON Schema of 'type: \"object\"'."},
	{chats, unsourced, chat("m", `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]`), ""},

	// Chat completions: the order of roles and the ids at Mistral.
	{mistral, "anomalyco/opencode#1680", chat("m", "", ask, calls(call("abcDEF1234")), result("abcDEF1234")), "Tool call id was abcDEF1234 but must be a-z, A-Z, 0-9, with a length of 9."},
	{mistral, unsourced, chat("m", "", message("system", `"s"`), ask, calls(call("abcDEF123")), result("abcDEF123"), reply, reply, ask, message("system", `"s"`), ask), ""},
	{mistral, unsourced, chat("m", "", ask, ask), "Unexpected role 'user' after role 'user'"},
	{mistral, "datapizza-labs/datapizza-ai#98", chat("m", "", ask, calls(call("abcDEF123")), result("abcDEF123"), ask), "Unexpected role 'user' after role 'tool'"},
	{mistral, unsourced, chat("m", "", ask, reply, message("developer", `"s"`), ask), "Unexpected role 'system' after role 'assistant'"},
	{mistral, unsourced, chat("m", "", reply, ask), "Conversation must start with a user message or system message, and the first to speak is the user"},
	{mistral, "microsoft/autogen#6377", chat("m", "", ask, reply), "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"},

	// Chat completions: members and models.
	{chatWith(ChatRules{KnownArguments: true}), "davidmigloz/langchain_dart#712", chat("m", enabled), "Unrecognized request argument supplied: thinking"},
	{openAIChat, "nashsu/llm_wiki#336", chat("gpt-4.1", enabled), "Unrecognized request argument supplied: thinking"},
	{anyChat, unsourced, each(chat("m", enabled), chat("gpt-4.1", `"reasoning_effort":"low"`)), ""},
	{chatWith(ChatRules{NoParameters: []string{"stop", "top_k"}}), "microsoft/semantic-kernel#10365", chat("m", `"stop":[]`), "Unsupported parameter: 'stop' is not supported with this model. (unsupported_parameter)"},
	{openAIChat, unsourced, each(chat("gpt-4.1", `"reasoning_effort":"medium"`), chat("gpt-5-chat-latest", `"reasoning_effort":"low"`)), "Unrecognized request argument supplied: reasoning_effort"},
	{openAIChat, unsourced, each(chat("gpt-5.1", `"reasoning_effort":"none","temperature":0.2`), chat("gpt-4.1", `"max_tokens":5,"temperature":0`), chat("o3", `"max_completion_tokens":5,"temperature":1`), chat("gpt-5.4", function("")), chat("gpt-5.6", `"reasoning_effort":"none",`+function(""))), ""},
	{openAIChat, unsourced, chat("o1-mini", `"reasoning_effort":"low"`), "Unsupported parameter: 'reasoning_effort' is not supported with this model. (unsupported_parameter)"},
	{openAIChat, "livekit/agents#7169", chat("gpt-5.6", `"reasoning_effort":"minimal"`), "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'none', 'low', 'medium', 'high', 'xhigh'. (unsupported_value)"},
	{openAIChat, unsourced, chat("o3", `"reasoning_effort":"minimal"`), "Unsupported value: … Supported values are: 'low', 'medium', 'high'. (unsupported_value)"},
	{openAIChat, unsourced, chat("gpt-5", `"reasoning_effort":"none"`), "Unsupported value: … Supported values are: 'minimal', 'low', 'medium', 'high'. (unsupported_value)"},
	{openAIChat, unsourced, chat("gpt-5.1-chat", `"reasoning_effort":"low"`), "Unsupported value: … Supported values are: 'medium'. (unsupported_value)"},
	{openAIChat, "fish2018/YPrompt#26", chat("gpt-5.1", `"max_tokens":5`), "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead. (unsupported_parameter)"},
	{openAIChat, "GoogleChromeLabs/webmcp-tools#417", chat("gpt-5.6", function("")), "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'."},
	{openAIChat, unsourced, chat("gpt-5.4", `"reasoning_effort":"low",`+function("")), "Function tools with reasoning_effort are not supported for gpt-5.4 in …"},
	{openAIChat, "johny-b/llmcomp#69 default", each(chat("o3", `"temperature":0.2`), chat("gpt-5.1", `"reasoning_effort":"low","temperature":0.2`)), "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported. (unsupported_value)"},
	{openAIChat, unsourced, chat("gpt-5", `"top_p":0.1`), "Unsupported value: 'top_p' …"},
	{openAIChat, unsourced, chat("gpt-5", `"presence_penalty":1`), "Unsupported value: 'presence_penalty' …"},
	{openAIChat, unsourced, chat("gpt-5", `"frequency_penalty":1`), "Unsupported value: 'frequency_penalty' does not support 1 with this model. Only the default (0) value is supported. (unsupported_value)"},

	// Chat completions: schemas, images, reasoning, signatures and strict answers.
	{slices.Concat(openAIChat, chatWith(ChatRules{Schemas: OpenAISchemas})), "chatanywhere/GPT_API_free#403", chat("gpt-4.1", function(`{"type":"object","anyOf":[]}`)), "Invalid schema for function 'f': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level."},
	{kimiSchemas, "vercel/ai#18921", chat("k", properties(`{"type":"object","anyOf":[]}`)), "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'properties.a': when using anyOf, type should be defined in anyOf items instead of the parent schema>"},
	{kimiSchemas, unsourced, chat("k", properties(`{}`)), "… details: <At path 'properties.a': type is not defined>"},
	{kimiSchemas, unsourced, chat("k", properties(`{"type":"array","items":{"$ref":"#","type":"string"}}`)), "… details: <At path 'properties.a.items': when using $ref, type should be defined in the referenced schema instead of the parent schema>"},
	{kimiSchemas, unsourced, chat("k", properties(`{"$ref":"#","description":"d"}`)), "… details: <At path 'properties.a': conflicting keywords found after $ref expansion: description>"},
	{kimiSchemas, unsourced, chat("k", properties(`true`)), "… details: <At path 'root.properties': property schema for 'a' must be an object>"},
	{kimiSchemas, unsourced, chat("k", properties(`{"type":"string"}`)), ""},
	{geminiSchemas, "google-gemini/gemini-cli#3178", chat("m", function(`{"type":"object","$schema":"x","required":["q"]}`)), "Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters': Cannot find field.\nGenerateContentRequest.tools[0].function_declarations[0].parameters.required[0]: property is not defined"},
	{geminiSchemas, unsourced, chat("m", properties(`{"type":["string"]}`, `true`)), "Invalid JSON payload received. Unknown name \"type\" at '….properties[0].value': Proto field is not repeating, cannot start list.\nInvalid value at '….properties[1].value'"},
	{geminiSchemas, unsourced, chat("m", properties(`{"type":"string","anyOf":[]}`, `{}`)), "….properties[0].value: when using any_of, it must be the only field set\n….properties[1].value.type: must be specified when not using one_of, any_of or all_of fields"},
	{geminiSchemas, unsourced, chat("m", properties(`{"type":"array"}`, `{"type":"string","format":"uri"}`)), "….properties[0].value.items: missing field.\n….properties[1].value.format: only 'enum' and 'date-time' are supported for STRING type"},
	{geminiSchemas, unsourced, chat("m", properties(`{"type":"string","items":1}`)), "….properties[0].value.items: field predicate failed: $type == Type.ARRAY\nInvalid value at '….properties[0].value.items'"},
	{geminiSchemas, unsourced, chat("m", properties(`{"type":"string","properties":{}}`, `{"type":"integer","enum":[1,""]}`)), "….properties[0].value.properties: only allowed for OBJECT type\n….enum: only allowed for STRING type\n….enum[0]' (TYPE_STRING), 1\n….enum[1]: cannot be empty"},
	{geminiSchemas, unsourced, chat("m", properties(`{"anyOf":[{"type":"array","items":{"type":"array"}}]}`)), "….properties[0].value.any_of[0].items.items: missing field."},
	{geminiSchemas, unsourced, chat("m", properties(`{"anyOf":[{"type":"string"}]}`)), ""},
	{chatWith(ChatRules{TextOnly: true}), "agentscope-ai/QwenPaw#1022", chat("m", "", question(text)), "Failed to deserialize the JSON body into the target type: messages[0]: invalid type: sequence, expected a string"},
	{chatWith(ChatRules{NoImages: true}), unsourced, chat("m", "", question(text, linked)), "Invalid content type. image_url is only supported by certain models. (messages.[0].content.[1].type)"},
	{chatWith(ChatRules{Replay: ReplayGroq}), "tashfeenahmed/freellmapi#1070", chat("m", "", ask, withMember(reply, "reasoning_content", `"r"`), ask), "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]"},
	{chatWith(ChatRules{Replay: ReplayMistral}), "mnfst/llm-gateway#1074", chat("m", "", ask, withMember(reply, "reasoning_content", `""`), ask), `422 {"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted","input":""}]}`},
	{chatWith(ChatRules{Replay: ReplayCerebras}), unsourced, chat("m", "", ask, withMember(reply, "reasoning_content", `""`), ask), `{"message":"body.messages.1.assistant.reasoning_content: property 'reasoning_content' is unsupported","type":"invalid_request_error","param":"validation_error","code":"wrong_api_format"}`},
	{anyChat, unsourced, chat("m", "", ask, withMember(reply, "reasoning_content", `""`), ask), ""},
	{anyChat, unsourced, chat("m", `"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","additionalProperties":false,"properties":{"a":{}},"required":["a"]}}}`), ""},
	{signedChat, "TokenRhythm/opensquilla#225", chat("m", "", ask, "$unsigned", "$results"), "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:f` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."},
	{signedChat, "google-gemini/gemini-cli#13467", chat("m", "", ask, "$altered", "$results"), `[{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}]`},
	{signedChat, "crmne/ruby_llm#521", chat("m", "", ask, "$undecodable", "$results"), `Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding failed for "!"`},
	{signedChat, "https://ai.google.dev/gemini-api/docs/thought-signatures", chat("m", "", ask, "$sentinel", "$results"), ""},
	{signedChat, unsourced, each(chat("m", "", ask, "$answer", "$results"), chat("m", "", ask, "$unsigned", "$results", reply, ask)), ""},
	{anyChat, unsourced, chat("m", `"response_format":{"type":"json_schema"}`), "Missing required parameter: 'response_format.json_schema.name'."},
	{anyChat, "vercel/ai#6484", chat("m", `"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{"a":{}},"required":[]}}}`), "Invalid schema for response_format '\"n\"': In context=(), 'additionalProperties' is required to be supplied and to be false, and 'required' is required to include every key in properties."},

	// Responses: members, models and tools.
	{openAI, unsourced, resp("m", `"messages":[]`, hi), "Unknown parameter: 'messages'. (unknown_parameter messages)"},
	{openAI, unsourced, resp("m", `"reasoning":{"enabled":true}`, hi), "Unknown parameter: 'reasoning.enabled'. (unknown_parameter reasoning.enabled)"},
	{openAI, unsourced, resp("m", `"text":{"form":1}`, hi), "Unknown parameter: 'text.form'. (unknown_parameter text.form)"},
	{openAI, unsourced, resp("m", `"include":["all"]`, hi), "Invalid value: 'all'. Supported values are: 'code_interpreter_call.outputs', … and 'web_search_call.results'. (invalid_value include[0])"},
	{openAI, unsourced, resp("m", `"max_output_tokens":"x"`, hi), "Invalid type for 'max_output_tokens': expected an integer. (invalid_type max_output_tokens)"},
	{openAI, "shinpei710/ccr-plugin-openai-res#2", resp("m", `"max_output_tokens":1`, hi), "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead. (integer_below_min_value max_output_tokens)"},
	{openAI, unsourced, each(resp("m", `"max_output_tokens":16`, hi), resp("m", `"text":{"format":{"type":"json_schema","name":"n","schema":{}}}`, hi), resp("gpt-4o", `"temperature":0`, hi), resp("m", `"tools":[{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]},{"type":"custom","name":"c"}]`, hi)), ""},
	{openAI, unsourced, resp("m", `"text":{"format":{"type":"xml"}}`, hi), "Invalid value: 'xml'. Supported values are: 'json_object', 'json_schema', and 'text'. (invalid_value text.format.type)"},
	{openAI, unsourced, resp("m", `"text":{"format":{"type":"json_schema"}}`, hi), "Missing required parameter: 'text.format.name'. (missing_required_parameter text.format.name)"},
	{openAI, unsourced, resp("m", `"text":{"format":{"type":"json_schema","name":"n"}}`, hi), "Missing required parameter: 'text.format.schema'. (missing_required_parameter text.format.schema)"},
	{openAI, unsourced, resp("gpt-4o", `"reasoning":{"effort":"low"}`, hi), "Unsupported parameter: 'reasoning.effort' is not supported with this model. (unsupported_parameter reasoning.effort)"},
	{openAI, unsourced, resp("gpt-5", `"reasoning":{"effort":"none"}`, hi), "Unsupported value: 'none' is not supported with the 'gpt-5' model. Supported values are: 'minimal', 'low', 'medium', and 'high'. (unsupported_value reasoning.effort)"},
	{openAI, "OpenHands/software-agent-sdk#1208", resp("gpt-4o", encrypted, hi), "Encrypted content is not supported with this model. (include)"},
	{openAI, unsourced, resp("gpt-5", `"temperature":0`, hi), "Unsupported parameter: 'temperature' is not supported with this model. (unsupported_parameter temperature)"},
	{openAI, unsourced, resp("gpt-5", `"top_p":0.5`, hi), "Unsupported parameter: 'top_p' is not supported with this model. (unsupported_parameter top_p)"},
	{responses, unsourced, resp("m", `"tools":{}`, hi), "Invalid type for 'tools': expected an array of objects. (invalid_type tools)"},
	{responses, unsourced, resp("m", `"tools":[{"name":"f"}]`, hi), "Missing required parameter: 'tools[0].type'. (missing_required_parameter tools[0].type)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"magic"}]`, hi), "Invalid value: 'magic'. Supported values are: 'function', … (invalid_value tools[0].type)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"function","function":{"name":"f"}}]`, hi), "Missing required parameter: 'tools[0].name'. (missing_required_parameter tools[0].name)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"function","name":"f","input_schema":{}}]`, hi), "Unknown parameter: 'tools[0].input_schema'. (unknown_parameter tools[0].input_schema)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"function","name":"a.b"}]`, hi), "Invalid 'tools[0].name': string does not match pattern. … (invalid_value tools[0].name)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"namespace","name":"n"}]`, hi), "Missing required parameter: 'tools[0].tools'. (missing_required_parameter tools[0].tools)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]`, hi), "Missing required parameter: 'tools[0].tools[0].name'. (missing_required_parameter tools[0].tools[0].name)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"function","name":"f","parameters":{"type":"array"}}]`, hi), "Invalid schema for function 'f': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'. (invalid_function_parameters tools[0].parameters)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"object"}}]`, hi), "Invalid schema for function 'f': In context=(), 'additionalProperties' is required to be supplied and to be false. (invalid_function_parameters tools[0].parameters)"},
	{openAI, unsourced, resp("m", `"tools":[{"type":"function","name":"f","parameters":{"type":"object","anyOf":[]}}]`, hi), "Invalid schema for function 'f': … at the top level. (invalid_function_parameters tools[0].parameters)"},
	{responses, unsourced, resp("m", offersF+`,"tool_choice":{"type":"function","name":"g"}`, hi), "Tool choice 'function' not found in 'tools' parameter. (tool_choice)"},

	// Responses: the context and its items.
	{responses, "maximhq/bifrost#2441", resp("m", `"previous_response_id":"resp_1"`, hi), "Previous response with id 'resp_1' not found. (previous_response_not_found previous_response_id)"},
	{openAIUnit, unsourced, resp("m", `"previous_response_id":"$unstored"`, hi), "Previous response with id '$unstored' not found. (previous_response_not_found previous_response_id)"},
	{openAIUnit, unsourced, resp("m", `"previous_response_id":"$stored","conversation":"conv_1"`, hi), "Mutually exclusive parameters: Ensure you are only providing one of: 'previous_response_id' or 'conversation'. (mutually_exclusive_parameters)"},
	{openAIUnit, unsourced, resp("m", `"previous_response_id":"$stored"`, `{"role":"user"}`), "Missing required parameter: 'input[0].content'. (missing_required_parameter input[0].content)"},
	{openAIUnit, unsourced, resp("m", `"previous_response_id":"$stored"`, fOutput), "No tool call found for function call output with call_id call_1. (input)"},
	{openAI, unsourced, resp("m", `"conversation":"conv_1"`, hi), "404 Conversation with id 'conv_1' not found."},
	{openAI, unsourced, `{"model":"m","input":` + hi + `}`, "Invalid type for 'input': expected one of an array of objects or a string. (invalid_type input)"},
	{responses, unsourced, resp("m", ""), `One of "input" or "previous_response_id" or 'prompt' or 'conversation_id' must be provided. (missing_required_parameter input)`},
	{openAI, unsourced, `{"model":"m","input":""}`, `One of "input" or "previous_response_id" or …`},
	{responses, unsourced, resp("m", "", `{"content":"a"}`), "Missing required parameter: 'input[0].type'. (missing_required_parameter input[0].type)"},
	{openAI, unsourced, resp("m", "", hi, `{"type":"thinking"}`), "Invalid value: 'thinking'. Supported values are: 'code_interpreter_call', … (invalid_value input[1])"},
	{openAI, unsourced, resp("m", "", withMember(hi, "id", "5")), "Invalid type for 'input[0].id': expected a string. (invalid_type input[0].id)"},
	{openAI, "jlcodes99/cockpit-tools#2090", resp("m", "", hi, withMember(reasoned, "id", `"msg_1"`), aMessage), "Invalid 'input[1].id': 'msg_1'. Expected an ID that begins with 'rs'. (invalid_value input[1].id)"},
	{openAI, unsourced, resp("m", "", hi, withMember(aMessage, "id", `"msg_`+long[:65]+`"`)), "Invalid 'input[1].id': string too long. Expected a string with maximum length 64, but got a string with length 69 instead. (string_above_max_length input[1].id)"},
	{openAI, unsourced, resp("m", "", hi, withMember(fCall, "call_id", `""`), fOutput), "Invalid 'input[1].call_id': empty string. Expected a string with minimum length 1, but got an empty string instead. (empty_string input[1].call_id)"},
	{openAI, "AnswerDotAI/fastllm#45", resp("m", "", hi, withMember(fCall, "call_id", `"`+long[:65]+`"`), fOutput), "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with length 65 instead. (string_above_max_length input[1].call_id)"},
	{openAI, unsourced, each(resp("m", "", hi, withMember(fCall, "call_id", `"`+long[:64]+`"`), withMember(fOutput, "call_id", `"`+long[:64]+`"`)), resp("m", "", question(`{"type":"input_image","image_url":"https://x"}`))), ""},
	{openAI, unsourced, resp("m", "", hi, fCall, withMember(fOutput, "output", `[{"type":"input_text","text":"a"}]`)), ""},
	{openAI, unsourced, resp("m", "", `{"role":"developer","content":"a"}`, `{"role":"system","content":"a"}`, hi, aMessage, withMember(fCall, "status", `"completed"`), withMember(fOutput, "status", `"completed"`), cCall, withMember(cOutput, "id", `"ctco_1"`)), ""},
	{openAI, unsourced, resp("m", "", hi, withMember(fCall, "name", `"a b"`), fOutput), "Invalid 'input[1].name': string does not match pattern. … (invalid_value input[1].name)"},
	{openAI, unsourced, resp("m", "", hi, withoutMember(fCall, "arguments"), fOutput), "Missing required parameter: 'input[1].arguments'. (missing_required_parameter input[1].arguments)"},
	{openAI, unsourced, resp("m", "", hi, withMember(fCall, "arguments", "{}"), fOutput), "Invalid type for 'input[1].arguments': expected a string. (invalid_type input[1].arguments)"},
	{openAI, unsourced, resp("m", "", hi, withoutMember(reasoned, "summary"), aMessage), "Missing required parameter: 'input[1].summary'. (missing_required_parameter input[1].summary)"},
	{openAI, unsourced, resp("m", "", hi, `{"type":"compaction","id":"cmp_1"}`), "Missing required parameter: 'input[1].encrypted_content'. (missing_required_parameter input[1].encrypted_content)"},
	{openAI, unsourced, resp("m", "", hi, `{"role":"tool","tool_call_id":"a","content":"4"}`), "Unknown parameter: 'input[1].tool_call_id'. (unknown_parameter input[1].tool_call_id)"},
	{openAI, "BerriAI/litellm#13420", resp("m", "", hi, withMember(reasoned, "status", "null"), aMessage), "Unknown parameter: 'input[1].status'. (unknown_parameter input[1].status)"},
	{openAI, unsourced, resp("m", "", `{"role":"tool","content":"4"}`), "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'. (invalid_value input[0].role)"},
	{openAI, unsourced, resp("m", "", `{"role":"user","content":1}`), "Invalid type for 'input[0].content': expected one of an array of objects or a string. (invalid_type input[0].content)"},
	{openAI, unsourced, resp("m", "", question(text)), "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', and 'input_file'. (invalid_value input[0].content[0])"},
	{openAI, unsourced, resp("m", "", hi, answer(`{"type":"input_text","text":"a"}`)), "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'. (invalid_value input[1].content[0])"},
	{openAI, unsourced, resp("m", "", question(`{"type":"input_text"}`)), "Missing required parameter: 'input[0].content[0].text'. (missing_required_parameter input[0].content[0].text)"},
	{openAI, unsourced, resp("m", "", answer(`{"type":"refusal"}`)), "Missing required parameter: 'input[0].content[0].refusal'. (missing_required_parameter input[0].content[0].refusal)"},
	{openAI, unsourced, resp("m", "", question(`{"type":"input_image","image_url":{"url":"https://x"}}`)), "Invalid type for 'input[0].content[0].image_url': expected a string. (invalid_type input[0].content[0].image_url)"},
	{openAI, unsourced, resp("m", "", question(`{"type":"input_image","image_url":"data:image/png;base64,AAAA"}`)), "… Image does not match the provided media type image/png (invalid_value input[0].content[0].image_url)"},
	{openAI, unsourced, resp("m", "", question(`{"type":"input_image","image_url":"x"}`)), "Invalid 'input[0].content[0].image_url.url'. Expected a valid URL, but got a value with an invalid format. (invalid_value input[0].content[0].image_url)"},
	{openAI, unsourced, resp("m", "", hi, withMember(reasoned, "summary", `"s"`), aMessage), "Invalid type for 'input[1].summary': expected an array of objects. (invalid_type input[1].summary)"},
	{openAI, unsourced, resp("m", "", hi, withMember(reasoned, "summary", "["+text+"]"), aMessage), "Invalid value: 'text'. Supported values are: 'summary_text'. (invalid_value input[1].summary[0])"},
	{openAI, "musistudio/claude-code-router#1783", resp("m", "", hi, withMember(reasoned, "content", `[{"type":"reasoning_text","text":"a"}]`), aMessage), "Invalid 'input[1].content': array too long. Expected an array with maximum length 0, but got an array with length 1 instead. (array_above_max_length input[1].content)"},
	{openAI, unsourced, resp("m", "", hi, fCall, withoutMember(fOutput, "output")), "Missing required parameter: 'input[2].output'. (missing_required_parameter input[2].output)"},
	{openAI, unsourced, resp("m", "", hi, fCall, withMember(fOutput, "output", "1")), "Invalid type for 'input[2].output': expected one of an array of objects or a string. (invalid_type input[2].output)"},
	{openAI, unsourced, resp("m", "", hi, fCall, withMember(fOutput, "output", "["+text+"]")), "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', and 'input_file'. (invalid_value input[2].output[0])"},
	{openAI, unsourced, resp("m", "", hi, fCall, withMember(fOutput, "output", `[{"type":"input_image","image_url":1}]`)), "Invalid type for 'input[2].output[0].image_url': expected a string. (invalid_type input[2].output[0].image_url)"},
	{openAI, "OpenRouterTeam/ai-sdk-provider#254", resp("m", "", hi, aMessage, aMessage), "Duplicate item found with id msg_1. Remove duplicate items from your input and try again. (input)"},
	{openAI, "can1357/oh-my-pi#41", resp("m", "", hi, `{"type":"item_reference","id":"msg_9"}`), "404 Item with id 'msg_9' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input. (input)"},
	{openAI, "https://github.com/openai/codex", resp("m", encrypted+`,"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"summary":"auto"},"prompt_cache_key":"k","client_metadata":{"a":"b"},"instructions":"s"`, `{"type":"message","id":"msg_0","role":"developer","content":[{"type":"input_text","text":"a"}]}`, hi), ""},

	// Responses: encrypted content, calls and units.
	{openAIUnit, "openai/openai-agents-python#2063", resp("m", "", hi, "$renamed", "$msg-", hi), "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content item_id did not match the target item id. (invalid_encrypted_content)"},
	{openAIUnit, unsourced, resp("m", "", hi, "$changed", "$msg-", hi), "The encrypted content for item $rs.id could not be verified. Reason: Encrypted content could not be decrypted or parsed. (invalid_encrypted_content)"},
	{openAIUnit, unsourced, resp("m", "", hi, "$foreign", "$msg-", hi), "The encrypted content for item $foreign.id could not be verified. Reason: Encrypted content could not be decrypted or parsed. (invalid_encrypted_content)"},
	{openAIUnit, "openai/codex#8145", resp("m", "", hi, "$foreign-", "$msg-", hi), "The encrypted content gAAA...$foreign.end could not be verified. (invalid_encrypted_content)"},
	{openAIWith(ResponsesRules{OldWording: true}).after(units), unsourced, resp("m", "", hi, "$foreign", "$msg-", hi), "The encrypted content gAAA...$foreign.end could not be verified. (invalid_encrypted_content)"},
	{azure, unsourced, resp("m", "", hi, "$foreign", "$msg-", hi), "The encrypted content for item $foreign.id could not be verified. …"},
	{openAIUnit, "openai/codex#35334 default", each(resp("m", "", hi, `{"type":"compaction","id":"$cmp.id","encrypted_content":"gAAAAAxxxxxxxx"}`, hi), resp("m", "", hi, `{"type":"compaction","id":"$cmp.id","encrypted_content":"$rs.content"}`, hi)), "The encrypted content for item $cmp.id could not be verified. Reason: Encrypted content could not be decrypted or parsed. (invalid_encrypted_content)"},
	{openAI, unsourced, resp("m", "", hi, `{"type":"reasoning","summary":[]}`, aMessage), "Missing required parameter: 'input[1].id'. (missing_required_parameter input[1].id)"},
	{openAIUnit, "can1357/oh-my-pi#41", resp("m", "", hi, "$rs0", "$msg-", hi), "404 Item with id '$rs.id' not found. Items are not persisted when `store` is set to false. …"},
	{azure, unsourced, resp("m", "", hi, "$rs0", "$msg-", hi), "Item with id '$rs.id' not found. … (input)"},
	{openAIUnit, unsourced, each(resp("m", "", hi, "$rs", "$msg-", hi), resp("m", "", hi, "$rs-", "$msg-", hi), resp("m", "", hi, "$rsEmpty", "$msg-", hi), resp("m", "", hi, "$cmp", hi), resp("m", "", hi, "$rs", "$msg", "$fc", "$fc2", "$out", "$out2", hi)), ""},
	{openAIUnit, unsourced, each(resp("m", "", hi, "$rs", "$msg", "$fc", "$out", "$fc2", "$out2", hi), resp("m", "", hi, "$rs-", "$msg-", "$fc-", "$fc2-", "$out", "$out2", hi), resp("m", "", hi, "$rs", "$fc-", "$out", hi)), ""},
	{openAIUnit, unsourced, each(resp("m", "", hi, "$msg-", "$fc-", "$fc2-", "$out", "$out2", hi), resp("m", "", hi, "$rs", "$ors", "$ofc", "$ofc2", "$oout", "$oout2", hi)), ""},
	{openAI.after(storedUnit), unsourced, each(resp("m", "", hi, "$rs", "$msg", "$fc", "$fc2", "$out", "$out2"), resp("m", "", hi, "$rsRef", "$msgRef", "$fc", "$fc2", "$out", "$out2")), ""},
	{openAIUnit, unsourced, `{"model":"m","previous_response_id":"$stored","input":"and?"}`, ""},
	{openAIUnit, unsourced, resp("m", encrypted, hi, "$rs", "$msg", "$fc", "$fc2", "$out", "$out2"), "kept 1 lost 0"},
	{openAIUnit, unsourced, resp("m", encrypted, hi, "$msg-", "$fc-", "$fc2-", "$out", "$out2"), "kept 0 lost 1"},
	{responses, "continuedev/continue#10092", resp("m", "", hi, fOutput), "No tool call found for function call output with call_id call_1. (input)"},
	{openAI, unsourced, resp("m", "", hi, fCall, fOutput, withMember(cOutput, "call_id", `"call_1"`)), "No tool call found for custom tool call output with call_id call_1. (input)"},
	{openAI, "router-for-me/CLIProxyAPI#2368", resp("m", "", hi, fCall), "No tool output found for function call call_1. (input)"},
	{openAI, unsourced, resp("m", "", hi, cCall), "No tool output found for custom tool call call_2. (input)"},
	{openAIUnit, "continuedev/continue#11466 default", each(resp("m", "", hi, "$rs", hi), resp("m", "", hi, "$rs-", hi), resp("m", "", hi, "$rs", "$ofc-", "$oout", hi)), "Item '$rs.id' of type 'reasoning' was provided without its required following item. (input)"},
	{openAIUnit, unsourced, resp("m", "", hi, "$ors", "$fc", "$out", hi), "Item '$ors.id' of type 'reasoning' was provided without its required following item. (input)"},
	{openAIUnit, "openai/openai-node#1567", resp("m", "", hi, "$fc", "$out", hi), "Item '$fc.id' of type 'function_call' was provided without its required 'reasoning' item: '$rs.id'. (input)"},
	{openAIUnit, "mastra-ai/mastra#14048 default", each(resp("m", "", hi, "$msg", hi), resp("m", "", hi, "$rs", "$fc-", "$out", "$msg", hi)), "Item '$msg.id' of type 'message' was provided without its required 'reasoning' item: '$rs.id'. (input)"},

	// Interactions.
	{googleLoop, googleTypes, interact(`"response_mime_type":"application/json"`, userInput), "Unknown parameter: response_mime_type (parameter_unknown)"},
	{google, apiErrors, interact(`"generation_config":{"temperature":1}`, userInput), "Unknown parameter: generation_config.temperature (parameter_unknown)"},
	{google, unsourced, interact(`"generation_config":{"thinking_level":"none"}`, userInput), "Thinking level none is not supported for this model. (invalid_request)"},
	{google, googleTypes, each(interact(`"generation_config":{"thinking_summaries":"x"}`, userInput), interact(`"generation_config":{"tool_choice":"x"}`, userInput), interact(`"response_format":{"schema":{}}`, userInput)), "Request contains an invalid argument. (invalid_request)"},
	{googleLoop, googleTypes, each(interact("", userInput, "$thought", "$call", "$numberResult"), interact("", userInput, "$thought", "$call", "$fileResult")), "Request contains an invalid argument. (invalid_request)"},
	{googleLoop, thoughtPage + " default", each(interact("", userInput, "$otherThought", "$call", "$result"), interact("", userInput, "$thought", "$otherCall", "$result")), "Request contains an invalid argument. (invalid_request)"},
	{google, "googleapis/js-genai#1735", interact("", userInput, `{"type":"thought","signature":"skip_thought_signature_validator"}`, userInput), "Request contains an invalid argument. (invalid_request)"},
	{googleLoop.each(func(t *target) { t.config.Name = "other" }), unsourced, interact("", userInput, "$foreign", "$output", userInput), "Request contains an invalid argument. (invalid_request)"},
	{google, googleTypes, interact(`"response_format":{"type":"text","name":"n"}`, userInput), "Unknown parameter: response_format.name (parameter_unknown)"},
	{google, googleTypes, interact(`"tools":[{"type":"x"}]`, userInput), "Unknown tool type at tools[0]: x (invalid_request)"},
	{google, googleTypes, interact(`"tools":[{"type":"function","name":"f","input_schema":{}}]`, userInput), "Unknown parameter: tools[0].input_schema (parameter_unknown)"},
	{google, googleTypes, interact(`"tools":[{"type":"function"}]`, userInput), "tools[0].name is required (invalid_request)"},
	{google, statePage, interact(`"previous_interaction_id":"v1_x"`, userInput), "previous_interaction_id and background cannot be used with store set to false. (invalid_request)"},
	{google, unsourced, interact(""), "input is required (invalid_request)"},
	{google, googleTypes, interact("", userInput, `{"type":"message"}`), "Unknown step type at input[1]: message (invalid_request)"},
	{google, googleTypes, interact("", userInput, `{"type":"model_output","content":[`+text+`],"role":"model"}`), "Unknown parameter: input[1].role (parameter_unknown)"},
	{google, googleTypes, interact("", userInput, `{"type":"thought"}`), "input[1].signature is required (invalid_request)"},
	{googleLoop, googleTypes, interact("", userInput, "$thought", "$textCall", "$result"), "input[2].arguments is an object (invalid_request)"},
	{google, unsourced, interact("", userInput, `{"type":"model_output","content":[]}`), "input[1].content is empty (invalid_request)"},
	{google, googleTypes, interact("", `{"type":"user_input","content":[{"type":"x"}]}`), "Unknown content type at input[0].content[0]: x (invalid_request)"},
	{google, googleTypes, interact("", `{"type":"user_input","content":[{"type":"text","text":"a","id":"x"}]}`), "Unknown parameter: input[0].content[0].id (parameter_unknown)"},
	{google, googleTypes, interact("", `{"type":"user_input","content":[{"type":"text"}]}`), "input[0].content[0].text is required (invalid_request)"},
	{google, googleTypes, interact("", `{"type":"user_input","content":[{"type":"image","data":"aGk="}]}`), "input[0].content[0] needs data with a mime_type, or a uri (invalid_request)"},
	{googleLoop, unsourced, interact("", userInput, "$thought", "$call", "$result", "$thought", "$call", "$result"), "Duplicate function call id $call.id (invalid_request)"},
	{googleLoop, unsourced, interact("", userInput, "$thought", "$call", "$result", "$result"), "No function call found for function result with call_id $call.id (invalid_request)"},
	{googleLoop, unsourced, interact("", userInput, "$thought", "$call", "$otherResult"), "The name of the function result with call_id $call.id is not that of its call. (invalid_request)"},
	{googleLoop, unsourced, interact("", userInput, "$thought", "$call", userInput), "No function result found for function call $call.id (invalid_request)"},
	{google, "https://ai.google.dev/gemini-api/docs/thought-signatures", interact("", userInput, `{"type":"function_call","id":"a","name":"look","arguments":{}}`, `{"type":"function_result","call_id":"a","name":"look","result":""}`), "Function call is missing a thought_signature in functionCall parts. Additional data, function call `default_api:look` (invalid_request)"},
	{googleLoop, unsourced, interact(lookTool, userInput, "$thought", "$output", "$call", "$result"), "kept 1 lost 0"},
	{google.after(severalSteps), unsourced, interact("", userInput, "$later", "$result"), "kept 1 lost 1"},
}

// firstWrite calls before ahead of the first byte of an answer.
type firstWrite struct {
	*httptest.ResponseRecorder
	before func()
}

func (w firstWrite) Write(b []byte) (int, error) {
	if w.Body.Len() == 0 {
		w.before()
	}
	return w.ResponseRecorder.Write(b)
}

// play sends a request to one target and checks the answer. It returns the rule that refused the request. The verdict
// must be recorded before the client can read the first byte.
func (to target) play(t *testing.T, request, want string) (refusing *rule, d wire.Dialect) {
	var last Request
	to.config.Observe = func(q Request) { last = q }
	v := New(to.config)
	fill := filler(nil)
	if to.setup != nil {
		fill = filler(to.setup(t, v))
	}
	request, want = fill(request), fill(want)
	n := len(v.Requests())
	w := firstWrite{httptest.NewRecorder(), func() { require.True(t, len(v.Requests()) == n || v.Last().Status != 0) }}
	serve(v, w, to.path, request, to.header...)
	body, refusal := w.Body.String(), errorText(w.Body.String())
	if want == "" || strings.HasPrefix(want, "kept ") {
		require.Equal(t, 200, w.Code, body)
		require.Contains(t, []string{"", fmt.Sprintf("kept %d lost %d", last.Returned, last.Missing)}, want)
		require.Empty(t, v.Rejections())
		to.validate(t, request, "", nil)
		return nil, d
	}
	status := http.StatusBadRequest
	if m := statusFirst.FindStringSubmatch(want); m != nil {
		status, _ = strconv.Atoi(m[1])
		want = want[len(m[0]):]
	}
	require.Equal(t, status, w.Code, body)
	e, got := gjson.Get(body, "error"), body
	if !strings.HasPrefix(want, "{") && !strings.HasPrefix(want, "[{") {
		got = strings.TrimSuffix(refusal+" ("+strings.TrimSpace(e.Get("code").String()+" "+e.Get("param").Str)+")", " ()")
	}
	require.Regexp(t, "^"+strings.ReplaceAll(regexp.QuoteMeta(want), "…", "(?s:.*)")+"$", got)
	if kind := e.Get("type"); kind.Exists() {
		types := map[int]string{401: "authentication_error", 404: "not_found_error"}
		if last.Endpoint == EndpointResponses {
			types[404] = "invalid_request_error"
		}
		require.Equal(t, cmp.Or(types[status], "invalid_request_error"), kind.Str)
	}
	require.Equal(t, gjson.Get(body, "type").Str == "error", strings.HasPrefix(gjson.Get(body, "request_id").Str, "req_"))
	if len(v.Requests()) > 0 {
		require.Equal(t, []any{status, refusal}, []any{v.Last().Status, v.Last().Rejection})
		require.Equal(t, v.Last(), v.Rejections()[len(v.Rejections())-1])
	}
	switch refusing = last.rule; {
	case refusing == nil && status == http.StatusNotFound:
		return &otherRules[1], d
	case refusing == nil:
		refusing = &otherRules[2]
	}
	to.validate(t, request, refusal, refusing)
	return refusing, last.Endpoint.dialect()
}

var statusFirst = regexp.MustCompile(`^(\d{3}) `)

// filler returns a function that replaces names in a text, the longest first.
func filler(pairs []string) func(string) string {
	texts := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		texts[pair[0]] = pair[1]
	}
	names := slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return len(b) - len(a) })
	return func(s string) string {
		for _, name := range names {
			s = strings.ReplaceAll(s, name, texts[name])
		}
		return s
	}
}

// validate compares a verdict with those of ValidateMessages and ValidateChat, which check only a request's structure.
func (to target) validate(t *testing.T, request, refusal string, refusing *rule) {
	check := ValidateMessages
	if to.config.Chat.ToolIDs == MistralIDs {
		check = ValidateChat
	} else if len(to.header) > 0 || to.config.Thinking.Bedrock || to.path != "/v1/messages" || to.config.Vendor != "" {
		return
	}
	structural := []rule{blocksRule, pairsRule, emptyRule, markersRule, placedRule, dialogRule, otherRules[2]}
	switch {
	case refusing == nil && gjson.Get(request, "model").Str == "m":
		require.NoError(t, check([]byte(request)))
	case refusing != nil && slices.ContainsFunc(structural, func(r rule) bool { return r.name == refusing.name }) &&
		!strings.HasPrefix(refusal, "Tool call id"):
		require.EqualError(t, check([]byte(request)), refusal)
	}
}

// owner names the owner of rules. OpenAI's chat completions have the rules of Chat.
func owner(v Vendor, d wire.Dialect) string {
	if d == wire.Chat && v == OpenAI {
		v = Chat
	}
	return fmt.Sprint(v, "/", d)
}

func TestRefusals(t *testing.T) {
	hit, played, total := map[string]bool{}, 0, 0
	for i, r := range refusals {
		for word := range strings.FieldsSeq(r.source) {
			_, valid := sourceLink(word)
			require.True(t, valid, "row %d: %q is no source", i, word)
		}
		for _, to := range r.at {
			for request := range strings.SplitSeq(r.request, "\n") {
				total++
				t.Run(fmt.Sprintf("%d %s%s %.60s", i, to.config.vendor(), to.path, r.answer), func(t *testing.T) {
					played++
					if refusing, d := to.play(t, request, r.answer); refusing != nil {
						hit[owner(to.config.vendor(), d)+" "+refusing.name], hit["all "+refusing.name] = true, true
					}
				})
			}
		}
	}
	if played < total { // -run selects some
		return
	}
	missing := func(who string, rules []rule) {
		for _, r := range rules {
			if !hit[who+" "+r.name] && !strings.HasPrefix(r.refuses, "nothing") {
				t.Errorf("no row of refusals is refused by the rule %q of %s: %s", r.name, who, r.refuses)
			}
		}
	}
	for d, vendors := range vendorRules {
		for v, rules := range vendors {
			missing(owner(v, d), rules)
		}
	}
	missing("all", otherRules)
}

// A mangled request is accepted or refused. It never crashes the vendor.
func TestMangledRequests(t *testing.T) {
	testtier.Slow(t)
	values, n := []any{nil, true, 0.5, "", "x", []any{}, []any{nil}, map[string]any{}}, 0
	for _, r := range refusals {
		v := New(r.at[0].config)
		for request := range strings.SplitSeq(r.request, "\n") {
			var root any
			if json.Unmarshal([]byte(request), &root) != nil {
				continue // it has a $name
			}
			var visit func(value any, set func(any))
			visit = func(value any, set func(any)) {
				n++
				set(values[n%len(values)])
				body, err := json.Marshal(root)
				require.NoError(t, err)
				w := post(t, v, r.at[0].path, string(body), r.at[0].header...)
				require.Contains(t, []int{200, 400, 401, 404, 422}, w.Code, string(body))
				set(value)
				switch value := value.(type) {
				case map[string]any:
					for _, name := range slices.Sorted(maps.Keys(value)) {
						visit(value[name], func(other any) { value[name] = other })
					}
				case []any:
					for i := range value {
						visit(value[i], func(other any) { value[i] = other })
					}
				}
			}
			visit(root, func(other any) { root = other })
		}
	}
}
