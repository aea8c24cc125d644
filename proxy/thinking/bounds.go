package thinking

// Names in a Refused for what vendors call by many names.
const (
	BetaHeader  = "anthropic-beta" // the header
	AnswerLimit = "max_tokens"     // the limit of an answer
)

// WhileWhole is the value of Refused.Beside for requests without a stream.
const WhileWhole = "stream.false"

// limit matches the names of an answer's limit.
const limit = `\b(?:max[ _]?(?:completion|output|new|gen)?[ _]?(?:tokens?|len)|maximum tokens)\b`

// bounds are the wordings about numbers that are too large. Errors about a context window have other ones.
var bounds = []refusalRule{
	// The requested answer is longer than the model's limit.
	// OpenAI, Azure and Xiaomi: https://github.com/ChatGPTNextWeb/NextChat/issues/3195
	// https://github.com/AQBot-Desktop/AQBot/issues/93
	longest("max", limit+`[^;]{0,80}\bsupports at most `),
	// Anthropic: https://github.com/BerriAI/litellm/pull/15715
	longest("maximum allowed", limit+`: \d+ > `),
	// DeepSeek: https://github.com/deepseek-ai/DeepSeek-V3/issues/69
	// Alibaba: https://github.com/open-webui/open-webui/issues/10507
	// MiniMax says "must be in range" (default).
	longest("range", limit+`[^;]{0,60}\[ ?\d+, ?`),
	// Groq: https://github.com/RooCodeInc/Roo-Code/issues/5729 https://github.com/skapadia3214/groq-moa/issues/8
	// pydantic: https://docs.pydantic.dev/latest/errors/validation_errors/#less_than_equal
	longest("equal to", limit+`[^;]{0,80}\bless than or equal to `),
	longest("equal to", `'max_(?:completion_|output_)?tokens'\W{1,9}msg': ?'[^']{0,40}less than or equal to `),
	// Bedrock: https://github.com/langgenius/dify/issues/10390 https://github.com/RooCodeInc/Roo-Code/issues/248
	longest("model limit", limit+`[^;]{0,40}\bexceeds? the model limit of `),
	// Volcengine: https://github.com/yiliqi78/TOKENICODE/issues/3
	longest("maximum value", limit+`[^;]{0,80}\babove maximum value[^;]{0,20}\bexpected a value <= `),
	// https://github.com/neavo/KeywordGacha/issues/111
	longest("between", limit+`[^;]{0,60}\bmust be between \d+ and `),
	// vLLM and DeepInfra: https://github.com/vllm-project/vllm/pull/40324
	// https://github.com/HeyPuter/puter/issues/3564
	longest("greater than", limit+`[^;]{0,30}cannot be greater than (?:max_model_len=)?(?:max_total_tokens=)?`),
	// Vertex: https://github.com/stackblitz-labs/bolt.diy/issues/955
	phrase("exclusive", limit+`[^;]{0,80}\bto (\d+) \(exclusive\)`, func(m []string) (Refused, bool) {
		return atMost(AnswerLimit, m[1], 1)
	}),
	// Fireworks: https://github.com/nullclaw/nullclaw/pull/231
	phrase("stream=true", limit+` > (\d+) must have stream=true`, func(m []string) (Refused, bool) {
		r, ok := atMost(AnswerLimit, m[1], 0)
		r.Beside = WhileWhole
		return r, ok
	}),
	// GLM names no number: https://github.com/MetaGLM/glm-cookbook/issues/24
	phrase("max_tokens", `max_tokens'? ?参数非法`, always(Refused{Name: AnswerLimit, Value: true})),

	// OpenAI: https://github.com/QwenLM/Qwen-Agent/issues/228
	phrase("array too long", `'(`+path+`)': array too long\. expected an array with maximum length (\d+)`,
		func(m []string) (Refused, bool) { return atMost(parameterName(m[1]), m[2], 0) }),
}

// longest makes a rule of a wording that ends before the largest number of tokens.
func longest(near, expression string) refusalRule {
	return phrase(near, expression+`'?(\d{1,3}(?:,\d{3})+|\d+)`, func(m []string) (Refused, bool) {
		return atMost(AnswerLimit, m[1], 0)
	})
}

// atMost returns a Refused with the largest accepted number, which is number minus less.
func atMost(name, number string, less int64) (Refused, bool) {
	most := int64(atoi(number)) - less
	return Refused{Name: name, Value: true, Most: most}, name != "" && most > 0
}
