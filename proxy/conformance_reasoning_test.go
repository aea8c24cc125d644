package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// lose has a client send this text in place of all thinking.
func lose(text string) turn {
	return replay{
		messages: thoughts(func(b *block) { b.Thinking, b.Signature = text, new(string) }),
		chat:     eachAnswer(func(m *chatMessage) { m.Reasoning = &text }),
	}.turn
}

// lossy are ways to lose thinking.
var lossy = variants{{"dropped", thinkingDropped}, {"emptied", lose("")}, {"a space", lose(" ")}}

// forgetful is a dialogue with a restart that makes the gateway forget everything.
var forgetful = steps(useTool("Go", "one"), restart, useTool("Go on", "two"))

// lostReasoning returns a dialogue with models that want all reasoning back.
func lostReasoning(b backendCase, models ...string) transcript {
	return row("lost reasoning of "+b.name,
		"an empty text replaces lost reasoning, and the vendor refuses it. The first attempt must be right.",
		runEach(b, b.overChat()).cite("NousResearch/hermes-agent#14018").clients(all3...).asking(models...).
			vary(naming, lossy).flag(slow|sampled|noBudget),
		forgetful, vendorGot("two thinks before"))
}

// wantedBack returns a dialogue with a vendor of Responses that wants its reasoning back.
func wantedBack(vendor string, refusals int) transcript {
	b := backendCase{name: "b", model: "deepseek-v4", vendor: upstreamtest.Config{Vendor: upstreamtest.DeepSeek},
		config: proxy.BackendConfig{Kind: proxy.KindResponses, Vendor: vendor}}
	return row("reasoning of Responses wanted back by "+vendor,
		"reasoning that the vendor wants back is lost, and the vendor refuses every further request.",
		runEach(b).clients(all3...).vary(naming, variants{{"kept", later(nothing)}, {"forgotten", later(restart)}}),
		costs(refusals), say("Go", reply(think("thought one"), speak("I look."), look("a")), saying("thought two", "Done.")),
		clientReads("Done."), now, exchange("Thanks", "Welcome."),
		exchange("Goodbye", "Bye."),
		func(p *play) { require.LessOrEqual(p, p.vendor().Count(), 4+refusals) })
}

// failFive has the active vendor refuse the next attempts, each with another body.
func failFive(message string) turn {
	return later(func(p *play) {
		for i := range 5 {
			p.vendor().Fail(upstreamtest.Canned(400, fmt.Sprintf(`{"error":{"message":%s,"n":%d}}`, wire.Quote(message), i)))
		}
		before := p.vendor().Count()
		request("Go on", 400)(p)
		require.Contains(p, gjson.Get(p.answer().body, "error.message").Str, message)
		sent := map[string]bool{}
		for _, r := range p.vendor().Requests()[before:] {
			attempt := r.Header.Get("Anthropic-Beta") + string(r.Body)
			require.False(p, sent[attempt], "attempts with the same bytes: %s", attempt)
			sent[attempt] = true
		}
	})
}

var reasoningRows = []transcript{
	lostReasoning(kimi, "kimi-k2.5", "kimi-k2.6", "kimi-k2-thinking", "kimi-k2.7-code", "kimi-k3"),
	lostReasoning(deepSeek, "deepseek-v4-pro", "deepseek-v4-flash"),
	row("lost reasoning of an unknown vendor", "an empty text replaces the reasoning, and the vendor refuses it.",
		runEach(kimi.named("unknown").told(asGeneric), kimiChat.named("unknown-chat").told(asGeneric)).
			cite("NousResearch/hermes-agent#14018").clients(both...).asking("house-model").vary(lossy[:2]).flag(noBudget),
		costs(2), // one per gateway
		unnamed, client(func(c *messagesClient) { c.manual(8000) }), forgetful),
	row("no attempt is sent twice", "a cure changes nothing, and the vendor gets the same bytes again.",
		runEach(claude, kimi.asking("kimi-k2.6"), kimiChat.asking("kimi-k2.6"), deepSeek.asking("deepseek-v4-pro"),
			deepSeekChat.asking("deepseek-v4-pro")).clients(all3...).vary(variants{
			{"Kimi", failFive("thinking is enabled but reasoning_content is missing in assistant tool call message at index 1")},
			{"DeepSeek", failFive("The `reasoning_content` in the thinking mode must be passed back to the API.")},
			{"signature", failFive(badSignature)},
			{"parameter", failFive("Unsupported parameter: 'temperature' is not supported with this model.")},
			{"adaptive", failFive("adaptive thinking is not supported on this model")},
			{"max_tokens", failFive("`max_tokens` must be greater than `thinking.budget_tokens`.")},
		}).flag(slow|sampled|noBudget),
		judgeAlone, unnamed, useTool("Go", "one"), restart, now),
	wantedBack("deepseek", 0),
	wantedBack("generic", 1), // the refusal teaches the gateway
	row("lost items", "lost or forged items end a conversation with a vendor of Responses, or cost a call each time.",
		runEach(gpt).cite("continuedev/continue#11466").clients("responses").vary(naming, variants{
			{"kept", later(nothing)},
			{"kept in another process", steps(shareRedis, later(restart))},
			{"forgotten", later(restart)},
		}, itemLosses).flag(slow),
		tolerate(1), keepReasoning,
		say("Go", reply(think("thought one"), speak("I look."), look("a")), looking("thought two", "b"),
			saying("thought three", "Done.")),
		clientReads("Done."), now, now, exchange("Thanks", "Welcome."),
		func(p *play) {
			calls := p.vendor().Count() - 3
			require.LessOrEqual(p, calls, 2, "one more call at most")
			if p.in("named") && !p.in("forgotten") {
				require.Equal(p, 1, calls, "kept items go back with the first attempt")
				if p.in("reasoning, and forged ids") || p.in("forged encrypted content") || p.in("ids only") {
					vendorGotThoughts(3)(p)
				}
			}
			steps(exchange("Goodbye", "Bye."), vendorCalls(3+calls+1))(p) // remembered
		}),
}

// loseItems returns a variant with lost or forged items of a client of Responses.
func loseItems(name string, change func([]json.RawMessage) []json.RawMessage) variant {
	return variant{name, later(replay{items: change}.turn)}
}

// dropped returns an input without the items of a type, except the user's messages.
func dropped(kind string) func([]json.RawMessage) []json.RawMessage {
	return items(kind, func(item []byte) []json.RawMessage {
		if kind == "message" && gjson.GetBytes(item, "role").Str != "assistant" {
			return []json.RawMessage{item}
		}
		return nil
	})
}

// itemLosses are losses and forgeries of items by clients of Responses.
var itemLosses = variants{
	loseItems("reasoning", itemMangles["reasoning dropped"]),
	loseItems("the message after reasoning", itemMangles["followers dropped"]),
	loseItems("calls, not their outputs", dropped("function_call")),
	loseItems("outputs, not their calls", dropped("function_call_output")),
	loseItems("all but the reasoning",
		chain(dropped("message"), dropped("function_call"), dropped("function_call_output"))),
	loseItems("reasoning, and forged ids", chain(dropped("reasoning"), items("", changeMember("id", func(s string) string {
		kind, _, _ := strings.Cut(s, "_")
		return kind + "_forged" + s[len(s)-20:]
	})))),
	loseItems("forged encrypted content", items("reasoning", with("encrypted_content", "gAAAAforged=="))),
	loseItems("ids only", itemMangles["unencrypted"]),
}
