package memory_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// A redacted message says nothing of what it said, keeps its place, and is redacted once.
func TestRedacted(t *testing.T) {
	for _, raw := range []string{
		`{"role":"user","content":"my pin is secret","timestamp":1700000000.25,"name":"secret","metadata":{"secret":"secret"},"id":"r.1"}`,
		`{"role":"assistant","content":"","timestamp":2,"tool_calls":[{"id":"t1","type":"function","function":` +
			`{"name":"calculator","arguments":"{\"secret\":1}"}}],"id":"r.1"}`,
		`{"role":"assistant","content":"14 [1]","timestamp":2,"citations":[{"n":1,"quote":"secret"}],"id":"r.1"}`,
		`{"role":"tool","content":"secret","timestamp":2,"tool_call_id":"t1","name":"calculator","id":"r.1"}`,
		`{"role":"assistant","content":[{"type":"text","text":"secret"}],"extra":"secret","timestamp":3}`,
		`{"role":"assistant","content":"(no answer: run_lost)","timestamp":3,"failure":"run_lost","id":"r.1"}`,
	} {
		once, err := memory.Redacted(json.RawMessage(raw), "r.1")
		require.NoError(t, err)
		require.NotContains(t, string(once), "secret")
		var before, after memory.Message
		require.NoError(t, json.Unmarshal([]byte(raw), &before))
		require.NoError(t, json.Unmarshal(once, &after))
		require.Equal(t, "r.1", after.ID)
		require.Equal(t, before.Role, after.Role)
		require.Equal(t, before.Timestamp, after.Timestamp)
		require.Equal(t, before.ToolCallID, after.ToolCallID)
		require.Equal(t, before.Failure, after.Failure)
		require.Len(t, after.ToolCalls, len(before.ToolCalls))
		require.Equal(t, before.Content == "", after.Content == "")
		twice, err := memory.Redacted(once, "r.1")
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	}
}
