package conversation_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/proxy/conversation"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// chat is a conversation that a test leads: requests go through Continue, answers
// are recorded where it says.
type chat struct {
	require.TestingT
	t      *testing.T
	ledger *ledger.Ledger
	scope  ledger.Scope
	origin ledger.Origin
	now    time.Time

	ephemeral string // of the requests that follow
}

func newChat(t *testing.T, c ledger.Config) *chat {
	k := &chat{TestingT: t, t: t, now: time.Unix(1_800_000_000, 0), scope: ledger.Scope{Route: "main", Conversation: "c1"},
		origin: ledger.Origin{Backend: "claude", Vendor: "anthropic", Model: "opus"}}
	c.Now = func() time.Time { return k.now }
	k.ledger = ledger.New(c)
	return k
}

func user(text string) string { return `{"role":"user","content":` + string(wire.Quote(text)) + `}` }

func blocks(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

func text(s string) string { return `{"type":"text","text":` + string(wire.Quote(s)) + `}` }

func thought(s string) string {
	return fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":"sig of %s"}`, wire.Quote(s), s)
}

func call(id string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":"toolu_%020s","name":"look","input":{"q":1}}`, id)
}

func result(id, content string) string {
	return fmt.Sprintf(`{"type":"tool_result","tool_use_id":"toolu_%020s","content":%s}`, id, wire.Quote(content))
}

func said(s string) string { return blocks("assistant", text(s)) }

func (k *chat) outline(messages ...string) *wire.Outline {
	o, err := wire.ReadOutline([]byte(`{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`))
	require.NoError(k, err)
	return o
}

func (k *chat) replay(messages ...string) *conversation.Continued {
	c, err := conversation.Continue(k.t.Context(), k.ledger, k.scope, wire.Messages, k.outline(messages...),
		k.ephemeral)
	require.NoError(k, err)
	return c
}

// ask is a request with its answer; it gives the history that follows.
func (k *chat) ask(history []string, answer ...string) []string {
	c := k.replay(history...)
	k.now = k.now.Add(time.Second)
	k.ledger.Record(k.t.Context(), ledger.Turn{
		Scope: k.scope, Origin: k.origin, Dialect: wire.Messages, Content: []byte("[" + strings.Join(answer, ",") + "]"),
		Time: k.now, Place: c.Place(),
	})
	return append(history[:len(history):len(history)], blocks("assistant", answer...))
}

// sent is the messages of a request as it leaves.
func sent(c *conversation.Continued) string {
	_, rest, _ := strings.Cut(string(c.Outline.Body), `"messages":[`)
	return strings.TrimSuffix(rest, "]}")
}

func join(messages ...string) string { return strings.Join(messages, ",") }

// toolTurn is a dialogue of two turns, the first with a round of tools.
func (k *chat) toolTurn() []string {
	h := k.ask([]string{user("What is it? \n")}, thought("t1"), text("I look."), call("1"))
	h = k.ask(append(h, blocks("user", result("1", "found"))), thought("t2"), text("It is so."))
	return append(h, user("And then?"))
}

func TestAFaithfulReplayIsLeftAsItIs(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.toolTurn()
	o := k.outline(h...)
	c, err := conversation.Continue(t.Context(), k.ledger, k.scope, wire.Messages, o, "")
	require.NoError(t, err)
	require.Same(t, o, c.Outline)
	require.Equal(t, conversation.Hit, c.Outcome)
	require.False(t, c.Moved)
	require.Len(t, c.Nodes, 2)
}

func TestWhatAReplayLacksOrChangedIsPutBack(t *testing.T) {
	visible := blocks("assistant", text("I look."), call("1"))
	for name, shown := range map[string][]string{
		"a round of tools is missing": {user("What is it? \n"), said("It is so."), user("And then?")},
		"texts are trimmed": {user("What is it?"), blocks("assistant", thought("t1"), text("I look."), call("1")),
			blocks("user", result("1", "found")), said("It is so."), user("And then?")},
		"a text is a block": {blocks("user", text("What is it?")), visible, blocks("user", result("1", "found")),
			said("It is so."), user("And then?")},
		"a result is missing": {user("What is it? \n"), visible, said("It is so."), user("And then?")},
		"a result came twice": {
			user("What is it? \n"), visible, blocks("user", result("1", "found"), result("1", "found")), said("It is so."),
			user("And then?"),
		},
		"the calls are missing": {user("What is it? \n"), said("I look."), said("It is so."), user("And then?")},
		"line ends are others": {user("What is it? \r\n"), visible, blocks("user", result("1", "found\r\n")),
			said("It is so.\r\n"), user("And then?")},
		"a result is an array of text": {
			user("What is it? \n"), visible,
			blocks("user",
				`{"type":"tool_result","tool_use_id":"toolu_00000000000000000001","content":[{"type":"text","text":"found"}]}`),
			said("It is so."), user("And then?"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newChat(t, ledger.Config{})
			k.toolTurn()
			c := k.replay(shown...)
			require.Equal(t, conversation.Hit, c.Outcome)
			require.False(t, c.Moved)
			require.Positive(t, c.Rebuilt)
			messages := c.Outline.Messages
			require.Len(t, messages, 5)
			require.Equal(t, user("What is it? \n"), string(c.Outline.Body[messages[0].Start:messages[0].End]))
			require.Contains(t, string(c.Outline.Body[messages[1].Start:messages[1].End]), call("1"))
			require.Equal(t, blocks("user", result("1", "found")), string(c.Outline.Body[messages[2].Start:messages[2].End]))
			require.Equal(t, "[{\"role\":\"user\",\"content\":\"And then?\"}]", string(c.Place().Input))
			require.NotNil(t, c.Nodes[1])
			require.NotNil(t, c.Nodes[3])
		})
	}
}

// Clients trim each block of a text, or join blocks.
func TestTextsInBlocks(t *testing.T) {
	k := newChat(t, ledger.Config{})
	asked := blocks("user", text("One "), text("two"))
	k.ask([]string{asked}, text("1"))
	for _, shown := range []string{user("One two"), blocks("user", text("One"), text("two")),
		blocks("user", text(" One "), text("two\r\n"))} {
		require.Equal(t, join(asked, said("1"), user("Next")), sent(k.replay(shown, said("1"), user("Next"))))
	}
}

// What the user said beside a result is no part of a round: without it the client
// shows something else.
func TestWhatWasSaidBesideAResultIsNotPutIn(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{user("Go")}, thought("t1"), call("1"))
	k.ask(append(h, blocks("user", result("1", "found"), text("Stop that!"))), text("Done."))
	shown := []string{user("Go"), said("Done."), user("Next")}
	c := k.replay(shown...)
	require.Equal(t, conversation.Missed, c.Outcome)
	require.Equal(t, join(shown...), sent(c))
}

