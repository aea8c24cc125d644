package proxy

import (
	"cmp"
	"context"

	"mneme/access"
	"mneme/access/tally"
	"mneme/memory/tracing"
)

// beginSpan begins the span of a call of a model, below which the vendor is asked; nil for none.
func beginSpan(ctx context.Context, s *Server, x *request) (span *tracing.Span) {
	if s.config.Traces == nil || x.endpoint.counts {
		return nil
	}
	of := tracing.Chat
	if x.endpoint.name == embeddingsEndpoint.name {
		of = tracing.Embeddings
	}
	span, x.trail = s.config.Traces.Start(x.trail, tracing.Begin{Of: of, About: x.in.model(), User: access.From(ctx).User})
	return span
}

// endSpan tells what the call took, as it was metered.
func endSpan(span *tracing.Span, x *request, outcome string, n tally.Counts) {
	if span == nil {
		return
	}
	if to := x.result.named; to.backend != nil {
		span.Called(tracing.Call{Vendor: to.backend.vendor, Backend: to.backend.name, Model: to.model,
			Attempts: x.result.attempts, Input: n.Input, Cached: n.Cached, Written: n.Written, Output: n.Output,
			Reasoning: n.Reasoning, MicroUSD: n.Micros, Priced: n.Calls > 0 && n.Unpriced == 0})
	}
	failed := ""
	if outcome != outcomeOK {
		failed = cmp.Or(string(x.result.reason), outcome)
	}
	span.End(failed)
}
