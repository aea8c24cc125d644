package proxy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
)

// personalities are vendors with different rules for thinking and calls.
var personalities = []backendCase{
	claude.named("adaptive"), manual.named("manual"), prefixChecking, omitting(claude),
	claude.with("bedrock", func(c *upstreamtest.Config) {
		c.Thinking.Bedrock, c.Thinking.Betas = true, []string{"interleaved-thinking-2025-05-14"}
	}).told(asBedrock).asking("us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
	kimi, kimiChat, deepSeek, deepSeekChat,
	chatVendor("openai", "openai", upstreamtest.ChatRules{KnownArguments: true}).asking("gpt-5"),
	chatVendor("mistral", "mistral", upstreamtest.ChatRules{
		ToolIDs: upstreamtest.MistralIDs, Replay: upstreamtest.ReplayMistral,
	}).asking("magistral"),
	chatVendor("groq", "groq", upstreamtest.ChatRules{Replay: upstreamtest.ReplayGroq}).asking("qwen"),
	chatVendor("cerebras", "generic", upstreamtest.ChatRules{Replay: upstreamtest.ReplayCerebras}).asking("qwen").told(
		func(c *proxy.BackendConfig) { c.Profile.Replay.Reasoning = "forbidden" }),
	geminiChat,
	chatVendor("openrouter", "generic", upstreamtest.ChatRules{ReasoningField: "reasoning"}).asking("any"),
}

var geminiChat = chatVendor("gemini", "gemini", upstreamtest.ChatRules{ThoughtSignatures: true}).asking("gemini-3-pro")

// reasoningReturns expects thoughts in the newest request of a vendor that wants reasoning back.
func reasoningReturns(thoughts ...string) turn {
	return func(p *play) {
		if v := p.run.vendors[0].vendor.Vendor; v == upstreamtest.Kimi || v == upstreamtest.DeepSeek {
			vendorGot(thoughts...)(p)
		}
	}
}

// clientSaw expects the reasoning that a client of chat completions was shown.
func clientSaw(thoughts ...string) turn {
	return client(func(c *chatClient) { require.Equal(c.gateway.world, thoughts, c.seen) })
}

// ownIDs expects that the client was shown a new id for each of three calls, made by the gateway.
func ownIDs(p *play) {
	shown := map[string]bool{}
	for _, found := range regexp.MustCompile(`"id":"([^"]*)"`).FindAllSubmatch(p.me().settings().sent, -1) {
		require.Regexp(p, `^call_[A-Za-z0-9]{24}$`, string(found[1]))
		shown[string(found[1])] = true
	}
	require.Len(p, shown, 3)
}

// chatDamages are changes that clients of chat completions make to a history, by name.
var chatDamages = map[string]func([]chatMessage) []chatMessage{
	"nothing": nil,
	"null is empty": eachAnswer(func(m *chatMessage) {
		if m.Content == nil {
			m.Content = new(string)
		}
	}),
	"contents trimmed": eachAnswer(func(m *chatMessage) {
		if m.Content != nil {
			m.Content = pointer(" " + strings.TrimSpace(*m.Content) + "\r\n")
		}
	}),
	"arguments encoded anew": eachAnswer(func(m *chatMessage) {
		for i, call := range m.ToolCalls {
			m.ToolCalls[i].Function.Arguments = string(reencoded([]byte(call.Function.Arguments)))
		}
	}),
	"reasoning invented":        eachAnswer(func(m *chatMessage) { m.Reasoning = pointer("I never thought this") }),
	"reasoning sent as nothing": eachAnswer(func(m *chatMessage) { m.Reasoning = new(string) }),
	"texts padded":              chatTexts(pad),
	// Frameworks that number the calls themselves.
	"ids renamed": func(history []chatMessage) []chatMessage {
		names := map[string]string{}
		for i := range history {
			for j, call := range history[i].ToolCalls {
				names[call.ID] = fmt.Sprint("mine_", len(names))
				history[i].ToolCalls[j].ID = names[call.ID]
			}
			if id := history[i].ToolCallID; id != "" {
				history[i].ToolCallID = names[id]
			}
		}
		return history
	},
}

// chatTexts returns a damage of all texts but the newest.
func chatTexts(change func(string) string) func([]chatMessage) []chatMessage {
	return func(history []chatMessage) []chatMessage {
		for i := range history[:len(history)-1] {
			if text := history[i].Content; text != nil {
				history[i].Content = pointer(change(*text))
			}
		}
		return history
	}
}

func eachAnswer(change func(*chatMessage)) func([]chatMessage) []chatMessage {
	return func(history []chatMessage) []chatMessage {
		for i := range history {
			if history[i].Role == "assistant" {
				change(&history[i])
			}
		}
		return history
	}
}

func chatDamageVariants() (all variants) {
	for _, name := range slices.Sorted(maps.Keys(chatDamages)) {
		all = append(all, variant{name, replay{chat: chatDamages[name]}.turn})
	}
	return all
}

func strs(body []byte, path string) (list []string) {
	for _, s := range gjson.GetBytes(body, path).Array() {
		list = append(list, s.Str)
	}
	return list
}

var toolRows = []transcript{
	row("interleaved thinking", "thinking between two calls of tools is kept for the first of them only.",
		runEach(claude).flag(golden),
		thinkingDropped,
		say("First", looking("I look.", "a"), reply(think("Not enough."), look("b"), look("c")), saying("Now.", "Done.")),
		say("Second")),
	row("tool loops", "a tool loop dies at its second call because the client lost content that the vendor wants back.",
		runEach(personalities...).clients(both...).vary(variants{
			{"whole", nil}, {"streamed", streamed}, {"teammate", route("/teammate/analytic")},
		}),
		wander, reasoningReturns("I must look it up.", "Not enough, twice more.", "One more.")),
	row("recurring tool ids", "a vendor counts its calls from 0 in each answer, and results reach the wrong call.",
		runEach(kimi, kimiChat).clients(both...).vary(streams).flag(golden),
		say("First", reply(think("Two."), look("a"), look("b")), saying("Found.", "Done.")), useTool("Second", "two"),
		ownIDs, vendorLacks(`"call_`),
		func(p *play) {
			id := map[string]string{kimi.name: "tool_", kimiChat.name: "functions.look:"}[p.run.vendors[0].name]
			steps(vendorGotTimes(2, `"id":"`+id+`0"`), vendorGotTimes(2, `_id":"`+id+`0"`),
				vendorGotTimes(1, `"id":"`+id+`1"`), vendorGotTimes(1, `_id":"`+id+`1"`))(p)
		}),
	row("reasoning restored", "SDKs drop the reasoning that the vendor demands, and a placeholder replaces it.",
		runEach(deepSeekChat, kimiChat, kimi, deepSeek).cite("earendil-works/pi#4178 JohnnyZ93/oai-compatible-copilot#215").
			clients("chat").asking("some-reasoner").flag(golden),
		say("Go", looking("deep thought one", "a"), looking("deep thought two", "b"), saying("deep thought three", "Done.")),
		clientReads("Done."), clientSaw("deep thought one", "deep thought two", "deep thought three"),
		say("Thanks"), vendorGot("deep thought one", "deep thought two")),
	row("interleaved thinking of chat clients", "it is lost, or texts and calls are joined when it is written back.",
		runEach(claude).clients("chat").asking("claude-opus-4-8", "claude-opus-5", "claude-sonnet-4-5", "claude-opus-4-6").
			vary(streams),
		say("Go", reply(think("t1"), speak("s1 "), upstreamtest.Redacted(), think("t2"), speak("s2"), look("a")),
			looking("t3", "b")),
		vendorGotAt("messages.1.content.#.type", `["thinking","text","redacted_thinking","thinking","text","tool_use"]`),
		vendorGotAt("messages.3.content.#.type", `["thinking","tool_use"]`),
		func(p *play) { require.NotEqual(p, "disabled", gjson.Get(p.last(), "thinking.type").Str) }),
	row("thinking between tools for chat clients", "the header for it is missing, and a tool's round lacks thinking.",
		runEach(manual).cite("Kilo-Org/kilocode#5219").clients("chat").vary(variants{streams[1], streams[0]}).flag(golden),
		unnamed, useTool("First", "one"), clientSaw("one thinks before", "one thinks after"),
		func(p *play) {
			betas := strings.Join(p.vendor().Last().Header.Values("Anthropic-Beta"), ",")
			require.Contains(p, betas, "interleaved-thinking-2025-05-14")
		},
		useTool("Second", "two")),
	row("results in any order", "results of parallel calls in another order, or a missing one, tear the chain.",
		runEach(claude, kimi, deepSeek, openAI).cite("router-for-me/CLIProxyAPI#497").asking(claude.model),
		begin("Go", reply(think("three"), look("x"), look("x"), look("x"))),
		edit(func(c *messagesClient) { slices.Reverse(c.history[2].content) }), round(),
		replay{messages: func(history []message) []message {
			history[2].content = history[2].content[:2] // one result is lost
			return history
		}}.turn,
		begin("Go on")),
	row("careless chat clients", "a client changes an answer, and reasoning or signatures do not find the way back.",
		runEach(claude, manual, prefixChecking, kimi, kimiChat, deepSeek, deepSeekChat, geminiChat).
			clients("chat").vary(chatDamageVariants()),
		streamed, keepReasoning, wander,
		reasoningReturns("Not enough, twice more."), vendorLacks("I never thought this")),
	row("rounds that a chat client forgot", "the model forgets the calls and thinking that the client left out.",
		runEach(claude, prefixChecking, kimi, kimiChat, deepSeek, deepSeekChat).clients("chat").asking(claude.model),
		replay{chat: finalAnswersOnly}.turn, useTool("First", "one"), useTool("Second", "two"),
		vendorGot("one thinks before", "one thinks after", "two thinks before"),
		func(p *play) {
			require.Regexp(p, `\{\\?"q\\?":\\?"one\\?"\}`, p.last(), "the call is there in either dialect")
		}),
	row("all signatures of a loop", "only the newest call goes back to Gemini with its signature, not a placeholder.",
		runEach(geminiChat).cite("https://ai.google.dev/gemini-api/docs/thought-signatures").clients(all3...),
		say("Go", looking("I look for a", "a"), looking("I look for b", "b"), looking("I look for c", "c"),
			saying("That is all.", "Done.")),
		clientReads("Done."), vendorLacks(thinking.BypassSignature), vendorGotTimes(3, `"thought_signature":`)),
	row("a budget next to max_tokens", "the request of a coding agent for older models does not pass unchanged.",
		runEach(claude.asking("claude-haiku-4-5-20251001")),
		client(func(c *messagesClient) {
			c.manual(31999)
			c.maxTokens = 32000
		}),
		wander, vendorGotAt("thinking.budget_tokens", "31999")),
}
