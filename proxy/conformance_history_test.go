package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

const boundThinking = "https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/" +
	"fix-bound-to-a-different-conversation"

// edited returns a dialogue with an edit of the history after the second turn.
func edited(name string, whenBound int, forgotten turn, change func(c *messagesClient)) transcript {
	return row("edit of "+name, "a session dies of thinking that was bound to the edited content.",
		runEach(thinkers...).cite(boundThinking),
		costsWhenBound(whenBound), useTool("First", "one"), useTool("Second", "two"), edit(change),
		useTool("Third", "three"), say("Fourth"), forgotten)
}

// editText replaces the last text of a message. A negative index counts from the end.
func editText(i int, text string) func(c *messagesClient) {
	return func(c *messagesClient) {
		if i < 0 {
			i += len(c.history)
		}
		content := c.history[i].content
		content[len(content)-1].Text = text
	}
}

// editedLoop is a round of a tool loop that says something as well.
func editedLoop(thought string) upstreamtest.Answer {
	return reply(think(thought), speak("Looking."), upstreamtest.Use("look", "{}"))
}

// clock puts another time into the system prompt of each request.
func clock(p *play) {
	requests := 0
	text := func() string {
		requests++
		return fmt.Sprintf("It is 12:%02d.", requests)
	}
	replay{
		messages: func(history []message) []message {
			p.messages().system = fmt.Sprintf("%q", text())
			return history
		},
		chat: func(history []chatMessage) []chatMessage {
			return append([]chatMessage{{Role: "system", Content: pointer(text())}}, history...)
		},
	}.turn(p)
}

// aside makes side requests of a coding agent under the conversation's id: a title by another model without tools or
// thinking, a subagent's turn, and a count of tokens.
func aside(p *play) {
	main, n := p.client, len(p.clients)
	disabled := `{"type":"disabled"}`
	if p.model == prefixChecking.model { // it cannot disable thinking
		disabled = `{"type":"adaptive"}`
	}
	steps(as(fmt.Sprint("title", n), model("claude-haiku-4-5"), header("Anthropic-Beta", ""), withoutTools, faithful,
		thinkingMode(""), system(`"Give the conversation a title."`),
		client(func(c *messagesClient) { c.maxTokens = 64 })), say("Hello"),
		as(fmt.Sprint("subagent", n), faithful, header("X-Claude-Code-Agent-Id", "a1"), thinkingMode(disabled)),
		say("Use the tool, subagent"))(p)
	p.client = main
	counted := p.messages().count(userText("How long is it?"))
	require.Equal(p, 200, counted.status, counted.body)
}

func countTokens(p *play) {
	got := p.messages().count()
	require.Equal(p, 200, got.status, got.body)
	require.Positive(p, gjson.Get(got.body, "input_tokens").Int())
}

// forged is a history with thinking of another origin.
func forged(thought, signature string, more ...message) turn {
	return history(append([]message{userText("Hi"), assistant(
		block{Type: "thinking", Thinking: thought, Signature: pointer(signature)}, textOf("Hello."))}, more...)...)
}

// since has a client show the end of its history. first returns the index of the first message. It gets the number of
// messages and the indexes of the user's texts.
func since(first func(messages int, questions []int) int) replay {
	return replay{
		messages: func(h []message) []message { return h[first(len(h), starts(h)):] },
		chat:     func(h []chatMessage) []chatMessage { return h[first(len(h), chatStarts(h)):] },
		items: func(h []json.RawMessage) []json.RawMessage {
			isQuestion := func(item json.RawMessage) bool { return gjson.GetBytes(item, "role").Str == "user" }
			return h[first(len(h), indexes(h, isQuestion)):]
		},
	}
}

// lastTurns has a client show its newest two turns.
var lastTurns = since(func(_ int, questions []int) int { return questions[max(0, len(questions)-2)] })

// loopOnly has a client show its newest rounds of calls and results, without the question.
func loopOnly(rounds int) replay {
	return since(func(messages int, questions []int) int {
		if questions[len(questions)-1] == messages-1 {
			return 0
		}
		return max(1, messages-2*rounds)
	})
}

// numbered is an answer with a call that always has the same id.
var numbered = reply(think("Why I look."),
	upstreamtest.Block{Type: "tool_use", ID: "toolu_01A09q90qw90lq91", Name: "look", Input: "{}"})

// idsRenamed has a client change the ids of its calls.
var idsRenamed = replay{idsAltered, chatDamages["ids renamed"], itemMangles["call ids altered"]}

// editInLoop is a variant that edits an answer of a tool loop.
func editInLoop(name string, answer int) variant {
	return variant{name, later(edit(func(c *messagesClient) { c.history[answer].content[1].Text = "Edited." }))}
}

