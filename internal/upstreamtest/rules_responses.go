package upstreamtest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// refused returns a refusal of status 400 that names a parameter.
func refused(code, param, message string) error {
	return refusal{status: http.StatusBadRequest, code: code, param: param, message: message}
}

func missingParameter(param string) error {
	return refused("missing_required_parameter", param, "Missing required parameter: '"+param+"'.")
}

func unknownParameter(param string) error {
	return refused("unknown_parameter", param, "Unknown parameter: '"+param+"'.")
}

func invalidType(param, expected string) error {
	return refused("invalid_type", param, "Invalid type for '"+param+"': expected "+expected+".")
}

func invalidValue(param, got string, supported ...string) error {
	return refused("invalid_value", param, "Invalid value: '"+got+"'. Supported values are: "+inWords(supported)+".")
}

// inWords quotes and joins values like OpenAI.
func inWords(values []string) string {
	last := len(values) - 1
	if last < 1 {
		return "'" + strings.Join(values, "") + "'"
	}
	comma := map[bool]string{true: ","}[last > 1]
	return "'" + strings.Join(values[:last], "', '") + "'" + comma + " and '" + values[last] + "'"
}

// knownParameters are the members of a request for a response.
var knownParameters = []string{
	"background", "client_metadata", "context_management", "conversation", "include", "input", "instructions",
	"max_output_tokens", "max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt",
	"prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
	"stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
}

// includable are the values of include.
var includable = []string{
	"code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
	"message.input_image.image_url", "message.output_text.logprobs", encryptedContent, "web_search_call.action.sources",
	"web_search_call.results",
}

const encryptedContent = "reasoning.encrypted_content"

// minOutputTokens is OpenAI's minimum of max_output_tokens.
const minOutputTokens = 16

var (
	parameterNameRows = rowsOf([]row{
		{"", knows(knownParameters...), unknownParameter("{found}")},
		{"reasoning", knows("effort", "summary", "generate_summary"), unknownParameter("{at}.{found}")},
		{"text", knows("format", "verbosity"), unknownParameter("{at}.{found}")},
		{"", func(s *spot) bool {
			names := s.includes()
			s.i = slices.IndexFunc(names, func(n string) bool { return !slices.Contains(includable, n) })
			if s.i >= 0 {
				s.finding = names[s.i]
			}
			return s.i < 0
		}, invalidValue("include[{i}]", "{found}", includable...)},
		{"", either(lacks("max_output_tokens"), func(s *spot) bool { _, ok := s.most(); return ok }),
			invalidType("max_output_tokens", "an integer")},
		{"", either(lacks("max_output_tokens"), func(s *spot) bool {
			n, _ := s.most()
			s.finding = strconv.Itoa(n)
			return n >= minOutputTokens
		}), refused("integer_below_min_value", "max_output_tokens", "Invalid 'max_output_tokens': integer below minimum "+
			"value. Expected a value >= 16, but got {found} instead.")},
	}, textFormatRows)
	deepSeekEffortRows = rowsOf([]row{{"", func(s *spot) bool {
		s.Thinking = s.in("reasoning").str("effort") != "none" // the model thinks unless told otherwise
		return true
	}, nil}}, textFormatRows)
	textFormatRows = []row{
		{"text.format", isOne("type", "", "text", "json_object", "json_schema"),
			invalidValue("text.format.type", "{type}", "json_object", "json_schema", "text")},
		{"text.format:json_schema", has("name"), missingParameter("text.format.name")},
		{"text.format:json_schema", has("schema"), missingParameter("text.format.schema")},
		{"text.format:json_schema", func(s *spot) bool { s.format = s.members["schema"]; return true }, nil},
	}
	// A model of an unknown name thinks with any effort.
	responsesModelRows = rowsOf([]row{
		{"", either(canThink, not(asksEffort)), refused("unsupported_parameter", "reasoning.effort",
			"Unsupported parameter: 'reasoning.effort' is not supported with this model.")},
		{"", either(not(asksEffort), func(s *spot) bool {
			m, effort := openAIModelOf(s.Model), s.in("reasoning").str("effort")
			s.finding = "'" + effort + "' is not supported with the '" + s.Model + "' model. Supported values are: "
			s.finding += inWords(m.efforts)
			return len(m.efforts) == 0 || slices.Contains(m.efforts, effort)
		}), refused("unsupported_value", "reasoning.effort", "Unsupported value: {found}.")},
		{"", either(canThink, func(s *spot) bool { return !slices.Contains(s.includes(), encryptedContent) }),
			refused("", "include", "Encrypted content is not supported with this model.")},
		unsampled("temperature"), unsampled("top_p"),
		{"", func(s *spot) bool {
			s.Thinking = canThink(s) && openAIModelOf(s.Model).effort(s.in("reasoning").str("effort")) != "none"
			return true
		}, nil},
	})
	typedToolRows = []row{
		{"tools[]", not(isOne("type", "")), missingParameter("{at}.type")},
		{"tools[]", func(s *spot) bool { return slices.Contains(toolKinds, s.kind()) },
			invalidValue("{at}.type", "{type}", toolKinds...)},
		{"tools[]" + ownTools, has("name"), missingParameter("{at}.name")},
		{"tools[]" + ownTools, func(s *spot) bool { return s.finds(s.unknown(knownOfTools[s.kind()]...)) },
			unknownParameter("{at}.{found}")},
		{"tools[]" + ownTools, hasName(legalName), refused("invalid_value", "{at}.name", badName)},
		{"tools[]:namespace", isList("tools"), missingParameter("{at}.tools")},
		{"tools[]:namespace", recurse(&toolsAgain), nil},
		{"tools[]" + ownTools, func(s *spot) bool { return s.finds(parametersFault(s.members)) },
			refused("invalid_function_parameters", "{at}.parameters", "Invalid schema for function '{name}': {found}")},
	}
	toolsAgain    rows
	typedToolRule = rowsOf([]row{
		{"", either(lacks("tools"), isList("tools")), invalidType("tools", "an array of objects")},
		{"", recurse(&toolsAgain), nil},
		{"", either(lacks("tools"), func(s *spot) bool {
			return s.forced == "" || s.forced == anyTool || slices.ContainsFunc(s.Tools, func(t Tool) bool {
				return t.Name == s.forced
			})
		}), refused("", "tool_choice", "Tool choice 'function' not found in 'tools' parameter.")},
	})
)

