package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// The token that claims a chat's next turn gets it, whichever others ask meanwhile; an eraser's token
// goes before all, and the posts that wait are told.
func TestTheNextTurnCanBeClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const life, lease = time.Hour, time.Hour
	held := func(token string) *redisstore.HeldError {
		t.Helper()
		_, err := w.Turns.Take(ctx, memory.MustChat("1"), token, "conversation", lease)
		if err == nil {
			return nil
		}
		var held *redisstore.HeldError
		require.ErrorAs(t, err, &held)
		require.Greater(t, held.Remaining, time.Duration(0))
		require.LessOrEqual(t, held.Remaining, lease)
		return held
	}
	require.Nil(t, held("holder"))
	require.NoError(t, w.Turns.First(ctx, memory.MustChat("1"), "first", life))
	require.NoError(t, w.Turns.First(ctx, memory.MustChat("1"), "second", life), "it waits behind the first")
	require.NotNil(t, held("first"), "the lease stays with its holder")
	require.NoError(t, w.Turns.Release(ctx, memory.MustChat("1"), "holder"))
	for _, token := range []string{"other", "second"} {
		require.False(t, held(token).Erasing)
	}
	require.Nil(t, held("first"))
	require.NoError(t, w.Turns.Yield(ctx, memory.MustChat("1"), "second"), "nobody gives up what is another's")
	require.NotNil(t, held("other"))

	eraser, another := redisstore.EraserToken+"a", redisstore.EraserToken+"b"
	require.NoError(t, w.Turns.First(ctx, memory.MustChat("1"), eraser, life))
	require.NoError(t, w.Turns.First(ctx, memory.MustChat("1"), "first", life),
		"renewing does not replace an eraser's claim")
	require.True(t, held("other").Erasing)
	require.NoError(t, w.Turns.Release(ctx, memory.MustChat("1"), "first"))
	require.True(t, held("other").Erasing)
	require.Nil(t, held(another), "erasers do not wait for each other's claims")
	require.NoError(t, w.Turns.Release(ctx, memory.MustChat("1"), another))

	turn, err := w.Turns.Take(ctx, memory.MustChat("1"), eraser, "conversation", lease)
	require.NoError(t, err)
	require.Equal(t, "0", turn.Erased)
	require.NoError(t, w.EraseChat(ctx, turn.Number, memory.MustChat("1"), memory.ChatKey(memory.MustChat("1"))))
	require.NoError(t, w.Turns.Yield(ctx, memory.MustChat("1"), eraser))
	require.NotEqual(t, "0", held("other").Erased)
	require.NoError(t, w.Turns.Release(ctx, memory.MustChat("1"), eraser))
	require.Nil(t, held("other"))
	keys, err := w.redis.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"{chat_history:1}:meta", "{chat_history:1}:turn"}, keys)
}

// A turn that finds only a tombstone and adds nothing leaves it as it was. Otherwise a process that looks after the chat
// of a killed eraser would keep the tombstone for ever, with the id of a conversation.
func TestATurnLeavesATombstoneAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chat := memory.MustChat("1")
	take := func() redisstore.Turn {
		t.Helper()
		turn, err := w.Turns.Take(ctx, chat, "token", "conversation", time.Hour)
		require.NoError(t, err)
		return turn
	}
	require.NoError(t, w.EraseChat(ctx, take().Number, chat))
	for name, leave := range map[string]func() error{
		"released": func() error { return w.Turns.Release(ctx, chat, "token") },
		"left":     func() error { return w.Turns.Leave(ctx, chat, "token") },
	} {
		_, err := w.Turns.ChangeConversation(ctx, chat, "fresh")
		require.NoError(t, err)
		require.NoError(t, leave())
		fields, err := w.redis.HKeys(ctx, "{chat_history:1}:meta").Result()
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"turn", "erased", "cut"}, fields, name)
		require.Positive(t, w.redis.TTL(ctx, "{chat_history:1}:meta").Val(), name)
		take()
	}
	require.Equal(t, time.Duration(-1), w.redis.TTL(ctx, "{chat_history:1}:meta").Val(), "a held chat does not expire")
	require.NoError(t, w.Turns.Yield(ctx, chat, "token"))
	require.Equal(t, "conversation", w.redis.HGet(ctx, "{chat_history:1}:meta", "conversation").Val(),
		"ending a claim does not touch the holder's conversation")
}

// The record of the first attempt names the newest one, also after it expired
// itself, and is erased with the chat.
func TestTheFirstRecordNamesTheNewestAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	found, err := w.Runs.Begin(ctx, memory.MustChat("1"), "one", "body")
	require.NoError(t, err)
	require.Nil(t, found)
	require.NoError(t, w.Runs.Finish(ctx, memory.MustChat("1"), "one", []byte("failed")))
	require.NoError(t, w.Runs.Retried(ctx, memory.MustChat("1"), "one", "body", 2))
	record, err := w.Runs.Record(ctx, memory.MustChat("1"), "one")
	require.NoError(t, err)
	require.Equal(t, &redisstore.Record{Body: "body", Result: []byte("failed"), Newest: 2}, record)

	require.NoError(t, w.redis.Del(ctx, "run:1:one").Err())
	require.NoError(t, w.Runs.Retried(ctx, memory.MustChat("1"), "one", "body", 3))
	record, err = w.Runs.Record(ctx, memory.MustChat("1"), "one")
	require.NoError(t, err)
	require.Equal(t, &redisstore.Record{Body: "body", Result: []byte{}, Newest: 3}, record)
	require.Positive(t, w.redis.TTL(ctx, "run:1:one").Val())
	require.NoError(t, w.Runs.Erase(ctx, memory.MustChat("1")))
	record, err = w.Runs.Record(ctx, memory.MustChat("1"), "one")
	require.NoError(t, err)
	require.Nil(t, record)
}
