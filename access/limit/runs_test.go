package limit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/limit"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
)

func TestRunsAtOnce(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l := open(t, client, limit.Options{Bounds: limit.Bounds{
			Tenants: map[string]access.Limits{"acme": limits(t, "3runs", "")}, Users: limits(t, "1runs", ""),
		}})
		p := principal(t, "1000/m,2runs", "")
		alone, keyless := p, p
		alone.User, keyless.User, keyless.Key = "", "", ""
		enter := func(p access.Principal, id string) *limit.Run {
			r, err := l.Enter(t.Context(), p, id)
			require.NoError(t, err)
			return r
		}
		a := enter(p, "a")
		_ = enter(p, "a") // a reply was lost
		_, err := l.Enter(t.Context(), p, "b")
		require.Equal(t, time.Second, refused(t, err, "user ann", "as it may (1)").RetryAfter)
		b := enter(alone, "b") // the user's refusal took nothing of the key's
		_, err = l.Enter(t.Context(), alone, "c")
		refused(t, err, "key k1", "(2)")
		c := enter(keyless, "c")
		_, err = l.Enter(t.Context(), keyless, "d")
		refused(t, err, "tenant acme", "(3)")
		a.Leave()
		a.Leave()
		enter(p, "d").Leave()
		b.Leave()
		c.Leave()
		n, err := client.Exists(t.Context(), limit.Prefix+"{acme}:runs:key:k1", limit.Prefix+"{acme}:runs:user:ann",
			limit.Prefix+"{acme}:runs:tenant:acme").Result()
		require.NoError(t, err)
		require.Zero(t, n)
		_, err = l.Reserve(t.Context(), p, "call", tokens(1)) // runs are no calls
		require.NoError(t, err)
	})
}

func TestManyRunsAtOnce(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		p := principal(t, "7runs", "")
		var in atomic.Int64
		var all sync.WaitGroup
		for g := range 3 {
			l := open(t, client, limit.Options{Patience: time.Minute})
			for i := range 50 {
				all.Go(func() {
					if r, err := l.Enter(t.Context(), p, fmt.Sprint(g, "-", i)); err == nil && r != nil {
						in.Add(1)
					}
				})
			}
		}
		all.Wait()
		require.Equal(t, int64(7), in.Load())
	})
}

func TestARunCountsUntilItsProcessIsDead(t *testing.T) {
	testtier.Slow(t)
	client, p := redistest.Start(t).Client(), principal(t, "1runs", "")
	o := limit.Options{RunLease: 200 * time.Millisecond}
	lives, dies := limit.New(client, o), limit.New(client, o)
	_, err := dies.Enter(t.Context(), p, "a")
	require.NoError(t, err)
	require.NoError(t, dies.Close()) // its lease is not renewed from here on
	var r *limit.Run
	require.Eventually(t, func() bool {
		r, err = lives.Enter(t.Context(), p, "b")
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	key := limit.Prefix + "{acme}:runs:key:k1"
	first, err := client.ZScore(t.Context(), key, "b").Result()
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it is renewed beyond its first life
		now, err := client.ZScore(t.Context(), key, "b").Result()
		return err == nil && now > first+float64(o.RunLease.Milliseconds())
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, client.Del(t.Context(), key).Err()) // Redis lost it
	require.Eventually(t, func() bool {
		n, err := client.ZCard(t.Context(), key).Result()
		return err == nil && n == 1
	}, 30*time.Second, 10*time.Millisecond)
	r.Leave()
	require.NoError(t, lives.Close())
}

func TestRunsWhenRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	refuses := open(t, server.Client(), limit.Options{Patience: 50 * time.Millisecond, RunLease: time.Second})
	allows := open(t, server.Client(), limit.Options{Patience: 50 * time.Millisecond, RunLease: time.Second,
		OutagePolicy: limit.Allow, AwayCalls: 1})
	p := principal(t, "1runs", "")
	server.Signal(syscall.SIGSTOP)
	_, err := refuses.Enter(t.Context(), p, "a")
	require.ErrorIs(t, err, limit.ErrAway)
	r, err := allows.Enter(t.Context(), p, "b")
	require.NoError(t, err)
	_, err = allows.Enter(t.Context(), p, "c")
	require.ErrorIs(t, err, limit.ErrAway)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = refuses.Enter(left, p, "d")
	require.ErrorIs(t, err, context.Canceled)
	server.Signal(syscall.SIGCONT)
	r.Leave()
	require.Eventually(t, func() bool { // what Redis did not answer holds no place for long
		r, err := refuses.Enter(t.Context(), p, "e")
		r.Leave()
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
}
