package sanitize

import (
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// Profile is what one model of one vendor accepts. The zero value of a field demands nothing. As YAML it has the words
// of Overrides.
type Profile ProfileOf[bool, int, string, ToolIDs]

// ProfileOf has the fields of Profile and Overrides, which differ in the types of their flags, numbers, texts and ToolIDs.
type ProfileOf[B, N, S, I any] struct {
	Vendor string `yaml:"-"`
	// Model is the matching row of the table, such as "opus 4.8"; empty for a model that is not
	// listed.
	Model    string         `yaml:"-"`
	Thinking ThinkingOf[B]  `yaml:"thinking"`
	Replay   ReplayOf[B, S] `yaml:"reasoning"`
	ToolIDs  I              `yaml:"tool_ids"`
	Roles    RolesOf[B]     `yaml:"roles"`
	Sampling Sampling       `yaml:"sampling"`
	// ContextManagement says what is done with the member of that name.
	ContextManagement Support `yaml:"context_management"`
	// Betas are the accepted values of the anthropic-beta header; nil for any.
	Betas []string `yaml:"betas,flow"`
	// CacheMarkers bounds the cache_control members in a request; 0 for no bound.
	CacheMarkers N `yaml:"cache_markers"`
	// MarksCache: nothing is cached unasked, so a request without markers gets some, see markPrefixes.
	MarksCache B `yaml:"marks_cache"`
	// CompletionTokens: chat completions refuse max_tokens and have max_completion_tokens instead.
	CompletionTokens B `yaml:"completion_tokens"`
	// Schemas: an answer is held to a JSON Schema by output_config.format.
	Schemas B `yaml:"json_schema"`
	// ToolSchemas is what is taken of the schemas of tools; empty for any.
	ToolSchemas SchemaForm `yaml:"tool_schemas"`
	// ToolNames is the greatest length of a tool's name, in bytes, which has no other characters than A-Z a-z 0-9 _ -;
	// 0: any name.
	ToolNames N `yaml:"tool_names"`
	// VendorTools are the tools with types of Anthropic's that are taken; empty for all.
	VendorTools VendorTools `yaml:"vendor_tools"`
	// ChoiceWords: in chat completions tool_choice is a word.
	ChoiceWords B `yaml:"choice_words"`
	// TextOnly: what a user says is sent as one text where the client has no choice but parts, since
	// not all of the vendor's models or servers take parts.
	TextOnly B `yaml:"text_only"`
	// NoImages: the vendor's models take none, and refuse a request with one or do not look at it.
	NoImages B `yaml:"no_images"`
	// NoContent are the kinds of content that are refused, see wire.ContentKind. A kind without a slash includes all
	// sources and tools.
	NoContent []string `yaml:"no_content,flow"`
	// Carried are the kinds of content that the vendor's dialect has; nil for any.
	Carried []string `yaml:"-"`
	// ClientHeaders: the first line of the system prompt may be Claude Code's billing header.
	ClientHeaders B `yaml:"client_headers"`
}

// The parts of a profile. The overrides are what a configuration changes of them: nil or empty for nothing.
type (
	// Thinking are the settings of a model's thinking.
	Thinking = ThinkingOf[bool]
	// ThinkingOverrides change a Thinking.
	ThinkingOverrides = ThinkingOf[*bool]
	// Replay are the settings for sending reasoning back.
	Replay = ReplayOf[bool, string]
	// ReplayOverrides change a Replay.
	ReplayOverrides = ReplayOf[*bool, *string]
	// Roles are the roles that a model knows.
	Roles = RolesOf[bool]
	// RolesOverrides change Roles.
	RolesOverrides = RolesOf[*bool]
)

// Accepts reports whether content of a kind is sent unchanged. All other content is replaced by wire.StandIn.
func (p *Profile) Accepts(kind string) bool {
	base, _, _ := strings.Cut(kind, "/")
	return !(p.NoImages && base == wire.ImageContent) && (p.Carried == nil || slices.Contains(p.Carried, kind)) &&
		!slices.Contains(p.NoContent, kind) && !slices.Contains(p.NoContent, base)
}

// Mode is a way to ask for thinking, a value of thinking.type.
type Mode string

// BetweenTools is what some models have in place of Disabled.
const (
	Enabled      Mode = "enabled" // with budget_tokens; also called manual
	Adaptive     Mode = "adaptive"
	Disabled     Mode = "disabled"
	BetweenTools Mode = "between_tools"
)

// Switch is what a model does if a request says nothing about thinking.
type Switch string

// With Unknown, whatever depends on it is left alone.
const (
	Unknown Switch = "unknown"
	On      Switch = "on"
	Off     Switch = "off"
)

// ThinkingOf are the settings of a request for thinking.
type ThinkingOf[B any] struct {
	// Modes are the accepted modes. nil means unknown: the client's mode stays. Empty but not nil
	// means none: the member "thinking" is removed.
	Modes   []Mode `yaml:"modes,flow"`
	Default Switch `yaml:"default"`
	// LoopStart: in manual mode the current tool loop must begin with thinking.
	LoopStart B `yaml:"loop_start"`
	// NeedsBudget: budget_tokens is required in manual mode.
	NeedsBudget B `yaml:"needs_budget"`
	// Interleaved: manual mode thinks between tools only if a beta asks for it.
	Interleaved B `yaml:"interleaved"`
	// Efforts are the accepted levels of effort, in ascending order. nil means unknown: the
	// client's level stays. Empty but not nil means none: it is removed.
	Efforts []string `yaml:"efforts,flow"`
	// NoEffortOff: an effort together with disabled thinking is refused.
	NoEffortOff B `yaml:"no_effort_off"`
	// NoEffortTools: with tools the model accepts no effort but "none"; since it thinks by default,
	// that has to be sent.
	NoEffortTools B `yaml:"no_effort_tools"`
	// ByEffort: an effort is the only way to ask for thinking, so that it says what the client's mode says.
	ByEffort B `yaml:"-"`
}

// Adapts reports whether the model is known to choose its budget itself, by an effort.
func (t ThinkingOf[B]) Adapts() bool { return slices.Contains(t.Modes, Adaptive) }

// accepts reports whether a mode is accepted. Models without known modes accept any.
func (t ThinkingOf[B]) accepts(m Mode) bool { return t.Modes == nil || slices.Contains(t.Modes, m) }

// Need says whether reasoning is sent back to the vendor.
type Need string

// The placeholders of Required and Always are left out while thinking is off.
const (
	Forbidden Need = "forbidden" // reasoning is removed
	Optional  Need = "optional"
	Required  Need = "required" // on assistant messages that call tools
	Always    Need = "always"   // on every assistant message of a conversation with tools
)

// Members of a chat message that carry reasoning.
const (
	reasoningContent = "reasoning_content"
	extraContent     = "extra_content" // also a member of a call
)

var reasoningFields = []string{reasoningContent, "reasoning", "reasoning_details", "thinking_blocks", extraContent}

// ReplayOf are the settings for sending reasoning back.
type ReplayOf[B, S any] struct {
	Reasoning Need `yaml:"need"`
	// Fields are the members of a chat message that may carry it; nil for any.
	Fields []string `yaml:"fields,flow"`
	// Field is the member for the placeholder in a chat message.
	Field string `yaml:"placeholder_field"`
	// Placeholder is the text in place of missing reasoning.
	Placeholder S `yaml:"placeholder"`
	// Split: without reasoning_split chat completions have the reasoning in their text.
	Split B `yaml:"split"`
	// Missed: the vendor has refused a request for lack of it, so the model thinks unless a request
	// says otherwise, whatever else is known of it.
	Missed B `yaml:"-"`
	// Signed: the vendor verifies signatures, so blocks must have one.
	Signed B `yaml:"signed"`
	// Bound: a block is bound to all that stands before it, and refused when that has changed.
	Bound B `yaml:"bound"`
	// OwnModel and OwnBackend: thinking of another model, or of another backend, of the same vendor is refused.
	OwnModel   B `yaml:"own_model"`
	OwnBackend B `yaml:"own_backend"`
	// Paired: an item of Responses that comes without its reasoning is refused under its id.
	Paired B `yaml:"paired"`
	// Redacted: redacted thinking blocks are accepted.
	Redacted B `yaml:"redacted"`
	// First: an assistant message with thinking must begin with it, unless thinking is adaptive.
	First B `yaml:"first"`
	// StrictOff: no thinking is accepted anywhere while thinking is off.
	StrictOff B `yaml:"strict_off"`
}

// ToolIDs are the vendor's rules for ids of tool calls. In the messages dialect they consist of A-Z
// a-z 0-9 _
//   - unless Recurring.
type ToolIDs struct {
	Alphanumeric bool `yaml:"alphanumeric"` // nothing but letters and digits
	Length       int  `yaml:"length"`       // exact, in bytes; 0: up to Max
	Max          int  `yaml:"max"`          // 0: any
	// Recurring: the vendor's own ids recur in later turns and may have any character. They are
	// unique within a message only.
	Recurring bool `yaml:"recurring"`
}

// RolesOf are what a vendor accepts beyond user and assistant.
type RolesOf[B any] struct {
	// SystemInside: a system message may be anywhere among the messages; otherwise only before all
	// others.
	SystemInside B `yaml:"system_inside"`
	// SystemAfterUser: inside, a system message follows the user's, and is the last one or precedes an answer.
	SystemAfterUser B `yaml:"system_after_user"`
	// NoSystem: chat completions accept no system message at all.
	NoSystem B `yaml:"no_system"`
	// Developer: the chat role of that name is accepted.
	Developer B `yaml:"developer"`
	// Strict: user and assistant alternate, and the user begins.
	Strict B `yaml:"strict"`
	// NoPrefill: the model does not continue an answer at the end of the messages.
	NoPrefill B `yaml:"no_prefill"`
}

// Sampling says when temperature, top_p and top_k may differ from their defaults.
type Sampling string

// The kinds of sampling.
const (
	SamplingFree  Sampling = "free"
	SamplingFixed Sampling = "fixed"    // never
	SamplingPlain Sampling = "thinking" // not while thinking
	SamplingIdle  Sampling = "effort"   // not beside an effort, unless that is "none"
	SamplingOne   Sampling = "one"      // not while thinking; otherwise either temperature or top_p
	SamplingNone  Sampling = "none"     // never, nor may the defaults be sent
)

// Support says how a vendor handles a member that only some vendors know.
type Support string

// The kinds of support.
const (
	Passed   Support = "passed" // it is sent unchanged
	Beta     Support = "beta"   // it is sent with the beta that it needs
	Rejected Support = "rejected"
)

// OfInteractions is the profile of a model of Google's that speaks Interactions, for requests that are held in the messages
// dialect. Thoughts go back as they came. A level of thinking is all there is, and it cannot be turned off; low, medium and
// high are taken by all current models (https://ai.google.dev/gemini-api/docs/interactions/thinking). The schemas of
// tools are JSON Schema.
func (p Profile) OfInteractions() Profile {
	thinks := p.Thinking.Efforts == nil || len(p.Thinking.Efforts) > 0
	p = p.OfResponses()
	if p.Replay.Reasoning, p.ToolSchemas = Optional, ""; thinks {
		p.Thinking.Efforts = []string{"low", "medium", "high"}
	}
	return p
}

// OfResponses is the profile of a model of a vendor that speaks Responses, for requests that are held in the messages
// dialect: reasoning goes back as it came, or not at all; Always is for vendors that want it back, be it empty.
func (p Profile) OfResponses() Profile {
	need := Optional
	if !p.Replay.Signed && (p.Replay.Reasoning == Required || p.Replay.Reasoning == Always) {
		need = Always // DeepSeek
	}
	p.Replay = Replay{Reasoning: need, Signed: true}
	p.Thinking = Thinking{Default: Unknown, Efforts: p.Thinking.Efforts, ByEffort: true}
	if p.Thinking.Efforts != nil && len(p.Thinking.Efforts) == 0 {
		p.Thinking.Modes = []Mode{} // the model does not think
	}
	p.Schemas, p.CompletionTokens, p.TextOnly = true, false, false
	// Of the rules about content in the messages dialect, only the one about documents applies to items.
	documents := slices.Contains(p.NoContent, wire.DocumentContent)
	if p.NoContent = nil; documents {
		p.NoContent = []string{wire.DocumentContent}
	}
	p.Carried = []string{wire.ImageContent, wire.ImageContent + "/url", wire.DocumentContent,
		wire.DocumentContent + "/url", wire.DocumentText}
	return p
}
