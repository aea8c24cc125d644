package sanitize_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// The table of Claude's generations, whatever a platform puts around the name.
func TestModels(t *testing.T) {
	const e, a, d, b = sanitize.Enabled, sanitize.Adaptive, sanitize.Disabled, sanitize.BetweenTools
	type modes = []sanitize.Mode
	for _, c := range []struct {
		models    string
		name      string
		modes     modes
		byDefault sanitize.Switch
	}{
		{"claude-fable-5 us.anthropic.claude-fable-5-20260601-v1:0", "fable 5", modes{a}, sanitize.On},
		{"claude-fable-5-1 claude-fable-5.1", "fable 5.1", modes{a}, sanitize.On},
		{"claude-mythos-5", "mythos 5", modes{a}, sanitize.On},
		{"claude-mythos-5-1@20260801", "mythos 5.1", modes{a}, sanitize.On},
		{"claude-mythos-preview anthropic/claude-mythos-preview", "mythos preview", modes{e, a}, sanitize.On},
		{"claude-opus-5 claude-opus-5-20260601", "opus 5", modes{a, d}, sanitize.On},
		{"claude-opus-5-5 anthropic.claude-opus-5-5-20260901-v1:0", "opus 5.5", modes{a}, sanitize.On},
		{"claude-opus-4-7", "opus 4.7", modes{a, d}, sanitize.Off},
		{"claude-opus-4-8 global.anthropic.claude-opus-4-8-v1 claude-opus-4-8[1m] Claude-Opus-4.8", "opus 4.8", modes{a, d},
			sanitize.Off},
		{"claude-sonnet-5", "sonnet 5", modes{a, d}, sanitize.On},
		{"claude-sonnet-5-5", "sonnet 5.5", modes{a, b}, sanitize.On},
		{"claude-opus-4-6", "opus 4.6", modes{e, a, d}, sanitize.Off},
		{"claude-sonnet-4-6", "sonnet 4.6", modes{e, a, d}, sanitize.Off},
		{"claude-opus-4-5-20251101", "opus 4.5", modes{e, d}, sanitize.Off},
		{"claude-sonnet-4-5 claude-sonnet-4-5@20250929 claude-4.5-sonnet", "sonnet 4.5", modes{e, d}, sanitize.Off},
		{"claude-haiku-4-5-20251001", "haiku 4.5", modes{e, d}, sanitize.Off},
		{"claude-opus-4-1-20250805", "opus 4.1", modes{e, d}, sanitize.Off},
		{"claude-opus-4-20250514 claude-opus-4-0", "opus 4", modes{e, d}, sanitize.Off},
		{"claude-3-7-sonnet-20250219 claude-3-7-sonnet-latest", "sonnet 3.7", modes{e, d}, sanitize.Off},
		{"claude-opus-9 claude-haiku-5 claude-sonnet-4-7 opus-4-8 gpt-5 claude-opus claude-sonnet-latest", "", nil,
			sanitize.Unknown},
	} {
		for model := range strings.FieldsSeq(c.models) {
			for _, vendor := range []string{"anthropic", "bedrock"} {
				p := sanitize.For(vendor, model)
				require.Equal(t, c.name, p.Model, model)
				require.Equal(t, c.modes, p.Thinking.Modes, model)
				require.Equal(t, c.byDefault, p.Thinking.Default, model)
			}
			require.Nil(t, sanitize.For("generic", model).Thinking.Modes, "nobody knows who is behind it")
		}
	}
}

