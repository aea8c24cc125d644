package proxy_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// loses makes a client lose what was thought: as if it had never been there, or with an empty text or one
// space in its place.
func loses(c agent, loss string) {
	text := map[string]string{"emptied": "", "a space": " "}[loss]
	switch c := c.(type) {
	case *messagesClient:
		c.damage = thoughts(func(b *block) { b.Thinking, b.Signature = text, new(string) })
		if loss == "dropped" {
			c.damage = damages["thinking dropped"]
		}
	case *chatClient:
		c.damage = func(history []chatMessage) []chatMessage {
			for i := range history {
				if history[i].Role == "assistant" && loss != "dropped" {
					history[i].Reasoning = &text
				}
			}
			return history
		}
	}
}

// Fault: reasoning is lost, and an empty text stands for it, which Kimi K2.5 and K2.6 and DeepSeek V4 Pro refuse:
// the conversation is at its end. The first attempt is right.
func lostReasoningIsStoodFor(t *testing.T) {
	testtier.Slow(t)
	var tried part
	for _, b := range []struct {
		of     backendCase
		models []string
	}{
		{kimi, []string{"kimi-k2.5", "kimi-k2.6", "kimi-k2-thinking", "kimi-k2.7-code", "kimi-k3"}},
		{kimiChat, []string{"kimi-k2.5", "kimi-k2.6", "kimi-k2-thinking", "kimi-k2.7-code", "kimi-k3"}},
		{deepSeek, []string{"deepseek-v4-pro", "deepseek-v4-flash"}},
		{deepSeekChat, []string{"deepseek-v4-pro", "deepseek-v4-flash"}},
	} {
		for _, model := range b.models {
			for _, kind := range []string{"messages", "chat", "responses"} {
				for _, named := range []bool{true, false} {
					for _, loss := range []string{"dropped", "emptied", "a space"} {
						if kind == "responses" && loss != "dropped" {
							continue // it never sends reasoning back
						}
						if !tried.next(3) {
							continue
						}
						t.Run(fmt.Sprintf("%s, %s, %s, named=%t, %s", b.of.name, model, kind, named, loss), func(t *testing.T) {
							w := newWorld(t, b.of)
							v := w.vendors[b.of.name]
							toolTurn(v, "one")
							g := w.gateway()
							c, of := g.anyClient(kind, model)
							loses(c, loss)
							if named {
								of.within("c1")
							}
							require.Equal(t, "one is done.", c.say("Go"))
							g.stop() // what it knows is gone
							of.gateway = w.gateway()
							toolTurn(v, "two")
							require.Equal(t, "two is done.", c.say("Go on"))
							require.Contains(t, string(v.Last().Body), "two thinks before", "what is known still goes back")
							w.conforms(0)
						})
					}
				}
			}
		}
	}
}

// Fault: the vendor is not known by its name, and what its refusal asks for is given as an empty text. One refusal,
// and the gateway knows.
func TestConformanceLostReasoningOfAnUnknownVendor(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
		for _, kind := range []string{"messages", "chat"} {
			for _, loss := range []string{"dropped", "emptied"} {
				t.Run(fmt.Sprintf("%s, %s, %s", dialect, kind, loss), func(t *testing.T) {
					w := newWorld(t, backendCase{name: "b", vendor: upstreamtest.Config{Vendor: upstreamtest.Kimi},
						config: proxy.BackendConfig{Kind: dialect, Vendor: "generic"}})
					v := w.vendors["b"]
					toolTurn(v, "one")
					g := w.gateway()
					c, of := g.anyClient(kind, "house-model")
					if c, ok := c.(*messagesClient); ok {
						c.manual(8000)
					}
					loses(c, loss)
					require.Equal(t, "one is done.", c.say("Go"))
					g.stop()
					of.gateway = w.gateway()
					toolTurn(v, "two")
					require.Equal(t, "two is done.", c.say("Go on"))
					w.conforms(2) // one for each gateway
				})
			}
		}
	}
}

// Fault: a cure changes nothing, and the vendor is sent the same bytes again, which costs a call and the time of it.
// The client gets the first error, as it came.
func noAttemptIsSentTwice(t *testing.T) {
	testtier.Slow(t)
	var tried part
	for name, said := range map[string]string{
		"Kimi":       "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
		"DeepSeek":   "The `reasoning_content` in the thinking mode must be passed back to the API.",
		"signature":  badSignature,
		"parameter":  "Unsupported parameter: 'temperature' is not supported with this model.",
		"adaptive":   "adaptive thinking is not supported on this model",
		"max_tokens": "`max_tokens` must be greater than `thinking.budget_tokens`.",
	} {
		for of, model := range map[*backendCase]string{&claude: "claude-opus-4-8", &kimi: "kimi-k2.6", &kimiChat: "kimi-k2.6",
			&deepSeek: "deepseek-v4-pro", &deepSeekChat: "deepseek-v4-pro"} {
			for _, kind := range []string{"messages", "chat", "responses"} {
				if !tried.next(3) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", name, of.name, kind), func(t *testing.T) {
					w := knocked(t, *of)
					v := w.vendors[of.name]
					toolTurn(v, "one")
					g := w.gateway()
					c, m := g.anyClient(kind, model)
					require.Equal(t, "one is done.", c.say("Go"))
					g.stop()
					m.gateway = w.gateway()
					before := len(v.Requests())
					for i := range 5 {
						v.Fail(upstreamtest.Canned(400, fmt.Sprintf(`{"error":{"message":%s,"n":%d}}`, wire.Quote(said), i)))
					}
					var got answered
					switch c := c.(type) {
					case *messagesClient:
						c.user(textOf("Go on"))
						got = c.post()
					case *chatClient:
						c.user("Go on")
						got = c.post()
					case *responsesClient:
						c.add(map[string]string{"role": "user", "content": "Go on"})
						got = c.ask()
					}
					require.Equal(t, 400, got.status)
					require.Contains(t, gjson.Get(got.body, "error.message").Str, said)
					tried := v.Requests()[before:]
					for i, a := range tried {
						for _, b := range tried[i+1:] {
							require.False(t, bytes.Equal(a.Body, b.Body) && a.Header.Get("Anthropic-Beta") == b.Header.Get("Anthropic-Beta"),
								"attempts of the same bytes: %s", a.Body)
						}
					}
				})
			}
		}
	}
}
