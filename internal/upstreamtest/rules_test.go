package upstreamtest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/scripts/outsidedata"
)

// asking is a request of the messages dialect to a model with these members, in
// JSON without braces, beside one question.
func asking(model, members string) string {
	if members != "" {
		members = "," + members
	}
	if !strings.Contains(members, `"max_tokens"`) {
		members += `,"max_tokens":9000`
	}
	if !strings.Contains(members, `"messages"`) {
		members += `,"messages":[` + ask + `]`
	}
	return fmt.Sprintf(`{"model":%q%s}`, model, members)
}

const (
	opus48   = "claude-opus-4-8"
	opus46   = "claude-opus-4-6"
	sonnet45 = "claude-sonnet-4-5"
	opus5    = "claude-opus-5"
	fable    = "claude-fable-5"

	adaptive = `"thinking":{"type":"adaptive"}`
	disabled = `"thinking":{"type":"disabled"}`
	enabled  = `"thinking":{"type":"enabled","budget_tokens":2000}`
	cleared  = `"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`

	contextBeta = "context-management-2025-06-27"
	bindingBeta = "thinking-binding-controls-2026-08-01"
	mustStart   = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When " +
		"`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set " +
		"of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid " +
		"this requirement, disable `thinking`. Please consult our documentation at " +
		"https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
	notPossible = `"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when ` +
		`not specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.`
	adaptOnly = `"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and ` +
		`"output_config.effort" to control thinking behavior.`
	tooWarm = "`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation at " +
		"https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking"
	trailing = "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position " +
		"cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request."
)

// loop is a conversation in the middle of a round of tools; the answer has these
// blocks before its call.
func loop(blocks ...string) string {
	return `"messages":[` + strings.Join([]string{ask, uses(append(blocks, use("a"))...), results(gives("a"))}, ",") + `]`
}

func turns(list ...string) string { return `"messages":[` + strings.Join(list, ",") + `]` }

type ruleCase struct {
	config upstreamtest.Config
	body   string
	beta   string
	want   string // empty: it is accepted
}

func (c ruleCase) check(t *testing.T, path string) {
	v := upstreamtest.New(c.config)
	header := []string{}
	if c.beta != "" {
		header = []string{"Anthropic-Beta", c.beta}
	}
	w := post(t, v, path, c.body, header...)
	got := message(w.Body.String())
	require.Equal(t, c.want, got, w.Body)
	if c.want == "" {
		require.Equal(t, 200, w.Code, w.Body)
		require.Empty(t, v.Rejections())
		return
	}
	require.Equal(t, 400, w.Code)
	require.Equal(t, c.want, v.Rejections()[0].Rejection)
	require.Equal(t, "invalid_request_error", gjson.Get(w.Body.String(), "error.type").String())
	if strings.Contains(path, "messages") {
		require.Regexp(t, "^req_", gjson.Get(w.Body.String(), "request_id").String())
	}
}

