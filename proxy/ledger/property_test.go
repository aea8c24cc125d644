package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// piece is a block of a random turn.
type piece struct {
	kind            string // thinking, text, tool
	text, signature string
	id              string
}

func (p piece) json() string {
	switch p.kind {
	case "thinking":
		if p.signature == "" {
			return unsigned(p.text)
		}
		return thinking(p.text, p.signature)
	case "tool":
		return toolUse(p.id, "tool", `{"q":`+quote(p.text)+`,"n":1}`)
	}
	return text(p.text)
}

func blocks(pieces []piece) string {
	var all []string
	for _, p := range pieces {
		all = append(all, p.json())
	}
	return content(all...)
}

// conversation draws turns with texts and thoughts that are all different. Texts begin
// and end with letters, so that what damages them can be told.
func conversation(t *rapid.T) [][]piece {
	n := 0
	words := func() string {
		n++
		return fmt.Sprintf("w%d%s\nend%d", n, rapid.StringMatching(`[a-zä<> "\\]{0,12}`).Draw(t, "text"), n)
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []piece {
		var turn []piece
		for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"thinking", "bare", "omitted", "text", "tool"}), 1,
			6).Draw(t, "kinds") {
			switch kind {
			case "thinking":
				turn = append(turn, piece{kind: "thinking", text: words(), signature: fmt.Sprint("sig", n)})
			case "bare":
				turn = append(turn, piece{kind: "thinking", text: words()})
			case "omitted":
				n++
				turn = append(turn, piece{kind: "thinking", signature: fmt.Sprint("sig", n)})
			case "text":
				turn = append(turn, piece{kind: "text", text: words()})
			case "tool":
				turn = append(turn, piece{kind: "tool", text: words(), id: fmt.Sprintf("toolu_%016d", n)})
			}
		}
		return append(turn, piece{kind: "text", text: words()}) // something visible
	}), 1, 5).Draw(t, "turns")
}

// recorded is a ledger that has the turns, and the messages that replay them.
func recorded(t *rapid.T, turns [][]piece) (*ledger.Ledger, []string) {
	l := ledger.New(ledger.Config{})
	var messages []string
	for i, turn := range turns {
		messages = append(messages, user(quote(fmt.Sprint("question ", i))))
		l.Record(t.Context(), answer(alice, opus, blocks(turn)))
		messages = append(messages, assistant(blocks(turn)))
	}
	return l, messages
}

func TestReplayedUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns := conversation(t)
		l, messages := recorded(t, turns)
		judged := replay(t, l, alice, opus, messages...)
		require.Len(t, judged, len(turns))
		for i, j := range judged {
			require.True(t, j.Same)
			require.False(t, j.Edited)
			for at, p := range turns[i] {
				want := ledger.NoThinking
				if p.kind == "thinking" {
					want = ledger.Proven
				}
				require.Equal(t, want, j.States[at])
				require.Equal(t, ledger.BlockKey([]byte(p.json())), j.Keys[at])
			}
		}
		for _, other := range []ledger.Scope{
			{}, {Tenant: alice.Tenant, Route: "teammate/x", Conversation: alice.Conversation},
		} {
			for _, j := range replay(t, l, other, opus, messages...) {
				require.Nil(t, j.Turn)
				require.False(t, j.Edited)
				require.NotContains(t, j.States, ledger.Proven)
			}
		}
	})
}

// damage changes a turn; harmless says that the model's words are still there.
type damage struct {
	name     string
	harmless bool
	do       func(t *rapid.T, turn []piece) []piece
}

func at(t *rapid.T, turn []piece, kind string) int {
	var places []int
	for i, p := range turn {
		if p.kind == kind {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		t.Skip("nothing to damage")
	}
	return rapid.SampledFrom(places).Draw(t, "place")
}

var damages = []damage{
	{"trim and line ends", true, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "text")
		turn[i].text = strings.ReplaceAll(turn[i].text, "\n", "\r\n")
		if i == len(turn)-1 {
			turn[i].text += " \n"
		}
		return turn
	}},
	{"reorder", true, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "thinking")
		p := turn[i]
		turn = append(turn[:i:i], turn[i+1:]...)
		to := rapid.IntRange(0, len(turn)).Draw(t, "to")
		return append(turn[:to:to], append([]piece{p}, turn[to:]...)...)
	}},
	{"merge texts", true, func(t *rapid.T, turn []piece) []piece {
		var out []piece
		for _, p := range turn {
			if last := len(out) - 1; p.kind == "text" && last >= 0 && out[last].kind == "text" {
				out[last].text += p.text
				continue
			}
			out = append(out, p)
		}
		return out
	}},
	{"double thinking", true, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "thinking")
		return append(turn[:i+1:i+1], turn[i:]...)
	}},
	{"drop thinking", true, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "thinking")
		return append(turn[:i:i], turn[i+1:]...)
	}},
	{"drop all thinking", true, func(t *rapid.T, turn []piece) []piece {
		var out []piece
		for _, p := range turn {
			if p.kind != "thinking" {
				out = append(out, p)
			}
		}
		return out
	}},
	{"edit thinking", true, func(t *rapid.T, turn []piece) []piece {
		turn[at(t, turn, "thinking")].text += "!"
		return turn
	}},
	{"edit signature", true, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "thinking")
		if turn[i].text == "" {
			t.Skip("nothing else says whose the block is")
		}
		turn[i].signature += "!"
		return turn
	}},
	{"thinking as text", true, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "thinking")
		if turn[i].text == "" || strings.Contains(turn[i].text, "<") {
			t.Skip("no text")
		}
		turn[i] = piece{kind: "text", text: "<think>" + turn[i].text + "</think>"}
		return turn
	}},
	{"change tool ids", true, func(t *rapid.T, turn []piece) []piece {
		for i := range turn {
			if turn[i].kind == "tool" {
				turn[i].id = fmt.Sprint("new", i)
			}
		}
		return turn
	}},
	{"edit text", false, func(t *rapid.T, turn []piece) []piece {
		turn[at(t, turn, "text")].text += "!"
		return turn
	}},
	{"drop text", false, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "text")
		return append(turn[:i:i], turn[i+1:]...)
	}},
	{"edit input", false, func(t *rapid.T, turn []piece) []piece {
		turn[at(t, turn, "tool")].text += "!"
		return turn
	}},
	{"drop tool", false, func(t *rapid.T, turn []piece) []piece {
		i := at(t, turn, "tool")
		return append(turn[:i:i], turn[i+1:]...)
	}},
}

