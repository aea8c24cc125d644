package upstreamtest

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Vendor is the vendor with the rules that a Server follows.
type Vendor string

const (
	// Anthropic serves the messages dialect and signs thinking.
	Anthropic Vendor = "anthropic"
	// Kimi serves both dialects. Its signatures are random and never read; a turn
	// that calls tools must come back with its reasoning, if only as one space. Its
	// tool ids recur in every answer.
	Kimi Vendor = "kimi"
	// DeepSeek serves both dialects, and Responses. It signs nothing and wants the
	// reasoning of every answer back once tools were called.
	DeepSeek Vendor = "deepseek"
	// GLM serves both dialects. It signs thinking and never reads a signature back,
	// knows no adaptive thinking, and says of a wrong parameter only that it is wrong.
	GLM Vendor = "glm"
	// Chat is any vendor of chat completions only; Config.Chat says which.
	Chat Vendor = "chat"
	// OpenAI serves Responses, by Config.Responses, and chat completions like Chat with
	// ChatRules.OpenAI.
	OpenAI Vendor = "openai"
	// Google serves Interactions, signs what its models think and is always asked with the whole conversation.
	Google Vendor = "google"
)

// Config says which vendor a Server is. The zero value is Anthropic with its
// usual rules.
type Config struct {
	// Vendor is the vendor with the rules that count; empty is Anthropic.
	Vendor Vendor
	// Name is the backend that signatures are bound to; empty is the vendor's. Two
	// servers of one name accept each other's signatures, as two machines of one
	// vendor do.
	Name string
	// Models are the names served: any other is refused, and GET /v1/models lists
	// them. Empty is any name. DeepSeek takes claude-* as well.
	Models []string
	// APIKey is what a caller must present, as x-api-key or as bearer token; empty lets
	// every caller in.
	APIKey string

	Thinking ThinkingRules // of Anthropic, except where said
	Chat     ChatRules     // of Chat and OpenAI
	// Responses are those of OpenAI.
	Responses ResponsesRules
	Stream    StreamOptions

	// PromptCache keeps beginnings of prompts for five minutes, and tells in the answers what was read of them. The time
	// is Clock's, or the real one.
	PromptCache bool
	Clock       func() time.Time

	// Answer, if set, answers the accepted requests that nothing queued is left
	// for; nil from it is the default answer.
	Answer func(*Request) *Answer
	// Fault, if set, may fail a request before any rule is looked at, once the
	// queued faults are used up; nil from it lets the request through.
	Fault func(*Request) *Fault
	// Wrap, if set, makes of a refusal what a gateway in between would make of it:
	// another status, another body.
	Wrap func(status int, body []byte) (int, []byte)
	// Observe, if set, is told of every request once it is judged. It is called
	// from the requests' goroutines, one call at a time.
	Observe func(Request)
	// Remember bounds the requests that Requests returns and, ten times of it, the
	// answers that the rule on the latest turn knows. 0 is 1000. The bodies of the
	// requests take at most 64 MiB.
	Remember int
}

// ThinkingRules are what differs between the models, accounts and platforms of
// Anthropic.
type ThinkingRules struct {
	// Generation says which modes of thinking the model has.
	Generation Generation
	// PrefixCheck binds signatures to everything before them: system, tools and
	// earlier messages. Without it that is so only for a request that sets
	// thinking.block_binding.prefix_mismatch_behavior.
	PrefixCheck bool
	// StrictOff refuses any thinking block while thinking is off, as one gateway
	// does. Otherwise only a trailing assistant message may hold none.
	StrictOff bool
	// RejectOtherModels refuses blocks that another model of this vendor signed.
	// Otherwise they are dropped silently. Another vendor's are always refused.
	RejectOtherModels bool
	// KeepAll keeps the thinking of older turns in the context; without it they
	// are not counted as input.
	KeepAll bool
	// Omit leaves thinking out of the answers: an empty text with a signature.
	// thinking.display in a request overrides it.
	Omit bool
	// SkipSignatures leaves out the checks of signatures and of the latest turn,
	// for recorded requests with signatures that cannot be made again.
	SkipSignatures bool
	// Bedrock answers in the words of that platform where they differ.
	Bedrock bool
	// NoContextManagement refuses context_management even with its beta.
	NoContextManagement bool
	// Betas are the known values of the anthropic-beta header; nil is KnownBetas.
	Betas []string
	// Window is how many input tokens are taken, by the estimate that count_tokens
	// answers; 0 is any number.
	Window int
	// OnlyEnabled, of Kimi, refuses every thinking.type but "enabled".
	OnlyEnabled bool
}

