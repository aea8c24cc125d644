package sanitize

import (
	"net/http"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// Input is a request that is about to be sent.
type Input struct {
	// Outline is the request in the backend's dialect, with the vendor's name of the model. It is
	// not modified.
	Outline *wire.Outline
	Dialect wire.Dialect
	Profile Profile
	Betas   []string // the values of the anthropic-beta header, lists or not
	// Budget bounds the thinking of a request, in tokens, for models with a budget. A request with
	// an effort gets a share of it, see BudgetOf. 0 means no bound.
	Budget int64
	// Effort is for chat requests that have none; it is only sent to models that are known to
	// accept it. Empty for none.
	Effort string
	// Rules are what the backend's refusals have taught. Profile has what they say of it already.
	Rules []Rule
	// Answer bounds an answer that the request leaves open, in tokens; the thinking is added. 0: nothing does.
	Answer int64
	// Count: the request only counts tokens, so it has no max_tokens to compare a budget with.
	Count bool
	// Translated: the client used another dialect, in which it cannot ask for thinking between
	// tools. It gets that where the model has it.
	Translated bool
	// Ephemeral: the newest user message begins with content parts that the client adds to this
	// request alone.
	Ephemeral bool
}

// Output is the request to send.
type Output struct {
	Body        []byte // the outline's own slice if nothing changed
	AddBetas    []string
	RemoveBetas []string
	Changes     []Change // in the order in which they were made
	AnswerTool  string   // the tool that the model calls to give its answer; empty for none
	// ToolNames are the client's names of tools, by the names that the vendor gets; nil for no others.
	ToolNames map[string]string
}

// Change is one change that was made.
type Change struct {
	Kind Kind
	// Path is its place in the original request: messages.3.content.1, thinking.
	Path string
}

// Header applies the changes of the anthropic-beta header to h.
func (o Output) Header(h http.Header) {
	if len(o.AddBetas)+len(o.RemoveBetas) == 0 {
		return
	}
	values := slices.DeleteFunc(splitBetas(h.Values(BetaHeader)), func(v string) bool {
		return slices.Contains(o.RemoveBetas, v)
	})
	for _, v := range o.AddBetas {
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		h.Del(BetaHeader)
		return
	}
	h.Set(BetaHeader, strings.Join(values, ","))
}

// Sanitize makes a request fit its profile. It is a pure function, and idempotent but for Ephemeral,
// which is said of what the client sent.
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

// ThinkingOff is a request without thinking: the original body if it already was that, or if the
// model cannot be told. It is the last resort for missing reasoning.
func ThinkingOff(o *wire.Outline, d wire.Dialect, p Profile) []byte {
	r := read(Input{Outline: o, Dialect: d, Profile: p})
	if r.off() || !r.turnOff(KindMode) {
		return o.Body
	}
	if d == wire.Messages {
		r.dropThinkingEdits()
		r.fitEffort()
		return r.raw()
	}
	if len(p.Thinking.Modes) == 0 && r.root.has("reasoning_effort") {
		r.set(KindEffort, "reasoning_effort", nil) // the only other way to ask for thinking
	}
	r.fitChatEffort()
	return r.raw()
}
