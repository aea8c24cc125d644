package sanitize_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// fitted is what leaves of a request, and the rules that were applied.
func fitted(t *testing.T, d wire.Dialect, vendor, body string, betas ...string) (string, []sanitize.Kind,
	sanitize.Output) {
	t.Helper()
	out := sanitize.Sanitize(input(t, d, body, vendor, betas...))
	var applied []sanitize.Kind
	for _, c := range out.Changes {
		if len(applied) == 0 || applied[len(applied)-1] != c.Kind {
			applied = append(applied, c.Kind)
		}
	}
	return string(out.Body), applied, out
}

// a case says what becomes of the end of a request; stays stands for no change.
type change struct {
	vendor, model string
	in, out       string
	rules         []sanitize.Kind
}

const stays = ""

func run(t *testing.T, d wire.Dialect, head string, cases map[string]change) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			open := `{"model":"` + c.model + `"` + head
			want := c.out
			if want == stays {
				want = c.in
			}
			got, rules, _ := fitted(t, d, c.vendor, open+c.in)
			require.Equal(t, open+want, got)
			require.Equal(t, c.rules, rules)
		})
	}
}

// split returns the end of a request with the member that asks MiniMax for separate reasoning.
func split(end string) string { return strings.TrimSuffix(end, "}") + `,"reasoning_split":true}` }

type rules = []sanitize.Kind

const (
	sonnet = "claude-sonnet-4-5"
	opus   = "claude-opus-4-8"
	fable  = "claude-fable-5"
	hi     = `{"role":"user","content":"hi"}`
)

// How thinking is asked for, by vendor and model.
func TestThinkingMode(t *testing.T) {
	run(t, wire.Messages, `,"max_tokens":64000,"messages":[`+hi+`]`, map[string]change{
		"adaptive is enabled with a budget of its effort on 4.5": {"anthropic", "claude-opus-4-5",
			`,"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"medium"}}`,
			`,"thinking":{"type":"enabled","display":"omitted","budget_tokens":8192},"output_config":{"effort":"medium"}}`,
			rules{sanitize.KindMode}},
		"and without the effort where the model has none": {"anthropic", sonnet,
			`,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`,
			`,"thinking":{"type":"enabled","budget_tokens":4096}}`, rules{sanitize.KindMode, sanitize.KindEffort}},
		"adaptive stays on 4.6": {"anthropic", "claude-opus-4-6", `,"thinking":{"type":"adaptive"}}`, stays,
			nil},
		"enabled stays on 4.6": {
			"anthropic", "claude-opus-4-6", `,"thinking":{"type":"enabled","budget_tokens":2048}}`, stays, nil,
		},
		"enabled is adaptive with an effort": {"anthropic", opus, `,"thinking":{"type":"enabled","budget_tokens":2048}}`,
			`,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`, rules{sanitize.KindMode}},
		"an effort that is there stays": {
			"anthropic", opus, `,"output_config":{"effort":"max"},"thinking":{"budget_tokens":32000,"type":"enabled"}}`,
			`,"output_config":{"effort":"max"},"thinking":{"type":"adaptive"}}`, rules{sanitize.KindMode},
		},
		"disabled stays where it may be": {
			"anthropic", "claude-opus-5", `,"thinking":{"type":"disabled"},"output_config":{"effort":"high"}}`, stays, nil,
		},
		"disabled is removed where it may not": {"anthropic", "claude-opus-5-5", `,"thinking":{"type":"disabled"}}`, `}`,
			rules{sanitize.KindMode}},
		"disabled on Mythos Preview": {"anthropic", "claude-mythos-preview", `,"thinking":{"type":"disabled"}}`,
			`}`, rules{sanitize.KindMode}},
		"between_tools instead of disabled": {"anthropic", "claude-sonnet-5-5", `,"thinking":{"type":"disabled"}}`,
			`,"thinking":{"type":"between_tools"}}`, rules{sanitize.KindMode}},
		"between_tools where nobody knows it": {"anthropic", "claude-opus-5", `,"thinking":{"type":"between_tools"}}`,
			`,"thinking":{"type":"disabled"}}`, rules{sanitize.KindMode}},
		"an unlisted model is left alone": {
			"anthropic", "claude-opus-9", `,"thinking":{"type":"between_tools","x":1.50}}`, stays, nil,
		},
		"so is a vendor that nobody knows": {
			"generic", sonnet, `,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"}}`, stays, nil,
		},
		"adaptive on a vendor that is not ours": {"kimi", "kimi-k2.6", `,"thinking":{"type":"adaptive"}}`,
			`,"thinking":{"type":"enabled","budget_tokens":16384}}`, rules{sanitize.KindMode}},
		"adaptive on DeepSeek": {"deepseek", "deepseek-v4", `,"thinking":{"type":"adaptive"}}`, stays, nil},
		"auto is nobody's word": {"deepseek", "deepseek-v4", `,"thinking":{"type":"auto"}}`,
			`,"thinking":{"type":"adaptive"}}`, rules{sanitize.KindMode}},
		"a bool is no object": {"kimi", "kimi-k2.6", `,"thinking":true}`, `,"thinking":{"type":"enabled"}}`,
			rules{sanitize.KindMode}},
		"only enabled on k2.7-code": {"kimi", "kimi-k2.7-code", `,"thinking":{"type":"disabled"}}`, `}`,
			rules{sanitize.KindMode}},
		"adaptive on MiniMax M3": {
			"minimax", "MiniMax-M3", `,"thinking":{"type":"enabled","budget_tokens":9000}}`,
			`,"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}}`, rules{sanitize.KindMode},
		},
		"GLM 5.3 always thinks": {
			"glm", "glm-5.3", `,"thinking":{"type":"disabled"},"output_config":{"effort":"medium"}}`,
			`,"output_config":{"effort":"high"}}`, rules{sanitize.KindMode, sanitize.KindEffort},
		},
	})
}

