package proxy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
)

// chatVendor is a vendor of chat completions with these rules.
func chatVendor(name, vendor string, rules upstreamtest.ChatRules) backendCase {
	return backendCase{name: name, vendor: upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: rules},
		config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: vendor}}
}

func budgeted(c *proxy.BackendConfig) { c.Thinking.BudgetTokens = 8000 }

func asBedrock(c *proxy.BackendConfig) { c.Vendor = "bedrock" }

// personality is a vendor, one of its models, and what it must get back.
type personality struct {
	backendCase
	model string
	// reasons: it wants the reasoning of every answer that called a tool.
	reasons bool
}

var personalities = []personality{
	{claude.with("adaptive", func(*upstreamtest.Config) {}).told(budgeted), "claude-opus-4-8", false},
	{claude.with("manual", func(*upstreamtest.Config) {}).told(budgeted), "claude-sonnet-4-5", false},
	{prefixChecking.told(budgeted), "claude-opus-5-5", false},
	{claude.with("omitting", func(c *upstreamtest.Config) { c.Thinking.Omit = true }).told(budgeted), "claude-opus-4-8",
		false},
	{claude.with("bedrock", func(c *upstreamtest.Config) {
		c.Thinking.Bedrock, c.Thinking.Betas = true, []string{"interleaved-thinking-2025-05-14"}
	}).told(budgeted).told(asBedrock), "us.anthropic.claude-sonnet-4-5-20250929-v1:0", false},
	{kimi.told(budgeted), "kimi-k2-thinking", true},
	{kimiChat, "kimi-k2-thinking", true},
	{deepSeek.told(budgeted), "deepseek-reasoner", true},
	{deepSeekChat, "deepseek-reasoner", true},
	{chatVendor("openai", "openai", upstreamtest.ChatRules{KnownArguments: true}), "gpt-5", false},
	{
		chatVendor("mistral", "mistral", upstreamtest.ChatRules{
			ToolIDs: upstreamtest.MistralIDs, Replay: upstreamtest.ReplayMistral,
		}), "magistral", false,
	},
	{chatVendor("groq", "groq", upstreamtest.ChatRules{Replay: upstreamtest.ReplayGroq}), "qwen", false},
	{chatVendor("cerebras", "generic", upstreamtest.ChatRules{
		Replay: upstreamtest.ReplayCerebras,
	}).told(func(c *proxy.BackendConfig) {
		c.Profile.Reasoning.Need = "forbidden"
	}), "qwen", false},
	{chatVendor("gemini", "gemini", upstreamtest.ChatRules{ThoughtSignatures: true}), "gemini-3-pro", false},
	{chatVendor("openrouter", "generic", upstreamtest.ChatRules{ReasoningField: "reasoning"}), "any", false},
}

// Fault: a tool loop dies at its second call, since what the client knows of the
// first answer is less than the vendor wants back. Serial calls, parallel calls
// and thinking between them, on every vendor through both endpoints.
func TestConformanceToolLoops(t *testing.T) {
	for _, p := range personalities {
		for _, endpoint := range []string{"messages", "chat"} {
			for name, set := range map[string]func(*manners){
				"whole": func(*manners) {}, "streamed": func(m *manners) { m.stream = true }, "teammate": func(m *manners) {
					m.prefix = "/teammate/analytic"
				},
			} {
				t.Run(fmt.Sprint(p.name, ", ", endpoint, ", ", name), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, p.backendCase)
					v := w.vendors[p.name]
					wander(v)
					g := w.gateway()
					m, c := g.messages(p.model), g.chat(p.model)
					for _, mine := range []*manners{&m.manners, &c.manners} {
						mine.within("c1")
						set(mine)
					}
					if endpoint == "messages" {
						wanderOn(t, m)
					} else {
						wanderOn(t, c)
					}
					if p.reasons {
						for _, thought := range []string{"I must look it up.", "Not enough, twice more.", "One more."} {
							require.Contains(t, string(v.Last().Body), thought)
						}
					}
					w.conforms(0)
				})
			}
		}
	}
}

