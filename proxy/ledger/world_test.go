package ledger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

var (
	kimi  = ledger.Origin{Backend: "kimi", Vendor: "kimi", Model: "k2"}
	opus  = ledger.Origin{Backend: "claude", Vendor: "anthropic", Model: "opus"}
	alice = ledger.Scope{Tenant: strings.Repeat("a", 64), Route: "main", Conversation: "c1"}
)

func thinking(text, signature string) string {
	return fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":%s}`, quote(text), quote(signature))
}

func unsigned(text string) string { return `{"type":"thinking","thinking":` + quote(text) + `}` }

func redacted(data string) string {
	return `{"type":"redacted_thinking","data":` + quote(data) + `}`
}

func text(s string) string { return `{"type":"text","text":` + quote(s) + `}` }

func toolUse(id, name, input string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":%s}`, quote(id), quote(name), input)
}

func quote(s string) string { return string(wire.Quote(s)) }

func content(blocks ...string) string { return "[" + strings.Join(blocks, ",") + "]" }

func user(content string) string { return `{"role":"user","content":` + content + `}` }

func assistant(content string) string { return `{"role":"assistant","content":` + content + `}` }

// outline reads a request that has these messages.
func outline(t require.TestingT, messages ...string) *wire.Outline {
	o, err := wire.ReadOutline([]byte(`{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`))
	require.NoError(t, err)
	return o
}

// answer is a turn of the messages dialect, in the tree of its conversation.
func answer(s ledger.Scope, by ledger.Origin, content string) ledger.Turn {
	return ledger.Turn{Scope: s, Origin: by, Dialect: wire.Messages, Content: jsontext.Value(content), Place: first}
}

var first = &ledger.Place{Input: []byte(`[` + user(`"hi"`) + `]`)}

// known are the messages of a request that one turn of the tree says, as its surroundings tell
// package conversation.
func known(l *ledger.Ledger, s ledger.Scope, d wire.Dialect, o *wire.Outline) map[int]*ledger.Node {
	shown, known := l.Read(o, d), map[int]*ledger.Node{}
	for i, m := range shown {
		if m.Answer == nil {
			continue
		}
		if nodes := slices.Collect(l.Conversation(s, shown).Showing(m.Answer)); len(nodes) == 1 {
			known[i] = nodes[0]
		}
	}
	return known
}

// replay judges messages as a request to the backend by.
func replay(t require.TestingT, l *ledger.Ledger, s ledger.Scope, by ledger.Origin,
	messages ...string) []ledger.Judged {
	o := outline(t, messages...)
	return l.Judge(ctx(t), ledger.Request{Scope: s, Target: by, Dialect: wire.Messages, Outline: o,
		Nodes: known(l, s, wire.Messages, o)})
}

// replayOne judges one assistant message between two of the user.
func replayOne(t require.TestingT, l *ledger.Ledger, s ledger.Scope, by ledger.Origin, content string) ledger.Judged {
	judged := replay(t, l, s, by, user(`"hi"`), assistant(content), user(`"go on"`))
	require.Len(t, judged, 1)
	require.Equal(t, 1, judged[0].Message)
	return judged[0]
}

func memoryOnly(t *testing.T, c ledger.Config) *ledger.Ledger {
	l := ledger.New(c)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	return l
}

// Requests of a real coding agent: what it replays are turns that it was given.
func TestRequestsOfACodingAgentOutsideData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			recorded, err := os.ReadFile(file)
			require.NoError(t, err)
			body, err := wire.Members(recorded, "body")
			require.NoError(t, err)
			o, err := wire.ReadOutline(recorded[body[0].Start:body[0].End])
			require.NoError(t, err)
			l := memoryOnly(t, ledger.Config{})
			for _, m := range o.Messages {
				if m.Role == wire.RoleAssistant {
					l.Record(t.Context(), ledger.Turn{Scope: alice, Origin: opus, Dialect: wire.Messages, Content: o.Raw(m.Content),
						Place: first})
				}
			}
			for _, nameless := range []bool{false, true} {
				r := ledger.Request{Scope: alice, New: nameless, Target: opus, Dialect: wire.Messages, Outline: o}
				if !nameless {
					r.Nodes = known(l, alice, wire.Messages, o)
				}
				for _, j := range l.Judge(t.Context(), r) {
					require.False(t, j.Edited)
					if j.Turn != nil || !nameless {
						require.True(t, j.Same)
					}
					require.NotContains(t, j.States, ledger.Unknown)
				}
			}
		})
	}
}