func TestAnthropicRules(t *testing.T) {
	rules := func(r upstreamtest.ThinkingRules) upstreamtest.Config { return upstreamtest.Config{Thinking: r} }
	plain := rules(upstreamtest.ThinkingRules{})
	unsigned := rules(upstreamtest.ThinkingRules{SkipSignatures: true})
	bedrock := rules(upstreamtest.ThinkingRules{Bedrock: true})
	const extra = ": Extra inputs are not permitted"
	for name, c := range map[string]ruleCase{
		"context management with its beta": {plain, asking(opus48, adaptive+","+cleared), contextBeta, ""},
		"context management without it": {plain, asking(opus48, adaptive+","+cleared), "", "context_management" +
			extra},
		"context management on a platform": {rules(upstreamtest.ThinkingRules{NoContextManagement: true}),
			asking(opus48, adaptive+","+cleared), contextBeta, "context_management" + extra},
		"servers of tools without their beta": {plain, asking(opus48, `"mcp_servers":[]`), "", "mcp_servers" + extra},
		"an unknown member":                   {plain, asking(opus48, `"_gateway":{}`), "", "_gateway" + extra},
		"metadata of the user":                {plain, asking(opus48, `"metadata":{"user_id":"u"}`), "", ""},
		"metadata of a gateway": {plain, asking(opus48, `"metadata":{"conversation_id":"u"}`), "",
			"metadata.conversation_id" + extra},
		"adaptive with a budget": {plain, asking(opus48, `"thinking":{"type":"adaptive","budget_tokens":2000}`),
			"", "thinking.adaptive.budget_tokens" + extra},
		"disabled with a budget": {plain, asking(opus48, `"thinking":{"type":"disabled","budget_tokens":2000}`),
			"", "thinking.disabled.budget_tokens" + extra},
		"binding without its beta": {plain, asking(opus48, `"thinking":{"type":"adaptive","block_binding":{}}`),
			"", "thinking.adaptive.block_binding" + extra},
		"binding with it": {plain, asking(opus48, `"thinking":{"type":"adaptive","block_binding":{}}`),
			bindingBeta, ""},

		"unknown betas": {plain, asking(opus48, ""), "effort-2025-11-24, x-1 ,y-2",
			"Unexpected value(s) `x-1`, `y-2` for the `anthropic-beta` header. Please consult our documentation at " +
				"docs.claude.com or try again without the header."},
		"unknown betas on Bedrock": {bedrock, asking(opus48, ""), "x-1", "invalid beta flag"},
		"betas of a platform": {rules(upstreamtest.ThinkingRules{Betas: []string{}}), asking(opus48, ""),
			"effort-2025-11-24",
			"Unexpected value(s) `effort-2025-11-24` for the `anthropic-beta` header. Please consult our documentation at " +
				"docs.claude.com or try again without the header."},

		"enabled on 4.5": {plain, asking(sonnet45, enabled), "", ""},
		"adaptive on 4.5": {plain, asking(sonnet45, adaptive), "",
			"adaptive thinking is not supported on this model"},
		"adaptive on 4.5 of Bedrock": {bedrock, asking(sonnet45, adaptive), "",
			"thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'"},
		"disabled on 4.5":             {plain, asking(sonnet45, disabled), "", ""},
		"enabled on 4.6":              {plain, asking(opus46, enabled), "", ""},
		"adaptive on 4.6":             {plain, asking(opus46, adaptive), "", ""},
		"enabled on 4.8":              {plain, asking(opus48, enabled), "", adaptOnly},
		"disabled on 4.8":             {plain, asking(opus48, disabled), "", ""},
		"enabled on 5":                {plain, asking(opus5, enabled), "", adaptOnly},
		"disabled on 5":               {plain, asking(opus5, disabled), "", ""},
		"enabled where always on":     {plain, asking(fable, enabled), "", adaptOnly},
		"disabled where always on":    {plain, asking(fable, disabled), "", notPossible},
		"adaptive where always on":    {plain, asking(fable, adaptive), "", ""},
		"disabled on Opus 5.5":        {plain, asking("claude-opus-5-5", disabled), "", notPossible},
		"disabled on a preview":       {plain, asking("claude-mythos-preview", disabled), "", notPossible},
		"enabled on a preview":        {plain, asking("claude-mythos-preview", enabled), "", ""},
		"between tools on Sonnet 5.5": {plain, asking("claude-sonnet-5-5", `"thinking":{"type":"between_tools"}`), "", ""},
		"between tools on 4.8": {plain, asking(opus48, `"thinking":{"type":"between_tools"}`), "",
			"thinking: Input tag 'between_tools' found using 'type' does not match any of the expected tags: 'adaptive', " +
				"'disabled'"},
		"thinking that is a bool": {plain, asking(opus48, `"thinking":true`), "",
			"thinking: Input should be a valid dictionary or object to extract fields from"},
		"a generation by hand": {rules(upstreamtest.ThinkingRules{Generation: upstreamtest.Adaptive}),
			asking("m", enabled), "", adaptOnly},

		"much effort, disabled, on 5": {plain, asking(opus5, disabled+`,"output_config":{"effort":"xhigh"}`), "",
			"output_config.effort 'xhigh' is not supported when thinking is disabled on this model. Use effort 'high' or " +
				"below, or enable thinking."},
		"some effort, disabled, on 5":   {plain, asking(opus5, disabled+`,"output_config":{"effort":"high"}`), "", ""},
		"much effort, thinking, on 5":   {plain, asking(opus5, `"output_config":{"effort":"max"}`), "", ""},
		"much effort, disabled, on 4.8": {plain, asking(opus48, disabled+`,"output_config":{"effort":"max"}`), "", ""},
		"no budget": {plain, asking(sonnet45, `"thinking":{"type":"enabled"}`), "",
			"thinking.enabled.budget_tokens: Field required"},
		"a budget that is text": {plain, asking(sonnet45, `"thinking":{"type":"enabled","budget_tokens":"2000"}`),
			"", "thinking.enabled.budget_tokens: Input should be a valid integer"},
		"a budget of 1023": {plain, asking(sonnet45, `"thinking":{"type":"enabled","budget_tokens":1023}`), "",
			"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"},
		"a budget of 1024": {plain, asking(sonnet45, `"thinking":{"type":"enabled","budget_tokens":1024}`), "",
			""},
		"a budget of all tokens": {plain, asking(sonnet45, `"max_tokens":2000,`+enabled), "",
			"`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at " +
				"https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size"},
		"a budget of all tokens but one": {plain, asking(sonnet45, `"max_tokens":2001,`+enabled), "", ""},
		"a budget beyond, interleaved": {plain, asking(sonnet45, `"max_tokens":100,`+enabled),
			"interleaved-thinking-2025-05-14", ""},
		"temperature while thinking":   {plain, asking(sonnet45, `"temperature":0.5,`+enabled), "", tooWarm},
		"temperature 1 while thinking": {plain, asking(sonnet45, `"temperature":1.0,`+enabled), "", ""},
		"temperature without thinking": {plain, asking(sonnet45, `"temperature":0.5`), "", ""},
		"temperature on 4.8, off": {plain, asking(opus48, `"temperature":0.5`), "",
			"`temperature` may only be set to 1 on this model."},
		"a forced tool while thinking": {plain, asking(opus48, adaptive+`,"tool_choice":{"type":"any"},`+weather), "",
			"Thinking may not be enabled when tool_choice forces tool use."},
		"one forced tool while thinking": {
			plain, asking(sonnet45, enabled+`,"tool_choice":{"type":"tool","name":"weather"},`+weather), "",
			"Thinking may not be enabled when tool_choice forces tool use.",
		},
		"a forced tool on 5": {plain, asking(opus5, `"tool_choice":{"type":"any"},`+weather), "",
			"Thinking may not be enabled when tool_choice forces tool use."},
		"a forced tool without thinking": {plain, asking(opus48, `"tool_choice":{"type":"any"},`+weather), "", ""},
		"no forced tool while thinking": {plain, asking(opus48, adaptive+`,"tool_choice":{"type":"auto"},`+weather), "",
			""},
		"clearing while off": {plain, asking(opus48, disabled+","+cleared), contextBeta,
			"`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive"},
		"clearing with thinking absent": {plain, asking(opus48, cleared), contextBeta,
			"`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive"},
		"clearing while on by default": {plain, asking(opus5, cleared), contextBeta, ""},
		"thinking without signature": {unsigned, asking(opus48, adaptive+","+loop(`{"type":"thinking","thinking":"t"}`)),
			"", "messages.1.content.0.thinking.signature: Field required"},
		"thinking without thinking": {
			unsigned, asking(opus48, adaptive+","+loop(`{"type":"thinking","signature":"s"}`)), "",
			"messages.1.content.0.thinking.thinking: Field required",
		},
		"thinking with cache control": {
			unsigned, asking(opus48, adaptive+","+loop(`{"type":"thinking","thinking":"t","signature":"s","cache_control":{}}`)),
			"", "messages.1.content.0.thinking.cache_control" + extra,
		},
		"redacted without data": {unsigned, asking(opus48, adaptive+","+loop(`{"type":"redacted_thinking"}`)), "",
			"messages.1.content.0.redacted_thinking.data: Field required"},
		"a stray signature": {
			unsigned, asking(opus48, turns(ask, uses(`{"type":"tool_use","id":"a","name":"n","input":{},"signature":"s"}`),
				results(gives("a")))), "", "messages.1.content.0.tool_use.signature" + extra,
		},
		"an empty signature on Bedrock": {
			bedrock, asking(opus48, adaptive+","+loop(`{"type":"thinking","thinking":"t","signature":""}`)), "",
			"The model returned the following errors: messages.1.content.0.thinking.signature: Field required",
		},
		"a use without result": {plain, asking(opus48, turns(ask, uses(use("a"), use("b")), ask)), "",
			"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b. Each `tool_use` " +
				"block must have a corresponding `tool_result` block in the next message."},
		"a result without use": {plain, asking(opus48, turns(ask, reply, results(gives("a")))), "",
			"messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must " +
				"have a corresponding `tool_use` block in the previous message."},
		"nothing said": {plain, asking(opus48, turns(ask, says("assistant", `[]`), ask)), "",
			"messages.1: all messages must have non-empty content except for the optional final assistant message"},
		"an empty text": {plain, asking(opus48, turns(says("user", `[{"type":"text","text":""}]`))), "",
			"messages: text content blocks must be non-empty"},
		"five markers": {
			plain, asking(opus48, turns(says("user", `[`+strings.Repeat(cached+",", 4)+cached+`]`))), "",
			"A maximum of 4 blocks with cache_control may be provided. Found 5.",
		},
		"four markers": {
			plain, asking(opus48, turns(says("user", `[`+strings.Repeat(cached+",", 3)+cached+`]`))), "", "",
		},
		"too long": {rules(upstreamtest.ThinkingRules{Window: 5}),
			asking(opus48, turns(says("user", `"0123456789012345678901234567890"`))), "",
			"prompt is too long: 10 tokens > 5 maximum"},
		"thinking behind text": {
			unsigned, asking(sonnet45, enabled+","+turns(ask, uses(text, thought, text), ask)), "",
			"messages.1.content.0: If an assistant message contains any thinking blocks, the first block must be `thinking` " +
				"or `redacted_thinking`. Found `text`.",
		},
		"thinking behind text, adaptive": {unsigned, asking(opus48, adaptive+","+turns(ask, uses(text, thought, text), ask)),
			"", ""},
		"thinking behind text, both": {unsigned, asking(opus46, adaptive+","+turns(ask, uses(text, thought, text), ask)),
			"", ""},
		"thinking at the end": {unsigned, asking(opus48, adaptive+","+turns(ask, uses(text, thought))), "",
			"messages.1: The final block in an assistant message cannot be `thinking`."},
		"off: thinking in a trailing one": {unsigned, asking(opus48, turns(ask, uses(thought, text))), "", trailing},
		"off: thinking in an earlier one": {unsigned, asking(opus48, turns(ask, uses(thought, text), ask)), "", ""},
		"strictly off": {rules(upstreamtest.ThinkingRules{SkipSignatures: true, StrictOff: true}),
			asking(opus48, turns(ask, uses(thought, text), ask)), "",
			"messages.1.content.0: When thinking is disabled, no message can contain `thinking`. To use thinking blocks, " +
				"enable `thinking` in your request."},
		"manual: a turn begins without": {unsigned, asking(sonnet45, enabled+","+loop()), "", mustStart},
		"manual: with text": {unsigned, asking(sonnet45, enabled+","+loop(text)), "",
			strings.Replace(mustStart, "found `tool_use`", "found `text`", 1)},
		"manual: a turn begins with": {unsigned, asking(sonnet45, enabled+","+loop(thought)), "", ""},
		"manual: with redacted":      {unsigned, asking(sonnet45, enabled+","+loop(hidden)), "", ""},
		"manual: second call without": {
			unsigned, asking(sonnet45, enabled+","+turns(ask, uses(thought, use("a")), results(gives("a")), uses(use("b")),
				results(gives("b")))), "", "",
		},
		"manual: an older turn without": {
			unsigned, asking(sonnet45, enabled+","+turns(ask, uses(use("a")), results(gives("a")), reply, ask)), "", "",
		},
		"manual: text behind the result": {
			unsigned, asking(sonnet45, enabled+","+turns(ask, uses(use("a")), results(gives("a"), text))), "", mustStart,
		},
		"adaptive: a turn begins without": {unsigned, asking(opus48, adaptive+","+loop()), "", ""},
		"adaptive on 4.6: without":        {unsigned, asking(opus46, adaptive+","+loop()), "", ""},
		"off: a turn begins without":      {unsigned, asking(sonnet45, disabled+","+loop()), "", ""},
		"a foreign signature": {plain, asking(opus48, adaptive+","+loop(thought)), "",
			"messages.1.content.0: Invalid `signature` in `thinking` block"},
		"a foreign signature, older": {plain, asking(opus48, turns(ask, uses(thought, text), ask)), "",
			"messages.1.content.0: Invalid `signature` in `thinking` block"},
		"a foreign signature on Bedrock": {bedrock, asking(opus48, adaptive+","+loop(thought)), "",
			"The model returned the following errors: messages.1.content.0: Invalid signature in thinking block"},
		"foreign data": {plain, asking(opus48, adaptive+","+loop(hidden)), "",
			"Invalid `data` in `redacted_thinking` block"},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, "/v1/messages") })
	}
	v := upstreamtest.New(plain)
	w := post(t, v, "/v1/messages", asking(opus48, ""), "Anthropic-Version", "")
	require.Equal(t, "anthropic-version: header is required", message(w.Body.String()))
}

