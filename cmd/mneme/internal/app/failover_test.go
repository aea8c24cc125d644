package app_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
)

// Who uses Sentinel is told at start what a failover loses, and how not to lose it.
func TestSentinelIsAdvisedToWaitForReplicas(t *testing.T) {
	for replicas, told := range map[string]bool{"0": true, "1": false} {
		cfg, err := config.Load("", []string{
			"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0",
			"MNEME_REDIS_ADDRS=127.0.0.1:1", "MNEME_REDIS_MASTER_NAME=mneme", "MNEME_REDIS_WAIT_REPLICAS=" + replicas,
		})
		require.NoError(t, err)
		var log bytes.Buffer
		ctx, stop := context.WithCancel(context.Background())
		err = app.Webmemory(ctx, cfg, app.Options{Log: zerolog.New(&log), Ready: func(app.Addrs) { stop() }})
		stop()
		require.NoError(t, err)
		require.Equal(t, told, bytes.Contains(log.Bytes(), []byte("redis.wait_replicas: 1")), log.String())
	}
}
