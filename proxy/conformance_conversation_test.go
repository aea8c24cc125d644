package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy/ledger"
)

// Fault: an editor thinks, calls a tool, and replays a history in which lines end
// otherwise, texts are trimmed, blocks are merged, unknown members and signatures are
// gone and the call has another name. The conversation dies of its signature, or goes
// on without its thinking.
func TestConformanceAnEditorsDeformedReplay(t *testing.T) {
	t.Parallel()
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of)
			v := w.vendors[backend.of.name]
			c := w.gateway().messages(backend.model)
			c.within("editor")
			c.damage = func(history []message) []message {
				history = damages["thinking merged"](history)
				history = damages["signatures dropped"](history)
				history = idsAltered(damages["inputs encoded anew"](history))
				newest := len(history) - 1
				return texts(func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\n", "\r\n")) })(nil, history,
					newest)
			}
			v.Queue(
				upstreamtest.Reply(upstreamtest.Think(" I need the file.\n"), upstreamtest.Say("Let me look:\n\n- file\n"),
					upstreamtest.Use("look", `{"q":"<a> & b","n":1.0}`)),
				upstreamtest.Reply(upstreamtest.Think("It has the answer."), upstreamtest.Say("Done.\n")),
				upstreamtest.Reply(upstreamtest.Think("Again."), upstreamtest.Use("look", `{}`)),
				upstreamtest.Reply(upstreamtest.Say("Done again.")),
			)
			require.Equal(t, "Done.\n", c.say("Look into\nthe file  "))
			require.Equal(t, "Done again.", c.say("And once more"))
			for _, thought := range []string{" I need the file.\\n", "It has the answer.", "Again."} {
				require.Contains(t, string(v.Last().Body), thought)
			}
			w.conforms(0)
		})
	}
}

// Fault: a chat client that keeps what was said in the end only makes the model
// forget what it did, and with it what it thought.
func TestConformanceRoundsThatAChatClientForgot(t *testing.T) {
	t.Parallel()
	for _, b := range []backendCase{claude, prefixChecking, kimi, kimiChat, deepSeek, deepSeekChat} {
		t.Run(b.name, func(t *testing.T) {
			w := newWorld(t, b.told(budgeted))
			v := w.vendors[b.name]
			c := w.gateway().chat("claude-opus-4-8")
			c.within("c1")
			c.damage = func(history []chatMessage) (out []chatMessage) {
				current := 0
				for i, m := range history {
					if m.Role == "user" {
						current = i
					}
				}
				for i, m := range history {
					if i >= current || m.Role != "tool" && len(m.ToolCalls) == 0 {
						out = append(out, m)
					}
				}
				return out
			}
			toolTurn(v, "one")
			c.say("First")
			toolTurn(v, "two")
			c.say("Second")
			body := string(v.Last().Body)
			for _, there := range []string{"one thinks before", `\"one\"`, "one thinks after", "two thinks before"} {
				require.Contains(t, strings.ReplaceAll(body, `{"q":"one"}`, `\"one\"`), there)
			}
			w.conforms(0)
		})
	}
}

// Fault: models of an older generation think between tools only if a header asks
// for it, which a client of the other dialect has no way to send.
func TestConformanceChatClientsGetThinkingBetweenTools(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		w := newWorld(t, claude.told(budgeted))
		v := w.vendors["claude"]
		c := w.gateway().chat("claude-sonnet-4-5")
		c.stream = stream
		toolTurn(v, "one")
		c.say("First")
		require.Equal(t, []string{"one thinks before", "one thinks after"}, c.seen)
		require.Contains(t, strings.Join(v.Last().Header.Values("Anthropic-Beta"), ","), "interleaved-thinking-2025-05-14")
		toolTurn(v, "two")
		c.say("Second")
		w.conforms(0)
	}
}

