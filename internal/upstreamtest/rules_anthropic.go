package upstreamtest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

func versionGiven(x *exchange) error {
	if x.Header.Get("Anthropic-Version") == "" {
		return errors.New("anthropic-version: header is required")
	}
	return nil
}

// knownMembers are those of a request; of thinking, by its type.
var (
	knownMembers = []string{
		"cache_control", "container", "context_management", "inference_geo", "max_tokens", "mcp_servers", "messages",
		"metadata", "model",
		"output_config", "service_tier", "stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice",
		"tools", "top_k", "top_p",
	}
	knownThinking = map[string][]string{
		"enabled":       {"type", "budget_tokens", "display", "block_binding"},
		"adaptive":      {"type", "display", "block_binding"},
		"between_tools": {"type", "display", "block_binding"},
		"disabled":      {"type", "block_binding"},
	}
)

func fieldsKnown(x *exchange) error {
	const extra = "%s: Extra inputs are not permitted"
	if x.body.has("context_management") && (!x.beta(betaContext) || x.config.Thinking.NoContextManagement) {
		return fmt.Errorf(extra, "context_management")
	}
	if x.body.has("mcp_servers") && !x.beta(betaMCP) {
		return fmt.Errorf(extra, "mcp_servers")
	}
	if name := x.body.unknown(knownMembers...); name != "" {
		return fmt.Errorf(extra, name)
	}
	if name := x.at("metadata").unknown("user_id"); name != "" {
		return fmt.Errorf(extra, "metadata."+name)
	}
	thinking := x.at("thinking")
	if thinking.has("block_binding") && !x.beta(betaBinding) {
		return fmt.Errorf(extra, "thinking."+thinking.kind()+".block_binding")
	}
	if known, ok := knownThinking[thinking.kind()]; ok {
		if name := thinking.unknown(known...); name != "" {
			return fmt.Errorf(extra, "thinking."+thinking.kind()+"."+name)
		}
	}
	return nil
}

func betasKnown(x *exchange) error {
	known := x.config.Thinking.Betas
	if known == nil {
		known = KnownBetas()
	}
	var unknown []string
	for _, b := range x.betas {
		if !slices.Contains(known, b) {
			unknown = append(unknown, "`"+b+"`")
		}
	}
	switch {
	case len(unknown) == 0:
		return nil
	case x.config.Thinking.Bedrock:
		return errors.New("invalid beta flag")
	}
	return fmt.Errorf("Unexpected value(s) %s for the `anthropic-beta` header. Please consult our documentation at "+
		"docs.claude.com or try again without the header.",
		strings.Join(unknown, ", "))
}

// modeFits reads thinking.type and decides whether the model thinks.
func modeFits(x *exchange) error {
	g := x.config.Thinking.Generation
	if g == ByName {
		g = GenerationOf(x.Model)
	}
	x.modes = generations[g]
	x.Thinking = x.modes.on
	if !x.body.has("thinking") {
		return nil
	}
	thinking, ok := x.body.object("thinking")
	if !ok {
		return errors.New("thinking: Input should be a valid dictionary or object to extract fields from")
	}
	x.kind = thinking.kind()
	x.Thinking = x.kind != "disabled"
	switch {
	case x.modes.takes(x.kind):
		return nil
	case x.kind == "enabled":
		return errors.New(`"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and ` +
			`"output_config.effort" to control thinking behavior.`)
	case x.kind == "adaptive" && !x.config.Thinking.Bedrock:
		return errors.New("adaptive thinking is not supported on this model")
	case x.kind == "disabled":
		return errors.New(`"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode ` +
			`when not specified; ` +
			`use "thinking.type.enabled" with "budget_tokens" for extended thinking.`)
	}
	tags := slices.Sorted(slices.Values(x.modes.types))
	return fmt.Errorf("thinking: Input tag '%s' found using 'type' does not match any of the expected tags: '%s'", x.kind,
		strings.Join(tags, "', '"))
}

func effortFits(x *exchange) error {
	effort := x.effort()
	if x.modes.effortBound && x.kind == "disabled" && (effort == "xhigh" || effort == "max") {
		return fmt.Errorf("output_config.effort '%s' is not supported when thinking is disabled on this model. Use effort "+
			"'high' or below, or enable thinking.", effort)
	}
	return nil
}

// formatFits holds the schema of an answer to the part of JSON Schema that is taken.
func formatFits(x *exchange) error {
	format, ok := x.at("output_config").object("format")
	if !ok {
		return nil
	}
	schema, ok := format.object("schema")
	if format.kind() != "json_schema" || !ok {
		return errors.New("output_config.format.schema: Field required")
	}
	x.format = format["schema"]
	return closedSchema(schema)
}

