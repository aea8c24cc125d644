package chatwire

import (
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// SameAnswer writes an answer of the messages dialect for a client of that dialect. Its methods are those of ChatAnswer.
type SameAnswer struct {
	options   AnswerOptions
	assembler wire.Assembler // of a body
	done      bool
}

// NewSameAnswer begins an answer.
func NewSameAnswer(a AnswerOptions) *SameAnswer { return &SameAnswer{options: a} }

// Event takes an event. What its vendor wrote keeps its bytes, but for the name of the model.
func (a *SameAnswer) Event(dst []byte, e *wire.Event) ([]byte, error) {
	if e.Type == "" {
		return dst, nil
	}
	if e.Type == wire.MessageStart && a.options.Model != "" && e.Message != nil {
		e.Message.Model = a.options.Model
		if model := gjson.GetBytes(e.Data, "message.model"); model.Type == gjson.String {
			e.Data = wire.Splice(e.Data, wire.Span{Start: model.Index, End: model.Index + len(model.Raw)},
				wire.Quote(a.options.Model))
		}
	}
	a.done = a.done || e.Type == wire.MessageStop
	if !a.options.Stream {
		return dst, a.assembler.Add(e)
	}
	return wire.AppendFrame(dst, e.Type, e.JSON()), nil
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *SameAnswer) End(dst []byte) ([]byte, error) {
	if !a.done {
		return dst, ErrCut
	}
	if a.options.Stream {
		return dst, nil
	}
	body, _ := a.assembler.JSON()
	return append(dst, body...), nil
}