// Fault: it cannot be seen from outside what becomes of conversations.
func TestConformanceConversationsShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.within("c1")
	c.say("One")
	c.damage = texts2trimmed
	v.Queue(upstreamtest.Reply(upstreamtest.Say("2")))
	c.say(" Two ")
	c.say("Three")
	c.history = c.history[:2]
	c.say("Two, otherwise")
	c.history[0].content = []block{textOf("Edited")}
	c.say("Three")
	const of = `conversation_requests_total{outcome="%",pipeline="main"} `
	shown := g.metrics("conversation_")
	for _, line := range []string{
		strings.Replace(of, "%", "began", 1) + "1", strings.Replace(of, "%", "hit", 1) + "3",
		strings.Replace(of, "%", "forked", 1) + "1",
		`conversation_branches_total{pipeline="main"} 2`, `conversation_messages_rebuilt_total{pipeline="main"} 1`,
	} {
		require.Contains(t, shown, line+"\n")
	}
	w.conforms(0)
}

// texts2trimmed trims every text but the newest.
func texts2trimmed(history []message) []message {
	return texts(strings.TrimSpace)(nil, history, len(history)-1)
}

// erase deletes a conversation as a caller.
func (g *front) erase(id, key string) answered {
	g.world.Helper()
	r, err := http.NewRequestWithContext(g.world.Context(), http.MethodDelete, g.url+"/v1/conversations/"+id, nil)
	require.NoError(g.world, err)
	r.Header.Set("X-Api-Key", key)
	return g.world.do(r)
}

// Fault: what was erased comes back from another replica, a teammate's route or
// after a restart; or a caller erases what is not its own.
func TestConformanceAnErasedConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	redis := redistest.Start(t)
	w.shares(redis)
	v := w.vendors["claude"]
	g := w.gateway()
	tell := func(g *front, prefix, key string) *messagesClient {
		c := g.messages("claude-opus-4-8")
		c.prefix = prefix
		c.header.Set("X-Api-Key", key)
		c.within("c1")
		return c
	}
	mine, mate, other := tell(g, "", "caller"), tell(g, "/teammate/analytic", "caller"), tell(g, "", "somebody else")
	for _, c := range []*messagesClient{mine, mate, other} {
		toolTurn(v, "a secret of "+c.header.Get("X-Api-Key"))
		c.say("First")
	}
	require.Equal(t, 400, g.erase("no%20id", "caller").status)
	require.Equal(t, 204, g.erase("c1", "caller").status)
	require.Equal(t, 204, g.erase("c1", "caller").status, "it is gone")
	require.Equal(t, 204, g.erase("never-seen", "caller").status)
	require.NotContains(t, kept(t, redis), "a secret of caller")
	g.stop()
	g = w.gateway()
	for _, c := range []*messagesClient{mine, mate, other} {
		c.gateway = g
		c.damage = damages["thinking dropped"]
		c.say("Second")
		require.Equal(t, c == other, strings.Contains(string(v.Last().Body), "thinks"), c.prefix)
	}
	w.refusedAtMost(0)
}

// Fault: a coding agent runs its main dialogue, requests for titles and parallel
// subagents under one id, and they overwrite each other's history, wait for each other,
// or one gets to see what another thought.
func TestConformanceManyDialoguesUnderOneID(t *testing.T) {
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, backend.of)
			g := w.gateway()
			const turns = 6
			agent := func(name string) *messagesClient {
				c := g.messages(backend.model)
				c.within("session-1")
				c.system = `"You are ` + name + `."`
				c.damage = damages["thinking dropped"]
				return c
			}
			var all sync.WaitGroup
			for i := range 5 {
				name := fmt.Sprintf("[agent %d]", i)
				all.Go(func() {
					c := agent(name)
					for turn := range turns {
						c.say(fmt.Sprintf("%s, turn %d: use the tool", name, turn))
						if turn%3 != 0 { // with the agents, 15 branches: none is forgotten
							continue
						}
						title := agent("[titles]")
						title.tools, title.thinking = false, ""
						title.say(fmt.Sprintf("A title for: %s, turn %d", name, turn))
					}
				})
			}
			all.Wait()
			v := w.vendors[backend.of.name]
			newest := map[string]string{}
			for _, r := range v.Requests() {
				names := slices.Compact(slices.Sorted(slices.Values(agentNames.FindAllString(string(r.Body), -1))))
				require.Len(t, names, 1, "%s", r.Body)
				if !strings.Contains(string(r.Body), "A title for") && len(r.Body) > len(newest[names[0]]) {
					newest[names[0]] = string(r.Body)
				}
			}
			require.Len(t, newest, 5)
			for name, body := range newest {
				require.GreaterOrEqual(t, strings.Count(body, `"type":"thinking"`), 2*turns-1, "all that %s has thought", name)
			}
			w.conforms(0)
		})
	}
}

