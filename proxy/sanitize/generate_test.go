package sanitize_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

var vendors = []string{
	"anthropic", "bedrock", "gemini", "kimi", "deepseek", "glm", "minimax", "openai", "mistral", "groq", "generic",
}

var models = []string{
	"claude-opus-4-8", "claude-sonnet-4-5", "claude-opus-4-5", "claude-opus-4-6", "claude-opus-5", "claude-opus-5-5",
	"claude-sonnet-5-5",
	"claude-fable-5-1", "claude-mythos-preview", "claude-opus-9", "kimi-k2.6", "kimi-k3", "deepseek-chat", "deepseek-v4",
	"glm-5.3", "glm-4.7",
	"minimax-m2", "minimax-m3", "gemini-3-pro", "gemini-2.5-pro", "gpt-5", "mistral-large", "m",
}

// generator draws requests. A tame one draws only faults that are the
// sanitizer's to repair.
type generator struct {
	*rapid.T
	tame  bool
	blind bool // no images
	plain bool // no cache markers
}

func (g generator) pick(label string, list ...string) string {
	return rapid.SampledFrom(list).Draw(g.T, label)
}

func (g generator) list(label string, most int, element func() string) string {
	var out []string
	for range rapid.IntRange(0, most).Draw(g.T, label) {
		out = append(out, element())
	}
	return "[" + g.space() + strings.Join(out, g.space()+","+g.space()) + g.space() + "]"
}

func (g generator) space() string { return g.pick("space", "", "", " ", "\n ") }

func (g generator) text() string {
	return g.pick("text", `"a"`, `"b \u0041\"c"`, `"яя"`, `""`, `" \n"`, `"\u00a0"`, `"{\"type\":\"thinking\"}"`)
}

func (g generator) id() string {
	return g.pick("id", `"a"`, `"b"`, `"c"`, `"functions.calc:0"`, `"`+strings.Repeat("x", 70)+`"`, `""`, `"abcDEF123"`)
}

func (g generator) marker() string {
	if g.plain {
		return ""
	}
	return g.pick("marker", "", "", `,"cache_control":{"type":"ephemeral"}`)
}

func (g generator) signature() string { return g.pick("signature", "", "", `,"signature":"s"`) }

func (g generator) messages() string {
	role := func() string { return g.pick("role", "user", "user", "assistant", "assistant", "system") }
	list := g.list("messages", 7, func() string {
		r := role()
		if !g.tame {
			r = g.pick("odd role", r, r, r, r, "tool", "developer")
		}
		m := `{"role":"` + r + `","content":` + g.content(r) + g.pick("extra", "", `,"x":1.0`) + "}"
		if g.tame {
			m = strings.Replace(m, `,"x":1.0`, "", 1)
			return m
		}
		return g.pick("odd message", m, m, m, m, m, `{}`, `7`, `{"role":5,"content":[]}`, `{"role":"user"}`)
	})
	return list
}

func (g generator) content(role string) string {
	if role == "system" || rapid.Bool().Draw(g.T, "plain") && role != "assistant" {
		return g.text()
	}
	return g.list("blocks", 5, func() string { return g.block(role) })
}

func (g generator) block(role string) string {
	kinds := []string{"text", "text", "tool_result", "thinking"}
	if role == "assistant" {
		kinds = []string{"text", "thinking", "thinking", "redacted", "tool_use", "tool_use", "tool_use"}
	} else if role == "user" {
		kinds = append(kinds, "tool_result", "tool_result", "image")
		if g.blind {
			kinds = kinds[:len(kinds)-1]
		}
	}
	if !g.tame {
		kinds = append(kinds, "tool_use", "tool_result", "odd")
	}
	switch g.pick("kind", kinds...) {
	case "text":
		return `{"type":"text","text":` + g.text() + g.marker() + g.signature() + "}"
	case "image":
		return `{"type":"image","source":{"type":"url","url":"https://x"}` + g.marker() + "}"
	case "thinking":
		return `{"type":"thinking","thinking":"t"` + g.pick("signed", `,"signature":"s"`, `,"signature":"s"`,
			`,"signature":""`, "") + g.marker() + "}"
	case "redacted":
		return `{"type":"redacted_thinking"` + g.pick("data", `,"data":"d"`, `,"data":"d"`, "") + g.marker() + "}"
	case "tool_use":
		return `{"type":"tool_use","id":` + g.id() + `,"name":"calc","input":{"content":[{"type":"thinking"}],"n":1.50}` +
			g.marker() + g.signature() + "}"
	case "tool_result":
		inner := `{"type":"tool_result","content":` + g.pick("inner", `"4"`, `[]`, g.list("inner blocks", 3, func() string {
			return `{"type":"text","text":` + g.text() + g.marker() + "}"
		})) + `,"tool_use_id":` + g.id() + g.marker() + "}"
		return inner
	}
	return g.pick("odd block", `5`, `{}`, `{"type":"server_tool_use","id":"s","signature":"mine"}`, `{"type":"thinking"}`,
		`{"type":"tool_use"}`, `{"type":"tool_result"}`)
}

func (g generator) tools() string {
	return g.list("tools", 2, func() string { return "TOOL" + g.marker() + "}" })
}

