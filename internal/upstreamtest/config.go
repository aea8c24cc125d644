package upstreamtest

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Vendor selects the rules that a Server applies.
type Vendor string

const (
	// Anthropic serves the messages dialect and signs thinking.
	Anthropic Vendor = "anthropic"
	// Kimi serves both dialects. Its signatures are random and never verified. A turn with calls must come back with its
	// reasoning, which may be one space. Its tool ids recur in every answer.
	Kimi Vendor = "kimi"
	// DeepSeek serves both dialects and Responses. It signs nothing. Once tools were called, it requires the reasoning
	// of every answer.
	DeepSeek Vendor = "deepseek"
	// GLM serves both dialects. It signs thinking and never verifies a signature. It has no adaptive thinking. It does
	// not name a wrong parameter.
	GLM Vendor = "glm"
	// Chat is any vendor that only serves chat completions. Config.Chat has its rules.
	Chat Vendor = "chat"
	// OpenAI serves Responses by the rules of Config.Responses, and chat completions like Chat with ChatRules.OpenAI.
	OpenAI Vendor = "openai"
	// Google serves Interactions and signs thinking. Every request contains the whole conversation.
	Google Vendor = "google"
)

// Config configures a Server. The zero value is Anthropic with its default rules.
type Config struct {
	// Vendor selects the rules. Empty is Anthropic.
	Vendor Vendor
	// Name is the backend that signatures are bound to. Empty is the vendor's name. Two servers with the same name
	// accept each other's signatures, like two machines of one vendor.
	Name string
	// Models are the served names. Requests for other models are refused, and GET /v1/models lists these. Empty serves
	// every name. DeepSeek also serves claude-*.
	Models []string
	// APIKey is the key that a caller must send, as x-api-key or bearer token. Empty disables the check.
	APIKey string

	Thinking ThinkingRules // of Anthropic, unless noted
	Chat     ChatRules     // of Chat and OpenAI
	// Responses are the rules of OpenAI's Responses.
	Responses ResponsesRules
	Stream    StreamOptions

	// PromptCache keeps prefixes of prompts for five minutes and reports cache reads in the answers. Clock is the time;
	// nil is the real time.
	PromptCache bool
	Clock       func() time.Time

	// Answer, if set, answers accepted requests once the queue is empty. If it returns nil, the default answer follows.
	Answer func(*Request) *Answer
	// Fault, if set, may fail a request before any rule is applied, once the queued faults are used up. Nil lets the
	// request through.
	Fault func(*Request) *Fault
	// Wrap, if set, changes the status and the body of a refusal, as a gateway between client and vendor may.
	Wrap func(status int, body []byte) (int, []byte)
	// Observe, if set, receives every request after its verdict. Calls come from the requests' goroutines, one at a
	// time.
	Observe func(Request)
	// Remember is the maximum number of requests that Requests returns. The rule on the latest turn remembers ten times
	// as many answers. 0 is 1000. The bodies take at most 64 MiB.
	Remember int
}

// ThinkingRules are the differences between the models, accounts and platforms of Anthropic.
type ThinkingRules struct {
	// Generation selects the modes of thinking.
	Generation Generation
	// PrefixCheck binds signatures to system, tools and all earlier messages. Without it, only requests with
	// thinking.block_binding.prefix_mismatch_behavior are checked.
	PrefixCheck bool
	// RejectOtherModels refuses blocks that another model of this vendor signed. Otherwise they are dropped silently.
	// Blocks of another vendor are always refused.
	RejectOtherModels bool
	// KeepAll counts the thinking of older turns as input.
	KeepAll bool
	// Omit sends thinking as an empty text with a signature. thinking.display in a request overrides it.
	Omit bool
	// SkipSignatures disables the checks of signatures and of the latest turn, for recorded requests.
	SkipSignatures bool
	// Bedrock refuses in the words of that platform.
	Bedrock bool
	// NoContextManagement refuses context_management even with its beta.
	NoContextManagement bool
	// Betas are the known values of the anthropic-beta header. Nil is KnownBetas.
	Betas []string
	// Window is the maximum number of input tokens, by the estimate of count_tokens. 0 is unlimited.
	Window int
	// OnlyEnabled makes Kimi refuse every thinking.type except "enabled".
	OnlyEnabled bool
}

// ChatRules are the differences between vendors of chat completions.
type ChatRules struct {
	// ToolIDs is the form of call ids that the vendor makes and accepts. MistralIDs also enforce Mistral's order of
	// roles.
	ToolIDs ToolIDs
	// Replay is the vendor's treatment of reasoning_content in the history.
	Replay Replay
	// ReasoningField is the name of the reasoning in answers. Empty is "reasoning_content".
	ReasoningField string
	// ThoughtSignatures adds extra_content.google.thought_signature to the first call of an answer and requires it back.
	ThoughtSignatures bool
	// KnownArguments refuses members of a request that OpenAI does not know.
	KnownArguments bool
	// OpenAI refuses what OpenAI refuses for a model's name: an unsupported effort, max_tokens and a temperature while
	// the model thinks, and an effort next to tools. It includes KnownArguments.
	OpenAI bool
	// NoParameters are members that are refused for every model: "Unsupported parameter: 'x' is not supported with this
	// model."
	NoParameters []string
	// Schemas selects the rules for the schemas of tools.
	Schemas Schemas
	// TextOnly refuses a user message whose content is not a string.
	TextOnly bool
	// NoImages refuses images in OpenAI's words. DeepSeek always refuses them in its own words.
	NoImages bool
	// Template is the order of roles that the model's chat template requires.
	Template Template
}

// Template is an order of roles.
type Template string

