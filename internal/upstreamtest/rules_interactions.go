package upstreamtest

import (
	"slices"
	"strings"
)

// The rules of Google's Interactions use the schema of steps, the only schema since June 2026. The sources were read on
// 2026-11-27. The types come from the vendor's SDK, googleapis/js-genai@6e9b35c (2.18.0, 2026-08-21). They are in
// src/gaos/models/interactions: create-model-interaction.ts, generation-config.ts, function.ts,
// text-response-format.ts, and the files of steps and contents.

// Types of steps that rules refer to. Calls have the type callItem.
const (
	userStep    = "user_input"
	outputStep  = "model_output"
	thoughtStep = "thought"
	resultStep  = "function_result"
)

// stepShapes are the required and the optional members of steps.
var stepShapes = map[string][2][]string{
	userStep: {{"content"}}, outputStep: {{"content"}}, thoughtStep: {{"signature"}, {"summary"}},
	// Calls in the vendor's answers have a signature, although the SDK's types do not.
	callItem:   {{"id", "name", "arguments"}, {"signature"}},
	resultStep: {{"call_id", "result"}, {"name", "is_error"}},
}

// contentMembers lists the members of each type of content.
var contentMembers = map[string][]string{
	"text": {"text", "annotations"}, "image": {"data", "mime_type", "resolution", "uri"},
	"document": {"data", "mime_type", "uri"}, "audio": {"data", "mime_type", "uri"}, "video": {"data", "mime_type", "uri"},
}

// googleTypes is the folder of the vendor's SDK with the types.
const googleTypes = "https://github.com/googleapis/js-genai/tree/6e9b35c45e21f0d37179a24d29dca01ebed698e6/src/gaos/" +
	"models/interactions"

// invalidArgument is the vendor's message for several faults.
const invalidArgument = "Request contains an invalid argument."

func invalidRequest(message string) error { return refused("invalid_request", "", message) }

func unknownMember(name string) error {
	return refused("parameter_unknown", "", "Unknown parameter: "+name)
}

// stepContentRows check one content. The function under prepends its place.
var stepContentRows = []row{
	{"", func(s *spot) bool { return contentMembers[s.kind()] != nil },
		invalidRequest("Unknown content type at {at}: {type}")},
	{"", func(s *spot) bool { return s.finds(s.unknown(append(contentMembers[s.kind()], "type")...)) },
		unknownMember("{at}.{found}")},
	{":text", isText("text"), invalidRequest("{at}.text is required")},
	{":image|document", func(s *spot) bool {
		return s.str("uri") != "" || s.str("data") != "" && s.str("mime_type") != ""
	}, invalidRequest("{at} needs data with a mime_type, or a uri")},
}

var (
	interactionRows = rowsOf([]row{
		{"", knows("background", "environment", "generation_config", "input", "labels", "model", "previous_interaction_id",
			"response_format", "safety_settings", "service_tier", "store", "stream", "system_instruction", "tools",
			"webhook_config"), unknownMember("{found}")},
		{"generation_config", knows("max_output_tokens", "seed", "stop_sequences", "thinking_level", "thinking_summaries",
			"tool_choice"), unknownMember("{at}.{found}")},
		{"generation_config", isOne("thinking_level", "", "low", "medium", "high"),
			invalidRequest("Thinking level {thinking_level} is not supported for this model.")},
		{"generation_config", isOne("thinking_summaries", "", "auto", "none"), invalidRequest(invalidArgument)},
		{"generation_config", either(isObjectAt("tool_choice"), isOne("tool_choice", "", "auto", "any", "none", "validated")),
			invalidRequest(invalidArgument)},
		{"response_format", knows("type", "mime_type", "schema"), unknownMember("{at}.{found}")},
		{"response_format", either(lacks("schema"), isOne("mime_type", "application/json")), invalidRequest(invalidArgument)},
		{"response_format", func(s *spot) bool { s.format = s.members["schema"]; return true }, nil},
		{"tools[]", isOne("type", "function"), invalidRequest("Unknown tool type at {at}: {type}")},
		{"tools[]", knows("type", "name", "description", "parameters"), unknownMember("{at}.{found}")},
		{"tools[]", has("name"), invalidRequest("{at}.name is required")},
	})
	stateRows = rowsOf([]row{
		{"", func(s *spot) bool {
			return string(s.members["store"]) != "false" || !s.has("previous_interaction_id") && !s.has("background")
		}, invalidRequest("previous_interaction_id and background cannot be used with store set to false.")},
	})
	stepRows = rowsOf([]row{
		{"input[]", func(s *spot) bool { return stepShapes[s.kind()][0] != nil },
			invalidRequest("Unknown step type at {at}: {type}")},
		{"input[]", func(s *spot) bool {
			shape := stepShapes[s.kind()]
			return s.finds(s.unknown(append(slices.Concat(shape[0], shape[1]), "type")...))
		}, unknownMember("{at}.{found}")},
		{"input[]", func(s *spot) bool {
			i := slices.IndexFunc(stepShapes[s.kind()][0], func(name string) bool { return !s.has(name) })
			return i < 0 || s.finds(stepShapes[s.kind()][0][i])
		}, invalidRequest("{at}.{found} is required")},
		{"input[]:function_call", isObjectAt("arguments"), invalidRequest("{at}.arguments is an object")},
		{"input[]:user_input|model_output", isFull("content"), invalidRequest("{at}.content is empty")},
		{"input[]:function_result", either(isText("result"), isList("result"), isObjectAt("result")),
			invalidRequest(invalidArgument)},
		{"input[]:function_result.result[]", isOne("type", "text", "image"), invalidRequest(invalidArgument)},
	}, nest("input[]:user_input|model_output.content[]", stepContentRows),
		nest("input[]:function_result.result[]", stepContentRows))
)