func TestThinkingModeInChats(t *testing.T) {
	run(t, wire.Chat, `,"messages":[`+hi+`]`, map[string]change{
		"OpenAI does not know thinking": {
			"openai", "gpt-5.2", `,"thinking":{"type":"enabled"},"reasoning_effort":"xhigh"}`, `,"reasoning_effort":"xhigh"}`,
			rules{sanitize.KindMode},
		},
		"DeepSeek takes no effort beside disabled": {
			"deepseek", "deepseek-v4", `,"thinking":{"type":"disabled"},"reasoning_effort":"high"}`,
			`,"thinking":{"type":"disabled"}}`, rules{sanitize.KindEffort},
		},
		"DeepSeek thinks, and forces no tool then": {"deepseek", "deepseek-v4-flash", `,"tools":[{}],"tool_choice":"required"}`,
			`,"tools":[{}],"tool_choice":"required","thinking":{"type":"disabled"}}`, rules{sanitize.KindToolChoice}},
		"M3.1 cannot be disabled": {"minimax", "MiniMax-M3.1-Flash", `,"thinking":{"type":"disabled"}}`, split(`}`),
			rules{sanitize.KindMode, sanitize.KindSplit}},
		"k3 knows three levels": {"kimi", "k3.1-pro", `,"reasoning_effort":"medium"}`, `,"reasoning_effort":"high"}`,
			rules{sanitize.KindEffort}},
		"Gemini does not know thinking": {"gemini", "gemini-3-pro", `,"thinking":{"type":"enabled"}}`, `}`,
			rules{sanitize.KindMode}},
		"but an effort alone": {"deepseek", "deepseek-chat", `,"reasoning_effort":"high"}`, stays, nil},
		"Kimi takes an object": {"kimi", "kimi-k2.6", `,"thinking":false}`,
			`,"thinking":{"type":"disabled"}}`, rules{sanitize.KindMode}},
		"Kimi does not know adaptive": {"kimi", "kimi-k2.6", `,"thinking":{"type":"adaptive","keep":"all"}}`,
			`,"thinking":{"type":"enabled","keep":"all"}}`, rules{sanitize.KindMode}},
		"k3 cannot be disabled": {"kimi", "kimi-k3", `,"thinking":{"type":"disabled"}}`, `}`,
			rules{sanitize.KindMode}},
		"GLM 5.3 cannot either": {
			"glm", "glm-5.3", `,"reasoning_effort":"none","thinking":{"type":"disabled"}}`, `,"reasoning_effort":"low"}`,
			rules{sanitize.KindMode, sanitize.KindEffort},
		},
		"a forced tool and a model that may stop": {"kimi", "kimi-k2.6", `,"tools":[{}],"tool_choice":"required"}`,
			`,"tools":[{}],"tool_choice":"required","thinking":{"type":"disabled"}}`, rules{sanitize.KindToolChoice}},
		"a forced tool and one that may not": {
			"kimi", "kimi-k3", `,"tools":[{}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, `,"tools":[{}],"tool_choice":"auto"}`,
			rules{sanitize.KindToolChoice},
		},
		"an effort is no thinking": {"openai", "gpt-5", `,"tools":[{}],"tool_choice":"required","reasoning_effort":"low"}`,
			stays, nil},
		"GPT-4.1 takes no effort": {"openai", "gpt-4.1", `,"reasoning_effort":"medium"}`, `}`,
			rules{sanitize.KindEffort}},
		"nor does GPT-4o at Azure": {"azure", "gpt-4o-mini", `,"reasoning_effort":"low","max_tokens":7}`,
			`,"max_tokens":7}`, rules{sanitize.KindEffort}},
		"GPT-5 has no none": {"openai", "gpt-5-mini", `,"reasoning_effort":"none"}`,
			`,"reasoning_effort":"minimal"}`, rules{sanitize.KindEffort}},
		"GPT-5.1 has no minimal": {"openai", "gpt-5.1", `,"reasoning_effort":"minimal"}`,
			`,"reasoning_effort":"low"}`, rules{sanitize.KindEffort}},
		"o3 has neither, and a limit of its own": {
			"openai", "o3-mini", `,"reasoning_effort":"max","max_tokens":7,"temperature":0.2,"top_p":1}`,
			`,"reasoning_effort":"high","top_p":1,"max_completion_tokens":7}`, rules{sanitize.KindEffort, sanitize.KindSampling,
				sanitize.KindLimit},
		},
		"GPT-5.2 may be warm while idle": {"openai", "gpt-5.2", `,"temperature":0.2}`, stays, nil},
		"and not while it thinks": {"openai", "gpt-5.2", `,"temperature":0.2,"reasoning_effort":"low"}`,
			`,"reasoning_effort":"low"}`, rules{sanitize.KindSampling}},
		"GPT-5.4 does not think beside tools": {"openai", "gpt-5.4", `,"tools":[{}],"reasoning_effort":"high"}`,
			`,"tools":[{}],"reasoning_effort":"none"}`, rules{sanitize.KindEffort}},
		"GPT-5.6 has to be told so": {"openai", "gpt-5.6-terra", `,"tools":[{}]}`,
			`,"tools":[{}],"reasoning_effort":"none"}`, rules{sanitize.KindEffort}},
		"and thinks without tools": {"openai", "gpt-5.6", `,"reasoning_effort":"high"}`, stays, nil},
		"Grok 4 does as it likes": {"xai", "grok-4-latest", `,"reasoning_effort":"high"}`, `}`,
			rules{sanitize.KindEffort}},
		"Grok 3 mini knows two levels": {"xai", "grok-3-mini", `,"reasoning_effort":"medium"}`,
			`,"reasoning_effort":"high"}`, rules{sanitize.KindEffort}},
		"Qwen at Groq thinks or does not": {"groq", "qwen/qwen3-32b", `,"reasoning_effort":"medium"}`,
			`,"reasoning_effort":"default"}`, rules{sanitize.KindEffort}},
		"an unlisted model keeps what it was sent": {"openai", "gpt-9", `,"reasoning_effort":"medium","temperature":0.2}`,
			stays, nil},
		"nobody knows": {
			"generic", "m", `,"thinking":{"type":"adaptive"},"reasoning_effort":"max"}`, stays, nil,
		},
	})
}

// A budget is legal or thinking is off.
func TestBudget(t *testing.T) {
	run(t, wire.Messages, `,"messages":[`+hi+`]`, map[string]change{
		"max_tokens less 1024": {
			"anthropic", sonnet, `,"max_tokens":32000,"thinking":{"budget_tokens":31999,"type":"enabled"}}`,
			`,"max_tokens":32000,"thinking":{"budget_tokens":30976,"type":"enabled"}}`, rules{sanitize.KindBudget},
		},
		"too little is left": {
			"anthropic", sonnet, `,"max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1500}}`, `,"max_tokens":2000}`,
			rules{sanitize.KindBudget},
		},
		"too little was asked": {
			"anthropic", sonnet, `,"max_tokens":64000,"thinking":{"type":"enabled","budget_tokens":500}}`,
			`,"max_tokens":64000}`, rules{sanitize.KindBudget},
		},
		"none was asked": {"anthropic", sonnet, `,"max_tokens":64000,"thinking":{"type":"enabled"}}`,
			`,"max_tokens":64000,"thinking":{"type":"enabled","budget_tokens":16384}}`, rules{sanitize.KindBudget}},
		"of our own making": {"anthropic", sonnet, `,"max_tokens":4000,"thinking":{"type":"adaptive"}}`,
			`,"max_tokens":4000,"thinking":{"type":"enabled","budget_tokens":2976}}`,
			rules{sanitize.KindMode, sanitize.KindBudget}},
		"a model that has to think": {
			"anthropic", "claude-mythos-preview", `,"max_tokens":1500,"thinking":{"type":"enabled","budget_tokens":1200}}`,
			`,"max_tokens":1500,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`, rules{sanitize.KindMode},
		},
		"one that knows no other way": {
			"kimi", "kimi-k3", `,"max_tokens":1500,"thinking":{"type":"enabled","budget_tokens":1200}}`,
			`,"max_tokens":1500,"thinking":{"type":"enabled"}}`, rules{sanitize.KindBudget},
		},
		"one that is told to stop": {
			"kimi", "kimi-k2.6", `,"max_tokens":1500,"thinking":{"type":"enabled","budget_tokens":1200}}`,
			`,"max_tokens":1500,"thinking":{"type":"disabled"}}`, rules{sanitize.KindBudget},
		},
		"others do not need one": {"deepseek", "deepseek-v4", `,"max_tokens":1500,"thinking":{"type":"enabled"}}`,
			stays, nil},
		"max_tokens of any size": {
			"anthropic", sonnet,
			`,"max_tokens":1e300,"thinking":{"type":"enabled","budget_tokens":31999},"output_config":{"effort":7}}`, stays, nil,
		},
		"off takes its edits and effort": {
			"anthropic", "claude-opus-4-6",
			`,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"max_tokens":100,"thinking":{"type":"enabled","budget_tokens":99},"output_config":{"effort":"max"}}`, `,"max_tokens":100,"output_config":{"effort":"high"}}`, rules{sanitize.KindBudget, sanitize.KindEdits, sanitize.KindEffort},
		},
	})

	t.Run("what is configured", func(t *testing.T) {
		body := `{"model":"kimi-k2.6","max_tokens":64000,"messages":[` + hi +
			`],"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`
		in := input(t, wire.Messages, body, "kimi")
		in.Budget = 10000
		require.Contains(t, string(sanitize.Sanitize(in).Body), `"thinking":{"type":"enabled","budget_tokens":3268}`,
			"low is a quarter, above the least")
		in = input(t, wire.Messages, strings.Replace(body, `,"output_config":{"effort":"low"}`, "", 1), "kimi")
		in.Budget = 10000
		require.Contains(t, string(sanitize.Sanitize(in).Body), `"thinking":{"type":"enabled","budget_tokens":10000}`)
	})
	t.Run("what is configured is a bound", func(t *testing.T) {
		in := input(t, wire.Messages, `{"model":"`+sonnet+`","max_tokens":64000,"messages":[`+hi+
			`],"thinking":{"type":"enabled","budget_tokens":5000}}`, "anthropic")
		in.Budget = 2000
		require.Contains(t, string(sanitize.Sanitize(in).Body), `"budget_tokens":2000`)
		in.Budget = 6000
		require.Empty(t, sanitize.Sanitize(in).Changes)
	})
	t.Run("every level is another share", func(t *testing.T) {
		for _, bound := range []int64{1100, 2000, 8192, 100_000} {
			low, medium, high := sanitize.BudgetOf(bound, "low"), sanitize.BudgetOf(bound, "medium"),
				sanitize.BudgetOf(bound, "high")
			require.Less(t, int64(1024), low)
			require.Less(t, low, medium)
			require.Less(t, medium, high)
			require.Equal(t, bound, high)
		}
		require.EqualValues(t, 1024, sanitize.BudgetOf(1024, "low"), "less is refused")
		require.EqualValues(t, 4096, sanitize.BudgetOf(0, "low"))
	})
	t.Run("counting has no max_tokens", func(t *testing.T) {
		in := input(t, wire.Messages, `{"model":"`+sonnet+`","messages":[`+hi+
			`],"thinking":{"type":"enabled","budget_tokens":31999}}`, "anthropic")
		in.Count = true
		require.Empty(t, sanitize.Sanitize(in).Changes)
	})
	t.Run("thinking between tools may take it all", func(t *testing.T) {
		body := `{"model":"` + sonnet + `","max_tokens":32000,"tools":[{}],"messages":[` + hi +
			`],"thinking":{"type":"enabled","budget_tokens":31999}}`
		_, rules, _ := fitted(t, wire.Messages, "anthropic", body, "x, interleaved-thinking-2025-05-14")
		require.Empty(t, rules)
		got, _, _ := fitted(t, wire.Messages, "anthropic", body)
		require.Contains(t, got, "30976")
	})
}

