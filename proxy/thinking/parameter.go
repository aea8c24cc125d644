package thinking

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"mneme/proxy/lazyregexp"
)

// Refused is a parameter that a vendor's error says the model does not accept.
type Refused struct {
	// Name is a path as in a request: steps in snake case, separated by dots. A step that ends in [] is an array. Vendors
	// insert types of elements, such as tools[].custom.strict.
	Name string
	// Value: the parameter is accepted, but not with the value that it had.
	Value bool
	// ConflictsWith is another parameter with which it cannot be combined; empty if it is refused in any
	// request. WhileThinking and WhileOff stand for what the model does.
	ConflictsWith string
	// Accepted are the accepted values that the error lists. Not is the refused value.
	Accepted []string
	Not      string
	// Refuses are the refused values of a header. If it is empty, all values are refused.
	Refuses []string
	// Max is the largest accepted number, or the largest number of elements; 0 if the error names none.
	Max int64
	// Limits are the numbers in an error about the limit of an answer. The model's limit is the largest one below the
	// refused number.
	Limits []int64
	// Needed: the parameter is missing.
	Needed bool
	// Off: the parameter has to be sent as "none"; leaving it out does not help.
	Off bool
}

// RefusedParameter finds the parameter that an error with an HTTP status says the model does not
// accept. Errors about thinking in the history do not count, and neither do those about
// authentication, limits or a request's length. The rules come from errors of real vendors and
// gateways: the JSON member that should name the parameter is often missing or wrong, so the
// sentence decides.
func RefusedParameter(status int, body []byte) (Refused, bool) {
	if !ofContent(status, body) {
		return Refused{}, false
	}
	r, ok := refusedIn(normalize(body))
	if ok && r.Limits != nil && lengthOf(body).Excess != NotLong {
		return Refused{}, false // the rest of the window concerns only this request
	}
	return r, ok
}

// ofContent reports whether an error may concern what a request says besides its history.
func ofContent(status int, body []byte) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusRequestEntityTooLarge,
		http.StatusTooManyRequests:
		return false
	}
	return status >= http.StatusBadRequest && classOf(body) == ClassOther
}

// refusedIn tries the rules in their order.
func refusedIn(text string) (Refused, bool) {
	lower := strings.ToLower(text)
	for _, rule := range refusals {
		if rule.near != "" && !strings.Contains(lower, rule.near) {
			continue
		}
		for _, m := range rule.Regexp().FindAllStringSubmatch(text, 4) {
			r, ok := rule.read(m)
			if !ok {
				continue
			}
			if r.Name == "" {
				return Refused{}, false // the sentence is not about a parameter
			}
			if r.Name == "reasoning_effort" && strings.Contains(text, "set reasoning_effort to 'none'") {
				r.Off = true
			}
			if r.Value && r.Accepted == nil && r.Max == 0 && r.Limits == nil {
				r.Accepted = words(accepted.FindString(text))
			}
			return r, true
		}
	}
	return Refused{}, false
}

// maxSentence is how much of an error is searched for a parameter, in bytes.
const maxSentence = 16 << 10

// Sentence returns the normalized text of an error for regular expressions, in lower case.
func Sentence(body []byte) string { return strings.ToLower(normalize(body)) }

