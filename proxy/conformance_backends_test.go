package proxy_test

import (
	"strings"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/redisstore"
	"mneme/proxy/thinking"
)

const foreignSignatures = "anthropics/claude-code#71111"

// account returns a second account of a vendor, which does not take the first one's thinking.
func account(b backendCase) backendCase {
	return b.with("work", func(c *upstreamtest.Config) { c.Name = "work" })
}

// process moves a coding agent to another process, with another system text and another note about its tools.
func process(version string) turn {
	return client(func(c *messagesClient) {
		c.system = `[{"type":"text","text":"cc_version=` + version + `"},{"type":"text","text":"You are an agent."}]`
		c.damage = func(history []message) []message {
			note := message{role: "system", content: []block{textOf("The kinds of agents as of " + version)}, plain: true}
			return append([]message{history[0], note}, history[1:]...)
		}
	})
}

// unproven is a history with unknown thinking at a backend with this policy.
func unproven(policy thinking.Unproven, refusals int, forged turn) transcript {
	return row("unproven thinking, "+string(policy),
		"unknown thinking costs a refusal although the operator chose otherwise.",
		runEach(claude).asking(claude.model, manual.model),
		costs(refusals), configureVendors(func(c *proxy.BackendConfig) { c.Thinking.Unproven = policy }),
		unknownThinking, useTool("One", "one"), say("Two"),
		forged, vendorLacks(forgedBlock), vendorGot("one thinks before"))
}