// Thinking and what cannot stand beside it.
func TestBesideThinking(t *testing.T) {
	const loop = `,"max_tokens":9000,"messages":[` + hi +
		`,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"n","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"and"}]}]`
	const prefill = `,"max_tokens":9000,"messages":[` + hi + `,{"role":"assistant","content":"Once"}]`
	const open = `,"max_tokens":9000,"messages":[` + hi + `]`
	const manual = `,"thinking":{"type":"enabled","budget_tokens":2000}`
	run(t, wire.Messages, "", map[string]change{
		"a forced tool turns thinking off": {"anthropic", sonnet, open + manual + `,"tool_choice":{"type":"any"}}`, open +
			`,"tool_choice":{"type":"any"}}`, rules{sanitize.KindToolChoice}},
		"and where it is on by default": {
			"anthropic", "claude-opus-5", open + `,"tool_choice":{"type":"tool","name":"n"}}`, open +
				`,"tool_choice":{"type":"tool","name":"n"},"thinking":{"type":"disabled"}}`, rules{sanitize.KindToolChoice},
		},
		"one that always thinks is asked to": {
			"anthropic", fable, open + `,"tool_choice":{"type":"tool","name":"n","disable_parallel_tool_use":true}}`, open +
				`,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`, rules{sanitize.KindToolChoice},
		},
		"auto and none stay": {"anthropic", sonnet, open + manual + `,"tool_choice":{"type":"none"}}`, stays,
			nil},
		"a forced tool without thinking": {"anthropic", opus, open + `,"tool_choice":{"type":"any"}}`, stays, nil},

		"a loop that begins without thinking turns it off": {"anthropic", sonnet, loop + manual + `}`, loop + `}`,
			rules{sanitize.KindLoop}},
		"not if it is adaptive": {"anthropic", opus, loop + `,"thinking":{"type":"adaptive"}}`,
			stays, nil},
		"nor for a vendor that does not mind": {"glm", "glm-4.7", loop + manual + `}`, stays, nil},
		"a model that has to think goes on adaptively": {"anthropic", "claude-mythos-preview", loop + manual + `}`, loop +
			`,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`, rules{sanitize.KindMode}},
		"an answer to go on with begins a turn, too": {"anthropic", sonnet, prefill + manual + `}`, prefill + `}`,
			rules{sanitize.KindLoop}},

		"temperature beside thinking": {"anthropic", sonnet, open + manual + `,"temperature":0.2,"top_p":0.5,"top_k":3}`,
			open + manual + `}`, rules{sanitize.KindSampling}},
		"the default is no temperature": {"anthropic", "claude-3-7-sonnet", open + manual +
			`,"temperature":1.0,"top_p":0.97}`, stays, nil},
		"temperature without thinking": {"anthropic", sonnet, open + `,"temperature":0.2}`, stays, nil},
		"top_p beside temperature": {"anthropic", "claude-opus-4-1", open + `,"temperature":0.2,"top_p":0.9}`,
			open + `,"temperature":0.2}`, rules{sanitize.KindSampling}},
		"top_p in place of a refused temperature": {"bedrock", sonnet, open + manual + `,"temperature":0.2,"top_p":0.97}`,
			open + manual + `,"top_p":0.97}`, rules{sanitize.KindSampling}},
		"before 4.1 both": {"anthropic", "claude-opus-4-0", open + `,"temperature":0.2,"top_p":0.9}`, stays, nil},
		"Kimi takes not even its defaults": {"kimi", "kimi-k2.6", open + `,"temperature":1,"top_p":0.95}`, open + `}`,
			rules{sanitize.KindSampling}},
		"Moonshot's older models take any": {"kimi", "moonshot-v1-8k", open + `,"temperature":0.3}`, stays, nil},
		"since 4.7 never any": {"anthropic", opus, open + `,"temperature":0.2,"top_p":0.99}`, open + `}`,
			rules{sanitize.KindSampling}},
		"other vendors take temperature": {"deepseek", "deepseek-v4", open + manual + `,"temperature":2}`, stays, nil},

		"no clearing of thinking that is off": {
			"anthropic", opus, open +
				`,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"clear_thinking_20251015"}],"x":1}}`,
			open + `,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}],"x":1}}`,
			rules{sanitize.KindEdits, sanitize.KindBeta},
		},
		"an emptied list is removed": {
			"anthropic", opus, open +
				`,"thinking":{"type":"disabled"},"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}}`, open +
				`,"thinking":{"type":"disabled"}}`, rules{sanitize.KindEdits},
		},
		"no effort above high while off": {
			"anthropic", "claude-opus-5", open + `,"thinking":{"type":"disabled"},"output_config":{"effort":"xhigh"}}`, open +
				`,"thinking":{"type":"disabled"},"output_config":{"effort":"high"}}`, rules{sanitize.KindEffort},
		},
		"DeepSeek takes none at all then": {
			"deepseek", "deepseek-v4", open + `,"thinking":{"type":"disabled"},"output_config":{"effort":"high"}}`, open +
				`,"thinking":{"type":"disabled"}}`, rules{sanitize.KindEffort},
		},
	})
}

