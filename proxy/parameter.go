package proxy

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// optional are the parameters that a request can do without, whichever party put them in:
// the gateway, our agents, translation, or a client's library by its defaults. An answer
// may differ without them in style, cost or length. What a request means is not among
// them: messages, tools, the format of the answer, where it stops, how many there are.
// Those are refused to the client.
var optional = []string{
	"context_management", "enable_thinking", "frequency_penalty", "logit_bias", "metadata", "min_p",
	"output_config.effort",
	"parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning",
	"reasoning_effort",
	"repetition_penalty", "safety_identifier", "seed", "service_tier", "store", "stream_options", "temperature", "think",
	"thinking", "thinking.block_binding", "thinking.budget_tokens", "thinking.display", "thinking.effort", "thinking.keep",
	"top_k", "top_p", "user", "verbosity",
}

// limits are the two names of an answer's limit in chat completions. One refused,
// the other is tried: a limit is never given up.
var limits = map[string]string{"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}

// spellings are the parameters that an error may mean by a name, the likeliest first.
var spellings = map[string][]string{
	"effort":                       {"output_config.effort", "reasoning_effort"},
	"output_config":                {"output_config.effort"},
	"output_config.effort":         {"output_config.effort", "reasoning_effort"},
	"reasoning":                    {"reasoning", "reasoning_effort", "output_config.effort", "thinking"},
	"reasoning.effort":             {"reasoning", "reasoning_effort", "output_config.effort"},
	"reasoning.summary":            {"thinking"},
	"reasoning_effort":             {"reasoning_effort", "output_config.effort", "reasoning", "think"},
	"stream_options.include_usage": {"stream_options"},
	"think":                        {"think", "reasoning_effort", "thinking", "enable_thinking"},
	"thinking":                     {"thinking", "reasoning_effort"},
	"thinking.type":                {"reasoning_effort"},
}

// leaveOut is the cure for a parameter that the model does not take: the request
// goes without it, or with the name or the value that the error asks for. It is nil
// for an error that names none, or one that the request needs.
func (a *attempt) leaveOut() *cure {
	said := a.answer.parameter
	if said.Name == "" {
		return nil
	}
	r, about, ok := a.ruleOf(said)
	if !ok {
		return nil
	}
	r.Model = a.model
	return a.newCure(cureParameter, about, r)
}

// ruleOf is what an error says of a parameter, as a rule for requests like the one that was sent, and the parameter's
// name.
func (a *attempt) ruleOf(said thinking.Refused) (r sanitize.Rule, about string, ok bool) {
	if told := a.asking(said); told != nil {
		return sanitize.Rule{Profile: sanitize.Overrides{Thinking: *told}}, said.Name, true
	}
	r = sanitize.Rule{Name: said.Name, Beside: said.Beside, Most: said.Most}
	if r.Name == include { // which the last hop adds, see attempt.spoken
		return r, include, a.backend.speaks == wire.Responses && !a.leavesInclude
	}
	switch r.Beside {
	case "", thinking.WhileThinking:
	case thinking.WhileOff:
		r.Beside = ""
	default:
		if a.sent(r.Beside) == nil {
			return r, "", false
		}
	}
	if other, limit := limits[said.Name]; limit {
		r.Instead = other
		return r, r.Name, a.backend.dialect == wire.Chat && !said.Value && a.sent(said.Name) != nil
	}
	if said.Off { // it may be refused for what the model does without it
		r.Set = `"none"`
		return r, r.Name, a.backend.dialect == wire.Chat && r.Name == "reasoning_effort" &&
			string(a.sent(r.Name)) != r.Set
	}
	if form := a.sent(sanitize.FormatType); said.Name == "response_format" && string(form) == `"json_schema"` {
		r.Name, r.Value = sanitize.FormatType, string(form)
		return r, r.Name, true
	}
	names := spellings[said.Name]
	if names == nil {
		names = []string{ofThinking.ReplaceAllString(said.Name, "thinking.")}
	}
	for _, name := range names {
		value := a.sent(name)
		if value == nil || !slices.Contains(optional, name) {
			continue
		}
		r.Name = name
		// Of temperature and its like any value is refused but the default.
		if said.Value && r.Most == 0 && (strings.Contains(name, "effort") || strings.HasPrefix(name, "reasoning") ||
			strings.HasPrefix(name, "think")) {
			r.Value = string(value)
		}
		return r, name, true
	}
	return r, "", false
}

// ofThinking is the beginning of a name in which a vendor puts the type of thinking before a member.
var ofThinking = regexp.MustCompile(`^thinking\.(adaptive|between_tools|disabled|enabled)\.`)

// asking is how the model wants to be asked to think by the words of an error, which holds from now on in
// place of its profile; nil where they do not say, or where the request asked in that way.
func (a *attempt) asking(said thinking.Refused) *sanitize.ThinkingOverrides {
	asked, known := gjson.GetBytes(a.sent("thinking"), "type").Str, a.fitting.Thinking
	yes := true
	switch beside := said.Beside; {
	case said.Name == "thinking.type" && a.sent("thinking") != nil:
		return a.modes(said.Takes, asked, cmp.Or(said.Not, asked))
	case said.Needed && asked == string(sanitize.Enabled) && !known.NeedsBudget:
		return &sanitize.ThinkingOverrides{NeedsBudget: &yes}
	case said.Name == "tool_choice" && beside == thinking.WhileThinking && asked == "" && known.Default != sanitize.On:
		return &sanitize.ThinkingOverrides{Default: string(sanitize.On)}
	case beside == thinking.WhileOff && asked == "" && known.Default != sanitize.Off:
		return &sanitize.ThinkingOverrides{Default: string(sanitize.Off)}
	case beside == thinking.WhileOff && strings.Contains(said.Name, "effort") && !known.NoEffortOff:
		return &sanitize.ThinkingOverrides{NoEffortOff: &yes}
	case said.Takes != nil && beside == thinking.WhileThinking && asked == string(sanitize.Disabled):
		return a.modes(nil, asked, asked)
	case said.Takes != nil:
		levels := sanitize.Levels(said.Takes)
		effort := gjson.Parse(cmp.Or(string(a.sent("output_config.effort")), string(a.sent("reasoning_effort")))).Str
		if len(levels) > 0 && effort != "" && !slices.Contains(levels, effort) {
			return &sanitize.ThinkingOverrides{Efforts: levels}
		}
	}
	return nil
}

// modes are the ways to ask for thinking that an error leaves: those that it says are taken, else those that
// are known without the one that is refused. Of enabled and adaptive the other one is left, known or not.
func (a *attempt) modes(takes []string, asked, refused string) *sanitize.ThinkingOverrides {
	known := a.fitting.Thinking
	left := &sanitize.ThinkingOverrides{Modes: []string{}}
	for _, m := range []sanitize.Mode{sanitize.Enabled, sanitize.Adaptive, sanitize.Disabled, sanitize.BetweenTools} {
		taken := slices.Contains(takes, string(m))
		if takes == nil {
			other := refused != string(sanitize.Disabled) && (m == sanitize.Enabled || m == sanitize.Adaptive)
			taken = string(m) != refused && (other || slices.Contains(known.Modes, m) ||
				known.Modes == nil && m != sanitize.BetweenTools)
		}
		if taken {
			left.Modes = append(left.Modes, string(m))
		}
	}
	if known.Default == sanitize.Off { // which is not sure of a model that is another one than its profile says
		left.Default = string(sanitize.Unknown)
	}
	if len(left.Modes) == 0 || slices.Contains(left.Modes, asked) {
		return nil
	}
	return left
}

// sent is the raw value of a member of the request as it left; nil for none.
func (a *attempt) sent(name string) []byte {
	o := a.doc
	outer, inner, nested := strings.Cut(name, ".")
	at := o.Members.Get(outer)
	if nested && at.Found() {
		at = o.Object(at).Get(inner)
	}
	if !at.Found() {
		return nil
	}
	return o.Of(at)
}
