package app

import (
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/telemetry"
	"mneme/subagent/rag"
	"mneme/subagent/rag/rerank"
)

// reranking is what gives the passages of a search their order; nothing unless it is
// configured.
func (a *app) reranking(r config.Rerank, seen *telemetry.Service) rag.RerankOptions {
	if r.URL == "" {
		return rag.RerankOptions{}
	}
	return rag.RerankOptions{
		Reranker: rerank.New(rerank.Config{URL: r.URL, Model: r.Model, Key: r.APIKey.Reveal(),
			HTTP: a.client(seen, "reranker")}),
		Top: r.Top, Timeout: r.Timeout,
	}
}
