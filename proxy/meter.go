package proxy

import (
	"cmp"
	"context"
	"strings"
	"time"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/access/tally"
	"mneme/memory/tracing"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// meter decides what a call took, once and however it ended: that is charged to its budgets, and is what reports add
// up. Where no model was called, and where none answered, it is nothing.
func (s *Server) meter(ctx context.Context, x *request, outcome string) tally.Counts {
	var reserved limit.Reservation
	if got := x.result.admitted; got != nil {
		reserved = got.reserved
	}
	a, canceled := x.result.attempt, outcome == outcomeCanceled && x.result.attempts > 0
	if a == nil || a.doc == nil || x.endpoint.counts || !canceled && !x.answered() {
		s.limiter.Commit(reserved, tally.Call{})
		return tally.Counts{}
	}
	read := new(usage.Reader)
	if l := x.result.listener; l != nil {
		read = &l.tokens
	}
	t, estimated := read.Tokens(a.doc.Body)
	if t == (wire.Usage{}) && (canceled || outcome == outcomeOK) { // the vendor reads the request, whatever it answers
		t.InputTokens, estimated = usage.EstimateInput(a.doc.Body), true
	}
	s.metrics.used(a.backend.name, t)

	n := tally.Counts{
		Calls: 1, Input: t.InputTokens + t.CacheRead + t.CacheCreation, Cached: t.CacheRead, Written: t.CacheCreation,
		Output: t.OutputTokens, Reasoning: t.OutputDetails.ThinkingTokens, Estimated: one(estimated),
		Failed: one(outcome != outcomeOK),
	}
	p, priced := priceOf(a.routedRequest)
	if n.Unpriced = one(!priced); priced {
		n.Micros = p.Cost(price.Tokens{Input: t.InputTokens, CachedInput: t.CacheRead, CacheWrite: t.CacheCreation,
			Output: t.OutputTokens})
	}
	who, chat := access.FromContext(ctx), x.trail.Chat
	if chat == "" && !a.minted && !a.matched {
		chat = a.scope.Conversation
	}
	_, subagent, teammate := strings.Cut(a.scope.Route, "/")
	if !teammate {
		subagent = scopeMain
	}
	s.limiter.Commit(reserved, tally.Call{
		Time: time.Now(), Request: x.id, Tenant: who.Tenant, Counts: n, Key: who.Key, User: who.User,
		Chat:     strings.TrimPrefix(chat, who.Tenant.String()+"/"), // which our services put in front
		Subagent: subagent, Model: strings.Clone(a.model), Backend: a.backend.name,
	})
	return n
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// beginSpan begins the span of a call of a model, below which the vendor is asked; nil for none.
func beginSpan(ctx context.Context, s *Server, x *request) (span *tracing.Span) {
	if s.config.Traces == nil || x.endpoint.counts {
		return nil
	}
	op := tracing.Chat
	if x.endpoint.name == embeddingsEndpoint.name {
		op = tracing.Embeddings
	}
	span, x.trail = s.config.Traces.Start(x.trail, tracing.Begin{Operation: op, Subject: x.in.model(),
		User: access.FromContext(ctx).User})
	return span
}

// endSpan tells what the call took, as it was metered.
func endSpan(span *tracing.Span, x *request, outcome string, n tally.Counts) {
	if span == nil {
		return
	}
	if target := x.result.scopedRequest; target.backend != nil {
		span.Called(tracing.Call{Vendor: target.backend.vendor, Backend: target.backend.name, Model: target.model,
			Attempts: x.result.attempts, Input: n.Input, Cached: n.Cached, Written: n.Written, Output: n.Output,
			Reasoning: n.Reasoning, MicroUSD: n.Micros, Priced: n.Calls > 0 && n.Unpriced == 0})
	}
	failed := ""
	if outcome != outcomeOK {
		failed = cmp.Or(string(x.result.reason), outcome)
	}
	span.End(failed)
}
