package thinking

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/conversation"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

var (
	claude = ledger.Origin{Backend: "claude", Vendor: "anthropic", Model: "opus"}
	glm    = ledger.Origin{Backend: "glm", Vendor: "glm", Model: "glm-5"}
	mirror = ledger.Origin{Backend: "mirror", Vendor: "anthropic", Model: "opus"} // the same vendor elsewhere
)

// talk is a conversation through the gateway, with a real ledger.
type talk struct {
	*testing.T
	ledger  *ledger.Ledger
	scope   ledger.Scope
	dialect wire.Dialect
	policy  Policy
	head    string // members of each request before its messages
}

func newTalk(t *testing.T, d wire.Dialect) *talk {
	l := ledger.New(ledger.Config{})
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return &talk{T: t, ledger: l, scope: ledger.Scope{Tenant: "t", Route: "main", Conversation: "c"}, dialect: d,
		head: `"model":"m"`}
}

func (k *talk) outline(messages ...string) *wire.Outline {
	return outline(k, `{`+k.head+`, "messages":[`+strings.Join(messages, ", ")+`]}`)
}

// request is these messages as their conversation makes them.
func (k *talk) request(to ledger.Origin, messages ...string) ledger.Request {
	c := k.continued(messages...)
	return ledger.Request{Scope: k.scope, Target: to, Dialect: k.dialect, Outline: c.Outline, Nodes: c.Nodes}
}

func (k *talk) continued(messages ...string) *conversation.Continued {
	c, err := conversation.Continue(k.Context(), k.ledger, k.scope, k.dialect, k.outline(messages...), "")
	require.NoError(k, err)
	return c
}

func (k *talk) begin(to ledger.Origin, messages ...string) *Session {
	return Begin(k.Context(), k.ledger, k.request(to, messages...), k.policy)
}

// sends is what of these messages reaches a backend.
func (k *talk) sends(to ledger.Origin, messages ...string) (out []string, r Report) {
	s := k.begin(to, messages...)
	body, r := s.Filter()
	o := s.request.Outline
	sent := outline(k, string(body))
	require.Len(k, sent.Messages, len(o.Messages))
	if len(out) == 0 && string(body) == string(o.Body) {
		require.Same(k, &o.Body[0], &body[0], "the identical slice")
	}
	for _, m := range sent.Messages {
		out = append(out, string(sent.Raw(m.Span)))
	}
	return out, r
}

// answers lets a backend answer these messages, and records it.
func (k *talk) answers(by ledger.Origin, answer string, messages ...string) []ledger.ToolID {
	s := k.begin(by, messages...)
	body, _ := s.Filter()
	o := NewObserver(k.dialect, false)
	if k.dialect == wire.Chat {
		answer = `{"choices":[{"message":` + answer + `,"finish_reason":"stop"}]}`
	} else {
		answer = `{"content":` + gjson.Get(answer, "content").Raw + `}`
	}
	hear(o, []byte(answer))
	a, ok := o.Answer()
	require.True(k, ok)
	s.Register(k.Context(), outline(k, string(body)), a, k.continued(messages...).Place())
	return a.Tools
}

func thought(n string) string {
	return `{"type":"thinking","thinking":"think ` + n + `","signature":"signature` + n + `"}`
}
func says(n string) string    { return `{"type":"text","text":"say ` + n + `"}` }
func turn(n string) string    { return assistant(thought(n), says(n)) }
func user(text string) string { return `{"role":"user","content":"` + text + `"}` }
func uses(id, q string) string {
	return `{"type":"tool_use","id":"` + id + `","name":"look","input":{"q":"` + q + `"}}`
}
func results(id string) string {
	return `{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":"found"}]}`
}

func TestFilterLeavesWhatIsProven(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	k.answers(claude, turn("2"), user("a"), turn("1"), user("b"))
	history := []string{user("a"), turn("1"), user("b"), turn("2"), user("c")}
	out, r := k.sends(claude, history...)
	require.Equal(t, history, out)
	require.Equal(t, Report{Unchanged: 2}, r)
	require.False(t, r.Changed())
}

