package memory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

// line is a history of messages "id@time", or "id" for one that says no time. An id
// without a dot is a foreign message's, known by its content alone.
func line(t require.TestingT, messages string) *memory.History {
	h := memory.Empty(key)
	for _, m := range strings.Fields(messages) {
		id, at, timed := strings.Cut(m, "@")
		content := map[string]any{"role": "user", "content": id}
		if timed {
			content["timestamp"] = json.Number(at)
		}
		raw, err := json.Marshal(content)
		require.NoError(t, err)
		if strings.Contains(id, ".") {
			raw = memory.WithID(raw, id)
		}
		h = h.With(raw)
	}
	return h
}

// names are the contents of a history's messages.
func names(t require.TestingT, h *memory.History) string {
	messages, err := h.Messages(0)
	require.NoError(t, err)
	var out []string
	for _, m := range messages {
		out = append(out, m.Content)
	}
	return strings.Join(out, " ")
}

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		stored, mine string
		want         string
	}{
		"nothing is stored":                    {"", "a.1@1 a.2@2", "a.1 a.2"},
		"nothing is known":                     {"a.1@1", "", "a.1"},
		"a failover lost the end":              {"a.1@1 a.2@2", "a.1@1 a.2@2 b.1@3", "a.1 a.2 b.1"},
		"the end was lost, and others went on": {"a.1@1 c.1@5 c.2@6", "a.1@1 a.2@2 b.1@3", "a.1 a.2 b.1 c.1 c.2"},
		"all was lost, and others began anew":  {"c.1@5 c.2@6", "a.1@1 a.2@2 b.1@3", "a.1 a.2 b.1 c.1 c.2"},
		"two runs at one time go by their ids": {"b.1@1 b.2@2", "a.1@1 a.2@2", "a.1 a.2 b.1 b.2"},
		"a late block goes to its run":         {"a.1@1 b.1@3", "a.1@1 b.1@3 a.2@2 c.1@4", "a.1 b.1 a.2 c.1"},
		"what closed a run stands by its number": {"a.1@1 a-end.5@2 a.7@3", "a.1@1 a.4@2 b.1@5",
			"a.1 a.4 a-end.5 a.7 b.1"},
		"the same number, and the closing is later": {"a.1@1 a-end.4@2", "a.1@1 a.4@2", "a.1 a.4 a-end.4"},
		"of the version before, by their times":     {"x@10 y@11", "p@1 q@2 x@10", "p q x y"},
		"without times, in their place":             {"x y", "w x", "w x y"},
		"foreign ones stay behind what they follow": {"a.1@1 x b.1@5", "a.1@1 b.1@5 c.1@9", "a.1 x b.1 c.1"},
		"milliseconds are no seconds":               {"x@1763711157000 b.1@1763711159", "a.1@1763711158", "x a.1 b.1"},
	} {
		t.Run(name, func(t *testing.T) {
			merged, odd := memory.Merge(line(t, c.stored), line(t, c.mine))
			require.Equal(t, c.want, names(t, merged))
			require.Empty(t, odd)
			turned, _ := memory.Merge(line(t, c.mine), line(t, c.stored))
			require.Equal(t, merged.IDs(), turned.IDs())
		})
	}
}

