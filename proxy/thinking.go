package proxy

import (
	"context"
	"slices"

	"github.com/rs/zerolog"

	"mneme/proxy/ledger"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// begin opens the thinking session of a request of the main pipeline: it captures
// in one step who is asked and what is proven, and filters by that.
func (s *Server) begin(ctx context.Context, x *Exchange) error {
	session := thinking.Begin(ctx, s.ledger, x.request(), thinking.Policy{
		Unproven: x.backend.config.Thinking.Unproven, Bound: x.backend.bound.Load(),
		Own:   thinking.Strangers{Models: x.backend.ownModel.Load(), Backends: x.backend.ownBackend.Load()},
		Moved: x.moved(),
	})
	body, report := session.Filter()
	x.attempt.report = report
	level := zerolog.DebugLevel
	if report.Changed() {
		level = zerolog.InfoLevel
	}
	x.log().WithLevel(level).Str("backend", x.backend.name).Str("model", x.model).
		Str("conversation", x.scope.Conversation).Msg(report.String())
	return x.resume(session.Replay, body)
}

// putBack gives a teammate's requests the turns as its backend gave them.
func (s *Server) putBack(ctx context.Context, x *Exchange) error {
	replay := thinking.Look(ctx, s.ledger, x.request())
	body, report := replay.PutBack(x.fitting().Replay.Signed, x.moved())
	x.attempt.report = report
	return x.resume(replay, body)
}

func (x *Exchange) request() ledger.Request {
	r := ledger.Request{
		Scope: x.scope, Minted: x.minted, Dialect: x.backend.dialect, Outline: x.attempt.doc,
		Target: ledger.Origin{Backend: x.backend.name, Vendor: x.profile.Vendor, Model: x.model},
	}
	if x.continued != nil {
		r.Known = x.continued.Known
		if x.attempt.doc == x.continued.Outline {
			r.Read = x.continued.Read
		}
	}
	return r
}

// moved reports whether thinking that is older than the current turn is bound to
// something that does not stand before it, as far as the model or the backend is
// known to bind it. Where nobody knows it is sent.
func (x *Exchange) moved() bool {
	if x.continued == nil || !x.continued.Moved {
		return false
	}
	replay := x.fitting().Replay
	return replay.Signed && (replay.Bound || x.backend.bound.Load())
}

func (x *Exchange) resume(r *thinking.Replay, body []byte) (err error) {
	x.attempt.replay = r
	x.attempt.doc, err = x.attempt.doc.WithBody(body)
	return err
}

// refill is the cure for reasoning that is missing: the ledger's, else a
// placeholder, else no thinking. Where the error says in which way reasoning goes
// back, that counts more than what the profile thought of it.
func (x *Exchange) refill() *cure {
	c := &cure{kind: cureThinking, class: x.answer.class, log: x.logThinking()}
	p := x.fitting()
	if told, ok := demanded(x.answer.whole, p.Replay); ok {
		p.Replay, c.profile = told, &p
		c.learn = func(context.Context) {
			x.backend.lessons.add(x.model, func(l *lesson) { l.replay = &told })
		}
	}
	filled, err := x.attempt.replay.Refill(placeholder(p))
	if err != nil || c.profile == nil && !filled.Changed && !filled.Off {
		return nil
	}
	c.amend = func(o *wire.Outline) (*wire.Outline, error) {
		o, err := o.WithBody(filled.Body)
		if err == nil && filled.Off && c.profile == nil {
			o, err = o.WithBody(sanitize.ThinkingOff(o, x.backend.dialect, p))
		}
		return o, err
	}
	return c
}

// demanded is how reasoning goes back by the words of an error; ok is false if the
// profile has it so, or the error does not tell.
func demanded(said []byte, replay sanitize.Replay) (told sanitize.Replay, ok bool) {
	switch demand := thinking.Demanded(said); demand {
	case thinking.DemandsOnCalls, thinking.DemandsEverywhere:
		told = sanitize.Replay{
			Reasoning: sanitize.Always, Field: "reasoning_content", Missed: true, Redacted: replay.Redacted,
		}
		enough := replay.Reasoning == sanitize.Always
		if demand == thinking.DemandsOnCalls && !enough {
			told.Reasoning = sanitize.Required
			enough = replay.Reasoning == sanitize.Required
		}
		ok = replay.Signed || replay.Field != told.Field || !enough
	case thinking.DemandsSignatures:
		told = sanitize.For("gemini", "").Replay
		ok = replay.Field != told.Field || replay.Reasoning != told.Reasoning
	}
	return told, ok
}

// fitting is the profile for this request: the model's, changed by what the
// backend's refusals have taught.
func (x *Exchange) fitting() sanitize.Profile {
	p := x.profile
	if replay := x.backend.lessons.of(x.model).replay; replay != nil {
		p.Replay = *replay
	}
	for _, c := range x.attempt.cures {
		if c.profile != nil {
			p = *c.profile
		}
	}
	return p
}

// refusals are the parameters that this request goes without.
func (x *Exchange) refusals() []sanitize.Refusal {
	known := x.backend.lessons.of(x.model).refusals
	for _, c := range x.attempt.cures {
		known = slices.Concat(known, c.without)
	}
	return known
}

// placeholder is what a vendor takes for reasoning that nobody has.
func placeholder(p sanitize.Profile) thinking.Placeholder {
	if p.Replay.Reasoning != sanitize.Required && p.Replay.Reasoning != sanitize.Always {
		return thinking.Placeholder{}
	}
	if p.Replay.Field == "extra_content" {
		return thinking.Placeholder{Signature: p.Replay.Placeholder}
	}
	return thinking.Placeholder{Block: !p.Replay.Signed, Field: p.Replay.Field}
}

// observe has the answer watched on its way, so that it is recorded.
func observe(_ context.Context, x *Exchange) error {
	x.observer = thinking.NewObserver(x.backend.dialect, x.profile.ToolIDs.Recurring)
	return nil
}

// hear takes an event of the answer before the client gets it, and gives what the
// client gets. When it is the one that ends the answer, the turn is recorded
// first: the client's next request may be here before this one is over.
func (x *Exchange) hear(ctx context.Context, data []byte) []byte {
	if x.backend.dialect == wire.Messages && x.observer != nil {
		// What a stream has most of is read once for all who want to know it.
		if piece, ok := wire.ReadTextPiece(data); ok {
			x.tokens.Text(piece.Text)
			x.observer.Text(piece)
			return data
		}
	}
	x.tokens.Event(data)
	if x.observer == nil {
		return data
	}
	data = x.observer.Event(data)
	x.register(ctx, x.observer.Complete())
	return data
}

// hearBody is hear for an answer that came whole.
func (x *Exchange) hearBody(ctx context.Context) []byte {
	body := x.answer.whole
	if x.observer == nil {
		x.tokens.Body(body)
		return body
	}
	if o := x.readAnswer(); o != nil {
		x.tokens.Message(o)
		body = x.observer.Message(o)
	} else {
		x.tokens.Body(body)
		body = x.observer.Body(body)
	}
	x.register(ctx, true)
	return body
}

// readAnswer reads an answer of the messages dialect once for all who want to know
// of it; nil if it is none.
func (x *Exchange) readAnswer() *wire.Outline {
	if x.backend.dialect != wire.Messages {
		return nil
	}
	o, err := wire.ReadMessage(x.answer.whole)
	if err != nil {
		return nil
	}
	return o
}

// heardAll says that the stream has ended by itself.
func (x *Exchange) heardAll(ctx context.Context) {
	if x.observer != nil {
		x.observer.End()
		x.register(ctx, true)
	}
}

// register records the answer, once.
func (x *Exchange) register(ctx context.Context, ready bool) {
	if !ready || x.registered {
		return
	}
	if a, ok := x.observer.Answer(); ok {
		x.registered = true
		var place *ledger.Place
		if x.continued != nil && !a.Cut {
			place = x.continued.Place()
		}
		x.attempt.replay.Register(ctx, x.attempt.doc, a, place)
	}
}

// sanitize is the last hop: what it gives is what leaves.
func (s *Server) sanitize(_ context.Context, x *Exchange) (err error) {
	x.attempt.fitted = sanitize.Sanitize(sanitize.Input{
		Outline: x.attempt.doc, Dialect: x.backend.dialect, Profile: x.fitting(), Refusals: x.refusals(),
		Betas: x.betas(), Effort: x.ownEffort(),
		Budget: x.backend.config.Thinking.BudgetTokens, Count: x.endpoint.name == countEndpoint.name,
		Translated: x.translated(),
	})
	if changes := x.attempt.fitted.Changes; len(changes) > 0 {
		x.log().Debug().Interface("changes", changes).Msg("[sanitize]")
	}
	x.attempt.doc, err = x.attempt.doc.WithBody(x.attempt.fitted.Body)
	return err
}