func init() { toolsAgain = rowsOf(typedToolRows) }

// includes returns the values of include.
func (x *exchange) includes() (names []string) {
	_ = json.Unmarshal(x.body["include"], &names) // anything but a list of strings includes nothing
	return names
}

func (s *spot) most() (n int, ok bool) {
	return n, json.Unmarshal(s.members["max_output_tokens"], &n) == nil
}

func canThink(s *spot) bool {
	return openAIModelOf(s.Model).efforts != nil || !gptVersion.MatchString(s.Model)
}

func asksEffort(s *spot) bool { return s.in("reasoning")["effort"].Kind() == '"' }

// unsampled refuses a number while a model of a known name thinks.
func unsampled(name string) row {
	return row{"", func(s *spot) bool {
		m := openAIModelOf(s.Model)
		return !s.has(name) || string(s.members[name]) == "1" || m.efforts == nil ||
			m.effort(s.in("reasoning").str("effort")) == "none"
	}, refused("unsupported_parameter", name, "Unsupported parameter: '"+name+"' is not supported with this model.")}
}

// The members of tools with a schema. OpenAI runs the other tools itself, or they have a form of their own.
var (
	knownOfTools = map[string][]string{
		"function":  {"type", "name", "description", "parameters", "strict", "defer_loading"},
		"custom":    {"type", "name", "description", "format", "defer_loading"},
		"namespace": {"type", "name", "description", "tools"},
	}
	toolKinds = []string{
		"function", "custom", "namespace", "apply_patch", "code_interpreter", "computer_use_preview", "file_search",
		"image_generation", "local_shell", "mcp", "shell", "tool_search", "web_search", "web_search_preview",
	}
)

const ownTools = ":function|custom|namespace"

// parametersFault returns the fault of a function's schema, or "".
func parametersFault(t members) string {
	schema, ok := t.object("parameters")
	switch {
	case !t.has("parameters"):
	case !ok || schema.kind() != "object":
		return "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"" + cmp.Or(schema.kind(), "None") + "\"'."
	case string(t["strict"]) == "true" && string(schema["additionalProperties"]) != "false":
		return "In context=(), 'additionalProperties' is required to be supplied and to be false."
	default:
		return composed(schema)
	}
	return ""
}
