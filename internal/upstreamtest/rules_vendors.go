package upstreamtest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// kimiThinking reads thinking; the model thinks unless told otherwise.
func kimiThinking(x *exchange) error {
	x.Thinking = true
	if !x.body.has("thinking") {
		return nil
	}
	thinking, ok := x.body.object("thinking")
	if !ok {
		kind := map[byte]string{'t': "bool", 'f': "bool", '"': "string", '0': "number",
			'[': "array"}[byte(x.body["thinking"].Kind())]
		return fmt.Errorf("the thinking field in the request (expected type object) is illegal, and %s is not acceptable",
			kind)
	}
	x.kind = thinking.kind()
	x.Thinking = x.kind != "disabled"
	switch {
	case x.kind == "enabled":
	case x.config.Thinking.OnlyEnabled:
		return errors.New("invalid thinking: only type=enabled is allowed for this model")
	case x.kind != "disabled":
		return errors.New("invalid thinking: only type=enabled or type=disabled is allowed for this model")
	}
	return nil
}

// kimiReasoning wants thinking in every message that calls a tool. An empty text is
// thinking to kimi-k2-thinking alone; one space is to all.
func kimiReasoning(x *exchange) error {
	enough := filled
	if strings.Contains(strings.ToLower(x.Model), "k2-thinking") {
		enough = empty
	}
	return x.eachAnswer(func(i int, calls bool, has reasoning) error {
		if calls && has < enough && x.Thinking {
			return fmt.Errorf("thinking is enabled but reasoning_content is missing in assistant tool call message at index %d",
				i)
		}
		return nil
	})
}

// glmThinking reads thinking. Models since 4.7 think unless told otherwise, and
// GLM-5.3 whatever it is told. A wrong parameter is not named.
func glmThinking(x *exchange) error {
	x.kind = x.at("thinking").kind()
	always := strings.Contains(strings.ToLower(x.Model), "glm-5.3")
	x.Thinking = x.kind != "disabled"
	effort := x.effort()
	switch {
	case x.body.has("thinking") && x.kind != "enabled" && x.kind != "disabled":
		return opaque("Invalid API parameter, please check the documentation.")
	case always && (!x.Thinking || effort != "" && !slices.Contains([]string{"low", "high", "max"}, effort)):
		return opaque("This model always engages in thinking and cannot be disabled; please use low, high, or max.")
	}
	return nil
}

// opaque is a refusal of GLM: a code that stands for any wrong parameter.
func opaque(message string) error {
	return refusal{status: http.StatusBadRequest, message: message, code: "1210"}
}

// deepSeekThinking reads thinking; the model thinks unless told otherwise.
func deepSeekThinking(x *exchange) error {
	x.kind = x.at("thinking").kind()
	x.Thinking = x.kind != "disabled"
	switch {
	case !x.body.has("thinking"):
	case !slices.Contains([]string{"adaptive", "enabled", "disabled"}, x.kind):
		return fmt.Errorf("Failed to deserialize the JSON body into the target type: thinking.type: unknown variant `%s`, "+
			"expected one of `adaptive`, `enabled`, `disabled`", x.kind)
	case !x.Thinking && x.effort() != "":
		return errors.New("thinking options type cannot be disabled when reasoning_effort is set")
	}
	return nil
}

// deepSeekReasoning wants thinking in every answer of a conversation in which a tool
// was called. An empty text is thinking to all models but V4 Pro; one space is to all.
func deepSeekReasoning(x *exchange) error {
	enough := empty
	if strings.Contains(strings.ToLower(x.Model), "v4-pro") {
		enough = filled
	}
	called := false
	_ = x.eachAnswer(func(_ int, calls bool, _ reasoning) error {
		called = called || calls
		return nil
	})
	field := "content[].thinking"
	if x.Endpoint == EndpointChat {
		field = "reasoning_content"
	}
	return x.eachAnswer(func(_ int, _ bool, has reasoning) error {
		if called && has < enough && x.Thinking {
			return fmt.Errorf("The `%s` in the thinking mode must be passed back to the API.", field)
		}
		return nil
	})
}

// reasoning is how much of it a message has.
type reasoning int

const (
	missing reasoning = iota
	empty             // a place for it, without a text
	filled
)

// eachAnswer calls do for every message of the assistant, in either dialect, until
// it gives an error: i is the message's index, calls says that it calls tools.
func (x *exchange) eachAnswer(do func(i int, calls bool, has reasoning) error) error {
	for i, t := range x.turns {
		if t.role != assistant {
			continue
		}
		calls := slices.ContainsFunc(t.blocks, func(b members) bool { return b.kind() == useBlock })
		has := missing
		for _, b := range t.blocks {
			if text, _ := b.text("thinking"); b.kind() == redactedBlock || text != "" {
				has = filled
			} else if thinks(b) {
				has = max(has, empty)
			}
		}
		if err := do(i, calls, has); err != nil {
			return err
		}
	}
	for i, m := range x.messages {
		if role, _ := m.text("role"); role != assistant {
			continue
		}
		has := missing
		if text, ok := m.text(reasoningField); text != "" {
			has = filled
		} else if ok {
			has = empty
		}
		if err := do(i, m.has("tool_calls"), has); err != nil {
			return err
		}
	}
	return nil
}

// servesModel is the first rule of every vendor.
func servesModel(x *exchange) error {
	switch {
	case x.Model == "" && x.Endpoint == EndpointResponses:
		return missingParameter("model")
	case x.Model == "" && x.Endpoint.dialect() == wire.Chat:
		return errors.New("you must provide a model parameter")
	case x.Model == "":
		return errors.New("model: Field required")
	case x.config.serves(x.Model):
		return nil
	case x.config.vendor() == DeepSeek:
		return refusal{status: http.StatusBadRequest, message: "Model Not Exist"}
	case x.Endpoint == EndpointResponses:
		return refused("model_not_found", "model", "The requested model '%s' does not exist.", x.Model)
	case x.Endpoint.dialect() == wire.Chat:
		return refusal{
			status: http.StatusNotFound, message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it.",
				x.Model), code: "model_not_found",
		}
	}
	return refusal{status: http.StatusNotFound, message: "model: " + x.Model}
}
