package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

// Fault: a session dies, after the user has edited its history or gone back in it, of
// thinking that was bound to what stood there before.
func TestConformanceEdits(t *testing.T) {
	for name, c := range map[string]struct {
		edit     func(c *messagesClient)
		refusals int // of a backend that binds thinking to what stood before it
		gone     string
	}{
		"a message of the user": {func(c *messagesClient) { c.history[0].content = []block{textOf("Something else")} }, 1,
			""},
		"an answer": {func(c *messagesClient) {
			last := c.history[3].content
			last[len(last)-1].Text = "The user put this here."
		}, 1, "one thinks after"},
		"an answer, which was the last": {func(c *messagesClient) {
			last := c.history[len(c.history)-1].content
			last[len(last)-1].Text = "The user put this here."
		}, 0, "two thinks after"},
		"the call of a tool": {func(c *messagesClient) {
			call := c.history[1].content
			call[len(call)-1].Input = []byte(`{"q":"edited"}`)
		}, 1, "one thinks before"},
		"a result of a tool":    {func(c *messagesClient) { c.history[2].content[0].Content = "edited" }, 1, ""},
		"the newest turn again": {func(c *messagesClient) { c.history = c.history[:4] }, 0, "two thinks"},
		"all but the beginning": {func(c *messagesClient) { c.history = c.history[:1] }, 0, "one thinks"},
		"the system prompt":     {func(c *messagesClient) { c.system = `"Be brief."` }, 1, ""},
	} {
		for _, backend := range thinkers {
			t.Run(backend.name+", "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, backend.of)
				v := w.vendors[backend.of.name]
				client := w.gateway().messages(backend.model)
				client.within("c1")
				toolTurn(v, "one")
				client.say("First")
				toolTurn(v, "two")
				client.say("Second")
				c.edit(client)
				toolTurn(v, "three")
				require.Equal(t, "three is done.", client.say("Third"))
				client.say("Fourth")
				if c.gone != "" {
					require.NotContains(t, string(v.Last().Body), c.gone)
				}
				if backend.name == "bound" {
					w.conforms(c.refusals)
					return
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: strict comparison takes an answer that was edited inside the current tool
// loop for the old one, and puts back what the user took out.
func TestConformanceAnEditInsideTheCurrentLoopIsNotUndone(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"claude-opus-4-8", "claude-sonnet-4-5"} {
		t.Run(model, func(t *testing.T) {
			w := newWorld(t, claude)
			v := w.vendors["claude"]
			c := w.gateway().messages(model)
			c.within("c1")
			v.Queue(upstreamtest.Reply(upstreamtest.Think("I shall look"), upstreamtest.Say("Looking."),
				upstreamtest.Use("look", `{"q":"a"}`)))
			c.user(textOf("Go"))
			call := c.step()
			call[1].Text = "Edited."
			c.user(block{Type: "tool_result", ToolUseID: call[2].ID, Content: "result"})
			c.proceed()
			require.NotContains(t, string(v.Last().Body), "I shall look")
			require.Contains(t, string(v.Last().Body), "Edited.")
			w.refusedAtMost(0)
		})
	}
}

// Fault: an edit inside a tool loop of several rounds leaves a part of the loop's
// thinking. Vendors want all of it, or none.
func TestConformanceAnEditInsideALongLoop(t *testing.T) {
	t.Parallel()
	for name, edited := range map[string]int{"the first answer": 1, "the second": 3, "the newest": 5} {
		for _, backend := range thinkers {
			t.Run(backend.name+", "+name, func(t *testing.T) {
				w := newWorld(t, backend.of)
				v := w.vendors[backend.of.name]
				c := w.gateway().messages(backend.model)
				c.within("c1")
				c.user(textOf("Go"))
				for i := range 3 {
					v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("thought ", i)), upstreamtest.Say("Looking."),
						upstreamtest.Use("look", "{}")))
					c.user(block{Type: "tool_result", ToolUseID: c.step()[2].ID, Content: "result"})
				}
				c.history[edited].content[1].Text = "Edited."
				v.Queue(upstreamtest.Reply(upstreamtest.Think("thought after the edit"), upstreamtest.Use("look", "{}")))
				c.proceed()
				c.say("Go on")
				bound := 0
				if backend.name == "bound" {
					bound = 1 // what followed the edit was bound to what was there
				}
				w.refusedAtMost(bound)
			})
		}
	}
}

