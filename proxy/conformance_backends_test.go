package proxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/ledger"
	"mneme/proxy/redisstore"
	"mneme/proxy/thinking"
)

// shares gives the world's gateways one Redis.
func (w *world) shares(redis *redistest.Server) {
	w.turns = &patientTurns{Remote: redisstore.NewTurns(redis.Client(), redisstore.TurnLimits{}),
		whole: map[string]int{}}
	w.config.Shared.Turns = w.turns
}

// patientTurns waits for Redis however long it takes, so that on a busy machine no
// request misses a turn.
type patientTurns struct {
	ledger.Remote
	saved atomic.Int64 // turns

	mu    sync.Mutex
	whole map[string]int // turns by conversation that came to their end; guarded by mu
}

func (p *patientTurns) Load(ctx context.Context, q ledger.Query) (ledger.Loaded, error) {
	return p.Remote.Load(context.WithoutCancel(ctx), q)
}

func (p *patientTurns) Save(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
	marks, err := p.Remote.Save(context.WithoutCancel(ctx), entries)
	for _, e := range entries {
		if err == nil && e.Turn != nil {
			p.saved.Add(1)
			if !e.Turn.Cut {
				p.mu.Lock()
				p.whole[e.Scope.Conversation]++
				p.mu.Unlock()
			}
		}
	}
	return marks, err
}

// settle waits until so many turns are in Redis, where another gateway finds them.
func (p *patientTurns) settle(t require.TestingT, turns int) {
	require.Eventually(t, func() bool { return p.saved.Load() >= int64(turns) }, time.Minute, time.Millisecond)
}

// settleOf waits until so many whole turns of a conversation are there.
func (p *patientTurns) settleOf(t require.TestingT, conversation string, turns int) {
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.whole[conversation] >= turns
	}, time.Minute, time.Millisecond)
}

// toolTurn queues a turn with one call, and thinking that is told apart by its name.
func toolTurn(v *upstreamtest.Server, name string) {
	v.Queue(
		upstreamtest.Reply(upstreamtest.Think(name+" thinks before"), upstreamtest.Use("look", `{"q":"`+name+`"}`)),
		upstreamtest.Reply(upstreamtest.Think(name+" thinks after"), upstreamtest.Say(name+" is done.")),
	)
}

// agents are clients of both dialects for a case, by name.
func agents(g *front, model, conversation string) map[string]agent {
	m := g.messages(model)
	c := g.chat(model)
	for _, mine := range []*manners{&m.manners, &c.manners} {
		if conversation != "" {
			mine.within(conversation)
		}
	}
	return map[string]agent{"messages": m, "chat": c}
}

