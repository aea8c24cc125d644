package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// Faults of gateways that tried the same, beyond those that have a file of their
// own, each by its name.
func TestConformanceKnownFaults(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, fault := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"blocks are recorded when they begin, as the hash of nothing", recordedAtTheBeginning},
		{"data: without a space is not read", dataWithoutSpace},
		{"the session is captured after a switch", capturedAfterASwitch},
		{"thinking without text is all one", omittedThinkingIsAllOne},
		{"a content is left empty", contentLeftEmpty},
		{"one block in the middle is dropped", oneBlockInTheMiddle},
		{"the configured budget is larger than max_tokens", budgetLargerThanMaxTokens},
		{"what cannot be encoded again is sent unfiltered", unfilteredWhenNotEncodable},
		{"a signature goes back without its thinking", signatureOnly},
		{"a regenerated answer makes the stored history wrong", regenerated},
		{"a strip leaves the clearing of thinking behind", clearingLeftBehind},
		{"a prompt of recovery is added to the retry", recoveryPrompt},
		{"a system message inside the messages is moved", systemInside},
		{"the request of an agent for older models does not pass", budgetNextToMaxTokens},
		{"a subagent's disabled thinking meets effort", disabledWithEffort},
		{"a compressed answer is asked for", compressed},
		{"the client's own strip becomes the next refusal", clientStrips},
		{"blocks that nobody knows are dropped", unknownBlocks},
		{"what looks like thinking inside an input is stripped", lookAlikes},
		{"the same words are said again and again", repeatedWords},
		{"identical chats of one conversation id", identicalChats},
		{"compaction leaves calls without their answers", compaction},
		{"two ways to say an effort", effortAboveWhatStays},
	} {
		t.Run(fault.name, fault.run)
	}
}

func recordedAtTheBeginning(t *testing.T) {
	w := newWorld(t, claude)
	c := w.gateway().messages("claude-opus-4-8")
	c.within("c1")
	c.stream = true
	c.damage = answers(func(content []block) []block {
		for i := range content {
			content[i].Signature = nil
			if content[i].Type == "tool_use" {
				content[i].ID = "toolu_renamed"
			}
		}
		return content
	})
	w.vendors["claude"].Queue(
		upstreamtest.Reply(upstreamtest.Think("a long thought"), upstreamtest.Say("So."), upstreamtest.Use("look", "{}")),
	)
	c.user(textOf("Go"))
	c.step()
	c.user(block{Type: "tool_result", ToolUseID: "toolu_renamed", Content: "result"})
	c.step()
	require.Contains(t, string(w.vendors["claude"].Last().Body), "a long thought")
	w.conforms(0)
}

func dataWithoutSpace(t *testing.T) {
	w := newWorld(t, kimi)
	wander(w.vendors["kimi"])
	c := w.gateway().messages("kimi-k2-thinking")
	c.within("c1")
	c.stream, c.damage = true, damages["thinking dropped"]
	c.user(textOf("Hello"))
	got := c.post()
	require.Contains(t, got.body, "data:{", "it passes as it came")
	c.history = append(c.history, message{role: "assistant", content: readMessages(t, got)})
	require.Equal(t, "It is a, b and c.", c.say("What is it?"))
	require.Contains(t, string(w.vendors["kimi"].Last().Body), "I must look it up.")
	w.conforms(0)
}

func capturedAfterASwitch(t *testing.T) {
	w := newWorld(t, claude, kimi)
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.within("c1")
	c.damage = damages["thinking dropped"]
	asked, release := make(chan struct{}), make(chan struct{})
	slow := upstreamtest.Reply(upstreamtest.Think("claude thinks"), upstreamtest.Use("look", `{"q":"x"}`))
	slow.Pause = func(ctx context.Context, event int) {
		close(asked)
		upstreamtest.Until(release)(ctx, event)
	}
	w.vendors["claude"].Queue(slow)
	c.user(textOf("One"))
	go func() {
		<-asked
		g.use("kimi")
		close(release)
	}()
	use := c.step()[1]
	c.user(block{Type: "tool_result", ToolUseID: use.ID, Content: "result"})
	c.step()
	require.NotContains(t, string(w.vendors["kimi"].Last().Body), "claude thinks")
	g.use("claude")
	c.say("Two")
	require.Contains(t, string(w.vendors["claude"].Last().Body), "claude thinks")
	w.conforms(0)
}