// normalize normalises an error for the rules: on one line, with ' for every kind of quote, without
// the backslashes of JSON within strings, and without what it repeats of the request.
func normalize(body []byte) string {
	text := withoutEcho(string(body[:min(len(body), maxErrorBody)]))
	text = escapes().ReplaceAllStringFunc(text[:min(len(text), maxSentence)], func(s string) string {
		s = strings.TrimLeft(s, `\`)
		switch {
		case s == "":
			return ""
		case s[0] != 'u':
			return " "
		}
		r, _ := strconv.ParseUint(s[1:], 16, 32) // the expression takes nothing else
		return string(rune(r))
	})
	return strings.Join(strings.Fields(quotes.Replace(text)), " ")
}

var (
	escapes = lazyregexp.New(`\\+(u[0-9a-fA-F]{4}|[nrt]|)`)
	quotes  = strings.NewReplacer(`"`, `'`, "`", `'`, "“", `'`, "”", `'`, "‘", `'`, "’", `'`)
)

// path matches a parameter's name, possibly that of a member of something.
const path = `[A-Za-z_]\w*(?:\.\w+|\[[\w*]*\])*`

const (
	namePattern = `'?(` + path + `)'?`
	listed      = `[:\s\[({']+(` + path + `)`
	kinds       = `(?:arguments?|parameters?|params?|fields?|propert(?:y|ies)|keys?|names?|options?|members?|inputs?)(?:\(s\))?`
	refusal     = `(?:not (?:currently |yet ` +
		`)?(?:supported|allowed|available|recogni[sz]ed|permitted|accepted|implemented|enabled)|unsupported|deprecated|disallowed|no longer (?:supported|available))`
)

// refusalRule recognises one wording. The rules are tried in their order.
type refusalRule struct {
	near string // must occur in the text, in lower case; empty for no condition
	lazyregexp.Regexp
	// read makes a Refused of a match; ok is false if the match means something else. A result
	// without a name ends the search.
	read func(m []string) (r Refused, ok bool)
}

func phrase(near, expression string, read func([]string) (Refused, bool)) refusalRule {
	return refusalRule{near, lazyregexp.New(`(?i)` + expression), read}
}

// refusals are the known wordings, in the order in which they are tried. Those about the way to ask for
// thinking come first, since their words are the more special ones.
var refusals = slices.Concat(askings, bounds, []refusalRule{
	// Values of a header (https://github.com/vercel/ai/issues/10981, https://github.com/yiliqi78/TOKENICODE/issues/59).
	phrase("anthropic-beta", `unexpected value\(s\) ('[^;]+') for the 'anthropic-beta' header`, betas),
	phrase("beta", `\b(?:unexpected|unsupported|invalid|unknown) (?:anthropic[- ])?beta (?:flags?|headers?|values?)`+
		`(?:\(s\))?([^;]*)`, betas),
	// https://github.com/anthropics/claude-code/issues/27944 https://github.com/anthropics/claude-code/issues/24493
	phrase("long context beta", `long context beta`,
		always(Refused{Name: BetaHeader, Value: true, Refuses: []string{"context-1m-2025-08-07"}})),

	// The error names no parameter. Of the parameters that clients send, this one causes it
	// (https://github.com/anomalyco/opencode/issues/50818).
	phrase("invalid request parameters", `(?:^|['\]] ?)invalid request parameters\.?(?:'|$)`,
		always(Refused{Name: "reasoning_effort", Value: true})),

	// The model has no such mode at all; the error does not name the parameter.
	phrase("think value", `\bthink value '?\w+'? is not supported`,
		always(Refused{Name: "reasoning_effort", Value: true})),
	phrase("does not support thinking", `does not support thinking\b`, always(Refused{Name: "think"})),
	phrase("encrypted content", `\bencrypted content is not supported (?:with|by|for|on) th(?:is|e|at) model`,
		always(Refused{Name: "include"})),
	// LM Studio (https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670).
	phrase("tool_choice", `\binvalid tool_choice type: '?object\b`, always(Refused{Name: "tool_choice", Value: true})),
	phrase("mandatory", `\breasoning is mandatory\b`, always(Refused{Name: "reasoning", Value: true})),

	// Two parameters cannot be combined.
	phrase("function tools", `function tools with `+namePattern+` (?:is|are) `+refusal, func(m []string) (Refused, bool) {
		return Refused{Name: parameterName(m[1]), ConflictsWith: "tools", Off: true}, true
	}),
	phrase("cannot", `'(`+path+`)' and '(`+path+`)' cannot (?:both |be )`, func(m []string) (Refused, bool) {
		return Refused{Name: parameterName(m[2]), ConflictsWith: parameterName(m[1])}, true
	}),

	// The value is refused.
	phrase("json_schema", `unknown variant 'json_schema'|response[_ ]format'? (?:of type )?'?json_schema'? (?:is )?`+
		refusal+`|does not support response format '?json_schema`, always(Refused{Name: "response_format", Value: true})),
	phrase("does not support", namePattern+` does not support '?[\w.\-]+'? with this model`, value(1)),
	// https://github.com/openai/codex/issues/19188
	phrase("unsupported value", `unsupported value: '[\w.\-]+' is .*'param': ?'(`+path+`)'`, value(1)),
	phrase("unsupported value", `unsupported value`, always(Refused{})),
	// https://github.com/openai/codex/issues/6945
	phrase("invalid value", `invalid value: '[\w.\-]+'\. supported values are.*'param': ?'(`+path+`)'`,
		func(m []string) (Refused, bool) {
			r, ok := value(1)(m)
			return r, ok && !strings.HasSuffix(r.Name, ".type") // of an item or a block
		}),
	phrase("does not support this", `does not support this `+namePattern, likely(true)),
	phrase("unavailable", `\bthis `+namePattern+` (?:type |value )?is (?:unavailable|`+refusal+`)`, likely(true)),
	phrase("must be", namePattern+` must be (?:one of|either) `, likely(true)),
	phrase("is not one of", namePattern+` '?[\w.\-]+'? is not one of `, likely(true)),
	phrase("invalid", `\binvalid `+namePattern+` (?:argument|value|option)\b`, likely(true)),
	phrase("unsupported", `\bunsupported `+namePattern+`: `, likely(true)),

	// FastAPI's list of details, and pydantic's one-line form of it.
	phrase("loc", `'type': ?'(?:extra_forbidden|value_error\.extra)', ?`+location, located(false)),
	phrase("loc", location+`, ?'msg': ?'extra (?:inputs|fields) (?:are )?not permitted`, located(false)),
	phrase("loc", `'type': ?'(?:literal_error|enum)', ?`+location, located(true)),
	phrase("not permitted", `extra (?:inputs|fields) (?:are )?not permitted,? field: ?`+namePattern, any1),
	phrase("not permitted", namePattern+`: extra (?:inputs|fields) (?:are )?not permitted`, any1),
	// https://github.com/BerriAI/litellm/pull/38790
	phrase("is", `'?([A-Za-z_]\w*(?:\.\w+)+): ?'?[\w.\-]+'? is `+refusal, any1),

	// The name follows the words for a refusal.
	phrase("messages", `'?messages[.\[]\d+.*\bproperty '(\w+)' is `+refusal, func(m []string) (Refused, bool) {
		return Refused{Name: "messages[]." + parameterName(m[1])}, true
	}),
	phrase("unknown name", `unknown name '(\w+)' at '(`+path+`)'`, func(m []string) (Refused, bool) {
		name := parameterName(m[2] + "." + m[1])
		return Refused{Name: name}, name != ""
	}),
	phrase("property", `\bproperty '(`+path+`)' is `+refusal, any1),
	phrase("",
		`\b(?:unrecogni[sz]ed|unknown|unsupported|unexpected|extraneous|extra|additional|disallowed) (?:request |keyword `+
			`|json |body |input |query |top-level )?`+
			kinds+
			`(?: supplied| provided| found| passed| specified)?(?: in (?:the )?(?:object|request|body|payload)(?: body)?)?`+
			listed, any1),
	phrase("was unexpected", `'(`+path+`)' (?:was|were) unexpected`, any1),
	phrase("does not support", `does not (?:support|accept|allow) (?:the |request )?`+kinds+listed, any1),
	phrase("does not support the", `does not support the `+namePattern+` `+kinds, any1),
	// Bedrock and LiteLLM: https://github.com/anomalyco/opencode/issues/10259
	// https://github.com/aws-samples/bedrock-access-gateway/pull/239
	phrase("tool", `must define tools|toolconfig field must be defined|support tool calling without 'tools='`,
		always(Refused{Name: "tools", Needed: true})),
	// Mistral: https://github.com/openclaw/openclaw/issues/57672
	phrase("with a length of 9", `tool call id .* with a length of 9`, always(Refused{Name: ToolCallID, Value: true})),
	// Cerebras (https://github.com/RooCodeInc/Roo-Code/issues/10334).
	phrase("mixed values for 'strict'", `mixed values for 'strict'`, always(Refused{Name: "tools[].function.strict"})),
	phrase("", kinds+` (?:is |are )?not supported(?: (?:on|by|with|for|in) (?:this|the|that) (?:model|endpoint|api))?:`+
		listed, any1),
	phrase("is not a", namePattern+` is not a (?:supported|valid|recogni[sz]ed|known|permitted|allowed) (?:request )?`+kinds,
		any1),

	// The name precedes them.
	phrase("", `\b`+kinds+` '(`+path+`)' (?:is|are) `+refusal, any1),
	phrase("", namePattern+` (?:`+kinds+` )?(?:is|are) `+refusal, likely(false)),
	phrase("cannot be used", namePattern+` cannot be used (?:with|for|on|by) `, likely(false)),
	phrase("'code'", `'param': ?'(`+path+`)', ?'code': ?'(unknown_parameter|unsupported_parameter|unsupported_value)'`,
		func(m []string) (Refused, bool) {
			return Refused{Name: parameterName(m[1]), Value: m[2] == "unsupported_value"}, true
		}),
})

// location matches the list in which pydantic says where a value is.
const location = `'loc': ?[\[(] ?'body', ?((?:'[^']*'|\d+)(?:, ?(?:'[^']*'|\d+))*),? ?[\])]`

// betas reads the refused values of the header.
func betas(m []string) (Refused, bool) {
	return Refused{Name: BetaHeader, Value: true, Refuses: valueOf().FindAllString(m[1], -1)}, true
}

func always(r Refused) func([]string) (Refused, bool) {
	return func([]string) (Refused, bool) { return r, true }
}

// any1 accepts any name, for wordings in which only a name can stand there.
func any1(m []string) (Refused, bool) {
	name := parameterName(m[1])
	return Refused{Name: name}, name != ""
}

// value is any1 for a refused value.
func value(group int) func([]string) (Refused, bool) {
	return func(m []string) (Refused, bool) {
		name := parameterName(m[group])
		return Refused{Name: name, Value: true}, name != ""
	}
}

// likely accepts a word only if it looks like a parameter, for wordings that also occur in prose.
// Names for thinking are left out: its modes have a profile, and other errors use the same words
// for them.
func likely(value bool) func([]string) (Refused, bool) {
	return func(m []string) (Refused, bool) {
		name := parameterName(m[1])
		plausible := strings.Contains(name, "_") || slices.Contains(singleWords, name)
		return Refused{Name: name, Value: value}, plausible && !strings.HasPrefix(name, "thinking") &&
			!strings.HasPrefix(name, "clear_")
	}
}

// singleWords are parameters without an underscore in their names.
var singleWords = []string{
	"audio", "background", "effort", "functions", "include", "logprobs", "metadata", "modalities", "n", "plugins",
	"prediction", "provider",
	"reasoning", "seed", "stop", "store", "stream", "temperature", "think", "tools", "transforms", "truncation", "user",
	"verbosity",
}

// located reads the name from a location of pydantic's.
func located(value bool) func([]string) (Refused, bool) {
	return func(m []string) (Refused, bool) {
		var steps []string
		for step := range strings.SplitSeq(m[1], ",") {
			steps = append(steps, strings.Trim(step, " '"))
		}
		name := parameterName(strings.Join(steps, "."))
		return Refused{Name: name, Value: value}, name != "" && !(value && strings.HasPrefix(name, "thinking"))
	}
}

var (
	camel  = lazyregexp.New(`[a-z0-9][A-Z]`)
	digits = lazyregexp.New(`^\d+$`)
	// valueOf matches a value of the header.
	valueOf = lazyregexp.New(`\w+(?:-\w+)+`)
	// prose are words that can stand where a name could, and are not names.
	prose = []string{"a", "an", "and", "are", "at", "by", "for", "found", "in", "is", "it", "of", "on", "or", "that",
		"the", "this", "to", "value", "values", "was", "with"}
)

// parameterName is the name as a request would spell it; empty if said is not a name, or is a place
// in something that this gateway never sends.
func parameterName(name string) string {
	name = camel().ReplaceAllStringFunc(name, func(s string) string { return s[:1] + "_" + s[1:] })
	name = strings.ToLower(strings.NewReplacer("[", ".[", "]", "").Replace(name))
	var steps []string
	for step := range strings.SplitSeq(name, ".") {
		switch index := strings.TrimPrefix(step, "["); {
		case step == "", step == "body":
		case index != step, index == "*", digits().MatchString(index):
			if n := len(steps); n > 0 {
				steps[n-1] = strings.TrimSuffix(steps[n-1], "[]") + "[]"
			}
		default:
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 || len(name) > 100 || slices.Contains(prose, steps[0]) || steps[0] == "input" && len(steps) > 1 {
		return ""
	}
	return strings.Join(steps, ".")
}
