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
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/ledger"
)

const day = 24 * time.Hour

func (g *front) ownRoute(method, path, body string) answered {
	return g.call(g.world.Context(), method, "/v1/conversations/"+path, http.Header{"X-Api-Key": {"caller"}}, []byte(body))
}

// keepUntil is the body of a request to keep a conversation for this time.
func keepUntil(d time.Duration) string { return fmt.Sprintf(`{"until":%d}`, time.Now().Add(d).Unix()) }

// awayTurns is a store of turns that is unavailable for erasing and keeping.
type awayTurns struct{ ledger.Remote }

func (awayTurns) Erase(context.Context, ledger.Erasure) error { return errors.New("away") }

func (awayTurns) Keep(context.Context, string, string, time.Time) error { return errors.New("away") }

// kept returns everything in Redis.
func kept(t tester, redis *redistest.Server) string {
	var all strings.Builder
	ctx, client := t.Context(), redis.Client()
	read := map[string][]any{
		"string": {"GET", ""}, "hash": {"HGETALL", ""}, "set": {"SMEMBERS", ""}, "zset": {"ZRANGE", "", 0, -1},
		"list": {"LRANGE", "", 0, -1},
	}
	for _, key := range client.Keys(ctx, "*").Val() {
		command := slices.Clone(read[client.Type(ctx, key).Val()])
		require.NotEmpty(t, command, "the type of %s", key)
		command[1] = key
		fmt.Fprintln(&all, key, client.Do(ctx, command...).Val())
	}
	return all.String()
}

// stored ends the gateway and expects texts in Redis, or their absence.
func stored(present bool, texts ...string) turn {
	return func(p *play) {
		p.gateway().stop()
		for _, text := range texts {
			require.Equal(p, present, strings.Contains(kept(p, p.redis), text), "%q", text)
		}
	}
}

// pass ages everything in Redis, because its clock cannot be set. Expired keys vanish, others have less time to live.
func pass(t *testing.T, redis *redistest.Server, d time.Duration) {
	client := redis.Client()
	for _, key := range client.Keys(t.Context(), "proxy:turn*").Val() {
		if ttl := client.PTTL(t.Context(), key).Val(); ttl > 0 { // keys without expiry stay
			require.NoError(t, client.PExpire(t.Context(), key, ttl-d).Err())
		}
	}
}

// found is the end of a tool chain. The vendor gets its earlier thoughts if the conversation is kept.
func found(thoughts ...string) turn {
	return func(p *play) {
		steps(round(saying("Found.", "Done.")), clientReads("Done."))(p)
		for _, thought := range thoughts {
			require.Equal(p, p.in("kept"), strings.Contains(p.last(), thought), p.last())
		}
	}
}

