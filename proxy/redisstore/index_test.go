package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory/embedded"
	"mneme/proxy/ledger"
	"mneme/proxy/redisstore"
)

// stores are a real Redis and the embedded one.
func stores(t *testing.T) map[string]*redis.Client {
	s, err := embedded.Open(t.Context(), embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{Dialer: s.Dial, ContextTimeoutEnabled: true})
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, s.Close())
	})
	return map[string]*redis.Client{"redis": redistest.Start(t).Client(), "embedded": client}
}

// lasting is shared with a TTL.
func lasting(t testing.TB, client redis.UniversalClient, ttl time.Duration) *ledger.Ledger {
	l := ledger.New(ledger.Config{Remote: redisstore.NewTurns(client, redisstore.TurnLimits{TTL: ttl}),
		Patience: 5 * time.Second})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// What leads to the turns of a conversation is there as long as the one of them that lives longest, and no longer; of an
// erased conversation an hour's memory of that is left. No key stays for ever.
func TestTheIndexOfAConversationEndsWithItsTurns(t *testing.T) {
	testtier.Slow(t)
	for name, client := range stores(t) {
		t.Run(name, func(t *testing.T) {
			with := func(ttl time.Duration) *ledger.Ledger { return lasting(t, client, ttl) }
			scope := func(route string) ledger.Scope { return ledger.Scope{Route: route, Conversation: "c"} }
			left := func(route string) time.Duration {
				key := "proxy:turns:{:c}"
				if route != "" {
					key += ":" + route
				}
				return client.PTTL(t.Context(), key).Val()
			}
			// ends: the index has the time of these turns, but for what passes between two commands.
			ends := func(route string) {
				t.Helper()
				require.Positive(t, left(route))
				require.InDelta(t, left(route).Seconds(), left("").Seconds(), 60)
			}
			short, long := with(10*time.Minute), with(24*time.Hour)
			short.Record(t.Context(), turnOf(scope("main"), 1))
			saved(t, short)
			ends("main")
			require.Less(t, left(""), 11*time.Minute)

			long.Record(t.Context(), turnOf(scope("teammate/a"), 2))
			saved(t, long)
			ends("teammate/a")
			short.Record(t.Context(), turnOf(scope("main"), 3)) // it leaves what lives longer where it can be found
			saved(t, short)
			ends("teammate/a")
			require.NoError(t, short.Keep(t.Context(), "", "c", time.Now().Add(3*day)))
			ends("main")
			require.Greater(t, left(""), 2*day)

			require.NoError(t, long.Forget(t.Context(), "", "c"))
			require.Equal(t, []string{"erased"}, client.HKeys(t.Context(), "proxy:turns:{:c}").Val())
			require.InDelta(t, time.Hour.Seconds(), left("").Seconds(), 60)
			require.NoError(t, long.Forget(t.Context(), "", "unknown"))
			short.Record(t.Context(), turnOf(scope("main"), 4))
			saved(t, short)
			require.InDelta(t, time.Hour.Seconds(), left("").Seconds(), 60, "its erasure is remembered")
			require.True(t, knows(t, with(time.Hour), scope("main"), false, 4))

			// It has asked for erasures when it has heard of one, and so has left all that it leaves.
			asked := func() bool {
				return !knows(t, long, scope("main"), false, 2) && client.Exists(t.Context(), "proxy:turns:born").Val() == 1
			}
			require.Eventually(t, asked, 30*time.Second, time.Millisecond)
			for _, key := range client.Keys(t.Context(), "*").Val() {
				require.Positive(t, client.PTTL(t.Context(), key).Val(), key)
			}
		})
	}
}

// Once the last turn is gone by its time, so is what led to it.
func TestTheIndexOfAConversationIsGoneWithItsLastTurn(t *testing.T) {
	testtier.Slow(t)
	client := redistest.Start(t).Client()
	l := lasting(t, client, time.Second)
	l.Record(t.Context(), turnOf(ledger.Scope{Route: "main", Conversation: "c"}, 1))
	saved(t, l)
	require.Eventually(t, func() bool { return client.Exists(t.Context(), "proxy:turns:{:c}:main").Val() == 0 },
		30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return len(client.Keys(t.Context(), "proxy:turns:{*").Val()) == 0 }, time.Minute,
		10*time.Millisecond, "no hour passes here")
}
