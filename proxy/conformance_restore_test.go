package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// dropped is an input without the items of a type that come from the model or answer it.
func dropped(kind string) func([]json.RawMessage) []json.RawMessage {
	return items(kind, func(item []byte) []json.RawMessage {
		if kind == "message" && gjson.GetBytes(item, "role").Str != "assistant" {
			return []json.RawMessage{item}
		}
		return nil
	})
}

// itemLosses are what clients of Responses lose or forge.
var itemLosses = map[string]func([]json.RawMessage) []json.RawMessage{
	"reasoning":                    dropped("reasoning"),
	"the message behind reasoning": dropped("message"),
	"calls, not their outputs":     dropped("function_call"),
	"outputs, not their calls":     dropped("function_call_output"),
	"all but the reasoning": func(input []json.RawMessage) []json.RawMessage {
		return dropped("function_call_output")(dropped("function_call")(dropped("message")(input)))
	},
	"reasoning, and ids are forged": func(input []json.RawMessage) []json.RawMessage {
		return items("", func(item []byte) []json.RawMessage {
			if id := gjson.GetBytes(item, "id").Str; id != "" {
				kind, _, _ := strings.Cut(id, "_")
				return with("id", kind+"_forged"+id[len(id)-20:])(item)
			}
			return []json.RawMessage{item}
		})(dropped("reasoning")(input))
	},
	"encrypted content is forged": items("reasoning", with("encrypted_content", "gAAAAforged==")),
	"ids only":                    items("reasoning", with("encrypted_content", nil)),
}

// Fault: items that a client lost or forged end its conversation at a vendor of Responses, or cost a call more each time:
// where the ledger knows them, in this process or another one, and where no ledger does.
func TestConformanceLostItems(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for loss, damage := range itemLosses {
		for _, named := range []bool{true, false} {
			for _, kept := range []string{"kept", "kept in another process", "forgotten"} {
				t.Run(fmt.Sprintf("%s, named=%t, %s", loss, named, kept), func(t *testing.T) {
					w := newWorld(t, gpt)
					if kept == "kept in another process" {
						w.shares(redistest.Start(t))
					}
					v := w.vendors["gpt"]
					v.Queue(
						upstreamtest.Reply(upstreamtest.Think("thought one"), upstreamtest.Say("I look."), upstreamtest.Use("look", `{"q":"a"}`)),
						upstreamtest.Reply(upstreamtest.Think("thought two"), upstreamtest.Use("look", `{"q":"b"}`)),
						upstreamtest.Reply(upstreamtest.Think("thought three"), upstreamtest.Say("Done.")),
						upstreamtest.Reply(upstreamtest.Say("Welcome.")), upstreamtest.Reply(upstreamtest.Say("Bye.")))
					g := w.gateway()
					c := g.responses("gpt-5.1")
					c.any, c.keeps = true, true
					if named {
						c.within("c1")
					}
					require.Equal(t, "Done.", c.say("Go"))
					if kept != "kept" {
						g.stop()
						c.gateway = w.gateway()
					}
					c.damage = damage
					require.Equal(t, "Welcome.", c.say("Thanks"))
					calls := len(v.Requests()) - 3
					require.LessOrEqual(t, calls, 2, "one call more at most")
					if named && kept != "forgotten" {
						require.Equal(t, 1, calls, "what is kept goes back before anybody is asked")
						if strings.Contains(loss, "reasoning,") || strings.Contains(loss, "content") || strings.Contains(loss, "only") {
							require.Len(t, encrypted(v.Last().Body), 3)
						}
					}
					require.Equal(t, "Bye.", c.say("Goodbye"))
					require.Equal(t, calls+1, len(v.Requests())-3, "a refusal is remembered")
					w.refusedAtMost(1)
				})
			}
		}
	}
}

// Fault: reasoning that the vendor wants back is gone, so that it refuses every further request.
func TestConformanceReasoningThatAVendorOfResponsesWantsBack(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"deepseek", "generic"} {
		for _, kind := range []string{"messages", "chat", "responses"} {
			for _, named := range []bool{true, false} {
				for _, forgotten := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, named=%t, forgotten=%t", vendor, kind, named, forgotten), func(t *testing.T) {
						w := newWorld(t, backendCase{name: "b", vendor: upstreamtest.Config{Vendor: upstreamtest.DeepSeek},
							config: proxy.BackendConfig{Kind: proxy.KindResponses, Vendor: vendor}})
						v := w.vendors["b"]
						v.Queue(
							upstreamtest.Reply(upstreamtest.Think("thought one"), upstreamtest.Say("I look."), upstreamtest.Use("look", `{"q":"a"}`)),
							upstreamtest.Reply(upstreamtest.Think("thought two"), upstreamtest.Say("Done.")),
							upstreamtest.Reply(upstreamtest.Say("Welcome.")), upstreamtest.Reply(upstreamtest.Say("Bye.")))
						g := w.gateway()
						c, of := g.anyClient(kind, "deepseek-v4")
						if named {
							of.within("c1")
						}
						require.Equal(t, "Done.", c.say("Go"))
						if forgotten {
							g.stop()
							of.gateway = w.gateway()
						}
						require.Equal(t, "Welcome.", c.say("Thanks"))
						require.Equal(t, "Bye.", c.say("Goodbye"))
						refusals := map[string]int{"generic": 1}[vendor] // by it the gateway learns that
						w.conforms(refusals)
						require.LessOrEqual(t, len(v.Requests()), 4+refusals)
					})
				}
			}
		}
	}
}

// anyClient is a client of one of the dialects.
func (g *front) anyClient(kind, model string) (agent, *manners) {
	switch kind {
	case "messages":
		c := g.messages(model)
		return c, &c.manners
	case "chat":
		c := g.chat(model)
		return c, &c.manners
	}
	c := g.responses(model)
	c.any = true
	return c, &c.manners
}
