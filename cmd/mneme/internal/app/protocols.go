package app

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"mneme"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
	"mneme/webmemory/openaiapi"
)

// mcpServer is POST /mcp of a webmemory.
func (a *app) mcpServer(memory *webapi.Client, svc *telemetry.Service) *mcpserver.Handler {
	calls := svc.Make().NewCounterVec(prometheus.CounterOpts{
		Name: "mneme_mcp_calls_total", Help: "Calls of tools at /mcp that are over, by their outcome: answered, or refused.",
	}, []string{"tool", "outcome"})
	h := mcpserver.Config{
		Memory: memory, Version: mneme.Version(), Log: svc.Log,
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

// completions is OpenAI's endpoint of a webmemory, which itself answers the requests, but for embeddings.
func completions(
	cfg config.Config, agents func() []memory.Agent, memory *webapi.Client, toGateway http.RoundTripper,
	svc *telemetry.Service,
) *openaiapi.Handler {
	answered := svc.Make().NewCounterVec(prometheus.CounterOpts{
		Name: "mneme_openai_completions_total",
		Help: "Chat completions that have begun, by what is remembered of them: chat, none, or mismatch.",
	}, []string{"memory"})
	return openaiapi.New(openaiapi.Config{
		Memory: memory, Agents: agents, Log: svc.Log, Settings: cfg.OpenAI,
		Gateway: cfg.Apiserver.Proxy, ToGateway: toGateway,
		Answered: func(memory string) { answered.WithLabelValues(memory).Inc() },
	})
}