// readSteps reads the input, the user's last text and the results after it.
func readSteps(x *exchange) error {
	x.Thinking = true
	x.User = x.body.str("input")
	if x.items, _ = x.body.list("input"); x.User == "" && len(x.items) == 0 {
		return invalidRequest("input is required")
	}
	for i, it := range x.items {
		switch it.kind() {
		case userStep:
			x.User, x.Results, x.loop, x.thought = strings.Join(texts(it), "\n"), nil, i+1, false
		case thoughtStep:
			x.thought = true
		case resultStep:
			list, _ := it.list("result")
			x.Results = append(x.Results, it.str("result")+strings.Join(blockTexts(list), "\n"))
		}
	}
	return nil
}

// resultsPair requires a call with the same name before each result. The results of all calls must precede the next
// user step.
func resultsPair(x *exchange) error {
	open, names := []string{}, map[string]string{}
	for _, it := range append(slices.Clone(x.items), members{"type": quoted(userStep)}) {
		switch kind, id := it.kind(), it.str("call_id"); {
		case kind == callItem:
			if id = it.str("id"); names[id] != "" {
				return invalidRequest("Duplicate function call id " + id)
			}
			names[id] = it.str("name")
			open = append(open, id)
		case kind == resultStep && !slices.Contains(open, id):
			return invalidRequest("No function call found for function result with call_id " + id)
		case kind == resultStep && names[id] != it.str("name"):
			return invalidRequest("The name of the function result with call_id " + id + " is not that of its call.")
		case kind == resultStep:
			open = slices.DeleteFunc(open, func(o string) bool { return o == id })
		case kind == userStep && len(open) > 0:
			return invalidRequest("No function result found for function call " + open[0])
		}
	}
	return nil
}

// thoughtsAreOwn verifies that this backend signed each thought with its current summary.
func thoughtsAreOwn(x *exchange) error {
	x.origins = make([]string, len(x.items))
	newest := ""
	for i, it := range x.items {
		signature := it.str("signature")
		switch it.kind() {
		case thoughtStep:
			list, _ := it.list("summary")
			id, ok := x.server.signer.decrypt(thoughtStep+strings.Join(blockTexts(list), ""), signature)
			if !ok {
				return invalidRequest(invalidArgument)
			}
			x.origins[i], newest = id, signature
		case callItem:
			if it.has("signature") && signature != newest {
				return invalidRequest(invalidArgument)
			}
		}
	}
	return nil
}

// callsAreSigned requires a thought before the first call of each model step after the last user input.
func callsAreSigned(x *exchange) error {
	thought := false
	for _, it := range x.items[x.loop:] {
		switch it.kind() {
		case thoughtStep:
			thought = true
		case resultStep:
			thought = false
		case callItem:
			if !thought {
				return invalidRequest("Function call is missing a thought_signature in functionCall parts. Additional data, " +
					"function call `default_api:" + it.str("name") + "`")
			}
		}
	}
	return nil
}

// googleCodes maps HTTP statuses to Google's error codes.
var googleCodes = map[int]string{
	400: "invalid_request", 401: "authentication", 403: "permission_denied", 404: "not_found", 429: "rate_limit_exceeded",
	500: "api_error", 503: "service_unavailable", 504: "gateway_timeout", statusOverloaded: "service_unavailable",
}