// Fault: a block that says nothing, as some vendors send them without a signature,
// is taken for a link of the chain on one side only, and what stood before it goes.
func TestConformanceFaithfulReplayWithEmptyThinking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, deepSeek)
	v := w.vendors["deepseek"]
	v.Queue(
		upstreamtest.Reply(upstreamtest.Think("first"), upstreamtest.Use("look", "{}")),
		upstreamtest.Reply(upstreamtest.Think("second"), upstreamtest.Omitted(), upstreamtest.Say("So.")),
	)
	c := w.gateway().messages("deepseek-reasoner")
	c.within("c1")
	c.say("One")
	c.say("Two")
	require.Equal(t, string(c.sent), string(v.Last().Body))
	c.say("Three")
	require.Equal(t, string(c.sent), string(v.Last().Body))
	w.conforms(0)
}

// Fault: a client puts the time of day into its system prompt, and a vendor that
// binds thinking to it refuses every turn. One refusal per conversation, and the
// gateway knows.
func TestConformanceTimeOfDayInTheSystemPrompt(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"messages", "chat"} {
		for _, model := range []string{"claude-opus-5-5", "claude-fable-5-1", "claude-sonnet-4-5"} {
			t.Run(endpoint+", "+model, func(t *testing.T) {
				w := newWorld(t, prefixChecking.told(budgeted))
				v := w.vendors["bound"]
				wander(v)
				g := w.gateway()
				turn := 0
				clock := func() string { turn++; return fmt.Sprintf("It is 12:%02d.", turn) }
				if endpoint == "messages" {
					c := g.messages(model)
					c.within("c1")
					c.damage = func(history []message) []message {
						c.system = fmt.Sprintf("%q", clock())
						return history
					}
					wanderOn(t, c)
				} else {
					c := g.chat(model)
					c.within("c1")
					c.damage = func(history []chatMessage) []chatMessage {
						return append([]chatMessage{{Role: "system", Content: pointer(clock())}}, history...)
					}
					wanderOn(t, c)
				}
				w.refusedAtMost(1) // thinking between calls is bound to the minute before
			})
		}
	}
}

// Fault: a side request of the same conversation, without thinking or tools, evicts
// what was confirmed, or counting tokens wipes it.
func TestConformanceSideRequestsEvictNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of)
			v := w.vendors[backend.of.name]
			g := w.gateway()
			c := g.messages(backend.model)
			c.within("c1")
			c.damage = damages["thinking dropped"]
			aside := func() {
				title := g.messages("claude-haiku-4-5")
				title.header = c.header.Clone()
				title.header.Del("Anthropic-Beta")
				title.thinking, title.tools, title.maxTokens = "", false, 64
				title.system = `"Give the conversation a title."`
				title.say("Hello")
				subagent := g.messages(backend.model)
				subagent.header = c.header.Clone()
				subagent.header.Set("X-Claude-Code-Agent-Id", "a1")
				if backend.model != "claude-opus-5-5" { // it cannot be told so
					subagent.thinking = `{"type":"disabled"}`
				}
				subagent.say("Use the tool, subagent")
				require.Equal(t, 200, c.count(message{role: "user", content: []block{textOf("How long is it?")}}).status)
			}
			toolTurn(v, "one")
			c.say("First")
			for range 5 {
				aside()
			}
			v.Queue(upstreamtest.Reply(upstreamtest.Think("two thinks before"), upstreamtest.Use("look", `{"q":"x"}`)))
			c.user(textOf("Second"))
			use := c.step()[1]
			aside()
			c.user(block{Type: "tool_result", ToolUseID: use.ID, Content: "result"})
			c.proceed()
			for _, thought := range []string{"one thinks before", "one thinks after", "two thinks before"} {
				require.Contains(t, string(v.Last().Body), thought)
			}
			w.conforms(0)
		})
	}
}

// Fault: counting the tokens of a history with bad thinking fails, though answering
// it would not.
func TestConformanceCountTokensWithBadThinking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.within("c1")
	c.history = []message{
		{role: "user", content: []block{textOf("Hi")}},
		{role: "assistant", content: []block{{Type: "thinking", Thinking: "forged", Signature: pointer("Zm9yZ2Vk")},
			textOf("Hello.")}},
		{role: "user", content: []block{textOf("And?")}},
	}
	got := c.count()
	require.Equal(t, 200, got.status, got.body)
	require.Positive(t, gjson.Get(got.body, "input_tokens").Int())
	require.Equal(t, 200, c.count().status)
	c.proceed()
	w.conforms(1)
}