// Fault: after a switch of the backend in the middle of a session the new vendor is
// sent thinking and signatures of the old one, and refuses them or reads what is
// none of its business.
func TestConformanceBackendSwitchInTheMiddleOfASession(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]backendCase{{claude, kimi}, {kimi, claude}, {deepSeek, claude}, {claude, deepSeekChat},
		{kimiChat, claude}, {claude, claude.with("other", func(*upstreamtest.Config) {}).told(asBedrock)}} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(fmt.Sprint(pair[0].name, " to ", pair[1].name, ", ", endpoint), func(t *testing.T) {
				w := newWorld(t, pair[0].told(budgeted), pair[1].told(budgeted))
				a, b := w.vendors[pair[0].name], w.vendors[pair[1].name]
				g := w.gateway()
				c := agents(g, "claude-sonnet-4-5", "c1")[endpoint]
				toolTurn(a, "alpha")
				require.Equal(t, "alpha is done.", c.say("One"))
				g.use(pair[1].name)
				toolTurn(b, "beta")
				require.Equal(t, "beta is done.", c.say("Two"))
				for _, r := range b.Requests() {
					require.NotContains(t, string(r.Body), "alpha thinks")
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: a switch between a call and its result leaves the new vendor a tool round
// that begins without thinking, or with another vendor's.
func TestConformanceBackendSwitchInsideAToolLoop(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]backendCase{{claude, kimi}, {kimi, claude}, {deepSeek, claude}, {claude, deepSeek},
		{kimiChat, claude}, {claude, kimiChat}} {
		for _, model := range []string{"claude-sonnet-4-5", "claude-opus-4-8"} {
			t.Run(fmt.Sprint(pair[0].name, " to ", pair[1].name, ", ", model), func(t *testing.T) {
				w := newWorld(t, pair[0], pair[1])
				a, b := w.vendors[pair[0].name], w.vendors[pair[1].name]
				g := w.gateway()
				c := g.messages(model)
				c.within("c1")
				a.Queue(upstreamtest.Reply(upstreamtest.Think("alpha thinks"), upstreamtest.Use("look", `{"q":"a"}`),
					upstreamtest.Use("look", `{"q":"b"}`)))
				c.user(textOf("Go"))
				var results []block
				for _, b := range c.step() {
					if b.Type == "tool_use" {
						results = append(results, block{Type: "tool_result", ToolUseID: b.ID, Content: "result"})
					}
				}
				g.use(pair[1].name)
				c.user(results...)
				b.Queue(upstreamtest.Reply(upstreamtest.Think("beta thinks"), upstreamtest.Use("look", `{"q":"c"}`)))
				c.proceed()
				require.NotContains(t, string(b.Last().Body), "alpha thinks")
				w.refusedAtMost(0) // thinking may be off until the loop ends
			})
		}
	}
}

// Fault: A → B → A loses A's thinking: it was stripped for B, or a counter went up.
func TestConformanceThereAndBackAgainKeepsTheFirstOnesThinking(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]backendCase{{claude, kimi}, {prefixChecking, kimi}, {kimi, claude}, {deepSeek, claude}} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(fmt.Sprint(pair[0].name, ", ", pair[1].name, ", ", endpoint), func(t *testing.T) {
				w := newWorld(t, pair[0].told(budgeted), pair[1].told(budgeted))
				a, b := w.vendors[pair[0].name], w.vendors[pair[1].name]
				g := w.gateway()
				c := agents(g, "claude-opus-4-8", "c1")[endpoint]
				toolTurn(a, "alpha")
				c.say("One")
				g.use(pair[1].name)
				toolTurn(b, "beta")
				c.say("Two")
				g.use(pair[0].name)
				toolTurn(a, "gamma")
				require.Equal(t, "gamma is done.", c.say("Three"))
				body := string(a.Last().Body)
				require.Contains(t, body, "alpha thinks before")
				require.Contains(t, body, "alpha thinks after")
				require.Contains(t, body, "gamma thinks before")
				require.NotContains(t, body, "beta thinks")
				w.conforms(0)
			})
		}
	}
}

// Fault: two accounts of one vendor do not take each other's thinking, and every
// request after a switch is refused, or each loses its own thinking for good. One
// refusal of each is enough, and each keeps what it thought itself.
func TestConformanceTwoAccountsOfOneVendor(t *testing.T) {
	t.Parallel()
	for _, of := range []backendCase{claude, prefixChecking} {
		for _, conversation := range []string{"c1", ""} {
			t.Run(of.name+", "+conversation, func(t *testing.T) {
				w := newWorld(t, of, of.with("work", func(c *upstreamtest.Config) { c.Name = "work" }))
				first, work := w.vendors[of.name], w.vendors["work"]
				g := w.gateway()
				c := g.messages("claude-opus-5-5")
				if conversation != "" {
					c.within(conversation)
				}
				toolTurn(first, "alpha")
				c.say("One")
				g.use("work")
				toolTurn(work, "beta")
				c.say("Two")
				g.use(of.name)
				toolTurn(first, "gamma")
				c.say("Three")
				g.use("work")
				toolTurn(work, "delta")
				c.say("Four")
				for v, own := range map[*upstreamtest.Server][]string{first: {"alpha", "gamma"}, work: {"beta", "delta"}} {
					body := string(v.Last().Body)
					for _, name := range []string{"alpha", "beta", "gamma", "delta"} {
						require.Equal(t, slices.Contains(own, name), strings.Contains(body, name+" thinks before"),
							"%s", name)
					}
				}
				w.conforms(2) // each account, once
			})
		}
	}
}