// What goes with a beta, and the header that says so.
func TestBetas(t *testing.T) {
	adaptive := `{"model":"` + sonnet + `","max_tokens":9000,"tools":[{"name":"n"}],"messages":[` + hi +
		`],"thinking":{"type":"adaptive"}}`
	_, _, out := fitted(t, wire.Messages, "anthropic", adaptive, "unknown-2030-01-01")
	require.Equal(t, []string{"interleaved-thinking-2025-05-14"}, out.AddBetas, "adaptive thinks between tools by itself")
	require.Empty(t, out.RemoveBetas, "Anthropic's betas are the client's affair")
	h := map[string][]string{"Anthropic-Beta": {"unknown-2030-01-01"}}
	out.Header(h)
	require.Equal(t, []string{"unknown-2030-01-01,interleaved-thinking-2025-05-14"}, h["Anthropic-Beta"])

	managed := `{"model":"` + opus + `","messages":[` + hi +
		`],"thinking":{"type":"adaptive"},"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}}`
	body, _, out := fitted(t, wire.Messages, "anthropic", managed)
	require.Equal(t, managed, body)
	require.Equal(t, []string{"context-management-2025-06-27"}, out.AddBetas)
	_, applied, _ := fitted(t, wire.Messages, "anthropic", managed, "context-management-2025-06-27")
	require.Empty(t, applied)

	body, _, out = fitted(t, wire.Messages, "bedrock", managed, "context-management-2025-06-27",
		"claude-code-20250219,effort-2025-11-24")
	require.NotContains(t, body, "context_management")
	require.Equal(t, []string{"context-management-2025-06-27", "claude-code-20250219"}, out.RemoveBetas)
	h = map[string][]string{"Anthropic-Beta": {"context-management-2025-06-27", "claude-code-20250219,effort-2025-11-24"}}
	out.Header(h)
	require.Equal(t, []string{"effort-2025-11-24"}, h["Anthropic-Beta"])
	h = map[string][]string{"Anthropic-Beta": {"claude-code-20250219"}}
	out.Header(h)
	require.NotContains(t, h, "Anthropic-Beta")
}

