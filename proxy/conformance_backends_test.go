package proxy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/redisstore"
	"mneme/proxy/thinking"
)

const foreignSignatures = "https://github.com/anthropics/claude-code/issues/71111"

// The README names this test.
func TestConformanceBackendSwitchInsideAToolLoop(t *testing.T) {
	switchInsideAToolLoop.test(t)
}

var switchInsideAToolLoop = transcript{
	name:   "backend switched inside a tool loop",
	fault:  "the new vendor gets a round of tools that begins without thinking, or with another vendor's.",
	source: "https://github.com/anthropics/claude-code/issues/20727",
	vendors: [][]backendCase{{claude, kimi}, {kimi, claude}, {deepSeek, claude}, {claude, deepSeek}, {kimiChat, claude},
		{claude, kimiChat}},
	models: []string{manual.model, claude.model},
	turns: []turn{
		begin("Go", reply(think("alpha thinks"), look("a"), look("b"))),
		use(1),
		finish(looking("beta thinks", "c")),
		vendorLacks("alpha thinks"),
	},
	loses: true, // thinking may be off until the loop ends
}

// account returns a second account of a vendor, which does not take the first one's thinking.
func account(b backendCase) backendCase {
	return b.with("work", func(c *upstreamtest.Config) { c.Name = "work" })
}

// process moves a coding agent to another process, with another system text and another note about its tools.
func process(version string) turn {
	return messages(func(c *messagesClient) {
		c.system = `[{"type":"text","text":"cc_version=` + version + `"},{"type":"text","text":"You are an agent."}]`
		c.damage = func(history []message) []message {
			note := message{role: "system", content: []block{textOf("The kinds of agents as of " + version)}, plain: true}
			return append([]message{history[0], note}, history[1:]...)
		}
	})
}

// unproven is a history with unknown thinking at a backend with this policy.
func unproven(policy thinking.Unproven, refusals int, forged turn) transcript {
	return transcript{
		name:    "unproven thinking, " + string(policy),
		fault:   "unknown thinking costs a refusal although the operator chose otherwise.",
		vendors: each(claude), models: []string{claude.model, manual.model},
		turns: []turn{
			configureVendors(func(c *proxy.BackendConfig) { c.Thinking.Unproven = policy }),
			unknownThinking, useTool("One", "one"), say("Two"),
			forged, vendorLacks(forgedBlock), vendorGot("one thinks before"),
		},
		refusals: refusals,
	}
}

