package ledger_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

var deepseek = ledger.Origin{Backend: "ds", Vendor: "deepseek", Model: "v4"}

const chatTurn = `{"role":"assistant","content":"I look.","reasoning_content":"First, I think.","refusal":null,` +
	`"tool_calls":[{"index":0,"id":"call_00_abcdefghijklmnop","type":"function","function":{"name":"search","arguments":"{\"q\": \"cats\", \"n\": 1}"}}]}`

func judgeChat(t require.TestingT, l *ledger.Ledger, by ledger.Origin, message string) ledger.Judged {
	o := outline(t, user(`"hi"`), message)
	judged := l.Judge(ctx(t), ledger.Request{
		Scope: alice, Target: by, Dialect: wire.Chat, Outline: o, Nodes: known(l, alice, wire.Chat, o),
	})
	require.Len(t, judged, 1)
	require.Len(t, judged[0].States, 1)
	return judged[0]
}

func TestChatReplays(t *testing.T) {
	calls :=
		`"tool_calls":[{"id":"call_00_abcdefghijklmnop","type":"function","function":{"name":"search","arguments":"{\"q\": \"cats\", \"n\": 1}"}}]`
	tests := map[string]struct {
		message      string
		turn, same   bool
		edited       bool
		state        ledger.State
		differentIDs int
	}{
		"as it was": {chatTurn, true, true, false, ledger.Proven, 0},
		"without what is no part of it": {
			`{"tool_calls":[{"function":{"arguments":"{\"q\": \"cats\", \"n\": ` +
				`1}","name":"search"},"id":"call_00_abcdefghijklmnop"}],"reasoning_content":"First, I ` +
				`think.","content":[{"type":"text","text":"I look."}],"role":"assistant"}`, true, true, false, ledger.Proven, 0,
		},
		"without reasoning": {`{"role":"assistant","content":"I look.",` + calls + `}`, true, false, false,
			ledger.NoThinking, 0},
		"with empty reasoning": {`{"role":"assistant","content":"I look.","reasoning_content":"",` + calls + `}`,
			true, false, false, ledger.NoThinking, 0},
		"in another field": {`{"role":"assistant","content":"I look.","reasoning":"First, I think.",` +
			calls + `}`, true, false, false, ledger.Altered, 0},
		"reasoning edited": {`{"role":"assistant","content":"I look.","reasoning_content":"No.",` + calls +
			`}`, true, false, false, ledger.Altered, 0},
		"as a think section": {`{"role":"assistant","content":"<think>First, I think.</think>\n\nI look.",` +
			calls + `}`, true, false, false, ledger.NoThinking, 0},
		"arguments written anew, other id": {
			`{"role":"assistant","content":"I ` +
				`look.","tool_calls":[{"id":"x","type":"function","function":{"name":"search","arguments":"{\"n\":1,\"q\":\"cats\"}"}}]}`, true, false, false, ledger.NoThinking, 1,
		},
		"arguments edited": {
			`{"role":"assistant","content":"I look.","reasoning_content":"First, I ` +
				`think.","tool_calls":[{"id":"x","type":"function","function":{"name":"search","arguments":"{\"q\":\"dogs\"}"}}]}`,
			false, false, false, ledger.Unknown, 0,
		},
		"text edited": {
			`{"role":"assistant","content":"I looked.","reasoning_content":"First, I think."}`, false, false, false,
			ledger.Unknown, 0,
		},
		"another": {`{"role":"assistant","content":null,"reasoning":"Hm"}`, false, false, false,
			ledger.Unknown, 0},
		"nothing": {`{"role":"assistant"}`, false, false, false, ledger.NoThinking, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := memoryOnly(t, ledger.Config{})
			l.Record(t.Context(), ledger.Turn{Scope: alice, Origin: deepseek, Dialect: wire.Chat, Content: []byte(chatTurn),
				Place: first})
			got := judgeChat(t, l, deepseek, test.message)
			require.Equal(t, test.turn, got.Turn != nil)
			require.Equal(t, test.same, got.Same)
			require.Equal(t, test.edited, got.Edited)
			require.Equal(t, test.state, got.States[0])
			require.Len(t, got.Tools, test.differentIDs)
		})
	}
}

