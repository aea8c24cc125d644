package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// Places of the same time are listed each once, also where the place of a cursor has left or moved.
func TestPlacesOfTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 30 {
		require.NoError(t, w.redis.ZAdd(ctx, "mneme:chats", redis.Z{Score: 5, Member: fmt.Sprintf("c%02d", i)}).Err())
	}
	at, seen := redisstore.Place{}, map[string]int{}
	for more, step := true, 0; more; step++ {
		places, err := w.Chats.ByUse(ctx, memory.Tenant{}, at, 4)
		require.NoError(t, err)
		for _, p := range places {
			seen[p.Member]++
		}
		if more = len(places) == 4; !more {
			break
		}
		at = places[3]
		switch step {
		case 1:
			require.NoError(t, w.redis.ZRem(ctx, "mneme:chats", at.Member).Err())
		case 2:
			require.NoError(t, w.redis.ZAdd(ctx, "mneme:chats", redis.Z{Score: 9, Member: at.Member}).Err())
		}
	}
	require.Len(t, seen, 30)
	for member, times := range seen {
		require.Equal(t, 1, times, member)
	}
	back, err := redisstore.ParsePlace(at.Cursor())
	require.NoError(t, err)
	require.Equal(t, at, back)
}

// A Redis that came back with a chat from before its erasure says of it, when it is told, what the erasure left:
// nothing of a chat, and what was set by hand of one of which only the history was erased.
func TestAnErasureMadeAgainTakesWhatItTookBefore(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"a chat": true, "its history": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			chat := memory.MustChat("1")
			turn, err := w.Turns.Take(ctx, chat, "one", "conversation", time.Minute)
			require.NoError(t, err)
			open := redisstore.OpenRun{Run: "r", Turn: turn.Number, Title: "secret"}
			_, err = w.Turns.Open(ctx, chat, "one", time.Minute, open)
			require.NoError(t, err)
			title, metadata := "own", `{"of":"ann"}`
			there, err := w.Chats.ChangeCard(ctx, chat, &title, &metadata, nil)
			require.NoError(t, err)
			require.True(t, there)
			cards, err := w.Chats.Cards(ctx, chat)
			require.NoError(t, err)
			require.Equal(t, "own", cards[0].Title)
			require.True(t, cards[0].Open)
			said := func() (fields []string) {
				for _, field := range []string{"begins", "title", "metadata"} {
					if w.redis.HExists(ctx, "{chat_history:1}:meta", field).Val() {
						fields = append(fields, field)
					}
				}
				return fields
			}
			require.Len(t, said(), 3)
			before := w.redis.Dump(ctx, "{chat_history:1}:meta").Val()
			erased := turn.Number + 1
			if whole {
				require.NoError(t, w.EraseChat(ctx, erased, chat, memory.ChatKey(chat)))
			} else {
				require.NoError(t, w.Erase(ctx, erased, memory.ChatKey(chat)))
			}
			left := said()
			require.NoError(t, w.redis.RestoreReplace(ctx, "{chat_history:1}:meta", 0, before).Err())
			_, err = w.Erasures.Cut(ctx, erased, memory.ChatKey(chat), whole)
			require.NoError(t, err)
			require.Equal(t, left, said())
			_, err = w.Chats.ChangeCard(ctx, chat, &title, nil, nil)
			require.NoError(t, err)
			_, err = w.Erasures.Cut(ctx, erased, memory.ChatKey(chat), whole)
			require.NoError(t, err)
			require.Contains(t, said(), "title", "told once more, it takes nothing that is newer")
		})
	}
}
