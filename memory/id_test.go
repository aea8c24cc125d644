package memory_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

func TestAMessageEndsWithItsID(t *testing.T) {
	m := memory.Message{Role: "assistant", Content: `<a>,"id":"x.1"}`, Timestamp: 1, Failure: "f",
		ID: memory.MessageID("R", 7)}
	raw := m.Encode()
	require.True(t, strings.HasSuffix(string(raw), `,"failure":"f","id":"R.7"}`), string(raw))
	require.Equal(t, []string{"R.7"}, memory.IDs([]json.RawMessage{raw}))
	var back memory.Message
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, m, back)
	require.Equal(t, string(raw), string(memory.WithID(raw, "other.1")), "an id is for ever")
}

func TestSplitID(t *testing.T) {
	for id, want := range map[string]struct {
		run string
		seq int64
		ok  bool
	}{
		"R.1":                          {"R", 1, true},
		"a_b-C9-end.12":                {"a_b-C9-end", 12, true},
		"a.b.3":                        {"a.b", 3, true},
		"x0123456789abcdeg.3":          {"x0123456789abcdeg", 3, true},
		"x0123456789abcdef.3":          {},
		"":                             {},
		".1":                           {},
		"R":                            {},
		"R.":                           {},
		"R.0":                          {},
		"R.01":                         {},
		"R.-1":                         {},
		"R.1e3":                        {},
		"R.99999999999999999999999999": {},
	} {
		run, seq, ok := memory.SplitID(id)
		require.Equal(t, want.ok, ok, id)
		if ok {
			require.Equal(t, want.run, run, id)
			require.Equal(t, want.seq, seq, id)
			require.Equal(t, id, memory.MessageID(run, seq))
		}
	}
}

// Foreign messages are told apart by content and occurrence, whatever they have
// where an id should be, and are the same before and after it is written.
func TestIDsOfForeignMessages(t *testing.T) {
	raw := []json.RawMessage{
		json.RawMessage(`{"role":"user","content":"hi"}`),
		json.RawMessage(`{"role":"user","content":"hi"}`),
		json.RawMessage(`{"role": "user", "content": "hi"}`),
		json.RawMessage(`{"role":"user","content":"hi","id":5}`),
		json.RawMessage(`{"role":"user","content":"hi","id":"no id!"}`),
		json.RawMessage(`{"role":"user","content":"hi","id":"` + strings.Repeat("a", 129) + `"}`),
		json.RawMessage(`{"role":"user","content":"hi","id":""}`),
		json.RawMessage(`{"id":"D1:3","role":"user","content":"hi"}`),
		json.RawMessage(`{"role":"assistant","tool_calls":[{"type":"function","id":"t1"}]}`),
		json.RawMessage(`{"role":"assistant","meta":{"a":1,"id":"t1"}}`),
		json.RawMessage(`{"role":"user","content":"x","id":"R.1"}`),
		json.RawMessage(`{"role":"user","content":"y","id":"R.1"}`),
	}
	ids := memory.IDs(raw)
	seen := map[string]bool{}
	for i, id := range ids {
		require.False(t, seen[id], id)
		seen[id] = true
		if i != 7 && i != 10 {
			require.Regexp(t, `^x[0-9a-f]{16}\.[0-9]+$`, id)
		}
	}
	require.Equal(t, "D1:3", ids[7])
	require.Equal(t, "R.1", ids[10])
	require.Equal(t, strings.TrimSuffix(ids[0], "0")+"1", ids[1])
	written := make([]json.RawMessage, len(raw))
	for i := range raw {
		written[i] = memory.WithID(raw[i], ids[i])
		require.True(t, json.Valid(written[i]))
	}
	require.Equal(t, `{"role":"user","content":"hi","id":"`+ids[0]+`"}`, string(written[0]))
	require.Equal(t, string(raw[3]), string(written[3]), "a member of theirs is not written over")
	require.Equal(t, ids, memory.IDs(written))
}

func FuzzIDs(f *testing.F) {
	for _, s := range []string{`[{"role":"user","id":"a.1"},{"role":"user","id":"a.1"}]`,
		`[{"role":"a"},{"role":"a","x":{"id":"b"}}]`, `[{"role":"u","ID":"q"}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		h, err := memory.ParseHistory(key, stored)
		if err != nil {
			return
		}
		ids := h.IDs()
		seen := map[string]bool{}
		for _, id := range ids {
			require.False(t, seen[id])
			seen[id] = true
		}
		written, err := memory.ParseHistory(key, h.Identified().JSON())
		require.NoError(t, err)
		require.Equal(t, ids, written.IDs())
	})
}
