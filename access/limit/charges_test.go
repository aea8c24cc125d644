package limit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
)

// losses are the ways in which a Redis forgets what it had acknowledged since a moment, or all of it.
var losses = map[string]struct {
	before, after func(*testing.T, *redistest.Server)
	forgets       int64 // of 80 charges, the last 30 of them after before
}{
	"older": {
		func(t *testing.T, s *redistest.Server) { require.NoError(t, s.Client().Save(t.Context()).Err()) },
		func(t *testing.T, s *redistest.Server) { s.Kill(); require.NoError(t, s.Run()) },
		30,
	},
	"emptied": {
		func(*testing.T, *redistest.Server) {},
		func(t *testing.T, s *redistest.Server) { require.NoError(t, s.Client().FlushAll(t.Context()).Err()) },
		80,
	},
}

// acknowledged waits until the gateways have Redis's replies to so many charges. A charge whose reply is lost is written
// once more, but does not count as restored.
func acknowledged(t *testing.T, want int, gateways ...*limit.Limiter) {
	t.Helper()
	require.Eventually(t, func() bool {
		kept := 0
		for _, l := range gateways {
			kept += l.Kept()
		}
		return kept == want
	}, time.Minute, time.Millisecond)
}

// TestABudgetHoldsWhenRedisForgets: two gateways spend 50 of 100, 30 more that Redis forgets, and go on: both of them,
// or one of them while no call comes to the other.
func TestABudgetHoldsWhenRedisForgets(t *testing.T) {
	for name, loss := range losses {
		for _, goOn := range []int{1, 2} {
			t.Run(fmt.Sprint(name, goOn), func(t *testing.T) {
				t.Parallel()
				server, p := redistest.Start(t), principal(t, "", "100tokens/total")
				gateways := []*limit.Limiter{
					open(t, server.Client(), limit.Options{}), open(t, server.Client(), limit.Options{})}
				var calls, admitted atomic.Int64
				// call is one of 1 token; false says that the budget is spent.
				call := func(l *limit.Limiter) bool {
					r, err := l.Reserve(t.Context(), p, fmt.Sprint("call-", calls.Add(1)), tokens(1))
					if err == nil {
						admitted.Add(1)
						l.Charge(r, tokens(1))
					}
					return !errors.As(err, new(*limit.Refusal)) // else Redis may be away
				}
				spend := func(n int64) {
					for i := 0; admitted.Load() < n; i++ {
						require.True(t, call(gateways[i%2]))
					}
					settled(t, server.Client(), "key:k1:tokens", n)
				}
				spend(50)
				loss.before(t, server)
				spend(80)
				flying, err := gateways[0].Reserve(t.Context(), p, "flying", tokens(5))
				require.NoError(t, err)
				acknowledged(t, 80, gateways...)
				loss.after(t, server)
				var all sync.WaitGroup
				for _, l := range gateways[:goOn] {
					all.Go(func() {
						for call(l) {
						}
					})
				}
				all.Wait()
				require.LessOrEqual(t, admitted.Load(), int64(100), "the budget is for so many")
				require.Equal(t, int64(100), admitted.Load(), "and for no fewer")
				settled(t, server.Client(), "key:k1:tokens", 100)
				gateways[0].Charge(flying, tokens(5))
				settled(t, server.Client(), "key:k1:tokens", 105)
				reported(t, server.Client(), tally.ByTenant, 105)
				require.Equal(t, loss.forgets, gateways[0].Restored.Load()+gateways[1].Restored.Load())
			})
		}
	}
}

// What calls that nothing bounds took is written again, too, and once, by a process to which no call comes.
func TestReportsHoldWhenRedisForgets(t *testing.T) {
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, p := redistest.Start(t), principal(t, "", "")
			l := open(t, server.Client(), limit.Options{})
			spend := func(from, to int) {
				for i := from; i < to; i++ {
					l.Commit(limit.Reservation{}, tally.Call{Time: time.Now(), Request: fmt.Sprint(i), Tenant: p.Tenant,
						Backend: "v", Counts: tally.Counts{Input: 1}})
				}
				reported(t, server.Client(), tally.ByBackend, int64(to))
			}
			spend(0, 50)
			loss.before(t, server)
			spend(50, 80)
			acknowledged(t, 80, l)
			loss.after(t, server)
			reported(t, server.Client(), tally.ByBackend, 80)
			spend(80, 90)
			require.Equal(t, loss.forgets, l.Restored.Load())
		})
	}
}

// Charges that Redis has are not charged again, those of a tenant that was erased do not come back, and a call that
// comes meanwhile waits and is admitted.
func TestWhatIsWrittenAgainChangesNothing(t *testing.T) {
	testtier.Slow(t)
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{}), principal(t, "", "100tokens/total,1usd/day")
		spend := func(name string) {
			for i := range 10 {
				r, err := l.Reserve(t.Context(), p, fmt.Sprint(name, i), tokens(5))
				require.NoError(t, err)
				l.Charge(r, tokens(4))
			}
		}
		spend("a")
		settled(t, client, "key:k1:tokens", 40)
		l.Lost()
		spend("b")
		settled(t, client, "key:k1:tokens", 80)
		acme, err := memory.ParseTenant("acme")
		require.NoError(t, err)
		require.NoError(t, limit.Erase(t.Context(), client, acme))
		l.Lost()
		r, err := l.Reserve(t.Context(), p, "c", tokens(100))
		require.NoError(t, err)
		l.Charge(r, tokens(1))
		settled(t, client, "key:k1:tokens", 1)
	})
}

// What Redis no longer remembers as ended, since that is long ago, is not charged again, and that it does not is no loss.
func TestOldChargesAreNotWrittenAgain(t *testing.T) {
	testtier.Slow(t)
	client := redistest.Start(t).Client()
	l, p := open(t, client, limit.Options{}), principal(t, "", "100tokens/total")
	spend := func(id string) {
		r, err := l.Reserve(t.Context(), p, id, tokens(5))
		require.NoError(t, err)
		l.Charge(r, tokens(5))
	}
	for i := range 10 {
		spend(fmt.Sprint("a", i))
	}
	settled(t, client, "key:k1:tokens", 50)
	require.Eventually(t, func() bool { return l.Age(10, 20*time.Minute) }, time.Minute, 5*time.Millisecond)
	marks, err := client.Keys(t.Context(), tally.Prefix+"{acme}:seen:*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, marks)
	require.NoError(t, client.Del(t.Context(), marks...).Err())
	l.Lost()
	spend("b")
	settled(t, client, "key:k1:tokens", 55)
	require.Zero(t, l.Restored.Load())
}

// A call that waits while charges are written again ends with its client.
func TestACallThatWaitsForTheBooksEndsWithItsClient(t *testing.T) {
	l := open(t, redistest.Start(t).Client(), limit.Options{})
	l.Lost()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := l.Reserve(ctx, principal(t, "", "100tokens/total"), "a", tokens(1))
	require.ErrorIs(t, err, context.Canceled)
}
