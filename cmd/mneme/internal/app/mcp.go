package app

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"mneme"
	"mneme/cmd/mneme/internal/inprocess"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
)

// mcpServer is POST /mcp of a webmemory, and what answers its requests: webmemory itself.
type mcpServer struct {
	*mcpserver.Handler
	memory *webapi.Client // of this webmemory
	hosts  inprocess.Hosts
	host   string // under which hosts has webmemory's handler, once it serves it
}

func (a *app) mcpServer(seen *telemetry.Service) (*mcpServer, error) {
	s := &mcpServer{host: "webmemory"}
	network := &http.Transport{}
	var err error
	s.memory, err = webapi.NewOver("http://"+s.host, &http.Client{
		Transport: seen.Transport("webmemory", &inprocess.Transport{Transport: network, Hosts: &s.hosts}),
	})
	if err != nil {
		return nil, err
	}
	calls := seen.Make().NewCounterVec(prometheus.CounterOpts{
		Name: "mneme_mcp_calls_total", Help: "Calls of tools at /mcp that are over, by their outcome: answered, or refused.",
	}, []string{"tool", "outcome"})
	s.Handler = mcpserver.Config{
		Memory: s.memory, Version: mneme.Version(), Log: seen.Log,
		Called: func(tool string, failed bool) {
			outcome := "answered"
			if failed {
				outcome = "refused"
			}
			calls.WithLabelValues(tool, outcome).Inc()
		},
	}.HTTP()
	a.push("mcp", func() error { s.Handler.Close(); return nil })
	return s, nil
}