// A result that the user edited is another result: it is sent as it is shown.
func TestAnEditedResultStays(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.toolTurn()
	h[2] = blocks("user", result("1", "edited"))
	c := k.replay(h...)
	require.True(t, c.Moved)
	require.Equal(t, join(h...), sent(c))
}

// A client says "yes" five times, and so does the model. Which answer is which is
// told by its place, and the thinking of each is its own.
func TestYesFiveTimes(t *testing.T) {
	k := newChat(t, ledger.Config{})
	var h, bare []string
	for i := range 5 {
		h = k.ask(append(h, user("yes")), thought(fmt.Sprint("t", i)), text("yes"))
		bare = append(bare, user("yes"), said("yes"))
	}
	c := k.replay(append(bare, user("yes"))...)
	require.Equal(t, conversation.Hit, c.Outcome)
	for i := range 5 {
		require.Contains(t, string(c.Nodes[2*i+1].Turn().Content), fmt.Sprintf("sig of t%d", i))
	}
}

// Of two branches that say the same the one with the fewest gaps counts, then the
// newest; a tool id that only one has settles it.
func TestEqualBranches(t *testing.T) {
	k := newChat(t, ledger.Config{})
	k.ask([]string{user("Go")}, thought("old"), text("yes"))
	newer := k.ask([]string{user("Go")}, thought("new"), text("yes"))
	h := k.ask([]string{user("Go")}, thought("a"), call("1"))
	k.ask(append(h, blocks("user", result("1", "found"))), text("yes"))
	c := k.replay(user("Go"), said("yes"), user("And?"))
	require.Equal(t, join(user("Go"), said("yes"), user("And?")), sent(c))
	require.Contains(t, string(c.Nodes[1].Turn().Content), "sig of new")
	require.Len(t, newer, 2)

	k.ask([]string{user("Go")}, thought("b"), call("2"))
	c = k.replay(user("Go"), blocks("assistant", call("1")), blocks("user", result("1", "other")))
	require.Contains(t, string(c.Nodes[1].Turn().Content), "sig of a")
}

