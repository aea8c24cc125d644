package memory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

// historyOf makes a history of messages with these roles, numbered.
func historyOf(roles []string) *memory.History {
	h := memory.Empty(key)
	for i, role := range roles {
		h = h.With(memory.Message{Role: role, Content: fmt.Sprint(i)}.Encode())
	}
	return h
}

// startOf is the index at which a window begins; the window must be the rest of
// the history from there.
func startOf(t require.TestingT, h *memory.History, window []json.RawMessage) int {
	start := h.Len() - len(window)
	require.Equal(t, rawTexts(h.Raw(start)), rawTexts(window))
	return start
}

func TestWindow(t *testing.T) {
	const u, a, tool = memory.RoleUser, memory.RoleAssistant, memory.RoleTool
	dialogue := func(turns int) []string { return strings.Fields(strings.Repeat(u+" "+a+" ", turns)) }
	for _, c := range []struct {
		name  string
		roles []string
		n     int
		start int // -1 for no window
	}{
		{"empty", nil, 4, -1},
		{"shorter than n", dialogue(1), 4, 0},
		{"grows to twice n", append(dialogue(3), u), 4, 0},
		{"is cut back at twice n", dialogue(4), 4, 4},
		{"and once more", dialogue(6), 4, 8},
		{"begins with a user message", []string{u, a, u, a, a, a, u, a}, 4, 6},
		{"reaches back when there is none", []string{u, a, u, tool, tool, tool, tool, tool, tool, tool}, 4, 2},
		{"nobody asked", []string{a, tool, a}, 2, -1},
		{"foreign beginning", []string{"system", a, u, a}, 4, 2},
		{"no n is 1", dialogue(3), 0, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := historyOf(c.roles)
			window := h.Window(c.n)
			if c.start < 0 {
				require.Empty(t, window)
				return
			}
			require.Equal(t, c.start, startOf(t, h, window))
		})
	}
}

func roleOf(t require.TestingT, raw json.RawMessage) string {
	messages, err := memory.Decode([]json.RawMessage{raw})
	require.NoError(t, err)
	return messages[0].Role
}

// Whatever is stored: a window is the end of the history, begins with a user
// message, and leaves one out only if n newer messages stand behind it.
func TestWindowOfAnything(t *testing.T) {
	roles := rapid.SliceOfN(rapid.SampledFrom([]string{"user", "assistant", "tool", "tool", "system"}), 0, 60)
	rapid.Check(t, func(t *rapid.T) {
		all, n := roles.Draw(t, "roles"), rapid.IntRange(1, 15).Draw(t, "n")
		h := historyOf(all)
		window := h.Window(n)
		lastUser := -1
		for i, role := range all {
			if role == memory.RoleUser {
				lastUser = i
			}
		}
		if lastUser < 0 {
			require.Empty(t, window)
			return
		}
		start := startOf(t, h, window)
		require.Equal(t, memory.RoleUser, roleOf(t, window[0]))
		require.LessOrEqual(t, start, lastUser)
		if lastUser >= len(all)-n {
			require.Less(t, len(window), 2*n)
		} else {
			require.GreaterOrEqual(t, start, lastUser-2*n, "no further back than the user message needed")
		}
		for i := range start {
			if all[i] == memory.RoleUser {
				require.True(t, i < len(all)-n || i < lastUser && start == lastUser, "message %d of the last %d is left out", i, n)
			}
		}
		require.Equal(t, rawTexts(window), rawTexts(h.Window(n)), "the same window each time")
	})
}

// The front of a prompt stays for n messages and never moves back.
func TestWindowMovesRarely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns := rapid.IntRange(1, 8).Draw(t, "turns per window")
		n := 2 * turns
		h, last := memory.Empty(key), 0
		for i := range rapid.IntRange(1, 6*n).Draw(t, "messages") {
			role := memory.RoleUser
			if i%2 == 1 {
				role = memory.RoleAssistant
			}
			h = h.With(memory.Message{Role: role, Content: fmt.Sprint(i)}.Encode())
			start := startOf(t, h, h.Window(n))
			if start != last {
				require.Equal(t, last+n, start)
				require.Zero(t, h.Len()%n, "moved at message %d", h.Len())
			}
			if h.Len() >= n {
				require.GreaterOrEqual(t, h.Len()-start, n)
			}
			require.Less(t, h.Len()-start, 2*n)
			last = start
		}
	})
}

// Above the byte limit whole exchanges leave from the front, no more of them than
// needed, and the last stays however large it is.
func TestWindowBytes(t *testing.T) {
	const part = memory.WindowBytes / 8
	for _, c := range []struct {
		name    string
		eighths [][]int // of the limit, in each message of each exchange
		start   int     // the exchange with which the window begins
	}{
		{"everything fits", [][]int{{1, 1}, {1, 1}, {1, 1}, {1}}, 0},
		{"just above the limit", [][]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1},
		{"a large one in front", [][]int{{9}, {1, 1}, {1}}, 1},
		{"a large one between", [][]int{{1}, {9}, {1, 1}, {1}}, 2},
		{"a large one at the end", [][]int{{1}, {1}, {1, 9}}, 2},
		{"large ones only", [][]int{{9}, {9, 9}, {3, 3, 3, 3}}, 2},
		{"one", [][]int{{20}}, 0},
		{"small ones behind it", [][]int{{4, 4}, {0}, {0, 0}, {0}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, start := memory.Empty(key), 0
			for i, exchange := range c.eighths {
				if i == c.start {
					start = h.Len()
				}
				for j, eighths := range exchange {
					role := memory.RoleUser
					if j > 0 {
						role = memory.RoleAssistant
					}
					h = h.With(memory.Message{Role: role, Content: strings.Repeat("x", eighths*part)}.Encode())
				}
			}
			require.Equal(t, start, h.Len()-len(h.Window(100)))
		})
	}
}

// Failures, however many and however large, leave the window what it would be
// without them, but for the last exchange, which a run may try once more.
func TestFailuresTakeNoPlaceInAWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, good := memory.Empty(key), memory.Empty(key)
		for i := range rapid.IntRange(1, 30).Draw(t, "exchanges") {
			ask := memory.Message{Role: memory.RoleUser, Content: fmt.Sprint("question ", i)}
			answer := memory.Message{Role: memory.RoleAssistant, Content: fmt.Sprint("answer ", i)}
			if rapid.Bool().Draw(t, "fails") {
				ask.Content += strings.Repeat(" ", rapid.SampledFrom([]int{0, memory.WindowBytes / 8}).Draw(t, "blanks"))
				all = all.With(ask.Encode()).With(memory.Failed("model_failed").Encode())
				continue
			}
			all, good = all.With(ask.Encode()).With(answer.Encode()), good.With(ask.Encode()).With(answer.Encode())
		}
		last := memory.Message{Role: memory.RoleUser, Content: "pending"}.Encode()
		failure := memory.Failed("model_failed").Encode()
		n := rapid.IntRange(1, 12).Draw(t, "n")
		window := rawTexts(all.With(last).With(failure).Window(n))
		require.Equal(t, []string{string(last), string(failure)}, window[len(window)-2:])
		shown := window[:len(window)-2]
		require.LessOrEqual(t, len(shown), 2*n+2)
		require.GreaterOrEqual(t, len(shown), min(good.Len(), n-3))
		require.Equal(t, rawTexts(good.Raw(good.Len()-len(shown))), shown, "the last that were answered")
	})
}
