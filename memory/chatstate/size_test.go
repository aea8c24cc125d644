//go:build !race

package chatstate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/chatstate"
)

// do makes transitions of which each must succeed.
func do(t *testing.T, s chatstate.State, acts ...chatstate.Act) chatstate.State {
	t.Helper()
	for _, a := range acts {
		var err error
		s, _, err = chatstate.Apply(s, a)
		require.NoError(t, err)
	}
	return s
}

// begun is a chat of which a run with a key is accepted, under a lease of its own.
func begun(t *testing.T, s chatstate.State, n int) (chatstate.State, string) {
	run := fmt.Sprintf("%026d", n)
	return do(t, s, chatstate.Take{By: fmt.Sprintf("h%07d", n), Above: 1_795_725_331_731 + int64(n)*1000},
		chatstate.Post{Run: chatstate.Run{ID: run, Keyed: true, Post: strings.Repeat("b", 43),
			Process: "vm-21772-ab76dhrtcfsv",
			Events:  "http://10.11.12.13:8081/v1/runs/" + run + "/events"}, Body: `{"message":"hi"}`},
		chatstate.Accept{Run: run, Events: "http://10.11.12.13:8081/v1/runs/" + run + "/events", Process: "p"}), run
}

// A busy chat's state is small, and no chat's passes the bound: what does not fit is refused, and changes nothing.
func TestSizeOfAState(t *testing.T) {
	var s chatstate.State
	for i, agent := range []string{"", "analytic", "knowledge", "archive"} {
		s = do(t, s, chatstate.Take{By: "h", Above: int64(i)},
			chatstate.Use{Agent: agent, Messages: 1000, Segments: 9, Bytes: 1e6})
	}
	for n := range 10 {
		var run string
		s, run = begun(t, s, n)
		s = do(t, s, chatstate.Claim{Call: fmt.Sprint("call", n)}, chatstate.Settle{Call: fmt.Sprint("call", n)})
		if n < 9 {
			s = do(t, s, chatstate.Finish{Run: run, Outcome: "completed"})
		}
	}
	require.Less(t, len(s.Encode()), 2<<10, string(s.Encode()))

	s = chatstate.State{}
	refused := 0
	for n := range 200 {
		before := s
		for i := range 6 {
			acts := []chatstate.Act{chatstate.Use{Agent: fmt.Sprint(strings.Repeat("a", 60), (n+i)%100)},
				chatstate.Converse{ID: fmt.Sprint("g", n)}}
			if !s.Run.Unfinished() {
				names := make([]string, 16)
				for j := range names {
					names[j] = fmt.Sprintf("%026d.%d", n, j)
				}
				acts = append(acts, chatstate.Remove{Kind: chatstate.Redact, Names: names, Parts: []string{"documents"}})
			}
			for _, a := range acts {
				after, _, err := chatstate.Apply(s, a)
				if err != nil {
					require.ErrorIs(t, err, chatstate.ErrFull)
					require.Equal(t, before.Turn, after.Turn)
					refused++
				}
				s = after
			}
		}
		after, _, err := chatstate.Apply(s, chatstate.Take{By: fmt.Sprint("h", n), Above: int64(n) * 10})
		require.NoError(t, err, "a chat that is full can be used")
		if s = after; n%2 == 0 {
			continue
		}
		run := fmt.Sprintf("%026d", n)
		post := chatstate.Post{Run: chatstate.Run{ID: run, Keyed: true}, Body: "hi"}
		if after, _, err = chatstate.Apply(s, post); err == nil {
			s = do(t, after, chatstate.Accept{Run: run})
			s, _, _ = chatstate.Apply(s, chatstate.Claim{Call: run})
			s = do(t, s, chatstate.Finish{Run: run, Outcome: "completed"})
		}
		require.LessOrEqual(t, len(s.Encode()), chatstate.MaxSize)
	}
	require.Positive(t, refused)
}

// What is left of an erased chat is its fencing token, the erasure and what is to be done about it.
func TestTombstone(t *testing.T) {
	s, run := begun(t, chatstate.State{}, 1)
	s = do(t, s, chatstate.Use{Agent: "analytic"}, chatstate.Converse{ID: "g"},
		chatstate.Finish{Run: run, Outcome: "completed"},
		chatstate.Take{By: "eraser", Above: 1}, chatstate.Remove{Kind: chatstate.Erase, Parts: []string{"documents"}})
	require.Equal(t, map[string]int{"documents": 0, "history:analytic": 0, "conversation:g": 0}, s.Erased.Parts)
	for _, part := range s.Erased.Open() {
		s = do(t, s, chatstate.Done{Of: s.Erased.Mark, Part: part})
	}
	require.Empty(t, s.Erased.Open())
	at := s.Mark()
	s.Erased = nil
	require.Equal(t, chatstate.State{Turn: at.Turn, N: at.N, By: at.By}, s)
}
