package redisstore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory/embedded"
	"mneme/memory/redisstore"
)

// Saved works for a Redis with an append-only file, with dumps, with neither, and for one that refuses INFO.
func TestSaved(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := t.Context()
	open := func(args ...string) (*redistest.Server, redisstore.Server) {
		server := redistest.Start(t, args...)
		return server, redisstore.New(server.Client(), zerolog.Nop()).Server
	}
	_, logging := open("--appendonly", "yes")
	asked := time.Now()
	until, ever, err := logging.Saved(ctx)
	require.NoError(t, err)
	require.True(t, ever)
	require.WithinRange(t, until.Add(redisstore.SyncTime), asked, time.Now())

	_, dumping := open("--save", "3600 1")
	began := time.Now()
	until, ever, err = dumping.Saved(ctx)
	require.NoError(t, err)
	require.True(t, ever)
	require.False(t, until.After(began))
	require.Eventually(t, func() bool {
		require.NoError(t, dumping.Save(ctx))
		until, _, err = dumping.Saved(ctx)
		return err == nil && until.After(began)
	}, time.Minute, 300*time.Millisecond)

	dir := filepath.Join(t.TempDir(), "store")
	store, err := embedded.Open(ctx, embedded.Options{Dir: dir, Log: zerolog.Nop()})
	require.NoError(t, err)
	defer store.Close()
	embed := redis.NewClient(&redis.Options{Dialer: store.Dial})
	defer embed.Close()
	journaling := redisstore.New(embed, zerolog.Nop()).Server
	until, ever, err = journaling.Saved(ctx)
	require.NoError(t, err)
	require.True(t, ever)
	require.WithinDuration(t, time.Now().Add(-redisstore.SyncTime), until, 2*time.Second)
	require.NoError(t, os.RemoveAll(dir))
	require.Eventually(t, func() bool { // the journal refuses writes
		until, ever, err = journaling.Saved(ctx)
		return err == nil && ever && until.Before(began.Add(-time.Hour))
	}, time.Minute, 100*time.Millisecond)

	server, forgetting := open("--save", "")
	_, ever, err = forgetting.Saved(ctx)
	require.NoError(t, err)
	require.False(t, ever)

	require.NoError(t, server.Client().Do(ctx, "acl", "setuser", "bot", "on", ">pass", "~*", "+@all", "-info").Err())
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "bot", Password: "pass"})
	defer client.Close()
	_, ever, err = redisstore.New(client, zerolog.Nop()).Server.Saved(ctx)
	require.NoError(t, err)
	require.False(t, ever)
}
