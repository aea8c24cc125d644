package proxy_test

import (
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// newest has a client show its newest n messages or items.
func newest(n int) replay {
	return since(func(messages int, _ []int) int { return max(0, messages-n) })
}

// outcomes counts a gateway's requests by their outcome in conversations.
func (g *front) outcomes() map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(g.metrics("conversation_requests_total")) {
		_, line, _ = strings.Cut(line, `outcome="`)
		outcome, line, _ := strings.Cut(line, `"`)
		counts[outcome] += int(gjson.Parse(line[strings.LastIndexByte(line, ' ')+1:]).Int())
	}
	return counts
}

// windows sends the client's history in windows of every length. Results must leave behind their calls, and thinking
// must stay on. A vendor that binds thinking gets that of the current turn unless the window begins in its middle.
func windows(p *play) {
	queueCut := queue(reply(speak("This answer breaks off.")).CutAfter(3, false)) // and is part of no conversation
	streamed(p)
	bound := p.run.vendors[0].vendor.Thinking.PrefixCheck
	for n, all := 1, 1; n <= all; n++ {
		newest(n).apply(p.me())
		queueCut(p)
		before := p.gateway().outcomes()
		got := p.me().post()
		sent := p.me().settings().sent
		require.Equal(p, 200, got.status, "%s\nwas answered with\n%s", sent, got.body)
		require.NotContains(p, p.last(), "not shown", "a window of %d:\n%s", n, sent)
		require.NotEqual(p, "disabled", gjson.Get(p.last(), "thinking.type").Str, "a window of %d:\n%s", n, sent)
		if !bound {
			require.Zero(p, p.vendor().Last().Missing, "a window of %d:\n%s\nwas sent as\n%s", n, sent, p.last())
		}
		after := p.gateway().outcomes()
		for _, outcome := range []string{"unused", "forked", "missed", "expired", "notknown"} {
			require.Equal(p, before[outcome], after[outcome], "%s: a window of %d:\n%s", outcome, n, sent)
		}
		all = p.messagesOrItems()
	}
	faithful(p)
	whole(p)
}

// messagesOrItems is the length of the history of the client that speaks.
func (p *play) messagesOrItems() int {
	switch c := p.me().(type) {
	case *messagesClient:
		return len(c.history)
	case *chatClient:
		return len(c.history)
	case *responsesClient:
		return len(c.input)
	}
	return 0
}

var windowRows = []transcript{
	row("windows by count", "the vendor is told of a call that is not shown, or thinking ends, though the call is known.",
		runEach(claude, prefixChecking, kimi, kimiChat, deepSeek, deepSeekChat, gpt).clients(all3...).vary(variants{
			{"named", thinkingDropped}, {"named, reasoning kept", keepReasoning}, {"unnamed", unnamed},
		}).flag(slow|sampled),
		configure(func(c *proxy.Config) { c.Limits.Upstream.Failures = 1000 }), tolerate(0),
		say("First", reply(think("t1"), speak("I look."), look("a"), look("b")), looking("t2", "c"), saying("t3", "Done.")),
		begin("Second", reply(think("t4"), speak("Again."), look("d"), look("e"))), round(looking("t5", "f")), windows,
		func(p *play) {
			if p.in("unnamed") && p.run.client == "responses" {
				tolerate(1)(p) // a window of an answer without its reasoning and its question, which leads nowhere
			}
		},
		finish(saying("t6", "Well.")), question("Third"), windows),
	row("windows of chats with the same ids", "a chat gets the call or the thinking of another one that has the same ids.",
		runEach(claude, kimi).clients(all3...).vary(variants{{"two names", nil}, {"one name", nothing}}),
		as("other", func(p *play) {
			if p.in("two names") {
				header("X-AG-Conversation-Id", "c2")(p)
			}
		}),
		say("Of another", numbered, saying("another thought", "Another answer.")),
		as("mine"), say("Of mine", numbered, saying("my thought", "My answer.")), question("And?"), newest(3).turn,
		request("", 200), vendorLacks("another thought", "Another answer."), func(p *play) {
			known := p.in("two names") || p.run.vendors[0].name == kimi.name // whose ids the gateway makes
			require.Equal(p, !known, strings.Contains(p.last(), "not shown"), p.last())
			require.Equal(p, known, p.gateway().outcomes()["unused"] == 0)
		}),
}
