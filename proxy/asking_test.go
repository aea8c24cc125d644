package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// Fault: behind an address of its own, and asked for a model of another name, a vendor
// refuses the way in which the client asks for thinking, each time.
func TestThinkingIsAskedForInTheWayOfAVendorThatNobodyKnows(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, fake := range map[string]upstreamtest.Config{
		"kimi":                  {Vendor: upstreamtest.Kimi},
		"kimi that only thinks": {Vendor: upstreamtest.Kimi, Thinking: upstreamtest.ThinkingRules{OnlyEnabled: true}},
		"glm":                   {Vendor: upstreamtest.GLM},
		"deepseek":              {Vendor: upstreamtest.DeepSeek},
		"bedrock": {Thinking: upstreamtest.ThinkingRules{Bedrock: true, Generation: upstreamtest.Manual},
			Name: "anthropic"},
	} {
		for _, model := range []string{"my-model", "claude-opus-4-8", "claude-sonnet-4-5", "claude-opus-4-6"} {
			for _, asked := range []string{`{"type":"adaptive"}`, `{"type":"enabled","budget_tokens":2000}`,
				`{"type":"disabled"}`} {
				t.Run(fmt.Sprint(name, ", ", model, ", ", asked), func(t *testing.T) {
					v := upstreamtest.New(fake)
					w, g := at(t, v, "b", "http://relay.example", proxy.BackendConfig{Kind: proxy.KindAnthropic})
					c := g.messages(model)
					c.within("c1")
					c.thinking, c.maxTokens = asked, 9000
					for _, turn := range []string{"one", "two", "three"} {
						toolTurn(v, turn)
						require.Equal(t, turn+" is done.", c.say(turn))
					}
					require.LessOrEqual(t, len(v.Rejections()), 2, "one for the way, one for the reasoning that it wants back")
					require.LessOrEqual(t, w.log.count("[parameter_retry]"), 1)
					sent := gjson.GetBytes(v.Last().Body, "thinking.type").Str
					if asked == `{"type":"disabled"}` {
						require.NotContains(t, []string{"enabled", "adaptive"}, sent)
						return
					}
					require.Contains(t, []string{"enabled", "adaptive"}, sent)
					require.Contains(t, string(v.Last().Body), "three thinks before")
				})
			}
		}
	}
}

