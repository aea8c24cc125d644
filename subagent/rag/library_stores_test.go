package rag_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	inside "mneme/memory/embedded"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// follower is a library that follows the store until the test ends.
func follower(t *testing.T, client redis.UniversalClient) (l *rag.Library) {
	t.Helper()
	l = rag.NewLibrary(docstore.New(client, 0), rag.Options{Log: zerolog.Nop(), Patience: 100 * time.Millisecond})
	require.NoError(t, l.Load(ctx, memory.Tenant{}))
	following, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { l.Follow(following, memory.Tenant{}) })
	t.Cleanup(func() { stop(); done.Wait(); l.Close() })
	return l
}

// follows says that a replica comes to find what others put, deleted and replaced.
func follows(t *testing.T, client redis.UniversalClient) {
	writer := library(client)
	defer writer.Close()
	c := collection(t, writer, "docs")
	put(t, writer, c, "a", "apples")
	put(t, writer, c, "b", "apples and pears")
	l := follower(t, client)
	put(t, writer, c, "c", "apples and plums")
	put(t, writer, c, "b", "cherries")
	_, err := writer.Delete(ctx, c, "a")
	require.NoError(t, err)
	info, err := writer.Info(ctx, c)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
		return err == nil && !r.Degraded && r.IndexVersion == info.Version && len(r.Passages) == 1 &&
			r.Passages[0].DocID == "c"
	}, time.Minute, 20*time.Millisecond)
	_, err = writer.Drop(ctx, c)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a store that takes long to say so is as one that is away
		_, err = l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
		return errors.Is(err, docstore.ErrNoCollection)
	}, time.Minute, 20*time.Millisecond)
}

func TestAReplicaFollowsTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	server, err := inside.Open(ctx, inside.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"embedded"}, Dialer: server.Dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { client.Close() })
	follows(t, client)
}

func TestAReplicaFollowsACluster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	follows(t, redistest.StartCluster(t).Client())
}

func TestAReplicaFollowsOverSentinel(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	follows(t, s.Client())
	writer := library(s.Client())
	defer writer.Close()
	c := collection(t, writer, "docs")
	put(t, writer, c, "a", "apples")
	l := follower(t, s.Client())
	s.AwaitReplica()
	s.Failover()
	require.Eventually(t, func() bool {
		_, err := writer.Put(ctx, c, input("b", "apples too"))
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
		return err == nil && !r.Degraded && len(r.Passages) == 2
	}, time.Minute, 20*time.Millisecond)
}

// While Redis is away what is known is found, degraded; when it is back the replica
// comes to what was changed without it.
func TestAReplicaFollowsAgainWhenRedisIsBack(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	writer := library(server.Client())
	defer writer.Close()
	c := collection(t, writer, "docs")
	put(t, writer, c, "a", "apples")
	l := follower(t, server.Client())
	find := func() rag.Result {
		r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: "apples"})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, []string{"a"}, documents(find()))
	server.Signal(syscall.SIGSTOP)
	for range 3 {
		r := find()
		require.True(t, r.Degraded)
		require.Equal(t, []string{"a"}, documents(r))
		require.Zero(t, l.Lag(), "nobody has said that something changed")
	}
	server.Signal(syscall.SIGCONT)
	put(t, writer, c, "b", "apples too")
	_, err := writer.Delete(ctx, c, "a")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		r := find()
		return !r.Degraded && len(r.Passages) == 1 && r.Passages[0].DocID == "b"
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { return l.Lag() == (rag.Lag{}) }, time.Minute, 20*time.Millisecond)
}
