package proxy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/lazyregexp"
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
	"*.cache_control", "*.cache_control.scope", "*.cache_control.ttl", "cache_control", "client_metadata",
	"context_management", "enable_thinking", "fallbacks", "frequency_penalty", "logit_bias",
	"max_output_tokens", // https://github.com/decolua/9router/issues/812
	"metadata", "min_p",
	"output_config.effort",
	"parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning",
	"reasoning_effort",
	"repetition_penalty", "safety_identifier", "seed", "service_tier", "speed", "store", "stream_options",
	"temperature", "text.verbosity", "think",
	"thinking", "thinking.block_binding", "thinking.budget_tokens", "thinking.display", "thinking.effort", "thinking.keep",
	"tool_choice.disable_parallel_tool_use", "top_k", "top_p", "user", "verbosity",
}

// essential lists the members that define tools, messages and blocks. Any other member is an extra if the vendor does
// not know it.
var essential = []string{
	"action", "arguments", "call_id", "content", "data", "description", "encrypted_content", "format", "function", "id",
	"image_url", "input", "input_schema", "name", "output", "parameters", "role", "signature", "source", "summary", "text",
	"thinking", "tool_call_id", "tool_calls", "tool_use_id", "type",
}

// dispensable reports whether a request can do without the member at a path.
func dispensable(path string) bool {
	if slices.Contains(optional, path) || path == "messages[].id" || path == "messages[].name" {
		return true
	}
	steps := strings.Split(path, ".")
	switch steps[0] {
	case "input[]", "messages[]", "system[]", "tools[]":
	default:
		return false
	}
	return !slices.ContainsFunc(steps[1:], func(step string) bool {
		return step != "function" && step != "content[]" && step != "tool_calls[]" && slices.Contains(essential, step)
	}) && steps[len(steps)-1] != "function"
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
	"stop_sequences":               {"stop_sequences", "stop"},
	"think":                        {"think", "reasoning_effort", "thinking", "enable_thinking"},
	"thinking":                     {"thinking", "reasoning_effort"},
	"thinking.type":                {"reasoning_effort"},
}

// leaveOut is the cure for a parameter that the model does not take: the request
// goes without it, or with the name or the value that the error asks for. It is nil
// for an error that names none, or one that the request needs.
func (a *attempt) leaveOut() *cure {
	refusal := a.answer.parameter
	switch {
	case refusal.Name == "":
		return nil
	case refusal.Name == thinking.BetaHeader:
		return a.withoutBetas(refusal)
	case refusal.Limits != nil:
		return a.shorter(refusal)
	}
	r, subject, ok := a.ruleOf(refusal)
	if !ok {
		return nil
	}
	r.Model = a.model
	return a.newCure(cureParameter, subject, r)
}

// withoutBetas returns the cure for refused values of the header anthropic-beta. It removes the values that the error
// names, or all values if the error names none. The backend refuses a named value for every model.
func (a *attempt) withoutBetas(refusal thinking.Refused) *cure {
	betas := strings.Split(a.lastSent().betas, ",")
	c := a.newCure(cureParameter, refusal.Name)
	for _, v := range refusal.Refuses {
		if slices.ContainsFunc(betas, func(b string) bool { return strings.TrimSpace(b) == v }) {
			c.rules = append(c.rules, sanitize.Rule{Name: refusal.Name, Value: v})
		}
	}
	if refusal.Refuses == nil && betas[0] != "" {
		c.rules = append(c.rules, sanitize.Rule{Name: refusal.Name, Model: a.model})
	}
	if c.rules == nil {
		return nil
	}
	return c
}

// shorter returns the cure for a max_tokens above the model's limit. The error also names other numbers.
func (a *attempt) shorter(refusal thinking.Refused) *cure {
	c := a.newCure(cureLength, refusal.Name)
	for _, name := range outputMembers[a.backend.dialect] {
		n, _ := wholeNumber(a.memberValue(name))
		smaller := slices.DeleteFunc(slices.Clone(refusal.Limits), func(limit int64) bool { return limit >= n })
		if most := slices.Max(append(smaller, 0)); most >= leastAnswer {
			c.rules = append(c.rules, sanitize.Rule{Name: name, Max: most, ConflictsWith: refusal.ConflictsWith, Model: a.model})
		}
	}
	if c.rules == nil {
		return nil
	}
	return c
}

