package chatwire

import (
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// SameAnswer hands on an answer of the messages dialect that a Format has changed. Its methods are those of
// ChatAnswer.
type SameAnswer struct {
	asked Asked
	ended bool
}

// NewSameAnswer begins an answer.
func NewSameAnswer(a Asked) *SameAnswer { return &SameAnswer{asked: a} }

// Event takes the data of one server-sent event. An error is returned as a wire.Failure.
func (a *SameAnswer) Event(dst, data []byte) ([]byte, error) {
	kind := wire.EventType(data)
	switch kind {
	case "":
		return dst, nil
	case wire.ErrorEvent:
		return dst, wire.ReadFailure(0, data)
	case wire.MessageStart:
		data = a.named(data, "message.model")
	}
	a.ended = a.ended || kind == wire.MessageStop
	return wire.AppendFrame(dst, kind, data), nil
}

// Body takes an answer that came as one JSON body.
func (a *SameAnswer) Body(dst, body []byte) ([]byte, error) {
	if gjson.GetBytes(body, "type").Str == wire.ErrorEvent {
		return dst, wire.ReadFailure(0, body)
	}
	a.ended = true
	return append(dst, a.named(body, "model")...), nil
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *SameAnswer) End(dst []byte) ([]byte, error) {
	if !a.ended {
		return dst, ErrCut
	}
	return dst, nil
}

// named is data with the client's name of the model.
func (a *SameAnswer) named(data []byte, path string) []byte {
	shown := gjson.GetBytes(data, path)
	if a.asked.Model == "" || shown.Type != gjson.String || shown.Index <= 0 {
		return data
	}
	return wire.Splice(data, wire.Span{Start: shown.Index, End: shown.Index + len(shown.Raw)}, wire.Quote(a.asked.Model))
}