var backendRows = []transcript{
	row("backend switched", "B is sent A's thinking, or A → B → A loses A's thinking: it was stripped for B.",
		runWith(claude, kimi).runWith(prefixChecking, kimi).runWith(kimi, claude).runWith(deepSeek, claude).
			runWith(claude, deepSeekChat).runWith(kimiChat, claude).runWith(claude, claude.named("other").told(asBedrock)).
			cite(foreignSignatures).clients(both...).asking(manual.model, claude.model).flag(golden),
		say("Zero", saying("alpha greets", "Zero.")), useTool("One", "alpha"),
		use(1), useTool("Two", "beta"), vendorNeverGot("alpha greets", "alpha thinks"),
		use(0), useTool("Three", "gamma"),
		vendorGot("alpha greets", "alpha thinks before", "alpha thinks after", "gamma thinks before"),
		vendorLacks("beta thinks")),
	// The README names this row.
	row("backend switched inside a tool loop", "a round of tools begins without thinking, or with another vendor's.",
		runWith(claude, kimi).runWith(kimi, claude).runWith(deepSeek, claude).runWith(claude, deepSeek).
			runWith(kimiChat, claude).runWith(claude, kimiChat).asking(manual.model, claude.model).
			cite("anthropics/claude-code#20727"),
		tolerate(0), // thinking may be off until the loop ends
		begin("Go", reply(think("alpha thinks"), look("a"), look("b"))), use(1), finish(looking("beta thinks", "c")),
		vendorLacks("alpha thinks")),
	row("two accounts of one vendor", "each request after a switch is refused, or an account loses its own thinking.",
		runWith(claude, account(claude)).runWith(prefixChecking, account(prefixChecking)).cite(foreignSignatures).
			asking(prefixChecking.model).vary(naming),
		costs(2), // one per account
		useTool("One", "alpha"), use(1), useTool("Two", "beta"), use(0), useTool("Three", "gamma"), use(1),
		useTool("Four", "delta"),
		vendorGot("beta thinks before", "delta thinks before"), vendorLacks("alpha thinks", "gamma thinks"),
		atVendor(0, vendorGot("alpha thinks before", "gamma thinks before"), vendorLacks("beta thinks", "delta thinks"))),
	row("a coding agent goes on elsewhere", "thinking that the vendor takes is left out after a change of the process.",
		runWith(claude, kimi).runWith(claude, kimiChat).vary(naming),
		header("Anthropic-Beta", "mid-conversation-system-2026-04-07"),
		process("1"), useTool("One", "alpha"),
		process("2"), use(1), useTool("Two", "beta"),
		process("3"), use(0), useTool("Three", "gamma"),
		vendorGot("alpha thinks before", "alpha thinks after", "gamma thinks before"), vendorLacks("beta thinks")),
	row("another model of the same vendor", "models that refuse each other's thinking cost a refusal at each change.",
		runEach(claude.with("strict", func(c *upstreamtest.Config) {
			c.Thinking.RejectOtherModels = true
		})),
		costs(1), useTool("One", "alpha"), model("claude-opus-5"), useTool("Two", "beta"), say("Three"),
		model("claude-opus-4-8"), useTool("Four", "gamma"),
		vendorGot("alpha thinks before"), vendorLacks("beta thinks"), say("Five")),
	row("restart with Redis", "the state is lost at a restart, and the next request or round of a tool is refused.",
		runEach(manual, claude).cite("Kilo-Org/kilocode#5219").clients(both...).flag(golden),
		shareRedis, thinkingDropped, begin("First", looking("one thinks before", "one")), restart,
		finish(saying("one thinks after", "Done.")), restart, say("Second"),
		vendorGot("one thinks before", "one thinks after")),
	row("restart without Redis", "after a restart in a tool loop, lost thinking costs more than one refusal.",
		runEach(claude, prefixChecking, kimi, deepSeek, kimiChat, deepSeekChat).
			asking(manual.model, claude.model).vary(variants{
			{"faithful", nil},
			{"signatures emptied", steps(damaged("signatures emptied"), tolerate(1))},
			{"thinking dropped", steps(thinkingDropped, tolerate(1))},
		}),
		useTool("One", "alpha"), begin("Two", looking("beta", "x")), restart, finish(), say("Three")),
	row("two gateways over one Redis", "two replicas behind one address know half of the turns each.",
		runEach(claude, prefixChecking, kimi, deepSeekChat).clients(both...).asking(claude.model).flag(slow),
		shareRedis, thinkingDropped, alternate(1, 0), wander),
	row("a replica catches up", "a replica that knows an older part of a conversation takes it for the whole.",
		runEach(prefixChecking),
		shareRedis, replay{messages: mangles["rounds forgotten"].damage}.turn,
		alternate(0, 1, 1, 0, 0, 0), // each turn has two calls
		useTool("One", "one"),
		useTool("Two", "two"), vendorGot("one thinks before"),
		useTool("Three", "three"), vendorGot("one thinks before", "two thinks before"),
		useTool("Four", "four"), vendorGot("one thinks before", "two thinks before", "three thinks before")),
	row("Redis goes away", "without Redis model calls fail, and after its return a restart does not find all turns.",
		runEach(kimi).flag(slow),
		thinkingDropped,
		func(p *play) {
			p.redis = redistest.Start(p.t, "--appendonly", "yes", "--appendfsync", "always")
			p.config.Shared.Turns = redisstore.NewTurns(p.redis.Client(), redisstore.TurnLimits{}) // not patient
		},
		steps(wandering[:2]...),
		func(p *play) { p.redis.Kill() },
		steps(wandering[2:4]...),
		func(p *play) {
			require.NoError(p, p.redis.Run())
			p.gateway().stop()
			p.shares(p.redis)
		},
		restart, wandering[4], vendorGot("Not enough, twice more.", "One more.")),
	row("a refusal is shared through Redis", "a refusal that one replica got costs every other replica one too.",
		runEach(claude),
		shareRedis, costs(1),
		replay{messages: thoughts(func(b *block) { b.Thinking, b.Signature = "forged", pointer("Zm9yZ2Vk") })}.turn,
		history(userText("before the gateway was here"), assistant(block{Type: "thinking"}, textOf("yes"))),
		say("One"), through(1), say("Two"), through(0), say("Three")),
	unproven(thinking.Lazy, 1, vendorLacks("forged")),
	unproven(thinking.Drop, 0, vendorLacks("forged")),
	unproven(thinking.Text, 0, vendorGot("forged")),
	row("tenants with identical chats", "one tenant's turns complete another's requests because their chats are alike.",
		runEach(kimi).vary(naming, routes),
		thinkingDropped,
		as("alice", header("X-Api-Key", "alice")),
		say("Go", looking("secret of alice", "x")), vendorGot("secret of alice"),
		// Bob's client has seen all that alice's has, ids included.
		as("bob", header("X-Api-Key", "bob")),
		func(p *play) { p.messages().history = p.clients["alice"].(*messagesClient).history[:3:3] },
		round(), vendorLacks("secret"),
		history(), say("Go", looking("secret of bob", "x")), vendorGot("secret of bob"), vendorLacks("secret of alice"),
		as("alice"), say("Go on"), vendorGot("secret of alice"), vendorLacks("secret of bob")),
	row("routes of one tenant", "the main route's turns complete a teammate's requests, or the other way round.",
		runEach(kimi),
		thinkingDropped, func(p *play) {
			for _, prefix := range []string{"", "/teammate", "/teammate/a", "/teammate/b"} {
				steps(as(prefix, route(prefix)), say("Go", looking("thought of "+prefix+".", "x")),
					vendorGotTimes(1, "thought of "+prefix+"."), vendorGotTimes(1, "thought of"))(p)
			}
		}),
	row("chats that begin alike", "a conversation id guessed from the first message joins two chats of a user.",
		runEach(claude),
		unnamed, thinkingDropped, func(p *play) {
			ids := map[string]bool{}
			for _, thought := range []string{"first chat", "second chat"} {
				steps(as(thought), say("Hi", saying(thought, "Hello.")))(p)
				ids[p.answer().header.Get("X-AG-Conversation-Id")] = true
				// The thinking could be of either chat.
				steps(say("And?"), vendorLacks(`"thinking":"`))(p)
			}
			require.Len(p, ids, 2)
		}),
	row("the id in the body", "a client that cannot read headers asks for the id in the body, and gets none.",
		runEach(claude, kimiChat).clients(both...).asking(claude.model).vary(streams).flag(noBudget),
		unnamed, members(`,"_gateway":{}`), request("Hello", 200),
		func(p *play) {
			id := p.answer().header.Get("X-AG-Conversation-Id")
			require.NotEmpty(p, id)
			require.Equal(p, 1, strings.Count(p.answer().body, `"_gateway":{"conversation_id":"`+id+`"}`), p.answer().body)
		},
		members(""), request("", 200),
		func(p *play) { require.NotContains(p, p.answer().body, "_gateway") }),
	row("ways to name a conversation", "the name of a conversation is overlooked, or reaches the vendor.",
		runEach(claude).vary(variants{
			{"header", later(header("X-AG-Conversation-Id", "chat:12345"))},
			{"metadata", later(members(`,"metadata":{"conversation_id":"chat:12345"}`))},
			{"metadata with others", later(members(`,"metadata":{"user_id":"u","conversation_id":"chat:12345"}`))},
			{"_gateway", later(members(`,"_gateway":{"conversation_id":"chat:12345"}`))},
		}),
		thinkingDropped, header("X-AG-Conversation-Id", "chat:12345"),
		say("Hello"), // neither tool nor signature: only the conversation leads to the thinking
		header("X-AG-Conversation-Id", ""), now,
		request("Again", 200), clientGotHeader("X-AG-Conversation-Id", "chat:12345"),
		vendorGotAt("messages.1.content.0.type", `"thinking"`), vendorLacks("12345"),
		vendorNeverGotHeader("X-AG-Conversation-Id")),
	row("teammate beside main", "a subagent's call inside a tool loop moves the session, and main loses its thinking.",
		runWith(manual, kimi).flag(golden),
		configure(func(c *proxy.Config) { c.Teammates = map[string]string{"analytic": "kimi"} }),
		as("main", thinkingDropped), begin("First", looking("main thinks before", "main")),
		as("mate", route("/teammate/analytic")), say("Something else"),
		as("main"), finish(saying("main thinks after", "main is done."))),
}