func omittedThinkingIsAllOne(t *testing.T) {
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of.with("omitting", func(c *upstreamtest.Config) { c.Thinking.Omit = true }))
			v := w.vendors["omitting"]
			wander(v)
			c := w.gateway().messages(backend.model)
			c.within("c1")
			c.damage = damages["signatures dropped"]
			wanderOn(t, c)
			seen := map[string]bool{}
			for _, signature := range strs(v.Last().Body, "messages.#.content.#(type==\"thinking\")#.signature|@flatten") {
				require.False(t, seen[signature], "each block has its own")
				seen[signature] = true
			}
			require.Greater(t, len(seen), 4)
			w.conforms(0)
		})
	}
}

func contentLeftEmpty(t *testing.T) {
	for _, b := range []backendCase{claude, kimi, deepSeek, kimiChat} {
		t.Run(b.name, func(t *testing.T) {
			w := newWorld(t, b)
			c := w.gateway().messages("claude-opus-4-8")
			c.within("c1")
			c.history = []message{
				{role: "user", content: []block{textOf("Hi")}},
				{role: "assistant", content: []block{{Type: "thinking", raw: []byte(forgedBlock)}}}, // max_tokens were used up
				{role: "user", content: []block{textOf("Go on")}},
				{
					role: "assistant", content: []block{{Type: "thinking", raw: []byte(forgedBlock)},
						{Type: "tool_use", ID: "toolu_01A", Name: "look", Input: []byte("{}")}},
				},
				{role: "user", content: []block{{Type: "tool_result", ToolUseID: "toolu_01A", Content: "result"}}},
			}
			c.proceed()
			c.say("And?")
			w.conforms(1)
		})
		// A client that strips by itself leaves contents without anything.
		t.Run(b.name+", by the client", func(t *testing.T) {
			w := newWorld(t, b)
			c := w.gateway().messages("claude-opus-4-8")
			c.within("c1")
			c.history = []message{
				{role: "user", content: []block{textOf("Hi")}},
				{role: "assistant", content: []block{}},
				{role: "user", content: []block{textOf("Go on")}},
				{role: "assistant", content: []block{textOf("")}, plain: true},
				{role: "user", content: []block{textOf(""), textOf("And?")}},
			}
			c.proceed()
			w.conforms(0)
		})
	}
}

func oneBlockInTheMiddle(t *testing.T) {
	t.Run("edited", func(t *testing.T) {
		w := newWorld(t, prefixChecking)
		c := w.gateway().messages("claude-opus-5-5")
		c.within("c1")
		for _, name := range []string{"one", "two", "three"} {
			toolTurn(w.vendors["bound"], name)
			c.say(name)
		}
		c.history[7].content[1].Text = "Edited."
		c.say("four")
		c.say("five")
		w.conforms(1)
	})
	// Two gateways without a common store: the first one does not know the second
	// turn, and the client stops to show it. What stood before it must not stay.
	t.Run("unknown", func(t *testing.T) {
		w := newWorld(t, prefixChecking)
		v := w.vendors["bound"]
		one, other := w.gateway(), w.gateway()
		c := one.messages("claude-opus-5-5")
		c.within("c1")
		for i, g := range []*front{one, other, one} {
			c.gateway = g
			toolTurn(v, fmt.Sprint("turn ", i))
			c.say("Go on")
		}
		c.damage = damages["thinking dropped"]
		c.say("Go on")
		require.NotContains(t, string(v.Last().Body), "turn 0 thinks")
		require.Contains(t, string(v.Last().Body), "turn 2 thinks")
		w.conforms(0)
	})
}

