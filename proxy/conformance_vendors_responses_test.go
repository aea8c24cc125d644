package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// gpt is OpenAI with its Responses.
var gpt = backendCase{name: "gpt", vendor: upstreamtest.Config{Vendor: upstreamtest.OpenAI},
	config: proxy.BackendConfig{Kind: proxy.KindResponses, Vendor: "openai"}}

// encrypted are the encrypted contents in the input of a request of Responses.
func encrypted(body []byte) (out []string) {
	for _, it := range gjson.GetBytes(body, "input").Array() {
		if c := it.Get("encrypted_content").Str; c != "" {
			out = append(out, c)
		}
	}
	return out
}

// Fault: what the model thought is lost inside a tool loop, or comes back otherwise than it was.
func TestConformanceReasoningItemsComeBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"messages", "chat", "responses", "responses, keeping all"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream=%t", kind, stream), func(t *testing.T) {
				w := newWorld(t, gpt)
				v := w.vendors["gpt"]
				v.Queue(
					upstreamtest.Reply(upstreamtest.Think("deep thought one"), upstreamtest.Say("Let me see."),
						upstreamtest.Use("look", `{"q":"a"}`)),
					upstreamtest.Reply(upstreamtest.Think("deep thought two"), upstreamtest.Use("look", `{"q":"b"}`)),
					upstreamtest.Reply(upstreamtest.Think("deep thought three"), upstreamtest.Say("Done.")),
				)
				g := w.gateway()
				var c agent
				switch kind {
				case "messages":
					m := g.messages("gpt-5.1")
					m.stream = stream
					m.within("c1")
					c = m
				case "chat":
					m := g.chat("gpt-5.1")
					m.stream = stream
					m.within("c1")
					c = m
				default:
					m := g.responses("gpt-5.1")
					m.stream, m.keeps, m.own = stream, kind != "responses", true
					m.within("c1")
					c = m
				}
				require.Equal(t, "Done.", c.say("Go"))
				requests := v.Requests()
				require.Len(t, requests, 3)
				require.Len(t, encrypted(requests[2].Body), 2, string(requests[2].Body))
				c.say("Thanks")
				require.Len(t, encrypted(v.Last().Body), 3, string(v.Last().Body))
				w.conforms(0)
			})
		}
	}
}

// Fault: a client that has nothing stored and does not ask for encrypted reasoning loses all of it. It is asked for, the
// client is told so and shown it, and it comes back whether or not the client sends it.
func TestConformanceReasoningComesBackUnasked(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("keeps=%t, stream=%t", keeps, stream), func(t *testing.T) {
				w := newWorld(t, gpt)
				w.shares(redistest.Start(t))
				v := w.vendors["gpt"]
				for i := range 4 {
					v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("thought %d", i)), upstreamtest.Say("Hm."),
						upstreamtest.Use("look", `{"q":"a"}`)))
				}
				g := w.gateway()
				c := g.responses("gpt-5")
				c.own, c.leaves, c.keeps, c.stream = true, true, keeps, stream
				c.within("c1")
				c.alternate = []*front{w.gateway(), g}
				c.add(map[string]string{"role": "user", "content": "Go"})
				for i := range 3 {
					c.step()
					require.Len(t, encrypted(v.Last().Body), i, string(v.Last().Body))
					require.Equal(t, `["reasoning.encrypted_content"]`, gjson.GetBytes(v.Last().Body, "include").Raw)
				}
				got := c.ask()
				require.Contains(t, strings.Split(got.header.Get("X-AG-Mended"), ","), "reasoning_asked")
				require.Len(t, encrypted(v.Last().Body), 3)
				w.conforms(0)
			})
		}
	}
}

// Fault: how a client of messages asks to think, or not to, becomes an effort that the model does not take.
func TestConformanceAModeOfThinkingIsAnEffortThatTheModelTakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ model, thinking, more, effort string }{
		{"gpt-5", `{"type":"disabled"}`, "", `"minimal"`},
		{"gpt-5", `{"type":"disabled"}`, `,"output_config":{"effort":"max"}`, `"high"`},
		{"gpt-5.1", `{"type":"disabled"}`, "", `"none"`},
		{"o3", `{"type":"disabled"}`, "", `"low"`},
		{"gpt-5.2-chat-latest", `{"type":"enabled","budget_tokens":9000}`, "", `"medium"`},
		{"gpt-5.2-chat-latest", `{"type":"disabled"}`, "", `"medium"`},
		{"gpt-5", `{"type":"enabled","budget_tokens":2000}`, "", `"low"`},
		{"gpt-5", `{"type":"enabled","budget_tokens":5000}`, "", `"medium"`},
		{"gpt-5", `{"type":"adaptive"}`, "", `"medium"`},
		{"gpt-5", `{"type":"adaptive"}`, `,"output_config":{"effort":"max"}`, `"high"`},
		{"gpt-5.2", `{"type":"adaptive"}`, `,"output_config":{"effort":"max"}`, `"xhigh"`},
		{"gpt-5.1", `{"type":"adaptive"}`, `,"temperature":0.5`, `"medium"`},
		{"gpt-5", "", "", ""},
	} {
		for _, of := range []backendCase{gpt, gptUnknown} {
			for _, stream := range []bool{false, true} {
				name := fmt.Sprintf("%s, %s, %s%s, stream=%t", of.config.Vendor, c.model, c.thinking, c.more, stream)
				t.Run(name, func(t *testing.T) {
					w := newWorld(t, of)
					w.checked = true
					m := w.gateway().messages(c.model)
					m.thinking, m.more, m.stream = c.thinking, c.more, stream
					m.say("Go")
					v := w.vendors["gpt"]
					require.Equal(t, c.effort, gjson.GetBytes(v.Last().Body, "reasoning.effort").Raw, string(v.Last().Body))
					require.True(t, of.config.Vendor == "generic" || len(v.Rejections()) == 0, v.Rejections())
				})
			}
		}
	}
}

