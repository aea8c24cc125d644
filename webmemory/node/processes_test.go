package node_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"mneme/internal/webmemorytest"

	"github.com/stretchr/testify/require"
)

// Each process says where it is reached as long as it lives, and its turns name it.
func TestProcessesAreListed(t *testing.T) {
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	second := w.StartReplica()
	ctx := context.Background()
	listed := func() map[string]string { // id by URL
		ids := map[string]string{}
		for id, value := range w.Redis.HGetAll(ctx, "mneme:processes").Val() {
			var p struct {
				URL string
				At  int64
			}
			require.NoError(t, json.Unmarshal([]byte(value), &p))
			require.NotZero(t, p.At)
			ids[p.URL] = id
		}
		return ids
	}
	webmemorytest.Eventually(t, "both are listed", func() bool { return listed()[w.URL] != "" && listed()[second] != "" })
	s.Allow("1", 1)
	w.Target(second, func() { w.PostStream("1", "hi").Until("run_started") })
	token := w.Redis.Get(ctx, "{chat_history:1}:turn").Val()
	require.True(t, strings.HasPrefix(token, listed()[second]+":"), token)
	w.Shutdown(second)
	require.NotContains(t, listed(), second)
	require.Contains(t, listed(), w.URL)
}
