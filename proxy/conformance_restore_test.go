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
	"reasoning":                     dropped("reasoning"),
	"the message behind reasoning":  dropped("message"),
	"calls, not their outputs":      dropped("function_call"),
	"outputs, not their calls":      dropped("function_call_output"),
	"all but the reasoning":         func(input []json.RawMessage) []json.RawMessage { return dropped("function_call_output")(dropped("function_call")(dropped("message")(input))) },
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
	"ids only": items("reasoning", with("encrypted_content", nil)),
}

// Fault: items that a client lost or forged end its conversation at a vendor of Responses.
func TestConformanceLostItems(t *testing.T) {
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
						upstreamtest.Reply(upstreamtest.Say("Welcome.")))
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
					t.Logf("%d calls, %d thoughts, refused %v", len(v.Requests())-3, len(encrypted(v.Last().Body)), func() (o []string) { for _, r := range v.Rejections() { o = append(o, r.Rejection) }; return }())
					require.LessOrEqual(t, len(v.Requests()), 5, "one call more at most")
					w.checked = true
				})
			}
		}
	}
}
