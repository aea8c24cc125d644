package redisstore_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// What is set aside for a rewind is listed from the moment on in which any process finishes it: one
// that dies before has taken nothing back.
func TestARewindIsListedOnceItHasBegun(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	s, chat := redisstore.New(client, zerolog.Nop()), memory.MustChat("c")
	a := redisstore.SetAside{ID: "7", Runs: []string{"one", "two"}, Histories: []redisstore.AsideHistory{
		{Key: memory.ChatKey(chat).String(), Messages: 1, Pieces: 1}}}
	piece := redisstore.Piece{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"<&>"}`)}}
	require.NoError(t, s.Rewinds.SetAside(ctx, a.Turn(), chat, a.ID, memory.ChatKey(chat), 0, piece))
	listed, err := s.Rewinds.List(ctx, chat)
	require.NoError(t, err)
	require.Empty(t, listed)

	require.NoError(t, s.Rewinds.Begin(ctx, chat, "rewind:"+a.ID, a, time.Minute))
	listed, err = s.Rewinds.List(ctx, chat)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	listed[0].Until = time.Time{}
	require.Equal(t, a, listed[0])
	require.Equal(t, "rewind:"+a.ID, client.HGet(ctx, "{chat_history:c}:meta", "pending").Val())
}