// messagesBody is a request of the messages dialect.
func (g generator) messagesBody(model string) string {
	tools := g.tools()
	for i := 0; strings.Contains(tools, "TOOL"); i++ {
		tools = strings.Replace(tools, "TOOL", fmt.Sprintf(`{"name":"t%d","input_schema":{"type":"object"}`, i), 1)
	}
	members := []string{`"model":"` + model + `"`, `"messages":` + g.messages()}
	add := func(name string, values ...string) {
		if rapid.Bool().Draw(g.T, name) {
			members = append(members, fmt.Sprintf("%q:%s", name, g.pick(name+" value", values...)))
		}
	}
	members = append(members, `"max_tokens":`+g.pick("max_tokens", "1000", "2048", "64000"))
	add("thinking", g.thinking()...)
	add("system", `"s"`,
		`[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},{"type":"text","text":"","cache_control":{"type":"ephemeral"}}]`)
	add("tools", tools)
	add("tool_choice", `{"type":"auto"}`, `{"type":"any"}`, `{"type":"tool","name":"t0","disable_parallel_tool_use":true}`,
		`{"type":"none"}`)
	add("context_management", `{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`,
		`{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"clear_thinking_20251015"}]}`)
	add("output_config", `{"effort":"max"}`, `{}`,
		`{"effort":"low","format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}}`)
	add("temperature", "0.5", "1", "1.0")
	add("top_p", "0.5", "0.99")
	add("top_k", "5")
	if !g.tame {
		add("odd", "[1e400,-0.0]")
		add("thinking_", "1")
	}
	return g.object(members)
}

func (g generator) thinking() []string {
	list := []string{
		`{"type":"enabled","budget_tokens":1024}`, `{"type":"enabled","budget_tokens":31999}`,
		`{"type":"adaptive","display":"omitted"}`,
		`{"type":"disabled"}`, `{"type":"between_tools"}`, `{"type":"auto"}`, `{"budget_tokens":2000,"type":"enabled"}`,
	}
	if !g.tame {
		list = append(list, `{"type":"enabled","budget_tokens":2000,"x":1}`, "true", "false", "null", "7",
			`{"type":"enabled"}`, `{"type":"enabled","budget_tokens":"x"}`, `{}`, `{"type":"new"}`)
	}
	return list
}

func (g generator) object(members []string) string {
	members = rapid.Permutation(members).Draw(g.T, "order")
	return g.space() + "{" + g.space() + strings.Join(members, g.space()+","+g.space()) + g.space() + "}" + g.space()
}

// chatBody is a request of the chat dialect.
func (g generator) chatBody(model string) string {
	list := g.list("messages", 8, g.chatMessage)
	members := []string{`"model":"` + model + `"`, `"messages":` + list}
	add := func(name string, values ...string) {
		if rapid.Bool().Draw(g.T, name) {
			members = append(members, fmt.Sprintf("%q:%s", name, g.pick(name+" value", values...)))
		}
	}
	add("max_tokens", "1000", "64000")
	add("thinking", g.thinking()...)
	add("reasoning_effort", `"low"`, `"medium"`, `"xhigh"`, `"none"`)
	add("tools", `[{"type":"function","function":{"name":"calc"}}]`)
	add("tool_choice", `"auto"`, `"required"`, `{"type":"function","function":{"name":"calc"}}`)
	add("temperature", "0.5", "1")
	return g.object(members)
}

func (g generator) chatMessage() string {
	switch g.pick("role", "system", "user", "user", "assistant", "calls", "calls", "tool", "tool", "tool", "odd") {
	case "system":
		return `{"role":"` + g.pick("prompt", "system", "developer") + `","content":` + g.text() + "}"
	case "user":
		return `{"role":"user","content":` +
			g.pick("content", g.text(), g.list("parts", 2, func() string {
				return `{"type":"text","text":` + g.text() + g.marker() + "}"
			})) + "}"
	case "assistant":
		return `{"content":` + g.text() + `,"role":"assistant"` + g.reasoning() + "}"
	case "calls":
		calls := g.list("calls", 3, func() string {
			return `{"id":` + g.id() + `,"type":"function","function":{"name":"calc","arguments":"{\"a\":1}"}` +
				g.pick("extra", "", `,"extra_content":{"google":{"thought_signature":"g"}}`, `,"extra_content":{"x":1}`) + "}"
		})
		return `{"role":"assistant"` + g.pick("content", "", `,"content":null`, `,"content":""`, `,"content":"a"`,
			`,"content":" "`) + `,"tool_calls":` + calls + g.reasoning() + "}"
	case "tool":
		return `{"role":"tool","tool_call_id":` + g.id() + `,"content":` +
			g.pick("content", g.text(), `[{"type":"text","text":"4"}]`) + "}"
	}
	if g.tame {
		return `{"role":"user","content":"u"}`
	}
	return g.pick("odd message", `{}`, `[]`, `{"role":"assistant"}`, `{"role":"assistant","tool_calls":[5,{}]}`,
		`{"role":"tool"}`, `{"role":"assistant","content":null,"refusal":"no"}`)
}

func (g generator) reasoning() string {
	return g.pick("reasoning", "", `,"reasoning_content":"r"`, `,"reasoning_content":null`,
		`,"reasoning":"r","reasoning_details":[{}]`, `,"thinking_blocks":[]`)
}

// input reads a body as the gateway does.
func input(t interface{ Fatalf(string, ...any) }, d wire.Dialect, body, vendor string, betas ...string) sanitize.Input {
	o, err := wire.ReadOutline([]byte(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return sanitize.Input{Outline: o, Dialect: d, Profile: sanitize.For(vendor, o.Model), Betas: betas}
}