func budgetLargerThanMaxTokens(t *testing.T) {
	for _, model := range []string{"claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8"} {
		for _, most := range []int{512, 1025, 2048, 4096, 8001, 20000} {
			t.Run(fmt.Sprint(model, ", ", most), func(t *testing.T) {
				w := newWorld(t, claude.told(budgeted))
				g := w.gateway()
				for _, kind := range []string{`{"type":"adaptive"}`, `{"type":"enabled","budget_tokens":8000}`,
					`{"type":"enabled"}`, `{"type":"enabled","budget_tokens":512}`} {
					c := g.messages(model)
					c.thinking, c.maxTokens = kind, most
					c.say("Use the tool")
				}
				chat := g.chat(model)
				chat.more = fmt.Sprintf(`,"max_tokens":%d`, most)
				chat.say("Use the tool")
				w.conforms(0)
			})
		}
	}
}

func unfilteredWhenNotEncodable(t *testing.T) {
	w := newWorld(t, claude)
	g := w.gateway()
	c := g.remembering("claude-opus-4-8")
	c.say("One") // the block is refused
	odd := `{"big":12345678901234567890123,"far":1e400,"twice":1,"twice":2,"odd":"\u0000\u2028<>&\/"}`
	c.history = append(c.history,
		message{role: "user", content: []block{textOf("Odd")}},
		message{
			role: "assistant", content: []block{
				{Type: "tool_use", ID: "toolu_01A", Name: "look", Input: []byte("{}"),
					raw: []byte(`{"type":"tool_use","id":"toolu_01A","name":"look","input":` + odd + `}`)},
			},
		},
		message{role: "user", content: []block{{Type: "tool_result", ToolUseID: "toolu_01A", Content: "result"}}},
	)
	c.proceed()
	body := string(w.vendors["claude"].Last().Body)
	require.NotContains(t, body, "forged")
	require.Contains(t, body, odd)
	w.conforms(1)
}

func signatureOnly(t *testing.T) {
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	c := w.gateway().messages("claude-opus-4-8")
	c.within("c1")
	c.damage = thoughts(func(b *block) { b.Thinking = "" })
	toolTurn(v, "one")
	c.say("One")
	last := v.Last().Body
	require.Equal(t, "one thinks before", gjson.GetBytes(last, "messages.1.content.0.thinking").Str)
	require.NotEmpty(t, gjson.GetBytes(last, "messages.1.content.0.signature").Str)
	w.conforms(0)
}

func regenerated(t *testing.T) {
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of)
			v := w.vendors[backend.of.name]
			c := w.gateway().messages(backend.model)
			c.within("c1")
			c.damage = damages["thinking dropped"]
			toolTurn(v, "one")
			c.say("One")
			before := len(c.history)
			for i := range 4 {
				c.history = c.history[:before]
				v.Queue(
					upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("try ", i)), upstreamtest.Use("look", `{"q":"same"}`)),
					upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("try again ", i)), upstreamtest.Say("The same answer.")),
				)
				c.say("Two")
			}
			v.Queue(upstreamtest.Reply(upstreamtest.Think("last"), upstreamtest.Use("look", `{"q":"same"}`)))
			c.say("Three")
			body := string(v.Last().Body)
			require.Contains(t, body, "try 3", "the client goes on with the last try")
			for i := range 3 {
				require.NotContains(t, body, fmt.Sprint("try ", i))
				require.NotContains(t, body, fmt.Sprint("try again ", i))
			}
			w.conforms(0)
		})
	}
}

