package sanitize_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

const (
	thought  = `{"type":"thinking","thinking":"t","signature":"s"}`
	unsigned = `{"type":"thinking","thinking":"t","signature":""}`
	redacted = `{"type":"redacted_thinking","data":"d"}`
	empty    = `{"type":"thinking","thinking":"","signature":""}`
	stood    = `{"type":"thinking","thinking":" ","signature":""}`
	text     = `{"type":"text","text":"a"}`
	use      = `{"type":"tool_use","id":"a","name":"n","input":{"content":[{"type":"thinking","signature":""}]}}`
	gives    = `{"type":"tool_result","tool_use_id":"a","content":"4"}`
)

func says(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

// conversation is the end of a request with these messages.
func conversation(list ...string) string {
	return `,"messages":[` + strings.Join(list, ",") + `]}`
}

// Which blocks of thinking go back.
func TestThinkingBlocks(t *testing.T) {
	run(t, wire.Messages, "", map[string]change{
		"signed ones go back": {
			"anthropic", opus, conversation(hi, says("assistant", thought, redacted, text, use), says("user", gives)), stays,
			nil,
		},
		"also while thinking is disabled": {"anthropic", opus, `,"thinking":{"type":"disabled"}` +
			conversation(hi, says("assistant", thought, text), hi), stays, nil},
		"unsigned ones do not": {"anthropic", opus, conversation(hi, says("assistant", unsigned, text), hi),
			conversation(hi, says("assistant", text), hi), rules{sanitize.KindThinking}},
		"nor what was beside them": {
			"bedrock", sonnet, conversation(hi, says("assistant", thought, `{"type":"thinking","thinking":"t"}`, text), hi),
			conversation(hi, says("assistant", text), hi), rules{sanitize.KindThinking},
		},
		"nor redacted ones without data": {
			"anthropic", opus, conversation(hi, says("assistant", `{"type":"redacted_thinking"}`, text), hi),
			conversation(hi, says("assistant", text), hi), rules{sanitize.KindThinking},
		},
		"an answer of nothing else is gone": {"anthropic", opus, conversation(hi, says("assistant", unsigned), hi),
			conversation(hi, hi), rules{sanitize.KindThinking}},
		"others do not mind": {
			"kimi", "kimi-k2.6", conversation(hi, says("assistant", `{"type":"thinking","thinking":"t"}`, redacted, text), hi),
			stays, nil,
		},
		"DeepSeek takes no redacted ones": {"deepseek", "deepseek-v4", `,"thinking":{"type":"disabled"}` +
			conversation(hi, says("assistant", thought, redacted, text), hi), `,"thinking":{"type":"disabled"}` +
			conversation(hi, says("assistant", thought, text), hi), rules{sanitize.KindThinking}},
		"OpenAI takes none": {
			"openai", "gpt-5", conversation(hi, says("assistant", thought, text, use), says("user", gives)),
			conversation(hi, says("assistant", text, use), says("user", gives)), rules{sanitize.KindThinking},
		},
		"nobody's user thinks": {"generic", "m", conversation(says("user", thought, text)),
			conversation(says("user", text)), rules{sanitize.KindThinking}},
		"behind text on 4.5": {
			"anthropic", sonnet, conversation(hi, says("assistant", text, thought, text), hi),
			conversation(hi, says("assistant", text, text), hi), rules{sanitize.KindThinking},
		},
		"behind text while adaptive": {"anthropic", opus, conversation(hi, says("assistant", text, thought, text), hi),
			stays, nil},
		"a gateway that is strict": {
			"gemini", "gemini-2.0-flash", conversation(hi, says("assistant", thought, text), hi),
			conversation(hi, says("assistant", text), hi), rules{sanitize.KindThinking},
		},
		"and thinks": {"gemini", "gemini-3-pro", conversation(hi, says("assistant", thought, text), hi), stays, nil},

		"a signature of what is no thinking": {
			"anthropic", opus, conversation(hi, says("assistant", strings.Replace(use, `"name"`, `"signature":"s","name"`, 1)),
				says("user", gives)), conversation(hi, says("assistant", use), says("user", gives)), rules{sanitize.KindSignature},
		},
		"a cache marker of what is": {
			"anthropic", opus,
			conversation(hi, says("assistant", strings.Replace(thought, `}`, `,"cache_control":{"type":"ephemeral"}}`, 1), text),
				hi), conversation(hi, says("assistant", thought, text), hi), rules{sanitize.KindMarked},
		},
		"a block that nobody knows": {
			"anthropic", opus, conversation(hi, says("assistant", `{"type":"new","signature":"s"}`, text), hi), stays, nil,
		},

		"a last answer does not end with it": {"anthropic", sonnet, `,"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2000}` +
			conversation(hi, says("assistant", thought, text, thought, redacted)), `,"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2000}` +
			conversation(hi, says("assistant", thought, text)), rules{sanitize.KindTrailing}},
		"nor has any while it is off": {"anthropic", sonnet, conversation(hi, says("assistant", thought, text)),
			conversation(hi, says("assistant", text)), rules{sanitize.KindTrailing}},
		"nor is it nothing else": {"anthropic", sonnet, conversation(hi, says("assistant", thought)),
			conversation(hi), rules{sanitize.KindTrailing}},
		"an unlisted model may think by itself": {
			"anthropic", "claude-opus-9", conversation(hi, says("assistant", thought, text), hi), stays, nil,
		},
	})
}

// What stands where a vendor insists on thinking.
func TestPlaceholders(t *testing.T) {
	off := `,"thinking":{"type":"disabled"}`
	run(t, wire.Messages, "", map[string]change{
		"Kimi wants it with calls": {
			"kimi", "kimi-k2.6", conversation(hi, says("assistant", text), hi, says("assistant", text, use),
				says("user", gives)), conversation(hi, says("assistant", text), hi, says("assistant", stood, text, use),
				says("user", gives)), rules{sanitize.KindPlaceholder},
		},
		"not while it is off": {
			"kimi", "kimi-k2.6", off + conversation(hi, says("assistant", use), says("user", gives)), stays, nil,
		},
		"an empty text is none": {
			"kimi", "kimi-k2.6", conversation(hi, says("assistant", empty, text), hi, says("assistant", empty, use),
				says("user", gives)), conversation(hi, says("assistant", empty, text), hi, says("assistant", stood, use),
				says("user", gives)), rules{sanitize.KindPlaceholder},
		},
		"not where there is some": {
			"kimi", "kimi-k2.6", conversation(hi, says("assistant", `{"type":"thinking","thinking":"t"}`, use),
				says("user", gives)), stays, nil,
		},
		"DeepSeek wants it in every answer": {
			"deepseek", "deepseek-v4", conversation(hi, `{"role":"assistant","content":"a"}`, hi, says("assistant", use),
				says("user", gives)), conversation(hi, says("assistant", stood, text), hi, says("assistant", stood, use),
				says("user", gives)), rules{sanitize.KindPlaceholder},
		},
		"of a conversation with tools": {"deepseek", "deepseek-v4", conversation(hi, says("assistant", text), hi), stays,
			nil},
		"from the beginning": {"deepseek", "deepseek-v4", `,"tools":[{}]` +
			conversation(hi, says("assistant", text), hi), `,"tools":[{}]` + conversation(hi, says("assistant", stood, text),
			hi), rules{sanitize.KindPlaceholder}},
		"a model that does not think": {"deepseek", "deepseek-chat", `,"tools":[{}]` +
			conversation(hi, says("assistant", text), hi), stays, nil},
		"GLM does not insist": {"glm", "glm-4.7", conversation(hi, says("assistant", use), says("user", gives)),
			stays, nil},
		"Anthropic must not be given any": {"anthropic", opus, `,"thinking":{"type":"adaptive"}` +
			conversation(hi, says("assistant", use), says("user", gives)), stays, nil},
	})
}

// Calls and results.
func TestChains(t *testing.T) {
	none := `{"type":"tool_result","tool_use_id":"a","content":"(no result)","is_error":true}`
	useB, givesB := strings.Replace(use, `"a"`, `"b"`, 1), strings.Replace(gives, `"a"`, `"b"`, 1)
	story := `{"type":"text","text":"Result of a tool call that is not shown:\n4"}`
	sys := `{"role":"system","content":"s"}`
	run(t, wire.Messages, "", map[string]change{
		"complete ones stay": {
			"anthropic", opus, conversation(hi, says("assistant", use, useB), says("user", givesB, gives, text)), stays, nil,
		},
		"no result at the end": {"anthropic", opus, conversation(hi, says("assistant", use)),
			conversation(hi, says("assistant", use), says("user", none)), rules{sanitize.KindUnanswered}},
		"no result before text": {"anthropic", opus, conversation(hi, says("assistant", use), hi),
			conversation(hi, says("assistant", use), says("user", none, `{"type":"text","text":"hi"}`)),
			rules{sanitize.KindUnanswered}},
		"one of two": {"anthropic", opus, conversation(hi, says("assistant", useB, use), says("user", givesB)),
			conversation(hi, says("assistant", useB, use), says("user", givesB, none)), rules{sanitize.KindUnanswered}},
		"behind text": {"anthropic", opus, conversation(hi, says("assistant", use), says("user", text, gives)),
			conversation(hi, says("assistant", use), says("user", gives, text)), rules{sanitize.KindPlace}},
		"in two messages": {"anthropic", opus, conversation(hi, says("assistant", use, useB), says("user", gives),
			says("user", givesB, text)), conversation(hi, says("assistant", use, useB), says("user", gives, givesB),
			says("user", text)), rules{sanitize.KindPlace}},
		"behind a system message": {"anthropic", opus, conversation(hi, says("assistant", use), sys, says("user", gives)),
			conversation(hi, says("assistant", use), says("user", gives), sys), rules{sanitize.KindPlace}},
		"a system message behind": {"anthropic", opus, conversation(hi, says("assistant", use), says("user", gives), sys),
			stays, nil},
		"too late": {"anthropic", opus, conversation(hi, says("assistant", use), says("assistant", text),
			says("user", gives)), conversation(hi, says("assistant", use), says("user", none), says("assistant", text),
			says("user", story)), rules{sanitize.KindUnanswered, sanitize.KindOrphan}},
		"for nobody": {"anthropic", opus, conversation(hi, says("assistant", text), says("user", gives, text)),
			conversation(hi, says("assistant", text), says("user", story, text)), rules{sanitize.KindOrphan}},
		"twice": {"anthropic", opus, conversation(hi, says("assistant", use), says("user", gives, gives)),
			conversation(hi, says("assistant", use), says("user", gives)), rules{sanitize.KindDoubled}},
		"for nobody, with pictures": {
			"anthropic", opus,
			conversation(
				says("user",
					`{"type":"tool_result","tool_use_id":"z","content":[{"type":"text","text":"b"},{"type":"image","source":{}},{"type":"odd","x":1.0}]}`),
			), conversation(says("user", `{"type":"text","text":"Result of a tool call that is not shown:"}`,
				`{"type":"text","text":"b"}`, `{"type":"image","source":{}}`,
				`{"type":"text","text":"{\"type\":\"odd\",\"x\":1.0}"}`)), rules{sanitize.KindOrphan},
		},
		"for nobody, with nothing": {
			"anthropic", opus, conversation(says("user", `{"type":"tool_result","tool_use_id":"z"}`)),
			conversation(says("user", `{"type":"text","text":"Result of a tool call that is not shown:\n(no output)"}`)),
			rules{sanitize.KindOrphan},
		},
	})
}

// Ids that a vendor does not take, or that come again.
func TestToolIDs(t *testing.T) {
	called := func(id string) string { return strings.Replace(use, `"a"`, `"`+id+`"`, 1) }
	given := func(id string) string { return strings.Replace(gives, `"a"`, `"`+id+`"`, 1) }
	loop := func(ids ...string) string {
		list := []string{hi}
		for _, id := range ids {
			list = append(list, says("assistant", called(id)), says("user", given(id)))
		}
		return `{"model":"m"` + conversation(list...)
	}
	names := regexp.MustCompile(`"(?:id|tool_use_id)":"([^"]*)"`)
	ids := func(vendor, body string) []string {
		got, _, _ := fitted(t, wire.Messages, vendor, body)
		var out []string
		for _, m := range names.FindAllStringSubmatch(got, -1) {
			out = append(out, m[1])
		}
		return out
	}
	minted := regexp.MustCompile(`^call_[0-9A-Za-z]{24}$`)

	got := ids("anthropic", loop("functions.n:0", "toolu_1", "functions.n:0", "toolu_1"))
	require.Equal(t, "toolu_1", got[2], "what is legal stays")
	seen := map[string]bool{}
	for i := 0; i < len(got); i += 2 {
		require.Equal(t, got[i], got[i+1], "a result follows its call")
		require.False(t, seen[got[i]], "each is unique")
		seen[got[i]] = true
	}
	for _, id := range []string{got[0], got[4], got[6]} {
		require.Regexp(t, minted, id)
	}
	require.Equal(t, got[:4], ids("anthropic", loop("functions.n:0", "toolu_1")), "it is the same on each turn")
	require.Equal(t, got[:2], ids("bedrock", loop("functions.n:0")), "it depends on nothing else")

	kimi := ids("kimi", loop("functions.n:0", "functions.n:0"))
	require.Equal(t, []string{"functions.n:0", "functions.n:0", "functions.n:0", "functions.n:0"}, kimi,
		"they are Kimi's own")
	long := strings.Repeat("x", 41)
	require.Equal(t, long, ids("anthropic", loop(long))[0])
	require.Regexp(t, minted, ids("openai", loop(long))[0])
	require.Regexp(t, "^[0-9A-Za-z]{9}$", ids("mistral", loop("toolu_1"))[0])
	require.Equal(t, "abcDEF123", ids("mistral", loop("abcDEF123"))[0])

	// An id that looks like ours belongs to the call that came first.
	first := ids("anthropic", loop("a.b"))[0]
	clash := ids("anthropic", loop("a.b", first))
	require.Equal(t, first, clash[0])
	require.NotEqual(t, first, clash[2])
}

func TestNothingIsEmpty(t *testing.T) {
	blank := `{"type":"text","text":" \n"}`
	run(t, wire.Messages, "", map[string]change{
		"a user": {
			"anthropic", opus, conversation(`{"role":"user","content":""}`, says("user"), says("user", blank)),
			conversation(`{"role":"user","content":"(no content)"}`, `{"role":"user","content":"(no content)"}`,
				`{"role":"user","content":"(no content)"}`), rules{sanitize.KindEmpty},
		},
		"an answer": {"anthropic", opus, conversation(hi, says("assistant"), hi, says("assistant", blank),
			hi), conversation(hi, hi, hi), rules{sanitize.KindEmpty}},
		"an answer to be begun": {"anthropic", sonnet, conversation(hi, `{"role":"assistant","content":""}`), stays,
			nil},
		"a text beside others": {
			"anthropic", opus, conversation(says("user", blank, text), says("assistant", thought, blank, use),
				says("user", gives)), conversation(says("user", text), says("assistant", thought, use), says("user", gives)),
			rules{sanitize.KindEmpty},
		},
		"a text in a result": {
			"anthropic", opus,
			conversation(hi, says("assistant", use),
				says("user",
					`{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":""},{"type":"text","text":"4"}]}`)),
			conversation(hi, says("assistant", use),
				says("user", `{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"4"}]}`)),
			rules{sanitize.KindEmpty},
		},
		"the only one": {
			"anthropic", opus,
			conversation(hi, says("assistant", use),
				says("user", `{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":""}]}`)),
			conversation(hi, says("assistant", use),
				says("user", `{"type":"tool_result","tool_use_id":"a","content":"(no output)"}`)), rules{sanitize.KindEmpty},
		},
		"a result may be": {
			"anthropic", opus,
			conversation(hi, says("assistant", use), says("user", `{"type":"tool_result","tool_use_id":"a"}`)), stays, nil,
		},
		"the prompt": {
			"anthropic", opus, `,"system":[{"type":"text","text":"s"},{"type":"text","text":""}]` + conversation(hi),
			`,"system":[{"type":"text","text":"s"}]` + conversation(hi), rules{sanitize.KindEmpty},
		},
		"all of the prompt": {"anthropic", opus, `,"system":[{"type":"text","text":""}]` + conversation(hi),
			conversation(hi), rules{sanitize.KindEmpty}},
		"a look-alike inside an input": {
			"anthropic", opus,
			conversation(hi,
				says("assistant",
					`{"type":"tool_use","id":"a","name":"n","input":{"text":"","content":[{"type":"text","text":""}]}}`),
				says("user", gives)), stays, nil,
		},
	})
}

func TestRoles(t *testing.T) {
	const system = `{"role":"system","content":"s"}`
	run(t, wire.Messages, "", map[string]change{
		"system inside and last": {
			"anthropic", opus, conversation(hi, `{"role":"system","content":"s"}`, says("assistant", text), hi,
				`{"role":"system","content":"s"}`), stays, nil,
		},
		"neighbours of one role": {
			"anthropic", opus, conversation(hi, hi, says("assistant", text), says("assistant", text), hi), stays, nil,
		},
		"an assistant begins": {"anthropic", opus, conversation(says("assistant", text), hi),
			conversation(`{"role":"user","content":"(no content)"}`, says("assistant", text), hi), rules{sanitize.KindRole}},
		"Bedrock's system is a user": {"bedrock", sonnet, conversation(says("assistant", text), `{"content":"s","role":"system"}`),
			conversation(`{"role":"user","content":"(no content)"}`, says("assistant", text), `{"content":"s","role":"user"}`),
			rules{sanitize.KindRole}},
		"one before all others": {"anthropic", opus, `,"system":"p"` + conversation(system, hi),
			`,"system":[{"type":"text","text":"p"},{"type":"text","text":"s"}]` + conversation(hi), rules{sanitize.KindRole}},
		"between an answer and a question": {"anthropic", opus, conversation(hi, says("assistant", text), system, hi),
			conversation(hi, says("assistant", text), `{"role":"user","content":"s\n\nhi"}`),
			rules{sanitize.KindRole}},
		"two in a row": {"anthropic", opus, conversation(hi, system, system),
			conversation(hi, `{"role":"system","content":"s\n\ns"}`), rules{sanitize.KindRole}},
		"behind a tool of the vendor": {"anthropic", opus, conversation(hi,
			says("assistant", `{"type":"server_tool_use","id":"a","name":"web_search","input":{}}`), system), stays, nil},
		"of an older model, with an effort": {"anthropic", sonnet, conversation(hi,
			`{"role":"system","content":[{"type":"tool_addition","tools":[]},`+text+`],"output_config":{"effort":"low"}}`),
			conversation(`{"role":"user","content":[{"type":"text","text":"hi"},` + text + `]}`),
			rules{sanitize.KindRole, sanitize.KindEffort}},
		"inside a tool loop": {"anthropic", sonnet, conversation(hi, says("assistant", use), system, says("user", gives)),
			conversation(hi, says("assistant", use),
				`{"role":"user","content":[`+gives+`,{"type":"text","text":"s"}]}`),
			rules{sanitize.KindPlace, sanitize.KindRole}},
		"between two results": {"anthropic", opus, conversation(hi, says("assistant", use, strings.Replace(use, `"a"`, `"b"`, 1)),
			says("user", gives), system, says("user", strings.Replace(gives, `"a"`, `"b"`, 1))),
			conversation(hi, says("assistant", use, strings.Replace(use, `"a"`, `"b"`, 1)),
				says("user", gives, strings.Replace(gives, `"a"`, `"b"`, 1)), system), rules{sanitize.KindPlace}},
		"an answer ends": {"anthropic", opus, conversation(hi, says("assistant", text)),
			conversation(hi, says("assistant", text), `{"role":"user","content":"Continue."}`), rules{sanitize.KindRole}},
		"an answer to continue": {"anthropic", sonnet, conversation(hi, says("assistant", text)), stays, nil},
	})
}

// At most four cache markers: the prompt's, the tools' and the latest.
func TestCacheMarkers(t *testing.T) {
	marked := func(s string) string { return s[:len(s)-1] + `,"cache_control":{"type":"ephemeral"}}` }
	prompt := `,"system":[` + marked(text) + `],"tools":[` + marked(`{"name":"t"}`) + `]`
	nested := func(inner string) string {
		return `{"type":"tool_result","tool_use_id":"a","content":[` + inner + `]}`
	}
	look := `{"type":"tool_use","id":"a","name":"n","input":{"cache_control":1}}`
	run(t, wire.Messages, "", map[string]change{
		"four": {"anthropic", opus, prompt + conversation(says("user", marked(text), marked(text))), stays, nil},
		"five": {
			"anthropic", opus, prompt + conversation(says("user", marked(text)), says("user", text, marked(text), marked(text))),
			prompt + conversation(says("user", text), says("user", text, marked(text), marked(text))),
			rules{sanitize.KindMarkers},
		},
		"inside a result": {"anthropic", opus, prompt + conversation(hi, says("assistant", look),
			says("user", nested(marked(text)+","+marked(text)), marked(text))),
			prompt + conversation(hi, says("assistant", look), says("user", nested(text+","+marked(text)), marked(text))),
			rules{sanitize.KindMarkers}},
		"too many in the prompt": {"anthropic", opus, `,"system":[` + strings.Repeat(marked(text)+",", 4) + marked(text) +
			`]` + conversation(says("user", marked(text))), `,"system":[` + text + strings.Repeat(","+marked(text), 4) + `]` +
			conversation(says("user", text)), rules{sanitize.KindMarkers}},
		"a vendor that ignores all": {"deepseek", "deepseek-v4", `,"thinking":{"type":"disabled"}` + prompt +
			conversation(says("user", marked(text), marked(text), marked(text))), stays, nil},
	})
}

// What no rule names stays byte for byte, also in a message that changes.
func TestTheRestStays(t *testing.T) {
	head := "\n{ \"zeta\" : 1.50e+3 ,\"model\":\"" + opus + "\",\t\"messages\" : [ " + hi +
		" ,\n  {\"x\":-0.0, \"content\" : ["
	tail := "{\"text\":\"\\u0041\\ud83d <&>\",\"type\":\"text\",\"n\":1e400} ] ,\"role\":\"assistant\"} , " + hi +
		" ] , \"alpha\":[ ] }\r\n"
	got, _, _ := fitted(t, wire.Messages, "anthropic", head+unsigned+","+tail)
	require.Equal(t, head+tail, got)
}
