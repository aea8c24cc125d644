package apiserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/accesstest"
	"mneme/apiserver"
)

// With keys the apiserver answers our own services alone.
func TestOnlyOurServicesComeToTheApiserver(t *testing.T) {
	s := start(t, apiserver.Config{Gate: accesstest.Gate(t)}, nil)
	needs := accesstest.Walk(t, s.Handler(), "GET /healthz", "GET /readyz", "GET /metrics")
	require.NotEmpty(t, needs)
	for route, scope := range needs {
		require.Equal(t, string(access.Internal), scope, route)
	}
}
