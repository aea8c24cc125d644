package redisstore_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/memory/embedded"
	"mneme/memory/redisstore"
)

// Pins are a readable hash. The first list of tools is pinned, whichever of many processes brings it;
// another one only when it is accepted.
func TestPins(t *testing.T) {
	t.Parallel()
	inside, err := embedded.Open(ctx, embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inside.Close()) })
	byPipe := redis.NewClient(&redis.Options{Protocol: 2, Addr: "embedded", Dialer: inside.Dial})
	t.Cleanup(func() { _ = byPipe.Close() })
	for name, client := range map[string]redis.UniversalClient{
		"redis": redistest.Start(t).Client(), "embedded": byPipe,
	} {
		t.Run(name, func(t *testing.T) { pins(t, client) })
	}
}

func pins(t *testing.T, client redis.UniversalClient) {
	replicas := []*redisstore.Store{redisstore.New(client, zerolog.Nop()), redisstore.New(client, zerolog.Nop())}
	none, err := redisstore.Pinned[json.RawMessage](ctx, replicas[0].Tools, "crm")
	require.NoError(t, err)
	require.Empty(t, none)

	found := make([]map[string]json.RawMessage, 8)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			tool := json.RawMessage(fmt.Sprintf(`{ "name": "refund", "description": "<%d>" }`, i))
			if replicas[i%2].Tools.Pin(ctx, "crm", map[string]json.RawMessage{"refund": tool}) == nil {
				found[i], _ = redisstore.Pinned[json.RawMessage](ctx, replicas[i%2].Tools, "crm")
			}
		})
	}
	all.Wait()
	for _, pinned := range found {
		require.Len(t, pinned, 1)
		require.Equal(t, found[0], pinned, "all have what one of them pinned")
	}
	require.Regexp(t, `^{"name":"refund","description":"<\d>"}$`, client.HGet(ctx, "mneme:tools:crm", "refund").Val())

	other := map[string]json.RawMessage{"a": json.RawMessage(`{}`), "b": json.RawMessage(`{"x":1}`)}
	require.NoError(t, replicas[1].Tools.Pin(ctx, "crm", other))
	kept, err := redisstore.Pinned[json.RawMessage](ctx, replicas[1].Tools, "crm")
	require.NoError(t, err)
	require.Equal(t, found[0], kept)
	require.NoError(t, replicas[1].Tools.Accept(ctx, "crm", other))
	kept, err = redisstore.Pinned[json.RawMessage](ctx, replicas[0].Tools, "crm")
	require.NoError(t, err)
	require.Equal(t, other, kept)

	require.Error(t, replicas[0].Tools.Accept(ctx, "crm", map[string]json.RawMessage{"a": json.RawMessage(`{`)}))
	require.NoError(t, client.HSet(ctx, "mneme:tools:crm", "odd", "{").Err())
	_, err = redisstore.Pinned[json.RawMessage](ctx, replicas[0].Tools, "crm")
	require.ErrorIs(t, err, memory.ErrDamaged)
	require.NoError(t, replicas[0].Tools.Accept(ctx, "crm", other))
	kept, err = redisstore.Pinned[json.RawMessage](ctx, replicas[0].Tools, "crm")
	require.NoError(t, err)
	require.Equal(t, other, kept)
	require.NoError(t, client.Set(ctx, "mneme:tools:crm", "text", 0).Err())
	kept, err = redisstore.Pinned[json.RawMessage](ctx, replicas[0].Tools, "crm")
	require.NoError(t, err)
	require.Empty(t, kept, "what is no hash is set aside")
}
