package thinking

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Refused is a parameter that an error says the model does not take.
type Refused struct {
	// Name is how a request spells it: in snake case, with dots before members of
	// members, and "messages[]." or "tools[]." before a member of an element.
	Name string
	// Value: not the parameter is refused but the value that it had.
	Value bool
	// Instead is the parameter that the error names in its place; empty for none.
	Instead string
	// Beside is another parameter beside which it is refused; empty for any request.
	Beside string
	// Off: the parameter is to say "none", leaving it out does not help.
	Off bool
}

// RefusedParameter finds the parameter that an error with an HTTP status names as
// one that the model does not take. Errors about thinking in the history are none,
// and neither are those about the caller, about limits or about a request's length.
// The rules are made from errors of real vendors and gateways: a member that names
// the parameter is often missing or wrong, so the sentence decides.
func RefusedParameter(status int, body []byte) (Refused, bool) {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return Refused{}, false
	}
	if status < http.StatusBadRequest || classOf(body) != ClassOther {
		return Refused{}, false
	}
	return refusedIn(spoken(body))
}

// RefusedInEvent is RefusedParameter for what came with status 200, as
// ClassifyEvent reads it.
func RefusedInEvent(data []byte) (Refused, bool) {
	if !IsError(data) || classOf(data) != ClassOther {
		return Refused{}, false
	}
	return refusedIn(spoken(data))
}

func refusedIn(text string) (Refused, bool) {
	for _, rule := range refusals {
		if rule.near != "" && !strings.Contains(strings.ToLower(text), rule.near) {
			continue
		}
		for _, m := range rule.FindAllStringSubmatch(text, 4) {
			r, ok := rule.read(m)
			if !ok {
				continue
			}
			if r.Name == "" {
				return Refused{}, false // it is about something else
			}
			if use := instead.FindStringSubmatch(text); use != nil && parameterName(use[1]) != r.Name {
				r.Instead = parameterName(use[1])
			}
			if r.Name == "reasoning_effort" && strings.Contains(text, "set reasoning_effort to 'none'") {
				r.Off = true
			}
			return r, true
		}
	}
	return Refused{}, false
}

// maxSentence is how much of an error is searched for a parameter, in bytes.
const maxSentence = 16 << 10

// spoken is an error on one line, with every kind of quote as ' and without the
// backslashes that JSON in strings brings. What it repeats of the request is no
// part of it.
func spoken(body []byte) string {
	text := withoutEcho(string(body[:min(len(body), maxErrorBody)]))
	text = escapes.ReplaceAllStringFunc(text[:min(len(text), maxSentence)], func(s string) string {
		switch s[len(s)-1] {
		case 'n', 'r', 't':
			return " "
		case '2', '7', '0':
			return "'"
		}
		return ""
	})
	return strings.Join(strings.Fields(quotes.Replace(text)), " ")
}

var (
	escapes = regexp.MustCompile(`\\+(u0022|u0027|u0060|[nrt]|)`)
	quotes  = strings.NewReplacer(`"`, `'`, "`", `'`, "“", `'`, "”", `'`, "‘", `'`, "’", `'`)
	instead = regexp.MustCompile(`(?i)\b(?:use|try|specify|with) '?(` + path + `)'? instead`)
)

// path is a name in an error, possibly that of a member of something.
const path = `[A-Za-z_]\w*(?:\.\w+|\[[\w*]*\])*`

const (
	named   = `'?(` + path + `)'?`
	listed  = `[:\s\[({']+(` + path + `)`
	kinds   = `(?:arguments?|parameters?|params?|fields?|propert(?:y|ies)|keys?|names?|options?|members?|inputs?)(?:\(s\))?`
	refusal = `(?:not (?:currently |yet )?(?:supported|allowed|available|recogni[sz]ed|permitted|accepted|implemented|enabled)|unsupported|deprecated|disallowed|no longer (?:supported|available))`
)

// refusalRule finds one way of saying it. The rules are tried in their order.
type refusalRule struct {
	near string // must be in the text, in lower case; empty for any
	*regexp.Regexp
	// read makes of a match what is refused; ok is false if it is no such thing. A
	// result without a name ends the search.
	read func(m []string) (r Refused, ok bool)
}

func phrase(near, expression string, read func([]string) (Refused, bool)) refusalRule {
	return refusalRule{near, regexp.MustCompile(`(?i)` + expression), read}
}