func TestVendors(t *testing.T) {
	for _, v := range vendors {
		require.Equal(t, v, sanitize.For(v, "m").Vendor)
	}
	require.Equal(t, sanitize.For("generic", "m"), sanitize.For("", "m"))
	require.Equal(t, sanitize.For("generic", "m"), sanitize.For("nobody", "m"))

	require.Equal(t, []sanitize.Mode{sanitize.Enabled}, sanitize.For("kimi", "kimi-k2.7-code-preview").Thinking.Modes)
	require.Equal(t, []sanitize.Mode{sanitize.Enabled}, sanitize.For("kimi", "kimi-k3").Thinking.Modes)
	require.Contains(t, sanitize.For("kimi", "kimi-k2.6").Thinking.Modes, sanitize.Disabled)
	require.Equal(t, sanitize.On, sanitize.For("glm", "glm-4.7").Thinking.Default)
	require.Equal(t, sanitize.On, sanitize.For("glm", "GLM-5").Thinking.Default)
	require.Equal(t, sanitize.Unknown, sanitize.For("glm", "glm-4.6").Thinking.Default)
	require.Equal(t, []sanitize.Mode{sanitize.Enabled}, sanitize.For("glm", "glm-5.3-air").Thinking.Modes)
	require.Equal(t, []sanitize.Mode{sanitize.Enabled}, sanitize.For("minimax", "MiniMax-M2.1").Thinking.Modes)
	require.Equal(t, []sanitize.Mode{sanitize.Adaptive, sanitize.Disabled},
		sanitize.For("minimax", "MiniMax-M3").Thinking.Modes)
	require.Equal(t, sanitize.Optional, sanitize.For("gemini", "gemini-2.5-pro").Replay.Reasoning)
	require.Equal(t, sanitize.Required, sanitize.For("gemini", "gemini-3-pro").Replay.Reasoning)
	for _, v := range vendors {
		signs := v == "anthropic" || v == "bedrock" || v == "gemini"
		require.Equal(t, signs, sanitize.For(v, "m").Replay.Signed, v)
		require.Equal(t, v == "kimi", sanitize.For(v, "m").ToolIDs.Recurring, v)
	}
}

func TestModelsThatHoldAnswersToASchema(t *testing.T) {
	for model, holds := range map[string]bool{
		"claude-opus-4-1": false, "claude-3-5-haiku": false, "claude-haiku-4-5": true, "claude-opus-4-5": true,
		"claude-sonnet-4-6": true, "claude-opus-4-8": true, "claude-fable-5": true, "claude-opus-9": false,
	} {
		require.Equal(t, holds, sanitize.For("anthropic", model).Schemas, model)
	}
	require.False(t, sanitize.For("kimi", "claude-opus-4-8").Schemas)
}

func TestOverrides(t *testing.T) {
	table := sanitize.For("anthropic", "claude-opus-4-8")
	require.NoError(t, sanitize.Overrides{}.Validate())
	require.Equal(t, table, sanitize.Overrides{}.Apply(table), "nothing is the table's")

	yes, no, none, text := true, false, 0, "…"
	o := sanitize.Overrides{
		Thinking: sanitize.ThinkingOverrides{
			Modes: []sanitize.Mode{"enabled"}, Default: "on", LoopStart: &no, NeedsBudget: &no, Interleaved: &yes,
			Efforts: []string{"low"}, NoEffortOff: &yes,
		},
		Replay: sanitize.ReplayOverrides{
			Reasoning: "always", Fields: []string{"reasoning"}, Field: "reasoning", Placeholder: &text, Signed: &no,
			Redacted: &no, First: &yes, StrictOff: &yes,
		},
		ToolIDs: &sanitize.ToolIDs{Length: 12},
		Roles: sanitize.RolesOverrides{SystemInside: &no, Developer: &no, Strict: &yes,
			SystemAfterUser: &no, NoSystem: &yes, NoPrefill: &no},
		Sampling: "free", ContextManagement: "rejected", Betas: []string{}, CacheMarkers: &none,
		MarksCache: &no, Schemas: &no, NoContent: []string{"document"}, ClientHeaders: &no,
		ToolSchemas: "subset", ToolNames: &none, VendorTools: "none", ChoiceWords: &yes,
	}
	require.NoError(t, o.Validate())
	require.Equal(t, sanitize.Profile{
		Vendor: "anthropic", Model: "opus 4.8",
		Thinking: sanitize.Thinking{
			Modes: []sanitize.Mode{"enabled"}, Default: "on", Interleaved: true, Efforts: []string{"low"}, NoEffortOff: true,
		},
		Replay: sanitize.Replay{
			Reasoning: "always", Fields: []string{"reasoning"}, Field: "reasoning", Placeholder: "…", First: true,
			StrictOff: true,
		},
		ToolIDs:   sanitize.ToolIDs{Length: 12},
		NoContent: []string{"document"},
		Roles:     sanitize.Roles{Strict: true, NoSystem: true},
		Sampling:  "free", ContextManagement: "rejected", Betas: []string{}, ToolSchemas: "subset",
		VendorTools: "none", ChoiceWords: true,
	}, o.Apply(table))
}