// ruleOf is what an error says of a parameter, as a rule for requests like the one that was sent, and the parameter's
// name.
func (a *attempt) ruleOf(refusal thinking.Refused) (r sanitize.Rule, subject string, ok bool) {
	if overrides := a.asking(refusal); overrides != nil {
		if subject = refusal.Name; overrides.Modes != nil {
			subject = "thinking.type"
		}
		return sanitize.Rule{Profile: sanitize.Overrides{Thinking: *overrides}}, subject, true
	}
	switch {
	case refusal.Name == "tools" && refusal.Needed:
		r = sanitize.Rule{Name: refusal.Name, Set: sanitize.NoTool(a.backend.dialect), ConflictsWith: sanitize.WithoutTools}
		return r, refusal.Name, a.memberValue(refusal.Name) == nil
	case refusal.Name == thinking.ToolCallID:
		r.Profile.ToolIDs = &sanitize.ToolIDs{Alphanumeric: true, Length: 9}
		return r, refusal.Name, a.fitting.ToolIDs.Length == 0
	}
	if choice := a.memberValue("tool_choice"); refusal.Name == "tool_choice" && refusal.Value &&
		a.backend.dialect == wire.Chat && choice.Kind() == '{' && !a.fitting.ChoiceWords {
		return sanitize.Rule{Profile: sanitize.Overrides{ChoiceWords: &yes}}, refusal.Name, true
	}
	r = sanitize.Rule{Name: refusal.Name, ConflictsWith: refusal.ConflictsWith, Max: refusal.Max}
	if r.Name == include { // which the last hop adds, see attempt.spoken
		return r, include, a.backend.speaks == wire.Responses && !a.leavesInclude
	}
	switch r.ConflictsWith {
	case "", thinking.WhileThinking:
	case thinking.WhileOff:
		r.ConflictsWith = ""
	default:
		if a.memberValue(r.ConflictsWith) == nil {
			return r, "", false
		}
	}
	if other, limit := limits[refusal.Name]; limit {
		if value := a.memberValue(refusal.Name); refusal.Value { // too large, and the vendor's own limit is smaller
			r.Value = string(value)
		} else {
			r.Replacement = other
		}
		return r, r.Name, a.backend.dialect == wire.Chat && a.memberValue(refusal.Name) != nil
	}
	if refusal.Off { // it may be refused for what the model does without it
		r.Set = `"none"`
		return r, r.Name, a.backend.dialect == wire.Chat && r.Name == "reasoning_effort" &&
			string(a.memberValue(r.Name)) != r.Set
	}
	if form := a.memberValue(sanitize.FormatType); refusal.Name == "response_format" && string(form) == `"json_schema"` {
		r.Name, r.Value = sanitize.FormatType, string(form)
		return r, r.Name, true
	}
	return a.ruleOfMember(r, refusal)
}

// cuttable are the lists and texts that may be cut to the length that a vendor takes.
var cuttable = []string{"stop", "stop_sequences", "tools[].function.description", "tools[].description"}

// ruleOfMember completes ruleOf for a member that is removed or gets another value.
func (a *attempt) ruleOfMember(r sanitize.Rule, refusal thinking.Refused) (_ sanitize.Rule, subject string, ok bool) {
	names := spellings[refusal.Name]
	if names == nil {
		names = []string{ofThinking().ReplaceAllString(refusal.Name, "thinking.")}
	}
	bodies := [][]byte{a.doc.Body}
	if a.backend.speaks != a.backend.dialect {
		bodies = append(bodies, a.lastSent().body)
	}
	for i, body := range bodies {
		if i > 0 {
			names = []string{refusal.Name}
		}
		for _, name := range names {
			path, value := sanitize.Find(body, name)
			cut := refusal.Max > 0 && slices.Contains(cuttable, path)
			if value == nil || !cut && !dispensable(path) {
				continue
			}
			r.Name = path
			// Of temperature and its like any value is refused but the default.
			effort := strings.Contains(path, "effort") || strings.HasPrefix(path, "reasoning") ||
				strings.HasPrefix(path, "think")
			switch {
			case refusal.Value && r.Max == 0 && effort:
				r.Value = string(value)
			case refusal.Value && r.Max == 0 && value[0] == '"':
				r.Accepted = refusal.Accepted
			}
			return r, memberLabel(path), true
		}
	}
	return r, "", false
}

// memberLabel returns the label of a member in metrics. It omits nested names, because clients choose unknown ones.
func memberLabel(path string) string {
	if head, _, nested := strings.Cut(path, "[]"); nested {
		return head + "[]"
	}
	return path
}

// ofThinking is the beginning of a name in which a vendor puts the type of thinking before a member.
var ofThinking = lazyregexp.New(`^thinking\.(adaptive|between_tools|disabled|enabled)\.`)