func TestReplayedDamaged(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				turns := conversation(t)
				l, messages := recorded(t, turns)
				which := rapid.IntRange(0, len(turns)-1).Draw(t, "turn")
				changed := d.do(t, append([]piece(nil), turns[which]...))
				messages[2*which+1] = assistant(blocks(changed))
				by := rapid.SampledFrom([]ledger.Origin{opus, kimi}).Draw(t, "target")
				for i, j := range replay(t, l, alice, by, messages...) {
					if i != which {
						require.True(t, j.Same)
						continue
					}
					checkDamaged(t, d, turns[which], changed, by, j)
				}
			})
		})
	}
}

func checkDamaged(t *rapid.T, d damage, turn, changed []piece, by ledger.Origin, j ledger.Judged) {
	require.Equal(t, d.harmless, j.Turn != nil)
	if d.harmless {
		require.Equal(t, blocks(turn), string(j.Turn.Content))
		require.Equal(t, blocks(turn) == blocks(withIDs(changed, turn)), j.Same)
	} else {
		require.True(t, j.Edited || !hasKeys(changed), "a key that only it can have is known")
	}
	for at, p := range changed {
		standing := d.harmless && at < len(turn) && p == turn[at]
		switch {
		case p.kind != "thinking":
			require.Equal(t, ledger.NoThinking, j.States[at])
		case by == kimi:
			require.Equal(t, ledger.Foreign, j.States[at])
		case standing:
			require.Equal(t, ledger.Proven, j.States[at])
		case p.signature == "" && !j.Edited: // perhaps it is as it was
			require.Contains(t, []ledger.State{ledger.Altered, ledger.Unknown}, j.States[at])
		default:
			require.Equal(t, ledger.Altered, j.States[at])
		}
	}
}

// withIDs gives changed the tool ids of turn.
func withIDs(changed, turn []piece) []piece {
	out := append([]piece(nil), changed...)
	for i := range out {
		if out[i].kind == "tool" && i < len(turn) {
			out[i].id = turn[i].id
		}
	}
	return out
}

// hasKeys says whether a turn can be found by what no other one has.
func hasKeys(turn []piece) bool {
	for _, p := range turn {
		if p.signature != "" || p.kind == "tool" && !ledger.CanRecur(p.id) {
			return true
		}
	}
	return false
}

// Whatever a body is, judging it does not fail, and says something of every
// assistant message and block.
func FuzzJudge(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[`+assistant(storedTurn)+`]}`), false)
	f.Add([]byte(`{"model":"m","messages":[`+chatTurn+`]}`), true)
	f.Add(
		[]byte(
			`{"model":"m","messages":[{"role":"assistant","content":[5,{},{"type":"thinking"},{"type":"tool_use","id":7}],"tool_calls":[1,{"function":2}]}]}`,
		), true,
	)
	f.Add(
		[]byte(
			`{"model":"m","messages":[{"role":"assistant","content":[{"type":"text","text":"<think></think><think>"},{"type":"redacted_thinking","data":1}]}]}`,
		), false,
	)
	l := ledger.New(ledger.Config{ScopeTurns: 20})
	l.Record(f.Context(), answer(alice, opus, storedTurn))
	l.Record(f.Context(), ledger.Turn{Scope: alice, Origin: opus, Dialect: wire.Chat, Content: []byte(chatTurn)})
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		o, err := wire.ReadOutline(body)
		if err != nil {
			return
		}
		d := wire.Messages
		if chat {
			d = wire.Chat
		}
		ledger.ContextKey(o)
		r := ledger.Request{Scope: alice, Target: opus, Dialect: d, Outline: o}
		judged := l.Judge(t.Context(), r)
		l.Find(t.Context(), alice, d, o, nil)
		r.New = true
		require.Len(t, l.Judge(t.Context(), r), len(judged))
		for _, j := range judged {
			m := o.Messages[j.Message]
			require.Equal(t, wire.RoleAssistant, m.Role)
			require.Len(t, j.Keys, len(j.States))
			if !chat {
				require.Len(t, j.States, len(m.Blocks))
			}
			for i, b := range m.Blocks {
				key := ledger.BlockKey(o.Raw(b.Span))
				if !chat && (b.Type == wire.ThinkingBlock || b.Type == wire.RedactedBlock) {
					require.Equal(t, key, j.Keys[i])
				}
			}
			// What is recorded is found again, whole.
			content := o.Raw(m.Content)
			if chat {
				content = o.Raw(m.Span)
			}
			fresh := ledger.New(ledger.Config{})
			fresh.Record(t.Context(), ledger.Turn{Scope: alice, Origin: opus, Dialect: d, Content: content, Place: first})
			r.New, r.Nodes = false, known(fresh, alice, d, o)
			if again := fresh.Judge(t.Context(), r); fresh.Stats().Turns > 0 {
				for _, k := range again {
					if k.Message == j.Message {
						require.True(t, k.Same)
					}
				}
			}
		}
	})
}