// Fault: a coding agent goes on in another process, with another system text, other
// tools and another note about them, and its named conversation loses thinking that
// the vendor would have taken.
func TestConformanceACodingAgentGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	for _, conversation := range []string{"c1", ""} {
		for _, other := range []backendCase{kimi, kimiChat} {
			t.Run(conversation+", "+other.name, func(t *testing.T) {
				w := newWorld(t, claude, other)
				v := w.vendors["claude"]
				g := w.gateway()
				c := g.messages("claude-opus-4-8")
				if conversation != "" {
					c.within(conversation)
				}
				c.header.Set("Anthropic-Beta", "mid-conversation-system-2026-04-07")
				process := func(n string) {
					c.system = `[{"type":"text","text":"cc_version=` + n + `"},{"type":"text","text":"You are an agent."}]`
					c.damage = func(history []message) []message {
						note := message{role: "system", content: []block{textOf("The kinds of agents as of " + n)}, plain: true}
						return slices.Insert(history, 1, note)
					}
				}
				process("1")
				toolTurn(v, "alpha")
				c.say("One")
				process("2")
				g.use(other.name)
				toolTurn(w.vendors[other.name], "beta")
				c.say("Two")
				process("3")
				g.use("claude")
				toolTurn(v, "gamma")
				c.say("Three")
				body := string(v.Last().Body)
				for _, name := range []string{"alpha thinks before", "alpha thinks after", "gamma thinks before"} {
					require.Contains(t, body, name)
				}
				require.NotContains(t, body, "beta thinks")
				w.conforms(0)
			})
		}
	}
}

// Fault: models of one vendor that do not take each other's thinking cost a refusal
// at each change, and the first one its own thinking when it is asked again. One
// refusal of the backend is enough.
func TestConformanceAnotherModelOfTheSameVendor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude.with("strict", func(c *upstreamtest.Config) { c.Thinking.RejectOtherModels = true }))
	c := w.gateway().messages("claude-opus-4-8")
	c.within("c1")
	v := w.vendors["strict"]
	toolTurn(v, "alpha")
	c.say("One")
	c.model = "claude-opus-5"
	toolTurn(v, "beta")
	c.say("Two")
	c.say("Three")
	c.model = "claude-opus-4-8"
	toolTurn(v, "gamma")
	c.say("Four")
	require.Contains(t, string(v.Last().Body), "alpha thinks before")
	require.NotContains(t, string(v.Last().Body), "beta thinks")
	c.say("Five")
	w.conforms(1)
}

// Fault: the state is lost at a restart, so that the next request ends in "must
// start with a thinking block". With Redis nothing is lost.
func TestConformanceRestartWithRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, model := range []string{"claude-sonnet-4-5", "claude-opus-4-8"} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(model+", "+endpoint, func(t *testing.T) {
				w := newWorld(t, claude.told(budgeted))
				w.shares(redistest.Start(t))
				v := w.vendors["claude"]
				wander(v)
				first := w.gateway()
				c := agents(first, model, "c1")[endpoint]
				for _, said := range wandering[:3] {
					c.say(said)
				}
				first.stop()
				moveTo(c, w.gateway())
				for _, said := range wandering[3:] {
					c.say(said)
				}
				require.Contains(t, string(v.Last().Body), "Not enough, twice more.")
				w.conforms(0)
			})
		}
	}
}

