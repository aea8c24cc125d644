package proxy

import (
	"context"
	"errors"
	"slices"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// restore decides what thinking a request is sent with, from what is known of the
// turns in it. Fitting is what the vendor takes of this request.
type restore func(ctx context.Context, x said, fitting sanitize.Profile) (replayed, error)

// attempts makes an attempt, and another one for each kind of cure if the answer
// says what in the request is at fault and there is something to be done about it.
// Each begins with what was said and makes the changes of all cures so far; no kind
// is tried twice, and none that changes nothing in what is sent. When the last fails
// too the client gets the first one's error, as it came.
func (s *Server) attempts(ctx context.Context, x said, thinks restore) (*attempt, error) {
	defer func() {
		s.metrics.shaped(x.result.attempt) // by the attempt that gives the client's answer
		x.result.sent = nil
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
		with := cures
		if i := slices.IndexFunc(cures, func(c *cure) bool { return c.kind == next.kind }); i >= 0 {
			if !cures[i].partial || next.partial {
				cures[i].outdone(ctx, next)
				break
			}
			with = slices.Delete(slices.Clone(cures), i, i+1)
		}
		with = append(with, next)
		before := last
		if last, err = x.try(ctx, with, thinks); errors.Is(err, errSentBefore) {
			last, err = before, nil // the cure changes nothing: it is none
			break
		}
		cures = with
		s.metrics.refused(before)
		if before != first {
			before.answer.close()
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
		c.log(ok)
		if ok && c.learn != nil {
			c.learn(ctx)
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

// try makes one attempt, with the changes of cures.
func (x said) try(ctx context.Context, cures []*cure, thinks restore) (a *attempt, err error) {
	a = &attempt{said: x, cures: cures, fitting: x.fitted(cures)}
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
	// partial: it takes out the thinking of strangers alone, or changes the schemas alone that the error
	// names; if that does not help, another cure of its kind goes for all.
	partial bool

	amend   func(replayed) (replayed, error) // changes the request before the last hop; nil for nothing
	profile *sanitize.Profile                // for the last hop, in place of the model's; nil for that
	without []sanitize.Refusal               // what the last hop leaves out
	bare    bool                             // items of Responses go without their ids
	schemas []string                         // keys of tools with schemas that get the plain form
	mends   []mend                           // what else it does, see told.go

	log   func(ok bool)
	learn func(ctx context.Context) // remembers what has helped; nil for nothing
}

// outdone: the answer asks for another cure of the same kind. If that is about
// another parameter, leaving out the first one was right, and the client's next
// request is spared it.
func (c *cure) outdone(ctx context.Context, next *cure) {
	if c.kind == cureParameter && c.without[0].Name != next.without[0].Name {
		c.learn(ctx)
	}
}

// cureKind is what is wrong with a request.
type cureKind int

const (
	cureThinking  cureKind = iota // the thinking in its messages
	cureParameter                 // a parameter that the model does not take
	cureLength                    // the answer that it asks for does not fit
	cureSchema                    // the schemas of its tools
)

// cure finds what could make a refused request pass; nil for nothing.
func (a *attempt) cure() *cure {
	if a.refusesImages(wire.ReadFailure(a.answer.errorStatus(), a.answer.whole)) {
		return nil
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
	if a.answer.schema.Found {
		return a.plainSchemas()
	}
	return a.leaveOut()
}

// strip is the cure for thinking that is invalid: the request goes without.
func (a *attempt) strip() *cure {
	dialect := a.backend.dialect
	if !thinking.HasThinking(a.doc, dialect) {
		return nil
	}
	bound := thinking.SaysBound(a.answer.whole)
	if bound {
		a.backend.bound.Store(true)
	}
	partly := a.partly() // and in vain
	c := &cure{kind: cureThinking, class: thinking.ClassStrip, log: a.logThinking()}
	c.partial = !bound && !partly && a.replay.MixesStrangers()
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
	c.learn = func(ctx context.Context) {
		others := replay.Refused(ctx, removed, partly)
		if others.Models {
			a.backend.ownModel.Store(true)
		}
		if others.Backends {
			a.backend.ownBackend.Store(true)
		}
	}
	return c
}

// partly reports whether the attempt went without the thinking of strangers.
func (a *attempt) partly() bool {
	return slices.ContainsFunc(a.cures, func(c *cure) bool { return c.kind == cureThinking && c.partial })
}

func (a *attempt) logThinking() func(ok bool) {
	class, said := a.answer.class, a.quote()
	return func(ok bool) {
		a.log().Warn().Stringer("class", class).Str("error", said).Bool("ok", ok).
			Str("backend", a.backend.name).Str("model",
			a.model).Msg("[thinking_retry] the backend refused the thinking in a request")
	}
}