func TestThinkingOff(t *testing.T) {
	off := func(d wire.Dialect, vendor, body string) string {
		o, err := wire.ReadOutline([]byte(body))
		require.NoError(t, err)
		out := sanitize.ThinkingOff(o, d, sanitize.For(vendor, o.Model))
		if string(out) == body {
			require.Same(t, &o.Body[0], &out[0])
		}
		return string(out)
	}
	require.Equal(t, `{"model":"claude-opus-9","output_config":{"effort":"low"}}`,
		off(wire.Messages, "anthropic",
			`{"model":"claude-opus-9","output_config":{"effort":"low"},"thinking":{"type":"adaptive"}}`))
	require.Equal(t, `{"model":"`+sonnet+`","output_config":{"format":1}}`,
		off(wire.Messages, "anthropic", `{"model":"`+sonnet+
			`","thinking":{"type":"enabled","budget_tokens":2000},"output_config":{"effort":"max","format":1},"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}}`))
	require.Equal(t, `{"model":"kimi-k2.6","thinking":{"type":"disabled"}}`,
		off(wire.Messages, "kimi", `{"model":"kimi-k2.6"}`))
	require.Equal(t, `{"model":"kimi-k3"}`, off(wire.Messages, "kimi", `{"model":"kimi-k3"}`), "it cannot be told")
	require.Equal(t, `{"model":"deepseek-v4","thinking":{"type":"disabled"}}`,
		off(wire.Chat, "deepseek", `{"model":"deepseek-v4","reasoning_effort":"low"}`))
	require.Equal(t, `{"model":"m"}`,
		off(wire.Chat, "generic", `{"model":"m","thinking":{"type":"enabled"},"reasoning_effort":"low"}`))
	require.Equal(t, `{"model":"`+opus+`"}`, off(wire.Messages, "anthropic", `{"model":"`+opus+`"}`))
}

