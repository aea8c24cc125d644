package proxy

import (
	"context"
	"slices"

	"github.com/rs/zerolog"

	"mneme/proxy/conversation"
	"mneme/proxy/ledger"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// begin opens the thinking session of a request of the main pipeline: it captures
// in one step which backend is asked and what is proven, and filters by that.
func (s *Server) begin(ctx context.Context, x resolvedRequest, fitting sanitize.Profile) (replayed, error) {
	session := thinking.Begin(ctx, s.ledger, x.replays(), thinking.Policy{
		Unproven: x.backend.config.Thinking.Unproven, Bound: fitting.Replay.Bound,
		Own:   thinking.Strangers{Models: fitting.Replay.OwnModel, Backends: fitting.Replay.OwnBackend},
		Moved: x.moved(fitting.Replay, fitting.Replay.Bound),
	})
	body, report := session.Filter()
	level := zerolog.DebugLevel
	if report.Changed() {
		level = zerolog.InfoLevel
	}
	s.log.WithLevel(level).Str("request_id", x.id).EmbedObject(x.trail).Str("backend", x.backend.name).
		Str("model", x.model).Str("conversation", x.scope.Conversation).MsgFunc(report.String)
	doc, err := x.outline.WithBody(body)
	return replayed{doc, session.Replay, report}, err
}

// putBack gives a teammate's requests the turns as its backend gave them.
func (s *Server) putBack(ctx context.Context, x resolvedRequest, fitting sanitize.Profile) (replayed, error) {
	replay := thinking.Look(ctx, s.ledger, x.replays())
	body, report := replay.PutBack(fitting.Replay.Signed, x.moved(fitting.Replay, false))
	doc, err := x.outline.WithBody(body)
	return replayed{doc, replay, report}, err
}

// replays is the request as the ledger judges the turns in it.
func (x resolvedRequest) replays() ledger.Request {
	r := ledger.Request{
		Scope: x.scope, New: x.minted, Dialect: x.backend.dialect, Outline: x.outline,
		Target: ledger.Origin{Backend: x.backend.name, Vendor: x.modelInfo.profile.Vendor, Model: x.model},
	}
	if x.backend.speaks != x.backend.dialect {
		r.Target.Vendor += "/" + string(x.backend.speaks) // its items are of no use to what else the vendor speaks
	}
	if x.continued != nil {
		r.Nodes, r.Read = x.continued.Nodes, x.continued.Read
	}
	return r
}

// moved is the index of the message before which thinking may be bound to something
// that does not stand before it; 0 for none. Where messages were edited or are gone,
// that counts as far as the model or the backend is known to bind thinking, since it may
// never come again; where the client has parts of its own in each request, it counts for
// every vendor that verifies thinking. all: the current turn's has moved, too.
func (x resolvedRequest) moved(replay sanitize.Replay, currentTurn bool) int {
	bound := replay.Signed && replay.Bound
	index := 0
	if c := x.continued; c != nil {
		if bound {
			index = x.otherContext(c)
		}
		switch index = max(index, c.MovedBefore); {
		case bound && (c.MovedLoop || c.Moved && currentTurn):
			index = len(x.outline.Messages)
		case bound && c.Moved:
			index = max(index, thinking.Loop(x.outline, x.backend.dialect))
		}
	} else if len(x.ephemeral.parts) > 0 { // such a client has had others in the messages before
		index, _ = x.outline.NewestUser()
	}
	if bound || replay.Signed && x.backend.dialect == wire.Messages {
		return index
	}
	return 0
}

// refill is the cure for reasoning that is missing: the ledger's, else a
// placeholder, else no thinking. Where the error says in which way reasoning goes
// back, that counts more than what the profile thought of it.
func (a *attempt) refill() *cure {
	c, p := a.newCure(cureThinking, ""), a.fitting
	c.rules = demanded(a.answer.content, p.Replay, a.backend.speaks == wire.Responses)
	for i := range c.rules {
		c.rules[i].Model = a.model
	}
	hasRules := c.rules != nil
	p = p.Learn(c.rules)
	filled, err := a.replay.Refill(placeholder(p))
	if a.backend.speaks == wire.Responses && !hasRules { // what is not known goes as what nothing was thought for
		c.bare, filled.Off = true, false
		c.rules = append(c.rules, a.ofReplay(sanitize.ReplayOverrides{Paired: &yes}))
	}
	if err != nil || c.rules == nil && !filled.Changed && !filled.Off {
		return nil
	}
	if filled.Turns > 0 {
		c.mends = append(c.mends, thinkingRestored)
	}
	if filled.Placeholders > 0 {
		c.mends = append(c.mends, thinkingPlaceholder)
	}
	if filled.Off && !hasRules {
		c.mends = append(c.mends, thinkingOff)
	}
	c.amend = func(r replayed) (_ replayed, err error) {
		r.doc, err = r.doc.WithBody(filled.Body)
		if err == nil && filled.Off && !hasRules {
			r.doc, err = r.doc.WithBody(sanitize.ThinkingOff(r.doc, a.backend.dialect, p))
		}
		return r, err
	}
	return c
}

// demanded are rules about how reasoning goes back by the words of an error; none if the profile has it so, or the
// error does not tell.
func demanded(body []byte, replay sanitize.Replay, responses bool) []sanitize.Rule {
	demand := thinking.Demanded(body)
	if demand == thinking.DemandsNothing {
		return nil
	}
	no, lostThinking := false, wire.LostThinking
	overrides := sanitize.ReplayOverrides{Reasoning: sanitize.Always}
	enough := replay.Reasoning == sanitize.Always
	if responses {
		if enough {
			return nil
		}
		return []sanitize.Rule{{Profile: sanitize.Overrides{Replay: overrides}}}
	}
	if demand == thinking.DemandsSignatures {
		g := sanitize.For("gemini", "").Replay
		if replay.Field == g.Field && replay.Reasoning == g.Reasoning {
			return nil
		}
		overrides = sanitize.ReplayOverrides{Reasoning: g.Reasoning, Fields: g.Fields, Field: g.Field,
			Placeholder: &g.Placeholder, Signed: &g.Signed, Bound: &g.Bound, Redacted: &g.Redacted, First: &g.First,
			StrictOff: &g.StrictOff}
		return []sanitize.Rule{{Profile: sanitize.Overrides{Replay: overrides}}}
	}
	if demand == thinking.DemandsOnCalls && !enough {
		overrides.Reasoning, enough = sanitize.Required, replay.Reasoning == sanitize.Required
	}
	overrides.Field, overrides.Placeholder, overrides.Missed = "reasoning_content", &lostThinking, &yes
	if enough && !replay.Signed && replay.Field == overrides.Field {
		return nil
	}
	overrides.Signed, overrides.Bound, overrides.First, overrides.StrictOff = &no, &no, &no, &no
	if replay.Fields != nil {
		overrides.Fields = append(slices.Clip(replay.Fields), overrides.Field)
	}
	return []sanitize.Rule{{Profile: sanitize.Overrides{Replay: overrides}}}
}

// fitted is what the backend takes of this request: what is known of the model, and what the refusals that cures
// answer have taught.
func (x resolvedRequest) fitted(cures []*cure) (p sanitize.Profile, rules []sanitize.Rule) {
	p, rules = x.sees(), x.modelInfo.rules
	for _, c := range cures {
		p, rules = p.Learn(c.rules), slices.Concat(rules, c.rules)
	}
	return p, rules
}

// placeholder is what a vendor takes for reasoning that is lost.
func placeholder(p sanitize.Profile) thinking.Placeholder {
	if p.Replay.Reasoning != sanitize.Required && p.Replay.Reasoning != sanitize.Always {
		return thinking.Placeholder{}
	}
	if p.Replay.Field == "extra_content" {
		return thinking.Placeholder{Signature: p.Replay.Placeholder}
	}
	return thinking.Placeholder{Block: !p.Replay.Signed, Field: p.Replay.Field, Text: p.Replay.Placeholder}
}

// sanitize is the last hop: what it gives is what leaves, under the backend's name
// for the model.
func (a *attempt) sanitize() (out sanitize.Output, err error) {
	a.leavesInclude = sanitize.LeavesOut(a.rules, include)
	if a.backend.cli != nil {
		a.fitting.TextOnly = true // a prompt is a text
	}
	a.doc = a.doc.WithModel(a.model)
	out = sanitize.Sanitize(sanitize.Input{
		Outline: a.doc, Dialect: a.backend.dialect, Profile: a.fitting, Rules: a.rules,
		Betas: a.betas(), Effort: a.ownEffort(),
		Budget: a.backend.config.Thinking.BudgetTokens, Count: a.endpoint.counts, Answer: a.result.answer,
		Translated: a.foreign(), Ephemeral: len(a.ephemeral.parts) > 0,
	})
	if out.AnswerTool != "" {
		a.answerOptions.AnswerTool = out.AnswerTool
	}
	a.toolNames = out.ToolNames
	if a.changes = out.Changes; len(a.changes) > 0 {
		a.log().Debug().Interface("changes", a.changes).Msg("[sanitize]")
	}
	a.doc, err = a.doc.WithBody(out.Body)
	return out, err
}

// otherContext is the index behind the newest known answer of an older turn that was given under
// other system texts or tools than the request has, 0 for none.
func (x resolvedRequest) otherContext(c *conversation.Continued) (index int) {
	context := ledger.ContextKey(x.outline)
	for i, n := range c.Nodes {
		if n.Turn().Context != context {
			index = max(index, i+1)
		}
	}
	return min(index, thinking.Loop(x.outline, x.backend.dialect))
}