// Fault: counting the tokens of one teammate's history looks into another's.
func TestConformanceTeammatesCountTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	g := w.gateway()
	mates := map[string]*messagesClient{}
	for _, name := range []string{"one", "two"} {
		c := g.messages("claude-opus-4-8")
		c.within("c1")
		c.prefix, c.damage = "/teammate/"+name, damages["thinking dropped"]
		toolTurn(v, name)
		c.say("Go")
		mates[name] = c
	}
	for _, name := range []string{"one", "two", "one"} {
		require.Equal(t, 200, mates[name].count().status)
		require.Contains(t, string(v.Last().Body), name+" thinks before")
	}
	w.conforms(0)
}

// Fault: after a stream that was cut the client asks again, without streaming, and
// half an answer is taken for a turn.
func TestConformanceACutStreamAndAnotherTry(t *testing.T) {
	t.Parallel()
	for _, backend := range thinkers {
		for name, broken := range map[string]upstreamtest.Answer{
			"in the thinking": upstreamtest.Reply(upstreamtest.Think("half a thought, and more of it"),
				upstreamtest.Say("Hello.")).CutAfter(4, true),
			"behind it": upstreamtest.Reply(upstreamtest.Think("x"), upstreamtest.Say("Hello, my friend.")).CutAfter(8,
				false),
			"in the call": upstreamtest.Reply(upstreamtest.Think("x"),
				upstreamtest.Use("look", `{"q":"a long question"}`)).CutAfter(9, true),
			"by an error event": upstreamtest.Reply(upstreamtest.Think("x"), upstreamtest.Say("Hello, my friend.")).FailAfter(8),
		} {
			t.Run(backend.name+", "+name, func(t *testing.T) {
				w := newWorld(t, backend.of)
				v := w.vendors[backend.of.name]
				c := w.gateway().messages(backend.model)
				c.within("c1")
				toolTurn(v, "one")
				c.say("First")
				v.Queue(broken)
				c.stream = true
				c.user(textOf("Second"))
				got := c.post()
				partial, complete := readMessagesStream(t, got.body)
				require.False(t, complete)
				require.Contains(t, got.body, "event: error")
				c.stream = false
				toolTurn(v, "two")
				require.Equal(t, "two is done.", c.proceed())
				// Another client keeps what it has seen and goes on from there.
				if len(partial) > 1 && partial[1].Type == "text" && partial[1].Text != "" {
					c.history = append(c.history[:5], message{role: "assistant", content: partial})
					c.say("Go on")
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: a client that leaves in the middle of an answer leaves half a turn behind.
func TestConformanceAnAbortedAnswer(t *testing.T) {
	t.Parallel()
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of)
			v := w.vendors[backend.of.name]
			g := w.gateway()
			c := g.messages(backend.model)
			c.within("c1")
			toolTurn(v, "one")
			c.say("First")

			reached, left := make(chan struct{}), make(chan struct{})
			broken := upstreamtest.Reply(upstreamtest.Think("a thought that nobody hears to its end"),
				upstreamtest.Say("Hello."))
			broken.Pause = func(ctx context.Context, event int) {
				if event == 5 {
					close(reached)
					<-ctx.Done()
					close(left)
				}
			}
			v.Queue(broken)
			c.stream = true
			c.user(textOf("Second"))
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/messages", strings.NewReader(string(c.body())))
			require.NoError(t, err)
			r.Header = c.header
			resp, err := w.http.Do(r)
			require.NoError(t, err)
			<-reached
			cancel()
			_ = resp.Body.Close()
			<-left

			toolTurn(v, "two")
			require.Equal(t, "two is done.", c.proceed())
			c.say("Third")
			w.conforms(0)
		})
	}
}

// Fault: a turn is recorded when the connection ends. The client has had the last
// event by then, and its next request is here already.
func TestConformanceTheNextRequestComesBeforeTheEndOfTheLast(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	late := kimi
	late.after = func(r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	w := newWorld(t, late)
	v := w.vendors["kimi"]
	g := w.gateway()
	c := g.messages("kimi-k2-thinking")
	c.within("c1")
	c.damage = damages["thinking dropped"]
	v.Queue(upstreamtest.Reply(upstreamtest.Think("just now"), upstreamtest.Use("look", "{}")))
	c.stream = true
	c.user(textOf("Go"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/messages",
		strings.NewReader(string(c.body())))
	require.NoError(t, err)
	r.Header = c.header
	resp, err := w.http.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var seen strings.Builder
	frames := wire.NewFrameReader(resp.Body)
	for !strings.Contains(seen.String(), wire.MessageStop) {
		f, err := frames.Next()
		require.NoError(t, err)
		seen.Write(f.Raw)
	}
	blocks, _ := readMessagesStream(t, seen.String())
	c.history = append(c.history, message{role: "assistant", content: blocks})
	c.user(block{Type: "tool_result", ToolUseID: blocks[1].ID, Content: "result"})

	asked := make(chan answered, 1)
	go func() {
		defer close(asked)
		asked <- c.post()
	}()
	require.Eventually(t, func() bool { return v.Count() == 2 }, time.Minute, time.Millisecond)
	require.Contains(t, string(v.Last().Body), "just now")
	close(release)
	<-asked
	w.conforms(0)
}

// Fault: what a vendor refused of a teammate's history is refused again on each of
// its turns, or what was refused for one teammate is taken from another.
func TestConformanceWhatWasRefusedForATeammateIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	g := w.gateway()
	history := []message{
		{role: "user", content: []block{textOf("Hi")}},
		{role: "assistant", content: []block{{Type: "thinking", Thinking: "forged", Signature: pointer("Zm9yZ2Vk")},
			textOf("Hello.")}},
	}
	c := g.messages("claude-opus-4-8")
	c.prefix = "/teammate/analytic"
	c.within("c1")
	c.history = history
	for range 3 {
		c.say("Use the tool")
	}
	require.Equal(t, "thinking_retries_total{backend=\"claude\",class=\"strip\",outcome=\"ok\",pipeline=\"teammate\"} 1\n",
		g.metrics("thinking_retries"))
	require.Empty(t, g.metrics("thinking_filter"), "filters are the main route's")
	require.Equal(t, 1, w.log.count("[thinking_retry]"))
	require.Zero(t, w.log.count("[thinking_filter]"))
	w.conforms(1)
}

// Fault: retries and filters cannot be seen from outside. Each has a counter and a
// line.
func TestConformanceRetriesAndFiltersShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude, kimi)
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.within("c1")
	c.history = []message{
		{role: "user", content: []block{textOf("Hi")}},
		{role: "assistant", content: []block{{Type: "thinking", Thinking: "forged", Signature: pointer("Zm9yZ2Vk")},
			textOf("Hello.")}},
	}
	c.say("One") // the forged one is refused
	require.Equal(t, "upstream_refusals_total{backend=\"claude\",class=\"strip\",kind=\"signature\"} 1\n",
		g.metrics("upstream_refusals"))
	require.Equal(t, "thinking_retries_total{backend=\"claude\",class=\"strip\",outcome=\"ok\",pipeline=\"main\"} 1\n",
		g.metrics("thinking_retries"))
	require.Equal(t, 1, w.log.count("[thinking_retry]"))
	require.Equal(t, "thinking_filter_blocks_total{backend=\"claude\",fate=\"stripped\"} 1\n",
		g.metrics("thinking_filter"))
	require.Positive(t, w.log.count("[thinking_filter]"), "a line for every request")
	c.say("Two") // and is left out from then on
	require.Contains(t, g.metrics("thinking_filter"), `{backend="claude",fate="refused"} 1`)
	require.Equal(t, 1, w.log.count("refused=1"))
	c.damage = damages["thinking dropped"]
	c.model, c.thinking = "claude-opus-4-5", `{"type":"adaptive"}`
	c.say("In another mode")
	require.Contains(t, g.metrics("sanitizer"), `{backend="claude",pipeline="main",rule="thinking_mode"} 1`)
	c.model = "claude-opus-4-8"
	c.say("Three") // what is dropped comes back
	require.Contains(t, g.metrics("turns_put_back"), `{backend="claude",pipeline="main"}`)
	c.damage = nil
	g.use("kimi")
	c.say("Four")
	require.Contains(t, g.metrics("thinking_filter"), `{backend="kimi",fate="foreign"}`)
	require.Contains(t, w.log.String(), "[thinking_filter]")
	w.conforms(1)
}