func clearingLeftBehind(t *testing.T) {
	for _, model := range []string{"claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-opus-5"} {
		t.Run(model, func(t *testing.T) {
			w := newWorld(t, claude)
			c := w.gateway().remembering(model)
			c.manual(8000)
			c.header.Add("Anthropic-Beta", "context-management-2025-06-27")
			c.header.Add("Anthropic-Beta", "effort-2025-11-24")
			c.more =
				`,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"output_config":{"effort":"xhigh"}`
			c.history[1].content = []block{{Type: "thinking", raw: []byte(forgedBlock)},
				{Type: "tool_use", ID: "toolu_01A", Name: "look", Input: []byte("{}")}}
			c.user(block{Type: "tool_result", ToolUseID: "toolu_01A", Content: "result"})
			c.proceed()
			c.say("And?")
			w.conforms(1)
		})
	}
}

func recoveryPrompt(t *testing.T) {
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	c := w.gateway().remembering("claude-opus-4-8")
	c.system = `"Be brief."`
	c.user(textOf("One"))
	c.step()
	require.Len(t, v.Requests(), 2)
	first, second := v.Requests()[0].Body, v.Requests()[1].Body
	require.Equal(t, strings.Replace(string(first), forgedBlock+",", "", 1), string(second),
		"nothing but the thinking is gone")
	w.conforms(1)
}

func systemInside(t *testing.T) {
	w := newWorld(t, prefixChecking)
	v := w.vendors["bound"]
	c := w.gateway().messages("claude-opus-5-5")
	c.within("c1")
	c.header.Set("Anthropic-Beta", "mid-conversation-system-2026-04-07")
	c.system = `[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}]`
	toolTurn(v, "one")
	c.say("One")
	c.user(textOf("Two"))
	c.history = append(c.history, message{role: "system", content: []block{textOf("The user went away.")}, plain: true})
	toolTurn(v, "two")
	require.Equal(t, "two is done.", c.proceed())
	require.Equal(t, "system", gjson.GetBytes(v.Last().Body, "messages.5.role").Str)
	w.conforms(0)
}

func budgetNextToMaxTokens(t *testing.T) {
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	c := w.gateway().messages("claude-haiku-4-5-20251001")
	c.within("c1")
	c.manual(31999)
	c.maxTokens = 32000
	wander(v)
	wanderOn(t, c)
	require.Equal(t, int64(31999), gjson.GetBytes(v.Last().Body, "thinking.budget_tokens").Int())
	w.conforms(0)
}

func disabledWithEffort(t *testing.T) {
	for _, b := range []backendCase{claude, kimi, deepSeek} {
		for _, model := range []string{"claude-opus-5", "claude-opus-4-8"} {
			t.Run(b.name+", "+model, func(t *testing.T) {
				w := newWorld(t, b)
				c := w.gateway().messages(model)
				c.within("c1")
				c.thinking = `{"type":"disabled"}`
				c.header.Set("X-Claude-Code-Agent-Id", "a1")
				c.header.Set("Anthropic-Beta", "effort-2025-11-24")
				c.more = `,"output_config":{"effort":"max"}`
				c.say("Use the tool")
				c.say("Again, use the tool")
				w.conforms(0)
			})
		}
	}
}

func compressed(t *testing.T) {
	w := newWorld(t, claude)
	c := w.gateway().messages("claude-opus-4-8")
	c.header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	c.say("Use the tool")
	require.Empty(t, w.vendors["claude"].Last().Header.Get("Accept-Encoding"))
	w.conforms(0)
}

func clientStrips(t *testing.T) {
	for _, model := range []string{"claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6", "claude-opus-4-8",
		"claude-opus-5-5"} {
		t.Run(model, func(t *testing.T) {
			w := newWorld(t, claude)
			c := w.gateway().messages(model)
			c.thinking = `{"type":"adaptive"}`
			c.header.Del("Anthropic-Beta")
			c.history = []message{
				{role: "user", content: []block{textOf("Go")}},
				{role: "assistant", content: []block{{Type: "tool_use", ID: "toolu_01A", Name: "look", Input: []byte("{}")}}},
				{role: "user", content: []block{{Type: "tool_result", ToolUseID: "toolu_01A", Content: "result"}}},
			}
			c.proceed()
			c.say("Use the tool")
			w.conforms(0)
		})
	}
}

