package thinking

import (
	"bytes"
	"fmt"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// BypassSignature is the string that Gemini accepts in place of a thought signature that is not
// known.
const BypassSignature = "skip_thought_signature_validator"

// Placeholder is what a vendor accepts in place of reasoning that is not known. The zero value
// stands for nothing.
type Placeholder struct {
	Block     bool   // messages: a thinking block, first in the content
	Field     string // chat completions: the member of the message
	Text      string // of both
	Signature string // chat completions: the thought signature of a message's first call
}

// Refilled is a request after Refill has put reasoning into it.
type Refilled struct {
	Body         []byte
	Turns        int // stored turns that were put back beyond those of Filter or PutBack
	Placeholders int
	// Changed: the body differs from what Filter or PutBack returned. Otherwise there is nothing to
	// retry with, unless Off is set.
	Changed bool
	// Off: reasoning is still missing, so that thinking has to be switched off for the retry.
	Off bool
}

// Refill prepares the retry after an error of ClassRestore; Filter or PutBack come before it. Known
// turns that the chain did not lead to are put back too, since the vendor asks for them. Where
// nothing is known the placeholder stands. Nothing is removed.
func (r *Replay) Refill(p Placeholder) (Refilled, error) {
	steps := slices.Clone(r.steps)
	for i, s := range steps {
		switch j := &r.judged[i]; {
		case s != unchained:
		case r.canRestore(j):
			steps[i] = restoreStep(j)
		default:
			steps[i] = step{leave, ledger.Unknown}
		}
	}
	original, was := r.apply(r.steps)
	body, report := r.apply(steps)
	o := r.request.Outline
	if len(o.Body) > 0 && &body[0] != &o.Body[0] {
		var err error
		if o, err = wire.ReadOutline(body); err != nil {
			return Refilled{}, fmt.Errorf("read the refilled request: %w", err)
		}
	}
	h := history{o, r.request.Dialect}
	var e wire.Edits
	out := Refilled{Turns: report.PutBack - was.PutBack}
	for i := range o.Messages {
		if m := &o.Messages[i]; m.Role == wire.RoleAssistant && h.hold(&e, m, p) {
			out.Placeholders++
		}
	}
	out.Body = e.Apply(body)
	if out.Changed = !bytes.Equal(out.Body, original); !out.Changed {
		out.Body = original
	}
	out.Off = out.Placeholders == 0 && (!out.Changed || h.lacking())
	return out, nil
}

// hold puts a placeholder into a message that lacks reasoning, and reports whether it did.
func (h history) hold(e *wire.Edits, m *wire.MessageOutline, p Placeholder) bool {
	switch {
	case h.dialect == wire.Messages && p.Block:
		return !h.thinks(m) && h.holdBlock(e, m, p.Text)
	case h.dialect == wire.Chat && p.Field != "":
		span := m.Members.Get(p.Field)
		lacks := !span.Exists() || h.Raw(span).Kind() == 'n'
		if lacks {
			put(e, m.Span, span, p.Field, wire.Quote(p.Text))
		}
		return lacks
	case h.dialect == wire.Chat && p.Signature != "":
		return h.holdSignature(e, m, p.Signature)
	}
	return false
}

// holdBlock puts a thinking block before a message's content.
func (h history) holdBlock(e *wire.Edits, m *wire.MessageOutline, thought string) bool {
	block := slices.Concat([]byte(`{"type":"thinking","thinking":`), wire.Quote(thought), []byte(`,"signature":""},`))
	if text, ok := h.Text(m.Content); ok {
		e.Replace(m.Content, slices.Concat([]byte("["), block, textBlock(text), []byte("]")))
		return true
	}
	if len(m.Blocks) == 0 {
		return false
	}
	start := m.Blocks[0].Start
	e.Replace(wire.Span{Start: start, End: start}, block)
	return true
}

// holdSignature puts a bypass on the first call of a message; vendors do not check the other calls
// of a step.
func (h history) holdSignature(e *wire.Edits, m *wire.MessageOutline, signature string) bool {
	elements := h.Elements(m.Members.Get("tool_calls"))
	if len(elements) == 0 {
		return false
	}
	call := h.Object(elements[0])
	if len(call) == 0 || h.signed(call) {
		return false
	}
	google := slices.Concat([]byte(`{"thought_signature":`), wire.Quote(signature), []byte("}"))
	extra := slices.Concat([]byte(`{"google":`), google, []byte("}"))
	span := call.Get(extraContent)
	if members := h.Object(span); len(members) > 0 {
		put(e, span, members.Get("google"), "google", google)
	} else {
		put(e, elements[0], span, extraContent, extra)
	}
	return true
}

// lacking reports whether the last assistant message of the current tool loop does
// not begin with thinking.
func (h history) lacking() bool {
	for i := len(h.Messages) - 1; i >= h.loop(); i-- {
		m := &h.Messages[i]
		if m.Role != wire.RoleAssistant {
			continue
		}
		if h.dialect == wire.Chat {
			return !h.thinks(m)
		}
		return len(m.Blocks) == 0 || !wire.IsThinking(m.Blocks[0].Type)
	}
	return false
}
