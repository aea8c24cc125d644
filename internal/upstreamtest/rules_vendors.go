package upstreamtest

import (
	"net/http"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// inDialect holds for requests of a dialect.
func inDialect(d wire.Dialect) test { return func(s *spot) bool { return s.Endpoint.dialect() == d } }

// isNamed holds for models whose name contains part.
func isNamed(part string) test {
	return func(s *spot) bool { return strings.Contains(strings.ToLower(s.Model), part) }
}

func hasModel(s *spot) bool { return s.Model != "" }

func served(s *spot) bool { return s.config.serves(s.Model) }

func refusedWith(status int, code, message string) refusal {
	return refusal{status: status, code: code, message: message}
}

func admitted(s *spot) bool {
	return s.config.APIKey == "" || presentedKey(s.Header) == s.config.APIKey
}

var (
	keyRows = rowsOf([]row{
		{"", either(admitted, not(inDialect(wire.Messages))), refusedWith(http.StatusUnauthorized, "", "invalid x-api-key")},
		{"", admitted, refusedWith(http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided.")},
	})
	inputRows = rowsOf([]row{{"", func(s *spot) bool { return len(s.inputs()) > 0 },
		badRequest("Invalid 'input': expected a string or an array of strings.")}})
	// modelRows are the first rows of every vendor.
	modelRows = rowsOf([]row{
		{"", either(hasModel, not(inDialect(wire.Responses))), missingParameter("model")},
		{"", either(hasModel, not(inDialect(wire.Chat))), badRequest("you must provide a model parameter")},
		{"", hasModel, badRequest("model: Field required")},
		{"", either(served, func(s *spot) bool { return s.config.vendor() != DeepSeek }), badRequest("Model Not Exist")},
		{"", either(served, not(inDialect(wire.Responses))), refused("model_not_found", "model",
			"The requested model '{model}' does not exist.")},
		{"", either(served, not(inDialect(wire.Chat))), refusedWith(http.StatusNotFound, "model_not_found",
			"The model `{model}` does not exist or you do not have access to it.")},
		{"", served, refusedWith(http.StatusNotFound, "", "model: {model}")},
	})

	userRoleRows = rowsOf([]row{{"messages[]@system", func(*spot) bool { return false },
		badRequest("Failed to deserialize the JSON body into the target type: messages[{i}].role: unknown variant `system`, " +
			"expected `user` or `assistant`")}})
	kimiModeRows = rowsOf([]row{
		{"", func(s *spot) bool {
			inner, ok := s.object("thinking")
			s.mode = inner.kind()
			s.Thinking = !ok || s.mode != "disabled"
			s.finding = map[byte]string{'t': "bool", 'f': "bool", '"': "string", '0': "number",
				'[': "array"}[byte(s.members["thinking"].Kind())]
			return ok || !s.has("thinking")
		}, badRequest("the thinking field in the request (expected type object) is illegal, and {found} is not acceptable")},
		{"", either(lacks("thinking"), inMode("enabled"), func(s *spot) bool { return !s.config.Thinking.OnlyEnabled }),
			badRequest("invalid thinking: only type=enabled is allowed for this model")},
		{"", either(lacks("thinking"), inMode("enabled", "disabled")),
			badRequest("invalid thinking: only type=enabled or type=disabled is allowed for this model")},
		{"", either(lacks("temperature"), isNamed("moonshot"), func(s *spot) bool {
			s.finding = map[bool]string{true: "1", false: "0.6"}[s.Thinking]
			return string(s.members["temperature"]) == s.finding
		}), badRequest("invalid temperature: only {found} is allowed for this model")},
		{"", either(not(thinking), unforced), badRequest("tool_choice specified is incompatible with thinking enabled")},
	})
	// Only kimi-k2-thinking accepts an empty text as thinking. All models accept one space.
	kimiReasoningRows = rowsOf([]row{{"messages[]@assistant", either(not(thinking), func(s *spot) bool {
		calls, has := s.reasoning()
		return !calls || has == filled || has == empty && isNamed("k2-thinking")(s)
	}), badRequest("thinking is enabled but reasoning_content is missing in assistant tool call message at index {i}")}})

	// Models since 4.7 think by default, and GLM-5.3 always thinks. The refusal does not name the parameter.
	glmModeRows = rowsOf([]row{
		{"", readThinking, nil},
		{"", either(lacks("thinking"), inMode("enabled", "disabled")),
			refusedWith(http.StatusBadRequest, "1210", "Invalid API parameter, please check the documentation.")},
		{"", either(not(isNamed("glm-5.3")), func(s *spot) bool {
			return s.Thinking && slices.Contains([]string{"", "low", "high", "max"}, s.effort())
		}), refusedWith(http.StatusBadRequest, "1210",
			"This model always engages in thinking and cannot be disabled; please use low, high, or max.")},
	})

	deepSeekModeRows = rowsOf([]row{
		{"", readThinking, nil},
		{"", either(lacks("thinking"), inMode("adaptive", "enabled", "disabled")),
			badRequest("Failed to deserialize the JSON body into the target type: thinking.type: unknown variant `{mode}`, " +
				"expected one of `adaptive`, `enabled`, `disabled`")},
		{"", either(lacks("thinking"), thinking, func(s *spot) bool { return s.effort() == "" }),
			badRequest("thinking options type cannot be disabled when reasoning_effort is set")},
		{"", either(not(thinking), unforced), badRequest("Thinking mode does not support this tool_choice")},
	})
	// Once a tool was called, all models except V4 Pro accept an empty text as thinking. All accept one space.
	deepSeekReasoningRows = rowsOf([]row{
		{"messages[]@assistant", func(s *spot) bool {
			calls, _ := s.reasoning()
			s.called = s.called || calls
			return true
		}, nil},
		onceMore, // all calls count before the first answer is checked
		{"messages[]@assistant", either(not(thinking), func(s *spot) bool {
			s.finding = map[Endpoint]string{EndpointChat: reasoningField}[s.Endpoint]
			if s.finding == "" {
				s.finding = "content[].thinking"
			}
			_, has := s.reasoning()
			return !s.called || has == filled || has == empty && !isNamed("v4-pro")(s)
		}), badRequest("The `{found}` in the thinking mode must be passed back to the API.")},
	})
)

// readThinking reads thinking. All models except deepseek-chat think by default.
func readThinking(s *spot) bool {
	s.mode = s.bodyObject("thinking").kind()
	s.Thinking = s.mode != "disabled" && (s.mode != "" || !isNamed("deepseek-chat")(s))
	return true
}

// inMode holds for these types of thinking.
func inMode(kinds ...string) test {
	return func(s *spot) bool { return slices.Contains(kinds, s.mode) }
}

// reasoning is the amount of reasoning in a message.
type reasoning int

const (
	missing reasoning = iota
	empty             // the member exists, without a text
	filled
)

// reasoning reports whether an assistant message calls tools, and how much reasoning it has.
func (s *spot) reasoning() (calls bool, has reasoning) {
	if s.Endpoint == EndpointChat {
		if text, ok := s.text(reasoningField); text != "" {
			has = filled
		} else if ok {
			has = empty
		}
		return s.has("tool_calls"), has
	}
	for _, b := range s.turns[s.i].blocks {
		calls = calls || b.is("type", useBlock)
		if b.is("type", redactedBlock) || b.str("thinking") != "" {
			has = filled
		} else if thinks(b) {
			has = max(has, empty)
		}
	}
	return calls, has
}
