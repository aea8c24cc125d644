package proxy_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// Faults of other gateways that have no subject of their own.
var faultRows = []transcript{
	row("contents left empty", "a content is left empty when its unknown thinking is stripped.",
		runEach(claude, kimi, deepSeek, kimiChat).cite("anthropics/claude-code#6774").
			asking(claude.model),
		costs(1), history(
			userText("Hi"), assistant(block{raw: []byte(forgedBlock)}), // max_tokens were used up
			userText("Go on"), assistant(block{raw: []byte(forgedBlock)}, anyCall), anyCallResult),
		finish(), say("And?")),
	row("contents left empty by the client", "a client strips thinking, and the vendor refuses the empty contents.",
		runEach(claude, kimi, deepSeek, kimiChat).cite("anthropics/claude-code#6774").
			asking(claude.model),
		history(
			userText("Hi"), message{role: "assistant", content: []block{}},
			userText("Go on"), message{role: "assistant", content: []block{textOf("")}, plain: true},
			message{role: "user", content: []block{textOf(""), textOf("And?")}}),
		finish()),
	row("a budget larger than max_tokens", "the configured thinking budget is larger than the client's max_tokens.",
		runEach(claude).clients(both...).asking("claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8").
			vary(maxTokens(512, 1025, 2048, 4096, 8001, 20000)),
		unnamed, func(p *play) {
			modes := []string{`{"type":"adaptive"}`, `{"type":"enabled","budget_tokens":8000}`, `{"type":"enabled"}`,
				`{"type":"enabled","budget_tokens":512}`}
			if p.run.client == "chat" {
				modes = modes[:1] // the gateway chooses
			}
			for _, mode := range modes {
				steps(as(mode, thinkingMode(mode)), say("Use the tool"))(p)
			}
		}),
	row("an input that cannot be encoded again", "such a body is sent unfiltered, or its numbers change.",
		runEach(claude),
		costs(1), unknownThinking, say("One"), // the block is refused
		edit(func(c *messagesClient) {
			odd := anyCall
			odd.raw = []byte(`{"type":"tool_use","id":"toolu_01A","name":"look","input":` + oddInput + `}`)
			c.history = append(c.history, userText("Odd"), assistant(odd), anyCallResult)
		}),
		finish(), vendorLacks("forged"), vendorGot(oddInput)),
	row("clearing of thinking", "the retry keeps an instruction to clear thinking, which is invalid without thinking.",
		runEach(claude).asking("claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-opus-5"),
		costs(1), client(func(c *messagesClient) {
			c.manual(8000)
			c.header.Add("Anthropic-Beta", "context-management-2025-06-27")
			c.header.Add("Anthropic-Beta", "effort-2025-11-24")
		}),
		members(`,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},`+
			`"output_config":{"effort":"xhigh"}`),
		history(userText("Hi"), assistant(block{raw: []byte(forgedBlock)}, anyCall), anyCallResult),
		finish(), say("And?")),
	row("a system message inside the messages", "a system message inside the messages is moved to the front.",
		runEach(prefixChecking),
		header("Anthropic-Beta", "mid-conversation-system-2026-04-07"),
		system(`[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}]`),
		useTool("One", "one"),
		edit(func(c *messagesClient) {
			note := message{role: "system", content: []block{textOf("The user went away.")}, plain: true}
			c.history = append(c.history, userText("Two"), note)
		}),
		finish(looking("two thinks before", "two"), saying("two thinks after", "two is done.")),
		clientReads("two is done."), vendorGotAt("messages.5.role", `"system"`)),
	row("disabled thinking with an effort", "a subagent disables thinking, and the vendor refuses its effort.",
		runEach(claude, kimi, deepSeek).cite("lobehub/lobehub#14173").
			asking("claude-opus-5", "claude-opus-4-8"),
		thinkingMode(`{"type":"disabled"}`), header("X-Claude-Code-Agent-Id", "a1"),
		header("Anthropic-Beta", "effort-2025-11-24"), members(`,"output_config":{"effort":"max"}`),
		say("Use the tool"), say("Again, use the tool")),
	row("a forced tool with an effort", "a forced tool switches thinking off, and the effort that stays is refused.",
		runEach(claude.asking("claude-opus-5")),
		header("Anthropic-Beta", "effort-2025-11-24"),
		members(`,"output_config":{"effort":"max"},"tool_choice":{"type":"any"}`), begin("Go")),
	row("the client strips", "the vendor refuses a turn that begins without the thinking that the client stripped.",
		runEach(claude).cite("Kilo-Org/kilocode#5219").
			asking("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6", "claude-opus-4-8",
				"claude-opus-5-5"),
		thinkingMode(`{"type":"adaptive"}`), header("Anthropic-Beta", ""),
		history(userText("Go"), assistant(anyCall), anyCallResult), finish(), say("Use the tool")),
	row("a switch during a call", "the session is captured after a switch of the backend that happens during the call.",
		runWith(claude, kimi),
		thinkingDropped, func(p *play) {
			paused := looking("claude thinks", "x")
			paused.Pause = func(context.Context, int) { p.gateway().use("kimi") }
			begin("One", paused)(p)
		},
		use(1), round(), vendorLacks("claude thinks"), use(0), say("Two"), vendorGot("claude thinks")),
	row("thinking inside an input", "content that looks like thinking inside a tool's input is stripped.",
		runEach(claude),
		costs(1), unknownThinking, say("One", reply(speak("So."), upstreamtest.Use("look", thinkingInput))),
		vendorGotAt("messages.3.content.1.input", thinkingInput),
		func(p *play) {
			require.Equal(p, looked(thinkingInput), gjson.Get(p.last(), "messages.4.content.0.content").Str)
		}),
}

const (
	oddInput      = `{"big":12345678901234567890123,"far":1e400,"twice":1,"twice":2,"odd":"\u0001\u2028<>&\/"}`
	thinkingInput = `{"messages":[{"type":"thinking","thinking":"mine","signature":"mine"}],"type":"redacted_thinking",` +
		`"content":[` + forgedBlock + `]}`
)

// anyCall is a call of an answer that the gateway has not seen, anyCallResult its result.
var (
	anyCall       = block{Type: "tool_use", ID: "toolu_01A", Name: "look", Input: []byte("{}")}
	anyCallResult = message{role: "user", content: []block{{Type: "tool_result", ToolUseID: anyCall.ID, Content: "x"}}}
)

// maxTokens returns a variant for each limit of the answer.
func maxTokens(limits ...int) (all variants) {
	for _, n := range limits {
		all = append(all, variant{fmt.Sprint(n), steps(
			client(func(c *messagesClient) { c.maxTokens = n }),
			client(func(c *chatClient) { c.more = fmt.Sprintf(`,"max_tokens":%d`, n) }))})
	}
	return all
}
