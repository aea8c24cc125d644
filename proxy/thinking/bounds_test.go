package thinking

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Errors about a max_tokens above the model's limit. bounds has their sources.
func TestAnswersThatAreTooLong(t *testing.T) {
	t.Parallel()
	for said, most := range map[string]int64{
		"max_tokens is too large: 64000. This model supports at most 16384 completion tokens, whereas you provided " +
			"64000.": 16384,
		`{"error":{"message":"Param Incorrect","type":"upstream_error","param":"max_tokens is too large: 1048576. This ` +
			`model supports at most 131072 completion tokens, whereas you provided 1048576.","code":"400"}}`: 131072,
		"max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5":   64000,
		"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]":                                     8192,
		"Invalid maxtokens value, the valid range of maxtokens is [1, 393216]":                                     393216,
		"Error from provider (DeepSeek): Invalid max_tokens value, the valid range of max_tokens is [1, 393216]":   393216,
		"<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]":                       8192,
		`data: {"error":{"code":"invalid_parameter_error","message":"Range of max_tokens should be [1, 131072]"}}`: 131072,
		"invalid params, max_tokens must be in range [1, 40000] (2013)":                                            40000,
		"`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the " +
			"`context_window` for this model": 8192,
		"max_completion_tokens must be less than or equal to 40960, the maximum value for max_completion_tokens is less " +
			"than the context_window for this model": 40960,
		"max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000": 8000,
		"The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is " +
			"lower than 4096.": 4096,
		`{"message":"The maximum tokens you requested exceeds the model limit of 32768"}`: 32768,
		"The maximum tokens you requested exceed the model limit of 4096. Try again with a maximum tokens value lower " +
			"than 4096.": 4096,
		"The parameter `max_completion_tokens` specified in the request are not valid: integer above maximum value, " +
			"expected a value <= 12288, but got 32000 instead.": 12288,
		"Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but got 8192 instead.": 4096,
		"max_tokens (current value: 4096) must be between 0 and 4000 ":                                       4000,
		"max_tokens=16384 cannot be greater than max_model_len=max_total_tokens=8192. Please request fewer output tokens. " +
			"(parameter=max_tokens, value=16384)": 8192,
		"Unable to submit request because it has a maxOutputTokens value of 655360 but the supported range is from 1 " +
			"(inclusive) to 8193 (exclusive). Update the value and try again.": 8192,
		`{"detail":[{"type":"less_than_equal","loc":["body","max_tokens"],"msg":"Input should be less than or equal to ` +
			`8192","input":64000}]}`: 8192,
		"max_tokens: Input should be less than or equal to 8192":                                                                  8192,
		"max_tokens: value 64000 exceeds maximum allowed value of 40000":                                                          40000,
		"max_tokens cannot exceed 16384":                                                                                          16384,
		"Malformed input request: #/inferenceConfig/maxTokens: 64000 is not less or equal to 10000":                               10000,
		"Requested token count exceeds the model's maximum output of 16384 tokens. You requested 64000.":                          16384,
		`{"error":{"code":"1210","message":"max_tokens\u53c2\u6570\u975e\u6cd5\u3002\u53d6\u503c\u8303\u56f4\uff1a[1, 131072]"}}`: 131072,
		"max_tokens is too large: 64,000. This model supports at most 16,384 completion tokens":                                   16384,
	} {
		r, ok := RefusedParameter(400, []byte(said))
		require.True(t, ok, said)
		require.Equal(t, Refused{Name: AnswerLimit, Value: true, Limits: r.Limits}, r, said)
		asked := max(most+1, slices.Max(append(r.Limits, 0))) // the error has the requested number, or no larger one
		below := slices.DeleteFunc(slices.Clone(r.Limits), func(n int64) bool { return n >= asked })
		require.Equal(t, most, slices.Max(append(below, 0)), said)
		require.Equal(t, NotLong, ReadLength(400, []byte(said)).Excess, said)
	}
	for said, want := range map[string]Refused{
		"Requests with max_tokens > 4096 must have stream=true": {Name: AnswerLimit, Value: true,
			Limits: []int64{4096}, ConflictsWith: WhileWhole},
		"max_tokens参数非法。请检查文档。": {Name: AnswerLimit, Value: true},
		"Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 " +
			"instead.": {Name: "stop", Value: true, Max: 4},
		"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 217 " +
			"instead.": {Name: "tools", Value: true, Max: 128},
	} {
		r, _ := RefusedParameter(400, []byte(said))
		require.Equal(t, want, r, said)
	}
	for _, said := range []string{
		"`max_tokens` must be greater than `thinking.budget_tokens`. See " +
			"https://docs.claude.com/extended-thinking#max-tokens-and-context-window-size",
		"'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 " +
			"tokens and your request has 24235 input tokens (64000 > 64001 - 24235).",
		"This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your " +
			"prompt contains at least 62466 input tokens, for a total of at least 128001 tokens.",
		"input length and `max_tokens` exceed context limit: 190001 + 21333 > 204698, decrease input length or " +
			"`max_tokens` and try again",
		"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
		"max_tokens: 64000 exceeds your remaining quota of 2100 tokens",
		"max_tokens 64000 is too large for the remaining context: 3000 left",
	} {
		r, _ := RefusedParameter(400, []byte(said))
		require.Empty(t, slices.DeleteFunc(r.Limits, func(n int64) bool { return n <= 16 }), "%s: %+v", said, r)
	}
}

