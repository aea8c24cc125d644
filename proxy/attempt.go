package proxy

import (
	"cmp"
	"context"

	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// attempts makes an attempt, and a second one if the answer says that the thinking
// in the request is at fault and there is something to be done about it. Each
// begins with the request as it was translated. When the second fails too the
// client gets the first one's error, as it came.
func (s *Server) attempts(stages ...Stage) Stage {
	p := pipeline(stages)
	return func(ctx context.Context, x *Exchange) error {
		x.attempt = attempt{doc: x.asked}
		if err := p.run(ctx, x); err != nil {
			return err
		}
		class := x.answer.class
		cure := cmp.Or(s.cure(x), x.lessOutput())
		if cure == nil {
			return nil
		}
		refusal, refused := x.answer, x.attempt
		s.metrics.refused(x)
		x.attempt, x.answer = attempt{doc: x.asked, amend: cure.amend}, nil
		err := p.run(ctx, x)
		ok := err == nil && !x.answer.refused()
		s.metrics.retried(x, class, ok)
		x.log().Warn().Stringer("class", class).Str("error", x.said(refusal)).Bool("ok", ok).
			Str("backend", x.backend.name).Str("model", x.model).Msg("[thinking_retry] the backend refused the thinking in a request")
		if ok {
			refusal.close()
			if x.attempt.replay.Refused(ctx, cure.removed) {
				x.backend.ownModel.Store(true)
			}
			return nil
		}
		if x.answer != nil {
			x.answer.close()
		}
		x.answer, x.attempt = refusal, refused
		return ctx.Err()
	}
}

// amend makes the change for which a second attempt is made.
func amend(_ context.Context, x *Exchange) (err error) {
	if x.attempt.amend != nil {
		x.attempt.doc, err = x.attempt.amend(x.attempt.doc)
	}
	return err
}

// cure is what a second attempt changes.
type cure struct {
	amend   func(*wire.Outline) (*wire.Outline, error)
	removed []string // keys of the thinking that was taken out
}

// cure finds what could make a refused request pass; nil for nothing.
func (s *Server) cure(x *Exchange) *cure {
	sent, dialect := x.attempt.doc, x.backend.dialect
	switch x.answer.class {
	case thinking.ClassStrip:
		if !thinking.HasThinking(sent, dialect) {
			return nil
		}
		if thinking.SaysBound(x.answer.error()) {
			x.backend.bound.Store(true)
		}
		c := &cure{}
		c.amend = func(o *wire.Outline) (*wire.Outline, error) {
			body, removed := thinking.Strip(o, dialect)
			c.removed = removed
			return o.WithBody(body)
		}
		return c
	case thinking.ClassRestore:
		return x.refill()
	}
	return nil
}
