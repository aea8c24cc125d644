package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"mneme"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
)

// mcpServer is POST /mcp of a webmemory.
func (a *app) mcpServer(memory *webapi.Client, seen *telemetry.Service) *mcpserver.Handler {
	calls := seen.Make().NewCounterVec(prometheus.CounterOpts{
		Name: "mneme_mcp_calls_total", Help: "Calls of tools at /mcp that are over, by their outcome: answered, or refused.",
	}, []string{"tool", "outcome"})
	h := mcpserver.Config{
		Memory: memory, Version: mneme.Version(), Log: seen.Log,
		Called: func(tool string, failed bool) {
			outcome := "answered"
			if failed {
				outcome = "refused"
			}
			calls.WithLabelValues(tool, outcome).Inc()
		},
	}.HTTP()
	a.push("mcp", func() error { h.Close(); return nil })
	return h
}
