package limit_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/limit"
)

// What a key has spent and holds of each of its limits, its runs and the end of each period are told.
func TestUses(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{}), principal(t, "60/h,3atonce,2runs", "100tokens/total,1usd/month")
		keys := []access.Key{{ID: "other", Tenant: p.Tenant, Limits: p.Limits}, {ID: "free", Tenant: p.Tenant},
			{ID: p.Key, Tenant: p.Tenant, Limits: p.Limits}}
		uses := func() [][]limit.Use {
			all, err := limit.Uses(t.Context(), l, keys)
			require.NoError(t, err)
			require.Len(t, all, 3)
			require.Empty(t, all[1])
			for _, u := range all[0] {
				require.Zero(t, u.Spent+u.Reserved, u)
			}
			return all
		}
		require.Equal(t, []limit.Use{{Limit: "100tokens/total", Unit: access.Tokens, Most: 100},
			{Limit: "1usd/month", Unit: access.USD, Most: 1_000_000, Resets: uses()[0][1].Resets},
			{Limit: "60/h", Unit: access.Requests, Most: 60}, {Limit: "3atonce", Unit: access.AtOnce, Most: 3},
			{Limit: "2runs", Unit: access.Runs, Most: 2}}, uses()[2])

		run, err := l.Enter(t.Context(), p, "r")
		require.NoError(t, err)
		r, err := l.Reserve(t.Context(), p, "a", limit.Amount{Tokens: 60, Micros: 700_000})
		require.NoError(t, err)
		now := uses()[2]
		require.Equal(t, [5]int64{60, 700_000, 0, 1, 1}, held(now))
		require.Equal(t, [5]int64{0, 0, 1, 0, 0}, spent(now))
		require.True(t, now[0].Resets.IsZero(), "a total never resets")
		require.Equal(t, 1, now[1].Resets.Day())
		require.WithinRange(t, now[1].Resets, time.Now().Add(-time.Hour), time.Now().AddDate(0, 1, 1))
		require.False(t, now[2].Resets.IsZero())

		run.Leave()
		l.Charge(r, limit.Amount{Tokens: 50, Micros: 400_000})
		require.Eventually(t, func() bool {
			now := uses()[2]
			return spent(now) == [5]int64{50, 400_000, 1, 0, 0} && held(now) == [5]int64{}
		}, time.Minute, 5*time.Millisecond)
	})
}

// A call whose gateway has died is not held for longer than its lease, whether another call comes or not.
func TestUsesOfACallWhoseLeaseHasEnded(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{Lease: time.Millisecond}), principal(t, "", "100tokens/total")
		_, err := l.Reserve(t.Context(), p, "a", tokens(60))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			all, err := limit.Uses(t.Context(), l, []access.Key{{ID: p.Key, Tenant: p.Tenant, Limits: p.Limits}})
			require.NoError(t, err)
			return all[0][0].Spent == 60 && all[0][0].Reserved == 0
		}, time.Minute, 5*time.Millisecond)
	})
}

func TestUsesWithoutRedis(t *testing.T) {
	keys := []access.Key{{ID: "k1", Limits: limits(t, "1/s", "")}}
	for _, l := range []*limit.Limiter{nil, limit.New(nil, limit.Options{})} {
		all, err := limit.Uses(t.Context(), l, keys)
		require.NoError(t, err)
		require.Equal(t, [][]limit.Use{nil}, all)
	}
}

func spent(uses []limit.Use) (all [5]int64) {
	for i, u := range uses {
		all[i] = u.Spent
	}
	return all
}

func held(uses []limit.Use) (all [5]int64) {
	for i, u := range uses {
		all[i] = u.Reserved
	}
	return all
}