// abort disconnects the client in the middle of an answer.
func abort(text string, answer upstreamtest.Answer) turn {
	return func(p *play) {
		reached, disconnected := make(chan struct{}), make(chan struct{})
		answer.Pause = func(ctx context.Context, event int) {
			if event == 5 {
				close(reached)
				<-ctx.Done()
				close(disconnected)
			}
		}
		p.vendor().Queue(answer)
		p.me().question(text)
		ctx, cancel := context.WithCancel(p.Context())
		resp := p.messages().streamOf(ctx)
		<-reached
		cancel()
		_ = resp.Body.Close()
		<-disconnected
	}
}

// endless is a vendor that keeps connections open after an answer.
var endless = func() backendCase {
	b := kimi
	b.after = func(r *http.Request) { <-r.Context().Done() }
	return b
}()

var historyRows = []transcript{
	edited("a message of the user", 1, vendorLacks(), editText(0, "Something else")),
	edited("an answer", 1, vendorLacks("one thinks after"), editText(3, "The user put this here.")),
	edited("the last answer", 0, vendorLacks("two thinks after"), editText(-1, "The user put this here.")),
	edited("a call", 1, vendorLacks("one thinks before"), func(c *messagesClient) {
		call := c.history[1].content
		call[len(call)-1].Input = []byte(`{"q":"edited"}`)
	}),
	edited("a result", 1, vendorLacks(), func(c *messagesClient) { c.history[2].content[0].Content = "edited" }),
	edited("the newest turn", 0, vendorLacks("two thinks"), func(c *messagesClient) { c.history = c.history[:4] }),
	edited("all but the beginning", 0, vendorLacks("one thinks"), func(c *messagesClient) { c.history = c.history[:1] }),
	edited("the system prompt", 1, vendorLacks(), func(c *messagesClient) { c.system = `"Be brief."` }),
	row("edit inside a loop", "the edit is undone, or a part of the loop's thinking stays, which vendors refuse.",
		runEach(thinkers...).cite("anthropics/claude-code#63404").vary(variants{
			editInLoop("first answer", 1), editInLoop("second answer", 3), editInLoop("newest answer", 5),
		}),
		tolerate(0), costsWhenBound(1),
		begin("Go", editedLoop("thought 0")), round(editedLoop("thought 1")), round(editedLoop("thought 2")), now,
		round(reply(think("a later thought"), upstreamtest.Use("look", "{}"))),
		vendorGot("Edited."), vendorLacks("thought 0", "thought 1", "thought 2"), finish(), say("Go on")),
	row("faithful replay with empty thinking", "an unsigned, empty block counts as a link of the chain on one side only.",
		runEach(deepSeek),
		say("One", reply(think("first"), upstreamtest.Use("look", "{}")),
			reply(think("second"), upstreamtest.Omitted(), speak("So."))),
		say("Two"), unchanged, say("Three"), unchanged),
	row("time of day in each request", "a vendor that binds thinking to the system prompt refuses every turn.",
		runEach(prefixChecking).cite(boundThinking).clients(both...).
			asking("claude-opus-5-5", "claude-fable-5-1", "claude-sonnet-4-5"),
		tolerate(1), clock, wander),
	row("side requests", "a title without thinking, a subagent, or counting tokens evicts confirmed thinking.",
		runEach(thinkers...),
		thinkingDropped, useTool("First", "one"), aside, aside, aside, aside, aside,
		begin("Second", looking("two thinks before", "x")), aside, finish(),
		vendorGot("one thinks before", "one thinks after", "two thinks before")),
	row("count tokens", "counting a history with bad thinking fails, or what it has proven is asked for again.",
		runEach(claude).vary(variants{{"named", costs(1)}, {"unnamed", steps(unnamed, costs(2))}}).flag(golden),
		forged("forged", "Zm9yZ2Vk", userText("And?")), countTokens, countTokens, finish()),
	row("teammates count their own tokens", "counting the tokens of one teammate's history looks into another's.",
		runEach(claude),
		thinkingDropped, as("one", route("/teammate/one")), useTool("Go", "one"),
		as("two", route("/teammate/two")), useTool("Go", "two"),
		as("one"), countTokens, vendorGot("one thinks before"),
		as("two"), countTokens, vendorGot("two thinks before"),
		as("one"), countTokens, vendorGot("one thinks before")),
	row("a cut stream", "the client asks again without streaming, and half an answer is taken for a turn.",
		runEach(thinkers...).vary(variants{
			{"in the thinking", later(queue(saying("half a thought, and more of it", "Hello.").CutAfter(4, true)))},
			{"after it", later(queue(saying("x", "Hello, my friend.").CutAfter(8, false)))},
			{"in the call", later(queue(looking("x", "a long question").CutAfter(9, true)))},
			{"by an error event", later(queue(saying("x", "Hello, my friend.").FailAfter(8)))},
		}),
		useTool("First", "one"), now, streamed, request("Second", 200), func(p *play) {
			partial, complete := readMessagesStream(p, p.answer().body)
			require.False(p, complete)
			require.Contains(p, p.answer().body, "event: error")
			toolTurn(p.vendor(), "two")
			steps(whole, finish(), clientReads("two is done."))(p)
			// Another client keeps what it has seen.
			if len(partial) > 1 && partial[1].Type == "text" && partial[1].Text != "" {
				c := p.messages()
				c.history = append(c.history[:5], assistant(partial...))
				say("Go on")(p)
			}
		}),
	row("a teammate's refusal is remembered", "thinking that a vendor refused is refused again in each turn.",
		runEach(claude),
		costs(1), route("/teammate/analytic"), forged("forged", "Zm9yZ2Vk"),
		say("Use the tool"), say("Use the tool"), say("Use the tool"),
		metric("thinking_retries",
			"thinking_retries_total{backend=\"claude\",class=\"strip\",outcome=\"ok\",pipeline=\"teammate\"} 1\n"),
		metric("thinking_filter", ""), // only the main route filters
		logHas(1, "[thinking_retry]"), logHas(0, "[thinking_filter]")),
	row("retries and filters show", "retries and filters cannot be seen from outside.",
		runWith(claude, kimi),
		costs(1), forged("forged", "Zm9yZ2Vk"), say("One"), // the forged block is refused
		metric("upstream_refusals", "upstream_refusals_total{backend=\"claude\",class=\"strip\",kind=\"signature\"} 1\n"),
		metric("thinking_retries",
			"thinking_retries_total{backend=\"claude\",class=\"strip\",outcome=\"ok\",pipeline=\"main\"} 1\n"),
		metric("thinking_filter", "thinking_filter_blocks_total{backend=\"claude\",fate=\"stripped\"} 1\n"),
		logHas(1, "[thinking_retry]"),
		func(p *play) { require.Positive(p, p.log.count("[thinking_filter]"), "a line for every request") },
		say("Two"), metricHas("thinking_filter", `{backend="claude",fate="refused"} 1`), logHas(1, "refused=1"),
		thinkingDropped, model("claude-opus-4-5"), say("In another mode"),
		metricHas("sanitizer", `{backend="claude",pipeline="main",rule="thinking_mode"} 1`),
		model("claude-opus-4-8"), say("Three"), // dropped thinking comes back
		metricHas("turns_put_back", `{backend="claude",pipeline="main"}`),
		faithful, use(1), say("Four"), metricHas("thinking_filter", `{backend="kimi",fate="foreign"}`)),
	row("a thin client", "a client sends a result or the next question alone, and the vendor misses what it belongs to.",
		runEach(prefixChecking, kimiChat).clients(both...).asking(prefixChecking.model).flag(slow),
		shareRedis, since(func(messages int, _ []int) int { return messages - 1 }).turn, alternate(1, 0),
		useTool("First question", "one"), vendorGot("First question", "one thinks before"),
		header("X-AG-Continue", "true"),
		useTool("Second question", "two"),
		vendorGot("First question", "one is done.", "Second question", "two thinks before"),
		header("X-AG-Continue", ""), say("Something else"), vendorLacks("First question")),
	row("a tool loop without its question", "a client shows the loop only, and the vendor gets \"(no content)\".",
		runEach(prefixChecking, kimiChat, gpt).clients(all3...).vary(
			variants{{"one process", nil}, {"two gateways", steps(streamed, setup(alternate(1, 0)))}},
			variants{{"one round", loopOnly(1).turn}, {"three rounds", loopOnly(3).turn}},
		).flag(slow),
		shareRedis, say("The first question", looking("thought a", "a"), looking("thought b", "b"), looking("thought c", "c"),
			saying("thought d", "Done.")),
		clientReads("Done."), vendorCalls(4), vendorNeverGot("(no content)"),
		func(p *play) {
			for i, r := range p.vendor().Requests() {
				body := string(r.Body)
				require.Equal(p, 1, strings.Count(body, "The first question"), body)
				for j, q := range []string{"a", "b", "c"} {
					require.Equal(p, j < i, strings.Contains(body, `found {\"q\":\"`+q), body)
				}
			}
		}),
	row("a rebuilt tool loop", "the client is not told, or an unknown, ambiguous or complete request is changed.",
		runEach(claude).clients(all3...).vary(variants{
			{"known", later(loopOnly(1).turn)},
			{"unknown", later(loopOnly(1).join(idsRenamed).turn)},
			{"unnamed", later(steps(loopOnly(1).turn, unnamed))},
			{"unnamed and ambiguous", later(steps(as("other", header("X-AG-Conversation-Id", "c2")),
				begin("Something else", numbered), as(""), unnamed,
				loopOnly(1).join(replay{messages: damages["thinking dropped"]}).turn))},
			{"a new question", later(func(p *play) {
				p.me().question("Another")
				since(func(messages int, _ []int) int { return messages - 3 }).turn(p)
			})},
		}),
		tolerate(0), begin("The question", numbered), now, round(), func(p *play) {
			rebuilt := p.in("known") || p.in("unnamed")
			require.Equal(p, rebuilt, strings.Contains(p.answer().header.Get("X-AG-Mended"), "history_rebuilt"))
			require.Equal(p, rebuilt, strings.Contains(p.last(), "The question"), p.last())
		}),
	row("a sliding window", "a client shows two turns, and thinking bound to the lost front is refused each time.",
		runEach(prefixChecking).cite(boundThinking).clients(both...).vary(routes),
		tolerate(0), lastTurns.join(replay{messages: damages["thinking dropped"]}).turn,
		useTool("Turn 0", "turn 0"), useTool("Turn 1", "turn 1"), useTool("Turn 2", "turn 2"),
		useTool("Turn 3", "turn 3"), useTool("Turn 4", "turn 4"), useTool("Turn 5", "turn 5"),
		vendorGot("turn 5 thinks before")),
	row("compaction", "a summary in place of the first turns leaves calls without their answers.",
		runEach(thinkers...).cite("anthropics/claude-code#6521"),
		costsWhenBound(1), useTool("one", "one"), useTool("two", "two"), useTool("three", "three"),
		edit(func(c *messagesClient) {
			c.history = append([]message{userText("A summary: one, two, three.")}, c.history[9:]...)
		}),
		useTool("four", "four"), say("five")),
	row("regenerated answers", "a regenerated answer makes the stored history wrong.",
		runEach(thinkers...),
		thinkingDropped, useTool("One", "one"), func(p *play) {
			c := p.messages()
			before := len(c.history)
			for i := range 4 {
				c.history = c.history[:before]
				say("Two", looking(fmt.Sprint("try ", i), "same"), saying(fmt.Sprint("try again ", i), "The same answer."))(p)
			}
			say("Three", looking("last", "same"))(p)
			vendorGot("try 3")(p) // the client continues with the last try
			for i := range 3 {
				vendorLacks(fmt.Sprint("try ", i), fmt.Sprint("try again ", i))(p)
			}
		}),
	row("an aborted answer", "a client that disconnects in the middle of an answer leaves half a turn behind.",
		runEach(thinkers...),
		useTool("First", "one"), abort("Second", saying("a thought that arrives in part", "Hello.")), whole,
		finish(looking("two thinks before", "two"), saying("two thinks after", "two is done.")),
		clientReads("two is done."), say("Third")),
	row("an answer that does not end", "a turn is recorded at the end of its connection, after the next request.",
		runEach(endless),
		thinkingDropped, func(p *play) {
			p.vendor().Queue(reply(think("just now"), upstreamtest.Use("look", "{}")))
			c := p.messages()
			c.question("Go")
			for range 2 {
				resp := c.streamOf(p.Context())
				defer func() { _ = resp.Body.Close() }()
				seen, buffer := "", make([]byte, 4096)
				for !strings.Contains(seen, wire.MessageStop) {
					n, err := resp.Body.Read(buffer)
					require.NoError(p, err)
					seen += string(buffer[:n])
				}
				blocks, _ := readMessagesStream(p, seen)
				c.history = append(c.history, assistant(blocks...))
				c.user(resultsOf(blocks)...)
			}
		}, vendorGot("just now")),
	// Two gateways without a common store: the first one does not know the second turn, and the client stops to
	// show it. Thinking from before it must not stay.
	row("an unknown turn in the middle", "thinking before an unknown turn stays, and the vendor refuses it.",
		runEach(prefixChecking).cite(boundThinking),
		useTool("Go on", "turn 0"), through(1), useTool("Go on", "turn 1"), through(0), useTool("Go on", "turn 2"),
		thinkingDropped, say("Go on"), vendorLacks("turn 0 thinks"), vendorGot("turn 2 thinks")),
}

// streamOf posts the history as a stream and returns the answer as it arrives.
func (c *messagesClient) streamOf(ctx context.Context) *http.Response {
	w := c.gateway.world
	c.stream = true
	body := bytes.NewReader(c.body())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.gateway.url+"/v1/messages", body)
	require.NoError(w, err)
	r.Header = c.header
	resp, err := w.http.Do(r)
	require.NoError(w, err)
	return resp
}
