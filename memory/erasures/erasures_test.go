package erasures_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/erasures"
)

func TestErasuresAreSharedAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "erasures.ndjson")
	one, err := erasures.Open(path)
	require.NoError(t, err)
	two, err := erasures.Open(path)
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 50 {
		for _, f := range []*erasures.File{one, two} {
			all.Go(func() {
				if err := f.Add(map[string]int64{fmt.Sprint("chat:", i): int64(i + 1)}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	require.NoError(t, one.Add(map[string]int64{"subagent:analytic:7": 100, "chat:7": 3}))
	known, err := two.Turns()
	require.NoError(t, err)
	require.Len(t, known, 51)
	require.EqualValues(t, 8, two.HistoryTurn(memory.ChatKey(memory.MustChat("7"))), "an older one is no news")
	require.EqualValues(t, 100, two.HistoryTurn(memory.SubagentKey("analytic", memory.MustChat("7"))))

	// A line that a crash cut short costs nothing but itself.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"name":"chat:torn","tu`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, one.Add(map[string]int64{"chat:next": 5}))
	again, err := erasures.Open(path)
	require.NoError(t, err)
	known, err = again.Turns()
	require.NoError(t, err)
	require.Len(t, known, 52)
	require.EqualValues(t, 5, known["chat:next"])
}

// A redaction's name says what it covers, and nothing else is one.
func TestRedactions(t *testing.T) {
	chat := memory.MustChat("a:b@c")
	key, other := memory.SubagentKey("analytic", chat), memory.ChatKey(chat)
	run := erasures.Redaction{Chat: chat, Run: "RUN"}
	ids := erasures.Redaction{Chat: chat, Key: key, IDs: []string{"m:1", "x0123456789abcdef.0", "RUN.7"}}
	for _, r := range []erasures.Redaction{run, ids} {
		got, ok := erasures.RedactionOf(r.Name())
		require.True(t, ok, r.Name())
		require.Equal(t, r, got)
		_, _, erased := erasures.ChatOf(r.Name())
		require.False(t, erased, "versions before take it for nothing of theirs")
	}
	require.True(t, run.Has(key, "RUN.7"))
	require.True(t, run.Has(other, "RUN-end.9"))
	require.False(t, run.Has(key, "RUN2.7"))
	require.False(t, run.Has(key, "RUN"))
	require.True(t, ids.Has(key, "m:1"))
	require.False(t, ids.Has(other, "m:1"))
	for _, name := range []string{"redacted:", "redacted:all: chat:1", "redacted:all:R", "redacted:id: chat_history:1",
		"redacted:id:m1 chat:1", "chat:1", "redacted:all:R chat_history:1"} {
		_, ok := erasures.RedactionOf(name)
		require.False(t, ok, name)
	}

	path := filepath.Join(t.TempDir(), "erasures.ndjson")
	one, err := erasures.Open(path)
	require.NoError(t, err)
	two, err := erasures.Open(path)
	require.NoError(t, err)
	require.Empty(t, two.Redactions(chat))
	require.NoError(t, one.Add(map[string]int64{run.Name(): 5, "chat:1": 6}))
	require.Equal(t, []erasures.Redacted{{Redaction: run, Turn: 5}}, one.Redactions(chat))
	_, err = two.Turns()
	require.NoError(t, err)
	require.Equal(t, one.Redactions(chat), two.Redactions(chat))
	require.Empty(t, two.Redactions(memory.MustChat("1")))
}
