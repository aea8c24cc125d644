package node_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
)

// A Redis that is nearly full is told before it refuses messages.
func TestANearlyFullRedisIsTold(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	readyz := func() string { return string(w.Do("GET", "/readyz", nil).Body) }
	webmemorytest.Eventually(t, "ready", func() bool { return strings.Contains(readyz(), `"ready"`) })
	require.Contains(t, string(w.Do("GET", "/metrics", nil).Body), "mneme_redis_memory_ratio 0\n")

	used, err := strconv.ParseInt(w.Redis.InfoMap(t.Context(), "memory").Item("Memory", "used_memory"), 10, 64)
	require.NoError(t, err)
	limit := func(bytes int64) {
		require.NoError(t, w.Redis.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(bytes)).Err())
	}
	limit(used * 10 / 9)
	webmemorytest.Eventually(t, "degraded", func() bool {
		return strings.Contains(readyz(), `"degraded"`) && strings.Contains(readyz(), "% of its maxmemory")
	})
	require.Regexp(t, `mneme_redis_memory_ratio 0\.[89]`, string(w.Do("GET", "/metrics", nil).Body))
	limit(used * 10)
	webmemorytest.Eventually(t, "ready again", func() bool { return strings.Contains(readyz(), `"ready"`) })
	limit(0)
	webmemorytest.Eventually(t, "no limit", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "mneme_redis_memory_ratio 0\n")
	})
}