func TestRegenerations(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{user("One")}, thought("t1"), text("1"))
	k.ask(append(h, user("Two")), thought("t2"), text("2"))
	c := k.replay(append(h, user("Two"))...)
	require.Equal(t, conversation.Hit, c.Outcome)
	require.True(t, c.Branch)
	require.False(t, c.Moved)
}

// What the user edited is sent, and what came before is not what it was.
func TestEdits(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{user("One")}, thought("t1"), text("1"))
	h = k.ask(append(h, user("Two")), thought("t2"), text("2"))
	edited := []string{user("Something else"), h[1], h[2], h[3], user("Three")}
	c := k.replay(edited...)
	require.Equal(t, conversation.Forked, c.Outcome)
	require.True(t, c.Moved)
	require.Equal(t, join(edited...), sent(c))
	require.Equal(t, "["+join(edited...)+"]", string(c.Place().Input), "the branch stands by itself")
	require.Empty(t, c.Place().Parent)

	h = k.ask(edited, thought("t3"), text("3"))
	c = k.replay(append(h, user("Four"))...)
	require.Equal(t, conversation.Hit, c.Outcome, "the edited one is a branch now")
	require.False(t, c.Moved)

	for _, missed := range [][]string{{user("One"), said("no"), user("Two")},
		{user("Nobody asked this"), said("1"), user("Two")}} {
		c = k.replay(missed...)
		require.Equal(t, conversation.Missed, c.Outcome)
		require.True(t, c.Moved)
		require.Empty(t, c.Nodes, "two may say the same in answer to different things")
	}
}

// A client that sums up what is long ago keeps the newest turns as they were.
func TestCompaction(t *testing.T) {
	k := newChat(t, ledger.Config{})
	var h []string
	for i := range 6 {
		h = k.ask(append(h, user(fmt.Sprint("question ", i))), thought(fmt.Sprint("t", i)), text(fmt.Sprint("answer ", i)))
	}
	compacted := append([]string{user("Summary: we talked."), said("I see.")}, h[6:]...)
	c := k.replay(append(compacted, user("Go on"))...)
	require.Equal(t, conversation.Forked, c.Outcome)
	require.True(t, c.Moved)
	require.Len(t, c.Nodes, 3)
	h = k.ask(append(compacted, user("Go on")), text("on"))
	c = k.replay(append(h, user("More"))...)
	require.Equal(t, conversation.Hit, c.Outcome)
	require.False(t, c.Moved)
}

// A window that slides shows less of the front each time. That moves what stood
// before the newest turn, a window that stays does not.
func TestWindows(t *testing.T) {
	k := newChat(t, ledger.Config{})
	var h []string
	for i := range 4 {
		h = k.ask(append(h, user(fmt.Sprint("question ", i))), thought(fmt.Sprint("t", i)), text(fmt.Sprint("answer ", i)))
	}
	window := append(h[4:len(h):len(h)], user("question 4"))
	c := k.replay(window...)
	require.Equal(t, conversation.Hit, c.Outcome)
	require.True(t, c.Moved)
	require.Equal(t, 4, c.Place().Front)
	require.Equal(t, join(window...), sent(c))
	h = k.ask(window, thought("t4"), text("answer 4"))
	c = k.replay(append(h, user("question 5"))...)
	require.False(t, c.Moved)
	require.Equal(t, 4, c.Place().Front)
	c = k.replay(append(h[1:], user("question 5"))...)
	require.True(t, c.Moved, "it begins with an answer now")
	require.Equal(t, 5, c.Place().Front)
}

