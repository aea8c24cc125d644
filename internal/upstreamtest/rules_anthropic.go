package upstreamtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// The members of a request, and those of thinking by its type.
var (
	knownMembers = []string{
		"cache_control", "container", "context_management", "inference_geo", "max_tokens", "mcp_servers", "messages",
		"metadata", "model", "output_config", "service_tier", "stop_sequences", "stream", "system", "temperature", "thinking",
		"tool_choice", "tools", "top_k", "top_p",
	}
	knownThinking = map[string][]string{
		"enabled":       {"type", "budget_tokens", "display", "block_binding"},
		"adaptive":      {"type", "display", "block_binding"},
		"between_tools": {"type", "display", "block_binding"},
		"disabled":      {"type", "block_binding"},
	}
)

// minBudget is the minimum budget of thinking, in tokens.
const minBudget = 1024

const extended = "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"

var systemModels = regexp.MustCompile(`(opus-(4-8|[5-9])|(fable|mythos)-[5-9]|(sonnet|haiku)-(5-5|[6-9]))`)

// endsInServerTool reports whether a turn ends in a tool that the vendor runs.
func endsInServerTool(t turn) bool {
	n := len(t.blocks)
	return n > 0 && (t.blocks[n-1].is("type", "server_tool_use") || t.role == assistant &&
		strings.HasSuffix(t.blocks[n-1].kind(), "_tool_result"))
}

func bedrock(s *spot) bool { return s.config.Thinking.Bedrock }

func thinking(s *spot) bool { return s.Thinking }

// before46 holds for models before Opus and Sonnet 4.6.
func before46(s *spot) bool { return !s.modes.allows("adaptive") }

func unforced(s *spot) bool { return s.forced == "" }

// oneSampler matches the models that take either temperature or top_p.
var oneSampler = regexp.MustCompile(`opus-4-[156]|(sonnet|haiku)-4-[56]`)

// limited64k matches the models before 4.6 that make up to 64,000 tokens.
var limited64k = regexp.MustCompile(`3-7-sonnet|(opus|haiku)-4-5|sonnet-4-[^6]`)

func hasBeta(name string) test { return func(s *spot) bool { return s.beta(name) } }