// Fault: ids that a vendor counts anew in each answer collide in the client's
// history, and results reach the wrong call.
func TestConformanceRecurringToolIDsAreReplacedAndGivenBack(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`^call_[A-Za-z0-9]{24}$`)
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("messages, stream=", stream), func(t *testing.T) {
			w := newWorld(t, kimi)
			wander(w.vendors["kimi"])
			c := w.gateway().messages("kimi-k2-thinking")
			c.within("c1")
			c.stream = stream
			wanderOn(t, c)
			var shown []string
			for _, m := range c.history {
				for _, b := range m.content {
					if b.Type == "tool_use" {
						require.Regexp(t, own, b.ID)
						require.NotContains(t, shown, b.ID)
						shown = append(shown, b.ID)
					}
				}
			}
			require.Len(t, shown, 6)
			body := string(w.vendors["kimi"].Last().Body)
			require.NotContains(t, body, `"call_`)
			require.Equal(t, 5, strings.Count(body, `"id":"tool_0"`), "each its own, as it was given: %s", body)
			require.Equal(t, 1, strings.Count(body, `"id":"tool_1"`))
			require.Equal(t, 5, strings.Count(body, `"tool_use_id":"tool_0"`))
			w.conforms(0)
		})
		t.Run(fmt.Sprint("chat, stream=", stream), func(t *testing.T) {
			w := newWorld(t, kimiChat)
			wander(w.vendors["kimi-chat"])
			c := w.gateway().chat("kimi-k2-thinking")
			c.within("c1")
			c.stream = stream
			wanderOn(t, c)
			for _, m := range c.history {
				for _, call := range m.ToolCalls {
					require.Regexp(t, own, call.ID)
				}
			}
			body := string(w.vendors["kimi-chat"].Last().Body)
			require.NotContains(t, body, `"call_`)
			require.Equal(t, 5, strings.Count(body, `"id":"functions.look:0"`), body)
			require.Equal(t, 5, strings.Count(body, `"tool_call_id":"functions.look:0"`))
			w.conforms(0)
		})
	}
}

// Fault: reasoning that a vendor demands on tool turns never reached a plain client,
// so the client cannot send it back. It is restored in full, never replaced.
func TestConformanceReasoningIsRestoredForClientsThatNeverSendIt(t *testing.T) {
	t.Parallel()
	for _, b := range []backendCase{kimiChat, deepSeekChat, kimi, deepSeek} {
		t.Run(b.name, func(t *testing.T) {
			w := newWorld(t, b.told(budgeted))
			v := w.vendors[b.name]
			v.Queue(
				upstreamtest.Reply(upstreamtest.Think("deep thought one"), upstreamtest.Use("look", `{"q":"a"}`)),
				upstreamtest.Reply(upstreamtest.Think("deep thought two"), upstreamtest.Use("look", `{"q":"b"}`)),
				upstreamtest.Reply(upstreamtest.Think("deep thought three"), upstreamtest.Say("Done.")),
			)
			c := w.gateway().chat("some-reasoner")
			c.within("c1")
			require.Equal(t, "Done.", c.say("Go"))
			require.Equal(t, []string{"deep thought one", "deep thought two", "deep thought three"}, c.seen)
			c.say("Thanks")
			body := v.Last().Body
			for _, thought := range c.seen[:2] {
				require.Contains(t, string(body), thought)
			}
			w.conforms(0)
		})
	}
}

// Fault: interleaved thinking is lost for plain OpenAI clients, or all its texts and
// calls are joined to one string when it is written back.
func TestConformanceInterleavedThinkingSurvivesChatClients(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"claude-opus-4-8", "claude-opus-5", "claude-sonnet-4-5", "claude-opus-4-6"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(model, ", stream=", stream), func(t *testing.T) {
				w := newWorld(t, claude.told(budgeted))
				v := w.vendors["claude"]
				v.Queue(
					upstreamtest.Reply(upstreamtest.Think("t1"), upstreamtest.Say("s1 "), upstreamtest.Redacted(),
						upstreamtest.Think("t2"), upstreamtest.Say("s2"), upstreamtest.Use("look", `{"q":"a"}`)),
					upstreamtest.Reply(upstreamtest.Think("t3"), upstreamtest.Use("look", `{"q":"b"}`)),
				)
				c := w.gateway().chat(model)
				c.within("c1")
				c.stream = stream
				c.say("Go")
				body := v.Last().Body
				require.Equal(t, []string{"thinking", "text", "redacted_thinking", "thinking", "text", "tool_use"},
					strs(body, "messages.1.content.#.type"))
				require.Equal(t, []string{"thinking", "tool_use"}, strs(body, "messages.3.content.#.type"))
				require.NotEqual(t, "disabled", gjson.GetBytes(body, "thinking.type").Str)
				w.conforms(0)
			})
		}
	}
}

// strs are the strings at a path.
func strs(body []byte, path string) (list []string) {
	for _, s := range gjson.GetBytes(body, path).Array() {
		list = append(list, s.Str)
	}
	return list
}

