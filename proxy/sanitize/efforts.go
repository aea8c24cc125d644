package sanitize

import "regexp"

// Which models of chat completions take a reasoning_effort, and what those that
// think refuse beside it. The levels are from the vendors' references; that GPT-5.4
// and later want tools without an effort is from their own refusal ("to use function
// tools, use /v1/responses or set reasoning_effort to 'none'").

// efforts makes a row for models that take these levels, or none at all.
func efforts(levels ...string) func(*Profile) {
	return func(p *Profile) {
		p.Thinking.Efforts = append([]string{}, levels...)
	}
}

// openWeights are models that any vendor may serve.
var openWeights = []row{{containing("gpt-oss"), efforts("low", "medium", "high")}}

// openAIRows is the table of OpenAI's generations.
var openAIRows = []row{
	{containing("gpt-oss"), efforts("low", "medium", "high")},
	{gptSeries(0, 4), func(p *Profile) {
		efforts()(p)
		p.CompletionTokens = false
	}},
	{containing("gpt-5-chat"), func(p *Profile) {
		efforts()(p)
		p.CompletionTokens = true
	}},
	{matching("gpt chat", `gpt-5\.\d+-chat`), reasoning(SamplingFixed, "medium")},
	{gptGeneration(5, 0, 0), reasoning(SamplingFixed, "minimal", "low", "medium", "high")},
	{containing("gpt-5.1-codex-max"), reasoning(SamplingIdle, "none", "low", "medium", "high", "xhigh")},
	{gptGeneration(5, 1, 1), reasoning(SamplingIdle, "none", "low", "medium", "high")},
	{gptGeneration(5, 2, 3), reasoning(SamplingIdle, "none", "low", "medium", "high", "xhigh")},
	{gptGeneration(5, 4, 4), withoutTools(reasoning(SamplingIdle, "none", "low", "medium", "high", "xhigh"))},
	{gptGeneration(5, 5, 9), withoutTools(reasoning(SamplingFixed, "none", "low", "medium", "high", "xhigh"))},
	{containing("gpt-6-sol", "gpt-6-luna"),
		withoutTools(reasoning(SamplingFixed, "none", "low", "medium", "high", "xhigh", "max"))},
	{gptGeneration(6, 0, 9), reasoning(SamplingFixed, "low", "medium", "high", "xhigh", "max")},
	{matching("o1 preview", `(^|/)o1-(mini|preview)`), reasoning(SamplingFixed)},
	{matching("o series", `(^|/)o[134](-|$)`), reasoning(SamplingFixed, "low", "medium", "high")},
}

// xaiRows are xAI's: most of its models think as they like and refuse to be told.
var xaiRows = []row{
	{containing("grok-3-mini"), efforts("low", "high")},
	{containing("grok-4.20-multi-agent"), efforts("low", "medium", "high", "xhigh")},
	{containing("grok-4.3"), efforts("none", "low", "medium", "high")},
	{containing("grok-4.5"), efforts("low", "medium", "high")},
	{containing("grok-4.6"), efforts("low", "medium", "high", "xhigh")},
	{matching("grok", `grok-(2|3|code|4($|-|\.[012]))`), efforts()},
}

// reasoning makes a row for OpenAI's models that think.
func reasoning(sampling Sampling, levels ...string) func(*Profile) {
	return func(p *Profile) {
		efforts(levels...)(p)
		p.Sampling, p.CompletionTokens = sampling, true
	}
}

func withoutTools(set func(*Profile)) func(*Profile) {
	return func(p *Profile) {
		set(p)
		p.Thinking.NoEffortTools = true
	}
}

func matching(name, expression string) func(modelName) (string, bool) {
	is := regexp.MustCompile(expression)
	return func(m modelName) (string, bool) { return name, is.MatchString(m.full) }
}

var gptVersion = regexp.MustCompile(`gpt-(\d+)(?:\.(\d+))?`)

// gptGeneration takes the models of one major version, by their minor one.
func gptGeneration(major, least, most int) func(modelName) (string, bool) {
	return func(model modelName) (string, bool) {
		m := gptVersion.FindStringSubmatch(model.full)
		if m == nil || number(m[1]) != major || number(m[2]) < least || number(m[2]) > most {
			return "", false
		}
		return m[0], true
	}
}

// gptSeries takes the models of these major versions. Azure writes 3.5 as 35.
func gptSeries(least, most int) func(modelName) (string, bool) {
	return func(model modelName) (string, bool) {
		m := gptVersion.FindStringSubmatch(model.full)
		if m == nil {
			return "", false
		}
		major := number(m[1])
		if m[1] == "35" {
			major = 3
		}
		return m[0], least <= major && major <= most
	}
}