// asking is how the model wants to be asked to think by the words of an error, which holds from now on in
// place of its profile; nil where they do not say, or where the request asked in that way.
func (a *attempt) asking(refusal thinking.Refused) *sanitize.ThinkingOverrides {
	requested, profile := gjson.GetBytes(a.memberValue("thinking"), "type").Str, a.fitting.Thinking
	switch conflict := refusal.ConflictsWith; {
	case refusal.Name == "thinking.type" && a.memberValue("thinking") != nil:
		return a.modes(refusal.Accepted, requested, cmp.Or(refusal.Not, requested))
	case refusal.Needed && requested == string(sanitize.Enabled) && !profile.NeedsBudget:
		return &sanitize.ThinkingOverrides{NeedsBudget: &yes}
	case refusal.Name == "tool_choice" && conflict == thinking.WhileThinking && requested == string(sanitize.Disabled):
		return a.modes(nil, requested, requested)
	case refusal.Name == "tool_choice" && conflict == thinking.WhileThinking && requested == "" &&
		profile.Default != sanitize.On:
		return &sanitize.ThinkingOverrides{Default: sanitize.On}
	case conflict == thinking.WhileOff && requested == "" && profile.Default != sanitize.Off:
		return &sanitize.ThinkingOverrides{Default: sanitize.Off}
	case conflict == thinking.WhileOff && strings.Contains(refusal.Name, "effort") && !profile.NoEffortOff:
		return &sanitize.ThinkingOverrides{NoEffortOff: &yes}
	case refusal.Accepted != nil && conflict == thinking.WhileThinking && requested == string(sanitize.Disabled):
		return a.modes(nil, requested, requested)
	case refusal.Accepted != nil && strings.Contains(refusal.Name, "effort"):
		levels := sanitize.Levels(refusal.Accepted)
		effort := gjson.Parse(cmp.Or(string(a.memberValue("output_config.effort")),
			string(a.memberValue("reasoning_effort")))).Str
		if len(levels) > 0 && effort != "" && !slices.Contains(levels, effort) {
			return &sanitize.ThinkingOverrides{Efforts: levels}
		}
	}
	return nil
}

// modes are the ways to ask for thinking that an error leaves: those that it says are taken, else those that
// are known without the one that is refused. Of enabled and adaptive the other one is left, known or not.
func (a *attempt) modes(accepted []string, requested, refused string) *sanitize.ThinkingOverrides {
	profile := a.fitting.Thinking
	overrides := &sanitize.ThinkingOverrides{Modes: []sanitize.Mode{}}
	for _, m := range []sanitize.Mode{sanitize.Enabled, sanitize.Adaptive, sanitize.Disabled, sanitize.BetweenTools} {
		ok := slices.Contains(accepted, string(m))
		if accepted == nil {
			other := refused != string(sanitize.Disabled) && (m == sanitize.Enabled || m == sanitize.Adaptive)
			ok = string(m) != refused && (other || slices.Contains(profile.Modes, m) ||
				profile.Modes == nil && m != sanitize.BetweenTools)
		}
		if ok {
			overrides.Modes = append(overrides.Modes, m)
		}
	}
	if profile.Default == sanitize.Off { // which is not sure of a model that is another one than its profile says
		overrides.Default = sanitize.Unknown
	}
	if len(overrides.Modes) == 0 || slices.Contains(overrides.Modes, sanitize.Mode(requested)) {
		return nil
	}
	return overrides
}

// memberValue returns the raw value of a member of the attempt's request in the backend's dialect, or nil.
func (a *attempt) memberValue(name string) jsontext.Value {
	if strings.ContainsAny(name, "[*") { // a member of elements
		if path, value := sanitize.Find(a.doc.Body, name); path == name {
			return value
		}
		return nil
	}
	first, rest, _ := strings.Cut(name, ".")
	span := a.doc.Members.Get(first)
	for rest != "" && span.Exists() {
		first, rest, _ = strings.Cut(rest, ".")
		span = a.doc.Object(span).Get(first)
	}
	if !span.Exists() {
		return nil
	}
	return a.doc.Raw(span)
}

// lastSent returns the call that the attempt made.
func (a *attempt) lastSent() sentCall { return a.result.sentCalls[len(a.result.sentCalls)-1] }

// sends reports whether the attempt's call has a member of this name.
func (a *attempt) sends(name string) bool {
	_, value := sanitize.Find(a.lastSent().body, name)
	return value != nil
}