// Fault: with parallel calls, results that come back in another order, or not all
// of them, tear the chain.
func TestConformanceResultsInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, b := range []backendCase{claude, kimi, deepSeek, chatVendor("openai", "openai", upstreamtest.ChatRules{})} {
		t.Run(b.name, func(t *testing.T) {
			w := newWorld(t, b)
			v := w.vendors[b.name]
			look := upstreamtest.Use("look", `{"q":"x"}`)
			v.Queue(upstreamtest.Reply(upstreamtest.Think("three"), look, look, look))
			c := w.gateway().messages("claude-opus-4-8")
			c.within("c1")
			c.user(textOf("Go"))
			var results []block
			for _, b := range c.step() {
				if b.Type == "tool_use" {
					results = append(results, block{Type: "tool_result", ToolUseID: b.ID, Content: b.ID})
				}
			}
			slices.Reverse(results)
			c.user(results...)
			c.step()
			c.user(textOf("Go on"))
			c.damage = func(history []message) []message {
				last := &history[2]
				last.content = last.content[:2] // one result is lost
				return history
			}
			c.step()
			w.conforms(0)
		})
	}
}

// chatDamages are what clients of chat completions do to a history, by name.
var chatDamages = map[string]func([]chatMessage) []chatMessage{
	"nothing": nil,
	"null is empty": each(func(m *chatMessage) {
		if m.Content == nil {
			m.Content = new(string)
		}
	}),
	"contents trimmed": each(func(m *chatMessage) {
		if m.Content != nil {
			m.Content = pointer(" " + strings.TrimSpace(*m.Content) + "\r\n")
		}
	}),
	"arguments encoded anew": each(func(m *chatMessage) {
		for i, call := range m.ToolCalls {
			m.ToolCalls[i].Function.Arguments = string(anew([]byte(call.Function.Arguments)))
		}
	}),
	"reasoning invented":        each(func(m *chatMessage) { m.Reasoning = pointer("I never thought this") }),
	"reasoning sent as nothing": each(func(m *chatMessage) { m.Reasoning = new(string) }),
	// Frameworks that number the calls themselves.
	"ids renamed": func(history []chatMessage) []chatMessage {
		names := map[string]string{}
		for i := range history {
			for j, call := range history[i].ToolCalls {
				names[call.ID] = fmt.Sprint("mine_", len(names))
				history[i].ToolCalls[j].ID = names[call.ID]
			}
			if id := history[i].ToolCallID; id != "" {
				history[i].ToolCallID = names[id]
			}
		}
		return history
	},
}

func each(change func(*chatMessage)) func([]chatMessage) []chatMessage {
	return func(history []chatMessage) []chatMessage {
		for i := range history {
			if history[i].Role == "assistant" {
				change(&history[i])
			}
		}
		return history
	}
}

// Fault: what a chat client makes of an answer is not the answer, so that neither
// reasoning nor signatures find the way back.
func TestConformanceCarelessChatClients(t *testing.T) {
	for _, p := range personalities {
		if !slices.Contains([]string{"adaptive", "manual", "bound", "kimi", "kimi-chat", "deepseek", "deepseek-chat",
			"gemini"}, p.name) {
			continue
		}
		for name, damage := range chatDamages {
			t.Run(p.name+", "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, p.backendCase)
				v := w.vendors[p.name]
				wander(v)
				c := w.gateway().chat(p.model)
				c.within("c1")
				c.stream, c.damage, c.keeps = true, damage, true
				wanderOn(t, c)
				if p.reasons {
					require.Contains(t, string(v.Last().Body), "Not enough, twice more.")
				}
				require.NotContains(t, string(v.Last().Body), "I never thought this")
				w.conforms(0)
			})
		}
	}
}

// Fault: within a tool loop only the newest call goes back to Gemini with its signature, others with the placeholder,
// where the answer had shown its reasoning as well: that is not sent back, and what was sent was not known again.
func TestConformanceAllSignaturesOfALoopComeBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"messages", "chat", "responses"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, gemini)
			v := w.vendors["gemini"]
			for _, q := range []string{"a", "b", "c"} {
				v.Queue(upstreamtest.Reply(upstreamtest.Think("I look for "+q), upstreamtest.Use("look", `{"q":"`+q+`"}`)))
			}
			v.Queue(upstreamtest.Reply(upstreamtest.Think("That is all."), upstreamtest.Say("Done.")))
			c, m := w.gateway().anyClient(kind, "gemini-3-pro")
			m.within("c1")
			require.Equal(t, "Done.", c.say("Go"))
			last := string(v.Last().Body)
			require.NotContains(t, last, thinking.BypassSignature)
			require.Equal(t, 3, strings.Count(last, `"thought_signature":`))
			w.conforms(0)
		})
	}
}
