package upstreamtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// reasoningField is the member for reasoning in the history of chat completions.
const reasoningField = "reasoning_content"

// knownArguments are the members of a request that OpenAI knows.
var knownArguments = []string{
	"audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
	"max_tokens", "messages", "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction",
	"presence_penalty", "prompt_cache_key", "reasoning_effort", "response_format", "safety_identifier", "seed",
	"service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_logprobs",
	"top_p", "user", "verbosity", "web_search_options",
}

const unsupportedReasoning = "body.messages.{i}.assistant.reasoning_content: property 'reasoning_content' is " +
	"unsupported"

// replays holds for an answer with reasoning in the history, at a vendor with this treatment of it.
func replays(how Replay) test {
	return func(s *spot) bool { return s.config.Chat.Replay == how && s.members[reasoningField] != nil }
}

var (
	argumentRows = rowsOf([]row{{"", func(s *spot) bool {
		return !s.config.Chat.KnownArguments && !s.config.Chat.OpenAI || s.finds(s.unknown(knownArguments...))
	}, unknownArgument("{found}")},
		{"", either(unsigned, lacks("thinking")), gemini(`Invalid JSON payload received. Unknown name "thinking": Cannot find field.`)},
		{"", either(lacks("thinking"), func(s *spot) bool { return s.config.Chat.Replay != ReplayCerebras }),
			badRequest("body.thinking: property 'body.thinking' is unsupported")},
	})
	parameterRows = rowsOf([]row{{"", func(s *spot) bool {
		i := slices.IndexFunc(s.config.Chat.NoParameters, s.has)
		return i < 0 || s.finds(s.config.Chat.NoParameters[i])
	}, unsupported("{found}", "")}})
	templateRows = rowsOf([]row{
		{"messages[]", func(s *spot) bool { return s.config.Chat.Template == "" || s.i == 0 || roleOf(s.members) != system },
			badRequest("System message must be at the beginning.")},
		{"messages[]", func(s *spot) bool {
			role := s.str("role")
			return s.config.Chat.Template != Alternating || s.i == 0 || role == tool || role != s.messages[s.i-1].str("role")
		}, badRequest("Conversation roles must alternate user/assistant/user/assistant/...")},
	})
	textRows = rowsOf([]row{{"messages[]@user", func(s *spot) bool {
		return !s.config.Chat.TextOnly || isText("content")(s)
	}, badRequest("Failed to deserialize the JSON body into the target type: {at}: invalid type: sequence, " +
		"expected a string")}})
	imageRows = rowsOf([]row{
		{"messages[].content[]:image_url|file", func(s *spot) bool {
			s.finding = s.up.place()
			return s.config.vendor() != DeepSeek
		}, badRequest("Failed to deserialize the JSON body into the target type: {found}: unknown variant `{type}`, expected " +
			"`text`")},
		{"messages[].content[]:image_url", func(s *spot) bool {
			return !s.config.Chat.NoImages || s.finds(fmt.Sprintf("(messages.[%d].content.[%d].type)", s.up.i, s.i))
		}, badRequest("Invalid content type. image_url is only supported by certain models. {found}")},
	})
	replayRows = rowsOf([]row{
		{"messages[]@assistant", not(replays(ReplayGroq)), badRequest("'messages.{i}' : for 'role:assistant' the following " +
			"must be satisfied[('messages.{i}' : property 'reasoning_content' is unsupported)]")},
		{"messages[]@assistant", not(replays(ReplayCerebras)), refusal{
			status: http.StatusBadRequest, message: unsupportedReasoning,
			body: `{"message":"` + unsupportedReasoning + `","type":"invalid_request_error","param":"validation_error",` +
				`"code":"wrong_api_format"}`,
		}},
		{"messages[]@assistant", func(s *spot) bool {
			s.finding = string(s.members[reasoningField])
			return !replays(ReplayMistral)(s)
		}, refusal{
			status: http.StatusUnprocessableEntity, message: "Extra inputs are not permitted",
			body: `{"detail":[{"type":"extra_forbidden","loc":["body","messages",{i},"assistant","reasoning_content"],` +
				`"msg":"Extra inputs are not permitted","input":{found}}]}`,
		}},
	})
	// The first call of a step since the user's last message needs a thought signature. Every thought signature must be
	// valid.
	thoughtRows = rowsOf([]row{
		{"", run(func(x *exchange) {
			for x.loop = len(x.messages) - 1; x.loop > 0 && !x.messages[x.loop].is("role", user); x.loop-- {
			}
		}), nil},
		{"messages[].tool_calls[]", either(unsigned, func(s *spot) bool {
			s.finding = fmt.Sprintf("`default_api:%s` , position %d", s.in("function").str("name"), s.up.i+1)
			return s.thought() != "" || s.i > 0 || s.up.i <= s.loop
		}), gemini("Function call is missing a thought_signature in functionCall parts. This is required for tools to work " +
			"correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call " +
			"{found}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.")},
		{"messages[].tool_calls[]", either(unsigned, func(s *spot) bool {
			_, err := base64.StdEncoding.DecodeString(s.thought())
			return slices.Contains(sentinels, s.thought()) || err == nil || s.finds(fmt.Sprintf("'contents[%d].parts[0]."+
				"thought_signature' (TYPE_BYTES), Base64 decoding failed for \"%s\"", s.up.i, s.thought()))
		}), gemini("Invalid value at {found}")},
		{"messages[].tool_calls[]", either(unsigned, func(s *spot) bool {
			f := s.in("function")
			return s.thought() == "" || slices.Contains(sentinels, s.thought()) || hmac.Equal([]byte(s.thought()),
				[]byte(s.server.signer.thought(s.Model, f.str("name"), f.str("arguments"))))
		}), gemini("Corrupted thought signature.")},
	})
	// A strict schema must be closed.
	formatRows = rowsOf([]row{
		{"response_format:json_schema", func(s *spot) bool {
			_, ok := s.in("json_schema").object("schema")
			return ok && s.in("json_schema").str("name") != ""
		}, badRequest("Missing required parameter: 'response_format.json_schema.name'.")},
		{"response_format:json_schema.json_schema", func(s *spot) bool {
			s.format = s.members["schema"]
			s.finding = string(s.members["name"])
			schema := s.in("schema")
			var required []string
			return string(s.members["strict"]) != "true" || json.Unmarshal(schema["required"], &required) == nil &&
				string(schema["additionalProperties"]) == "false" && len(required) == len(schema.in("properties"))
		}, badRequest("Invalid schema for response_format '{found}': In context=(), 'additionalProperties' is " +
			"required to be " +
			"supplied and to be false, and 'required' is required to include every key in properties.")},
	})
	// DeepSeek accepts any JSON object if a message mentions JSON. It accepts no schema.
	deepSeekFormatRows = rowsOf([]row{
		{"response_format", isOne("type", "", "text", "json_object"),
			badRequest("This response_format type is unavailable now")},
		{"response_format:json_object", func(s *spot) bool {
			s.format = schemaIn(s.messages)
			return slices.ContainsFunc(s.messages, func(m members) bool {
				return strings.Contains(strings.ToLower(strings.Join(texts(m), "\n")), "json")
			})
		}, badRequest("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.")},
	})
)