var refusals = []refusalRule{
	// A way of asking that the model does not have at all is said without a name.
	phrase("think value", `\bthink value '?\w+'? is not supported`, always(Refused{Name: "reasoning_effort", Value: true})),
	phrase("does not support thinking", `does not support thinking\b`, always(Refused{Name: "think"})),
	phrase("mandatory", `\breasoning is mandatory\b`, always(Refused{Name: "reasoning", Value: true})),

	// Two that do not go together.
	phrase("function tools", `function tools with `+named+` (?:is|are) `+refusal, func(m []string) (Refused, bool) {
		return Refused{Name: parameterName(m[1]), Beside: "tools", Off: true}, true
	}),
	phrase("cannot", `'(`+path+`)' and '(`+path+`)' cannot (?:both |be )`, func(m []string) (Refused, bool) {
		return Refused{Name: parameterName(m[2]), Beside: parameterName(m[1])}, true
	}),

	// The value.
	phrase("does not support", named+` does not support '?[\w.\-]+'? with this model`, value(1)),
	phrase("unsupported value", `unsupported value: '[\w.\-]+' is .*'param': ?'(`+path+`)'`, value(1)),
	phrase("unsupported value", `unsupported value`, always(Refused{})),
	phrase("does not support this", `does not support this `+named, likely(true)),
	phrase("unavailable", `\bthis `+named+` (?:type |value )?is (?:unavailable|`+refusal+`)`, likely(true)),
	phrase("must be", named+` must be (?:one of|either) `, likely(true)),

	// FastAPI's list of details, and what pydantic says in one line.
	phrase("loc", `'type': ?'(?:extra_forbidden|value_error\.extra)', ?`+location, located(false)),
	phrase("loc", location+`, ?'msg': ?'extra (?:inputs|fields) (?:are )?not permitted`, located(false)),
	phrase("loc", `'type': ?'(?:literal_error|enum)', ?`+location, located(true)),
	phrase("not permitted", `extra (?:inputs|fields) (?:are )?not permitted,? field: ?`+named, any1),
	phrase("not permitted", named+`: extra (?:inputs|fields) (?:are )?not permitted`, any1),

	// Named behind the words for it.
	phrase("messages", `'?messages[.\[]\d+.*\bproperty '(\w+)' is `+refusal, func(m []string) (Refused, bool) {
		return Refused{Name: "messages[]." + parameterName(m[1])}, true
	}),
	phrase("property", `\bproperty '(`+path+`)' is `+refusal, any1),
	phrase("", `\b(?:unrecogni[sz]ed|unknown|unsupported|unexpected|extraneous|extra|additional|disallowed) (?:request |keyword |json |body |input |query |top-level )?`+
		kinds+`(?: supplied| provided| found| passed| specified)?(?: in (?:the )?(?:object|request|body|payload)(?: body)?)?`+listed, any1),
	phrase("was unexpected", `'(`+path+`)' (?:was|were) unexpected`, any1),
	phrase("does not support", `does not (?:support|accept|allow) (?:the |request )?`+kinds+listed, any1),
	phrase("", kinds+` (?:is |are )?not supported(?: (?:on|by|with|for|in) (?:this|the|that) (?:model|endpoint|api))?:`+listed, any1),
	phrase("is not a", named+` is not a (?:supported|valid|recogni[sz]ed|known|permitted|allowed) (?:request )?`+kinds, any1),

	// Named before them.
	phrase("", `\b`+kinds+` '(`+path+`)' (?:is|are) `+refusal, any1),
	phrase("", named+` (?:`+kinds+` )?(?:is|are) `+refusal, likely(false)),
	phrase("cannot be used", named+` cannot be used (?:with|for|on|by) `, likely(false)),
	phrase("'code'", `'param': ?'(`+path+`)', ?'code': ?'(unknown_parameter|unsupported_parameter|unsupported_value)'`, func(m []string) (Refused, bool) {
		return Refused{Name: parameterName(m[1]), Value: m[2] == "unsupported_value"}, true
	}),
}

// location is where something lies, as pydantic says it.
const location = `'loc': ?[\[(] ?'body', ?((?:'[^']*'|\d+)(?:, ?(?:'[^']*'|\d+))*),? ?[\])]`

func always(r Refused) func([]string) (Refused, bool) {
	return func([]string) (Refused, bool) { return r, true }
}

// any1 takes whatever stands where only a name can.
func any1(m []string) (Refused, bool) {
	name := parameterName(m[1])
	return Refused{Name: name}, name != ""
}

func value(group int) func([]string) (Refused, bool) {
	return func(m []string) (Refused, bool) {
		name := parameterName(m[group])
		return Refused{Name: name, Value: true}, name != ""
	}
}

// likely takes a word of prose only if it looks like a parameter. What thinking may
// be called is not among them: its modes have a profile, and other errors speak of
// them in the same words.
func likely(value bool) func([]string) (Refused, bool) {
	return func(m []string) (Refused, bool) {
		name := parameterName(m[1])
		known := strings.Contains(name, "_") || slices.Contains(singleWords, name)
		return Refused{Name: name, Value: value}, known && !strings.HasPrefix(name, "thinking") && !strings.HasPrefix(name, "clear_")
	}
}

// singleWords are parameters whose names have no underscore.
var singleWords = []string{
	"audio", "background", "effort", "functions", "include", "logprobs", "metadata", "modalities", "n", "plugins", "prediction", "provider",
	"reasoning", "seed", "stop", "store", "stream", "temperature", "think", "tools", "transforms", "truncation", "user", "verbosity",
}

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
	camel  = regexp.MustCompile(`[a-z0-9][A-Z]`)
	digits = regexp.MustCompile(`^\d+$`)
	// prose are words that stand where a name could, and are none.
	prose = []string{"a", "an", "and", "are", "at", "by", "for", "found", "in", "is", "it", "of", "on", "or", "that", "the", "this", "to", "value", "values", "was", "with"}
	// holders are parameters with elements, of which a member may be refused.
	holders = []string{"messages", "tools"}
)

// parameterName is a name as a request would spell it; empty for what is none, and
// for a place in something that this gateway never sends.
func parameterName(said string) string {
	said = camel.ReplaceAllStringFunc(said, func(s string) string { return s[:1] + "_" + s[1:] })
	said = strings.ToLower(strings.NewReplacer("[", ".", "]", "").Replace(said))
	var steps []string
	for step := range strings.SplitSeq(said, ".") {
		if step != "" && step != "*" && step != "body" && !digits.MatchString(step) {
			steps = append(steps, step)
		}
	}
	switch {
	case len(steps) == 0, len(said) > 100, slices.Contains(prose, steps[0]), steps[0] == "input" && len(steps) > 1:
		return ""
	case slices.Contains(holders, steps[0]) && len(steps) > 1:
		return steps[0] + "[]." + steps[len(steps)-1]
	}
	return strings.Join(steps, ".")
}