// A client that shows no thinking, or garbles it, gets the turns as they were.
func TestFilterPutsWholeTurnsBack(t *testing.T) {
	interleaved := assistant(thought("1"), says("1"), thought("2"), uses("toolu_0123456789abcdef", "x"))
	for name, shown := range map[string]string{
		"no thinking": assistant(says("1"), uses("toolu_0123456789abcdef", "x")),
		"merged": assistant(`{"type":"thinking","thinking":"think 1think 2","signature":"signature2"}`, says("1"),
			uses("toolu_0123456789abcdef", "x")),
		"reordered": assistant(thought("2"), thought("1"), says("1"), uses("toolu_0123456789abcdef", "x")),
		"doubled": assistant(thought("1"), thought("1"), says("1"), thought("2"),
			uses("toolu_0123456789abcdef", "x")),
		"one dropped": assistant(says("1"), thought("2"), uses("toolu_0123456789abcdef", "x")),
		"no signature": assistant(`{"type":"thinking","thinking":"think 1","signature":""}`, says("1"),
			uses("toolu_0123456789abcdef", "x")),
		"another's added": assistant(`{"type":"thinking","thinking":"by glm","signature":"signatureglm"}`, says("1"),
			uses("toolu_0123456789abcdef", "x")),
		"blanks around": assistant(`{"type":"text","text":"say 1\n"}`, uses("toolu_0123456789abcdef", "x")),
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t, wire.Messages)
			k.answers(glm, assistant(`{"type":"thinking","thinking":"by glm","signature":"signatureglm"}`, says("glm")),
				user("z"))
			k.answers(claude, interleaved, user("a"))
			out, r := k.sends(claude, user("a"), shown, results("toolu_0123456789abcdef"))
			require.Equal(t, []string{user("a"), interleaved, results("toolu_0123456789abcdef")}, out)
			require.Equal(t, 1, r.PutBack)
		})
	}
}

func TestFilterPutsBackWhereContentIsAString(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	out, _ := k.sends(claude, user("a"), `{"content" : "say 1", "role":"assistant"}`, user("b"))
	require.Equal(t, `{"content" : [`+thought("1")+`,`+says("1")+`], "role":"assistant"}`, out[1])
}

func TestFilterKeepsCacheMarkers(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, assistant(thought("1"), says("1"), uses("toolu_0123456789abcdef", "x")), user("a"))
	mark := `,"cache_control":{"type":"ephemeral", "ttl":"1h"}}`
	marked := strings.TrimSuffix(uses("toolu_0123456789abcdef", "x"), "}") + mark
	out, _ := k.sends(claude, user("a"), assistant(says("1"), marked), results("toolu_0123456789abcdef"))
	require.Equal(t, assistant(thought("1"), says("1"), marked), out[1])

	same := []string{user("a"), assistant(thought("1"), says("1"), marked), results("toolu_0123456789abcdef")}
	out, _ = k.sends(claude, same...)
	require.Equal(t, same, out, "a marker alone is no change")
}

// A → B → A: what A thought before comes back to A, and never to B.
func TestFilterSwitchesVendors(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	out, r := k.sends(glm, user("a"), turn("1"), user("b"))
	require.Equal(t, assistant(says("1")), out[1])
	require.Equal(t, Report{Foreign: 1}, r)
	k.answers(glm, turn("2"), user("a"), turn("1"), user("b"))

	history := []string{user("a"), turn("1"), user("b"), turn("2"), user("c")}
	out, r = k.sends(claude, history...)
	require.Equal(t, []string{user("a"), turn("1"), user("b"), assistant(says("2")), user("c")}, out)
	require.Equal(t, Report{Unchanged: 1, Foreign: 1}, r)
	require.Equal(t, "[thinking_filter] kept=1 put_back=0 into_text=0 removed=1 foreign=1", r.String())

	k.answers(claude, turn("3"), history...)
	out, _ = k.sends(claude, append(history, turn("3"), user("d"))...)
	require.Equal(t, []string{user("a"), turn("1"), user("b"), assistant(says("2")), user("c"), turn("3"), user("d")}, out)
	out, _ = k.sends(glm, append(history, turn("3"), user("d"))...)
	require.Equal(t, []string{user("a"), assistant(says("1")), user("b"), turn("2"), user("c"), assistant(says("3")),
		user("d")}, out)
}

