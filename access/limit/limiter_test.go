package limit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/embedded"
)

// stores are those in which the scripts have to work.
func stores(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).Client()) })
	t.Run("embedded", func(t *testing.T) {
		s, err := embedded.Open(t.Context(), embedded.Options{Dir: t.TempDir()})
		require.NoError(t, err)
		client := redis.NewClient(&redis.Options{Dialer: s.Dial, Addr: "embedded",
			ReadTimeout: time.Minute, PoolTimeout: time.Minute}) // its scripts take long on a busy machine
		t.Cleanup(func() { _, _ = client.Close(), s.Close() })
		test(t, client)
	})
	t.Run("cluster", func(t *testing.T) {
		testtier.Slow(t)
		test(t, redistest.StartCluster(t).Client())
	})
}

func open(t *testing.T, client redis.UniversalClient, o limit.Options) *limit.Limiter {
	l := limit.New(client, o)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// principal is a key with limits.
func principal(t *testing.T, rate, budget string) access.Principal {
	p := access.Principal{Key: "k1", User: "ann"}
	var err error
	p.Tenant, err = memory.ParseTenant("acme")
	require.NoError(t, err)
	p.Limits = limits(t, rate, budget)
	return p
}

func limits(t *testing.T, rate, budget string) (l access.Limits) {
	var err error
	l.Rate, err = access.ParseRates(rate)
	require.NoError(t, err)
	l.Budget, err = access.ParseBudgets(budget)
	require.NoError(t, err)
	return l
}

func tokens(n int64) limit.Amount { return limit.Amount{Tokens: n} }

// book is what a budget for ever has spent and what it holds.
func book(t *testing.T, client redis.UniversalClient, field string) (spent, held int64) {
	all, err := client.HGetAll(t.Context(), limit.Prefix+"{acme}:total").Result()
	require.NoError(t, err)
	number := func(s string) int64 {
		if s == "" {
			return 0
		}
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	return number(all[field]), number(all[field+":held"])
}

func settled(t *testing.T, client redis.UniversalClient, field string, want int64) {
	require.Eventually(t, func() bool {
		spent, held := book(t, client, field)
		return spent == want && held == 0
	}, time.Minute, 5*time.Millisecond)
}

// reported awaits that the counters of acme, by whatever, have the tokens that are spent.
func reported(t *testing.T, client redis.UniversalClient, by tally.Dimension, want int64) {
	t.Helper()
	got := int64(-1)
	require.Eventually(t, func() bool {
		acme, err := memory.ParseTenant("acme")
		require.NoError(t, err)
		page, err := tally.New(client, 0).Read(t.Context(), tally.Query{Tenant: acme, Dimension: by,
			First: time.Now().AddDate(0, 0, -1), Last: time.Now()})
		require.NoError(t, err)
		got = 0
		for _, row := range page.Rows {
			got += row.Input
		}
		return got == want
	}, time.Minute, 5*time.Millisecond, "%s: %d, not %d", by, &got, want)
}

func refused(t *testing.T, err error, says ...string) *limit.Refusal {
	var r *limit.Refusal
	require.ErrorAs(t, err, &r)
	for _, s := range says {
		require.Contains(t, r.Error(), s)
	}
	return r
}

func TestABudgetCountsWhatIsReserved(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{}), principal(t, "", "100tokens/total,1usd/month")
		first, err := l.Reserve(t.Context(), p, "a", limit.Amount{Tokens: 60, Micros: 700_000})
		require.NoError(t, err)
		require.Equal(t, int64(300_000), first.Standing.Remaining)

		_, err = l.Reserve(t.Context(), p, "b", tokens(41))
		r := refused(t, err, "key k1", "100tokens/total", "0 tokens are spent", "hold 60 tokens", "may take 41 tokens")
		require.Equal(t, time.Second, r.RetryAfter)

		_, err = l.Reserve(t.Context(), p, "b", limit.Amount{Tokens: 1, Micros: 300_001})
		r = refused(t, err, "1usd/month", "0.7 USD", "0.300001 USD", "resets on", "-01 00:00 UTC")
		require.Positive(t, r.Standing.Reset)

		second, err := l.Reserve(t.Context(), p, "b", tokens(40))
		require.NoError(t, err)
		l.Charge(first, tokens(10))
		l.Charge(first, tokens(10)) // again
		l.Charge(second, tokens(50))
		settled(t, client, "key:k1:tokens", 60)
		_, err = l.Reserve(t.Context(), p, "b", tokens(1000)) // the same id again, after its end
		require.NoError(t, err)
		settled(t, client, "key:k1:tokens", 60)
		_, err = l.Reserve(t.Context(), p, "c", tokens(101))
		require.Zero(t, refused(t, err, "more than the whole budget").RetryAfter)
	})
}