var conversationRows = []transcript{
	row("an editor's deformed replay", "trimmed texts, merged blocks and renamed calls cost a conversation its thinking.",
		runEach(thinkers...),
		replay{messages: chain(damages["thinking merged"], damages["signatures dropped"], damages["inputs encoded anew"],
			idsAltered, mangles["line ends"].damage, texts(strings.TrimSpace))}.turn,
		say("Look into\nthe file  ",
			reply(think(" I need the file.\n"), speak("Let me look:\n\n- file\n"),
				upstreamtest.Use("look", `{"q":"<a> & b","n":1.0}`)),
			saying("It has the answer.", "Done.\n")),
		clientReads("Done.\n"),
		say("And once more", reply(think("Again."), upstreamtest.Use("look", `{}`)), reply(speak("Done again."))),
		clientReads("Done again."),
		vendorGot(" I need the file.\\n", "It has the answer.", "Again.")),
	row("conversations show", "the fate of conversations cannot be seen from outside.",
		runEach(claude),
		say("One"), replay{messages: texts(strings.TrimSpace)}.turn, say(" Two ", reply(speak("2"))), say("Three"),
		edit(func(c *messagesClient) { c.history = c.history[:2] }), say("Two, otherwise"),
		edit(func(c *messagesClient) { c.history[0] = userText("Edited") }), say("Three"),
		metricHas("conversation_", "conversation_requests_total{outcome=\"began\",pipeline=\"main\"} 1\n"),
		metricHas("conversation_", "conversation_requests_total{outcome=\"hit\",pipeline=\"main\"} 3\n"),
		metricHas("conversation_", "conversation_requests_total{outcome=\"forked\",pipeline=\"main\"} 1\n"),
		metricHas("conversation_", "conversation_branches_total{pipeline=\"main\"} 2\n"),
		metricHas("conversation_", "conversation_messages_rebuilt_total{pipeline=\"main\"} 1\n")),
	row("an erased conversation", "erased content comes back elsewhere or later, or a caller erases another's.",
		runEach(claude),
		shareRedis, tolerate(0), as("mine"), useTool("First", "a secret of caller"),
		as("mate", route("/teammate/analytic")), useTool("First", "a secret of caller"),
		as("other", header("X-Api-Key", "another")), useTool("First", "a secret of another"),
		func(p *play) {
			g := p.gateway()
			require.Equal(p, 400, g.ownRoute("DELETE", "no%20id", "").status)
			for _, id := range []string{"c1", "c1", "never-seen"} {
				require.Equal(p, 204, g.ownRoute("DELETE", id, "").status)
			}
		},
		stored(false, "a secret of caller"), restart,
		as("mine"), thinkingDropped, say("Second"), vendorLacks("thinks"),
		as("mate"), thinkingDropped, say("Second"), vendorLacks("thinks"),
		as("other"), thinkingDropped, say("Second"), vendorGot("thinks")),
	row("yes five times", "equal answers to equal questions, or equal turns with equal calls, are taken for one another.",
		runEach(thinkers...).vary(variants{{"texts", nil}, {"calls", nothing}}, variants{
			{"thinking dropped", thinkingDropped}, {"signatures mixed up", damaged("signatures of another block")}}),
		func(p *play) {
			thoughts := 0
			thought := func() string { thoughts++; return fmt.Sprintf("thought %d.", thoughts) }
			for range 5 {
				if p.in("calls") {
					p.vendor().Queue(looking(thought(), "x"))
				}
				steps(say("yes", saying(thought(), "yes")), clientReads("yes"))(p)
			}
			say("And now?")(p)
			at := 0
			for i := range thoughts {
				next := strings.Index(p.last(), fmt.Sprintf("thought %d.", i+1))
				require.Greater(p, next, at, "thought %d in %s", i+1, p.last())
				at = next
			}
		}),
	row("identical chats under one id", "two chats with the same words under one id get each other's thinking.",
		runEach(claude),
		thinkingDropped, func(p *play) {
			for range 3 {
				for i, name := range []string{"thought of 0", "thought of 1"} {
					steps(as(name), say("Go", looking(name, "x"), reply(speak("yes"))), vendorGot(name),
						vendorLacks(fmt.Sprint("thought of ", 1-i)))(p)
				}
			}
		}),
	row("without the state machine", "with the state machine off, histories are stored or messages are put in.",
		runEach(claude),
		shareRedis, configure(func(c *proxy.Config) { c.Stateless = true }),
		as("main", thinkingDropped), useTool("What I say is not stored", "one"), say("Second"),
		vendorGot("one thinks before"),  // the id of its call leads to the turn
		vendorLacks("one thinks after"), // a text alone proves nothing
		metric("conversation_", ""),
		as("nameless", header("X-AG-Conversation-Id", "")), request("Hi", 200), clientGotHeader("X-AG-Conversation-Id", ""),
		stored(false, "What I say")),
	row("a tool chain that waits for days", "after three days the model has forgotten its call, or the chain is refused.",
		runEach(claude, prefixChecking, kimiChat).clients("chat").
			asking(claude.model).vary(variants{{"kept", later(func(p *play) {
			require.Equal(p, 204, p.gateway().ownRoute("PUT", "c1/keep", keepUntil(3*day+time.Hour)).status)
		})}, {"not kept", later(nothing)}}),
		shareRedis, tolerate(0), as("master"), begin("Look it up", looking("Why I look.", "it")),
		as("mate", route("/teammate/analytic")), begin("Look it up", looking("Why a teammate looks.", "it")),
		now, // later turns are kept too
		round(looking("Why I look again.", "more")), as("master"), round(looking("Why I look again.", "more")),
		through(0), restart, func(p *play) { pass(p.t, p.redis, 3*day) },
		found("Why I look.", "Why I look again."), as("mate"), found("Why a teammate looks.", "Why I look again."),
		func(p *play) {
			counted := p.gateway().metrics("conversation_requests_total") + p.gateway().metrics("turns_put_back_total")
			outcome := map[bool]string{true: "hit", false: "notknown"}[p.in("kept")]
			require.Contains(p, counted, `outcome="`+outcome+`",pipeline="main"} 1`)
			require.Equal(p, p.in("kept"), strings.Contains(counted, "turns_put_back"))
		}),
	row("no history is kept without an id", "the user's texts are in Redis although no client asked to keep them.",
		runEach(claude),
		shareRedis, header("X-AG-Conversation-Id", ""),
		begin("What I say is not stored", saying("What I think is.", "What I answer is.")),
		stored(true, "What I think is."), stored(false, "What I say"), restart,
		func(p *play) {
			id := p.answer().header.Get("X-AG-Conversation-Id")
			require.NotEmpty(p, id)
			header("X-AG-Conversation-Id", id)(p)
		},
		say("What I add"), stored(true, "What I say", "What I add")),
	// A coding agent runs parallel subagents and requests for titles under one id.
	row("many dialogues under one id", "they overwrite each other's history, or see each other's thinking.",
		runEach(thinkers...),
		func(p *play) {
			const turns = 6
			agent := func(name string) *messagesClient {
				c := p.gateway().messages(p.model)
				c.within("session-1")
				c.system = `"You are ` + name + `."`
				c.damage = damages["thinking dropped"]
				return c
			}
			var all sync.WaitGroup
			for i := range 5 {
				name, c := fmt.Sprintf("[agent %d]", i), agent(fmt.Sprintf("[agent %d]", i))
				all.Go(func() {
					for turn := range turns {
						c.say(fmt.Sprintf("%s, turn %d: use the tool", name, turn))
						if turn%3 == 0 { // with the agents, 15 branches: none is forgotten
							title := agent("[titles]")
							title.tools, title.thinking = false, ""
							title.say(fmt.Sprintf("A title for: %s, turn %d", name, turn))
						}
					}
				})
			}
			all.Wait()
			newest := map[string]string{}
			for _, r := range p.vendor().Requests() {
				names := slices.Compact(slices.Sorted(slices.Values(agentNames.FindAllString(string(r.Body), -1))))
				require.Len(p, names, 1, "%s", r.Body)
				if !strings.Contains(string(r.Body), "A title for") && len(r.Body) > len(newest[names[0]]) {
					newest[names[0]] = string(r.Body)
				}
			}
			require.Len(p, newest, 5)
			for name, body := range newest {
				require.GreaterOrEqual(p, strings.Count(body, `"type":"thinking"`), 2*turns-1, "all that %s has thought", name)
			}
		}),
	row("what can be kept", "the gateway confirms to keep a conversation and does not, or keeps it for ever.",
		runEach(claude),
		func(p *play) {
			g := p.gateway()
			for body, problem := range map[string]string{
				"":                              "must be JSON",
				`{"until":"tomorrow"}`:          "must be JSON",
				`{"until":1.5}`:                 "must be JSON",
				`{}`:                            "8 days",
				`{"until":-1}`:                  "8 days",
				keepUntil(-time.Minute):         "8 days",
				keepUntil(8*day + time.Minute):  "8 days",
				`{"until":9223372036854775807}`: "8 days",
			} {
				got := g.ownRoute("PUT", "c1/keep", body)
				require.Equal(p, 400, got.status, body)
				require.Contains(p, got.body, problem)
			}
			require.Equal(p, 400, g.ownRoute("PUT", "no%20id/keep", keepUntil(day)).status)
			for range 2 {
				require.Equal(p, 204, g.ownRoute("PUT", "never-seen/keep", keepUntil(8*day)).status)
			}
		}),
	row("an erasure while Redis is away", "it is confirmed before Redis has it, and so is the keeping of a conversation.",
		runEach(claude),
		shareRedis, configure(func(c *proxy.Config) { c.Shared.Turns = awayTurns{c.Shared.Turns} }),
		func(p *play) {
			for _, got := range []answered{
				p.gateway().ownRoute("PUT", "c1/keep", keepUntil(day)), p.gateway().ownRoute("DELETE", "c1", ""),
			} {
				require.Equal(p, 503, got.status)
				require.Contains(p, got.body, "try again")
			}
		}),
}

var agentNames = regexp.MustCompile(`\[agent [0-9]\]`)