// What the user changed has no thinking any more, nor has anything before it.
func TestFilterEndsTheChainAtAnEdit(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	k.answers(claude, turn("2"), user("a"), turn("1"), user("b"))
	k.answers(claude, turn("3"), user("a"), turn("1"), user("b"), turn("2"), user("c"))
	edited := assistant(thought("2"), says("2, edited"))
	out, r := k.sends(claude, user("a"), turn("1"), user("b"), edited, user("c"), turn("3"), user("d"))
	require.Equal(t, []string{user("a"), assistant(says("1")), user("b"), assistant(says("2, edited")), user("c"),
		turn("3"), user("d")}, out)
	require.Equal(t, Report{Unchanged: 1, Edited: 1, Unchained: 1}, r)

	// What is older than the edit was not bound to it.
	out, _ = k.sends(claude, user("a"), turn("1"), user("b"), edited, user("c"))
	require.Equal(t, []string{user("a"), turn("1"), user("b"), assistant(says("2, edited")), user("c")}, out)
}

// A vendor that refused blocks never sees them again, whether the client shows
// them or not; others do.
func TestFilterRemovesRefused(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	k.answers(claude, turn("2"), user("a"), turn("1"), user("b"))
	history := []string{user("a"), turn("1"), user("b"), turn("2"), user("c")}

	s := k.begin(claude, history...)
	body, _ := s.Filter()
	stripped, keys := Strip(outline(t, string(body)), wire.Messages)
	require.Len(t, keys, 2)
	require.Equal(t, []string{assistant(says("1")), assistant(says("2"))}, assistants(t, stripped))
	s.Refused(t.Context(), keys, false)

	out, r := k.sends(claude, history...)
	require.Equal(t, assistant(says("1")), out[1])
	require.Equal(t, assistant(says("2")), out[3])
	require.Equal(t, Report{Refused: 2}, r)
	shown := []string{user("a"), assistant(says("1")), user("b"), assistant(says("2")), user("c")}
	out, _ = k.sends(claude, shown...)
	require.Equal(t, shown, out)
	out, _ = k.sends(mirror, history...)
	require.Equal(t, history, out, "another backend did not refuse them")

	// What was answered without them is a chain of its own.
	k.answers(claude, turn("3"), history...)
	out, _ = k.sends(claude, append(history, turn("3"), user("d"))...)
	require.Equal(t, append(shown, turn("3"), user("d")), out)
}

func assistants(t testing.TB, body []byte) (out []string) {
	o := outline(t, string(body))
	for _, m := range o.Messages {
		if m.Role == wire.RoleAssistant {
			out = append(out, string(o.Raw(m.Span)))
		}
	}
	return out
}

// A message of thinking alone must not become empty.
func TestFilterLeavesNoEmptyMessage(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, assistant(thought("1")), user("a"))
	out, _ := k.sends(glm, user("a"), assistant(thought("1")), user("b"))
	require.Equal(t, assistant(`{"type":"text","text":"(no text)"}`), out[1])
}

func TestFilterOfUnknown(t *testing.T) {
	history := []string{user("a"), turn("1"), user("b"), assistant(`{"type":"redacted_thinking","data":"xyz"}`, says("2")),
		user("c")}
	for policy, want := range map[Unproven][]string{
		"":   history,
		Lazy: history,
		Drop: {user("a"), assistant(says("1")), user("b"), assistant(says("2")), user("c")},
		Text: {user("a"), assistant(`{"type":"text","text":"<think>\nthink 1\n</think>"}`, says("1")), user("b"),
			assistant(says("2")), user("c")},
	} {
		k := newTalk(t, wire.Messages)
		k.policy.Unproven = policy
		out, r := k.sends(claude, history...)
		require.Equal(t, want, out, policy)
		require.Equal(t, 2, r.Unchanged+r.IntoText+r.Unproven)
	}
}

