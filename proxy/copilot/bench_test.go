package copilot_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/proxy/copilot"
)

// BenchmarkOneStalledSession compares the turns of six sessions beside one that
// never reads, while the CLI floods it, with the same turns without it. Both are
// made in turn in one run, so that the machine is the same: x-stalled is the ratio
// of their mean latencies. The flood itself costs the reader, the CLI and the
// machine work, so 1 is not to be expected; that a session waits for another would
// show as a time-out.
func BenchmarkOneStalledSession(b *testing.B) {
	server, router := start(b, copilot.RouterConfig{})
	server.Script(paced)
	fast := open(b, router, 6)
	var alone, beside time.Duration
	for b.Loop() {
		alone += turns(b, fast)
		slow := begin(b, router)
		require.NoError(b, slow.Send(context.Background(), "flood"))
		beside += turns(b, fast)
		require.NoError(b, slow.Close())
	}
	b.ReportMetric(float64(beside)/float64(alone), "x-stalled")
	b.ReportMetric(float64(alone.Microseconds())/float64(b.N*len(fast)), "µs/turn-alone")
	b.ReportMetric(float64(beside.Microseconds())/float64(b.N*len(fast)), "µs/turn-beside")
}

// BenchmarkManySessions compares the mean latency of turns of 36 sessions at once
// with that of one, again in turn in one run: x-36 is the ratio. The fake waits a
// millisecond between pieces as a model would, so a ratio near 1 says that
// sessions do not wait for each other.
func BenchmarkManySessions(b *testing.B) {
	server, router := start(b, copilot.RouterConfig{})
	server.Script(paced)
	one, many := open(b, router, 1), open(b, router, 36)
	var single, crowd time.Duration
	for b.Loop() {
		single += turns(b, one)
		crowd += turns(b, many)
	}
	b.ReportMetric(float64(crowd)/36/float64(single), "x-36")
	b.ReportMetric(float64(single.Microseconds())/float64(b.N), "µs/turn-1")
	b.ReportMetric(float64(crowd.Microseconds())/float64(36*b.N), "µs/turn-36")
}

// BenchmarkThroughput is the whole way of events from the socket to onText.
func BenchmarkThroughput(b *testing.B) {
	const pieces = 2000
	server, router := start(b, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		for range pieces {
			t.Delta("a", "word ")
		}
	})
	s := begin(b, router)
	for b.Loop() {
		text, err := ask(context.Background(), s, "x")
		require.NoError(b, err)
		require.Len(b, text, pieces*len("word "))
	}
	b.ReportMetric(float64(b.N*pieces)/b.Elapsed().Seconds(), "deltas/s")
}

// paced is 20 pieces at the pace of a fast model, or a flood for the session that
// does not read: as fast as ten models.
func paced(t *copilottest.Turn) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	pieces := 20
	if t.Prompt == "flood" {
		pieces = 1 << 30
	}
	for range pieces {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			return
		}
		if t.Prompt != "flood" {
			t.Delta("a", "word ")
			continue
		}
		for range 10 {
			t.Delta(t.NewID("message"), "word ")
		}
	}
}

func open(b *testing.B, r *copilot.Router, n int) []*copilot.Session {
	var all []*copilot.Session
	for range n {
		all = append(all, begin(b, r))
	}
	return all
}

// turns makes one turn of each session at once; the sum of their latencies.
func turns(b *testing.B, sessions []*copilot.Session) (sum time.Duration) {
	took, failures := make([]time.Duration, len(sessions)), make([]error, len(sessions))
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() {
			began := time.Now()
			text, err := ask(context.Background(), s, "x")
			took[i] = time.Since(began)
			if err == nil && text != strings.Repeat("word ", 20) {
				err = fmt.Errorf("heard %q", text)
			}
			failures[i] = err
		})
	}
	all.Wait()
	for i := range sessions {
		require.NoError(b, failures[i])
		sum += took[i]
	}
	return sum
}