// The orders of roles. A template that alternates also wants a system message first.
const (
	SystemFirst Template = "system-first" // Qwen
	Alternating Template = "alternating"  // Gemma
)

// ResponsesRules are the differences between platforms and versions of OpenAI's Responses.
type ResponsesRules struct {
	// Azure refuses in the words of that platform: without a code for encrypted content, and with status 400 for missing
	// items.
	Azure bool
	// OldWording quotes the ends of encrypted content instead of the item's id.
	OldWording bool
	// InStream refuses encrypted content of streams with events and status 200.
	InStream bool
	// FlatErrors writes the members of an error event next to its type, as OpenAI documents it. Otherwise they are in a
	// member "error", as users report it.
	FlatErrors bool
}

// ToolIDs is a form of call ids.
type ToolIDs int

// The forms of call ids.
const (
	OpenAIIDs  ToolIDs = iota // call_ and 24 letters and digits; at most 40 characters are accepted
	MistralIDs                // exactly 9 letters and digits
)

// Replay is a vendor's treatment of reasoning_content in the history.
type Replay int

// The treatments of reasoning_content.
const (
	ReplayIgnored  Replay = iota
	ReplayGroq            // refused with 400
	ReplayCerebras        // refused with 400 and a message at the top level of the body
	ReplayMistral         // refused with 422 and a list of details
)

// StreamOptions control how an answer is split.
type StreamOptions struct {
	// Chunk is the number of characters per delta. 0 is 12.
	Chunk int
	// Split is the number of bytes per write, each flushed. 0 writes one event at a time.
	Split int
	// Pause, if set, runs before each event with its number from 0, and before a JSON answer with 0. It should return
	// when ctx is done.
	Pause Pause
}

// KnownBetas returns the values of the anthropic-beta header that are accepted by default.
func KnownBetas() []string {
	return []string{
		betaContext, betaInterleaved, betaBinding, betaMCP, "claude-code-20250219", "code-execution-2025-05-22",
		"context-1m-2025-08-07", "effort-2025-11-24", "extended-cache-ttl-2025-04-11", "files-api-2025-04-14",
		"fine-grained-tool-streaming-2025-05-14", "mid-conversation-system-2026-04-07", "oauth-2025-04-20",
		"output-128k-2025-02-19", "pdfs-2024-09-25", "prompt-caching-2024-07-31", "prompt-caching-scope-2026-01-05",
		"structured-outputs-2025-11-13", "thinking-token-count-2026-05-13", "token-counting-2024-11-01",
	}
}

// Betas that rules refer to.
const (
	betaContext     = "context-management-2025-06-27"
	betaInterleaved = "interleaved-thinking-2025-05-14"
	betaBinding     = "thinking-binding-controls-2026-08-01"
	betaMCP         = "mcp-client-2025-04-04"
)

// Generation is a set of modes of thinking.
type Generation int

// The generations of Anthropic's models.
const (
	ByName         Generation = iota // as generationOf returns for the request's model
	Manual                           // 4.5 and older: only enabled
	Both                             // Opus and Sonnet 4.6
	Adaptive                         // Opus 4.7 and 4.8: off by default, not enabled
	AdaptiveOn                       // Opus 5, Sonnet 5: on by default, not enabled
	BetweenTools                     // Sonnet 5.5: like AdaptiveOn, with between_tools instead of disabled
	AlwaysOn                         // Fable, Mythos 5, Opus 5.5: neither enabled nor disabled
	BothWithoutOff                   // Mythos Preview: not disabled
)

// modes are the values of thinking.type that a generation accepts.
type modes struct {
	types       []string
	on          bool // thinks by default
	effortBound bool // no effort above high while disabled
}

var generations = map[Generation]modes{
	Manual:         {types: []string{"enabled", "disabled"}},
	Both:           {types: []string{"enabled", "adaptive", "disabled"}},
	Adaptive:       {types: []string{"adaptive", "disabled"}},
	AdaptiveOn:     {types: []string{"adaptive", "disabled"}, on: true, effortBound: true},
	BetweenTools:   {types: []string{"adaptive", "between_tools"}, on: true},
	AlwaysOn:       {types: []string{"adaptive"}, on: true},
	BothWithoutOff: {types: []string{"enabled", "adaptive"}, on: true},
}

func (m modes) allows(kind string) bool { return slices.Contains(m.types, kind) }

// generationOf guesses a model's generation from its name. Unknown models are Manual, like all models up to 4.5.
func generationOf(model string) Generation {
	for _, g := range []struct {
		part string
		is   Generation
	}{
		{"mythos-preview", BothWithoutOff}, {"mythos", AlwaysOn}, {"fable", AlwaysOn},
		{"opus-5-5", AlwaysOn}, {"sonnet-5-5", BetweenTools}, {"haiku-5-5", AdaptiveOn},
		{"opus-4-7", Adaptive}, {"opus-4-8", Adaptive}, {"opus-4-6", Both}, {"sonnet-4-6", Both},
		{"opus-5", AdaptiveOn}, {"sonnet-5", AdaptiveOn},
	} {
		if strings.Contains(model, g.part) {
			return g.is
		}
	}
	return Manual
}

// name returns the name of the backend.
func (c Config) name() string { return cmp.Or(c.Name, string(c.vendor())) }

func (c Config) vendor() Vendor { return cmp.Or(c.Vendor, Anthropic) }

func (c Config) remember() int { return cmp.Or(c.Remember, 1000) }

// serves reports whether the model is served.
func (c Config) serves(model string) bool {
	return len(c.Models) == 0 || slices.Contains(c.Models, model) ||
		c.vendor() == DeepSeek && strings.HasPrefix(model, "claude-")
}
