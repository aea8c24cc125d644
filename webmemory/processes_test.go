package webmemory_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"mneme/memory"

	"github.com/stretchr/testify/require"
)

// Each process says where it is reached as long as it lives, and its turns name it.
func TestProcessesAreListed(t *testing.T) {
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent)
	second := w.process()
	ctx := context.Background()
	listed := func() map[string]string { // id by URL
		ids := map[string]string{}
		for id, value := range w.look.HGetAll(ctx, "mneme:processes").Val() {
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
	eventually(t, "both are listed", func() bool { return listed()[w.url] != "" && listed()[second] != "" })
	s.let(memory.MustChat("1"), 1)
	w.on(second, func() { w.open("POST", "/v1/chats/1/messages", message{"hi"}).until("run_started") })
	token := w.look.Get(ctx, "{chat_history:1}:turn").Val()
	require.True(t, strings.HasPrefix(token, listed()[second]+":"), token)
	w.shutdown[second]()
	require.NotContains(t, listed(), second)
	require.Contains(t, listed(), w.url)
}
