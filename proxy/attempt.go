package proxy

import (
	"context"
	"slices"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// attempts makes an attempt, and another one for each kind of cure if the answer
// says what in the request is at fault and there is something to be done about it.
// Each begins with the request as it was translated and makes the changes of all
// cures so far; no kind is tried twice. When the last fails too the client gets the
// first one's error, as it came.
func (s *Server) attempts(stages ...Stage) Stage {
	p := pipeline(stages)
	return func(ctx context.Context, x *Exchange) error {
		defer func() { s.metrics.shaped(x) }() // by the attempt whose answer the client gets
		x.attempt = attempt{doc: x.asked}
		if err := p.run(ctx, x); err != nil {
			return err
		}
		refusal, refused := x.answer, x.attempt
		var cures []*cure
		for x.answer.refused() {
			next := s.cure(x)
			if next == nil {
				break
			}
			if i := slices.IndexFunc(cures, func(c *cure) bool { return c.kind == next.kind }); i >= 0 {
				if !cures[i].partial || next.partial {
					cures[i].outdone(ctx, next)
					break
				}
				cures = slices.Delete(cures, i, i+1)
			}
			s.metrics.refused(x)
			if x.answer != refusal {
				x.answer.close()
			}
			cures = append(cures, next)
			x.attempt, x.answer = attempt{doc: x.asked, cures: cures}, nil
			if err := p.run(ctx, x); err != nil {
				break
			}
		}
		if len(cures) == 0 {
			return nil
		}
		ok := x.answer != nil && !x.answer.refused()
		for _, c := range cures {
			s.metrics.retried(x, c, ok)
			c.log(x, ok)
			if ok && c.learn != nil {
				c.learn(ctx)
			}
		}
		if ok {
			refusal.close()
			return nil
		}
		if x.answer != nil && x.answer != refusal {
			x.answer.close()
		}
		x.answer, x.attempt = refusal, refused
		return ctx.Err()
	}
}

// amend makes the changes for which another attempt is made.
func amend(_ context.Context, x *Exchange) (err error) {
	for _, c := range x.attempt.cures {
		if c.amend != nil && err == nil {
			x.attempt.doc, err = c.amend(x.attempt.doc)
		}
	}
	return err
}

// cure is what another attempt changes.
type cure struct {
	kind  cureKind
	class thinking.Class // of the refusal, of kind cureThinking
	// partial: it takes out the thinking of strangers alone; if that does not help, all of it goes.
	partial bool

	amend   func(*wire.Outline) (*wire.Outline, error) // of the request, before the last hop; nil for nothing
	profile *sanitize.Profile                          // for the last hop, in place of the model's; nil for that
	without []sanitize.Refusal                         // what the last hop leaves out

	log   func(x *Exchange, ok bool)
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
)

// cure finds what could make a refused request pass; nil for nothing.
func (s *Server) cure(x *Exchange) *cure {
	switch x.answer.class {
	case thinking.ClassStrip:
		return x.strip()
	case thinking.ClassRestore:
		if x.partly() {
			return x.strip()
		}
		return x.refill()
	}
	if x.answer.length.Excess != thinking.NotLong {
		return x.lessOutput()
	}
	return x.leaveOut()
}

// strip is the cure for thinking that is invalid: the request goes without.
func (x *Exchange) strip() *cure {
	dialect := x.backend.dialect
	if !thinking.HasThinking(x.attempt.doc, dialect) {
		return nil
	}
	bound := thinking.SaysBound(x.answer.whole)
	if bound {
		x.backend.bound.Store(true)
	}
	partly := x.partly() // and in vain
	c := &cure{kind: cureThinking, class: thinking.ClassStrip, log: x.logThinking()}
	c.partial = !bound && !partly && x.attempt.replay.MixesStrangers()
	var removed []string // keys of the thinking that was taken out
	c.amend = func(o *wire.Outline) (*wire.Outline, error) {
		var body []byte
		if c.partial {
			body, removed = x.attempt.replay.StripStrangers(o)
		} else {
			body, removed = thinking.Strip(o, dialect)
		}
		x.attempt.report = x.attempt.replay.Stripped(x.attempt.report, c.partial)
		return o.WithBody(body)
	}
	c.learn = func(ctx context.Context) {
		others := x.attempt.replay.Refused(ctx, removed, partly)
		if others.Models {
			x.backend.ownModel.Store(true)
		}
		if others.Backends {
			x.backend.ownBackend.Store(true)
		}
	}
	return c
}

// partly reports whether the attempt went without the thinking of strangers.
func (x *Exchange) partly() bool {
	return slices.ContainsFunc(x.attempt.cures, func(c *cure) bool { return c.partial })
}

func (x *Exchange) logThinking() func(*Exchange, bool) {
	class, said := x.answer.class, x.said(x.answer)
	return func(x *Exchange, ok bool) {
		x.log().Warn().Stringer("class", class).Str("error", said).Bool("ok", ok).
			Str("backend", x.backend.name).Str("model",
			x.model).Msg("[thinking_retry] the backend refused the thinking in a request")
	}
}
