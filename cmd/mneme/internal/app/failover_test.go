package app_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
)

// An operator that uses Sentinel is told at start what a failover loses, and how not to lose it.
func TestSentinelIsAdvisedToWaitForReplicas(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	for replicas, told := range map[string]bool{"0": true, "1": false} {
		cfg, err := config.Load("", []string{
			"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0",
			"MNEME_REDIS_ADDRS=[127.0.0.1:1]", "MNEME_REDIS_MASTER_NAME=mneme", "MNEME_REDIS_WAIT_REPLICAS=" + replicas,
		})
		require.NoError(t, err)
		log := &logged{}
		ctx, stop := context.WithCancel(context.Background())
		err = app.Webmemory(ctx, cfg, app.Options{Log: zerolog.New(log), Ready: func(app.Addrs) { stop() }})
		stop()
		require.NoError(t, err)
		require.Equal(t, told, strings.Contains(log.String(), "redis.wait_replicas: 1"), log.String())
	}
}

// Of a Redis that may throw histories away an operator is warned at the start, also where the host forbids CONFIG.
func TestARedisThatEvictsIsWarnedOf(t *testing.T) {
	t.Parallel()
	for policy, told := range map[string]bool{"allkeys-lru": true, "noeviction": false} {
		server := redistest.Start(t, "--maxmemory-policy", policy)
		require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-config").Err())
		cfg, err := config.Load("", []string{
			"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_REDIS_URL=" + server.URL(),
		})
		require.NoError(t, err)
		log := &logged{}
		ctx, stop := context.WithCancel(context.Background())
		err = app.Webmemory(ctx, cfg, app.Options{Log: zerolog.New(log), Ready: func(app.Addrs) { stop() }})
		stop()
		require.NoError(t, err)
		require.Equal(t, told, strings.Contains(log.String(), "may evict histories"), log.String())
	}
}

// A webmemory that listens on all addresses tells the others one at which it is
// reached; a name that it is told to advertise is its own.
func TestWhereOtherWebmemoriesReachThisOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	told := func() (urls []string) {
		for _, value := range server.Client().HGetAll(t.Context(), "mneme:processes").Val() {
			var p struct{ URL string }
			require.NoError(t, json.Unmarshal([]byte(value), &p))
			urls = append(urls, p.URL)
		}
		return urls
	}
	addrs := serve(t, app.Webmemory, "MNEME_WEBMEMORY_LISTEN=0.0.0.0:0", "MNEME_AUTH_MODE=none",
		"MNEME_REDIS_URL="+server.URL())
	_, port, err := net.SplitHostPort(addrs.Webmemory)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(told()) == 1 }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"http://127.0.0.1:" + port}, told(), "Redis is on this machine")

	named := serve(t, app.Webmemory, "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_REDIS_URL="+server.URL(),
		"MNEME_WEBMEMORY_ADVERTISE=http://wm-1.agents.prod.svc:8080")
	require.Eventually(t, func() bool { return slices.Contains(told(), "http://wm-1.agents.prod.svc:8080") },
		30*time.Second, 10*time.Millisecond)
	for host, status := range map[string]int{"wm-1.agents.prod.svc:8080": http.StatusNotFound,
		"wm-2.agents.prod.svc:8080": http.StatusForbidden} {
		req, err := http.NewRequest("GET", "http://"+named.Webmemory+"/internal/v1/chats/1/runs/A", nil)
		require.NoError(t, err)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, status, resp.StatusCode, host)
	}
}
