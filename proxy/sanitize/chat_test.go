package sanitize_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

const (
	calc  = `{"id":"call_abc","type":"function","function":{"name":"n","arguments":"{}"}}`
	calls = `{"role":"assistant","content":null,"tool_calls":[` + calc + `]}`
	tool  = `{"role":"tool","tool_call_id":"call_abc","content":"4"}`
	reply = `{"role":"assistant","content":"a"}`
	sys   = `{"role":"system","content":"s"}`
)

// Which fields of reasoning go back, and what stands where they are missing.
func TestReasoningFields(t *testing.T) {
	const all = `{"role":"assistant","content":"a","reasoning_content":"r","reasoning":"r","reasoning_details":[1.0],"thinking_blocks":[],"extra_content":{}}`
	const kept = `{"role":"assistant","content":"a"`
	signed :=
		`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"n","arguments":"{}"},"extra_content":{"google":{"thought_signature":"g"}}}]}`
	bare := `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"n","arguments":"{}"}}]}`
	stood :=
		`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"n","arguments":"{}"},"extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}}]}`
	result := `{"role":"tool","tool_call_id":"a","content":"4"}`
	needed := `{"role":"assistant","content":null,"tool_calls":[` + calc + `],"reasoning_content":" "}`
	run(t, wire.Chat, "", map[string]change{
		"nobody knows": {"generic", "m", conversation(hi, all, hi), stays, nil},
		"OpenAI takes none": {"openai", "gpt-5", conversation(hi, all, hi), conversation(hi, kept+`}`, hi),
			rules{sanitize.KindReasoning}},
		"Groq takes none": {"groq", "m", conversation(hi, all, hi), conversation(hi, kept+`}`, hi),
			rules{sanitize.KindReasoning}},
		"GLM takes one": {"glm", "glm-4.7", conversation(hi, all, hi),
			conversation(hi, kept+`,"reasoning_content":"r"}`, hi), rules{sanitize.KindReasoning}},
		"MiniMax takes two": {"minimax", "MiniMax-M3", conversation(hi, all, hi),
			split(conversation(hi, kept+`,"reasoning_content":"r","reasoning_details":[1.0]}`, hi)),
			rules{sanitize.KindReasoning, sanitize.KindSplit}},
		"MiniMax's client may choose": {"minimax", "MiniMax-M3", `,"reasoning_split":false,"messages":[` + hi + `]}`, stays, nil},
		"a user's fields are his own": {"openai", "gpt-5", conversation(`{"role":"user","content":"hi","reasoning":"x"}`),
			stays, nil},

		"Kimi wants it with calls": {"kimi", "kimi-k2.6", conversation(hi, reply, hi, calls, tool),
			conversation(hi, reply, hi, needed, tool), rules{sanitize.KindPlaceholder}},
		"null is none": {"kimi", "kimi-k2.6", conversation(hi, needed[:len(needed)-4]+`null}`, tool),
			conversation(hi, needed, tool), rules{sanitize.KindPlaceholder}},
		"an empty text is none": {"kimi", "kimi-k2.6", conversation(hi, needed[:len(needed)-4]+`""}`, tool),
			conversation(hi, needed, tool), rules{sanitize.KindPlaceholder}},
		"not while it is off": {"kimi", "kimi-k2.6", `,"thinking":{"type":"disabled"}` +
			conversation(hi, calls, tool), stays, nil},
		"DeepSeek wants it in every answer": {"deepseek", "deepseek-v4", conversation(hi, reply, hi, calls, tool),
			conversation(hi, reply[:len(reply)-1]+`,"reasoning_content":" "}`, hi, needed, tool),
			rules{sanitize.KindPlaceholder}},

		"Gemini's signatures go back": {"gemini", "gemini-3-pro", conversation(hi, signed, result), stays, nil},
		"what stands for them": {"gemini", "gemini-3-pro", conversation(hi, bare, result),
			conversation(hi, stood, result), rules{sanitize.KindPlaceholder}},
		"older ones do without": {"gemini", "gemini-2.5-pro", conversation(hi, bare, result), stays, nil},
		"they are nobody else's affair": {"mistral", "m", conversation(hi, signed, result),
			conversation(hi,
				`{"role":"assistant","tool_calls":[{"id":"xZJzvnvLm","type":"function","function":{"name":"n","arguments":"{}"}}]}`,
				`{"role":"tool","tool_call_id":"xZJzvnvLm","content":"4"}`), rules{sanitize.KindToolID, sanitize.KindReasoning}},
	})
}