var (
	versionRows = rowsOf([]row{{"", func(s *spot) bool { return s.Header.Get("Anthropic-Version") != "" },
		badRequest("anthropic-version: header is required")}})

	fieldRows = rowsOf([]row{
		{"", either(lacks("context_management"), func(s *spot) bool {
			return s.beta(betaContext) && !s.config.Thinking.NoContextManagement
		}), badRequest("context_management" + extraInputs)},
		{"", either(lacks("mcp_servers"), hasBeta(betaMCP)), badRequest("mcp_servers" + extraInputs)},
		{"", knows(knownMembers...), badRequest("{found}" + extraInputs)},
		{"metadata", knows("user_id"), badRequest("{at}.{found}" + extraInputs)},
		{"thinking", either(lacks("block_binding"), hasBeta(betaBinding)),
			badRequest("{at}.{type}.block_binding" + extraInputs)},
		{"thinking", func(s *spot) bool {
			names, ok := knownThinking[s.kind()]
			return !ok || s.finds(s.unknown(names...))
		}, badRequest("{at}.{type}.{found}" + extraInputs)},
	})
	// Opus 4.8 and later models accept a system message inside, except for Sonnet 5.
	roleRows = rowsOf([]row{
		{"messages[]@system", func(s *spot) bool { return systemModels.MatchString(s.Model) && !bedrock(s) },
			badRequest("{at}: role 'system' is not supported on this model")},
		{"messages[]@system", func(s *spot) bool {
			previous, last := s.turns[s.i-1], s.i == s.count-1
			return (previous.role == user || endsInServerTool(previous)) && (last || s.turns[s.i+1].role == assistant)
		}, badRequest("{at}: a system message must follow a user message and be last or be followed by an " +
			"assistant message")},
		{"messages[]@assistant", func(s *spot) bool {
			return s.i < s.count-1 || generationOf(s.Model) == Manual || endsInServerTool(s.turns[s.i])
		}, badRequest("This model does not support assistant message prefill. The conversation must end with a " +
			"user message.")},
	})
	betaRows = rowsOf([]row{
		{"", either(not(bedrock), betasKnown), badRequest("invalid beta flag")},
		{"", betasKnown, badRequest("Unexpected value(s) {found} for the `anthropic-beta` header. Please consult our " +
			"documentation at docs.claude.com or try again without the header.")},
	})
	modeRows = rowsOf([]row{
		{"", readMode, badRequest("thinking: Input should be a valid dictionary or object to extract fields from")},
		{"", allowsMode("enabled"), badRequest(`"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" ` +
			`and "output_config.effort" to control thinking behavior.`)},
		{"", either(bedrock, allowsMode("adaptive")), badRequest("adaptive thinking is not supported on this model")},
		{"", allowsMode("disabled"), badRequest(`"thinking.type.disabled" is not supported for this model. Thinking defaults to ` +
			`adaptive mode when not specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.`)},
		{"", func(s *spot) bool {
			s.finding = strings.Join(slices.Sorted(slices.Values(s.modes.types)), "', '")
			return !s.has("thinking") || s.modes.allows(s.mode)
		}, badRequest("thinking: Input tag '{mode}' found using 'type' does not match any of the expected tags: '{found}'")},
	})
	effortRows = rowsOf([]row{{"", either(isNamed("opus-4-5"), not(before46), func(s *spot) bool {
		return s.effort() == ""
	}), badRequest("This model does not support the effort parameter.")}, {"", func(s *spot) bool {
		s.finding = s.effort()
		return !s.modes.effortBound || s.mode != "disabled" || s.finding != "xhigh" && s.finding != "max"
	}, badRequest("output_config.effort '{found}' is not supported when thinking is disabled on this model. " +
		"Use effort 'high' " +
		"or below, or enable thinking.")}})
	answerRows = rowsOf([]row{
		{"output_config.format", either(func(s *spot) bool {
			_, ok := s.object("schema")
			return ok && s.is("type", "json_schema")
		}), badRequest("{at}.schema: Field required")},
		{"output_config.format", func(s *spot) bool {
			s.format = s.members["schema"]
			return s.finds(openFault(s.in("schema")))
		}, badRequest("{at}.schema: {found}")},
	})
	budgetRows = rowsOf([]row{
		{"thinking:enabled", has("budget_tokens"), badRequest("{at}.budget_tokens: Field required")},
		{"thinking:enabled", func(s *spot) bool { _, ok := s.number("budget_tokens"); return ok },
			badRequest("{at}.budget_tokens: Input should be a valid integer")},
		{"thinking:enabled", func(s *spot) bool { n, _ := s.number("budget_tokens"); return n >= minBudget },
			badRequest("{at}.budget_tokens: Input should be greater than or equal to 1024")},
		{"thinking:enabled", func(s *spot) bool {
			budget, _ := s.number("budget_tokens")
			limit, _ := s.body.number("max_tokens")
			return s.Endpoint != EndpointMessages || budget < limit || s.beta(betaInterleaved)
		}, badRequest("`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at " +
			extended + "#max-tokens-and-context-window-size")},
		{"", func(s *spot) bool {
			n, _ := s.number("max_tokens")
			most := map[bool]int{true: 64000, false: 128000}[before46(s)]
			s.finding = fmt.Sprintf("%d > %d", n, most)
			return n <= most || before46(s) && (!limited64k.MatchString(s.Model) || s.beta("output-128k-2025-02-19"))
		}, badRequest("max_tokens: {found}, which is the maximum allowed number of output tokens for {model}")},
	})
	temperatureRows = rowsOf([]row{
		{"", either(usual("temperature", 1), not(thinking)), badRequest("`temperature` may only be set to 1 when thinking is " +
			"enabled. Please consult our documentation at https://docs.anthropic.com/en/docs/build-with-claude/" +
			"extended-thinking#important-considerations-when-using-extended-thinking")},
		{"", either(usual("temperature", 1), func(s *spot) bool { return s.modes.allows("enabled") }),
			badRequest("`temperature` may only be set to 1 on this model.")},
		{"", either(lacks("temperature"), lacks("top_p"), func(s *spot) bool { return !oneSampler.MatchString(s.Model) }),
			badRequest("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")},
	})
	choiceRows = rowsOf([]row{{"", either(not(thinking), unforced),
		badRequest("Thinking may not be enabled when tool_choice forces tool use.")}})
	clearingRows = rowsOf([]row{{"context_management.edits[]", either(thinking, func(s *spot) bool {
		return !strings.HasPrefix(s.kind(), "clear_thinking_")
	}), badRequest("`{type}` strategy requires `thinking` to be enabled or adaptive")}})
	lengthRows = rowsOf([]row{{"", func(s *spot) bool {
		n, most := s.tokens(), s.config.Thinking.Window
		s.finding = fmt.Sprintf("%d tokens > %d maximum", n, most)
		return most == 0 || n <= most
	}, badRequest("prompt is too long: {found}")}})
	offRows = rowsOf([]row{
		{"messages[].content[]", either(thinking, func(s *spot) bool { return !thinks(s.members) || s.up.i < s.up.count-1 }),
			badRequest("{at}: When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`. " +
				"To use thinking blocks, enable `thinking` in your request.")},
	})
)