func TestOverridesAreChecked(t *testing.T) {
	minus := -1
	for want, o := range map[string]sanitize.Overrides{
		`thinking.modes must be one of enabled, adaptive, disabled, between_tools, not "auto"`: {
			Thinking: sanitize.ThinkingOverrides{Modes: []sanitize.Mode{"auto"}},
		},
		`thinking.default must be one of on, off, unknown, not "yes"`: {
			Thinking: sanitize.ThinkingOverrides{Default: "yes"},
		},
		`thinking.efforts must be one of none, minimal, low, medium, high, xhigh, max, default, not "x"`: {
			Thinking: sanitize.ThinkingOverrides{Efforts: []string{"x"}},
		},
		`thinking.efforts holds an empty name`: {
			Thinking: sanitize.ThinkingOverrides{Efforts: []string{""}},
		},
		`reasoning.need must be one of forbidden, optional, required, always, not "maybe"`: {
			Replay: sanitize.ReplayOverrides{Reasoning: "maybe"},
		},
		`tool_schemas must be one of any, object, top, subset, plain, not "some"`: {ToolSchemas: "some"},
		`reasoning.fields must be one of`: {
			Replay: sanitize.ReplayOverrides{Fields: []string{"thoughts"}},
		},
		`reasoning.placeholder_field is reasoning, which is not among reasoning.fields`: {
			Replay: sanitize.ReplayOverrides{Field: "reasoning", Fields: []string{"reasoning_content"}},
		},
		`sampling must be one of free, fixed, thinking, effort, one, none, not "off"`: {Sampling: "off"},
		`context_management must be one of passed, beta, rejected, not "no"`: {
			ContextManagement: "no",
		},
		`cache_markers must not be negative (0 is any number), not -1`: {
			CacheMarkers: &minus,
		},
		`tool_ids.length must be at least 8, or 0 for no exact length, not 3`: {
			ToolIDs: &sanitize.ToolIDs{Length: 3},
		},
		`tool_ids.max must be at least 8, or 0 for any, not -1`: {
			ToolIDs: &sanitize.ToolIDs{Max: -1},
		},
		`tool_ids.length is 20, which is longer than tool_ids.max, 10`: {
			ToolIDs: &sanitize.ToolIDs{Length: 20, Max: 10},
		},
	} {
		require.ErrorContains(t, o.Validate(), want)
	}
}

// A backend's vendor is found by its host, else by the names of its models.
func TestVendorOf(t *testing.T) {
	for url, want := range map[string]string{
		"https://api.anthropic.com": "anthropic", "https://api.openai.com/v1": "openai",
		"https://eu.api.openai.com/v1":      "openai",
		"https://api.moonshot.ai/anthropic": "kimi", "https://api.moonshot.cn/v1": "kimi",
		"https://api.z.ai/api/paas/v4":           "glm",
		"https://open.bigmodel.cn/api/anthropic": "glm", "https://api.deepseek.com/anthropic": "deepseek",
		"https://api.minimax.io/anthropic": "minimax",
		"https://api.minimaxi.com/v1":      "minimax", "https://api.mistral.ai/v1": "mistral",
		"https://api.groq.com/openai/v1": "groq", "https://api.x.ai/v1": "xai",
		"https://openrouter.ai/api/v1": "openrouter", "https://bedrock-runtime.us-east-1.amazonaws.com": "bedrock",
		"https://generativelanguage.googleapis.com/v1beta/openai": "gemini", "https://me.openai.azure.com/openai/v1": "azure",
		"https://me.services.ai.azure.com/anthropic": "azure", "https://api.together.xyz/v1": "together",
		"https://api.fireworks.ai/inference/v1": "fireworks",
		"https://api.cerebras.ai/v1":            "cerebras", "https://integrate.api.nvidia.com/v1": "nvidia",
		"https://dashscope-intl.aliyuncs.com/compatible-mode/v1": "qwen",
		"http://localhost:11434/v1":                              "ollama", "http://127.0.0.1:1234/v1": "lmstudio",
		"https://API.DeepSeek.com": "deepseek",
		"http://localhost:8000/v1": "", "https://gateway.example/v1": "", "https://notopenai.com/v1": "",
		"https://s3.amazonaws.com": "", "": "", "://": "",
	} {
		vendor, why := sanitize.VendorOf(url, nil)
		require.Equal(t, want, vendor, url)
		require.NotEmpty(t, why)
		if want != "" {
			require.Contains(t, sanitize.Vendors(), want)
		}
	}
	for models, want := range map[string]string{
		"kimi-k2-thinking": "kimi", "glm-4.6": "glm", "deepseek-reasoner": "deepseek", "claude-opus-4-8": "anthropic",
		"us.anthropic.claude-opus-4-8-v1:0": "anthropic",
		"gpt-4.1":                           "openai", "o3-mini": "openai", "ft:gpt-4o:x": "openai", "gemini-3-pro": "gemini",
		"mistral-large-latest": "mistral", "magistral-small": "mistral",
		"Qwen/Qwen3-32B": "qwen", "MiniMaxAI/MiniMax-M2": "minimax", "grok-4": "xai", "gpt-oss-120b": "",
		"openai/gpt-oss-20b": "", "llama3.1:8b": "",
		"kimi-k2 kimi-k3": "kimi", "kimi-k2 glm-4.6": "", "kimi-k2 mine": "", "": "",
	} {
		vendor, why := sanitize.VendorOf("http://127.0.0.1:9/v1", strings.Fields(models))
		require.Equal(t, want, vendor, models)
		require.NotEmpty(t, why)
		if want != "" {
			require.Contains(t, sanitize.Vendors(), want)
		}
	}
	vendor, why := sanitize.VendorOf("https://openrouter.ai/api/v1", []string{"anthropic/claude-opus-4.8"})
	require.Equal(t, "openrouter", vendor, "the host is surer")
	require.Equal(t, "by the host openrouter.ai", why)
}