// A request that breaks two rules is refused for the one that stands first.
func TestOrderOfRules(t *testing.T) {
	broken := []string{`"x":1`, enabled, `"temperature":0.5`, turns(ask, uses(thought, use("a")), ask)}
	for i, want := range []string{"x: Extra inputs are not permitted", adaptOnly,
		"`temperature` may only be set to 1 on this model.", "messages.1: `tool_use` ids were"} {
		w := post(t, upstreamtest.New(upstreamtest.Config{}), "/v1/messages", asking(opus48, strings.Join(broken[i:], ",")))
		require.Contains(t, message(w.Body.String()), want)
	}
}

// The same rules hold where tokens are counted, but for max_tokens.
func TestCountsAreChecked(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	count := func(members string) string {
		return post(t, v, "/v1/messages/count_tokens", `{"model":"`+sonnet45+`",`+members+`}`).Body.String()
	}
	require.Positive(t, gjson.Get(count(enabled+","+turns(ask)), "input_tokens").Int())
	require.Equal(t, "adaptive thinking is not supported on this model", message(count(adaptive+","+turns(ask))))
	require.Equal(t, "Invalid `data` in `redacted_thinking` block", message(count(turns(ask, uses(hidden, text), ask))))
}

func TestOldThinkingCountsOnlyWhereItIsKept(t *testing.T) {
	long := `{"type":"thinking","thinking":"` + strings.Repeat("t", 4000) + `","signature":"s"}`
	tokens := func(keep bool, list ...string) int64 {
		v := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{KeepAll: keep, SkipSignatures: true}})
		return gjson.Get(post(t, v, "/v1/messages", asking(opus48, adaptive+","+turns(list...))).Body.String(),
			"usage.input_tokens").Int()
	}
	older, latest := []string{ask, uses(long, text), ask}, []string{ask, uses(long, use("a")), results(gives("a"))}
	require.Greater(t, tokens(true, older...), int64(1000))
	require.Less(t, tokens(false, older...), int64(1000))
	require.Greater(t, tokens(false, latest...), int64(1000))
}

