package proxy

import (
	"context"
	"strings"

	"mneme/proxy/chatwire"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// translate puts the request into the backend's dialect.
func translate(_ context.Context, x *Exchange) error {
	if !x.translated() {
		return nil
	}
	to := chatwire.MessagesRequest
	if x.backend.dialect == wire.Chat {
		to = chatwire.ChatRequest
	}
	t, err := to(x.asked.Body, x.translation())
	if err != nil {
		return err
	}
	x.shown = chatwire.Asked{Stream: x.asked.Stream, IncludeUsage: t.IncludeUsage, AnswerTool: t.AnswerTool}
	if x.model != x.asked.Model {
		x.shown.Model = x.asked.Model
	}
	if len(t.Ignored) > 0 {
		x.log().Info().Strs("parameters", t.Ignored).Str("backend",
			x.backend.name).Msg("parameters ignored: the backend has none like them")
	}
	x.asked, err = wire.ReadOutline(t.Body)
	return err
}

// effortHeader leaves the effort of a chat request to the gateway: with the value
// "auto" a model thinks at autoEffort if it is known to take that.
const effortHeader = "X-AG-Effort"

// autoEffort is the level that "auto" stands for.
const autoEffort = "medium"

// ownEffort is the effort of a request that leaves it to the gateway; empty for
// one that does not.
func (x *Exchange) ownEffort() string {
	if x.endpoint.dialect == wire.Chat && strings.EqualFold(x.in.header.Get(effortHeader), "auto") {
		return autoEffort
	}
	return ""
}

// translation is what the other dialect must know of the backend's model. A model
// that wants a budget gets one only where one is configured.
func (x *Exchange) translation() chatwire.Options {
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