// Fault: after a switch in the middle of a tool loop and back, a vendor's own reasoning is gone, or another vendor's
// is sent.
func TestConformanceResponsesThroughSwitchesAndBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"messages", "chat", "responses"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, gpt, claude.told(budgeted), deepSeekChat)
			for name, v := range w.vendors {
				for i := range 3 {
					v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("thought %d of %s", i, name)),
						upstreamtest.Use("look", fmt.Sprintf(`{"q":"%s %d"}`, name, i))))
				}
			}
			g := w.gateway()
			step := w.stepper(g, kind)
			for _, backend := range []string{"gpt", "claude", "deepseek-chat", "gpt", "claude", "deepseek-chat", "gpt", "claude"} {
				g.use(backend)
				step()
			}
			require.Len(t, encrypted(w.vendors["gpt"].Last().Body), 2, string(w.vendors["gpt"].Last().Body))
			require.Contains(t, string(w.vendors["deepseek-chat"].Last().Body), "thought 0 of deepseek-chat")
			own := gjson.GetBytes(w.vendors["claude"].Last().Body, `messages.#.content.#(type=="thinking")#|@flatten|#`).Int()
			require.EqualValues(t, 2, own, "Claude's own thinking is there on return")
			w.conforms(0)
		})
	}
}

// stepper is a client of some endpoint that takes a tool's step at each call, and drops all thinking that it can.
func (w *world) stepper(g *front, kind string) (step func()) {
	switch kind {
	case "messages":
		c := g.messages("claude-opus-4-8")
		c.within("c1")
		c.user(textOf("Go"))
		return func() {
			c.gateway = g
			var results, shown []block
			for _, b := range c.step() {
				if b.thinks() {
					require.True(w, b.Signature == nil || !strings.Contains(*b.Signature, "rsp1_"))
					continue
				}
				shown = append(shown, b)
				if b.Type == "tool_use" {
					results = append(results, block{Type: "tool_result", ToolUseID: b.ID, Content: looked(string(b.Input))})
				}
			}
			c.history[len(c.history)-1].content = shown
			c.user(results...)
		}
	case "chat":
		c := g.chat("claude-opus-4-8")
		c.within("c1")
		c.user("Go")
		return func() {
			for _, call := range c.step().ToolCalls {
				result := looked(call.Function.Arguments)
				c.history = append(c.history, chatMessage{Role: "tool", Content: &result, ToolCallID: call.ID})
			}
		}
	}
	c := g.responses("claude-opus-4-8")
	c.any = true
	c.within("c1")
	c.add(map[string]string{"role": "user", "content": "Go"})
	return func() { c.step() }
}

// Fault: after a change of the account the conversation is dead, or pays for a refusal at each turn.
func TestConformanceResponsesOfAnotherAccount(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]upstreamtest.ResponsesRules{
		"OpenAI": {}, "OpenAI, in the stream": {InStream: true}, "Azure": {Azure: true}, "in older words": {OldWording: true},
		"Azure, in the stream": {Azure: true, InStream: true, FlatErrors: true},
	} {
		t.Run(name, func(t *testing.T) {
			other := gpt.with("gpt-b", func(c *upstreamtest.Config) { c.Name, c.Responses = "b", rules })
			w := newWorld(t, gpt, other)
			for name, v := range w.vendors {
				for i := range 3 {
					v.Queue(upstreamtest.Reply(upstreamtest.Think("thought"),
						upstreamtest.Use("look", fmt.Sprintf(`{"q":"%s %d"}`, name, i))))
				}
			}
			g := w.gateway()
			c := g.responses("gpt-5.1")
			c.own, c.keeps, c.stream = true, true, rules.InStream
			c.within("c1")
			c.add(map[string]string{"role": "user", "content": "Go"})
			for _, backend := range []string{"gpt", "gpt-b", "gpt-b", "gpt"} {
				g.use(backend)
				c.step()
			}
			require.Len(t, w.vendors["gpt-b"].Rejections(), 1, "it was refused once, and that is remembered")
			require.Len(t, encrypted(w.vendors["gpt-b"].Last().Body), 1, "its own reasoning stays")
			w.refusedAtMost(2) // one of each account
		})
	}
}

