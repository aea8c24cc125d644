package thinking

import (
	"regexp"
	"strconv"
	"strings"
)

// Names in a Refused for what is no parameter of a request, but what the model does.
const (
	WhileThinking = "thinking"          // in Beside: refused while the model thinks
	WhileOff      = "thinking.disabled" // in Beside: refused while it does not
)

// The parameters by which thinking is asked for in the messages dialect.
const (
	typeName   = "thinking.type"
	budgetName = "thinking.budget_tokens"
	effortName = "output_config.effort"
)

// list matches the values that an error enumerates, quoted or not.
const list = `(?:one of )?[\[(]?((?:type=)?'?\w+'?(?:(?:, ?(?:or |and )?| ?\| ?| or | and )(?:type=)?'?\w+'?)*)`

// accepted finds the values that are accepted in place of one that is refused.
var accepted = regexp.MustCompile(`(?i)(?:supported (?:values|levels)(?: are)?:?|must be|should be|please use) ` + list)

var word = regexp.MustCompile(`\w+`)

// words are the values of a list.
func words(s string) (out []string) {
	for _, w := range word.FindAllString(strings.ToLower(s), -1) {
		switch w {
		case "and", "are", "be", "levels", "must", "of", "one", "or", "please", "should", "supported", "type", "use",
			"values":
		default:
			out = append(out, w)
		}
	}
	return out
}

// askings are the wordings about the way in which a request asks for thinking. What it asks for is never
// given up: the way that is taken stands in place of the other.
var askings = []refusalRule{
	// The type, with those that are taken.
	phrase("invalid thinking", `invalid thinking: only `+list, acceptedTypes),
	phrase("expected tags", `thinking: input tag '\w+' found using 'type' does not match any of the expected tags: `+list,
		acceptedTypes),
	phrase("should be", `\bthinking(?:\.\w+)*\.type: input should be `+list, acceptedTypes),
	phrase("should be", `'thinking', ?(?:'\w+', ?)*'type' ?[\])], ?'msg': ?'input should be `+list, acceptedTypes),
	phrase("must be", `'?thinking\.type'? must be (?:either )?`+list, acceptedTypes),
	phrase("unknown variant", `type: unknown variant '\w+', expected `+list, acceptedTypes),
	phrase("expected type object", `the thinking field in the request \(expected type object\)`,
		always(Refused{Name: typeName, Value: true, Accepted: []string{"enabled", "disabled"}})),
	// It stands for any wrong parameter; of those that clients send it is this one.
	phrase("invalid api", `invalid api parameter, please check the documentation`,
		always(Refused{Name: typeName, Value: true, Accepted: []string{"enabled", "disabled"}})),

	// The type, without them.
	phrase("thinking.type", `'thinking\.type\.(\w+)' is not supported`, takesNot),
	phrase("thinking.type", `\bthinking\.type'?: '?(\w+)'? is not supported`, takesNot),
	phrase("thinking is not", `\b(adaptive|enabled|disabled) thinking is not supported`, takesNot),
	phrase("support adaptive", `does not support (adaptive) thinking\b`, takesNot),
	phrase("always engages in", `please use `+list, func(m []string) (Refused, bool) {
		return Refused{Name: effortName, Value: true, ConflictsWith: WhileThinking, Accepted: words(m[1])}, true
	}),
	phrase("disabled for this model", `thinking (?:can'?t|cannot) be disabled for this model`,
		always(Refused{Name: typeName, Value: true, Not: "disabled"})),

	// Its budget.
	phrase("field required", `\bthinking\b[\w., ']*budget_tokens'?\W+(?:'msg': ?')?field required`,
		always(Refused{Name: budgetName, Needed: true})),
	phrase("budget", `thinking[_ ]budget (?:parameter )?(?:must be .* not greater than|`+
		`\(\d+\) is invalid.* between \d+ and) (\d+)`, func(m []string) (Refused, bool) {
		most, err := strconv.ParseInt(m[1], 10, 64)
		return Refused{Name: budgetName, Value: true, Max: most}, err == nil
	}),

	// Its effort.
	phrase("when thinking is disabled", `\beffort\b.* is not supported when thinking is disabled`,
		always(Refused{Name: effortName, ConflictsWith: WhileOff})),
	phrase("cannot be disabled when", `thinking options type cannot be disabled when reasoning_effort is set`,
		always(Refused{Name: effortName, Value: true, ConflictsWith: WhileOff})),
	phrase("effort", `\beffort'? '?\w+'? is not supported\b`, always(Refused{Name: effortName, Value: true})),
	phrase("effort level", `does not support effort level\b`, always(Refused{Name: effortName, Value: true})),
	phrase("effort: input", `\beffort: input should be`, always(Refused{Name: effortName, Value: true})),
	phrase("effort parameter", `does not support the effort parameter`, always(Refused{Name: effortName})),
	phrase("thinking_level is", `\bthinking_level is not supported`, always(Refused{Name: effortName})),

	// What cannot be beside it.
	phrase("clear_thinking_", `'?clear_thinking_\w+'? strategy requires 'thinking' to be enabled`,
		always(Refused{Name: "context_management", ConflictsWith: WhileOff})),
	// https://github.com/deepseek-ai/awesome-deepseek-integration/issues/598
	phrase("tool_choice", `thinking may not be enabled when tool_choice|does not support this tool_choice|`+
		`tool_choice '?\w+'? is incompatible with thinking|tool_choice .* in thinking mode|tool_choice[^;.]{0,40} ?`+
		`(?:not supported|unsupported|仅支持|only supports)`,
		always(Refused{Name: "tool_choice", ConflictsWith: WhileThinking})),
	phrase("when thinking is enabled", `'?\b(temperature|top_p|top_k)'? (?:may|must|can) .* when thinking is enabled`,
		func(m []string) (Refused, bool) { return Refused{Name: m[1], ConflictsWith: WhileThinking}, true }),
	phrase("is allowed for this model", `invalid (temperature|top_p|top_k|presence_penalty|frequency_penalty): only `,
		any1),
}

// acceptedTypes reads the types of thinking that an error enumerates.
func acceptedTypes(m []string) (Refused, bool) {
	r := Refused{Name: typeName, Value: true, Accepted: words(m[1])}
	for _, w := range r.Accepted {
		switch w {
		case "adaptive", "auto", "between_tools", "disabled", "enabled":
		default:
			return r, false // it is about another type
		}
	}
	return r, len(r.Accepted) > 0
}

// takesNot reads the type that an error refuses.
func takesNot(m []string) (Refused, bool) {
	return Refused{Name: typeName, Value: true, Not: strings.ToLower(m[1])}, true
}
