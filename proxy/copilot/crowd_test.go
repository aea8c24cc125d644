package copilot_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/copilottest"
	"mneme/internal/testtier"
	"mneme/proxy/copilot"
)

// tagged is a turn in which all bytes carry the session's own tag. With the word "tool"
// it calls one first.
func tagged(t *copilottest.Turn) {
	tag, words, _ := strings.Cut(t.Prompt, " ")
	if strings.HasPrefix(words, "tool") {
		call := t.Use("lookup", fmt.Sprintf(`{"tag":%q}`, tag))
		t.Message(t.NewID("message"), "", call)
		results, ok := t.Run(call)
		if !ok {
			return
		}
		t.Say(results[0].Text, " ")
	}
	var pieces []string
	for i := range 50 {
		pieces = append(pieces, fmt.Sprintf("%s-%d ", tag, i))
	}
	t.Say(pieces...)
}

func taggedText(tag string) string {
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, "%s-%d ", tag, i)
	}
	return b.String()
}

// converse has a session make turns, with a tool call in every second, and checks
// each byte.
func converse(ctx context.Context, r *copilot.Router, tag string, turns int) error {
	s, err := r.Create(ctx, copilot.SessionConfig{Tools: []copilot.Tool{lookup}})
	if err != nil {
		return err
	}
	for turn := range turns {
		tag := fmt.Sprintf("%s.%d", tag, turn)
		prompt, want := tag, taggedText(tag)
		if turn%2 == 1 {
			prompt, want = tag+" tool", "result-of-"+tag+" "+want
		}
		if err := s.Send(ctx, prompt); err != nil {
			return err
		}
		var text strings.Builder
		for {
			out, err := s.Stream(ctx, func(p string) { text.WriteString(p) })
			if err != nil {
				return err
			}
			if len(out.Calls) == 0 {
				break
			}
			if got := string(out.Calls[0].Arguments); got != fmt.Sprintf(`{"tag":%q}`, tag) {
				return fmt.Errorf("%s was asked for the call %s", tag, got)
			}
			if err := s.RespondTool(ctx, out.Calls[0].ID, copilot.ToolResult{Text: "result-of-" + tag}); err != nil {
				return err
			}
		}
		if text.String() != want {
			return fmt.Errorf("%s heard %q instead of %q", tag, text.String(), want)
		}
	}
	return s.Close()
}

// patient lets the CLI take its time: in these tests it has hardly a core, and what
// it says to one session waits behind what it says to all others.
var patient = copilot.RouterConfig{Grace: time.Minute, Inactivity: time.Hour}

func TestManySessionsOnOneConnection(t *testing.T) {
	testtier.Slow(t)
	for _, n := range []int{7, 36, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			server, router := start(t, patient)
			server.Script(tagged)
			failures := make([]error, n)
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() { failures[i] = converse(t.Context(), router, fmt.Sprintf("tag%d", i), 2) })
			}
			all.Wait()
			for _, err := range failures {
				require.NoError(t, err)
			}
			require.Len(t, server.Conns(), 1)
			require.Empty(t, server.Live())
			stats := router.Stats()
			require.Zero(t, stats.Routes)
			require.Zero(t, stats.Pending)
			require.Zero(t, stats.Orphans)
			require.Zero(t, stats.Slow)
		})
	}
}

// flood says more than a queue holds, in pieces that cannot be joined.
func flood(t *copilottest.Turn) {
	if !strings.HasPrefix(t.Prompt, "flood") {
		tagged(t)
		return
	}
	piece := strings.Repeat("x", 16<<10)
	for t.Context().Err() == nil {
		t.Delta(t.NewID("message"), piece)
	}
}

func TestOneSessionThatDoesNotRead(t *testing.T) {
	server, router := start(t, patient)
	server.Script(flood)
	slow := begin(t, router)
	require.NoError(t, slow.Send(t.Context(), "flood"))
	failures := make([]error, 6)
	var all sync.WaitGroup
	for i := range failures {
		all.Go(func() { failures[i] = converse(t.Context(), router, fmt.Sprintf("tag%d", i), 4) })
	}
	all.Wait()
	for _, err := range failures {
		require.NoError(t, err)
	}
	// The CLI is told to end a session without a reader.
	destroyed := server.Await(t.Context(), "session.destroy", 7)
	require.Condition(t, func() bool {
		for _, m := range destroyed {
			if m.Session() == slow.ID() {
				return true
			}
		}
		return false
	})
	_, err := slow.Stream(t.Context(), nil)
	require.ErrorIs(t, err, copilot.ErrSlowConsumer)
	require.ErrorIs(t, slow.Send(t.Context(), "x"), copilot.ErrSlowConsumer)
	require.EqualValues(t, 1, router.Stats().Slow)
	require.NoError(t, router.Err())
	require.NoError(t, slow.Close())
	require.Zero(t, router.Stats().Routes)
}

// A stalled reader of any number of small pieces of one message costs what the
// text costs, and loses nothing.
func TestPiecesOfOneMessageJoinWhileNobodyReads(t *testing.T) {
	testtier.Slow(t)
	const pieces = 20_000 // far above the bound on events
	server, router := start(t, copilot.RouterConfig{})
	var want strings.Builder
	server.Script(func(t *copilottest.Turn) {
		for i := range pieces {
			t.Delta("a", fmt.Sprintf("%d ", i))
		}
	})
	for i := range pieces {
		fmt.Fprintf(&want, "%d ", i)
	}
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	eventually(t, func() bool { return router.Stats().Coalesced == pieces-1 }, "all pieces have arrived")
	require.LessOrEqual(t, router.Stats().QueueDepth, 3)
	var got strings.Builder
	_, err := s.Stream(t.Context(), func(p string) { got.WriteString(p) })
	require.NoError(t, err)
	require.Equal(t, want.String(), got.String())
}

// Noise does not fill the queue: it never gets there.
func TestNoiseFillsNoQueue(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{MaxEvents: 10})
	server.Script(func(t *copilottest.Turn) {
		for range 1000 {
			t.Event("model.messages_snapshot", strings.Repeat("x", 1000))
		}
		t.Say("done")
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	eventually(t, func() bool { return router.Stats().Filtered > 1000 }, "the noise has arrived")
	_, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
}

// While sessions stall, memory is bounded by their queues, whatever is sent.
func TestMemoryIsBounded(t *testing.T) {
	testtier.Slow(t)
	const stalled, bound = 8, 1 << 20
	server, router := start(t, copilot.RouterConfig{MaxBytes: bound})
	server.Script(flood)
	before := heap()
	for range stalled {
		require.NoError(t, begin(t, router).Send(t.Context(), "flood"))
	}
	eventually(t, func() bool { return router.Stats().Slow == stalled }, "all were given up")
	// Given up, they hold nothing; what remains is the connection's.
	eventually(t, func() bool { return heap() < before+stalled*bound }, "their queues are free")
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Nothing is left behind by sessions, whichever way they end.
func TestNoGoroutineIsLeft(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	begun := goleak.IgnoreCurrent()
	for range 50 {
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := s.Stream(ctx, nil)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, s.Close())
	}
	require.NoError(t, goleak.Find(begun))
	require.Zero(t, router.Stats().Routes)
	require.Zero(t, router.Stats().Pending)
}
