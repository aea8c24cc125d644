package webmemory_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// keys are all keys in Redis that begin with one of the prefixes.
func (w *world) keys(prefixes ...string) []string {
	w.t.Helper()
	var out []string
	it := w.look.Scan(context.Background(), 0, "*", 1000).Iterator()
	for it.Next(context.Background()) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(it.Val(), p) }) {
			out = append(out, it.Val())
		}
	}
	require.NoError(w.t, it.Err())
	slices.Sort(out)
	return out
}

// What is asked of one chat costs the same however many others there are.
func TestNothingOfOneChatLooksThroughAllKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"))
	ctx := context.Background()
	require.NoError(t, w.look.Set(ctx, "subagent:knowledge:1", `[{"role":"user","content":"by another program"}]`,
		0).Err())
	require.NoError(t, w.look.ConfigResetStat(ctx).Err())

	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	require.Contains(t, string(w.do("GET", "/v1/chats/1", nil).body), "subagent:knowledge:1")
	require.Equal(t, 200, w.do("GET", "/v1/chats/1/history", nil).status)
	require.NoError(t, w.look.Set(ctx, "subagent:analytic:1", "damaged, to be set aside", 0).Err())
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"again"}).status)
	require.Len(t, w.keys("{subagent:analytic:1}:damaged:"), 1)
	require.NoError(t, w.look.ConfigResetStat(ctx).Err())
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1/subagents/analytic/history", nil).status)
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status)
	require.Equal(t, 200, w.do("GET", "/v1/chats/1", nil).status)

	stats, err := w.look.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	require.NotContains(t, stats, "cmdstat_scan:")
	require.NotContains(t, stats, "cmdstat_keys:")
	require.Empty(t, w.keys("{subagent:analytic:1}:damaged:", "chat_history:", "subagent:", "events:", "run:"))
}

// A chat has keys for what it has used, not for all that is configured.
func TestAChatLeavesFewKeys(t *testing.T) {
	w := newWorld(t, answers("hello"))
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	eventually(t, "the turn is given back", func() bool { return len(w.keys("{chat_history:1}:turn")) == 0 })
	eventually(t, "its keys are those of what it has used", func() bool { // once the turn is over
		return slices.Equal(w.keys("chat_history:", "subagent:", "{"),
			[]string{"chat_history:1", "subagent:analytic:1", "{chat_history:1}:meta", "{subagent:analytic:1}:meta"})
	})
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status)
	require.Equal(t, []string{"{chat_history:1}:meta", "{subagent:analytic:1}:meta", "{subagent:knowledge:1}:meta"},
		w.keys("chat_history:", "subagent:", "{"),
		"tombstones, also of a subagent whose history Redis may just have lost")
}

// Logs and records of runs go with their chat, also when what lists them is gone.
func TestErasureWithoutTheChatsMeta(t *testing.T) {
	w := newWorld(t, answers("hello"))
	ctx := context.Background()
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}, "Idempotency-Key", "k").status)
	require.Len(t, w.keys("events:1:"), 1)
	require.NoError(t, w.look.Del(ctx, "{chat_history:1}:meta").Err())
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status)
	require.Empty(t, w.keys("chat_history:", "subagent:", "events:", "run:"))
}

// What nothing leads to is found by looking through all keys, where that is asked for.
func TestErasureByScan(t *testing.T) {
	w := newWorld(t, answers("hello"))
	ctx := context.Background()
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	run := strings.Repeat("A", 26)
	mine := []string{"subagent:retired:1", "{chat_history:1}:damaged:17", "{subagent:retired:1}:damaged:17", "events:1:" +
		run, "run:1:" + run}
	others := []string{"subagent:retired:11", "subagent:retired:x:1", "{chat_history:11}:damaged:17", "events:1:1:" + run,
		"run:11:" + run}
	for _, key := range append(slices.Clone(mine), others...) {
		require.NoError(t, w.look.Set(ctx, key, `[{"role":"user","content":"secret"}]`, 0).Err())
	}
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status)
	require.Subset(t, w.keys("subagent:", "{", "events:", "run:"), mine[:3], "only a scan can know of these")
	got := w.do("DELETE", "/v1/chats/1?scan=true", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), "subagent:retired:1")
	left := w.keys("subagent:", "{", "events:", "run:", "chat_history:")
	require.Subset(t, left, others)
	for _, key := range mine {
		require.NotContains(t, left, key)
	}
	require.Equal(t, 400, w.do("DELETE", "/v1/chats/1?scan=perhaps", nil).status)
}

// A zombie's first message to a subagent that the chat never used is refused, though
// nothing of the subagent's holds the number of a newer turn.
func TestTheFenceOfAnUnusedSubagent(t *testing.T) {
	w := newWorld(t, answers("hello"))
	ctx := context.Background()
	store := w.store()
	zombie, err := store.Turns.Take(ctx, memory.MustChat("1"), "zombie", "c", time.Minute)
	require.NoError(t, err)
	require.NoError(t, w.look.Del(ctx, "{chat_history:1}:turn").Err()) // the lease ran out
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	for _, agent := range []memory.Agent{"knowledge", "analytic"} {
		key := memory.SubagentKey(agent, memory.MustChat("1"))
		_, err = store.Append(ctx, memory.Empty(key), memory.Mark{Run: "Z", Seq: 1, Turn: zombie.Number},
			memory.Message{Role: memory.RoleUser, Content: "late"}.Encode())
		require.ErrorIs(t, err, memory.ErrMoved, agent)
	}
	require.Equal(t, []string{"chat_history:1", "subagent:analytic:1"}, w.keys("chat_history:", "subagent:"))
}

// store is one more door to the same Redis.
func (w *world) store() *redisstore.Store { return redisstore.New(w.redis.Client(), logger()) }
