package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory/chatstate"
	"mneme/memory/embedded"
)

// The prototype's commit writes all or nothing, and takes the same bytes twice but not the same number.
func TestACommitIsWholeAndTheSameOnlyByItsBytes(t *testing.T) {
	store, err := embedded.Open(t.Context(), embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	inside := redis.NewClient(&redis.Options{Addr: "embedded", Dialer: store.Dial})
	t.Cleanup(func() { _ = inside.Close() })
	for name, client := range map[string]*redis.Client{"redis": redistest.Start(t).Client(), "embedded": inside} {
		t.Run(name, func(t *testing.T) {
			keys := []string{"{chat_history:1}:state", "chat_history:1", "{chat_history:1}:turn"}
			s := apply(chatstate.State{}, chatstate.Take{By: "a", Above: 1})
			commit := func(before, after chatstate.State, at, bytes string) any {
				r, err := commitState.Run(t.Context(), client, keys, chatstate.Head(before.Mark()), after.Encode(), at, bytes,
					0).Slice()
				require.NoError(t, err)
				return r[0]
			}
			one := apply(s, chatstate.Use{Agent: "a"})
			require.Equal(t, "lost", commit(s, one, "", ""), "an absent state is not an empty one")
			require.Zero(t, client.Exists(t.Context(), keys...).Val())

			r, err := takeState.Run(t.Context(), client, []string{keys[2], "{chat_history:1}:first", keys[0], keys[1]}, "token",
				60_000, "", s.Encode(), "").Slice()
			require.NoError(t, err)
			require.Equal(t, "ok", r[0])
			require.Equal(t, "ok", commit(s, one, "-", "[1]"))
			require.Equal(t, "ok", commit(s, one, "-", "[1]"), "sent again")
			require.Equal(t, "[1]", client.Get(t.Context(), keys[1]).Val())
			other := apply(s, chatstate.Use{Agent: "b"})
			require.Equal(t, one.Mark(), other.Mark())
			require.Equal(t, "moved", commit(s, other, "2", ",2]"))
			two := apply(one, chatstate.Use{Agent: "b"})
			for name, value := range map[string]string{"longer": "[1,5]", "shorter": "[]", "no array": "abc"} {
				require.NoError(t, client.Set(t.Context(), keys[1], value, 0).Err())
				require.Equal(t, "foreign", commit(one, two, "2", ",2]"), name)
				require.Equal(t, string(one.Encode()), client.Get(t.Context(), keys[0]).Val(), "nothing is written")
			}
			require.NoError(t, client.Del(t.Context(), keys[1]).Err())
			require.NoError(t, client.LPush(t.Context(), keys[1], "x").Err())
			require.Error(t, commitState.Run(t.Context(), client, keys, chatstate.Head(one.Mark()), two.Encode(), "2", ",2]",
				0).Err())
			require.Equal(t, string(one.Encode()), client.Get(t.Context(), keys[0]).Val())
		})
	}
}