func moveTo(c agent, g *front) {
	switch c := c.(type) {
	case *messagesClient:
		c.gateway = g
	case *chatClient:
		c.gateway = g
	}
}

// Fault: the state is lost at a restart in the middle of a tool loop. Without Redis
// one refusal at most stands for what is not known any more.
func TestConformanceRestartWithoutRedis(t *testing.T) {
	for _, b := range []backendCase{claude, prefixChecking, kimi, deepSeek, kimiChat, deepSeekChat} {
		for _, model := range []string{"claude-sonnet-4-5", "claude-opus-4-8"} {
			for name, damage := range map[string]func([]message) []message{
				"faithful": nil, "signatures emptied": damages["signatures emptied"],
				"thinking dropped": damages["thinking dropped"],
			} {
				t.Run(fmt.Sprint(b.name, ", ", model, ", ", name), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, b)
					g := w.gateway()
					c := g.messages(model)
					c.within("c1")
					c.damage = damage
					toolTurn(w.vendors[b.name], "alpha")
					c.say("One")
					w.vendors[b.name].Queue(upstreamtest.Reply(upstreamtest.Think("beta"), upstreamtest.Use("look", `{"q":"x"}`)))
					c.user(textOf("Two"))
					for _, b := range c.step() {
						if b.Type == "tool_use" {
							c.user(block{Type: "tool_result", ToolUseID: b.ID, Content: "result"})
						}
					}
					g.stop()
					moveTo(c, w.gateway())
					c.proceed()
					c.say("Three")
					if damage == nil {
						w.conforms(0)
						return
					}
					w.refusedAtMost(1)
				})
			}
		}
	}
}

// Fault: two replicas behind one address know half of the turns each.
func TestConformanceTwoGatewaysOverOneRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, b := range []backendCase{claude, prefixChecking, kimi, deepSeekChat} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(b.name+", "+endpoint, func(t *testing.T) {
				w := newWorld(t, b.told(budgeted))
				w.shares(redistest.Start(t))
				wander(w.vendors[b.name])
				left, right := w.gateway(), w.gateway()
				c := agents(left, "claude-opus-4-8", "c1")[endpoint]
				switch c := c.(type) {
				case *messagesClient:
					c.damage = damages["thinking dropped"]
					c.alternate = []*front{right, left}
				case *chatClient:
					c.alternate = []*front{right, left}
				}
				wanderOn(t, c)
				w.conforms(0)
			})
		}
	}
}

// Fault: what one replica was refused costs every other one a refusal, too.
func TestConformanceARefusalIsSharedThroughRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	w.shares(redistest.Start(t))
	left := w.gateway()
	c := left.messages("claude-opus-4-8")
	c.within("c1")
	c.damage = thoughts(func(b *block) { b.Thinking, b.Signature = "forged", pointer("Zm9yZ2Vk") })
	c.history = []message{
		{role: "user", content: []block{textOf("before the gateway was here")}},
		{role: "assistant", content: []block{{Type: "thinking"}, textOf("yes")}},
	}
	c.say("One")
	w.turns.settle(t, 1)
	c.gateway = w.gateway()
	c.say("Two")
	w.turns.settle(t, 2)
	c.gateway = left
	c.say("Three")
	w.conforms(1)
}

// Fault: Redis goes away, and model calls fail or forget for it. It comes back, and
// a restart finds all there is.
func TestConformanceRedisGoesAway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, kimi)
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	w.config.Shared.Turns = redisstore.NewTurns(redis.Client(), redisstore.TurnLimits{})
	v := w.vendors["kimi"]
	wander(v)
	g := w.gateway()
	c := g.messages("kimi-k2-thinking")
	c.within("c1")
	c.damage = damages["thinking dropped"]
	for _, said := range wandering[:2] {
		c.say(said)
	}
	redis.Kill()
	for _, said := range wandering[2:4] {
		c.say(said)
	}
	require.NoError(t, redis.Run())
	g.stop()
	w.shares(redis)
	c.gateway = w.gateway()
	c.say(wandering[4])
	require.Contains(t, string(v.Last().Body), "Not enough, twice more.")
	require.Contains(t, string(v.Last().Body), "One more.")
	w.conforms(0)
}

