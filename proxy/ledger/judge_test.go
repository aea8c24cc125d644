package ledger_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

func ctx(t require.TestingT) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	return context.Background()
}

const (
	search = `{"q":"cats","n":1,"deep":{"a":[1,2],"b":null}}`
	longID = "toolu_01A09q90qw90lq917835lq9"
)

// storedTurn has what a turn can have: thinking between its texts and tools.
var storedTurn = content(thinking("First,\nI look.", "sigA"), text("Let me look. \nNow"), redacted("dddd"),
	toolUse(longID, "search", search), unsigned("then"), text("done"))

func TestReplaysOfOneTurn(t *testing.T) {
	const (
		proven  = ledger.Proven
		altered = ledger.Altered
		none    = ledger.NoThinking
		unknown = ledger.Unknown
	)
	tests := map[string]struct {
		replay string
		turn   bool
		same   bool
		edited bool
		states []ledger.State
	}{
		"as it was": {storedTurn, true, true, false, []ledger.State{proven, none, proven, none, proven, none}},
		"with cache_control, other order of members, other escapes and nulls": {
			`[{"signature":"sigA","thinking":"First,\u000aI look.","type":"thinking","cache_control":{"type":"ephemeral"}},` +
				`{"type":"text","text":"Let me look. \nNow","citations":null},` + redacted("dddd") + `,` +
				`{"id":"` + longID +
				`","type":"tool_use","name":"search","input":{ "n":1,"q":"c\u0061ts","deep":{"b":null,"a":[1,2]}}},` +
				unsigned("then") + `,{"type":"text","text":"done","cache_control":{"type":"ephemeral"}}]`,
			true, true, false, []ledger.State{proven, none, proven, none, proven, none},
		},
		"line ends and trims": {
			content(thinking("First,\nI look.", "sigA"), text("\r\nLet me look.\r\nNow"), redacted("dddd"),
				toolUse(longID, "search", search), unsigned("then"), text("done\n")),
			true, false, false, []ledger.State{proven, none, proven, none, proven, none},
		},
		"thinking trimmed": {
			content(thinking("First,\nI look. ", "sigA"), text("Let me look. \nNow"), redacted("dddd"),
				toolUse(longID, "search", search), text("done")),
			true, false, false, []ledger.State{altered, none, proven, none, none},
		},
		"signature emptied": {
			content(thinking("First,\nI look.", ""), text("Let me look. \nNow"), toolUse(longID, "search", search),
				text("done")),
			true, false, false, []ledger.State{altered, none, none, none},
		},
		"no thinking at all, texts merged, other tool id": {
			content(text("Let me look. \nNowdone"), toolUse("x", "search", `{"n":1.0,"q":"cats","deep":{"b":null,"a":[1,2]}}`)),
			true, false, false, []ledger.State{none, none},
		},
		"doubled": {
			content(thinking("First,\nI look.", "sigA"), thinking("First,\nI look.", "sigA"), text("Let me look. \nNow"),
				toolUse(longID, "search", search), text("done")),
			true, false, false, []ledger.State{proven, altered, none, none, none},
		},
		"moved": {
			content(text("Let me look. \nNow"), thinking("First,\nI look.", "sigA"), unsigned("then"), redacted("dddd"),
				toolUse(longID, "search", search), text("done")),
			true, false, false, []ledger.State{none, altered, altered, altered, none, none},
		},
		"think section": {
			content(text("<think>\nFirst,\r\nI look.</think>\nLet me look.\nNow"), toolUse(longID, "search", search),
				text("<think>then</think>done")),
			true, false, false, []ledger.State{none, none, none},
		},
		"think sections of all thoughts in one": {
			content(text("<think>First,\nI look.\n\nthen</think>Let me look.\nNow"), toolUse(longID, "search", search),
				text("done")),
			true, false, false, []ledger.State{none, none, none},
		},
		"think section with another thought": {
			content(text("<think>I was hacked</think>Let me look. \nNow"), toolUse(longID, "search", search), text("done")),
			false, false, true, []ledger.State{none, none, none},
		},
		"text edited": {
			content(thinking("First,\nI look.", "sigA"), text("Let me not look."), redacted("dddd"),
				toolUse(longID, "search", search), unsigned("then"), text("done")),
			false, false, true, []ledger.State{altered, none, altered, none, altered, none},
		},
		"input edited": {
			content(thinking("First,\nI look.", "sigA"), text("Let me look. \nNow"), toolUse(longID, "search", `{"q":"dogs"}`),
				text("done")),
			false, false, true, []ledger.State{altered, none, none, none},
		},
		"tool dropped": {
			content(thinking("First,\nI look.", "sigA"), text("Let me look. \nNow"), text("done")),
			false, false, true, []ledger.State{altered, none, none},
		},
		"something else": {
			content(thinking("Who?", "sigX"), text("Nobody")), false, false, false, []ledger.State{unknown, none},
		},
		"a string": {`"Let me look.\nNow"`, false, false, false, nil},
		"empty":    {`[]`, false, false, false, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := memoryOnly(t, ledger.Config{})
			l.Record(t.Context(), answer(alice, opus, storedTurn))
			for range 2 { // the second time what is known of the bytes is used
				got := replayOne(t, l, alice, opus, test.replay)
				require.Equal(t, test.edited, got.Edited)
				require.Equal(t, test.same, got.Same)
				if test.turn {
					require.NotNil(t, got.Turn)
					require.Equal(t, storedTurn, string(got.Turn.Content))
				} else {
					require.Nil(t, got.Turn)
				}
				require.Equal(t, len(test.states), len(got.States))
				for i, want := range test.states {
					require.Equal(t, want, got.States[i], "block %d", i)
				}
			}
		})
	}
}