// Fault: a client of the vendor's own dialect gets, or the vendor is sent, other bytes than there were.
func TestConformanceResponsesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gpt)
	v := w.vendors["gpt"]
	for range 2 {
		v.Queue(upstreamtest.Reply(upstreamtest.Think("deep"), upstreamtest.Say("Hm."), upstreamtest.Use("look", `{"q": "a"}`)))
	}
	c := w.gateway().responses("gpt-5.1")
	c.own, c.keeps, c.stream = true, true, true
	c.within("c1")
	c.add(map[string]string{"role": "user", "content": "Go"})
	for range 3 {
		c.step()
		require.Equal(t, string(c.sent), string(v.Last().Body))
	}
	w.conforms(0)
}

// Fault: what the vendor thought is lost with the process of the gateway.
func TestConformanceReasoningItemsOutliveTheGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gpt)
	w.shares(redistest.Start(t))
	w.vendors["gpt"].Queue(
		upstreamtest.Reply(upstreamtest.Think("deep thought one"), upstreamtest.Use("look", `{"q":"a"}`)),
		upstreamtest.Reply(upstreamtest.Think("deep thought two"), upstreamtest.Use("look", `{"q":"b"}`)))
	g := w.gateway()
	c := g.chat("gpt-5.1")
	c.within("c1")
	c.user("Go")
	for range 3 {
		m := c.step()
		for _, call := range m.ToolCalls {
			result := looked(call.Function.Arguments)
			c.history = append(c.history, chatMessage{Role: "tool", Content: &result, ToolCallID: call.ID})
		}
		g.stop()
		g = w.gateway()
		c.gateway = g
	}
	require.Len(t, encrypted(w.vendors["gpt"].Last().Body), 2)
	w.conforms(0)
}

// Fault: a model that does not reason cannot be used, since it is asked for encrypted reasoning.
func TestConformanceAModelOfResponsesThatDoesNotReason(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"messages", "chat", "responses"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, gpt)
			g := w.gateway()
			var c agent
			switch kind {
			case "messages":
				m := g.messages("gpt-4o")
				m.thinking = ""
				c = m
			case "chat":
				m := g.chat("gpt-4o")
				m.effort = ""
				c = m
			default:
				m := g.responses("gpt-4o")
				m.any, m.effort = true, "none"
				c = m
			}
			w.vendors["gpt"].Queue(upstreamtest.Reply(upstreamtest.Say("One.")), upstreamtest.Reply(upstreamtest.Say("Two.")))
			require.Equal(t, "One.", c.say("Go"))
			require.Len(t, w.vendors["gpt"].Requests(), 2, "one call more")
			require.Equal(t, "Two.", c.say("Go on"))
			require.Len(t, w.vendors["gpt"].Requests(), 3, "and that is remembered")
			w.checked = true
		})
	}
}

// Fault: a client sends back what it got, and the vendor refuses it: members that OpenAI's SDKs add to what they have
// parsed, and reasoning that another vendor's model was shown to have. No conversation has a name.
func TestConformanceWhatClientsOfResponsesSendBack(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			w := newWorld(t, gpt, claude.told(budgeted), deepSeekChat)
			for name, v := range w.vendors {
				for range 3 {
					v.Queue(upstreamtest.Reply(upstreamtest.Think("thought of "+name), upstreamtest.Say("Hm."),
						upstreamtest.Use("look", `{"q":"a"}`)))
				}
			}
			g := w.gateway()
			c := g.responses("claude-opus-4-8")
			c.any, c.keeps, c.stream = true, true, stream
			c.damage = items("", func(v []byte) []json.RawMessage {
				switch gjson.GetBytes(v, "type").Str {
				case "function_call":
					return with("parsed_arguments", map[string]string{"q": "a"})(v)
				case "message":
					content := json.RawMessage(strings.Replace(gjson.GetBytes(v, "content").Raw, `{`, `{"parsed":null,`, 1))
					return with("content", content)(v)
				}
				return []json.RawMessage{v}
			})
			c.add(map[string]string{"role": "user", "content": "Go"})
			for _, backend := range []string{"gpt", "claude", "deepseek-chat", "gpt", "claude", "deepseek-chat", "gpt"} {
				g.use(backend)
				c.step()
			}
			sent := string(w.vendors["gpt"].Last().Body)
			require.NotContains(t, sent, "parsed")
			require.Len(t, encrypted([]byte(sent)), 2, sent)
			require.EqualValues(t, 2, gjson.Get(sent, `input.#(type=="reasoning")#|#`).Int(), sent)
			w.conforms(0)
		})
	}
}