// chatThinking reads whether the request enables reasoning, in any vendor's way.
func chatThinking(x *exchange) {
	effort, kind := x.effort(), x.bodyObject("thinking").kind()
	x.Thinking = effort != "" && effort != "none" || kind == "enabled" || kind == "adaptive"
}

// sentinels replace the thought signature of calls that Gemini did not make.
var sentinels = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

func unsigned(s *spot) bool { return !s.config.Chat.ThoughtSignatures }

// thought returns the thought signature of a call.
func (s *spot) thought() string { return s.in("extra_content").in("google").str("thought_signature") }

// thought returns the thought signature for a call with these arguments.
func (s signer) thought(model, name, arguments string) string {
	sum := append([]byte{firstByte}, s.sum(model, "\x00", name, "\x00", arguments, "\x00")...)
	for len(sum) < 300 { // as long as real ones
		next := sha256.Sum256(sum)
		sum = append(sum, next[:]...)
	}
	return base64.StdEncoding.EncodeToString(sum)
}

// gemini returns a refusal in Gemini's shape, a list.
func gemini(message string) error {
	return refusal{status: http.StatusBadRequest, message: message, listed: true}
}

// schemaIn returns the schema of an object that the messages contain, or {}.
func schemaIn(messages []members) jsontext.Value {
	for _, m := range messages {
		text := strings.Join(texts(m), "\n")
		start := strings.Index(text, "{")
		if start < 0 {
			continue
		}
		schema, err := jsontext.NewDecoder(strings.NewReader(text[start:])).ReadValue()
		if object, ok := (members{"schema": schema}).object("schema"); err == nil && ok && object.kind() == "object" {
			return schema
		}
	}
	return jsontext.Value("{}")
}
