package usage_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/access/tally"
	"mneme/memory"
	"mneme/proxy/usage"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestReport(t *testing.T) {
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	now := time.Now()
	book := tally.New(nil, 0)
	for _, c := range []tally.Call{
		{At: now, Backend: "kimi", Model: "k2", Chat: "c1", Counts: tally.Counts{Input: 12, Cached: 2, Output: 5}},
		{At: now, Backend: "kimi", Model: "k2", Chat: "c1", Tenant: acme, Counts: tally.Counts{Input: 1, Output: 1,
			Estimated: 1, Failed: 1}},
		{At: now, Backend: "glm", Model: "x", Counts: tally.Counts{Input: 100, Written: 100, Output: 9, Reasoning: 4}},
		{At: now, Backend: "off", Model: "x", Counts: tally.Counts{Failed: 1}}, {At: now, Backend: "off", Model: "x"},
		{At: now.AddDate(0, 0, -3), Backend: "kimi"},
	} {
		book.Add(c)
	}
	got, err := usage.NewReport(t.Context(), book, "24h", "")
	require.NoError(t, err)
	require.Equal(t, now.Add(-24*time.Hour).UTC().Truncate(24*time.Hour), got.Since)
	require.True(t, got.Process)
	got.Since, got.Oldest = noon, noon
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"since": "2026-01-31T12:00:00Z", "oldest": "2026-01-31T12:00:00Z", "by": "backend", "process": true, "dropped": 0,
		"rows": [
			{"name": "glm", "calls": 1, "ok": 1, "estimated": 0, "input": 0, "cache_read": 0, "cache_creation": 100, "output": 9, "reasoning": 4},
			{"name": "kimi", "calls": 2, "ok": 1, "estimated": 1, "input": 11, "cache_read": 2, "cache_creation": 0, "output": 6, "reasoning": 0},
			{"name": "off", "calls": 2, "ok": 1, "estimated": 0, "input": 0, "cache_read": 0, "cache_creation": 0, "output": 0, "reasoning": 0}
		],
		"total": {"name": "", "calls": 5, "ok": 3, "estimated": 1, "input": 11, "cache_read": 2, "cache_creation": 100, "output": 15, "reasoning": 4}
	}`, string(b))

	for by, names := range map[string][]string{"model": {"x", "k2"}, "chat": {"", "c1", "acme/c1"}} {
		got, err = usage.NewReport(t.Context(), book, "", by)
		require.NoError(t, err)
		require.Len(t, got.Rows, len(names))
		sum := usage.Row{}
		for i, row := range got.Rows {
			require.Equal(t, names[i], row.Name, "what has no name is told too")
			sum.Calls, sum.Output = sum.Calls+row.Calls, sum.Output+row.Output
		}
		require.Equal(t, [2]int64{5, 15}, [2]int64{sum.Calls, sum.Output})
	}

	got, err = usage.NewReport(t.Context(), tally.New(nil, 0), "", "")
	require.NoError(t, err)
	b, err = json.Marshal(got)
	require.NoError(t, err)
	require.Contains(t, string(b), `"rows":[]`)
}

func TestAReportIsBounded(t *testing.T) {
	book := tally.New(nil, 0)
	for i := range 2500 {
		book.Add(tally.Call{At: time.Now(), Chat: fmt.Sprint(i), Counts: tally.Counts{Input: int64(i)}})
	}
	got, err := usage.NewReport(t.Context(), book, "1h", "chat")
	require.NoError(t, err)
	require.Len(t, got.Rows, 1000)
	require.Equal(t, "2499", got.Rows[0].Name, "those with the most tokens stay")
	require.Equal(t, 1500, got.LeftOut)
	require.EqualValues(t, 2500, got.Total.Calls)
}

func TestReportsRefuseWhatTheyAreNot(t *testing.T) {
	for _, q := range [][2]string{{"x", ""}, {"", "tenant"}} {
		_, err := usage.NewReport(t.Context(), tally.New(nil, 0), q[0], q[1])
		require.ErrorIs(t, err, tally.ErrQuery)
	}
}
