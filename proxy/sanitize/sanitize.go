package sanitize

import (
	"net/http"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// Input is a request that is about to leave.
type Input struct {
	// Outline is the request in the backend's dialect, with the model's name as the
	// vendor knows it. It is not written into.
	Outline *wire.Outline
	Dialect wire.Dialect
	Profile Profile
	Betas   []string // the values of the anthropic-beta header, lists or not
	// Budget is the most that a request may think, in tokens, where thinking has a
	// budget; a request that asks by an effort gets a share of it, see BudgetOf. 0: no
	// bound.
	Budget int64
	// Effort is the level at which a chat request is to think that says nothing of it;
	// only a model that is known to take it gets it. Empty: none.
	Effort string
	// Refusals are the parameters that the backend is known to refuse.
	Refusals []Refusal
	// Count: the request only counts tokens. It has no max_tokens and its budget is
	// not held against it.
	Count bool
	// Translated: the client spoke another dialect, in which nobody can ask for
	// thinking between tools. It gets it where the model has it.
	Translated bool
}

// Output is the request as it leaves.
type Output struct {
	Body        []byte // the very slice of the outline if nothing in it changed
	AddBetas    []string
	RemoveBetas []string
	Changes     []Change // in the order in which they were made
}

// Change is one thing that was changed.
type Change struct {
	Rule Rule
	// Path is where, in the request as it came: messages.3.content.1, thinking.
	Path string
}

// Header makes the changes of the anthropic-beta header. It writes into h if
// there are any.
func (o Output) Header(h http.Header) {
	if len(o.AddBetas)+len(o.RemoveBetas) == 0 {
		return
	}
	values := slices.DeleteFunc(splitBetas(h.Values(betaHeader)), func(v string) bool { return slices.Contains(o.RemoveBetas, v) })
	for _, v := range o.AddBetas {
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		h.Del(betaHeader)
		return
	}
	h.Set(betaHeader, strings.Join(values, ","))
}

// Sanitize makes a request fit its profile. It is a pure function, and applied
// to its own result it changes nothing.
func Sanitize(in Input) Output {
	in.Betas = splitBetas(in.Betas)
	r := read(in)
	for _, rule := range rules[in.Dialect] {
		rule(r)
		r.sweep()
	}
	r.out.Body = r.raw()
	return r.out
}

// ThinkingOff is a request that does not ask for thinking any more, and is the
// body as it came if that was so or the model cannot be told. It is the last cure
// for reasoning that is missing.
func ThinkingOff(o *wire.Outline, d wire.Dialect, p Profile) []byte {
	r := read(Input{Outline: o, Dialect: d, Profile: p})
	if r.off() || !r.turnOff(RuleMode) {
		return o.Body
	}
	if d == wire.Messages {
		r.dropThinkingEdits()
		r.fitEffort()
		return r.raw()
	}
	if len(p.Thinking.Modes) == 0 && r.root.has("reasoning_effort") {
		r.set(RuleEffort, "reasoning_effort", nil) // the only other way to ask
	}
	r.fitChatEffort()
	return r.raw()
}
