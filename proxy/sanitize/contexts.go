package sanitize

import (
	"regexp"
	"strings"

	"mneme/proxy/lazyregexp"
)

// contexts are the context windows of models, prompt and answer together, in tokens, as known by
// mid-2026. They are first guesses: the vendors' own refusals count more. The first row that
// matches the model's name in lower case counts. Where a vendor sells a longer window at another
// price or by a beta, the usual one is listed.
var contexts = []struct {
	name   *regexp.Regexp
	tokens int
	open   bool // its weights are available: a self-hosted server may give it another window
}{
	{regexp.MustCompile(`claude-(instant|2\.0)`), 100_000, false},
	{regexp.MustCompile(`claude`), 200_000, false},

	{regexp.MustCompile(`gpt-oss`), 131_072, true},
	{regexp.MustCompile(`gpt-5[^/]*-chat|gpt-4o|chatgpt-4o|gpt-4-turbo|gpt-4-\d{4}-preview|o1-(mini|preview)`), 128_000,
		false},
	{regexp.MustCompile(`gpt-5|codex-mini`), 400_000, false},
	{regexp.MustCompile(`gpt-4\.1`), 1_047_576, false},
	{regexp.MustCompile(`gpt-4-32k`), 32_768, false},
	{regexp.MustCompile(`gpt-4`), 8_192, false},
	{regexp.MustCompile(`gpt-3\.5-turbo`), 16_385, false},
	{regexp.MustCompile(`(^|/)o[134](-|$)`), 200_000, false},

	{regexp.MustCompile(`gemini-1\.5-pro`), 2_097_152, false},
	{regexp.MustCompile(`gemini`), 1_048_576, false},
	{regexp.MustCompile(`gemma-?3`), 131_072, true},
	{regexp.MustCompile(`gemma`), 8_192, true},

	{regexp.MustCompile(`moonshot-v1-8k`), 8_192, false},
	{regexp.MustCompile(`moonshot-v1-32k`), 32_768, false},
	{regexp.MustCompile(`moonshot-v1|kimi-latest|kimi-k2-0711`), 131_072, false},
	{regexp.MustCompile(`kimi-`), 262_144, true},
	{regexp.MustCompile(`deepseek`), 131_072, true},
	{regexp.MustCompile(`glm-4\.5|glm-4-(plus|air|flash)`), 131_072, true},
	{regexp.MustCompile(`glm-(4\.[6-9]|[5-9])`), 204_800, true},
	{regexp.MustCompile(`minimax-(m1|text-01)`), 1_000_000, false},
	{regexp.MustCompile(`minimax-m`), 204_800, true},

	{regexp.MustCompile(`codestral|devstral|mistral-large-2512|mistral-medium-3\.5`), 262_144, true},
	{regexp.MustCompile(`mistral-(large|medium|small)|magistral|ministral|pixtral|mistral-nemo`), 131_072, true},
	{regexp.MustCompile(`mi[sx]tral`), 32_768, true},

	{regexp.MustCompile(`grok-4[^/]*fast`), 2_000_000, false},
	{regexp.MustCompile(`grok-(4|code)`), 262_144, false},
	{regexp.MustCompile(`grok`), 131_072, false},
	{regexp.MustCompile(`llama-?(3\.[123]|4)`), 131_072, true},
	{regexp.MustCompile(`llama-?3`), 8_192, true},
	{regexp.MustCompile(`qwen-?3-(max|coder)|qwen3\.[5-9]`), 262_144, true},
	{regexp.MustCompile(`qwen-?(3|plus|max|turbo)|qwq`), 131_072, true},
	{regexp.MustCompile(`qwen-?2`), 32_768, true},
}

// ContextTokens is the context window of a model, by its vendor's name for it, in tokens; 0 if
// unknown. local says that the model may be self-hosted: then only models that the vendor alone
// can run are known.
func ContextTokens(model string, local bool) int {
	model = strings.ToLower(model)
	for _, row := range contexts {
		if row.name.MatchString(model) {
			if local && row.open {
				return 0
			}
			return row.tokens
		}
	}
	return 0
}

// outputs are the limits of answers in tokens, see https://platform.claude.com/docs/en/about-claude/models/overview. The
// first row that matches counts.
var outputs = []struct {
	name   lazyregexp.Regexp
	tokens int64
}{
	{lazyregexp.New(`claude-(instant|2|3-(opus|sonnet|haiku))`), 4_096},
	{lazyregexp.New(`claude-3[-.]5`), 8_192},
	{lazyregexp.New(`claude-opus-4([-.@][01])?([-.@]\d{8}.*)?$`), 32_000},
	{lazyregexp.New(`claude-opus-4[-.][6-9]`), 128_000},
	{lazyregexp.New(`claude-(3[-.]7|(opus|sonnet|haiku)-4|4[-.]5)`), 64_000},
}

// OutputTokens returns the limit of a model's answers in tokens; 0 if it is unknown.
func OutputTokens(model string) int64 {
	model = strings.ToLower(model)
	for _, row := range outputs {
		if row.name().MatchString(model) {
			return row.tokens
		}
	}
	return 0
}