func TestChatChains(t *testing.T) {
	none := `{"role":"tool","tool_call_id":"call_abc","content":"(no result)"}`
	story := `{"role":"user","content":"Result of a tool call that is not shown:\n4"}`
	two := `{"role":"assistant","tool_calls":[` + calc +
		`, {"id":"b","type":"function","function":{"name":"n","arguments":"{}"}}]}`
	toolB := `{"role":"tool","tool_call_id":"b","content":"5"}`
	run(t, wire.Chat, "", map[string]change{
		"complete ones stay": {"openai", "m", conversation(hi, two, toolB, tool, reply, hi), stays, nil},
		"no result": {"openai", "m", conversation(hi, calls, hi), conversation(hi, calls, none, hi),
			rules{sanitize.KindUnanswered}},
		"one of two": {"openai", "m", conversation(hi, two, toolB), conversation(hi, two, toolB, none),
			rules{sanitize.KindUnanswered}},
		"behind a prompt": {"openai", "m", conversation(hi, calls, sys, tool), conversation(hi, calls, tool, sys),
			rules{sanitize.KindPlace}},
		"too late": {"openai", "m", conversation(hi, calls, hi, tool),
			conversation(hi, calls, none, hi, story), rules{sanitize.KindUnanswered, sanitize.KindOrphan}},
		"too late, and silence": {"openai", "m", conversation(hi, calls, `{"role":"assistant","content":""}`, tool),
			conversation(hi, calls, none, story), rules{sanitize.KindUnanswered, sanitize.KindOrphan, sanitize.KindEmpty}},
		"twice": {"openai", "m", conversation(hi, two, tool, tool, toolB),
			conversation(hi, two, tool, toolB), rules{sanitize.KindPlace, sanitize.KindDoubled}},
		"for nobody, in parts": {
			"openai", "m",
			conversation(hi, `{"role":"tool","name":"n","tool_call_id":"z","content":[{"type":"text","text":"4"}]}`),
			conversation(hi,
				`{"role":"user","content":[{"type":"text","text":"Result of a tool call that is not `+
					`shown:"},{"type":"text","text":"4"}]}`), rules{sanitize.KindOrphan},
		},
		"an empty list of calls": {"openai", "m", conversation(hi, `{"role":"assistant","content":"a","tool_calls":[]}`),
			conversation(hi, reply), rules{sanitize.KindEmpty}},
		"an empty result": {
			"openai", "m", conversation(hi, calls, `{"role":"tool","tool_call_id":"call_abc","content":""}`),
			conversation(hi, calls, `{"role":"tool","tool_call_id":"call_abc","content":"(no output)"}`),
			rules{sanitize.KindEmpty},
		},
		"what is no call at all": {"openai", "m", conversation(hi, `{"role":"assistant","content":"a","tool_calls":[7]}`),
			stays, nil},
		"an answer without words": {"openai", "m", conversation(hi, `{"role":"assistant","content":null}`, hi),
			conversation(hi, hi), rules{sanitize.KindEmpty}},
	})

	t.Run("recurring ids", func(t *testing.T) {
		body := `{"model":"kimi-k2.6","thinking":{"type":"disabled"}` + conversation(hi, calls, tool, calls, tool)
		_, rules, _ := fitted(t, wire.Chat, "kimi", body)
		require.Empty(t, rules)
		got, rules, _ := fitted(t, wire.Chat, "openai", body)
		require.Equal(t, []sanitize.Kind{sanitize.KindToolID, sanitize.KindMode}, rules)
		require.Regexp(t, `"call_abc".*"call_abc".*"(call_[0-9A-Za-z]{24})".*"call_[0-9A-Za-z]{24}"`, got)
	})
}

func TestChatRoles(t *testing.T) {
	developer := `{"role":"developer","content":"d"}`
	run(t, wire.Chat, "", map[string]change{
		"anything goes": {"openai", "m", conversation(developer, reply, hi, hi, sys, calls, tool, hi), stays,
			nil},
		"a developer elsewhere": {"deepseek", "deepseek-chat", conversation(developer, hi),
			conversation(`{"role":"system","content":"d"}`, hi), rules{sanitize.KindRole}},
		"several prompts": {"qwen", "m", conversation(sys, developer, hi),
			conversation(`{"role":"system","content":"s\n\nd"}`, hi), rules{sanitize.KindRole}},
		"a prompt between": {"qwen", "m", conversation(hi, reply, developer, hi),
			conversation(hi, reply, `{"role":"user","content":"d\n\nhi"}`), rules{sanitize.KindRole}},
		"a prompt inside a tool loop": {"qwen", "m", conversation(hi, calls, sys, tool, hi),
			conversation(hi, calls, tool, `{"role":"user","content":"s\n\nhi"}`),
			rules{sanitize.KindPlace, sanitize.KindRole}},
		"a prompt beside parts": {"generic", "m", conversation(`{"role":"user","content":[{"type":"text","text":"p"}]}`, sys),
			conversation(`{"role":"user","content":[{"type":"text","text":"p"},{"type":"text","text":"s"}]}`),
			rules{sanitize.KindRole}},
		"a user with a name": {"generic", "m", conversation(`{"role":"user","name":"n","content":"a"}`, sys),
			conversation(`{"role":"user","name":"n","content":"a"}`, `{"role":"user","content":"s"}`), rules{sanitize.KindRole}},
		"Mistral: a user speaks twice": {"mistral", "m", conversation(sys, hi, hi),
			conversation(sys, `{"role":"user","content":"hi\n\nhi"}`), rules{sanitize.KindRole}},
		"Mistral: an answer ends": {"mistral", "m", conversation(hi, reply),
			conversation(hi, reply, `{"role":"user","content":"Continue."}`), rules{sanitize.KindRole}},
		"Mistral: an answer to continue": {"mistral", "m",
			conversation(hi, `{"role":"assistant","content":"a","prefix":true}`), stays, nil},
		"Mistral: an answer begins": {"mistral", "m", conversation(sys, reply, hi),
			conversation(sys, `{"role":"user","content":"(no content)"}`, reply, hi), rules{sanitize.KindRole}},
		"Mistral: a prompt inside": {"mistral", "m", conversation(hi, reply, sys),
			conversation(hi, reply, `{"role":"user","content":"s"}`), rules{sanitize.KindRole}},
	})
}
