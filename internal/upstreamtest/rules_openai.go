package upstreamtest

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// openAIModel is the support of a model in OpenAI's chat completions.
type openAIModel struct {
	efforts       []string // accepted levels of reasoning_effort; nil if the parameter is unknown
	defaultEffort string   // the effort of a request without one
	toolsNeedNone bool     // tools require the effort "none"
}

// effort returns the requested effort, or the default one.
func (m openAIModel) effort(requested string) string { return cmp.Or(requested, m.defaultEffort) }

var (
	oSeries    = regexp.MustCompile(`^o[134](-|$)`)
	newEfforts = []string{"none", "low", "medium", "high", "xhigh"} // since GPT 5.2
	gptVersion = regexp.MustCompile(`^gpt-(\d+)(?:\.(\d+))?`)
)

// openAIModelOf returns the support of a model by its name, after OpenAI's reference and its refusals. An unknown
// model has no effort.
func openAIModelOf(name string) openAIModel {
	m := gptVersion.FindStringSubmatch(name)
	switch {
	case strings.HasPrefix(name, "o1-mini"), strings.HasPrefix(name, "o1-preview"):
		return openAIModel{efforts: []string{}, defaultEffort: "medium"}
	case oSeries.MatchString(name):
		return openAIModel{efforts: []string{"low", "medium", "high"}, defaultEffort: "medium"}
	case m == nil, strings.HasPrefix(name, "gpt-5-chat"):
		return openAIModel{}
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	switch {
	case major < 5:
		return openAIModel{}
	case major == 5 && strings.Contains(name, "-chat"):
		return openAIModel{efforts: []string{"medium"}, defaultEffort: "medium"}
	case major == 5 && minor == 0:
		return openAIModel{efforts: []string{"minimal", "low", "medium", "high"}, defaultEffort: "medium"}
	case major == 5 && minor == 1:
		return openAIModel{efforts: []string{"none", "low", "medium", "high"}, defaultEffort: "none"}
	case major == 5 && minor < 5:
		return openAIModel{efforts: newEfforts, defaultEffort: "none", toolsNeedNone: minor == 4}
	}
	return openAIModel{efforts: newEfforts, defaultEffort: "medium", toolsNeedNone: true}
}

// ofModel returns a test that depends on the model and the requested effort. It only applies to OpenAI's chat
// completions.
func ofModel(holds func(s *spot, m openAIModel, effort string) bool) test {
	return func(s *spot) bool {
		return !s.config.Chat.OpenAI || holds(s, openAIModelOf(s.Model), s.str("reasoning_effort"))
	}
}

// sampling refuses a number other than the default while the model thinks.
func sampling(name string, value float64) row {
	return row{"", ofModel(func(s *spot, m openAIModel, effort string) bool {
		s.finding = string(s.members[name])
		return m.efforts == nil || m.effort(effort) == "none" || usual(name, value)(s)
	}), unsupportedValue("Unsupported value: '" + name + "' does not support {found} with this model. Only the default (" +
		strconv.FormatFloat(value, 'g', -1, 64) + ") value is supported.")}
}

// atMost refuses a longer list.
func atMost(name string, most int) row {
	return row{"", ofModel(func(s *spot, _ openAIModel, _ string) bool {
		var values []jsontext.Value
		return json.Unmarshal(s.members[name], &values) != nil || len(values) <= most || s.finds(strconv.Itoa(len(values)))
	}), refused("array_above_max_length", name, fmt.Sprintf("Invalid '%s': array too long. Expected an array with "+
		"maximum length %d, but got an array with length {found} instead.", name, most))}
}

var asksChatEffort = isText("reasoning_effort")

// modelTakesRows refuse parameters that the model does not support.
var modelTakesRows = rowsOf([]row{
	{"", ofModel(func(s *spot, m openAIModel, _ string) bool { return m.efforts != nil || !asksChatEffort(s) }),
		unknownArgument("reasoning_effort")},
	{"", ofModel(func(s *spot, m openAIModel, _ string) bool {
		return m.efforts == nil || len(m.efforts) > 0 || !asksChatEffort(s)
	}), unsupported("reasoning_effort", "")},
	{"", ofModel(func(s *spot, m openAIModel, effort string) bool {
		s.finding = strings.Join(m.efforts, "', '")
		return len(m.efforts) == 0 || !asksChatEffort(s) || slices.Contains(m.efforts, effort)
	}), unsupportedValue("Unsupported value: 'reasoning_effort' does not support '{reasoning_effort}' with this model. " +
		"Supported values are: '{found}'.")},
	{"", ofModel(func(s *spot, m openAIModel, _ string) bool { return m.efforts == nil || !s.has("max_tokens") }),
		unsupported("max_tokens", " Use 'max_completion_tokens' instead.")},
	{"", ofModel(func(s *spot, m openAIModel, effort string) bool {
		tools, _ := s.listed("tools")
		return !m.toolsNeedNone || m.effort(effort) == "none" || len(tools) == 0
	}), refusedWith(http.StatusBadRequest, "", "Function tools with reasoning_effort are not supported for {model} in "+
		"/v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.")},
	atMost("tools", 128), atMost("stop", 4),
	sampling("temperature", 1), sampling("top_p", 1), sampling("presence_penalty", 0), sampling("frequency_penalty", 0),
})

func unknownArgument(name string) error {
	return refusedWith(http.StatusBadRequest, "", "Unrecognized request argument supplied: "+name)
}

func unsupported(name, advice string) error {
	return refusedWith(http.StatusBadRequest, "unsupported_parameter", "Unsupported parameter: '"+name+
		"' is not supported with this model."+advice)
}

func unsupportedValue(message string) error {
	return refusedWith(http.StatusBadRequest, "unsupported_value", message)
}