// Without what stood in the middle the rest is worth nothing: a leading run goes.
func TestFilterWhenTheMiddleIsForgotten(t *testing.T) {
	k := newTalk(t, wire.Messages)
	other := newTalk(t, wire.Messages)
	history := []string{user("a")}
	for i, n := range []string{"1", "2", "3"} {
		if i != 1 {
			k.answers(claude, turn(n), history...)
		}
		other.answers(claude, turn(n), history...)
		history = append(history, turn(n), user(n))
	}
	out, _ := k.sends(claude, history...)
	require.Equal(t, history, out, "the client shows it, and the chain leads to it")

	shown := []string{user("a"), assistant(says("1")), user("1"), assistant(says("2")), user("2"), assistant(says("3")),
		user("3")}
	out, r := k.sends(claude, shown...)
	require.Equal(t, turn("3"), out[5])
	require.Equal(t, []string{shown[1], shown[3]}, []string{out[1], out[3]}, "1 was bound to what is not there")
	require.Equal(t, 1, r.PutBack)
	out, _ = other.sends(claude, shown...)
	require.Equal(t, history, out)
}

// Unknown thinking and what was not there when the newest block was made go, but in the
// current tool loop the vendor decides.
func TestFilterOfUnknownOffTheChain(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	k.answers(claude, assistant(thought("3"), uses("toolu_0123456789abcdef", "x")), user("a"), turn("1"), user("b"),
		assistant(says("2")), user("c"))
	use := assistant(thought("3"), uses("toolu_0123456789abcdef", "x"))
	out, r := k.sends(claude, user("a"), turn("1"), user("b"), turn("2"), user("c"), use,
		results("toolu_0123456789abcdef"))
	require.Equal(t, []string{user("a"), turn("1"), user("b"), assistant(says("2")), user("c"), use,
		results("toolu_0123456789abcdef")}, out)
	require.Equal(t, Report{Unchanged: 2, Unchained: 1}, r)

	loop := assistant(thought("0"), uses("toolu_abcdef0123456789", "y"))
	history := []string{user("a"), turn("1"), user("b"), loop, results("toolu_abcdef0123456789"), use,
		results("toolu_0123456789abcdef")}
	out, _ = k.sends(claude, history...)
	require.Equal(t, loop, out[3])
	require.Equal(t, use, out[5])
}

// A backend that checks what a block is bound to gets none from under another
// system text.
func TestFilterWhenBound(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.head = `"model":"m","system":"one"`
	k.answers(claude, turn("1"), user("a"))
	k.head = `"model":"m","system":"two"`
	history := []string{user("a"), turn("1"), user("b")}
	out, _ := k.sends(claude, history...)
	require.Equal(t, history, out, "most backends do not mind")
	k.policy.Bound = true
	out, r := k.sends(claude, history...)
	require.Equal(t, assistant(says("1")), out[1])
	require.Equal(t, Report{Unchained: 1}, r)
	k.head = `"model":"m","system":"one"`
	out, _ = k.sends(claude, history...)
	require.Equal(t, history, out)
}

// Omitted thinking has no text, so that all of it has one hash.
func TestFilterTellsOmittedThinkingApart(t *testing.T) {
	omitted := func(n string) string {
		return assistant(`{"type":"thinking","thinking":"","signature":"signature`+n+`"}`, `{"type":"text","text":"yes"}`)
	}
	k := newTalk(t, wire.Messages)
	k.answers(claude, omitted("1"), user("a"))
	k.answers(claude, omitted("2"), user("a"), omitted("1"), user("b"))
	history := []string{user("a"), omitted("1"), user("b"), omitted("2"), user("c")}
	out, r := k.sends(claude, history...)
	require.Equal(t, history, out)
	require.Equal(t, Report{Unchanged: 2}, r)
}

