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
	known, err := two.All()
	require.NoError(t, err)
	require.Len(t, known, 51)
	require.EqualValues(t, 8, two.Of(memory.ChatKey(memory.MustChat("7"))), "an older one is no news")
	require.EqualValues(t, 100, two.Of(memory.SubagentKey("analytic", memory.MustChat("7"))))

	// A line that a crash cut short costs nothing but itself.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"name":"chat:torn","tu`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, one.Add(map[string]int64{"chat:next": 5}))
	again, err := erasures.Open(path)
	require.NoError(t, err)
	known, err = again.All()
	require.NoError(t, err)
	require.Len(t, known, 52)
	require.EqualValues(t, 5, known["chat:next"])
}