func TestSignaturesOfChatVendors(t *testing.T) {
	for name, turn := range map[string]string{
		"OpenRouter": `{"content":"a","reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"r","signature":"sig1","format":"anthropic-claude-v1","index":0}]}`,
		"encrypted":  `{"content":"a","reasoning_details":[{"type":"reasoning.encrypted","data":"gAAAA","id":"rs_1"}]}`,
		"LiteLLM":    `{"content":"a","reasoning_content":"r","thinking_blocks":[{"type":"thinking","thinking":"r","signature":"sig2"}]}`,
		"Gemini":     `{"content":"a","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"sig3"}}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			l := memoryOnly(t, ledger.Config{})
			cut := ledger.Turn{Scope: alice, Origin: deepseek, Dialect: wire.Chat, Content: []byte(turn), Cut: true}
			l.Record(t.Context(), cut)
			message := `{"role":"assistant",` + turn[1:]
			got := judgeChat(t, l, deepseek, message)
			require.Nil(t, got.Turn)
			require.Equal(t, ledger.Proven, got.States[0], "found by what seals it")
			cut.Cut = false
			l.Record(t.Context(), cut)
			require.True(t, judgeChat(t, l, deepseek, message).Same)
			require.NotEmpty(t, ledger.BlockKey([]byte(turn)))
		})
	}
}

// A conversation goes on with a backend of the other dialect.
func TestTurnsOfTheOtherDialect(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	l.Record(t.Context(),
		answer(alice, deepseek, content(unsigned("First, I think."), text("I look."),
			toolUse("call_00_abcdefghijklmnop", "search", `{"q":"cats","n":1}`))))
	got := judgeChat(t, l, deepseek, chatTurn)
	require.NotNil(t, got.Turn)
	require.True(t, got.Same, "a content of the other dialect cannot go back")
	require.Equal(t, ledger.Proven, got.States[0])
	require.Equal(t, ledger.Foreign, judgeChat(t, l, kimi, chatTurn).States[0])
	got = judgeChat(t, l, deepseek, `{"role":"assistant","content":"I look."}`)
	require.Nil(t, got.Turn)
}

func TestToolIDs(t *testing.T) {
	const callA, callB, callC = "call_AAAAAAAAAAAAAAAAAAAAAAAA", "call_BBBBBBBBBBBBBBBBBBBBBBBB",
		"call_CCCCCCCCCCCCCCCCCCCCCCCC"
	l := memoryOnly(t, ledger.Config{})
	turn := answer(alice, kimi, content(toolUse("f:0", "a", `{}`), toolUse("f:1", "b", `{}`), toolUse("f:2", "b", `{}`)))
	turn.Tools = []ledger.ToolID{{Vendor: "f:0", Client: callA}, {Vendor: "f:1", Client: callB},
		{Vendor: "f:2", Client: callC}}
	l.Record(t.Context(), turn)
	ids := func(x, y, z string) string {
		return content(toolUse(x, "a", `{}`), toolUse(y, "b", `{}`), toolUse(z, "b", `{}`))
	}
	for c, want := range map[string][]ledger.ToolID{
		ids("f:0", "f:1", "f:2"): nil,
		ids(callA, callB, callC): turn.Tools,
		ids("x", "y", "z"): {{Vendor: "f:0", Client: "x"}, {Vendor: "f:1", Client: "y"},
			{Vendor: "f:2", Client: "z"}},
		ids("x", "y", callB): {{Vendor: "f:0", Client: "x"}, {Vendor: "f:2", Client: "y"},
			{Vendor: "f:1", Client: callB}},
		content(toolUse("y", "b", `{}`), toolUse("z", "b", `{}`), toolUse("x", "a", `{}`)): {
			{Vendor: "f:1", Client: "y"}, {Vendor: "f:2", Client: "z"}, {Vendor: "f:0", Client: "x"},
		},
	} {
		got := replayOne(t, l, alice, kimi, c)
		require.NotNil(t, got.Turn, c)
		require.Equal(t, want, got.Tools, c)
	}
	require.True(t, replayOne(t, l, alice, kimi, ids(callA, callB, callC)).Same)
	require.True(t, replayOne(t, l, alice, kimi, content(toolUse(callB, "b", `{"edited":1}`))).Edited,
		"the client's name finds it")
}

func TestEqualInputs(t *testing.T) {
	stored := `{"id":12345678901234567890,"x":1.0,"deep":{"type":"thinking","thinking":"no block"}}`
	for input, equal := range map[string]bool{
		// as a client with doubles writes it
		`{"deep":{"thinking":"no block","type":"thinking"},"id":12345678901234567000,"x":1}`:   true,
		`{"id":12345678901234567890,"x":2,"deep":{"type":"thinking","thinking":"no block"}}`:   false,
		`{"id":"12345678901234567890","x":1,"deep":{"type":"thinking","thinking":"no block"}}`: false,
	} {
		l := memoryOnly(t, ledger.Config{})
		l.Record(t.Context(), answer(alice, opus, content(toolUse(longID, "f", stored))))
		got := replayOne(t, l, alice, opus, content(toolUse(longID, "f", input)))
		require.Equal(t, equal, got.Turn != nil, input)
		require.Equal(t, !equal, got.Edited, input)
		require.False(t, got.Same, "what a client rounded goes back as it was")
		require.Equal(t, []ledger.State{ledger.NoThinking}, got.States)
	}
}

// What looks like the use of a tool in a chat message's content is content: it keeps
// its id when the calls are named as the client knows them.
func TestChatContentThatLooksLikeACall(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	l.Record(t.Context(), ledger.Turn{
		Scope: alice, Origin: opus, Dialect: wire.Chat, Tools: []ledger.ToolID{
			{Vendor: "f:0", Client: "call_abcdefghijklmnopqrstuvwx"},
		},
		Content: []byte(
			`{"content":[{"type":"tool_use","id":"shown"}],"tool_calls":[{"id":"f:0","function":{"name":"f","arguments":"{}"}}]}`,
		),
		Place: &ledger.Place{Input: []byte(`[{"role":"user","content":"Go"}]`)},
	})
	o, err := wire.ReadMessages([]byte(`[{"role":"assistant","content":[{"type":"tool_use","id":"shown"}],` +
		`"tool_calls":[{"id":"call_abcdefghijklmnopqrstuvwx","function":{"name":"f","arguments":"{}"}}]}]`))
	require.NoError(t, err)
	nodes := slices.Collect(l.Conversation(alice, nil).Showing(l.Read(o, wire.Chat)[0].Answer))
	require.Len(t, nodes, 1)
	require.JSONEq(t,
		`{"content":[{"type":"tool_use","id":"shown"}],"tool_calls":[{"id":"call_abcdefghijklmnopqrstuvwx","function":{"name":"f","arguments":"{}"}}]}`,
		string(nodes[0].ClientContent()))
}
