package redisstore_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// The replica that becomes the master never heard of the last writes. The process
// that has them cached brings them back; the one that has nothing sees them then.
func TestFailoverThatLosesWrites(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	below := redisstore.New(s.Client(), zerolog.Nop())
	cached := cache.New(below, 1<<20)
	other := redisstore.New(s.Client(), zerolog.Nop())
	turn, err := below.Turns.Take(ctx, memory.MustChat("12345"), "one", "conversation", time.Minute)
	require.NoError(t, err)
	late := memory.SubagentKey("late", memory.MustChat("12345")) // begun after the cut, so lost as a whole
	appendTo(t, cached, memory.Empty(key), "r", turn.Number, 1, 2, 3)
	s.CutReplica()
	h := appendTo(t, cached, cached.Peek(key), "r", turn.Number, 4, 5, 6)
	appendTo(t, cached, memory.Empty(late), "r", turn.Number, 7, 8)
	s.Failover()

	require.Equal(t, saying(3), contents(t, loadFrom(t, other, 0, memory.Empty(key))), "they are lost indeed")
	require.Zero(t, loadFrom(t, other, 0, memory.Empty(late)).Len())
	next, err := below.Turns.Take(ctx, memory.MustChat("12345"), "one", "conversation", time.Minute)
	require.NoError(t, err)
	require.Greater(t, next.Number, turn.Number)
	require.Equal(t, saying(6), contents(t, loadFrom(t, cached, next.Number, memory.Empty(key))))
	require.Equal(t, []string{"7", "8"}, contents(t, loadFrom(t, cached, next.Number, memory.Empty(late))))
	require.EqualValues(t, 2, below.Counts.Recovered.Load())
	require.Equal(t, saying(6), contents(t, loadFrom(t, other, 0, memory.Empty(key))))

	// The run is replayed, as after a crash: what came back is not said twice.
	for seq := int64(1); seq <= 6; seq++ {
		_, err := other.Append(ctx, memory.Empty(key), memory.Mark{Run: "r", Seq: seq, Turn: next.Number}, saidIn("r", seq))
		require.NoError(t, err)
	}
	require.Equal(t, saying(6), contents(t, loadFrom(t, cached, next.Number, h)), "a replay of the run doubles nothing")
}

// A writer goes on through a failover; whatever was acknowledged is there once,
// in order, also what the new master had not heard of.
func TestAppendsGoOnThroughAFailover(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, cut := range map[string]bool{"the replica follows": false, "the replica was cut off": true} {
		t.Run(name, func(t *testing.T) {
			s := redistest.StartSentinel(t)
			w := write(t, redisstore.New(s.Client(), zerolog.Nop()), 5)
			w.reaches(20)
			if cut {
				cutWhileWriting(t, s)
				w.reaches(w.acknowledged.Load() + 20)
			}
			s.Failover()
			w.reaches(w.acknowledged.Load() + 20)
			n := w.stop()
			require.Equal(t, saying(n),
				contents(t, loadFrom(t, redisstore.New(s.Client(), zerolog.Nop()), 0, memory.Empty(key))))
		})
	}
}

// cutWhileWriting is CutReplica for a master that never rests.
func cutWhileWriting(t *testing.T, s *redistest.Sentinel) {
	s.Replica.Signal(syscall.SIGSTOP)
	require.NoError(t, s.Master.Client().ClientKillByFilter(ctx, "TYPE", "replica").Err())
}

// With WaitReplicas what no replica has is not acknowledged, so a failover loses
// nothing that was.
func TestWaitReplicas(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	store := redisstore.New(s.Client(), zerolog.Nop())
	store.WaitReplicas = 1
	h := appendTo(t, store, memory.Empty(key), "r", 5, 1, 2)
	s.CutReplica()
	_, err := store.Append(ctx, h, memory.Mark{Run: "r", Seq: 3, Turn: 5}, said(3))
	require.ErrorIs(t, err, memory.ErrUnavailable)
	_, err = store.Append(ctx, h, memory.Mark{Run: "r", Seq: 3, Turn: 5}, said(3))
	require.ErrorIs(t, err, memory.ErrUnavailable, "a duplicate that no replica has is no success either")
	s.Failover()

	after := redisstore.New(s.Client(), zerolog.Nop())
	require.Equal(t, saying(2), contents(t, loadFrom(t, after, 0, memory.Empty(key))))
	require.Equal(t, saying(3), contents(t, appendTo(t, after, h, "r", 5, 3)))
}

// Redis counts the replicas that have what was written on the connection that
// asks. A pool must not ask on another one, which has written nothing lately.
func TestWaitReplicasAsksForItsOwnWrite(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	client := redis.NewClient(&redis.Options{Addr: s.Master.Addr, PoolFIFO: true, PoolSize: 2, MinIdleConns: 2,
		ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	store := redisstore.New(client, zerolog.Nop())
	store.WaitReplicas = 1
	h := appendTo(t, store, memory.Empty(key), "r", 5, 1, 2, 3)
	s.AwaitReplica()
	s.Replica.Signal(syscall.SIGSTOP) // it stays connected and lags behind
	for seq := int64(4); seq <= 6; seq++ {
		_, err := store.Append(ctx, h, memory.Mark{Run: "r", Seq: seq, Turn: 5}, said(seq))
		require.ErrorIs(t, err, memory.ErrUnavailable)
	}
}