// A profile as YAML has the words of a configuration's.
func TestProfilesHaveTheWordsOfOverrides(t *testing.T) {
	require.Equal(t, words(reflect.TypeFor[sanitize.Overrides]()), words(reflect.TypeFor[sanitize.Profile]()))
}

// words are the keys of a struct as YAML, sorted.
func words(of reflect.Type) (keys []string) {
	for _, f := range reflect.VisibleFields(of) {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() != reflect.Struct {
			keys = append(keys, key)
			continue
		}
		for _, k := range words(inner) {
			keys = append(keys, key+"."+k)
		}
	}
	slices.Sort(keys)
	return keys
}

// Of Interactions a level is all that says how hard to think, and none says not at all.
func TestProfilesOfInteractions(t *testing.T) {
	for model, want := range map[string][]string{
		"gemini-3.8-flash": {"low", "medium", "high"}, "gemini-2.5-flash": {"low", "medium", "high"}, "gemini-2.0-flash": {},
	} {
		p := sanitize.For("gemini", model).OfInteractions()
		require.Equal(t, want, p.Thinking.Efforts, model)
		require.Equal(t, sanitize.Optional, p.Replay.Reasoning)
		require.True(t, p.Replay.Signed && p.Schemas && p.ToolSchemas == "")
	}
	for asked, want := range map[string]string{
		`,"thinking":{"type":"disabled"}`: "low", `,"output_config":{"effort":"max"}`: "high",
		`,"thinking":{"type":"enabled","budget_tokens":5000}`: "medium", ``: "",
	} {
		o, err := wire.ReadOutline([]byte(`{"model":"gemini-3.8-flash","max_tokens":9000` + asked +
			`,"messages":[{"role":"user","content":"hi"}]}`))
		require.NoError(t, err)
		out := sanitize.Sanitize(sanitize.Input{Outline: o, Dialect: wire.Messages,
			Profile: sanitize.For("gemini", "gemini-3.8-flash").OfInteractions()})
		require.Equal(t, want, gjson.GetBytes(out.Body, "output_config.effort").Str, "%s: %s", asked, out.Body)
	}
}

// Each override is of the profile's field with its name, which TestOverrides sets in part only. The parts are of the
// same types.
func TestEachOverrideIsAFieldOfTheProfile(t *testing.T) {
	for override := range reflect.TypeFor[sanitize.Overrides]().Fields() {
		field, ok := reflect.TypeFor[sanitize.Profile]().FieldByName(override.Name)
		require.True(t, ok, override.Name)
		switch override.Type.Kind() {
		case reflect.Struct:
		case reflect.Pointer:
			require.Equal(t, field.Type, override.Type.Elem(), override.Name)
		default:
			require.True(t, override.Type.ConvertibleTo(field.Type), override.Name)
		}
	}
}