var agentNames = regexp.MustCompile(`\[agent [0-9]\]`)

// Fault: answers that say the same to questions that say the same are taken for one
// another, or for nothing.
func TestConformanceYesFiveTimes(t *testing.T) {
	t.Parallel()
	for _, backend := range thinkers {
		w := newWorld(t, backend.of)
		v := w.vendors[backend.of.name]
		c := w.gateway().messages(backend.model)
		c.within("c1")
		c.damage = damages["thinking dropped"]
		for i := range 5 {
			v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("thought ", i)), upstreamtest.Say("yes")))
			c.say("yes")
		}
		c.say("And now?")
		body, at := string(v.Last().Body), 0
		for i := range 5 {
			next := strings.Index(body, fmt.Sprint("thought ", i))
			require.Greater(t, next, at, "%s: thought %d in %s", backend.name, i, body)
			at = next
		}
		w.conforms(0)
	}
}

// Fault: a client shows its newest two turns, and each time the vendor refuses what it thought
// before a front that is gone. On both routes that is known beforehand.
func TestConformanceASlidingWindowIsNeverRefused(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/teammate/analytic"} {
		for _, endpoint := range []string{"messages", "chat"} {
			w := newWorld(t, prefixChecking.told(budgeted))
			v := w.vendors["bound"]
			g := w.gateway()
			var say func(string) string
			switch endpoint {
			case "messages":
				c := g.messages("claude-opus-5-5")
				c.prefix = prefix
				c.within("c1")
				c.damage = func(history []message) []message {
					at := starts(history)
					return damages["thinking dropped"](history[at[max(0, len(at)-2)]:])
				}
				say = c.say
			case "chat":
				c := g.chat("claude-opus-5-5")
				c.prefix = prefix
				c.within("c1")
				c.damage = func(history []chatMessage) []chatMessage {
					users := 0
					for i := len(history) - 1; i > 0; i-- {
						if history[i].Role != "user" {
							continue
						}
						if users++; users == 2 {
							return history[i:]
						}
					}
					return history
				}
				say = c.say
			}
			for turn := range 6 {
				toolTurn(v, fmt.Sprint("turn ", turn))
				say(fmt.Sprint("Turn ", turn))
			}
			require.Empty(t, v.Rejections(), "%s, %s", prefix, endpoint)
			require.Contains(t, string(v.Last().Body), "turn 5 thinks before")
			w.refusedAtMost(0)
		}
	}
}

// Fault: a replica that knows an older part of a conversation takes that for all.
func TestConformanceAReplicaCatchesUpWithAConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, prefixChecking)
	w.shares(redistest.Start(t))
	v := w.vendors["bound"]
	left, right := w.gateway(), w.gateway()
	c := left.messages("claude-opus-5-5")
	c.within("c1")
	c.alternate = []*front{left, right, right, left, left, left} // each turn has two calls
	c.damage = func(history []message) []message { return mangles["rounds forgotten"].replay(nil, history, 0) }
	for i, turn := range []string{"one", "two", "three", "four"} {
		toolTurn(v, turn)
		c.say(turn)
		for _, before := range []string{"one", "two", "three"}[:i] {
			require.Contains(t, string(v.Last().Body), before+" thinks before", "in turn %s", turn)
		}
	}
	w.conforms(0)
}

// awayTurns is a store of turns that cannot be reached to erase or to keep.
type awayTurns struct{ ledger.Remote }

func (awayTurns) Erase(context.Context, ledger.Erasure) error { return errors.New("away") }

func (awayTurns) Keep(context.Context, string, string, time.Time) error { return errors.New("away") }

// Fault: an erasure that Redis did not hear of is called done.
func TestConformanceAnErasureThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	w.shares(redistest.Start(t))
	w.config.Shared.Turns = awayTurns{w.turns}
	got := w.gateway().erase("c1", "caller")
	require.Equal(t, 503, got.status)
	require.Contains(t, got.body, "try again")
	w.conforms(0)
}

