package upstreamtest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// refused is a refusal of status 400 that names a parameter.
func refused(code, param, format string, args ...any) error {
	return refusal{status: http.StatusBadRequest, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

func missingParameter(param string) error {
	return refused("missing_required_parameter", param, "Missing required parameter: '%s'.", param)
}

func unknownParameter(param string) error {
	return refused("unknown_parameter", param, "Unknown parameter: '%s'.", param)
}

func invalidType(param, expected string) error {
	return refused("invalid_type", param, "Invalid type for '%s': expected %s.", param, expected)
}

func invalidValue(param, got string, supported ...string) error {
	return refused("invalid_value", param, "Invalid value: '%s'. Supported values are: %s.", got, inWords(supported))
}

func tooLong(param, text string, most int) error {
	return refused("string_above_max_length", param, "Invalid '%s': string too long. Expected a string with maximum "+
		"length %d, but got a string with length %d instead.", param, most, len(text))
}

// inWords quotes and joins values as OpenAI does.
func inWords(values []string) string {
	last := len(values) - 1
	if last < 1 {
		return "'" + strings.Join(values, "") + "'"
	}
	comma := map[bool]string{true: ","}[last > 1]
	return "'" + strings.Join(values[:last], "', '") + "'" + comma + " and '" + values[last] + "'"
}

// knownParameters are the members of a request for a response, and of its objects.
var knownParameters = map[string][]string{
	"": {
		"background", "client_metadata", "context_management", "conversation", "include", "input", "instructions",
		"max_output_tokens", "max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt",
		"prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
		"stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
	},
	"reasoning": {"effort", "summary", "generate_summary"},
	"text":      {"format", "verbosity"},
}

// includable are the values of include.
var includable = []string{
	"code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
	"message.input_image.image_url", "message.output_text.logprobs", encryptedContent, "web_search_call.action.sources",
	"web_search_call.results",
}

const encryptedContent = "reasoning.encrypted_content"

// minOutputTokens is the least max_output_tokens that OpenAI takes.
const minOutputTokens = 16

func parametersKnown(x *exchange) error {
	for _, at := range []string{"", "reasoning", "text"} {
		object, dot := x.body, ""
		if at != "" {
			object, dot = x.at(at), "."
		}
		if name := object.unknown(knownParameters[at]...); name != "" {
			return unknownParameter(at + dot + name)
		}
	}
	for i, name := range x.includes() {
		if !slices.Contains(includable, name) {
			return invalidValue(fmt.Sprintf("include[%d]", i), name, includable...)
		}
	}
	most := minOutputTokens
	if x.body.has("max_output_tokens") && json.Unmarshal(x.body["max_output_tokens"], &most) != nil {
		return invalidType("max_output_tokens", "an integer")
	}
	if most < minOutputTokens {
		return refused("integer_below_min_value", "max_output_tokens", "Invalid 'max_output_tokens': integer below minimum "+
			"value. Expected a value >= %d, but got %d instead.", minOutputTokens, most)
	}
	return x.textFormat()
}

// includes are the values of include.
func (x *exchange) includes() (names []string) {
	_ = json.Unmarshal(x.body["include"], &names) // what is no list of strings includes nothing
	return names
}

// textFormat reads the form of the answer.
func (x *exchange) textFormat() error {
	form, _ := x.at("text").object("format")
	switch kind := form.kind(); kind {
	case "", "text", "json_object":
		return nil
	case "json_schema":
	default:
		return invalidValue("text.format.type", kind, "json_object", "json_schema", "text")
	}
	for _, name := range []string{"name", "schema"} {
		if !form.has(name) {
			return missingParameter("text.format." + name)
		}
	}
	x.format = form["schema"]
	return nil
}

// responsesModel reads whether the model thinks, and refuses what it does not take. A model of an unknown name thinks
// with any effort.
func responsesModel(x *exchange) error {
	m := openAIModelOf(x.Model)
	thinks := m.efforts != nil || !gptVersion.MatchString(x.Model)
	effort, asked := x.at("reasoning").text("effort")
	switch {
	case !thinks && asked:
		return refused("unsupported_parameter", "reasoning.effort",
			"Unsupported parameter: 'reasoning.effort' is not supported with this model.")
	case asked && len(m.efforts) > 0 && !slices.Contains(m.efforts, effort):
		return refused("unsupported_value", "reasoning.effort", "Unsupported value: '%s' is not supported with the '%s' "+
			"model. Supported values are: %s.", effort, x.Model, inWords(m.efforts))
	case !thinks && slices.Contains(x.includes(), encryptedContent):
		return refused("", "include", "Encrypted content is not supported with this model.")
	case m.efforts != nil && cmp.Or(effort, m.byItself) != "none":
		for _, name := range []string{"temperature", "top_p"} {
			if x.body.has(name) && string(x.body[name]) != "1" {
				return refused("unsupported_parameter", name, "Unsupported parameter: '%s' is not supported with this model.", name)
			}
		}
	}
	x.Thinking = thinks && cmp.Or(effort, m.byItself) != "none"
	return nil
}

// hostedTools are those that OpenAI runs itself, or gives a form of its own.
var hostedTools = []string{
	"apply_patch", "code_interpreter", "computer_use_preview", "file_search", "image_generation", "local_shell", "mcp",
	"shell", "tool_search", "web_search", "web_search_preview",
}

// knownOfTools are the members of tools that have a schema.
var knownOfTools = map[string][]string{
	"function":  {"type", "name", "description", "parameters", "strict", "defer_loading"},
	"custom":    {"type", "name", "description", "format", "defer_loading"},
	"namespace": {"type", "name", "description", "tools"},
}

func toolsHold(x *exchange) error {
	if !x.body.has("tools") {
		return nil
	}
	tools, ok := x.body.list("tools")
	if !ok {
		return invalidType("tools", "an array of objects")
	}
	if err := checkTypedTools(tools, "tools"); err != nil {
		return err
	}
	if x.forced != "" && x.forced != anyTool && !slices.ContainsFunc(x.Tools, func(t Tool) bool {
		return t.Name == x.forced
	}) {
		return refused("", "tool_choice", "Tool choice 'function' not found in 'tools' parameter.")
	}
	return nil
}

func checkTypedTools(tools []members, at string) error {
	for i, t := range tools {
		at := fmt.Sprintf("%s[%d]", at, i)
		kind := t.kind()
		known := knownOfTools[kind]
		switch {
		case slices.Contains(hostedTools, kind):
			continue
		case kind == "":
			return missingParameter(at + ".type")
		case known == nil:
			return invalidValue(at+".type", kind, append([]string{"function", "custom", "namespace"}, hostedTools...)...)
		case !t.has("name"):
			return missingParameter(at + ".name")
		case t.unknown(known...) != "":
			return unknownParameter(at + "." + t.unknown(known...))
		}
		name, _ := t.text("name")
		if !legalName.MatchString(name) {
			return refused("invalid_value", at+".name", "%v", badName(at+".name"))
		}
		if kind == "namespace" {
			inner, ok := t.list("tools")
			if !ok {
				return missingParameter(at + ".tools")
			}
			if err := checkTypedTools(inner, at+".tools"); err != nil {
				return err
			}
		}
		if err := checkParameters(t, name, at); err != nil {
			return err
		}
	}
	return nil
}

// checkParameters is about the schema of a function.
func checkParameters(t members, name, at string) error {
	schema, ok := t.object("parameters")
	fault := ""
	switch {
	case !t.has("parameters"):
	case !ok || schema.kind() != "object":
		fault = fmt.Sprintf("schema must be a JSON Schema of 'type: \"object\"', got 'type: \"%s\"'.",
			cmp.Or(schema.kind(), "None"))
	case string(t["strict"]) == "true" && string(schema["additionalProperties"]) != "false":
		fault = "In context=(), 'additionalProperties' is required to be supplied and to be false."
	case composed(schema):
		fault = composedText
	}
	if fault == "" {
		return nil
	}
	return refused("invalid_function_parameters", at+".parameters", "Invalid schema for function '%s': %s", name, fault)
}

// deepSeekThinks reads thinking; the model thinks unless told otherwise.
func deepSeekThinks(x *exchange) error {
	effort, _ := x.at("reasoning").text("effort")
	x.Thinking = effort != "none"
	return x.textFormat()
}
