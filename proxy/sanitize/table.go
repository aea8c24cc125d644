package sanitize

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mneme/proxy/wire"
)

// sentinel is what Gemini takes in place of a signature it never gave.
const sentinel = "skip_thought_signature_validator"

// base is what holds for every model of a vendor.
func base(vendor string) Profile {
	p := Profile{
		Vendor:   vendor,
		Thinking: Thinking{Default: Unknown},
		Replay:   Replay{Reasoning: Optional, Redacted: true},
		ToolIDs:  ToolIDs{Max: 40},
		Roles:    Roles{SystemInside: true, Developer: true},
		Sampling: SamplingFree, ContextManagement: Passed, CacheMarkers: 4,
		TextOnly: !slices.Contains(takesParts, vendor),
	}
	switch vendor {
	case "anthropic", "bedrock":
		p.Thinking.LoopStart, p.Thinking.NeedsBudget, p.MarksCache = true, true, true
		p.Replay.Signed = true
		p.ToolIDs.Max, p.Sampling = 64, SamplingPlain
		p.ContextManagement, p.ToolSchemas = Beta, SchemaTop
		if vendor == "bedrock" {
			p.ContextManagement, p.Betas = Rejected, bedrockBetas
			p.Roles.SystemInside = false // it comes with a beta
		}
	case "gemini":
		p.ToolSchemas = SchemaSubset
		p.Thinking.Modes, p.Thinking.Default = []Mode{Enabled, Disabled}, Off
		p.Replay = Replay{
			Reasoning: Required, Fields: []string{extraContent}, Field: extraContent, Placeholder: sentinel,
			Signed: true, StrictOff: true,
		}
	case "kimi":
		p.ToolSchemas = SchemaObject
		p.Thinking.Modes = []Mode{Enabled, Disabled}
		p.Replay.Reasoning, p.Replay.Field, p.Replay.Fields = Required, reasoningContent, []string{reasoningContent}
		p.ToolIDs, p.Roles.Developer = ToolIDs{Recurring: true}, false
	case "deepseek":
		p.ToolSchemas = SchemaObject
		p.Thinking.Modes, p.Thinking.NoEffortOff = []Mode{Enabled, Adaptive, Disabled}, true
		p.Replay = Replay{Reasoning: Always, Field: reasoningContent, Fields: []string{reasoningContent}}
		p.CacheMarkers, p.Roles.Developer, p.NoImages = 0, false, true
	case "glm":
		p.Thinking.Modes = []Mode{Enabled, Disabled}
		p.Replay.Fields, p.Roles.Developer = []string{reasoningContent}, false
	case "minimax":
		p.Replay.Fields, p.Roles.Developer = []string{reasoningContent, "reasoning_details"}, false
	case "openai", "azure", "groq", "cerebras", "mistral":
		p.Thinking.Modes, p.Replay = []Mode{}, Replay{Reasoning: Forbidden}
		p.CompletionTokens = vendor == "openai"
		if vendor == "openai" || vendor == "azure" {
			p.ToolSchemas = SchemaTop
		}
		if vendor == "mistral" {
			p.ToolIDs = ToolIDs{Alphanumeric: true, Length: 9}
			p.Roles = Roles{Strict: true}
		}
	case "qwen", "nvidia":
		p.Thinking.Modes = []Mode{Enabled, Disabled}
	default:
		if !slices.Contains(Vendors(), vendor) {
			p.Vendor = "generic"
		}
	}
	if p.Replay.Placeholder == "" {
		p.Replay.Placeholder = wire.LostThinking
	}
	return p
}

// takesParts are the vendors that take a list of texts for what a user says with every model.
var takesParts = []string{"anthropic", "azure", "bedrock", "gemini", "groq", "kimi", "mistral", "openai", "xai"}

// bedrockBetas are the values that Bedrock knows; any other is "invalid beta
// flag". Context management is not among them: it depends on the model there.
var bedrockBetas = []string{
	"computer-use-2024-10-22", "computer-use-2025-01-24", "computer-use-2025-11-24", "context-1m-2025-08-07",
	"dev-full-thinking-2025-05-14", "effort-2025-11-24", interleavedBeta, "output-128k-2025-02-19",
	"token-efficient-tools-2025-02-19", "tool-examples-2025-10-29", "tool-search-tool-2025-10-19",
}

// row is what differs for some models of a vendor: names says whether a model is
// one of them, and what it is called in the table.
type row struct {
	names func(modelName) (name string, ok bool)
	set   func(*Profile)
}

// modelName is the name of a model, in lower case.
type modelName struct {
	full string

	// Of a Claude model, "" and {0, 0} for any other.
	generation string // family and version
	family     string
	version    version
}

func nameOf(model string) modelName {
	m := modelName{full: model}
	if family, v, ok := generation(model); ok {
		m.generation, m.family, m.version = family+" "+v.String(), family, v
	}
	return m
}

// rows are tried in their order, the first that fits counts.
var rows = map[string][]row{
	"anthropic": claudeRows,
	"bedrock":   claudeRows,
	"kimi": {
		{containing("k2.7-code", "k2-7-code"), asked(On, Enabled)},
		{containing("kimi-k3"), asked(On, Enabled)},
		{containing("k2-thinking"), asked(On, Enabled)},
		{containing("k2.5", "k2.6", "k2-5", "k2-6"), asked(On, Enabled, Disabled)},
	},
	"deepseek": {{containing("deepseek-chat"), func(p *Profile) { p.Thinking.Default = Off }}},
	"glm": {
		{containing("glm-5.3"), func(p *Profile) {
			asked(On, Enabled)(p)
			p.Thinking.Efforts = []string{"low", "high", "max"}
		}},
		{glmSince47, asked(On, Enabled, Disabled)},
	},
	"minimax": {
		{containing("minimax-m2"), asked(On, Enabled)},
		{containing("minimax-m3"), asked(Unknown, Adaptive, Disabled)},
	},
	"gemini": {
		{containing("gemini-1", "gemini-2.0"), geminiUntil25()},
		{containing("gemini-2.5-flash"), geminiUntil25("none", "minimal", "low", "medium", "high")},
		{containing("gemini-2"), geminiUntil25("minimal", "low", "medium", "high")},
		{containing("gemini-3"), efforts("minimal", "low", "medium", "high")},
	},
	"openai": openAIRows,
	"azure":  openAIRows,
	"groq":   {{containing("qwen3", "qwen-3"), efforts("none", "default")}},
	"xai":    xaiRows,
}

