package proxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// restore decides what thinking a request is sent with, from what is known of the
// turns in it. Fitting is what the vendor takes of this request.
type restore func(ctx context.Context, x resolvedRequest, fitting sanitize.Profile) (replayed, error)

// maxCures bounds the cures of one request. An imitator may refuse one parameter after another.
const maxCures = 8

// attempts makes an attempt, and another one for each cure if the answer
// says what in the request is at fault and there is something to be done about it.
// Each begins with what was said and makes the changes of all cures so far. A kind is repeated only for another
// parameter, length or kind of content, or after a partial cure. No attempt repeats a request.
// When the last fails too the client gets the first one's error, as it came.
func (s *Server) attempts(ctx context.Context, x resolvedRequest, thinks restore) (*attempt, error) {
	defer func() {
		s.metrics.shaped(x.result.attempt) // by the attempt that gives the client's answer
		x.result.sentCalls = nil
	}()
	first, err := x.try(ctx, nil, thinks)
	if err != nil {
		return first, err
	}
	last := first
	var cures []*cure
	for last.answer.refused() {
		next := last.cure()
		if next == nil {
			break
		}
		with, ok := last.withCure(cures, next)
		if !ok {
			break
		}
		prev := last
		if last, err = x.try(ctx, with, thinks); errors.Is(err, errSentBefore) {
			last, err = prev, nil // the cure changes nothing: it is none
			break
		}
		cures = with
		s.metrics.refused(prev)
		if prev != first {
			prev.answer.close()
		}
		if err != nil {
			break
		}
	}
	if len(cures) == 0 {
		x.result.attempt = first
		return first, nil
	}
	ok := err == nil && !last.answer.refused()
	for _, c := range cures {
		s.metrics.retried(last, c, ok)
		last.logRetry(c, ok)
		if ok {
			last.learn(c)
			if c.helped != nil {
				c.helped(ctx)
			}
		}
	}
	if ok {
		first.answer.close()
		return last, nil
	}
	if x.result.others && x.moves(ctx, last, err) != "" { // what the first was refused for was cured, or is not known
		first.answer.close()
		return last, err
	}
	if err == nil && last != first {
		last.answer.close()
	}
	x.result.attempt = first
	return first, ctx.Err()
}

// withCure returns the cures of the next attempt, and reports whether there may be one. Parameters that the backend
// refuses one after another are cured together. The refusal of another parameter proves the earlier cures, so they are
// learned.
func (a *attempt) withCure(cures []*cure, next *cure) (with []*cure, ok bool) {
	i := slices.IndexFunc(cures, func(c *cure) bool {
		return c.kind == next.kind && (c.kind != cureContent || c.subject == next.subject)
	})
	switch {
	case len(cures) >= maxCures:
		return nil, false
	case i < 0:
	case next.kind == cureParameter, next.kind == cureLength:
		for _, c := range cures {
			if (c.kind == cureParameter || c.kind == cureLength) && c.subject != next.subject {
				a.learn(c)
			}
		}
		absent := !a.sends(a.answer.parameter.Name)
		if slices.ContainsFunc(cures, func(c *cure) bool {
			return c.quote == next.quote && (absent || c.subject == next.subject) // the vendor repeats itself: that did not help
		}) {
			return nil, false
		}
	case cures[i].partial && !next.partial:
		cures = slices.Delete(slices.Clone(cures), i, i+1)
	default:
		return nil, false
	}
	return append(slices.Clip(cures), next), true
}

// try makes one attempt, with the changes of cures.
func (x resolvedRequest) try(ctx context.Context, cures []*cure, thinks restore) (a *attempt, err error) {
	a = &attempt{resolvedRequest: x, cures: cures}
	a.fitting, a.rules = x.fitted(cures)
	x.result.attempt = a
	if a.replayed, err = thinks(ctx, x, a.fitting); err != nil {
		return a, err
	}
	for _, c := range cures {
		if c.amend == nil {
			continue
		}
		if a.replayed, err = c.amend(a.replayed); err != nil {
			return a, err
		}
	}
	out, err := a.sanitize()
	if err != nil {
		return a, err
	}
	return a, a.send(ctx, a.headers(out))
}

// cure is what another attempt changes.
type cure struct {
	kind  cureKind
	class thinking.Class // of the refusal, of kind cureThinking
	quote string         // the refusal's words, for the log
	// partial: it takes out the thinking of strangers alone, or changes the schemas alone that the error
	// names; if that does not help, another cure of its kind goes for all.
	partial bool

	subject     string                           // metrics label of the refused parameter or content
	rules       []sanitize.Rule                  // that the refusal teaches; the attempt keeps them
	amend       func(replayed) (replayed, error) // changes the request before the last hop; nil for nothing
	bare        bool                             // items of Responses go without their ids
	mends       []mend                           // what else it does, see told.go
	requestOnly bool                             // the rules are true of this request alone
	helped      func(ctx context.Context)        // remembers what the rules do not say; nil for nothing
}

// newCure is a cure for what the answer says about something.
func (a *attempt) newCure(kind cureKind, subject string, rules ...sanitize.Rule) *cure {
	return &cure{kind: kind, class: a.answer.class, quote: a.quote(), subject: subject, rules: rules}
}

