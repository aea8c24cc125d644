package thinking

import "mneme/proxy/lazyregexp"

// Names in a Refused for what vendors call by many names.
const (
	BetaHeader  = "anthropic-beta" // the header
	AnswerLimit = "max_tokens"     // the limit of an answer
	ToolCallID  = "tool_call_id"   // the form of the ids of tool calls
)

// WhileWhole is the value of Refused.ConflictsWith for requests without a stream.
const WhileWhole = "stream.false"

// limit matches the names of an answer's limit.
const limit = `(?:\bmax[ _]?(?:completion|output|new|gen|total)?[ _]?(?:tokens?|len)|\bmaximum (?:tokens|output))`

var (
	// tooMuch matches the wordings for a number that is too large.
	tooMuch = lazyregexp.New(`(?i)too (?:large|high|many)|exceed|at most|(?:less|greater|higher|larger|more) (?:than|or)|` +
		`maximum|should be|\brange|between|above|limit of|up to|must be|cannot|supports|<|>|超过|范围|大于|不能`)
	// passing matches the limits of one request or account, which are not the model's.
	passing = lazyregexp.New(`(?i)\b(?:remain(?:s|ing)?|left|quotas?|credits?|balance|per (?:minute|hour|day))\b`)
	numbers = lazyregexp.New(`(?:^|[^\w.\-])(\d{1,3}(?:,\d{3})+|\d+)\b( \(exclusive\))?`)
)

// bounds are the wordings about numbers that are too large. Errors about a context window have other ones.
var bounds = []refusalRule{
	// Fireworks: https://github.com/nullclaw/nullclaw/pull/231
	phrase("stream=true", limit+` > (\d+) must have stream=true`, func(m []string) (Refused, bool) {
		r, ok := atMost(AnswerLimit, m[1])
		r.Limits, r.Max, r.ConflictsWith = []int64{r.Max}, 0, WhileWhole
		return r, ok
	}),
	// The requested answer is longer than the model's limit. Each vendor says it in words of its own, so that any sentence
	// with the parameter, an excess and a number counts: https://github.com/ChatGPTNextWeb/NextChat/issues/3195 (OpenAI),
	// https://github.com/BerriAI/litellm/pull/15715 (Anthropic), https://github.com/deepseek-ai/DeepSeek-V3/issues/69,
	// https://github.com/RooCodeInc/Roo-Code/issues/5729 (Groq), https://github.com/langgenius/dify/issues/10390 (Bedrock),
	// https://github.com/yiliqi78/TOKENICODE/issues/3 (Volcengine), https://github.com/neavo/KeywordGacha/issues/111,
	// https://github.com/vllm-project/vllm/pull/40324, https://github.com/stackblitz-labs/bolt.diy/issues/955 (Vertex).
	phrase("max", limit+`[^;]{0,240}`, func(m []string) (Refused, bool) {
		r := Refused{Name: AnswerLimit, Value: true}
		for _, n := range numbers().FindAllStringSubmatch(m[0], -1) {
			most := int64(atoi(n[1]))
			if n[2] != "" {
				most--
			}
			r.Limits = append(r.Limits, most)
		}
		return r, r.Limits != nil && tooMuch().MatchString(m[0]) && !passing().MatchString(m[0])
	}),
	// GLM names no number: https://github.com/MetaGLM/glm-cookbook/issues/24
	phrase("max_tokens", `max_tokens'? ?参数非法`, always(Refused{Name: AnswerLimit, Value: true})),

	// OpenAI: https://github.com/QwenLM/Qwen-Agent/issues/228
	phrase("array too long", `'(`+path+`)': array too long\. expected an array with maximum length (\d+)`,
		func(m []string) (Refused, bool) { return atMost(parameterName(m[1]), m[2]) }),
	// https://github.com/getsentry/sentry-mcp/issues/106 https://github.com/vybestack/llxprt-code/issues/2135
	phrase("string too long", `'(`+path+`)': string too long\. expected a string with maximum length (\d+)`,
		func(m []string) (Refused, bool) { return atMost(parameterName(m[1]), m[2]) }),
	phrase("stop", `\b(stop(?:_sequences)?)\b[^;]{0,60}?\b(?:items is|only|at most|up to|maximum(?: of)?) (\d+)\b`,
		func(m []string) (Refused, bool) { return atMost(parameterName(m[1]), m[2]) }),
}

// atMost returns a Refused with the largest accepted number.
func atMost(name, number string) (Refused, bool) {
	most := int64(atoi(number))
	return Refused{Name: name, Value: true, Max: most}, name != "" && most > 0
}