// Fault: with the state machine off something of it is left: histories are stored, or
// messages are put in.
func TestConformanceWithoutConversations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	redis := redistest.Start(t)
	w.shares(redis)
	w.config.Stateless = true
	v := w.vendors["claude"]
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.within("c1")
	c.damage = damages["thinking dropped"]
	toolTurn(v, "one")
	c.say("What I say is not stored")
	c.say("Second")
	require.Contains(t, string(v.Last().Body), "one thinks before", "the turn is known by the id of its call")
	require.NotContains(t, string(v.Last().Body), "one thinks after", "what was said alone proves nothing")
	require.Empty(t, g.metrics("conversation_"))
	nameless := g.messages("claude-opus-4-8")
	nameless.user(textOf("Hi"))
	require.Empty(t, nameless.post().header.Values("X-AG-Conversation-Id"), "none is made up")
	g.stop()
	require.NotContains(t, kept(t, redis), "What I say")
	w.conforms(0)
}

// Fault: what users said lies in Redis although no client asked for a conversation to be
// kept. A request without an id leaves its turn; its history comes with the id.
func TestConformanceNoHistoryIsKeptWithoutAnID(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := newWorld(t, claude)
	w.shares(redis)
	v := w.vendors["claude"]
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.user(textOf("What I say is not stored"))
	v.Queue(upstreamtest.Reply(upstreamtest.Think("What I think is."), upstreamtest.Say("What I answer is.")))
	got := c.post()
	id := got.header.Get("X-AG-Conversation-Id")
	require.NotEmpty(t, id)
	g.stop()
	require.Contains(t, kept(t, redis), "What I think is.")
	require.NotContains(t, kept(t, redis), "What I say")

	c.history = append(c.history, message{role: "assistant", content: readMessages(t, got)})
	g = w.gateway()
	c.gateway = g
	c.within(id)
	c.say("What I add")
	g.stop()
	require.Contains(t, kept(t, redis), "What I say")
	require.Contains(t, kept(t, redis), "What I add")
	w.conforms(0)
}

// kept is all that the gateways' turns in Redis say.
func kept(t *testing.T, redis *redistest.Server) string {
	t.Helper()
	var all []string
	for _, key := range redis.Client().Keys(t.Context(), "proxy:turn*").Val() {
		if redis.Client().Type(t.Context(), key).Val() == "hash" {
			all = append(all, redis.Client().HVals(t.Context(), key).Val()...)
		}
	}
	return strings.Join(all, "\n")
}

// Fault: a client that holds no history sends a tool's result alone, or the next
// question alone, and the vendor is asked without what it belongs to.
func TestConformanceAThinClient(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, of := range []backendCase{prefixChecking, kimiChat} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(of.name+", "+endpoint, func(t *testing.T) {
				w := newWorld(t, of.told(budgeted))
				w.shares(redistest.Start(t))
				v := w.vendors[of.name]
				first, second := w.gateway(), w.gateway()
				c := agents(first, "claude-opus-5-5", "c1")[endpoint]
				var header http.Header
				switch c := c.(type) {
				case *messagesClient:
					c.damage = func(history []message) []message { return history[len(history)-1:] }
					c.alternate, header = []*front{second, first}, c.header
				case *chatClient:
					c.damage = func(history []chatMessage) []chatMessage { return history[len(history)-1:] }
					c.alternate, header = []*front{second, first}, c.header
				}
				toolTurn(v, "one")
				require.Equal(t, "one is done.", c.say("First question"))
				require.Contains(t, string(v.Last().Body), "First question")
				require.Contains(t, string(v.Last().Body), "one thinks before")
				header.Set("X-AG-Continue", "true")
				toolTurn(v, "two")
				require.Equal(t, "two is done.", c.say("Second question"))
				for _, text := range []string{"First question", "one is done.", "Second question", "two thinks before"} {
					require.Contains(t, string(v.Last().Body), text)
				}
				header.Del("X-AG-Continue")
				c.say("Something else")
				require.NotContains(t, string(v.Last().Body), "First question", "not asked for")
				w.conforms(0)
			})
		}
	}
}