// A call that turns out to take more than it reserved is admitted for the rest, if there is room for it.
func TestACallReservesMore(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{}), principal(t, "1/h,200tokens/h,1atonce", "100tokens/total,1usd/total")
		reserve := func(tokens, micros int64) (limit.Reservation, error) {
			return l.Reserve(t.Context(), p, "a", limit.Amount{Tokens: tokens, Micros: micros})
		}
		held := func(tokens, micros int64) {
			_, got := book(t, client, "key:k1:tokens")
			require.Equal(t, tokens, got)
			_, got = book(t, client, "key:k1:usd")
			require.Equal(t, micros, got)
		}
		_, err := reserve(60, 500_000)
		require.NoError(t, err)
		for range 2 { // its reply may have been lost
			_, err = reserve(90, 400_000)
			require.NoError(t, err)
			held(90, 500_000)
		}
		_, err = reserve(101, 0)
		refused(t, err, "100tokens/total")
		_, err = reserve(0, 1_100_000)
		refused(t, err, "1usd/total")
		held(90, 500_000)
		r, err := reserve(100, 600_000)
		require.NoError(t, err)
		l.Charge(r, limit.Amount{Tokens: 95, Micros: 1})
		settled(t, client, "key:k1:tokens", 95)
		settled(t, client, "key:k1:usd", 1)
	})
}

func TestARefusedCallConsumesNothing(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l := open(t, client, limit.Options{Bounds: limit.Bounds{
			Tenants: map[string]access.Limits{"acme": limits(t, "", "10tokens/total")}, Users: limits(t, "2/d", ""),
		}})
		p := principal(t, "3/d,5atonce", "1000tokens/total")
		for i := range 20 { // the tenant's budget refuses, so that neither the key nor the user pays
			_, err := l.Reserve(t.Context(), p, fmt.Sprint("x", i), tokens(11))
			refused(t, err, "tenant acme")
		}
		for _, id := range []string{"a", "b"} {
			_, err := l.Reserve(t.Context(), p, id, tokens(1))
			require.NoError(t, err)
			_, err = l.Reserve(t.Context(), p, id, tokens(1)) // a reply was lost
			require.NoError(t, err)
		}
		_, err := l.Reserve(t.Context(), p, "c", tokens(1))
		require.Greater(t, refused(t, err, "user ann", "2/d").RetryAfter, 11*time.Hour)
		p.User = ""
		_, err = l.Reserve(t.Context(), p, "d", tokens(1)) // the third of the key
		require.NoError(t, err)
		_, err = l.Reserve(t.Context(), p, "e", tokens(1))
		refused(t, err, "key k1", "3/d")
		_, held := book(t, client, "tenant:acme:tokens")
		require.Equal(t, int64(3), held)
	})
}

func TestRates(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{}), principal(t, "1000tokens/d,2atonce", "")
		a, err := l.Reserve(t.Context(), p, "a", tokens(900))
		require.NoError(t, err)
		require.Equal(t, int64(1000), a.Standing.Limit)
		require.InDelta(t, 100, a.Standing.Remaining, 1)
		_, err = l.Reserve(t.Context(), p, "b", tokens(200))
		refused(t, err, "1000tokens/d")
		_, err = l.Reserve(t.Context(), p, "b", tokens(1001))
		require.Zero(t, refused(t, err, "ever allows").RetryAfter)
		l.Charge(a, tokens(100)) // what was not used is given back
		var b limit.Reservation
		require.Eventually(t, func() bool {
			b, err = l.Reserve(t.Context(), p, "b", tokens(200))
			return err == nil
		}, 30*time.Second, 5*time.Millisecond)
		_, err = l.Reserve(t.Context(), p, "c", tokens(1))
		require.NoError(t, err)
		_, err = l.Reserve(t.Context(), p, "d", tokens(1))
		refused(t, err, "2 calls of models")
		l.Charge(b, tokens(0))
		require.Eventually(t, func() bool {
			_, err = l.Reserve(t.Context(), p, "d", tokens(1))
			return err == nil
		}, 30*time.Second, 5*time.Millisecond)
	})
}

// A client that has one call after the other is never refused for being beside itself: the end of a call is in the books
// before the next one is looked at.
func TestOneCallAfterTheOtherIsOneAtOnce(t *testing.T) {
	testtier.Slow(t)
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		gateway, another := open(t, client, limit.Options{}), open(t, client, limit.Options{})
		p := principal(t, "1atonce", "")
		for i := range 60 {
			r, err := gateway.Reserve(t.Context(), p, fmt.Sprint("call-", i), tokens(1))
			require.NoError(t, err, i)
			if i%20 == 0 {
				_, err := another.Reserve(t.Context(), p, "beside", tokens(1))
				refused(t, err, "1 calls of models run at once")
			}
			gateway.Charge(r, tokens(1))
		}
	})
}

