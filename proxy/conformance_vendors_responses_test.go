package proxy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

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
