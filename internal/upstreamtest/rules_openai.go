package upstreamtest

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// openAIModel is what OpenAI's chat completions take for a model.
type openAIModel struct {
	efforts  []string // levels of reasoning_effort; nil: it is not even known
	byItself string   // what the model does without one
	aloof    bool     // tools only with the effort "none"
}

var (
	oSeries    = regexp.MustCompile(`^o[134](-|$)`)
	gptVersion = regexp.MustCompile(`^gpt-(\d+)(?:\.(\d+))?`)
)

// openAIModelOf goes by the name, as OpenAI's reference and its refusals have it. One
// that it has never heard of takes no effort.
func openAIModelOf(name string) openAIModel {
	m := gptVersion.FindStringSubmatch(name)
	switch {
	case strings.HasPrefix(name, "o1-mini"), strings.HasPrefix(name, "o1-preview"):
		return openAIModel{efforts: []string{}, byItself: "medium"}
	case oSeries.MatchString(name):
		return openAIModel{efforts: []string{"low", "medium", "high"}, byItself: "medium"}
	case m == nil, strings.HasPrefix(name, "gpt-5-chat"):
		return openAIModel{}
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	switch {
	case major < 5:
		return openAIModel{}
	case major == 5 && strings.Contains(name, "-chat"):
		return openAIModel{efforts: []string{"medium"}, byItself: "medium"}
	case major == 5 && minor == 0:
		return openAIModel{efforts: []string{"minimal", "low", "medium", "high"}, byItself: "medium"}
	case major == 5 && minor == 1:
		return openAIModel{efforts: []string{"none", "low", "medium", "high"}, byItself: "none"}
	case major == 5 && minor < 5:
		return openAIModel{efforts: []string{"none", "low", "medium", "high", "xhigh"}, byItself: "none", aloof: minor == 4}
	}
	return openAIModel{efforts: []string{"none", "low", "medium", "high", "xhigh"}, byItself: "medium", aloof: true}
}

// openAITakes refuses what the model does not take.
func openAITakes(x *exchange) error {
	if !x.config.Chat.OpenAI {
		return nil
	}
	m := openAIModelOf(x.Model)
	effort, asked := x.body.text("reasoning_effort")
	switch {
	case asked && m.efforts == nil:
		return unknownArgument("reasoning_effort")
	case asked && len(m.efforts) == 0:
		return unsupported("reasoning_effort", "")
	case asked && !slices.Contains(m.efforts, effort):
		return unsupportedValue(fmt.Sprintf("Unsupported value: 'reasoning_effort' does not support '%s' with this model. "+
			"Supported values are: '%s'.",
			effort, strings.Join(m.efforts, "', '")))
	case m.efforts == nil:
		return nil
	case x.body.has("max_tokens"):
		return unsupported("max_tokens", " Use 'max_completion_tokens' instead.")
	}
	if !asked {
		effort = m.byItself
	}
	if effort == "none" {
		return nil
	}
	if tools, _ := x.body.list("tools"); m.aloof && len(tools) > 0 {
		return refusal{
			status: http.StatusBadRequest, code: "",
			message: fmt.Sprintf("Function tools with reasoning_effort are not supported for %s in /v1/chat/completions. "+
				"To use function tools, use /v1/responses or set reasoning_effort to 'none'.", x.Model),
		}
	}
	for name, usual := range map[string]float64{"temperature": 1, "top_p": 1, "presence_penalty": 0,
		"frequency_penalty": 0} {
		var value float64
		if x.body.has(name) && (json.Unmarshal(x.body[name], &value) != nil || value != usual) {
			return unsupportedValue(fmt.Sprintf("Unsupported value: '%s' does not support %s with this model. Only the "+
				"default (%g) value is supported.",
				name, x.body[name], usual))
		}
	}
	return nil
}

// parametersTaken refuses what the test says that the vendor does not take.
func parametersTaken(x *exchange) error {
	for _, name := range x.config.Chat.NoParameters {
		if x.body.has(name) {
			return unsupported(name, "")
		}
	}
	return nil
}

func unknownArgument(name string) error {
	return refusal{status: http.StatusBadRequest, message: "Unrecognized request argument supplied: " + name}
}

func unsupported(name, advice string) error {
	return refusal{
		status: http.StatusBadRequest, code: "unsupported_parameter",
		message: fmt.Sprintf("Unsupported parameter: '%s' is not supported with this model.%s", name, advice),
	}
}

func unsupportedValue(message string) error {
	return refusal{status: http.StatusBadRequest, code: "unsupported_value", message: message}
}
