package chatwire

import (
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// SameAnswer writes an answer of the messages dialect for a client of that dialect. Its methods are those of ChatAnswer.
type SameAnswer struct {
	asked Asked
	all   wire.Assembler // of a body
	ended bool
}

// NewSameAnswer begins an answer.
func NewSameAnswer(a Asked) *SameAnswer { return &SameAnswer{asked: a} }

// Event takes an event. What its vendor wrote keeps its bytes, but for the name of the model.
func (a *SameAnswer) Event(dst []byte, e *wire.Event) ([]byte, error) {
	if e.Type == "" {
		return dst, nil
	}
	if e.Type == wire.MessageStart && a.asked.Model != "" && e.Message != nil {
		e.Message.Model = a.asked.Model
		if at := gjson.GetBytes(e.Data, "message.model"); at.Type == gjson.String {
			e.Data = wire.Splice(e.Data, wire.Span{Start: at.Index, End: at.Index + len(at.Raw)}, wire.Quote(a.asked.Model))
		}
	}
	a.ended = a.ended || e.Type == wire.MessageStop
	if !a.asked.Stream {
		return dst, a.all.Add(e)
	}
	return wire.AppendFrame(dst, e.Type, e.JSON()), nil
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *SameAnswer) End(dst []byte) ([]byte, error) {
	if !a.ended {
		return dst, ErrCut
	}
	if a.asked.Stream {
		return dst, nil
	}
	body, _ := a.all.JSON()
	return append(dst, body...), nil
}