func TestKimiRules(t *testing.T) {
	k := upstreamtest.Config{Vendor: upstreamtest.Kimi}
	code := upstreamtest.Config{Vendor: upstreamtest.Kimi, Thinking: upstreamtest.ThinkingRules{OnlyEnabled: true}}
	const missing = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"
	const only = "invalid thinking: only type=enabled is allowed for this model"
	again := func(blocks ...string) string {
		a := uses(append(blocks, use("functions.calc:0"))...)
		return turns(ask, a, results(gives("functions.calc:0")), a, results(gives("functions.calc:0")))
	}
	for name, c := range map[string]ruleCase{
		"an unknown member":     {k, asking("k", `"x":1,"context_management":{}`), "", ""},
		"an unknown beta":       {k, asking("k", ""), "x-1", ""},
		"reasoning is missing":  {k, asking("k", loop()), "", missing},
		"reasoning is not text": {k, asking("k", loop(text)), "", missing},
		"reasoning is there":    {k, asking("k", loop(thought)), "", ""},
		"reasoning is empty":    {k, asking("kimi-k2.6", loop(bare)), "", missing},
		"empty, and taken":      {k, asking("kimi-k2-thinking", loop(bare)), "", ""},
		"reasoning is a space":  {k, asking("kimi-k2.6", loop(space)), "", ""},
		"missing in an older turn": {k, asking("k", turns(ask, uses(use("a")), results(gives("a")), reply, ask)), "",
			missing},
		"missing, but no call":  {k, asking("k", turns(ask, reply, ask)), "", ""},
		"missing, but disabled": {k, asking("k", disabled+","+loop()), "", ""},
		"ids that recur":        {k, asking("k", again(thought)), "", ""},
		"an id twice in one": {k, asking("k", turns(ask, uses(thought, use("a"), use("a")), results(gives("a")))), "",
			"messages.1.content.2: `tool_use` ids must be unique"},
		"thinking that is a bool": {k, asking("k", `"thinking":true`), "",
			"the thinking field in the request (expected type object) is illegal, and bool is not acceptable"},
		"thinking that is text": {k, asking("k", `"thinking":"on"`), "",
			"the thinking field in the request (expected type object) is illegal, and string is not acceptable"},
		"adaptive": {
			k, asking("k", adaptive), "", "invalid thinking: only type=enabled or type=disabled is allowed for this model",
		},
		"enabled without budget":   {k, asking("k", `"thinking":{"type":"enabled","keep":"all"}`), "", ""},
		"disabled where always on": {code, asking("k", disabled), "", only},
		"adaptive where always on": {code, asking("k", adaptive), "", only},
		"enabled where always on":  {code, asking("k", enabled), "", ""},
		"a use without result": {k, asking("k", turns(ask, uses(thought, use("a")), ask)), "",
			"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. Each `tool_use` block " +
				"must have a corresponding `tool_result` block in the next message."},
		"thinking, forced":           {k, asking("k", `"tool_choice":{"type":"any"},`+weather), "", ""},
		"thinking, with temperature": {k, asking("k", `"temperature":0.3`), "", ""},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, "/v1/messages") })
	}
	answer := func(reasoning string) string {
		return chat(ask, `{"role":"assistant"`+reasoning+`,"tool_calls":[`+call("functions.calc:0")+`]}`,
			result("functions.calc:0"))
	}
	for name, c := range map[string]ruleCase{
		"reasoning is missing": {k, answer(""), "", missing},
		"reasoning is null":    {k, answer(`,"reasoning_content":null`), "", missing},
		"reasoning is empty":   {k, answer(`,"reasoning_content":""`), "", missing},
		"empty, and taken": {k, strings.Replace(answer(`,"reasoning_content":""`), `"model":"m"`,
			`"model":"kimi-k2-thinking"`, 1), "", ""},
		"reasoning is a space": {k, answer(`,"reasoning_content":" "`), "", ""},
		"reasoning is there":   {k, answer(`,"reasoning_content":"r"`), "", ""},
		"disabled":             {k, strings.Replace(answer(""), "{", `{"thinking":{"type":"disabled"},`, 1), "", ""},
		"always on":            {code, strings.Replace(answer(""), "{", `{"thinking":{"type":"disabled"},`, 1), "", only},
		"users in a row":       {k, chat(ask, ask), "", ""},
	} {
		t.Run("chat: "+name, func(t *testing.T) { c.check(t, "/v1/chat/completions") })
	}
}

