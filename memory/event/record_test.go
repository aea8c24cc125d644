package event_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/event"
)

// A record names the model that wrote the answer, and is short whatever a vendor calls its models.
func TestRecords(t *testing.T) {
	calls := []event.ModelCall{{Model: "big", Backend: "a"}, {Subagent: "docs", Model: "small", Backend: "b"},
		{Model: "failed", Error: "model_failed"}}
	r := event.NewRecord(event.Usage{InputTokens: 5}, "", []string{"a.1", "a.2"}, calls)
	require.Equal(t, &event.Record{Usage: event.Usage{InputTokens: 5}, Recalled: 2,
		RecalledIDs: []string{"a.1", "a.2"}, Calls: 3, Model: "big",
		Backend: "a"}, r)
	require.Equal(t, "small", event.NewRecord(event.Usage{}, "", nil, calls[1:]).Model)
	require.Nil(t, event.NewRecord(event.Usage{}, "", nil, nil))

	cost := int64(math.MaxInt64)
	most := event.Usage{InputTokens: 1 << 40, OutputTokens: 1 << 40, Estimated: true, CachedTokens: 1 << 40,
		ReasoningTokens: 1 << 40, CostMicroUSD: &cost}
	for _, long := range []string{"x", strings.Repeat("m", 50), strings.Repeat("\"", 100), strings.Repeat("\x00", 1000)} {
		calls := []event.ModelCall{{Model: long, Backend: long}}
		told := event.NewRecord(most, "r.1", make([]string, 100_000), calls)
		require.Len(t, told.RecalledIDs, event.MaxRecalledIDs)
		told.Window, told.RecalledIDs = "", nil // which MaxRecord leaves out
		raw, err := json.Marshal(told)
		require.NoError(t, err)
		require.LessOrEqual(t, len(raw), event.MaxRecord, "%s", raw)
		require.Equal(t, len(long) < 50, strings.Contains(string(raw), "backend"))
		require.Equal(t, len(long) < 100, strings.Contains(string(raw), "model"))
	}
}
