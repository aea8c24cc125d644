//go:build !race

package chatstate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory/chatstate"
)

// Marks come from a small range, so that states meet in all of their parts.
func drawMark(t *rapid.T) chatstate.Mark {
	return chatstate.Mark{
		Turn: rapid.Int64Range(1, 5).Draw(t, "turn"), N: rapid.Int64Range(0, 2).Draw(t, "n"),
		By: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "by"),
	}
}

func list[T any](t *rapid.T, of string, most int, one func(*rapid.T) T) (all []T) {
	for range rapid.IntRange(0, most).Draw(t, of) {
		all = append(all, one(t))
	}
	return all
}

func drawChange(t *rapid.T) chatstate.Change {
	c := chatstate.Change{
		Mark: drawMark(t), Kind: rapid.SampledFrom([]string{chatstate.Erase, chatstate.Redact}).Draw(t, "kind"),
		Names: list(t, "names", 2, word), Parts: map[string]int{},
	}
	for _, part := range list(t, "parts", 3, word) {
		c.Parts[part] = rapid.IntRange(0, 3).Draw(t, "round")
	}
	return c
}

func word(t *rapid.T) string { return rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "word") }

func drawRun(t *rapid.T) *chatstate.Run {
	r := &chatstate.Run{
		Mark: drawMark(t), ID: word(t), At: drawMark(t), Step: rapid.Int64Range(0, 3).Draw(t, "step"),
		Phase: rapid.SampledFrom([]string{chatstate.Posted, chatstate.Accepted, chatstate.Waiting,
			chatstate.Over}).Draw(t, "phase"),
		Process: word(t),
	}
	r.Keyed = r.ID != "z" // it is the same of a run wherever it is noted
	if r.Phase == chatstate.Over {
		r.Outcome = drawOutcome(t)
		return r
	}
	r.Given = drawMark(t)
	for step := range r.Step {
		if rapid.Bool().Draw(t, "answered") {
			r.Answers = append(r.Answers, chatstate.Answer{Step: step, Mark: drawMark(t), Sum: word(t)})
		}
	}
	return r
}

func drawOutcome(t *rapid.T) string {
	return rapid.SampledFrom([]string{"completed", "failed", chatstate.Lost, chatstate.Withdrawn}).Draw(t, "outcome")
}

// drawState is any state, also one to which no transitions lead.
func drawState(t *rapid.T) chatstate.State {
	var s chatstate.State
	m := drawMark(t)
	s.Turn, s.N, s.By = m.Turn, m.N, m.By
	s.Array = chatstate.Array{Len: rapid.Int64Range(0, 2).Draw(t, "len"), Sum: word(t)}
	if rapid.Bool().Draw(t, "run") {
		s.Run = drawRun(t)
	}
	s.Keys = list(t, "keys", 3, func(t *rapid.T) chatstate.Key {
		return chatstate.Key{Mark: drawMark(t), Run: word(t), Outcome: drawOutcome(t)}
	})
	grants := 4
	if rapid.IntRange(0, 19).Draw(t, "many") == 0 {
		grants = 90
	}
	s.Grants = list(t, "grants", grants, func(t *rapid.T) chatstate.Grant {
		m := drawMark(t)
		call := word(t)
		if grants > 4 {
			m.Turn, call = rapid.Int64Range(1, 60).Draw(t, "far"), fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "call"))
		}
		return chatstate.Grant{Call: call, Turn: m.Turn, By: m.By, N: m.N,
			Word: rapid.SampledFrom([]string{chatstate.Granted, chatstate.Refused, chatstate.Made}).Draw(t, "word")}
	})
	if rapid.Bool().Draw(t, "older") {
		s.Older = drawMark(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "erased") == 0 {
		e := drawChange(t)
		e.Kind = chatstate.Erase
		s.Erased = &e
	}
	s.Cuts = list(t, "cuts", rapid.SampledFrom([]int{2, 2, 20}).Draw(t, "of cuts"), drawChange)
	s.Histories = list(t, "histories", 3, func(t *rapid.T) chatstate.History {
		return chatstate.History{Agent: word(t), Mark: drawMark(t), At: drawMark(t),
			Messages: rapid.Int64Range(0, 2).Draw(t, "m")}
	})
	s.Conversations = list(t, "conversations", rapid.SampledFrom([]int{2, 6}).Draw(t, "of those"),
		func(t *rapid.T) chatstate.Conversation { return chatstate.Conversation{Mark: drawMark(t), ID: word(t)} })
	return chatstate.Merge(s, s) // in order
}