func TestDeepSeekRules(t *testing.T) {
	d := upstreamtest.Config{Vendor: upstreamtest.DeepSeek}
	const missing = "The `content[].thinking` in the thinking mode must be passed back to the API."
	const both = "thinking options type cannot be disabled when reasoning_effort is set"
	for name, c := range map[string]ruleCase{
		"adaptive": {d, asking("d", adaptive), "", ""},
		"auto": {d, asking("d", `"thinking":{"type":"auto"}`), "",
			"Failed to deserialize the JSON body into the target type: thinking.type: unknown variant `auto`, expected one " +
				"of `adaptive`, `enabled`, `disabled`"},
		"disabled":              {d, asking("d", disabled), "", ""},
		"disabled with effort":  {d, asking("d", disabled+`,"output_config":{"effort":"high"}`), "", both},
		"reasoning is missing":  {d, asking("d", loop()), "", missing},
		"reasoning is there":    {d, asking("d", loop(`{"type":"thinking","thinking":"t"}`)), "", ""},
		"reasoning of somebody": {d, asking("d", loop(thought)), "", ""},
		"reasoning is empty":    {d, asking("d", loop(bare)), "", ""},
		"empty, V4 Pro":         {d, asking("deepseek-v4-pro", loop(bare)), "", missing},
		"a space, V4 Pro":       {d, asking("deepseek-v4-pro", loop(space)), "", ""},
		"missing, no tools":     {d, asking("d", turns(ask, reply, ask)), "", ""},
		"missing beside tools": {d, asking("d", turns(ask, uses(bare, use("a")), results(gives("a")), reply, ask)),
			"", missing},
		"missing, but disabled": {d, asking("d", disabled+","+loop()), "", ""},
		"redacted": {
			d, asking("d", loop(hidden)), "",
			"Failed to deserialize the JSON body into the target type: messages.1.content.0: unknown variant " +
				"`redacted_thinking`",
		},
		"an image": {d, asking("d", turns(says("user", `[{"type":"image","source":{}}]`))), "",
			"Failed to deserialize the JSON body into the target type: messages.0.content.0: unknown variant `image`"},
		"what it ignores": {d, asking("d", `"top_k":3,"service_tier":"x"`), "x-1", ""},
		"a message without any blocks": {d, asking("d", turns(ask, says("assistant", "[]"), ask)), "",
			"messages.1: all messages must have non-empty content except for the optional final assistant message"},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, "/v1/messages") })
	}
	answer := func(reasoning string) string {
		return chat(ask, `{"role":"assistant"`+reasoning+`,"tool_calls":[`+call("a")+`]}`, result("a"))
	}
	for name, c := range map[string]ruleCase{
		"reasoning is missing": {
			d, answer(""), "", "The `reasoning_content` in the thinking mode must be passed back to the API.",
		},
		"reasoning is there": {d, answer(`,"reasoning_content":"r"`), "", ""},
		"disabled with effort": {
			d, strings.Replace(answer(""), "{", `{"thinking":{"type":"disabled"},"reasoning_effort":"low",`, 1), "", both,
		},
	} {
		t.Run("chat: "+name, func(t *testing.T) { c.check(t, "/v1/chat/completions") })
	}
}

