package upstreamtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// reasoningField is where chat completions hold reasoning in the history.
const reasoningField = "reasoning_content"

// mistralID is what Mistral takes as the id of a call.
var mistralID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

func dialogueHolds(x *exchange) error {
	d := &dialogue{recurring: true}
	if vendor := x.config.vendor(); vendor == Chat || vendor == OpenAI {
		d = &dialogue{}
		switch x.config.Chat.ToolIDs {
		case OpenAIIDs:
			d.maxID = maxCallID
		case MistralIDs:
			d.ordered, d.callID = true, mistralID
		}
	}
	if err := checkChat(x.body, d); err != nil {
		return err
	}
	x.messages, _ = x.body.list("messages")
	for _, m := range x.messages {
		switch role, _ := m.text("role"); role {
		case user:
			x.User, x.Results = strings.Join(texts(m), "\n"), nil
		case tool:
			x.Results = append(x.Results, strings.Join(texts(m), "\n"))
		}
	}
	return nil
}

// knownArguments are the members of a request that OpenAI knows.
var knownArguments = []string{
	"audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
	"max_tokens", "messages",
	"metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
	"reasoning_effort",
	"response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
	"temperature", "tool_choice",
	"tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
}

func argumentsKnown(x *exchange) error {
	if name := x.body.unknown(knownArguments...); (x.config.Chat.KnownArguments || x.config.Chat.OpenAI) && name != "" {
		return fmt.Errorf("Unrecognized request argument supplied: %s", name)
	}
	return nil
}

// chatThinking reads whether the request asks for reasoning, in any of the ways
// that vendors know.
func chatThinking(x *exchange) error {
	effort, kind := x.effort(), x.at("thinking").kind()
	x.Thinking = effort != "" && effort != "none" || kind == "enabled" || kind == "adaptive"
	return nil
}

// textOnly refuses lists of content parts.
func textOnly(x *exchange) error {
	for i, m := range x.messages {
		if role, _ := m.text("role"); role == user && x.config.Chat.TextOnly && m["content"].Kind() != '"' {
			return fmt.Errorf("Failed to deserialize the JSON body into the target type: messages[%d]: invalid type: sequence, "+
				"expected a string", i)
		}
	}
	return nil
}

// reasoningReplayed refuses reasoning in the history where the vendor does.
func reasoningReplayed(x *exchange) error {
	for i, m := range x.messages {
		if role, _ := m.text("role"); role != assistant || m[reasoningField] == nil {
			continue
		}
		switch x.config.Chat.Replay {
		case ReplayGroq:
			return fmt.Errorf("'messages.%d' : for 'role:assistant' the following must be satisfied[('messages.%d' : "+
				"property '%s' is unsupported)]", i, i, reasoningField)
		case ReplayCerebras:
			r := refusal{
				status: http.StatusBadRequest, message: fmt.Sprintf("body.messages.%d.assistant.%s: property '%s' is unsupported",
					i, reasoningField, reasoningField),
			}
			r.body = object(nil).text("message", r.message).text("type", "invalid_request_error").text("param",
				"validation_error").text("code", "wrong_api_format").end()
			return r
		case ReplayMistral:
			r := refusal{status: http.StatusUnprocessableEntity, message: "Extra inputs are not permitted"}
			r.body = fmt.Appendf(nil,
				`{"detail":[{"type":"extra_forbidden","loc":["body","messages",%d,"assistant","%s"],"msg":"Extra inputs are not `+
					`permitted","input":%s}]}`,
				i, reasoningField, m[reasoningField])
			return r
		}
	}
	return nil
}

// sentinels are what Gemini takes in place of a thought signature for calls that
// it did not make.
var sentinels = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

// thoughtsSigned wants a thought signature on the first call of each step since
// the user spoke, and a good one wherever there is one.
func thoughtsSigned(x *exchange) error {
	if !x.config.Chat.ThoughtSignatures {
		return nil
	}
	loop := 0
	for i, m := range x.messages {
		if role, _ := m.text("role"); role == user {
			loop = i
		}
	}
	for i, m := range x.messages {
		calls, _ := m.list("tool_calls")
		for j, c := range calls {
			if err := x.thoughtSigned(c, i, i > loop && j == 0); err != nil {
				return gemini(err.Error())
			}
		}
	}
	return nil
}

func (x *exchange) thoughtSigned(call members, i int, required bool) error {
	extra, _ := call.object("extra_content")
	google, _ := extra.object("google")
	signature, _ := google.text("thought_signature")
	f, _ := call.object("function")
	name, _ := f.text("name")
	arguments, _ := f.text("arguments")
	switch _, err := base64.StdEncoding.DecodeString(signature); {
	case signature == "" && required:
		return fmt.Errorf("Function call is missing a thought_signature in functionCall parts. This is required for tools "+
			"to work correctly, "+
			"and missing thought_signature may lead to degraded model performance. Additional data, function call "+
			"`default_api:%s` , position %d. "+
			"Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.", name, i+1)
	case signature == "", slices.Contains(sentinels, signature):
		return nil
	case err != nil:
		return fmt.Errorf("Invalid value at 'contents[%d].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding "+
			"failed for \"%s\"", i, signature)
	case !hmac.Equal([]byte(signature), []byte(x.server.signer.thought(x.Model, name, arguments))):
		return errors.New("Corrupted thought signature.")
	}
	return nil
}

// thought is the signature of a call.
func (s signer) thought(model, name, arguments string) string {
	h := hmac.New(sha256.New, s.key)
	for _, part := range []string{model, name, arguments} {
		h.Write(append([]byte(part), 0))
	}
	sum := h.Sum([]byte{firstByte})
	for len(sum) < 300 { // as long as real ones
		next := sha256.Sum256(sum)
		sum = append(sum, next[:]...)
	}
	return base64.StdEncoding.EncodeToString(sum)
}

// gemini is a refusal in the shape that Gemini has for it: a list.
func gemini(message string) error {
	detail := object(nil).number("code", http.StatusBadRequest).text("message", message).text("status",
		"INVALID_ARGUMENT").end()
	return refusal{status: http.StatusBadRequest, message: message,
		body: array([]object{object(nil).raw("error", detail).end()})}
}