// A conversation that is longer than what is kept of it goes on.
func TestOurOwnLimit(t *testing.T) {
	k := newChat(t, ledger.Config{ScopeTurns: 3})
	var h []string
	for i := range 10 {
		h = k.ask(append(h, user(fmt.Sprint("question ", i))), thought(fmt.Sprint("t", i)), text(fmt.Sprint("answer ", i)))
	}
	c := k.replay(append(h, user("more"))...)
	require.Equal(t, conversation.Hit, c.Outcome)
	require.False(t, c.Moved)
	require.Len(t, c.Nodes, 3)
	require.Equal(t, 20, c.Place().Depth)
	require.Equal(t, `[`+user("more")+`]`, string(c.Place().Input))
	h[0] = user("edited")
	c = k.replay(append(h, user("more"))...)
	require.Equal(t, conversation.Hit, c.Outcome, "nobody remembers what is edited")
	c = k.replay(append(h[2:], user("more"))...)
	require.True(t, c.Moved)
}

// The markers of the cache are the request's own: they are not kept, and move with
// the blocks that they are on.
func TestCacheMarkers(t *testing.T) {
	const mark = `,"cache_control":{"type":"ephemeral"}}`
	marked := func(b string) string { return strings.TrimSuffix(b, "}") + mark }
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{blocks("user", text("first"), marked(text("One ")))}, text("1"))
	require.Equal(t, `[`+blocks("user", text("first"), text("One "))+`]`, string(k.placeOf(h[1])))

	c := k.replay(blocks("user", text("first"), text("One ")), said("1"), blocks("user", marked(text("Two"))))
	require.Zero(t, c.Rebuilt)
	require.Equal(t, `[`+blocks("user", text("Two"))+`]`, string(c.Place().Input))
	c = k.replay(blocks("user", text("first"), marked(text("One"))), said("1"), user("Two"))
	require.Equal(t, join(blocks("user", text("first"), marked(text("One "))), said("1"), user("Two")), sent(c))
	inner := `{"type":"tool_result","tool_use_id":"x","content":[` + marked(text("r")) + `]` + mark
	c = k.replay(blocks("user", inner, text("a")))
	require.NotContains(t, string(c.Place().Input), "cache_control")
}

// placeOf is the input of the newest turn that a message shows.
func (k *chat) placeOf(message string) []byte {
	o := k.outline(message)
	shown := k.ledger.Read(o, wire.Messages)
	return slices.Collect(k.ledger.Conversation(k.scope, shown).Showing(shown[0].Answer))[0].Turn().Place.Input
}

// System messages in front are the request's own. One in between was said there.
func TestSystemMessages(t *testing.T) {
	system := func(s string) string { return `{"role":"system","content":"` + s + `"}` }
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{system("It is noon."), user("One ")}, text("1"))
	c := k.replay(system("It is one."), system("Be brief."), user("One"), h[2], user("Two"), system("Remember."))
	require.Equal(t, conversation.Hit, c.Outcome)
	require.False(t, c.Moved)
	require.Equal(t, join(system("It is one."), system("Be brief."), user("One "), h[2], user("Two"), system("Remember.")),
		sent(c))
	h = k.ask([]string{user("One "), h[2], user("Two"), system("Remember.")}, text("2"))
	c = k.replay(user("One "), h[1], user("Two"), h[4], user("Three"))
	require.Equal(t, `[`+join(user("Two"), h[4], user("Three"))+`]`, string(c.Place().Input),
		"what it answered is not shown any more")
}

// Ids that a client gives to calls by itself lead to the calls by place, and its
// results keep its names.
func TestIdsOfTheClient(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{user("Go")}, thought("t"), call("1"), call("2"))
	mine := strings.NewReplacer(fmt.Sprintf("toolu_%020s", "1"), "mine_1", fmt.Sprintf("toolu_%020s", "2"), "mine_2")
	shown := []string{
		h[0], mine.Replace(h[1]), blocks("user", mine.Replace(result("1", "a")), mine.Replace(result("2", "b"))),
	}
	c := k.replay(shown...)
	require.Equal(t, join(shown...), sent(c), "what is shown agrees with itself")
	require.Equal(t, `[`+blocks("user", result("1", "a"), result("2", "b"))+`]`, string(c.Place().Input),
		"what is kept has the vendor's")
	h = k.ask(shown, text("done"))
	other := strings.NewReplacer("mine_", "other_")
	c = k.replay(h[0], other.Replace(h[1]), other.Replace(blocks("user", mine.Replace(result("1", "a\r")))), h[3],
		user("Next"))
	require.Contains(t, sent(c),
		other.Replace(blocks("user", mine.Replace(result("1", "a")), mine.Replace(result("2", "b")))))
}