// What vendors say of the way in which thinking is asked for: the request goes once more
// as the error has it, the model is remembered to want it so, and what the client asked
// for stays.
func TestRefusedWaysToAskForThinking(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const adaptive, enabled, disabled = `"thinking":{"type":"adaptive"}`,
		`"thinking":{"type":"enabled","budget_tokens":2000}`, `"thinking":{"type":"disabled"}`
	const ofAdaptive = `"thinking":{"type":"enabled","budget_tokens":7976}`
	forced := `"tools":[{"name":"look","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}`
	for said, c := range map[string]struct{ asked, sent string }{
		// The type.
		"invalid thinking: only type=enabled or disabled are allowed": {adaptive, ofAdaptive},
		"400 invalid thinking: only type=enabled is allowed for this model": {
			`"thinking":{"type":"adaptive","x":1}`, `"thinking":{"type":"enabled","x":1,"budget_tokens":7976}`},
		"400 invalid thinking: only type=enabled is allowed for this model ": {disabled, ``},
		"thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', " +
			"'enabled'": {adaptive, ofAdaptive},
		`{"detail":[{"type":"literal_error","loc":["body","thinking","type"],"msg":"Input should be 'enabled' or ` +
			`'disabled'","input":"adaptive","ctx":{"expected":"'enabled' or 'disabled'"}}]}`: {adaptive, ofAdaptive},
		"thinking.type: Input should be 'enabled' or 'disabled'":      {adaptive, ofAdaptive},
		"Validation: `thinking.type` must be `enabled` or `disabled`": {adaptive, ofAdaptive},
		"`thinking.type` must be one of [enabled, disabled]":          {adaptive, ofAdaptive},
		"adaptive thinking is not supported on this model":            {adaptive, ofAdaptive},
		"Invalid value for thinking.type: adaptive is not supported":  {adaptive, ofAdaptive},
		`{"error":{"code":"1210","message":"Invalid API parameter, please check the documentation."}}`: {
			adaptive, ofAdaptive},
		"***.type: unknown variant `adaptive`, expected `enabled` or `disabled` at line 10": {adaptive, ofAdaptive},
		"***.type: unknown variant `auto`, expected one of `adaptive`, `enabled`, `disabled` at line 10 column 18": {
			`"thinking":{"type":"auto"}`, adaptive},
		`"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and ` +
			`"output_config.effort" to control thinking behavior.`: {enabled, adaptive + `,"output_config":{"effort":"low"}`},
		`"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when not ` +
			`specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.`: {disabled, ``},
		"the thinking field in the request (expected type object) is illegal, and bool is not acceptable": {
			`"thinking":true`, `"thinking":{"type":"enabled"}`},
		"This model always engages in thinking and cannot be disabled; please use low, high, or max.": {disabled, ``},
		"Unable to submit request because Thinking can't be disabled for this model.":                 {disabled, ``},
		"Reasoning is mandatory for this endpoint and cannot be disabled.":                            {disabled, ``},

		// Its other members.
		"thinking.adaptive.display: Extra inputs are not permitted": {
			`"thinking":{"type":"adaptive","display":"omitted"}`, adaptive},
		"thinking.disabled.display: Extra inputs are not permitted": {
			`"thinking":{"type":"disabled","display":"omitted"}`, disabled},
		`{"detail":[{"type":"extra_forbidden","loc":["body","thinking","adaptive","display"],"msg":"Extra inputs are not ` +
			`permitted","input":"omitted"}]}`: {`"thinking":{"type":"adaptive","display":"omitted"}`, adaptive},
		"thinking.adaptive.budget_tokens: Extra inputs are not permitted": {
			`"thinking":{"type":"adaptive","budget_tokens":2000}`, adaptive},
		"thinking.block_binding: Extra inputs are not permitted": {
			`"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`, adaptive},
		"The thinking_budget parameter must be a positive integer and not greater than 1500": {enabled,
			`"thinking":{"type":"enabled","budget_tokens":1500}`},
		"The thinking budget (2000) is invalid. Please choose a value between 128 and 1500.": {enabled,
			`"thinking":{"type":"enabled","budget_tokens":1500}`},

		// Its effort.
		`output_config.effort "xhigh" is not supported by model m; supported values: [low, medium]`: {
			adaptive + `,"output_config":{"effort":"xhigh"}`, adaptive + `,"output_config":{"effort":"medium"}`},
		"This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium.": {
			adaptive + `,"output_config":{"effort":"xhigh"}`, adaptive + `,"output_config":{"effort":"max"}`},
		"output_config.effort: Input should be 'low', 'medium' or 'high'": {
			adaptive + `,"output_config":{"effort":"max"}`, adaptive + `,"output_config":{"effort":"high"}`},
		"output_config.effort: Extra inputs are not permitted": {
			adaptive + `,"output_config":{"effort":"max"}`, adaptive},
		"This model does not support the effort parameter.": {
			adaptive + `,"output_config":{"effort":"max"}`, adaptive},
		"This model always engages in thinking and cannot be disabled; please use low, high, or max. ": {
			adaptive + `,"output_config":{"effort":"medium"}`, adaptive + `,"output_config":{"effort":"high"}`},
		"thinking options type cannot be disabled when reasoning_effort is set": {
			disabled + `,"output_config":{"effort":"high"}`, disabled},
		"output_config.effort 'xhigh' is not supported when thinking is disabled on this model. Use effort 'high' or " +
			"below, or enable thinking.": {`"output_config":{"effort":"xhigh"}`, `"output_config":{"effort":"high"}`},

		// What it cannot be beside.
		"`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive": {
			`"context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"x"}]}`,
			`"context_management":{"edits":[{"type":"x"}]}`},
		"Thinking may not be enabled when tool_choice forces tool use.": {forced, forced + "," + disabled},
		"Thinking mode does not support this tool_choice":               {forced, forced + "," + disabled},
		"tool_choice 'specified' is incompatible with thinking enabled": {forced, forced + "," + disabled},
		"<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required or " +
			"object in thinking mode": {forced, forced + "," + disabled},
		"`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation": {
			`"temperature":0.3`, ``},
		"`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.": {`"top_p":0.5`, ``},
		"invalid temperature: only 1 is allowed for this model":                            {`"temperature":0.3`, ``},
	} {
		t.Run(said, func(t *testing.T) {
			w := knocked(t, backendCase{
				name: "b", config: proxy.BackendConfig{Kind: proxy.KindAnthropic, Vendor: "generic"},
			})
			v, g := w.vendors["b"], w.gateway()
			const body = `{"model":"m","max_tokens":9000,"messages":[{"role":"user","content":"hi"}],%s}`
			v.Fail(upstreamtest.Canned(400, body400(said)), upstreamtest.Canned(400, `{"error":{"message":"the second"}}`))
			got := g.ask("/v1/messages", fmt.Sprintf(body, c.asked))
			require.Equal(t, body400(said), got.body, "where the second call fails too, the first error as it came")
			require.Equal(t, 2, v.Count())
			want := strings.NewReplacer(`,}`, `}`).Replace(fmt.Sprintf(body, c.sent))
			require.JSONEq(t, want, string(v.Last().Body))

			v.Fail(upstreamtest.Canned(400, body400(said)), fine)
			require.Equal(t, 200, g.ask("/v1/messages", fmt.Sprintf(body, c.asked)).status)
			v.Fail(fine)
			require.Equal(t, 200, g.ask("/v1/messages", fmt.Sprintf(body, c.asked)).status)
			require.Equal(t, 5, v.Count(), "it is remembered")
			require.JSONEq(t, want, string(v.Last().Body))
			require.Contains(t, g.metrics("parameter_retries_total"), `outcome="ok"`)
		})
	}
}