var backendRows = []transcript{
	{
		name:   "backend switched",
		fault:  "after a switch the new vendor is sent thinking and signatures of the old one.",
		source: foreignSignatures,
		vendors: [][]backendCase{{claude, kimi}, {kimi, claude}, {deepSeek, claude}, {claude, deepSeekChat},
			{kimiChat, claude}, {claude, claude.named("other").told(asBedrock)}},
		clients: both, models: []string{manual.model}, golden: true,
		turns: []turn{useTool("One", "alpha"), use(1), useTool("Two", "beta"), vendorNeverGot("alpha thinks")},
	},
	{
		name:    "there and back again",
		fault:   "A → B → A loses A's thinking: it was stripped for B, or a counter went up.",
		vendors: [][]backendCase{{claude, kimi.told(budgeted)}}, golden: true,
		turns: []turn{
			say("One", saying("alpha thinks", "One.")),
			use(1), say("Two", saying("beta thinks", "Two.")),
			use(0), say("Three"),
		},
	},
	{
		name:    "there and back again with tools",
		fault:   "A → B → A loses A's thinking between the calls of tools.",
		vendors: [][]backendCase{{claude, kimi}, {prefixChecking, kimi}, {kimi, claude}, {deepSeek, claude}},
		clients: both, models: []string{claude.model},
		turns: []turn{
			useTool("One", "alpha"), use(1), useTool("Two", "beta"), use(0), useTool("Three", "gamma"),
			vendorGot("alpha thinks before", "alpha thinks after", "gamma thinks before"), vendorLacks("beta thinks"),
		},
	},
	{
		name:    "two accounts of one vendor",
		fault:   "every request after a switch is refused, or an account loses its own thinking for good.",
		source:  foreignSignatures,
		vendors: [][]backendCase{{claude, account(claude)}, {prefixChecking, account(prefixChecking)}},
		models:  []string{prefixChecking.model}, vary: []variants{naming},
		turns: []turn{
			useTool("One", "alpha"), use(1), useTool("Two", "beta"), use(0), useTool("Three", "gamma"), use(1),
			useTool("Four", "delta"),
			vendorGot("beta thinks before", "delta thinks before"), vendorLacks("alpha thinks", "gamma thinks"),
			atVendor(0, vendorGot("alpha thinks before", "gamma thinks before"), vendorLacks("beta thinks", "delta thinks")),
		},
		refusals: 2, // one per account
	},
	{
		name:    "a coding agent goes on elsewhere",
		fault:   "another process has another system text, and thinking that the vendor would take is left out.",
		vendors: [][]backendCase{{claude, kimi}, {claude, kimiChat}}, vary: []variants{naming},
		turns: []turn{
			header("Anthropic-Beta", "mid-conversation-system-2026-04-07"),
			process("1"), useTool("One", "alpha"),
			process("2"), use(1), useTool("Two", "beta"),
			process("3"), use(0), useTool("Three", "gamma"),
			vendorGot("alpha thinks before", "alpha thinks after", "gamma thinks before"), vendorLacks("beta thinks"),
		},
	},
	{
		name:  "another model of the same vendor",
		fault: "models that do not take each other's thinking cost a refusal at each change.",
		vendors: each(claude.with("strict", func(c *upstreamtest.Config) {
			c.Thinking.RejectOtherModels = true
		})),
		turns: []turn{
			useTool("One", "alpha"), model("claude-opus-5"), useTool("Two", "beta"), say("Three"),
			model("claude-opus-4-8"), useTool("Four", "gamma"),
			vendorGot("alpha thinks before"), vendorLacks("beta thinks"), say("Five"),
		},
		refusals: 1,
	},
	{
		name:    "restart between two turns",
		fault:   "what was proven is lost at a restart, and the round of a tool is refused.",
		source:  "https://github.com/Kilo-Org/kilocode/issues/5219",
		vendors: each(manual), redis: true, golden: true,
		turns: []turn{
			thinkingDropped, begin("First", looking("one thinks", "one")), result("result"), restart, finish(),
		},
	},
	{
		name:    "restart with Redis",
		fault:   "the state is lost at a restart, and the next request is refused.",
		vendors: each(claude, manual), clients: both, redis: true, slow: true,
		turns: []turn{wanderTurns(0, 3), restart, wanderTurns(3, 5), vendorGot("Not enough, twice more.")},
	},
	{
		name:    "restart without Redis",
		fault:   "after a restart in a tool loop, lost thinking costs more than one refusal.",
		vendors: each(claude, prefixChecking, kimi, deepSeek, kimiChat, deepSeekChat),
		models:  []string{manual.model, claude.model},
		vary: []variants{{
			{"faithful", nil},
			{"signatures emptied", steps(damaged("signatures emptied"), tolerate(1))},
			{"thinking dropped", steps(thinkingDropped, tolerate(1))},
		}},
		turns: []turn{useTool("One", "alpha"), begin("Two", looking("beta", "x")), restart, finish(), say("Three")},
	},
	{
		name:    "two gateways over one Redis",
		fault:   "two replicas behind one address know half of the turns each.",
		vendors: each(claude, prefixChecking, kimi, deepSeekChat), clients: both, models: []string{claude.model},
		redis: true, slow: true,
		turns: []turn{thinkingDropped, alternate(1, 0), wander},
	},
	{
		name:    "a replica catches up",
		fault:   "a replica that knows an older part of a conversation takes it for the whole.",
		vendors: each(prefixChecking), redis: true,
		turns: []turn{
			replay{messages: func(history []message) []message {
				return mangles["rounds forgotten"].replay(nil, history, 0)
			}}.turn,
			alternate(0, 1, 1, 0, 0, 0), // each turn has two calls
			useTool("One", "one"),
			useTool("Two", "two"), vendorGot("one thinks before"),
			useTool("Three", "three"), vendorGot("one thinks before", "two thinks before"),
			useTool("Four", "four"), vendorGot("one thinks before", "two thinks before", "three thinks before"),
		},
	},
	{
		name:    "Redis goes away",
		fault:   "without Redis model calls fail, and after its return a restart does not find all turns.",
		vendors: each(kimi), slow: true,
		turns: []turn{
			thinkingDropped,
			func(p *play) {
				p.redis = redistest.Start(p.t, "--appendonly", "yes", "--appendfsync", "always")
				p.config.Shared.Turns = redisstore.NewTurns(p.redis.Client(), redisstore.TurnLimits{}) // not patient
			},
			wanderTurns(0, 2),
			func(p *play) { p.redis.Kill() },
			wanderTurns(2, 4),
			func(p *play) {
				require.NoError(p, p.redis.Run())
				p.gateway().stop()
				p.shares(p.redis)
			},
			restart, wanderTurns(4, 5), vendorGot("Not enough, twice more.", "One more."),
		},
	},
	{
		name:    "a refusal is shared through Redis",
		fault:   "a refusal that one replica got costs every other replica one too.",
		vendors: each(claude), redis: true,
		turns: []turn{
			replay{messages: thoughts(func(b *block) { b.Thinking, b.Signature = "forged", pointer("Zm9yZ2Vk") })}.turn,
			history(userText("before the gateway was here"), assistant(block{Type: "thinking"}, textOf("yes"))),
			say("One"), through(1), say("Two"), through(0), say("Three"),
		},
		refusals: 1,
	},
	unproven(thinking.Lazy, 1, vendorLacks("forged")),
	unproven(thinking.Drop, 0, vendorLacks("forged")),
	unproven(thinking.Text, 0, vendorGot("forged")),
	{
		name:    "tenants with identical chats",
		fault:   "one tenant's turns complete another's requests because their chats are alike.",
		vendors: each(kimi), vary: []variants{naming, routes},
		turns: []turn{
			thinkingDropped,
			as("alice", header("X-Api-Key", "alice")),
			say("Go", looking("secret of alice", "x")), vendorGot("secret of alice"),
			// Bob's client has seen all that alice's has, ids included.
			as("bob", header("X-Api-Key", "bob")),
			func(p *play) { p.messages().history = p.clients["alice"].(*messagesClient).history[:3:3] },
			round(), vendorLacks("secret"),
			history(), say("Go", looking("secret of bob", "x")), vendorGot("secret of bob"), vendorLacks("secret of alice"),
			as("alice"), say("Go on"), vendorGot("secret of alice"), vendorLacks("secret of bob"),
		},
	},
	{
		name:    "routes of one tenant",
		fault:   "the main route's turns complete a teammate's requests, or the other way round.",
		vendors: each(kimi),
		turns: []turn{thinkingDropped, func(p *play) {
			for _, prefix := range []string{"", "/teammate", "/teammate/a", "/teammate/b"} {
				steps(as(prefix, route(prefix)), say("Go", looking("thought of "+prefix+".", "x")),
					vendorGotTimes(1, "thought of "+prefix+"."), vendorGotTimes(1, "thought of"))(p)
			}
		}},
	},
	{
		name:    "chats that begin alike",
		fault:   "a conversation id guessed from the first message joins two chats of a user.",
		vendors: each(claude),
		turns: []turn{unnamed, thinkingDropped, func(p *play) {
			ids := map[string]bool{}
			for _, thought := range []string{"first chat", "second chat"} {
				steps(as(thought), say("Hi", saying(thought, "Hello.")))(p)
				ids[p.answer().header.Get("X-AG-Conversation-Id")] = true
				// The thinking could be of either chat.
				steps(say("And?"), vendorLacks(`"thinking":"`))(p)
			}
			require.Len(p, ids, 2)
		}},
	},
	{
		name:    "the id in the body",
		fault:   "a client that cannot read headers asks for the id in the body, and gets none.",
		vendors: each(claude, kimiChat), clients: both, models: []string{claude.model}, vary: []variants{streams},
		noBudget: true,
		turns: []turn{
			unnamed, members(`,"_gateway":{}`), request("Hello", 200),
			func(p *play) {
				id := p.answer().header.Get("X-AG-Conversation-Id")
				require.NotEmpty(p, id)
				require.Equal(p, 1, strings.Count(p.answer().body, `"_gateway":{"conversation_id":"`+id+`"}`), p.answer().body)
			},
			members(""), request("", 200),
			func(p *play) { require.NotContains(p, p.answer().body, "_gateway") },
		},
	},
	{
		name:    "ways to name a conversation",
		fault:   "the name of a conversation is overlooked, or reaches the vendor.",
		vendors: each(claude),
		vary: []variants{{
			{"header", later(header("X-AG-Conversation-Id", "chat:12345"))},
			{"metadata", later(members(`,"metadata":{"conversation_id":"chat:12345"}`))},
			{"metadata with others", later(members(`,"metadata":{"user_id":"u","conversation_id":"chat:12345"}`))},
			{"_gateway", later(members(`,"_gateway":{"conversation_id":"chat:12345"}`))},
		}},
		turns: []turn{
			thinkingDropped, header("X-AG-Conversation-Id", "chat:12345"),
			say("Hello"), // neither tool nor signature: only the conversation leads to the thinking
			header("X-AG-Conversation-Id", ""), now,
			request("Again", 200), clientGotHeader("X-AG-Conversation-Id", "chat:12345"),
			vendorGotAt("messages.1.content.0.type", `"thinking"`), vendorLacks("12345"),
			vendorNeverGotHeader("X-AG-Conversation-Id"),
		},
	},
	{
		name:    "teammate beside main",
		fault:   "a subagent's call in the middle of a tool loop moves the session, and the main agent's thinking is gone.",
		vendors: [][]backendCase{{manual, kimi}}, golden: true,
		turns: []turn{
			configure(func(c *proxy.Config) { c.Teammates = map[string]string{"analytic": "kimi"} }),
			as("main", thinkingDropped), begin("First", looking("main thinks before", "main")), result("result"),
			as("mate", route("/teammate/analytic")), say("Something else"),
			as("main"), finish(saying("main thinks after", "main is done.")),
		},
	},
}