func TestAStringIsOneTextBlock(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	l.Record(t.Context(), answer(alice, opus, content(text("hello"))))
	l.Record(t.Context(), answer(alice, opus, content(thinking("x", "sigX"), text("bye"))))
	require.True(t, replayOne(t, l, alice, opus, `"hello"`).Same)
	got := replayOne(t, l, alice, opus, `"bye"`)
	require.NotNil(t, got.Turn)
	require.False(t, got.Same, "the thinking must be put back")
	require.Equal(t, []ledger.State{ledger.Proven, ledger.NoThinking}, got.TurnStates)
	require.Equal(t, []string{ledger.BlockKey([]byte(thinking("x", "sigX"))), ""}, got.TurnKeys)
}

func TestForeignAndRefused(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	block := thinking("mine", "sigA")
	l.Record(t.Context(), answer(alice, kimi, content(block, text("hello"))))

	other := kimi
	other.Backend, other.Model = "kimi2", "k3"
	require.Equal(t, ledger.Proven, replayOne(t, l, alice, other, content(block, text("hello"))).States[0],
		"a vendor has many models")
	got := replayOne(t, l, alice, opus, content(block, text("hello")))
	require.Equal(t, ledger.Foreign, got.States[0])
	require.Equal(t, ledger.Foreign, got.TurnStates[0])
	require.NotNil(t, got.Turn)
	require.Equal(t, ledger.Foreign, replayOne(t, l, alice, opus, content(unsigned("mine "), text("hello"))).States[0],
		"damaged, but known")
	require.Equal(t, ledger.Foreign, replayOne(t, l, alice, opus, content(block, text("edited"))).States[0])

	l.Refuse(t.Context(), alice, kimi, []string{ledger.BlockKey([]byte(block)), ""})
	got = replayOne(t, l, alice, kimi, content(block, text("hello")))
	require.Equal(t, ledger.Refused, got.States[0])
	require.Equal(t, ledger.Refused, got.TurnStates[0])
	require.Equal(t, ledger.Refused, replayOne(t, l, alice, kimi, `"hello"`).TurnStates[0],
		"also where it would be put back")
	require.Equal(t, ledger.Proven, replayOne(t, l, alice, other, content(block, text("hello"))).States[0],
		"by another model only")
}

func TestWhatBrokeOffIsFoundBySignatureOnly(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	cut := answer(alice, opus, content(thinking("half", "sigA"), text("I was"), toolUse(longID, "search", search)))
	cut.Cut = true
	l.Record(t.Context(), cut)
	for _, c := range []string{
		`"I was"`, content(text("I was"), toolUse(longID, "search", search)), content(unsigned("half"), text("I was")),
	} {
		got := replayOne(t, l, alice, opus, c)
		require.Nil(t, got.Turn, c)
		require.False(t, got.Edited, c)
		require.NotContains(t, got.States, ledger.Proven, c)
	}
	got := replayOne(t, l, alice, opus, content(thinking("half", "sigA"), text("I")))
	require.Nil(t, got.Turn)
	require.False(t, got.Edited)
	require.Equal(t, ledger.Proven, got.States[0])
	require.Equal(t, ledger.Altered, replayOne(t, l, alice, opus, content(text("I"), thinking("half", "sigA"))).States[1])
	require.Equal(t, ledger.Foreign, replayOne(t, l, alice, kimi, content(thinking("half", "sigA"), text("I"))).States[0])

	// The same text, said in full by another turn, does not make it that turn.
	said := answer(alice, opus, content(text("I")))
	said.Place = nil
	l.Record(t.Context(), said)
	require.Nil(t, replayOne(t, l, alice, opus, content(thinking("half", "sigA"), text("I"))).Turn)

	// More of the answer, then all of it, take its place.
	cut.Content = []byte(content(thinking("half", "sigA"), text("I was"), toolUse(longID, "search", search),
		thinking("b", "sigB")))
	l.Record(t.Context(), cut)
	whole := answer(alice, opus, content(thinking("half", "sigA"), text("I was"), toolUse(longID, "search", search),
		thinking("b", "sigB"), text("here")))
	l.Record(t.Context(), whole)
	l.Record(t.Context(), cut)
	got = replayOne(t, l, alice, opus, string(whole.Content))
	require.True(t, got.Same)
	require.Equal(t, 2, l.Stats().Turns)
}

func TestGrowingRecordsWithoutSignatureAreNotKept(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	cut := answer(alice, opus, content(unsigned("half"), text("I was")))
	cut.Cut = true
	l.Record(t.Context(), cut)
	require.Zero(t, l.Stats().Turns)
	require.Zero(t, l.Stats().Bytes)
}

func TestContentThatIsNone(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	for _, c := range []string{``, `"text"`, `{}`, `[`, `[]`, `5`, `[1]},{"content":[2]`, `[1],"x":[2]`} {
		l.Record(t.Context(), answer(alice, opus, c))
		l.Record(t.Context(), ledger.Turn{Scope: alice, Dialect: wire.Chat, Content: []byte(c)})
	}
	require.Nil(t, replayOne(t, l, alice, opus, `"text"`).Turn)
	require.LessOrEqual(t, l.Stats().Turns, 1, "[1] alone is a block of an unknown kind")
}