// Requests at one time may each pay for it once, and none fails.
func TestARefusedWayToAskForThinkingUnderLoad(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`"thinking":{"type":"adaptive"}`,
		`"tools":[{"name":"look","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}`} {
		v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Kimi, Fault: func(r *upstreamtest.Request) (
			f *upstreamtest.Fault) {
			if gjson.GetBytes(r.Body, "tool_choice").Exists() && !gjson.GetBytes(r.Body, "thinking").Exists() {
				fault := upstreamtest.Canned(400, body400("tool_choice 'required' is incompatible with thinking enabled"))
				f = &fault
			}
			return f
		}})
		_, g := at(t, v, "b", "http://relay.example", proxy.BackendConfig{Kind: proxy.KindAnthropic})
		body = `{"model":"my-model","max_tokens":9000,"messages":[{"role":"user","content":"hi"}],` + body + `}`
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for range 4 {
					got := g.ask("/v1/messages", body)
					assert.Equal(t, 200, got.status, got.body)
				}
			})
		}
		all.Wait()
		before := v.Count()
		require.Less(t, before, 2*32*4)
		require.Equal(t, 200, g.ask("/v1/messages", body).status)
		require.Equal(t, before+1, v.Count())
	}
}

// The name of a model may tell a generation that the server behind it is not.
func TestARefusedWayToAskForThinkingThatTheModelsNameTells(t *testing.T) {
	t.Parallel()
	w := knocked(t, claude)
	v, g := w.vendors["claude"], w.gateway()
	v.Fail(upstreamtest.Canned(400, body400("adaptive thinking is not supported on this model")), fine, fine)
	for i := range 2 {
		got := g.ask("/v1/messages", `{"model":"claude-opus-4-8","max_tokens":9000,"thinking":{"type":"adaptive"},`+
			`"messages":[{"role":"user","content":"hi"}]}`)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, 2+i, v.Count())
		require.Equal(t, `{"type":"enabled","budget_tokens":7976}`, gjson.GetBytes(v.Last().Body, "thinking").Raw)
	}
}

// fine is an answer that no rule of the vendor is asked about.
var fine = upstreamtest.Canned(200, `{"id":"m1","type":"message","role":"assistant","model":"m","content":[{"type":`+
	`"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`)

// body400 is an error's body: what is JSON as it is, a sentence in the messages dialect.
func body400(said string) string {
	if strings.HasPrefix(said, "{") {
		return said
	}
	return `{"type":"error","error":{"type":"invalid_request_error","message":` + string(wire.Quote(said)) + `}}`
}