func TestChatRules(t *testing.T) {
	with := func(r upstreamtest.ChatRules) upstreamtest.Config {
		return upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: r}
	}
	openai, mistral := with(upstreamtest.ChatRules{}), with(upstreamtest.ChatRules{ToolIDs: upstreamtest.MistralIDs})
	round := func(id string) string { return chat(ask, calls(call(id)), result(id)) }
	reasoned := chat(ask, `{"role":"assistant","content":"a","reasoning_content":""}`, ask)
	for name, c := range map[string]ruleCase{
		"an id of 40": {openai, round(strings.Repeat("x", 40)), "", ""},
		"an id of 41": {openai, round(strings.Repeat("x", 41)), "",
			"Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a " +
				"string with length 41 instead."},
		"an id of 41, anywhere": {with(upstreamtest.ChatRules{ToolIDs: upstreamtest.AnyIDs}),
			round(strings.Repeat("x", 41)), "", ""},
		"Mistral: 9 letters": {mistral, round("abcDEF123"), "", ""},
		"Mistral: 10 letters": {
			mistral, round("abcDEF1234"), "", "Tool call id was abcDEF1234 but must be a-z, A-Z, 0-9, with a length of 9.",
		},
		"Mistral: a dash": {
			mistral, round("abcDEF-12"), "", "Tool call id was abcDEF-12 but must be a-z, A-Z, 0-9, with a length of 9.",
		},
		"Mistral: users in a row": {mistral, chat(ask, ask), "", "Unexpected role 'user' after role 'user'"},
		"users in a row":          {openai, chat(ask, ask), "", ""},
		"an id again": {openai, chat(ask, calls(call("a")), result("a"), calls(call("a")), result("a")), "",
			"Invalid 'messages[3].tool_calls[0].id': duplicate tool call id a"},
		"no result": {openai, chat(ask, calls(call("a")), ask), "",
			"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The " +
				"following tool_call_ids did not have response messages: a"},
		"no call": {openai, chat(ask, reply, result("a")), "",
			"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls' " +
				"(messages[2], id a)."},
		"an unknown argument": {with(upstreamtest.ChatRules{KnownArguments: true}),
			strings.Replace(chat(ask), "{", `{"thinking":{},`, 1), "", "Unrecognized request argument supplied: thinking"},
		"an argument for others": {openai, strings.Replace(chat(ask), "{", `{"thinking":{},`, 1), "", ""},
		"reasoning, ignored":     {openai, reasoned, "", ""},
		"reasoning, Groq": {with(upstreamtest.ChatRules{Replay: upstreamtest.ReplayGroq}), reasoned, "",
			"'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property " +
				"'reasoning_content' is unsupported)]"},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, "/v1/chat/completions") })
	}
	w := post(t, upstreamtest.New(with(upstreamtest.ChatRules{Replay: upstreamtest.ReplayMistral})),
		"/v1/chat/completions", reasoned)
	require.Equal(t, 422, w.Code)
	require.JSONEq(t,
		`{"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra `+
			`inputs are not permitted","input":""}]}`, w.Body.String())
	w = post(t, upstreamtest.New(with(upstreamtest.ChatRules{Replay: upstreamtest.ReplayCerebras})),
		"/v1/chat/completions", reasoned)
	require.Equal(t, 400, w.Code)
	require.Contains(t, gjson.Get(w.Body.String(), "message").String(), "property 'reasoning_content' is unsupported")
}