// An effort that is left to the gateway goes where it is known to be taken.
func TestEffortOfOurOwn(t *testing.T) {
	for model, want := range map[string]string{
		"openai gpt-5": "medium", "openai gpt-5.2": "medium", "openai o4-mini": "medium",
		"groq openai/gpt-oss-120b": "medium", "ollama gpt-oss:20b": "medium",
		"gemini gemini-2.5-pro": "medium", "xai grok-4.3": "medium",
		"openai gpt-4.1": "", "openai gpt-4o": "", "openai gpt-9": "", "openai gpt-5-chat-latest": "", "xai grok-4": "",
		"xai grok-3-mini":              "",
		"mistral mistral-large-latest": "", "generic m": "", "deepseek deepseek-chat": "", "glm glm-4.6": "",
		"glm glm-5.3": "", "kimi kimi-k2-thinking": "",
		"azure my-deployment": "", "groq qwen/qwen3-32b": "",
	} {
		vendor, name, _ := strings.Cut(model, " ")
		send := func(rest string) string {
			in := input(t, wire.Chat, `{"model":"`+name+`","messages":[`+hi+`]`+rest+`}`, vendor)
			in.Effort = "medium"
			o, err := wire.ReadOutline(sanitize.Sanitize(in).Body)
			require.NoError(t, err)
			effort, _ := o.Text(o.Members.Get("reasoning_effort"))
			return effort
		}
		require.Equal(t, want, send(""), model)
		if want != "" {
			require.Equal(t, "low", send(`,"reasoning_effort":"low"`), model)
		}
	}
	in := input(t, wire.Chat, `{"model":"gpt-5.4","messages":[`+hi+`],"tools":[{}]}`, "openai")
	in.Effort = "medium"
	require.Contains(t, string(sanitize.Sanitize(in).Body), `"reasoning_effort":"none"`, "not beside tools")
}

// What a backend has refused before is not sent again, and nothing else changes.
func TestRules(t *testing.T) {
	effort := sanitize.Rule{Name: "reasoning_effort"}
	for _, c := range []struct {
		rule    sanitize.Rule
		dialect wire.Dialect
		in, out string
	}{
		{effort, wire.Chat, `,"reasoning_effort":"low","x":1.0}`, `,"x":1.0}`},
		{effort, wire.Chat, `,"x":1.0}`, `,"x":1.0}`},
		{sanitize.Rule{Name: "reasoning_effort", Value: `"none"`}, wire.Chat, `,"reasoning_effort":"none"}`, `}`},
		{sanitize.Rule{Name: "reasoning_effort", Value: `"none"`}, wire.Chat, `,"reasoning_effort":"low"}`,
			`,"reasoning_effort":"low"}`},
		{sanitize.Rule{Name: "max_tokens", Replacement: "max_completion_tokens"}, wire.Chat, `,"max_tokens":7}`,
			`,"max_completion_tokens":7}`},
		{sanitize.Rule{Name: "top_p", ConflictsWith: "temperature"}, wire.Chat, `,"temperature":1,"top_p":1}`,
			`,"temperature":1}`},
		{sanitize.Rule{Name: "top_p", ConflictsWith: "temperature"}, wire.Chat, `,"top_p":1}`, `,"top_p":1}`},
		{sanitize.Rule{Name: "reasoning_effort", ConflictsWith: "tools", Set: `"none"`}, wire.Chat, `,"tools":[{}]}`,
			`,"tools":[{}],"reasoning_effort":"none"}`},
		{sanitize.Rule{Name: "reasoning_effort", ConflictsWith: "tools", Set: `"none"`}, wire.Chat, `,"tools":[]}`, `}`},
		{sanitize.Rule{Name: "output_config.effort"}, wire.Messages, `,"output_config":{"effort":"low","format":{}}}`,
			`,"output_config":{"format":{}}}`},
		{sanitize.Rule{Name: "output_config.effort"}, wire.Messages, `,"output_config":{"effort":"low"}}`, `}`},
		{sanitize.Rule{Name: "thinking"}, wire.Messages,
			`,"thinking":{"type":"enabled","budget_tokens":2000},"output_config":{"effort":"max"}}`,
			`,"output_config":{"effort":"high"}}`},
		{sanitize.Rule{Profile: sanitize.Overrides{Thinking: sanitize.ThinkingOverrides{Modes: []sanitize.Mode{"enabled"}}}},
			wire.Messages, `,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`,
			`,"thinking":{"type":"enabled","budget_tokens":4096},"output_config":{"effort":"low"}}`},
		{sanitize.Rule{Profile: sanitize.Overrides{Thinking: sanitize.ThinkingOverrides{Default: "on"}}}, wire.Messages,
			`,"tools":[{}],"tool_choice":{"type":"any"}}`,
			`,"tools":[{}],"tool_choice":{"type":"any"},"thinking":{"type":"disabled"}}`},
		{sanitize.Rule{Name: "thinking.budget_tokens", Max: 1500}, wire.Messages,
			`,"thinking":{"type":"enabled","budget_tokens":2000}}`, `,"thinking":{"type":"enabled","budget_tokens":1500}}`},
		{sanitize.Rule{Name: "top_p", ConflictsWith: "thinking"}, wire.Chat, `,"thinking":{"type":"enabled"},"top_p":0.5}`,
			`,"thinking":{"type":"enabled"}}`},
		{sanitize.Rule{Name: "top_p", ConflictsWith: "thinking"}, wire.Chat, `,"thinking":{"type":"disabled"},"top_p":0.5}`,
			`,"thinking":{"type":"disabled"},"top_p":0.5}`},
	} {
		const open = `{"model":"m","max_tokens":9000,"messages":[` + hi + `]`
		body := open
		if c.dialect == wire.Chat {
			body = strings.Replace(open, `"max_tokens":9000,`, "", 1)
		}
		in := input(t, c.dialect, body+c.in, "generic")
		in.Rules = []sanitize.Rule{c.rule}
		in.Profile = in.Profile.Learn(in.Rules)
		require.Equal(t, body+c.out, string(sanitize.Sanitize(in).Body))
	}
}