// Fault: unknown thinking costs a refusal although the operator chose otherwise.
func TestConformanceUnprovenThinking(t *testing.T) {
	t.Parallel()
	for policy, c := range map[thinking.Unproven]struct {
		refusals int
		shows    bool
	}{
		thinking.Lazy: {1, false},
		thinking.Drop: {0, false},
		thinking.Text: {0, true},
	} {
		for _, model := range []string{"claude-opus-4-8", "claude-sonnet-4-5"} {
			t.Run(fmt.Sprint(policy, ", ", model), func(t *testing.T) {
				w := newWorld(t, claude.told(func(c *proxy.BackendConfig) { c.Thinking.Unproven = policy }))
				v := w.vendors["claude"]
				client := w.gateway().remembering(model)
				toolTurn(v, "one")
				client.say("One")
				client.say("Two")
				body := string(v.Last().Body)
				require.Equal(t, c.shows, strings.Contains(body, "forged"))
				require.NotContains(t, body, forgedBlock)
				require.Contains(t, body, "one thinks before", "what is known stays")
				w.conforms(c.refusals)
			})
		}
	}
}

// Fault: one tenant's turns complete another's requests, since their chats are
// alike. Credentials keep them apart, whatever id the conversation has.
func TestConformanceTenantsWithIdenticalChatsNeverMix(t *testing.T) {
	t.Parallel()
	for _, conversation := range []string{"", "c1"} {
		for _, prefix := range []string{"", "/teammate/analytic"} {
			t.Run(fmt.Sprint("conversation=", conversation, prefix), func(t *testing.T) {
				w := newWorld(t, kimi)
				v := w.vendors["kimi"]
				g := w.gateway()
				ask := func(tenant string) *messagesClient {
					c := g.messages("kimi-k2-thinking")
					c.header.Set("X-Api-Key", tenant)
					c.prefix = prefix
					if conversation != "" {
						c.within(conversation)
					}
					c.damage = damages["thinking dropped"]
					return c
				}
				alice, bob := ask("alice"), ask("bob")
				v.Queue(upstreamtest.Reply(upstreamtest.Think("secret of alice"), upstreamtest.Use("look", `{"q":"x"}`)))
				alice.say("Go")
				require.Contains(t, string(v.Last().Body), "secret of alice")
				// Bob has all that alice's client was shown, ids included.
				bob.history = alice.history[:3:3]
				bob.step()
				require.NotContains(t, string(v.Last().Body), "secret")
				// His own turns, which say the same, are his.
				bob.history = nil
				v.Queue(upstreamtest.Reply(upstreamtest.Think("secret of bob"), upstreamtest.Use("look", `{"q":"x"}`)))
				bob.say("Go")
				require.Contains(t, string(v.Last().Body), "secret of bob")
				require.NotContains(t, string(v.Last().Body), "secret of alice")
				alice.say("Go on")
				require.Contains(t, string(v.Last().Body), "secret of alice")
				require.NotContains(t, string(v.Last().Body), "secret of bob")
				w.conforms(0)
			})
		}
	}
}

// Fault: the main route's turns complete a teammate's requests, or the other way
// round: their chats have the same id and begin alike.
func TestConformanceRoutesOfOneTenantNeverMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kimi)
	v := w.vendors["kimi"]
	g := w.gateway()
	for _, prefix := range []string{"", "/teammate", "/teammate/a", "/teammate/b"} {
		v.Queue(upstreamtest.Reply(upstreamtest.Think("thought of "+prefix+"."), upstreamtest.Use("look", `{"q":"x"}`)))
		c := g.messages("kimi-k2-thinking")
		c.prefix = prefix
		c.within("c1")
		c.damage = damages["thinking dropped"]
		c.say("Go")
		require.Equal(t, 1, strings.Count(string(v.Last().Body), "thought of "+prefix+"."))
		require.Equal(t, 1, strings.Count(string(v.Last().Body), "thought of"))
	}
	w.conforms(0)
}