func TestThoughtSignatures(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{
		ThoughtSignatures: true,
	}})
	v.Queue(upstreamtest.Reply(upstreamtest.Use("f", `{"x":1}`), upstreamtest.Use("g", `{}`)))
	body := post(t, v, "/v1/chat/completions", chat(ask)).Body.String()
	answer := gjson.Get(body, "choices.0.message").Raw
	require.NotEmpty(t, gjson.Get(answer, "tool_calls.0.extra_content.google.thought_signature").String(), answer)
	require.False(t, gjson.Get(answer, "tool_calls.1.extra_content").Exists(), "only the first call of a step")
	given := result(gjson.Get(answer, "tool_calls.0.id").String()) + "," +
		result(gjson.Get(answer, "tool_calls.1.id").String())
	require.Equal(t, 200, post(t, v, "/v1/chat/completions", chat(ask, answer, given)).Code)

	signature := gjson.Get(answer, "tool_calls.0.extra_content").Raw
	bare := strings.Replace(answer, `,"extra_content":`+signature, "", 1)
	for name, c := range map[string]struct{ answer, want string }{
		"missing": {
			bare,
			"Function call is missing a thought_signature in functionCall parts. This is required for tools to work " +
				"correctly, and missing thought_signature may lead to degraded model performance. Additional data, function " +
				"call `default_api:f` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures " +
				"for more details.",
		},
		"altered": {strings.Replace(answer, `thought_signature":"E`, `thought_signature":"F`, 1),
			"Corrupted thought signature."},
		"no code": {strings.Replace(answer, signature, `{"google":{"thought_signature":"!"}}`, 1),
			`Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding failed for "!"`},
		"sentinel": {strings.Replace(answer, signature, `{"google":{"thought_signature":"skip_thought_signature_validator"}}`,
			1), ""},
	} {
		w := post(t, v, "/v1/chat/completions", chat(ask, c.answer, given))
		require.Equal(t, c.want, gjson.Get(w.Body.String(), "0.error.message").String(), name)
	}
	require.Equal(t, 200, post(t, v, "/v1/chat/completions", chat(ask, bare, given, reply, ask)).Code,
		"older steps may lack it")
}