// A thinking block with a text that comes in deltas is known by all of it.
func TestRegisterFromAStream(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.policy.Unproven = Drop
	for _, n := range []string{"1", "2"} {
		s := k.begin(claude, user(n))
		o := NewObserver(wire.Messages, false)
		observe(o, messageStart, opened(0, `{"type":"thinking","thinking":"","signature":""}`),
			added(0, "thinking_delta", "thinking", "think "+n),
			added(0, "signature_delta", "signature", "signature"+n), closed(0), opened(1, `{"type":"text","text":""}`),
			added(1, "text_delta", "text", "say "+n), closed(1), messageStop)
		a, ok := o.Answer()
		require.True(t, ok)
		s.Register(t.Context(), s.request.Outline, a, nil)
	}
	for _, n := range []string{"1", "2"} {
		out, r := k.sends(claude, user(n), turn(n), user("x"))
		require.Equal(t, turn(n), out[1])
		require.Equal(t, Report{Unchanged: 1}, r)
	}
}

// Requests beside the dialogue change nothing for it; nor does one that is begun
// later for one that was begun before.
func TestSessionsDoNotDisturbEachOther(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	history := []string{user("a"), turn("1"), user("b")}
	s := k.begin(claude, history...)
	k.answers(glm, assistant(says("title")), user("make a title"))
	k.begin(glm, history...).Filter()
	k.begin(glm, history...).Refused(t.Context(), s.judged[0].Keys, false)
	k.begin(claude, history...).Refused(t.Context(), s.judged[0].Keys, false)
	body, _ := s.Filter()
	require.Same(t, &s.request.Outline.Body[0], &body[0], "it goes by what was proven when it was begun")
}

// However many teammates work beside the main agent, it keeps its blocks.
func TestTeammatesDoNotDisturbTheMainAgent(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	history := []string{user("a"), turn("1"), user("b")}
	mate := *k
	mate.scope.Route = "teammate/analytic"
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			r := Look(t.Context(), k.ledger, mate.request(glm, history...))
			r.PutBack(true, 0)
			r.Register(t.Context(), r.request.Outline, Answer{Content: []byte(gjson.Get(turn("1"), "content").Raw)}, nil)
			r.Refused(t.Context(), r.judged[0].Keys, false)
		})
		wait.Go(func() {
			s := k.begin(claude, history...)
			body, report := s.Filter()
			assert.Same(t, &s.request.Outline.Body[0], &body[0])
			assert.Equal(t, Report{Unchanged: 1}, report)
		})
	}
	wait.Wait()
	out, _ := k.sends(claude, history...)
	require.Equal(t, history, out)
}

// An answer that broke off is proven by what was signed of it, and never goes back
// as a turn.
func TestRegisterACutAnswer(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.policy.Unproven = Drop
	s := k.begin(claude, user("a"))
	o := NewObserver(wire.Messages, false)
	observe(o, messageStart, opened(0, thought("1")), closed(0), opened(1, `{"type":"text","text":""}`),
		added(1, "text_delta", "text", "say"))
	a, ok := o.Answer()
	require.True(t, ok)
	s.Register(t.Context(), s.request.Outline, a, nil)
	shown := []string{user("a"), assistant(thought("1"), `{"type":"text","text":"say"}`), user("b")}
	out, _ := k.sends(claude, shown...)
	require.Equal(t, shown, out)
	out, r := k.sends(claude, user("a"), assistant(`{"type":"text","text":"say"}`), user("b"))
	require.Equal(t, assistant(`{"type":"text","text":"say"}`), out[1])
	require.False(t, r.Changed())
}