func TestWhoHasNoLimitsAsksNothing(t *testing.T) {
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("Redis was asked")
		return nil, errors.New("away")
	}})
	t.Cleanup(func() { _ = client.Close() })
	l := open(t, client, limit.Options{Bounds: limit.Bounds{
		Tenants: map[string]access.Limits{"other": limits(t, "1/m", "")}}})
	for _, p := range []access.Principal{access.Anyone, principal(t, "", ""), {Limits: limits(t, "1/m", "")}} {
		r, err := l.Reserve(t.Context(), p, "a", tokens(1))
		require.NoError(t, err)
		l.Charge(r, tokens(1))
	}
}

func TestALeaseThatEndsIsChargedByThePolicy(t *testing.T) {
	testtier.Slow(t)
	for policy, want := range map[limit.Unclosed]int64{limit.ChargeEstimate: 50, limit.Release: 0} {
		t.Run(string(policy), func(t *testing.T) {
			stores(t, func(t *testing.T, client redis.UniversalClient) {
				l := open(t, client, limit.Options{Lease: 20 * time.Millisecond, Unclosed: policy})
				p := principal(t, "5atonce", "100tokens/total")
				var all []limit.Reservation
				for i := range 5 {
					r, err := l.Reserve(t.Context(), p, fmt.Sprint("a", i), tokens(10))
					require.NoError(t, err)
					all = append(all, r)
				}
				require.Eventually(t, func() bool { // any call ends what has run out
					r, err := l.Reserve(t.Context(), p, "probe"+fmt.Sprint(rand.Int()), tokens(0))
					l.Charge(r, tokens(0))
					spent, held := book(t, client, "key:k1:tokens")
					return err == nil && spent == want && held == 0
				}, 30*time.Second, 5*time.Millisecond)
				reported(t, client, tally.ByKey, want)
				reported(t, client, tally.ByTenant, want)
				l.Charge(all[0], tokens(33)) // late, and true
				settled(t, client, "key:k1:tokens", want+33-want/5)
				for _, by := range []tally.Dimension{tally.ByKey, tally.ByTenant, tally.ByUser} {
					reported(t, client, by, want+33-want/5)
				}
				n, err := client.Exists(t.Context(), limit.Prefix+"{acme}:live", limit.Prefix+"{acme}:calls",
					limit.Prefix+"{acme}:atonce").Result()
				require.NoError(t, err)
				require.Zero(t, n)
			})
		})
	}
}

// TestManyAtOnce: four processes' limiters, each with 1,000 calls at once on a budget for 100.
func TestManyAtOnce(t *testing.T) {
	testtier.Slow(t)
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		p := principal(t, "", "1000tokens/total")
		var admitted atomic.Int64
		var all sync.WaitGroup
		for g := range 4 {
			l := open(t, client, limit.Options{Patience: time.Minute})
			for i := range 1000 {
				all.Go(func() {
					r, err := l.Reserve(t.Context(), p, fmt.Sprint(g, "-", i), tokens(10))
					var no *limit.Refusal
					switch {
					case err == nil:
						admitted.Add(1)
						l.Charge(r, tokens(10))
					case !errors.As(err, &no):
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		require.Equal(t, int64(100), admitted.Load())
		settled(t, client, "key:k1:tokens", 1000)
	})
}

// TestPeriods: what is spent lies under the calendar's day and month of Redis's clock, and goes some time after it.
func TestPeriods(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		l, p := open(t, client, limit.Options{}), principal(t, "", "9tokens/day,9tokens/month,9tokens/total")
		before := time.Now().UTC()
		_, err := l.Reserve(t.Context(), p, "a", tokens(1))
		require.NoError(t, err)
		after := time.Now().UTC()
		for layout, ends := range map[string]time.Time{
			":day:2006-01-02": time.Date(before.Year(), before.Month(), before.Day()+3, 0, 0, 0, 0, time.UTC),
			":month:2006-01":  time.Date(before.Year(), before.Month()+2, 1, 0, 0, 0, 0, time.UTC),
			":total":          {},
		} {
			key := limit.Prefix + "{acme}" + before.Format(layout)
			if key != limit.Prefix+"{acme}"+after.Format(layout) {
				t.Skip("the day ended meanwhile")
			}
			held, err := client.HGet(t.Context(), key, "key:k1:tokens:held").Result()
			require.NoError(t, err, key)
			require.Equal(t, "1", held)
			ttl, err := client.TTL(t.Context(), key).Result()
			require.NoError(t, err)
			if ends.IsZero() {
				require.Negative(t, ttl)
			} else {
				require.WithinDuration(t, ends, time.Now().Add(ttl), time.Minute, key)
			}
		}
	})
}

// TestTheCalendar runs the scripts' calendar over 400 years.
func TestTheCalendar(t *testing.T) {
	if testing.Short() {
		t.Skip("every day of 400 years")
	}
	client := redistest.Start(t).Client()
	for from := int64(0); from <= 146100; from += 1000 { // a script of more than 5 s has Redis refuse what is asked next
		got, err := client.Eval(t.Context(), limit.Books+`
			local all = {}
			for day = tonumber(ARGV[5]), ARGV[5] + 999 do
				local y, m, d = civil(day)
				all[#all + 1] = string.format('%04d-%02d-%02d %d', y, m, d, nextMonth(day))
			end
			return all`, []string{"x", "y"}, "", "", "", "", from, 0).StringSlice()
		require.NoError(t, err)
		require.Len(t, got, 1000)
		for i, date := range got {
			at := time.Unix((from+int64(i))*86400, 0).UTC()
			next := time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400
			require.Equal(t, at.Format("2006-01-02 ")+strconv.FormatInt(next, 10), date)
		}
	}
}

// verdict says whether a reply is of a script of the limiter. Those of the handshake are others: they change nothing.
func verdict(reply []byte) bool {
	return slices.ContainsFunc([]string{"ok\r\n", "refused", "repeated"}, func(word string) bool {
		return bytes.Contains(reply, []byte(word))
	})
}

// TestLostRepliesDriftNothing: one reply in ten is lost, after Redis did what it was told.
func TestLostRepliesDriftNothing(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	addr, lost := server.Lossy(t, 0.1, verdict)
	through := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 2, ContextTimeoutEnabled: true, PoolSize: 8})
	t.Cleanup(func() { _ = through.Close() })
	l := open(t, through, limit.Options{})
	p := principal(t, "", "1000000tokens/total")
	var want atomic.Int64
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 100 {
				r, err := l.Reserve(t.Context(), p, fmt.Sprint(g, "-", i), tokens(50))
				if err != nil {
					continue // it is taken back
				}
				actual := int64(rand.IntN(100))
				want.Add(actual)
				l.Charge(r, tokens(actual))
			}
		})
	}
	all.Wait()
	settled(t, server.Client(), "key:k1:tokens", want.Load())
	require.Greater(t, lost.Load(), int64(20))
}

