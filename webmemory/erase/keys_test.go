package erase_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// What is asked of one chat costs the same however many others there are.
func TestNothingOfOneChatLooksThroughAllKeys(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	ctx := context.Background()
	require.NoError(t, w.Redis.Set(ctx, "subagent:knowledge:1", `[{"role":"user","content":"by another program"}]`,
		0).Err())
	require.NoError(t, w.Redis.ConfigResetStat(ctx).Err())

	require.Equal(t, 200, w.Post("1", "hi").Status)
	require.Contains(t, string(w.Do("GET", "/v1/chats/1", nil).Body), "subagent:knowledge:1")
	require.Equal(t, 200, w.Do("GET", "/v1/chats/1/history", nil).Status)
	require.NoError(t, w.Redis.Set(ctx, "subagent:analytic:1", "damaged, to be set aside", 0).Err())
	require.Equal(t, 200, w.Post("1", "again").Status)
	require.Len(t, w.Keys("{subagent:analytic:1}:damaged:"), 1)
	require.NoError(t, w.Redis.ConfigResetStat(ctx).Err())
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1/subagents/analytic/history", nil).Status)
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Equal(t, 200, w.Do("GET", "/v1/chats/1", nil).Status)

	stats, err := w.Redis.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	require.NotContains(t, stats, "cmdstat_scan:")
	require.NotContains(t, stats, "cmdstat_keys:")
	require.Empty(t, w.Keys("{subagent:analytic:1}:damaged:", "chat_history:", "subagent:", "events:", "run:"))
}

// A chat has keys for what it has used, not for all that is configured.
func TestAChatLeavesFewKeys(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	require.Equal(t, 200, w.Post("1", "hi").Status)
	webmemorytest.Eventually(t, "the turn is given back", func() bool { return len(w.Keys("{chat_history:1}:turn")) == 0 })
	webmemorytest.Eventually(t, "its keys are those of what it has used", func() bool { // once the turn is over
		return slices.Equal(w.Keys("chat_history:", "subagent:", "{"),
			[]string{"chat_history:1", "subagent:analytic:1", "{chat_history:1}:meta", "{subagent:analytic:1}:meta"})
	})
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Equal(t, []string{"{chat_history:1}:meta", "{subagent:analytic:1}:meta", "{subagent:knowledge:1}:meta"},
		w.Keys("chat_history:", "subagent:", "{"),
		"tombstones, also of a subagent whose history Redis may just have lost")
}

// Logs and records of runs go with their chat, also when what lists them is gone.
func TestErasureWithoutTheChatsMeta(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	ctx := context.Background()
	require.Equal(t, 200, w.Post("1", "hi", "Idempotency-Key", "k").Status)
	require.Len(t, w.Keys("events:1:"), 1)
	require.NoError(t, w.Redis.Del(ctx, "{chat_history:1}:meta").Err())
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Empty(t, w.Keys("chat_history:", "subagent:", "events:", "run:"))
}

// What nothing leads to is found by looking through all keys, where that is asked for.
func TestErasureByScan(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	ctx := context.Background()
	require.Equal(t, 200, w.Post("1", "hi").Status)
	run := strings.Repeat("A", 26)
	mine := []string{"subagent:retired:1", "{chat_history:1}:damaged:17", "{subagent:retired:1}:damaged:17", "events:1:" +
		run, "run:1:" + run}
	others := []string{"subagent:retired:11", "subagent:retired:x:1", "{chat_history:11}:damaged:17", "events:1:1:" + run,
		"run:11:" + run}
	for _, key := range append(slices.Clone(mine), others...) {
		require.NoError(t, w.Redis.Set(ctx, key, `[{"role":"user","content":"secret"}]`, 0).Err())
	}
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Subset(t, w.Keys("subagent:", "{", "events:", "run:"), mine[:3], "only a scan can know of these")
	got := w.Do("DELETE", "/v1/chats/1?scan=true", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), "subagent:retired:1")
	left := w.Keys("subagent:", "{", "events:", "run:", "chat_history:")
	require.Subset(t, left, others)
	for _, key := range mine {
		require.NotContains(t, left, key)
	}
	require.Equal(t, 400, w.Do("DELETE", "/v1/chats/1?scan=perhaps", nil).Status)
}

// A zombie's first message to a subagent that the chat never used is refused, though
// nothing of the subagent's holds the number of a newer turn.
func TestTheFenceOfAnUnusedSubagent(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	ctx := context.Background()
	store := redisstore.New(w.RedisServer.Client(), webmemorytest.Logger())
	zombie, err := store.Turns.Take(ctx, memory.MustChat("1"), "zombie", "c", time.Minute)
	require.NoError(t, err)
	require.NoError(t, w.Redis.Del(ctx, "{chat_history:1}:turn").Err()) // the lease ran out
	require.Equal(t, 200, w.Post("1", "hi").Status)
	for _, agent := range []memory.Agent{"knowledge", "analytic"} {
		key := memory.SubagentKey(agent, memory.MustChat("1"))
		_, err = store.Append(ctx, memory.Empty(key), memory.Mark{Run: "Z", Seq: 1, Turn: zombie.Number},
			memory.Message{Role: memory.RoleUser, Content: "late"}.Encode())
		require.ErrorIs(t, err, memory.ErrMoved, agent)
	}
	require.Equal(t, []string{"chat_history:1", "subagent:analytic:1"}, w.Keys("chat_history:", "subagent:"))
}