func TestMergeKeepsToWhatWasDeliberate(t *testing.T) {
	history := func(messages string, turn, cut int64, first string) *memory.History {
		h := line(t, messages)
		h.ProvenIn(turn)
		h.Follows(cut, first)
		return h
	}
	for name, c := range map[string]struct {
		stored, mine *memory.History
		want         string
		cut          int64
		first        string
	}{
		"a copy from before a cut adds nothing": {
			history("b.1@9", 9000, 8000, ""), history("a.1@1 a.2@2", 7999, 0, ""), "b.1", 8000, "",
		},
		"erased stays erased": {history("", 9000, 8000, ""), history("a.1@1 a.2@2", 7999, 0, ""),
			"", 8000, ""},
		"a copy of what had come back adds what is later": {
			history("b.1@9", 9000, 8000, ""), history("a.1@1 b.1@9 c.1@9.5", 9500, 0, ""), "b.1 c.1", 8000, "",
		},
		"a copy that follows the cut adds": {
			history("b.1@9", 9000, 8000, ""), history("b.1@9 b.2@10", 8000, 8000, ""), "b.1 b.2", 8000, "",
		},
		"what is stored does not follow the copy's cut": {history("a.1@1 a.2@2 x c.1@8.5", 9000, 0, ""),
			history("a.2@2 b.1@8", 8000, 8000, ""), "a.2 b.1 c.1", 8000, ""},
		"an older copy is shortened to what a trim kept": {history("b.1@5 c.1@6", 9000, 0, "b.1"),
			history("a.1@1 b.1@5 b.2@5.5", 7000, 0, ""), "b.1 b.2 c.1", 0, "b.1"},
		"a trim that was lost is done again": {
			history("a.1@1 b.1@5", 9000, 0, ""), history("b.1@5 c.1@6", 7000, 0, "b.1"), "b.1 c.1", 0, "b.1",
		},
		"of two trims the later counts": {history("a.1@1 b.1@5", 9000, 0, "a.1"),
			history("b.1@5 c.1@6", 7000, 0, "b.1"), "b.1 c.1", 0, "b.1"},
		"of two trims the later counts, the other way": {history("b.1@5 c.1@6", 9000, 0, "b.1"),
			history("a.1@1 b.1@5", 7000, 0, "a.1"), "b.1 c.1", 0, "b.1"},
		"what was lost with its trim comes back trimmed": {
			history("d.1@9", 9000, 0, ""), history("b.1@5 c.1@6", 7000, 0, "b.1"), "b.1 c.1 d.1", 0, "b.1",
		},
		"a trim's mark does not outlive a later rewrite": {
			history("c.1@6", 9000, 8500, ""), history("b.1@5 c.1@6", 7000, 0, "b.1"), "c.1", 8500, "",
		},
		"a copy of a loss that another one follows stays": {
			history("a.1@1", 9000, 8000, ""), history("a.1@1 b.1@9", 8600, 8000, ""), "a.1 b.1", 8000, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			merged, odd := memory.Merge(c.stored, c.mine)
			require.Equal(t, c.want, names(t, merged))
			require.Empty(t, odd)
			require.Equal(t, c.cut, merged.Cut())
			require.Equal(t, c.first, merged.First())
		})
	}
}

// The messages of one run are what its turn wrote, whatever the clock said that gave
// them their times.
func TestWhatOneTurnWroteFollowsTheCutsBefore(t *testing.T) {
	stored, run := line(t, "b.1@9"), line(t, "c.1@7.9 c.2@8.1")
	stored.ProvenIn(9000)
	stored.Follows(8000, "")
	run.ProvenIn(8500)
	run.OfOneTurn()
	merged, _ := memory.Merge(stored, run)
	require.Equal(t, "c.1 c.2 b.1", names(t, merged))
	require.Same(t, run, run.DropBefore(8000))
	run = line(t, "c.1@7.9 d.1@8.1")
	run.ProvenIn(8500)
	require.Equal(t, "d.1", names(t, run.DropBefore(8000)))
	require.Equal(t, int64(8000), run.DropBefore(8000).Cut())
	run.Follows(8000, "")
	require.Same(t, run, run.DropBefore(8000))
}

func TestTheSameIDWithOtherBytesIsSaid(t *testing.T) {
	one := memory.Empty(key).With([]byte(`{"role":"user","content":"one","id":"a.1"}`))
	two := memory.Empty(key).With([]byte(`{"role":"user","content":"two","id":"a.1"}`)).With(
		[]byte(`{"role":"user","content":"more","id":"a.2"}`),
	)
	merged, odd := memory.Merge(one, two)
	require.Equal(t, []string{"a.1"}, odd)
	require.Equal(t, "one more", names(t, merged))
	merged, odd = memory.Merge(merged, two)
	require.Equal(t, []string{"a.1"}, odd)
	require.Equal(t, "one more", names(t, merged))
}

