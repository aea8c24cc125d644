package webmemory_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// A Redis that is nearly full is told before it refuses messages.
func TestANearlyFullRedisIsTold(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, answers("hi"))
	readyz := func() string { return string(w.do("GET", "/readyz", nil).body) }
	eventually(t, "ready", func() bool { return strings.Contains(readyz(), `"ready"`) })
	require.Contains(t, string(w.do("GET", "/metrics", nil).body), "mneme_redis_memory_ratio 0\n")

	used, err := strconv.ParseInt(w.look.InfoMap(t.Context(), "memory").Item("Memory", "used_memory"), 10, 64)
	require.NoError(t, err)
	limit := func(bytes int64) {
		require.NoError(t, w.look.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(bytes)).Err())
	}
	limit(used * 10 / 9)
	eventually(t, "degraded", func() bool {
		return strings.Contains(readyz(), `"degraded"`) && strings.Contains(readyz(), "% of its maxmemory")
	})
	require.Regexp(t, `mneme_redis_memory_ratio 0\.[89]`, string(w.do("GET", "/metrics", nil).body))
	limit(used * 10)
	eventually(t, "ready again", func() bool { return strings.Contains(readyz(), `"ready"`) })
	limit(0)
	eventually(t, "no limit", func() bool {
		return strings.Contains(string(w.do("GET", "/metrics", nil).body), "mneme_redis_memory_ratio 0\n")
	})
}