func geminiUntil25(levels ...string) func(*Profile) {
	return func(p *Profile) {
		efforts(levels...)(p)
		p.Replay.Reasoning = Optional
	}
}

func asked(byDefault Switch, modes ...Mode) func(*Profile) {
	return func(p *Profile) { p.Thinking.Modes, p.Thinking.Default = modes, byDefault }
}

func containing(parts ...string) func(modelName) (string, bool) {
	return func(model modelName) (string, bool) {
		for _, part := range parts {
			if strings.Contains(model.full, part) {
				return parts[0], true
			}
		}
		return "", false
	}
}

var glmVersion = regexp.MustCompile(`glm-(\d+)(?:\.(\d+))?`)

func glmSince47(model modelName) (string, bool) {
	m := glmVersion.FindStringSubmatch(model.full)
	if m == nil {
		return "", false
	}
	return m[0], !earlier(version{number(m[1]), number(m[2])}, version{4, 7})
}

// claudeRows is the table of Claude's generations.
var claudeRows = []row{
	{claudes("fable 5", "mythos 5"), since47(On, Adaptive)},
	{claudes("fable 5.1", "mythos 5.1", "opus 5.5"), bound(since47(On, Adaptive))},
	{claudes("mythos preview"), func(p *Profile) {
		since47(On, Enabled, Adaptive)(p)
		p.Replay.First = true
	}},
	{claudes("opus 5", "sonnet 5"), since47(On, Adaptive, Disabled)},
	{claudes("sonnet 5.5"), bound(since47(On, Adaptive, BetweenTools))},
	{claudes("opus 4.7", "opus 4.8"), since47(Off, Adaptive, Disabled)},
	{claudes("opus 4.6", "sonnet 4.6"), func(p *Profile) {
		asked(Off, Enabled, Adaptive, Disabled)(p)
		p.Thinking.Interleaved, p.Replay.First, p.Schemas = true, true, true
	}},
	{claudes("opus 4.5"), until45},
	{claudesUntil45, func(p *Profile) {
		until45(p)
		p.Thinking.Efforts = []string{}
	}},
}

func since47(byDefault Switch, modes ...Mode) func(*Profile) {
	return func(p *Profile) {
		asked(byDefault, modes...)(p)
		p.Sampling, p.Schemas = SamplingFixed, true
	}
}

func bound(set func(*Profile)) func(*Profile) {
	return func(p *Profile) {
		set(p)
		p.Replay.Bound = true
	}
}

func until45(p *Profile) {
	asked(Off, Enabled, Disabled)(p)
	p.Thinking.Interleaved, p.Replay.First = true, true
	p.Schemas = strings.HasSuffix(p.Model, " 4.5")
}

func claudes(names ...string) func(modelName) (string, bool) {
	return func(m modelName) (string, bool) { return m.generation, slices.Contains(names, m.generation) }
}

func claudesUntil45(m modelName) (string, bool) {
	known := m.version != version{} && (m.family == "opus" || m.family == "sonnet" || m.family == "haiku")
	return m.generation, known && !earlier(version{4, 5}, m.version)
}

// version is a generation; {0, 0} is a preview or none.
type version struct{ major, minor int }

func (v version) String() string {
	switch {
	case v == version{}:
		return "preview"
	case v.minor == 0:
		return strconv.Itoa(v.major)
	}
	return strconv.Itoa(v.major) + "." + strconv.Itoa(v.minor)
}

func earlier(a, b version) bool {
	return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor)) < 0
}

var families = []string{"fable", "mythos", "opus", "sonnet", "haiku"}

// generation reads the name of a Claude model, whatever a platform puts around
// it: claude-opus-4-8, us.anthropic.claude-opus-4-8-20260101-v1:0,
// claude-3-7-sonnet@20250219, anthropic/claude-opus-4.8.
func generation(model string) (family string, v version, ok bool) {
	words := strings.FieldsFunc(model, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	at := slices.IndexFunc(words, func(w string) bool { return slices.Contains(families, w) })
	if at < 0 || !slices.Contains(words, "claude") {
		return "", version{}, false
	}
	behind := numbers(words[at+1:])
	if len(behind) > 0 {
		return words[at], version{behind[0], nth(behind, 1)}, true
	}
	first := at
	for first > 0 && len(numbers(words[first-1:first])) == 1 {
		first--
	}
	before := numbers(words[first:at])
	if len(before) == 0 {
		return words[at], version{}, slices.Contains(words[at+1:], "preview")
	}
	return words[at], version{before[0], nth(before, 1)}, true
}

// numbers are the first words as far as they are numbers of a version: dates are
// longer.
func numbers(words []string) []int {
	var out []int
	for _, w := range words {
		if len(w) > 2 || w[0] < '0' || w[0] > '9' || w[len(w)-1] < '0' || w[len(w)-1] > '9' {
			break
		}
		out = append(out, number(w))
	}
	return out
}

func nth(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// number is 0 for what is none.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