// Titles and subagents under the same id are branches. Those that were not gone on
// with for longest are forgotten first.
func TestBranches(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{user("main")}, text("first"))
	for i := range 20 {
		k.ask([]string{user(fmt.Sprint("title ", i))}, text(fmt.Sprint("a title ", i)))
		h = k.ask(append(h, user(fmt.Sprint("on ", i))), text(fmt.Sprint("went on ", i)))
	}
	require.Equal(t, conversation.Hit, k.replay(append(h, user("more"))...).Outcome)
	outcome := func(i int) conversation.Outcome {
		return k.replay(user(fmt.Sprint("title ", i)), said(fmt.Sprint("a title ", i)), user("more")).Outcome
	}
	require.Equal(t, conversation.Missed, outcome(0))
	require.Equal(t, conversation.Missed, outcome(4))
	require.Equal(t, conversation.Hit, outcome(5))
	require.Equal(t, conversation.Hit, outcome(19))
	require.Equal(t, 21+15, k.ledger.Conversation(k.scope, nil).Size)
}

// Nothing is known of a conversation that this gateway never saw, or that was
// erased or ran out. Its history is taken over as the client shows it.
func TestAdoption(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := []string{user("One"), said("1"), user("Two")}
	require.Equal(t, conversation.NotKnown, k.replay(h...).Outcome)
	h = k.ask(h, thought("t"), text("2"))
	c := k.replay(user("One\r\n"), said("1"), user("Two"), said("2"), user("Three"))
	require.Equal(t, conversation.Hit, c.Outcome)
	require.False(t, c.Moved)
	require.Equal(t, join(user("One"), said("1"), user("Two"), said("2"), user("Three")), sent(c))

	k.scope.Conversation = "c2"
	h2 := k.ask([]string{user("Look"), blocks("assistant", call("1")), blocks("user", result("1", "found"))},
		text("Found."))
	c = k.replay(user("Look"), said("Found."), user("More"))
	require.Equal(t, join(append(h2[:3:3], said("Found."), user("More"))...), sent(c),
		"rounds that were taken over come back, too")
	k.scope.Conversation = "c1"

	k.now = k.now.Add(25 * time.Hour)
	require.Equal(t, conversation.Expired, k.replay(append(h, user("Three"))...).Outcome)
}

// What precedes an answer is not what it was where the newest message had ephemeral parts.
func TestEphemeralParts(t *testing.T) {
	k := newChat(t, ledger.Config{})
	k.ephemeral = "print"
	h := k.ask([]string{user("One")}, thought("t1"), call("1"))
	h = append(h, blocks("user", result("1", "found")))
	c := k.replay(h...)
	require.Equal(t, "print", c.Place().Ephemeral)
	require.False(t, c.MovedLoop, "the same parts stand before the tool loop")
	require.Zero(t, c.MovedBefore)
	k.ephemeral = ""
	require.True(t, k.replay(h...).MovedLoop, "they are gone in the middle of it")
	k.ephemeral = "print"
	h = k.ask(h, thought("t2"), text("1"))

	for _, k.ephemeral = range []string{"", "another"} {
		c = k.replay(append(h, user("Two"))...)
		require.Equal(t, conversation.Hit, c.Outcome)
		require.False(t, c.Moved)
		require.Equal(t, 4, c.MovedBefore, "both answers")
	}
	k.ephemeral = ""
	h = k.ask(append(h, user("Two")), thought("t3"), text("2"))
	c = k.replay(append(h, user("Three"))...)
	require.Equal(t, 4, c.MovedBefore, "what the third followed stands there still")

	k.ephemeral = "print"
	h[5] = said("Another answer.")
	k.scope.Conversation = "c2"
	c = k.replay(append(h, user("Three"))...)
	require.Equal(t, conversation.NotKnown, c.Outcome)
	require.Equal(t, 6, c.MovedBefore, "nothing is known of what was said")
}