// A copy that has an id written where the stored message has none yet is no other
// message.
func TestAnIDThatIsWrittenChangesNothing(t *testing.T) {
	bare := line(t, "x@1 y@2")
	merged, odd := memory.Merge(bare, bare.Identified())
	require.Empty(t, odd)
	require.Same(t, bare, merged)
	merged, odd = memory.Merge(bare.Identified(), bare)
	require.Empty(t, odd)
	require.Equal(t, string(bare.Identified().JSON()), string(merged.JSON()))
}

// someHistory is any part of a history that runs and a foreign program wrote, as some
// process may have it: without its end, its beginning or something in the middle.
func someHistory(whole []string, t *rapid.T, label string) *memory.History {
	var part []string
	for i, m := range whole {
		if rapid.IntRange(0, 3).Draw(t, fmt.Sprint(label, i)) > 0 {
			part = append(part, m)
		}
	}
	return line(t, strings.Join(part, " "))
}

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole []string
		at := 0
		for i := range rapid.IntRange(0, 12).Draw(t, "steps") {
			at += rapid.IntRange(0, 2).Draw(t, "pause")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				whole = append(whole, fmt.Sprintf("f%d", i))
			case 1:
				whole = append(whole, fmt.Sprintf("f%d@%d", i, at))
			default:
				run := rapid.SampledFrom([]string{"a", "b", "c", "a-end"}).Draw(t, "run")
				whole = append(whole, fmt.Sprintf("%s.%d@%d", run, i+1, at))
			}
		}
		a, b := someHistory(whole, t, "a"), someHistory(whole, t, "b")
		ab, odd := memory.Merge(a, b)
		require.Empty(t, odd)
		ba, _ := memory.Merge(b, a)
		require.Equal(t, ab.IDs(), ba.IDs(), "commutative")
		again, _ := memory.Merge(ab, b)
		require.Same(t, ab, again, "idempotent")
		again, _ = memory.Merge(ab, a)
		require.Same(t, ab, again, "idempotent")
		again, _ = memory.Merge(b, ab)
		require.Equal(t, ab.IDs(), again.IDs(), "a later state is a copy like any other")

		want := map[string]bool{}
		for _, id := range append(a.IDs(), b.IDs()...) {
			want[id] = true
		}
		require.Len(t, ab.IDs(), len(want), "nothing is lost and nothing doubled")
		place := map[string]int{}
		for i, id := range ab.IDs() {
			require.True(t, want[id])
			place[id] = i
		}
		for _, h := range []*memory.History{a, b} {
			last, of := -1, map[string]int{}
			for i, id := range h.IDs() {
				run, _, ok := memory.SplitID(id)
				if !ok {
					require.Greater(t, place[id], last, "foreign messages keep their order")
					last = place[id]
					continue
				}
				if before, seen := of[run]; seen {
					require.Greater(t, place[id], place[h.IDs()[before]], "a run keeps its order")
				}
				of[run] = i
			}
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(`[{"role":"user","id":"a.1","timestamp":1}]`), []byte(`[{"role":"user","id":"a.1"},{"role":"tool"}]`),
		uint16(0), uint16(3))
	f.Add([]byte(`[{"role":"a"},{"role":"a"},{"role":"b"}]`), []byte(`[{"role":"b"},{"role":"a"}]`), uint16(9), uint16(0))
	f.Fuzz(func(t *testing.T, x, y []byte, cut, turn uint16) {
		a, errA := memory.ParseHistory(key, x)
		b, errB := memory.ParseHistory(key, y)
		if errA != nil || errB != nil {
			return
		}
		a.Follows(int64(cut), "")
		b.ProvenIn(int64(turn))
		ab, _ := memory.Merge(a, b)
		if turn < cut {
			require.Same(t, a, ab)
			return
		}
		ids := ab.IDs()
		for _, id := range append(a.IDs(), b.IDs()...) {
			require.Contains(t, ids, id)
		}
		again, _ := memory.Merge(ab, b)
		require.Equal(t, ids, again.IDs())
		require.True(t, json.Valid(ab.JSON()))
		require.False(t, slices.Contains(ids, ""))
	})
}