// Refusals that name a member of a member, or a value.
func TestRefusalsOfMembers(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]Refused{
		// https://github.com/anthropics/claude-code/issues/82549
		"tools.11.custom.defer_loading: Extra inputs are not permitted": {Name: "tools[].custom.defer_loading"},
		// https://github.com/BerriAI/litellm/issues/15880
		`{"message":"tools.20.custom.cache_control.ephemeral.ttl: Extra inputs are not permitted"}`: {
			Name: "tools[].custom.cache_control.ephemeral.ttl",
		},
		// https://github.com/BerriAI/litellm/pull/38790
		"cache_control.ttl: 1h is not supported":   {Name: "cache_control.ttl"},
		"`cache_control.ttl: 1h` is not supported": {Name: "cache_control.ttl"},
		// https://github.com/openai/codex/issues/19188
		`{"error":{"message":"Unsupported value: 'low' is not supported with the 'gpt-5.2-codex' model. Supported values ` +
			`are: 'medium'.","param":"text.verbosity","code":"unsupported_value"}}`: {
			Name: "text.verbosity", Value: true, Accepted: []string{"medium"},
		},
		// https://github.com/google-deepmind/concordia/issues/164
		"Unsupported value: 'verbosity' does not support 'low' with this model. Supported values are: 'medium'.": {
			Name: "verbosity", Value: true, Accepted: []string{"medium"},
		},
		// https://github.com/QuantumNous/new-api/issues/2975
		"Unexpected value(s) `prompt-caching-scope-2026-01-05`, `structured-outputs-2025-12-15` for the " +
			"`anthropic-beta` header. Please consult our documentation or try again without the header.": {
			Name: BetaHeader, Value: true,
			Refuses: []string{"prompt-caching-scope-2026-01-05", "structured-outputs-2025-12-15"},
		},
		// https://github.com/yiliqi78/TOKENICODE/issues/59
		"InvokeModelWithResponseStream: ValidationException: invalid beta flag": {Name: BetaHeader, Value: true},
		// https://github.com/anomalyco/opencode/issues/50818
		`{"error":{"param":"","message":"Upstream request failed: [400] Invalid request parameters"}}`: {
			Name: "reasoning_effort", Value: true,
		},
	} {
		r, _ := RefusedParameter(400, []byte(said))
		require.Equal(t, want, r, said)
	}
}