// learn keeps what a cure has taught of the backend, but for what is true of this request alone.
func (a *attempt) learn(c *cure) {
	if c.requestOnly {
		return
	}
	for _, r := range c.rules {
		r.Source = cmp.Or(r.Source, c.quote)
		a.backend.knowledge.learn(r)
	}
}

func (a *attempt) logRetry(c *cure, ok bool) {
	line := a.log().Warn().Bool("ok", ok).Str("backend", a.backend.name).Str("model", a.model).Str("error", c.quote)
	if c.kind == cureThinking {
		line = line.Stringer("class", c.class)
	} else {
		line = line.Str("parameter", c.subject)
		switch r := c.rules[0]; {
		case r.Replacement != "":
			line = line.Str("instead", r.Replacement)
		case r.Max > 0:
			line = line.Int64("at_most", r.Max)
		case r.Schemas != nil:
			line = line.Int("tools", len(r.Schemas))
		}
	}
	line.Msg(retries[c.kind])
}

// cureKind is what is wrong with a request.
type cureKind int

const (
	cureThinking  cureKind = iota // the thinking in its messages
	cureParameter                 // a parameter that the model does not take
	cureLength                    // the answer that it asks for does not fit
	cureSchema                    // the schemas of its tools
	cureRole                      // the roles of its messages
	cureContent                   // content that the model does not take
)

// retries are what the log says of a second attempt.
var retries = map[cureKind]string{
	cureThinking:  "[thinking_retry] the backend refused the thinking in a request",
	cureParameter: "[parameter_retry] the backend refused a parameter: it is left out, or sent as the backend asks",
	cureLength:    "[length_retry] the prompt fits and the answer that was asked for does not: a shorter one is asked for",
	cureSchema:    "[schema_retry] the backend refused the schema of a tool: it was sent again in a plainer form",
	cureRole:      "[role_retry] the backend refused the roles of the messages: they were sent in roles that it accepts",
	cureContent:   "[content_retry] the backend refused content of a request: it was replaced by a text",
}

// cure finds what could make a refused request pass; nil for nothing.
func (a *attempt) cure() *cure {
	if kinds := a.refusedContent(); kinds != nil {
		return a.replaceContent(kinds)
	}
	if a.backend.speaks == wire.Interactions && a.answer.doubtsThoughts() {
		return a.strip() // what is left of its calls is told in words
	}
	switch a.answer.class {
	case thinking.ClassStrip:
		return a.strip()
	case thinking.ClassRestore:
		if a.partly() {
			return a.strip()
		}
		return a.refill()
	}
	if a.answer.length.Excess != thinking.NotLong {
		return a.lessOutput()
	}
	if a.answer.role != thinking.RoleNone {
		return a.otherRoles()
	}
	if a.answer.schema.Matched {
		return a.plainSchemas()
	}
	if c := a.leaveOut(); c != nil {
		return c
	}
	return a.withoutTools()
}

// doubtsThoughts reports whether an error of Interactions may be about thoughts. Of a signature that it cannot read the
// vendor says no more than that something is wrong (https://github.com/googleapis/js-genai/issues/1735).
func (a *answer) doubtsThoughts() bool {
	f := wire.ReadFailure(a.errorStatus(), a.content)
	return a.class != thinking.ClassOther || f.Code == "missing_thought_signature" ||
		f.Status == http.StatusBadRequest && f.Message == "Request contains an invalid argument."
}

// strip is the cure for thinking that is invalid: the request goes without.
func (a *attempt) strip() *cure {
	dialect := a.backend.dialect
	if !thinking.HasThinking(a.doc, dialect) {
		return nil
	}
	partly := a.partly() // and in vain
	c := a.newCure(cureThinking, "")
	c.class = thinking.ClassStrip
	if thinking.SaysBound(a.answer.content) {
		c.rules = append(c.rules, a.ofReplay(sanitize.ReplayOverrides{Bound: &yes}))
	}
	c.partial = c.rules == nil && !partly && a.replay.MixesStrangers()
	var replay *thinking.Replay
	var removed []string // keys of the thinking that was taken out
	c.amend = func(r replayed) (_ replayed, err error) {
		var body []byte
		if replay = r.replay; c.partial {
			body, removed = replay.StripStrangers(r.doc)
		} else {
			body, removed = thinking.Strip(r.doc, dialect)
		}
		r.report = replay.Stripped(r.report, c.partial)
		r.doc, err = r.doc.WithBody(body)
		return r, err
	}
	c.helped = func(ctx context.Context) {
		others := replay.Refused(ctx, removed, partly)
		if others.Models {
			a.backend.knowledge.learn(a.ofReplay(sanitize.ReplayOverrides{OwnModel: &yes}))
		}
		if others.Backends {
			a.backend.knowledge.learn(a.ofReplay(sanitize.ReplayOverrides{OwnBackend: &yes}))
		}
	}
	return c
}

// yes is for overrides.
var yes = true

// ofReplay is a rule about how thinking goes back to the backend, whatever the model.
func (a *attempt) ofReplay(overrides sanitize.ReplayOverrides) sanitize.Rule {
	return sanitize.Rule{Source: a.quote(), Profile: sanitize.Overrides{Replay: overrides}}
}

// partly reports whether the attempt went without the thinking of strangers.
func (a *attempt) partly() bool {
	return slices.ContainsFunc(a.cures, func(c *cure) bool { return c.kind == cureThinking && c.partial })
}