func same(t require.TestingT, a, b chatstate.State, why string) {
	require.Equal(t, string(a.Encode()), string(b.Encode()), why)
}

func TestMergeIsAJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawState(t), drawState(t), drawState(t)
		before := string(a.Encode())
		ab := chatstate.Merge(a, b)
		require.Equal(t, before, string(a.Encode()), "Merge leaves what it is given alone")
		same(t, ab, chatstate.Merge(b, a), "commutative")
		same(t, chatstate.Merge(ab, c), chatstate.Merge(a, chatstate.Merge(b, c)), "associative")
		same(t, ab, chatstate.Merge(ab, ab), "idempotent")
		same(t, ab, chatstate.Merge(ab, a), "what is merged already adds nothing")
		same(t, a, chatstate.Merge(a, chatstate.State{}), "nothing adds nothing")
		require.LessOrEqual(t, len(ab.Encode()), chatstate.MaxMerged)
		require.LessOrEqual(t, len(ab.Grants), 64)
		require.LessOrEqual(t, len(ab.Cuts), 12)
		read, err := chatstate.Decode(ab.Encode())
		require.NoError(t, err)
		same(t, ab, read, "what is stored is read")
		require.Equal(t, chatstate.Head(ab.Mark()), string(ab.Encode()[:len(chatstate.Head(ab.Mark()))]))
	})
}

// FuzzDecode shows that any text is refused or read, and that what is read can be merged, changed and stored.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"turn":1,"n":2,"by":"a","run":{"mark":"1.0.a","id":"R","phase":"posted","at":"1.0.a"}}`))
	f.Add([]byte(`{"turn":1,"n":2,"by":"a","erased":{"mark":"1.0.a","parts":{"x":0}},"grants":["1.0.a c made"]}`))
	f.Add([]byte(`{"turn":-1}`))
	f.Add([]byte(`{"cuts":[{"mark":"1.1.a","names":["b","a"]}],"keys":["1.1.a R completed"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := chatstate.Decode(text)
		if err != nil {
			require.ErrorIs(t, err, chatstate.ErrDamaged)
			return
		}
		again, err := chatstate.Decode(s.Encode())
		if err == nil {
			same(t, s, again, "what was read is read the same again")
		}
		same(t, s, chatstate.Merge(s, s), "idempotent")
		draws := rand.New(rand.NewPCG(uint64(len(text)), 1))
		for _, act := range allActs(draws) {
			after, _, err := chatstate.Apply(s, act)
			if err != nil {
				same(t, s, after, "a refusal changes nothing")
			}
		}
	})
}

// allActs is one of each.
func allActs(r *rand.Rand) []chatstate.Act {
	id := string(rune('a' + r.IntN(3)))
	return []chatstate.Act{
		chatstate.Take{By: "x", Above: r.Int64N(9)}, chatstate.Post{Run: chatstate.Run{ID: id}, Body: id},
		chatstate.Accept{Run: id}, chatstate.Claim{Call: id}, chatstate.Settle{Call: id}, chatstate.Unclaim{Call: id},
		chatstate.Suspend{Run: id}, chatstate.Resume{Run: id, Sum: id}, chatstate.Finish{Run: id, Outcome: "completed"},
		chatstate.Remove{Kind: chatstate.Erase, Parts: []string{"x"}}, chatstate.Done{Part: "x"},
		chatstate.Remove{Kind: chatstate.Redact, Names: []string{id}}, chatstate.Reopen{Places: []string{"x"}},
		chatstate.Use{Agent: id}, chatstate.Converse{ID: id}, chatstate.Expire{Posts: 3, Changes: 3},
	}
}
