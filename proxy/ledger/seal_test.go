package ledger

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

// Whatever an answer is, a request without conversation finds it by the same keys
// before it is read and after.
func FuzzSeals(f *testing.F) {
	for _, content := range []string{
		`[{"type":"thinking","thinking":"a","signature":"EqQB"},{"type":"tool_use","id":"toolu_01A09q90qw90lq91","name":"f","input":{}}]`,
		`[{"type":"redacted_thinking","data":"x\u0041"},{"type":"thinking","data":7,"signature":null},{"type":"text","text":"b"}]`,
		`[{"type":"tool_use","id":"f:0","name":"f"},{"type":"tool_use","id":"toolu_01A09q90qw90lq91"},{"type":"tool_use","id":"toolu_01A09q90qw90lq91"}]`,
		`[]`, `[1,{},{"type":"thinking","signature":""},{"type":"tool_use","id":5}]`,
	} {
		f.Add([]byte(content), false, false)
		f.Add([]byte(content), false, true)
	}
	for _, message := range []string{
		`{"role":"assistant","content":null,"tool_calls":[{"id":"call_0123456789abcdef01234567","type":"function","function":{"name":"f","arguments":"{}"}},{"id":7},3]}`,
		`{"content":"a","reasoning_content":"t","reasoning_details":[{"signature":"s"},{"data":"d"}],"thinking_blocks":[{"type":"redacted_thinking","data":"e"}]}`,
		`{"content":[{"type":"tool_use","id":"toolu_01A09q90qw90lq91"},{"type":"thinking","signature":"s"}],"extra_content":{"google":{"thought_signature":"g"}}}`,
		`{"tool_calls":[{"id":"call_1","extra_content":{"google":{"thought_signature":"g"}}}]}`,
	} {
		f.Add([]byte(message), true, false)
		f.Add([]byte(message), true, true)
	}
	f.Fuzz(func(t *testing.T, content []byte, chat, cut bool) {
		turn := &Turn{Dialect: wire.Messages, Content: content, Cut: cut}
		if chat {
			turn.Dialect = wire.Chat
		}
		if o, m, err := outlineOf(turn); err == nil {
			// The first call of a tool has another name for the client.
			for _, at := range o.CallIDs(turn.Dialect, m) {
				if id, ok := o.Text(at); ok && turn.Tools == nil {
					turn.Tools = []ToolID{{Vendor: id, Client: "call_abcdefghijklmnopqrstuvwx"}}
				}
			}
		}
		e, o, err := seal(turn)
		if err != nil {
			return
		}
		_, _, err = e.read(o)
		require.NoError(t, err)
		require.Equal(t, slices.DeleteFunc(slices.Clone(e.keys), func(k key) bool { return !k.unique() }),
			append([]key{}, e.seals...))
	})
}