func unknownBlocks(t *testing.T) {
	v := vendor(t, says("application/json", messagesBody))
	url, _ := gateway(t, to(v, "anthropic"))
	body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"from_the_future","x":1.0}]},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"quantum_thought","state":[1e2]},{"type":"text","text":"so"}]},` +
		`{"role":"user","content":"and?"}],"new_member":{"a":null}}`
	for range 2 {
		require.Equal(t, messagesBody, post(t, url+"/v1/messages", body).body)
		require.Equal(t, body, v.last(t).body)
	}
}

func lookAlikes(t *testing.T) {
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	c := w.gateway().remembering("claude-opus-4-8")
	input :=
		`{"messages":[{"type":"thinking","thinking":"mine","signature":"mine"}],"type":"redacted_thinking","content":[` +
			forgedBlock + `]}`
	v.Queue(upstreamtest.Reply(upstreamtest.Say("So."), upstreamtest.Use("look", input)))
	c.say("One")
	require.Equal(t, input, gjson.GetBytes(v.Last().Body, "messages.3.content.1.input").Raw)
	require.Equal(t, looked(input), gjson.GetBytes(v.Last().Body, "messages.4.content.0.content").Str)
	w.conforms(1)
}

func repeatedWords(t *testing.T) {
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of)
			v := w.vendors[backend.of.name]
			c := w.gateway().messages(backend.model)
			c.within("c1")
			c.damage = damages["thinking dropped"]
			for i := range 5 {
				v.Queue(
					upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("round ", i)), upstreamtest.Use("look", `{"q":"x"}`)),
					upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("round again ", i)), upstreamtest.Say("yes")),
				)
				require.Equal(t, "yes", c.say("yes"))
			}
			require.Contains(t, string(v.Last().Body), "round 4")
			w.conforms(0)
		})
	}
}

func identicalChats(t *testing.T) {
	w := newWorld(t, claude)
	v := w.vendors["claude"]
	g := w.gateway()
	var two [2]*messagesClient
	for i := range two {
		two[i] = g.messages("claude-opus-4-8")
		two[i].within("c1")
		two[i].damage = damages["thinking dropped"]
	}
	for range 3 {
		for i, c := range two {
			v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprint("thought of ", i)), upstreamtest.Use("look", `{"q":"x"}`)),
				upstreamtest.Reply(upstreamtest.Say("yes")))
			c.say("Go")
			require.NotContains(t, string(v.Last().Body), fmt.Sprint("thought of ", 1-i))
			require.Contains(t, string(v.Last().Body), fmt.Sprint("thought of ", i))
		}
	}
	w.conforms(0)
}

func compaction(t *testing.T) {
	for _, backend := range thinkers {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend.of)
			v := w.vendors[backend.of.name]
			c := w.gateway().messages(backend.model)
			c.within("c1")
			for _, name := range []string{"one", "two", "three"} {
				toolTurn(v, name)
				c.say(name)
			}
			summary := message{role: "user", content: []block{textOf("This is what was said so far: one, two, three.")}}
			c.history = append([]message{summary}, c.history[9:]...)
			toolTurn(v, "four")
			require.Equal(t, "four is done.", c.say("four"))
			c.say("five")
			if backend.name == "bound" {
				w.conforms(1)
				return
			}
			w.conforms(0)
		})
	}
}

func effortAboveWhatStays(t *testing.T) {
	w := newWorld(t, claude)
	c := w.gateway().messages("claude-opus-5")
	c.header.Set("Anthropic-Beta", "effort-2025-11-24")
	c.more = `,"output_config":{"effort":"max"},"tool_choice":{"type":"any"}`
	c.user(textOf("Go"))
	c.step()
	w.conforms(0)
}