// A model that is known to have no format of its own answers by a tool; any other request stays as it is.
func TestAnswersByTool(t *testing.T) {
	const form = `{"type":"json_schema","schema":{"type":"object"}}`
	const tool = `{"name":"answer_in_json","description":"` + wire.AnswerToolSays + `","input_schema":{"type":"object"}}`
	for _, c := range []struct{ vendor, model, in, out, tool string }{
		{"kimi", "k", `,"output_config":{"format":` + form + `}}`,
			`,"tools":[` + tool + `],"tool_choice":{"type":"tool","name":"answer_in_json"}}`, "answer_in_json"},
		{"glm", "g", `,"output_config":{"effort":"low","format":` + form + `},"tools":[{"name":"answer_in_json"}]}`,
			`,"output_config":{"effort":"low"},"tools":[{"name":"answer_in_json"},` +
				strings.Replace(tool, "in_json", "in_json_", 1) +
				`],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`, "answer_in_json_"},
		{"deepseek", "d", `,"output_format":` + form + `,"tools":[{"name":"f"}],"tool_choice":{"type":"any"}}`,
			`,"tools":[{"name":"f"}],"tool_choice":{"type":"any"}}`, ""},
		{"anthropic", "claude-opus-4-8", `,"output_config":{"format":` + form + `}}`, ``, ""},
		{"anthropic", "new", `,"output_config":{"format":` + form + `}}`, ``, ""},
		{"generic", "m", `,"output_format":` + form + `}`, ``, ""},
		{"kimi", "k", `,"output_config":{"format":{"type":"json_schema","schema":{}}}}`, ``, ""},
	} {
		const open = `{"model":"%s","max_tokens":9000,"messages":[` + hi + `]`
		body := strings.Replace(open, "%s", c.model, 1)
		out := sanitize.Sanitize(input(t, wire.Messages, body+c.in, c.vendor))
		require.JSONEq(t, body+cmp.Or(c.out, c.in), string(out.Body))
		require.Equal(t, c.tool, out.AnswerTool)
	}
}