// Requests of a real coding agent. Their signatures were made by another project's
// stand-in for the vendor: with the checks of signatures off they are all taken but for
// the one that was recorded because of another rule, with them on none that holds
// thinking is.
func TestRequestsOfACodingAgentOutsideData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	loose := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{SkipSignatures: true}})
	strict := upstreamtest.New(upstreamtest.Config{})
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var recorded struct {
				URL     string            `json:"url"`
				Headers map[string]string `json:"headers"`
				Body    json.RawMessage   `json:"body"`
			}
			require.NoError(t, json.Unmarshal(raw, &recorded))
			var header []string
			for name, value := range recorded.Headers {
				header = append(header, name, value)
			}
			w := post(t, loose, recorded.URL, string(recorded.Body), header...)
			if strings.Contains(file, "last-assistant-without-thinking-400") {
				require.Contains(t, message(w.Body.String()),
					"messages.9.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is "+
						"enabled, a final `assistant` message must start with a thinking block")
			} else {
				require.Equal(t, 200, w.Code, w.Body)
				require.Contains(t, w.Body.String(), "event: message_stop")
			}
			got := message(post(t, strict, recorded.URL, string(recorded.Body), header...).Body.String())
			switch body := string(recorded.Body); {
			case strings.Contains(file, "last-assistant-without-thinking-400"):
				require.Contains(t, got, "must start with a thinking block")
			case strings.Contains(body, `"redacted_thinking"`):
				require.Equal(t, "Invalid `data` in `redacted_thinking` block", got)
			case strings.Contains(body, `"signature"`):
				require.Regexp(t, "^messages.[12].content.0: Invalid `signature` in `thinking` block$", got)
			default:
				require.Empty(t, got)
			}
		})
	}
}
