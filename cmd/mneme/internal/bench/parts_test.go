package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
)

func TestTheSeedsWayKeepsWhatASingleWriterAppends(t *testing.T) {
	client := redistest.Start(t).Client()
	var want []memory.Message
	for i := range 6 {
		pair := []memory.Message{message(2 * i), message(2*i + 1)}
		want = append(want, pair...)
		require.NoError(t, rewriteAppend(t.Context(), client, "k", "k", pair...))
	}
	h, err := memory.ParseHistory(memory.ChatKey(memory.MustChat("1")), []byte(client.Get(t.Context(), "k").Val()))
	require.NoError(t, err)
	got, err := h.Messages(0)
	require.NoError(t, err)
	require.Equal(t, want, got)

	require.NoError(t, client.Set(t.Context(), "k", "not JSON", 0).Err())
	require.ErrorContains(t, rewriteAppend(t.Context(), client, "k", "k", want[0]), "reading k")
	require.Equal(t, "not JSON", client.Get(t.Context(), "k").Val())
}

func TestMessagesAreTheSameInEveryRun(t *testing.T) {
	require.Equal(t, array(50), array(50))
	h, err := memory.ParseHistory(memory.ChatKey(memory.MustChat("1")), array(1000))
	require.NoError(t, err)
	require.Equal(t, 1000, h.Len())
	require.InDelta(t, 670, h.Size()/1000, 30, "6.7 MB at 10,000")
	pair := exchange()
	require.Equal(t, memory.RoleUser, pair[0].Role)
	require.Equal(t, memory.RoleAssistant, pair[1].Role)
	require.InDelta(t, 2*670, len(pair[0].Encode())+len(pair[1].Encode()), 30)
}

func TestCountingWhatWasKept(t *testing.T) {
	stored := []plainMessage{{Content: label(0, 0, 0) + " a"}, {Content: label(1, 1, 1) + " b"}, {Content: label(1, 1, 1) + " b"}, {Content: "foreign"}}
	value, err := json.Marshal(stored)
	require.NoError(t, err)
	c := Contention{Writers: 2, Turns: 2, Expected: 8}
	require.NoError(t, c.count(value))
	require.Equal(t, Contention{Writers: 2, Turns: 2, Expected: 8, Kept: 2, Twice: 1}, c)
	require.Error(t, c.count([]byte(`[{"content":`)))
}

func TestSharesAddUp(t *testing.T) {
	for n := range 10 {
		require.Equal(t, n, share(n, 0)+share(n, 1))
		require.LessOrEqual(t, share(n, 0)-share(n, 1), 1)
	}
}

func TestSpread(t *testing.T) {
	require.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, spread([]float64{9, 1, 2}))
	require.Equal(t, Spread{Median: 2.5, Min: 1, Max: 9}, spread([]float64{9, 1, 2, 3}))
}

func TestNumbersAreReadable(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", 1.5: "1.50", 0.044: "0.04", 12.345: "12.3", 99.96: "100.0", 345.6: "346", 1234.5: "1,235", 6.7e6: "6,700,000",
		math.Inf(1): "–",
	} {
		require.Equal(t, want, number(f), fmt.Sprint(f))
	}
}

func TestReachesAreMarkedByTheMedian(t *testing.T) {
	var r Report
	r.atMost("a", "×", Spread{Median: 1.3, Min: 1, Max: 2}, 1.3)
	r.atMost("b", "×", Spread{Median: 1.31, Min: 1, Max: 2}, 1.3)
	require.Equal(t, []bool{true, false}, []bool{r.Reaches[0].Met, r.Reaches[1].Met})

	r = Report{Contention: []Contention{
		{Way: writeTurns, Expected: 8, Kept: 8, Reads: 3},
		{Way: writeScript, Expected: 8, Kept: 7, Reads: 3},
		{Way: writeScript, Expected: 8, Kept: 8, Reads: 3, Invalid: 1},
		{Way: writeScript, Expected: 8, Kept: 8},
		{Way: writeRewrite, Expected: 8, Kept: 1, Reads: 3},
	}}
	r.judge([]int{10, 20})
	var met []bool
	for _, reach := range r.Reaches {
		if reach.Unit == "messages" {
			met = append(met, reach.Met)
		}
	}
	require.Equal(t, []bool{true, false, false, false}, met)
}
