package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

func TestByItsTextAloneNothingIsGuessed(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	for i := range 5 {
		l.Record(t.Context(), answer(alice, opus, content(thinking(fmt.Sprint(i), fmt.Sprint("sig", i)), text("yes"))))
	}
	got := replayOne(t, l, alice, opus, `"yes"`)
	require.Nil(t, got.Turn)
	require.False(t, got.Edited)
	got = replayOne(t, l, alice, opus, content(thinking("2", "sig2"), text("yes")))
	require.True(t, got.Same)
}

func TestIdenticalRecordsAreOne(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	for i := range 5 {
		turn := answer(alice, opus, storedTurn)
		turn.Time = time.Unix(int64(i), 0)
		l.Record(t.Context(), turn)
	}
	require.True(t, replayOne(t, l, alice, opus, storedTurn).Same)
	require.Equal(t, 1, l.Stats().Turns)
}

// Some gateways stamp one signature on every block, and some vendors count their
// tool uses from 0 in every answer.
func TestKeysThatRecur(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	one := content(thinking("one", "stamp"), text("a"), toolUse("call_0", "search", `{"q":1}`))
	two := content(thinking("two", "stamp"), text("b"), toolUse("call_0", "search", `{"q":1}`))
	l.Record(t.Context(), answer(alice, opus, one))
	l.Record(t.Context(), answer(alice, opus, two))
	for _, c := range []string{one, two} {
		got := replayOne(t, l, alice, opus, c)
		require.True(t, got.Same)
		require.Equal(t, c, string(got.Turn.Content))
	}
	got := replayOne(t, l, alice, opus, content(thinking("three", "stamp"), text("c"),
		toolUse("call_0", "search", `{"q":1}`)))
	require.Nil(t, got.Turn)
	require.False(t, got.Edited, "no key of it belongs to one turn")
	require.Equal(t, ledger.Unknown, got.States[0])
	require.Equal(t, ledger.Foreign,
		replayOne(t, l, alice, kimi, content(thinking("three", "stamp"), text("c"))).States[0])
}

// A client that merges two turns into one message shows neither.
func TestTwoTurnsMerged(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	a, b := thinking("one", "s1"), thinking("two", "s2")
	l.Record(t.Context(), answer(alice, opus, content(a, text("first"))))
	l.Record(t.Context(), answer(alice, opus, content(b, text("second"))))
	got := replayOne(t, l, alice, opus, content(a, text("first"), b, text("second")))
	require.Nil(t, got.Turn)
	require.True(t, got.Edited)
	require.Equal(t, []ledger.State{ledger.Altered, ledger.NoThinking, ledger.Altered, ledger.NoThinking}, got.States)

	got = replayOne(t, l, alice, opus, content(a, b, text("second")))
	require.NotNil(t, got.Turn, "the second with a block too many")
	require.Equal(t, []ledger.State{ledger.Altered, ledger.Altered, ledger.NoThinking}, got.States)
}

func TestScopesAreApart(t *testing.T) {
	scopes := []ledger.Scope{alice}
	for _, change := range []func(s *ledger.Scope){
		func(s *ledger.Scope) { s.Tenant = "" }, func(s *ledger.Scope) { s.Route = "teammate/analytic" },
		func(s *ledger.Scope) { s.Conversation = "c2" }, func(s *ledger.Scope) { s.Conversation = "" },
	} {
		s := alice
		change(&s)
		scopes = append(scopes, s)
	}
	for at, owner := range scopes {
		l := memoryOnly(t, ledger.Config{})
		l.Record(t.Context(), answer(owner, opus, storedTurn))
		l.Refuse(t.Context(), owner, opus, []string{ledger.BlockKey([]byte(thinking("x", "sigX")))})
		for i, s := range scopes {
			got := replayOne(t, l, s, opus, storedTurn)
			// An application may have copied an answer into another conversation: its keys cannot recur.
			copied := s.Tenant == owner.Tenant && s.Route == owner.Route && owner.Conversation != ""
			require.Equal(t, i == at || copied, got.Turn != nil)
			said := replayOne(t, l, s, opus, content(unsigned("then"), text("Let me look. \nNowdone")))
			require.True(t, i == at || said.Turn == nil && said.States[0] == ledger.Unknown, "its words prove nothing there")
			if i != at {
				require.Equal(t, ledger.Unknown, replayOne(t, l, s, opus, content(thinking("x", "sigX"))).States[0])
			}
		}
	}
}

func TestEqualChatsOfTwoConversations(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	other := alice
	other.Conversation = "c2"
	l.Record(t.Context(), answer(alice, opus, content(thinking("a", "s1"), text("hello"))))
	l.Record(t.Context(), answer(other, opus, content(thinking("b", "s2"), text("hello"))))
	require.Contains(t, string(replayOne(t, l, alice, opus, `"hello"`).Turn.Content), "s1")
	require.Contains(t, string(replayOne(t, l, other, opus, `"hello"`).Turn.Content), "s2")
}

func TestWithoutConversation(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	l.Record(t.Context(),
		answer(alice, opus, content(unsigned("unsigned thought"), text("plain"), toolUse("call_1", "search", search))))
	minted := alice
	minted.Conversation = "minted"
	judge := func(s ledger.Scope, c string) ledger.Judged {
		o := outline(t, user(`"hi"`), assistant(c))
		of, found := l.Find(t.Context(), s, wire.Messages, o, nil)
		return l.Judge(t.Context(), ledger.Request{
			Scope: of, New: !found, Target: opus, Dialect: wire.Messages, Outline: o,
		})[0]
	}
	require.True(t, judge(minted, storedTurn).Same)
	require.NotNil(t, judge(minted, content(text("Let me look. \nNowdone"), toolUse(longID, "search", search))).Turn,
		"by the tool's id")
	require.True(t, judge(minted, content(redacted("dddd"), text("edited"))).Edited)
	require.Nil(t, judge(minted, content(text("Let me look. \nNowdone"), toolUse("other", "search", search))).Turn)
	require.Nil(t,
		judge(minted, content(unsigned("unsigned thought"), text("plain"), toolUse("call_1", "search", search))).Turn,
		"all of it may recur")

	for _, change := range []func(s *ledger.Scope){
		func(s *ledger.Scope) { s.Tenant = "" }, func(s *ledger.Scope) { s.Route = "teammate/analytic" },
	} {
		s := minted
		change(&s)
		require.Nil(t, judge(s, storedTurn).Turn)
	}

	// What was refused in one such request is remembered in the next, though nothing else of it is known.
	first := minted
	first.Conversation = "minted before"
	strange := content(thinking("elsewhere", "sigX"), unsigned("then"), text("said"))
	l.Refuse(t.Context(), first, opus, []string{
		ledger.BlockKey([]byte(thinking("elsewhere", "sigX"))), ledger.BlockKey([]byte(unsigned("then"))),
	})
	require.Equal(t, []ledger.State{ledger.Refused, ledger.Refused, ledger.NoThinking}, judge(minted, strange).States)
	require.Equal(t, ledger.Unknown, judge(minted, content(unsigned("then"))).States[0], "a bare text may be another's")
	require.Equal(t, ledger.Unknown, replayOne(t, l, alice, opus, strange).States[0],
		"a conversation has its own refusals")
}