func betasKnown(s *spot) bool {
	allowed := s.config.Thinking.Betas
	if allowed == nil {
		allowed = KnownBetas()
	}
	unknown := slices.DeleteFunc(slices.Clone(s.betas), func(b string) bool { return slices.Contains(allowed, b) })
	return len(unknown) == 0 || s.finds("`"+strings.Join(unknown, "`, `")+"`")
}

// readMode reads thinking.type and decides whether the model thinks. It fails if thinking is not an object.
func readMode(s *spot) bool {
	g := s.config.Thinking.Generation
	if g == ByName {
		g = generationOf(s.Model)
	}
	s.modes = generations[g]
	s.Thinking = s.modes.on
	if !s.has("thinking") {
		return true
	}
	inner, ok := s.object("thinking")
	if ok {
		s.mode = inner.kind()
		s.Thinking = s.mode != "disabled"
	}
	return ok
}

// allowsMode holds unless the request has this type of thinking and the model does not.
func allowsMode(kind string) test {
	return func(s *spot) bool { return s.mode != kind || s.modes.allows(kind) }
}

// usual holds if the member is missing or equals value.
func usual(name string, value float64) test {
	return func(s *spot) bool {
		var is float64
		return !s.has(name) || json.Unmarshal(s.members[name], &is) == nil && is == value
	}
}

// openFault returns the first fault of an answer's schema: an open object or an unsupported bound. It returns "" if
// there is none.
func openFault(s members) string {
	prefix := fmt.Sprintf("For '%s' type, ", s.kind())
	if s.kind() == "object" && string(s["additionalProperties"]) != "false" {
		return prefix + "'additionalProperties' must be explicitly set to false"
	}
	for _, name := range []string{"maxItems", "maxLength", "maximum", "minLength", "minimum", "multipleOf"} {
		if s.has(name) {
			return prefix + "property '" + name + "' is not supported"
		}
	}
	inner, _ := s.list("anyOf")
	if items, ok := s.object("items"); ok {
		inner = append(inner, items)
	}
	properties := s.in("properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if p, ok := properties.object(name); ok {
			inner = append(inner, p)
		}
	}
	for _, schema := range inner {
		if fault := openFault(schema); fault != "" {
			return fault
		}
	}
	return ""
}

// number returns the member if it is written as an integer.
func (m members) number(name string) (int, bool) {
	n, err := strconv.Atoi(string(m[name]))
	return n, err == nil
}

// tokens estimates the input: one token is four bytes of JSON.
func (x *exchange) tokens() int {
	n := len(x.body["system"]) + len(x.body["tools"]) + len(x.body["instructions"])
	for i, t := range x.turns {
		for _, b := range t.blocks {
			if thinks(b) && i < x.loop && !x.config.Thinking.KeepAll {
				continue
			}
			for _, v := range b {
				n += len(v)
			}
		}
	}
	return (n+bytesOf(x.messages)+bytesOf(x.items))/4 + 1
}