// What was said in another dialect is compared, and left as the client shows it.
func TestAnotherDialect(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.ask([]string{user("One ")}, thought("t"), text("1"))
	o := k.outline(user("One"), `{"role":"assistant","content":"1"}`, user("Two"))
	c, err := conversation.Continue(t.Context(), k.ledger, k.scope, wire.Chat, o, "")
	require.NoError(t, err)
	require.Equal(t, conversation.Unused, c.Outcome)
	require.Same(t, o, c.Outline)
	require.Equal(t, 1, c.GaveUp, "the space after the question")
	require.Len(t, h, 2)
}

// Requests only read; answers only add. So they may run at once.
func TestRequestsAtOnce(t *testing.T) {
	k := newChat(t, ledger.Config{})
	h := k.toolTurn()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 50 {
				c, err := conversation.Continue(t.Context(), k.ledger, k.scope, wire.Messages, k.outline(h...), "")
				require.NoError(t, err)
				require.Equal(t, conversation.Hit, c.Outcome)
				k.ledger.Record(t.Context(), ledger.Turn{
					Scope: k.scope, Origin: k.origin, Dialect: wire.Messages, Content: []byte("[" + text(fmt.Sprint(i)) + "]"),
					Place: c.Place(),
				})
			}
		})
	}
	all.Wait()
}

// A result without its call gets the answer that made the call, at any place. An answer that the client shows in
// another form, and ids that several turns have or that can recur, stay as they are.
func TestCallsThatAreNotShown(t *testing.T) {
	whole := blocks("assistant", text("I look."), call("1"), call("2"))
	results, so := blocks("user", result("1", "one"), result("2", "two")), said("It is so.")
	for name, c := range map[string]struct {
		shown, sent []string
		outcome     conversation.Outcome
	}{
		"a window": {[]string{results, so, user("Next")}, []string{whole, results, so, user("Next")},
			conversation.Hit},
		"a window in a loop": {[]string{results}, []string{user("Go"), whole, results}, conversation.Hit},
		"results and a question": {[]string{results, user("Next")}, []string{user("Go"), whole, results, user("Next")},
			conversation.Hit},
		"behind a summary": {[]string{user("A summary."), results, so, user("Next")},
			[]string{user("A summary."), whole, results, so, user("Next")}, conversation.Forked},
		"the call was deleted": {[]string{user("Go"), results, so, user("Next")},
			[]string{user("Go"), whole, results, so, user("Next")}, conversation.Hit},
		"one result of two": {[]string{blocks("user", result("2", "two")), so, user("Next")},
			[]string{whole, results, so, user("Next")}, conversation.Hit},
		"the end of an answer": {[]string{blocks("assistant", call("2")), results, so, user("Next")},
			[]string{whole, results, so, user("Next")}, conversation.Hit},
		"its calls alone": {[]string{blocks("assistant", call("1"), call("2")), results},
			[]string{user("Go"), whole, results}, conversation.Hit},
		"a call and its result were deleted": {
			[]string{blocks("assistant", call("2")), blocks("user", result("2", "two")), so, user("Next")}, nil,
			conversation.Forked},
		"a call was deleted, and not its result": {[]string{user("Go"), blocks("assistant", text("I look."), call("2")),
			results, so, user("Next")}, nil, conversation.Forked},
		"an answer was edited": {[]string{user("Go"), said("I edit."), results, so, user("Next")}, nil, conversation.Forked},
		"a text behind thinking was deleted": {[]string{blocks("assistant", thought("t1"), call("1"), call("2")), results, so,
			user("Next")}, nil, conversation.Forked},
		"an unknown id": {[]string{blocks("user", result("9", "one")), so, user("Next")}, nil, conversation.Unused},
	} {
		t.Run(name, func(t *testing.T) {
			k := newChat(t, ledger.Config{})
			h := k.ask([]string{user("Go")}, thought("t1"), text("I look."), call("1"), call("2"))
			k.ask(append(h, results), text("It is so."))
			o, err := conversation.Extend(t.Context(), k.ledger, k.scope, wire.Messages, k.outline(c.shown...), false)
			require.NoError(t, err)
			got, err := conversation.Continue(t.Context(), k.ledger, k.scope, wire.Messages, o, "")
			require.NoError(t, err)
			if c.sent == nil {
				c.sent = c.shown
			}
			require.Equal(t, join(c.sent...), sent(got))
			require.Equal(t, c.outcome, got.Outcome)
		})
	}
}