// What a client adds to one request alone is one text with the rest where parts may be refused.
func TestEphemeralPartsAreJoined(t *testing.T) {
	const (
		head  = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},`
		image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}`
		parts = `[{"type":"text","text":"a"},{"type":"text","text":"<\u00e9>"},{"type":"text","text":"c"}]`
	)
	for name, c := range map[string]struct {
		vendor, content, out string
		translated           bool
	}{
		"text only":         {"generic", parts, `"a\n\n<é>\n\nc"`, false},
		"takes parts":       {"openai", parts, parts, false},
		"translated":        {"openai", parts, `"a\n\n<é>\n\nc"`, true},
		"an image":          {"generic", `[` + parts[1:len(parts)-1] + `,` + image + `]`, `[` + parts[1:len(parts)-1] + `,` + image + `]`, false},
		"one text":          {"deepseek", `"a"`, `"a"`, false},
		"a blank one":       {"deepseek", `[{"type":"text","text":" "},{"type":"text","text":"b"}]`, `"b"`, false},
		"what is no string": {"deepseek", `[{"type":"text","text":5},{"type":"text","text":"b"}]`, `[{"type":"text","text":5},{"type":"text","text":"b"}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(t, wire.Chat, head+`{"role":"assistant","content":"so"},{"role":"user","content":`+c.content+`}]}`, c.vendor)
			in.Ephemeral, in.Translated = true, c.translated
			out := sanitize.Sanitize(in)
			require.Equal(t, head+`{"role":"assistant","content":"so"},{"role":"user","content":`+c.out+`}]}`, string(out.Body))
			in.Ephemeral = false
			if name != "a blank one" {
				require.Same(t, &in.Outline.Body[0], &sanitize.Sanitize(in).Body[0])
			}
		})
	}
}

// An answer that the request leaves open is bounded, with room for the thinking, where that is asked for.
func TestAnswerIsBounded(t *testing.T) {
	const messages, chat = wire.Messages, wire.Chat
	for name, c := range map[string]struct {
		dialect       wire.Dialect
		vendor, model string
		in, out       string // behind the messages
		translated    bool
	}{
		"open":                       {messages, "anthropic", "claude-3-5-haiku", ``, `,"max_tokens":4096`, false},
		"null":                       {messages, "anthropic", "claude-3-5-haiku", `,"max_tokens":null`, `,"max_tokens":4096`, false},
		"bounded":                    {messages, "anthropic", "claude-3-5-haiku", `,"max_tokens":7`, `,"max_tokens":7`, false},
		"nothing, for the cache":     {messages, "anthropic", "claude-3-5-haiku", `,"max_tokens":0`, `,"max_tokens":0`, false},
		"nothing, by translation":    {messages, "anthropic", "claude-3-5-haiku", `,"max_tokens":0`, `,"max_tokens":4096`, true},
		"nothing, of another vendor": {messages, "kimi", "kimi-k2", `,"max_tokens":0`, `,"max_tokens":4096`, false},
		"a budget of thinking": {messages, "anthropic", sonnet, `,"thinking":{"type":"enabled","budget_tokens":3000}`,
			`,"thinking":{"type":"enabled","budget_tokens":3000},"max_tokens":7096`, false},
		"no thinking": {messages, "anthropic", sonnet, `,"thinking":{"type":"disabled"}`,
			`,"thinking":{"type":"disabled"},"max_tokens":4096`, false},
		"an effort": {messages, "anthropic", "claude-opus-4-8", `,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}`,
			`,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"max_tokens":8192`, false},
		"a chat":                    {chat, "mistral", "mistral-large", ``, `,"max_tokens":4096`, false},
		"a chat that thinks":        {chat, "openai", "gpt-5", ``, `,"max_completion_tokens":20480`, false},
		"a chat of an effort":       {chat, "openai", "gpt-5", `,"reasoning_effort":"low"`, `,"reasoning_effort":"low","max_completion_tokens":8192`, false},
		"a chat without thinking":   {chat, "openai", "gpt-5.1", `,"reasoning_effort":"none"`, `,"reasoning_effort":"none","max_completion_tokens":4096`, false},
		"the name of OpenAI":        {chat, "openai", "gpt-5", `,"max_completion_tokens":7`, `,"max_completion_tokens":7`, false},
		"the name that others know": {chat, "deepseek", "deepseek-chat", `,"max_completion_tokens":7`, `,"max_tokens":7`, false},
		"no bound by -1":            {chat, "lmstudio", "qwen3", `,"max_completion_tokens":-1`, `,"max_tokens":4096`, false},
		"both":                      {chat, "groq", "llama-3", `,"max_tokens":7,"max_completion_tokens":9`, `,"max_tokens":7,"max_completion_tokens":9`, false},
	} {
		in := input(t, c.dialect, `{"model":"`+c.model+`","messages":[`+hi+`]`+c.in+`}`, c.vendor)
		in.Answer, in.Translated = 4096, c.translated
		out := sanitize.Sanitize(in)
		require.Equal(t, `{"model":"`+c.model+`","messages":[`+hi+`]`+c.out+`}`, string(out.Body), name)
		in.Answer, in.Outline = 0, input(t, c.dialect, string(out.Body), c.vendor).Outline
		require.Equal(t, string(out.Body), string(sanitize.Sanitize(in).Body), name)
	}
}

// A vendor that caches nothing unasked is asked to, for clients that cannot do it themselves.
func TestPrefixesAreMarked(t *testing.T) {
	const (
		mark     = `,"cache_control":{"type":"ephemeral"}`
		system   = `"system":"Be brief."`
		tools    = `"tools":[{"name":"a","input_schema":{"type":"object"}},{"name":"b","input_schema":{"type":"object"}}]`
		user     = `{"role":"user","content":"And?"}`
		answered = `{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"text","text":"So."}]}`
		called   = `{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"a","input":{}}]}`
		result   = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"1"}]}`
	)
	marked := func(s, at string) string { return strings.Replace(s, at, at[:len(at)-1]+mark+"}", 1) }
	text := func(s string) string { return `[{"type":"text","text":"` + s + `"` + mark + `}]` }
	for name, c := range map[string]struct {
		in, out   string
		ephemeral bool
	}{
		"system and tools": {system + "," + tools + `,"messages":[` + user + `]`,
			`"system":` + text("Be brief.") + "," + tools + `,"messages":[{"role":"user","content":` + text("And?") + `}]`, false},
		"tools alone": {tools + `,"messages":[` + user + `]`, marked(tools, `{"name":"b","input_schema":{"type":"object"}}`) +
			`,"messages":[{"role":"user","content":` + text("And?") + `}]`, false},
		"one question": {system + `,"messages":[` + user + `]`, `"system":` + text("Be brief.") + `,"messages":[` + user + `]`, false},
		"a conversation": {`"messages":[` + answered + "," + user + `]`,
			`"messages":[` + answered + `,{"role":"user","content":` + text("And?") + `}]`, false},
		"what is beside the question goes": {`"messages":[` + answered + "," + user + `]`,
			`"messages":[` + marked(answered, `{"type":"text","text":"So."}`) + "," + user + `]`, true},
		"a loop behind such a question": {`"messages":[` + answered + "," + user + "," + called + "," + result + `]`,
			`"messages":[` + marked(answered, `{"type":"text","text":"So."}`) + "," + user + "," + called + "," +
				marked(result, `{"type":"tool_result","tool_use_id":"t","content":"1"}`) + `]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			body := func(s string) string { return `{"model":"m","max_tokens":9,` + s + `}` }
			in := input(t, wire.Messages, body(c.in), "anthropic")
			require.Equal(t, body(c.in), string(sanitize.Sanitize(in).Body), "a client of the dialect decides by itself")
			in.Translated, in.Ephemeral = true, c.ephemeral
			out := sanitize.Sanitize(in)
			require.Equal(t, body(c.out), string(out.Body))
			in.Outline, _ = in.Outline.WithBody(out.Body)
			require.Equal(t, body(c.out), string(sanitize.Sanitize(in).Body), "once is enough")
			in = input(t, wire.Messages, body(c.in), "kimi")
			in.Translated = true
			require.NotContains(t, string(sanitize.Sanitize(in).Body), "cache_control")
		})
	}
}
