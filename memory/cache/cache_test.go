package cache_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

var ctx = context.Background()

// A cache that holds a few hundred of ten thousand chats stays within its bound. An evicted chat is read again unchanged.
func TestManyChatsInABoundedCache(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const chats, bound = 10_000, 1 << 20
	below := redisstore.New(redistest.Start(t).Client(), zerolog.Nop())
	c := cache.New(below, bound)
	keyOf := func(i int) memory.Key { return memory.ChatKey(memory.MustChat(fmt.Sprint(i))) }
	filler := strings.Repeat("x", 1000)
	held := func() (n, bytes int) {
		for i := range chats {
			if h := c.Peek(keyOf(i)); h != nil {
				n, bytes = n+1, bytes+h.Size()
			}
		}
		return n, bytes
	}
	for i := range chats {
		m := memory.Message{Role: memory.RoleUser, Content: fmt.Sprint(i, " ", filler), Timestamp: 1}
		_, err := c.Append(ctx, memory.Empty(keyOf(i)), memory.Mark{Run: "r", Seq: 1, Turn: 5}, m.Encode())
		require.NoError(t, err)
		if i%1000 == 999 {
			_, bytes := held()
			require.Less(t, bytes, 2*bound, "evictions come a little later than what pushes out")
		}
	}
	n, bytes := held()
	require.Positive(t, n)
	require.Less(t, n, chats/5)
	require.Less(t, bytes, 2*bound)
	for i := range chats {
		h, err := c.Load(ctx, 6, memory.Empty(keyOf(i)))
		require.NoError(t, err)
		messages, err := h[0].Messages(0)
		require.NoError(t, err)
		require.Len(t, messages, 1)
		require.Equal(t, fmt.Sprint(i, " ", filler), messages[0].Content)
	}
	require.Zero(t, below.Counts.Recovered.Load())
	require.Zero(t, below.Counts.Deleted.Load())
}
