package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/memory/redisstore"
)

func TestProbeNamesARefusedCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "")
	for _, command := range []string{"get", "hget", "hincrby", "hkeys", "hlen", "hsetnx", "pexpire", "pttl"} {
		options, err := redis.ParseURL(server.UserURL("~*", "&*", "+@all", "-"+command))
		require.NoError(t, err)
		client := redis.NewClient(options)
		err = redisstore.New(client, zerolog.Nop()).Server.Probe(t.Context())
		require.ErrorIs(t, err, memory.ErrRefused)
		require.ErrorContains(t, err, "the command "+command)
		require.NoError(t, client.Close())
	}
}