// ChatRules are what differs between vendors of chat completions.
type ChatRules struct {
	// ToolIDs are the ids of calls that are made and taken. With MistralIDs, roles
	// must follow each other as Mistral wants it, too.
	ToolIDs ToolIDs
	// Replay says what becomes of reasoning_content in the history.
	Replay Replay
	// ReasoningField is where answers hold their reasoning; empty is
	// "reasoning_content".
	ReasoningField string
	// ThoughtSignatures gives the first call of an answer an
	// extra_content.google.thought_signature and wants it back.
	ThoughtSignatures bool
	// KnownArguments refuses members of a request that OpenAI does not know.
	KnownArguments bool
	// OpenAI refuses what OpenAI refuses of a model, by its name: an effort where
	// there is none, max_tokens and a temperature where the model thinks, an effort
	// beside tools. KnownArguments is part of it.
	OpenAI bool
	// NoParameters are members that are refused for any model, in the words of
	// Config.Vendor Chat: "Unsupported parameter: 'x' is not supported with this model."
	NoParameters []string
	// Schemas is what is taken of the schemas of tools.
	Schemas Schemas
	// TextOnly refuses messages of the user with a content that is not one text.
	TextOnly bool
	// NoImages refuses images, in OpenAI's words. DeepSeek always does, in its own.
	NoImages bool
}

// ResponsesRules are what differs between platforms, and ages, of OpenAI's Responses.
type ResponsesRules struct {
	// Azure refuses in the words of that platform: no code for encrypted content, status
	// 400 for items that are not found.
	Azure bool
	// OldWording names encrypted content by its ends instead of by its item.
	OldWording bool
	// InStream refuses encrypted content of streams by events, with status 200.
	InStream bool
	// FlatErrors has the members of an error event beside its type, as OpenAI documents
	// it; otherwise they are in an "error" of it, as users have seen it.
	FlatErrors bool
}

// ToolIDs is a style of ids for calls of tools.
type ToolIDs int

// The styles.
const (
	OpenAIIDs  ToolIDs = iota // call_ and 24 letters and digits; at most 40 characters are taken
	MistralIDs                // exactly 9 letters and digits
	AnyIDs                    // like OpenAIIDs, of any length
)

// Replay is what a vendor does with reasoning_content in the history.
type Replay int

// What there is.
const (
	ReplayIgnored  Replay = iota
	ReplayGroq            // refused with 400
	ReplayCerebras        // refused with 400 and a body with its message on top
	ReplayMistral         // refused with 422 and a list of details
)

// StreamOptions say in which pieces an answer comes.
type StreamOptions struct {
	// Chunk is how many characters a delta has; 0 is 12.
	Chunk int
	// Split cuts what is written into pieces of so many bytes, each flushed; 0
	// writes one event at a time.
	Split int
	// Pause, if set, is called before each event with its number from 0, and
	// before a JSON answer with 0. It should return when ctx is done.
	Pause Pause
}

// KnownBetas are the values of the anthropic-beta header that are taken unless
// ThinkingRules.Betas says otherwise.
func KnownBetas() []string {
	return []string{
		betaContext, betaInterleaved, betaBinding, betaMCP,
		"claude-code-20250219", "code-execution-2025-05-22", "context-1m-2025-08-07", "effort-2025-11-24",
		"extended-cache-ttl-2025-04-11",
		"files-api-2025-04-14", "fine-grained-tool-streaming-2025-05-14", "mid-conversation-system-2026-04-07",
		"oauth-2025-04-20",
		"output-128k-2025-02-19", "pdfs-2024-09-25", "prompt-caching-2024-07-31",
		"prompt-caching-scope-2026-01-05", "structured-outputs-2025-11-13",
		"thinking-token-count-2026-05-13",
		"token-counting-2024-11-01",
	}
}

// Betas that rules speak of.
const (
	betaContext     = "context-management-2025-06-27"
	betaInterleaved = "interleaved-thinking-2025-05-14"
	betaBinding     = "thinking-binding-controls-2026-08-01"
	betaMCP         = "mcp-client-2025-04-04"
)

// Generation is which modes of thinking a model has.
type Generation int

// The generations.
const (
	ByName         Generation = iota // what GenerationOf says of the request's model
	Manual                           // 4.5 and older: enabled only
	Both                             // Opus and Sonnet 4.6
	Adaptive                         // Opus 4.7 and 4.8: off unless asked for, no enabled
	AdaptiveOn                       // Opus 5, Sonnet 5: on unless disabled, no enabled
	BetweenTools                     // Sonnet 5.5: like AdaptiveOn, with between_tools instead of disabled
	AlwaysOn                         // Fable, Mythos 5, Opus 5.5: neither enabled nor disabled
	BothWithoutOff                   // Mythos Preview: no disabled
)

// modes are the values of thinking.type that a generation takes.
type modes struct {
	types       []string
	on          bool // thinks unless told otherwise
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

func (m modes) takes(kind string) bool { return slices.Contains(m.types, kind) }

// GenerationOf guesses a model's generation from its name. One that it has never
// heard of is Manual, like every model that is no newer than 4.5.
func GenerationOf(model string) Generation {
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

// name is the backend's.
func (c Config) name() string { return cmp.Or(c.Name, string(c.vendor())) }

func (c Config) vendor() Vendor { return cmp.Or(c.Vendor, Anthropic) }

func (c Config) remember() int { return cmp.Or(c.Remember, 1000) }

// serves says whether a model of this name is to be had.
func (c Config) serves(model string) bool {
	return len(c.Models) == 0 || slices.Contains(c.Models, model) ||
		c.vendor() == DeepSeek && strings.HasPrefix(model, "claude-")
}
