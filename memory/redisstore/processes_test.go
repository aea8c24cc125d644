package redisstore_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory/redisstore"
)

// A process that has not said for a while that it lives is dropped from the list;
// so is what no process wrote.
func TestProcesses(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	store := redisstore.New(client, zerolog.Nop())
	require.NoError(t, store.Processes.Announce(ctx, "a", "http://a:8080"))
	require.NoError(t, store.Processes.Announce(ctx, "b", "http://b:8080"))
	require.NoError(t, client.HSet(ctx, "mneme:processes", "old", `{"url":"http://old:1","at":1}`, "odd", `{`).Err())
	listed := func() map[string]string {
		t.Helper()
		all, err := store.Processes.List(ctx)
		require.NoError(t, err)
		urls := map[string]string{}
		for _, p := range all {
			require.WithinDuration(t, time.Now(), time.UnixMilli(p.LastSeen), time.Minute)
			urls[p.ID] = p.URL
		}
		return urls
	}
	require.Equal(t, map[string]string{"a": "http://a:8080", "b": "http://b:8080"}, listed())
	require.EqualValues(t, 2, client.HLen(ctx, "mneme:processes").Val())
	require.NoError(t, store.Processes.Resign(ctx, "a"))
	require.Equal(t, map[string]string{"b": "http://b:8080"}, listed())
}

func TestTokensNameTheirProcess(t *testing.T) {
	t.Parallel()
	token := redisstore.Token("host-1-abcdefghijkl", "RANDOM")
	require.Equal(t, "host-1-abcdefghijkl", redisstore.HolderOf(token))
	require.Equal(t, "host-1-abcdefghijkl", redisstore.HolderOf(redisstore.EraserToken+token))
	require.Empty(t, redisstore.HolderOf("A2B3C4D5E6F7A2B3C4D5E6F7A2"), "of the version before")
	require.Empty(t, redisstore.HolderOf(redisstore.EraserToken+"A2B3C4D5E6F7A2B3C4D5E6F7A2"))
}
