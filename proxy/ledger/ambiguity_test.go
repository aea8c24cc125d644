package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// dialogue is a conversation in which the model answers "yes" five times, with
// other thinking each time, as it is recorded by a gateway.
func dialogue(t *testing.T, l *ledger.Ledger, questions []string, says func(i int) string) (messages []string,
	turns []ledger.Turn) {
	predecessor := ""
	for i, q := range questions {
		messages = append(messages, user(quote(q)))
		thought := thinking(fmt.Sprintf("thought %d", i), fmt.Sprintf("sig%d", i))
		turn := answer(alice, opus, content(thought, text(says(i))))
		turn.Predecessor, turn.Asked = predecessor, ledger.AskedKey(outline(t, messages...))
		turn.At = time.Unix(int64(1_700_000_000+i), 0)
		l.Record(t.Context(), turn)
		predecessor = ledger.BlockKey([]byte(thought))
		messages = append(messages, assistant(quote(says(i))))
		turns = append(turns, turn)
	}
	return messages, turns
}

func yes(int) string { return "yes" }

func TestYesAnsweredFiveTimes(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	messages, turns := dialogue(t, l, []string{"cats?", "dogs?", "cows?", "pigs?", "hens?"}, yes)
	check := func(messages []string, want ...int) {
		t.Helper()
		judged := replay(t, l, alice, opus, messages...)
		require.Len(t, judged, len(want))
		for i, w := range want {
			if w < 0 {
				require.Nil(t, judged[i].Turn, "answer %d", i)
				continue
			}
			require.NotNil(t, judged[i].Turn, "answer %d", i)
			require.Equal(t, string(turns[w].Content), string(judged[i].Turn.Content))
		}
	}
	check(messages, 0, 1, 2, 3, 4)
	check(messages[4:], 2, 3, 4)                                                   // the client's window
	check([]string{user(`"rats?"`), messages[1], messages[2], messages[3]}, -1, 1) // a question edited
	check([]string{messages[1]}, -1)
	// its own key counts more
	check([]string{messages[0], assistant(content(thinking("thought 3", "sig3"), text("yes")))}, 3)
	// a turn that nobody knows
	check([]string{messages[0], assistant(content(thinking("new", "sigX"), text("yes")))}, -1)
	check([]string{messages[0], assistant(content(thinking("new", ""), text("yes")))}, 0)
}

func TestYesToTheSameQuestion(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	first := func(i int) string { return []string{"hello", "yes", "yes", "yes", "bye"}[i] }
	messages, turns := dialogue(t, l, []string{"hi", "sure?", "sure?", "sure?", "bye"}, first)
	judged := replay(t, l, alice, opus, messages...)
	for i := range judged {
		require.NotNil(t, judged[i].Turn, "answer %d follows one that is known", i)
		require.Equal(t, string(turns[i].Content), string(judged[i].Turn.Content))
	}
	judged = replay(t, l, alice, opus, messages[4:]...)
	require.Nil(t, judged[0].Turn, "what stood before cannot be seen")
	require.Nil(t, judged[1].Turn)
	require.NotNil(t, judged[2].Turn)
	require.Equal(t, "bye", first(4))
}

func TestWithoutWhatWasAskedNothingIsGuessed(t *testing.T) {
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
		turn.At = time.Unix(int64(i), 0)
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

func TestAgreementOfKeys(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	// Each key of the message is of two turns, but only one turn has them all.
	mine := content(thinking("same thought", "s1"), text("same text"))
	l.Record(t.Context(), answer(alice, opus, content(thinking("same thought", "s2"), text("other text"))))
	l.Record(t.Context(), answer(alice, opus, content(thinking("other thought", "s3"), text("same text"))))
	l.Record(t.Context(), answer(alice, opus, mine))
	got := replayOne(t, l, alice, opus, content(unsigned("same thought"), text("same text")))
	require.NotNil(t, got.Turn)
	require.Equal(t, mine, string(got.Turn.Content))
	require.Equal(t, ledger.Altered, got.States[0])
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
			require.Equal(t, i == at, got.Turn != nil)
			if i != at {
				require.Equal(t, ledger.Unknown, got.States[0])
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
		return l.Judge(t.Context(), ledger.Request{
			Scope: s, Minted: true, Target: opus, Dialect: wire.Messages, Outline: outline(t, user(`"hi"`), assistant(c)),
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

	// What was refused in one such request is remembered in the next.
	key := ledger.BlockKey([]byte(thinking("First,\nI look.", "sigA")))
	bare := ledger.BlockKey([]byte(unsigned("then")))
	first := minted
	first.Conversation = "minted before"
	l.Refuse(t.Context(), first, opus, []string{key, bare})
	got := judge(minted, storedTurn)
	require.Equal(t, ledger.Refused, got.States[0])
	require.Equal(t, ledger.Proven, got.States[4], "a bare text may be another's")
	require.Equal(t, ledger.Proven, replayOne(t, l, alice, opus, storedTurn).States[0],
		"a conversation has its own refusals")
}
