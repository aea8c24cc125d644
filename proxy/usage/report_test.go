package usage_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/proxy/usage"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func sequence(records []usage.Record) iter.Seq2[usage.Record, error] {
	return func(yield func(usage.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestAggregate(t *testing.T) {
	records := []usage.Record{
		{At: noon, RequestID: "1", Backend: "kimi", Model: "master", UpstreamModel: "k2", Chat: "c1", Tokens: usage.Tokens{
			Input: 10, Output: 5, CacheRead: 2,
		}, Outcome: "ok"},
		{At: noon, RequestID: "2", Backend: "kimi", Model: "analytic", UpstreamModel: "k2", Chat: "c1", Tokens: usage.Tokens{
			Input: 1, Output: 1,
		}, Estimated: true, Outcome: "cut"},
		{At: noon, RequestID: "3", Backend: "glm", Model: "x", Tokens: usage.Tokens{
			CacheCreation: 100, Output: 9, Reasoning: 4,
		}, Outcome: "ok"},
		{At: noon, RequestID: "3", Backend: "glm", Model: "x", Tokens: usage.Tokens{CacheCreation: 100}, Outcome: "ok"},
		{At: noon, Backend: "off", Model: "x", Outcome: "failed"}, {At: noon, Backend: "off", Model: "x", Outcome: "ok"},
		{At: noon.Add(-time.Hour), RequestID: "4", Backend: "kimi", Outcome: "ok"},
	}
	got, err := usage.Aggregate(sequence(records), noon.Add(-time.Minute), usage.ByBackend)
	require.NoError(t, err)
	got.Dropped = 7
	b, err := json.MarshalIndent(got, "", "  ")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"since": "2026-01-31T11:59:00Z", "by": "backend", "dropped": 7,
		"rows": [
			{"name": "glm", "calls": 1, "ok": 1, "estimated": 0, "input": 0, "cache_read": 0, "cache_creation": 100, "output": 9, "reasoning": 4},
			{"name": "kimi", "calls": 2, "ok": 1, "estimated": 1, "input": 11, "cache_read": 2, "cache_creation": 0, "output": 6, "reasoning": 0},
			{"name": "off", "calls": 2, "ok": 1, "estimated": 0, "input": 0, "cache_read": 0, "cache_creation": 0, "output": 0, "reasoning": 0}
		],
		"total": {"name": "", "calls": 5, "ok": 3, "estimated": 1, "input": 11, "cache_read": 2, "cache_creation": 100, "output": 15, "reasoning": 4}
	}`, string(b))

	for by, names := range map[usage.By][]string{usage.ByModel: {"x", "k2"}, usage.ByChat: {"", "c1"}} {
		got, err = usage.Aggregate(sequence(records), noon.Add(-time.Minute), by)
		require.NoError(t, err)
		require.Len(t, got.Rows, len(names))
		for i, name := range names {
			require.Equal(t, name, got.Rows[i].Name)
		}
	}

	got, err = usage.Aggregate(sequence(nil), noon, usage.ByBackend)
	require.NoError(t, err)
	b, err = json.Marshal(got)
	require.NoError(t, err)
	require.Contains(t, string(b), `"rows":[]`)
}

// However records come, doubled and in any order, rows add up to the total and
// each call counts once.
func TestAggregateAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 50).Draw(t, "records")
		var records []usage.Record
		want := int64(0)
		for i := range n {
			r := usage.Record{At: noon, RequestID: fmt.Sprint(i), Backend: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t,
				"backend"),
				Tokens: usage.Tokens{Input: rapid.Int64Range(0, 1e9).Draw(t, "input"), Output: 1}}
			want += r.Tokens.Input
			for range rapid.IntRange(1, 3).Draw(t, "times") {
				records = append(records, r)
			}
		}
		rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		got, err := usage.Aggregate(sequence(records), noon, usage.ByBackend)
		require.NoError(t, err)
		require.EqualValues(t, n, got.Total.Calls)
		require.Equal(t, want, got.Total.Input)
		sum := int64(0)
		for _, r := range got.Rows {
			sum += r.Input
		}
		require.Equal(t, want, sum)
	})
}

func TestAReportIsBounded(t *testing.T) {
	var records []usage.Record
	for i := range 2500 {
		records = append(records, usage.Record{At: noon, RequestID: fmt.Sprint(i), Chat: fmt.Sprint(i), Tokens: usage.Tokens{
			Input: int64(i),
		}})
	}
	got, err := usage.Aggregate(sequence(records), noon, usage.ByChat)
	require.NoError(t, err)
	require.Len(t, got.Rows, 1000)
	require.Equal(t, "2499", got.Rows[0].Name, "those with the most tokens stay")
	require.Equal(t, 1500, got.LeftOut)
	require.EqualValues(t, 2500, got.Total.Calls)
}

func TestParseSince(t *testing.T) {
	for s, want := range map[string]time.Time{
		"": noon.Add(-24 * time.Hour), "90m": noon.Add(-90 * time.Minute), "7d": noon.AddDate(0, 0, -7),
		"2026-01-30T00:00:00Z": time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC),
	} {
		got, err := usage.ParseSince(s, noon)
		require.NoError(t, err, s)
		require.True(t, got.Equal(want), s)
	}
	for _, s := range []string{"0", "-1h", "0d", "-3d", "d", "1.5d", "yesterday", "24", "999999999h",
		"99999999999999999999d", "9999999999d", "2026-01-30"} {
		_, err := usage.ParseSince(s, noon)
		require.ErrorIs(t, err, usage.ErrQuery, s)
		require.ErrorContains(t, err, "24h", s)
	}
}

func TestReportsRefuseWhatTheyAreNot(t *testing.T) {
	r := usage.NewRecorder(usage.Options{})
	for _, q := range [][2]string{{"x", ""}, {"", "tenant"}} {
		_, err := r.Report(t.Context(), q[0], q[1])
		require.ErrorIs(t, err, usage.ErrQuery)
	}
}