func TestWhenRedisIsAway(t *testing.T) {
	testtier.Slow(t)
	for _, away := range []limit.OutagePolicy{limit.Refuse, limit.Allow} {
		t.Run(string(away), func(t *testing.T) {
			server := redistest.Start(t)
			l := open(t, server.Client(), limit.Options{OutagePolicy: away, AwayCalls: 3, Patience: 50 * time.Millisecond})
			p := principal(t, "1/d", "1000tokens/total")
			server.Signal(syscall.SIGSTOP) // what it gets now it does when it goes on
			passed := int64(0)
			for i := range 10 {
				r, err := l.Reserve(t.Context(), p, fmt.Sprint(i), tokens(50))
				if err != nil {
					require.ErrorIs(t, err, limit.ErrAway)
					continue
				}
				passed++
				l.Charge(r, tokens(7))
			}
			want := int64(0)
			if away == limit.Allow {
				want = 3
			}
			require.Equal(t, want, passed)
			server.Signal(syscall.SIGCONT)
			settled(t, server.Client(), "key:k1:tokens", 7*want)
		})
	}
}

func TestCloseWritesWhatWaits(t *testing.T) {
	client := redistest.Start(t).Client()
	l := limit.New(client, limit.Options{})
	p := principal(t, "", "100000tokens/total")
	for i := range 500 {
		r, err := l.Reserve(t.Context(), p, fmt.Sprint(i), tokens(50))
		require.NoError(t, err)
		l.Charge(r, tokens(2))
	}
	require.NoError(t, l.Close())
	spent, held := book(t, client, "key:k1:tokens")
	require.Equal(t, [2]int64{1000, 0}, [2]int64{spent, held})
	require.NoError(t, l.Close())
}

// A tenant without limits of its own has those of each; the default one has none.
func TestTenantsThatAreNotNamed(t *testing.T) {
	l := open(t, redistest.Start(t).Client(), limit.Options{Bounds: limit.Bounds{EachOther: limits(t, "1/h", ""),
		Tenants: map[string]access.Limits{"big": limits(t, "2/h", "")}}})
	for name, may := range map[string]int{"acme": 1, "other": 1, "big": 2} {
		of, err := memory.ParseTenant(name)
		require.NoError(t, err)
		for i := range may {
			_, err = l.Reserve(t.Context(), access.Principal{Tenant: of}, name+fmt.Sprint(i), tokens(1))
			require.NoError(t, err)
		}
		_, err = l.Reserve(t.Context(), access.Principal{Tenant: of}, name+"x", tokens(1))
		require.ErrorAs(t, err, new(*limit.Refusal))
	}
	require.False(t, l.Limited(access.Principal{}))
}