func TestFilterTranslatesToolIDs(t *testing.T) {
	k := newTalk(t, wire.Messages)
	vendor := assistant(thought("1"), uses("look:0", "x"), uses("look:1", "y"))
	ids := k.answers(claude, vendor, user("a"))
	require.Len(t, ids, 2)
	client := func(one, two string) []string {
		return []string{user("a"), assistant(thought("1"), uses(one, "x"), uses(two, "y")),
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + two + `"},{"type":"text","text":"` + one +
				`"},{"type":"tool_result","tool_use_id":"` + one + `"}]}`}
	}
	for name, shown := range map[string][]string{
		"as given":            client(ids[0].Client, ids[1].Client),
		"changed by a client": client("mine_1", "mine_2"),
		"changed, no thinking": {user("a"), assistant(uses("mine_1", "x"), uses("mine_2", "y")),
			client("mine_1", "mine_2")[2]},
	} {
		out, _ := k.sends(claude, shown...)
		require.Equal(t, vendor, out[1], name)
		require.Equal(t, "look:1", gjson.Get(out[2], "content.0.tool_use_id").Str, name)
		require.Equal(t, "look:0", gjson.Get(out[2], "content.2.tool_use_id").Str, name)
		require.Equal(t, gjson.Get(shown[2], "content.1").Raw, gjson.Get(out[2], "content.1").Raw)

		out, _ = k.sends(mirror, shown...)
		require.Equal(t, gjson.Get(shown[1], "content.#.id").Raw, gjson.Get(out[1], "content.#.id").Raw,
			"%s: to it these ids mean nothing", name)
		require.Equal(t, thought("1"), gjson.Get(out[1], "content.0").Raw, name)
		require.Equal(t, shown[2], out[2])

		out, _ = k.sends(glm, shown...)
		require.Equal(t, shown[2], out[2], name)
	}
}

// An id that comes again in a later turn belongs to the results behind it.
func TestFilterTranslatesIDsByTurn(t *testing.T) {
	k := newTalk(t, wire.Messages)
	one := k.answers(claude, assistant(uses("look:0", "x")), user("a"))[0]
	history := []string{user("a"), assistant(uses(one.Client, "x")), results(one.Client)}
	two := k.answers(claude, assistant(uses("look:0", "z")), history...)[0]
	require.NotEqual(t, one.Client, two.Client)
	out, _ := k.sends(claude, append(history, assistant(uses(two.Client, "z")), results(two.Client))...)
	require.Equal(t, []string{user("a"), assistant(uses("look:0", "x")), results("look:0"), assistant(uses("look:0", "z")),
		results("look:0")}, out)
}

