package proxy_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/accesstest"
	"mneme/proxy"
)

func TestEachRouteOfTheGatewayNeedsItsScope(t *testing.T) {
	s, err := proxy.New(proxy.Config{
		Active: "offline", Backends: map[string]proxy.BackendConfig{"offline": {Kind: proxy.KindOffline}},
		Gate: accesstest.Gate(),
	}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	needs := accesstest.Walk(t, s.Handler(), "HEAD /", "GET /health", "GET /healthz", "GET /readyz", "GET /metrics")
	require.NotEmpty(t, needs)
	for route, scope := range needs {
		_, path, _ := strings.Cut(route, " ")
		want := access.Models
		if strings.HasPrefix(path, "/admin/") {
			want = access.Admin
		}
		require.Equal(t, string(want), scope, route)
	}
}
