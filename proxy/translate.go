package proxy

import (
	"strings"

	"mneme/proxy/chatwire"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// translate puts the request into the backend's dialect.
func (x named) translate() (a asked, err error) {
	a = asked{named: x}
	a.shown.Stream, a.shown.IncludeUsage = x.outline.Stream, sanitize.AsksUsage(x.outline)
	if x.model != x.outline.Model {
		a.shown.Model = x.outline.Model
	}
	if !x.translated() {
		return a, nil
	}
	to := chatwire.MessagesRequest
	if x.backend.dialect == wire.Chat {
		to = chatwire.ChatRequest
	}
	t, err := to(x.outline.Body, x.translation())
	if err != nil {
		return a, err
	}
	a.shown.IncludeUsage, a.shown.AnswerTool = t.IncludeUsage, t.AnswerTool
	if len(t.Ignored) > 0 {
		x.log().Info().Strs("parameters", t.Ignored).Str("backend",
			x.backend.name).Msg("parameters ignored: the backend has none like them")
	}
	if a.ephemeral, err = x.ephemeral.translated(x); err != nil {
		return a, err
	}
	a.outline, err = wire.ReadOutline(t.Body)
	return a, err
}

// effortHeader leaves the effort of a chat request to the gateway: with the value
// "auto" a model thinks at autoEffort if it is known to take that.
const effortHeader = "X-AG-Effort"

// autoEffort is the level that "auto" stands for.
const autoEffort = "medium"

// ownEffort is the effort of a request that leaves it to the gateway; empty for
// one that does not.
func (x routed) ownEffort() string {
	if x.endpoint.dialect == wire.Chat && strings.EqualFold(x.in.header.Get(effortHeader), "auto") {
		return autoEffort
	}
	return ""
}

// translation is what the other dialect must know of the backend's model. A model
// that wants a budget gets one only where one is configured.
func (x routed) translation() chatwire.Options {
	bound := x.backend.config.Thinking.BudgetTokens
	o := chatwire.Options{Adaptive: x.profile.Thinking.Adapts(), Schemas: x.profile.Schemas}
	if x.profile.Thinking.Modes != nil { // nothing of ours goes to a model that nobody knows
		o.Effort = x.ownEffort()
	}
	if o.Adaptive || bound > 0 {
		o.Budget = func(effort string) int64 { return sanitize.BudgetOf(bound, effort) }
	}
	return o
}