func closedSchema(s members) error {
	const at = "output_config.format.schema: For '%s' type, "
	if s.kind() == "object" && string(s["additionalProperties"]) != "false" {
		return fmt.Errorf(at+"'additionalProperties' must be explicitly set to false", s.kind())
	}
	for _, name := range []string{"maxItems", "maxLength", "maximum", "minLength", "minimum", "multipleOf"} {
		if s.has(name) {
			return fmt.Errorf(at+"property '%s' is not supported", s.kind(), name)
		}
	}
	inner, _ := s.list("anyOf")
	if items, ok := s.object("items"); ok {
		inner = append(inner, items)
	}
	properties, _ := s.object("properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if p, ok := properties.object(name); ok {
			inner = append(inner, p)
		}
	}
	for _, schema := range inner {
		if err := closedSchema(schema); err != nil {
			return err
		}
	}
	return nil
}

// minBudget is the least budget of thinking, in tokens.
const minBudget = 1024

func budgetFits(x *exchange) error {
	if x.kind != "enabled" {
		return nil
	}
	thinking := x.at("thinking")
	if !thinking.has("budget_tokens") {
		return errors.New("thinking.enabled.budget_tokens: Field required")
	}
	budget, err := strconv.Atoi(string(thinking["budget_tokens"]))
	switch limit, _ := strconv.Atoi(string(x.body["max_tokens"])); {
	case err != nil:
		return errors.New("thinking.enabled.budget_tokens: Input should be a valid integer")
	case budget < minBudget:
		return fmt.Errorf("thinking.enabled.budget_tokens: Input should be greater than or equal to %d", minBudget)
	case x.Endpoint == EndpointMessages && budget >= limit && !x.beta(betaInterleaved):
		return errors.New("`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at " +
			"https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size")
	}
	return nil
}

func temperatureFits(x *exchange) error {
	var temperature float64
	if !x.body.has("temperature") || json.Unmarshal(x.body["temperature"], &temperature) == nil && temperature == 1 {
		return nil
	}
	if x.Thinking {
		return errors.New("`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation " +
			"at " +
			"https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking")
	}
	if !x.modes.takes("enabled") {
		return errors.New("`temperature` may only be set to 1 on this model.")
	}
	return nil
}

func choiceFits(x *exchange) error {
	if x.Thinking && x.forced != "" {
		return errors.New("Thinking may not be enabled when tool_choice forces tool use.")
	}
	return nil
}

func clearingFits(x *exchange) error {
	edits, _ := x.at("context_management").list("edits")
	for _, e := range edits {
		if kind := e.kind(); !x.Thinking && strings.HasPrefix(kind, "clear_thinking_") {
			return fmt.Errorf("`%s` strategy requires `thinking` to be enabled or adaptive", kind)
		}
	}
	return nil
}

func schemaHolds(x *exchange) error {
	turns, err := x.structure().readTurns(x.body)
	if err != nil {
		return err
	}
	x.turns = turns
	x.tools, _ = x.body.list("tools")
	x.system, _ = x.body.list("system")
	if x.config.Thinking.Bedrock {
		for i, t := range turns {
			for j, b := range t.blocks {
				if s, _ := b.text("signature"); b.kind() == thinkingBlock && s == "" {
					return fmt.Errorf("messages.%d.content.%d.thinking.signature: Field required", i, j)
				}
			}
		}
	}
	x.readTurns()
	return nil
}

// structure is what the vendor wants of a request's form.
func (x *exchange) structure() structure {
	s := structure{unlimited: x.Endpoint == EndpointCount}
	switch x.config.vendor() {
	case GLM:
		s.unsigned = true
	case Kimi:
		s.unsigned, s.recurring = true, true
	case DeepSeek:
		s.unsigned, s.recurring = true, true
		s.unsupported = []string{redactedBlock, imageBlock, "document"}
	}
	return s
}

// readTurns notes where the latest turn begins, and what was said in it. A
// message of the user that holds a result does not begin a turn, whatever else it
// says.
func (x *exchange) readTurns() {
	for i, t := range x.turns {
		if t.role != user {
			continue
		}
		results := slices.DeleteFunc(slices.Clone(t.blocks), func(b members) bool { return b.kind() != resultBlock })
		if len(results) == 0 {
			x.loop, x.User, x.Results = i+1, strings.Join(blockTexts(t.blocks), "\n"), nil
		}
		for _, b := range results {
			x.Results = append(x.Results, strings.Join(texts(b), "\n"))
		}
	}
	// In manual mode without interleaving a model thinks only before its first call.
	manual := x.config.vendor() == Anthropic && x.kind == "enabled" && !x.beta(betaInterleaved)
	x.thought = manual && len(x.turns) > x.loop
}

func toolsPair(x *exchange) error {
	if err := checkTools(x.body); err != nil {
		return err
	}
	return x.structure().checkPairs(x.turns)
}

func contentsHold(x *exchange) error {
	if err := checkContents(x.turns); err != nil {
		return err
	}
	return x.structure().checkSystem(x.body)
}

func markersFit(x *exchange) error { return checkCacheControl(x.body, x.turns) }

func lengthFits(x *exchange) error {
	if n, most := x.tokens(), x.config.Thinking.Window; most > 0 && n > most {
		return refusal{status: http.StatusBadRequest, message: fmt.Sprintf("prompt is too long: %d tokens > %d maximum", n,
			most)}
	}
	return nil
}

// tokens estimates the input: a token is four bytes of JSON.
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
