package redisstore_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/proxy/redisstore"
)

// gateway is an Active with a clock of the test's and a log to look into.
type gateway struct {
	*redisstore.Active
	clock atomic.Int64 // Unix ms
	log   bytes.Buffer // written under the Active's lock, read when no call runs
}

func newGateway(client redis.UniversalClient, configured string, backends ...string) *gateway {
	g := &gateway{}
	known := func(name string) bool {
		for _, b := range backends {
			if b == name {
				return true
			}
		}
		return false
	}
	g.Active = redisstore.NewActive(client, configured, known, zerolog.New(&g.log))
	g.clock.Store(1e12)
	g.SetClock(func() time.Time { return time.UnixMilli(g.clock.Load()) })
	return g
}

func (g *gateway) later(d time.Duration) { g.clock.Add(d.Milliseconds()) }

func name(t *testing.T, g *gateway) string {
	t.Helper()
	return g.Name(t.Context())
}

func TestASwitchHoldsEverywhereAndAfterARestart(t *testing.T) {
	server := redistest.Start(t)
	one, two := newGateway(server.Client(), "kimi", "kimi", "glm"), newGateway(server.Client(), "kimi", "kimi", "glm")
	require.Equal(t, "kimi", name(t, one))
	require.Equal(t, "kimi", name(t, two))
	require.NoError(t, one.Use(t.Context(), "glm"))
	require.Equal(t, "glm", name(t, one), "at once where it was made")
	require.Equal(t, "kimi", name(t, two), "from its cache")
	two.later(999 * time.Millisecond)
	require.Equal(t, "kimi", name(t, two))
	two.later(time.Millisecond)
	require.Equal(t, "glm", name(t, two))
	require.Equal(t, "glm", name(t, newGateway(server.Client(), "kimi", "kimi", "glm")), "after a restart")
	require.Equal(t, "glm", server.Client().Get(t.Context(), "proxy:active").Val(), "readable with redis-cli")

	require.NoError(t, server.Client().Del(t.Context(), "proxy:active").Err())
	two.later(time.Second)
	require.Equal(t, "kimi", name(t, two), "without the key the configuration decides")
}

func TestAnUnknownNameIsIgnored(t *testing.T) {
	server := redistest.Start(t)
	g := newGateway(server.Client(), "kimi", "kimi", "glm")
	require.NoError(t, g.Use(t.Context(), "glm"))
	require.ErrorContains(t, g.Use(t.Context(), "gpt"), `there is no backend "gpt"`)
	for _, value := range []string{"gpt", "", strings.Repeat("x", 1<<20)} {
		require.NoError(t, server.Client().Set(t.Context(), "proxy:active", value, 0).Err())
		g.log.Reset()
		for range 3 {
			g.later(time.Second)
			require.Equal(t, "glm", name(t, g))
		}
		// A slow Redis adds lines of its own, so only the lines about the value count.
		require.Equal(t, 1, strings.Count(g.log.String(), "proxy:active"), "one line for each: %.300s", g.log.String())
		require.Less(t, g.log.Len(), 1000)
	}
	require.NoError(t, g.Use(t.Context(), "kimi"))
	g.later(time.Second)
	require.Equal(t, "kimi", name(t, g))
}

func TestAnotherKindOfValueIsNoName(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client().LPush(t.Context(), "proxy:active", "glm").Err())
	g := newGateway(server.Client(), "kimi", "kimi", "glm")
	require.Equal(t, "kimi", name(t, g))
	require.Contains(t, g.log.String(), "WRONGTYPE")
	require.NoError(t, g.Use(t.Context(), "glm"), "a switch puts it right")
	require.Equal(t, "glm", name(t, newGateway(server.Client(), "kimi", "kimi", "glm")))
}

func TestRedisAwayLeavesTheLastName(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	g := newGateway(server.Client(), "kimi", "kimi", "glm")
	require.NoError(t, g.Use(t.Context(), "glm"))
	server.Kill()
	g.log.Reset()
	for range 3 {
		g.later(time.Second)
		require.Equal(t, "glm", name(t, g))
	}
	require.Equal(t, 1, strings.Count(g.log.String(), "\n"), g.log.String())
	require.ErrorContains(t, g.Use(t.Context(), "kimi"), "proxy:active")
	require.Equal(t, "glm", name(t, g), "a switch that failed is none")
	require.Equal(t, "kimi", name(t, newGateway(server.Client(), "kimi", "kimi", "glm")),
		"a start without Redis goes by the configuration")

	require.NoError(t, server.Run())
	require.NoError(t, server.Client().Set(t.Context(), "proxy:active", "kimi", 0).Err())
	require.Eventually(t, func() bool { // the client has to connect again
		g.later(time.Second)
		return name(t, g) == "kimi"
	}, 30*time.Second, time.Millisecond)
	require.Contains(t, g.log.String(), "again")
}

// A Redis that hangs delays a call, and does not end it.
func TestRedisThatHangs(t *testing.T) {
	server := redistest.Start(t)
	g := newGateway(server.Client(), "kimi", "kimi", "glm")
	require.NoError(t, g.Use(t.Context(), "glm"))
	server.Signal(syscall.SIGSTOP)
	g.later(time.Second)
	require.Equal(t, "glm", name(t, g))
	require.Contains(t, g.log.String(), "does not tell")
	server.Signal(syscall.SIGCONT)
}

func TestAClientThatLeftDoesNotSpoilTheRead(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client().Set(t.Context(), "proxy:active", "glm", 0).Err())
	g := newGateway(server.Client(), "kimi", "kimi", "glm")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, "glm", g.Name(ctx))
}

func TestWithoutRedisTheNameIsTheProcesss(t *testing.T) {
	g := newGateway(nil, "kimi", "kimi", "glm")
	require.Equal(t, "kimi", name(t, g))
	require.NoError(t, g.Use(t.Context(), "glm"))
	g.later(time.Hour)
	require.Equal(t, "glm", name(t, g))
	require.Error(t, g.Use(t.Context(), "gpt"))
	require.Equal(t, "glm", name(t, g))
}

// Many calls and switches at once: what was set last holds everywhere.
func TestSwitchesAndCallsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	gateways := []*gateway{newGateway(server.Client(), "kimi", "kimi", "glm"),
		newGateway(server.Client(), "kimi", "kimi", "glm")}
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			g := gateways[i%2]
			for j := range 50 {
				g.later(time.Second)
				g.Name(t.Context())
				if j%10 == 0 {
					require.NoError(t, g.Use(t.Context(), []string{"kimi", "glm"}[(i+j/10)%2]))
				}
			}
		})
	}
	calls.Wait()
	require.NoError(t, gateways[0].Use(t.Context(), "glm"))
	for _, g := range gateways {
		g.later(time.Second)
		require.Equal(t, "glm", name(t, g))
	}
}