// Fault: a conversation id guessed from the first message joins two chats of a user.
func TestConformanceChatsThatBeginAlikeAreTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	g := w.gateway()
	ids := map[string]bool{}
	for _, thought := range []string{"first chat", "second chat"} {
		w.vendors["claude"].Queue(upstreamtest.Reply(upstreamtest.Think(thought), upstreamtest.Say("Hello.")))
		c := g.messages("claude-opus-4-8")
		c.damage = damages["thinking dropped"]
		c.user(textOf("Hi"))
		got := c.post()
		ids[got.header.Get("X-AG-Conversation-Id")] = true
		c.history = append(c.history, message{role: "assistant", content: readMessages(t, got)})
		c.say("And?")
		require.NotContains(t, string(w.vendors["claude"].Last().Body), `"thinking":"`, "it could be either's")
	}
	require.Len(t, ids, 2)
	w.conforms(0)
}

// A client that cannot read headers asks for the id in the body, by any member _gateway. No
// other client gets it there.
func TestConformanceTheIdInTheBody(t *testing.T) {
	t.Parallel()
	for _, backend := range []backendCase{claude, kimiChat} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", backend.name, stream), func(t *testing.T) {
				w := newWorld(t, backend)
				g := w.gateway()
				m, c := g.messages("claude-opus-4-8"), g.chat("claude-opus-4-8")
				m.stream, c.stream = stream, stream
				m.user(textOf("Hello"))
				c.user("Hello")
				for _, post := range []func(string) answered{
					func(more string) answered { m.more = more; return m.post() },
					func(more string) answered { c.more = more; return c.post() },
				} {
					got := post(`,"_gateway":{}`)
					id := got.header.Get("X-AG-Conversation-Id")
					require.NotEmpty(t, id)
					require.Equal(t, 1, strings.Count(got.body, `"_gateway":{"conversation_id":"`+id+`"}`), "%s", got.body)
					if !stream {
						require.Equal(t, id, gjson.Get(got.body, "_gateway.conversation_id").Str)
					}
					require.NotContains(t, post("").body, "_gateway")
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: the conversation is named and the name is not heard: by the header, in metadata,
// in _gateway. The name goes no further, the answer has it.
func TestConformanceWaysToNameAConversation(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*messagesClient){
		"header":          func(c *messagesClient) { c.within("chat:12345") },
		"metadata":        func(c *messagesClient) { c.more = `,"metadata":{"conversation_id":"chat:12345"}` },
		"metadata, among": func(c *messagesClient) { c.more = `,"metadata":{"user_id":"u","conversation_id":"chat:12345"}` },
		"_gateway":        func(c *messagesClient) { c.more = `,"_gateway":{"conversation_id":"chat:12345"}` },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, claude)
			g := w.gateway()
			c := g.messages("claude-opus-4-8")
			c.damage = damages["thinking dropped"]
			c.within("chat:12345")
			c.say("Hello") // no tool, no signature: only the conversation leads to it
			c.header.Del("X-AG-Conversation-Id")
			set(c)
			c.user(textOf("Again"))
			require.Equal(t, "chat:12345", c.post().header.Get("X-AG-Conversation-Id"))
			last := w.vendors["claude"].Last()
			require.Equal(t, "thinking", gjson.GetBytes(last.Body, "messages.1.content.0.type").Str, "%s", last.Body)
			require.NotContains(t, string(last.Body), "12345")
			require.Empty(t, last.Header.Get("X-AG-Conversation-Id"))
			w.conforms(0)
		})
	}
}
