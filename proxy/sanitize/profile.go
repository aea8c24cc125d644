package sanitize

import (
	"slices"
	"strings"
)

// Profile is what one model of one vendor takes. The zero value of a field asks
// for nothing.
type Profile struct {
	Vendor string
	// Model is the row of the table that was found, such as "opus 4.8"; empty for
	// a model that is not listed.
	Model    string
	Thinking Thinking
	Replay   Replay
	ToolIDs  ToolIDs
	Roles    Roles
	Sampling Sampling
	// ContextManagement says what becomes of the member of that name.
	ContextManagement Support
	// Betas are the values of the anthropic-beta header that the vendor takes; nil
	// for any.
	Betas []string
	// CacheMarkers is how many cache_control members a request may have; 0 for any
	// number.
	CacheMarkers int
	// CompletionTokens: chat completions refuse max_tokens; the limit of an answer is
	// called max_completion_tokens.
	CompletionTokens bool
}

// Mode is a way to ask for thinking: a value of thinking.type.
type Mode string

// The modes. BetweenTools is what some models have in place of Disabled.
const (
	Enabled      Mode = "enabled" // with budget_tokens; also called manual
	Adaptive     Mode = "adaptive"
	Disabled     Mode = "disabled"
	BetweenTools Mode = "between_tools"
)

// Switch is what a model does when a request says nothing of thinking.
type Switch string

// The switches. Unknown leaves alone what depends on it.
const (
	Unknown Switch = "unknown"
	On      Switch = "on"
	Off     Switch = "off"
)

// Thinking is how a model is asked to think.
type Thinking struct {
	// Modes are those that the model takes. Nil is not known: the client's stays.
	// Empty but not nil is none: the member "thinking" is removed.
	Modes   []Mode
	Default Switch
	// LoopStart: in manual mode the current tool loop must begin with thinking.
	LoopStart bool
	// NeedsBudget: budget_tokens is required in manual mode.
	NeedsBudget bool
	// Interleaved: manual mode thinks between tools only if a beta asks for it.
	Interleaved bool
	// Efforts are the levels of effort that the model takes, in ascending order; nil
	// is not known: the client's stays. Empty but not nil is none: it is removed.
	Efforts []string
	// NoEffortOff: an effort beside disabled thinking is refused.
	NoEffortOff bool
	// NoEffortTools: beside tools the model takes no effort but "none", and thinks
	// by default, so that it has to be told.
	NoEffortTools bool
}

// Adapts reports whether the model is known to choose its own budget, by an effort.
func (t Thinking) Adapts() bool { return slices.Contains(t.Modes, Adaptive) }

// takes says whether a mode is accepted; unknown modes of models that are not
// listed count as accepted.
func (t Thinking) takes(m Mode) bool { return t.Modes == nil || slices.Contains(t.Modes, m) }

// Need says whether reasoning goes back to the vendor.
type Need string

// The needs. The placeholder of Required and Always is left out while thinking
// is off.
const (
	Forbidden Need = "forbidden" // reasoning is removed
	Optional  Need = "optional"
	Required  Need = "required" // on assistant messages that call tools
	Always    Need = "always"   // on every assistant message of a conversation with tools
)

// Fields of a chat message that carry reasoning.
const (
	reasoningContent = "reasoning_content"
	extraContent     = "extra_content" // also a member of a call
)

var reasoningFields = []string{reasoningContent, "reasoning", "reasoning_details", "thinking_blocks", extraContent}

// Replay is how reasoning goes back.
type Replay struct {
	Reasoning Need
	// Fields are the members of a chat message that may carry it; nil for any.
	Fields []string
	// Field is where the placeholder goes in a chat message.
	Field string
	// Placeholder is the text that stands for reasoning that is missing.
	Placeholder string
	// Signed: the vendor verifies signatures, so blocks must have one.
	Signed bool
	// Redacted blocks are taken.
	Redacted bool
	// First: in an assistant message that has thinking the first block must be,
	// unless thinking is adaptive.
	First bool
	// StrictOff: no thinking may stand anywhere while thinking is off.
	StrictOff bool
}

// ToolIDs are the ids of tool calls that a vendor takes. In the messages dialect
// they are of A-Z a-z 0-9 _ - unless Recurring.
type ToolIDs struct {
	Alphanumeric bool `yaml:"alphanumeric"` // nothing but letters and digits
	Length       int  `yaml:"length"`       // exact, in bytes; 0: up to Max
	Max          int  `yaml:"max"`          // 0: any
	// Recurring: the vendor's own ids come again in later turns and may hold any
	// character. They are unique within a message only.
	Recurring bool `yaml:"recurring"`
}

// Roles are what a vendor allows beyond user and assistant.
type Roles struct {
	// SystemInside: a system message may stand anywhere among the messages, else
	// only before all others.
	SystemInside bool
	// Developer: the chat role of that name is known.
	Developer bool
	// Strict: a user speaks only after the assistant, and first of all.
	Strict bool
}

// Sampling says when temperature, top_p and top_k may differ from their defaults.
type Sampling string

// The kinds of sampling.
const (
	SamplingFree  Sampling = "free"
	SamplingFixed Sampling = "fixed"    // never
	SamplingPlain Sampling = "thinking" // not while thinking
	SamplingIdle  Sampling = "effort"   // not beside an effort, unless that is "none"
)

// Support says how a vendor takes something that is not everybody's.
type Support string

// The kinds of support.
const (
	Passed   Support = "passed" // it is sent as it is
	Beta     Support = "beta"   // it is sent with the beta that it needs
	Rejected Support = "rejected"
)

// For is the profile of a vendor's model, by the name that the vendor knows it
// by. A vendor that is not in the table is "generic".
func For(vendor, model string) Profile {
	m := nameOf(strings.ToLower(model))
	p := base(vendor)
	for _, row := range slices.Concat(rows[p.Vendor], openWeights) {
		if name, ok := row.names(m); ok {
			p.Model = name
			row.set(&p)
			break
		}
	}
	return p
}