func TestFilterOfChat(t *testing.T) {
	k := newTalk(t, wire.Chat)
	stored :=
		`{"role":"assistant","content":"","reasoning_content":"hm","refusal":null,"tool_calls":[{"index":0,"id":"f:0","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"},"extra_content":{"google":{"thought_signature":"sig"}}}]}`
	id := k.answers(claude, stored, user("a"))[0]
	result := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"r"}` }
	// As a client library without these fields replays it.
	shown := `{"role":"assistant","name":"n","tool_calls":[{"id":"` + id.Client +
		`","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}`
	out, r := k.sends(claude, user("a"), shown, result(id.Client))
	require.Equal(t, Report{PutBack: 1}, r)
	require.JSONEq(t, `{"role":"assistant","name":"n","content":"","reasoning_content":"hm","tool_calls":`+
		gjson.Get(stored, "tool_calls").Raw+`}`, out[1])
	require.Equal(t, result("f:0"), out[2])

	out, _ = k.sends(mirror, user("a"), shown, result(id.Client))
	require.Equal(t, id.Client, gjson.Get(out[1], "tool_calls.0.id").Str)
	require.Equal(t, "hm", gjson.Get(out[1], "reasoning_content").Str)
	require.Equal(t, result(id.Client), out[2])

	out, r = k.sends(glm, user("a"), strings.Replace(shown, `"name":"n"`, `"reasoning_content":"hm"`, 1),
		result(id.Client))
	require.Equal(t, Report{Foreign: 1}, r)
	require.JSONEq(t, strings.Replace(shown, `"name":"n",`, ``, 1), out[1])
}

func TestFilterOfChatContent(t *testing.T) {
	k := newTalk(t, wire.Chat)
	k.answers(claude, `{"role":"assistant","content":"said","reasoning":"hm"}`, user("a"))
	for shown, want := range map[string]string{
		`{"role":"assistant","content":"said"}`:                                                               `{"reasoning":"hm","role":"assistant","content":"said"}`,
		`{"role":"assistant","content":"<think>hm</think>\n\nsaid"}`:                                          `{"reasoning":"hm","role":"assistant","content":"said"}`,
		`{"role":"assistant","content":"said","reasoning_content":"hm"}`:                                      `{"reasoning":"hm","role":"assistant","content":"said"}`,
		`{"role":"assistant","content":[{"type":"text","text":"said","cache_control":{"type":"ephemeral"}}]}`: `{"reasoning":"hm","role":"assistant","content":[{"type":"text","text":"said","cache_control":{"type":"ephemeral"}}]}`,
	} {
		out, _ := k.sends(claude, user("a"), shown, user("b"))
		require.Equal(t, want, out[1])
	}
	k.policy.Unproven = Text
	out, _ := k.sends(claude, user("x"), `{"role":"assistant","content":"b","reasoning":"c"}`, user("y"))
	require.Equal(t, `{"role":"assistant","content":"<think>\nc\n</think>\n\nb"}`, out[1])
	out, _ = k.sends(claude, user("x"), `{"reasoning":"c","role":"assistant"}`, user("y"))
	require.Equal(t, `{"content":"<think>\nc\n</think>","role":"assistant"}`, out[1])
	out, _ = k.sends(claude, user("x"), `{"role":"assistant","content":[{"type":"text","text":"b"}],"reasoning":"c"}`,
		user("y"))
	require.Equal(t,
		`{"role":"assistant","content":[{"type":"text","text":"<think>\nc\n</think>"},{"type":"text","text":"b"}]}`, out[1])
}

// A teammate's turns go back whole; what it shows besides is not judged.
func TestPutBack(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.scope.Route = "teammate/analytic"
	k.policy.Unproven = Drop
	k.answers(glm, assistant(thought("1"), uses("look:0", "x")), user("a"))
	unknown := turn("unknown")
	look := func(messages ...string) (*Replay, []string) {
		r := Look(t.Context(), k.ledger, k.request(glm, messages...))
		body, _ := r.PutBack(true, 0)
		return r, assistants(t, body)
	}
	_, out := look(user("a"), assistant(uses("mine", "x")), results("mine"), unknown, user("b"))
	require.Equal(t, []string{assistant(thought("1"), uses("look:0", "x")), unknown}, out)

	k.answers(claude, turn("2"), user("b"))
	r, out := look(user("b"), turn("2"), user("c"))
	require.Equal(t, []string{turn("2")}, out, "no foreign filter")
	body, report := r.PutBack(true, 0)
	require.Same(t, &r.request.Outline.Body[0], &body[0])
	require.False(t, report.Changed())

	_, keys := Strip(k.outline(assistant(thought("1"))), wire.Messages)
	r.Refused(t.Context(), keys, false)
	_, out = look(user("a"), assistant(uses("mine", "x")), results("mine"))
	require.Equal(t, []string{assistant(uses("look:0", "x"))}, out)
}

// Nothing of one tenant or route is found by another.
func TestScopesAreApart(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	shown := []string{user("a"), assistant(says("1")), user("b")}
	for _, scope := range []ledger.Scope{{Tenant: "u", Route: "main", Conversation: "c"},
		{Tenant: "t", Route: "teammate/x", Conversation: "c"}} {
		k.scope = scope
		out, _ := k.sends(claude, shown...)
		require.Equal(t, shown, out)
	}
}

func TestLastThinking(t *testing.T) {
	last := func(d wire.Dialect, messages ...string) string { return lastThinking(outline(t, asks(messages...)), d) }
	require.Empty(t, last(wire.Messages, hi, assistant(says("1"))))
	require.Equal(t, ledger.BlockKey([]byte(thought("2"))),
		last(wire.Messages, turn("1"), assistant(thought("1"), thought("2"), says("1")),
			hi, assistant(`{"type":"thinking","thinking":"","signature":""}`, says("2")), hi), "a placeholder is none")
	require.Equal(t, ledger.BlockKey([]byte(`{"reasoning_content":"r"}`)), last(wire.Chat,
		`{"role":"assistant","content":"x","reasoning_content":"r"}`, `{"role":"assistant","reasoning_content":""}`,
		`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"`+BypassSignature+`"}}}]}`))
}
